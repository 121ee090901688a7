/* SPDX-License-Identifier: MIT
 *
 * The `slab` backend on the host: units, pointers, checks, counts, threads, and the table of
 * malloc's shape.
 */
#include "support/sanitized.h"
#include "support/scene.h"
#include "support/slab_scene.h"

#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- one unit size --------------------------------------------------------------------------- */

Test(slab_backend, one_unit_size)
{
    ga_heap *heap = open_host("slab:unit=1K,blocks=1,limit=1M/system");
    static void *blocks[1024];
    for (int i = 0; i < 1024; i++) {
        blocks[i] = take(heap, (size_t)i + 1);
        cr_assert_eq(ga_usable_size(heap, blocks[i]), 1024, "block %d", i);
        cr_assert_eq((uintptr_t)blocks[i] % 1024, 0, "block %d at %p", i, blocks[i]);
    }
    ga_stats stats = stats_of(heap);
    cr_assert_eq(stats.held_bytes, 1 << 20, "%" PRIu64, stats.held_bytes);
    cr_assert_eq(stats.growths, 1, "%" PRIu64, stats.growths);
    void *more = take(heap, 1024); /* beyond the limit: served by the parent */
    cr_assert_gt(stats_of(heap).held_bytes, 1 << 20);
    cr_assert(ga_owns(heap, more));
    assert_ok(ga_free(heap, more));
    for (int i = 0; i < 1024; i++) {
        assert_ok(ga_free(heap, blocks[i]));
    }
    cr_assert_eq(stats_of(heap).held_bytes, 1 << 20);
    assert_ok(ga_heap_close(heap));
}

Test(slab_backend, capacity_is_taken_at_once)
{
    ga_heap *heap = open_host("slab:unit=128,blocks=1,capacity=1M");
    ga_stats stats = stats_of(heap);
    cr_assert_eq(stats.held_bytes, 1 << 20, "%" PRIu64, stats.held_bytes);
    cr_assert_eq(stats.growths, 8, "%" PRIu64, stats.growths);
    assert_ok(ga_heap_close(heap));
    heap = open_host("slab:preset=paper");
    stats = stats_of(heap);
    cr_assert_eq(stats.held_bytes, 1 << 30, "%" PRIu64, stats.held_bytes);
    cr_assert_eq(stats.growths, 1, "%" PRIu64, stats.growths);
    void *block = take(heap, 128);
    memset(block, 1, 128);
    assert_ok(ga_free(heap, block));
    assert_ok(ga_heap_close(heap));
}

/* ---- pointers -------------------------------------------------------------------------------- */

static void expect_pointer_error(ga_heap *heap, void *pointer, const char *what)
{
    char sentence[160];
    snprintf(sentence, sizeof sentence, "slab: %p: expected %s", pointer, what);
    assert_fails(ga_free(heap, pointer), GA_ERR_POINTER, sentence);
}

static void check_bad_frees(const char *spec)
{
    ga_heap *heap = open_host(spec);
    ga_heap *other = open_host(spec);
    char *block = take(heap, 100);
    char *large = take(heap, 100000);
    static char foreign[64];
    void *same = block + 16;
    cr_assert_eq(ga_free(heap, block + 16), GA_ERR_POINTER, "%s: inside", spec);
    cr_assert_eq(ga_free(heap, block + 1), GA_ERR_POINTER, "%s: odd", spec);
    cr_assert_eq(ga_free(heap, large + 4096), GA_ERR_POINTER, "%s: inside a large one", spec);
    cr_assert_eq(ga_free(heap, foreign), GA_ERR_POINTER, "%s: foreign", spec);
    cr_assert_eq(ga_free(other, block), GA_ERR_POINTER, "%s: another heap's", spec);
    cr_assert_eq(ga_free(other, large), GA_ERR_POINTER, "%s: another heap's large one", spec);
    cr_assert_eq(ga_realloc(heap, same, 200, 0, &same), GA_ERR_POINTER, "%s: inside", spec);
    cr_assert(ga_owns(heap, block) && !ga_owns(other, block), "%s", spec);
    cr_assert(ga_owns(heap, large) && !ga_owns(other, large), "%s", spec);
    assert_ok(ga_free(heap, block));
    cr_assert_eq(ga_free(heap, block), GA_ERR_POINTER, "%s: twice", spec);
    assert_ok(ga_free(heap, large));
    cr_assert_eq(ga_free(heap, large), GA_ERR_POINTER, "%s: a large one twice", spec);
    cr_assert_eq(stats_of(heap).live_blocks, 0);
    assert_ok(ga_heap_close(other));
    assert_ok(ga_heap_close(heap));
}

