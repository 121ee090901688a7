/* SPDX-License-Identifier: MIT
 *
 * The slot layer: the layout of a slab, the states of a slot, and every atomic change of a slot.
 * list_tile.h walks from slab to slab; this file knows one slab at a time.
 *
 *            word 0        2        4                          28       30        31
 *     set32   key   key   key  key  key  ...                   key key  end bits  next
 *     map32   key   value key  value     ...                   key val  end bits  next
 *     map64   key 64      value 64       ...      7 pairs      unused   end bits  next
 *
 * A slot is one key (set32) or one pair. A slot is named by the word at which it begins, and a set
 * of slots by a mask of these words. An empty slab has all bits set: an empty slot has the key
 * EMPTY (all ones) and, in maps, a value of all ones. There is one end bit for each of 32 classes
 * of keys. All are set at first. A key that finds the slab of a bucket full, and goes to another
 * bucket of its path, clears the bit of its class. A set bit means that no key of the class is in
 * the later buckets of the path. On the last bucket of a path it means nothing: the chain behind is
 * searched to its end. `next` is the number of a slab heap's unit, or all ones. In the code `row`
 * points at a slab in memory, and a ga_row is a slab in the registers of a tile.
 *
 * INVARIANT  A slot that other tiles or threads can reach changes only by a compare-and-swap
 *            against the value that was read there. In tables of unique keys a slot goes
 *                set32, map32    EMPTY -> (key, value), with any number of values -> DELETED
 *                map64           EMPTY -> key. The key stays; its value is UNSET while the key is
 *                                absent, so that each later change is one of 64 bits. With a
 *                                128-bit compare-and-swap the two steps are one, (EMPTY, UNSET) ->
 *                                (key, value): tiles that take two steps may work beside it,
 *                                because each state that they read is one that they could have made
 *            and starts again at a flush, which is exclusive. In multimaps of 32 bits a
 *            deleted slot goes back to EMPTY; in those of 64 bits it keeps its key until a flush.
 *
 *            In tables that grow the top bit of the key (map64: of the value) says that the slot is
 *            FROZEN: it never changes again (grow_tile.h). An empty slot is frozen by sealing it:
 *            as DELETED, in map64 with the key SEALED_KEY. In these tables a deleted value of map64
 *            is GONE, and never UNSET again. A deleted slot of a 32-bit multimap is FREE, and never
 *            EMPTY again; FREE with the frozen bit is DELETED. Bit 1 of a bucket's end bits
 *            says that the bucket is pending: its pairs have not been migrated yet.
 *
 * ORDER      V1 and V2: on the CPU, writes before a pair is inserted happen before reads after the
 *            pair is found. A word is read and changed at one width, pairs at 64 bits. The
 *            exception is the 128-bit swap of a map64 slot, which needs only that it and the 64-bit
 *            accesses are atomic to each other.
 */
#ifndef GPUALLOC_SLABHASH_TABLE_SLOTS_H
#define GPUALLOC_SLABHASH_TABLE_SLOTS_H

#include <gpualloc/detail/simt/planted.h>
#include <gpualloc/detail/simt/simt.h>
#include <gpualloc/slabhash.h>

/* The stress tests compile this with GA_SLABHASH_WEAKENED. Then GA_PLANTED() is a variable, and
 * threads yield at random between steps. */
#ifdef GA_SLABHASH_WEAKENED
#include <sched.h>
#define GA_SLABHASH_IS_WEAKENED 1
#else
#define GA_SLABHASH_IS_WEAKENED 0
#endif

/* A kind is a mode, and whether a key may occur several times. It is a compile-time constant in
 * the algorithms. */
