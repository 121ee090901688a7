/* SPDX-License-Identifier: MIT
 *
 * Memory blocks without a live unit return their pages to the system, by a trim and without one,
 * and are used again.
 */
#include "backends/slab/host/trim.h"

#include "backends/slab/slab.h"
#include "platform/os_memory.h"
#include "runtime/heap.h"
#include "support/expect.h"
#include "support/scene.h"
#include "support/slab_fault_count.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    UNIT = 64,
    ASKED = 40, /* so that a block of the parent's has another usable size */
    BLOCK = 1024 * UNIT,
    BLOCKS = 64,
    UNITS = BLOCKS * 1024,
    PAGE = 4096,
    HUGE = 2 << 20,
    SUPER = 4 << 20, /* a superblock of HUGE_UNITs */
    HUGE_UNIT = 1024
};

static uint64_t *units[UNITS];

static ga_heap *open_host(const char *spec)
{
    ga_heap *heap;
    assert_ok(ga_heap_open(&heap, GA_PLACE_HOST, 0, spec));
    return heap;
}

static ga_backend_stats own_stats(ga_heap *heap)
{
    ga_backend_stats stats;
    ga_slab_backend.stats(heap->state, &stats);
    return stats;
}

static void fill(ga_heap *heap, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++) {
        assert_ok(ga_alloc(heap, ASKED, 0, (void **)&units[i]));
        for (size_t word = 0; word < UNIT / 8; word++) {
            units[i][word] = i;
        }
    }
}

static void expect_contents(size_t i)
{
    for (size_t word = 0; word < UNIT / 8; word++) {
        cr_assert_eq(units[i][word], i, "unit %zu, word %zu: %" PRIu64, i, word, units[i][word]);
    }
}

static void drop(ga_heap *heap, size_t i)
{
    expect_contents(i);
    assert_ok(ga_free(heap, units[i]));
    units[i] = NULL;
}

static bool is_resident(const void *pointer)
{
    unsigned char there = 1;
    void *page = (void *)((uintptr_t)pointer / PAGE * PAGE);
    cr_assert_eq(mincore(page, PAGE, &there), 0, "%s", strerror(errno));
    return there & 1;
}

/* ---- asked ----------------------------------------------------------------------------------- */

Test(slab_trim, what_is_empty_goes)
{
    ga_heap *heap = open_host("slab:unit=64,keep=all/system");
    fill(heap, 0, UNITS);
    uint64_t held = own_stats(heap).held_bytes;
    void *first = units[0];
    void *last = units[UNITS - 1];
    for (size_t i = 0; i < UNITS; i++) {
        drop(heap, i);
    }
    cr_assert_eq(own_stats(heap).held_bytes, held, "nobody asked");
    cr_assert(is_resident(first));
    assert_ok(ga_trim(heap, 0));
    cr_assert_lt(own_stats(heap).held_bytes, BLOCK, "%" PRIu64, own_stats(heap).held_bytes);
    cr_assert(!is_resident(first));
    cr_assert(!is_resident(last));
    cr_assert_eq(own_stats(heap).live_bytes, 0);
    fill(heap, 0, UNITS);
    cr_assert_eq(own_stats(heap).held_bytes, held);
    cr_assert_eq(own_stats(heap).live_bytes, (uint64_t)UNITS * UNIT);
    for (size_t i = 0; i < UNITS; i++) {
        drop(heap, i);
    }
    assert_ok(ga_heap_close(heap));
}

Test(slab_trim, what_is_live_stays)
{
    ga_heap *heap = open_host("slab:unit=64,keep=all/system");
    fill(heap, 0, UNITS);
    uint64_t held = own_stats(heap).held_bytes;
    for (size_t i = 0; i < UNITS; i++) {
        if (i % 5000) {
            drop(heap, i);
        }
    }
    assert_ok(ga_trim(heap, 0));
    size_t live = UNITS / 5000 + 1;
    uint64_t now = own_stats(heap).held_bytes;
    cr_assert_leq(now, live * BLOCK, "%" PRIu64 " of %" PRIu64, now, held);
    cr_assert_eq(own_stats(heap).live_bytes, live * UNIT);
    for (size_t i = 0; i < UNITS; i += 5000) {
        expect_contents(i);
    }
    for (size_t i = 0; i < UNITS; i++) {
        if (i % 5000) {
            fill(heap, i, i + 1);
        }
    }
    for (size_t i = 0; i < UNITS; i++) {
        drop(heap, i);
    }
    assert_ok(ga_heap_close(heap));
}

