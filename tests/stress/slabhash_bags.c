/* SPDX-License-Identifier: MIT
 *
 * Short histories of multimaps, on small tables that stand before a mark, a link or a place that
 * everybody wants, each of which must be one of bags (support/bags.h). Half of the tables grow, and
 * are compacted by one of the threads meanwhile, so that pairs move to another array of buckets
 * while they are put in, looked for and taken out.
 *
 * GA_SLABHASH_MUTANT weakens one thing at a time; each of these programs must fail (meson.build).
 */
#include "../../hashtables/slabhash/table.h"
#include "stress.h"

#include "support/bags.h"
#include "support/hashes.h"
#include "support/moments.h"
#include "support/random.h"

#include <stdio.h>
#include <string.h>

enum {
    THREADS_MOST = 4,
    CALLS = 6, /* of each thread */
    KEYS_MOST = 3,
    BATCH = 256, /* histories of a table, and between two looks at the clock */
    FLUSHES = 8, /* histories between two flushes */
    ALL = THREADS_MOST * CALLS + KEYS_MOST,
    OTHERS = 1000 /* keys from here on fill tables up */
};
_Static_assert((int)ALL <= (int)BAG_CALLS, "a history has room for all calls");

static struct {
    ga_heap *heap;
    ga_slabhash *table;
    ga_slabhash_mode mode;
    bool grows;
    uint64_t random;
    bag_call calls[ALL];
    uint64_t histories, keys, threads;
    uint64_t compacts; /* before which call of the last thread */
    uint64_t clock;    /* seq_cst: moments */
    uint32_t arrivals; /* seq_cst: threads that have come to a barrier */
} world;

/* All pairs of the key, by a batch of one. */
static ga_status all_by_batch(bag_call *c, bool removes)
{
    uint32_t narrow = (uint32_t)c->key;
    ga_slabhash_all all = {.count = 1,
                           .keys = world.mode == GA_SLABHASH_MAP64 ? (void *)&c->key : &narrow,
                           .values = c->values,
                           .room = BAG_VALUES};
    return (removes ? ga_slabhash_run_delete_all : ga_slabhash_run_search_all)(world.table, &all,
                                                                               &c->count);
}

static void do_call(bag_call *c)
{
    ga_slabhash_found was = {false, 0};
    ga_status status;
    c->began = history_moment(&world.clock);
    switch (c->kind) {
    case BAG_INSERT:
        status = ga_slabhash_insert(world.table, c->key, c->value, NULL);
        break;
    case BAG_SEARCH:
        status = ga_slabhash_search(world.table, c->key, &was);
        break;
    case BAG_SEARCH_ALL:
        status = c->began % 2 ? all_by_batch(c, false)
                              : ga_slabhash_search_all(world.table, c->key, c->values, BAG_VALUES,
                                                       &c->count);
        break;
    case BAG_DELETE:
        status = ga_slabhash_delete(world.table, c->key, &was);
        break;
    default:
        status = c->began % 2 ? all_by_batch(c, true)
                              : ga_slabhash_delete_all(world.table, c->key, &c->count);
    }
    c->ended = history_moment(&world.clock);
    NEED(status == GA_OK);
    if (c->kind == BAG_SEARCH || c->kind == BAG_DELETE) {
        c->count = was.found;
        c->values[0] = was.value;
    }
}

/* What each thread will do. */
static void draw(void)
{
    for (uint32_t i = 0; i < world.threads * CALLS; i++) {
        static const bag_kind kinds[] = {BAG_INSERT, BAG_INSERT,    BAG_INSERT,     BAG_INSERT,
                                         BAG_DELETE, BAG_DELETE,    BAG_DELETE_ALL, BAG_SEARCH,
                                         BAG_SEARCH, BAG_SEARCH_ALL};
        memset(&world.calls[i], 0, sizeof world.calls[i]);
        world.calls[i].kind = kinds[random_below(&world.random, 10)];
        world.calls[i].key = random_below(&world.random, world.keys);
        world.calls[i].value = world.calls[i].kind == BAG_INSERT ? i + 1 : 0;
    }
    world.compacts = world.grows ? random_below(&world.random, CALLS + 1) : CALLS;
}

static void open_table(void)
{
    static ga_slabhash_hash *const hashes[] = {NULL, hash_same, hash_two, hash_same};
    uint32_t buckets = 1 + (uint32_t)random_below(&world.random, 4);
    world.mode = (ga_slabhash_mode)(world.histories / BATCH % GA_SLABHASH_MODE_COUNT);
    world.grows = world.histories / BATCH / GA_SLABHASH_MODE_COUNT % 2;
    uint32_t path = 1 + (uint32_t)random_below(&world.random, buckets);
    bool checked = random_below(&world.random, 2);
    ga_slabhash_options options = {.options_size = sizeof options,
                                   .flags = GA_SLABHASH_MULTI |
                                            (world.grows ? GA_SLABHASH_GROW : 0u) |
                                            (checked ? GA_SLABHASH_CHECK : 0u),
                                   .mode = world.mode,
                                   .buckets = buckets,
                                   .path = world.grows ? 1 : path,
                                   .hash = hashes[random_below(&world.random, 4)],
                                   .limit = 1 << 20,
                                   .heap = world.heap};
    NEED(ga_slabhash_open(&world.table, &options) == GA_OK);
}

/* The next history begins with none of its keys; with others, which leave few places. */
static void prepare(uint64_t number)
{
    for (uint64_t key = 0; key < world.keys; key++) {
        NEED(ga_slabhash_delete_all(world.table, key, NULL) == GA_OK);
    }
    if (number % FLUSHES == 0) {
        uint64_t others = random_below(&world.random, 130);
        for (uint64_t key = OTHERS; key < OTHERS + 130; key++) {
            NEED(ga_slabhash_delete_all(world.table, key, NULL) == GA_OK);
        }
        if (random_below(&world.random, 2)) {
            NEED(ga_slabhash_flush(world.table) == GA_OK);
        } else {
            NEED(ga_slabhash_clear(world.table) == GA_OK);
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
        bag_call *last = &world.calls[count++];
        memset(last, 0, sizeof *last);
        last->kind = BAG_SEARCH_ALL;
        last->key = key;
        do_call(last);
        const char *wrong = bag_wrong(world.calls, count, key, world.mode != GA_SLABHASH_SET32);
        if (wrong) {
            bag_print(world.calls, count, key);
            fprintf(stderr, "multi%s that %s, history %llu\n", ga_slabhash_mode_text(world.mode),
                    world.grows ? "grows" : "does not grow", (unsigned long long)world.histories);
            stress_need(false, wrong);
        }
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
    const char *wrong = bag_try_checker();
    stress_need(!wrong, wrong);
    world.heap = stress_open("system");
    while (stress_goes_on() || world.histories < 2 * BATCH * GA_SLABHASH_MODE_COUNT) {
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
