/* SPDX-License-Identifier: MIT
 *
 * gpualloc/gpu_mpi.cuh on the CPU, with the emulated CUDA of ../../cuda.h: the ranks are fibers.
 *
 * malloc() is the host's. If a call is collective, all threads of the block must make it in the
 * same line and with equal sizes; otherwise the program ends with status 1. So a wrong `true` fails
 * a test, as does a call that some threads never make.
 */
#ifndef GPUALLOC_TESTS_EMULATED_GPU_MPI_CUH
#define GPUALLOC_TESTS_EMULATED_GPU_MPI_CUH

#include "../../cuda.h"
#include "../../kernels.h"

#include <assert.h>
#include <limits.h>
#include <malloc.h>
#include <stdio.h>
#include <unistd.h>
#include <vector>

/* ---- mpi_malloc.cuh -------------------------------------------------------------------------- */

static inline void init_malloc(void)
{
}

static inline void clean_malloc(void)
{
}

static inline uint32_t ga_coalesce_rank(void)
{
    return threadIdx.x;
}

static inline uint32_t ga_coalesce_team(void)
{
    return blockDim.x;
}

static inline bool ga_mpi_has_aborted(void);
#define GA_COALESCE_CHECK_CANCELLED() ga_mpi_has_aborted()

#ifdef GA_COALESCE_CHECKED
#include "liballoc/backends/coalesce/coalesce_check.cuh"
#endif

static inline void *emulated_malloc(emulated_place place, size_t size, bool coalesce = false)
{
    static thread_local size_t first; /* of the block */
#ifdef GA_COALESCE_CHECKED
    coalesce = coalesce && ga_coalesce_check({place.file, place.line, size});
#endif
    if (coalesce) {
        if (threadIdx.x == 0) {
            first = size;
        }
        (void)emulated_barrier(place, false);
        if (emulated_barrier(place, size != first)) {
            emulated_fail(place, "a collective malloc with different sizes");
        }
    }
    return malloc(size ? size : 1);
}

static inline void *emulated_calloc(emulated_place place, size_t count, size_t size,
                                    bool coalesce = false)
{
    void *block = emulated_malloc(place, count * size, coalesce);
    return memset(block, 0, count * size);
}

#define malloc(...) emulated_malloc(EMULATED_PLACE("malloc"), __VA_ARGS__)
#define ga_mpi_malloc_checked(file, line, ...)                                                     \
    emulated_malloc(emulated_place{"malloc", file, line}, __VA_ARGS__)
#define calloc(...) emulated_calloc(EMULATED_PLACE("calloc"), __VA_ARGS__)

/* ---- what is tested -------------------------------------------------------------------------- */

#include "interpose/gpu_mpi/collectives.h"
#include "interpose/gpu_mpi/environment.h"
#include "interpose/gpu_mpi/globals.h"

/* ---- launch.cuh ------------------------------------------------------------------------------ */

/* The world of each source file. */
struct emulated_file {
    ga_mpi_world *world;
    emulated_file *next;
    static inline emulated_file *all;

    explicit emulated_file(ga_mpi_world *world) : world(world), next(all)
    {
        all = this;
    }
};

static emulated_file emulated_this_file(&ga_mpi);

/* The ranks, of GPUALLOC_MPI_RANKS: BLOCKSxTHREADS, at most 8 blocks of 256. GPUALLOC_MPI_SEED is
 * that of the emulation. */
static inline int emulated_run_ranks(void (*program)(const emulated_kernel *), int argc,
                                     char **argv)
{
    static ga_mpi_end end;
    unsigned blocks = 1, threads = 32;
    const char *ranks = getenv("GPUALLOC_MPI_RANKS"), *seed = getenv("GPUALLOC_MPI_SEED");
    if (ranks && sscanf(ranks, "%ux%u", &blocks, &threads) != 2) {
        return 2;
    }
    emulated.seed = seed ? strtoull(seed, NULL, 10) : 1;
    emulated.order = (emulated_order)(emulated.seed % EMULATED_ORDERS);
    ga_mpi.ranks = blocks * threads;
    ga_mpi.argc = (uint32_t)argc;
    ga_mpi.shared = (ga_mpi_shared *)calloc(1, sizeof(ga_mpi_shared));
    ga_mpi.blocks = (ga_mpi_block *)calloc(blocks, sizeof(ga_mpi_block));
    ga_mpi.of_ranks = (ga_mpi_rank *)calloc(ga_mpi.ranks, sizeof(ga_mpi_rank));
    ga_mpi.end = &end;
    for (const ga_mpi_variable *v = ga_mpi_variable::all; v; v = v->next) {
        ga_mpi.global_stride += ga_mpi_global_bytes(v);
    }
    char *first = (char *)calloc(ga_mpi.ranks, ga_mpi.global_stride);
    for (const ga_mpi_variable *v = ga_mpi_variable::all; v; v = v->next) {
        memcpy((char *)v->symbol + v->first_at, &first, sizeof first);
        for (uint32_t rank = 0; rank < ga_mpi.ranks; rank++) {
            memcpy(first + rank * ga_mpi.global_stride, v->symbol, v->bytes);
        }
        first += ga_mpi_global_bytes(v);
    }
    for (uint32_t rank = 0; rank < ga_mpi.ranks; rank++) {
        ga_mpi.of_ranks[rank].argv = (char **)calloc((size_t)argc + 1, sizeof *argv);
        memcpy(ga_mpi.of_ranks[rank].argv, argv, (size_t)argc * sizeof *argv);
        ga_mpi.of_ranks[rank].random = 1;
    }
    for (const emulated_file *file = emulated_file::all; file; file = file->next) {
        *file->world = ga_mpi;
    }
    emulated_kernel launch = {"main", program, NULL, blocks, threads, 0};
    emulated_run(&launch);
    return (int)end.status;
}

#define GA_MPI_PROGRAM(program)                                                                    \
    static void program##_of_ranks(const emulated_kernel *)                                        \
    {                                                                                              \
        ga_mpi_exit(ga_mpi_call(program));                                                         \
    }                                                                                              \
    int main(int argc, char **argv)                                                                \
    {                                                                                              \
        return emulated_run_ranks(program##_of_ranks, argc, argv);                                 \
    }

#include "interpose/gpu_mpi/libc.h"
#include "interpose/gpu_mpi/places.h"

#endif
