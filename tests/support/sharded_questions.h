/* SPDX-License-Identifier: MIT
 *
 * Tables of host threads whose keys have many pairs, what their ranks ask for, and what they get.
 */
#ifndef GPUALLOC_TESTS_SUPPORT_SHARDED_QUESTIONS_H
#define GPUALLOC_TESTS_SUPPORT_SHARDED_QUESTIONS_H

#include "sharded_scene.h"

#include <stdlib.h>

enum {
    DIFFERENT = 600, /* keys of a table */
    EACH = 4096,     /* numbers of values that a key has for its own */
    MANY = 3000,     /* values of few keys: more than memory for values is taken at first */
    ASKED = 2000,    /* keys of a rank, at most */
    GUARD = 16       /* numbers behind `room` */
};

#define UNTOUCHED UINT64_C(0x7777777777777777)

/* ---- the pairs of a table -------------------------------------------------------------------- */

static inline uint64_t pairs_of(const world *w, uint64_t key)
{
    if (key >= DIFFERENT) {
        return 0; /* reserved keys, too */
    }
    if (!(w->flags & GA_SLABHASH_MULTI)) {
        return key % 3 != 0;
    }
    return key % 7 == 0 ? 0 : key == 5 || key == 500 ? MANY : key == 11 ? 700 : key % 4;
}

static inline uint64_t pairs_of_all(const world *w)
{
    uint64_t sum = 0;
    for (uint64_t key = 0; key < DIFFERENT; key++) {
        sum += pairs_of(w, key);
    }
    return sum;
}

/* Each rank inserts the pairs of its shard. */
static inline void fill_one(ranks *all, uint32_t rank, void *context)
{
    const world *w = context;
    ga_slabhash *shard = ga_slabhash_sharded_table(w->tables[rank]);
    (void)all;
    for (uint64_t key = 0; key < DIFFERENT; key++) {
        bool is_own = ga_slabhash_sharded_owner(w->tables[rank], key) == rank;
        for (uint64_t i = 0; is_own && i < pairs_of(w, key); i++) {
            assert_ok(ga_slabhash_insert(shard, key, key * EACH + i, NULL));
        }
    }
}

static inline void begin_full(ranks *all, world *w, uint32_t count)
{
    begin(all, w, count);
    ranks_run(all, fill_one, w);
}

/* ---- what a rank asks for, and gets ---------------------------------------------------------- */

typedef struct question {
    uint64_t count, room, total;
    uint64_t keys64[ASKED], counts[ASKED], firsts[ASKED];
    uint32_t keys32[ASKED];
    uint64_t *values;
    bool without_counts, without_firsts;
    ga_status status;
} question;

typedef struct questions {
    world *w;
    bool removes;
    question of[RANKS_MOST];
} questions;

static inline void ask_for(question *q, uint64_t key)
{
    q->keys64[q->count] = key;
    q->keys32[q->count++] = (uint32_t)key;
}

/* Keys with and without pairs, duplicates, and a reserved one; of the last rank of several none. */
static inline questions *make_questions(world *w, const ranks *all)
{
    questions *qs = calloc(1, sizeof *qs);
    qs->w = w;
    for (uint32_t rank = 0; rank < all->count; rank++) {
        question *q = &qs->of[rank];
        uint64_t count = rank && rank + 1 == all->count ? 0 : 1000 + 131 * rank;
        for (uint64_t i = 0; i < count; i++) {
            uint64_t key = i % 97 == 96 ? DIFFERENT + i : (i * 7919 + rank * 31) % DIFFERENT;
            ask_for(q, i == 50 ? UINT64_MAX : i == 51 ? 5 : key);
        }
    }
    return qs;
}

static inline uint64_t pairs_asked_for(const world *w, const question *q)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < q->count; i++) {
        sum += pairs_of(w, q->keys64[i]);
    }
    return sum;
}

static inline ga_slabhash_all batch_of_question(const world *w, question *q)
{
    return (ga_slabhash_all){.count = q->count,
                             .keys = w->mode == GA_SLABHASH_MAP64 ? (void *)q->keys64 : q->keys32,
                             .counts = q->without_counts ? NULL : q->counts,
                             .firsts = q->without_firsts ? NULL : q->firsts,
                             .values = q->values,
                             .room = q->room};
}

