/* SPDX-License-Identifier: MIT
 *
 * Units for the lanes of a tile, once for CPU and GPU: the bitmaps of SlabAlloc (slab-hash-2018,
 * §V) with many unit sizes over one pool of regions. sized_kernel.h has the call tree.
 *
 * STRUCTURE  See sized_heap.h, and sized_places.h for addresses. The lanes that ask for one class
 *            are a group. One atomic sets a bit for each lane of a group in one word. A lane whose
 *            bit was set goes on alone.
 *
 * INVARIANT  A unit belongs to its tile from the time the tile sets the bit until it clears it.
 *
 * ORDER      KU1 and KU2: the last owner's accesses to a unit happen before those of the next one.
 *            KS1 (sized_search.h) is the partner of KS2 in sized_grow.h: a class gets its words by
 *            it.
 *
 * PROGRESS   An allocation tries the home word, and its lanes a few others. Then its tile
 *            searches, and waits for another region for as long as growth.h says. If there is none,
 *            the tile takes part in a sweep of all regions (sized_sweep.h), or uses the result of
 *            an earlier one. It looks at the pool once more, and returns NULL if the class has not
 *            changed.
 */
#ifndef GPUALLOC_SLAB_CLASSES_SIZED_TILE_H
#define GPUALLOC_SLAB_CLASSES_SIZED_TILE_H

#include "../../../simt/simt.h"
#include "sized_sweep.h"

/* Give the lowest requesting lane the first unit of the word, which this tile holds
 * (sized_grow.h). */
GA_SIMT void ga_sized_search_use_held(ga_tile tile, uint32_t word_index, ga_sized_search *search)
{
    GA_EACH_LANE(tile, 1u << ga_bits_lowest(search->requesting), own)
    {
        ga_lane_write(&search->got.word_indices, own, word_index);
        ga_lane_write(&search->got.bit_indices, own, 0u);
    }
    search->requesting &= search->requesting - 1u;
}

/* A lane that calls alone counts for the lanes of its warp that will probably call next: as many as
 * have room in this many bytes. So each such warp gets a word of its own, of small units. */
#define GA_SIZED_LONE_BYTES 8192u
#define GA_SIZED_LONE_WARPS 8192u /* that may do so at once */

/* The number of lanes to count as waiting for the class. Those that may call next get at most a
 * part of the regions that are unused, so that a small heap keeps room for other classes. */
GA_SIMT uint32_t ga_sized_search_demand(const ga_sized_heap *heap, const ga_sized_class *c,
                                        const ga_sized_search *search)
{
    /* relaxed: an estimate */
    uint32_t unused = heap->regions - ga_load_relaxed(&heap->next);
    uint64_t spare = (uint64_t)(unused / GA_SIZED_AHEAD_DIVISOR) * c->units / GA_SIZED_LONE_WARPS;
    uint32_t next = GA_SIZED_LONE_BYTES / c->map.unit;
    next = next < 32u ? next : 32u;
    next = next < spare ? next : (uint32_t)spare;
    return search->alone && next ? next : ga_bits_count(search->requesting);
}

/* Get more regions for the class. Returns false if the class has not changed since the caller has
 * seen `*total_words`, the number of its words, which is updated. */
GA_SIMT bool ga_sized_search_grow(ga_sized_view heap, ga_tile tile, uint32_t number,
                                  uint32_t *total_words, ga_sized_search *search)
{
    ga_sized_class *c = heap.heap->of + search->class_;
    uint32_t held = GA_SIZED_NONE;
    if (ga_sized_class_cannot_grow(heap.heap, tile, search->class_, *total_words)) {
        return false;
    }
    search->place =
        ga_sized_class_count_waiting(c, tile, ga_sized_search_demand(heap.heap, c, search));
    if (!ga_sized_grow(heap.heap, tile, search->class_, *total_words, &held)) {
        return false;
    }
    if (held != GA_SIZED_NONE) {
        ga_sized_search_use_held(tile, held, search);
    }
    uint32_t now = ga_sized_load_synced(&c->map.total_words, tile);
    if (now) { /* let other tiles begin at the new words */
        ga_sized_set_hint(c, tile, number % now, *total_words < now ? *total_words : now - 1u, now);
    }
    *total_words = now;
    return true;
}

/* The search has missed: get more regions for the class, or look at all of the heap. True if the
 * request is refused: a sweep found no unit of the class, or the result of an earlier one is valid,
 * and after that the class could not get a region from the pool, nor did another tile get one for
 * it. The sweep may also serve the search. `*total_words` is as in ga_sized_search_grow(). */
