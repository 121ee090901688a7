/* SPDX-License-Identifier: MIT
 *
 * Variables whose addresses MPI gets for reading, and strings of argv.
 */
#include "mpi.h"

#include <stdlib.h>
#include <string.h>

int MPI_Get_address(const void *, MPI_Aint *);
int MPI_Type_size(MPI_Datatype, int *);

int main(int argc, char **argv)
{
    START;
    int sent = 3, addressed = 4;
    MPI_Aint address;
    MPI_Send(&sent, 1, MPI_INT, 0, 0, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    malloc(sent); /* together */
    MPI_Get_address(&addressed, &address);
    malloc(addressed);       /* unknown */
    malloc(strlen(argv[1])); /* together */
    int bytes;
    MPI_Type_size(MPI_INT, &bytes);
    malloc(bytes); /* together */
    MPI_Type_size(rank ? MPI_INT : MPI_CHAR, &bytes);
    malloc(bytes); /* sizes differ */
    if (strcmp(argv[1], "more") == 0) {
        malloc(8); /* together */
    }
    if (strcmp(argv[rank], "more") == 0) {
        malloc(8); /* divergent */
    }
    return 0;
}
