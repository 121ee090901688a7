/* SPDX-License-Identifier: MIT
 *
 * Threads, as tiles, claim blocks of all sizes, write to them, check them, pass them on and free
 * them, while the heap grows; a pager runs beside them. The pager commits a region by a plain
 * write, and owners write to their blocks plainly, so the thread sanitizer reports a missing order.
 * No 16 bytes have two owners, no uncommitted memory is used, and no region is lost.
 *
 * With a planted bug (meson.build) it must fail.
 */
#include "stress.h"

#include "support/random.h"
#include "support/sized_actor.h"
#include "support/sized_world.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

enum {
    BITS = 17,
    REGIONS = 48,
    THREADS = 6,
    CLASSES = 3, /* classes of a round */
    KEPT = 8192,
    TRIES = 1500,
    REFUSALS = 12,
    BOXES = 16,
    SIPPERS = 2, /* of the threads */
    SIPS = 3000,
    CROWD = 300,
    PIECES = 4 /* parts of a block that are written to */
};

static sized_world *world;
static uint32_t classes[CLASSES]; /* set before the threads */
static uint32_t number_of_round;
static char *boxes[BOXES];

/* ---- one block ------------------------------------------------------------------------------- */

static uint32_t region_of(const char *block)
{
    return (uint32_t)((uint64_t)(block - world->heap->units) >> BITS);
}

/* A word of part `i`. The last part's word is the last of the block; all others are the first of
 * their part. */
static uint32_t *piece_of(char *block, uint32_t unit, uint32_t i)
{
    uint32_t pieces = unit / 16 < PIECES ? unit / 16 : PIECES;
    return (uint32_t *)(block + (i + 1 == pieces ? unit - 16 : i * 16));
}

static void write_all(char *block, uint32_t unit, uint32_t value)
{
    for (uint32_t i = 0; i < PIECES && i < unit / 16; i++) {
        *piece_of(block, unit, i) = value;
    }
}

/* Check that all parts hold `value`: the owner's mark, or 0 while the block is free. */
static void need_all(char *block, uint32_t unit, uint32_t value, const char *what)
{
    for (uint32_t i = 0; i < PIECES && i < unit / 16; i++) {
        stress_need(*piece_of(block, unit, i) == value, what);
    }
}

static uint32_t tag_of(const char *block)
{
    return (uint32_t)((uintptr_t)block >> 4) | 1u;
}

static void own(char *block, uint32_t class)
{
    uint32_t region = region_of(block);
    uint32_t unit = ga_sized_unit(class);
    uint64_t end = (uint64_t)(block - world->heap->units) % (1u << BITS) + unit;
    stress_need(region < world->limit, "a block within the limit");
    stress_need(end <= 1u << BITS, "a block ends beyond its region");
    stress_need(world->backed[region] == SIZED_WORLD_BACKED, "a region is used that is not backed");
    need_all(block, unit, 0, "a block has two owners");
    write_all(block, unit, tag_of(block));
}

/* The unit of a block, of any owner. */
static uint32_t unit_of(const char *block)
{
    ga_sized_found found = ga_sized_find(ga_sized_view_of(world->heap), block);
    stress_need(found.class_ != GA_SIZED_NONE && !found.offset, "a block is one");
    return ga_sized_unit(found.class_);
}

static void disown(char *block)
{
    uint32_t unit = unit_of(block);
    need_all(block, unit, tag_of(block), "a block is its owner's still");
    write_all(block, unit, 0);
}

/* ---- one thread ------------------------------------------------------------------------------ */

typedef struct actor {
    uint64_t random;
    uint32_t count, refusals;
    char *kept[KEPT];
} actor;

static actor actors[THREADS];

static void keep(actor *a, char *block, uint32_t class)
{
    own(block, class);
    a->kept[a->count++] = block;
}

/* Claim for some lanes, of one class or of several, or for all lanes as a whole warp. */
static void claim(actor *a)
{
    uint32_t wanted[32], lanes = (uint32_t)random_next(&a->random) | 1u;
    uint32_t way = (uint32_t)random_below(&a->random, 3), got;
    uint32_t class = classes[random_below(&a->random, CLASSES)];
    uint32_t number = (uint32_t)random_next(&a->random) >> random_below(&a->random, 32);
    char *blocks[32] = {0};
    for (uint32_t lane = 0; lane < 32; lane++) {
        wanted[lane] = way ? class : classes[random_below(&a->random, CLASSES)];
    }
    lanes = way == 2 ? GA_ALL_BITS : lanes;
    got = way == 2 ? sized_claim_warp(world->heap, class, number, blocks)
                   : sized_claim(world->heap, lanes, wanted, number, blocks);
    for (uint32_t lane = 0; lane < 32; lane++) {
        if (blocks[lane]) {
            keep(a, blocks[lane], wanted[lane]);
        }
    }
    if (got < ga_bits_count(lanes)) {
        a->refusals++;
        sched_yield();
    }
}

/* Free up to 32 of the held blocks, chosen at random. */
static void release(actor *a)
{
    char *blocks[32];
    uint32_t n = a->count < 32 ? a->count : 32;
    for (uint32_t lane = 0; lane < n; lane++) {
        uint32_t i = (uint32_t)random_below(&a->random, a->count);
        blocks[lane] = a->kept[i];
        a->kept[i] = a->kept[--a->count];
        disown(blocks[lane]);
    }
    stress_need(!n || sized_release(world->heap, ga_bits_below(n), blocks), "a block is one");
}

