/* SPDX-License-Identifier: MIT
 *
 * Threads as the tiles of kernels on a table that grows by itself, and the table's memory: new
 * arrays have random contents, and some allocations fail.
 */
#include "slabhash_sessions.h"

#include "../../hashtables/slabhash/table/many_tile.h"

#include <stdlib.h>
#include <string.h>

sessions_world sessions;

/* Fill memory with contents that an earlier array may have left: slabs full of the keys of the
 * histories. */
static void soil(uint32_t *words, size_t bytes)
{
    for (size_t i = 0; i < bytes / sizeof *words; i++) {
        uint32_t word = (uint32_t)i % GA_SLABHASH_WORDS;
        uint32_t key = word % 4 == 0 ? word / 4 % KEYS_MAX : word % 4 == 2 ? KEYS_MAX - 1 : 0;
        words[i] = word < GA_SLABHASH_END_BITS ? key : UINT32_MAX;
    }
}

static uint32_t asked; /* relaxed: arrays */

static void *array(void *context, size_t bytes)
{
    (void)context;
    /* relaxed: a number */
    uint32_t number = __atomic_add_fetch(&asked, 1, __ATOMIC_RELAXED);
    void *rows =
        sessions.refuses && number % sessions.refuses == 0 ? NULL : aligned_alloc(128, bytes);
    if (rows) {
        soil(rows, bytes);
    }
    return rows;
}

static void give(void *context, void *rows, size_t bytes)
{
    (void)context;
    soil(rows, bytes);
    free(rows);
}

static uint64_t hash_of(uint64_t key)
{
    return sessions.growing.memory.hash ? sessions.growing.memory.hash(NULL, key)
                                        : ga_slabhash_seeded(sessions.view, key);
}

/* ---- as a kernel ----------------------------------------------------------------------------- */

/* Calls with `kind` as a constant, so that the code below is compiled for each kind. */
#define EACH_KIND(CALL)                                                                            \
    switch (sessions.kind) {                                                                       \
    case GA_SLABHASH_SET32 | GA_SLABHASH_GROWING:                                                  \
        return CALL(GA_SLABHASH_SET32 | GA_SLABHASH_GROWING);                                      \
    case GA_SLABHASH_MAP32 | GA_SLABHASH_GROWING:                                                  \
        return CALL(GA_SLABHASH_MAP32 | GA_SLABHASH_GROWING);                                      \
    case GA_SLABHASH_MAP64 | GA_SLABHASH_GROWING:                                                  \
        return CALL(GA_SLABHASH_MAP64 | GA_SLABHASH_GROWING);                                      \
    case GA_SLABHASH_SET32 | 4u | GA_SLABHASH_GROWING:                                             \
        return CALL(GA_SLABHASH_SET32 | 4u | GA_SLABHASH_GROWING);                                 \
    case GA_SLABHASH_MAP32 | 4u | GA_SLABHASH_GROWING:                                             \
        return CALL(GA_SLABHASH_MAP32 | 4u | GA_SLABHASH_GROWING);                                 \
    default:                                                                                       \
        return CALL(GA_SLABHASH_MAP64 | 4u | GA_SLABHASH_GROWING);                                 \
    }

ga_slabhash_answer sessions_perform(sessions_tile *t, ga_slabhash_operation to){
#define PERFORM(kind)                                                                              \
    ga_slabhash_do_from_snapshot(kind, sessions.view, &sessions.growing, SLABHASH_TILE,            \
                                 &t->claimed, &t->stand, hash_of(to.key), to)
    EACH_KIND(PERFORM)}

uint64_t sessions_find_all(sessions_tile *t, uint64_t key, uint64_t *values, uint64_t room)
{
#define FIND_ALL(kind)                                                                             \
    ga_slabhash_find_all_from_snapshot(kind, sessions.view, &sessions.growing, SLABHASH_TILE,      \
                                       &t->stand, hash_of(key), key, values, room)
    EACH_KIND(FIND_ALL)
}

static uint32_t remove_all(sessions_tile *t, uint64_t key, uint64_t *count)
{
#define REMOVE_ALL(kind)                                                                           \
    ga_slabhash_remove_from_snapshot(kind, sessions.view, &sessions.growing, SLABHASH_TILE,        \
                                     &t->claimed, &t->stand, hash_of(key), key, count)
    EACH_KIND(REMOVE_ALL)
}

static uint32_t open_all(sessions_tile *t)
{
    ga_slabhash_shift shift = ga_slabhash_shift_of(sessions.view, &sessions.growing, &t->stand);
#define OPEN_ALL(kind)                                                                             \
    ga_slabhash_open_from(kind, shift, SLABHASH_TILE, &t->claimed, 0, shift.to.buckets)
    EACH_KIND(OPEN_ALL)
}

