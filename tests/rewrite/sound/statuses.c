/* SPDX-License-Identifier: MIT
 *
 * Statuses of exit() that end one rank alone, or that may.
 */
#include "mpi.h"

#include <stdlib.h>

int main(int argc, char **argv)
{
    START;
    if (argc == 5) {
        if (rank == 1) {
            exit(argc);
        }
        malloc(8); /* divergent */
        return 1;
    }
    if (argc == 6) {
        if (rank == 1) {
            exit(256); /* the status is 0 outside */
        }
        malloc(8); /* divergent */
        return 1;
    }
    malloc(8); /* together */
    return 0;
}
