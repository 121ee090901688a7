/* SPDX-License-Identifier: MIT
 *
 * Sharded tables of host threads whose ranks are threads: opened, filled, and what batches answer.
 */
#ifndef GPUALLOC_TESTS_SUPPORT_SHARDED_SCENE_H
#define GPUALLOC_TESTS_SUPPORT_SHARDED_SCENE_H

#include <gpualloc/slabhash_sharded.h>

#include "expect.h"
#include "ranks.h"

#include <string.h>

enum {
    KEYS = 4000,
    PIECE = 700
};

/* ---- a table on each rank -------------------------------------------------------------------- */

typedef struct world {
    ga_slabhash_mode mode;
    uint32_t flags, buckets;
    uint64_t limit;
    ga_sharded_options options;
    ga_status opened[RANKS_MOST];
    ga_slabhash_sharded *tables[RANKS_MOST];
} world;

static inline void open_one(ranks *all, uint32_t rank, void *context)
{
    world *w = context;
    ga_exchange exchange = ranks_exchange(all, rank);
    ga_slabhash_options options = {.options_size = sizeof options,
                                   .mode = w->mode,
                                   .flags = w->flags,
                                   .buckets = w->buckets,
                                   .limit = w->limit,
                                   .seed = 7};
    w->opened[rank] =
        ga_slabhash_sharded_open_host(&w->tables[rank], &exchange, &options, &w->options);
}

static inline void begin(ranks *all, world *w, uint32_t count)
{
    ranks_begin(all, count);
#ifdef SHARDED_SHARES
    all->shares = true;
#endif
    w->options.options_size = sizeof w->options;
    w->options.piece = w->options.piece ? w->options.piece : PIECE;
    w->buckets = w->buckets ? w->buckets : 300;
    ranks_run(all, open_one, w);
    for (uint32_t i = 0; i < count; i++) {
        assert_ok(w->opened[i]);
    }
}

static inline void end(ranks *all, world *w)
{
    for (uint32_t i = 0; i < all->count; i++) {
        assert_ok(ga_slabhash_sharded_close(w->tables[i]));
    }
    ranks_end(all);
}

/* ---- batches --------------------------------------------------------------------------------- */

/* What each rank passes, and gets. */
typedef struct calls {
    world *w;
    ga_slabhash_batch batches[RANKS_MOST];
    uint64_t counts[RANKS_MOST][4];
    ga_status statuses[RANKS_MOST];
    bool counted;
} calls;

static inline void run_one(ranks *all, uint32_t rank, void *context)
{
    calls *c = context;
    (void)all;
    c->statuses[rank] = ga_slabhash_sharded_run(c->w->tables[rank], &c->batches[rank],
                                                c->counted ? c->counts[rank] : NULL, NULL);
}

/* Requests of a rank, of 32 or 64 bits. */
typedef struct requests {
    uint64_t count;
    uint64_t keys64[KEYS], values64[KEYS], found64[KEYS];
    uint32_t keys32[KEYS], values32[KEYS], found32[KEYS];
    uint8_t results[KEYS];
} requests;

static requests sets[RANKS_MOST];

static inline void set_request(requests *r, uint64_t index, uint64_t key, uint64_t value)
{
    r->keys64[index] = key;
    r->values64[index] = value;
    r->keys32[index] = (uint32_t)key;
    r->values32[index] = (uint32_t)value;
    r->results[index] = 0xff;
    r->found32[index] = 0xffffffff;
    r->found64[index] = UINT64_MAX;
}

static inline uint64_t found_of(const requests *r, ga_slabhash_mode mode, uint64_t index)
{
    return mode == GA_SLABHASH_MAP64 ? r->found64[index] : r->found32[index];
}

static inline ga_slabhash_batch batch_of(requests *r, ga_slabhash_mode mode, ga_slabhash_op op)
{
    bool wide = mode == GA_SLABHASH_MAP64;
    bool puts = op != GA_SLABHASH_SEARCH && op != GA_SLABHASH_DELETE;
    return (ga_slabhash_batch){.count = r->count,
                               .keys = wide ? (void *)r->keys64 : r->keys32,
                               .values = !puts  ? NULL
                                         : wide ? (void *)r->values64
                                                : r->values32,
                               .results = r->results,
                               .found = wide ? (void *)r->found64 : r->found32,
                               .op = op};
}

static inline void run_all(ranks *all, world *w, ga_slabhash_op op, calls *c)
{
    *c = (calls){.w = w, .counted = true};
    for (uint32_t i = 0; i < all->count; i++) {
        c->batches[i] = batch_of(&sets[i], w->mode, op);
    }
    ranks_run(all, run_one, c);
    for (uint32_t i = 0; i < all->count; i++) {
        assert_ok(c->statuses[i]);
    }
}

static inline uint64_t value_of(ga_slabhash_mode mode, uint64_t key)
{
    return mode == GA_SLABHASH_SET32 ? 0 : key * 3 + 1;
}

/* Each key of all ranks together once; ranks have different numbers of them, the last one none. */
static inline uint64_t deal_keys(const ranks *all, ga_slabhash_mode mode)
{
    uint64_t key = 0;
    for (uint32_t rank = 0; rank < all->count; rank++) {
        sets[rank].count = rank + 1 == all->count && rank ? 0 : KEYS - 37 * rank;
        for (uint64_t i = 0; i < sets[rank].count; i++, key++) {
            set_request(&sets[rank], i, key, value_of(mode, key));
        }
    }
    return key;
}

static inline void expect_results(const ranks *all, const world *w, const calls *c, uint8_t result,
                                  bool has_value)
{
    for (uint32_t rank = 0; rank < all->count; rank++) {
        const requests *r = &sets[rank];
        for (uint64_t i = 0; i < r->count; i++) {
            uint64_t value = has_value ? value_of(w->mode, r->keys64[i]) : 0;
            cr_assert_eq(r->results[i], result, "rank %u, request %lu: %u", rank, i, r->results[i]);
            cr_assert_eq(found_of(r, w->mode, i), value, "rank %u, request %lu", rank, i);
        }
        cr_assert_eq(c->counts[rank][result], r->count);
    }
}

typedef struct sizes {
    world *w;
    uint64_t sizes[RANKS_MOST];
} sizes;

static inline void size_one(ranks *all, uint32_t rank, void *context)
{
    sizes *s = context;
    (void)all;
    assert_ok(ga_slabhash_sharded_size(s->w->tables[rank], &s->sizes[rank], NULL));
}

static inline void expect_size(ranks *all, world *w, uint64_t size)
{
    sizes s = {.w = w};
    ranks_run(all, size_one, &s);
    for (uint32_t i = 0; i < all->count; i++) {
        cr_assert_eq(s.sizes[i], size, "rank %u: %lu of %lu", i, s.sizes[i], size);
    }
}

static inline void clear_one(ranks *all, uint32_t rank, void *context)
{
    const world *w = context;
    (void)all;
    assert_ok(ga_slabhash_sharded_clear(w->tables[rank], NULL));
}

#endif
