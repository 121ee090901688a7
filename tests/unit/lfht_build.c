/* SPDX-License-Identifier: MIT
 *
 * Maps that are built at once.
 */
#include "lfht_subject.h"

#include "support/expect.h"

#include <inttypes.h>
#include <stdio.h>

/* Every key, some of them twice: the first of two is inserted. */
static ga_status build(subject *s)
{
    uint64_t keys[SUBJECT_KEYS + 50], values[SUBJECT_KEYS + 50];
    for (uint64_t i = 0; i < SUBJECT_KEYS + 50; i++) {
        keys[i] = subject_key(i % SUBJECT_KEYS);
        values[i] = i * i;
    }
    ga_status status = ga_lfht_build(s->map, keys, values, SUBJECT_KEYS + 50);
    for (uint64_t i = 0; status == GA_OK && i < SUBJECT_KEYS; i++) {
        s->array[i] = (ga_lfht_found){true, values[i]};
    }
    return status;
}

Test(lfht_build, is_built_as_insertions_would_have_left_it)
{
    for (uint64_t i = 0; i < 8 * GA_LFHT_VARIANT_COUNT; i++) {
        ga_heap *heap = open_heap("system");
        subject s = {0};
        ga_lfht_stats stats;
        ga_lfht_options options = small_options((ga_lfht_variant)(i % GA_LFHT_VARIANT_COUNT), heap);
        any_shape(&options, i / GA_LFHT_VARIANT_COUNT);
        assert_ok(ga_lfht_open(&s.map, &options));
        subject_work(&s, i, 300); /* the built map is usable */
        subject_clear(&s);
        assert_ok(build(&s));
        expect_all(&s);
        assert_fails(build(&s), GA_ERR_ARGUMENT, "lfht: build: 300 keys in the map: expected none");
        subject_work(&s, i, 1000);
        subject_clear(&s);
        assert_ok(ga_lfht_drain(s.map));
        ga_lfht_get_stats(s.map, &stats);
        cr_assert(!stats.bound || blocks_of(heap) == 1, "the root alone is left");
        assert_ok(ga_lfht_close(s.map));
        cr_assert_eq(blocks_of(heap), 0);
        assert_ok(ga_heap_close(heap));
    }
}

Test(lfht_build, stays_empty_when_there_is_no_memory_to_build_it)
{
    for (int v = 0; v < GA_LFHT_VARIANT_COUNT; v++) {
        uint64_t nth = 2;
        for (ga_status status = GA_ERR_MEMORY; status != GA_OK; nth += 7) {
            char spec[64];
            snprintf(spec, sizeof spec, "fail:nth=%" PRIu64 "/system", nth);
            ga_heap *heap = open_heap(spec);
            ga_lfht_options options = small_options((ga_lfht_variant)v, heap);
            subject s = {0};
            assert_ok(ga_lfht_open(&s.map, &options));
            status = build(&s);
            cr_assert(status == GA_OK || status == GA_ERR_MEMORY);
            cr_assert(status == GA_OK || blocks_of(heap) == 1, "the root alone");
            expect_all(&s);
            assert_ok(s.array[0].found ? GA_OK : build(&s));
            expect_all(&s);
            assert_ok(ga_lfht_close(s.map));
            cr_assert_eq(blocks_of(heap), 0);
            assert_ok(ga_heap_close(heap));
        }
        /* only INLINE nodes are allocated, each for several keys */
        cr_assert_gt(nth, v == GA_LFHT_INLINE ? SUBJECT_KEYS / 4 : SUBJECT_KEYS);
    }
}
