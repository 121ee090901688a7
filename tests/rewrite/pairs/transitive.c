#include <mpi.h>
#include <stdlib.h>

/* Functions that allocate through others, and by recursion. */
static void leaf(int n)
{
    free(malloc(n));
}

static void middle(int n)
{
    leaf(n);
}

static void outer(int n)
{
    middle(n + 1);
}

static void tree(int depth)
{
    free(malloc(16));
    if (depth > 0) {
        tree(depth - 1);
        tree(depth - 2);
    }
}

static void alone(int depth)
{
    free(malloc(16)); /* divergent: no rank enters together with all others */
    if (depth > 0) {
        alone(depth - 1);
    }
}

int main(int argc, char **argv)
{
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    outer(8);
    tree(3);
    if (rank == 0) {
        alone(3);
    }
    return 0;
}
