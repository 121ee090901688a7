/* SPDX-License-Identifier: MIT
 *
 * Sorts requests into bins, and brings answers back into order. Written once for a team of threads:
 * a block of a kernel, or one thread of the host.
 *
 *   ga_sharded_combine_team for batches with keys that repeat: marks requests whose key another one
 *                           of the block has, and which therefore do not travel
 *   ga_sharded_sort_team    some thousand requests: sorts them in the team's room, reserves indices
 *                           behind the cursor of each bin, and copies them there
 *   ga_sharded_gather_team  each request takes the answer at its place
 *
 * INVARIANT  Each request is copied once, to an index of its bin. Its order among those of the bin
 *            is left to chance on a device.
 */
#ifndef GPUALLOC_SHARDED_SORT_TEAM_H
#define GPUALLOC_SHARDED_SORT_TEAM_H

#include "work.h"

#include <gpualloc/slabhash.h>

#include <stddef.h>

#ifdef __CUDACC__
#define GA_TEAM_SIZE            GA_SHARDED_THREADS
#define GA_TEAM_THREAD          threadIdx.x
#define GA_TEAM_WARP_SIZE       32u
#define GA_TEAM_BARRIER()       __syncthreads()
/* relaxed: counters and indices alone; barriers and the end of the kernel publish the rest */
#define GA_TEAM_ADD(word, n)    atomicAdd(word, n)
#define GA_TEAM_CLAIM(slot, by) atomicCAS(slot, (unsigned short)0, (unsigned short)(by))
typedef unsigned long long ga_team_long;
#else
#define GA_TEAM_SIZE            1u
#define GA_TEAM_THREAD          0u
#define GA_TEAM_WARP_SIZE       1u
#define GA_TEAM_BARRIER()       ((void)0)
#define GA_TEAM_ADD(word, n)    ga_team_add_one(word, n)
#define GA_TEAM_CLAIM(slot, by) ga_team_claim_one(slot, by)
typedef uint64_t ga_team_long;

static inline uint32_t ga_team_add_one(uint32_t *word, uint32_t n)
{
    uint32_t before = *word;
    *word += n;
    return before;
}

static inline uint32_t ga_team_claim_one(uint16_t *slot, uint32_t by)
{
    uint32_t before = *slot;
    *slot = before ? (uint16_t)before : (uint16_t)by;
    return before;
}
#endif

/* The sum of the numbers of lower lanes of a warp, all of which call. */
GA_SIMT uint32_t ga_team_sum_before(uint32_t own)
{
#ifdef __CUDACC__
    uint32_t sum = own;
    GA_UNROLL
    for (uint32_t apart = 1; apart < GA_TEAM_WARP_SIZE; apart *= 2) {
        uint32_t lower = __shfl_sync(GA_ALL_BITS, sum, (int)((threadIdx.x - apart) & 31u));
        sum += threadIdx.x >= apart ? lower : 0;
    }
    return sum - own;
#else
    (void)own;
    return 0;
#endif
}

/* The thread's share of 0 to n - 1. */
#define GA_TEAM_EACH(i, n) for (uint32_t i = GA_TEAM_THREAD; i < (n); i += GA_TEAM_SIZE)

/* Shared by a team. */
typedef struct ga_sharded_room {
    union {
        uint64_t sorted[GA_SHARDED_SORT_BYTES / sizeof(uint64_t)]; /* keys, values or answers */
        uint16_t slots[GA_SHARDED_SLOTS]; /* 0, or 1 + the first request for a key */
    };
    uint16_t bin_of[GA_SHARDED_SORT_BYTES / sizeof(uint32_t)]; /* answers: by index in `sorted` */
    uint32_t counts[GA_SHARDED_BINS + 1]; /* requests of each bin; later where it begins in
                                           * `sorted`, and behind them the end */
    uint32_t to[GA_SHARDED_BINS];         /* index in the output, less the index in `sorted` */
} ga_sharded_room;

/* Elements of either width, in memory of the other's type. */
typedef uint32_t __attribute__((may_alias)) ga_sharded_word;
typedef uint64_t __attribute__((may_alias)) ga_sharded_wide;

