/* SPDX-License-Identifier: MIT
 *
 * The functions of lfht_subject.h.
 */
#include "lfht_subject.h"

#include "support/expect.h"
#include "support/random.h"

#include <inttypes.h>

ga_heap *open_heap(const char *spec)
{
    ga_heap *heap = NULL;
    assert_ok(ga_heap_open(&heap, GA_PLACE_HOST, 0, spec));
    return heap;
}

uint64_t blocks_of(ga_heap *heap)
{
    ga_stats stats;
    assert_ok(ga_heap_stats(heap, &stats));
    return stats.live_blocks;
}

ga_lfht_options small_options(ga_lfht_variant variant, ga_heap *heap)
{
    return (ga_lfht_options){.options_size = sizeof(ga_lfht_options),
                             .flags = GA_LFHT_COUNT,
                             .variant = variant,
                             .chunk = 2,
                             .chain = 2,
                             .root = 1,
                             .heap = heap};
}

ga_lfht_options narrow_options(ga_lfht_variant variant, ga_heap *heap)
{
    ga_lfht_options options = small_options(variant, heap);
    options.chain = variant == GA_LFHT_INLINE ? 1 : options.chain;
    return options;
}

uint64_t hash_low_bits(void *context, uint64_t key)
{
    (void)context;
    return key & 3;
}

uint64_t hash_itself(void *context, uint64_t key)
{
    (void)context;
    return key;
}

uint64_t subject_key(uint64_t number)
{
    static const uint64_t first[] = {0, UINT64_MAX, 1, UINT64_MAX - 1, UINT64_C(1) << 63};
    return number < 5 ? first[number] : number << (number % 2 ? 50 : 0);
}

void expect_was(ga_lfht_found was, ga_lfht_found expected, uint64_t key)
{
    cr_assert_eq(was.found, expected.found, "key %" PRIx64 ": found %d, expected %d", key,
                 was.found, expected.found);
    cr_assert_eq(was.value, expected.value, "key %" PRIx64 ": %" PRIu64 ", expected %" PRIu64, key,
                 was.value, expected.value);
}

void expect_key(subject *s, uint64_t number)
{
    ga_lfht_found found;
    assert_ok(ga_lfht_lookup(s->map, subject_key(number), &found));
    expect_was(found, s->array[number], subject_key(number));
}

ga_status subject_step(subject *s, uint64_t what, uint64_t number, uint64_t value)
{
    ga_lfht_found *now = &s->array[number], was = {false, 77}, before = *now, after = before;
    uint64_t key = subject_key(number), expected = before.value + value % 2;
    ga_status status;
    switch (what) {
    case 0:
        status = ga_lfht_insert(s->map, key, value, &was);
        after = before.found ? before : (ga_lfht_found){true, value};
        break;
    case 1:
        status = ga_lfht_upsert(s->map, key, value, &was);
        after = (ga_lfht_found){true, value};
        break;
    case 2:
        status = ga_lfht_replace(s->map, key, value, &was);
        after = before.found ? (ga_lfht_found){true, value} : before;
        break;
    case 3:
        status = ga_lfht_compare_replace(s->map, key, expected, value, &was);
        after = before.found && before.value == expected ? (ga_lfht_found){true, value} : before;
        break;
    case 4:
        status = ga_lfht_remove(s->map, key, &was);
        after = (ga_lfht_found){false, 0};
        break;
    default:
        status = ga_lfht_lookup(s->map, key, &was);
    }
    if (status == GA_OK) {
        expect_was(was, before, key);
        *now = after;
    }
    expect_key(s, number);
    return status;
}

bool count_one(void *context, uint64_t key, uint64_t value)
{
    (void)key;
    (void)value;
    ++*(uint64_t *)context;
    return true;
}

void expect_all(subject *s)
{
    uint64_t there = 0, visited = 0;
    for (uint64_t i = 0; i < SUBJECT_KEYS; i++) {
        expect_key(s, i);
        there += s->array[i].found;
    }
    assert_ok(ga_lfht_each(s->map, count_one, &visited));
    cr_assert_eq(visited, there, "%" PRIu64 " visited of %" PRIu64, visited, there);
    cr_assert_eq(ga_lfht_size(s->map), there);
}

void subject_work(subject *s, uint64_t seed, uint64_t steps)
{
    uint64_t random = seed;
    for (uint64_t i = 0; i < steps; i++) {
        uint64_t what = random_below(&random, 6);
        if (random_below(&random, 2)) {
            what = i / 700 % 2 ? 4 : 0;
        }
        uint64_t number = random_below(&random, SUBJECT_KEYS);
        /* values at the ends of the range too */
        uint64_t value = random_below(&random, 4) ? random_next(&random) : UINT64_MAX * (i % 2);
        assert_ok(subject_step(s, what, number, value));
    }
    expect_all(s);
}

void subject_clear(subject *s)
{
    for (uint64_t i = 0; i < SUBJECT_KEYS; i++) {
        assert_ok(subject_step(s, 4, i, 0));
    }
    expect_all(s);
}

void all_shapes(ga_lfht_options *options, uint64_t round)
{
    static const uint32_t chunks[] = {1, 2, 3, 7, 8}, chains[] = {1, 2, 16, 1, 5},
                          roots[] = {1, 2, 10, 9, 5};
    uint32_t max = options->variant == GA_LFHT_INLINE ? 7 : 16;
    options->chunk = chunks[round];
    options->chain = chains[round] < max ? chains[round] : max;
    options->root = roots[round];
    options->batch = 1 + (uint32_t)round * 100;
}

void bad_hashes(ga_lfht_options *options, uint64_t round)
{
    static ga_lfht_hash *const hashes[] = {hash_same, hash_low_bits, hash_itself};
    options->hash = hashes[round];
}

void any_shape(ga_lfht_options *options, uint64_t round)
{
    if (round < 5) {
        all_shapes(options, round);
    } else {
        bad_hashes(options, round - 5);
    }
}