GA_SIMT bool ga_sized_search_further(ga_sized_view heap, ga_tile tile, uint32_t number,
                                     uint32_t *total_words, ga_sized_search *search)
{
    bool full = ga_sized_known_full(heap.heap, tile, search->class_);
    if (ga_sized_search_grow(heap, tile, number, total_words, search)) {
        return false;
    }
    return full || (ga_sized_sweep_join(heap, tile, search) &&
                    !ga_sized_search_grow(heap, tile, number, total_words, search));
}

/* Search for units of one class for the lanes `requesting`, and grow the class until they are
 * served or the request is refused. All lanes of the tile help. */
GA_SIMT_SLOW ga_sized_units ga_sized_claim_search(ga_sized_heap *heap, uint32_t lanes,
                                                  uint32_t requesting, uint32_t class_,
                                                  uint32_t number)
{
    GA_SIMT_SAVES_REGISTERS(ga_sized_claim_search);
    ga_tile tile = ga_tile_among(lanes);
    ga_sized_view view = ga_sized_view_of(heap);
    ga_sized_class *c = heap->of + class_;
    ga_sized_search search = ga_sized_search_of(class_, requesting, number);
    search.alone = !(lanes & (lanes - 1u));
    /* number of words that the class had when it was searched last */
    uint32_t searched = GA_SIZED_NONE;
    for (bool refused = false; search.requesting && !refused;) {
        uint32_t total_words = ga_sized_load_synced(&c->map.total_words, tile);
        if (searched < total_words) {
            ga_sized_search_new(view, tile, searched, total_words, &search);
        } else if (total_words) {
            ga_sized_search_class(view, tile, number, total_words, &search);
        }
        searched = total_words;
        refused =
            search.requesting && ga_sized_search_further(view, tile, number, &total_words, &search);
    }
    GA_EACH_LANE(tile, search.requesting ? 1u << ga_tile_leader(tile) : 0, own)
    {
        (void)own;
        ga_post_add_relaxed(&c->refused, ga_bits_count(search.requesting)); /* relaxed: a counter */
    }
    return search.got;
}

/* ---- allocation ------------------------------------------------------------------------ */

/* Search for the lanes `missing`, which have no unit yet, one class after the other. */
GA_SIMT void ga_sized_claim_search_groups(ga_sized_view heap, ga_tile tile, uint32_t missing,
                                          ga_lanes classes, ga_lanes equal, uint32_t number,
                                          ga_sized_units *got)
{
    while (missing) {
        uint32_t first = ga_bits_lowest(missing);
        uint32_t group = ga_lanes_get(tile, equal, first) & missing;
        ga_sized_units more = ga_sized_claim_search(heap.heap, ga_tile_members(tile), group,
                                                    ga_lanes_get(tile, classes, first), number);
        got->word_indices = ga_lanes_select(tile, group, more.word_indices, got->word_indices);
        got->bit_indices = ga_lanes_select(tile, group, more.bit_indices, got->bit_indices);
        missing &= ~group;
    }
}

/* Claim one of the bits `free` of its word for each lane of `missing`. Sets the lane's `bits`, to 0
 * if it got none; the caller must pass them to ga_sized_keep_bits(). */
GA_SIMT void ga_sized_probe_each(ga_sized_view heap, ga_tile tile, uint32_t missing,
                                 uint32_t number, ga_lanes words, ga_lanes free, ga_lanes *bits)
{
    GA_EACH_LANE(tile, missing, own)
    {
        uint32_t bit = ga_sized_pick(ga_lane_read(free, own), 1, (number + own) & 31u);
        ga_lane_write(bits, own,
                      bit ? ga_sized_probe_bits(heap, ga_lane_read(words, own), bit) : 0);
    }
    ga_tile_sync(tile);
}

/* If one of the words that the lanes of `missing` have found is wholly free, let all of them take
 * it, so that their units are together. */
GA_SIMT void ga_sized_share_free_word(ga_tile tile, uint32_t missing, uint32_t rotation,
                                      ga_lanes *words, ga_lanes *free)
{
    uint32_t whole = missing & ~ga_lanes_nonzero(tile, *free ^ ga_lanes_all(GA_ALL_BITS));
    if (whole) {
        uint32_t chosen = ga_bits_from(whole, rotation);
        ga_lanes word_index = ga_lanes_all(ga_lanes_get(tile, *words, chosen));
        *words = ga_lanes_select(tile, missing, word_index, *words);
        *free = ga_lanes_select(tile, missing, ga_lanes_all(GA_ALL_BITS), *free);
    }
}

/* A unit for each lane of `requesting`, or GA_SIZED_NONE for a lane that found none in a few words.
 * The lanes have set their bits `bits` of the words `words`, or none; other bits of these words
 * that seem to be free are `free`. A lane without a bit goes on alone: to one of the free bits,
 * then to other words. If none so far had a free bit, the heap was probably filled in order, and
 * the newest words are a better guess than random ones. `same`: all lanes request one class. */