Test(slab_backend, bad_frees)
{
    check_bad_frees("slab/system");
    check_bad_frees("slab:check=full/system");
    check_bad_frees("slab:unit=128,addressing=light,capacity=1M/system");
}

Test(slab_backend, bad_frees_have_sentences)
{
    ga_heap *heap = open_host("slab");
    char *block = take(heap, 100);
    expect_pointer_error(heap, block + 16, "the first byte of a block of 112 bytes");
    assert_ok(ga_free(heap, block));
    expect_pointer_error(heap, block, "a block to free, but it is free already");
    assert_ok(ga_heap_close(heap));
}

/* ---- hardened checks ------------------------------------------------------------------------- */

/* `said` names the address and has the text. */
static void expect_said(const char *said, const void *address, const char *text)
{
    char where[32];
    snprintf(where, sizeof where, "%p", address);
    cr_assert(strstr(said, where) && strstr(said, text), "expected %s and \"%s\" in:\n%s", where,
              text, said);
}

Test(slab_backend, checks_find_double_frees)
{
    ga_heap *heap = open_host("slab:check=full");
    char *block = take(heap, 100);
    char *kept = take(heap, 100);
    assert_ok(ga_free(heap, block));
    scene_capture_begin();
    ga_status status = ga_free(heap, block);
    const char *said = scene_capture_end();
    cr_assert_eq(status, GA_ERR_POINTER);
    expect_said(said, block, "it is free already");
    cr_assert_eq(faults(heap, GA_SLAB_DOUBLE_FREE), 1);
    scene_capture_begin();
    status = ga_free(heap, kept + 8);
    said = scene_capture_end();
    cr_assert_eq(status, GA_ERR_POINTER);
    expect_said(said, kept + 8, "no block of the heap begins there");
    cr_assert_eq(faults(heap, GA_SLAB_NO_UNIT), 1);
    assert_ok(ga_free(heap, kept));
    assert_ok(ga_heap_close(heap));
}

Test(slab_backend, checks_find_writes_after_free)
{
    ga_heap *heap = open_host("slab:check=full");
    char *block = take(heap, 100);
    memset(block, 1, 112);
    assert_ok(ga_free(heap, block));
    block[77] = 2;
    scene_capture_begin();
    char *again = take(heap, 100);
    const char *said = scene_capture_end();
    cr_assert_eq(again, block);
    expect_said(said, block + 77, "was written to after it was freed");
    cr_assert_eq(faults(heap, GA_SLAB_WRITTEN_FREE), 1);
    assert_ok(ga_free(heap, again));
    scene_capture_begin();
    again = take(heap, 100); /* nothing was written to the units this time */
    cr_assert_str_eq(scene_capture_end(), "");
    assert_ok(ga_free(heap, again));
    assert_ok(ga_heap_close(heap));
}

/* ---- resizing -------------------------------------------------------------------------------- */

