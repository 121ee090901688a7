/* SPDX-License-Identifier: MIT
 *
 * What a slab holds, and every way in which it changes.
 *
 *            word 0        2        4                          28       30     31
 *     set32   key   key   key  key  key  ...                   key key  mark   next
 *     map32   key   value key  value     ...                   key val  mark   next
 *     map64   key 64      value 64       ...      7 pairs      unused   mark   next
 *
 * An empty slab has all its bits set: an empty place has the key EMPTY (all ones) and, in maps, a
 * value of all ones. A bit of the mark is cleared once a key of its class found the slab full.
 * `next` is the number of a unit, or all ones.
 *
 * INVARIANT  A place that is a tile's or thread's to fill is only ever filled by a compare-and-swap
 *            against what was read there. In tables of unique keys it goes
 *                set32, map32    EMPTY -> (key, value), any number of values -> DELETED
 *                map64           EMPTY -> key, which stays; its value is UNSET where the key is not
 *                                there, so that each change is one of 64 bits. Where all 128 can be
 *                                swapped (EMPTY, UNSET) -> (key, value): both steps at once, and
 *                                nothing that who takes them one by one could not come upon
 *            and begins again with a flush, which is alone. In multimaps of 32 bits it goes back to
 *            EMPTY; in those of 64 bits it is the key's until a flush. In tables that grow the top
 *            bit of the key, in map64 of the value, says that the place is FROZEN: nothing of it
 *            changes any more (grow_tile.h). Who finds an empty place seals it: as DELETED, in
 *            map64 with the key SEALED. There a value that was deleted is GONE, and never UNSET
 *            again; a place of a multimap of 32 bits that was deleted is FREE, and never EMPTY
 *            again: FREE with the frozen bit is DELETED. Bit 1 of a bucket's mark says that it is
 *            shut.
 *
 * ORDER      V1 and V2: what was done before a pair was put in happens before what follows its
 *            being found, on the CPU. A word is read and changed at one width, pairs at 64 bits,
 *            but for swaps of a whole place of map64, which want no more than that they and the
 *            others are atomic for each other.
 */
#ifndef GPUALLOC_SLABHASH_SLOTS_H
#define GPUALLOC_SLABHASH_SLOTS_H

#include <gpualloc/simt/simt.h>
#include <gpualloc/slabhash.h>

/* The stress tests weaken one thing at a time, to see that they notice. In their programs threads give
 * way to others between any two steps, and this is a variable (tests/support/mutant.h). */
#ifdef GA_SLABHASH_MUTANT
#include <sched.h>
#define GA_SLABHASH_IS_WEAKENED 1
#else
#define GA_SLABHASH_IS_WEAKENED 0
#define GA_SLABHASH_MUTANT      0
#endif

/* A mode and whether keys may be there several times, a constant wherever it is used. */
#define GA_SLABHASH_KIND(mode, multi) ((uint32_t)(mode) | ((multi) ? 4u : 0u))
#define GA_SLABHASH_KINDS             16u /* 3, 7, 11 and 15 are none */
#define GA_SLABHASH_GROWING           8u  /* of a kind: its tables grow */
#define GA_SLABHASH_MODE(kind)        ((kind)&3u)
#define GA_SLABHASH_IS_MULTI(kind)    (((kind)&4u) != 0)
#define GA_SLABHASH_IS_GROWING(kind)  (((kind)&GA_SLABHASH_GROWING) != 0)
#define GA_SLABHASH_IS_UNIQUE(kind)   (!GA_SLABHASH_IS_MULTI(kind) && !GA_SLABHASH_IS_GROWING(kind))

/* Of a kind in kernels, beside the table's own: places of map64 are filled in two steps, also where
 * the device could swap them at once. */
#define GA_SLABHASH_STEPWISE            16u
#define GA_SLABHASH_KIND_OF_TABLE(kind) ((kind) & ~GA_SLABHASH_STEPWISE)

#define GA_SLABHASH_EMPTY   UINT64_MAX /* the key of an empty place; its lower half with 32 bits */
#define GA_SLABHASH_UNSET   UINT64_MAX /* map64: the value of a key that is not there */
#define GA_SLABHASH_DELETED 0xfffffffeu
#define GA_SLABHASH_NO_SLAB 0xffffffffu
#define GA_SLABHASH_SEALED                                                                         \
    0xfffffffeu /* tables that grow: the link of a chain that is at its end */
#define GA_SLABHASH_OVERFLOW_BITS 30u
#define GA_SLABHASH_NEXT          31u

/* A row's bytes and words. */
#define GA_SLABHASH_WORDS 32u

