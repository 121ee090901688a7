/* SPDX-License-Identifier: MIT
 *
 * Frees in size-class heaps with check=full: an invalid free is reported with its address, also
 * during frees of other lanes, and changes nothing; a valid free succeeds. Then heaps as programs
 * open them: the messages of the log.
 */
#include "backends/slab/classes/sized_checked.h"
#include "backends/slab/classes/sized_words.h"
#include "device/kinds.h"

#include "support/expect.h"
#include "support/random.h"
#include "support/scene.h"
#include "support/sized_actor.h"
#include "support/sized_world.h"
#include "support/vmm_driver.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    LANES = 32,
    BITS = 17, /* of a region: 2^BITS bytes */
    REGION = 1 << BITS
};

/* ---- by hand --------------------------------------------------------------------------------- */

static sized_world *checked_world(uint32_t regions)
{
    sized_world *world = sized_world_new(BITS, regions);
    world->heap->check = 1;
    return world;
}

/* The lanes of the mask free their blocks. */
static void give(ga_sized_heap *heap, uint32_t lanes, char *const *blocks)
{
    ga_lanes low = ga_lanes_all(0), high = ga_lanes_all(0);
    for (uint32_t lane = 0; lane < LANES; lane++) {
        if (lanes >> lane & 1u) {
            ga_lane_write(&low, lane, (uint32_t)(uintptr_t)blocks[lane]);
            ga_lane_write(&high, lane, (uint32_t)((uint64_t)(uintptr_t)blocks[lane] >> 32));
        }
    }
    ga_sized_free_lanes_checked(heap, sized_tile(), lanes, low, high);
}

static void give_one(ga_sized_heap *heap, uint32_t lane, char *block)
{
    char *blocks[LANES] = {NULL};
    blocks[lane] = block;
    give(heap, 1u << lane, blocks);
}

/* A block of the class for each lane. */
static void take(ga_sized_heap *heap, uint32_t class, uint32_t number, char **blocks)
{
    uint32_t classes[LANES];
    for (uint32_t lane = 0; lane < LANES; lane++) {
        classes[lane] = class;
    }
    cr_assert_eq(sized_claim(heap, GA_ALL_BITS, classes, number, blocks), LANES);
}

static char *take_run(ga_sized_heap *heap, uint32_t regions)
{
    ga_lanes first =
        ga_sized_runs_claim(heap, sized_tile(), 1, ga_lanes_all(regions), ga_lanes_all(1), 0);
    cr_assert_neq(ga_lane_read(first, 0), GA_SIZED_NONE);
    return ga_sized_run_pointer(ga_sized_view_of(heap), ga_lane_read(first, 0));
}

/* Check that report number `n` is this one, and the last. */
static void expect_report(const ga_sized_heap *heap, uint64_t n, uint32_t fault,
                          const void *address)
{
    cr_assert_eq(heap->reported, n + 1, "%llu reports", (unsigned long long)heap->reported);
    cr_assert_eq(heap->faults, n + 1);
    cr_assert_eq(heap->reports[n].fault, fault, "fault %u", heap->reports[n].fault);
    cr_assert_eq(heap->reports[n].address, (uint64_t)(uintptr_t)address, "0x%llx for %p",
                 (unsigned long long)heap->reports[n].address, address);
    cr_assert_eq(heap->reports[n].ready, 1);
}

Test(sized_checked, a_unit_that_is_freed_twice)
{
    sized_world *world = checked_world(4);
    char *blocks[LANES];
    take(world->heap, 3, 0, blocks);
    give(world->heap, 0xffff, blocks);
    cr_assert_eq(world->heap->reported, 0);
    cr_assert_eq(sized_world_live(world, GA_SIZED_NONE), 16);
    for (uint32_t i = 0; i < 16; i++) {
        give_one(world->heap, 31 - i, blocks[i]);
        expect_report(world->heap, i, GA_SLAB_DOUBLE_FREE, blocks[i]);
    }
    cr_assert_eq(sized_world_live(world, GA_SIZED_NONE), 16);
    give(world->heap, 0xffff0000u, blocks);
    cr_assert_eq(sized_world_live(world, GA_SIZED_NONE), 0);
    cr_assert_eq(world->heap->reported, 16);
    sized_world_delete(world);
}

/* Of the lanes of one call that free one block, one succeeds. */
Test(sized_checked, lanes_that_free_the_same_at_once)
{
    sized_world *world = checked_world(4);
    char *blocks[LANES], *same[LANES];
    take(world->heap, 8, 0, blocks);
    for (uint32_t lane = 0; lane < LANES; lane++) {
        same[lane] = blocks[5];
    }
    give(world->heap, GA_ALL_BITS, same);
    cr_assert_eq(world->heap->reported, LANES - 1);
    for (uint32_t i = 0; i < LANES - 1; i++) {
        cr_assert_eq(world->heap->reports[i].fault, GA_SLAB_DOUBLE_FREE);
        cr_assert_eq(world->heap->reports[i].address, (uint64_t)(uintptr_t)blocks[5]);
    }
    cr_assert_eq(sized_world_live(world, GA_SIZED_NONE), LANES - 1);
    sized_world_delete(world);
}

