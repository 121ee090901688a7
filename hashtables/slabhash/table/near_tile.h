/* SPDX-License-Identifier: MIT
 *
 * Ordered tables: a lane searches a slab by itself, and loads the 32 bytes first in which its key
 * most likely is.
 *
 * STRUCTURE  In an `ordered` table each key has its own order of the slots of its home's slab: from
 *            the first slot of a sector, which the hash chooses, to the last slot, and on from slot
 *            0. Keys are inserted into the first empty slot of their order. Behind the home all
 *            keys have the order from slot 0.
 *
 *              key a   [ 0  1  2  3 | 4  5  6  7 | 8  9  .. ]     a's first sector: loaded first
 *              key b     11 12 13 14  0  1  2  3   4  5  ..       b's order of the same slots
 *
 * INVARIANT  No key is in a slot behind an empty slot of its order: the insert saw no empty slot
 *            before it, and with unique keys no slot becomes empty again. So an empty slot ends a
 *            search as ABSENT, and is the slot to fill: when it was loaded, the key was nowhere. A
 *            flush moves keys forward and leaves empty slots between them; it ends the order until
 *            the table is cleared.
 *
 * HOW A SEARCH ENDS, within a slab: at the key's slot or at an empty slot, whichever the lane meets
 *            first in units of one sector. Otherwise as for a whole slab: decide_miss() in
 *            many_tile.h.
 *
 * With 4 slots a sector and 64, 85 and 96 of 100 slots filled, 91, 81 and 74 of 100 keys are in
 * their first sector (measured with a path of 16 buckets), while the whole slab has 128 bytes.
 */
#ifndef GPUALLOC_SLABHASH_TABLE_NEAR_TILE_H
#define GPUALLOC_SLABHASH_TABLE_NEAR_TILE_H

#include "hash_tile.h"

/* What a lane knows of a slab after probing it. Slots are GA_NONE if there is none. */
typedef struct ga_slabhash_probe {
    ga_lanes found, empty;      /* first slot of the key; first empty slot */
    ga_lanes value, value_high; /* of `found` */
    ga_lanes end_bits, next;
    ga_lanes ended; /* not 0: the key is in no slot behind `empty` */
} ga_slabhash_probe;

GA_SIMT uint64_t ga_slabhash_lane64(ga_lanes low, ga_lanes high, uint32_t lane)
{
    return ga_lane_read(low, lane) | (uint64_t)ga_lane_read(high, lane) << 32;
}

/* True for kinds whose tables may be ordered. */
GA_SIMT bool ga_slabhash_may_be_ordered(uint32_t kind)
{
    return GA_SLABHASH_IS_UNIQUE_FIXED(kind);
}

/* Loads a sector for each lane of the mask. Neighbouring lanes load together, which saves
 * requests. */
GA_SIMT ga_sectors ga_slabhash_load_sectors(uint32_t kind, ga_tile tile, uint32_t lanes,
                                            ga_lanes low, ga_lanes high)
{
    return GA_SLABHASH_MODE(kind) == GA_SLABHASH_SET32
               ? ga_sectors_load(tile, lanes, low, high)
               : ga_sectors_load_pairs(tile, lanes, low, high);
}

/* Loads a lane's sector, by the lane alone. */
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

/* Looks for the key and for an empty slot in the sector that begins at word `base` of its slab.
 * True if either was found. */
GA_SIMT bool ga_slabhash_probe_sector(uint32_t kind, ga_sector sector, uint32_t base, uint64_t key,
                                      uint32_t own, ga_slabhash_probe *probe)
{
    bool is_wide = GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP64;
    uint32_t width = ga_slabhash_slot_words(kind);
    uint32_t found = GA_NONE, empty = GA_NONE, low = 0, high = 0;
    GA_UNROLL
    for (uint32_t i = 8u; i; i -= width) { /* backwards, so that the first one remains */
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
        ga_lane_write(&probe->end_bits, own, sector.word[GA_SLABHASH_END_BITS % 8u]);
        ga_lane_write(&probe->next, own, sector.word[GA_SLABHASH_NEXT % 8u]);
    }
    return found != GA_NONE || empty != GA_NONE;
}

/* Loads the slab's other three sectors, those behind the one at `start`, all loads at once. */
GA_SIMT void ga_slabhash_load_other_sectors(uint32_t kind, const uint32_t *row, uint32_t start,
                                            ga_sector *rest)
{
    GA_UNROLL
    for (uint32_t i = 0; i < 3u; i++) {
        rest[i] = ga_slabhash_load_sector(kind, row + (start + 8u * i + 8u) % GA_SLABHASH_WORDS);
    }
}

/* Probes them in order until one has the key or an empty slot. */
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

/* An empty slot ends the key's order. */
GA_SIMT void ga_slabhash_set_ended(uint32_t own, ga_slabhash_probe *probe)
{
    ga_lane_write(&probe->ended, own, ga_lane_read(probe->empty, own) != GA_NONE ? 1u : 0u);
}

#endif
