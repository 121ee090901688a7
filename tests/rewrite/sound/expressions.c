/* SPDX-License-Identifier: MIT
 *
 * Parts of expressions that are easily overlooked.
 */
#include "mpi.h"

#include <stdarg.h>
#include <stdlib.h>

static char buffer[1000];

static int pick(int count, ...)
{
    va_list all;
    va_start(all, count);
    int found = va_arg(all, int);
    va_end(all);
    return found;
}

struct pair {
    int a, b;
};

static struct pair make(int a)
{
    struct pair made = {a, 5};
    return made;
}

int main(int argc, char **argv)
{
    START;
    int(*rows)[rank + 1] = (void *)buffer;
    union {
        int i;
        unsigned u;
    } both;
    both.i = rank;
    long n = rank ?: (long)malloc(8);          /* divergent */
    malloc(rank ?: 5);                         /* sizes differ */
    malloc(pick(1, rank));                     /* unknown */
    malloc((char *)(rows + 1) - (char *)rows); /* unknown */
    malloc(sizeof *rows);                      /* unknown */
    malloc((unsigned long)&n % 64);            /* sizes differ */
    malloc(both.u);                            /* unknown */
    malloc((rank, 8));                         /* together */
    malloc((8, rank));                         /* sizes differ */
    malloc(make(7).a);                         /* together */
    malloc(make(rank).b);                      /* sizes differ */
    malloc(((struct pair){rank, 5}).a);        /* unknown */
    malloc(({                                  /* unknown */
              int inner = rank;
              inner;
    }));
    return 0;
}