Test(slab_backend, blocks_stay_where_they_fit)
{
    ga_heap *heap = open_host("slab");
    void *block = take(heap, 100);
    void *moved = block;
    assert_ok(ga_realloc(heap, block, 112, 0, &moved));
    cr_assert_eq(moved, block, "112 bytes fit into the unit of 112");
    assert_ok(ga_realloc(heap, block, 60, 0, &moved));
    cr_assert_eq(moved, block, "60 bytes are more than half");
    assert_ok(ga_realloc(heap, block, 16, 0, &moved));
    cr_assert_eq(ga_usable_size(heap, moved), 16);
    assert_ok(ga_grow(heap, moved, 16));
    cr_assert_eq(ga_grow(heap, moved, 17), GA_ERR_CANNOT_GROW);
    assert_ok(ga_free(heap, moved));
    assert_ok(ga_heap_close(heap));
}

/* ---- counts and lists ------------------------------------------------------------------------ */

typedef struct listed {
    void **blocks;
    size_t seen[HELD];
    size_t strangers;
} listed;

static void find_block(void *context, void *block, size_t size)
{
    listed *l = context;
    for (size_t i = 0; i < HELD; i++) {
        if (l->blocks[i] == block) {
            l->seen[i] = size;
            return;
        }
    }
    l->strangers++;
}

Test(slab_backend, live_blocks_are_counted_and_listed_exactly)
{
    static void *blocks[HELD];
    static listed l = {.blocks = blocks};
    ga_heap *heap = open_host("slab");
    uint64_t bytes = 0;
    for (size_t i = 0; i < HELD; i++) {
        void *passing = take(heap, 1 + i * 7 % 5000);
        blocks[i] = take(heap, i % 100 ? 1 + i * 31 % 3000 : 50000);
        bytes += ga_usable_size(heap, blocks[i]);
        assert_ok(ga_free(heap, passing));
    }
    ga_backend_stats stats;
    ga_slab_backend.stats(heap->state, &stats);
    cr_assert_eq(stats.live_bytes, bytes, "%" PRIu64 " of %" PRIu64, stats.live_bytes, bytes);
    assert_ok(ga_heap_each_live(heap, find_block, &l));
    cr_assert_eq(l.strangers, 0, "%zu strangers", l.strangers);
    for (size_t i = 0; i < HELD; i++) {
        cr_assert_eq(l.seen[i], ga_usable_size(heap, blocks[i]), "block %zu: %zu", i, l.seen[i]);
        assert_ok(ga_free(heap, blocks[i]));
    }
    ga_slab_backend.stats(heap->state, &stats);
    cr_assert_eq(stats.live_bytes, 0, "%" PRIu64, stats.live_bytes);
    assert_ok(ga_heap_close(heap));
}

static void count_one(void *context, void *block, size_t size)
{
    (void)block;
    (void)size;
    ++*(size_t *)context;
}

static void *keep_some(void *context)
{
    void *block;
    for (int i = 0; i < 100; i++) {
        assert_ok(ga_alloc(context, 200, 0, &block));
    }
    assert_ok(ga_free(context, block));
    return NULL;
}

static void reset_and_look(const char *spec)
{
    ga_heap *heap = open_host(spec);
    pthread_t thread;
    ga_stats stats;
    size_t live = 0;
    for (int round = 0; round < 3; round++) {
        cr_assert_eq(pthread_create(&thread, NULL, keep_some, heap), 0);
        pthread_join(thread, NULL);
        for (size_t i = 0; i < HELD; i++) {
            take(heap, i % 100 ? 1 + i * 31 % 3000 : 50000);
        }
        assert_ok(ga_free(heap, take(heap, 16)));
        assert_ok(ga_heap_reset(heap));
        assert_ok(ga_heap_stats(heap, &stats));
        cr_assert_eq(stats.live_blocks, 0, "%s: %" PRIu64, spec, stats.live_blocks);
        cr_assert_eq(stats.live_bytes, 0, "%s: %" PRIu64, spec, stats.live_bytes);
        ga_backend_stats own;
        ga_slab_backend.stats(heap->state, &own);
        cr_assert_eq(own.live_bytes, 0, "%s: %" PRIu64, spec, own.live_bytes);
        assert_ok(ga_heap_each_live(heap, count_one, &live));
        cr_assert_eq(live, 0, "%s: %zu are listed", spec, live);
    }
    assert_ok(ga_heap_close(heap));
}

