/* SPDX-License-Identifier: MIT
 *
 * Datatypes that are not those whose names they have.
 */
#include "mpi.h"

#include <stdlib.h>

#define MPI_FLOAT MPI_CHAR
#define OWN_TYPE  MPI_INT

int main(int argc, char **argv)
{
    START;
    int x = rank, y = rank, z = rank, u = rank, v = rank;
    MPI_Bcast(&x, 1, MPI_INT == 7 ? MPI_INT : MPI_CHAR, 0, MPI_COMM_WORLD);
    malloc(x); /* unknown */
    MPI_Bcast(&y, 1, MPI_INT - 1, 0, MPI_COMM_WORLD);
    malloc(y); /* unknown */
    MPI_Bcast(&z, 1, MPI_FLOAT, 0, MPI_COMM_WORLD);
    malloc(z); /* unknown */
    MPI_Bcast(&u, 1, ((MPI_INT)), 0, MPI_COMM_WORLD);
    malloc(u); /* together */
    MPI_Bcast(&v, 1, OWN_TYPE, 0, MPI_COMM_WORLD);
    malloc(v); /* together */
    return 0;
}
