/* SPDX-License-Identifier: MIT
 *
 * Variables that the initial values of others point to.
 */
#include "mpi.h"

#include <stdlib.h>

static int n = 1, m = 2, unchanged = 3;
static int *pointer = &n;
static struct {
    const char *name;
    int *to;
} options[] = {{"-m", &m}};
static MPI_Comm alone = MPI_COMM_SELF;
static unsigned long address = (unsigned long)&unchanged;

int main(int argc, char **argv)
{
    START;
    int x = rank;
    *pointer = rank;
    *options[0].to = rank;
    malloc(n); /* unknown */
    malloc(m); /* unknown */
    MPI_Bcast(&x, 1, MPI_INT, 0, alone);
    malloc(x);             /* unknown */
    malloc(address % 100); /* unknown */
    return 0;
}
