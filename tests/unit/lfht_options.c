/* SPDX-License-Identifier: MIT
 *
 * Options of maps, and calls that are refused: options out of range, pointers that are not there,
 * maps that are closed.
 */
#include "lfht_subject.h"

#include "support/expect.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static void refuses(ga_lfht_options options, ga_status status, const char *sentence)
{
    ga_lfht *map = (ga_lfht *)&options;
    options.options_size = options.options_size ? options.options_size : sizeof options;
    assert_fails(ga_lfht_open(&map, &options), status, sentence);
    cr_assert_null(map);
}

Test(lfht_options, refuses_options_that_cannot_be)
{
    refuses((ga_lfht_options){.chunk = 9}, GA_ERR_ARGUMENT, "lfht: chunk=9: expected 1 to 8, or 0");
    refuses((ga_lfht_options){.chain = 17}, GA_ERR_ARGUMENT,
            "lfht: chain=17: expected 1 to 16, or 0");
    refuses((ga_lfht_options){.variant = GA_LFHT_INLINE, .chain = 8}, GA_ERR_ARGUMENT,
            "lfht: chain=8 with INLINE: expected 1 to 7, or 0: a line has no more");
    refuses((ga_lfht_options){.root = 25}, GA_ERR_ARGUMENT,
            "lfht: root=25: expected 1 to 24, or 0");
    refuses((ga_lfht_options){.batch = UINT32_MAX}, GA_ERR_ARGUMENT,
            "lfht: batch=4294967295: expected 1 to 16777216, or 0");
    refuses((ga_lfht_options){.flags = 14}, GA_ERR_ARGUMENT,
            "lfht: flags=0xe: expected any of GA_LFHT_COUNT, _SHRINK, _CHECK, or none");
    refuses((ga_lfht_options){.variant = GA_LFHT_VARIANT_COUNT}, GA_ERR_ARGUMENT,
            "lfht: variant=7: expected 0 to 6");
    refuses((ga_lfht_options){.flags = GA_LFHT_SHRINK, .variant = GA_LFHT_HHL}, GA_ERR_ARGUMENT,
            "lfht: HHL with GA_LFHT_SHRINK: its hash nodes stay; expected FHPA, FHP, FNF, CNF or "
            "INLINE");
    refuses((ga_lfht_options){.flags = GA_LFHT_SHRINK, .variant = GA_LFHT_SNF}, GA_ERR_ARGUMENT,
            "lfht: SNF with GA_LFHT_SHRINK: its hash nodes stay; expected FHPA, FHP, FNF, CNF or "
            "INLINE");
    refuses((ga_lfht_options){.options_size = 8}, GA_ERR_ARGUMENT,
            "lfht: options_size=8: expected 72");
}

Test(lfht_options, refuses_a_heap_that_fails)
{
    ga_heap *heap = open_heap("fail:nth=1/system");
    refuses((ga_lfht_options){.heap = heap}, GA_ERR_MEMORY,
            "fail: refused as nth=1 says; requested 131096 bytes");
    cr_assert_eq(blocks_of(heap), 0);
    assert_ok(ga_heap_close(heap));
}

/* Nodes come from the heap of the environment if the options name no heap. */
Test(lfht_options, takes_the_heap_of_the_environment)
{
    ga_lfht *map;
    setenv("GPUALLOC_HOST", "fail:nth=1/system", 1);
    refuses((ga_lfht_options){0}, GA_ERR_MEMORY,
            "fail: refused as nth=1 says; requested 131096 bytes");
    setenv("GPUALLOC_HOST", "slab", 1);
    assert_ok(ga_lfht_open(&map, NULL));
    assert_ok(ga_lfht_insert(map, 1, 1, NULL));
    assert_ok(ga_lfht_close(map));
}

/* The first request for memory is the root. */
static void wants_root_of(uint32_t bits, ga_lfht_options options)
{
    char sentence[96];
    size_t head = options.variant == GA_LFHT_INLINE ? 0 : 24;
    options.heap = open_heap("fail:nth=1/system");
    snprintf(sentence, sizeof sentence, "fail: refused as nth=1 says; requested %zu bytes",
             ((size_t)8 << bits) + head);
    refuses(options, GA_ERR_MEMORY, sentence);
    assert_ok(ga_heap_close(options.heap));
}