#define GA_SLABHASH_KIND(mode, multi) ((uint32_t)(mode) | ((multi) ? 4u : 0u))
#define GA_SLABHASH_KINDS             16u /* 3, 7, 11 and 15 are unused */
#define GA_SLABHASH_GROWING           8u  /* flag of a kind: its tables grow */
#define GA_SLABHASH_MODE(kind)        ((kind)&3u)
#define GA_SLABHASH_IS_MULTI(kind)    (((kind)&4u) != 0)
#define GA_SLABHASH_IS_GROWING(kind)  (((kind)&GA_SLABHASH_GROWING) != 0)
/* Unique keys, in an array that stays while operations run. */
#define GA_SLABHASH_IS_UNIQUE_FIXED(kind)                                                          \
    (!GA_SLABHASH_IS_MULTI(kind) && !GA_SLABHASH_IS_GROWING(kind))

/* Flag of a kind in kernels, beside the table's own kind: map64 slots are filled in two steps
 * even on devices with a 128-bit swap. */
#define GA_SLABHASH_STEPWISE            16u
#define GA_SLABHASH_KIND_OF_TABLE(kind) ((kind) & ~GA_SLABHASH_STEPWISE)

#define GA_SLABHASH_EMPTY                                                                          \
    UINT64_MAX                         /* key of an empty slot; in 32-bit modes its lower
                                              * half */
#define GA_SLABHASH_UNSET   UINT64_MAX /* map64: value of an absent key */
#define GA_SLABHASH_DELETED 0xfffffffeu
#define GA_SLABHASH_NO_SLAB 0xffffffffu
#define GA_SLABHASH_SEALED                                                                         \
    0xfffffffeu /* tables that grow: link at the end of a frozen
                                               * chain */
#define GA_SLABHASH_END_BITS 30u
#define GA_SLABHASH_NEXT     31u

/* Words of a slab: 128 bytes. */
#define GA_SLABHASH_WORDS 32u

/* Tables that grow:
 *   FROZEN32, FROZEN64  the bit of a frozen slot, in the key or (map64) in the value
 *   FREE                32-bit multimaps: key of a deleted slot, which may be filled again
 *   SEALED_KEY          map64: key of a slot that was empty when it was frozen
 *   GONE                map64: value of a deleted key
 *   FROZEN_GONE         map64: GONE, and frozen */
#define GA_SLABHASH_FROZEN32    0x80000000u
#define GA_SLABHASH_FREE        (GA_SLABHASH_DELETED & ~GA_SLABHASH_FROZEN32)
#define GA_SLABHASH_FROZEN64    (UINT64_C(1) << 63)
#define GA_SLABHASH_SEALED_KEY  (UINT64_MAX - 1u)
#define GA_SLABHASH_GONE        (UINT64_MAX - 1u)
#define GA_SLABHASH_FROZEN_GONE (UINT64_MAX - 2u)

/* ---- limits of keys and values --------------------------------------------------------------- */

/* True for operations that insert or change pairs, and so have a value. */
GA_SIMT bool ga_slabhash_puts(uint32_t op)
{
    return op != GA_SLABHASH_SEARCH && op != GA_SLABHASH_DELETE;
}

/* The largest allowed key, and below the largest allowed value. */
GA_SIMT uint64_t ga_slabhash_key_max(uint32_t kind)
{
    bool grows = GA_SLABHASH_IS_GROWING(kind);
    if (GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP64) {
        return grows ? GA_SLABHASH_SEALED_KEY - 1u : GA_SLABHASH_EMPTY - 1u;
    }
    return (GA_SLABHASH_DELETED - 1u) & (grows ? ~GA_SLABHASH_FROZEN32 : 0xffffffffu);
}

GA_SIMT uint64_t ga_slabhash_value_max(uint32_t kind)
{
    if (GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP64) {
        return GA_SLABHASH_IS_GROWING(kind) ? GA_SLABHASH_FROZEN64 - 4u : GA_SLABHASH_UNSET - 1u;
    }
    return 0xffffffffu;
}

/* True if key and value fit the mode's width. */
GA_SIMT bool ga_slabhash_fits(uint32_t kind, uint32_t op, uint64_t key, uint64_t value)
{
    bool valued = GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP32 && ga_slabhash_puts(op);
    return GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP64 || !(key >> 32 || (valued && value >> 32));
}

