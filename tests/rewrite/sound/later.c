/* SPDX-License-Identifier: MIT
 *
 * Variables that change later: when a message arrives, or through a pointer that was kept.
 */
#include "mpi.h"

#include <stdlib.h>

static int *kept;
static int global = 1;

static void keep(int *pointer)
{
    kept = pointer;
}

static void set(void)
{
    *kept = global;
}

int main(int argc, char **argv)
{
    START;
    MPI_Request request;
    int x = 1, y = 2;
    MPI_Irecv(&x, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, &request);
    MPI_Send(&rank, 1, MPI_INT, 1, 0, MPI_COMM_WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
    malloc(x); /* unknown */
    keep(&y);
    global = rank;
    set();
    malloc(y);      /* unknown */
    malloc(global); /* sizes differ */
    return 0;
}