/* `width` is a constant: 1, 4 or 8 bytes. */
GA_SIMT uint64_t ga_sharded_load(const void *array, uint64_t at, uint32_t width)
{
    return width == 8u   ? ((const ga_sharded_wide *)array)[at]
           : width == 4u ? ((const ga_sharded_word *)array)[at]
                         : ((const uint8_t *)array)[at];
}

GA_SIMT void ga_sharded_store(void *array, uint64_t at, uint64_t element, uint32_t width)
{
    if (width == 8u) {
        ((ga_sharded_wide *)array)[at] = element;
    } else if (width == 4u) {
        ((ga_sharded_word *)array)[at] = (uint32_t)element;
    } else {
        ((uint8_t *)array)[at] = (uint8_t)element;
    }
}

/* Of keys and values. */
#define GA_SHARDED_WIDTH(is_wide) ((is_wide) ? 8u : 4u)

GA_SIMT uint32_t ga_sharded_bins(const ga_sharded_division *division)
{
    return division->ranks << division->parts_log;
}

/* Requests that a team sorts at once. */
#define GA_SHARDED_SORT_MOST(is_wide) (GA_SHARDED_SORT_BYTES / GA_SHARDED_WIDTH(is_wide))

/* Turns counts into the index at which each bin begins, and the last one ends: a prefix sum. One
 * warp of the team: each lane sums neighbouring bins, then the warp the sums of its lanes. */
GA_SIMT void ga_sharded_begin_team(uint32_t bins, ga_sharded_room *room)
{
    uint32_t lane = GA_TEAM_THREAD;
    uint32_t each = (bins + GA_TEAM_WARP_SIZE - 1u) / GA_TEAM_WARP_SIZE;
    uint32_t own = 0;
    if (lane < GA_TEAM_WARP_SIZE) {
        for (uint32_t bin = lane * each; bin < bins && bin < (lane + 1u) * each; bin++) {
            own += room->counts[bin];
        }
        uint32_t begin = ga_team_sum_before(own);
        for (uint32_t bin = lane * each; bin < bins && bin < (lane + 1u) * each; bin++) {
            uint32_t count = room->counts[bin];
            room->counts[bin] = begin;
            begin += count;
        }
        if (lane * each < bins && (lane + 1u) * each >= bins) {
            room->counts[bins] = begin;
        }
    }
    GA_TEAM_BARRIER();
}

/* Reserves indices of the output for the requests of each bin, and notes them for the answers
 * in `extents`. */
GA_SIMT void ga_sharded_reserve_team(const ga_sharded_sort *sort, uint32_t bins,
                                     ga_sharded_extent *extents, ga_sharded_room *room)
{
    if (GA_TEAM_THREAD == 0) {
        extents[bins].begin = room->counts[bins];
    }
    GA_TEAM_EACH(bin, bins)
    {
        uint32_t begin = room->counts[bin];
        uint32_t end = room->counts[bin + 1u];
        room->to[bin] = (end > begin ? GA_TEAM_ADD(sort->cursors + bin, end - begin) : 0) - begin;
        extents[bin].begin = begin;
        extents[bin].to = room->to[bin];
    }
    GA_TEAM_BARRIER();
}

/* Copies the elements of the room to their places in the output. A warp copies one bin after the
 * other. */
GA_SIMT void ga_sharded_copy_team(void *to, uint32_t bins, uint32_t width,
                                  const ga_sharded_room *room)
{
    GA_TEAM_BARRIER();
    for (uint32_t bin = GA_TEAM_THREAD / GA_TEAM_WARP_SIZE; bin < bins;
         bin += GA_TEAM_SIZE / GA_TEAM_WARP_SIZE) {
        for (uint32_t i = room->counts[bin] + GA_TEAM_THREAD % GA_TEAM_WARP_SIZE;
             i < room->counts[bin + 1u]; i += GA_TEAM_WARP_SIZE) {
            ga_sharded_store(to, room->to[bin] + i, ga_sharded_load(room->sorted, i, width), width);
        }
    }
    GA_TEAM_BARRIER();
}

/* Pads a bin. All threads of the team call. */
GA_SIMT void ga_sharded_pad_team(const ga_sharded_pad *pad, uint32_t bin)
{
    uint32_t end = pad->cursors[bin] + pad->counts[bin];
    GA_TEAM_EACH(i, (pad->to - end % pad->to) % pad->to)
    {
        ga_sharded_store(pad->keys_to, end + i, UINT64_MAX, GA_SHARDED_WIDTH(pad->is_wide));
    }
}

