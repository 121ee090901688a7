/* SPDX-License-Identifier: MIT
 *
 * A function of MPI that takes an error handler: after that, a status may differ between threads.
 */
#include "mpi.h"

#include <stdlib.h>

typedef int MPI_Errhandler, MPI_Session;
int MPI_Session_init(int info, MPI_Errhandler handler, MPI_Session *session);

int main(int argc, char **argv)
{
    MPI_Session session;
    int error;
    START;
    MPI_Session_init(0, 1, &session);
    error = MPI_Send(&rank, 1, MPI_INT, rank ? -1 : size, 0, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    if (error != MPI_SUCCESS) {
        malloc(8); /* unknown */
    }
    return 0;
}
