#include <mpi.h>
#include <stdlib.h>

/* Functions that can get a parameter, and functions that cannot. */
#include "parameters.h"

#include <stdarg.h>

void none(void)
{
    free(malloc(1));
}

void any()
{
    free(malloc(2));
}

void declared(int n)
{
    free(malloc(n));
}

static void variadic(int n, ...)
{
    free(malloc(n)); /* nothing can come after ... */
}

static int taken(const void *a, const void *b)
{
    free(malloc(3)); /* qsort calls it */
    return a < b;
}

static void (*pointer)(void) = none_by_pointer; /* the address is taken */

void none_by_pointer(void)
{
    free(malloc(4));
}

static int old(n)
int n;
{
    free(malloc(n));
    return 0;
}

int main(int argc, char **argv)
{
    int values[2] = {2, 1};
    none();
    any();
    declared(8);
    in_header(9);
    variadic(1, 2);
    qsort(values, 2, sizeof *values, taken);
    free(malloc(5)); /* qsort() calls a function that neither leaves nor waits */
    pointer();
    return old(6);
}
