/* SPDX-License-Identifier: MIT
 *
 * The vmm backend on a device made of host memory: blocks that are mapped, joined, cut, packed,
 * grown and freed.
 */
#include "support/expect.h"
#include "support/random.h"
#include "support/vmm_scene.h"

#include "backends/vmm/vmm.h"
#include "runtime/heap.h"

#include <stdlib.h>
#include <string.h>

/* ---- one block --------------------------------------------------------------------------- */

Test(vmm, a_block_is_mapped_by_itself_and_kept_when_freed)
{
    ga_heap *heap = vmm_open(NULL, "vmm");
    char *block = vmm_take(heap, 32 * MIB);
    memset(block, 1, 32 * MIB);
    cr_assert_eq(vmm_driver_count().mapped_bytes, 32 * MIB);
    cr_assert_eq(vmm_driver_count().handles, 1);
    cr_assert_eq(ga_usable_size(heap, block), 32 * MIB);
    assert_ok(ga_free(heap, block));
    cr_assert_eq(vmm_driver_count().mapped_bytes, 32 * MIB);
    vmm_end(heap);
}

/* Two free chunks of 64 MiB before a live block; behind that 128 MiB that are free, and a hole. */
Test(vmm, memory_that_is_wanted_elsewhere_is_moved)
{
    ga_heap *heap = vmm_open(NULL, "vmm:free=now,limit=320M");
    void *low = vmm_take(heap, 128 * MIB);
    void *kept = vmm_take(heap, 64 * MIB);
    void *high = vmm_take(heap, 128 * MIB);
    assert_ok(ga_free(heap, low));
    assert_ok(ga_free(heap, high));
    uint64_t created = vmm_driver_calls("cuMemCreate");
    uint64_t mapped = vmm_driver_calls("cuMemMap");
    char *block = vmm_take(heap, 192 * MIB);
    cr_assert_eq((void *)block, high);
    memset(block, 1, 192 * MIB);
    cr_assert_eq(vmm_driver_calls("cuMemCreate"), created);
    cr_assert_eq(vmm_driver_calls("cuMemMap"), mapped + 1);
    cr_assert_eq(vmm_held(heap), 320 * MIB);
    cr_assert_eq(vmm_driver_count().chunk_bytes, 320 * MIB);
    assert_ok(ga_free(heap, block));
    assert_ok(ga_free(heap, kept));
    vmm_end(heap);
}

Test(vmm, the_same_size_again_needs_no_call_but_the_wait)
{
    ga_heap *heap = vmm_open(NULL, "vmm:free=now");
    void *block = vmm_take(heap, 32 * MIB);
    assert_ok(ga_free(heap, block));
    uint64_t calls = vmm_driver_calls(NULL);
    for (int i = 0; i < 100; i++) {
        void *again = vmm_take(heap, 32 * MIB - (size_t)i);
        cr_assert_eq(again, block);
        assert_ok(ga_free(heap, again));
    }
    cr_assert_eq(vmm_driver_calls(NULL), calls);
    vmm_end(heap);
}

Test(vmm, a_slightly_larger_one_serves)
{
    ga_heap *heap = vmm_open(NULL, "vmm:free=now");
    void *block = vmm_take(heap, 66 * MIB);
    assert_ok(ga_free(heap, block));
    void *other = vmm_take(heap, 64 * MIB);
    cr_assert_eq(other, block);
    cr_assert_eq(ga_usable_size(heap, other), 66 * MIB);
    void *third = vmm_take(heap, 60 * MIB);
    cr_assert_neq(third, block);
    assert_ok(ga_free(heap, other));
    assert_ok(ga_free(heap, third));
    vmm_end(heap);
}

Test(vmm, large_blocks_are_of_several_chunks)
{
    ga_heap *heap = vmm_open(NULL, "vmm:chunk=32M");
    void *block = vmm_take(heap, 100 * MIB);
    cr_assert_eq(vmm_driver_count().mappings, 4);
    cr_assert_eq(vmm_driver_count().mapped_bytes, 100 * MIB);
    assert_ok(ga_free(heap, block));
    vmm_end(heap);
}