Test(sized_checked, addresses_at_which_no_block_begins)
{
    static char foreign[64];
    sized_world *world = checked_world(6);
    ga_sized_heap *heap = world->heap;
    char *blocks[LANES];
    take(heap, 10, 0, blocks);
    char *run = take_run(heap, 2);
    char *wrong[] = {blocks[4] + 1,   blocks[4] + 16, foreign,       (char *)16,
                     run + 1,         run + REGION,   blocks[4] - 8, heap->units + 6 * REGION,
                     heap->units - 16};
    for (uint32_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        give_one(heap, i * 3, wrong[i]);
        expect_report(heap, i, GA_SLAB_NO_UNIT, wrong[i]);
    }
    cr_assert_eq(sized_world_live(world, GA_SIZED_NONE), LANES);
    give_one(heap, 0, run);
    give(heap, GA_ALL_BITS, blocks);
    cr_assert_eq(sized_world_live(world, GA_SIZED_NONE), 0);
    cr_assert_eq(heap->reported, sizeof wrong / sizeof *wrong);
    cr_assert_eq(take_run(heap, 2) != NULL, true);
    sized_world_delete(world);
}

Test(sized_checked, a_run_that_is_freed_twice)
{
    sized_world *world = checked_world(6);
    ga_sized_heap *heap = world->heap;
    char *run = take_run(heap, 3);
    char *blocks[LANES] = {[4] = run, [9] = run, [30] = run};
    give(heap, 1u << 4 | 1u << 9 | 1u << 30, blocks);
    cr_assert_eq(heap->reported, 2);
    expect_report(heap, 1, GA_SLAB_DOUBLE_FREE, run);
    give_one(heap, 2, run); /* its regions have no class now */
    expect_report(heap, 2, GA_SLAB_NO_UNIT, run);
    cr_assert_eq(take_run(heap, 6), heap->units, "all of it can be had");
    sized_world_delete(world);
}

/* Beyond the array's end they are counted. */
Test(sized_checked, more_than_there_is_room_for)
{
    sized_world *world = checked_world(2);
    for (uintptr_t i = 1; i <= 2 * GA_SLAB_REPORTS; i++) {
        give_one(world->heap, i % LANES, (char *)(i * 16));
    }
    cr_assert_eq(world->heap->reported, 2 * GA_SLAB_REPORTS);
    for (uint32_t i = 0; i < GA_SLAB_REPORTS; i++) {
        cr_assert_eq(world->heap->reports[i].address, (i + 1) * 16);
    }
    sized_world_delete(world);
}

/* ---- right and wrong mixed ------------------------------------------------------------------- */

enum {
    STEPS = 4000,
    BLOCKS_MAX = 40 * LANES
};

/* Random units; now and then one is freed again, or an address inside of one. */
Test(sized_checked, a_script_of_chance)
{
    sized_world *world = checked_world(16);
    ga_sized_heap *heap = world->heap;
    static char *live[BLOCKS_MAX + LANES];
    uint64_t random = 7, wrong = 0;
    uint32_t count = 0;
    for (int step = 0; step < STEPS; step++) {
        char *blocks[LANES] = {NULL};
        uint32_t lanes = (uint32_t)random_next(&random);
        if (count < BLOCKS_MAX && random_below(&random, 2)) {
            take(heap, (uint32_t)random_below(&random, 12), (uint32_t)random_below(&random, 50),
                 blocks);
            memcpy(live + count, blocks, sizeof blocks);
            count += LANES;
            continue;
        }
        for (uint32_t lane = 0; lane < LANES; lane++) {
            bool kept = !count || random_below(&random, 4) == 0;
            if (!(lanes >> lane & 1u) || kept) {
                lanes &= ~(1u << lane);
                continue;
            }
            uint32_t at = (uint32_t)random_below(&random, count);
            blocks[lane] = live[at];
            if (random_below(&random, 10) == 0) {
                blocks[lane] += 1 + random_below(&random, 15);
                wrong++;
            } else if (lane && lanes >> (lane - 1) & 1u && random_below(&random, 10) == 0) {
                blocks[lane] = blocks[lane - 1]; /* the last block, or the last invalid pointer,
                                                  * again */
                wrong++;
            } else {
                live[at] = live[--count];
            }
        }
        give(heap, lanes, blocks);
        cr_assert_eq(heap->reported, wrong, "%llu reports of %llu",
                     (unsigned long long)heap->reported, (unsigned long long)wrong);
        cr_assert_eq(sized_world_live(world, GA_SIZED_NONE), count);
    }
    cr_assert_gt(wrong, 100);
    sized_world_delete(world);
}

/* ---- threads at once ------------------------------------------------------------------------- */

enum {
    THREADS = 4,
    SHARED = 64 * LANES
};

