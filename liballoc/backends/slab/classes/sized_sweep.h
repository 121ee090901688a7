/* SPDX-License-Identifier: MIT
 *
 * The last resort before a request is refused: a sweep. The tiles that found no free unit read all
 * regions of the heap together, once, and later requests rely on the result while it is valid.
 *
 *     sweep_join                  (names without ga_sized_)
 *      |- sweep_next_step         done, wait, or do a region: by one lane
 *      |   |- sweep_begin         if no sweep is under way
 *      |   '- sweep_next_region   from `cursor`
 *      |- sweep_region            puts a region under watch, claims units, or frees the region
 *      '- sweep_region_done       the last tile: sweep_end, which publishes the result
 *
 * STRUCTURE  A sweep goes through all regions that were ever in use. Its tiles take the next region
 *            from `cursor` until there is none, and the tile that is done with the last one ends
 *            the sweep. Sweeps are numbered and do not overlap. In a region of its own class a tile
 *            claims the units that it needs. For any other class it records that the class has free
 *            units. A region without live units leaves its class for the pool. A tile that requests
 *            a run takes part in sweeps for these regions.
 *
 * INVARIANT  A request is refused by a sweep that began after the request did, or by an earlier one
 *            whose result is valid: it watched all regions, and `releases` has not changed since
 *            that sweep began. So a block that was freed before the request began is found, unless
 *            another tile claims it or holds its bit for a moment. If `releases` changes during a
 *            sweep, free units may have moved from ahead of the sweep to behind it. Then the
 *            request waits for another sweep, up to GA_SIZED_SWEEPS_MAX of them. So there was a
 *            moment during the call at which no unit was free, unless units were freed during each
 *            of GA_SIZED_SWEEPS_MAX sweeps.
 *
 *            A watch costs the frees in a region nothing until the first of them. The sweep writes
 *            its number beside the owner (GA_SIZED_WATCH). The fast path of a free reads the owner
 *            anyway, and leaves a region with a flag to the slow path, which changes `releases`
 *            after it has cleared the bit, and then ends the watch. On the GPU a free reads the
 *            owner before its fence, and does not read it again. So a free that read it before the
 *            sweep came may clear its bit behind the sweep, and not notify it. For this reason a
 *            result serves later requests only if GA_SIZED_GRACE_NS have passed between the last
 *            region that came under watch and the beginning of the sweep, and for no longer than
 *            GA_SIZED_RESULT_LIFE_NS. Otherwise each request waits for a sweep that began after it.
 *            One case remains: a block is found up to GA_SIZED_RESULT_LIFE_NS late if its free was
 *            stopped for longer than GA_SIZED_GRACE_NS between two consecutive instructions. On the
 *            CPU a free reads the owner again (KO3), and this cannot happen.
 *
 *            A region leaves its class while the tile holds all of its units and the class's
 *            `table_lock`. If a unit turns out to be live, the tile clears the bits that it set. No
 *            other tile of the sweep is in that region, so that a sweep does not take units held in
 *            this way for live blocks.
 *
 * ORDER      KW1 and KW2: a tile that helps sees how the sweep was set up. KW3 and KW4: the tile
 *            that ends the sweep sees the findings of all its tiles. KW5 and KW6: a tile that is
 *            refused sees that the sweep has ended. KW7: a sweep that a request does not see begins
 *            after everything that happened before the request. KO1 to KO4: the sweep sees a free
 *            that ended before the region came under watch, and a later free sees the watch. KH1
 *            and KH2 (sized_pool.h): events that `releases` counts happen before a tile sees the
 *            count. E and P as in sized_grow.h and sized_pool.h.
 *
 * PROGRESS   A tile that finds nothing waits for the tiles that are in a region each. Each of these
 *            is done after a number of steps bounded by the words of the region, and may wait for a
 *            class's `table_lock`. A request goes on while sweeps find free units for it.
 */
