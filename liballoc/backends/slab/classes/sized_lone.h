/* SPDX-License-Identifier: MIT
 *
 * Units for lanes that call alone: for example the lanes of a warp one after the other, or one lane
 * again and again.
 *
 * STRUCTURE  A lane that calls alone takes one bit of a word, so its warp's next lane may take
 *            another one. The heap records the word in which such a lane found a unit last: a
 *            recent word, as SlabAlloc's warps have a resident block (slab-hash-2018, §V). Lanes
 *            that call alone look there first. The index of the record is a hash of the class and
 *            the warp's number. A record is 64 bits, behind the ga_sized_heap:
 *
 *                bits 0 to 31    index of the word, + 1; 0: none
 *                bits 32 to 47   bytes of a unit / 16, - 1
 *                bits 48 to 57   further bits of the warp's number, so that few warps use the
 *                                words of others
 *                bits 58 to 63   the class
 *
 * INVARIANT  The word is in the first bitmap of a region that the class has, or had. So a record
 *            may be as stale as a class map (sized_places.h). The host clears the records before
 *            it lets a first bitmap serve another class.
 *
 * ORDER      KR1 and KR2: a region's bitmap has been cleared before a lane finds the word by a
 *            record. KU1 and KU2 (sized_search.h) order the accesses to a unit.
 *
 * PROGRESS   The fast path makes at most two atomics. The slow path looks at a few words, and then
 *            searches, as sized_tile.h says.
 */
#ifndef GPUALLOC_SLAB_CLASSES_SIZED_LONE_H
#define GPUALLOC_SLAB_CLASSES_SIZED_LONE_H

#include "sized_tile.h"

/* The record of warps of that number. */
GA_SIMT uint64_t *ga_sized_recent(ga_sized_view heap, uint32_t class_, uint32_t number)
{
#if GA_PLANTED(sized_recent_of_any_class)
    class_ = 0;
#endif
    uint32_t at = (number + class_ * 0x9e3779b1u) % GA_SIZED_RECENT;
    return (uint64_t *)((char *)heap.heap + GA_SIZED_RECENT_AT) + at;
}

/* Bits 48 to 63 of the record. */
GA_SIMT uint32_t ga_sized_recent_tag(uint32_t class_, uint32_t number)
{
#if GA_PLANTED(sized_recent_of_any_class)
    class_ = 0;
#endif
    return class_ << 10 | (number / GA_SIZED_RECENT & 1023u);
}

GA_SIMT uint64_t ga_sized_recent_load(const uint64_t *record)
{
#ifdef __CUDACC__
    /* relaxed: the record leads to an atomic on the bitmap, which is performed in L2, where the
     * cleared bitmap was before the record was written */
    return ga_load64_relaxed(record);
#else
    return ga_load64_acquire(record); /* KR1: acquire. Pairs with KR2. */
#endif
}

/* Record the word; or none, if it is not in a first bitmap. */
GA_SIMT void ga_sized_recent_store(ga_sized_view heap, uint32_t class_, uint32_t number,
                                   uint32_t word_index)
{
    uint32_t upper = ga_sized_recent_tag(class_, number) << 16 | (ga_sized_unit(class_) / 16u - 1u);
    uint64_t value = (uint64_t)upper << 32 | (word_index + 1u);
    if (!ga_sized_in_first_bitmap(heap, word_index)) {
        value = 0; /* the word that was recorded is full */
    }
#ifdef __CUDACC__
    ga_store64_relaxed(ga_sized_recent(heap, class_, number), value); /* relaxed: as above */
#else
    ga_store64_release(ga_sized_recent(heap, class_, number), value); /* KR2. Pairs with KR1. */
#endif
}

/* The unit of that bit of a word of a first bitmap. `unit` is its bytes. */
GA_SIMT char *ga_sized_first_bitmap_pointer(ga_sized_view heap, uint32_t unit, uint32_t word_index,
                                            uint32_t bit_index)
{
    uint32_t stride = 1u << ga_sized_stride_bits(heap.region_bits); /* words */
    uint32_t within = word_index & (stride - 1u);
    /* A region has 256 bytes for each word of its stride, so it is at (word_index - within) * 256
     * bytes. Fewer instructions than ga_sized_pointer(). */
    return heap.units + (uint64_t)word_index * 256u + (uint64_t)within * (unit * 32u - 256u) +
           bit_index * unit;
}

