/* SPDX-License-Identifier: MIT
 *
 * Claims and frees of one tile at a time: units do not overlap, every request is served in full,
 * and FULL is returned only if there is no free unit. A script of operations is compared with a
 * plain set. Built twice: with the counts' layout of the host's heaps, and with that of kernels'
 * heaps.
 */
#include "support/expect.h"
#include "support/slab_actor.h"
#include "support/slab_world.h"

#include <stdlib.h>

enum {
    LANES = 32,
    EACH = GA_SLAB_BLOCK_UNITS
};

static const char *const kind_names[] = {"lanes", "one", "word"};

/* Heaps of every shape: one block, part of a row of counts, a whole row and one block more, several
 * rows; superblocks of one memory block and of more. */
static const struct case_of {
    uint32_t unit, super_bits, supers;
    bool light;
} shapes[] = {{128, 0, 1, true}, {48, 0, 5, true},   {16, 5, 1, true},  {1008, 0, 33, true},
              {64, 3, 9, true},  {128, 0, 1, false}, {48, 0, 7, false}, {4096, 2, 3, false},
              {16, 5, 2, false}, {128, 0, 65, false}};

static const size_t shape_count = sizeof shapes / sizeof shapes[0];

static slab_world *world_of(const struct case_of *of, slab_world_kind kind)
{
    ga_slab_shape shape = {of->unit, of->super_bits, of->supers, GA_SLAB_SPREAD, of->light};
    return slab_world_new(shape, of->supers, kind);
}

static const char *levels(const struct case_of *of)
{
    return of->light ? "light" : "two-level";
}

#define EACH_SHAPE(of) for (const struct case_of *of = shapes; of < shapes + shape_count; of++)
#define SHAPE          "%u bytes, %u << %u blocks, %s: "
#define SHAPE_OF(of)   (of)->unit, (of)->supers, (of)->super_bits, levels(of)
#define EACH_CLAIM_KIND(kind)                                                                      \
    for (slab_claim_kind kind = SLAB_LANES; kind < SLAB_CLAIM_KINDS; kind++)

static void assert_counts(const slab_world *world)
{
    uint32_t block = slab_world_wrong(world);
    cr_assert_eq(block, GA_SLAB_FULL, "block %u: count %u, %u clear bits", block,
                 slab_world_count(world, block), slab_world_room(world, block));
}

static void assert_live(const slab_world *world, uint64_t expected)
{
    uint64_t live = slab_world_live(world);
    cr_assert_eq(live, expected, "%llu units live, expected %llu", (unsigned long long)live,
                 (unsigned long long)expected);
}

/* Claim all units by this method; each must be new. */
static void fill(slab_world *world, slab_actor *actor, slab_claim_kind kind, uint32_t batch)
{
    uint64_t all = slab_world_units(world);
    uint64_t live = slab_world_live(world);
    uint8_t *owned = calloc(all, 1);
    uint32_t units[LANES];
    uint32_t got;
    do {
        got = slab_actor_claim(actor, kind, batch, units);
        for (uint32_t i = 0; i < got; i++) {
            cr_assert_lt(units[i], all, "%s: unit %u of %llu", kind_names[kind], units[i],
                         (unsigned long long)all);
            cr_assert_eq(owned[units[i]]++, 0, "%s: unit %u was claimed twice", kind_names[kind],
                         units[i]);
        }
        live += got;
    } while (got == batch);
    cr_assert_eq(live, all, "%s: FULL at %llu units of %llu", kind_names[kind],
                 (unsigned long long)live, (unsigned long long)all);
    free(owned);
}

static void assert_full(slab_actor *actor)
{
    EACH_CLAIM_KIND(kind)
    {
        uint32_t units[LANES];
        uint32_t got = slab_actor_claim(actor, kind, 1, units);
        cr_assert_eq(got, 0, "%s: got unit %u of a full heap", kind_names[kind], units[0]);
    }
}

/* ---- FULL ---------------------------------------------------------------------------------- */

Test(slab_tile, fills_to_the_last_unit)
{
    EACH_SHAPE(of)
    {
        EACH_CLAIM_KIND(kind)
        {
            slab_world *world = world_of(of, SLAB_WORLD_BARE);
            slab_actor actor;
            slab_actor_begin(&actor, &world->heap, 7);
            fill(world, &actor, kind, kind == SLAB_LANES ? 1 + (uint32_t)(of - shapes) * 3 : 1);
            assert_counts(world);
            assert_live(world, slab_world_units(world));
            assert_full(&actor);
            assert_counts(world);
            slab_world_delete(world);
        }
    }
}

