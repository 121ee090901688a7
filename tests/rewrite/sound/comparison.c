/* SPDX-License-Identifier: MIT
 *
 * Functions that qsort() calls, as often as the values demand.
 */
#include "mpi.h"

#include <stdlib.h>

static int calls;

static int compare(const void *a, const void *b)
{
    calls++;
    return *(const int *)a - *(const int *)b;
}

static int leave(const void *a, const void *b)
{
    if (*(const int *)a == *(const int *)b) {
        exit(0);
    }
    return 0;
}

int main(int argc, char **argv)
{
    START;
    int values[3] = {rank, 2, 1};
    int (*chosen)(const void *, const void *) = compare;
    qsort(values, 3, sizeof(int), compare);
    qsort(values, 3, sizeof(int), &compare);
    malloc(8);         /* together */
    malloc(calls);     /* unknown */
    malloc(values[0]); /* unknown */
    if (argc > 3) {
        qsort(values, 3, sizeof(int), chosen);
        malloc(8); /* unknown */
        return 0;
    }
    qsort(values, 3, sizeof(int), leave);
    malloc(8); /* unknown */
    return 0;
}
