/* SPDX-License-Identifier: MIT
 *
 * Slab hashes that run out of memory: in the middle of a batch, and at each request of a heap.
 */
#include "support/slabhash_scene.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* 1 MiB of slabs besides the buckets: room for 8192 slabs of 15. */
Test(slabhash_faults, full_in_the_middle_of_a_batch)
{
    enum {
        KEYS_MAX = 8193 * 15
    };
    ga_slabhash *table = open_table((ga_slabhash_options){
        .mode = GA_SLABHASH_MAP32, .flags = GA_SLABHASH_MULTI, .buckets = 1024, .limit = 1 << 20});
    uint32_t *keys = calloc(2 * KEYS_MAX, sizeof *keys);
    uint64_t done, size;
    ga_slabhash_batch batch = {
        .count = 2 * KEYS_MAX, .keys = keys, .values = keys, .op = GA_SLABHASH_INSERT};
    for (uint32_t i = 0; i < 2 * KEYS_MAX; i++) {
        keys[i] = i;
    }
    assert_fails_with(ga_slabhash_run(table, &batch, &done), GA_ERR_MEMORY,
                      "slabhash: no slabs for ");
    assert_ok(ga_slabhash_size(table, &size));
    cr_assert_eq(size, done);
    cr_assert_eq(done, (8192 + 1024) * 15);
    assert_fails(ga_slabhash_insert(table, 5, 5, NULL), GA_ERR_MEMORY,
                 "slab: all 8192 units of 128 bytes are taken");
    assert_ok(ga_slabhash_clear(table));
    assert_ok(ga_slabhash_insert(table, 5, 5, NULL));
    free(keys);
    assert_ok(ga_slabhash_close(table));
}

/* Each request in a table's life fails once: the table stays as it was, and nothing leaks. */
Test(slabhash_faults, each_request_fails_once)
{
    for (uint32_t nth = 1; nth <= 4; nth++) {
        char spec[64];
        ga_heap *heap;
        ga_slabhash *table = NULL;
        ga_stats stats;
        uint32_t failures = 0;
        snprintf(spec, sizeof spec, "fail:nth=%u/system", nth);
        assert_ok(ga_heap_open(&heap, GA_PLACE_HOST, 0, spec));
        ga_slabhash_options options = {.options_size = sizeof options,
                                       .mode = GA_SLABHASH_MAP64,
                                       .buckets = 1,
                                       .seed = 1,
                                       .heap = heap};
        while (ga_slabhash_open(&table, &options) != GA_OK && failures < 5) {
            failures++;
        }
        for (uint64_t key = 0; key < 20000; key++) {
            ga_slabhash_found found;
            if (ga_slabhash_insert(table, key % 40, key, NULL) == GA_ERR_MEMORY) {
                assert_ok(ga_slabhash_search(table, key % 40, &found));
                cr_assert(!found.found);
                failures++;
                assert_ok(ga_slabhash_insert(table, key % 40, key, NULL));
            }
        }
        cr_assert_eq(failures, nth <= 2 ? 1 : 0, "request %u: %u failures", nth, failures);
        assert_ok(ga_slabhash_close(table));
        assert_ok(ga_heap_stats(heap, &stats));
        cr_assert_eq(stats.live_blocks, 0);
        assert_ok(ga_heap_close(heap));
    }
}
