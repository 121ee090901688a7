/* SPDX-License-Identifier: MIT
 *
 * Tests of pointers against NULL. All threads of a collective call get a block, or none does, so
 * that the test does not part them. This holds for no other allocation.
 */
#include "mpi.h"

#include <stdlib.h>

static int *shared_block;

static void *make(int n)
{
    void *p = malloc(n); /* together */
    if (!p)
        return NULL;
    malloc(3); /* together */
    return p;
}

static void *make_apart(int n)
{
    void *p = malloc(n); /* divergent */
    if (!p)
        return NULL;
    malloc(3); /* divergent */
    return p;
}

static void *make_two(int n)
{
    void *p = malloc(n); /* together */
    if (!p)
        return NULL;
    malloc(7); /* together */
    return p;
}

static int tested(int rank)
{
    void *p = malloc(8); /* together */
    if (p == NULL)
        return 1;
    malloc(1);              /* together */
    char *q = calloc(2, 4); /* together */
    if (!q || !p)
        return 2;
    malloc(2); /* together */
    int *r;
    if ((r = malloc(4)) == 0) { /* together */
        free(q);
        return 3;
    }
    malloc(3); /* together */
    void *s = r ? p : q;
    int n = s != NULL ? 4 : 8;
    malloc(n); /* together */
    while (p) {
        malloc(5); /* together */
        p = NULL;
    }
    return rank;
}

static int assigned_apart(int rank)
{
    void *p = malloc(8); /* together */
    if (rank)
        p = NULL;
    if (!p)
        return 1;
    malloc(1); /* divergent */
    return 0;
}

static int other_sizes(int rank)
{
    void *p = malloc(rank); /* sizes differ */
    if (!p)
        return 1;
    malloc(1); /* divergent */
    return 0;
}

static int by_address(void)
{
    void *p = malloc(8); /* together */
    void **where = &p;
    *where = NULL;
    if (!p)
        return 1;
    malloc(1); /* unknown */
    return 0;
}

static int other_functions(void)
{
    void *p = realloc(NULL, 8); /* together */
    if (!p)
        return 1;
    malloc(1); /* divergent */
    return 0;
}

static int of_all(void)
{
    shared_block = malloc(8); /* together */
    if (!shared_block)
        return 1;
    malloc(1); /* divergent */
    return 0;
}

static int values_of_pointers(void)
{
    char *p = malloc(8), *q = malloc(8); /* together */
    if (p < q)
        malloc(1); /* divergent */
    if ((long)p & 64)
        malloc(2); /* divergent */
    if (p == q)
        malloc(3); /* divergent */
    return 0;
}

static int in_a_loop(int rank)
{
    void *p = NULL;
    for (int i = 0; i < 3; i++) {
        if (p)
            malloc(6); /* divergent */
        p = malloc(8); /* divergent */
        if (i == rank)
            break;
    }
    return 0;
}

int main(int argc, char **argv)
{
    START;
    tested(rank);
    assigned_apart(rank);
    other_sizes(rank);
    by_address();
    other_functions();
    of_all();
    values_of_pointers();
    in_a_loop(rank);
    if (!make(8))
        return 1;
    malloc(1); /* together */
    if (rank)
        make_apart(8);
    void *p = make_two(4);
    if (rank)
        make_two(3);
    if (p)
        malloc(2); /* together */
    return 0;
}
