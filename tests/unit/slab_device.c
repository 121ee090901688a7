/* SPDX-License-Identifier: MIT
 *
 * The `slab` backend on a device: empty superblocks are freed to the parent, by a trim and, with
 * keep=, without one. Over a driver made of host memory.
 */
#include "backends/slab/slab.h"
#include "runtime/heap.h"
#include "support/vmm_scene.h"

#include <pthread.h>
#include <string.h>

enum {
    MANY = 12000,
    UNIT = 1024,
    SUPER = 1024 * UNIT, /* with blocks=1 */
    STEP = 64 << 10,
    SUPERS = MANY / 1024 + 1
};

static unsigned char *blocks[MANY];

static const char *const specs[] = {"slab:unit=1K,blocks=1/cuda",
                                    "slab:unit=1K,blocks=1,check=full/cuda",
                                    "slab:unit=1K,addressing=light,capacity=12M/cuda",
                                    "slab:unit=1K,blocks=1/vmm",
                                    "slab/cuda",
                                    "slab/vmm:cache=0",
                                    "fail:nth=0/slab:unit=2K/fail:nth=0/cuda"};

enum {
    SPECS = sizeof specs / sizeof *specs
};

static void fill(ga_heap *heap, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++) {
        blocks[i] = vmm_take(heap, UNIT);
        memset(blocks[i], (int)i, UNIT);
    }
}

static void drop(ga_heap *heap, size_t i)
{
    cr_assert(blocks[i][0] == (unsigned char)i && blocks[i][UNIT - 1] == (unsigned char)i,
              "block %zu", i);
    assert_ok(ga_free(heap, blocks[i]));
    blocks[i] = NULL;
}

static void drop_all(ga_heap *heap)
{
    for (size_t i = 0; i < MANY; i++) {
        if (blocks[i]) {
            drop(heap, i);
        }
    }
}

/* Memory that the driver has allocated. */
static uint64_t given(void)
{
    vmm_driver_counts counts = vmm_driver_count();
    return counts.chunk_bytes + counts.block_bytes;
}

/* The statistics match the driver's: those of the heap, and of the layers below. */
static void expect_held(ga_heap *heap, const char *spec, uint64_t least, uint64_t max)
{
    uint64_t held = vmm_held(heap);
    cr_assert(held >= least && held <= max, "%s: %" PRIu64 " bytes held", spec, held);
    cr_assert(given() >= held && given() <= max + 2 * MIB,
              "%s: %" PRIu64 " given, %" PRIu64 " held", spec, given(), held);
}

/* Check for `count` superblocks, each of which the parent may have allocated without its
 * alignment. */
static void expect_supers(ga_heap *heap, uint64_t count)
{
    expect_held(heap, "", count * SUPER, count * (SUPER + STEP));
}

static void end(ga_heap *heap)
{
    assert_ok(ga_heap_close(heap));
    vmm_assert_nothing_left();
    vmm_driver_stop();
}

/* ---- asked ----------------------------------------------------------------------------------- */

Test(slab_device, what_is_empty_goes)
{
    for (size_t s = 0; s < SPECS; s++) {
        ga_heap *heap = vmm_open(NULL, specs[s]);
        for (int round = 0; round < 3; round++) {
            fill(heap, 0, MANY);
            cr_assert_geq(given(), (uint64_t)MANY * UNIT, "%s", specs[s]);
            drop_all(heap);
            cr_assert_geq(given(), (uint64_t)MANY * UNIT, "%s: nobody asked", specs[s]);
            assert_ok(ga_trim(heap, 0));
            expect_held(heap, specs[s], 0, 0);
            cr_assert_eq(given(), 0, "%s: %" PRIu64, specs[s], given());
        }
        end(heap);
    }
}

Test(slab_device, what_is_live_stays)
{
    ga_heap *heap = vmm_open(NULL, "slab:unit=1K,blocks=1/cuda");
    fill(heap, 0, MANY);
    for (size_t i = 0; i < MANY; i++) {
        if (i % 5000) {
            drop(heap, i);
        }
    }
    assert_ok(ga_trim(heap, 0));
    expect_supers(heap, 3);
    ga_backend_stats own;
    ga_slab_backend.stats(heap->state, &own);
    cr_assert_eq(own.live_bytes, 3 * UNIT);
    for (size_t i = 0; i < MANY; i++) {
        if (!blocks[i]) {
            fill(heap, i, i + 1);
        }
    }
    expect_supers(heap, SUPERS);
    drop_all(heap);
    end(heap);
}

