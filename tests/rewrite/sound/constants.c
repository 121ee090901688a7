/* SPDX-License-Identifier: MIT
 *
 * Constants that are addresses, or a communicator of one rank.
 */
#include "mpi.h"

#include <stdlib.h>

static int unchanged = 3;
static const int table[] = {5, 6, 7};
static const unsigned long address = (unsigned long)&unchanged;
static const MPI_Comm alone = MPI_COMM_SELF, both[] = {MPI_COMM_WORLD, MPI_COMM_SELF};

int main(int argc, char **argv)
{
    START;
    int x = rank, y = rank;
    malloc(unchanged);       /* unknown */
    malloc(table[argc % 3]); /* together */
    malloc(table[rank % 3]); /* sizes differ */
    malloc(address % 100);   /* unknown */
    MPI_Bcast(&x, 1, MPI_INT, 0, alone);
    malloc(x); /* unknown */
    MPI_Bcast(&y, 1, MPI_INT, 0, both[1]);
    malloc(y); /* unknown */
    return 0;
}