#ifndef GPUALLOC_SLAB_CLASSES_SIZED_SWEEP_H
#define GPUALLOC_SLAB_CLASSES_SIZED_SWEEP_H

#include "../../../simt/clock.h"
#include "sized_search.h"

#ifdef __CUDACC__
#define GA_SIZED_GRACE_NS       10000000u   /* wait after the last new watch */
#define GA_SIZED_RESULT_LIFE_NS 1000000000u /* age at which a result expires */
#else
#define GA_SIZED_GRACE_NS 0u
#endif

#define GA_SIZED_WORDS_PER_LANE 8u /* words that a lane loads in one step */

/* The number of the last sweep that found nothing for the class. For GA_SIZED_NONE, that is for
 * runs: of the last one that released no region. */
GA_SIMT const uint32_t *ga_sized_empty_sweep_of(const ga_sized_heap *heap, uint32_t class_)
{
    return class_ == GA_SIZED_NONE ? &heap->sweep.empty_sweep : &heap->of[class_].empty_sweep;
}

/* True if sweep `a` comes after sweep `b`; the numbers wrap. */
GA_SIMT bool ga_sized_is_after(uint32_t a, uint32_t b)
{
    return (int32_t)(a - b) > 0;
}

/* ---- results of earlier sweeps --------------------------------------------------------- */

/* True if a valid result says that the class, or for GA_SIZED_NONE the pool, has nothing free. By
 * one lane. */
GA_SIMT bool ga_sized_known_full_lone(const ga_sized_heap *heap, uint32_t class_)
{
    /* KW6: acquire. Pairs with KW5: for which classes the sweep found nothing. */
    uint64_t result = ga_load64_acquire(&heap->sweep.valid_result);
    uint32_t number = (uint32_t)result;
    /* relaxed: as new as `valid_result` or newer, and if newer, another sweep found nothing
     * either */
    if (!number ||
        ga_sized_is_after(number, ga_load_relaxed(ga_sized_empty_sweep_of(heap, class_)))) {
        return false;
    }
#ifdef __CUDACC__
    if (ga_clock_ns() >= ga_load64_relaxed(&heap->sweep.valid_until)) { /* relaxed: a time */
        return false;
    }
#endif
    return (uint32_t)(result >> 32) == ga_load_acquire(&heap->releases); /* KH1. Pairs with KH2. */
}

/* For all lanes of the tile: ga_sized_known_full_lone() by the leader. */
GA_SIMT bool ga_sized_known_full(const ga_sized_heap *heap, ga_tile tile, uint32_t class_)
{
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes full = ga_lanes_all(0);
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        ga_lane_write(&full, own, ga_sized_known_full_lone(heap, class_));
    }
    ga_tile_sync(tile);
    return ga_lanes_get(tile, full, leader) != 0;
}

/* ---- regions under watch --------------------------------------------------------------- */

/* Put the region under watch by the sweep, if a class has it. Returns its owner. */
GA_SIMT uint32_t ga_sized_watch(ga_sized_heap *heap, ga_tile tile, uint32_t region, uint32_t number)
{
    uint32_t leader = ga_tile_leader(tile);
    uint32_t *word = heap->owners + region;
    uint32_t mark = (number % (GA_SIZED_WATCH >> GA_SIZED_WATCH_SHIFT) + 1u)
                    << GA_SIZED_WATCH_SHIFT;
#if GA_SIZED_MUTANT == 22
    mark = 0; /* frees are not told to notify the sweep */
#endif
    ga_lanes owner = ga_lanes_all(0);
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        uint32_t seen = ga_load_relaxed(word); /* relaxed: the CAS below decides */
        while (ga_sized_owner_class(seen) != GA_SIZED_NONE) {
            /* KO1: acq_rel. Pairs with KO2, KO3 and KO4. */
            uint32_t now = ga_cas_acq_rel(word, seen, (seen & ~GA_SIZED_WATCH) | mark);
            if (now == seen) {
                break;
            }
            seen = now;
        }
        if (ga_sized_owner_class(seen) != GA_SIZED_NONE && !(seen & GA_SIZED_WATCH)) {
            /* relaxed: KW3 releases it */
            ga_store64_relaxed(&heap->sweep.watched_at, ga_clock_ns());
        }
        ga_lane_write(&owner, own, seen & ~GA_SIZED_WATCH);
    }
    ga_tile_sync(tile);
    return ga_lanes_get(tile, owner, leader);
}