static sized_world *shared;
static char *shared_blocks[SHARED];

static void *free_all(void *argument)
{
    for (uint32_t i = 0; i < SHARED; i += LANES) {
        give(shared->heap, GA_ALL_BITS, shared_blocks + i);
    }
    return argument;
}

/* All threads free the same blocks: each block is freed once, and all other frees are reported. */
Test(sized_checked, threads_that_free_the_same)
{
    pthread_t threads[THREADS];
    shared = checked_world(16);
    for (uint32_t i = 0; i < SHARED; i += LANES) {
        take(shared->heap, i / LANES % 9, i, shared_blocks + i);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        pthread_create(&threads[i], NULL, free_all, NULL);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    cr_assert_eq(shared->heap->reported, (THREADS - 1) * SHARED);
    cr_assert_eq(sized_world_live(shared, GA_SIZED_NONE), 0);
    for (uint32_t i = 0; i < GA_SLAB_REPORTS; i++) {
        cr_assert(shared->heap->reports[i].ready);
        cr_assert_eq(shared->heap->reports[i].fault, GA_SLAB_DOUBLE_FREE);
    }
    sized_world_delete(shared);
}

/* ---- as programs open them ------------------------------------------------------------------- */

static const char *const specs[] = {"slab:unit=classes,capacity=4M,check=full/cuda",
                                    "slab:capacity=4M,limit=20M,check=full/vmm"};

static void begin(void)
{
    vmm_driver_start(&(vmm_driver_options){.kernels = VMM_KERNELS_GROW});
}

static ga_sized_heap *heap_of(ga_heap *heap)
{
    ga_kernel_heap view;
    assert_ok(ga_heap_kernel_view(heap, &view));
    cr_assert_eq(view.kind, GA_KERNEL_KIND_SIZED);
    cr_assert(GA_SIZED_WORDS_CHECK(view.words));
    cr_assert_leq(GA_SIZED_WORDS_REGION_BITS(view.words), 21);
    return (ga_sized_heap *)view.words[GA_SIZED_WORD_HEAP];
}

static void expect_line(const char *text, const void *address, const char *words)
{
    char line[128];
    snprintf(line, sizeof line, "slab: device 0: 0x%llx: %s",
             (unsigned long long)(uintptr_t)address, words);
    cr_assert(strstr(text, line), "expected \"%s\", got \"%s\"", line, text);
}

/* Invalid frees in kernels are reported with the next view, with statistics, and when the heap
 * closes; once. */
Test(sized_checked, the_log_has_the_addresses)
{
    for (size_t i = 0; i < 2; i++) {
        begin();
        ga_heap *heap = NULL;
        ga_kernel_heap view;
        ga_stats stats;
        char *blocks[LANES];
        assert_ok(ga_heap_open(&heap, GA_PLACE_KERNEL, 0, specs[i]));
        ga_sized_heap *inside = heap_of(heap);
        take(inside, 2, 0, blocks);
        give_one(inside, 0, blocks[0]);
        give_one(inside, 5, blocks[0]);
        scene_capture_begin();
        assert_ok(ga_heap_kernel_view(heap, &view));
        assert_ok(ga_heap_kernel_view(heap, &view));
        const char *text = scene_capture_end();
        expect_line(text, blocks[0], "freed twice in a kernel");
        cr_assert_null(strstr(strstr(text, "freed twice") + 1, "freed twice"), "%s", text);
        give_one(inside, 7, blocks[1] + 16);
        scene_capture_begin();
        assert_ok(ga_heap_stats(heap, &stats));
        expect_line(scene_capture_end(), blocks[1] + 16,
                    "freed in a kernel, but no block of this heap begins there");
        cr_assert_eq(stats.live_blocks, LANES - 1);
        give(inside, ~1u, blocks);
        give_one(inside, 7, blocks[9]);
        scene_capture_begin();
        assert_ok(ga_heap_close(heap));
        text = scene_capture_end();
        expect_line(text, blocks[9], "freed twice in a kernel");
        cr_assert_null(strstr(text, "begins there"), "%s", text);
        vmm_driver_stop();
    }
}

/* The host's blocks and its frees, checked as ever. */
Test(sized_checked, the_host_beside_kernels)
{
    begin();
    ga_heap *heap = NULL;
    void *block, *large;
    assert_ok(ga_heap_open(&heap, GA_PLACE_KERNEL, 0, specs[1]));
    assert_ok(ga_alloc(heap, 100, 0, &block));
    assert_ok(ga_alloc(heap, 3 << 20, 0, &large));
    assert_ok(ga_free(heap, block));
    cr_assert_eq(ga_free(heap, block), GA_ERR_POINTER);
    cr_assert_eq(ga_free(heap, (char *)large + 16), GA_ERR_POINTER);
    assert_ok(ga_free(heap, large));
    cr_assert_eq(heap_of(heap)->reported, 0);
    assert_ok(ga_heap_close(heap));
    vmm_driver_stop();
}