/* The first request for the key of request `i`, among those of the team, perhaps itself. Any of
 * them may be the first. `slots` are 0 before. */
GA_SIMT uint32_t ga_sharded_first_of(const ga_sharded_sort *sort, uint64_t first, uint32_t i,
                                     uint64_t key, uint32_t width, ga_sharded_room *room)
{
    uint64_t mixed = key * UINT64_C(0x9e3779b97f4a7c15);
    for (uint32_t at = (uint32_t)(mixed >> 32);; at++) {
        uint32_t held = GA_TEAM_CLAIM(room->slots + at % GA_SHARDED_SLOTS, i + 1u);
        if (!held || ga_sharded_load(sort->keys, first + held - 1u, width) == key) {
            return held ? held - 1u : i;
        }
    }
}

/* Marks in `indices` the requests `first` to `first + n - 1` whose key an earlier one has, with the
 * number of that one, and adds the others to the counts of their bins, which are 0 before. All
 * threads of the team call. */
GA_SIMT void ga_sharded_combine_team(const ga_sharded_sort *sort, uint64_t first, uint32_t n,
                                     uint32_t is_wide, ga_sharded_room *room)
{
    const uint32_t width = GA_SHARDED_WIDTH(is_wide);
    uint32_t bins = ga_sharded_bins(&sort->division);
    GA_TEAM_EACH(slot, (uint32_t)GA_SHARDED_SLOTS)
    {
        room->slots[slot] = 0;
    }
    GA_TEAM_EACH(bin, bins)
    {
        room->counts[bin] = 0;
    }
    GA_TEAM_BARRIER();
    GA_TEAM_EACH(i, n)
    {
        uint64_t key = ga_sharded_load(sort->keys, first + i, width);
        uint32_t of = ga_sharded_first_of(sort, first, i, key, width, room);
        sort->indices[first + i] = (uint16_t)(of == i ? i : of | (uint32_t)GA_SHARDED_REPEATS);
        if (of == i) {
            (void)GA_TEAM_ADD(room->counts + ga_sharded_bin(&sort->division, key), 1u);
        }
    }
    GA_TEAM_BARRIER();
    GA_TEAM_EACH(bin, bins)
    {
        if (room->counts[bin]) {
            (void)GA_TEAM_ADD(sort->cursors + bin, room->counts[bin]);
        }
    }
    GA_TEAM_BARRIER();
}

/* Where a request of the thread goes. */
typedef struct ga_sharded_placing {
    uint32_t bin;    /* GA_SHARDED_BINS: nowhere */
    uint32_t before; /* requests of the bin that the team has seen before this one */
} ga_sharded_placing;

/* Copies what else the requests have, of `width` bytes each, to the places of their keys. `each` is
 * a constant: the requests of a thread. */
GA_SIMT void ga_sharded_spread_team(const void *from, void *to, uint64_t first, uint32_t n,
                                    uint32_t width, uint32_t each, uint32_t bins,
                                    const ga_sharded_placing *placings, ga_sharded_room *room)
{
    uint64_t elements[GA_SHARDED_SORT_MOST(0) / GA_TEAM_SIZE];
    GA_UNROLL
    for (uint32_t k = 0; k < each; k++) {
        uint32_t i = GA_TEAM_THREAD + k * GA_TEAM_SIZE;
        elements[k] = i < n ? ga_sharded_load(from, first + i, width) : 0;
    }
    GA_UNROLL
    for (uint32_t k = 0; k < each; k++) {
        if (placings[k].bin < GA_SHARDED_BINS) {
            uint32_t index = room->counts[placings[k].bin] + placings[k].before;
            ga_sharded_store(room->sorted, index, elements[k], width);
        }
    }
    ga_sharded_copy_team(to, bins, width, room);
}

/* Requests that were marked get the index of the one that travels for them. */
GA_SIMT void ga_sharded_point_team(const ga_sharded_sort *sort, uint64_t first, uint32_t n)
{
    GA_TEAM_EACH(i, n)
    {
        uint32_t of = sort->indices[first + i];
        if (of & GA_SHARDED_REPEATS) {
            uint32_t index = sort->indices[first + (of & ~(uint32_t)GA_SHARDED_REPEATS)];
            sort->indices[first + i] = (uint16_t)(index | (uint32_t)GA_SHARDED_REPEATS);
        }
    }
}