/* True if key and value fit and neither is reserved. */
GA_SIMT bool ga_slabhash_allowed(uint32_t kind, uint32_t op, uint64_t key, uint64_t value)
{
    if (GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP64) {
        return key <= ga_slabhash_key_max(kind) &&
               !(ga_slabhash_puts(op) && value > ga_slabhash_value_max(kind));
    }
    return ga_slabhash_fits(kind, op, key, value) && key <= ga_slabhash_key_max(kind);
}

/* ---- reading a slab -------------------------------------------------------------------------- */

/* The mask of all slots. */
GA_SIMT uint32_t ga_slabhash_slot_mask(uint32_t kind)
{
    return GA_SLABHASH_MODE(kind) == GA_SLABHASH_SET32   ? 0x3fffffffu
           : GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP32 ? 0x15555555u
                                                         : 0x01111111u;
}

/* True for kinds in which a deleted slot becomes FREE. */
GA_SIMT bool ga_slabhash_deletes_to_free(uint32_t kind)
{
    return GA_SLABHASH_IS_MULTI(kind) && GA_SLABHASH_IS_GROWING(kind) &&
           GA_SLABHASH_MODE(kind) != GA_SLABHASH_MAP64;
}

/* Loads the slab into registers, 16 bytes a lane with 8 lanes. In maps the tile has at most 16
 * lanes, so that no pair is split. */
GA_SIMT ga_row ga_slabhash_load_slab(uint32_t kind, ga_tile tile, const uint32_t *row)
{
    return GA_SLABHASH_MODE(kind) == GA_SLABHASH_SET32 ? ga_row_load(tile, row)
                                                       : ga_row_load_pairs(tile, row);
}

/* The mask of the slots whose key is `key`. In map64 such a slot may hold an absent key: see
 * is_set. */
GA_SIMT uint32_t ga_slabhash_match_key(uint32_t kind, ga_tile tile, ga_row row, uint64_t key)
{
    uint32_t found = ga_row_match(tile, row, (uint32_t)key) & ga_slabhash_slot_mask(kind);
    if (GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP64 && found) {
        found &= ga_row_match(tile, row, (uint32_t)(key >> 32)) >> 1;
    }
    return found;
}

GA_SIMT uint64_t ga_slabhash_word64(ga_tile tile, ga_row row, uint32_t slot)
{
    return ga_row_get(tile, row, slot) | (uint64_t)ga_row_get(tile, row, slot + 1u) << 32;
}

GA_SIMT uint64_t ga_slabhash_key_at(uint32_t kind, ga_tile tile, ga_row row, uint32_t slot)
{
    return GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP64 ? ga_slabhash_word64(tile, row, slot)
                                                       : ga_row_get(tile, row, slot);
}

GA_SIMT uint64_t ga_slabhash_value_at(uint32_t kind, ga_tile tile, ga_row row, uint32_t slot)
{
    switch (GA_SLABHASH_MODE(kind)) {
    case GA_SLABHASH_SET32:
        return 0;
    case GA_SLABHASH_MAP32:
        return ga_row_get(tile, row, slot + 1u);
    default:
        return ga_slabhash_word64(tile, row, slot + 2u);
    }
}

/* True if a slot with this value holds its key; in tables that grow also: and is not frozen. */
GA_SIMT bool ga_slabhash_is_set(uint32_t kind, uint64_t value)
{
    return GA_SLABHASH_MODE(kind) != GA_SLABHASH_MAP64 || value <= ga_slabhash_value_max(kind);
}

/* True for a frozen value of map64. */
GA_SIMT bool ga_slabhash_is_frozen64(uint64_t value)
{
    return value >= GA_SLABHASH_FROZEN64 && value <= GA_SLABHASH_FROZEN_GONE;
}

/* The first slot of `found`, all of which have one key, whose is_set equals `is_set`; or
 * GA_NONE. */
