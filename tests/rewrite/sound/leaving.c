/* SPDX-License-Identifier: MIT
 *
 * Ranks that end, or wait, within a function of which less is known.
 */
#include "mpi.h"

#include <stdlib.h>

static int changed = 1;
int visible = 1;

static void change(int *unused)
{
    (void)unused;
    changed = 2;
}

static void assemble(void)
{
    __asm__ volatile("movl $5, visible(%%rip)" ::: "memory");
}

static void leave(int when)
{
    if (when) {
        exit(0);
    }
}

int main(int argc, char **argv)
{
    START;
    malloc(changed); /* unknown */
    if (rank == 0) {
        __attribute__((cleanup(change))) int x = 0;
    }
    leave(argc > 5);
    leave(rank > 5);
    malloc(8); /* unknown */
    if (rank == 1) {
        assemble();
    }
    malloc(visible); /* unknown */
    return 0;
}