/* The buckets of chains have fewer than 36 keys, those that lead to nodes of lines than 288. */
Test(lfht_options, makes_the_root_for_the_keys_that_it_expects)
{
    static const struct {
        uint64_t keys;
        uint32_t bits, lines;
    } cases[] = {{0, 14, 14},         {1, 14, 14},        {(36 << 14) - 1, 14, 14},
                 {36 << 14, 15, 14},  {4 << 20, 17, 14},  {(288 << 14) - 1, 17, 14},
                 {288 << 14, 18, 15}, {16 << 20, 19, 16}, {UINT64_MAX, 24, 24}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wants_root_of(cases[i].bits, (ga_lfht_options){.expected = cases[i].keys});
        wants_root_of(cases[i].lines,
                      (ga_lfht_options){.variant = GA_LFHT_INLINE, .expected = cases[i].keys});
    }
    wants_root_of(5, (ga_lfht_options){.expected = 4 << 20, .root = 5});
}

Test(lfht_options, refuses_to_do_without)
{
    ga_lfht *map;
    ga_lfht_found found;
    ga_lfht_stats stats;
    assert_fails(ga_lfht_open(NULL, NULL), GA_ERR_ARGUMENT,
                 "lfht: no place for the map: expected a pointer");
    assert_fails(ga_lfht_insert(NULL, 1, 1, NULL), GA_ERR_ARGUMENT,
                 "lfht: no map: expected one that is open");
    assert_fails(ga_lfht_remove(NULL, 1, NULL), GA_ERR_ARGUMENT,
                 "lfht: no map: expected one that is open");
    assert_fails(ga_lfht_drain(NULL), GA_ERR_ARGUMENT, "lfht: no map: expected one that is open");
    assert_ok(ga_lfht_open(&map, NULL));
    assert_fails(ga_lfht_lookup(map, 1, NULL), GA_ERR_ARGUMENT,
                 "lfht: no place for what is found: expected a pointer");
    assert_fails(ga_lfht_lookup(NULL, 1, &found), GA_ERR_ARGUMENT,
                 "lfht: no map: expected one that is open");
    assert_fails(ga_lfht_each(map, NULL, NULL), GA_ERR_ARGUMENT,
                 "lfht: no function to call: expected a pointer");
    assert_ok(ga_lfht_close(map));
    assert_ok(ga_lfht_close(NULL));
    cr_assert_eq(ga_lfht_size(NULL), 0);
    ga_lfht_get_stats(NULL, &stats);
    cr_assert_eq(stats.size + stats.bound, 0);
    cr_assert_str_eq(ga_lfht_variant_text(GA_LFHT_CNF), "CNF");
    cr_assert_str_eq(ga_lfht_variant_text((ga_lfht_variant)99), "?");
}