/* Free one unit of a full heap; then each method finds that unit. */
static void assert_found(slab_world *world, slab_actor *actor, uint32_t unit, const char *what)
{
    EACH_CLAIM_KIND(kind)
    {
        uint32_t units[LANES] = {GA_SLAB_FULL};
        ga_slab_release_one(ga_slab_view_of(&world->heap), slab_tile(), unit);
        uint32_t got = slab_actor_claim(actor, kind, kind == SLAB_LANES ? 5 : 1, units);
        cr_assert(got == 1 && units[0] == unit, "%s, %s: got %u units, the first %u; %u was free",
                  what, kind_names[kind], got, units[0], unit);
    }
}

Test(slab_tile, finds_the_only_unit)
{
    EACH_SHAPE(of)
    {
        slab_world *world = world_of(of, SLAB_WORLD_TAKEN);
        uint32_t all = (uint32_t)slab_world_units(world);
        slab_actor actor;
        slab_actor_begin(&actor, &world->heap, 3);
        assert_full(&actor);
        assert_found(world, &actor, 0, "the first");
        assert_found(world, &actor, all - 1, "the last");
        for (int i = 0; i < 100; i++) {
            assert_found(world, &actor, (uint32_t)random_below(&actor.random, all), "any");
        }
        assert_counts(world);
        assert_live(world, all);
        slab_world_delete(world);
    }
}

/* The result is the number of requested or of free units, whichever is less, at any position. */
Test(slab_tile, lanes_get_what_there_is)
{
    slab_world *world = world_of(&shapes[9], SLAB_WORLD_TAKEN);
    uint32_t all = (uint32_t)slab_world_units(world);
    slab_actor actor;
    slab_actor_begin(&actor, &world->heap, 11);
    for (int round = 0; round < 3000; round++) {
        uint32_t freed = 0;
        uint32_t units[LANES];
        uint32_t wanted = 1 + (uint32_t)random_below(&actor.random, LANES);
        for (uint32_t room = (uint32_t)random_below(&actor.random, 48); freed < room;) {
            uint32_t unit = (uint32_t)random_below(&actor.random, all);
            if (slab_world_taken(world, unit)) {
                ga_slab_release_one(ga_slab_view_of(&world->heap), slab_tile(), unit);
                freed++;
            }
        }
        uint32_t got = slab_actor_claim_lanes(&actor, wanted, units);
        cr_assert_eq(got, wanted < freed ? wanted : freed, "%u of %u free units for %u lanes", got,
                     freed, wanted);
        fill(world, &actor, SLAB_LANES, LANES);
    }
    assert_counts(world);
    slab_world_delete(world);
}

/* ---- lanes --------------------------------------------------------------------------------- */

/* The lanes of the mask get units, each its own, and no other lane gets one. */
static void assert_dealt(uint32_t mask, ga_lanes units, uint32_t start)
{
    for (uint32_t lane = 0; lane < LANES; lane++) {
        bool wants = mask >> lane & 1u;
        cr_assert_eq(units[lane] != GA_SLAB_FULL, wants, "mask %#x, word %u, lane %u: %u", mask,
                     start, lane, units[lane]);
        for (uint32_t other = 0; wants && other < lane; other++) {
            cr_assert_neq(units[lane], units[other], "mask %#x: lanes %u and %u have unit %u", mask,
                          other, lane, units[lane]);
        }
    }
}

Test(slab_tile, every_number_of_lanes)
{
    EACH_SHAPE(of)
    {
        slab_world *world = world_of(of, SLAB_WORLD_BARE);
        ga_slab_view view = ga_slab_view_of(&world->heap);
        slab_actor actor;
        slab_actor_begin(&actor, &world->heap, 5);
        for (uint32_t n = 1; n <= LANES; n++) {
            uint32_t mask = n % 2 ? ga_bits_below(n) : slab_actor_mask(&actor, n);
            uint32_t start = (uint32_t)random_below(&actor.random, view.words);
            ga_lanes units = ga_slab_claim_lanes(view, slab_tile(), mask, start);
            assert_dealt(mask, units, start);
            assert_live(world, n);
            ga_slab_release_lanes(view, slab_tile(), mask, units);
            assert_live(world, 0);
            assert_counts(world);
        }
        slab_world_delete(world);
    }
}