/* Units of all threads, of all classes, and the parent's blocks; three times over. */
Test(slab_backend, reset_frees_all)
{
    reset_and_look("slab");
    reset_and_look("slab:check=full");
    reset_and_look("slab:unit=4K");
    reset_and_look("slab:unit=256,addressing=light,capacity=64M");
}

/* ---- threads --------------------------------------------------------------------------------- */

static void *take_and_free(void *context)
{
    ga_heap *heap = context;
    void *blocks[40];
    for (int i = 0; i < 40; i++) {
        assert_ok(ga_alloc(heap, 1000, 0, &blocks[i]));
    }
    for (int i = 0; i < 40; i++) {
        assert_ok(ga_free(heap, blocks[i]));
    }
    return NULL;
}

/* Units in a thread's cache are free for others once it has ended. */
Test(slab_backend, a_thread_that_ends_gives_back)
{
    ga_heap *heap = open_host("slab:unit=1K,blocks=1,limit=1M/tight");
    static void *blocks[1024];
    tight_left = 1;
    for (int i = 0; i < 5; i++) {
        pthread_t thread;
        cr_assert_eq(pthread_create(&thread, NULL, take_and_free, heap), 0);
        pthread_join(thread, NULL);
    }
    for (int i = 0; i < 1024; i++) {
        blocks[i] = take(heap, 1000);
    }
    void *none;
    cr_assert_eq(ga_alloc(heap, 1000, 0, &none), GA_ERR_MEMORY, "1024 units are all there is");
    for (int i = 0; i < 1024; i++) {
        assert_ok(ga_free(heap, blocks[i]));
    }
    assert_ok(ga_heap_close(heap));
    cr_assert_eq(tight_live, 0, "%" PRId64 " blocks of the parent's left", tight_live);
}

Test(slab_backend, many_heaps_at_once)
{
    enum {
        HEAPS = 20
    };
    ga_heap *heaps[HEAPS];
    void *blocks[HEAPS][50];
    for (int i = 0; i < HEAPS; i++) {
        heaps[i] = open_host("slab");
    }
    for (int round = 0; round < 50; round++) {
        for (int i = 0; i < HEAPS; i++) {
            blocks[i][round] = take(heaps[i], 64);
            cr_assert(ga_owns(heaps[i], blocks[i][round]) &&
                      !ga_owns(heaps[(i + 1) % HEAPS], blocks[i][round]));
        }
    }
    for (int i = 0; i < HEAPS; i++) {
        for (int round = 0; round < 50; round++) {
            assert_ok(ga_free(heaps[i], blocks[i][round]));
        }
        ga_backend_stats stats;
        ga_slab_backend.stats(heaps[i]->state, &stats);
        cr_assert_eq(stats.live_bytes, 0, "heap %d: %" PRIu64, i, stats.live_bytes);
        assert_ok(ga_heap_close(heaps[i]));
    }
}

static int churning;
static int warm; /* number of threads that hold their block of the parent */

static void *churn(void *context)
{
    ga_heap *heap = context;
    void *blocks[64] = {0};
    for (unsigned i = 0; __atomic_load_n(&churning, __ATOMIC_RELAXED); i++) {
        unsigned k = i * 2654435761u >> 26;
        ga_free(heap, blocks[k]);
        blocks[k] = NULL;
        ga_alloc(heap, 16 + i * 40503u % 3000, 0, &blocks[k]);
        if (i == 4096) {
            __atomic_add_fetch(&warm, 1, __ATOMIC_RELAXED);
        }
    }
    for (int i = 0; i < 64; i++) {
        ga_free(heap, blocks[i]);
    }
    return NULL;
}

static void *in_a_thread(void *context)
{
    return take_and_free(context);
}

