/* SPDX-License-Identifier: MIT
 *
 * The heap as a whole: many blocks, many threads, no memory, statistics, forks, the end.
 */
#include "subjects.h"

#include "support/model.h"
#include "support/sanitized.h"
#include "support/scene.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    THREADS = 8,
    BATCH = 100
};

/* Another seed each time; TEST_SEED sets the one from a message. */
static uint64_t pick_seed(void)
{
    const char *given = getenv("TEST_SEED");
    return given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
}

/* ---- many blocks -------------------------------------------------------------------------- */

CASE(a_random_script_against_a_model)
{
    static model m;
    uint64_t seed = pick_seed();
    if (s->refuses) {
        return;
    }
    model_begin(&m, heap, seed, touchable ? 1 << 18 : 1 << 22);
    bool good = model_run(&m, touchable ? 30000 : 3000) && model_end(&m);
    cr_assert(good, "%s: TEST_SEED=%" PRIu64 ": %s", s->spec, seed, m.trouble);
}

CASE(batches)
{
    size_t sizes[BATCH];
    void *out[BATCH];
    for (size_t i = 0; i < BATCH; i++) {
        sizes[i] = i * i;
    }
    if (s->refuses) {
        cr_assert_eq(ga_alloc_batch(heap, BATCH, sizes, out), GA_ERR_MEMORY);
        cr_assert_null(out[0]);
        return;
    }
    assert_ok(ga_alloc_batch(heap, BATCH, sizes, out));
    for (size_t i = 0; touchable && i < BATCH; i++) {
        memset(out[i], (int)i, sizes[i]);
    }
    for (size_t i = 0; i < BATCH; i++) {
        cr_assert_eq((uintptr_t)out[i] % natural_align, 0, "%s: block %zu", s->spec, i);
        char *last = (char *)out[i] + sizes[i] - 1;
        cr_assert(!touchable || !sizes[i] || *last == (char)i, "%s: block %zu", s->spec, i);
        assert_ok(ga_free(heap, out[i]));
    }
}

CASE(a_batch_that_fails_leaves_nothing)
{
    size_t sizes[3] = {100, SIZE_MAX, 100};
    void *out[3] = {&out, &out, &out};
    cr_assert_eq(ga_alloc_batch(heap, 3, sizes, out), GA_ERR_SIZE, "%s", s->spec);
    cr_assert(!out[0] && !out[1] && !out[2], "%s", s->spec);
    expect_sentence(s);
}

/* ---- threads ------------------------------------------------------------------------------ */

static model models[THREADS];

static void *run_model(void *context)
{
    model *m = context;
    model_run(m, touchable ? 5000 : 200);
    return NULL;
}

static void *end_model(void *context)
{
    model_end(context);
    return NULL;
}

