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
#define GA_TEAM_GROUP_SIZE      8u /* threads for one bin, which has few requests of a block */
#define GA_TEAM_BARRIER()       __syncthreads()
/* relaxed: counters and indices alone; barriers and the end of the kernel publish the rest */
#define GA_TEAM_ADD(word, n)    atomicAdd(word, n)
#define GA_TEAM_CLAIM(slot, by) atomicCAS(slot, (unsigned short)0, (unsigned short)(by))
typedef unsigned long long ga_team_long;
#else
#define GA_TEAM_SIZE            1u
#define GA_TEAM_THREAD          0u
#define GA_TEAM_WARP_SIZE       1u
#define GA_TEAM_GROUP_SIZE      1u
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
    uint32_t lane = threadIdx.x % GA_TEAM_WARP_SIZE;
    uint32_t sum = own;
    GA_UNROLL
    for (uint32_t apart = 1; apart < GA_TEAM_WARP_SIZE; apart *= 2) {
        uint32_t lower = __shfl_sync(GA_ALL_BITS, sum, (int)((lane - apart) & 31u));
        sum += lane >= apart ? lower : 0;
    }
    return sum - own;
#else
    (void)own;
    return 0;
#endif
}

/* The thread's share of 0 to n - 1. */
#define GA_TEAM_EACH(i, n) for (uint32_t i = GA_TEAM_THREAD; i < (n); i += GA_TEAM_SIZE)

/* Shared by a team. It has the same size on the host, where a launch names it. */
typedef struct ga_sharded_room {
    union {
        uint64_t sorted[GA_SHARDED_SORT_BYTES / sizeof(uint64_t)]; /* keys, values or answers */
        uint16_t slots[GA_SHARDED_SLOTS]; /* 0, or 1 + the first request for a key */
    };
    union {
        uint16_t bin_of[GA_SHARDED_SORT_BYTES / sizeof(uint32_t)]; /* by index in `sorted` */
        uint8_t results[GA_SHARDED_SORT_BYTES / sizeof(uint32_t)]; /* likewise, after that */
    };
    uint32_t counts[GA_SHARDED_BINS + 1];   /* requests of each bin; later where it begins in
                                           * `sorted`, and behind them the end */
    uint32_t to[GA_SHARDED_BINS];           /* index in the output, less the index in `sorted` */
    uint32_t sums[GA_SHARDED_THREADS / 32]; /* of each warp's bins */
} ga_sharded_room;

/* Arrays of a thread: on a device in registers. On the host, where the thread is the whole team and
 * they are large, behind the room. */
#ifdef __CUDACC__
#define GA_TEAM_OWN(type, name, room)                                                              \
    type name[GA_SHARDED_SORT_BYTES / 4 / GA_TEAM_SIZE];                                           \
    (void)(room)
#else
#define GA_TEAM_OWN(type, name, room) type *name = ((ga_sharded_host_room *)(room))->name

typedef struct ga_sharded_host_room {
    ga_sharded_room shared; /* first */
    uint64_t keys[GA_SHARDED_SORT_BYTES / 4], elements[GA_SHARDED_SORT_BYTES / 4];
    uint32_t placings[GA_SHARDED_SORT_BYTES / 4], places[GA_SHARDED_SORT_BYTES / 4];
    uint32_t answer_indices[GA_SHARDED_SORT_BYTES / 4];
} ga_sharded_host_room;
#endif

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

/* Turns counts into the index at which each bin begins, and the last one ends: a prefix sum. Each
 * thread sums neighbouring bins, each warp the sums of its lanes, and the team those of its
 * warps. */
GA_SIMT void ga_sharded_begin_team(uint32_t bins, ga_sharded_room *room)
{
    uint32_t each = (bins + GA_TEAM_SIZE - 1u) / GA_TEAM_SIZE;
    uint32_t first = GA_TEAM_THREAD * each;
    uint32_t warp = GA_TEAM_THREAD / GA_TEAM_WARP_SIZE;
    uint32_t own = 0;
    for (uint32_t bin = first; bin < bins && bin < first + each; bin++) {
        own += room->counts[bin];
    }
    uint32_t begin = ga_team_sum_before(own);
    if (GA_TEAM_THREAD % GA_TEAM_WARP_SIZE == GA_TEAM_WARP_SIZE - 1u) {
        room->sums[warp] = begin + own;
    }
    GA_TEAM_BARRIER();
    for (uint32_t lower = 0; lower < warp; lower++) {
        begin += room->sums[lower];
    }
    for (uint32_t bin = first; bin < bins && bin < first + each; bin++) {
        uint32_t count = room->counts[bin];
        room->counts[bin] = begin;
        begin += count;
    }
    if (first < bins && first + each >= bins) {
        room->counts[bins] = begin;
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
        uint32_t to = end > begin ? GA_TEAM_ADD(sort->cursors + bin, end - begin) : 0;
        if (sort->capacity && to + (end - begin) > (bin + 1u) * sort->capacity) {
            to = bins * sort->capacity;
        }
        room->to[bin] = to - begin;
        extents[bin].begin = begin;
        extents[bin].to = room->to[bin];
    }
    GA_TEAM_BARRIER();
}

