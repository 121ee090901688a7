/* SPDX-License-Identifier: MIT
 *
 * Arrays of buckets that a table has moved from, and when they go back (grow_gone_tile.h): one thread
 * as several tiles, each step where the test has it. Older stands, a ring that is full, slabs, parts.
 * And tables that move to fewer buckets, or to as many: when, and to how many (grow_when_tile.h).
 */
#include "../../hashtables/slabhash/grow_turn_tile.h"
#include "../../hashtables/slabhash/table.h"

#include "support/expect.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define KIND ((uint32_t)GA_SLABHASH_MAP32 | GA_SLABHASH_GROWING)

typedef struct subject {
    ga_slabhash *table; /* for its slabs */
    ga_slabhash_view view;
    ga_slabhash_growing growing;
    uint32_t held; /* arrays */
    bool refuses;
} subject;

typedef struct turn {
    ga_slab_claimed claimed;
    ga_slabhash_stand stand;
} turn;

static subject s __attribute__((aligned(128)));

static void *array(void *context, size_t bytes)
{
    subject *of = context;
    void *rows = of->refuses ? NULL : aligned_alloc(128, bytes);
    of->held += rows ? 1 : 0;
    return rows;
}

static void give(void *context, void *rows, size_t bytes)
{
    subject *of = context;
    memset(rows, 0x5a, bytes);
    free(rows);
    of->held--;
}

/* All keys in one bucket, or spread. */
static uint64_t same(void *context, uint64_t key)
{
    (void)context;
    (void)key;
    return 0;
}

static void open_table(uint32_t buckets, ga_slabhash_hash *hash)
{
    ga_slabhash_options options = {
        .options_size = sizeof options, .mode = GA_SLABHASH_MAP32, .buckets = 1};
    memset(&s, 0, sizeof s);
    assert_ok(ga_slabhash_open(&s.table, &options));
    s.view = s.table->view;
    s.view.kind = KIND;
    s.view.most = UINT32_MAX;
    s.growing.array = array;
    s.growing.give = give;
    s.growing.context = &s;
    s.growing.hash = hash;
    s.growing.there = s.growing.making = 1;
    s.growing.slabs = s.view.heap;
    s.growing.kind = KIND;
    s.growing.stages[0].buckets = buckets;
    s.growing.stages[0].wanted = UINT32_MAX; /* nobody moves it but the test */
    s.growing.stages[0].stays = 1;
    s.growing.stages[0].rows = array(&s, ga_slabhash_array_bytes(buckets));
    memset(s.growing.stages[0].rows, 0xff, ga_slabhash_array_bytes(buckets));
}

static void close_table(void)
{
    for (uint32_t i = s.growing.gone; i < s.growing.there; i++) {
        free(ga_slabhash_stage_of(&s.growing, i)->rows);
    }
    assert_ok(ga_slabhash_close(s.table));
}

static turn begin(uint32_t number)
{
    turn t = {.claimed = ga_slabhash_claim_begin(0)};
    ga_slabhash_stand_begin(&s.growing, SLABHASH_TILE, &t.stand, number);
    return t;
}

static void end(turn *t)
{
    ga_slabhash_claim_end(s.view, SLABHASH_TILE, &t->claimed);
    ga_slabhash_stand_end(&s.growing, SLABHASH_TILE, &t->stand);
}

static uint64_t hash_of(uint64_t key)
{
    return s.growing.hash ? s.growing.hash(NULL, key) : ga_slabhash_seeded(s.view, key);
}

static ga_slabhash_answer perform(turn *t, uint32_t op, uint64_t key, uint64_t value)
{
    ga_slabhash_change_to to = {.key = key, .value = value, .op = op};
    for (;;) {
        uint32_t seen = slabhash_room(s.table);
        ga_slabhash_answer answer = ga_slabhash_do_standing(
            KIND, s.view, &s.growing, SLABHASH_TILE, &t->claimed, &t->stand, hash_of(key), to);
        if (answer.result != GA_SLABHASH_FULL) {
            return answer;
        }
        assert_ok(ga_slabhash_grow(s.table, seen));
    }
}

