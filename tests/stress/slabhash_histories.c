/* SPDX-License-Identifier: MIT
 *
 * Short histories of tables of unique keys, each of which must be linearizable
 * (support/histories.h), on small tables where threads compete for end bits, a link or a slot:
 * other keys fill the tables, and tombstones accumulate until a flush. A third of the tables grows,
 * and one of the threads compacts it. In another third keys are in order, and most calls are made
 * as lanes of kernels make them (many_tile.h). At the end of each history no key may be there
 * twice.
 *
 * With a planted bug it must fail (meson.build).
 */
#include "../../hashtables/slabhash/host/table.h"
#include "../../hashtables/slabhash/table/many_tile.h"
#include "slabhash_small.h"

#include "support/histories.h"

enum {
    KEYS_MAX = 4,
    ALL = THREADS_MAX * CALLS
};
_Static_assert((int)ALL <= (int)HISTORY_MAX, "a history has room for all calls");

static history_call calls[ALL];
static bool in_order; /* keys are in order in this table */

/* In sets every key has the value 1. */
static uint64_t value_of(uint64_t value)
{
    return world.mode == GA_SLABHASH_SET32 ? 1 : value;
}

/* Append the slab that the lane's path needs, unless another thread is faster or there is no
 * memory. */
static bool append(const ga_slabhash_requests *many, uint32_t lane)
{
    ga_slab_claimed claimed = ga_slabhash_claim_begin(0);
    ga_slabhash_pairs pairs = {many->key,        many->key_high, many->value,
                               many->value_high, many->row,      many->row_high};
    uint32_t done = ga_slabhash_append_all(world.table->kind, world.table->view, SLABHASH_TILE,
                                           1u << lane, &pairs, &claimed);
    ga_slabhash_claim_end(world.table->view, SLABHASH_TILE, &claimed);
    return done != 0;
}

/* Serve one request by all lanes of a tile; then, as in kernels, by the tile. */
static ga_status as_a_lane(uint32_t op, history_call *c, ga_slabhash_found *was)
{
    uint32_t lane = (uint32_t)c->value % 8;
    uint64_t hash = slabhash_hash_of(world.table, c->key);
    ga_slabhash_requests many = {0};
    many.key[lane] = (uint32_t)c->key;
    many.value[lane] = (uint32_t)c->value;
    many.op[lane] = op;
    ga_slabhash_requests_begin(world.table->view, ga_slabhash_is_ordered(world.table->view), &many,
                               lane, hash);
    bool later = ga_slabhash_serve_many(world.table->kind, GA_SLABHASH_OP_COUNT, world.table->view,
                                        ga_tile_abreast(8), 1u << lane, &many) != 0;
    ga_slabhash_answer answer = {many.result[lane],
                                 many.was[lane] | (uint64_t)many.was_high[lane] << 32};
    if (answer.result == GA_SLABHASH_NEEDS_SLAB && append(&many, lane)) {
        answer.result = GA_SLABHASH_ABSENT;
        later = false;
    }
    while (later) {
        uint32_t seen = slabhash_room(world.table);
        ga_slab_claimed claimed = ga_slabhash_claim_begin(0);
        ga_slabhash_operation to = {.key = c->key, .value = c->value, .op = op};
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

static void do_call(size_t which)
{
    history_call *c = &calls[which];
    ga_status status;
    ga_slabhash_found was = {false, 0};
    uint64_t count = 0;
    c->began = history_moment(&world.clock);
    status = in_order ? do_as_a_lane(c, &was) : GA_ERR_UNSUPPORTED;
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
        calls[i] = (history_call){
            .kind = kind, .key = random_below(&world.random, world.keys), .value = value_of(i + 1)};
    }
}

static void open_table(void)
{
    world.grows = round_of_modes() % 3 == 1;
    in_order = round_of_modes() % 3 == 2;
    open_small(0);
    world.table->view.ordered = in_order ? &world.ordered : NULL;
    world.table->view.exceeds_l2 = (uint32_t)random_below(&world.random, 2);
}

static void check(void)
{
    uint32_t count = (uint32_t)world.threads * CALLS;
    for (uint64_t key = 0; key < world.keys; key++) {
        uint64_t places;
        if (!history_linearizable(calls, count, key)) {
            history_print(calls, count, key);
            fprintf(stderr, "%s, history %llu\n", ga_slabhash_mode_text(world.mode),
                    (unsigned long long)world.histories);
            stress_need(false, "a history is not linearizable");
        }
        NEED(ga_slabhash_search_all(world.table, key, NULL, 0, &places) == GA_OK);
        stress_need(places <= 1, "a key is there twice");
    }
}

int main(int argc, char **argv)
{
    stress_begin(argc, argv);
    const char *wrong = history_try_checker();
    stress_need(!wrong, wrong);
    make_histories(KEYS_MAX, 3);
    return 0;
}