Test(lfht_options, refuses_arrays_that_are_not_there)
{
    ga_lfht *map;
    uint64_t keys[3] = {1, 2, 3};
    ga_lfht_found found[3];
    size_t done = 9;
    assert_ok(ga_lfht_open(&map, NULL));
    assert_fails(ga_lfht_lookup_batch(map, keys, 3, NULL), GA_ERR_ARGUMENT,
                 "lfht: no array of answers for 3 keys: expected a pointer");
    assert_fails(ga_lfht_lookup_batch(map, NULL, 3, found), GA_ERR_ARGUMENT,
                 "lfht: no array of keys for 3 keys: expected a pointer");
    assert_fails(ga_lfht_insert_batch(map, keys, NULL, 3, found, &done), GA_ERR_ARGUMENT,
                 "lfht: no array of values for 3 keys: expected a pointer");
    cr_assert_eq(done, 0);
    assert_fails(ga_lfht_insert_batch(NULL, keys, keys, 3, found, NULL), GA_ERR_ARGUMENT,
                 "lfht: no map: expected one that is open");
    assert_fails(ga_lfht_lookup_batch(NULL, keys, 3, found), GA_ERR_ARGUMENT,
                 "lfht: no map: expected one that is open");
    assert_fails(ga_lfht_build(map, keys, NULL, 3), GA_ERR_ARGUMENT,
                 "lfht: no array of values for 3 keys: expected a pointer");
    assert_fails(ga_lfht_build(NULL, keys, keys, 3), GA_ERR_ARGUMENT,
                 "lfht: no map: expected one that is open");
    assert_fails(ga_lfht_build(map, keys, keys, SIZE_MAX / 16), GA_ERR_MEMORY,
                 "lfht: no memory to sort 1152921504606846975 keys: expected 48 bytes for each");
    ga_lfht_call calls[2] = {{.op = GA_LFHT_INSERT}, {.op = GA_LFHT_REMOVE + 1}};
    done = 7;
    assert_fails(ga_lfht_batch(map, calls, 2, &done), GA_ERR_ARGUMENT,
                 "lfht: call 1 has op=6: expected 0 to 5");
    cr_assert_eq(done, 0);
    cr_assert_eq(ga_lfht_size(map), 0, "nothing of the batch was done");
    assert_fails(ga_lfht_batch(map, NULL, 2, &done), GA_ERR_ARGUMENT,
                 "lfht: no array of calls for 2 keys: expected a pointer");
    assert_fails(ga_lfht_batch(NULL, calls, 1, NULL), GA_ERR_ARGUMENT,
                 "lfht: no map: expected one that is open");
    assert_ok(ga_lfht_batch(map, NULL, 0, NULL));
    assert_ok(ga_lfht_lookup_batch(map, NULL, 0, NULL));
    assert_ok(ga_lfht_insert_batch(map, NULL, NULL, 0, NULL, NULL));
    assert_ok(ga_lfht_build(map, NULL, NULL, 0));
    assert_ok(ga_lfht_insert_batch(map, keys, keys, 3, NULL, NULL));
    cr_assert_eq(ga_lfht_size(map), 3);
    assert_ok(ga_lfht_close(map));
}

Test(lfht_options, knows_a_checked_map_that_is_closed)
{
    for (int v = 0; v < GA_LFHT_VARIANT_COUNT; v++) {
        const char *sentence = "lfht: the map is closed: expected one that is open";
        ga_lfht *map;
        ga_lfht_found found;
        ga_lfht_stats stats;
        uint64_t key = 1, seen = 0;
        ga_lfht_call call = {.op = GA_LFHT_LOOKUP};
        ga_lfht_options options = small_options((ga_lfht_variant)v, NULL);
        options.flags |= GA_LFHT_CHECK;
        assert_ok(ga_lfht_open(&map, &options));
        assert_ok(ga_lfht_insert(map, 1, 1, NULL));
        assert_ok(ga_lfht_close(map));
        assert_fails(ga_lfht_insert(map, 2, 2, NULL), GA_ERR_ARGUMENT, sentence);
        assert_fails(ga_lfht_lookup(map, 1, &found), GA_ERR_ARGUMENT, sentence);
        assert_fails(ga_lfht_remove(map, 1, &found), GA_ERR_ARGUMENT, sentence);
        assert_fails(ga_lfht_batch(map, &call, 1, NULL), GA_ERR_ARGUMENT, sentence);
        assert_fails(ga_lfht_lookup_batch(map, &key, 1, &found), GA_ERR_ARGUMENT, sentence);
        assert_fails(ga_lfht_insert_batch(map, &key, &key, 1, NULL, NULL), GA_ERR_ARGUMENT,
                     sentence);
        assert_fails(ga_lfht_build(map, &key, &key, 1), GA_ERR_ARGUMENT, sentence);
        assert_fails(ga_lfht_each(map, count_one, &seen), GA_ERR_ARGUMENT, sentence);
        assert_fails(ga_lfht_drain(map), GA_ERR_ARGUMENT, sentence);
        assert_fails(ga_lfht_close(map), GA_ERR_ARGUMENT, sentence);
        ga_lfht_get_stats(map, &stats);
        cr_assert_eq(ga_lfht_size(map) + stats.size + stats.lookups, 0);
    }
}