static void put(turn *t, uint64_t first, uint64_t end_)
{
    for (uint64_t key = first; key < end_; key++) {
        cr_assert_eq(perform(t, GA_SLABHASH_INSERT, key, key + 1).result, GA_SLABHASH_ABSENT);
    }
}

static void expect_keys(turn *t, uint64_t first, uint64_t end_)
{
    for (uint64_t key = first; key < end_; key++) {
        ga_slabhash_answer answer = perform(t, GA_SLABHASH_SEARCH, key, 0);
        cr_assert_eq(answer.result, GA_SLABHASH_FOUND, "key %" PRIu64, key);
        cr_assert_eq(answer.value, key + 1);
    }
}

/* Another array is there, of so many buckets; nothing has moved to it. */
static void make_of(turn *t, uint32_t buckets)
{
    uint32_t number = s.growing.there;
    ga_slabhash_stand_read(&s.growing, SLABHASH_TILE, &t->stand);
    cr_assert(ga_slabhash_has_place(&s.growing, SLABHASH_TILE, number));
    s.growing.making = number + 1;
    ga_slabhash_make_stage(&s.growing, SLABHASH_TILE, number, buckets, 1);
    ga_slabhash_stage_of(&s.growing, number)->wanted = UINT32_MAX;
    ga_slabhash_stage_of(&s.growing, number)->stays = 1;
    while (ga_slabhash_clear_some(&s.growing, SLABHASH_TILE)) {
    }
    ga_slabhash_stand_read(&s.growing, SLABHASH_TILE, &t->stand);
    cr_assert_not_null(t->stand.next_rows);
}

static void make(turn *t, uint32_t times)
{
    make_of(t, t->stand.buckets * times);
}

/* All buckets of it but the last `less` groups'. */
static void move(turn *t, uint32_t less)
{
    ga_slabhash_shift shift = ga_slabhash_shift_of(s.view, &s.growing, &t->stand);
    uint32_t opened = ga_slabhash_open_from(KIND, shift, SLABHASH_TILE, &t->claimed, 0,
                                            ga_slabhash_groups(shift) - less);
    ga_slabhash_note_opened(&s.growing, SLABHASH_TILE, &t->stand, opened);
}

static void move_on(turn *t, uint32_t times)
{
    make(t, times);
    move(t, 0);
    ga_slabhash_stand_read(&s.growing, SLABHASH_TILE, &t->stand);
}

static void move_to(turn *t, uint32_t buckets)
{
    uint32_t number = t->stand.number + 1;
    make_of(t, buckets);
    while (t->stand.number < number) {
        uint32_t seen = slabhash_room(s.table);
        move(t, 0);
        ga_slabhash_stand_read(&s.growing, SLABHASH_TILE, &t->stand);
        if (t->stand.number < number) { /* there was no slab */
            assert_ok(ga_slabhash_grow(s.table, seen));
        }
    }
    cr_assert_eq(t->stand.buckets, buckets);
}

/* From now on it may have fewer buckets, but not fewer than so many, or as many. */
static void lets_go(uint32_t least)
{
    s.growing.least = least;
    ga_slabhash_stage_of(&s.growing, s.growing.now)->stays = 0;
}

static bool give_some(void)
{
    return ga_slabhash_give_some(s.view.heap, &s.growing, SLABHASH_TILE);
}

/* ---- when ------------------------------------------------------------------------------------- */

Test(slabhash_gone, an_array_goes_back_once_nobody_has_a_stand_from_before)
{
    open_table(4, NULL);
    turn a = begin(0), b = begin(1);
    put(&a, 0, 30);
    cr_assert_not(give_some()); /* there is nothing */
    move_on(&b, 2);
    cr_assert(give_some());     /* an epoch is closed */
    cr_assert_not(give_some()); /* a and b are in it */
    ga_slabhash_stand_read(&s.growing, SLABHASH_TILE, &b.stand);
    cr_assert_not(give_some());
    cr_assert_eq(s.held, 2);
    expect_keys(&a, 0, 10); /* from where it stands; it looks at the record now and then */
    ga_slabhash_stand_read(&s.growing, SLABHASH_TILE, &a.stand);
    while (give_some()) {
    }
    cr_assert_eq(s.growing.gone, 1);
    cr_assert_eq(s.held, 1);
    expect_keys(&a, 0, 30);
    expect_keys(&b, 0, 30);
    end(&a);
    end(&b);
    close_table();
}

