/* SPDX-License-Identifier: MIT
 *
 * Values that ranks of other communicators agree on.
 */
#include "mpi.h"

#include <stdlib.h>

static int agree(int x, MPI_Comm in)
{
    MPI_Bcast(&x, 1, MPI_INT, 0, in);
    return x;
}

int main(int argc, char **argv)
{
    START;
    MPI_Comm alone = MPI_COMM_SELF, half = MPI_COMM_WORLD, all, again;
    malloc(agree(rank, MPI_COMM_WORLD)); /* unknown */
    malloc(agree(rank, MPI_COMM_SELF));  /* unknown */
    malloc(agree(rank, alone));          /* unknown */
    MPI_Comm_dup(half, &all);
    malloc(agree(rank, all)); /* unknown */
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, 0, &half);
    MPI_Comm_dup(half, &all);
    malloc(agree(rank, half)); /* unknown */
    malloc(agree(rank, all));  /* unknown */
    again = MPI_Comm_f2c(MPI_Comm_c2f(half));
    malloc(agree(rank, again)); /* unknown */
    return 0;
}
