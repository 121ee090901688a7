/* SPDX-License-Identifier: MIT
 *
 * The lock-free hash trie map in one thread: each variant is compared with an array of the expected
 * contents; the caller's functions; counts and visits; the memory that it takes.
 */
#include "lfht_subject.h"

#include "support/expect.h"

#include <inttypes.h>
#include <string.h>

/* ---- compared with an array --------------------------------------------------------------- */

/* Try every variant, with `shape` applied to the options. */
static void try_all(void (*shape)(ga_lfht_options *options, uint64_t round), uint64_t rounds)
{
    for (uint64_t i = 0; i < rounds * GA_LFHT_VARIANT_COUNT; i++) {
        ga_heap *heap = open_heap("system");
        subject s = {0};
        ga_lfht_options options = small_options((ga_lfht_variant)(i % GA_LFHT_VARIANT_COUNT), heap);
        shape(&options, i / GA_LFHT_VARIANT_COUNT);
        assert_ok(ga_lfht_open(&s.map, &options));
        subject_work(&s, i, 3000);
        subject_clear(&s);
        subject_work(&s, i, 1000);
        assert_ok(ga_lfht_close(s.map));
        cr_assert_eq(blocks_of(heap), 0);
        assert_ok(ga_heap_close(heap));
    }
}

Test(lfht, does_what_the_array_does)
{
    try_all(all_shapes, 5);
}

/* Keys that share all their hash, or the bits that are used last. */
Test(lfht, takes_any_hash)
{
    try_all(bad_hashes, 3);
}

/* ---- keys that are pointers ----------------------------------------------------------------- */

static uint64_t text_hash(void *context, uint64_t key)
{
    (void)context;
    return (uint64_t)strlen((const char *)(uintptr_t)key);
}

static bool text_equal(void *context, uint64_t a, uint64_t b)
{
    ++*(uint64_t *)context;
    return strcmp((const char *)(uintptr_t)a, (const char *)(uintptr_t)b) == 0;
}

static uint64_t text(const char *key)
{
    return (uint64_t)(uintptr_t)key;
}

Test(lfht, asks_the_callers_functions)
{
    char one[] = "one", too[] = "one", six[] = "six";
    uint64_t calls = 0;
    ga_lfht *map;
    ga_lfht_found found;
    ga_lfht_options options = {
        .options_size = sizeof options, .hash = text_hash, .equal = text_equal, .context = &calls};
    assert_ok(ga_lfht_open(&map, &options));
    assert_ok(ga_lfht_insert(map, text(one), 1, NULL));
    assert_ok(ga_lfht_insert(map, text(six), 6, NULL));
    assert_ok(ga_lfht_lookup(map, text(too), &found));
    cr_assert(found.found && found.value == 1);
    assert_ok(ga_lfht_insert(map, text(too), 2, &found));
    cr_assert(found.found && found.value == 1);
    assert_ok(ga_lfht_remove(map, text(too), &found));
    cr_assert(found.found);
    assert_ok(ga_lfht_lookup(map, text(six), &found));
    cr_assert(found.found && found.value == 6);
    cr_assert_gt(calls, 0);
    assert_ok(ga_lfht_close(map));
}

/* ---- growing, shrinking --------------------------------------------------------------------- */

Test(lfht, counts_what_it_does)
{
    for (int v = 0; v < GA_LFHT_VARIANT_COUNT; v++) {
        ga_heap *heap = open_heap("system");
        ga_lfht_options options = small_options((ga_lfht_variant)v, heap);
        ga_lfht_stats stats;
        subject s = {0};
        bool shrinks = v != GA_LFHT_SNF && v != GA_LFHT_HHL;
        options.flags |= shrinks ? GA_LFHT_SHRINK : 0;
        assert_ok(ga_lfht_open(&s.map, &options));
        subject_work(&s, 1, 600);
        ga_lfht_get_stats(s.map, &stats);
        cr_assert_gt(stats.expansions, 20);
        cr_assert_gt(stats.depth, 2);
        cr_assert_gt(stats.hops, stats.lookups);
        subject_clear(&s);
        assert_ok(ga_lfht_drain(s.map));
        ga_lfht_get_stats(s.map, &stats);
        cr_assert_eq(stats.compressions, shrinks ? stats.expansions : 0);
        cr_assert_eq(stats.size, 0);
        if (v == GA_LFHT_FHP || v == GA_LFHT_FHPA || v == GA_LFHT_INLINE) {
            cr_assert_eq(stats.freed, stats.retired);
            cr_assert_gt(stats.bound, 0);
            cr_assert_eq(blocks_of(heap), 1, "the root alone is left");
        } else if (v == GA_LFHT_HHL) {
            cr_assert_gt(stats.freed, 100);
            cr_assert_eq(stats.freed, stats.retired);
            cr_assert_eq(stats.bound, 0);
            cr_assert_eq(blocks_of(heap), 1 + stats.expansions, "hash nodes alone are left");
        } else {
            cr_assert_eq(stats.freed, 0);
        }
        assert_ok(ga_lfht_close(s.map));
        assert_ok(ga_heap_close(heap));
    }
}

