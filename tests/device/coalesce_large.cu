/* SPDX-License-Identifier: MIT
 *
 * Large requests through coalesce, 100 KB to 100 MB, over slabs: requests of a warp below `max`
 * share a superblock, others have one alone; classes, and runs of regions. No block below may be
 * live after all frees.
 */
#include "coalesce_gpu.h"

enum {
    WARPS = 3,
    N = WARPS * 32,
    STEP = 1 << 20 /* bytes from one mark to the next */
};

/* Growing ones come last. */
static const char *const specs[] = {
    "coalesce/slab:unit=classes,capacity=8G/cuda",
    "coalesce:header=16/slab:unit=classes,capacity=8G/cuda",
    "coalesce:max=1M/slab:unit=classes,capacity=4M,limit=8G/vmm",
    "coalesce/slab:unit=classes,capacity=4M,limit=8G/vmm",
};

static size_t spec_count(void)
{
    return suite.no_growing ? 2 : sizeof specs / sizeof *specs;
}

/* Sizes spread over the powers of two; in some rounds all lanes request one size. */
static __device__ size_t size_of(uint32_t i, uint32_t round)
{
    uint32_t hash = ga_bits_mix((round % 3u == 2u ? 0 : i) * 31u + round);
    size_t base = (size_t)100000 << hash % 10u; /* up to 51.2 MB */
    size_t size = base + (size_t)(ga_bits_mix(hash) % 1000u) * (base / 1000u);
    return round % 3u == 2u ? size / 4u : size;
}

static __device__ uint32_t mark(uint32_t i, size_t at)
{
    return (i + 1u) * 0x9e3779b9u + (uint32_t)(at / 4u);
}

/* All lanes allocate; two in three free at once, so that memory suffices. */
static __global__ void ask_kernel(ga_kernel_heap heap, uint32_t round, char **blocks,
                                  coalesce_tally *tally)
{
    uint32_t i = coalesce_thread();
    size_t size = size_of(i, round);
    char *block = (i + round) % 3u ? NULL : (char *)ga_kernel_malloc(heap, size);
    bool wrong = (size_t)block % 16u || (block && ga_kernel_usable_size(heap, block) < size);
    ga_post_add64_relaxed(wrong ? &tally->wrong : block ? &tally->given : &tally->refused, 1);
    for (size_t at = 0; block && at + 4u <= size; at += STEP) {
        *(uint32_t *)(block + at) = mark(i, at);
    }
    if (block) {
        *(uint32_t *)(block + (size - 4u) / 4u * 4u) = mark(i, size);
    }
    blocks[i] = block;
}

/* By another thread than the one that allocated. */
static __global__ void look_and_free_kernel(ga_kernel_heap heap, uint32_t round, char **blocks,
                                            coalesce_tally *tally)
{
    uint32_t i = N - 1u - coalesce_thread();
    const char *block = blocks[i];
    size_t size = size_of(i, round);
    bool holds = !block || *(const uint32_t *)(block + (size - 4u) / 4u * 4u) == mark(i, size);
    for (size_t at = 0; block && at + STEP <= size; at += STEP) {
        holds = holds && *(const uint32_t *)(block + at) == mark(i, at);
    }
    if (!holds) {
        ga_post_add64_relaxed(&tally->wrong, 1);
    }
    ga_kernel_free(heap, blocks[i]);
}

static void large_requests(int device)
{
    char **blocks = (char **)suite_memory(N * sizeof *blocks);
    coalesce_tally *tally = (coalesce_tally *)suite_memory(sizeof *tally);
    for (size_t i = 0; i < spec_count(); i++) {
        coalesce_test_heap heap;
        if (coalesce_open(&heap, device, specs[i])) {
            for (uint32_t round = 0; round < (suite.quick ? 3u : 30u); round++) {
                ask_kernel<<<WARPS, 32>>>(heap.view, round, blocks, tally);
                KERNELS_DONE();
                EXPECT_EQUAL("requests that were served", READ_TALLY(&heap, tally).given, N / 3);
                EXPECT(coalesce_live(&heap) > 0);
                look_and_free_kernel<<<1, N>>>(heap.view, round, blocks, tally);
                KERNELS_DONE();
                READ_TALLY(&heap, tally);
                EXPECT_EQUAL("blocks live when all were freed", coalesce_live(&heap), 0);
                /* Empty regions of classes return to the pool, as between launches. */
                EXPECT(ga_trim(heap.heap, 0) == GA_OK);
            }
        }
        coalesce_close(&heap);
    }
    cudaFree(blocks);
    cudaFree(tally);
}

const test_case coalesce_large_cases[] = {
    {"large requests", large_requests},
};
const size_t coalesce_large_case_count = sizeof coalesce_large_cases / sizeof *coalesce_large_cases;