GA_SIMT uint32_t ga_slabhash_first_slot(uint32_t kind, ga_tile tile, ga_row row, uint32_t found,
                                        bool is_set)
{
    for (; found; found &= found - 1u) {
        uint32_t slot = ga_bits_lowest(found);
        if (ga_slabhash_is_set(kind, ga_slabhash_value_at(kind, tile, row, slot)) == is_set) {
            return slot;
        }
    }
    return GA_NONE;
}

/* A key and a value as they were inserted, without the frozen bit. */
GA_SIMT uint64_t ga_slabhash_unfrozen_key(uint32_t kind, uint64_t key)
{
    bool marked = GA_SLABHASH_IS_GROWING(kind) && GA_SLABHASH_MODE(kind) != GA_SLABHASH_MAP64;
    return marked ? key & ~(uint64_t)GA_SLABHASH_FROZEN32 : key;
}

GA_SIMT uint64_t ga_slabhash_unfrozen_value(uint32_t kind, uint64_t value)
{
    bool marked = GA_SLABHASH_IS_GROWING(kind) && GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP64;
    return marked ? value & ~GA_SLABHASH_FROZEN64 : value;
}

/* The slot in which the key is frozen, or GA_NONE. `found` is the mask of the key's slots in
 * map64. */
GA_SIMT uint32_t ga_slabhash_frozen_at(uint32_t kind, ga_tile tile, ga_row row, uint64_t key,
                                       uint32_t found)
{
    if (GA_SLABHASH_MODE(kind) != GA_SLABHASH_MAP64) {
        found = ga_slabhash_match_key(kind, tile, row, key | GA_SLABHASH_FROZEN32);
        return found ? ga_bits_lowest(found) : GA_NONE;
    }
    for (; found; found &= found - 1u) {
        uint32_t slot = ga_bits_lowest(found);
        if (ga_slabhash_is_frozen64(ga_slabhash_word64(tile, row, slot + 2u))) {
            return slot;
        }
        if (!GA_SLABHASH_IS_MULTI(kind)) { /* a unique key has one slot */
            break;
        }
    }
    return GA_NONE;
}

/* Tables that grow: the mask of the slots that hold the key, frozen or not. */
GA_SIMT uint32_t ga_slabhash_match_any(uint32_t kind, ga_tile tile, ga_row row, uint64_t key)
{
    uint32_t here = ga_slabhash_match_key(kind, tile, row, key);
    if (GA_SLABHASH_MODE(kind) != GA_SLABHASH_MAP64) {
        return here | ga_slabhash_match_key(kind, tile, row, key | GA_SLABHASH_FROZEN32);
    }
    for (uint32_t rest = here; rest; rest &= rest - 1u) {
        uint32_t slot = ga_bits_lowest(rest);
        bool is = ga_slabhash_word64(tile, row, slot + 2u) < GA_SLABHASH_FROZEN_GONE;
        here &= is ? ~0u : ~(1u << slot);
    }
    return here;
}

/* The mask of the slots that hold a pair of any key, frozen or not. */
GA_SIMT uint32_t ga_slabhash_live_slots(uint32_t kind, ga_tile tile, ga_row row)
{
    uint32_t slot_mask = ga_slabhash_slot_mask(kind);
    uint32_t ones = ga_row_match(tile, row, 0xffffffffu);
    if (GA_SLABHASH_IS_GROWING(kind) && GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP64) {
        uint32_t live = 0;
        for (uint32_t rest = slot_mask; rest; rest &= rest - 1u) {
            uint32_t slot = ga_bits_lowest(rest);
            bool is = ga_slabhash_word64(tile, row, slot) < GA_SLABHASH_SEALED_KEY &&
                      ga_slabhash_word64(tile, row, slot + 2u) < GA_SLABHASH_FROZEN_GONE;
            live |= is ? 1u << slot : 0;
        }
        return live;
    }
    if (GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP64) {
        return slot_mask & ~(ones & ones >> 1) & ~(ones >> 2 & ones >> 3);
    }
    uint32_t live = slot_mask & ~ones & ~ga_row_match(tile, row, GA_SLABHASH_DELETED);
    return ga_slabhash_deletes_to_free(kind) ? live & ~ga_row_match(tile, row, GA_SLABHASH_FREE)
                                             : live;
}