Test(vmm, alignments)
{
    ga_heap *heap = vmm_open(NULL, "vmm");
    static const size_t sizes[] = {1, 300, 5000, 1 << 20, 3 << 20, 8 << 20};
    for (size_t align = 256; align <= 64 * MIB; align *= 4) {
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            void *block;
            assert_ok(ga_alloc(heap, sizes[i], align, &block));
            cr_assert_eq((uintptr_t)block % align, 0, "%zu at %zu", sizes[i], align);
            cr_assert_geq(ga_usable_size(heap, block), sizes[i]);
            memset(block, 1, sizes[i]);
            assert_ok(ga_free(heap, block));
        }
    }
    vmm_end(heap);
}

Test(vmm, foreign_pointers_and_double_frees)
{
    ga_heap *heap = vmm_open(NULL, "vmm");
    char *large = vmm_take(heap, 8 * MIB);
    cr_assert_not(ga_owns(heap, large + 8 * MIB));
    char *small = vmm_take(heap, 1000);
    char *other = vmm_take(heap, 1000);
    int local;
    cr_assert(ga_owns(heap, large) && ga_owns(heap, large + 8 * MIB - 1));
    cr_assert(ga_owns(heap, small) && ga_owns(heap, small + 999));
    cr_assert_not(ga_owns(heap, &local));
    assert_fails_with(ga_free(heap, &local), GA_ERR_POINTER, "vmm: ");
    assert_fails_with(ga_free(heap, large + 1), GA_ERR_POINTER, "vmm: ");
    assert_fails_with(ga_free(heap, small + 256), GA_ERR_POINTER, "vmm: ");
    cr_assert_eq(ga_usable_size(heap, small + 1), 0);
    assert_ok(ga_free(heap, large));
    assert_ok(ga_free(heap, small));
    assert_fails_with(ga_free(heap, large), GA_ERR_POINTER, "vmm: ");
    assert_fails_with(ga_free(heap, small), GA_ERR_POINTER, "vmm: ");
    cr_assert_not(ga_owns(heap, large));
    cr_assert_not(ga_owns(heap, small));
    assert_ok(ga_free(heap, other));
    vmm_end(heap);
}

/* ---- joined and cut ---------------------------------------------------------------------- */

Test(vmm, freed_neighbours_serve_one_large_request_without_the_driver)
{
    ga_heap *heap = vmm_open(NULL, "vmm:free=now");
    char *blocks[5];
    for (size_t i = 0; i < 5; i++) {
        blocks[i] = vmm_take(heap, 32 * MIB);
        cr_assert(i == 0 || blocks[i] == blocks[i - 1] + 32 * MIB);
    }
    for (size_t i = 1; i < 4; i++) {
        assert_ok(ga_free(heap, blocks[i]));
    }
    uint64_t calls = vmm_driver_calls(NULL);
    char *joined = vmm_take(heap, 64 * MIB);
    cr_assert_eq(vmm_driver_calls(NULL), calls);
    cr_assert_eq(joined, blocks[1]);
    cr_assert_eq(ga_usable_size(heap, joined), 64 * MIB);
    memset(joined, 1, 64 * MIB);
    cr_assert(ga_owns(heap, joined + 64 * MIB - 1));
    cr_assert_not(ga_owns(heap, joined + 64 * MIB));
    cr_assert_eq(vmm_take(heap, 32 * MIB), blocks[3]);
    assert_ok(ga_free(heap, blocks[3]));
    assert_ok(ga_free(heap, joined));
    assert_ok(ga_free(heap, blocks[0]));
    assert_ok(ga_free(heap, blocks[4]));
    assert_ok(ga_trim(heap, 0));
    cr_assert_eq(vmm_held(heap), 0);
    vmm_end(heap);
}

