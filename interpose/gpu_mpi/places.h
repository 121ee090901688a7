/* SPDX-License-Identifier: MIT
 *
 * With GA_COALESCE_CHECKED a collective call of MPI notes its place in the program, so that the
 * check of its requests can name it.
 */
#ifndef GPUALLOC_GPU_MPI_PLACES_H
#define GPUALLOC_GPU_MPI_PLACES_H

#ifdef GA_COALESCE_CHECKED

#include "world.h"

GA_MPI_CALL void ga_mpi_at(const char *file, int line)
{
    ga_mpi_own()->file = file;
    ga_mpi_own()->line = line;
}

#define MPI_Allreduce(...) (ga_mpi_at(__FILE__, __LINE__), MPI_Allreduce(__VA_ARGS__))
#define MPI_Alltoall(...)  (ga_mpi_at(__FILE__, __LINE__), MPI_Alltoall(__VA_ARGS__))
#define MPI_Bcast(...)     (ga_mpi_at(__FILE__, __LINE__), MPI_Bcast(__VA_ARGS__))
#define MPI_Reduce(...)    (ga_mpi_at(__FILE__, __LINE__), MPI_Reduce(__VA_ARGS__))

#endif

#endif