/* The mask of the slots that can be filled. */
GA_SIMT uint32_t ga_slabhash_vacant_slots(uint32_t kind, ga_tile tile, ga_row row)
{
    uint32_t vacant = ga_slabhash_match_key(kind, tile, row, GA_SLABHASH_EMPTY);
    return ga_slabhash_deletes_to_free(kind)
               ? vacant | ga_slabhash_match_key(kind, tile, row, GA_SLABHASH_FREE)
               : vacant;
}

/* ---- changing a slot ------------------------------------------------------------------------- */

/* Tests only: sometimes yields to other threads, so that each interleaving of two steps occurs. */
GA_SIMT void ga_slabhash_test_yield(void)
{
#if GA_SLABHASH_IS_WEAKENED
    static _Thread_local uint32_t state;
    state = state * 1664525u + 1013904223u + (uint32_t)(uintptr_t)&state;
    if (state >> 28 == 0) {
        sched_yield();
    }
#endif
}

/* True if V1 is relaxed. On the GPU a pair carries no message beyond its own bits; on the CPU it
 * also publishes the writes before it. */
#ifdef __CUDACC__
#define GA_SLABHASH_CAS_IS_RELAXED 1
#else
#define GA_SLABHASH_CAS_IS_RELAXED (GA_PLANTED(slabhash_insert_relaxed))
#endif

/* One compare-and-swap by the calling lane. True if it succeeded. */
GA_SIMT bool ga_slabhash_lane_cas32(uint32_t *word, uint32_t before, uint32_t after)
{
    /* V1: acq_rel. Pairs with V2: writes before the insert happen before reads after a find. */
    return (GA_SLABHASH_CAS_IS_RELAXED ? ga_cas_relaxed(word, before, after)
                                       : ga_cas_acq_rel(word, before, after)) == before;
}

GA_SIMT bool ga_slabhash_lane_cas64(uint32_t *words, uint64_t before, uint64_t after)
{
    uint64_t *both = (uint64_t *)(void *)words;
    /* V1: acq_rel. Pairs with V2. */
    return (GA_SLABHASH_CAS_IS_RELAXED ? ga_cas64_relaxed(both, before, after)
                                       : ga_cas64_acq_rel(both, before, after)) == before;
}

/* True if this build fills a map64 slot, key and value, by one 128-bit compare-and-swap. Tiles
 * that do and tiles that take two steps may share a table. On the CPU only the stress tests do,
 * by chance for each fill. */
GA_SIMT bool ga_slabhash_has_cas128(uint32_t kind)
{
#if !GA_HAS_CAS128
    (void)kind;
    return false;
#elif defined __CUDACC__
    return GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP64 && !(kind & GA_SLABHASH_STEPWISE);
#elif GA_SLABHASH_IS_WEAKENED
    static _Thread_local uint32_t state;
    state = state * 1664525u + 1013904223u + (uint32_t)(uintptr_t)&state;
    return GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP64 && state >> 31;
#else
    (void)kind;
    return false;
#endif
}

/* Planted bugs in place of the 128-bit swap: no swap, or a swap of the key alone. */
GA_SIMT bool ga_slabhash_torn128(uint32_t *slot, uint64_t key, uint64_t value, uint64_t to_key,
                                 uint64_t to_value)
{
    uint64_t *both = (uint64_t *)(void *)slot;
    bool is = GA_PLANTED(slabhash_value_stored_late)
                  ? ga_slabhash_lane_cas64(slot, key, to_key)
                  : ga_load64_acquire(both) == key && /* Pairs with V1 */
                        ga_load64_acquire(both + 1) == value;
    ga_slabhash_test_yield();
    if (is) {
        ga_store64_release(both, to_key);       /* Pairs with V2 */
        ga_store64_release(both + 1, to_value); /* Pairs with V2 */
    }
    return is;
}