/* The common case, for tiles of every width: one word serves all lanes, in order. */
Test(slab_tile, an_empty_word_serves_in_order)
{
    static const uint32_t widths[] = {4, 8, 16, 32};
    slab_world *world = world_of(&shapes[3], SLAB_WORLD_BARE);
    ga_slab_view view = ga_slab_view_of(&world->heap);
    for (uint32_t word = 0; word < view.words; word++) {
        uint32_t width = widths[word % 4];
        uint32_t mask = ga_bits_below(width);
        ga_lanes units = ga_slab_claim_lanes(view, ga_tile_of(width), mask, word);
        for (uint32_t lane = 0; lane < width; lane++) {
            cr_assert_eq(units[lane], word * 32 + lane, "word %u, width %u, lane %u: %u", word,
                         width, lane, units[lane]);
        }
    }
    assert_counts(world);
    slab_world_delete(world);
}

/* Units of one word, of one word per lane, and of words that several lanes share. */
Test(slab_tile, frees_of_every_kind)
{
    slab_world *world = world_of(&shapes[2], SLAB_WORLD_TAKEN);
    ga_slab_view view = ga_slab_view_of(&world->heap);
    uint64_t live = slab_world_live(world);
    for (uint32_t step = 1; step <= 256; step *= 2) {
        uint32_t mask = 0xf00fa5c3u;
        ga_lanes units = ga_tile_ranks(slab_tile()) * step + (step - 1u) * 64u;
        ga_slab_release_lanes(view, slab_tile(), mask, units);
        live -= ga_bits_count(mask);
        for (uint32_t lane = 0; lane < LANES; lane++) {
            cr_assert_eq(slab_world_taken(world, units[lane]), !(mask >> lane & 1u),
                         "step %u, lane %u, unit %u", step, lane, units[lane]);
        }
        assert_live(world, live);
        assert_counts(world);
        for (uint32_t lane = 0; lane < LANES; lane++) {
            live += mask >> lane & 1u;
            ga_slab_claim_bits(view, units[lane] / 32, 1u << units[lane] % 32);
        }
        assert_live(world, live);
    }
    slab_world_delete(world);
}

/* ---- words and residents ------------------------------------------------------------------- */

Test(slab_tile, a_claimed_word_is_all_that_was_free)
{
    slab_world *world = world_of(&shapes[4], SLAB_WORLD_BARE);
    ga_slab_view view = ga_slab_view_of(&world->heap);
    ga_slab_claim_bits(view, 9, 0x0ff00ff0u);
    ga_slab_claimed claimed = {9, 0};
    ga_slab_claim_word(view, slab_tile(), &claimed);
    cr_assert(claimed.word == 9 && claimed.units == 0xf00ff00fu, "word %u, units %#x", claimed.word,
              claimed.units);
    cr_assert_eq(slab_claim_next(view, slab_tile(), &claimed), 9 * 32);
    assert_live(world, 32);
    assert_counts(world);
    ga_slab_release_word(view, slab_tile(), &claimed);
    cr_assert_eq(claimed.units, 0, "%#x is left", claimed.units);
    assert_live(world, 17);
    assert_counts(world);
    ga_slab_release_word(view, slab_tile(), &claimed);
    assert_live(world, 17);
    slab_world_delete(world);
}

/* A tile searches its block first, and then each of the others once. */
Test(slab_tile, resident_changes_are_counted)
{
    EACH_SHAPE(of)
    {
        slab_world *world = world_of(of, SLAB_WORLD_BARE);
        uint32_t blocks = world->heap.words / GA_SLAB_ROW_WORDS;
        slab_actor actor;
        slab_actor_begin(&actor, &world->heap, 5);
        for (uint32_t i = 0; i < EACH; i++) {
            uint32_t unit =
                ga_slab_claim_one(ga_slab_view_of(&world->heap), slab_tile(), &actor.resident);
            cr_assert_eq(unit / EACH, 0, SHAPE "claim %u left block 0 for unit %u", SHAPE_OF(of), i,
                         unit);
        }
        cr_assert_eq(world->heap.changes, 0, SHAPE "%u changes", SHAPE_OF(of), world->heap.changes);
        fill(world, &actor, SLAB_ONE, 1);
        cr_assert_eq(world->heap.changes, blocks - 1, SHAPE "%u changes", SHAPE_OF(of),
                     world->heap.changes);
        slab_world_delete(world);
    }
}