/* Put a block into a box, and take the block that was there. */
static void hand_on(actor *a)
{
    char **box = &boxes[random_below(&a->random, BOXES)];
    char *mine = a->count ? a->kept[--a->count] : NULL;
    /* acq_rel. Pairs with itself: the block's contents. */
    char *other = __atomic_exchange_n(box, mine, __ATOMIC_ACQ_REL);
    if (other) {
        need_all(other, unit_of(other), tag_of(other), "a block is as it was handed on");
        a->kept[a->count++] = other;
    }
}

/* All threads claim at two words. */
static void crowd(actor *a)
{
    uint32_t wanted[32];
    char *blocks[32];
    for (uint32_t lane = 0; lane < 32; lane++) {
        wanted[lane] = classes[0];
    }
    for (uint32_t i = 0; i < CROWD; i++) {
        uint32_t n = 1 + (uint32_t)random_below(&a->random, 32), got = 0;
        sized_claim(world->heap, ga_bits_below(n), wanted, i % 2, blocks);
        for (uint32_t lane = 0; lane < n; lane++) {
            if (blocks[lane]) {
                own(blocks[lane], classes[0]);
                got |= 1u << lane;
            }
        }
        for (uint32_t rest = got; rest; rest &= rest - 1u) {
            disown(blocks[ga_bits_lowest(rest)]);
        }
        stress_need(!got || sized_release(world->heap, got, blocks), "a block is one");
    }
}

/* Claim free words of the newest region, and free them. Only the class's published state orders
 * this. */
static void sip(actor *a)
{
    ga_sized_view view = ga_sized_view_of(world->heap);
    for (uint32_t i = 0; i < SIPS; i++) {
        uint32_t class = classes[random_below(&a->random, CLASSES)];
        ga_sized_class_map map = ga_sized_load_class_map(world->heap->of + class);
        if (!map.total_words) {
            sched_yield();
            continue;
        }
        uint32_t word = map.total_words - 1 - (uint32_t)random_below(&a->random, map.words);
        uint32_t key = ga_sized_word_index(view, map, word);
        /* the region may have left the class since the map was read */
        uint32_t bits =
            key == GA_SIZED_NONE ? 0 : ga_sized_claim_bits(view, class, key, GA_ALL_BITS);
        for (uint32_t rest = bits; rest; rest &= rest - 1u) {
            char *block = ga_sized_pointer(view, map.unit, key, ga_bits_lowest(rest));
            own(block, class);
            disown(block);
        }
        if (bits) {
            ga_sized_release_bits(view, key, bits);
        }
    }
}

static void work(size_t number)
{
    actor *a = &actors[number];
    *a = (actor){.random = number_of_round * THREADS + number + 1};
    if (number + SIPPERS >= THREADS) {
        sip(a);
        crowd(a);
        return;
    }
    crowd(a);
    for (uint32_t i = 0; i < TRIES && a->refusals < REFUSALS; i++) {
        uint64_t what = random_below(&a->random, 16);
        if (a->count + 33 > KEPT || what < 4) {
            release(a);
        } else if (what == 4) {
            hand_on(a);
        } else {
            claim(a);
        }
    }
    while (a->count) {
        release(a);
    }
}

/* ---- rounds ---------------------------------------------------------------------------------- */

static void begin(uint32_t round)
{
    uint64_t random = round;
    world = sized_world_limited(BITS, REGIONS, round % 4 ? REGIONS : 1 + round % REGIONS,
                                round % 3 ? 0 : 2 + round % 5);
    number_of_round = round;
    for (uint32_t i = 0; i < CLASSES; i++) {
        classes[i] = (uint32_t)random_below(&random, world->heap->classes);
        classes[i] = i ? classes[i] : 16 + round % 8; /* units of some kilobytes, with a tail */
    }
}

/* All threads rest: everything is free, and every region has a class or is in the pool. */
static void check(void)
{
    actor *a = &actors[0];
    uint32_t refusals = 0;
    for (uint32_t i = 0; i < THREADS; i++) {
        refusals += actors[i].refusals;
    }
    for (uint32_t i = 0; i < BOXES; i++) {
        if (boxes[i]) {
            a->kept[a->count++] = boxes[i];
            boxes[i] = NULL;
        }
    }
    release(a);
    stress_need(sized_world_live(world, GA_SIZED_NONE) == 0, "everything is free");
    uint32_t regions = 0;
    for (uint32_t class = 0; class < world->heap->classes; class ++) {
        regions += sized_world_regions(world, class);
    }
    stress_need(regions <= world->limit, "no more than the limit");
    stress_need(!refusals || world->refuse || regions + world->heap->pooled == world->limit,
                "it grew to its limit before it refused");
}

int main(int argc, char **argv)
{
    stress_begin(argc, argv);
    uint32_t rounds = 0;
    while (stress_goes_on() || rounds < 12) {
        begin(rounds++);
        stress_threads(THREADS, work);
        check();
        sized_world_delete(world);
    }
    printf("%u rounds\n", rounds);
    return 0;
}
