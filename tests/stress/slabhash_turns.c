/* SPDX-License-Identifier: MIT
 *
 * Slab hashes that grow by themselves (grow_turn_tile.h), by threads as the tiles of kernels: each
 * has a stand, which becomes as old as it likes. Short histories of unique keys, each of which must
 * be linearizable (support/histories.h), while one of the threads has the table move on, to more
 * buckets or fewer; and tables of all kinds that grow from one bucket, then shrink as most is taken out,
 * and are compacted, after each of which each key must be there as often as it was put in. Arrays come with anything in them, and every few of them do not come.
 *
 * ga_mutant weakens one thing at a time, and then the program must fail (meson.build).
 */
#include "../../hashtables/slabhash/grow_turn_tile.h"
#include "../../hashtables/slabhash/many_tile.h"
#include "../../hashtables/slabhash/table.h"
#include "stress.h"

#include "support/hashes.h"
#include "support/histories.h"
#include "support/random.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    THREADS_MOST = 4,
    CALLS = 6, /* of each thread */
    KEYS_MOST = 4,
    BATCH = 256,   /* histories of a table, and between two looks at the clock */
    CLEARED = 8,   /* histories until the table is empty again */
    VOLUME = 3000, /* keys of each thread that tables grow with */
    SHARED = 500,  /* the first of them are put in by all */
    ALL = THREADS_MOST * CALLS,
    STAY = 150, /* one in so many of them stays */
    NOWHERE = 1 << 21,
    CROWD = 1 << 20, /* keys from here on fill tables that do not grow */
    OTHERS = 1000,   /* keys from here on fill tables up */
    OTHERS_MOST = 130
};
#define PATIENCE (UINT64_C(40) * 1000000000) /* ns */
_Static_assert((int)ALL <= (int)HISTORY_MOST, "a history has room for all calls");

static struct {
    ga_heap *heap;
    ga_slabhash *table; /* for its slabs */
    ga_slabhash_view view;
    ga_slabhash_growing growing;
    uint32_t kind;
    uint64_t random;
    history_call calls[ALL];
    uint64_t histories, keys, threads, tables;
    uint64_t moves;           /* before which call of the last thread */
    bool lanes;               /* operations are those of lanes where they can be */
    uint32_t refuses;         /* of so many arrays one does not come; 0: all come */
    uint32_t asked;           /* relaxed: arrays */
    uint64_t clock;           /* seq_cst: moments */
    uint32_t arrivals;        /* seq_cst: threads that have come to a barrier */
    uint64_t went_in, stages; /* relaxed: figures */
    uint64_t stay, crowd;     /* keys that stay; and that fill a table */
    uint64_t until;           /* when a table should have done what it is to */
    uint64_t shrunk, compacted;
} world;

/* What a tile keeps. */
typedef struct turn {
    ga_slab_claimed claimed;
    ga_slabhash_stand stand;
    bool stands;
} turn;

/* What may be in memory that was an array before: slabs full of the keys that histories have. */
static void soil(uint32_t *words, size_t bytes)
{
    for (size_t i = 0; i < bytes / sizeof *words; i++) {
        uint32_t word = (uint32_t)i % GA_SLABHASH_WORDS;
        uint32_t key = word % 4 == 0 ? word / 4 % KEYS_MOST : word % 4 == 2 ? KEYS_MOST - 1 : 0;
        words[i] = word < GA_SLABHASH_MARK ? key : UINT32_MAX;
    }
}

static void *array(void *context, size_t bytes)
{
    (void)context;
    /* relaxed: a number */
    uint32_t number = __atomic_add_fetch(&world.asked, 1, __ATOMIC_RELAXED);
    void *rows = world.refuses && number % world.refuses == 0 ? NULL : aligned_alloc(128, bytes);
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
    return world.growing.hash ? world.growing.hash(NULL, key) : ga_slabhash_seeded(world.view, key);
}

/* ---- as a kernel ----------------------------------------------------------------------------- */

