/* SPDX-License-Identifier: MIT
 *
 * Wrong collective requests, as a wrong analysis would make them. The argument says which.
 */
#include <gpualloc/gpu_mpi.cuh>

static __device__ int gpualloc_main(int argc, char **argv)
{
    int rank;
    const char *how = argc > 1 ? argv[1] : "";
    init_malloc();
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    free(malloc(16, true));
    if (strcmp(how, "missing") == 0 && rank != 3) {
        free(malloc(32, true));
    }
    if (strcmp(how, "sizes") == 0) {
        free(malloc(rank == 3 ? 40 : 32, true));
    }
    if (strcmp(how, "places") == 0) {
        if (rank == 3) {
            free(malloc(32, true));
        } else {
            free(malloc(32, true));
        }
    }
    if (strcmp(how, "reduce") == 0) {
        double sum = rank;
        if (rank < 32) {
            MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, true);
        } else {
            MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, rank != 40);
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    free(malloc(16, true));
    MPI_Finalize();
    clean_malloc();
    return 0;
}

GA_MPI_PROGRAM(gpualloc_main)
