/* SPDX-License-Identifier: MIT
 *
 * Exit statuses after MPI_Finalize(): the program's is the largest.
 */
#include <mpi.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Finalize();
    if (rank == 1) {
        exit(7);
    }
    return rank == 2 ? 3 : 0;
}
