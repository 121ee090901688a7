/* SPDX-License-Identifier: MIT
 *
 * MPI_Finalize() in a loop, and in a function whose address is taken.
 */
#include "mpi.h"

#include <stdlib.h>

static void finish(void)
{
    MPI_Finalize();
}

static void fail(int when)
{
    if (when) {
        exit(1);
    }
}

int main(int argc, char **argv)
{
    START;
    for (int i = 0; i < 2; i++) {
        fail(i && rank);
        malloc(8); /* divergent */
        if (i == 0) {
            void (*call)(void) = argc > 1 ? finish : finish;
            MPI_Finalize();
            (void)call;
        }
    }
    return 0;
}