/* `kind` as a constant: what is below is compiled for each. */
#define EACH_KIND(CALL)                                                                            \
    switch (world.kind) {                                                                          \
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

static ga_slabhash_answer perform(turn *t, ga_slabhash_change_to to)
{
#define PERFORM(kind)                                                                              \
    ga_slabhash_do_standing(kind, world.view, &world.growing, SLABHASH_TILE, &t->claimed,          \
                            &t->stand, hash_of(to.key), to)
    EACH_KIND(PERFORM)
}

static uint64_t find_all(turn *t, uint64_t key, uint64_t *values, uint64_t room)
{
#define FIND_ALL(kind)                                                                             \
    ga_slabhash_find_all_standing(kind, world.view, &world.growing, SLABHASH_TILE, &t->stand,      \
                                  hash_of(key), key, values, room)
    EACH_KIND(FIND_ALL)
}

static uint32_t remove_all(turn *t, uint64_t key, uint64_t *count)
{
#define REMOVE_ALL(kind)                                                                           \
    ga_slabhash_remove_standing(kind, world.view, &world.growing, SLABHASH_TILE, &t->claimed,      \
                                &t->stand, hash_of(key), key, count)
    EACH_KIND(REMOVE_ALL)
}

static uint32_t open_all(turn *t)
{
    ga_slabhash_shift shift = ga_slabhash_shift_of(world.view, &world.growing, &t->stand);
#define OPEN_ALL(kind)                                                                             \
    ga_slabhash_open_from(kind, shift, SLABHASH_TILE, &t->claimed, 0, shift.to.buckets)
    EACH_KIND(OPEN_ALL)
}

/* As a kernel does before the lanes of a warp are served together. */
static int tend(turn *t, uint32_t lane, uint64_t hash)
{
    ga_lanes low = {0}, high = {0};
    low[lane] = (uint32_t)hash;
    high[lane] = (uint32_t)(hash >> 32);
#define TEND(kind)                                                                                 \
    (ga_slabhash_tend_lanes(kind, world.view, &world.growing, SLABHASH_TILE, &t->claimed,          \
                            &t->stand, 1u << lane, low, high),                                     \
     0)
    EACH_KIND(TEND)
}

static ga_slabhash_view array_for(const turn *t, uint32_t op, uint64_t hash)
{
    ga_slabhash_shift shift = ga_slabhash_shift_of(world.view, &world.growing, &t->stand);
#define ARRAY_FOR(kind) ga_slabhash_for_lane(kind, shift, op, hash)
    EACH_KIND(ARRAY_FOR)
}

static uint32_t serve(ga_slabhash_view view, uint32_t lane, uint64_t hash, ga_slabhash_many *many)
{
    ga_slabhash_many_begin(view, many, lane, hash);
#define SERVE(kind)                                                                                \
    ga_slabhash_serve_many(kind, GA_SLABHASH_OP_COUNT, view, ga_tile_abreast(8), 1u << lane, many)
    EACH_KIND(SERVE)
}

/* As a lane whose warp is served together; false where it is for later. */
static bool as_a_lane(turn *t, ga_slabhash_change_to to, ga_slabhash_answer *answer)
{
    uint32_t lane = (uint32_t)to.value % 8;
    uint64_t hash = hash_of(to.key);
    ga_slabhash_many many = {0};
    if (!ga_slabhash_is_served(world.kind, to.op)) {
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
    *answer =
        ga_slabhash_say(many.result[lane], many.was[lane] | (uint64_t)many.was_high[lane] << 32);
    return !later;
}

static turn begin(uint64_t number)
{
    turn t = {.claimed = ga_slabhash_claim_begin((uint32_t)number * GA_SLAB_ROW_WORDS),
              .stands = true};
    ga_slabhash_stand_begin(&world.growing, SLABHASH_TILE, &t.stand, (uint32_t)number);
    return t;
}

/* What it has claimed ahead goes back; its stand becomes older. */
static void rest(turn *t)
{
    ga_slabhash_claim_end(world.view, SLABHASH_TILE, &t->claimed);
    t->claimed.units = 0;
}

static void end(turn *t)
{
    rest(t);
    if (t->stands) {
        ga_slabhash_stand_end(&world.growing, SLABHASH_TILE, &t->stand);
    }
    t->stands = false;
}

/* Again where there was no slab. */
static ga_slabhash_answer do_one(turn *t, uint32_t op, uint64_t key, uint64_t value)
{
    ga_slabhash_change_to to = {.key = key, .value = value, .op = op, .how = GA_SLABHASH_ADD};
    ga_slabhash_answer now;
    if (world.lanes && as_a_lane(t, to, &now)) {
        return now;
    }
    for (;;) {
        uint32_t seen = slabhash_room(world.table);
        ga_slabhash_answer answer = perform(t, to);
        if (answer.result != GA_SLABHASH_FULL) {
            return answer;
        }
        NEED(ga_slabhash_grow(world.table, seen) == GA_OK);
    }
}

static uint64_t delete_each(turn *t, uint64_t key)
{
    uint64_t count = 0;
    for (;;) {
        uint32_t seen = slabhash_room(world.table);
        if (remove_all(t, key, &count) != GA_SLABHASH_FULL) {
            return count;
        }
        NEED(ga_slabhash_grow(world.table, seen) == GA_OK);
    }
}

/* ---- tables ---------------------------------------------------------------------------------- */

static void open_table(uint32_t mode, bool multi, uint32_t buckets, ga_slabhash_hash *hash)
{
    ga_slabhash_options options = {.options_size = sizeof options,
                                   .mode = (ga_slabhash_mode)mode,
                                   .buckets = 1,
                                   .limit = 64 << 20,
                                   .heap = world.heap};
    NEED(ga_slabhash_open(&world.table, &options) == GA_OK);
    world.view = world.table->view;
    world.kind = mode | (multi ? 4u : 0) | GA_SLABHASH_GROWING;
    world.view.kind = world.kind;
    world.view.most = UINT32_MAX;
    memset(&world.growing, 0, sizeof world.growing);
    world.growing.array = array;
    world.growing.give = give;
    world.growing.hash = hash;
    world.growing.there = world.growing.making = 1;
    world.growing.least = 1;
    world.growing.slabs = world.view.heap;
    world.growing.kind = world.kind;
    world.growing.stages[0].buckets = buckets;
    world.growing.stages[0].wanted = buckets / GA_SLABHASH_WANTS;
    world.refuses = 0;
    world.growing.stages[0].rows = array(NULL, (size_t)buckets * 128);
    memset(world.growing.stages[0].rows, 0xff, (size_t)buckets * 128);
}

static void free_stage(ga_slabhash_stage *stage)
{
    ga_slabhash_view view = world.view;
    view.rows = stage->rows;
    for (uint32_t bucket = 0; bucket < stage->buckets; bucket++) {
        ga_slabhash_clear_bucket(view, SLABHASH_TILE, bucket);
    }
    free(stage->rows);
    memset(stage, 0, sizeof *stage);
}

/* Alone: end what is under way, and begin again with one stage. */
static void settle(void)
{
    ga_slabhash_growing *g = &world.growing;
    turn t = begin(0);
    while (ga_slabhash_clear_some(g, SLABHASH_TILE)) {
    }
    ga_slabhash_stand_read(g, SLABHASH_TILE, &t.stand);
    while (t.stand.next_rows) {
        uint32_t seen = slabhash_room(world.table);
        ga_slabhash_note_opened(g, SLABHASH_TILE, &t.stand, open_all(&t));
        ga_slabhash_stand_read(g, SLABHASH_TILE, &t.stand);
        if (t.stand.next_rows) {
            NEED(ga_slabhash_grow(world.table, seen) == GA_OK);
        }
    }
    end(&t);
    stress_need(g->now + 1 == g->there && g->there == g->making,
                "a stage was not made, or moved to");
    world.stages += g->now;
    while (ga_slabhash_give_some(world.view.heap, g, SLABHASH_TILE)) {
    }
    stress_need(g->gone == g->now, "a stage is not given back, though nobody uses it");
    ga_slabhash_stage last = *ga_slabhash_stage_of(g, g->now);
    memset(g->stages, 0, sizeof g->stages);
    memset(&g->epochs, 0, sizeof g->epochs);
    g->stages[0] = last;
    g->stages[0].stays = 0; /* there may be memory now */
    g->now = g->gone = 0;
    g->there = g->making = 1;
    g->back = 0;
}

static void close_table(void)
{
    settle();
    free_stage(&world.growing.stages[0]);
    NEED(ga_slabhash_close(world.table) == GA_OK);
}

/* Have the table move on, to as many buckets, more or fewer, whatever is in it. */
static void move_on(turn *t, uint64_t random)
{
    ga_slabhash_growing *g = &world.growing;
    ga_slabhash_stand_read(g, SLABHASH_TILE, &t->stand);
    uint32_t number = t->stand.number + 1;
    if (ga_slabhash_has_place(g, SLABHASH_TILE, number) &&
        ga_cas_acquire(&g->making, number, number + 1) == number) {
        uint32_t times = 1u << random % 3, buckets = t->stand.buckets;
        buckets = random / 3 % 2 && buckets % times == 0 ? buckets / times : buckets * times;
        ga_slabhash_make_stage(g, SLABHASH_TILE, number, buckets, 1);
    }
    while (ga_slabhash_clear_some(g, SLABHASH_TILE)) {
    }
}

/* As many calls as there are runs of groups move a table, whichever key they have. */
static void runs_are_all(uint64_t random, uint32_t groups)
{
    enum {
        BUCKETS = 64
    };
    ga_slabhash_change_to to = {.key = 1, .op = GA_SLABHASH_DELETE};
    open_table(GA_SLABHASH_MAP32, false, BUCKETS, NULL);
    world.growing.least = BUCKETS;
    turn t = begin(0);
    move_on(&t, random);
    end(&t);
    t = begin(0);
    for (uint32_t i = 0; i < groups / GA_SLABHASH_RUN; i++) {
        stress_need(perform(&t, to).result == GA_SLABHASH_ABSENT, "a key that is nowhere");
    }
    stress_need(world.growing.now == 1, "some buckets are in no run");
    end(&t);
    close_table();
}

/* ---- histories ------------------------------------------------------------------------------- */

/* In sets every key has the value 1. */
static uint64_t value_of(uint64_t value)
{
    return GA_SLABHASH_MODE(world.kind) == GA_SLABHASH_SET32 ? 1 : value;
}

static void do_call(turn *t, history_call *c)
{
    static const uint32_t ops[HISTORY_KINDS] = {[HISTORY_LOOKUP] = GA_SLABHASH_SEARCH,
                                                [HISTORY_INSERT] = GA_SLABHASH_INSERT,
                                                [HISTORY_UPSERT] = GA_SLABHASH_REPLACE,
                                                [HISTORY_ADD] = GA_SLABHASH_APPLY,
                                                [HISTORY_REMOVE] = GA_SLABHASH_DELETE};
    ga_slabhash_answer answer = {0};
    uint64_t count = 0;
    c->began = history_moment(&world.clock);
    if (c->kind == HISTORY_LOOKUP_ALL) {
        count = find_all(t, c->key, &answer.value, 1);
    } else if (c->kind == HISTORY_REMOVE_ALL) {
        count = delete_each(t, c->key);
    } else {
        answer = do_one(t, ops[c->kind], c->key, c->value);
    }
    c->ended = history_moment(&world.clock);
    stress_need(count <= 1, "a unique key is counted twice");
    stress_need(answer.result <= GA_SLABHASH_FOUND, "an operation is refused");
    c->found = answer.result == GA_SLABHASH_FOUND || count;
    c->was = c->found ? value_of(answer.value) : 0;
}

/* What each thread will do. */
static void draw(void)
{
    static const history_kind kinds[] = {
        HISTORY_LOOKUP, HISTORY_LOOKUP, HISTORY_LOOKUP_ALL, HISTORY_INSERT, HISTORY_INSERT,
        HISTORY_UPSERT, HISTORY_ADD,    HISTORY_REMOVE,     HISTORY_REMOVE, HISTORY_REMOVE_ALL};
    for (uint32_t i = 0; i < world.threads * CALLS; i++) {
        history_kind kind = kinds[random_below(&world.random, 10)];
        if (value_of(2) == 1 && kind == HISTORY_ADD) {
            kind = HISTORY_UPSERT;
        }
        world.calls[i] = (history_call){
            .kind = kind, .key = random_below(&world.random, world.keys), .value = value_of(i + 1)};
    }
    world.moves = random_below(&world.random, CALLS + 2);
}

/* The next history begins with none of its keys, and with others. */
static void prepare(turn *t, uint64_t number)
{
    for (uint64_t key = 0; key < world.keys; key++) {
        (void)delete_each(t, key);
    }
    if (number % CLEARED == 0) {
        uint64_t others = random_below(&world.random, OTHERS_MOST);
        for (uint64_t key = OTHERS; key < OTHERS + OTHERS_MOST; key++) {
            (void)do_one(t, GA_SLABHASH_DELETE, key, 0);
        }
        end(t);
        settle();
        if (world.growing.stages[0].buckets > 64) { /* from few buckets on again */
            free_stage(&world.growing.stages[0]);
            world.growing.stages[0].buckets = 1;
            world.growing.stages[0].rows = aligned_alloc(128, 128);
            memset(world.growing.stages[0].rows, 0xff, 128);
        }
        world.refuses = random_below(&world.random, 2) ? 3 : 0;
        *t = begin(0);
        for (uint64_t key = OTHERS; key < OTHERS + others; key++) {
            (void)do_one(t, GA_SLABHASH_INSERT, key, 1);
        }
    }
}

static void check(turn *t)
{
    uint32_t count = (uint32_t)world.threads * CALLS;
    for (uint64_t key = 0; key < world.keys; key++) {
        if (!history_linearizable(world.calls, count, key)) {
            history_print(world.calls, count, key);
            fprintf(stderr, "kind %u, history %llu\n", world.kind,
                    (unsigned long long)world.histories);
            stress_need(false, "a history is not linearizable");
        }
        stress_need(find_all(t, key, NULL, 0) <= 1, "a key is there twice");
    }
}

static void work(size_t number)
{
    uint64_t meeting = 0;
    turn t = {.stands = false};
    if (number == 0) { /* the others begin when he has prepared the table */
        t = begin(0);
    }
    for (uint64_t i = 0; i < BATCH; i++) {
        if (number == 0) {
            prepare(&t, i);
            draw();
        }
        history_meet(&world.arrivals, ++meeting, world.threads);
        if (i % CLEARED == 0) { /* the stages are others: nobody has a stand from before */
            end(&t);
            t = begin(number);
        }
        for (uint32_t c = 0; c < CALLS; c++) {
            if (c == world.moves && number == world.threads - 1) {
                move_on(&t, i + world.moves);
            }
            do_call(&t, &world.calls[number * CALLS + c]);
        }
        if (number && (i + 1) % CLEARED == 0) { /* before the table is another */
            end(&t);
        } else {
            rest(&t);
        }
        history_meet(&world.arrivals, ++meeting, world.threads);
        if (number == 0) {
            check(&t);
        }
    }
    end(&t);
}

static void histories(void)
{
    static ga_slabhash_hash *const hashes[] = {NULL, hash_same, hash_two, NULL};
    world.threads = 2 + world.tables % 3;
    world.keys = 1 + random_below(&world.random, KEYS_MOST);
    open_table((uint32_t)(world.tables / 2 % 3), false, 1u << random_below(&world.random, 4),
               hashes[random_below(&world.random, 4)]);
    stress_threads(world.threads, work);
    close_table();
    world.histories += BATCH;
}

/* ---- volumes --------------------------------------------------------------------------------- */

static void put_in(size_t number)
{
    turn t = begin(number);
    uint64_t own = number * VOLUME, in = 0;
    for (uint64_t i = 0; i < VOLUME; i++) {
        uint64_t key = i < SHARED ? i : own + i;
        ga_slabhash_answer answer = do_one(&t, GA_SLABHASH_INSERT, key, key * 2 + 1);
        in += answer.result == GA_SLABHASH_ABSENT;
        uint64_t back = i < SHARED ? key : own + SHARED + i / 2;
        answer = do_one(&t, GA_SLABHASH_SEARCH, back, 0);
        bool there = i < SHARED || (i / 2 + SHARED <= i && i / 2 % 3);
        stress_need(!there || answer.result == GA_SLABHASH_FOUND, "a key is lost");
        stress_need(answer.result != GA_SLABHASH_FOUND || !answer.value ||
                        answer.value == back * 2 + 1,
                    "a value is another's");
        uint64_t gone = own + SHARED + i / 2;
        if (i % 2 && i / 2 % 3 == 0 && i / 2 + SHARED <= i) {
            answer = do_one(&t, GA_SLABHASH_DELETE, gone, 0);
            stress_need(answer.result == GA_SLABHASH_FOUND, "a key to be deleted is lost");
        }
    }
    end(&t);
    __atomic_fetch_add(&world.went_in, in, __ATOMIC_RELAXED); /* relaxed: read after all */
}

/* Whether thread `number` has taken its key out again. */
static bool is_gone(uint64_t i)
{
    for (uint64_t at = 1; at < VOLUME; at += 2) {
        if (SHARED + at / 2 == i && at / 2 % 3 == 0 && at / 2 + SHARED <= at) {
            return true;
        }
    }
    return false;
}

/* How often a key is there once all is in. */
static uint64_t times_of(uint64_t key)
{
    uint64_t i = key % VOLUME;
    if (i < SHARED) {
        return key >= SHARED ? 0 : GA_SLABHASH_IS_MULTI(world.kind) ? world.threads : 1;
    }
    return is_gone(i) ? 0 : 1;
}

static void expect_times(turn *t, uint64_t key, uint64_t times)
{
    uint64_t count = find_all(t, key, NULL, 0);
    if (count != times) {
        fprintf(stderr, "kind %u: key %llu is there %llu times, not %llu\n", world.kind,
                (unsigned long long)key, (unsigned long long)count, (unsigned long long)times);
    }
    stress_need(count == times, "a key is not there as often as it was put in");
}

static void fill(void)
{
    uint64_t all = 0;
    world.went_in = 0;
    world.refuses = world.tables / 12 % 2 ? 2 : 0;
    stress_threads(world.threads, put_in);
    world.refuses = 0;
    stress_need(world.growing.now > 0 || world.growing.failed > 0, "the table has not grown");
    settle();
    turn t = begin(0);
    for (uint64_t key = 0; key < world.threads * VOLUME; key++) {
        expect_times(&t, key, times_of(key));
        all += key < SHARED ? times_of(key) : key % VOLUME >= SHARED ? 1 : 0;
    }
    stress_need(all == world.went_in, "as many went in as were told");
    end(&t);
}

/* ---- what is not wanted any more -------------------------------------------------------------- */

/* Change nothing, until the table has done what it is to do, or should have: by others, too, so that
 * each gives way to them. */
static bool linger(turn *t, uint64_t *calls)
{
    (void)do_one(t, GA_SLABHASH_DELETE, NOWHERE, 0);
    if (++*calls % 64 == 0) {
        sched_yield();
    }
    return *calls % 4096 || ga_clock_ns() < world.until;
}

static uint64_t places(void)
{
    return ga_bits_count(ga_slabhash_places(world.kind));
}

/* One key in so many stays, of all that were put in. */
static void take_out(size_t number)
{
    turn t = begin(number);
    uint64_t calls = 0;
    for (uint64_t key = number * VOLUME; key < (number + 1) * VOLUME; key++) {
        uint64_t times = times_of(key);
        if (key % STAY && times) {
            stress_need(delete_each(&t, key) == times, "a key to be taken out is lost");
        } else if (times) {
            expect_times(&t, key, times);
        }
    }
    while (t.stand.buckets * places() > 50 * world.stay) { /* 2 of 100 places have pairs */
        stress_need(linger(&t, &calls), "a table that is nearly empty keeps its buckets");
    }
    end(&t);
}

static void shrink(void)
{
    uint32_t before = world.growing.shrunk;
    world.stay = 0;
    for (uint64_t key = 0; key < world.threads * VOLUME; key += STAY) {
        world.stay += times_of(key);
    }
    world.until = ga_clock_ns() + PATIENCE;
    stress_threads(world.threads, take_out);
    settle();
    stress_need(world.growing.shrunk > before, "a table that is nearly empty has not shrunk");
    turn t = begin(0);
    for (uint64_t key = 0; key < world.threads * VOLUME; key++) {
        expect_times(&t, key, key % STAY ? 0 : times_of(key));
    }
    end(&t);
    world.shrunk += world.growing.shrunk - before;
}

/* Keys of each thread fill the table to nine of ten places, though it may not grow; */
static void crowd(size_t number)
{
    turn t = begin(number);
    for (uint64_t i = number; i < world.crowd; i += world.threads) {
        ga_slabhash_answer answer = do_one(&t, GA_SLABHASH_INSERT, CROWD + i, i);
        stress_need(answer.result == GA_SLABHASH_ABSENT, "a key was there before");
    }
    end(&t);
}

/* and three in four of them go. */
static void thin_out(size_t number)
{
    turn t = begin(number);
    uint64_t calls = 0;
    for (uint64_t i = number; i < world.crowd; i += world.threads) {
        if (i / world.threads % 4) {
            ga_slabhash_answer answer = do_one(&t, GA_SLABHASH_DELETE, CROWD + i, 0);
            stress_need(answer.result == GA_SLABHASH_FOUND, "a key to be taken out is lost");
        }
    }
    while (t.stand.number == 0) {
        stress_need(linger(&t, &calls), "a table keeps slabs that it does not need");
    }
    end(&t);
}

static void compact(void)
{
    ga_slabhash_growing *g = &world.growing;
    uint32_t before = g->compacted;
    world.crowd = g->stages[0].buckets * places() * 9 / 10;
    g->least = g->stages[0].buckets; /* it may not shrink */
    g->stages[0].wanted = UINT32_MAX;
    stress_threads(world.threads, crowd);
    uint64_t crowded = ga_slab_host_taken(&world.table->slabs);
    world.until = ga_clock_ns() + PATIENCE;
    stress_threads(world.threads, thin_out);
    settle();
    stress_need(g->compacted > before, "a table with deleted pairs is not compacted");
    stress_need(ga_slab_host_taken(&world.table->slabs) <= crowded / 4,
                "slabs are kept that are not needed");
    turn t = begin(0);
    for (uint64_t i = 0; i < world.crowd; i++) {
        expect_times(&t, CROWD + i, i / world.threads % 4 ? 0 : 1);
    }
    end(&t);
    world.compacted += g->compacted - before;
}

static void volumes(void)
{
    world.threads = THREADS_MOST;
    open_table((uint32_t)(world.tables / 2 % 3), world.tables / 6 % 2, 1, NULL);
    fill();
    shrink();
    compact();
    close_table();
}

int main(int argc, char **argv)
{
    stress_begin(argc, argv);
    const char *wrong = history_try_checker();
    stress_need(!wrong, wrong);
    world.heap = stress_open("system");
    runs_are_all(1, 64); /* twice as many buckets */
    runs_are_all(5, 16); /* a quarter */
    while (stress_goes_on() || world.tables < 24) {
        world.random = world.tables;
        world.arrivals = 0;
        world.lanes = world.tables / 4 % 2;
        (world.tables % 2 ? volumes : histories)();
        world.tables++;
    }
    stress_need(world.stages > world.tables, "tables have hardly grown");
    printf(
        "%llu histories, %llu tables, %llu stages; by themselves %llu of fewer buckets, %llu of as "
        "many\n",
        (unsigned long long)world.histories, (unsigned long long)world.tables,
        (unsigned long long)world.stages, (unsigned long long)world.shrunk,
        (unsigned long long)world.compacted);
    NEED(ga_heap_close(world.heap) == GA_OK);
    return 0;
}