/* Compare-and-swap of key and value of a map64 slot, where ga_slabhash_has_cas128() is true. */
GA_SIMT bool ga_slabhash_lane_cas128(uint32_t *slot, uint64_t key, uint64_t value, uint64_t to_key,
                                     uint64_t to_value)
{
#if GA_HAS_CAS128
    if (GA_PLANTED(slabhash_pair_swap_not_atomic) || GA_PLANTED(slabhash_value_stored_late)) {
        return ga_slabhash_torn128(slot, key, value, to_key, to_value);
    }
    ga_uint128 *both = (ga_uint128 *)(void *)slot;
    ga_uint128 before = key | (ga_uint128)value << 64;
    ga_uint128 after = to_key | (ga_uint128)to_value << 64;
    /* V1: acq_rel. Pairs with V2, as its half that is the value. */
    return (GA_SLABHASH_CAS_IS_RELAXED ? ga_cas128_relaxed(both, before, after)
                                       : ga_cas128_acq_rel(both, before, after)) == before;
#else
    (void)slot, (void)key, (void)value, (void)to_key, (void)to_value;
    return false; /* not reached */
#endif
}

/* Compare-and-swap by the tile's leader; all lanes get the result. */
GA_SIMT bool ga_slabhash_tile_cas32(ga_tile tile, uint32_t *word, uint32_t before, uint32_t after)
{
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes done = ga_lanes_all(0);
    ga_slabhash_test_yield();
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        ga_lane_write(&done, own, ga_slabhash_lane_cas32(word, before, after) ? 1u : 0u);
    }
    ga_tile_sync(tile); /* makes the leader's write visible to all lanes */
    return ga_lanes_get(tile, done, leader) != 0;
}

GA_SIMT bool ga_slabhash_tile_cas64(ga_tile tile, uint32_t *words, uint64_t before, uint64_t after)
{
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes done = ga_lanes_all(0);
    ga_slabhash_test_yield();
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        ga_lane_write(&done, own, ga_slabhash_lane_cas64(words, before, after) ? 1u : 0u);
    }
    ga_tile_sync(tile); /* makes the leader's write visible to all lanes */
    return ga_lanes_get(tile, done, leader) != 0;
}

GA_SIMT bool ga_slabhash_tile_cas128(ga_tile tile, uint32_t *slot, uint64_t key, uint64_t value,
                                     uint64_t to_key, uint64_t to_value)
{
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes done = ga_lanes_all(0);
    ga_slabhash_test_yield();
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        bool is = ga_slabhash_lane_cas128(slot, key, value, to_key, to_value);
        ga_lane_write(&done, own, is ? 1u : 0u);
    }
    ga_tile_sync(tile); /* makes the leader's write visible to all lanes */
    return ga_lanes_get(tile, done, leader) != 0;
}

/* Planted bug in place of a 64-bit swap: a load and a store. */
GA_SIMT bool ga_slabhash_torn64(ga_tile tile, uint32_t *words, uint64_t before, uint64_t after)
{
    (void)tile;
    if (ga_load64_acquire((uint64_t *)(void *)words) != before) { /* Pairs with V1 */
        return false;
    }
    ga_slabhash_test_yield();
    ga_store64_release((uint64_t *)(void *)words, after); /* Pairs with V2 */
    return true;
}

GA_SIMT uint64_t ga_slabhash_pair(uint64_t key, uint64_t value)
{
    return (uint32_t)key | value << 32;
}

/* V2 for a slot in which the pair was found. Nothing on the GPU, where values carry no message. */
GA_SIMT void ga_slabhash_acquire_slot(uint32_t kind, const uint32_t *slot)
{
#ifndef __CUDACC__
    if (GA_PLANTED(slabhash_search_relaxed)) {
        return;
    }
    /* V2: acquire. Pairs with V1: since the slot was filled, only V1 changes it. */
    if (GA_SLABHASH_MODE(kind) == GA_SLABHASH_SET32) {
        (void)ga_load_acquire(slot); /* V2. Pairs with V1 */
    } else {
        slot += GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP64 ? 2 : 0;
        (void)ga_load64_acquire((const uint64_t *)(const void *)slot); /* V2. Pairs with V1 */
    }
#else
    (void)kind;
    (void)slot;
#endif
}

