/* SPDX-License-Identifier: MIT
 *
 * Find and claim units of one class: the atomics on bitmaps, and searches by a whole tile.
 *
 * STRUCTURE  See sized_heap.h, and sized_places.h for addresses.
 *
 * INVARIANT  A unit belongs to its tile from the time the tile sets the bit until it clears it.
 *            Bits of a second bitmap count only after a check of the region's owner; else the tile
 *            clears them again.
 *
 * ORDER      KU1 and KU2 (this file): the last owner's accesses to a unit happen before those of
 *            the next one. KH1 and KH2 (sized_pool.h): events that `releases` counts happen before
 *            a tile sees the count. KO3 and KO4: the checks of a free for a sweep (sized_sweep.h).
 *
 * PROGRESS   No search waits. Each loads a fixed number of words, and repeats that only if another
 *            tile claimed the units that it saw.
 */
#ifndef GPUALLOC_SLAB_CLASSES_SIZED_SEARCH_H
#define GPUALLOC_SLAB_CLASSES_SIZED_SEARCH_H

#include "../../../simt/simt.h"
#include "sized_grow.h"
#include "sized_heap.h"
#include "sized_places.h"

/* ---- bits of one word, by one lane ----------------------------------------------------- */

/* Set `bits` of the word. Returns the bits that were set before. */
GA_SIMT uint32_t ga_sized_try_set(ga_sized_view heap, uint32_t word_index, uint32_t bits)
{
#if GA_PLANTED(sized_claim_relaxed)
    return ga_or_relaxed(heap.bits + word_index, bits);
#elif GA_PLANTED(sized_claim_not_atomic)
    /* KU1, but not atomic. Pairs with KU2. */
    uint32_t taken = ga_load_acquire(heap.bits + word_index);
    ga_store_relaxed(heap.bits + word_index, taken | bits);
    return taken;
#else
    /* KU1: acquire. Pairs with KU2: the last owner's accesses to a unit happen before ours. */
    return ga_or_acquire(heap.bits + word_index, bits);
#endif
}

/* Call after a free has cleared its bits. If a sweep watches the region, its result and those of
 * all earlier sweeps are invalid now. Ends the watch in two steps, so that frees take the fast path
 * again. A sweep that comes between the steps finds GA_SIZED_FREED, and begins a new watch. */
GA_SIMT void ga_sized_notify_sweep(ga_sized_heap *heap, uint32_t region)
{
    uint32_t *word = heap->owners + region;
    /* KO3: acq_rel, though it changes nothing. Pairs with KO1 (sized_sweep_region.h): a sweep that
     * comes later sees the bit clear, and one that came before is seen here. */
    uint32_t owner = ga_or_acq_rel(word, 0);
    while (ga_sized_owner_class(owner) != GA_SIZED_NONE && owner & GA_SIZED_WATCH) {
        uint32_t freed = owner | (GA_PLANTED(sized_watch_not_marked) ? 0 : GA_SIZED_FREED);
        /* KO3: as above */
        uint32_t seen = owner == freed ? owner : ga_cas_acq_rel(word, owner, freed);
        if (seen != owner) {
            owner = seen;
            continue;
        }
#if !GA_PLANTED(sized_sweep_not_notified)
        ga_post_add_release(&heap->releases, 1u); /* KH2: release, after the bit. Pairs with KH1. */
#endif
#if GA_PLANTED(sized_watch_not_marked)
        ga_clock_sleep(20000); /* a sweep has time to pass */
#endif
        /* KO4: release. Pairs with KO3, and with the fence of a free on the fast path: a free that
         * does not see the watch any more comes after the change of `releases`. */
        ga_cas_release(word, freed, freed & ~(GA_SIZED_WATCH | GA_SIZED_FREED));
        return;
    }
}

/* The bitmaps, where a free clears bits. interpose/kernel/module.cu has another source of their
 * address, because with this one ptxas keeps it in registers for longer. */