/* ---- a region leaves its class --------------------------------------------------------- */

/* Set the bits of all units of the region whose bitmap begins at `word_index`, if all of them are
 * free. Otherwise undo, and return false. */
GA_SIMT bool ga_sized_region_claim_all(ga_sized_heap *heap, ga_tile tile, uint32_t word_index,
                                       const ga_sized_class *c)
{
    uint32_t words = c->map.words;
    uint32_t size = ga_tile_size(tile);
    ga_lanes ranks = ga_tile_ranks(tile);
    ga_lanes missed = ga_lanes_all(0);
    ga_lanes before = ga_lanes_all(0);
    ga_lanes tried = ga_lanes_all(0);
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        uint32_t bitmap_word = ga_lane_read(ranks, own);
        uint32_t failed = 0, seen = 0;
        for (; bitmap_word < words && !failed; bitmap_word += size) {
#if GA_SIZED_MUTANT == 28
            seen = ga_or_relaxed(heap->bits + word_index + bitmap_word, GA_ALL_BITS);
#else
            /* KU1: acquire. Pairs with KU2: the last owners' accesses to the units. */
            seen = ga_or_acquire(heap->bits + word_index + bitmap_word, GA_ALL_BITS);
#endif
            failed = seen != (bitmap_word + 1u == words ? c->tail : 0) && GA_SIZED_MUTANT != 25;
        }
        ga_lane_write(&missed, own, failed);
        ga_lane_write(&before, own, seen);
        ga_lane_write(&tried, own, bitmap_word); /* one step after the last word tried */
    }
    ga_tile_sync(tile);
    if (!ga_lanes_any(tile, missed)) {
        return true;
    }
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        uint32_t end = ga_lane_read(tried, own);
        for (uint32_t bitmap_word = ga_lane_read(ranks, own); bitmap_word < end;
             bitmap_word += size) {
            bool last = bitmap_word + size >= end && ga_lane_read(missed, own);
            uint32_t were = last                        ? ga_lane_read(before, own)
                            : bitmap_word + 1u == words ? c->tail
                                                        : 0;
            /* KU2: release. Pairs with KU1. Bits that were set before belong to other tiles. */
            ga_post_and_release(heap->bits + word_index + bitmap_word, were);
        }
    }
    ga_tile_sync(tile);
    return false;
}

/* Move the region from its class to the pool, if it has no live unit; it seemed to have none.
 * Returns false if it has. */
GA_SIMT bool ga_sized_region_to_pool(ga_sized_heap *heap, ga_tile tile, uint32_t class_,
                                     uint32_t region)
{
    ga_sized_class *c = heap->of + class_;
    ga_sized_table_lock(c, tile);
    uint32_t owner = ga_sized_load_guess(heap->owners + region, tile);
    bool is_free = ga_sized_owner_class(owner) == class_ &&
                   ga_sized_region_claim_all(
                       heap, tile, ga_sized_bitmap_index(heap->region_bits, region, owner), c);
    GA_EACH_LANE(tile, is_free ? 1u << ga_tile_leader(tile) : 0, own)
    {
        (void)own;
        /* relaxed, and the owner too: KP2 releases both */
        ga_store_relaxed(&heap->sweep.any_spent, 1u);
        ga_store_relaxed(heap->owners + region, 0u); /* before another class can get the region */
        ga_sized_table_remove(heap, c, region);
    }
    ga_sized_table_unlock(c, tile);
    if (is_free) {
        ga_sized_extent extent = {region, 1u};
        ga_sized_pool_free(heap, tile, extent);
    }
    return is_free;
}

