/* SPDX-License-Identifier: MIT
 *
 * Short histories of tables of unique keys, each of which must be linearizable
 * (support/histories.h), on small tables that stand before a mark, a link or a place that
 * everybody wants: other keys fill them up, and deleted places pile up until a flush. A third of
 * them grows, and is compacted by one of the threads meanwhile; in another third keys stand in
 * their order, and most calls are made as lanes of kernels make them (many_tile.h). At the end of
 * each history no key may be there twice.
 *
 * GA_SLABHASH_MUTANT weakens one thing at a time; each of these programs must fail (meson.build).
 */
#include "../../hashtables/slabhash/many_tile.h"
#include "../../hashtables/slabhash/table.h"
#include "stress.h"

#include "support/hashes.h"
#include "support/histories.h"
#include "support/random.h"

#include <stdio.h>
#include <string.h>

enum {
    THREADS_MOST = 4,
    CALLS = 6, /* of each thread */
    KEYS_MOST = 4,
    BATCH = 256, /* histories of a table, and between two looks at the clock */
    FLUSHES = 8, /* histories between two flushes */
    ALL = THREADS_MOST * CALLS,
    OTHERS = 1000 /* keys from here on fill tables up */
};
_Static_assert((int)ALL <= (int)HISTORY_MOST, "a history has room for all calls");

static struct {
    ga_heap *heap;
    ga_slabhash *table;
    ga_slabhash_mode mode;
    bool grows;
    bool in_order;
    uint32_t ordered; /* what tables of the second kind look at */
    uint64_t random;
    history_call calls[ALL];
    uint64_t histories, keys, threads;
    uint64_t compacts; /* before which call of the last thread */
    uint64_t clock;    /* seq_cst: moments */
    uint32_t arrivals; /* seq_cst: threads that have come to a barrier */
} world;

/* In sets every key has the value 1. */
static uint64_t value_of(uint64_t value)
{
    return world.mode == GA_SLABHASH_SET32 ? 1 : value;
}

/* By all of a tile's lanes, one of which asks; then, as in kernels, by the tile. */
static ga_status as_a_lane(uint32_t op, history_call *c, ga_slabhash_found *was)
{
    uint32_t lane = (uint32_t)c->value % 8;
    uint64_t hash = slabhash_hash_of(world.table, c->key);
    ga_slabhash_many many = {0};
    many.key[lane] = (uint32_t)c->key;
    many.value[lane] = (uint32_t)c->value;
    many.op[lane] = op;
    ga_slabhash_many_begin(world.table->view, &many, lane, hash);
    bool later = ga_slabhash_serve_many(world.table->kind, GA_SLABHASH_OP_COUNT, world.table->view,
                                        ga_tile_abreast(8), 1u << lane, &many) != 0;
    ga_slabhash_answer answer = {many.result[lane],
                                 many.was[lane] | (uint64_t)many.was_high[lane] << 32};
    while (later) {
        uint32_t seen = slabhash_room(world.table);
        ga_slab_claimed claimed = ga_slabhash_claim_begin(0);
        ga_slabhash_change_to to = {.key = c->key, .value = c->value, .op = op};
        answer =
            ga_slabhash_do(world.table->kind, world.table->view, SLABHASH_TILE, &claimed, hash, to);
        ga_slabhash_claim_end(world.table->view, SLABHASH_TILE, &claimed);
        later = answer.result == GA_SLABHASH_FULL;
        if (later && ga_slabhash_grow(world.table, seen) != GA_OK) {
            return GA_ERR_MEMORY;
        }
    }
    was->found = answer.result == GA_SLABHASH_FOUND;
    was->value = answer.value;
    return GA_OK;
}

static ga_status do_as_a_lane(history_call *c, ga_slabhash_found *was)
{
    switch (c->kind) {
    case HISTORY_INSERT:
        return as_a_lane(GA_SLABHASH_INSERT, c, was);
    case HISTORY_UPSERT:
        return as_a_lane(GA_SLABHASH_REPLACE, c, was);
    case HISTORY_REMOVE:
        return as_a_lane(GA_SLABHASH_DELETE, c, was);
    case HISTORY_LOOKUP:
        return as_a_lane(GA_SLABHASH_SEARCH, c, was);
    default:
        return GA_ERR_UNSUPPORTED;
    }
}

static void do_call(history_call *c)
{
    ga_status status;
    ga_slabhash_found was = {false, 0};
    uint64_t count = 0;
    c->began = history_moment(&world.clock);
    status = world.in_order ? do_as_a_lane(c, &was) : GA_ERR_UNSUPPORTED;
    switch (status == GA_ERR_UNSUPPORTED ? c->kind : HISTORY_KINDS) {
    case HISTORY_KINDS: /* it is done */
        break;
    case HISTORY_INSERT:
        status = ga_slabhash_insert(world.table, c->key, c->value, &was);
        break;
    case HISTORY_UPSERT:
        status = ga_slabhash_replace(world.table, c->key, c->value, &was);
        break;
    case HISTORY_ADD:
        status = ga_slabhash_apply(world.table, c->key, c->value, GA_SLABHASH_ADD, &was);
        break;
    case HISTORY_REMOVE:
        status = ga_slabhash_delete(world.table, c->key, &was);
        break;
    case HISTORY_REMOVE_ALL:
        status = ga_slabhash_delete_all(world.table, c->key, &count);
        break;
    case HISTORY_LOOKUP_ALL:
        status = ga_slabhash_search_all(world.table, c->key, &was.value, 1, &count);
        break;
    default:
        status = ga_slabhash_search(world.table, c->key, &was);
    }
    c->ended = history_moment(&world.clock);
    NEED(status == GA_OK);
    stress_need(count <= 1, "a unique key is counted twice");
    was.found = was.found || count;
    c->found = was.found;
    c->was = was.found ? value_of(was.value) : 0;
}

