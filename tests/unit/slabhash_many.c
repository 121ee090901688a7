/* SPDX-License-Identifier: MIT
 *
 * Requests of a tile that are served together (many_tile.h), and searches by whole slabs
 * (search_tile.h), as in kernels, compared with an array of the expected results.
 */
#include "../../hashtables/slabhash/host/table.h"
#include "../../hashtables/slabhash/table/many_tile.h"
#include "../../hashtables/slabhash/table/search_tile.h"

#include "support/expect.h"
#include "support/random.h"

#include <inttypes.h>

/* 1 if keys are in order, as in device memory. */
static uint32_t ordered;

static ga_slabhash *open_table(ga_slabhash_options options, bool in_order)
{
    ga_slabhash *table = NULL;
    options.options_size = sizeof options;
    options.seed = 1;
    assert_ok(ga_slabhash_open(&table, &options));
    ordered = 1;
    table->view.ordered = in_order ? &ordered : NULL;
    table->view.exceeds_l2 = options.buckets == 200; /* both methods of loading */
    return table;
}

/* One request by itself, with as many slabs as it needs. */
static ga_slabhash_answer serve_one(ga_slabhash *table, ga_slabhash_operation to)
{
    for (;;) {
        uint32_t seen = slabhash_room(table);
        ga_slab_claimed claimed = ga_slabhash_claim_begin(0);
        ga_slabhash_answer answer = ga_slabhash_do(table->kind, table->view, SLABHASH_TILE,
                                                   &claimed, slabhash_hash_of(table, to.key), to);
        ga_slabhash_claim_end(table->view, SLABHASH_TILE, &claimed);
        if (answer.result != GA_SLABHASH_FULL) {
            return answer;
        }
        assert_ok(ga_slabhash_grow(table, seen));
    }
}

/* Append slabs for requests that need only a slab, as far as there is memory. Returns the mask of
 * these requests. */
static uint32_t append(ga_slabhash *table, uint32_t asking, const ga_slabhash_requests *many)
{
    ga_slab_claimed claimed = ga_slabhash_claim_begin(0);
    ga_slabhash_pairs pairs = {many->key,        many->key_high, many->value,
                               many->value_high, many->row,      many->row_high};
    uint32_t lacking = 0;
    for (uint32_t lane = 0; lane < 8; lane++) {
        lacking |= many->result[lane] == GA_SLABHASH_NEEDS_SLAB ? asking & 1u << lane : 0;
    }
    uint32_t done =
        ga_slabhash_append_all(table->kind, table->view, SLABHASH_TILE, lacking, &pairs, &claimed);
    ga_slabhash_claim_end(table->view, SLABHASH_TILE, &claimed);
    return done;
}

/* As a warp of kernels does: together as far as possible, then one by one. */
static void serve(ga_slabhash *table, uint32_t fixed, uint32_t asking, const uint64_t *keys,
                  const uint64_t *values, const uint32_t *whats, ga_slabhash_answer *answers,
                  uint32_t *later)
{
    ga_slabhash_requests many = {.no_peek = keys[0] % 2}; /* both methods of searching, too */
    uint32_t served = 0;
    for (uint32_t lane = 0; lane < 8; lane++) {
        many.key[lane] = (uint32_t)keys[lane];
        many.key_high[lane] = (uint32_t)(keys[lane] >> 32);
        many.value[lane] = (uint32_t)values[lane];
        many.value_high[lane] = (uint32_t)(values[lane] >> 32);
        many.op[lane] = whats[lane];
        many.result[lane] = GA_SLABHASH_DEFERRED;
        served |= (ga_slabhash_is_served(table->kind, whats[lane]) ? 1u : 0u) << lane;
        ga_slabhash_requests_begin(table->view, ga_slabhash_is_ordered(table->view), &many, lane,
                                   slabhash_hash_of(table, keys[lane]));
    }
    ga_slabhash_serve_many(table->kind, fixed, table->view, ga_tile_abreast(8), asking & served,
                           &many);
    uint32_t appended = append(table, asking, &many);
    for (uint32_t lane = 0; lane < 8; lane++) {
        bool has = appended >> lane & 1u;
        answers[lane].result = has ? (uint32_t)GA_SLABHASH_ABSENT : many.result[lane];
        answers[lane].value = many.was[lane] | (uint64_t)many.was_high[lane] << 32;
        ga_slabhash_operation to = {.key = keys[lane], .value = values[lane], .op = whats[lane]};
        if ((asking >> lane) & 1u && !has && many.result[lane] >= GA_SLABHASH_DEFERRED) {
            answers[lane] = serve_one(table, to);
            ++*later;
        }
    }
}

