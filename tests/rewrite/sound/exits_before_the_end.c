/* SPDX-License-Identifier: MIT
 *
 * Branches that end the program, at last, but a rank may end by itself before that.
 */
#include "mpi.h"

#include <stdio.h>
#include <stdlib.h>

void nothing_known(void);

static int leave(void)
{
    exit(0);
    return 0;
}

static void leave_somewhere(int when)
{
    if (when) {
        leave();
    }
}

static void fail(const char *why)
{
    fprintf(stderr, "%s\n", why);
    exit(1);
}

int main(int argc, char **argv)
{
    START;
    if (rank > 7) {
        fprintf(stderr, "too many ranks\n");
        exit(1);
    } else {
        malloc(8); /* together */
    }
    if (rank > 6) {
        fail("too many ranks");
        exit(1);
    } else {
        malloc(8); /* together */
    }
    if (rank == 5) {
        leave();
        exit(1);
    } else {
        malloc(8); /* divergent */
    }
    if (argc > 5) {
        if (rank == 4) {
            if (argc > 6) {
                leave_somewhere(rank);
            }
            exit(1);
        } else {
            malloc(8); /* divergent */
        }
    }
    if (argc > 4) {
        if (rank == 3) {
            nothing_known();
            exit(1);
        } else {
            malloc(8); /* divergent */
        }
    }
    return 0;
}