/* What each thread will do. */
static void draw(void)
{
    for (uint32_t i = 0; i < world.threads * CALLS; i++) {
        static const history_kind kinds[] = {
            HISTORY_LOOKUP, HISTORY_LOOKUP_ALL, HISTORY_INSERT, HISTORY_INSERT,    HISTORY_UPSERT,
            HISTORY_ADD,    HISTORY_REMOVE,     HISTORY_REMOVE, HISTORY_REMOVE_ALL};
        history_kind kind = kinds[random_below(&world.random, 9)];
        if (world.mode == GA_SLABHASH_SET32 && kind == HISTORY_ADD) {
            kind = HISTORY_UPSERT;
        }
        world.calls[i] = (history_call){
            .kind = kind, .key = random_below(&world.random, world.keys), .value = value_of(i + 1)};
    }
    world.compacts = world.grows ? random_below(&world.random, CALLS + 1) : CALLS;
}

static void open_table(void)
{
    static ga_slabhash_hash *const hashes[] = {NULL, hash_same, hash_two, hash_same};
    uint32_t buckets = 1 + (uint32_t)random_below(&world.random, 4);
    world.mode = (ga_slabhash_mode)(world.histories / BATCH % GA_SLABHASH_MODE_COUNT);
    uint32_t path = 1 + (uint32_t)random_below(&world.random, buckets);
    world.grows = world.histories / BATCH / GA_SLABHASH_MODE_COUNT % 3 == 1;
    world.in_order = world.histories / BATCH / GA_SLABHASH_MODE_COUNT % 3 == 2;
    ga_slabhash_options options = {.options_size = sizeof options,
                                   .flags = world.grows ? GA_SLABHASH_GROW : 0,
                                   .mode = world.mode,
                                   .buckets = buckets,
                                   .path = world.grows ? 1 : path,
                                   .hash = hashes[random_below(&world.random, 4)],
                                   .limit = 1 << 20,
                                   .heap = world.heap};
    NEED(ga_slabhash_open(&world.table, &options) == GA_OK);
    world.ordered = 1;
    world.table->view.ordered = world.in_order ? &world.ordered : NULL;
    world.table->view.far = (uint32_t)random_below(&world.random, 2);
}

/* The next history begins with none of its keys; with others, and with places that are full of
 * deleted ones. */
static void prepare(uint64_t number)
{
    for (uint64_t key = 0; key < world.keys; key++) {
        NEED(ga_slabhash_delete_all(world.table, key, NULL) == GA_OK);
    }
    if (number % FLUSHES == 0) {
        uint64_t others = random_below(&world.random, 130);
        for (uint64_t key = OTHERS; key < OTHERS + 130; key++) {
            NEED(ga_slabhash_delete(world.table, key, NULL) == GA_OK);
        }
        if (random_below(&world.random, 2)) {
            NEED(ga_slabhash_flush(world.table) == GA_OK);
            world.ordered = 0;
        } else {
            NEED(ga_slabhash_clear(world.table) == GA_OK);
            world.ordered = 1;
        }
        for (uint64_t key = OTHERS; key < OTHERS + others; key++) {
            NEED(ga_slabhash_insert(world.table, key, 1, NULL) == GA_OK);
        }
    }
}

static void check(void)
{
    uint32_t count = (uint32_t)world.threads * CALLS;
    for (uint64_t key = 0; key < world.keys; key++) {
        uint64_t places;
        if (!history_linearizable(world.calls, count, key)) {
            history_print(world.calls, count, key);
            fprintf(stderr, "%s, history %llu\n", ga_slabhash_mode_text(world.mode),
                    (unsigned long long)world.histories);
            stress_need(false, "a history is not linearizable");
        }
        NEED(ga_slabhash_search_all(world.table, key, NULL, 0, &places) == GA_OK);
        stress_need(places <= 1, "a key is there twice");
    }
}

static void work(size_t number)
{
    uint64_t turn = 0;
    for (uint64_t i = 0; i < BATCH; i++) {
        if (number == 0) {
            prepare(i);
            draw();
        }
        history_meet(&world.arrivals, ++turn, world.threads);
        for (uint32_t c = 0; c < CALLS; c++) {
            if (c == world.compacts && number == world.threads - 1) {
                NEED(ga_slabhash_compact(world.table) == GA_OK);
            }
            do_call(&world.calls[number * CALLS + c]);
        }
        history_meet(&world.arrivals, ++turn, world.threads);
        if (number == 0) {
            check();
        }
    }
}

int main(int argc, char **argv)
{
    stress_begin(argc, argv);
    const char *wrong = history_try_checker();
    stress_need(!wrong, wrong);
    world.heap = stress_open("system");
    while (stress_goes_on() || world.histories < 3 * BATCH * GA_SLABHASH_MODE_COUNT) {
        world.random = world.histories;
        world.threads = 2 + world.histories / BATCH % 3;
        world.keys = 1 + random_below(&world.random, KEYS_MOST);
        world.arrivals = 0;
        open_table();
        stress_threads(world.threads, work);
        NEED(ga_slabhash_close(world.table) == GA_OK);
        world.histories += BATCH;
    }
    printf("%llu histories\n", (unsigned long long)world.histories);
    NEED(ga_heap_close(world.heap) == GA_OK);
    return 0;
}