Test(slab_trim, as_much_is_kept_as_was_asked_for)
{
    ga_heap *heap = open_host("slab:unit=64,keep=all/system");
    fill(heap, 0, UNITS);
    for (size_t i = 0; i < UNITS; i++) {
        drop(heap, i);
    }
    assert_ok(ga_trim(heap, 10 * BLOCK));
    uint64_t held = own_stats(heap).held_bytes;
    cr_assert(held >= 10 * BLOCK && held < 12 * BLOCK, "%" PRIu64, held);
    assert_ok(ga_heap_close(heap));
}

/* All units within the capacity are claimed again, and no more. */
Test(slab_trim, all_of_a_limit_can_be_claimed_again)
{
    static const char *const specs[] = {
        "slab:unit=64,blocks=4,limit=1M/system",
        "slab:unit=64,addressing=light,blocks=4,capacity=1M/system"};
    enum {
        FEW = (1 << 20) / UNIT
    };
    for (size_t s = 0; s < 2; s++) {
        ga_heap *heap = open_host(specs[s]);
        for (int round = 0; round < 3; round++) {
            fill(heap, 0, FEW);
            void *more;
            assert_ok(ga_alloc(heap, ASKED, 0, &more));
            cr_assert_neq(ga_usable_size(heap, more), UNIT, "%s: past its limit", specs[s]);
            assert_ok(ga_free(heap, more));
            for (size_t i = 0; i < FEW; i++) {
                cr_assert_eq(ga_usable_size(heap, units[i]), UNIT, "%s: %zu", specs[s], i);
                drop(heap, i);
            }
            assert_ok(ga_trim(heap, 0));
            cr_assert_lt(own_stats(heap).held_bytes, 2 * BLOCK);
        }
        assert_ok(ga_heap_close(heap));
    }
}

static void count_one(void *context, void *block, size_t size)
{
    (void)block;
    (void)size;
    ++*(size_t *)context;
}

Test(slab_trim, what_went_is_not_live_and_reset_brings_it_back)
{
    ga_heap *heap = open_host("slab:unit=64,keep=all/system");
    size_t live = 0;
    fill(heap, 0, UNITS);
    uint64_t held = own_stats(heap).held_bytes;
    for (size_t i = 100; i < UNITS; i++) {
        drop(heap, i);
    }
    assert_ok(ga_trim(heap, 0));
    assert_ok(ga_heap_each_live(heap, count_one, &live));
    cr_assert_eq(live, 100, "%zu", live);
    assert_ok(ga_heap_reset(heap));
    cr_assert_eq(own_stats(heap).live_bytes, 0);
    cr_assert_eq(own_stats(heap).held_bytes, held);
    fill(heap, 0, UNITS);
    cr_assert_eq(own_stats(heap).held_bytes, held, "as much as before");
    assert_ok(ga_heap_reset(heap));
    assert_ok(ga_heap_close(heap));
}

Test(slab_trim, checks_know_what_went)
{
    ga_heap *heap = open_host("slab:unit=64,check=full/system");
    fill(heap, 0, UNITS);
    void *old = units[UNITS / 2];
    for (size_t i = 0; i < UNITS; i++) {
        drop(heap, i);
    }
    assert_ok(ga_trim(heap, 0));
    cr_assert_eq(own_stats(heap).held_bytes, 0);
    cr_assert_eq(ga_free(heap, old), GA_ERR_POINTER);
    cr_assert_eq(slab_fault_count(heap, GA_SLAB_DOUBLE_FREE), 1);
    fill(heap, 0, UNITS);
    for (size_t i = 0; i < UNITS; i++) {
        drop(heap, i);
    }
    cr_assert_eq(slab_fault_count(heap, GA_SLAB_WRITTEN_FREE), 0);
    assert_ok(ga_heap_close(heap));
}

/* ---- unasked --------------------------------------------------------------------------------- */

Test(slab_trim, a_heap_that_was_emptied_holds_little)
{
    ga_heap *heap = open_host("slab:unit=64,keep=1M/system");
    for (int round = 0; round < 2; round++) {
        fill(heap, 0, UNITS);
        cr_assert_geq(own_stats(heap).held_bytes, (uint64_t)UNITS * UNIT);
        for (size_t i = 0; i < UNITS; i++) {
            drop(heap, i);
        }
        uint64_t held = own_stats(heap).held_bytes;
        cr_assert_leq(held, 3 << 19, "round %d: %" PRIu64, round, held);
    }
    assert_ok(ga_heap_close(heap));
}

