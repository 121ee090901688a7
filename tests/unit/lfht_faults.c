/* SPDX-License-Identifier: MIT
 *
 * Maps whose heap refuses memory.
 */
#include "lfht_subject.h"

#include "support/expect.h"
#include "support/random.h"

#include <inttypes.h>
#include <stdio.h>

/* A call that fails has changed nothing, and can be repeated. Returns true if no call has
 * failed. */
static bool script(subject *s)
{
    uint64_t random = 5, refusals = 0;
    for (uint64_t i = 0; i < 250; i++) {
        uint64_t what = i < 100 ? 0 : i < 200 ? random_below(&random, 6) : 4;
        uint64_t number = i < 100 ? i : random_below(&random, 100);
        uint64_t value = random_next(&random);
        if (subject_step(s, what, number, value) != GA_OK) {
            refusals++;
            assert_ok(subject_step(s, what, number, value));
        }
    }
    cr_assert_leq(refusals, 1);
    uint64_t there = 0;
    for (uint64_t i = 0; i < SUBJECT_KEYS; i++) {
        there += s->array[i].found;
    }
    cr_assert_eq(ga_lfht_size(s->map), there);
    return refusals == 0;
}

/* Every request for memory fails once. Freezing allocates, too, and continues without memory: so
 * the script also ends without a refusal before the last request. */
Test(lfht_faults, stays_whole_when_memory_runs_out)
{
    for (int v = 0; v < GA_LFHT_VARIANT_COUNT; v++) {
        uint64_t refused = 0;
        for (uint64_t nth = 2; nth < 400; nth++) {
            char spec[64];
            snprintf(spec, sizeof spec, "fail:nth=%" PRIu64 "/system", nth);
            ga_heap *heap = open_heap(spec);
            ga_lfht_options options = narrow_options((ga_lfht_variant)v, heap);
            subject s = {0};
            assert_ok(ga_lfht_open(&s.map, &options));
            refused += !script(&s);
            assert_ok(ga_lfht_close(s.map));
            cr_assert_eq(blocks_of(heap), 0);
            assert_ok(ga_heap_close(heap));
        }
        cr_assert_gt(refused, 120, "%" PRIu64 " refused", refused);
        cr_assert_lt(refused, 390, "the script has more requests than are tried");
    }
}

Test(lfht_faults, visits_nothing_more_when_memory_runs_out)
{
    ga_heap *heap = open_heap("fail:nth=3/system");
    ga_lfht_options options = small_options(GA_LFHT_FHPA, heap);
    ga_lfht *map;
    uint64_t visited = 0;
    assert_ok(ga_lfht_open(&map, &options));
    assert_ok(ga_lfht_insert(map, 1, 1, NULL));
    assert_fails(ga_lfht_each(map, count_one, &visited), GA_ERR_MEMORY,
                 "fail: refused as nth=3 says; requested 256 bytes");
    cr_assert_eq(visited, 0);
    assert_ok(ga_lfht_each(map, count_one, &visited));
    cr_assert_eq(visited, 1);
    assert_ok(ga_lfht_close(map));
    assert_ok(ga_heap_close(heap));
}

/* In one chain, or array. Returns true if a request of the visit was refused; sets `*more` to false
 * once the number is past all requests. */
static bool visit_fails(ga_lfht_variant variant, uint64_t nth, bool *more)
{
    enum {
        KEYS = 20
    };
    char spec[64];
    snprintf(spec, sizeof spec, "fail:nth=%" PRIu64 "/system", nth);
    ga_heap *heap = open_heap(spec);
    ga_lfht_options options = small_options(variant, heap);
    ga_lfht *map;
    uint64_t refused = 0, visited = 0;
    options.hash = hash_same;
    assert_ok(ga_lfht_open(&map, &options));
    for (uint64_t i = 0; i < KEYS; i++) {
        while (ga_lfht_insert(map, i, i, NULL) != GA_OK) {
            refused++;
        }
    }
    bool failed = ga_lfht_each(map, count_one, &visited) != GA_OK;
    cr_assert_eq(visited == KEYS, !failed, "%" PRIu64 " visited", visited);
    cr_assert_leq(refused + failed, 1);
    if (failed) {
        visited = 0;
        assert_ok(ga_lfht_each(map, count_one, &visited));
        cr_assert_eq(visited, KEYS);
    }
    assert_ok(ga_lfht_close(map));
    cr_assert_eq(blocks_of(heap), 0);
    assert_ok(ga_heap_close(heap));
    *more = refused || failed;
    return failed;
}

Test(lfht_faults, visits_all_once_there_is_memory)
{
    for (int v = 0; v < GA_LFHT_VARIANT_COUNT; v++) {
        uint64_t failed = 0;
        bool more = true;
        for (uint64_t nth = 2; more; nth++) {
            failed += visit_fails((ga_lfht_variant)v, nth, &more);
        }
        cr_assert_gt(failed, 0, "variant %d asks for no memory to visit", v);
    }
}