/* Tables that grow: the bit of a frozen place; the key of a place of a multimap of 32 bits that is
 * to be filled again; of map64 the key of a sealed place, and the values of keys that are not
 * there: deleted, and the same for good. */
#define GA_SLABHASH_FROZEN32    0x80000000u
#define GA_SLABHASH_FREE        (GA_SLABHASH_DELETED & ~GA_SLABHASH_FROZEN32)
#define GA_SLABHASH_FROZEN64    (UINT64_C(1) << 63)
#define GA_SLABHASH_SEALED_KEY  (UINT64_MAX - 1u)
#define GA_SLABHASH_GONE        (UINT64_MAX - 1u)
#define GA_SLABHASH_FROZEN_GONE (UINT64_MAX - 2u)

/* ---- what may be asked ---------------------------------------------------------------------- */

/* Whether the operation puts pairs in, and so has a value. */
GA_SIMT bool ga_slabhash_puts(uint32_t op)
{
    return op != GA_SLABHASH_SEARCH && op != GA_SLABHASH_DELETE;
}

/* The largest key and value. */
GA_SIMT uint64_t ga_slabhash_key_most(uint32_t kind)
{
    bool grows = GA_SLABHASH_IS_GROWING(kind);
    if (GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP64) {
        return grows ? GA_SLABHASH_SEALED_KEY - 1u : GA_SLABHASH_EMPTY - 1u;
    }
    return (GA_SLABHASH_DELETED - 1u) & (grows ? ~GA_SLABHASH_FROZEN32 : 0xffffffffu);
}

GA_SIMT uint64_t ga_slabhash_value_most(uint32_t kind)
{
    if (GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP64) {
        return GA_SLABHASH_IS_GROWING(kind) ? GA_SLABHASH_FROZEN64 - 4u : GA_SLABHASH_UNSET - 1u;
    }
    return 0xffffffffu;
}

/* Whether the mode has room for the key and the value. */
GA_SIMT bool ga_slabhash_fits(uint32_t kind, uint32_t op, uint64_t key, uint64_t value)
{
    bool valued = GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP32 && ga_slabhash_puts(op);
    return GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP64 || !(key >> 32 || (valued && value >> 32));
}

/* The same, and that they are none of the reserved ones. */
GA_SIMT bool ga_slabhash_allowed(uint32_t kind, uint32_t op, uint64_t key, uint64_t value)
{
    if (GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP64) {
        return key <= ga_slabhash_key_most(kind) &&
               !(ga_slabhash_puts(op) && value > ga_slabhash_value_most(kind));
    }
    return ga_slabhash_fits(kind, op, key, value) && key <= ga_slabhash_key_most(kind);
}

/* ---- what is read --------------------------------------------------------------------------- */

/* The mask of the words at which places begin. */
GA_SIMT uint32_t ga_slabhash_slot_mask(uint32_t kind)
{
    return GA_SLABHASH_MODE(kind) == GA_SLABHASH_SET32   ? 0x3fffffffu
           : GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP32 ? 0x15555555u
                                                         : 0x01111111u;
}

/* Whether places of deleted pairs are FREE. */
GA_SIMT bool ga_slabhash_deletes_to_free(uint32_t kind)
{
    return GA_SLABHASH_IS_MULTI(kind) && GA_SLABHASH_IS_GROWING(kind) &&
           GA_SLABHASH_MODE(kind) != GA_SLABHASH_MAP64;
}

/* The slab in registers. In maps the tile has no more than 16 lanes. */
GA_SIMT ga_row ga_slabhash_load_slab(uint32_t kind, ga_tile tile, const uint32_t *row)
{
    return GA_SLABHASH_MODE(kind) == GA_SLABHASH_SET32 ? ga_row_load(tile, row)
                                                       : ga_row_load_pairs(tile, row);
}

/* The mask of the places that hold the key. */
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

/* Whether a key with this value is there; in tables that grow, here and not frozen. */
GA_SIMT bool ga_slabhash_is_set(uint32_t kind, uint64_t value)
{
    return GA_SLABHASH_MODE(kind) != GA_SLABHASH_MAP64 || value <= ga_slabhash_value_most(kind);
}

/* Whether map64's value is frozen. */
GA_SIMT bool ga_slabhash_is_frozen64(uint64_t value)
{
    return value >= GA_SLABHASH_FROZEN64 && value <= GA_SLABHASH_FROZEN_GONE;
}

/* The first of the places `found`, which hold one key, at which it is there (`is_set`) or, in
 * map64, is not; GA_NONE where there is none such. */
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

/* A key and a value as they were put in, frozen or not. */
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

