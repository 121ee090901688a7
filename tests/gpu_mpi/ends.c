/* SPDX-License-Identifier: MIT
 *
 * The ways in which a program ends early. The argument says which; the others wait for ever.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    int rank, value = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 3) {
        fprintf(stderr, "now: %s\n", argv[1]);
        if (strcmp(argv[1], "exit") == 0) {
            exit(4);
        }
        if (strcmp(argv[1], "abort") == 0) {
            MPI_Abort(MPI_COMM_WORLD, 5);
        }
        if (strcmp(argv[1], "truncate") == 0) {
            long large[2] = {1, 2};
            MPI_Send(large, 2, MPI_LONG, 3, 0, MPI_COMM_WORLD);
            MPI_Recv(&value, 1, MPI_INT, 3, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
        if (strcmp(argv[1], "rank") == 0) {
            MPI_Send(&value, 1, MPI_INT, 1000, 0, MPI_COMM_WORLD);
        }
    }
    MPI_Recv(&value, 1, MPI_INT, 3, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    printf("never\n");
    MPI_Finalize();
    return 0;
}