Test(slabhash_gone, who_comes_later_keeps_nothing)
{
    open_table(4, NULL);
    turn a = begin(0);
    move_on(&a, 1);
    cr_assert(give_some());
    turn b = begin(1);
    end(&a);
    while (give_some()) {
    }
    cr_assert_eq(s.growing.gone, 1);
    cr_assert_eq(s.held, 1);
    end(&b);
    close_table();
}

Test(slabhash_gone, what_is_taken_out_later_waits_for_another_epoch)
{
    open_table(4, NULL);
    turn a = begin(0);
    put(&a, 0, 30);
    move_on(&a, 2);
    cr_assert(give_some()); /* closed: the first array */
    turn b = begin(1);
    move_on(&b, 2);
    cr_assert_eq(b.stand.number, 2);
    end(&a);
    turn c = begin(2); /* knows of the third alone */
    while (give_some()) {
    }
    cr_assert_eq(s.growing.gone, 1, "b has a stand that may have the second");
    end(&b);
    while (give_some()) {
    }
    cr_assert_eq(s.growing.gone, 1, "and so has c, as far as anybody knows");
    ga_slabhash_stand_read(&s.growing, SLABHASH_TILE, &c.stand);
    while (give_some()) {
    }
    cr_assert_eq(s.growing.gone, 2);
    expect_keys(&c, 0, 30);
    end(&c);
    close_table();
}

Test(slabhash_gone, no_array_goes_back_of_which_a_bucket_has_not_moved)
{
    open_table(8, NULL);
    turn a = begin(0);
    put(&a, 0, 60);
    make(&a, 1);
    move(&a, 1);
    end(&a);
    for (uint32_t i = 0; i < 10; i++) {
        cr_assert_not(give_some());
    }
    cr_assert_eq(s.held, 2);
    a = begin(0);
    expect_keys(&a, 0, 60);
    end(&a);
    close_table();
}

/* ---- the ring --------------------------------------------------------------------------------- */

Test(slabhash_gone, a_stand_keeps_as_many_arrays_as_have_a_place)
{
    open_table(2, NULL);
    turn old = begin(0), b = begin(1);
    put(&old, 0, 20);
    for (uint32_t i = 1; i < GA_SLABHASH_STAGES; i++) {
        move_on(&b, 1);
        (void)give_some();
    }
    cr_assert_eq(s.held, GA_SLABHASH_STAGES);
    cr_assert_not(ga_slabhash_has_place(&s.growing, SLABHASH_TILE, s.growing.there));
    ga_slabhash_stage_of(&s.growing, s.growing.now)->wanted = 0;
    put(&b, 100, 180); /* these would have it grow */
    cr_assert_eq(s.growing.making, GA_SLABHASH_STAGES);
    ga_slabhash_stage_of(&s.growing, s.growing.now)->wanted = UINT32_MAX;
    expect_keys(&old, 0, 20); /* from the oldest array on */
    expect_keys(&old, 100, 180);
    end(&old);
    ga_slabhash_stand_read(&s.growing, SLABHASH_TILE, &b.stand);
    while (give_some()) {
        ga_slabhash_stand_read(&s.growing, SLABHASH_TILE, &b.stand);
    }
    cr_assert_eq(s.held, 1);
    move_on(&b, 2);
    expect_keys(&b, 0, 20);
    expect_keys(&b, 100, 180);
    end(&b);
    close_table();
}

