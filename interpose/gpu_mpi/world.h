/* SPDX-License-Identifier: MIT
 *
 * The ranks of an MPI program as the threads of one grid (warp-coalescing-gpumpi-2022, §2), how
 * they wait for each other, and how they end.
 *
 * STRUCTURE  All blocks are resident at once, so a rank may wait for any other one. A rank counts
 *            its barriers and its collective calls. All ranks make them in one sequence, so that
 *            equal numbers mean the same call.
 * ORDER      GM1 to GM5, below.
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
    GA_MPI_FAILED = 1,   /* exit status after an invalid call */
    GA_MPI_SMALL = 64,   /* bytes of a local vector that need no block of the heap */
    GA_MPI_ABREAST = 8   /* loads that a rank begins before it uses the first */
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
    void *copy;                   /* of a local vector, a block that this rank frees */
    uint32_t published;
    uint32_t calls, barriers; /* that it has made */
    uint32_t random;          /* state of rand() */
    bool finalized;
    const char *file; /* where the call of MPI is that it makes, with GA_COALESCE_CHECKED */
    int line;
    char **argv;
    uint64_t small[GA_MPI_SMALL / sizeof(uint64_t)]; /* a copy of a small local vector */
} ga_mpi_rank;

/* The end of the program, in memory that the host reads while the ranks run. */
typedef struct ga_mpi_end {
    uint32_t status;  /* exit status: the largest of all ranks */
    uint32_t aborted; /* 1 + the rank that ended the program, or 0 */
} ga_mpi_end;

typedef struct ga_mpi_block {
    uint32_t arrived; /* ranks, at all barriers together */
    uint32_t unused[31];
} ga_mpi_block;

/* What all ranks share. */
typedef struct ga_mpi_shared {
    uint32_t arrived;         /* blocks, at all barriers together */
    uint32_t barriers_passed; /* that all ranks have arrived at */
    uint32_t aborted;
} ga_mpi_shared;

typedef struct ga_mpi_world {
    uint32_t ranks, argc;
    ga_mpi_shared *shared;
    ga_mpi_block *blocks;
    ga_mpi_rank *of_ranks;
    ga_mpi_end *end;
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

GA_MPI_CALL void ga_mpi_note_status(uint32_t status)
{
    atomicMax_system(&ga_mpi.end->status, status);
}

/* All ranks end: this one now, and each other one where it waits next. printf() of a kernel that
 * ends by __trap() would be lost. */
GA_MPI_CALL void ga_mpi_abort(int status)
{
    uint32_t code = (uint32_t)status & 0xffu;
    ga_mpi_note_status(code ? code : GA_MPI_FAILED);
    /* relaxed: publish nothing */
    ga_cas_relaxed_system(&ga_mpi.end->aborted, 0, 1 + ga_mpi_number());
    ga_store_relaxed(&ga_mpi.shared->aborted, 1);
    ga_mpi_end_thread();
}

GA_MPI_CALL bool ga_mpi_has_aborted(void)
{
    return ga_load_relaxed(&ga_mpi.shared->aborted) != 0; /* relaxed: only ends the thread */
}

GA_MPI_CALL void ga_mpi_end_if_aborted(void)
{
    if (ga_mpi_has_aborted()) {
        ga_mpi_end_thread();
    }
}

/* An invalid call. It ends the program, as MPI's default error handler does. */
GA_MPI_CALL void ga_mpi_fail(const char *call, const char *why, long value)
{
    printf("gpualloc: rank %u: %s: %s %ld\n", ga_mpi_number(), call, why, value);
    ga_mpi_abort(GA_MPI_FAILED);
}

/* ---- waiting --------------------------------------------------------------------------------- */

GA_MPI_CALL void ga_mpi_pause(void)
{
    ga_mpi_end_if_aborted();
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
        ga_store_release(&ga_mpi.shared->barriers_passed, number);
    }
    /* GM3: acquire. Pairs with GM2. */
    while (ga_load_acquire(&ga_mpi.shared->barriers_passed) != number) {
        ga_mpi_pause();
    }
}

/* ---- copies ---------------------------------------------------------------------------------- */