Test(vmm, a_part_of_a_large_one_serves_a_small_request)
{
    ga_heap *heap = vmm_open(NULL, "vmm:free=now");
    char *large = vmm_take(heap, 256 * MIB); /* four chunks */
    assert_ok(ga_free(heap, large));
    uint64_t calls = vmm_driver_calls(NULL);
    char *first = vmm_take(heap, 64 * MIB);
    char *second = vmm_take(heap, 128 * MIB);
    char *third = vmm_take(heap, 64 * MIB);
    cr_assert_eq(vmm_driver_calls(NULL), calls);
    cr_assert(first == large && second == large + 64 * MIB && third == large + 192 * MIB);
    memset(large, 3, 256 * MIB);
    assert_ok(ga_free(heap, second));
    assert_ok(ga_free(heap, first));
    assert_ok(ga_free(heap, third));
    calls = vmm_driver_calls(NULL);
    cr_assert_eq(vmm_take(heap, 256 * MIB), large);
    cr_assert_eq(vmm_driver_calls(NULL), calls);
    assert_ok(ga_free(heap, large));
    vmm_end(heap);
}

/* The middle one has been returned to the driver: only that one is mapped anew. */
Test(vmm, a_hole_between_free_neighbours_is_filled)
{
    ga_heap *heap = vmm_open(NULL, "vmm:free=now");
    char *low = vmm_take(heap, 32 * MIB);
    void *middle = vmm_take(heap, 48 * MIB);
    void *high = vmm_take(heap, 32 * MIB);
    void *behind = vmm_take(heap, 8 * MIB);
    assert_ok(ga_free(heap, middle));
    assert_ok(ga_free(heap, low));
    assert_ok(ga_free(heap, high));
    assert_ok(ga_trim(heap, 64 * MIB));
    cr_assert_eq(vmm_held(heap), 72 * MIB);
    uint64_t maps = vmm_driver_calls("cuMemMap");
    char *all = vmm_take(heap, 112 * MIB);
    cr_assert_eq(all, low);
    cr_assert_eq(vmm_driver_calls("cuMemMap"), maps + 1);
    cr_assert_eq(vmm_held(heap), 120 * MIB);
    memset(all, 1, 112 * MIB);
    assert_ok(ga_free(heap, all));
    assert_ok(ga_free(heap, behind));
    vmm_end(heap);
}

/* A slightly larger run serves a request, but the total waste is bounded. */
Test(vmm, what_is_wasted_is_bounded_in_all)
{
    enum {
        BLOCKS = 16
    };
    void *blocks[BLOCKS];
    ga_heap *heap = vmm_open(NULL, "vmm:free=now");
    vmm_take_many(heap, blocks, BLOCKS, 40 * MIB);
    vmm_free_many(heap, blocks, BLOCKS);
    uint64_t usable = 0;
    for (size_t i = 0; i < BLOCKS; i++) {
        blocks[i] = vmm_take(heap, 32 * MIB);
        usable += ga_usable_size(heap, blocks[i]);
    }
    cr_assert_gt(usable, BLOCKS * 32 * MIB);
    cr_assert_leq(usable, BLOCKS * 32 * MIB + BLOCKS * 40 * MIB / 28);
    cr_assert_leq(vmm_held(heap), BLOCKS * 40 * MIB + 64 * MIB);
    vmm_free_many(heap, blocks, BLOCKS);
    vmm_end(heap);
}

/* Ranges of 64 MiB that happen to touch are still two to the driver. */
Test(vmm, nothing_is_joined_over_the_end_of_a_reservation)
{
    ga_heap *heap = vmm_open(NULL, "vmm:free=now,reserve=64M");
    void *blocks[4];
    vmm_take_many(heap, blocks, 4, 64 * MIB);
    vmm_free_many(heap, blocks, 4);
    void *large = vmm_take(heap, 128 * MIB);
    memset(large, 1, 128 * MIB);
    assert_ok(ga_free(heap, large));
    assert_ok(ga_trim(heap, 0));
    cr_assert_eq(vmm_held(heap), 0);
    vmm_end(heap);
}

/* ---- packed blocks ----------------------------------------------------------------------- */

