/* SPDX-License-Identifier: MIT
 *
 * A failure ends all ranks before MPI_Finalize(), and one rank after it.
 */
#include "mpi.h"

#include <stdlib.h>

static void fail(int when)
{
    if (when) {
        exit(3);
    }
}

static void fail_late(int when)
{
    if (when) {
        exit(3);
    }
}

/* It does not return after MPI_Finalize(). */
static void check(int ranks)
{
    if (ranks == 5) {
        MPI_Finalize();
        exit(1);
    }
}

static void finish(void)
{
    MPI_Finalize();
}

int main(int argc, char **argv)
{
    START;
    if (rank == 8) {
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    malloc(8); /* together */
    check(size);
    fail(rank == 7);
    malloc(8);               /* together */
    if (malloc(8) == NULL) { /* together */
        exit(EXIT_FAILURE);
    }
    fail_late(rank == 6);
    malloc(8); /* divergent: fail_late() is also called after MPI_Finalize() */
    finish();
    fail_late(rank == 5);
    malloc(8); /* divergent */
    return 0;
}