/* ---- one region of a sweep ------------------------------------------------------------- */

/* Whether the words of a bitmap that were read have free units, and live ones. */
typedef struct ga_sized_occupancy {
    bool free, taken;
} ga_sized_occupancy;

/* Load GA_SIZED_WORDS_PER_LANE words for each lane, from word `from` of the bitmap on. */
GA_SIMT ga_sized_occupancy ga_sized_scan_words(const ga_sized_heap *heap, ga_tile tile,
                                               uint32_t word_index, const ga_sized_class *c,
                                               uint32_t from)
{
    uint32_t words = c->map.words;
    uint32_t size = ga_tile_size(tile);
    ga_lanes ranks = ga_tile_ranks(tile);
    ga_lanes free = ga_lanes_all(0);
    ga_lanes taken = ga_lanes_all(0);
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        uint32_t bitmap_word = from + ga_lane_read(ranks, own);
        uint32_t all = GA_ALL_BITS, any = 0;
        for (uint32_t i = 0; i < GA_SIZED_WORDS_PER_LANE; i++) {
            uint32_t at = bitmap_word + i * size;
            uint32_t tail = at + 1u == words ? c->tail : 0;
            /* relaxed: after KO1 */
            uint32_t bits =
                at < words ? ga_load_relaxed(heap->bits + word_index + at) : GA_ALL_BITS;
            all &= bits;
            any |= at < words ? bits & ~tail : 0;
        }
        ga_lane_write(&free, own, ~all);
        ga_lane_write(&taken, own, any);
    }
    ga_sized_occupancy glance = {ga_lanes_any(tile, free), ga_lanes_any(tile, taken)};
    return glance;
}

/* Claim the units that the search needs from these words. */
GA_SIMT void ga_sized_scan_claim(ga_sized_view heap, ga_tile tile, uint32_t word_index,
                                 uint32_t words, uint32_t from, ga_sized_search *search)
{
    ga_lanes ranks = ga_tile_ranks(tile);
    for (uint32_t i = 0; i < GA_SIZED_WORDS_PER_LANE && search->requesting; i++) {
        ga_lanes word_indices = ga_lanes_all(GA_SIZED_NONE);
        GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
        {
            uint32_t at = from + i * ga_tile_size(tile) + ga_lane_read(ranks, own);
            ga_lane_write(&word_indices, own, at < words ? word_index + at : GA_SIZED_NONE);
        }
        ga_sized_search_at(heap, tile, word_indices, word_indices, search);
    }
}

/* Read the bitmap that begins at `word_index`, until it is known to have both free and live units
 * and the search needs no more of them. */
GA_SIMT ga_sized_occupancy ga_sized_region_search(ga_sized_view heap, ga_tile tile, uint32_t class_,
                                                  uint32_t word_index, ga_sized_search *search)
{
    const ga_sized_class *c = heap.heap->of + class_;
    ga_sized_occupancy found = {false, false};
    uint32_t step = ga_tile_size(tile) * GA_SIZED_WORDS_PER_LANE;
    uint32_t from = 0;
    bool needs_units = class_ == search->class_ && search->requesting;
    for (; from < c->map.words && !(found.free && found.taken && !needs_units); from += step) {
        ga_sized_occupancy glance = ga_sized_scan_words(heap.heap, tile, word_index, c, from);
        found.free |= glance.free;
        found.taken |= glance.taken;
        if (glance.free && needs_units) {
            ga_sized_scan_claim(heap, tile, word_index, c->map.words, from, search);
            needs_units = search->requesting != 0;
        }
    }
    GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
    {
        (void)own;
        uint32_t read = from < c->map.words ? from : c->map.words;
        ga_post_add64_relaxed(&heap.heap->sweep.words_read, read); /* relaxed: a statistic */
    }
    return found;
}