Test(vmm, small_blocks_share_and_sizes_do_not)
{
    ga_heap *heap = vmm_open(NULL, "vmm");
    char *blocks[8];
    for (size_t i = 0; i < 8; i++) {
        blocks[i] = vmm_take(heap, i % 2 ? 512 << 10 : 1536 << 10);
        memset(blocks[i], (int)i, i % 2 ? 512 << 10 : 1536 << 10);
    }
    /* 4 x 512 KiB in one run; 1.5 MiB: the first by itself, then four to a run of 6 MiB */
    cr_assert_eq(vmm_held(heap), 2 * MIB + 2 * MIB + 6 * MIB);
    for (size_t i = 0; i < 8; i++) {
        cr_assert_eq(blocks[i][1000], (char)i);
        cr_assert_eq(ga_usable_size(heap, blocks[i]), i % 2 ? 512 << 10 : 1536 << 10);
        assert_ok(ga_free(heap, blocks[i]));
    }
    assert_ok(ga_trim(heap, 0));
    cr_assert_eq(vmm_held(heap), 0);
    vmm_end(heap);
}

Test(vmm, units_waste_little)
{
    ga_heap *heap = vmm_open(&(vmm_driver_options){.memory = 256 * MIB}, "vmm");
    for (size_t size = 1; size < 4 * MIB; size += size / 100 + 1) {
        void *block = vmm_take(heap, size);
        size_t usable = ga_usable_size(heap, block);
        size_t max = size + 255 > size + size / 8 ? size + 255 : size + size / 8;
        cr_assert(usable >= size && usable <= max, "%zu: %zu", size, usable);
        cr_assert(size <= 64 << 10 || usable <= size + size / 31, "%zu: %zu", size, usable);
        assert_ok(ga_free(heap, block));
    }
    vmm_end(heap);
}

/* Random blocks, each filled with its number, compared with a copy of the live ones. */
Test(vmm, a_random_script)
{
    enum {
        SLOTS = 200
    };
    static struct {
        unsigned char *block;
        size_t size;
    } slots[SLOTS];
    ga_heap *heap = vmm_open(NULL, "vmm:limit=512M,chunk=8M");
    uint64_t random = 7;
    uint64_t live = 0;
    for (int i = 0; i < 4000; i++) {
        size_t at = random_below(&random, SLOTS);
        if (slots[at].block) {
            cr_assert_eq(slots[at].block[0], (unsigned char)at);
            cr_assert_eq(slots[at].block[slots[at].size - 1], (unsigned char)at);
            live -= ga_usable_size(heap, slots[at].block);
            assert_ok(ga_free(heap, slots[at].block));
            slots[at].block = NULL;
            continue;
        }
        size_t size = 1 + random_below(&random, (size_t)1 << (4 + random_below(&random, 21)));
        slots[at].block = vmm_take(heap, size);
        slots[at].size = size;
        slots[at].block[0] = slots[at].block[size - 1] = (unsigned char)at;
        live += ga_usable_size(heap, slots[at].block);
        ga_stats stats;
        assert_ok(ga_heap_stats(heap, &stats));
        cr_assert_eq(stats.live_bytes, live);
        cr_assert_eq(stats.held_bytes, vmm_driver_count().mapped_bytes);
    }
    assert_ok(ga_heap_reset(heap));
    assert_ok(ga_trim(heap, 0));
    cr_assert_eq(vmm_held(heap), 0);
    vmm_end(heap);
}

/* ---- growing ----------------------------------------------------------------------------- */

