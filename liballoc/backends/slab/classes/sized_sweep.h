/* SPDX-License-Identifier: MIT
 *
 * The last resort before a request is refused: a sweep. The tiles that found no free unit read all
 * regions of the heap together, once, and later requests rely on the result while it is valid.
 *
 *     sweep_join                  (names without ga_sized_)
 *      |- sweep_next              done, wait, or do some regions: by one lane
 *      |   |- sweep_begin         if no sweep is under way
 *      |   '- sweep_next_regions  from `cursor`
 *      |- sweep_help              the regions that a tile has taken
 *      |   |- sweep_select        those of them that have to be read
 *      |   |- sweep_region        reads one of these (sized_sweep_region.h)
 *      |   '- sweep_regions_done  the last tile: sweep_end, which publishes the result
 *      '- sweep_help_others       before a refusal
 *
 * STRUCTURE  A sweep goes through all regions that were ever in use. Its tiles take the next ones
 *            from `cursor` until there is none, and the tile that is done with the last one ends
 *            the sweep. Sweeps are numbered and do not overlap. In a region of its own class a tile
 *            claims the units that it needs. For any other class it records that the class has free
 *            units. A region without live units leaves its class for the pool. A tile that requests
 *            a run takes part in sweeps for these regions.
 *
 *            A region in which a sweep found nothing is settled until a unit is freed in it. Later
 *            sweeps look at two words of it instead of its bitmap. A heap of 32 GiB has 16,384
 *            regions, and 512 MiB of bitmaps if all units have 16 bytes.
 *
 * INVARIANT  A request is refused by a sweep that began after the request did, or by an earlier one
 *            whose result is valid: it watched all regions, and `releases` has not changed since
 *            that sweep began. So a block that was freed before the request began is found, unless
 *            another tile claims it or holds its bit for a moment. If `releases` changes during a
 *            sweep, free units may have moved from ahead of the sweep to behind it. Then the
 *            request waits for another sweep, up to GA_SIZED_SWEEPS_MAX of them. A sweep does not
 *            see regions that are in the pool, or that a tile has taken from it. So after a sweep
 *            the request looks at the pool, and waits for the tile that gets regions for its class.
 *            If the number of the class's words has changed, the request begins anew, and relies on
 *            later sweeps only. A request for a run compares `releases` instead.
 *
 *            A request may be refused although units were free all the time, if
 *              - each of GA_SIZED_SWEEPS_MAX sweeps was disturbed;
 *              - between the sweep and the look at the pool a unit was freed, or the class lost as
 *                many regions as it got;
 *              - another class had taken several regions, and had not published them: it needs one,
 *                and a later sweep would return the others to the pool.
 *
 *            A watch costs the frees in a region nothing until the first of them. The sweep writes
 *            its number beside the owner (GA_SIZED_WATCH). The fast path of a free reads the owner
 *            anyway, and leaves a region with a flag to the slow path. That clears the bit, marks
 *            the watch as over (GA_SIZED_FREED), changes `releases`, and then removes the watch. So
 *            a sweep that comes after the mark reads the region again, and a sweep that came before
 *            it is disturbed.
 *
 *            On the GPU a free reads the owner before its fence, and does not read it again. So a
 *            free that read it before the watch began may clear its bit behind the sweep, and not
 *            notify it. For this reason a region is settled only by a sweep that began
 *            GA_SIZED_GRACE_NS after the watch, and a result serves later requests only if the
 *            sweep began GA_SIZED_GRACE_NS after the last new watch, and for no longer than
 *            GA_SIZED_RESULT_LIFE_NS. Otherwise each request waits for a sweep that began after it.
 *            One case remains. If a free was stopped for longer than GA_SIZED_GRACE_NS between two
 *            consecutive instructions, its block may be missed until a sweep reads the region
 *            again; each does with one of GA_SIZED_RECHECK settled regions. On the CPU a free reads
 *            the owner again (KO3), and this cannot happen.
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
 *            count. KE and KP as in sized_grow.h and sized_pool.h.
 *
 * PROGRESS   A tile that finds nothing waits for the tiles that are in regions. Each of these is
 *            done after a number of steps bounded by the words of the regions, and may wait for a
 *            class's `table_lock`. A request goes on while sweeps find free units for it, or its
 *            class changes. Before a sweep refuses it, a tile helps the next one, and may do one
 *            step of the sweep after that.
 */
#ifndef GPUALLOC_SLAB_CLASSES_SIZED_SWEEP_H
#define GPUALLOC_SLAB_CLASSES_SIZED_SWEEP_H

