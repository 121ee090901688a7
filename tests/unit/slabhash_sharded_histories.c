/* SPDX-License-Identifier: MIT
 *
 * Requests of several ranks for the same few keys in one batch, with operations of their own: for
 * each key there is an order of the requests in which each answer is right (linearizability; a
 * batch is the time of all its requests).
 */
#include <gpualloc/slabhash_sharded.h>

#include "support/sharded_scene.h"

enum {
    RANKS = 3,
    SHARED_KEYS = 40,
    EACH_MOST = 3, /* requests of a rank for a key */
    OF_KEY_MOST = RANKS * EACH_MOST,
    BATCHES = 40,
    VALUES_MOST = 1024, /* that a key may have, by the answers so far */
    VISITS_MOST = 1 << 16
};

/* A request for the key, and its answer. */
typedef struct request {
    uint8_t op, result;
    uint64_t value, found;
} request;

typedef struct history {
    request requests[OF_KEY_MOST];
    uint32_t count;
    uint64_t values[VALUES_MOST]; /* 0: the key is absent */
    uint32_t value_count;
} history;

static history histories[SHARED_KEYS];

static uint64_t state;

static uint64_t draw(uint64_t below)
{
    state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (state >> 33) % below;
}

static uint64_t value_after(const request *r, uint64_t value)
{
    return r->op == GA_SLABHASH_DELETE    ? 0
           : r->op == GA_SLABHASH_REPLACE ? r->value
           : r->op == GA_SLABHASH_APPLY   ? value + r->value
           : r->op == GA_SLABHASH_INSERT  ? (value ? value : r->value)
                                          : value;
}

/* Requests that are done, and the value then. */
typedef struct visit {
    uint32_t done;
    uint64_t value;
} visit;

static void add_visit(visit *visits, uint32_t *count, visit v)
{
    for (uint32_t i = 0; i < *count; i++) {
        if (visits[i].done == v.done && visits[i].value == v.value) {
            return;
        }
    }
    cr_assert_lt(*count, VISITS_MOST);
    visits[(*count)++] = v;
}

/* The values that the key may have after its requests. False: no order explains the answers. */
static bool explain(const history *before, history *after)
{
    static visit visits[VISITS_MOST];
    uint32_t count = 0;
    *after = (history){.count = 0};
    for (uint32_t i = 0; i < before->value_count; i++) {
        add_visit(visits, &count, (visit){0, before->values[i]});
    }
    for (uint32_t i = 0; i < count; i++) {
        visit v = visits[i];
        for (uint32_t k = 0; k < before->count; k++) {
            const request *r = &before->requests[k];
            bool is_next =
                !(v.done >> k & 1u) && r->found == v.value && r->result == (v.value != 0);
            if (is_next) {
                add_visit(visits, &count, (visit){v.done | 1u << k, value_after(r, v.value)});
            }
        }
        if (v.done + 1 == 1u << before->count) {
            after->values[after->value_count++] = v.value;
        }
    }
    return after->value_count != 0;
}

/* Deals requests of all ranks, those of each in the order of keys. */
static void deal(calls *c, world *w, uint8_t ops[RANKS][KEYS])
{
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        sets[rank].count = 0;
        for (uint64_t key = 0; key < SHARED_KEYS; key++) {
            for (uint64_t n = draw(EACH_MOST + 1); n; n--) {
                uint64_t i = sets[rank].count++;
                set_request(&sets[rank], i, key, 1 + draw(1000));
                ops[rank][i] = (uint8_t)draw(GA_SLABHASH_OP_COUNT);
            }
        }
        c->batches[rank] = batch_of(&sets[rank], w->mode, GA_SLABHASH_APPLY);
        c->batches[rank].how = GA_SLABHASH_ADD;
        c->batches[rank].ops = ops[rank];
    }
}

static void collect(const world *w, uint8_t ops[RANKS][KEYS])
{
    for (uint32_t key = 0; key < SHARED_KEYS; key++) {
        histories[key].count = 0;
    }
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        for (uint64_t i = 0; i < sets[rank].count; i++) {
            history *h = &histories[sets[rank].keys64[i]];
            h->requests[h->count++] =
                (request){ops[rank][i], sets[rank].results[i], sets[rank].values64[i],
                          found_of(&sets[rank], w->mode, i)};
        }
    }
}

/* An answer that no request has given has no order. */
static void expect_that_errors_show(const history *h)
{
    static history wrong, after;
    wrong = *h;
    if (wrong.count) {
        wrong.requests[0].found = UINT64_MAX;
        wrong.requests[0].result = GA_SLABHASH_FOUND;
        cr_assert_not(explain(&wrong, &after));
    }
}

static void try_mode(ga_slabhash_mode mode)
{
    static uint8_t ops[RANKS][KEYS];
    static history after;
    ranks all;
    world w = {.mode = mode, .options.piece = 25}; /* several pieces */
    begin(&all, &w, RANKS);
    for (uint32_t key = 0; key < SHARED_KEYS; key++) {
        histories[key] = (history){.value_count = 1};
    }
    for (uint32_t batch = 0; batch < BATCHES; batch++) {
        calls c = {.w = &w, .counted = true};
        deal(&c, &w, ops);
        ranks_run(&all, run_one, &c);
        for (uint32_t rank = 0; rank < RANKS; rank++) {
            assert_ok(c.statuses[rank]);
        }
        collect(&w, ops);
        for (uint32_t key = 0; key < SHARED_KEYS; key++) {
            expect_that_errors_show(&histories[key]);
            cr_assert(explain(&histories[key], &after), "batch %u, key %u", batch, key);
            histories[key] = after;
        }
    }
    end(&all, &w);
}

Test(slabhash_sharded_histories, maps_of_32_bits)
{
    try_mode(GA_SLABHASH_MAP32);
}

Test(slabhash_sharded_histories, maps_of_64_bits)
{
    try_mode(GA_SLABHASH_MAP64);
}
