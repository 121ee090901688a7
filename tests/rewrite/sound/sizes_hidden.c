/* SPDX-License-Identifier: MIT
 *
 * Effects in the sizes of arrays that are written in types. The analysis gives up such functions.
 */
#include "mpi.h"

#include <stdlib.h>

static int in_cast = 4, in_parameter = 4, in_typeof = 4, by_call = 4, behind = 4, equal = 4;

static int set(int to)
{
    by_call = to;
    return 1;
}

static void parameter(int rank, int a[in_parameter = rank + 1], int b[set(rank)])
{
    (void)a, (void)b;
}

static void casts(int rank)
{
    int own = 3;
    (void)(int(*)[in_cast = rank + 1])0;
    (void)sizeof(*(int(*)[own = rank + 1])0);
    malloc(own); /* unknown */
}

static void declarations(int rank)
{
    __typeof__(int[in_typeof = rank + 1]) *a;
    int(*b)[behind = rank + 1];
    (void)a, (void)b;
    malloc(8); /* unknown */
}

int main(int argc, char **argv)
{
    START;
    int table[equal + argc], (*rows)[argc + 1] = NULL;
    (void)table, (void)rows, (void)size;
    malloc(equal); /* together */
    parameter(rank, NULL, NULL);
    casts(rank);
    declarations(rank);
    malloc(in_cast);      /* unknown */
    malloc(in_parameter); /* unknown */
    malloc(in_typeof);    /* unknown */
    malloc(behind);       /* unknown */
    malloc(by_call);      /* unknown */
    return 0;
}