/* Fast path: a unit of the recent word for the lane, or NULL. Lanes that call in turn find their
 * own bits clear. A lane that calls again takes the lowest free bit. */
GA_SIMT void *ga_sized_claim_lone_fast(ga_sized_view heap, uint32_t class_, uint32_t number,
                                       uint32_t lane)
{
    uint64_t record = ga_sized_recent_load(ga_sized_recent(heap, class_, number));
    uint32_t word_index = (uint32_t)record - 1u, upper = (uint32_t)(record >> 32);
    if (upper >> 16 != ga_sized_recent_tag(class_, number) || word_index == GA_SIZED_NONE) {
        return NULL;
    }
    uint32_t bit_index = lane;
    uint32_t bit = 1u << lane;
    uint32_t taken = ga_sized_try_set(heap, word_index, bit);
    if (taken & bit && ~taken) {
        bit = ~taken & (taken + 1u);
        bit_index = ga_bits_lowest(bit);
        taken = ga_sized_try_set(heap, word_index, bit);
    }
    return taken & bit ? NULL
                       : ga_sized_first_bitmap_pointer(heap, (upper & 0xffffu) * 16u + 16u,
                                                       word_index, bit_index);
}

/* A unit, or GA_SIZED_NONE and 0. */
typedef struct ga_sized_lone_unit {
    uint32_t word_index, bit_index;
} ga_sized_lone_unit;

/* Words that a lone lane looks at before it searches, and then may make the class grow. */
#define GA_SIZED_LONE_ATTEMPTS 6u

/* A unit of a few words for the lane: at the hint, then at random words, and once at new ones. */
GA_SIMT ga_sized_lone_unit ga_sized_claim_lone_near(ga_sized_view heap, uint32_t class_,
                                                    uint32_t home, uint32_t lane)
{
    ga_sized_lone_unit got = {GA_SIZED_NONE, 0};
    for (uint32_t attempt = 1; attempt <= GA_SIZED_LONE_ATTEMPTS; attempt++) {
        ga_sized_look look = attempt == 1u   ? GA_SIZED_LOOK_HINT
                             : attempt == 3u ? GA_SIZED_LOOK_NEWEST
                                             : GA_SIZED_LOOK_RANDOM;
        uint32_t word_index;
        uint32_t free =
            ga_sized_look_for_word(heap, class_, home, 0, true, look, attempt, &word_index);
        uint32_t bit = free >> lane & 1u ? 1u << lane : free & (0u - free);
        if (bit && ga_sized_claim_bits(heap, class_, word_index, bit)) {
            got.word_index = word_index;
            got.bit_index = ga_bits_lowest(bit);
            break;
        }
    }
    return got;
}

/* Slow path: a unit for the lane, or NULL. `home` is the warp's number for its home word. */
GA_SIMT_SLOW void *ga_sized_claim_lone_slow(ga_sized_heap *heap, uint32_t class_, uint32_t number,
                                            uint32_t home, uint32_t lane)
{
    GA_SIMT_SAVES_REGISTERS(ga_sized_claim_lone_slow);
    ga_sized_view view = ga_sized_view_of(heap);
    ga_sized_lone_unit got = ga_sized_claim_lone_near(view, class_, home, lane);
    if (got.word_index == GA_SIZED_NONE) {
        ga_sized_units more = ga_sized_claim_search(heap, 1u << lane, 1u << lane, class_, home);
        got.word_index = ga_lane_read(more.word_indices, lane);
        got.bit_index = ga_lane_read(more.bit_indices, lane);
    }
    if (got.word_index == GA_SIZED_NONE) {
        return NULL;
    }
    ga_sized_recent_store(view, class_, number, got.word_index);
    return ga_sized_pointer(view, ga_sized_unit(class_), got.word_index, got.bit_index);
}

#endif