/* A stale copy of a row must neither be trusted nor keep a tile from the other rows. */
Test(slab_tile, a_stale_row_does_no_harm)
{
    slab_world *world = world_of(&shapes[1], SLAB_WORLD_BARE);
    uint32_t units[LANES];
    slab_actor one;
    slab_actor other;
    slab_actor_begin(&one, &world->heap, 0);
    slab_actor_begin(&other, &world->heap, 0);
    fill(world, &other, SLAB_ONE, 1);
    cr_assert_eq(slab_actor_claim(&one, SLAB_ONE, 1, units), 0, "got unit %u", units[0]);
    ga_slab_release_one(ga_slab_view_of(&world->heap), slab_tile(), 17);
    cr_assert_eq(slab_actor_claim(&one, SLAB_ONE, 1, units), 1, "nothing, but 17 is free");
    cr_assert_eq(units[0], 17, "got unit %u", units[0]);
    assert_counts(world);
    slab_world_delete(world);
}

/* ---- the walk ------------------------------------------------------------------------------ */

/* Free random blocks; the walk offers each of them once, and no other block. */
static void walk_once(slab_world *world, uint64_t *random, uint8_t *seen)
{
    uint32_t blocks = world->heap.words / GA_SLAB_ROW_WORDS;
    uint32_t changes = world->heap.changes;
    uint32_t offered = 0;
    uint32_t start = (uint32_t)random_next(random);
    uint32_t block;
    for (block = 0; block < blocks; block++) {
        seen[block] = random_next(random) % 3 == 0;
        world->heap.free[ga_slab_count_index(GA_SLAB_SPREAD, block)] = seen[block] * 5u;
    }
    ga_slab_view view = ga_slab_view_of(&world->heap);
    ga_slab_walk walk = ga_slab_walk_begin(view);
    while ((block = ga_slab_walk_next(view, slab_tile(), &walk, start)) != GA_SLAB_FULL) {
        cr_assert_lt(block, blocks, "%u blocks: offers %u", blocks, block);
        cr_assert_eq(seen[block], 1, "%u blocks: offers %u twice, or without room", blocks, block);
        seen[block] = 0;
        offered++;
    }
    for (block = 0; block < blocks; block++) {
        cr_assert_eq(seen[block], 0, "%u blocks: passes over %u", blocks, block);
    }
    cr_assert_eq(world->heap.changes - changes, offered, "%u changes for %u blocks",
                 world->heap.changes - changes, offered);
}

Test(slab_tile, the_walk_visits_what_has_room)
{
    static const uint32_t many[] = {511,  512,  513,  1000,  1023,  1025,  2111,
                                    3001, 4096, 5000, 16383, 16384, 16385, 33001};
    uint64_t random = 1;
    uint8_t *seen = malloc(33001);
    for (uint32_t i = 0; i < 140 + sizeof many / sizeof many[0]; i++) {
        uint32_t blocks = i < 140 ? i + 1 : many[i - 140];
        ga_slab_shape shape = {16, 0, blocks, GA_SLAB_SPREAD, true};
        slab_world *world = slab_world_new(shape, blocks, SLAB_WORLD_TAKEN);
        for (int round = 0; round < 4; round++) {
            walk_once(world, &random, seen);
        }
        slab_world_delete(world);
    }
    free(seen);
}

/* ---- against a plain set ------------------------------------------------------------------- */

enum {
    ACTORS = 3,
    STEPS = 60000
};

typedef struct script {
    slab_world *world;
    slab_actor actors[ACTORS];
    uint8_t *owned;
    uint32_t *units; /* those owned, in no order */
    uint32_t live, all, max;
} script;

static uint32_t left_in_words(const script *s)
{
    uint32_t left = 0;
    for (int i = 0; i < ACTORS; i++) {
        left += ga_bits_count(s->actors[i].claimed.units);
    }
    return left;
}

static void step_claim(script *s, slab_actor *actor)
{
    uint32_t units[LANES];
    slab_claim_kind kind = (slab_claim_kind)random_below(&actor->random, SLAB_CLAIM_KINDS);
    uint32_t wanted = 1 + (uint32_t)random_below(&actor->random, LANES);
    uint32_t got = slab_actor_claim(actor, kind, wanted, units);
    for (uint32_t i = 0; i < got; i++) {
        cr_assert_lt(units[i], s->all, "%s: unit %u of %u", kind_names[kind], units[i], s->all);
        cr_assert_eq(s->owned[units[i]]++, 0, "%s: unit %u is owned", kind_names[kind], units[i]);
        s->units[s->live++] = units[i];
    }
    uint32_t taken = s->live + left_in_words(s);
    cr_assert(got == wanted || taken == s->all, "%s: FULL at %u of %u", kind_names[kind], taken,
              s->all);
}