/* Keep the tile's session up to date, as a kernel does before it serves the lanes of a warp
 * together. */
static int tend(sessions_tile *t, uint32_t lane, uint64_t hash)
{
    ga_lanes low = {0}, high = {0};
    low[lane] = (uint32_t)hash;
    high[lane] = (uint32_t)(hash >> 32);
#define TEND(kind)                                                                                 \
    (ga_slabhash_tend_lanes(kind, sessions.view, &sessions.growing, SLABHASH_TILE, &t->claimed,    \
                            &t->stand, 1u << lane, low, high),                                     \
     0)
    EACH_KIND(TEND)
}

static ga_slabhash_view array_for(const sessions_tile *t, uint32_t op, uint64_t hash)
{
    ga_slabhash_shift shift = ga_slabhash_shift_of(sessions.view, &sessions.growing, &t->stand);
#define ARRAY_FOR(kind) ga_slabhash_for_lane(kind, shift, op, hash)
    EACH_KIND(ARRAY_FOR)
}

static uint32_t serve(ga_slabhash_view view, uint32_t lane, uint64_t hash,
                      ga_slabhash_requests *many)
{
    ga_slabhash_requests_begin(view, ga_slabhash_is_ordered(view), many, lane, hash);
#define SERVE(kind)                                                                                \
    ga_slabhash_serve_many(kind, GA_SLABHASH_OP_COUNT, view, ga_tile_abreast(8), 1u << lane, many)
    EACH_KIND(SERVE)
}

/* Serve as one lane of a warp whose lanes are served together. Returns false if the operation is
 * deferred. */
static bool as_a_lane(sessions_tile *t, ga_slabhash_operation to, ga_slabhash_answer *answer)
{
    uint32_t lane = (uint32_t)to.value % 8;
    uint64_t hash = hash_of(to.key);
    ga_slabhash_requests many = {0};
    if (!ga_slabhash_is_served(sessions.kind, to.op)) {
        return false;
    }
    if (to.op != GA_SLABHASH_SEARCH) {
        (void)tend(t, lane, hash);
    }
    ga_slabhash_view view = array_for(t, to.op, hash);
    many.key[lane] = (uint32_t)to.key;
    many.value[lane] = (uint32_t)to.value;
    many.op[lane] = to.op;
    bool later = !view.rows || serve(view, lane, hash, &many) != 0;
    *answer = ga_slabhash_answer_of(many.result[lane],
                                    many.was[lane] | (uint64_t)many.was_high[lane] << 32);
    return !later;
}

sessions_tile sessions_begin(uint64_t number)
{
    sessions_tile t = {.claimed = ga_slabhash_claim_begin((uint32_t)number * GA_SLAB_ROW_WORDS),
                       .stands = true};
    ga_slabhash_snapshot_begin(&sessions.growing, SLABHASH_TILE, &t.stand, (uint32_t)number);
    return t;
}

/* Free the slabs that the tile has claimed ahead, and let its snapshot age. */
void sessions_rest(sessions_tile *t)
{
    ga_slabhash_claim_end(sessions.view, SLABHASH_TILE, &t->claimed);
    t->claimed.units = 0;
}

void sessions_end(sessions_tile *t)
{
    sessions_rest(t);
    if (t->stands) {
        ga_slabhash_snapshot_end(&sessions.growing, SLABHASH_TILE, &t->stand);
    }
    t->stands = false;
}

/* Again where there was no slab. */
ga_slabhash_answer sessions_do(sessions_tile *t, uint32_t op, uint64_t key, uint64_t value)
{
    ga_slabhash_operation to = {.key = key, .value = value, .op = op, .how = GA_SLABHASH_ADD};
    ga_slabhash_answer now;
    if (sessions.lanes && as_a_lane(t, to, &now)) {
        return now;
    }
    for (;;) {
        uint32_t seen = slabhash_room(sessions.table);
        ga_slabhash_answer answer = sessions_perform(t, to);
        if (answer.result != GA_SLABHASH_FULL) {
            return answer;
        }
        NEED(ga_slabhash_grow(sessions.table, seen) == GA_OK);
    }
}

uint64_t sessions_delete_each(sessions_tile *t, uint64_t key)
{
    uint64_t count = 0;
    for (;;) {
        uint32_t seen = slabhash_room(sessions.table);
        if (remove_all(t, key, &count) != GA_SLABHASH_FULL) {
            return count;
        }
        NEED(ga_slabhash_grow(sessions.table, seen) == GA_OK);
    }
}