Test(lfht, counts_nothing_but_keys_unless_asked_to)
{
    ga_lfht *map;
    ga_lfht_found found;
    ga_lfht_stats stats;
    assert_ok(ga_lfht_open(&map, NULL));
    assert_ok(ga_lfht_insert(map, 1, 2, NULL));
    assert_ok(ga_lfht_lookup(map, 1, &found));
    ga_lfht_get_stats(map, &stats);
    cr_assert_eq(stats.lookups, 0);
    cr_assert_eq(stats.size, 1);
    assert_ok(ga_lfht_close(map));
}

/* ---- visiting ------------------------------------------------------------------------------- */

typedef struct visitor {
    ga_lfht *map;
    uint64_t last, visited, max;
} visitor;

/* Remove each visited key. */
static bool take_out(void *context, uint64_t key, uint64_t value)
{
    visitor *v = context;
    ga_lfht_found was;
    assert_ok(ga_lfht_remove(v->map, key, &was));
    cr_assert(was.found && was.value == value);
    cr_assert(v->visited == 0 || key > v->last, "in the order of the hashes");
    v->last = key;
    return ++v->visited < v->max;
}

Test(lfht, visits_in_order_and_may_be_changed_meanwhile)
{
    for (int variant = 0; variant < GA_LFHT_VARIANT_COUNT; variant++) {
        visitor v = {.max = 40};
        ga_lfht_options options = small_options((ga_lfht_variant)variant, NULL);
        options.hash = hash_itself;
        assert_ok(ga_lfht_open(&v.map, &options));
        for (uint64_t i = 0; i < 100; i++) {
            assert_ok(ga_lfht_insert(v.map, i * UINT64_C(0x28f5c28f5c28f5c), i, NULL));
        }
        assert_ok(ga_lfht_each(v.map, take_out, &v));
        cr_assert_eq(v.visited, 40, "it ends when it is told to");
        cr_assert_eq(ga_lfht_size(v.map), 60);
        v.visited = 0;
        v.max = 1000;
        assert_ok(ga_lfht_each(v.map, take_out, &v));
        cr_assert_eq(v.visited, 60);
        assert_ok(ga_lfht_close(v.map));
    }
}

/* ---- memory --------------------------------------------------------------------------------- */

/* With the library's own shape, over `slab`. */
Test(lfht, takes_few_bytes_for_a_key_and_gives_them_back)
{
    enum {
        KEYS = 1 << 19,      /* bytes per bucket of the root, as for 2^22 keys */
        BYTES = 48,          /* per key, at most */
        HELD_EMPTY = 2 << 20 /* when all have gone, by the heap */
    };
    static const ga_lfht_variant variants[] = {GA_LFHT_FHPA, GA_LFHT_INLINE};
    for (size_t v = 0; v < 2; v++) {
        ga_lfht *map;
        ga_stats stats;
        ga_heap *heap = open_heap("slab");
        ga_lfht_options options = {
            .options_size = sizeof options, .variant = variants[v], .heap = heap, .expected = KEYS};
        assert_ok(ga_lfht_open(&map, &options));
        for (uint64_t key = 0; key < KEYS; key++) {
            assert_ok(ga_lfht_insert(map, key, key, NULL));
        }
        assert_ok(ga_heap_stats(heap, &stats));
        cr_assert_leq(stats.live_bytes, (uint64_t)BYTES * KEYS, "%s: %" PRIu64 " bytes a key",
                      ga_lfht_variant_text(variants[v]), stats.live_bytes / KEYS);
        for (uint64_t key = 0; key < KEYS; key++) {
            assert_ok(ga_lfht_remove(map, key, NULL));
        }
        assert_ok(ga_lfht_drain(map));
        assert_ok(ga_heap_stats(heap, &stats));
        cr_assert_eq(stats.live_blocks, 1, "the root is left");
        assert_ok(ga_trim(heap, 0));
        assert_ok(ga_heap_stats(heap, &stats));
        cr_assert(stats.held_bytes > 0 && stats.held_bytes <= HELD_EMPTY,
                  "%s: %" PRIu64 " bytes held", ga_lfht_variant_text(variants[v]),
                  stats.held_bytes);
        assert_ok(ga_lfht_close(map));
        assert_ok(ga_heap_close(heap));
    }
}
