#include <mpi.h>
#include <stdlib.h>

/* Loops with a trip count that all ranks share. */
int main(int argc, char **argv)
{
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 0; i < size; i++) {
        double *row = (double *)malloc(size * sizeof *row);
        free(row);
    }
    for (int i = 1; i < size; i *= 2) {
        void *step = malloc(i);
        if (i > 16) {
            free(step);
            break;
        }
        free(step);
    }
    for (int i = 0; i < rank; i++) {
        free(malloc(8)); /* divergent */
    }
    MPI_Finalize();
    return 0;
}