GA_SIMT ga_sized_units ga_sized_claim_by_lane(ga_sized_view heap, ga_tile tile, uint32_t requesting,
                                              ga_lanes classes, bool same, uint32_t number,
                                              ga_lanes words, ga_lanes bits, ga_lanes free)
{
    ga_sized_units got = {ga_lanes_all(GA_SIZED_NONE), ga_lanes_all(0)};
    uint32_t missing = requesting & ~ga_lanes_nonzero(tile, bits);
    bool holes = ga_lanes_nonzero(tile, bits | free) & requesting;
    for (uint32_t attempt = 1; missing; attempt++) {
        ga_sized_probe_each(heap, tile, missing, number, words, free, &bits);
        missing &= ~ga_lanes_nonzero(tile, bits);
        if (!missing || attempt > GA_SIZED_LANE_ATTEMPTS || (attempt > 3u && !holes)) {
            break;
        }
        ga_sized_look look = attempt == 1u             ? GA_SIZED_LOOK_HINT
                             : attempt == 3u && !holes ? GA_SIZED_LOOK_NEWEST
                                                       : GA_SIZED_LOOK_RANDOM;
        GA_EACH_LANE(tile, missing, own)
        {
            uint32_t word_index;
            ga_lane_write(&free, own,
                          ga_sized_look_for_word(heap, ga_lane_read(classes, own), number, own,
                                                 false, look, attempt, &word_index));
            ga_lane_write(&words, own, word_index);
        }
        ga_tile_sync(tile);
        holes = holes || ga_lanes_nonzero(tile, free) & missing;
        if (same) {
            ga_sized_share_free_word(tile, missing, number & 31u, &words, &free);
        }
    }
    GA_EACH_LANE(tile, requesting, own)
    {
        uint32_t word_index = ga_lane_read(words, own);
        uint32_t bit = ga_sized_keep_bits(heap, ga_lane_read(classes, own), word_index,
                                          ga_lane_read(bits, own));
        ga_lane_write(&got.word_indices, own, bit ? word_index : GA_SIZED_NONE);
        ga_lane_write(&got.bit_indices, own, bit ? ga_bits_lowest(bit) : 0);
    }
    ga_tile_sync(tile);
    return got;
}

/* As above, for lanes of `requesting` of any classes. The lanes of one class make one atomic on its
 * home word; a lane whose bit was set already goes on alone. */
GA_SIMT ga_sized_units ga_sized_claim_each(ga_sized_view heap, ga_tile tile, uint32_t requesting,
                                           ga_lanes classes, uint32_t number)
{
    uint32_t rotation = ga_bits_mix(number) & 31u;
    ga_lanes equal = ga_lanes_equal(tile, requesting, classes);
    ga_lanes taken = ga_lanes_all(GA_ALL_BITS);
    ga_lanes leaders = ga_lanes_all(0);
    ga_lanes words = ga_lanes_all(GA_SIZED_NONE);
    ga_lanes bits = ga_lanes_all(0);
    GA_EACH_LANE(tile, requesting, own)
    {
        uint32_t group = ga_lane_read(equal, own);
        if (ga_bits_lowest(group) == own) {
            uint32_t class_ = ga_lane_read(classes, own);
            uint32_t word_index =
                ga_sized_home_word(heap, ga_sized_load_class_map(heap.heap->of + class_), number);
            if (word_index != GA_SIZED_NONE) {
                /* relaxed: ga_sized_keep_bits() acquires */
                ga_lane_write(
                    &taken, own,
                    ga_or_relaxed(heap.bits + word_index, ga_bits_rotate32(group, rotation)));
            }
            ga_lane_write(&words, own, word_index);
        }
        ga_lane_write(&leaders, own, ga_bits_lowest(group));
    }
    ga_tile_sync(tile);
    /* the leader's word, because another lane might see another class map */
    words = ga_lanes_from(tile, words, leaders);
    taken = ga_lanes_from(tile, taken, leaders);
    GA_EACH_LANE(tile, requesting, own)
    {
        uint32_t set = ga_bits_rotate32(ga_lane_read(equal, own), rotation);
        uint32_t theirs = ga_lane_read(taken, own);
        ga_lane_write(&bits, own, ga_bits_rotate32(1u << own, rotation) & ~theirs);
        ga_lane_write(&taken, own, ~(theirs | set)); /* free bits from here on */
    }
    return ga_sized_claim_by_lane(heap, tile, requesting, classes, false, number, words, bits,
                                  taken);
}

/* A unit of the lane's class for each lane of `requesting`. `number` is the caller's warp number:
 * tiles that run at the same time should pass different ones. */