/* As the kernel of batches of searches does. */
static void search(ga_slabhash *table, uint32_t asking, const uint64_t *keys,
                   ga_slabhash_answer *answers)
{
    ga_slabhash_exchange desk;
    ga_slabhash_searches all = {0};
    for (uint32_t lane = 0; lane < 8; lane++) {
        uint64_t hash = slabhash_hash_of(table, keys[lane]);
        ga_slabhash_search_begin(table->view, &all, lane, keys[lane], hash);
    }
    while (asking) {
        ga_slabhash_publish_requests(SLABHASH_TILE, 0, &all, &desk);
        ga_slabhash_load_requested_slabs(table->kind, SLABHASH_TILE, 0, &desk);
        for (uint32_t lane = 0; lane < 8; lane++) {
            if ((asking >> lane & 1u) &&
                ga_slabhash_decide_search(table->kind, table->view, &all, lane, lane, &desk,
                                          slabhash_hash_of(table, keys[lane]))) {
                asking &= ~(1u << lane);
                answers[lane].result = all.result[lane];
                answers[lane].value = all.value[lane] | (uint64_t)all.value_high[lane] << 32;
            }
        }
    }
}

/* The results of a table of unique keys, from an array of its contents. */
static ga_slabhash_answer modelled(ga_slabhash_mode mode, bool *there, uint64_t *value, uint32_t op,
                                   uint64_t given)
{
    ga_slabhash_answer answer = {*there ? GA_SLABHASH_FOUND : GA_SLABHASH_ABSENT,
                                 *there && mode != GA_SLABHASH_SET32 ? *value : 0};
    if (op == GA_SLABHASH_REPLACE || (op == GA_SLABHASH_INSERT && !*there)) {
        *value = given;
    }
    *there = op == GA_SLABHASH_DELETE ? false : *there || op != GA_SLABHASH_SEARCH;
    return answer;
}

enum {
    SERVED_KEYS = 600
};

/* FLUSH, after which there is no order; or clear, after which there is again. */
static void flush_or_clear(ga_slabhash *table, uint64_t chance, bool *there)
{
    if (chance % 512 == 0) {
        assert_ok(ga_slabhash_flush(table));
        ordered = 0;
    } else if (chance % 512 == 1) {
        assert_ok(ga_slabhash_clear(table));
        ordered = 1;
        memset(there, 0, SERVED_KEYS * sizeof *there);
    }
}

static void serve_random(ga_slabhash_mode mode, uint32_t buckets, uint32_t path, bool in_order,
                         uint64_t seed)
{
    static const uint32_t whats_of[] = {GA_SLABHASH_SEARCH, GA_SLABHASH_INSERT, GA_SLABHASH_INSERT,
                                        GA_SLABHASH_REPLACE, GA_SLABHASH_DELETE};
    bool there[SERVED_KEYS] = {false};
    uint64_t value[SERVED_KEYS] = {0};
    uint32_t later = 0, all = 0;
    ga_slabhash *table =
        open_table((ga_slabhash_options){.mode = mode, .buckets = buckets, .path = path}, in_order);
    for (uint32_t round = 0; round < 4000; round++) {
        uint64_t keys[8], values[8];
        uint32_t whats[8], numbers[8], asking = (uint32_t)random_next(&seed) & 0xff;
        bool one = random_next(&seed) % 2; /* one operation for all: as in kernels compiled for one
                                     * operation */
        uint32_t what = whats_of[random_next(&seed) % 2];
        ga_slabhash_answer answers[8];
        uint32_t first = (uint32_t)random_next(&seed) % SERVED_KEYS;
        for (uint32_t lane = 0; lane < 8; lane++) { /* different keys: each has one right result */
            numbers[lane] = (first + lane * 7) % SERVED_KEYS;
            keys[lane] = mode == GA_SLABHASH_MAP64 ? numbers[lane] * UINT64_C(0x9e3779b97f4a7c15)
                                                   : numbers[lane] * 2654435761u % 0xffffffu;
            values[lane] = random_next(&seed) >> (mode == GA_SLABHASH_MAP64 ? 1 : 33);
            whats[lane] = one ? what : whats_of[random_next(&seed) % 5];
        }
        if (one && what == GA_SLABHASH_SEARCH && round % 2) {
            search(table, asking, keys, answers);
        } else {
            serve(table, one ? what : GA_SLABHASH_OP_COUNT, asking, keys, values, whats, answers,
                  &later);
        }
        for (uint32_t lane = 0; lane < 8; lane++) {
            if ((asking >> lane) & 1u) {
                uint32_t n = numbers[lane];
                ga_slabhash_answer right =
                    modelled(mode, &there[n], &value[n], whats[lane], values[lane]);
                cr_assert(answers[lane].result == right.result &&
                              answers[lane].value == right.value,
                          "round %u, operation %u on key %" PRIu64 ": %u %" PRIx64
                          ", expected %u %" PRIx64,
                          round, whats[lane], keys[lane], answers[lane].result, answers[lane].value,
                          right.result, right.value);
                all++;
            }
        }
        flush_or_clear(table, random_next(&seed), there);
    }
    cr_assert(later < all / 2, "%u of %u were served one by one", later, all);
    assert_ok(ga_slabhash_close(table));
}