template <typename WORD>
GA_MPI_CALL void ga_mpi_copy_words(char *to, const char *from, size_t bytes)
{
    size_t words = bytes / sizeof(WORD), word = 0;
    for (; word + GA_MPI_ABREAST <= words; word += GA_MPI_ABREAST) {
        WORD got[GA_MPI_ABREAST];
#pragma unroll
        for (uint32_t i = 0; i < GA_MPI_ABREAST; i++) {
            got[i] = ((const WORD *)from)[word + i];
        }
#pragma unroll
        for (uint32_t i = 0; i < GA_MPI_ABREAST; i++) {
            ((WORD *)to)[word + i] = got[i];
        }
    }
    for (; word < words; word++) {
        ((WORD *)to)[word] = ((const WORD *)from)[word];
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

/* ---- vectors that other ranks read ----------------------------------------------------------- */

/* Begin a collective call in which ranks read each other's vectors. ga_mpi_finish() ends it. */
GA_MPI_CALL void ga_mpi_begin(void)
{
    ga_mpi_own()->calls++;
}

/* Let the other ranks read the vector, once in a call. It is in global memory. */
GA_MPI_CALL void ga_mpi_publish(const void *vector)
{
    ga_mpi_rank *own = ga_mpi_own();
#ifdef GA_SIMT_EMULATED
    if (__isLocal(vector)) {
        emulated_fail(EMULATED_PLACE("ga_mpi_publish"), "a local vector for other ranks");
    }
#endif
    own->vector = vector;
    /* GM4: release. Pairs with GM5: the vector is complete. */
    ga_store_release(&own->published, own->calls);
}

/* Let the other ranks read `bytes` bytes of the program's. The address of a local variable means
 * other memory in each thread, so they read a copy of that. */
GA_MPI_CALL void ga_mpi_share(const char *call, const void *vector, size_t bytes)
{
    ga_mpi_rank *own = ga_mpi_own();
    if (__isLocal(vector)) {
        void *copy = own->small;
        if (bytes > GA_MPI_SMALL) {
            copy = own->copy = malloc(bytes);
        }
        if (!copy) {
            ga_mpi_fail(call, "no memory for a buffer of bytes:", (long)bytes);
        }
        ga_mpi_copy(copy, vector, bytes);
        vector = copy;
    }
    ga_mpi_publish(vector);
}

/* The vector that another rank publishes in this call. */
GA_MPI_CALL const char *ga_mpi_vector_of(uint32_t rank)
{
    const ga_mpi_rank *other = ga_mpi.of_ranks + rank;
    uint32_t call = ga_mpi_own()->calls;
    /* GM5: acquire. Pairs with GM4. */
    while (ga_load_acquire(&other->published) != call) {
        ga_mpi_pause();
    }
    return (const char *)other->vector;
}

/* Copy `bytes` bytes from each of `count` places, one behind the other. `from` has GA_MPI_ABREAST
 * places, all of them readable. */
template <typename WORD>
GA_MPI_CALL void ga_mpi_copy_group(char *to, const char *const *from, uint32_t count, size_t bytes)
{
    size_t words = bytes / sizeof(WORD);
    for (size_t word = 0; word < words; word++) {
        WORD got[GA_MPI_ABREAST];
#pragma unroll
        for (uint32_t i = 0; i < GA_MPI_ABREAST; i++) {
            got[i] = ((const WORD *)from[i])[word];
        }
#pragma unroll
        for (uint32_t i = 0; i < GA_MPI_ABREAST; i++) {
            if (i < count && from[i] != to + i * bytes) {
                ((WORD *)to)[i * words + word] = got[i];
            }
        }
    }
}

/* Copy `bytes` bytes from offset `at` of each rank's vector, one behind the other. All ranks
 * publish their vectors in this call, and pass a barrier before any copies. What is in its place
 * already is not stored, because others read it. */
GA_MPI_CALL void ga_mpi_copy_from_all(char *to, size_t at, size_t bytes)
{
    for (uint32_t first = 0; first < ga_mpi.ranks;
         first += GA_MPI_ABREAST, to += GA_MPI_ABREAST * bytes) {
        const char *from[GA_MPI_ABREAST];
        uint32_t count = ga_mpi.ranks - first;
        size_t odd = (size_t)to | bytes;
#pragma unroll
        for (uint32_t i = 0; i < GA_MPI_ABREAST; i++) {
            /* Behind the last rank the first of the group stands in. Its words are not stored. */
            const ga_mpi_rank *rank = ga_mpi.of_ranks + first + (i < count ? i : 0);
            from[i] = (const char *)rank->vector + at;
            odd |= (size_t)from[i];
        }
        if (odd % 16 == 0) {
            ga_mpi_copy_group<uint4>(to, from, count, bytes);
        } else if (odd % 8 == 0) {
            ga_mpi_copy_group<uint64_t>(to, from, count, bytes);
        } else if (odd % 4 == 0) {
            ga_mpi_copy_group<uint32_t>(to, from, count, bytes);
        } else {
            ga_mpi_copy_group<char>(to, from, count, bytes);
        }
    }
}

/* End a collective call. No rank reads a vector of it any more. */
GA_MPI_CALL void ga_mpi_finish(void)
{
    ga_mpi_rank *own = ga_mpi_own();
    ga_mpi_barrier();
    if (own->copy) {
        free(own->copy);
        own->copy = NULL;
    }
}

#endif