#ifndef GA_SIZED_RELEASED_BITS
#define GA_SIZED_RELEASED_BITS(view) ((view).bits)
#endif

/* Clear bits of one word, by one lane. Precondition: its tile has called ga_tile_publish() since
 * it used the units. On the CPU this reads the owner again. On the GPU that would delay every
 * free, so the owner that the free loaded before its fence decides; sweeps allow for that
 * (sized_sweep.h). */
GA_SIMT void ga_sized_release_bits(ga_sized_view heap, uint32_t word_index, uint32_t bits)
{
#if GA_PLANTED(sized_sweep_notified_too_early)
    /* too early; a sweep has time to pass before the bit is clear */
    ga_sized_notify_sweep(heap.heap, word_index >> ga_sized_stride_bits(heap.region_bits));
    ga_clock_sleep(20000);
#endif
#if GA_PLANTED(sized_free_relaxed)
    ga_post_and_relaxed(GA_SIZED_RELEASED_BITS(heap) + word_index, ~bits);
#else
    /* KU2: release, with the tile's publish. Pairs with KU1. No answer to wait for. */
    ga_post_and_published(GA_SIZED_RELEASED_BITS(heap) + word_index, ~bits);
#endif
#if !defined __CUDACC__ && !GA_PLANTED(sized_sweep_notified_too_early)
    ga_sized_notify_sweep(heap.heap, word_index >> ga_sized_stride_bits(heap.region_bits));
#endif
}

/* Clear bits that the caller has just set, because the region has another class by now. */
GA_SIMT_SLOW void ga_sized_undo_bits(ga_sized_heap *heap, uint32_t word_index, uint32_t bits)
{
    ga_sized_view view = ga_sized_view_of(heap);
    ga_sized_release_bits(view, word_index, bits);
    /* A sweep may have read the word while these bits were set. */
    ga_sized_notify_sweep(heap, word_index >> ga_sized_stride_bits(view.region_bits));
    ga_post_add_release(&heap->releases, 1u); /* KH2: release. Pairs with KH1. */
}

/* Set `bits` of a word that was the class's when the caller looked. Returns the bits that the
 * caller did not get. The region may have another class by now; then the bits that it got are
 * cleared again. */
GA_SIMT uint32_t ga_sized_try_set_verify(ga_sized_view heap, uint32_t class_, uint32_t word_index,
                                         uint32_t bits)
{
    uint32_t taken = ga_sized_try_set(heap, word_index, bits);
    uint32_t got = bits & ~taken;
    if (!got || ga_sized_class_owns(heap, class_, word_index)) {
        return taken;
    }
    ga_sized_undo_bits(heap.heap, word_index, got);
    return GA_ALL_BITS;
}

/* Claim those of `bits` that are free. Returns the bits that the caller got. */
GA_SIMT uint32_t ga_sized_claim_bits(ga_sized_view heap, uint32_t class_, uint32_t word_index,
                                     uint32_t bits)
{
    return bits & ~ga_sized_try_set_verify(heap, class_, word_index, bits);
}

/* Set `bits` of the word without an acquire, which drops the L1 cache and with it what the caller
 * has there. Returns those that were clear; the caller must pass them to ga_sized_keep_bits(). */
GA_SIMT uint32_t ga_sized_probe_bits(ga_sized_view heap, uint32_t word_index, uint32_t bits)
{
    /* relaxed: ga_sized_keep_bits() acquires */
    return bits & ~ga_or_relaxed(heap.bits + word_index, bits);
}

/* Make bits that ga_sized_probe_bits() got the caller's. Returns them; or 0 if the region has left
 * the class, and then they are clear again. */