#ifndef __CUDACC__
/* V2: the slot's content: key and value, in map64 the value. */
GA_SIMT uint64_t ga_slabhash_load_slot(uint32_t kind, const uint32_t *slot)
{
    const uint64_t *pair = (const uint64_t *)(const void *)slot;
    ga_slabhash_test_yield();
    if (GA_PLANTED(slabhash_search_relaxed)) {
        return GA_SLABHASH_MODE(kind) == GA_SLABHASH_SET32   ? ga_load_relaxed(slot)
               : GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP32 ? ga_load64_relaxed(pair)
                                                             : ga_load64_relaxed(pair + 1);
    }
    switch (GA_SLABHASH_MODE(kind)) {
    case GA_SLABHASH_SET32:
        return ga_load_acquire(slot); /* V2: acquire. Pairs with V1 */
    case GA_SLABHASH_MAP32:
        return ga_load64_acquire(pair); /* V2: acquire. Pairs with V1 */
    default:
        return ga_load64_acquire(pair + 1); /* V2: acquire. Pairs with V1 */
    }
}
#endif

/* The hit of a search: the first slot of `found` that still holds the key, and its value; or
 * GA_NONE. On the CPU the slot is loaded once more, as V2, because that is faster than to select
 * one of the row's many registers. A slot whose content has changed since the row was loaded has
 * lost its key within this call. */
GA_SIMT uint32_t ga_slabhash_read_match(uint32_t kind, ga_tile tile, ga_row row, const uint32_t *at,
                                        uint32_t found, uint64_t key, uint64_t *value)
{
#ifdef __CUDACC__
    uint32_t slot = ga_slabhash_first_slot(kind, tile, row, found, true);
    *value = slot != GA_NONE ? ga_slabhash_value_at(kind, tile, row, slot) : 0;
    (void)at;
    (void)key;
    return slot;
#else
    (void)tile;
    (void)row;
    for (; found; found &= found - 1u) {
        uint32_t slot = ga_bits_lowest(found);
        uint64_t there = ga_slabhash_load_slot(kind, at + slot);
        *value = GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP64 ? there : there >> 32;
        if (GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP64 ? ga_slabhash_is_set(kind, there)
                                                        : (uint32_t)there == (uint32_t)key) {
            return slot;
        }
    }
    return GA_NONE;
#endif
}

/* A 64-bit compare-and-swap, or a load and a store if that bug is planted. */
GA_SIMT bool ga_slabhash_cas64_or_torn(bool torn, ga_tile tile, uint32_t *words, uint64_t before,
                                       uint64_t after)
{
    return torn ? ga_slabhash_torn64(tile, words, before, after)
                : ga_slabhash_tile_cas64(tile, words, before, after);
}

/* Puts the pair into an empty slot. False if the slot is not empty any more; in map64 with two
 * steps also if it has become the key's slot but another thread has set its value. */
GA_SIMT bool ga_slabhash_fill(uint32_t kind, ga_tile tile, uint32_t *slot, uint64_t key,
                              uint64_t value)
{
    switch (GA_SLABHASH_MODE(kind)) {
    case GA_SLABHASH_SET32:
        return ga_slabhash_tile_cas32(tile, slot, (uint32_t)GA_SLABHASH_EMPTY, (uint32_t)key);
    case GA_SLABHASH_MAP32:
        return ga_slabhash_cas64_or_torn(GA_PLANTED(slabhash_fill_by_store), tile, slot,
                                         GA_SLABHASH_EMPTY, ga_slabhash_pair(key, value));
    default:
        if (ga_slabhash_has_cas128(kind)) {
            return ga_slabhash_tile_cas128(tile, slot, GA_SLABHASH_EMPTY, GA_SLABHASH_UNSET, key,
                                           value);
        }
        return ga_slabhash_cas64_or_torn(GA_PLANTED(slabhash_fill_by_store), tile, slot,
                                         GA_SLABHASH_EMPTY, key) &&
               ga_slabhash_tile_cas64(tile, slot + 2, GA_SLABHASH_UNSET, value);
    }
}