#include "sized_sweep_region.h"

#ifdef __CUDACC__
#define GA_SIZED_RESULT_LIFE_NS 1000000000u /* age at which a result expires */
#define GA_SIZED_RECHECK        4096u       /* a settled region is read by one of so many sweeps */
#else
#define GA_SIZED_RECHECK 0x80000000u
#endif

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

/* ---- the regions that a tile has taken ------------------------------------------------- */

#define GA_SIZED_REGIONS_PER_LANE 4u /* regions that a lane looks at in one step */

/* Of the regions from `first` to before `end`, those that sweep `number` has to read: bit i of a
 * lane is region first + i * size of the tile + rank of the lane. */
GA_SIMT ga_lanes ga_sized_sweep_select(const ga_sized_heap *heap, ga_tile tile, uint32_t number,
                                       uint32_t first, uint32_t end)
{
    uint32_t size = ga_tile_size(tile);
    ga_lanes ranks = ga_tile_ranks(tile);
    ga_lanes selected = ga_lanes_all(0);
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        uint32_t owners[GA_SIZED_REGIONS_PER_LANE], watches[GA_SIZED_REGIONS_PER_LANE], mask = 0;
        uint32_t mine = first + ga_lane_read(ranks, own);
        for (uint32_t i = 0; i < GA_SIZED_REGIONS_PER_LANE; i++) { /* all loads first */
            uint32_t region = mine + i * size < end ? mine + i * size : first;
            /* relaxed: after KW2, so a free that ended before the request is seen */
            owners[i] = ga_load_relaxed(heap->owners + region);
            watches[i] = ga_load_relaxed(heap->watches + region);
        }
        for (uint32_t i = 0; i < GA_SIZED_REGIONS_PER_LANE; i++) {
            uint32_t region = mine + i * size;
            bool watched = ga_sized_is_watched(owners[i]) || GA_PLANTED(sized_settled_unwatched);
            bool settled = watched && watches[i] & GA_SIZED_SETTLED &&
                           (region + number) % GA_SIZED_RECHECK != 0;
            bool read =
                region < end && ga_sized_owner_class(owners[i]) != GA_SIZED_NONE && !settled;
            mask |= (uint32_t)read << i;
        }
        ga_lane_write(&selected, own, mask);
    }
    return selected;
}

/* Do `n` regions of sweep `number`, from `first` on. Returns the number of those that had to be
 * read. */
GA_SIMT uint32_t ga_sized_sweep_regions(ga_sized_view heap, ga_tile tile, uint32_t number,
                                        uint32_t first, uint32_t n, ga_sized_search *search)
{
    uint32_t size = ga_tile_size(tile);
    uint32_t end = first + n < heap.regions ? first + n : heap.regions;
    uint32_t regions_read = 0;
    for (; first < end; first += GA_SIZED_REGIONS_PER_LANE * size) {
        ga_lanes selected = ga_sized_sweep_select(heap.heap, tile, number, first, end);
        ga_tile_sync(tile);
        for (uint32_t i = 0; i < GA_SIZED_REGIONS_PER_LANE; i++) {
            uint32_t lanes = ga_lanes_nonzero(tile, selected & ga_lanes_all(1u << i));
            for (; lanes; lanes &= lanes - 1u) {
                uint32_t rank =
                    ga_bits_count(ga_tile_lanes(tile) & ga_bits_below(ga_bits_lowest(lanes)));
                ga_sized_sweep_region(heap, tile, number, first + i * size + rank, search);
                regions_read++;
            }
        }
    }
    return regions_read;
}

/* ---- begin and end --------------------------------------------------------------------- */

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
        ga_store_release(&sweep->ended, number);              /* KW5: release. Pairs with KW6. */
        if (ga_load_relaxed(&sweep->wanted) == number + 1u) { /* relaxed: a hint */
            ga_sized_sweep_begin(heap, number);
        }
    }
    ga_tile_sync(tile);
}

/* Count `n` regions of the sweep as done; the last one ends it. */
GA_SIMT void ga_sized_sweep_regions_done(ga_sized_heap *heap, ga_tile tile, uint32_t number,
                                         uint32_t n)
{
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes regions_left = ga_lanes_all(0);
    ga_tile_sync(tile);
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        /* KW3, KW4: acq_rel. Pairs with itself: the findings of all tiles. */
        ga_lane_write(&regions_left, own, ga_add_acq_rel(&heap->sweep.regions_left, 0u - n));
    }
    ga_tile_sync(tile);
    if (ga_lanes_get(tile, regions_left, leader) == n) {
        ga_sized_sweep_end(heap, tile, number);
    }
}