Test(vmm, blocks_grow_in_place)
{
    ga_heap *heap = vmm_open(&(vmm_driver_options){.memory = 4 * GIB}, "vmm");
    char *block = vmm_take(heap, GIB);
    void *fixed = vmm_take(heap, 64 * MIB);
    char *last = vmm_take(heap, 64 * MIB);
    block[GIB - 1] = 5;
    assert_ok(
        ga_grow(heap, block, GIB + 100 * MIB)); /* large ones have free addresses behind them */
    cr_assert_eq(ga_usable_size(heap, block), GIB + 100 * MIB);
    memset(block + GIB, 1, 100 * MIB);
    cr_assert_eq(block[GIB - 1], 5);
    cr_assert(ga_owns(heap, block + GIB + 100 * MIB - 1));
    cr_assert_not(ga_owns(heap, block + GIB + 100 * MIB));
    assert_fails_with(ga_grow(heap, fixed, 66 * MIB), GA_ERR_CANNOT_GROW,
                      "vmm: the addresses behind");
    assert_ok(ga_grow(heap, last, 300 * MIB)); /* nothing is behind it */
    assert_ok(ga_free(heap, last));
    assert_ok(ga_free(heap, fixed));
    assert_ok(ga_free(heap, block));
    block = vmm_take(heap, GIB + 100 * MIB);
    memset(block + GIB, 1, 100 * MIB);
    assert_ok(ga_free(heap, block));
    vmm_end(heap);
}

Test(vmm, freed_neighbours_make_way_for_one_that_grows)
{
    ga_heap *heap = vmm_open(NULL, "vmm");
    void *blocks[4];
    vmm_take_many(heap, blocks, 4, 32 * MIB);
    assert_ok(ga_free(heap, blocks[1]));
    assert_fails_with(ga_grow(heap, blocks[0], 96 * MIB), GA_ERR_CANNOT_GROW, "vmm: ");
    cr_assert_eq(vmm_held(heap), 128 * MIB); /* the block behind does not collide yet */
    assert_ok(ga_free(heap, blocks[2]));
    uint64_t maps = vmm_driver_calls("cuMemMap");
    assert_ok(ga_grow(heap, blocks[0], 96 * MIB));
    cr_assert_eq(vmm_driver_calls("cuMemMap"), maps, "they become a part of it as they are");
    memset(blocks[0], 1, 96 * MIB);
    cr_assert_eq(vmm_held(heap), 128 * MIB);
    assert_ok(ga_free(heap, blocks[0]));
    assert_ok(ga_free(heap, blocks[3]));
    vmm_end(heap);
}

Test(vmm, realloc_moves_what_cannot_grow)
{
    ga_heap *heap = vmm_open(NULL, "vmm");
    char *block = vmm_take(heap, 1000);
    void *moved = block;
    memset(block, 3, 1000);
    assert_ok(ga_realloc(heap, block, 3 * MIB, 0, &moved));
    block = moved;
    cr_assert_eq(block[999], 3);
    assert_ok(ga_realloc(heap, block, 100 * MIB, 0, &moved));
    block = moved;
    cr_assert_eq(block[999], 3);
    block[50 * MIB] = 4;
    assert_ok(ga_realloc(heap, block, 180 * MIB, 0, &moved)); /* nothing is behind it */
    cr_assert_eq(moved, block);
    cr_assert_eq(block[50 * MIB], 4);
    assert_ok(ga_realloc(heap, block, 10, 0, &moved));
    cr_assert_neq(moved, block);
    cr_assert_eq(((char *)moved)[9], 3);
    assert_ok(ga_free(heap, moved));
    vmm_end(heap);
}

/* ---- all blocks -------------------------------------------------------------------------- */

static void add_up(void *context, void *block, size_t size)
{
    (void)block;
    *(size_t *)context += size;
}

Test(vmm, live_blocks_and_reset)
{
    ga_heap *heap = vmm_open(NULL, "vmm");
    size_t sum = 0;
    vmm_take(heap, 8 * MIB);
    void *freed = vmm_take(heap, 256);
    vmm_take(heap, 1 * MIB);
    vmm_take(heap, 256);
    assert_ok(ga_free(heap, freed));
    assert_ok(ga_heap_each_live(heap, add_up, &sum));
    cr_assert_eq(sum, 9 * MIB + 256);
    assert_ok(ga_heap_reset(heap));
    sum = 0;
    assert_ok(ga_heap_each_live(heap, add_up, &sum));
    cr_assert_eq(sum, 0);
    vmm_end(heap);
}

