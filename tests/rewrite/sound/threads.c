/* SPDX-License-Identifier: MIT
 *
 * Threads of OpenMP. Flags: -fopenmp
 */
#include "mpi.h"

#include <stdlib.h>

static int n = 3, m = 3;

static void work(int count)
{
    n = count;
    malloc(count); /* unknown */
}

int main(int argc, char **argv)
{
    START;
    int sum = 0;
#pragma omp parallel for reduction(+ : sum)
    for (int i = 0; i < argc; i++) {
        sum += i;
    }
    malloc(argc); /* together */
    malloc(sum);  /* unknown */
#pragma omp parallel
    {
        malloc(8); /* unknown */
        work(5);
    }
    malloc(m); /* together */
    malloc(n); /* unknown */
    return 0;
}