GA_SIMT uint32_t ga_sized_keep_bits(ga_sized_view heap, uint32_t class_, uint32_t word_index,
                                    uint32_t got)
{
    if (!got) {
        return 0;
    }
#if !GA_PLANTED(sized_claim_relaxed)
    /* KU1: acquire. Pairs with KU2: the value is of the release sequence that KU2 began, because
     * only read-modify-writes follow it. */
    (void)ga_load_acquire(heap.bits + word_index);
#endif
    if (ga_sized_class_owns(heap, class_, word_index)) {
        return got;
    }
    ga_sized_undo_bits(heap.heap, word_index, got);
    return 0;
}

/* `n` of the set bits, counted from bit number `rotation` on, wrapping round. */
GA_SIMT uint32_t ga_sized_pick(uint32_t bits, uint32_t n, uint32_t rotation)
{
    uint32_t back = (32u - rotation) & 31u;
    uint32_t picked = ga_bits_take(bits >> rotation | bits << back, n);
    return picked << rotation | picked >> back;
}

/* ---- words for single lanes ------------------------------------------------------------- */

#define GA_SIZED_LANE_ATTEMPTS 4u /* words that one lane tries before its tile searches */

/* The index of the home word of tile `number` in the class: the word of that number, or another one
 * if the class has fewer words. GA_SIZED_NONE if it has none, and on the GPU also in rare other
 * cases, because ga_bits_round() is not exact there. */
GA_SIMT uint32_t ga_sized_home_word(ga_sized_view heap, ga_sized_class_map map, uint32_t number)
{
    uint32_t class_word =
        number < map.total_words ? number : ga_bits_round(number, map.total_words);
    return class_word < map.total_words ? ga_sized_word_index(heap, map, class_word)
                                        : GA_SIZED_NONE;
}

/* Choose one of the four words around `*word_index` that one load gets: a random one with free
 * bits, or for a `lone` lane a wholly free one if there is any, because its warp's next lanes will
 * use it, too. Sets `*word_index`, and returns the word's free bits; 0 if none has any. Words
 * behind the end of a bitmap are full. */
GA_SIMT uint32_t ga_sized_choose_of_quad(ga_sized_view heap, uint32_t hash, bool lone,
                                         uint32_t *word_index)
{
    uint32_t quad[4], free = 0, first = *word_index & ~3u;
    ga_load_quad_relaxed(heap.bits + first, quad); /* relaxed: a guess; the atomic decides */
    for (uint32_t i = 0; i < 4u; i++) {
        if (~quad[i] && (!free || (lone ? !quad[i] : hash >> i & 1u))) {
            free = ~quad[i];
            *word_index = first + i;
        }
    }
    return free;
}

/* Where a lane on its own looks for a word. */
typedef enum ga_sized_look {
    GA_SIZED_LOOK_HINT = 0, /* at the class's hint, or at a random word if tiles share home words */
    GA_SIZED_LOOK_RANDOM,
    GA_SIZED_LOOK_NEWEST /* among the words that the class got last */
} ga_sized_look;

/* The number of words that the class got last: a 32nd of its words, but at least one region. */
GA_SIMT uint32_t ga_sized_newest_words(ga_sized_class_map map)
{
    uint32_t part = map.total_words / GA_SIZED_CLASS_GROW_DIVISOR;
    part = part > map.words ? part : map.words;
    return part < map.total_words ? part : map.total_words;
}

/* Find a word for the lane `lane` of tile `number`, in its attempt `attempt`, below 8. At the hint
 * all lanes of the tile get one word. Else they share 128 words, and each loads four of them, so
 * that the loads are few. A `lone` lane has no others to share with, and gets four words that
 * depend on the number alone, so that the lanes of a warp that call in turn find the same ones.
 * Returns the free bits of the word, 0 if there is none. */
