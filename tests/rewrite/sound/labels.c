/* SPDX-License-Identifier: MIT
 *
 * Functions that the linker knows by other names, or that may not be the ones that run. Files:
 * more/labels.c
 */
#include "mpi.h"

#include <stdio.h>
#include <stdlib.h>

static int changed = 4, unchanged = 4;
double fabs(double) __asm__("mine");

double mine(double x)
{
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return rank + x;
}

__attribute__((weak, constructor)) void begin(void)
{
    changed = getchar();
}

int main(int argc, char **argv)
{
    START;
    malloc(changed);         /* unknown */
    malloc(unchanged);       /* together */
    malloc((size_t)fabs(4)); /* unknown */
    (void)size;
    return 0;
}
