/* SPDX-License-Identifier: MIT
 *
 * Collective calls that meet others: the second MPI_Bcast() of rank 0 meets the first one of all
 * other ranks.
 */
#include "mpi.h"

#include <stdlib.h>

int main(int argc, char **argv)
{
    int x = 1, y = 2, z = 3;
    START;
    if (rank == 0) {
        MPI_Bcast(&x, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    MPI_Bcast(&y, 1, MPI_INT, 0, MPI_COMM_WORLD);
    if (rank != 0) {
        MPI_Bcast(&z, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    malloc(y); /* unknown */
    return 0;
}