/* ---- tables ---------------------------------------------------------------------------------- */

void sessions_open(uint32_t mode, bool multi, uint32_t buckets, ga_slabhash_hash *hash)
{
    ga_slabhash_options options = {.options_size = sizeof options,
                                   .mode = (ga_slabhash_mode)mode,
                                   .buckets = 1,
                                   .seed = 1,
                                   .limit = 64 << 20,
                                   .heap = sessions.heap};
    NEED(ga_slabhash_open(&sessions.table, &options) == GA_OK);
    sessions.view = sessions.table->view;
    sessions.kind = mode | (multi ? 4u : 0) | GA_SLABHASH_GROWING;
    sessions.view.kind = sessions.kind;
    sessions.view.chained_max = UINT32_MAX;
    memset(&sessions.growing, 0, sizeof sessions.growing);
    sessions.growing.memory.alloc = array;
    sessions.growing.memory.free = give;
    sessions.growing.memory.hash = hash;
    sessions.growing.there = sessions.growing.making = 1;
    sessions.growing.least = 1;
    sessions.growing.slabs = sessions.view.heap;
    sessions.growing.kind = sessions.kind;
    sessions.growing.versions[0].buckets = buckets;
    sessions.growing.versions[0].wanted = buckets / GA_SLABHASH_CHAINED_DIV;
    sessions.refuses = 0;
    sessions.growing.versions[0].rows = array(NULL, (size_t)buckets * 128);
    memset(sessions.growing.versions[0].rows, 0xff, (size_t)buckets * 128);
}

void sessions_free_stage(ga_slabhash_version *stage)
{
    ga_slabhash_view view = sessions.view;
    view.rows = stage->rows;
    for (uint32_t bucket = 0; bucket < stage->buckets; bucket++) {
        ga_slabhash_clear_bucket(view, SLABHASH_TILE, bucket);
    }
    free(stage->rows);
    memset(stage, 0, sizeof *stage);
}

/* Exclusive: complete a migration under way, and begin again with one version. */
void sessions_settle(void)
{
    ga_slabhash_growing *g = &sessions.growing;
    sessions_tile t = sessions_begin(0);
    while (ga_slabhash_clear_some(g, SLABHASH_TILE)) {
    }
    ga_slabhash_snapshot_renew(g, SLABHASH_TILE, &t.stand);
    while (t.stand.next_rows) {
        uint32_t seen = slabhash_room(sessions.table);
        ga_slabhash_note_opened(g, SLABHASH_TILE, &t.stand, open_all(&t));
        ga_slabhash_snapshot_renew(g, SLABHASH_TILE, &t.stand);
        if (t.stand.next_rows) {
            NEED(ga_slabhash_grow(sessions.table, seen) == GA_OK);
        }
    }
    sessions_end(&t);
    stress_need(g->now + 1 == g->there && g->there == g->making,
                "a stage was not made, or moved to");
    sessions.stages += g->now;
    while (ga_slabhash_give_some(sessions.view.heap, g, SLABHASH_TILE)) {
    }
    stress_need(g->gone == g->now, "a stage is not given back, though nobody uses it");
    ga_slabhash_version last = *ga_slabhash_version_of(g, g->now);
    memset(g->versions, 0, sizeof g->versions);
    memset(&g->epochs, 0, sizeof g->epochs);
    g->versions[0] = last;
    g->versions[0].stays = 0; /* there may be memory now */
    g->now = g->gone = 0;
    g->there = g->making = 1;
    g->back = 0;
}

void sessions_close(void)
{
    sessions_settle();
    sessions_free_stage(&sessions.growing.versions[0]);
    NEED(ga_slabhash_close(sessions.table) == GA_OK);
}

/* Make the table migrate to more, fewer or the same number of buckets, regardless of its
 * contents. */
void sessions_move_on(sessions_tile *t, uint64_t random)
{
    ga_slabhash_growing *g = &sessions.growing;
    ga_slabhash_snapshot_renew(g, SLABHASH_TILE, &t->stand);
    uint32_t number = t->stand.number + 1;
    if (ga_slabhash_has_entry(g, SLABHASH_TILE, number) &&
        ga_cas_acquire(&g->making, number, number + 1) == number) { /* M. Pairs with M */
        uint32_t times = 1u << random % 3, buckets = t->stand.buckets;
        buckets = random / 3 % 2 && buckets % times == 0 ? buckets / times : buckets * times;
        ga_slabhash_make_version(g, SLABHASH_TILE, number, buckets, 1);
    }
    while (ga_slabhash_clear_some(g, SLABHASH_TILE)) {
    }
}