/* The child's own thread continues, and so does a new one, perhaps at the address of an old one. */
static int child_goes_on(void *context)
{
    ga_heap *heap = context;
    pthread_t thread;
    take_and_free(heap);
    if (pthread_create(&thread, NULL, in_a_thread, heap) != 0) {
        return 2;
    }
    pthread_join(thread, NULL);
    return ga_heap_close(heap) == GA_OK ? 0 : 3;
}

Test(slab_backend, forks_beside_threads)
{
    ga_heap *heap = open_host("slab");
    pthread_t threads[3];
    churning = 1;
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(pthread_create(&threads[i], NULL, churn, heap), 0);
    }
    while (UNDER_ASAN && __atomic_load_n(&warm, __ATOMIC_RELAXED) < 3) {
        sched_yield(); /* asan serves the parent's blocks, and a child would find its locks taken */
    }
    for (int i = 0; i < 20; i++) {
        cr_assert_eq(scene_in_child(child_goes_on, heap), 0, "child %d", i);
    }
    __atomic_store_n(&churning, 0, __ATOMIC_RELAXED);
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
    }
    cr_assert_eq(stats_of(heap).live_blocks, 0);
    assert_ok(ga_heap_close(heap));
}

/* ---- malloc-shaped --------------------------------------------------------------------------- */

static const ga_malloc_table *table;

/* A thread that has freed and never allocated holds no word: NULL is not in it. */
static void *free_nothing(void *block)
{
    table->free(block);
    table->free(NULL);
    return NULL;
}

Test(slab_backend, the_malloc_table)
{
    ga_heap *heap = open_host("slab");
    ga_heap *other = open_host("slab");
    table = ga_slab_backend.malloc_table(heap->state);
    cr_assert_not_null(table);
    cr_assert_null(ga_slab_backend.malloc_table(other->state), "only the first heap has one");
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        cr_assert_eq(pthread_create(&thread, NULL, free_nothing, table->malloc(100)), 0);
        pthread_join(thread, NULL);
    }
    void *foreign = malloc(100);
    void *zero = table->malloc(0);
    void *another = table->malloc(0);
    char *block = table->calloc(10, 10);
    cr_assert(zero && another && zero != another);
    cr_assert(block && !block[0] && memcmp(block, block + 1, 99) == 0);
    cr_assert_null(table->calloc(SIZE_MAX / 2, 3));
    cr_assert_null(table->malloc(SIZE_MAX));
    block = table->realloc(block, 100000);
    cr_assert(ga_owns(heap, block) && !block[99]);
    cr_assert_geq(table->usable_size(block), 100000);
    foreign = table->realloc(foreign, 200); /* stays with the C library */
    cr_assert(foreign && !ga_owns(heap, foreign));
    void *aligned = table->memalign(4096, 10);
    cr_assert_eq((uintptr_t)aligned % 4096, 0, "%p", aligned);
    void *all[] = {foreign, zero, another, block, aligned, NULL};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        table->free(all[i]);
    }
    ga_backend_stats stats;
    ga_slab_backend.stats(heap->state, &stats);
    cr_assert_eq(stats.live_bytes, 0, "%" PRIu64, stats.live_bytes);
    assert_ok(ga_heap_close(other));
    assert_ok(ga_heap_close(heap));
}

/* Each size alone stays below `keep`, all of them together do not. */
Test(slab_backend, many_sizes_share_one_bound)
{
    enum {
        SIZES = 10,
        EACH = 3 << 20
    };
    ga_heap *heap = open_host("slab:keep=4M/system");
    for (size_t i = 1; i <= SIZES; i++) {
        static void *blocks[EACH / 100];
        size_t count = EACH / (100 * i);
        for (size_t j = 0; j < count; j++) {
            blocks[j] = take(heap, 100 * i);
        }
        for (size_t j = 0; j < count; j++) {
            assert_ok(ga_free(heap, blocks[j]));
        }
    }
    uint64_t held = stats_of(heap).held_bytes;
    cr_assert_leq(held, UINT64_C(16) << 20, "%llu bytes held, none live", (unsigned long long)held);
    assert_ok(ga_heap_close(heap));
}
