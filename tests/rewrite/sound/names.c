/* SPDX-License-Identifier: MIT
 *
 * Functions that are called by other names, or by none, and get no parameter.
 */
#include "mpi.h"

#include <stdlib.h>

static void other(int x) __attribute__((alias("named")));

void named(int x)
{
    malloc(x); /* unknown */
}

__attribute__((constructor)) static void begin(void)
{
    malloc(8); /* unknown */
}

__attribute__((weak)) int choose(int x)
{
    (void)x;
    return 5;
}

int main(int argc, char **argv)
{
    START;
    named(8);
    other(rank);
    malloc(choose(rank)); /* unknown */
    return 0;
}