/* Do one region of sweep `number`. */
GA_SIMT void ga_sized_sweep_region(ga_sized_view heap, ga_tile tile, uint32_t number,
                                   uint32_t region, ga_sized_search *search)
{
    uint32_t owner = ga_sized_watch(heap.heap, tile, region, number);
    uint32_t class_ = ga_sized_owner_class(owner);
    if (class_ == GA_SIZED_NONE) {
        return;
    }
    uint32_t word_index = ga_sized_bitmap_index(heap.region_bits, region, owner);
    uint32_t requesting = search->requesting;
    ga_sized_occupancy found = ga_sized_region_search(heap, tile, class_, word_index, search);
    bool served = search->requesting != requesting;
    bool released = found.free && !found.taken && !served &&
                    ga_sized_region_to_pool(heap.heap, tile, class_, region);
    GA_EACH_LANE(tile, found.free ? 1u << ga_tile_leader(tile) : 0, own)
    {
        (void)own;
        if (released) { /* relaxed, both: KW3 releases them */
            ga_post_add_relaxed(&heap.heap->sweep.regions_released, 1u);
        } else {
            ga_post_or64_relaxed(&heap.heap->sweep.found_classes, (uint64_t)1 << class_);
        }
    }
}

/* ---- begin and end --------------------------------------------------------------------- */

/* End the sweep. Called by all lanes of the tile that was done last. */
GA_SIMT void ga_sized_sweep_end(ga_sized_heap *heap, ga_tile tile, uint32_t number)
{
    ga_sized_sweep *sweep = &heap->sweep;
    GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
    {
        (void)own;
        uint64_t found_classes =
            ga_load64_relaxed(&sweep->found_classes); /* relaxed, also below: after KW4 */
        bool released = ga_load_relaxed(&sweep->regions_released) != 0;
        for (uint32_t class_ = 0; class_ < heap->classes && !released; class_++) {
            if (!(found_classes >> class_ & 1u)) {
                ga_store_relaxed(&heap->of[class_].empty_sweep, number);
            }
        }
        if (!released) {
            ga_store_relaxed(&sweep->empty_sweep, number);
        }
        uint64_t began = ga_load64_relaxed(&sweep->began_at);
        bool ripe = !GA_SIZED_GRACE_NS ||
                    began >= ga_load64_relaxed(&sweep->watched_at) + GA_SIZED_GRACE_NS;
        uint32_t releases = ga_load_relaxed(&sweep->releases);
        bool undisturbed = ga_load_acquire(&heap->releases) == releases; /* KH1. Pairs with KH2. */
        if (undisturbed) {
            ga_store_relaxed(&sweep->undisturbed, number);
        }
        if (ripe && undisturbed && number) {
#ifdef __CUDACC__
            ga_store64_relaxed(&sweep->valid_until, began + GA_SIZED_RESULT_LIFE_NS);
#endif
            /* KW5: release. Pairs with KW6. */
            ga_store64_release(&sweep->valid_result, (uint64_t)releases << 32 | number);
        }
        ga_store_release(&sweep->ended, number); /* KW5: release. Pairs with KW6. */
    }
    ga_tile_sync(tile);
}

/* Count one region of the sweep as done; the last one ends it. */
GA_SIMT void ga_sized_sweep_region_done(ga_sized_heap *heap, ga_tile tile, uint32_t number)
{
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes regions_left = ga_lanes_all(0);
    ga_tile_sync(tile);
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        /* KW3, KW4: acq_rel. Pairs with itself: the findings of all tiles. */
        ga_lane_write(&regions_left, own, ga_add_acq_rel(&heap->sweep.regions_left, 0u - 1u));
    }
    ga_tile_sync(tile);
    if (ga_lanes_get(tile, regions_left, leader) == 1u) {
        ga_sized_sweep_end(heap, tile, number);
    }
}

/* Begin the sweep after number `ended`, unless another tile does. It counts one region more than
 * there are, so that it ends even if there is none. By one lane. */