GA_SIMT ga_sized_units ga_sized_claim(ga_sized_view heap, ga_tile tile, uint32_t requesting,
                                      ga_lanes classes, uint32_t number)
{
    ga_sized_units got = ga_sized_claim_each(heap, tile, requesting, classes, number);
    uint32_t served = ga_lanes_nonzero(tile, got.word_indices ^ ga_lanes_all(GA_SIZED_NONE));
    if (requesting & ~served) {
        ga_sized_claim_search_groups(heap, tile, requesting & ~served, classes,
                                     ga_lanes_equal(tile, requesting, classes), number, &got);
    }
    return got;
}

/* Set the bits of the tile's lanes in the word by one atomic. Returns the bits that were set
 * before. */
GA_SIMT uint32_t ga_sized_try_set_lanes(ga_sized_view heap, ga_tile tile, uint32_t word_index)
{
    uint32_t lanes = ga_tile_lanes(tile);
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes taken = ga_lanes_all(0);
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        ga_lane_write(&taken, own, ga_sized_try_set(heap, word_index, lanes));
    }
    ga_tile_sync(tile);
    return ga_lanes_get(tile, taken, leader);
}

/* Off the fast path, where the region of the word may have left the class: set the bits of the
 * tile's lanes by one atomic, and clear them again if it has. Returns the bits that the tile did
 * not get. */
GA_SIMT uint32_t ga_sized_try_set_lanes_verify(ga_sized_view heap, ga_tile tile, uint32_t class_,
                                               uint32_t word_index)
{
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes taken = ga_lanes_all(0);
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        ga_lane_write(&taken, own,
                      ga_sized_try_set_verify(heap, class_, word_index, ga_tile_lanes(tile)));
    }
    ga_tile_sync(tile);
    return ga_lanes_get(tile, taken, leader);
}

/* Claim all free units of the word, for a tile of 32 lanes. Returns their bits. */
GA_SIMT uint32_t ga_sized_claim_word(ga_sized_view heap, uint32_t word_index)
{
    return ~ga_sized_try_set_lanes(heap, ga_tile_of(32), word_index);
}

/* Second attempt, for a tile of one class whose lanes have set their bits of the home word
 * `word_index`; `taken` were set before. If the tile has tried no word, `word_index` is
 * GA_SIZED_NONE and `taken` is GA_ALL_BITS. */
GA_SIMT ga_sized_units ga_sized_claim_rest(ga_sized_view heap, ga_tile tile, uint32_t class_,
                                           uint32_t number, uint32_t word_index, uint32_t taken)
{
    uint32_t lanes = ga_tile_lanes(tile);
    ga_lanes bits = ga_lanes_all(0);
    GA_EACH_LANE(tile, lanes & ~taken, own)
    {
        ga_lane_write(&bits, own, 1u << own);
    }
    /* the word that the leader's atomic was on, because another lane might see another class map */
    word_index = ga_lanes_get(tile, ga_lanes_all(word_index), ga_tile_leader(tile));
    ga_sized_units got =
        ga_sized_claim_by_lane(heap, tile, lanes, ga_lanes_all(class_), true, number,
                               ga_lanes_all(word_index), bits, ga_lanes_all(~(taken | lanes)));
    uint32_t served = ga_lanes_nonzero(tile, got.word_indices ^ ga_lanes_all(GA_SIZED_NONE));
    if (lanes & ~served) {
        ga_sized_claim_search_groups(heap, tile, lanes & ~served, ga_lanes_all(class_),
                                     ga_lanes_all(lanes), number, &got);
    }
    return got;
}

/* ---- free ------------------------------------------------------------------------------ */

/* Free one unit for each lane of `freeing`: by one atomic if all lanes of the tile do and the units
 * are in one word, as a warp allocates them; else by one for each lane. Atomics merged for lanes
 * that share a word cost more than they save. Precondition: the tile has called ga_tile_publish()
 * since its lanes used the units. */
GA_SIMT void ga_sized_free_units(ga_sized_view heap, ga_tile tile, uint32_t freeing,
                                 ga_sized_units got)
{
    if (freeing == ga_tile_lanes(tile) && ga_lanes_same(tile, got.word_indices)) {
        uint32_t bits = ga_lanes_union(tile, ga_lanes_all(1u) << got.bit_indices);
        GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
        {
            ga_sized_release_bits(heap, ga_lane_read(got.word_indices, own), bits);
        }
        return;
    }
    GA_EACH_LANE(tile, freeing, own)
    {
        ga_sized_release_bits(heap, ga_lane_read(got.word_indices, own),
                              1u << ga_lane_read(got.bit_indices, own));
    }
}

#endif
