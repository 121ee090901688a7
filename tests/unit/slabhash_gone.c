/* SPDX-License-Identifier: MIT
 *
 * Arrays of buckets that a table has migrated from, and the time when they are freed
 * (arrays_tile.h): one thread acts as several tiles, and the test decides each step. Older
 * snapshots, a full ring, slabs, shares.
 */
#include "slabhash_tiles.h"

/* ---- when ------------------------------------------------------------------------------------ */

Test(slabhash_gone, an_array_is_freed_once_no_snapshot_refers_to_it)
{
    tiles_open(4, NULL);
    tiles_tile a = tiles_begin(0), b = tiles_begin(1);
    tiles_put(&a, 0, 30);
    cr_assert_not(tiles_give_some()); /* there is nothing */
    tiles_move_on(&b, 2);
    cr_assert(tiles_give_some());     /* an epoch is closed */
    cr_assert_not(tiles_give_some()); /* a and b are in it */
    ga_slabhash_snapshot_renew(&tiles.growing, SLABHASH_TILE, &b.stand);
    cr_assert_not(tiles_give_some());
    cr_assert_eq(tiles.held, 2);
    tiles_expect(&a, 0, 10); /* from where it stands; it looks at the record now and then */
    ga_slabhash_snapshot_renew(&tiles.growing, SLABHASH_TILE, &a.stand);
    while (tiles_give_some()) {
    }
    cr_assert_eq(tiles.growing.gone, 1);
    cr_assert_eq(tiles.held, 1);
    tiles_expect(&a, 0, 30);
    tiles_expect(&b, 0, 30);
    tiles_end(&a);
    tiles_end(&b);
    tiles_close();
}

Test(slabhash_gone, a_later_tile_keeps_no_array)
{
    tiles_open(4, NULL);
    tiles_tile a = tiles_begin(0);
    tiles_move_on(&a, 1);
    cr_assert(tiles_give_some());
    tiles_tile b = tiles_begin(1);
    tiles_end(&a);
    while (tiles_give_some()) {
    }
    cr_assert_eq(tiles.growing.gone, 1);
    cr_assert_eq(tiles.held, 1);
    tiles_end(&b);
    tiles_close();
}

Test(slabhash_gone, what_is_taken_out_later_waits_for_another_epoch)
{
    tiles_open(4, NULL);
    tiles_tile a = tiles_begin(0);
    tiles_put(&a, 0, 30);
    tiles_move_on(&a, 2);
    cr_assert(tiles_give_some()); /* the epoch is closed: the first array is freed */
    tiles_tile b = tiles_begin(1);
    tiles_move_on(&b, 2);
    cr_assert_eq(b.stand.number, 2);
    tiles_end(&a);
    tiles_tile c = tiles_begin(2); /* knows of the third alone */
    while (tiles_give_some()) {
    }
    cr_assert_eq(tiles.growing.gone, 1, "b has a stand that may have the second");
    tiles_end(&b);
    while (tiles_give_some()) {
    }
    cr_assert_eq(tiles.growing.gone, 1, "and so has c, as far as anybody knows");
    ga_slabhash_snapshot_renew(&tiles.growing, SLABHASH_TILE, &c.stand);
    while (tiles_give_some()) {
    }
    cr_assert_eq(tiles.growing.gone, 2);
    tiles_expect(&c, 0, 30);
    tiles_end(&c);
    tiles_close();
}

/* A tile has seen an unused array, which others free before that tile closes an epoch. */
Test(slabhash_gone, an_epoch_without_arrays_drains)
{
    tiles_open(4, NULL);
    tiles_tile a = tiles_begin(0);
    tiles_put(&a, 0, 30);
    cr_assert(ga_slabhash_close_epoch(&tiles.growing, SLABHASH_TILE));
    cr_assert_not(tiles_give_some()); /* a is in it */
    tiles_end(&a);
    while (tiles_give_some()) {
    }
    cr_assert_eq(tiles.growing.epochs.step % 4, GA_EPOCH_OPEN);
    cr_assert_eq(tiles.growing.gone, 0);
    a = tiles_begin(0);
    tiles_move_on(&a, 2);
    tiles_end(&a);
    while (tiles_give_some()) {
    }
    cr_assert_eq(tiles.growing.gone, 1);
    cr_assert_eq(tiles.held, 1);
    a = tiles_begin(0);
    tiles_expect(&a, 0, 30);
    tiles_end(&a);
    tiles_close();
}

Test(slabhash_gone, no_array_is_freed_before_all_buckets_have_migrated)
{
    tiles_open(8, NULL);
    tiles_tile a = tiles_begin(0);
    tiles_put(&a, 0, 60);
    tiles_make(&a, 1);
    tiles_move(&a, 1);
    tiles_end(&a);
    for (uint32_t i = 0; i < 10; i++) {
        cr_assert_not(tiles_give_some());
    }
    cr_assert_eq(tiles.held, 2);
    a = tiles_begin(0);
    tiles_expect(&a, 0, 60);
    tiles_end(&a);
    tiles_close();
}