/* The place at which the key is frozen, of those `found` to hold it in map64; or GA_NONE. */
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
        if (!GA_SLABHASH_IS_MULTI(kind)) { /* it has one place */
            break;
        }
    }
    return GA_NONE;
}

/* Tables that grow: the mask of the places at which the key is there, frozen or not. */
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

/* The mask of the places whose pairs are there, whatever their keys, frozen or not. */
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

/* The mask of the places that can be filled. */
GA_SIMT uint32_t ga_slabhash_vacant_slots(uint32_t kind, ga_tile tile, ga_row row)
{
    uint32_t vacant = ga_slabhash_match_key(kind, tile, row, GA_SLABHASH_EMPTY);
    return ga_slabhash_deletes_to_free(kind)
               ? vacant | ga_slabhash_match_key(kind, tile, row, GA_SLABHASH_FREE)
               : vacant;
}

/* ---- what is changed ------------------------------------------------------------------------ */

/* Where threads give way to others, so that whatever can happen in between does; in tests. */
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

/* Whether V1 is relaxed: on the GPU a word is all there is to be seen, on the CPU it is a message as
 * well. */
#ifdef __CUDACC__
#define GA_SLABHASH_CAS_IS_RELAXED 1
#else
#define GA_SLABHASH_CAS_IS_RELAXED (GA_SLABHASH_MUTANT == 8)
#endif

