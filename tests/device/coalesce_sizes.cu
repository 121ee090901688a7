/* SPDX-License-Identifier: MIT
 *
 * Sizes of blocks over each heap: usable sizes, of which every byte is written; cleared blocks;
 * blocks that grow and shrink.
 */
#include "coalesce_gpu.h"

enum {
    N = 1 << 13,
    BLOCK = 128
};

/* The usual, and now and then so much that it is copied and cleared by all lanes. */
static __device__ uint32_t size_of(uint32_t i, uint32_t seed)
{
    return i % 61u == 0 ? 5000u + i % 977u : coalesce_size(i, seed);
}

static __device__ void note_wrong(bool wrong, coalesce_tally *tally)
{
    if (wrong) {
        ga_post_add64_relaxed(&tally->wrong, 1); /* relaxed: read when the kernel has ended */
    }
}

/* ---- usable sizes ---------------------------------------------------------------------------- */

/* Dynamic, aligned and static calls; all usable bytes are written. */
static __global__ void fill_kernel(ga_kernel_heap heap, uint32_t seed, char **payloads,
                                   coalesce_tally *tally)
{
    uint32_t i = coalesce_thread();
    uint32_t size = size_of(i, seed);
    char *payload;
    if (seed % 3u == 0) {
        payload = (char *)ga_coalesce_malloc(heap, seed * 20u, true);
        size = seed * 20u;
    } else if (seed % 3u == 1u) {
        payload = (char *)ga_kernel_malloc(heap, size);
    } else {
        payload = (char *)ga_kernel_aligned_alloc(heap, (size_t)1 << i % 9u, size);
    }
    size_t usable = ga_kernel_usable_size(heap, payload);
    ga_post_add64_relaxed(payload ? &tally->given : &tally->refused, 1);
    note_wrong(payload && usable < size, tally);
    if (payload) {
        coalesce_write(payload, (uint32_t)usable, i);
    }
    payloads[i] = payload;
}

/* By another thread than the one that allocated, after all writes. */
static __global__ void look_kernel(ga_kernel_heap heap, char **payloads, coalesce_tally *tally)
{
    uint32_t i = N - 1u - coalesce_thread();
    if (payloads[i]) {
        size_t usable = ga_kernel_usable_size(heap, payloads[i]);
        note_wrong(!usable, tally);
        coalesce_check(payloads[i], (uint32_t)usable, i, tally);
    }
    note_wrong(ga_kernel_usable_size(heap, NULL) != 0, tally);
}

static __global__ void give_kernel(ga_kernel_heap heap, char **payloads)
{
    ga_kernel_free(heap, payloads[coalesce_thread()]);
}

static void usable_sizes(int device)
{
    char **payloads = (char **)suite_memory(N * sizeof *payloads);
    coalesce_tally *tally = (coalesce_tally *)suite_memory(sizeof *tally);
    EACH_SPEC(spec)
    {
        coalesce_test_heap heap;
        if (coalesce_open(&heap, device, *spec)) {
            for (uint32_t seed = 0; seed < (suite.quick ? 3u : 12u); seed++) {
                fill_kernel<<<N / BLOCK, BLOCK>>>(heap.view, seed, payloads, tally);
                KERNELS_DONE();
                EXPECT_EQUAL("blocks given", READ_TALLY(&heap, tally).given, N);
                look_kernel<<<N / BLOCK, BLOCK>>>(heap.view, payloads, tally);
                give_kernel<<<N / BLOCK, BLOCK>>>(heap.view, payloads);
                KERNELS_DONE();
                READ_TALLY(&heap, tally);
            }
        }
        coalesce_close(&heap);
    }
    cudaFree(payloads);
    cudaFree(tally);
}

/* ---- calloc ---------------------------------------------------------------------------------- */

/* Memory that was written to before. */
static __global__ void clear_kernel(ga_kernel_heap heap, uint32_t seed, coalesce_tally *tally)
{
    uint32_t i = coalesce_thread();
    uint32_t size = size_of(i, seed);
    char *dirty = (char *)ga_kernel_malloc(heap, size);
    if (dirty) {
        coalesce_write(dirty, size, 1);
    }
    ga_kernel_free(heap, dirty);
    volatile char *block = (volatile char *)ga_kernel_calloc(heap, 4, (size + 3u) / 4u);
    ga_post_add64_relaxed(block ? &tally->given : &tally->refused, 1);
    bool clear = true;
    for (uint32_t byte = 0; block && byte < size; byte++) {
        clear = clear && block[byte] == 0;
    }
    note_wrong(!clear, tally);
    note_wrong(ga_kernel_calloc(heap, ~(size_t)0 / 2u, 4) != NULL, tally);
    ga_kernel_free(heap, (void *)block);
}