Test(slab_device, as_much_is_kept_as_was_asked_for)
{
    ga_heap *heap = vmm_open(NULL, "slab:unit=1K,blocks=1/vmm");
    fill(heap, 0, MANY);
    void *large = vmm_take(heap, 8 * MIB);
    drop_all(heap);
    assert_ok(ga_free(heap, large));
    assert_ok(ga_trim(heap, 3 * MIB + 1));
    expect_supers(heap, 4);
    cr_assert_leq(given(), 4 * MIB, "the parent keeps as much again: %" PRIu64, given());
    assert_ok(ga_trim(heap, SIZE_MAX));
    expect_supers(heap, 4);
    end(heap);
}

static void count_one(void *context, void *block, size_t size)
{
    cr_assert(*(unsigned char *)block == 99 && size == UNIT);
    ++*(size_t *)context;
}

Test(slab_device, lists_and_resets_know_what_went)
{
    ga_heap *heap = vmm_open(NULL, "slab:unit=1K,blocks=1/cuda");
    size_t live = 0;
    fill(heap, 0, MANY);
    for (size_t i = 0; i < MANY; i++) {
        if (i != 99) {
            drop(heap, i);
        }
    }
    assert_ok(ga_trim(heap, 0));
    assert_ok(ga_heap_each_live(heap, count_one, &live));
    cr_assert_eq(live, 1);
    assert_ok(ga_heap_reset(heap));
    expect_supers(heap, 1);
    fill(heap, 0, MANY);
    expect_supers(heap, SUPERS);
    assert_ok(ga_heap_reset(heap));
    end(heap);
}

/* ---- addresses that another block uses in between ----------------------------------------- */

static void *free_from(void *heap)
{
    drop_all(heap);
    return NULL;
}

/* A thread's cached facts of a freed superblock must not be used for the next one. */
Test(slab_device, addresses_that_went_are_another_blocks)
{
    ga_heap *heap = vmm_open(NULL, "slab:unit=1K,blocks=1/cuda");
    for (int round = 0; round < 3; round++) {
        pthread_t other;
        fill(heap, 0, MANY);
        void *old = blocks[MANY - 1];
        cr_assert_eq(pthread_create(&other, NULL, free_from, heap), 0);
        cr_assert_eq(pthread_join(other, NULL), 0);
        assert_ok(ga_trim(heap, 0));
        cr_assert_eq(given(), 0);
        cr_assert(!ga_owns(heap, old));
        cr_assert_eq(ga_free(heap, old), GA_ERR_POINTER);
        void *large = vmm_take(heap, MANY * UNIT);
        assert_ok(ga_free(heap, large));
        cr_assert_eq(given(), 0, "a large block was taken for a unit");
    }
    end(heap);
}

Test(slab_device, units_freed_twice)
{
    ga_heap *heap = vmm_open(NULL, "slab:unit=1K,blocks=1/cuda");
    pthread_t other;
    fill(heap, 0, 2000);
    unsigned char *twice = blocks[1999];
    cr_assert_eq(pthread_create(&other, NULL, free_from, heap), 0);
    cr_assert_eq(pthread_join(other, NULL), 0);
    cr_assert_eq(ga_free(heap, twice), GA_ERR_POINTER);
    assert_ok(ga_trim(heap, 0));
    cr_assert_eq(given(), 0, "the count of what is free is wrong");
    end(heap);
}

/* ---- a device that has no more --------------------------------------------------------------- */

Test(slab_device, what_is_empty_serves_other_requests)
{
    static const vmm_driver_options small = {.memory = 16 * MIB};
    static const char *const parents[] = {"slab/cuda", "slab/vmm"};
    for (size_t s = 0; s < 2; s++) {
        ga_heap *heap = vmm_open(&small, parents[s]);
        void *moved;
        fill(heap, 0, MANY);
        drop_all(heap);
        void *large = vmm_take(heap, 6 * MIB); /* served by the parent */
        assert_ok(ga_free(heap, large));
        fill(heap, 0, MANY);
        drop_all(heap);
        moved = vmm_take(heap, MIB);
        assert_ok(ga_realloc(heap, moved, 8 * MIB, 0, &moved));
        assert_ok(ga_free(heap, moved));
        fill(heap, 0, MANY);
        drop_all(heap);
        static void *others[3000];
        vmm_take_many(heap, others, 3000, 4 * UNIT); /* another class */
        vmm_free_many(heap, others, 3000);
        assert_ok(ga_alloc_zeroed(heap, 12 * MIB, 0, &moved));
        assert_ok(ga_free(heap, moved));
        end(heap);
    }
}

/* ---- unasked --------------------------------------------------------------------------------- */

