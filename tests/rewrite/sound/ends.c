/* SPDX-License-Identifier: MIT
 *
 * A rank that ends alone, and one that ends all.
 */
#include "mpi.h"

#include <stdlib.h>

int main(int argc, char **argv)
{
    START;
    if (rank == 9) {
        abort();
    }
    malloc(8); /* together */
    if (argc > 7) {
        exit(1);
    }
    malloc(8); /* together */
    if (argc > 8) {
        malloc(8); /* together */
        if (rank == 7) {
            quick_exit(0);
        }
        malloc(8); /* divergent */
    }
    if (rank == 8) {
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    malloc(8); /* divergent: it may end one rank alone, where ranks are threads */
    return 0;
}