static inline void ask_one(ranks *all, uint32_t rank, void *context)
{
    questions *qs = context;
    question *q = &qs->of[rank];
    (void)all;
    q->values = malloc((q->room + GUARD) * sizeof *q->values);
    for (uint64_t i = 0; i < q->room + GUARD; i++) {
        q->values[i] = UNTOUCHED;
    }
    ga_slabhash_all batch = batch_of_question(qs->w, q);
    q->status = qs->removes
                    ? ga_slabhash_sharded_delete_all(qs->w->tables[rank], &batch, &q->total, NULL)
                    : ga_slabhash_sharded_search_all(qs->w->tables[rank], &batch, &q->total, NULL);
}

static inline void ask(ranks *all, questions *qs)
{
    for (uint32_t rank = 0; rank < all->count; rank++) {
        free(qs->of[rank].values);
    }
    ranks_run(all, ask_one, qs);
}

static inline void free_questions(const ranks *all, questions *qs)
{
    for (uint32_t rank = 0; rank < all->count; rank++) {
        free(qs->of[rank].values);
    }
    free(qs);
}

/* The values of one key that are stored: each is one of its own, and none is there twice. */
static inline void expect_values(const world *w, const question *q, uint64_t i)
{
    static _Thread_local uint8_t seen[EACH];
    uint64_t key = q->keys64[i];
    memset(seen, 0, sizeof seen);
    for (uint64_t at = q->firsts[i]; at < q->firsts[i] + q->counts[i] && at < q->room; at++) {
        uint64_t value = q->values[at];
        if (w->mode == GA_SLABHASH_SET32) {
            cr_assert_eq(value, 0);
            continue;
        }
        cr_assert_eq(value / EACH, key, "key %lu, at %lu: %lu", key, at, value);
        cr_assert_lt(value % EACH, pairs_of(w, key));
        cr_assert_eq(seen[value % EACH]++, 0);
    }
}

/* Counts are right, and the ranges of all keys are those of the values, each once. */
static inline void expect_found(const world *w, const question *q)
{
    uint8_t *used = calloc(q->total + 1, 1);
    assert_ok(q->status);
    cr_assert_eq(q->total, pairs_asked_for(w, q), "%lu, not %lu", q->total, pairs_asked_for(w, q));
    for (uint64_t i = 0; i < q->count && !q->without_counts; i++) {
        cr_assert_eq(q->counts[i], pairs_of(w, q->keys64[i]), "key %lu: %lu", q->keys64[i],
                     q->counts[i]);
        for (uint64_t k = 0; k < q->counts[i] && !q->without_firsts; k++) {
            cr_assert_lt(q->firsts[i] + k, q->total, "key %lu", q->keys64[i]);
            cr_assert_eq(used[q->firsts[i] + k]++, 0, "key %lu", q->keys64[i]);
        }
        if (!q->without_firsts) {
            expect_values(w, q, i);
        }
    }
    uint64_t stored = q->total < q->room ? q->total : q->room;
    for (uint64_t at = 0; at < q->room + GUARD; at++) {
        cr_assert_eq(q->values[at] == UNTOUCHED, at >= stored, "at %lu of %lu", at, stored);
    }
    free(used);
}

static inline void expect_all_found(const ranks *all, const questions *qs)
{
    for (uint32_t rank = 0; rank < all->count; rank++) {
        expect_found(qs->w, &qs->of[rank]);
    }
}

static inline void give_room(const ranks *all, questions *qs)
{
    for (uint32_t rank = 0; rank < all->count; rank++) {
        qs->of[rank].room = pairs_asked_for(qs->w, &qs->of[rank]) + 100;
    }
}

static inline void expect_statuses(const ranks *all, const questions *qs, ga_status status)
{
    for (uint32_t rank = 0; rank < all->count; rank++) {
        cr_assert_eq(qs->of[rank].status, status, "rank %u: %d", rank, qs->of[rank].status);
    }
}

/* The table works after a failure that all ranks agreed on. */
static inline void expect_search(ranks *all, questions *qs)
{
    qs->removes = false;
    give_room(all, qs);
    ask(all, qs);
    expect_all_found(all, qs);
}

#endif
