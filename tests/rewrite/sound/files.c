/* SPDX-License-Identifier: MIT
 *
 * Errors of files do not end the program; they may differ between ranks.
 */
#include "mpi.h"

#include <stdlib.h>

int main(int argc, char **argv)
{
    START;
    MPI_File file;
    malloc(MPI_Aint_add(rank, 1)); /* unknown */
    if (MPI_File_open(MPI_COMM_SELF, "x", 0, 0, &file) != MPI_SUCCESS) {
        return 1;
    }
    malloc(8); /* unknown */
    return 0;
}
