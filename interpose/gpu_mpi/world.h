/* SPDX-License-Identifier: MIT
 *
 * The ranks of an MPI program as the threads of one grid (warp-coalescing-gpumpi-2022, §2), how
 * they wait for each other, and how they end.
 *
 * STRUCTURE  All blocks are resident at once, so a rank may wait for any other one. A rank counts
 *            its barriers and its collective calls. All ranks make them in one sequence, so that
 *            equal numbers mean the same call.
 * ORDER      GM1 to GM4, below.
 * PROGRESS   A rank that waits sleeps shortly between two looks. If a rank has aborted the program,
 *            the thread ends instead.
 */
#ifndef GPUALLOC_GPU_MPI_WORLD_H
#define GPUALLOC_GPU_MPI_WORLD_H

/* Included by gpualloc/gpu_mpi.cuh, which has the atomics, the clock and malloc(). */

#include <stdio.h>

#define GA_MPI_CALL static __device__ inline

enum {
    GA_MPI_WAIT_NS = 64, /* sleep between two looks */
    GA_MPI_FAILED = 1    /* exit status after an invalid call */
};

/* A message that is on its way, or has arrived. `bytes` of data follow. */
typedef struct ga_mpi_message {
    struct ga_mpi_message *next;
    int source, tag;
    size_t bytes;
} ga_mpi_message;

/* Zero at the start. */
typedef struct ga_mpi_rank {
    uint64_t posted; /* messages to this rank, the latest first; it takes all at once */
    ga_mpi_message *first, *last; /* messages that it has taken, the earliest first */
    const void *vector;           /* that other ranks read in collective call `published` */
    uint32_t published;
    uint32_t calls, barriers; /* that it has made */
    uint32_t random;          /* state of rand() */
    bool finalized;
    const char *file; /* where the call of MPI is that it makes, with GA_COALESCE_CHECKED */
    int line;
    char **argv;
} ga_mpi_rank;

typedef struct ga_mpi_block {
    uint32_t arrived; /* ranks, at all barriers together */
    uint32_t unused[31];
} ga_mpi_block;

/* What all ranks share. */
typedef struct ga_mpi_shared {
    uint32_t arrived;       /* blocks, at all barriers together */
    uint32_t left_barriers; /* that all ranks have arrived at */
    uint32_t aborted;
} ga_mpi_shared;

typedef struct ga_mpi_world {
    uint32_t ranks, argc;
    ga_mpi_shared *shared;
    ga_mpi_block *blocks;
    ga_mpi_rank *of_ranks;
    uint32_t *status;     /* of the program, in memory of the host: the largest of all ranks */
    size_t global_stride; /* bytes of all variables of one rank */
} ga_mpi_world;

/* Each source file has a copy, which the host writes before the launch. */
static __constant__ ga_mpi_world ga_mpi;

GA_MPI_CALL uint32_t ga_mpi_number(void)
{
    return blockIdx.x * blockDim.x + threadIdx.x;
}

GA_MPI_CALL ga_mpi_rank *ga_mpi_own(void)
{
    return ga_mpi.of_ranks + ga_mpi_number();
}

/* ---- ends ------------------------------------------------------------------------------------ */

/* The thread ends, and the others go on. */
GA_MPI_CALL void ga_mpi_end_thread(void)
{
#ifdef GA_SIMT_EMULATED
    emulated_exit();
#else
    asm volatile("exit;");
#endif
}

GA_MPI_CALL void ga_mpi_note_status(int status)
{
    atomicMax_system(ga_mpi.status, (uint32_t)status & 0xffu);
}

/* All ranks end: this one now, and each other one where it waits next. printf() of a kernel that
 * ends by __trap() would be lost. */
GA_MPI_CALL void ga_mpi_abort(int status)
{
    ga_mpi_note_status(status ? status : GA_MPI_FAILED);
    ga_store_relaxed(&ga_mpi.shared->aborted, 1); /* relaxed: publishes nothing */
    ga_mpi_end_thread();
}