/* Copies the elements of the room to their places in the output. `each` is a constant: the elements
 * of a thread. */
GA_SIMT void ga_sharded_copy_team(void *to, uint32_t bins, uint32_t width, uint32_t each,
                                  const ga_sharded_room *room)
{
    GA_TEAM_BARRIER();
    uint32_t n = room->counts[bins];
    GA_UNROLL
    for (uint32_t k = 0; k < each; k++) {
        uint32_t i = GA_TEAM_THREAD + k * GA_TEAM_SIZE;
        if (i < n) {
            ga_sharded_store(to, room->to[room->bin_of[i]] + i,
                             ga_sharded_load(room->sorted, i, width), width);
        }
    }
    GA_TEAM_BARRIER();
}

/* Pads a bin. All threads of the team call. */
GA_SIMT void ga_sharded_pad_team(const ga_sharded_pad *pad, uint32_t bin)
{
    uint32_t end = pad->cursors[bin];
    uint32_t until = (bin + 1u) * pad->capacity;
    uint32_t pads = end < until ? until - end : 0;
    if (!pad->capacity) {
        end += pad->counts[bin];
        pads = (pad->to - end % pad->to) % pad->to;
    }
    GA_TEAM_EACH(i, pads)
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

/* Where a request of the thread goes: its bin in the upper half, and in the lower one how many
 * requests of the bin the team has seen before it. */
typedef uint32_t ga_sharded_placing;

enum {
    GA_SHARDED_BIN_SHIFT = 16,
    GA_SHARDED_NOWHERE = GA_SHARDED_BINS << GA_SHARDED_BIN_SHIFT
};

GA_SIMT uint32_t ga_sharded_index_of(ga_sharded_placing placing, const ga_sharded_room *room)
{
    return room->counts[placing >> GA_SHARDED_BIN_SHIFT] +
           (placing & ((1u << GA_SHARDED_BIN_SHIFT) - 1u));
}

/* Copies what else the requests have, of `width` bytes each, to the places of their keys. `each` is
 * a constant: the requests of a thread. */
GA_SIMT void ga_sharded_spread_team(const void *from, void *to, uint64_t first, uint32_t n,
                                    uint32_t width, uint32_t each, uint32_t bins,
                                    const ga_sharded_placing *placings, ga_sharded_room *room)
{
    GA_TEAM_OWN(uint64_t, elements, room);
    GA_UNROLL
    for (uint32_t k = 0; k < each; k++) {
        uint32_t i = GA_TEAM_THREAD + k * GA_TEAM_SIZE;
        elements[k] = i < n ? ga_sharded_load(from, first + i, width) : 0;
    }
    GA_UNROLL
    for (uint32_t k = 0; k < each; k++) {
        if (placings[k] != GA_SHARDED_NOWHERE) {
            ga_sharded_store(room->sorted, ga_sharded_index_of(placings[k], room), elements[k],
                             width);
        }
    }
    ga_sharded_copy_team(to, bins, width, each, room);
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

/* Counts the requests of each bin, and finds their places. `keys` are the thread's. */
GA_SIMT void ga_sharded_place_team(const ga_sharded_sort *sort, uint64_t first, uint32_t n,
                                   uint32_t each, const uint64_t *keys,
                                   ga_sharded_placing *placings, ga_sharded_room *room)
{
    GA_UNROLL
    for (uint32_t k = 0; k < each; k++) {
        uint32_t i = GA_TEAM_THREAD + k * GA_TEAM_SIZE;
        placings[k] = i < n ? 0 : GA_SHARDED_NOWHERE;
    }
    if (sort->combines) {
        GA_UNROLL
        for (uint32_t k = 0; k < each; k++) {
            uint32_t i = GA_TEAM_THREAD + k * GA_TEAM_SIZE;
            if (i < n && sort->indices[first + i] & GA_SHARDED_REPEATS) {
                placings[k] = GA_SHARDED_NOWHERE;
            }
        }
    }
    GA_UNROLL
    for (uint32_t k = 0; k < each; k++) {
        if (placings[k] != GA_SHARDED_NOWHERE) {
            uint32_t bin = ga_sharded_bin(&sort->division, keys[k]);
            placings[k] = bin << GA_SHARDED_BIN_SHIFT | GA_TEAM_ADD(room->counts + bin, 1u);
        }
    }
    GA_TEAM_BARRIER();
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
    GA_TEAM_OWN(uint64_t, keys, room);
    GA_TEAM_OWN(ga_sharded_placing, placings, room);
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
    ga_sharded_place_team(sort, first, n, each, keys, placings, room);
    ga_sharded_begin_team(bins, room);
    ga_sharded_reserve_team(
        sort, bins, sort->extents + first / GA_SHARDED_SORT_MOST(is_wide) * (bins + 1u), room);
    GA_UNROLL
    for (uint32_t k = 0; k < each; k++) {
        uint32_t i = GA_TEAM_THREAD + k * GA_TEAM_SIZE;
        if (placings[k] != GA_SHARDED_NOWHERE) {
            uint32_t index = ga_sharded_index_of(placings[k], room);
            ga_sharded_store(room->sorted, index, keys[k], width);
            room->bin_of[index] = (uint16_t)(placings[k] >> GA_SHARDED_BIN_SHIFT);
            sort->indices[first + i] = (uint16_t)index;
        }
    }
    ga_sharded_copy_team(sort->keys_to, bins, width, each, room);
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

/* Which bin each element of the room belongs to, from the extents. A group of threads fills in one
 * bin after the other. */
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
    for (uint32_t bin = GA_TEAM_THREAD / GA_TEAM_GROUP_SIZE; bin < bins;
         bin += GA_TEAM_SIZE / GA_TEAM_GROUP_SIZE) {
        for (uint32_t i = room->counts[bin] + GA_TEAM_THREAD % GA_TEAM_GROUP_SIZE;
             i < room->counts[bin + 1u]; i += GA_TEAM_GROUP_SIZE) {
            room->bin_of[i] = (uint16_t)bin;
        }
    }
    GA_TEAM_BARRIER();
}

/* Loads the thread's elements of an array, of 1, 4 or 8 bytes, and stores them in the order in
 * which the team has sorted them. */
GA_SIMT void ga_sharded_collect(const void *from, const uint32_t *places, uint32_t width,
                                uint32_t each, void *to, ga_sharded_room *room)
{
    GA_TEAM_OWN(uint64_t, elements, room);
    GA_UNROLL
    for (uint32_t k = 0; k < each; k++) {
        elements[k] = ga_sharded_load(from, places[k], width);
    }
    GA_UNROLL
    for (uint32_t k = 0; k < each; k++) {
        ga_sharded_store(to, GA_TEAM_THREAD + k * GA_TEAM_SIZE, elements[k], width);
    }
}

/* Loads the team's answers into its room. `each` is a constant: the answers of a thread. */
GA_SIMT void ga_sharded_collect_team(const ga_sharded_gather *gather, uint32_t width, uint32_t each,
                                     ga_sharded_room *room)
{
    GA_TEAM_OWN(uint32_t, places, room);
    uint32_t n = room->counts[gather->bins];
    GA_UNROLL
    for (uint32_t k = 0; k < each; k++) {
        uint32_t i = GA_TEAM_THREAD + k * GA_TEAM_SIZE;
        places[k] = i < n ? room->to[room->bin_of[i]] + i : 0;
    }
    if (gather->found) {
        ga_sharded_collect(gather->found_from, places, width, each, room->sorted, room);
    }
    GA_TEAM_BARRIER(); /* bins are read before results overwrite them */
    if (gather->results_from) {
        ga_sharded_collect(gather->results_from, places, 1u, each, room->results, room);
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
    GA_TEAM_OWN(uint32_t, answer_indices, room); /* loaded before they are needed */
    uint64_t block = first / GA_SHARDED_SORT_MOST(is_wide);
    GA_UNROLL
    for (uint32_t k = 0; k < each; k++) {
        uint32_t i = GA_TEAM_THREAD + k * GA_TEAM_SIZE;
        answer_indices[k] = i < n ? gather->indices[first + i] : 0;
    }
    ga_sharded_find_bins_team(gather->extents + block * (gather->bins + 1u), gather->bins, room);
    ga_sharded_collect_team(gather, width, each, room);
    if (gather->found) {
        GA_UNROLL
        for (uint32_t k = 0; k < each; k++) {
            uint32_t i = GA_TEAM_THREAD + k * GA_TEAM_SIZE;
            uint32_t repeats = answer_indices[k] & GA_SHARDED_REPEATS;
            if (i < n) {
                uint64_t found = ga_sharded_load(room->sorted, answer_indices[k] & INDEX, width);
                found = repeats && gather->repeat == GA_SHARDED_REPEAT_DELETES ? 0 : found;
                ga_sharded_store(gather->found, first + i, found, width);
            }
        }
    }
    if (gather->results_from) {
        GA_UNROLL
        for (uint32_t k = 0; k < each; k++) {
            uint32_t i = GA_TEAM_THREAD + k * GA_TEAM_SIZE;
            uint32_t result = room->results[answer_indices[k] & INDEX];
            if (answer_indices[k] & GA_SHARDED_REPEATS) {
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
    }
    GA_TEAM_BARRIER();
}

#endif
