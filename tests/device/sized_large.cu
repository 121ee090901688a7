/* SPDX-License-Identifier: MIT
 *
 * Blocks larger than the largest class, and the functions besides malloc and free: calloc, realloc,
 * aligned blocks, usable sizes. Fixed heaps and heaps that grow while their kernels run.
 */
#include "sized_gpu.h"

#define LARGE_STEP (64u << 10) /* bytes between two marks in a block */

static __device__ uint32_t large_mark(uint32_t i, size_t at)
{
    return (i + 1u) * 0x9e3779b9u + (uint32_t)(at / 4u);
}

static __device__ void large_write(char *block, size_t size, uint32_t i)
{
    for (size_t at = 0; at + 4 <= size; at += LARGE_STEP) {
        *(uint32_t *)(block + at) = large_mark(i, at);
    }
    *(uint32_t *)(block + (size - 4) / 4 * 4) = large_mark(i, size);
}

/* Check the contents written for `size` bytes, as far as the first `n`. */
static __device__ void large_check(const char *block, size_t size, size_t n, uint32_t i,
                                   slab_tally *tally)
{
    for (size_t at = 0; at + 4 <= n && at + LARGE_STEP <= size; at += LARGE_STEP) {
        uint32_t got = *(const uint32_t *)(block + at);
        if (got != large_mark(i, at)) {
            slab_note_wrong(tally, SLAB_POINTER, (uint64_t)block, at, got);
        }
    }
}

static __device__ size_t large_size(uint32_t i, uint32_t round)
{
    uint32_t mixed = (i * 31u + round) * 0x85ebca6bu;
    return 4u + (mixed ^ mixed >> 13) % (3u << 20);
}

/* Each thread allocates a block of another size, checks it and frees it, repeatedly. */
static __global__ void large_rounds_kernel(ga_kernel_heap heap, uint32_t rounds, slab_tally *tally)
{
    uint32_t i = slab_thread();
    for (uint32_t round = 0; round < rounds; round++) {
        size_t size = large_size(i, round);
        char *block = (char *)ga_kernel_malloc(heap, size);
        sized_check_pointer(block, tally);
        slab_count(block ? &tally->given : &tally->full, 1);
        if (block) {
            if (ga_kernel_usable_size(heap, block) < size) {
                slab_note_wrong(tally, SLAB_ANSWER, size, (uint64_t)block, 0);
            }
            large_write(block, size, i);
            large_check(block, size, size, i, tally);
            ga_kernel_free(heap, block);
        }
    }
}

static const char *const large_specs[] = {"slab:unit=classes,capacity=1G/cuda",
                                          "slab:unit=classes,limit=1G/vmm"};

/* The last spec grows while its kernels run. */
static size_t large_spec_count(void)
{
    return suite.no_growing ? 1 : 2;
}

static void large_rounds(int device)
{
    for (size_t i = 0; i < large_spec_count(); i++) {
        sized_rig r;
        if (!sized_set_up(&r, device, large_specs[i], 1)) {
            return;
        }
        large_rounds_kernel<<<16, 64>>>(r.view, suite.quick ? 5 : 50, r.tally);
        KERNELS_DONE();
        slab_tally found = READ_TALLY(r.tally);
        printf("    %s: %llu given, %llu not\n", large_specs[i], (unsigned long long)found.given,
               (unsigned long long)found.full);
        EXPECT_EQUAL("blocks given at all", found.given > 0, 1);
        sized_expect_live(&r, 0, 0);
        sized_tear_down(&r);
    }
}

/* All of the heap as one block, and when that is free, as many blocks as fit; from one lane each,
 * and from all lanes of a warp. */
static __global__ void large_all_kernel(ga_kernel_heap heap, size_t all, slab_tally *tally)
{
    char *block = threadIdx.x == 5 ? (char *)ga_kernel_malloc(heap, all) : NULL;
    slab_count(&tally->given, block ? 1 : 0);
    if (block) {
        large_write(block, all, 1);
        large_check(block, all, all, 1, tally);
        slab_count(&tally->full, ga_kernel_malloc(heap, all) ? 0 : 1);
        ga_kernel_free(heap, block + (all / 2));
        ga_kernel_free(heap, block);
        slab_count(&tally->full, ga_kernel_malloc(heap, all + 1) ? 0 : 1);
    }
    __syncwarp();
    block = (char *)ga_kernel_malloc(heap, all / 16);
    slab_count(&tally->given, block ? 1 : 0);
    __syncwarp(); /* no block is freed before all lanes have allocated */
    ga_kernel_free(heap, block);
}