/* Puts the pair into a FREE slot. For 32-bit multimaps that grow. */
GA_SIMT bool ga_slabhash_refill(uint32_t kind, ga_tile tile, uint32_t *slot, uint64_t key,
                                uint64_t value)
{
    return GA_SLABHASH_MODE(kind) == GA_SLABHASH_SET32
               ? ga_slabhash_tile_cas32(tile, slot, GA_SLABHASH_FREE, (uint32_t)key)
               : ga_slabhash_tile_cas64(tile, slot, ga_slabhash_pair(GA_SLABHASH_FREE, UINT32_MAX),
                                        ga_slabhash_pair(key, value));
}

/* Replaces the value of the slot's key. */
GA_SIMT bool ga_slabhash_change(uint32_t kind, ga_tile tile, uint32_t *slot, uint64_t key,
                                uint64_t before, uint64_t after)
{
    switch (GA_SLABHASH_MODE(kind)) {
    case GA_SLABHASH_SET32:
        return true;
    case GA_SLABHASH_MAP32:
        return ga_slabhash_cas64_or_torn(GA_PLANTED(slabhash_change_by_store), tile, slot,
                                         ga_slabhash_pair(key, before),
                                         ga_slabhash_pair(key, after));
    default:
        return ga_slabhash_cas64_or_torn(GA_PLANTED(slabhash_change_by_store), tile, slot + 2,
                                         before, after);
    }
}

/* Deletes the slot's pair. */
GA_SIMT bool ga_slabhash_erase(uint32_t kind, ga_tile tile, uint32_t *slot, uint64_t key,
                               uint64_t value)
{
    bool reused = GA_SLABHASH_IS_MULTI(kind) || GA_PLANTED(slabhash_deleted_slot_reused);
    bool frees = ga_slabhash_deletes_to_free(kind) && !GA_PLANTED(slabhash_deleted_slot_emptied);
    uint32_t after = frees    ? GA_SLABHASH_FREE
                     : reused ? (uint32_t)GA_SLABHASH_EMPTY
                              : GA_SLABHASH_DELETED;
    switch (GA_SLABHASH_MODE(kind)) {
    case GA_SLABHASH_SET32:
        return ga_slabhash_tile_cas32(tile, slot, (uint32_t)key, after);
    case GA_SLABHASH_MAP32:
        return ga_slabhash_cas64_or_torn(GA_PLANTED(slabhash_erase_by_store), tile, slot,
                                         ga_slabhash_pair(key, value),
                                         ga_slabhash_pair(after, UINT32_MAX));
    default:
        return ga_slabhash_cas64_or_torn(GA_PLANTED(slabhash_erase_by_store), tile, slot + 2, value,
                                         GA_SLABHASH_IS_GROWING(kind) &&
                                                 !GA_PLANTED(slabhash_deleted_value_unset)
                                             ? GA_SLABHASH_GONE
                                             : GA_SLABHASH_UNSET);
    }
}

/* Word number `word` of a new slab that holds one pair, in its first slot. */
GA_SIMT uint32_t ga_slabhash_fresh_word(uint32_t kind, uint32_t word, uint64_t key, uint64_t value)
{
    uint64_t pair =
        GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP32 ? ga_slabhash_pair(key, value) : key;
    pair = word >= 2u ? value : pair;
    uint32_t words = GA_SLABHASH_MODE(kind) == GA_SLABHASH_SET32   ? 1u
                     : GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP32 ? 2u
                                                                   : 4u;
    return word < words ? (uint32_t)(pair >> (word % 2u * 32u)) : 0xffffffffu;
}

#endif
