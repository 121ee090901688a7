/* SPDX-License-Identifier: MIT */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    malloc(8);         /* pattern, flow */
    malloc(8 * rank);  /* pattern, refuted */
    malloc(getchar()); /* pattern, unproved */
    for (int i = 0; i < 3; i++) {
        malloc(i + 1); /* flow, beyond */
    }
    if (rank) {
        malloc(8); /* none */
    }
    return 0;
}