/* Sorts the requests `first` to `first + n - 1`, at most GA_SHARDED_SORT_MOST(is_wide), which is a
 * constant. All threads of the team call. A thread keeps its keys in registers. */
GA_SIMT void ga_sharded_sort_team(const ga_sharded_sort *sort, uint64_t first, uint32_t n,
                                  uint32_t is_wide, ga_sharded_room *room)
{
    enum {
        EACH = GA_SHARDED_SORT_MOST(0) / GA_TEAM_SIZE
    };
    const uint32_t each = is_wide ? EACH / 2 : EACH;
    const uint32_t width = GA_SHARDED_WIDTH(is_wide);
    uint64_t keys[EACH];
    ga_sharded_placing placings[EACH];
    uint32_t bins = ga_sharded_bins(&sort->division);
    GA_TEAM_EACH(bin, bins)
    {
        room->counts[bin] = 0;
    }
    GA_TEAM_BARRIER();
    GA_UNROLL
    for (uint32_t k = 0; k < each; k++) {
        uint32_t i = GA_TEAM_THREAD + k * GA_TEAM_SIZE;
        keys[k] = i < n ? ga_sharded_load(sort->keys, first + i, width) : 0;
    }
    GA_UNROLL
    for (uint32_t k = 0; k < each; k++) {
        uint32_t i = GA_TEAM_THREAD + k * GA_TEAM_SIZE;
        bool travels = i < n && !(sort->combines && sort->indices[first + i] & GA_SHARDED_REPEATS);
        placings[k].bin = GA_SHARDED_BINS;
        if (travels) {
            placings[k].bin = ga_sharded_bin(&sort->division, keys[k]);
            placings[k].before = GA_TEAM_ADD(room->counts + placings[k].bin, 1u);
        }
    }
    GA_TEAM_BARRIER();
    ga_sharded_begin_team(bins, room);
    ga_sharded_reserve_team(
        sort, bins, sort->extents + first / GA_SHARDED_SORT_MOST(is_wide) * (bins + 1u), room);
    GA_UNROLL
    for (uint32_t k = 0; k < each; k++) {
        uint32_t i = GA_TEAM_THREAD + k * GA_TEAM_SIZE;
        if (placings[k].bin < GA_SHARDED_BINS) {
            uint32_t index = room->counts[placings[k].bin] + placings[k].before;
            ga_sharded_store(room->sorted, index, keys[k], width);
            sort->indices[first + i] = (uint16_t)index;
        }
    }
    ga_sharded_copy_team(sort->keys_to, bins, width, room);
    if (sort->combines) {
        ga_sharded_point_team(sort, first, n);
    }
    if (sort->values) {
        ga_sharded_spread_team(sort->values, sort->values_to, first, n, width, each, bins, placings,
                               room);
    }
    if (sort->ops) {
        ga_sharded_spread_team(sort->ops, sort->ops_to, first, n, 1u, each, bins, placings, room);
    }
}

/* Which bin each element of the room belongs to, from the extents. A warp fills in one bin after
 * the other. */
GA_SIMT void ga_sharded_find_bins_team(const ga_sharded_extent *extents, uint32_t bins,
                                       ga_sharded_room *room)
{
    if (GA_TEAM_THREAD == 0) {
        room->counts[bins] = extents[bins].begin;
    }
    GA_TEAM_EACH(bin, bins)
    {
        room->counts[bin] = extents[bin].begin;
        room->to[bin] = extents[bin].to;
    }
    GA_TEAM_BARRIER();
    for (uint32_t bin = GA_TEAM_THREAD / GA_TEAM_WARP_SIZE; bin < bins;
         bin += GA_TEAM_SIZE / GA_TEAM_WARP_SIZE) {
        for (uint32_t i = room->counts[bin] + GA_TEAM_THREAD % GA_TEAM_WARP_SIZE;
             i < room->counts[bin + 1u]; i += GA_TEAM_WARP_SIZE) {
            room->bin_of[i] = (uint16_t)bin;
        }
    }
    GA_TEAM_BARRIER();
}

/* Loads the team's elements of an array, of 1, 4 or 8 bytes, into its room, in their order there.
 * `each` is a constant: the elements of a thread. */