/* ---- the ring -------------------------------------------------------------------------------- */

Test(slabhash_gone, a_stand_keeps_as_many_arrays_as_have_a_place)
{
    tiles_open(2, NULL);
    tiles_tile old = tiles_begin(0), b = tiles_begin(1);
    tiles_put(&old, 0, 20);
    for (uint32_t i = 1; i < GA_SLABHASH_VERSIONS; i++) {
        tiles_move_on(&b, 1);
        (void)tiles_give_some();
    }
    cr_assert_eq(tiles.held, GA_SLABHASH_VERSIONS);
    cr_assert_not(ga_slabhash_has_entry(&tiles.growing, SLABHASH_TILE, tiles.growing.there));
    ga_slabhash_version_of(&tiles.growing, tiles.growing.now)->wanted = 0;
    tiles_put(&b, 100, 180); /* these would have it grow */
    cr_assert_eq(tiles.growing.making, GA_SLABHASH_VERSIONS);
    ga_slabhash_version_of(&tiles.growing, tiles.growing.now)->wanted = UINT32_MAX;
    tiles_expect(&old, 0, 20); /* from the oldest array on */
    tiles_expect(&old, 100, 180);
    tiles_end(&old);
    ga_slabhash_snapshot_renew(&tiles.growing, SLABHASH_TILE, &b.stand);
    while (tiles_give_some()) {
        ga_slabhash_snapshot_renew(&tiles.growing, SLABHASH_TILE, &b.stand);
    }
    cr_assert_eq(tiles.held, 1);
    tiles_move_on(&b, 2);
    tiles_expect(&b, 0, 20);
    tiles_expect(&b, 100, 180);
    tiles_end(&b);
    tiles_close();
}

Test(slabhash_gone, places_are_used_again)
{
    tiles_open(2, NULL);
    tiles_tile a = tiles_begin(0);
    tiles_put(&a, 0, 50);
    for (uint32_t i = 0; i < 5 * GA_SLABHASH_VERSIONS; i++) {
        tiles_move_on(&a, 1);
        (void)tiles_do(&a, GA_SLABHASH_DELETE, i % 50, 0);
        tiles_put(&a, i % 50, i % 50 + 1);
        while (tiles_give_some()) {
            ga_slabhash_snapshot_renew(&tiles.growing, SLABHASH_TILE, &a.stand);
        }
        cr_assert_leq(tiles.held, 3);
    }
    cr_assert_eq(tiles.growing.now, 5 * GA_SLABHASH_VERSIONS);
    tiles_expect(&a, 0, 50);
    tiles_end(&a);
    tiles_close();
}

Test(slabhash_gone, no_memory_for_the_next_array_takes_no_place)
{
    tiles_open(2, NULL);
    tiles_tile a = tiles_begin(0);
    tiles.refuses = true;
    for (uint32_t i = 0; i < 2 * GA_SLABHASH_VERSIONS; i++) {
        tiles.growing.making = 2;
        ga_slabhash_make_version(&tiles.growing, SLABHASH_TILE, 1, 4, 1);
        cr_assert_eq(tiles.growing.making, 1);
    }
    tiles.refuses = false;
    tiles_put(&a, 0, 20);
    tiles_move_on(&a, 2);
    tiles_expect(&a, 0, 20);
    tiles_end(&a);
    tiles_close();
}

/* ---- slabs ----------------------------------------------------------------------------------- */

Test(slabhash_gone, the_slabs_of_an_array_go_back_with_it)
{
    tiles_open(1, tiles_same);
    tiles_tile a = tiles_begin(0);
    tiles_put(&a, 0, 150); /* 15 a slab: nine of them behind the bucket */
    cr_assert_eq(tiles_taken(&a), 9);
    tiles_move_on(&a, 2);
    cr_assert_eq(tiles_taken(&a), 18);
    tiles_end(&a);
    while (tiles_give_some()) {
    }
    a = tiles_begin(0);
    cr_assert_eq(tiles_taken(&a), 9);
    tiles_expect(&a, 0, 150);
    tiles_end(&a);
    tiles_close();
}