GA_SIMT uint32_t ga_sized_look_for_word(ga_sized_view heap, uint32_t class_, uint32_t number,
                                        uint32_t lane, bool lone, ga_sized_look look,
                                        uint32_t attempt, uint32_t *word_index)
{
    ga_sized_class_map map = ga_sized_load_class_map(heap.heap->of + class_);
    uint32_t hash = ga_bits_mix(number * 8u + attempt);
    uint32_t range = look == GA_SIZED_LOOK_NEWEST ? ga_sized_newest_words(map) : map.total_words;
    uint32_t class_word = map.total_words - range + ga_bits_high32(hash, range);
    if (look == GA_SIZED_LOOK_HINT) {
        /* relaxed, both: guesses; the atomic decides */
        uint32_t hinted = number + ga_load_relaxed(&heap.heap->of[class_].hint);
        *word_index = ga_sized_home_word(heap, map, number < map.total_words ? hinted : class_word);
        return *word_index == GA_SIZED_NONE ? 0 : ~ga_load_relaxed(heap.bits + *word_index);
    }
    class_word = lone ? class_word : (class_word & ~127u) + 4u * lane;
    *word_index =
        class_word < map.total_words ? ga_sized_word_index(heap, map, class_word) : GA_SIZED_NONE;
    return *word_index == GA_SIZED_NONE ? 0 : ga_sized_choose_of_quad(heap, hash, lone, word_index);
}

/* ---- the search ------------------------------------------------------------------------ */

/* A search for units of one class, by all lanes of a tile. */
typedef struct ga_sized_search {
    uint32_t class_;
    uint32_t requesting; /* mask of the lanes that still have no unit */
    bool alone;          /* the tile is one lane */
    ga_sized_units got;
    uint32_t class_word; /* the word of the last units found */
    uint32_t place;      /* number of lanes that waited for the class before the tile did */
    uint32_t rotation;   /* 0 to 31: the bit at which claims begin, so that tiles spread out */
    bool lost_race; /* another tile claimed some of the bits seen: try again, there may be more */
} ga_sized_search;

/* A search for the lanes `requesting`, by the tile of that number. */
GA_SIMT ga_sized_search ga_sized_search_of(uint32_t class_, uint32_t requesting, uint32_t number)
{
    ga_sized_search search;
    search.class_ = class_;
    search.requesting = requesting;
    search.alone = false;
    search.got.word_indices = ga_lanes_all(GA_SIZED_NONE);
    search.got.bit_indices = ga_lanes_all(0);
    search.class_word = 0;
    search.place = 0;
    search.rotation = ga_bits_mix(number) & 31u;
    search.lost_race = false;
    return search;
}

/* Deal out the units that the lanes have claimed: `bits` of the words `word_indices`. */
GA_SIMT void ga_sized_search_deal(ga_tile tile, ga_lanes class_words, ga_lanes word_indices,
                                  ga_lanes bits, ga_sized_search *search)
{
    uint32_t served = 0;
    for (uint32_t claimers = ga_lanes_nonzero(tile, bits); claimers; claimers &= claimers - 1u) {
        uint32_t claimer = ga_bits_lowest(claimers);
        uint32_t claimed = ga_lanes_get(tile, bits, claimer);
        uint32_t word_index = ga_lanes_get(tile, word_indices, claimer);
        uint32_t takers = ga_bits_take(
            search->requesting & ~ga_bits_take(search->requesting, served), ga_bits_count(claimed));
        search->class_word = ga_lanes_get(tile, class_words, claimer);
        ga_lanes_deal(tile, search->requesting, served, claimed, 0, &search->got.bit_indices);
        search->got.word_indices =
            ga_lanes_select(tile, takers, ga_lanes_all(word_index), search->got.word_indices);
        served += ga_bits_count(claimed);
    }
    search->requesting &= ~ga_bits_take(search->requesting, served);
}

/* Load one word for each lane, GA_SIZED_NONE for none, and claim the units that are needed: all
 * from one word if any has enough, else from as many as necessary, lowest lane first. `words` are
 * the numbers that the search records. */