/* The number of the last sweep that may have begun before this call. */
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
    GA_SIZED_SWEEP_REPEAT, /* a sweep found nothing, but was disturbed: `releases` changed */
    GA_SIZED_SWEEP_FOUND,  /* a sweep found free units of the class */
    GA_SIZED_SWEEP_FULL    /* a sweep found nothing, and was not disturbed */
};

typedef struct ga_sized_sweep_step {
    uint32_t action, number;
    uint32_t region, n; /* the first region to do, and their number */
} ga_sized_sweep_step;

/* Take up to `n` regions of the sweep that is under way, if any is left. By one lane. */
GA_SIMT ga_sized_sweep_step ga_sized_sweep_next_regions(ga_sized_heap *heap, uint32_t ended,
                                                        uint32_t n)
{
    ga_sized_sweep *sweep = &heap->sweep;
    ga_sized_sweep_step step = {GA_SIZED_SWEEP_WAIT, 0, 0, 0};
    uint64_t cursor = ga_load64_relaxed(&sweep->cursor); /* relaxed: a guess */
    if ((uint32_t)(cursor >> 32) != ended + 1u ||
        (uint32_t)cursor >= ga_load_relaxed(&sweep->end)) {
        return step;
    }
    cursor = ga_add64_acq_rel(&sweep->cursor, n); /* KW2: acquire. Pairs with KW1. */
    step.number = (uint32_t)(cursor >> 32);
    step.region = (uint32_t)cursor;
    /* KW2, then KW6. A larger `end` belongs to a later sweep, whose beginning has seen the end of
     * this one. */
    uint32_t end = ga_load_acquire(&sweep->end);
    if (step.region < end && ga_sized_is_after(step.number, ga_load_acquire(&sweep->ended))) {
        step.action = GA_SIZED_SWEEP_HELP;
        step.n = n < end - step.region ? n : end - step.region;
    }
    return step;
}

/* By one lane. `last` is the answer of ga_sized_sweep_latest(), `n` the number of regions to take
 * at once. */
GA_SIMT ga_sized_sweep_step ga_sized_sweep_next_step(ga_sized_heap *heap, uint32_t class_,
                                                     uint32_t last, uint32_t n)
{
    ga_sized_sweep_step step = {GA_SIZED_SWEEP_WAIT, 0, 0, 0};
    uint32_t ended = ga_load_acquire(&heap->sweep.ended); /* KW6: acquire. Pairs with KW5. */
#if GA_PLANTED(sized_earlier_sweep_accepted)
    last--; /* a sweep that began before the request is accepted */
#endif
    if (ga_sized_is_after(ended, last)) {
        /* relaxed, both: not older than `ended` */
        step.number = ga_load_relaxed(ga_sized_empty_sweep_of(heap, class_));
        uint32_t undisturbed = ga_load_relaxed(&heap->sweep.undisturbed);
        step.action = !ga_sized_is_after(step.number, last) ? GA_SIZED_SWEEP_FOUND
                      : undisturbed == step.number          ? GA_SIZED_SWEEP_FULL
                                                            : GA_SIZED_SWEEP_REPEAT;
    } else {
        ga_sized_sweep_begin(heap, ended);
        step = ga_sized_sweep_next_regions(heap, ended, n);
        if (step.action == GA_SIZED_SWEEP_WAIT &&
            ga_load_relaxed(&heap->sweep.wanted) != last + 1u) {
            ga_store_relaxed(&heap->sweep.wanted, last + 1u); /* relaxed: a hint */
        }
    }
    return step;
}

/* After this number of disturbed sweeps that found nothing, the last one counts as undisturbed. */
#define GA_SIZED_SWEEPS_MAX 32u

/* A tile that waits for the others of a sweep sleeps, each time twice as long as before. */
#define GA_SIZED_SWEEP_SLEEP_NS        250u /* the first time */
#define GA_SIZED_SWEEP_SLEEP_DOUBLINGS 4u

/* The most regions that a tile takes at once. It doubles their number as long as none of them has
 * to be read. */
#define GA_SIZED_SWEEP_BATCH_MAX 512u

