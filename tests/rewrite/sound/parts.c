/* SPDX-License-Identifier: MIT
 *
 * Functions that set a part of a variable, or do not set it in all ranks.
 */
#include "mpi.h"

#include <stdlib.h>

int main(int argc, char **argv)
{
    START;
    struct {
        int a, b;
    } pair;
    long wide = (long)rank << 32;
    int x = rank, y = rank, z = rank, u = rank;
    pair.a = pair.b = rank;
    MPI_Comm_size(MPI_COMM_WORLD, (int *)&pair);
    malloc(pair.b); /* unknown */
    MPI_Comm_size(MPI_COMM_WORLD, (int *)&wide);
    malloc(wide); /* unknown */
    MPI_Bcast(&x, 1, MPI_CHAR, 0, MPI_COMM_WORLD);
    malloc(x); /* unknown */
    MPI_Bcast(&y, size > 3, MPI_INT, 0, MPI_COMM_WORLD);
    malloc(y); /* unknown */
    MPI_Bcast(&z, 1, MPI_INT, rank > 9, MPI_COMM_WORLD);
    malloc(z); /* sizes differ */
    MPI_Bcast(&u, 1, MPI_INT, size - 1, MPI_COMM_WORLD);
    malloc(u); /* together */
    return 0;
}
