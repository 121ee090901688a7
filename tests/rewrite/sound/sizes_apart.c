/* SPDX-License-Identifier: MIT
 *
 * The size of a communicator is no value that ranks agree on, so a collective call that some ranks
 * make alone does not matter to it.
 */
#include "mpi.h"

#include <stdlib.h>

int main(int argc, char **argv)
{
    START;
    malloc(size); /* together */
    int given = rank;
    MPI_Comm half, again;
    if (rank == 0) {
        MPI_Bcast(&given, 1, MPI_INT, 0, MPI_COMM_WORLD);
    } else {
        MPI_Bcast(&given, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    malloc(size);  /* unknown: the barrier may meet another call */
    malloc(given); /* sizes differ */
    MPI_Comm_split(MPI_COMM_WORLD, rank, 0, &half);
    MPI_Comm_dup(half, &again);
    MPI_Comm_size(again, &size);
    malloc(size); /* unknown */
    return 0;
}