GA_SIMT void ga_sized_search_at(ga_sized_view heap, ga_tile tile, ga_lanes word_indices,
                                ga_lanes class_words, ga_sized_search *search)
{
    uint32_t needed = ga_bits_count(search->requesting);
    ga_lanes free_bits = ga_lanes_all(0);
    ga_lanes enough = ga_lanes_all(0);
    ga_lanes missed = ga_lanes_all(0);
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        uint32_t word_index = ga_lane_read(word_indices, own);
        /* relaxed: a guess; the atomic below decides */
        uint32_t taken =
            word_index == GA_SIZED_NONE ? GA_ALL_BITS : ga_load_relaxed(heap.bits + word_index);
        ga_lane_write(&free_bits, own, ~taken);
        ga_lane_write(&enough, own, ga_bits_count(~taken) >= needed);
    }
    uint32_t one = ga_lanes_nonzero(tile, enough);
    uint32_t chosen = one ? ga_bits_from(one, search->rotation) : 0;
    ga_lanes before = ga_lanes_prefix_count(tile, free_bits);
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        uint32_t bits = ga_lane_read(free_bits, own);
        uint32_t ahead = one ? (chosen == own ? 0 : needed) : ga_lane_read(before, own);
        uint32_t word_index = ga_lane_read(word_indices, own);
        bits = ahead < needed ? ga_sized_pick(bits, needed - ahead, search->rotation) : 0;
        uint32_t got = bits ? ga_sized_claim_bits(heap, search->class_, word_index, bits) : 0;
        ga_lane_write(&missed, own, bits & ~got);
        ga_lane_write(&enough, own, got);
    }
    ga_tile_sync(tile);
    search->lost_race = ga_lanes_any(tile, missed);
    ga_sized_search_deal(tile, class_words, word_indices, enough, search);
}

/* Search one word of the class for each lane. */
GA_SIMT void ga_sized_search_words(ga_sized_view heap, ga_tile tile, ga_lanes class_words,
                                   ga_sized_search *search)
{
    ga_sized_class_map map = ga_sized_load_class_map(heap.heap->of + search->class_);
    ga_lanes word_indices = ga_lanes_all(GA_SIZED_NONE);
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        ga_lane_write(&word_indices, own,
                      ga_sized_word_index(heap, map, ga_lane_read(class_words, own)));
    }
    ga_sized_search_at(heap, tile, word_indices, class_words, search);
}

/* Consecutive words from `class_word` on, wrapping round, one for each lane. */
GA_SIMT ga_lanes ga_sized_words_from(ga_tile tile, uint32_t class_word, uint32_t total_words)
{
    ga_lanes class_words = ga_tile_ranks(tile);
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        uint32_t mine = class_word + ga_lane_read(class_words, own);
        ga_lane_write(&class_words, own,
                      mine < total_words ? mine : (mine - total_words) % total_words);
    }
    return class_words;
}

/* A random word for each lane, of the `n` words from `from` on. */
GA_SIMT ga_lanes ga_sized_words_random(ga_tile tile, uint32_t hash, uint32_t from, uint32_t n)
{
    ga_lanes class_words = ga_tile_ranks(tile);
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        uint64_t random = ga_bits_mix(hash + ga_lane_read(class_words, own));
        ga_lane_write(&class_words, own, from + (uint32_t)(random * n >> 32));
    }
    return class_words;
}

/* ---- words that may have free units ---------------------------------------------------- */

/* Record where a search found free units, as a distance from its start, so that other searches
 * begin there. */
GA_SIMT void ga_sized_set_hint(ga_sized_class *c, ga_tile tile, uint32_t start, uint32_t class_word,
                               uint32_t total_words)
{
    GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
    {
        (void)own;
        /* relaxed: a guess */
        ga_store_relaxed(&c->hint, class_word >= start ? class_word - start
                                                       : class_word + total_words - start);
    }
}

/* Acquire load by the leader, for all lanes: `total_words`, the hint or `releases`. */
GA_SIMT uint32_t ga_sized_load_synced(const uint32_t *word, ga_tile tile)
{
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes now = ga_lanes_all(0);
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        ga_lane_write(&now, own, ga_load_acquire(word)); /* KS1. Pairs with KS2 (sized_grow.h). */
    }
    ga_tile_sync(tile);
    return ga_lanes_get(tile, now, leader);
}

