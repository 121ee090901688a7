/* SPDX-License-Identifier: MIT
 *
 * Shared by the cases of size-class heaps: a heap from a spec, and kernels in which each thread has
 * one block. Only for CUDA.
 */
#ifndef TESTS_DEVICE_SIZED_GPU_H
#define TESTS_DEVICE_SIZED_GPU_H

#include "slab_gpu.h"

#ifdef GA_KERNEL_ONLY
#define SIZED_KIND GA_KERNEL_ONLY
#else
#define SIZED_KIND GA_KERNEL_KIND_SIZED
#endif

typedef struct sized_rig {
    ga_heap *heap;
    ga_kernel_heap view;
    char **blocks; /* of the threads */
    slab_tally *tally;
} sized_rig;

/* Sizes from `from` to `to`, as `seed` decides. */
typedef struct sized_asking {
    uint32_t from, to, seed;
} sized_asking;

static inline __host__ __device__ uint32_t sized_of(sized_asking asking, uint32_t i)
{
    uint32_t mixed = (i + asking.seed * 0x9e3779b9u) * 0x85ebca6bu;
    mixed = (mixed ^ mixed >> 15) * 0xc2b2ae35u;
    return asking.from + (mixed ^ mixed >> 13) % (asking.to - asking.from + 1u);
}

static inline void sized_tear_down(sized_rig *r)
{
    cudaFree(r->tally);
    cudaFree(r->blocks);
    EXPECT_STATUS(ga_heap_close(r->heap), GA_OK);
}

/* With room for `n` threads. False where there is no heap, and the case has failed. */
static inline bool sized_set_up(sized_rig *r, int device, const char *spec, size_t n)
{
    *r = (sized_rig){};
    ga_status status = ga_heap_open(&r->heap, GA_PLACE_KERNEL, device, spec);
    if (status == GA_OK) {
        status = ga_heap_kernel_view(r->heap, &r->view);
    }
    if (status != GA_OK) {
        FAIL("the heap \"%s\" and a view of it, got \"%s\": %s", spec, ga_status_text(status),
             ga_error_text());
        ga_heap_close(r->heap);
        return false;
    }
    EXPECT_EQUAL("the kind of the view", r->view.kind, SIZED_KIND);
    r->blocks = (char **)suite_memory(n * sizeof *r->blocks);
    r->tally = slab_tally_new();
    return true; /* a failed allocation has failed the case, and kernels that use it fail too */
}

static inline void sized_count_block(void *context, void *block, size_t size)
{
    uint64_t *seen = (uint64_t *)context;
    seen[0]++;
    seen[1] += size;
    seen[2] += (uintptr_t)block % 16 != 0;
}

/* Check the number of live blocks, of at least `size` bytes each: by the count and, if the heap has
 * one and is not too large, by the list. Coalescing heaps have none. */
static inline void sized_expect_live(sized_rig *r, uint64_t blocks, uint32_t size)
{
    ga_stats stats = {};
    uint64_t seen[3] = {};
    EXPECT_STATUS(ga_heap_stats(r->heap, &stats), GA_OK);
    EXPECT_EQUAL("live_blocks", stats.live_blocks, blocks);
    if (stats.live_bytes < blocks * size || (!blocks && stats.live_bytes)) {
        FAIL("%llu blocks of %u bytes at least, got %llu bytes", (unsigned long long)blocks, size,
             (unsigned long long)stats.live_bytes);
    }
    if (SIZED_KIND == GA_KERNEL_KIND_SIZED && blocks <= 1u << 20 && stats.held_bytes <= 1u << 30) {
        EXPECT_STATUS(ga_heap_each_live(r->heap, sized_count_block, seen), GA_OK);
        EXPECT_EQUAL("the blocks that ga_heap_each_live visits", seen[0], blocks);
        EXPECT_EQUAL("their bytes", seen[1], stats.live_bytes);
        EXPECT_EQUAL("the misaligned among them", seen[2], 0);
    }
}

/* ---- for kernels ------------------------------------------------------------------------ */

static __device__ inline void sized_check_pointer(const void *block, slab_tally *tally)
{
    if ((uint64_t)block % 16) {
        slab_note_wrong(tally, SLAB_POINTER, (uint64_t)block, (uint64_t)block % 16, 0);
    }
}

/* Thread i of n allocates a block and writes all of it, up to whole words. */
static __global__ void sized_ask_kernel(ga_kernel_heap heap, char **blocks, sized_asking asking,
                                        uint32_t n, slab_tally *tally)
{
    uint32_t i = slab_thread();
    if (i < n) {
        char *block = (char *)ga_kernel_malloc(heap, sized_of(asking, i));
        blocks[i] = block;
        sized_check_pointer(block, tally);
        slab_count(block ? &tally->given : &tally->full, 1);
        if (block) {
            slab_write(block, sized_of(asking, i), i);
        }
    }
}

static __global__ void sized_look_kernel(char **blocks, sized_asking asking, uint32_t n,
                                         slab_tally *tally)
{
    uint32_t i = slab_thread();
    if (i < n && blocks[i]) {
        slab_holds(blocks[i], sized_of(asking, i), i, tally);
    }
}

/* Thread i frees block (i * stride + 1) % n. */
static __global__ void sized_free_kernel(ga_kernel_heap heap, char **blocks, uint32_t n,
                                         uint32_t stride, slab_tally *tally)
{
    uint32_t i = slab_thread();
    if (i < n) {
        char *block = blocks[((uint64_t)i * stride + 1u) % n];
        slab_count(&tally->released, block ? 1 : 0);
        ga_kernel_free(heap, block);
    }
}

/* n threads allocate and check; returns the number of blocks. */
static inline uint64_t sized_ask_all(sized_rig *r, sized_asking asking, uint32_t n)
{
    sized_ask_kernel<<<slab_grid(n), SLAB_BLOCK>>>(r->view, r->blocks, asking, n, r->tally);
    sized_look_kernel<<<slab_grid(n), SLAB_BLOCK>>>(r->blocks, asking, n, r->tally);
    KERNELS_DONE();
    slab_tally found = READ_TALLY(r->tally);
    EXPECT_EQUAL("the answers", found.given + found.full, n);
    return found.given;
}

/* And free, in the order of a stride that has no divisor in common with n, or the next that has
 * none. */
static inline void sized_free_all(sized_rig *r, sized_asking asking, uint32_t n, uint32_t stride)
{
    for (uint32_t a = n, b = stride; b != 1;) { /* until they have none */
        uint32_t rest = a % b;
        a = rest ? b : n;
        b = rest ? rest : ++stride;
    }
    sized_look_kernel<<<slab_grid(n), SLAB_BLOCK>>>(r->blocks, asking, n, r->tally);
    sized_free_kernel<<<slab_grid(n), SLAB_BLOCK>>>(r->view, r->blocks, n, stride, r->tally);
    KERNELS_DONE();
    READ_TALLY(r->tally);
}

#endif
