/* SPDX-License-Identifier: MIT
 *
 * Elements of arrays that outlive a call, and of arrays in structures.
 */
#include "mpi.h"

#include <stdlib.h>

static int equal[4] = {1, 2, 3, 4}, set[4], at_rank[4], given[4], two[2][3];

static struct {
    int sizes[3], n;
} options, others;

static void fill(int *to)
{
    to[0] = 5;
}

int main(int argc, char **argv)
{
    START;
    malloc(equal[argc]);     /* together */
    malloc(equal[rank & 3]); /* sizes differ */
    set[1] = rank;
    malloc(set[0]); /* sizes differ */
    at_rank[rank & 3] = 7;
    malloc(at_rank[0]); /* sizes differ */
    fill(given);
    malloc(given[0]); /* unknown */
    two[argc][0] = size;
    malloc(two[1][2]); /* together */
    options.sizes[1] = argc;
    malloc(options.sizes[2]); /* together */
    malloc(options.n);        /* together */
    others.sizes[rank] = 1;
    malloc(others.n); /* sizes differ */
    return 0;
}
