#include <mpi.h>
#include <stdlib.h>

/* Sizes that differ. */
static double *vector(int n)
{
    return malloc(n * sizeof(double));
}

static double *pair(int n)
{
    return malloc(2 * n * sizeof(double)); /* no call has an equal n */
}

int main(int argc, char **argv)
{
    int rank, size, n, most, mine, status;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    free(malloc((rank + 1) * 4)); /* sizes differ */
    free(malloc(argc * 4));
    free(malloc(atoi(argv[1])));
    n = rank == 0 ? 100 : 0;
    free(malloc(n)); /* sizes differ */
    MPI_Bcast(&n, 1, MPI_INT, 0, MPI_COMM_WORLD);
    free(malloc(n));
    mine = 1000 / size + (rank < 1000 % size);
    MPI_Allreduce(&mine, &most, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    free(malloc(most));
    free(vector(most));
    free(vector(mine)); /* this call stays dynamic */
    free(pair(mine));
    MPI_Scatter(NULL, 1, MPI_INT, &mine, 1, MPI_INT, 0, MPI_COMM_WORLD);
    free(malloc(mine)); /* unknown */
    status = MPI_Finalize();
    return status;
}
