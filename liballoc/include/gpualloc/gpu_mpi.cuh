/* SPDX-License-Identifier: MIT
 *
 * An MPI program in C as a program of CUDA: its ranks are the threads of one grid, as in
 * warp-coalescing-gpumpi-2022, §2. `gpualloc rewrite --port` makes such sources of a program for
 * MPI (gpualloc-rewrite(1)):
 *
 *     gpualloc rewrite --port --out=gpu solver.c -- -I/usr/lib/x86_64-linux-gnu/mpich/include
 *     nvcc -x cu -std=c++17 -rdc=true -arch=native gpu/solver.c -o solver -lgpualloc
 *     GPUALLOC_MPI_RANKS=8x32 ./solver                         8 blocks of 32 ranks
 *
 * MPI      Init, Finalize, Abort, Comm_rank, Comm_size, Get_processor_name, Wtime, Wtick, Send,
 *          Recv, Sendrecv, Get_count, Barrier, Bcast, Reduce, Allreduce, Gather, Allgather, Scatter
 *          and Alltoall, on MPI_COMM_WORLD and for basic types. Errors end the program.
 * C        malloc, calloc and free (mpi_malloc.cuh), the functions that CUDA has in kernels, and
 *          those of detail/gpu_mpi/libc.h. fprintf() writes to standard output, whatever the
 *          stream. Output appears when the program ends, at most GA_MPI_PRINTED bytes of it, and
 *          printf() has CUDA's formats: no %zu, and the result is the number of arguments. A
 *          rank has a stack of GA_MPI_STACK bytes beyond what the compiler can foresee.
 *
 * Bcast, Reduce, Allreduce and Alltoall take a last argument, `coalesce`, as malloc does: all ranks
 * of a block make the call in the same place, with equal counts and types. GA_COALESCE_CHECKED
 * (gpualloc/coalesce.cuh) checks the requests of these calls, too.
 *
 * The program's exit status is the largest of all ranks. A rank ends the whole program if it calls
 * MPI_Abort() or abort(), fails an assert(), or leaves with a status other than 0 before
 * MPI_Finalize(). The others end where they next wait for a rank, or after five seconds.
 *
 * Ranks wait for each other, so all blocks must be resident at once. The default heap is
 * GA_MPI_HEAP; GPUALLOC_KERNEL names another one. With GA_MPI_CUDA_MALLOC malloc() is CUDA's, for
 * comparisons.
 *
 * Header only; compile with nvcc 13.0 or later for sm_75 or later, as C++17; link with -lgpualloc.
 */
#ifndef GPUALLOC_GPU_MPI_CUH
#define GPUALLOC_GPU_MPI_CUH

/* clang-format off: mpi_malloc.cuh replaces malloc, which libc.h's headers declare. */
#include <assert.h>
#include <limits.h>
#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <vector>

/* In world.h. A rank that has aborted the program ends, and barriers of a block no longer wait for
 * it: what other ranks get from a collective request then is not to be used. */
static __device__ inline bool ga_mpi_has_aborted(void);
static __device__ inline void ga_mpi_end_if_aborted(void);
#define GA_COALESCE_CHECK_CANCELLED() ga_mpi_has_aborted()
#define GA_MPI_END_IF_ABORTED()       ga_mpi_end_if_aborted()

#ifdef GA_MPI_CUDA_MALLOC
#undef GA_COALESCE_CHECKED
#include "detail/gpu_mpi/cuda_malloc.cuh"
#else
#include <gpualloc/mpi_malloc.cuh>
#endif

#include "detail/gpu_mpi/collectives.h"
#include "detail/gpu_mpi/environment.h"
#include "detail/gpu_mpi/launch.cuh"
#include "detail/gpu_mpi/libc.h"
#include "detail/gpu_mpi/places.h"
/* clang-format on */

#endif