static void cleared_blocks(int device)
{
    coalesce_tally *tally = (coalesce_tally *)suite_memory(sizeof *tally);
    EACH_SPEC(spec)
    {
        coalesce_test_heap heap;
        if (coalesce_open(&heap, device, *spec)) {
            for (uint32_t seed = 0; seed < (suite.quick ? 2u : 20u); seed++) {
                clear_kernel<<<N / BLOCK, BLOCK>>>(heap.view, seed, tally);
                KERNELS_DONE();
                EXPECT_EQUAL("blocks given", READ_TALLY(&heap, tally).given, N);
            }
        }
        coalesce_close(&heap);
    }
    cudaFree(tally);
}

/* ---- realloc --------------------------------------------------------------------------------- */

/* From nothing to some bytes, to more, to fewer, to nothing; the kept contents are checked each
 * time. */
static __global__ void resize_kernel(ga_kernel_heap heap, uint32_t seed, coalesce_tally *tally)
{
    uint32_t i = coalesce_thread();
    uint32_t size = size_of(i, seed);
    uint32_t more = size + (i % 3u ? 1u : 3u * size + 40u);
    char *block = (char *)ga_kernel_realloc(heap, NULL, size);
    note_wrong(ga_kernel_realloc(heap, block, ~(size_t)0) != NULL, tally); /* and nothing is done */
    if (block) {
        coalesce_write(block, size, i);
    }
    __syncwarp();
    char *larger = (char *)ga_kernel_realloc(heap, block, more);
    if (larger) {
        coalesce_check(larger, size, i, tally);
        note_wrong(ga_kernel_usable_size(heap, larger) < more, tally);
        coalesce_write(larger, more, i);
    }
    __syncwarp();
    char *smaller = (char *)ga_kernel_realloc(heap, larger, size / 3u + 1u);
    if (smaller) {
        coalesce_check(smaller, size / 3u + 1u, i, tally);
    }
    ga_post_add64_relaxed(block && larger && smaller ? &tally->given : &tally->refused, 1);
    note_wrong(ga_kernel_realloc(heap, smaller, 0) != NULL, tally);
}

/* Some lanes of a warp call, with blocks of other calls. */
static __global__ void resize_apart_kernel(ga_kernel_heap heap, uint32_t seed, char **payloads,
                                           coalesce_tally *tally)
{
    uint32_t i = coalesce_thread() * 5u % N;
    if (ga_bits_mix(i + seed) % 3u && payloads[i]) {
        uint32_t usable = (uint32_t)ga_kernel_usable_size(heap, payloads[i]);
        char *other = (char *)ga_kernel_realloc(heap, payloads[i], usable * 2u + 10u);
        ga_post_add64_relaxed(other ? &tally->given : &tally->refused, 1);
        if (other) {
            coalesce_check(other, usable, i, tally);
            coalesce_write(other, (uint32_t)ga_kernel_usable_size(heap, other), i);
            payloads[i] = other;
        }
    }
}

static void resized_blocks(int device)
{
    char **payloads = (char **)suite_memory(N * sizeof *payloads);
    coalesce_tally *tally = (coalesce_tally *)suite_memory(sizeof *tally);
    EACH_SPEC(spec)
    {
        coalesce_test_heap heap;
        if (coalesce_open(&heap, device, *spec)) {
            for (uint32_t seed = 0; seed < (suite.quick ? 3u : 12u); seed++) {
                resize_kernel<<<N / BLOCK, BLOCK>>>(heap.view, seed, tally);
                KERNELS_DONE();
                EXPECT_EQUAL("blocks resized", READ_TALLY(&heap, tally).given, N);
                fill_kernel<<<N / BLOCK, BLOCK>>>(heap.view, seed, payloads, tally);
                resize_apart_kernel<<<N / BLOCK, BLOCK>>>(heap.view, seed, payloads, tally);
                look_kernel<<<N / BLOCK, BLOCK>>>(heap.view, payloads, tally);
                give_kernel<<<N / BLOCK, BLOCK>>>(heap.view, payloads);
                KERNELS_DONE();
                EXPECT_EQUAL("requests refused", READ_TALLY(&heap, tally).refused, 0);
            }
        }
        coalesce_close(&heap);
    }
    cudaFree(payloads);
    cudaFree(tally);
}

const test_case coalesce_sizes_cases[] = {
    {"usable sizes", usable_sizes},
    {"cleared blocks", cleared_blocks},
    {"blocks that grow and shrink", resized_blocks},
};
const size_t coalesce_sizes_case_count = sizeof coalesce_sizes_cases / sizeof *coalesce_sizes_cases;