GA_SIMT void ga_sized_sweep_begin(ga_sized_heap *heap, uint32_t ended)
{
    ga_sized_sweep *sweep = &heap->sweep;
    uint32_t number = ended + 1u;
    /* KW7: acq_rel. Pairs with itself in ga_sized_sweep_latest(). */
    if (ga_load_relaxed(&sweep->begun) != ended ||
        ga_cas_acq_rel(&sweep->begun, ended, number) != ended) {
        return;
    }
    uint32_t end = ga_load_relaxed(&heap->next) + 1u;
    ga_store_relaxed(&sweep->releases, ga_load_acquire(&heap->releases)); /* KH1. Pairs with KH2. */
    ga_store64_relaxed(&sweep->began_at, ga_clock_ns());
    ga_store64_relaxed(&sweep->found_classes, 0u);
    ga_store_relaxed(&sweep->regions_released, 0u);
    ga_store_relaxed(&sweep->regions_left, end);
    ga_store_release(&sweep->end, end);                         /* KW1: release. Pairs with KW2. */
    ga_store64_release(&sweep->cursor, (uint64_t)number << 32); /* KW1 */
}

/* The number of the last sweep that may have begun before the caller's request did. */
GA_SIMT uint32_t ga_sized_sweep_latest(ga_sized_heap *heap, ga_tile tile)
{
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes last = ga_lanes_all(0);
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        /* KW7: acq_rel, though it changes nothing. Pairs with itself in ga_sized_sweep_begin(): a
         * sweep that this does not see begins after everything that the tile has done and seen. */
        ga_lane_write(&last, own, ga_add_acq_rel(&heap->sweep.begun, 0u));
    }
    ga_tile_sync(tile);
    return ga_lanes_get(tile, last, leader);
}

/* ---- taking part in sweeps ------------------------------------------------------------- */

/* The next step of a tile that takes part in sweeps. */
enum {
    GA_SIZED_SWEEP_WAIT = 0,
    GA_SIZED_SWEEP_HELP,
    GA_SIZED_SWEEP_REPEAT, /* a sweep found nothing, but memory was freed behind it */
    GA_SIZED_SWEEP_FOUND,  /* a sweep found free units of the class */
    GA_SIZED_SWEEP_FULL    /* a sweep found nothing, and nothing was freed */
};

typedef struct ga_sized_sweep_step {
    uint32_t action, number, region;
} ga_sized_sweep_step;

/* Take a region of the sweep that is under way, if one is left. By one lane. */
GA_SIMT ga_sized_sweep_step ga_sized_sweep_next_region(ga_sized_heap *heap, uint32_t ended)
{
    ga_sized_sweep *sweep = &heap->sweep;
    ga_sized_sweep_step step = {GA_SIZED_SWEEP_WAIT, 0, 0};
    uint64_t cursor = ga_load64_relaxed(&sweep->cursor); /* relaxed: a guess */
    if ((uint32_t)(cursor >> 32) != ended + 1u ||
        (uint32_t)cursor >= ga_load_relaxed(&sweep->end)) {
        return step;
    }
    cursor = ga_add64_acq_rel(&sweep->cursor, 1u); /* KW2: acquire. Pairs with KW1. */
    step.number = (uint32_t)(cursor >> 32);
    step.region = (uint32_t)cursor;
    /* KW2, then KW6. A larger `end` belongs to a later sweep, whose beginning has seen the end of
     * this one. */
    if (step.region < ga_load_acquire(&sweep->end) &&
        ga_sized_is_after(step.number, ga_load_acquire(&sweep->ended))) {
        step.action = GA_SIZED_SWEEP_HELP;
    }
    return step;
}

