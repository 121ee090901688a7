#include <mpi.h>
#include <stdlib.h>

/* Threads that leave early, or take another way. */
static int rank, size;

static void *after_return(void)
{
    if (rank == 0) {
        return NULL;
    }
    return malloc(8); /* divergent */
}

static void stop(void)
{
    if (rank == 1) {
        exit(0);
    }
}

static void *in_switch(int way)
{
    void *p = NULL;
    switch (way) {
    case 0:
        p = malloc(8); /* divergent */
        break;
    default:
        break;
    }
    return p;
}

static void *in_loops(void)
{
    void *p = malloc(8);
    for (int i = 0; i < size; i++) {
        if (i == rank) {
            continue;
        }
        free(p);
        p = malloc(8); /* divergent */
    }
    while (size > 0) {
        free(p);
        p = malloc(16); /* divergent: the loop has another number of rounds in each rank */
        if (rank == --size) {
            break;
        }
    }
    free(p);
    return malloc(24); /* all ranks are here again */
}

static void *by_goto(void)
{
    void *p = NULL;
    if (rank > 2) {
        goto end;
    }
    p = malloc(8); /* divergent */
end:
    free(p);
    return malloc(16);
}

static int allocate(void)
{
    free(malloc(8)); /* divergent: one of its calls is the right side of && */
    return 1;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    free(after_return());
    free(in_switch(rank));
    free(by_goto());
    free(in_loops());
    int both = rank == 3 && allocate();
    void *p = rank ? malloc(8) : malloc(16); /* divergent, both */
    free(p);
    free(malloc(both ? 32 : 64)); /* another size in each rank */
    stop();
    free(malloc(8)); /* divergent: rank 1 is gone */
    MPI_Finalize();
    return 0;
}