/* Rounds at random words, and at new ones, before the class grows. A round sees a word a lane. */
#define GA_SIZED_WIDE_TRIES   1u
#define GA_SIZED_NARROW_TRIES 3u /* of tiles with fewer than 16 lanes */
#define GA_SIZED_LOST_TRIES   8u /* further rounds, after another tile claimed the bits seen */

GA_SIMT uint32_t ga_sized_search_tries(ga_tile tile)
{
    return ga_tile_size(tile) < 16u ? GA_SIZED_NARROW_TRIES : GA_SIZED_WIDE_TRIES;
}

/* Search up to `looks` rounds of random words, of the `n` words from `from` on. */
GA_SIMT void ga_sized_search_random(ga_sized_view heap, ga_tile tile, uint32_t hash, uint32_t from,
                                    uint32_t n, uint32_t looks, ga_sized_search *search)
{
    for (uint32_t looked = 0, lost = 0; looked < looks && search->requesting;) {
        uint32_t where = hash + (looked + lost) * 0x9e3779b9u;
        ga_sized_search_words(heap, tile, ga_sized_words_random(tile, where, from, n), search);
        bool again = search->lost_race && lost < GA_SIZED_LOST_TRIES; /* there were free units */
        lost += again;
        looked += !again;
    }
}

/* Search once at the hint, then at random words, then at the words that the class got last.
 * Searches at random words alone would rarely see the new words, the less the smaller the tile, and
 * each of them would make the class grow again. */
GA_SIMT void ga_sized_search_class(ga_sized_view heap, ga_tile tile, uint32_t number,
                                   uint32_t total_words, ga_sized_search *search)
{
    ga_sized_class *c = heap.heap->of + search->class_;
    uint32_t start = number % total_words;
    uint32_t class_word =
        (start + ga_sized_load_synced(&c->hint, tile) % total_words) % total_words;
    uint32_t hash = ga_bits_mix(number) +
                    ga_lanes_get(tile, ga_lanes_all(ga_tile_noise()), ga_tile_leader(tile));
    uint32_t last = total_words / GA_SIZED_CLASS_GROW_DIVISOR > c->map.words
                        ? total_words / GA_SIZED_CLASS_GROW_DIVISOR
                        : c->map.words;
    uint32_t tries = ga_sized_search_tries(tile);
    ga_sized_search_words(heap, tile, ga_sized_words_from(tile, class_word, total_words), search);
    if (!search->requesting) {
        return;
    }
    ga_sized_search_random(heap, tile, hash, 0, total_words, tries, search);
    ga_sized_search_random(heap, tile, ~hash, total_words - last, last, tries, search);
    if (!search->requesting) {
        ga_sized_set_hint(c, tile, start, search->class_word, total_words);
    }
}

/* Search the words that the class has got since it had `from` words: first the word for the place
 * at which the tile waited, because the other tiles have other places, then random ones. */
GA_SIMT void ga_sized_search_new(ga_sized_view heap, ga_tile tile, uint32_t from,
                                 uint32_t total_words, ga_sized_search *search)
{
    ga_sized_class_map map = ga_sized_load_class_map(heap.heap->of + search->class_);
    ga_lanes word_indices = ga_lanes_all(GA_SIZED_NONE);
    uint32_t class_word = from + search->place / 32u;
    uint32_t hash = ga_bits_mix(search->place) + class_word;
    GA_EACH_LANE(tile, class_word < total_words ? 1u << ga_tile_leader(tile) : 0, own)
    {
        ga_lane_write(&word_indices, own, ga_sized_word_index(heap, map, class_word));
    }
    ga_sized_search_at(heap, tile, word_indices, ga_lanes_all(class_word), search);
    ga_sized_search_random(heap, tile, hash, from, total_words - from, ga_sized_search_tries(tile),
                           search);
}

#endif
