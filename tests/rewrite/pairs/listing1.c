#include <mpi.h>
#include <stdlib.h>

void f()
{
    void *ptr = malloc(sizeof(int));
    free(ptr);
}
int main(int argc, char **argv)
{
    void *ptr = malloc(sizeof(int));
    f();
    int recv;
    MPI_Alltoall(ptr, 4, MPI_INT, &recv, 4, MPI_INT, MPI_COMM_WORLD);
    free(ptr);
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank < 4) {
        void *ptr2 = malloc(sizeof(int));
        f();
        free(ptr2);
    }
    return 0;
}