static void large_all(int device)
{
    const size_t all = (size_t)1 << 30;
    for (size_t i = 0; i < large_spec_count(); i++) {
        sized_rig r;
        if (!sized_set_up(&r, device, large_specs[i], 1)) {
            return;
        }
        large_all_kernel<<<1, 32>>>(r.view, all, r.tally);
        KERNELS_DONE();
        slab_tally found = READ_TALLY(r.tally);
        EXPECT_EQUAL("the blocks given: one, then sixteen", found.given, 17);
        EXPECT_EQUAL("the refusals", found.full, 2);
        sized_expect_live(&r, 0, 0);
        sized_tear_down(&r);
    }
}

/* ---- the other calls ---------------------------------------------------------------------- */

static __global__ void large_calls_kernel(ga_kernel_heap heap, slab_tally *tally)
{
    uint32_t i = slab_thread();
    size_t size = i % 3 ? 4 + i * 37 % 5000 : 100000 + (size_t)i * 4096;
    char *block = (char *)ga_kernel_calloc(heap, size / 4, 4);
    bool wrong = !block;
    for (size_t at = 0; block && at < size / 4 * 4; at++) {
        wrong |= block[at] != 0;
    }
    size_t larger = size * 3;
    if (block) {
        large_write(block, size / 4 * 4, i);
    }
    char *other = (char *)ga_kernel_realloc(heap, block, larger);
    if (other) {
        large_check(other, size / 4 * 4, size / 4 * 4, i, tally);
        large_write(other, larger / 4 * 4, i);
        wrong |= ga_kernel_usable_size(heap, other) < larger;
    }
    char *smaller = (char *)ga_kernel_realloc(heap, other, size / 2 + 4);
    if (smaller) {
        large_check(smaller, larger / 4 * 4, size / 2, i, tally);
    }
    size_t align = (size_t)16 << i % 18;
    char *aligned = (char *)ga_kernel_aligned_alloc(heap, align, size);
    wrong |= !other || !smaller || !aligned || (size_t)aligned % align;
    wrong |= ga_kernel_realloc(heap, smaller, 0) != NULL;
    wrong |= ga_kernel_aligned_alloc(heap, 48, 100) != NULL;
    wrong |= ga_kernel_aligned_alloc(heap, 0, 100) != NULL;
    wrong |= ga_kernel_calloc(heap, (size_t)1 << 33, (size_t)1 << 33) != NULL;
    wrong |= ga_kernel_usable_size(heap, aligned + 16) != 0;
    wrong |= ga_kernel_usable_size(heap, NULL) != 0;
    ga_kernel_free(heap, aligned);
    if (wrong) {
        slab_note_wrong(tally, SLAB_ANSWER, size, (uint64_t)block, i);
    }
    slab_count(&tally->given, 1);
}

static void large_calls(int device)
{
    sized_rig r;
    const char *spec = suite.no_growing ? "slab:unit=classes,capacity=16G/cuda"
                                        : "slab:unit=classes,limit=16G/vmm";
    if (!sized_set_up(&r, device, spec, 1)) {
        return;
    }
    large_calls_kernel<<<4, 128>>>(r.view, r.tally);
    KERNELS_DONE();
    EXPECT_EQUAL("the threads", READ_TALLY(r.tally).given, 512);
    sized_expect_live(&r, 0, 0);
    sized_tear_down(&r);
}

extern const test_case slab_sized_large_cases[] = {
    {"size classes: calloc, realloc, aligned blocks", large_calls},
    {"size classes: larger than any class", large_rounds},
    {"size classes: all of the heap at once", large_all},
};
extern const size_t slab_sized_large_case_count =
    sizeof slab_sized_large_cases / sizeof *slab_sized_large_cases;