Test(slabhash_gone, places_are_used_again)
{
    open_table(2, NULL);
    turn a = begin(0);
    put(&a, 0, 50);
    for (uint32_t i = 0; i < 5 * GA_SLABHASH_STAGES; i++) {
        move_on(&a, 1);
        (void)perform(&a, GA_SLABHASH_DELETE, i % 50, 0);
        put(&a, i % 50, i % 50 + 1);
        while (give_some()) {
            ga_slabhash_stand_read(&s.growing, SLABHASH_TILE, &a.stand);
        }
        cr_assert_leq(s.held, 3);
    }
    cr_assert_eq(s.growing.now, 5 * GA_SLABHASH_STAGES);
    expect_keys(&a, 0, 50);
    end(&a);
    close_table();
}

Test(slabhash_gone, no_memory_for_the_next_array_takes_no_place)
{
    open_table(2, NULL);
    turn a = begin(0);
    s.refuses = true;
    for (uint32_t i = 0; i < 2 * GA_SLABHASH_STAGES; i++) {
        s.growing.making = 2;
        ga_slabhash_make_stage(&s.growing, SLABHASH_TILE, 1, 4, 1);
        cr_assert_eq(s.growing.making, 1);
    }
    s.refuses = false;
    put(&a, 0, 20);
    move_on(&a, 2);
    expect_keys(&a, 0, 20);
    end(&a);
    close_table();
}

/* ---- slabs ------------------------------------------------------------------------------------ */

static uint64_t taken(turn *t)
{
    ga_slabhash_claim_end(s.view, SLABHASH_TILE, &t->claimed);
    t->claimed.units = 0;
    return ga_slab_host_taken(&s.table->slabs);
}

Test(slabhash_gone, the_slabs_of_an_array_go_back_with_it)
{
    open_table(1, same);
    turn a = begin(0);
    put(&a, 0, 150); /* 15 a slab: nine of them behind the bucket */
    cr_assert_eq(taken(&a), 9);
    move_on(&a, 2);
    cr_assert_eq(taken(&a), 18);
    end(&a);
    while (give_some()) {
    }
    a = begin(0);
    cr_assert_eq(taken(&a), 9);
    expect_keys(&a, 0, 150);
    end(&a);
    close_table();
}

Test(slabhash_gone, an_array_goes_back_in_parts_of_its_buckets)
{
    const uint32_t buckets = 3 * GA_SLABHASH_BACK + 5, parts = 4;
    open_table(buckets, NULL);
    turn a = begin(0);
    put(&a, 0, 15 * (uint64_t)buckets);
    uint64_t before = taken(&a);
    cr_assert_gt(before, 4);
    move_on(&a, 1);
    uint64_t both = taken(&a);
    end(&a);
    cr_assert(give_some()); /* closed */
    cr_assert(give_some()); /* drained */
    cr_assert_eq(s.growing.back, UINT64_C(1) << 32 | parts);
    for (uint32_t left = parts; left; left--) {
        cr_assert_eq(s.held, 2);
        cr_assert_eq((uint32_t)s.growing.back, left);
        cr_assert(give_some());
    }
    cr_assert_eq(s.held, 1);
    cr_assert_eq(s.growing.gone, 1);
    a = begin(0);
    cr_assert_eq(taken(&a), both - before);
    expect_keys(&a, 0, 15 * (uint64_t)buckets);
    end(&a);
    close_table();
}

/* Who has a part keeps the array; others go on with the rest, and nobody has it again. */
Test(slabhash_gone, who_stops_with_a_part_keeps_its_array_alone)
{
    open_table(2 * GA_SLABHASH_BACK, NULL);
    turn a = begin(0);
    move_on(&a, 1);
    end(&a);
    cr_assert(give_some()); /* closed */
    cr_assert(give_some()); /* drained */
    uint64_t mine = ga_slabhash_take_part(&s.growing);
    cr_assert_eq(mine, UINT64_C(1) << 32 | 2);
    cr_assert(give_some());
    for (uint32_t i = 0; i < 5; i++) {
        cr_assert_not(give_some());
    }
    cr_assert_eq(s.held, 2);
    a = begin(0);
    put(&a, 0, 100);
    move_on(&a, 2); /* what moves meanwhile waits */
    expect_keys(&a, 0, 100);
    end(&a);
    cr_assert_not(give_some());
    ga_slabhash_part_back(s.view.heap, SLABHASH_TILE, ga_slabhash_stage_of(&s.growing, 0), 1);
    cr_assert(ga_slabhash_complete(SLABHASH_TILE, &s.growing.given, 1, 2));
    ga_slabhash_stage_back(&s.growing, SLABHASH_TILE, 0);
    while (give_some()) {
    }
    cr_assert_eq(s.held, 1);
    a = begin(0);
    expect_keys(&a, 0, 100);
    end(&a);
    close_table();
}

