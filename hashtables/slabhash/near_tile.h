/* SPDX-License-Identifier: MIT
 *
 * Requests whose lanes look by themselves: at 32 bytes first, where the key is most likely.
 *
 * STRUCTURE  In tables that are `ordered` the places of a bucket's slab have an order of the key's
 *            own: from a sector on that the hash chooses, to the last, and on from the first. Keys
 *            are put in the first empty place of their order. Behind the home all have the same.
 *
 *              key a   [ 0  1  2  3 | 4  5  6  7 | 8  9  .. ]     the sector of a: looked at first
 *              key b     11 12 13 14  0  1  2  3   4  5  ..       b's order of the same places
 *
 * INVARIANT  No key stands behind a place of its order that is empty: who put it there saw none
 *            empty before it, and in tables of unique keys none becomes so again. So an empty place
 *            ends a search, and is the one to fill: at the moment at which it was empty the key was
 *            nowhere. A flush, which moves keys forward and leaves empty places among them, ends
 *            the order until the table is cleared.
 *
 * With 4 places a sector and 64, 85 and 96 of 100 filled, 91, 81 and 74 of 100 keys stand in the
 * sector of theirs (path 16), where a slab has 128 bytes to look at.
 */
#ifndef GPUALLOC_SLABHASH_NEAR_TILE_H
#define GPUALLOC_SLABHASH_NEAR_TILE_H

#include "hash_tile.h"

/* What was seen in a slab, in the lane whose request it is: places are GA_NONE where there are
 * none. */
typedef struct ga_slabhash_probe {
    ga_lanes found, empty;      /* the first place of the key; the first empty one */
    ga_lanes value, value_high; /* at `found` */
    ga_lanes overflow_bits, next;
    ga_lanes ended; /* not 0: behind `empty` there is nothing of the key */
} ga_slabhash_probe;

GA_SIMT uint64_t ga_slabhash_lane64(ga_lanes low, ga_lanes high, uint32_t lane)
{
    return ga_lane_read(low, lane) | (uint64_t)ga_lane_read(high, lane) << 32;
}

/* Whether requests of the kind may be served so. */
GA_SIMT bool ga_slabhash_may_be_ordered(uint32_t kind)
{
    return GA_SLABHASH_IS_UNIQUE(kind);
}

/* The sectors of the lanes of the mask, by neighbours together. */
GA_SIMT ga_sectors ga_slabhash_load_sectors(uint32_t kind, ga_tile tile, uint32_t lanes,
                                            ga_lanes low, ga_lanes high)
{
    return GA_SLABHASH_MODE(kind) == GA_SLABHASH_SET32
               ? ga_sectors_load(tile, lanes, low, high)
               : ga_sectors_load_pairs(tile, lanes, low, high);
}

/* One, by its lane. */
GA_SIMT ga_sector ga_slabhash_load_sector(uint32_t kind, const uint32_t *words)
{
    return GA_SLABHASH_MODE(kind) == GA_SLABHASH_SET32 ? ga_sector_load(words)
                                                       : ga_sector_load_pairs(words);
}

GA_SIMT ga_sector ga_slabhash_lane_sector(const ga_sectors *sectors, uint32_t own)
{
    ga_sector sector;
    GA_UNROLL
    for (uint32_t i = 0; i < 8u; i++) {
        sector.word[i] = ga_lane_read(sectors->word[i], own);
    }
    return sector;
}

/* Whether the key, or an empty place, is in the sector that begins at word `base` of its slab. */
GA_SIMT bool ga_slabhash_probe_sector(uint32_t kind, ga_sector sector, uint32_t base, uint64_t key,
                                      uint32_t own, ga_slabhash_probe *probe)
{
    bool is_wide = GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP64;
    uint32_t width = ga_slabhash_slot_words(kind);
    uint32_t found = GA_NONE, empty = GA_NONE, low = 0, high = 0;
    GA_UNROLL
    for (uint32_t i = 8u; i; i -= width) { /* backwards, so that the first is what is left */
        uint32_t at = i - width;
        bool is_slot = base + at < ga_slabhash_slots_end(kind);
        uint32_t upper = is_wide ? sector.word[at + 1u] : 0;
        if (is_slot && sector.word[at] == (uint32_t)key && (!is_wide || upper == key >> 32)) {
            found = base + at;
            low = width > 1u ? sector.word[at + width / 2u] : 0;
            high = is_wide ? sector.word[at + 3u] : 0;
        }
        if (is_slot && sector.word[at] == 0xffffffffu && (!is_wide || upper == 0xffffffffu)) {
            empty = base + at;
        }
    }
    ga_lane_write(&probe->found, own, found);
    ga_lane_write(&probe->empty, own, empty);
    ga_lane_write(&probe->value, own, low);
    ga_lane_write(&probe->value_high, own, high);
    if (base + 8u == GA_SLABHASH_WORDS) {
        ga_lane_write(&probe->overflow_bits, own, sector.word[GA_SLABHASH_OVERFLOW_BITS % 8u]);
        ga_lane_write(&probe->next, own, sector.word[GA_SLABHASH_NEXT % 8u]);
    }
    return found != GA_NONE || empty != GA_NONE;
}

/* The slab's three sectors behind that at `turn`, all at once, by its lane. */
GA_SIMT void ga_slabhash_load_other_sectors(uint32_t kind, const uint32_t *row, uint32_t start,
                                            ga_sector *rest)
{
    GA_UNROLL
    for (uint32_t i = 0; i < 3u; i++) {
        rest[i] = ga_slabhash_load_sector(kind, row + (start + 8u * i + 8u) % GA_SLABHASH_WORDS);
    }
}

/* What is in them, up to the key or an empty place. */
GA_SIMT void ga_slabhash_probe_other_sectors(uint32_t kind, const ga_sector *rest, uint32_t start,
                                             uint64_t key, uint32_t own, ga_slabhash_probe *probe)
{
    bool seen = false;
    GA_UNROLL
    for (uint32_t i = 0; i < 3u; i++) {
        uint32_t base = (start + 8u * i + 8u) % GA_SLABHASH_WORDS;
        if (!seen) {
            seen = ga_slabhash_probe_sector(kind, rest[i], base, key, own, probe);
        }
    }
}

/* The key's order is at its end where there is an empty place. */
GA_SIMT void ga_slabhash_set_ended(uint32_t own, ga_slabhash_probe *probe)
{
    ga_lane_write(&probe->ended, own, ga_lane_read(probe->empty, own) != GA_NONE ? 1u : 0u);
}

#endif