GA_SIMT void ga_sharded_collect_team(const void *from, uint32_t bins, uint32_t width, uint32_t each,
                                     ga_sharded_room *room)
{
    uint32_t n = room->counts[bins];
    uint64_t elements[GA_SHARDED_SORT_MOST(0) / GA_TEAM_SIZE];
    GA_UNROLL
    for (uint32_t k = 0; k < each; k++) {
        uint32_t i = GA_TEAM_THREAD + k * GA_TEAM_SIZE;
        if (i < n) {
            uint32_t place = room->to[room->bin_of[i]] + i;
            elements[k] = ga_sharded_load(from, place, width);
        }
    }
    GA_UNROLL
    for (uint32_t k = 0; k < each; k++) {
        uint32_t i = GA_TEAM_THREAD + k * GA_TEAM_SIZE;
        if (i < n) {
            ga_sharded_store(room->sorted, i, elements[k], width);
        }
    }
    GA_TEAM_BARRIER();
}

/* The result of a request, from that of the one which travelled for it. */
GA_SIMT uint32_t ga_sharded_repeat_result(uint32_t repeat, uint32_t result)
{
    if (repeat == GA_SHARDED_REPEAT_INSERTS && result == GA_SLABHASH_ABSENT) {
        return GA_SLABHASH_FOUND;
    }
    if (repeat == GA_SHARDED_REPEAT_DELETES && result == GA_SLABHASH_FOUND) {
        return GA_SLABHASH_ABSENT;
    }
    return result;
}

/* Answers for the requests `first` to `first + n - 1`, which were sorted together. `counts` are the
 * thread's own. All threads of the team call. */
GA_SIMT void ga_sharded_gather_team(const ga_sharded_gather *gather, uint64_t first, uint32_t n,
                                    uint32_t is_wide, ga_sharded_room *room,
                                    uint32_t counts[GA_SHARDED_RESULTS])
{
    enum {
        EACH = GA_SHARDED_SORT_MOST(0) / GA_TEAM_SIZE,
        INDEX = GA_SHARDED_REPEATS - 1
    };
    const uint32_t each = is_wide ? EACH / 2 : EACH;
    const uint32_t width = GA_SHARDED_WIDTH(is_wide);
    uint32_t indices[EACH]; /* loaded before they are needed */
    uint64_t block = first / GA_SHARDED_SORT_MOST(is_wide);
    GA_UNROLL
    for (uint32_t k = 0; k < each; k++) {
        uint32_t i = GA_TEAM_THREAD + k * GA_TEAM_SIZE;
        indices[k] = i < n ? gather->indices[first + i] : 0;
    }
    ga_sharded_find_bins_team(gather->extents + block * (gather->bins + 1u), gather->bins, room);
    if (gather->found) {
        ga_sharded_collect_team(gather->found_from, gather->bins, width, each, room);
        GA_UNROLL
        for (uint32_t k = 0; k < each; k++) {
            uint32_t i = GA_TEAM_THREAD + k * GA_TEAM_SIZE;
            uint32_t repeats = indices[k] & GA_SHARDED_REPEATS;
            if (i < n) {
                uint64_t found = ga_sharded_load(room->sorted, indices[k] & INDEX, width);
                found = repeats && gather->repeat == GA_SHARDED_REPEAT_DELETES ? 0 : found;
                ga_sharded_store(gather->found, first + i, found, width);
            }
        }
        GA_TEAM_BARRIER();
    }
    if (gather->results_from) {
        ga_sharded_collect_team(gather->results_from, gather->bins, 1u, each, room);
        GA_UNROLL
        for (uint32_t k = 0; k < each; k++) {
            uint32_t i = GA_TEAM_THREAD + k * GA_TEAM_SIZE;
            uint32_t result = (uint32_t)ga_sharded_load(room->sorted, indices[k] & INDEX, 1u);
            if (indices[k] & GA_SHARDED_REPEATS) {
                result = ga_sharded_repeat_result(gather->repeat, result);
            }
            if (i < n && gather->results) {
                gather->results[first + i] = (uint8_t)result;
            }
            GA_UNROLL
            for (uint32_t kind = 0; kind < GA_SHARDED_RESULTS; kind++) {
                counts[kind] += i < n && result == kind;
            }
        }
        GA_TEAM_BARRIER();
    }
}

#endif