static void in_threads(void *(*body)(void *), size_t shift)
{
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++) {
        int failed = pthread_create(&threads[i], NULL, body, &models[(i + shift) % THREADS]);
        cr_assert_eq(failed, 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
}

/* Each thread has its own script; another thread frees the blocks that are left at its end. */
CASE(threads)
{
    uint64_t seed = pick_seed();
    if (s->refuses) {
        return;
    }
    for (size_t i = 0; i < THREADS; i++) {
        model_begin(&models[i], heap, seed + i, 1 << 14);
    }
    in_threads(run_model, 0);
    in_threads(end_model, 1);
    for (size_t i = 0; i < THREADS; i++) {
        cr_assert_str_eq(models[i].trouble, "", "%s: TEST_SEED=%" PRIu64 ": %s", s->spec, seed,
                         models[i].trouble);
    }
}

/* ---- no memory ---------------------------------------------------------------------------- */

static void expect_no_memory(const subject *s, size_t size, size_t align)
{
    void *out = &out;
    ga_status status = ga_alloc(heap, size, align, &out);
    if (status == GA_OK) { /* addresses are free: an allocator may promise memory that it cannot
                            * commit */
        cr_assert_leq(size, (size_t)1 << 46, "%s: %zu bytes", s->spec, size);
        assert_ok(ga_free(heap, out));
        return;
    }
    bool refused = status == GA_ERR_MEMORY || status == GA_ERR_SIZE ||
                   (align > natural_align && status == GA_ERR_ALIGN);
    cr_assert(refused, "%s: %zu bytes: status %d: %s", s->spec, size, (int)status, ga_error_text());
    cr_assert_null(out, "%s", s->spec);
    expect_sentence(s);
}

static bool sanitizer_allocates(const subject *s)
{
    return UNDER_ASAN && s->over_libc;
}

CASE(out_of_memory)
{
    void *out = NULL;
    if (sanitizer_allocates(s)) {
        assert_ok(ga_heap_close(heap));
        cr_skip_test("%s: the address sanitizer reports large requests as bugs", s->spec);
    }
    expect_no_memory(s, (size_t)1 << 46, 0);
    expect_no_memory(s, PTRDIFF_MAX, 0);
    expect_no_memory(s, PTRDIFF_MAX, 4096);
    expect_no_memory(s, (size_t)PTRDIFF_MAX + 1, 0);
    expect_no_memory(s, SIZE_MAX, 0);
    cr_assert_neq(ga_alloc_zeroed(heap, PTRDIFF_MAX, 0, &out), GA_OK, "%s", s->spec);
    if (!s->refuses) {
        void *block = take(s, 100);
        void *same = block;
        cr_assert_neq(ga_realloc(heap, block, PTRDIFF_MAX, 0, &same), GA_OK, "%s", s->spec);
        cr_assert_eq(same, block, "%s", s->spec);
        if (touchable) {
            memset(block, 1, 100);
        }
        assert_ok(ga_free(heap, block));
    }
}

/* A backend that has nothing says so to every kind of request. */
CASE(refusals)
{
    void *out = &out;
    int local = 0;
    if (!s->refuses) {
        return;
    }
    cr_assert_eq(ga_alloc(heap, 1, 0, &out), GA_ERR_MEMORY);
    cr_assert_null(out);
    expect_sentence(s);
    cr_assert_neq(ga_alloc(heap, 1, 4096, &out), GA_OK);
    cr_assert_neq(ga_alloc_zeroed(heap, 1, 0, &out), GA_OK);
    cr_assert_neq(ga_realloc(heap, NULL, 1, 0, &out), GA_OK);
    cr_assert_eq(ga_free(heap, &local), GA_ERR_POINTER);
    expect_sentence(s);
    cr_assert_neq(ga_realloc(heap, &local, 1, 0, &out), GA_OK);
    cr_assert_neq(ga_grow(heap, &local, 1), GA_OK);
    cr_assert_not(ga_owns(heap, &local));
    cr_assert_eq(ga_usable_size(heap, &local), 0);
}

/* ---- statistics --------------------------------------------------------------------------- */

CASE(stats_add_up)
{
    ga_stats stats;
    void *blocks[10];
    uint64_t requested = 0;
    uint64_t usable = 0;
    for (size_t i = 0; !s->refuses && i < 10; i++) {
        blocks[i] = take(s, 1 + i * 1000);
        requested += 1 + i * 1000;
        usable += ga_usable_size(heap, blocks[i]);
    }
    assert_ok(ga_heap_stats(heap, &stats));
    cr_assert_eq(stats.allocs, s->refuses ? 0 : 10, "%s: %" PRIu64, s->spec, stats.allocs);
    cr_assert_eq(stats.requested_bytes, requested, "%s", s->spec);
    cr_assert_eq(stats.granted_bytes, usable, "%s: %" PRIu64, s->spec, stats.granted_bytes);
    for (size_t i = 0; !s->refuses && i < 10; i++) {
        cr_assert_eq(stats.live_bytes, usable, "%s: %" PRIu64, s->spec, stats.live_bytes);
        usable -= ga_usable_size(heap, blocks[i]);
        assert_ok(ga_free(heap, blocks[i]));
        assert_ok(ga_heap_stats(heap, &stats));
        cr_assert_eq(stats.live_blocks, 9 - i, "%s: %" PRIu64, s->spec, stats.live_blocks);
    }
    cr_assert_eq(stats.frees, stats.allocs, "%s", s->spec);
}

/* ---- trim, forks, the end ------------------------------------------------------------------ */

CASE(trim_takes_nothing_that_is_used)
{
    if (s->refuses) {
        return;
    }
    char *kept = take(s, 100000);
    void *freed = take(s, 1 << 20);
    if (touchable) {
        memset(kept, 6, 100000);
    }
    assert_ok(ga_free(heap, freed));
    ga_status status = ga_trim(heap, 0);
    cr_assert(status == GA_OK || status == GA_ERR_UNSUPPORTED, "%s: %s", s->spec, ga_error_text());
    cr_assert(!touchable || (kept[0] == 6 && kept[99999] == 6), "%s", s->spec);
    assert_ok(ga_free(heap, kept));
}

static void *inherited;

/* The child frees its parent's blocks, in its own copy, and allocates anew. */
static int use_in_child(void *unused)
{
    static model m;
    (void)unused;
    if (((char *)inherited)[99] != 5 || ga_free(heap, inherited) != GA_OK) {
        return 1;
    }
    model_begin(&m, heap, 1, 1 << 14);
    return model_run(&m, 1000) && model_end(&m) ? 0 : 2;
}

CASE(a_forked_child_goes_on)
{
    if (s->refuses || s->place != GA_PLACE_HOST) {
        return; /* no device survives a fork */
    }
    inherited = take(s, 100);
    memset(inherited, 5, 100);
    cr_assert_eq(scene_in_child(use_in_child, NULL), 0, "%s", s->spec);
    cr_assert_eq(((char *)inherited)[99], 5, "%s", s->spec);
    assert_ok(ga_free(heap, inherited));
}

/* Opened anew, because the case's own heap must end without live blocks. */
CASE(closing_with_live_blocks_reports_them)
{
    ga_heap *second;
    void *block;
    if (s->refuses) {
        return;
    }
    assert_ok(ga_heap_open(&second, s->place, 0, ga_heap_spec(heap)));
    assert_ok(ga_alloc(second, 1000, 0, &block));
    scene_capture_begin();
    ga_status status = ga_heap_close(second);
    const char *said = scene_capture_end();
    cr_assert_eq(status, GA_OK);
    cr_assert_not_null(strstr(said, "closed with 1 blocks of "), "%s: %s", s->spec, said);
    sanitized_forgive(block);
}

CASE(heaps_of_one_backend_are_apart_in_their_counts)
{
    ga_heap *second;
    ga_stats stats;
    assert_ok(ga_heap_open(&second, s->place, 0, ga_heap_spec(heap)));
    void *block = s->refuses ? NULL : take(s, 100);
    assert_ok(ga_heap_stats(second, &stats));
    cr_assert_eq(stats.allocs, 0, "%s", s->spec);
    assert_ok(ga_heap_close(second));
    if (touchable && block) {
        memset(block, 1, 100);
    }
    assert_ok(ga_free(heap, block));
}