Test(slabhash_gone, an_array_is_freed_in_shares_of_its_buckets)
{
    const uint32_t buckets = 3 * GA_SLABHASH_BACK + 5, parts = 4;
    tiles_open(buckets, NULL);
    tiles_tile a = tiles_begin(0);
    tiles_put(&a, 0, 15 * (uint64_t)buckets);
    uint64_t before = tiles_taken(&a);
    cr_assert_gt(before, 4);
    tiles_move_on(&a, 1);
    uint64_t both = tiles_taken(&a);
    tiles_end(&a);
    cr_assert(tiles_give_some()); /* closed */
    cr_assert(tiles_give_some()); /* drained */
    cr_assert_eq(tiles.growing.back, UINT64_C(1) << 32 | parts);
    for (uint32_t left = parts; left; left--) {
        cr_assert_eq(tiles.held, 2);
        cr_assert_eq((uint32_t)tiles.growing.back, left);
        cr_assert(tiles_give_some());
    }
    cr_assert_eq(tiles.held, 1);
    cr_assert_eq(tiles.growing.gone, 1);
    a = tiles_begin(0);
    cr_assert_eq(tiles_taken(&a), both - before);
    tiles_expect(&a, 0, 15 * (uint64_t)buckets);
    tiles_end(&a);
    tiles_close();
}

/* Four buckets, a quarter of the keys in each. */
static uint64_t by_quarters(void *context, uint64_t key)
{
    (void)context;
    return key % 4 << 62;
}

/* Open a table with an array that is not used any more, and one that moves to two buckets. One of
 * the two needs a slab, and there is none: it stays pending until a change of one of its keys is
 * FULL and adds slabs. */
static tiles_tile open_without_slabs(void)
{
    tiles_open(4, by_quarters);
    tiles_tile a = tiles_begin(0);
    for (uint64_t key = 0; key < 40; key += 4) {
        tiles_put(&a, key, key + 2); /* ten in bucket 0, ten in bucket 1 */
    }
    tiles_move_on(&a, 1);
    tiles_make_of(&a, 2);
    cr_assert_eq(tiles.table->slabs.heap.words, 0, "a slab was needed before");
    return a;
}

Test(slabhash_gone, older_arrays_are_freed_while_a_bucket_waits_for_a_slab)
{
    tiles_tile a = open_without_slabs();
    for (uint32_t i = 0; i < 8 * GA_SLABHASH_RENEW_REQUESTS; i++) {
        cr_assert_eq(tiles_do(&a, GA_SLABHASH_DELETE, 4 * i + 3, 0).result, GA_SLABHASH_ABSENT);
    }
    cr_assert_eq(tiles.growing.now, 1, "the table has moved without slabs");
    cr_assert_eq(tiles.growing.gone, 1, "changes put off the freeing of an array");
    cr_assert_eq(tiles.held, 2);
    tiles_end(&a);
    tiles_close();
}

Test(slabhash_gone, a_move_that_waited_for_a_slab_ends_with_slabs)
{
    tiles_tile a = open_without_slabs();
    cr_assert_eq(tiles_do(&a, GA_SLABHASH_DELETE, 400, 0).result, GA_SLABHASH_ABSENT);
    for (uint32_t i = 0; i < 8 && tiles.growing.now == 1; i++) {
        (void)tiles_do(&a, GA_SLABHASH_DELETE, 4 * i + 3, 0);
    }
    cr_assert_eq(tiles.growing.now, 2);
    for (uint64_t key = 0; key < 40; key += 4) {
        tiles_expect(&a, key, key + 2);
    }
    tiles_end(&a);
    tiles_close();
}

/* A tile that has a share of an array delays the array's end; other tiles take the other shares,
 * and no other gets this one. */
Test(slabhash_gone, a_stopped_tile_with_a_share_keeps_only_its_array)
{
    tiles_open(2 * GA_SLABHASH_BACK, NULL);
    tiles_tile a = tiles_begin(0);
    tiles_move_on(&a, 1);
    tiles_end(&a);
    cr_assert(tiles_give_some()); /* closed */
    cr_assert(tiles_give_some()); /* drained */
    uint64_t mine = ga_slabhash_take_part(&tiles.growing);
    cr_assert_eq(mine, UINT64_C(1) << 32 | 2);
    cr_assert(tiles_give_some());
    for (uint32_t i = 0; i < 5; i++) {
        cr_assert_not(tiles_give_some());
    }
    cr_assert_eq(tiles.held, 2);
    a = tiles_begin(0);
    tiles_put(&a, 0, 100);
    tiles_move_on(&a, 2); /* an array that is migrated from now on has to wait */
    tiles_expect(&a, 0, 100);
    tiles_end(&a);
    cr_assert_not(tiles_give_some());
    ga_slabhash_part_back(tiles.view.heap, SLABHASH_TILE, ga_slabhash_version_of(&tiles.growing, 0),
                          1);
    cr_assert(ga_slabhash_complete(SLABHASH_TILE, &tiles.growing.given, 1, 2));
    ga_slabhash_free_version(&tiles.growing, SLABHASH_TILE, 0);
    while (tiles_give_some()) {
    }
    cr_assert_eq(tiles.held, 1);
    a = tiles_begin(0);
    tiles_expect(&a, 0, 100);
    tiles_end(&a);
    tiles_close();
}
