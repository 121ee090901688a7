/* SPDX-License-Identifier: MIT
 *
 * Tables that migrate to fewer buckets, or to the same number: when, and to how many
 * (trigger_tile.h), and how several buckets become one (migrate_tile.h).
 */
#include "slabhash_tiles.h"

/* Enough requests without a change that a tile refreshes its snapshot. */
static void linger(tiles_tile *t)
{
    for (uint32_t i = 0; i < 40 * GA_SLABHASH_RENEW_REQUESTS; i++) {
        cr_assert_eq(tiles_do(t, GA_SLABHASH_DELETE, 1 << 20, 0).result, GA_SLABHASH_ABSENT);
    }
}

static void take_out(tiles_tile *t, uint64_t first, uint64_t end_)
{
    for (uint64_t key = first; key < end_; key++) {
        cr_assert_eq(tiles_do(t, GA_SLABHASH_DELETE, key, 0).result, GA_SLABHASH_FOUND);
    }
}

Test(slabhash_less, buckets_become_one)
{
    static const uint32_t shapes[][2] = {{8, 4}, {8, 2}, {64, 16}, {2, 1}, {4, 1}, {6, 3}};
    for (uint32_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        tiles_open(shapes[i][0], NULL);
        tiles_tile a = tiles_begin(0), old = tiles_begin(1);
        tiles_put(&a, 0, 10 * shapes[i][0]);
        tiles_move_to(&a, shapes[i][1]);
        tiles_expect(&a, 0, 10 * shapes[i][0]);
        tiles_expect(&old, 0, 10 * shapes[i][0]); /* by an older snapshot */
        tiles_put(&old, 1000, 1020);
        tiles_move_to(&a, shapes[i][0]); /* and back */
        tiles_expect(&a, 0, 10 * shapes[i][0]);
        tiles_expect(&a, 1000, 1020);
        tiles_end(&a);
        tiles_end(&old);
        tiles_close();
    }
}

/* Chains behind any of the old buckets continue behind the new one. */
Test(slabhash_less, chains_become_one)
{
    tiles_open(4, tiles_same);
    tiles_tile a = tiles_begin(0);
    tiles_put(&a, 0, 150);
    take_out(&a, 0, 75);
    cr_assert_eq(tiles_taken(&a), 9);
    tiles_move_to(&a, 1);
    cr_assert_eq(tiles_taken(&a), 9 + 4);
    tiles_expect(&a, 75, 150);
    tiles_end(&a);
    while (tiles_give_some()) {
    }
    a = tiles_begin(0);
    cr_assert_eq(tiles_taken(&a), 4);
    tiles_expect(&a, 75, 150);
    tiles_end(&a);
    tiles_close();
}

/* While some groups have been migrated and others not, each key is in one slot. */
Test(slabhash_less, keys_are_there_while_buckets_become_fewer)
{
    tiles_open(16, NULL);
    tiles_tile a = tiles_begin(0), b = tiles_begin(1);
    tiles_put(&a, 0, 150);
    tiles_make_of(&a, 8);
    tiles_move(&a, 4);
    tiles_expect(&b, 0, 150);
    take_out(&b, 0, 50);
    tiles_put(&b, 200, 250);
    tiles_expect(&a, 50, 150);
    tiles_expect(&a, 200, 250);
    tiles_end(&a);
    tiles_end(&b);
    tiles_close();
}

Test(slabhash_less, how_few_buckets_there_are_to_be)
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

Test(slabhash_less, a_table_that_is_emptied_shrinks_to_what_it_began_with)
{
    tiles_open(256, NULL);
    tiles_tile a = tiles_begin(0);
    tiles_put(&a, 0, 1500);
    tiles_let_go(8);
    linger(&a);
    cr_assert_eq(a.stand.buckets, 256);
    cr_assert_eq(tiles.growing.shrunk, 0);
    take_out(&a, 5, 1500);
    linger(&a);
    cr_assert_eq(a.stand.buckets, 8);
    cr_assert_eq(tiles.growing.compacted, 0);
    cr_assert_geq(tiles.growing.shrunk, 3);
    tiles_expect(&a, 0, 5);
    linger(&a);
    cr_assert_eq(a.stand.buckets, 8);
    cr_assert_leq(tiles.held, 2);
    tiles_end(&a);
    tiles_close();
}

Test(slabhash_less, a_table_does_not_shrink_while_an_older_array_is_held)
{
    tiles_open(64, NULL);
    tiles_tile a = tiles_begin(0), old = tiles_begin(1);
    tiles_move_to(&a, 128);
    tiles_let_go(1);
    linger(&a);
    cr_assert_eq(a.stand.buckets, 128);
    tiles_end(&old);
    linger(&a);
    cr_assert_leq(a.stand.buckets, 8);
    tiles_end(&a);
    tiles_close();
}

Test(slabhash_less, without_memory_for_fewer_buckets_no_tile_retries)
{
    tiles_open(64, NULL);
    tiles_tile a = tiles_begin(0);
    tiles_put(&a, 0, 9);
    tiles_let_go(1);
    tiles.refuses = true;
    linger(&a);
    cr_assert_eq(tiles.growing.failed, 1);
    cr_assert_eq(tiles.growing.making, 1);
    tiles_expect(&a, 0, 9);
    tiles.refuses = false;
    linger(&a);
    cr_assert_eq(a.stand.buckets, 64);
    tiles_move_to(&a, 64); /* that tile may */
    tiles_let_go(1);
    linger(&a);
    cr_assert_leq(a.stand.buckets, 16);
    tiles_expect(&a, 0, 9);
    tiles_end(&a);
    tiles_close();
}

Test(slabhash_less, slabs_that_deleted_pairs_have_are_got_rid_of)
{
    tiles_open(32, NULL);
    tiles_tile a = tiles_begin(0);
    tiles_put(&a, 0, 460);
    tiles_let_go(32);
    linger(&a);
    cr_assert_gt(tiles_taken(&a), 3);
    cr_assert_eq(a.stand.number, 0);
    take_out(&a, 100, 460);
    linger(&a);
    cr_assert_eq(tiles.growing.compacted, 1);
    cr_assert_eq(tiles.growing.shrunk, 0);
    cr_assert_eq(a.stand.number, 1);
    cr_assert_eq(a.stand.buckets, 32);
    cr_assert_eq(tiles.growing.gone, 1);
    cr_assert_eq(tiles_taken(&a), 0);
    tiles_expect(&a, 0, 100);
    tiles_end(&a);
    tiles_close();
}

/* A tile that chains a slab although there are slots of deleted pairs makes the table compact. */
Test(slabhash_less, a_slab_that_is_chained_for_deleted_pairs_compacts_the_table)
{
    tiles_open(8, NULL);
    tiles_let_go(8);
    tiles.growing.versions[0].wanted = 0;
    tiles_tile a = tiles_begin(0);
    for (uint64_t key = 0; key < 400 && !tiles.growing.compacted; key++) {
        tiles_put(&a, key, key + 1);
        take_out(&a, key, key + 1);
    }
    cr_assert_eq(tiles.growing.compacted, 1);
    linger(&a);
    cr_assert_eq(a.stand.buckets, 8);
    tiles_end(&a);
    tiles_close();
}
