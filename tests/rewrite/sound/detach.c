/* SPDX-License-Identifier: MIT
 *
 * MPI_Buffer_detach() waits until the messages have been received.
 */
#include "mpi.h"

#include <stdlib.h>

static char buffer[1000];

int main(int argc, char **argv)
{
    START;
    int x = 0, bytes;
    void *old;
    if (rank == 0) {
        MPI_Buffer_attach(buffer, 1000);
        MPI_Bsend(&x, 1, MPI_INT, 1, 0, MPI_COMM_WORLD);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        MPI_Buffer_detach(&old, &bytes);
    }
    malloc(8); /* unknown */
    if (rank == 1) {
        MPI_Recv(&x, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    malloc(8); /* together */
    return 0;
}