static void step_release(script *s, slab_actor *actor)
{
    uint32_t units[LANES];
    uint32_t n = (uint32_t)random_below(&actor->random, LANES + 1);
    n = n < s->live ? n : s->live;
    for (uint32_t i = 0; i < n; i++) {
        size_t at = random_below(&actor->random, s->live);
        units[i] = s->units[at];
        s->owned[units[i]] = 0;
        s->units[at] = s->units[--s->live];
    }
    slab_actor_release(actor, units, n);
}

static void run_script(const struct case_of *of, uint32_t seed)
{
    script s = {.world = world_of(of, SLAB_WORLD_BARE)};
    s.all = (uint32_t)slab_world_units(s.world);
    s.owned = calloc(s.all, 1);
    s.units = calloc(s.all, sizeof *s.units);
    for (uint32_t i = 0; i < ACTORS; i++) {
        slab_actor_begin(&s.actors[i], &s.world->heap, seed + i);
    }
    for (uint32_t step = 0; step < STEPS; step++) {
        slab_actor *actor = &s.actors[random_below(&s.actors[0].random, ACTORS)];
        uint32_t odds = step / 4096 % 2 ? 46 : 60; /* fills, stays nearly full, empties */
        if (random_below(&actor->random, 100) < odds) {
            step_claim(&s, actor);
        } else {
            step_release(&s, actor);
        }
        s.max = s.live > s.max ? s.live : s.max;
        if (random_below(&actor->random, 500) == 0) {
            slab_actor_rest(actor);
        }
        if (step % 1024 == 0) {
            assert_counts(s.world);
            assert_live(s.world, s.live + left_in_words(&s));
        }
    }
    cr_assert_gt(s.max, s.all / 2, SHAPE "never more than %u units", SHAPE_OF(of), s.max);
    slab_world_delete(s.world);
    free(s.owned);
    free(s.units);
}

Test(slab_tile, a_script_of_chance)
{
    EACH_SHAPE(of)
    {
        if (of->supers << of->super_bits <= 9) {
            run_script(of, 100 + (uint32_t)(of - shapes));
        }
    }
}

/* ---- nearly full --------------------------------------------------------------------------- */

/* In order, one word after the other, and at random with frees between: the heap fills to 99 %
 * without FULL. */
Test(slab_tile, fills_to_99_percent_in_order)
{
    slab_world *world = world_of(&shapes[3], SLAB_WORLD_BARE);
    ga_slab_view view = ga_slab_view_of(&world->heap);
    uint32_t goal = view.words * 99 / 100;
    for (uint32_t word = 0; word < goal; word++) {
        ga_lanes units = ga_slab_claim_lanes(view, slab_tile(), GA_ALL_BITS, word);
        assert_dealt(GA_ALL_BITS, units, word);
    }
    cr_assert_eq(world->heap.changes, 0, "%u searches", world->heap.changes);
    assert_live(world, goal * 32);
    slab_world_delete(world);
}

Test(slab_tile, fills_to_99_percent_at_random)
{
    EACH_SHAPE(of)
    {
        slab_world *world = world_of(of, SLAB_WORLD_BARE);
        uint32_t all = (uint32_t)slab_world_units(world);
        uint32_t *held = malloc(all * sizeof *held);
        uint32_t live = 0;
        slab_actor actor;
        slab_actor_begin(&actor, &world->heap, 21);
        while (live < all / 100 * 99 - LANES) {
            slab_claim_kind kind = random_below(&actor.random, 2) ? SLAB_LANES : SLAB_ONE;
            uint32_t wanted = 1 + (uint32_t)random_below(&actor.random, LANES);
            uint32_t got = slab_actor_claim(&actor, kind, wanted, held + live);
            cr_assert_eq(got, wanted, SHAPE "%s: FULL at %u units of %u", SHAPE_OF(of),
                         kind_names[kind], live + got, all);
            live += got;
            for (size_t frees = random_below(&actor.random, 16); frees && live; frees--) {
                size_t at = random_below(&actor.random, live);
                slab_actor_release(&actor, &held[at], 1);
                held[at] = held[--live];
            }
        }
        assert_live(world, live);
        assert_counts(world);
        free(held);
        slab_world_delete(world);
    }
}