/* An invalid call: with the default error handler of MPI it ends the program. */
GA_MPI_CALL void ga_mpi_fail(const char *call, const char *why, long value)
{
    printf("gpualloc: rank %u: %s: %s %ld\n", ga_mpi_number(), call, why, value);
    ga_mpi_abort(GA_MPI_FAILED);
}

/* ---- waiting --------------------------------------------------------------------------------- */

GA_MPI_CALL void ga_mpi_pause(void)
{
    if (ga_load_relaxed(&ga_mpi.shared->aborted)) { /* relaxed: only ends the thread */
        ga_mpi_end_thread();
    }
    ga_clock_sleep(GA_MPI_WAIT_NS);
}

/* Ranks arrive one by one, in any place of the program, so __syncthreads() would not do. The
 * counters are never reset: the arrivals at n barriers are n times the ranks, modulo 2^32. */
GA_MPI_CALL void ga_mpi_barrier(void)
{
    uint32_t number = ++ga_mpi_own()->barriers;
    /* GM1: release and acquire. Pairs with itself, GM2 and GM3: each rank that leaves has the
     * accesses of all ranks before they arrived. */
    if (ga_add_acq_rel(&ga_mpi.blocks[blockIdx.x].arrived, 1) + 1 == number * blockDim.x &&
        ga_add_acq_rel(&ga_mpi.shared->arrived, 1) + 1 == number * gridDim.x) {
        /* GM2: release. Pairs with GM3. */
        ga_store_release(&ga_mpi.shared->left_barriers, number);
    }
    /* GM3: acquire. Pairs with GM2. */
    while (ga_load_acquire(&ga_mpi.shared->left_barriers) != number) {
        ga_mpi_pause();
    }
}

/* ---- vectors that other ranks read ----------------------------------------------------------- */

/* Begin a collective call. Between this and the end of the call is a barrier, after which no rank
 * reads a vector of the call. */
GA_MPI_CALL void ga_mpi_begin(void)
{
    ga_mpi_own()->calls++;
}

/* Let the other ranks read the vector, once in a call. */
GA_MPI_CALL void ga_mpi_publish(const void *vector)
{
    ga_mpi_rank *own = ga_mpi_own();
    own->vector = vector;
    /* GM4: release. Pairs with the acquire in ga_mpi_vector_of(): the vector is complete. */
    ga_store_release(&own->published, own->calls);
}

/* The vector that another rank publishes in this call. */
GA_MPI_CALL const char *ga_mpi_vector_of(uint32_t rank)
{
    const ga_mpi_rank *other = ga_mpi.of_ranks + rank;
    uint32_t call = ga_mpi_own()->calls;
    while (ga_load_acquire(&other->published) != call) { /* GM4 */
        ga_mpi_pause();
    }
    return (const char *)other->vector;
}

/* ---- copies ---------------------------------------------------------------------------------- */

template <typename WORD>
GA_MPI_CALL void ga_mpi_copy_words(char *to, const char *from, size_t bytes)
{
    for (size_t i = 0; i < bytes / sizeof(WORD); i++) {
        ((WORD *)to)[i] = ((const WORD *)from)[i];
    }
}

/* The widest words that the addresses and the size allow: the compiler's memcpy() of an unknown
 * alignment copies single bytes. */
GA_MPI_CALL void ga_mpi_copy(void *to, const void *from, size_t bytes)
{
    size_t odd = (size_t)to | (size_t)from | bytes;
    if (odd % 16 == 0) {
        ga_mpi_copy_words<uint4>((char *)to, (const char *)from, bytes);
    } else if (odd % 8 == 0) {
        ga_mpi_copy_words<uint64_t>((char *)to, (const char *)from, bytes);
    } else if (odd % 4 == 0) {
        ga_mpi_copy_words<uint32_t>((char *)to, (const char *)from, bytes);
    } else {
        ga_mpi_copy_words<char>((char *)to, (const char *)from, bytes);
    }
}

#endif
