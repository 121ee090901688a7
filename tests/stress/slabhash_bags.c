/* SPDX-License-Identifier: MIT
 *
 * Short histories of multimaps, on small tables where threads compete for end bits, a link or
 * a slot. Each history must be one of bags (support/bags.h). Half of the tables grow, and one of
 * the threads compacts them, so that pairs migrate to another array of buckets during inserts,
 * searches and deletions.
 *
 * With a planted bug it must fail (meson.build).
 */
#include "../../hashtables/slabhash/host/table.h"
#include "slabhash_small.h"

#include "support/bags.h"

#include <string.h>

enum {
    KEYS_MAX = 3,
    ALL = THREADS_MAX * CALLS + KEYS_MAX
};
_Static_assert((int)ALL <= (int)BAG_CALLS, "a history has room for all calls");

static bag_call calls[ALL];

/* Search for all pairs of the key, or delete them, by a batch of one. */
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

static void do_call(size_t which)
{
    bag_call *c = &calls[which];
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

static void draw(void)
{
    for (uint32_t i = 0; i < world.threads * CALLS; i++) {
        static const bag_kind kinds[] = {BAG_INSERT, BAG_INSERT,    BAG_INSERT,     BAG_INSERT,
                                         BAG_DELETE, BAG_DELETE,    BAG_DELETE_ALL, BAG_SEARCH,
                                         BAG_SEARCH, BAG_SEARCH_ALL};
        memset(&calls[i], 0, sizeof calls[i]);
        calls[i].kind = kinds[random_below(&world.random, 10)];
        calls[i].key = random_below(&world.random, world.keys);
        calls[i].value = calls[i].kind == BAG_INSERT ? i + 1 : 0;
    }
}

static void open_table(void)
{
    bool checked = random_below(&world.random, 2);
    world.grows = round_of_modes() % 2;
    open_small(GA_SLABHASH_MULTI | (checked ? GA_SLABHASH_CHECK : 0u));
}

static void check(void)
{
    uint32_t count = (uint32_t)world.threads * CALLS;
    for (uint64_t key = 0; key < world.keys; key++) {
        bag_call *last = &calls[count];
        memset(last, 0, sizeof *last);
        last->kind = BAG_SEARCH_ALL;
        last->key = key;
        do_call(count++);
        const char *wrong = bag_wrong(calls, count, key, world.mode != GA_SLABHASH_SET32);
        if (wrong) {
            bag_print(calls, count, key);
            fprintf(stderr, "multi%s that %s, history %llu\n", ga_slabhash_mode_text(world.mode),
                    world.grows ? "grows" : "does not grow", (unsigned long long)world.histories);
            stress_need(false, wrong);
        }
    }
}

int main(int argc, char **argv)
{
    stress_begin(argc, argv);
    const char *wrong = bag_try_checker();
    stress_need(!wrong, wrong);
    make_histories(KEYS_MAX, 2);
    return 0;
}