static void *fill_and_drop_all(void *heap)
{
    fill(heap, 0, UNITS);
    for (size_t i = UNITS; i--;) {
        drop(heap, i);
    }
    return NULL;
}

Test(slab_trim, a_thread_that_ends_leaves_little)
{
    ga_heap *heap = open_host("slab:unit=64,keep=0/system");
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, fill_and_drop_all, heap), 0);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    cr_assert_eq(own_stats(heap).held_bytes, 0, "%" PRIu64, own_stats(heap).held_bytes);
    assert_ok(ga_heap_close(heap));
}

Test(slab_trim, a_capacity_stays_until_it_is_trimmed)
{
    ga_heap *heap = open_host("slab:unit=64,capacity=4M/system");
    fill(heap, 0, UNITS);
    uint64_t held = own_stats(heap).held_bytes;
    for (size_t i = 0; i < UNITS; i++) {
        drop(heap, i);
    }
    cr_assert_eq(own_stats(heap).held_bytes, held);
    assert_ok(ga_trim(heap, 0));
    cr_assert_lt(own_stats(heap).held_bytes, BLOCK);
    assert_ok(ga_heap_close(heap));
}

/* ---- a system that does not take pages back -------------------------------------------------- */

static uint64_t refused;

static int refuse_pages(void *start, size_t size, int advice)
{
    (void)start;
    (void)size;
    (void)advice;
    refused++;
    errno = EINVAL;
    return -1;
}

Test(slab_trim, pages_that_cannot_go)
{
    ga_os_memory table = *ga_os_memory_get();
    table.madvise = refuse_pages;
    ga_heap *heap = open_host("slab:unit=64,keep=1M/system");
    fill(heap, 0, UNITS);
    uint64_t held = own_stats(heap).held_bytes;
    ga_os_memory_set(&table);
    for (size_t i = 0; i < UNITS; i++) {
        errno = 77;
        drop(heap, i);
        cr_assert_eq(errno, 77, "free keeps errno");
    }
    assert_ok(ga_trim(heap, 0));
    ga_os_memory_set(NULL);
    cr_assert_eq(refused, 1, "asked %" PRIu64 " times", refused);
    cr_assert_eq(own_stats(heap).held_bytes, held);
    fill(heap, 0, UNITS);
    cr_assert_eq(own_stats(heap).held_bytes, held);
    for (size_t i = 0; i < UNITS; i++) {
        drop(heap, i);
    }
    assert_ok(ga_heap_close(heap));
}

/* ---- a system that has huge pages ------------------------------------------------------------ */

static uint64_t advised;

static int note_advice(void *start, size_t size, int advice)
{
    (void)size;
    if (advice == MADV_HUGEPAGE) {
        cr_assert_eq((uintptr_t)start % HUGE, 0, "units begin with a huge page");
        advised++;
    }
    errno = EINVAL; /* and it may have none for us */
    return -1;
}

/* Claims units that fill `supers` superblocks. Returns how often huge pages were requested. */
static uint64_t advised_for(const char *spec, size_t supers)
{
    static void *blocks[3 * SUPER / HUGE_UNIT];
    ga_os_memory table = *ga_os_memory_get();
    size_t n = supers * SUPER / HUGE_UNIT;
    table.madvise = note_advice;
    advised = 0;
    ga_heap *heap = open_host(spec);
    ga_os_memory_set(&table);
    for (size_t i = 0; i < n; i++) {
        errno = 77;
        assert_ok(ga_alloc(heap, HUGE_UNIT, 0, &blocks[i]));
        cr_assert_eq(errno, 77, "what serves malloc keeps errno");
    }
    ga_os_memory_set(NULL);
    for (size_t i = 0; i < n; i++) {
        assert_ok(ga_free(heap, blocks[i]));
    }
    assert_ok(ga_heap_close(heap));
    return advised;
}

/* The first superblock of a size is most often the only one. */
Test(slab_trim, huge_pages_for_slabs_that_grow)
{
    cr_assert_eq(advised_for("slab/system", 1), 0);
    cr_assert_eq(advised_for("slab/system", 3), 2);
    cr_assert_eq(advised_for("slab/vmm", 3), 2);
}