/* A compare-and-swap by the calling lane; whether it has succeeded. */
GA_SIMT bool ga_slabhash_lane_cas32(uint32_t *word, uint32_t before, uint32_t after)
{
    /* V1: acq_rel. Pairs with V2: what was done before happens before what a finder does. */
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

/* Whether a place of map64 is filled, key and value, by one swap of 128 bits. Who does so and who
 * takes two steps may work on one table. On the CPU only tests do, each fill as chance has it. */
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

/* What tests must notice in place of the following: no swap, or one of the key alone. */
GA_SIMT bool ga_slabhash_torn128(uint32_t *slot, uint64_t key, uint64_t value, uint64_t to_key,
                                 uint64_t to_value)
{
    uint64_t *both = (uint64_t *)(void *)slot;
    bool is = GA_SLABHASH_MUTANT == 41 ? ga_slabhash_lane_cas64(slot, key, to_key)
                                       : ga_load64_acquire(both) == key && /* Pairs with V1 */
                                             ga_load64_acquire(both + 1) == value;
    ga_slabhash_test_yield();
    if (is) {
        ga_store64_release(both, to_key);       /* Pairs with V2 */
        ga_store64_release(both + 1, to_value); /* Pairs with V2 */
    }
    return is;
}

/* A place of map64, where that is so: a compare-and-swap of key and value. */
GA_SIMT bool ga_slabhash_lane_cas128(uint32_t *slot, uint64_t key, uint64_t value, uint64_t to_key,
                                     uint64_t to_value)
{
#if GA_HAS_CAS128
    if (GA_SLABHASH_MUTANT == 40 || GA_SLABHASH_MUTANT == 41) {
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
    return false; /* never called */
#endif
}

/* The same by the tile's leader. */
GA_SIMT bool ga_slabhash_tile_cas32(ga_tile tile, uint32_t *word, uint32_t before, uint32_t after)
{
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes done = ga_lanes_all(0);
    ga_slabhash_test_yield();
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        ga_lane_write(&done, own, ga_slabhash_lane_cas32(word, before, after) ? 1u : 0u);
    }
    ga_tile_sync(tile); /* what the leader did is seen by all */
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
    ga_tile_sync(tile); /* what the leader did is seen by all */
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
    ga_tile_sync(tile); /* what the leader did is seen by all */
    return ga_lanes_get(tile, done, leader) != 0;
}

/* One of 64 bits, taken apart: what mutants do in its place. */
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

/* The place was found to hold the pair: V2, on the CPU. On the GPU values are data, not messages.
 * */
GA_SIMT void ga_slabhash_acquire_slot(uint32_t kind, const uint32_t *slot)
{
#ifndef __CUDACC__
    if (GA_SLABHASH_MUTANT == 9) {
        return;
    }
    /* V2: acquire. Pairs with V1: no change of the place since is anything but V1. */
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
/* V2: what stands at the place: key and value, map64: the value. */
GA_SIMT uint64_t ga_slabhash_load_slot(uint32_t kind, const uint32_t *slot)
{
    const uint64_t *pair = (const uint64_t *)(const void *)slot;
    ga_slabhash_test_yield();
    if (GA_SLABHASH_MUTANT == 9) {
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

/* The first of the places `found`, at which the row's words were the key's, that holds it, and its
 * value: GA_NONE where none does. On the CPU the place is read once more, by V2: a row is many
 * registers, and a value is had from memory sooner than out of one of them. A place that changed
 * meanwhile lost its key within this call. */
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

/* A compare-and-swap of 64 bits, but for one mutant. */
GA_SIMT bool ga_slabhash_mutant_cas64(int mutant, ga_tile tile, uint32_t *words, uint64_t before,
                                      uint64_t after)
{
    return GA_SLABHASH_MUTANT == mutant ? ga_slabhash_torn64(tile, words, before, after)
                                        : ga_slabhash_tile_cas64(tile, words, before, after);
}

/* Put the pair in an empty place. False where it is not empty any more; and in map64, of two steps,
 * where it is the key's by now, but somebody else has given it its value. */
GA_SIMT bool ga_slabhash_fill(uint32_t kind, ga_tile tile, uint32_t *slot, uint64_t key,
                              uint64_t value)
{
    switch (GA_SLABHASH_MODE(kind)) {
    case GA_SLABHASH_SET32:
        return ga_slabhash_tile_cas32(tile, slot, (uint32_t)GA_SLABHASH_EMPTY, (uint32_t)key);
    case GA_SLABHASH_MAP32:
        return ga_slabhash_mutant_cas64(1, tile, slot, GA_SLABHASH_EMPTY,
                                        ga_slabhash_pair(key, value));
    default:
        if (ga_slabhash_has_cas128(kind)) {
            return ga_slabhash_tile_cas128(tile, slot, GA_SLABHASH_EMPTY, GA_SLABHASH_UNSET, key,
                                           value);
        }
        return ga_slabhash_mutant_cas64(1, tile, slot, GA_SLABHASH_EMPTY, key) &&
               ga_slabhash_tile_cas64(tile, slot + 2, GA_SLABHASH_UNSET, value);
    }
}

/* The same with a FREE place, of multimaps of 32 bits that grow. */
GA_SIMT bool ga_slabhash_refill(uint32_t kind, ga_tile tile, uint32_t *slot, uint64_t key,
                                uint64_t value)
{
    return GA_SLABHASH_MODE(kind) == GA_SLABHASH_SET32
               ? ga_slabhash_tile_cas32(tile, slot, GA_SLABHASH_FREE, (uint32_t)key)
               : ga_slabhash_tile_cas64(tile, slot, ga_slabhash_pair(GA_SLABHASH_FREE, UINT32_MAX),
                                        ga_slabhash_pair(key, value));
}

/* Change the value of the place's key. */
GA_SIMT bool ga_slabhash_change(uint32_t kind, ga_tile tile, uint32_t *slot, uint64_t key,
                                uint64_t before, uint64_t after)
{
    switch (GA_SLABHASH_MODE(kind)) {
    case GA_SLABHASH_SET32:
        return true;
    case GA_SLABHASH_MAP32:
        return ga_slabhash_mutant_cas64(2, tile, slot, ga_slabhash_pair(key, before),
                                        ga_slabhash_pair(key, after));
    default:
        return ga_slabhash_mutant_cas64(2, tile, slot + 2, before, after);
    }
}

/* Take the pair out. */
GA_SIMT bool ga_slabhash_erase(uint32_t kind, ga_tile tile, uint32_t *slot, uint64_t key,
                               uint64_t value)
{
    bool reused = GA_SLABHASH_IS_MULTI(kind) || GA_SLABHASH_MUTANT == 6;
    bool frees = ga_slabhash_deletes_to_free(kind) && GA_SLABHASH_MUTANT != 20;
    uint32_t after = frees    ? GA_SLABHASH_FREE
                     : reused ? (uint32_t)GA_SLABHASH_EMPTY
                              : GA_SLABHASH_DELETED;
    switch (GA_SLABHASH_MODE(kind)) {
    case GA_SLABHASH_SET32:
        return ga_slabhash_tile_cas32(tile, slot, (uint32_t)key, after);
    case GA_SLABHASH_MAP32:
        return ga_slabhash_mutant_cas64(3, tile, slot, ga_slabhash_pair(key, value),
                                        ga_slabhash_pair(after, UINT32_MAX));
    default:
        return ga_slabhash_mutant_cas64(3, tile, slot + 2, value,
                                        GA_SLABHASH_IS_GROWING(kind) && GA_SLABHASH_MUTANT != 16
                                            ? GA_SLABHASH_GONE
                                            : GA_SLABHASH_UNSET);
    }
}

/* What stands in word `word` of an otherwise empty slab whose first place has the pair. */
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