Test(slabhash, requests_that_are_served_together)
{
    for (int mode = 0; mode < GA_SLABHASH_MODE_COUNT; mode++) {
        for (int in_order = 0; in_order < 2; in_order++) {
            serve_random((ga_slabhash_mode)mode, 200, 1, in_order, 1);
            serve_random((ga_slabhash_mode)mode, 200, 4, in_order, 2);
            serve_random((ga_slabhash_mode)mode, 8, 1, in_order, 3);  /* long chains */
            serve_random((ga_slabhash_mode)mode, 60, 6, in_order, 4); /* full buckets */
        }
    }
}

/* One new key in all lanes: one of them has inserted it. */
Test(slabhash, equal_requests_that_are_served_together)
{
    for (int mode = 0; mode < 2 * GA_SLABHASH_MODE_COUNT; mode++) {
        ga_slabhash *table = open_table(
            (ga_slabhash_options){.mode = (ga_slabhash_mode)(mode / 2), .buckets = 4, .path = 2},
            mode % 2);
        for (uint64_t key = 1; key < 100; key++) {
            uint64_t keys[8], values[8] = {7, 7, 7, 7, 7, 7, 7, 7}, size;
            uint32_t whats[8], later = 0, in = 0;
            ga_slabhash_answer answers[8];
            for (uint32_t lane = 0; lane < 8; lane++) {
                keys[lane] = key;
                whats[lane] = GA_SLABHASH_INSERT;
            }
            serve(table, GA_SLABHASH_INSERT, 0xff, keys, values, whats, answers, &later);
            for (uint32_t lane = 0; lane < 8; lane++) {
                in += answers[lane].result == GA_SLABHASH_ABSENT;
            }
            assert_ok(ga_slabhash_size(table, &size));
            cr_assert(in == 1 && size == key, "key %" PRIu64 ": put in by %u", key, in);
        }
        assert_ok(ga_slabhash_close(table));
    }
}

/* Keys that no table can have: no search returns the contents of empty slots or tombstones. */
Test(slabhash, searches_for_reserved_keys)
{
    for (int mode = 0; mode < GA_SLABHASH_MODE_COUNT; mode++) {
        ga_slabhash *table =
            open_table((ga_slabhash_options){.mode = (ga_slabhash_mode)mode, .buckets = 4}, true);
        uint64_t max = mode == GA_SLABHASH_MAP64 ? UINT64_MAX : UINT32_MAX;
        uint64_t keys[8] = {max, max - 1, 5, max, 6, max - 1, 7, max};
        ga_slabhash_answer answers[8];
        for (uint64_t key = 5; key < 8; key++) {
            ga_slabhash_operation to = {.key = key, .value = key * 3, .op = GA_SLABHASH_INSERT};
            (void)serve_one(table, to);
            to.op = GA_SLABHASH_DELETE;
            (void)(key == 6 ? serve_one(table, to) : (ga_slabhash_answer){0});
        }
        search(table, 0xff, keys, answers);
        for (uint32_t lane = 0; lane < 8; lane++) {
            bool there = keys[lane] == 5 || keys[lane] == 7;
            uint32_t right = keys[lane] > ga_slabhash_key_max(table->kind) ? GA_SLABHASH_REFUSED
                             : there                                       ? GA_SLABHASH_FOUND
                                                                           : GA_SLABHASH_ABSENT;
            uint64_t value = there && mode != GA_SLABHASH_SET32 ? keys[lane] * 3 : 0;
            cr_assert(answers[lane].result == right && answers[lane].value == value,
                      "mode %d, key %" PRIx64 ": %u", mode, keys[lane], answers[lane].result);
        }
        assert_ok(ga_slabhash_close(table));
    }
}