/* Do the regions of a step, and set the number of regions to take next. */
GA_SIMT void ga_sized_sweep_help(ga_sized_view heap, ga_tile tile, ga_sized_sweep_step step,
                                 uint32_t *batch, ga_sized_search *search)
{
    uint32_t read = ga_sized_sweep_regions(heap, tile, step.number, step.region, step.n, search);
    ga_sized_sweep_regions_done(heap.heap, tile, step.number, step.n);
    *batch = read ? 1u : *batch < GA_SIZED_SWEEP_BATCH_MAX ? *batch * 2u : *batch;
}

/* The next step of the tile. It takes part in sweeps until one after number `last` has ended; with
 * `current_only` in the one that is under way, and `class_` and `last` are not used. */
GA_SIMT ga_sized_sweep_step ga_sized_sweep_next(ga_sized_heap *heap, ga_tile tile, uint32_t class_,
                                                uint32_t last, bool current_only, uint32_t batch)
{
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes actions = ga_lanes_all(0);
    ga_lanes number = ga_lanes_all(0);
    ga_lanes region = ga_lanes_all(0);
    ga_lanes n = ga_lanes_all(0);
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        /* KW6: acquire. Pairs with KW5. */
        ga_sized_sweep_step step =
            current_only
                ? ga_sized_sweep_next_regions(heap, ga_load_acquire(&heap->sweep.ended), batch)
                : ga_sized_sweep_next_step(heap, class_, last, batch);
        ga_lane_write(&actions, own, step.action);
        ga_lane_write(&number, own, step.number);
        ga_lane_write(&region, own, step.region);
        ga_lane_write(&n, own, step.n);
    }
    ga_tile_sync(tile);
    ga_sized_sweep_step step = {ga_lanes_get(tile, actions, leader),
                                ga_lanes_get(tile, number, leader),
                                ga_lanes_get(tile, region, leader), ga_lanes_get(tile, n, leader)};
    return step;
}

/* Help the sweep that is under way. A tile does so before it is refused. Otherwise the last few
 * tiles of a kernel, whose requests began after the others', would have their sweep to
 * themselves. */
GA_SIMT void ga_sized_sweep_help_others(ga_sized_view heap, ga_tile tile, uint32_t batch)
{
    ga_sized_search none = ga_sized_search_of(GA_SIZED_NONE, 0, 0);
    uint32_t number = 0;
    bool helped = true;
    while (helped) {
        ga_sized_sweep_step step =
            ga_sized_sweep_next(heap.heap, tile, GA_SIZED_NONE, 0, true, batch);
        helped = step.action == GA_SIZED_SWEEP_HELP && (!number || step.number == number);
        if (step.action == GA_SIZED_SWEEP_HELP) {
            ga_sized_sweep_help(heap, tile, step, &batch, &none);
        }
        number = step.number;
    }
}

/* Take part in sweeps until one has ended that began after this call, or the search needs nothing
 * more. True if that sweep found nothing for the class, and was not disturbed; or after
 * GA_SIZED_SWEEPS_MAX disturbed ones. If the search has no class, it is for runs, and the sweep
 * found nothing if it released no region. */
GA_SIMT bool ga_sized_sweep_join(ga_sized_view heap, ga_tile tile, ga_sized_search *search)
{
    uint32_t waited = 0, again = 0, requesting = search->requesting, action = GA_SIZED_SWEEP_WAIT;
    uint32_t batch = 1u, last = ga_sized_sweep_latest(heap.heap, tile);
    while (action < GA_SIZED_SWEEP_FOUND && (search->requesting || !requesting)) {
        ga_sized_sweep_step step =
            ga_sized_sweep_next(heap.heap, tile, search->class_, last, false, batch);
        action = step.action;
        if (action == GA_SIZED_SWEEP_HELP) {
            ga_sized_sweep_help(heap, tile, step, &batch, search);
        } else if (action == GA_SIZED_SWEEP_WAIT) {
            ga_clock_sleep(GA_SIZED_SWEEP_SLEEP_NS << (waited < GA_SIZED_SWEEP_SLEEP_DOUBLINGS
                                                           ? waited
                                                           : GA_SIZED_SWEEP_SLEEP_DOUBLINGS));
            waited++;
        } else if (action == GA_SIZED_SWEEP_REPEAT) {
            last = step.number; /* that sweep counts once */
            action = ++again == GA_SIZED_SWEEPS_MAX ? GA_SIZED_SWEEP_FULL : action;
        }
    }
    if (action == GA_SIZED_SWEEP_FULL) {
        ga_sized_sweep_help_others(heap, tile, batch);
    }
    return action == GA_SIZED_SWEEP_FULL;
}

#endif