Test(vmm, closing_with_live_blocks_gives_all_back)
{
    ga_heap *heap = vmm_open(NULL, "vmm");
    vmm_take(heap, 8 * MIB);
    vmm_take(heap, 100);
    setenv("GPUALLOC_LOG", "error", 1);
    vmm_end(heap);
}

Test(vmm, zeroed_blocks)
{
    ga_heap *heap = vmm_open(NULL, "vmm:free=now");
    for (size_t size = 100; size < 16 * MIB; size *= 40) {
        char *block = vmm_take(heap, size);
        void *zeroed;
        memset(block, 9, size);
        assert_ok(ga_free(heap, block));
        assert_ok(ga_alloc_zeroed(heap, size, 0, &zeroed));
        cr_assert_eq(zeroed, block);
        cr_assert(block[0] == 0 && block[size - 1] == 0);
        assert_ok(ga_free(heap, zeroed));
    }
    vmm_end(heap);
}

/* Memory that grows under kernels, opened before the peers are enabled and after. */
Test(vmm, peers_of_memory_that_grows)
{
    vmm_driver_options two = {.devices = 3};
    ga_heap *heap = vmm_open(&two, "vmm");
    ga_growing early = {.step_bytes = {4 * MIB, 2 * MIB}, .steps_max = 64, .steps = 2};
    ga_growing late = early;
    assert_ok(ga_growing_open(heap, &early));
    assert_ok(ga_heap_enable_peer(heap, 1));
    cr_assert(vmm_driver_accessible(early.base[0], 8 * MIB, 3));
    cr_assert(vmm_driver_accessible(early.base[1], 4 * MIB, 3));
    assert_ok(ga_growing_to(heap, &early, 8));
    cr_assert(vmm_driver_accessible(early.base[0], 32 * MIB, 3));
    assert_ok(ga_growing_open(heap, &late));
    cr_assert(vmm_driver_accessible(late.base[1], 4 * MIB, 3));
    vmm_driver_fail("cuMemSetAccess", 2, CUDA_ERROR_INVALID_VALUE);
    cr_assert_eq(ga_heap_enable_peer(heap, 2), GA_ERR_DEVICE);
    ga_growing_close(heap, &early);
    ga_growing_close(heap, &late);
    setenv("GPUALLOC_LOG", "error", 1);
    vmm_end(heap);
}

/* Peer access is enabled: to mapped memory, cached memory and memory mapped later; then to no
 * more. */
Test(vmm, peers)
{
    vmm_driver_options two = {.devices = 3};
    ga_heap *heap = vmm_open(&two, "vmm");
    void *live = vmm_take(heap, 40 * MIB);
    void *small = vmm_take(heap, 1000);
    cr_assert(!vmm_driver_accessible(live, 40 * MIB, 2));
    assert_ok(heap->backend->enable_peer(heap->state, 1));
    assert_ok(heap->backend->enable_peer(heap->state, 1));
    assert_ok(heap->backend->enable_peer(heap->state, 0));
    cr_assert(vmm_driver_accessible(live, 40 * MIB, 3));
    cr_assert(vmm_driver_accessible(small, 1000, 3));
    cr_assert(vmm_driver_accessible(vmm_take(heap, 90 * MIB), 90 * MIB, 3));
    vmm_driver_fail("cuMemSetAccess", 2, CUDA_ERROR_INVALID_VALUE);
    cr_assert_eq(heap->backend->enable_peer(heap->state, 2), GA_ERR_DEVICE);
    void *later = vmm_take(heap, 200 * MIB);
    cr_assert(vmm_driver_accessible(later, 200 * MIB, 3));
    cr_assert(!vmm_driver_accessible(later, 200 * MIB, 4));
    cr_assert_eq(heap->backend->enable_peer(heap->state, 7), GA_ERR_DEVICE);
    assert_ok(ga_heap_enable_peer(heap, 2));
    cr_assert(vmm_driver_accessible(later, 200 * MIB, 7));
    setenv("GPUALLOC_LOG", "error", 1);
    vmm_end(heap);
}