/* ---- fewer buckets ---------------------------------------------------------------------------- */

/* Requests that change nothing, so many that whoever looks now and then has. */
static void linger(turn *t)
{
    for (uint32_t i = 0; i < 40 * GA_SLABHASH_SELDOM; i++) {
        cr_assert_eq(perform(t, GA_SLABHASH_DELETE, 1 << 20, 0).result, GA_SLABHASH_ABSENT);
    }
}

static void take_out(turn *t, uint64_t first, uint64_t end_)
{
    for (uint64_t key = first; key < end_; key++) {
        cr_assert_eq(perform(t, GA_SLABHASH_DELETE, key, 0).result, GA_SLABHASH_FOUND);
    }
}

Test(slabhash_gone, buckets_become_one)
{
    static const uint32_t shapes[][2] = {{8, 4}, {8, 2}, {64, 16}, {2, 1}, {4, 1}, {6, 3}};
    for (uint32_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        open_table(shapes[i][0], NULL);
        turn a = begin(0), old = begin(1);
        put(&a, 0, 10 * shapes[i][0]);
        move_to(&a, shapes[i][1]);
        expect_keys(&a, 0, 10 * shapes[i][0]);
        expect_keys(&old, 0, 10 * shapes[i][0]); /* from a stand of before */
        put(&old, 1000, 1020);
        move_to(&a, shapes[i][0]); /* and back */
        expect_keys(&a, 0, 10 * shapes[i][0]);
        expect_keys(&a, 1000, 1020);
        end(&a);
        end(&old);
        close_table();
    }
}

/* Chains behind one of the buckets come behind the new one. */
Test(slabhash_gone, chains_become_one)
{
    open_table(4, same);
    turn a = begin(0);
    put(&a, 0, 150);
    take_out(&a, 0, 75);
    cr_assert_eq(taken(&a), 9);
    move_to(&a, 1);
    cr_assert_eq(taken(&a), 9 + 4);
    expect_keys(&a, 75, 150);
    end(&a);
    while (give_some()) {
    }
    a = begin(0);
    cr_assert_eq(taken(&a), 4);
    expect_keys(&a, 75, 150);
    end(&a);
    close_table();
}

/* While some groups have moved and others not, each key is in one place. */
Test(slabhash_gone, keys_are_there_while_buckets_become_fewer)
{
    open_table(16, NULL);
    turn a = begin(0), b = begin(1);
    put(&a, 0, 150);
    make_of(&a, 8);
    move(&a, 4);
    expect_keys(&b, 0, 150);
    take_out(&b, 0, 50);
    put(&b, 200, 250);
    expect_keys(&a, 50, 150);
    expect_keys(&a, 200, 250);
    end(&a);
    end(&b);
    close_table();
}

Test(slabhash_gone, how_few_buckets_there_are_to_be)
{
    const ga_slabhash_sampled none = {0, 0}, few = {3, 50}, some = {4, 50}, dead = {35, 20},
                              full = {36, 60}, fresh = {35, 19};
    cr_assert_eq(ga_slabhash_less(none, 64, 1, 0), 16);
    cr_assert_eq(ga_slabhash_less(few, 64, 1, 0), 32);
    cr_assert_eq(ga_slabhash_less(few, 64, 1, 64), 32); /* and compacted by that */
    cr_assert_eq(ga_slabhash_less(none, 64, 32, 0), 32);
    cr_assert_eq(ga_slabhash_less(none, 64, 33, 0), 0);
    cr_assert_eq(ga_slabhash_less(none, 6, 1, 0), 3);
    cr_assert_eq(ga_slabhash_less(none, 1, 1, 0), 0);
    cr_assert_eq(ga_slabhash_less(none, 7, 1, 0), 0);
    cr_assert_eq(ga_slabhash_less(some, 64, 1, 0), 0);
    cr_assert_eq(ga_slabhash_less(some, 64, 1, 2), 0);
    cr_assert_eq(ga_slabhash_less(some, 64, 1, 3), 64);
    cr_assert_eq(ga_slabhash_less(dead, 64, 1, 3), 64);
    cr_assert_eq(ga_slabhash_less(fresh, 64, 1, 3), 0);
    cr_assert_eq(ga_slabhash_less(full, 64, 1, 3), 0);
}

