/* SPDX-License-Identifier: MIT
 *
 * Memory that the test counts and may refuse, and steps of tiles.
 */
#include "slabhash_tiles.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

tiles_subject tiles __attribute__((aligned(128)));

static void *array(void *context, size_t bytes)
{
    tiles_subject *of = context;
    void *rows = of->refuses ? NULL : aligned_alloc(128, bytes);
    of->held += rows ? 1 : 0;
    return rows;
}

static void give(void *context, void *rows, size_t bytes)
{
    tiles_subject *of = context;
    memset(rows, 0x5a, bytes);
    free(rows);
    of->held--;
}

/* All keys in one bucket, or spread. */
uint64_t tiles_same(void *context, uint64_t key)
{
    (void)context;
    (void)key;
    return 0;
}

void tiles_open(uint32_t buckets, ga_slabhash_hash *hash)
{
    ga_slabhash_options options = {
        .options_size = sizeof options, .mode = GA_SLABHASH_MAP32, .buckets = 1, .seed = 1};
    memset(&tiles, 0, sizeof tiles);
    assert_ok(ga_slabhash_open(&tiles.table, &options));
    tiles.view = tiles.table->view;
    tiles.view.kind = TILES_KIND;
    tiles.view.chained_max = UINT32_MAX;
    tiles.growing.memory.alloc = array;
    tiles.growing.memory.free = give;
    tiles.growing.memory.context = &tiles;
    tiles.growing.memory.hash = hash;
    tiles.growing.there = tiles.growing.making = 1;
    tiles.growing.slabs = tiles.view.heap;
    tiles.growing.kind = TILES_KIND;
    tiles.growing.versions[0].buckets = buckets;
    tiles.growing.versions[0].wanted = UINT32_MAX; /* nobody moves it but the test */
    tiles.growing.versions[0].stays = 1;
    tiles.growing.versions[0].rows = array(&tiles, ga_slabhash_array_bytes(buckets));
    memset(tiles.growing.versions[0].rows, 0xff, ga_slabhash_array_bytes(buckets));
}

void tiles_close(void)
{
    for (uint32_t i = tiles.growing.gone; i < tiles.growing.there; i++) {
        free(ga_slabhash_version_of(&tiles.growing, i)->rows);
    }
    assert_ok(ga_slabhash_close(tiles.table));
}

tiles_tile tiles_begin(uint32_t number)
{
    tiles_tile t = {.claimed = ga_slabhash_claim_begin(0)};
    ga_slabhash_snapshot_begin(&tiles.growing, SLABHASH_TILE, &t.stand, number);
    return t;
}

void tiles_end(tiles_tile *t)
{
    ga_slabhash_claim_end(tiles.view, SLABHASH_TILE, &t->claimed);
    ga_slabhash_snapshot_end(&tiles.growing, SLABHASH_TILE, &t->stand);
}

static uint64_t hash_of(uint64_t key)
{
    return tiles.growing.memory.hash ? tiles.growing.memory.hash(NULL, key)
                                     : ga_slabhash_seeded(tiles.view, key);
}

ga_slabhash_answer tiles_do(tiles_tile *t, uint32_t op, uint64_t key, uint64_t value)
{
    ga_slabhash_operation to = {.key = key, .value = value, .op = op};
    for (;;) {
        uint32_t seen = slabhash_room(tiles.table);
        ga_slabhash_answer answer =
            ga_slabhash_do_from_snapshot(TILES_KIND, tiles.view, &tiles.growing, SLABHASH_TILE,
                                         &t->claimed, &t->stand, hash_of(key), to);
        if (answer.result != GA_SLABHASH_FULL) {
            return answer;
        }
        assert_ok(ga_slabhash_grow(tiles.table, seen));
    }
}

void tiles_put(tiles_tile *t, uint64_t first, uint64_t end_)
{
    for (uint64_t key = first; key < end_; key++) {
        cr_assert_eq(tiles_do(t, GA_SLABHASH_INSERT, key, key + 1).result, GA_SLABHASH_ABSENT);
    }
}

void tiles_expect(tiles_tile *t, uint64_t first, uint64_t end_)
{
    for (uint64_t key = first; key < end_; key++) {
        ga_slabhash_answer answer = tiles_do(t, GA_SLABHASH_SEARCH, key, 0);
        cr_assert_eq(answer.result, GA_SLABHASH_FOUND, "key %" PRIu64, key);
        cr_assert_eq(answer.value, key + 1);
    }
}

/* Make another array, of `buckets` buckets; no pair has been migrated to it. */
void tiles_make_of(tiles_tile *t, uint32_t buckets)
{
    uint32_t number = tiles.growing.there;
    ga_slabhash_snapshot_renew(&tiles.growing, SLABHASH_TILE, &t->stand);
    cr_assert(ga_slabhash_has_entry(&tiles.growing, SLABHASH_TILE, number));
    tiles.growing.making = number + 1;
    ga_slabhash_make_version(&tiles.growing, SLABHASH_TILE, number, buckets, 1);
    ga_slabhash_version_of(&tiles.growing, number)->wanted = UINT32_MAX;
    ga_slabhash_version_of(&tiles.growing, number)->stays = 1;
    while (ga_slabhash_clear_some(&tiles.growing, SLABHASH_TILE)) {
    }
    ga_slabhash_snapshot_renew(&tiles.growing, SLABHASH_TILE, &t->stand);
    cr_assert_not_null(t->stand.next_rows);
}

void tiles_make(tiles_tile *t, uint32_t times)
{
    tiles_make_of(t, t->stand.buckets * times);
}

/* All buckets of it but the last `less` groups'. */
void tiles_move(tiles_tile *t, uint32_t less)
{
    ga_slabhash_shift shift = ga_slabhash_shift_of(tiles.view, &tiles.growing, &t->stand);
    uint32_t opened = ga_slabhash_open_from(TILES_KIND, shift, SLABHASH_TILE, &t->claimed, 0,
                                            ga_slabhash_groups(shift) - less);
    ga_slabhash_note_opened(&tiles.growing, SLABHASH_TILE, &t->stand, opened);
}

void tiles_move_on(tiles_tile *t, uint32_t times)
{
    tiles_make(t, times);
    tiles_move(t, 0);
    ga_slabhash_snapshot_renew(&tiles.growing, SLABHASH_TILE, &t->stand);
}

void tiles_move_to(tiles_tile *t, uint32_t buckets)
{
    uint32_t number = t->stand.number + 1;
    tiles_make_of(t, buckets);
    while (t->stand.number < number) {
        uint32_t seen = slabhash_room(tiles.table);
        tiles_move(t, 0);
        ga_slabhash_snapshot_renew(&tiles.growing, SLABHASH_TILE, &t->stand);
        if (t->stand.number < number) { /* there was no slab */
            assert_ok(ga_slabhash_grow(tiles.table, seen));
        }
    }
    cr_assert_eq(t->stand.buckets, buckets);
}

/* From now on the table may shrink to at least `least` buckets, or be compacted. */
void tiles_let_go(uint32_t least)
{
    tiles.growing.least = least;
    ga_slabhash_version_of(&tiles.growing, tiles.growing.now)->stays = 0;
}

bool tiles_give_some(void)
{
    return ga_slabhash_give_some(tiles.view.heap, &tiles.growing, SLABHASH_TILE);
}

uint64_t tiles_taken(tiles_tile *t)
{
    ga_slabhash_claim_end(tiles.view, SLABHASH_TILE, &t->claimed);
    t->claimed.units = 0;
    return ga_slab_host_taken(&tiles.table->slabs);
}
