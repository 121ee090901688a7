/* SPDX-License-Identifier: MIT
 *
 * Batches of calls, compared with an array of the expected contents.
 */
#include "lfht_subject.h"

#include "support/expect.h"
#include "support/random.h"

#include <inttypes.h>
#include <stdio.h>

enum {
    BATCH_MAX = 100
};

/* Look up some keys more than once, in the array and in the map. */
static void look_many(subject *s, uint64_t *random)
{
    uint64_t keys[BATCH_MAX], numbers[BATCH_MAX], n = random_below(random, BATCH_MAX + 1);
    ga_lfht_found found[BATCH_MAX];
    for (uint64_t i = 0; i < n; i++) {
        numbers[i] = random_below(random, SUBJECT_KEYS);
        keys[i] = subject_key(numbers[i]);
        found[i] = (ga_lfht_found){true, 77};
    }
    assert_ok(ga_lfht_lookup_batch(s->map, keys, n, found));
    for (uint64_t i = 0; i < n; i++) {
        expect_was(found[i], s->array[numbers[i]], keys[i]);
    }
}

/* Different keys; how many the call says it has dealt with. */
static ga_status put_many(subject *s, uint64_t *random, size_t *done)
{
    uint64_t keys[BATCH_MAX], values[BATCH_MAX], n = random_below(random, BATCH_MAX + 1);
    uint64_t first = random_below(random, SUBJECT_KEYS);
    ga_lfht_found was[BATCH_MAX];
    for (uint64_t i = 0; i < n; i++) {
        keys[i] = subject_key((first + i) % SUBJECT_KEYS);
        values[i] = random_next(random);
    }
    ga_status status = ga_lfht_insert_batch(s->map, keys, values, n, was, done);
    cr_assert_eq(*done == n, status == GA_OK);
    for (uint64_t i = 0; i < *done; i++) {
        ga_lfht_found *now = &s->array[(first + i) % SUBJECT_KEYS];
        expect_was(was[i], *now, keys[i]);
        *now = now->found ? *now : (ga_lfht_found){true, values[i]};
    }
    return status;
}

/* The expected result and effect of a call, by the array. */
static void expect_call(ga_lfht_found *now, const ga_lfht_call *c)
{
    expect_was(c->was, *now, c->key);
    bool writes = c->op == GA_LFHT_UPSERT || (c->op == GA_LFHT_INSERT && !now->found) ||
                  (c->op == GA_LFHT_REPLACE && now->found) ||
                  (c->op == GA_LFHT_COMPARE_REPLACE && now->found && now->value == c->expected);
    if (writes) {
        *now = (ga_lfht_found){true, c->value};
    } else if (c->op == GA_LFHT_REMOVE) {
        *now = (ga_lfht_found){false, 0};
    }
}

/* Calls of all kinds, some keys repeatedly: they take effect in their order. */
static ga_status do_many(subject *s, uint64_t *random, size_t *done)
{
    ga_lfht_call calls[BATCH_MAX];
    uint64_t numbers[BATCH_MAX], n = random_below(random, BATCH_MAX + 1);
    for (uint64_t i = 0; i < n; i++) {
        bool again = i && !random_below(random, 3);
        numbers[i] = again ? numbers[random_below(random, i)] : random_below(random, SUBJECT_KEYS);
        calls[i] = (ga_lfht_call){(uint32_t)random_below(random, GA_LFHT_REMOVE + 1),
                                  subject_key(numbers[i]),
                                  random_below(random, 3),
                                  random_below(random, 3),
                                  {true, 77}};
    }
    ga_status status = ga_lfht_batch(s->map, calls, n, done);
    cr_assert_eq(*done == n, status == GA_OK);
    for (uint64_t i = 0; i < *done; i++) {
        expect_call(&s->array[numbers[i]], &calls[i]);
    }
    return status;
}

static void work_in_batches(subject *s, uint64_t seed)
{
    uint64_t random = seed;
    size_t done;
    for (int i = 0; i < 30; i++) {
        assert_ok(put_many(s, &random, &done));
        look_many(s, &random);
        assert_ok(do_many(s, &random, &done));
        look_many(s, &random);
        for (int j = 0; j < 80; j++) {
            assert_ok(subject_step(s, 4, random_below(&random, SUBJECT_KEYS), 0));
        }
        look_many(s, &random);
    }
    expect_all(s);
    subject_clear(s);
}

Test(lfht_batch, does_in_batches_what_it_does_one_by_one)
{
    for (uint64_t i = 0; i < 8 * GA_LFHT_VARIANT_COUNT; i++) {
        ga_heap *heap = open_heap("system");
        subject s = {0};
        ga_lfht_options options = small_options((ga_lfht_variant)(i % GA_LFHT_VARIANT_COUNT), heap);
        any_shape(&options, i / GA_LFHT_VARIANT_COUNT);
        assert_ok(ga_lfht_open(&s.map, &options));
        work_in_batches(&s, i);
        assert_ok(ga_lfht_close(s.map));
        cr_assert_eq(blocks_of(heap), 0);
        assert_ok(ga_heap_close(heap));
    }
}

/* Refuse request number `nth`. Returns true if a batch has failed because of it. */
static bool batches_fail(ga_lfht_variant variant, uint64_t nth)
{
    char spec[64];
    snprintf(spec, sizeof spec, "fail:nth=%" PRIu64 "/system", nth);
    ga_heap *heap = open_heap(spec);
    ga_lfht_options options = narrow_options(variant, heap);
    subject s = {0};
    uint64_t random = 3, refused = 0;
    size_t done;
    assert_ok(ga_lfht_open(&s.map, &options));
    for (int i = 0; i < 3; i++) {
        refused += put_many(&s, &random, &done) != GA_OK;
        refused += do_many(&s, &random, &done) != GA_OK;
    }
    cr_assert_leq(refused, 1);
    for (uint64_t i = 0; i < SUBJECT_KEYS; i++) {
        expect_key(&s, i);
    }
    assert_ok(ga_lfht_close(s.map));
    cr_assert_eq(blocks_of(heap), 0);
    assert_ok(ga_heap_close(heap));
    return refused;
}

Test(lfht_batch, says_how_much_of_a_batch_went_in)
{
    for (int v = 0; v < GA_LFHT_VARIANT_COUNT; v++) {
        uint64_t nth = 2;
        while (batches_fail((ga_lfht_variant)v, nth)) {
            nth++;
        }
        cr_assert_gt(nth, 100);
    }
}