/* By one lane. `last` is the answer of ga_sized_sweep_latest(). */
GA_SIMT ga_sized_sweep_step ga_sized_sweep_next_step(ga_sized_heap *heap, uint32_t class_,
                                                     uint32_t last)
{
    ga_sized_sweep_step step = {GA_SIZED_SWEEP_WAIT, 0, 0};
    uint32_t ended = ga_load_acquire(&heap->sweep.ended); /* KW6: acquire. Pairs with KW5. */
#if GA_SIZED_MUTANT == 26
    last--; /* a sweep that began before the request is accepted */
#endif
    /* relaxed, both: not older than `ended` */
    uint32_t empty = ga_load_relaxed(ga_sized_empty_sweep_of(heap, class_));
    if (ga_sized_is_after(empty, last)) {
        step.action = ga_load_relaxed(&heap->sweep.undisturbed) == empty ? GA_SIZED_SWEEP_FULL
                                                                         : GA_SIZED_SWEEP_REPEAT;
    } else if (ga_sized_is_after(ended, last)) {
        step.action = GA_SIZED_SWEEP_FOUND;
    } else {
        ga_sized_sweep_begin(heap, ended);
        step = ga_sized_sweep_next_region(heap, ended);
    }
    return step;
}

/* After this number of sweeps that found nothing a request is refused, even if memory was freed
 * behind each of them. */
#define GA_SIZED_SWEEPS_MAX 8u

/* A tile that waits for the others of a sweep sleeps, each time twice as long as before. */
#define GA_SIZED_SWEEP_SLEEP_NS        250u /* the first time */
#define GA_SIZED_SWEEP_SLEEP_DOUBLINGS 4u

/* Take part in sweeps until one after number `*last` has ended, or the search needs nothing more.
 * True if that sweep found nothing for the class. If the search has no class, it is for runs: true
 * if the sweep released no region. */
GA_SIMT bool ga_sized_sweep_join(ga_sized_view heap, ga_tile tile, uint32_t *last,
                                 ga_sized_search *search)
{
    uint32_t leader = ga_tile_leader(tile);
    uint32_t waited = 0, again = 0, requesting = search->requesting, action = GA_SIZED_SWEEP_WAIT;
    while (action < GA_SIZED_SWEEP_FOUND && (search->requesting || !requesting)) {
        ga_lanes actions = ga_lanes_all(0);
        ga_lanes number = ga_lanes_all(0);
        ga_lanes region = ga_lanes_all(0);
        GA_EACH_LANE(tile, 1u << leader, own)
        {
            ga_sized_sweep_step step = ga_sized_sweep_next_step(heap.heap, search->class_, *last);
            ga_lane_write(&actions, own, step.action);
            ga_lane_write(&number, own, step.number);
            ga_lane_write(&region, own, step.region);
        }
        ga_tile_sync(tile);
        action = ga_lanes_get(tile, actions, leader);
        if (action == GA_SIZED_SWEEP_HELP) {
            uint32_t sweep_number = ga_lanes_get(tile, number, leader);
            uint32_t sweep_region = ga_lanes_get(tile, region, leader);
            if (sweep_region < heap.regions) {
                ga_sized_sweep_region(heap, tile, sweep_number, sweep_region, search);
            }
            ga_sized_sweep_region_done(heap.heap, tile, sweep_number);
        } else if (action == GA_SIZED_SWEEP_WAIT) {
            ga_clock_sleep(GA_SIZED_SWEEP_SLEEP_NS << (waited < GA_SIZED_SWEEP_SLEEP_DOUBLINGS
                                                           ? waited
                                                           : GA_SIZED_SWEEP_SLEEP_DOUBLINGS));
            waited++;
        } else if (action == GA_SIZED_SWEEP_REPEAT) {
            *last = ga_sized_load_guess(&heap.heap->sweep.ended, tile);
            action = ++again == GA_SIZED_SWEEPS_MAX ? GA_SIZED_SWEEP_FULL : action;
        }
    }
    if (action == GA_SIZED_SWEEP_FOUND) {
        *last =
            /* the next call waits for another sweep */
            ga_sized_load_guess(&heap.heap->sweep.ended, tile);
    }
    return action == GA_SIZED_SWEEP_FULL;
}

#endif