Test(slabhash_gone, a_table_that_is_emptied_shrinks_to_what_it_began_with)
{
    open_table(256, NULL);
    turn a = begin(0);
    put(&a, 0, 1500);
    lets_go(8);
    linger(&a);
    cr_assert_eq(a.stand.buckets, 256);
    cr_assert_eq(s.growing.shrunk, 0);
    take_out(&a, 5, 1500);
    linger(&a);
    cr_assert_eq(a.stand.buckets, 8);
    cr_assert_eq(s.growing.compacted, 0);
    cr_assert_geq(s.growing.shrunk, 3);
    expect_keys(&a, 0, 5);
    linger(&a);
    cr_assert_eq(a.stand.buckets, 8);
    cr_assert_leq(s.held, 2);
    end(&a);
    close_table();
}

Test(slabhash_gone, a_table_does_not_shrink_while_an_older_array_is_held)
{
    open_table(64, NULL);
    turn a = begin(0), old = begin(1);
    move_to(&a, 128);
    lets_go(1);
    linger(&a);
    cr_assert_eq(a.stand.buckets, 128);
    end(&old);
    linger(&a);
    cr_assert_leq(a.stand.buckets, 8);
    end(&a);
    close_table();
}

Test(slabhash_gone, without_memory_for_fewer_buckets_nobody_asks_again)
{
    open_table(64, NULL);
    turn a = begin(0);
    put(&a, 0, 9);
    lets_go(1);
    s.refuses = true;
    linger(&a);
    cr_assert_eq(s.growing.failed, 1);
    cr_assert_eq(s.growing.making, 1);
    expect_keys(&a, 0, 9);
    s.refuses = false;
    linger(&a);
    cr_assert_eq(a.stand.buckets, 64);
    move_to(&a, 64); /* that one may */
    lets_go(1);
    linger(&a);
    cr_assert_leq(a.stand.buckets, 16);
    expect_keys(&a, 0, 9);
    end(&a);
    close_table();
}

Test(slabhash_gone, slabs_that_deleted_pairs_have_are_got_rid_of)
{
    open_table(32, NULL);
    turn a = begin(0);
    put(&a, 0, 460);
    lets_go(32);
    linger(&a);
    cr_assert_gt(taken(&a), 3);
    cr_assert_eq(a.stand.number, 0);
    take_out(&a, 100, 460);
    linger(&a);
    cr_assert_eq(s.growing.compacted, 1);
    cr_assert_eq(s.growing.shrunk, 0);
    cr_assert_eq(a.stand.number, 1);
    cr_assert_eq(a.stand.buckets, 32);
    cr_assert_eq(s.growing.gone, 1);
    cr_assert_eq(taken(&a), 0);
    expect_keys(&a, 0, 100);
    end(&a);
    close_table();
}

/* Who chains a slab for places that deleted pairs have has the table compacted. */
Test(slabhash_gone, a_slab_that_is_chained_for_deleted_pairs_compacts_the_table)
{
    open_table(8, NULL);
    lets_go(8);
    s.growing.stages[0].wanted = 0;
    turn a = begin(0);
    for (uint64_t key = 0; key < 400 && !s.growing.compacted; key++) {
        put(&a, key, key + 1);
        take_out(&a, key, key + 1);
    }
    cr_assert_eq(s.growing.compacted, 1);
    linger(&a);
    cr_assert_eq(a.stand.buckets, 8);
    end(&a);
    close_table();
}