Test(slab_device, with_keep_it_goes_unasked)
{
    ga_heap *heap = vmm_open(NULL, "slab:unit=1K,blocks=1,keep=2M/cuda");
    for (int round = 0; round < 2; round++) {
        fill(heap, 0, MANY);
        drop_all(heap);
        expect_held(heap, "", MIB, 3 * MIB);
    }
    uint64_t frees = vmm_driver_calls("cuMemFree");
    uint64_t allocs = vmm_driver_calls("cuMemAlloc");
    for (int round = 0; round < 10000; round++) { /* the fast path does not call the driver */
        void *block = vmm_take(heap, UNIT);
        assert_ok(ga_free(heap, block));
    }
    cr_assert_eq(frees, vmm_driver_calls("cuMemFree"));
    cr_assert_eq(allocs, vmm_driver_calls("cuMemAlloc"));
    end(heap);
}

/* Many sizes pass through a heap: together they keep little, too, though each may keep some. */
Test(slab_device, all_sizes_together_keep_little)
{
    ga_heap *heap = vmm_open(NULL, "slab:keep=8M/cuda");
    static void *some[3000];
    for (size_t size = 256; size <= 4096; size += 256) {
        vmm_take_many(heap, some, 3000, size);
        vmm_free_many(heap, some, 3000);
    }
    expect_held(heap, "", 0, 16 * MIB);
    end(heap);
}

Test(slab_device, by_default_nothing_goes_unasked)
{
    ga_heap *heap = vmm_open(NULL, "slab:unit=1K,blocks=1/cuda");
    fill(heap, 0, MANY);
    drop_all(heap);
    cr_assert_eq(vmm_driver_calls("cuMemFree"), 0);
    expect_supers(heap, SUPERS);
    end(heap);
}

/* ---- a driver that refuses ------------------------------------------------------------------- */

/* Returns true if the driver's n-th call in a trim, and the next `more`, were made, and were
 * refused. */
static bool trim_fails_at(const char *spec, uint64_t n, uint64_t more)
{
    ga_heap *heap = vmm_open(NULL, spec);
    fill(heap, 0, MANY);
    for (size_t i = 0; i < MANY; i++) {
        if (i % 5000) {
            drop(heap, i);
        }
    }
    vmm_driver_fail_many(NULL, n, more, CUDA_ERROR_UNKNOWN);
    ga_trim(heap, 0);
    bool failed = vmm_driver_has_failed();
    vmm_driver_fail(NULL, 0, CUDA_SUCCESS);
    cr_assert_geq(given(), vmm_held(heap), "%s, %" PRIu64 ": more held than given", spec, n);
    for (size_t i = 0; i < MANY; i++) {
        if (!blocks[i]) {
            fill(heap, i, i + 1); /* a superblock that was refused is usable */
        }
    }
    drop_all(heap);
    assert_ok(ga_trim(heap, 0)); /* and can be freed later */
    expect_held(heap, spec, 0, 0);
    cr_assert_eq(given(), 0, "%s: call %" PRIu64 ": %" PRIu64 " bytes lost", spec, n, given());
    end(heap);
    return failed;
}

Test(slab_device, each_call_of_the_driver_refused_in_turn, .timeout = 60)
{
    static const char *const some[] = {"slab:unit=1K,blocks=2/cuda", "slab:unit=1K,blocks=2/vmm",
                                       "slab:unit=1K,blocks=2/vmm:cache=0"};
    for (size_t s = 0; s < 3; s++) {
        uint64_t n = 1;
        while (trim_fails_at(some[s], n, 0) && trim_fails_at(some[s], n, 3)) {
            n++;
        }
        cr_assert_gt(n, 5, "%s: %" PRIu64 " calls", some[s], n);
        trim_fails_at(some[s], 1, 1000);
    }
}

/* A freed superblock cannot be allocated again: the request fails, and the next one succeeds. */
Test(slab_device, what_went_cannot_be_had_again)
{
    ga_heap *heap = vmm_open(NULL, "slab:unit=1K,blocks=1/cuda");
    void *none;
    fill(heap, 0, MANY);
    drop_all(heap);
    assert_ok(ga_trim(heap, 0));
    vmm_driver_fail_many("cuMemAlloc", 1, 1, CUDA_ERROR_OUT_OF_MEMORY); /* and a block alone */
    cr_assert_eq(ga_alloc(heap, UNIT, 0, &none), GA_ERR_MEMORY);
    expect_held(heap, "", 0, 0);
    vmm_driver_fail(NULL, 0, CUDA_SUCCESS);
    fill(heap, 0, MANY);
    drop_all(heap);
    end(heap);
}
