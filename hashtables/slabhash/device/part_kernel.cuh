/* SPDX-License-Identifier: MIT
 *
 * Partitions a batch: sorts its requests by the part of the table that holds their homes, so that
 * all requests for a part are served while it is in the cache. Included by gpualloc/slabhash.cuh;
 * docs/internals/slabhash.md.
 *
 * STRUCTURE  A part is a range of buckets. The number of parts is a power of two, so that a hash's
 *            upper bits are its part. Three kernels:
 *
 *              count   counts the requests of each part: cursors[part]
 *              begin   prefix sum: cursors[part] becomes the index of the part's first request
 *              place   each block sorts some thousand requests in shared memory, reserves room
 *                      behind each cursor, and copies runs of neighbours
 *
 * INVARIANT  Each request is copied once, to an index of its part. Which one is left to chance, as
 *            is the order in which a batch is carried out.
 */
#ifndef GPUALLOC_SLABHASH_DEVICE_PART_KERNEL_CUH
#define GPUALLOC_SLABHASH_DEVICE_PART_KERNEL_CUH

#include "batch_kernel.cuh"

enum {
    GA_SLABHASH_PARTS = 256,                    /* at most */
    GA_SLABHASH_PART_BLOCK = GA_SLABHASH_PARTS, /* threads, one for each part */
    GA_SLABHASH_PART_BYTES = 16384              /* of keys that a block sorts at once */
};

/* A batch and the arrays to which it is copied. `values` and `ops` are NULL if it has none. */
typedef struct ga_slabhash_sorting {
    uint64_t count;
    const void *keys, *values;
    const uint8_t *ops;
    void *keys_to, *values_to;
    uint8_t *ops_to;
    uint32_t *cursors; /* one for each part */
    uint32_t parts;    /* a power of two, at least 2 */
    uint32_t shift;    /* a hash shifted right by this is its part */
} ga_slabhash_sorting;

static __device__ __forceinline__ uint32_t ga_slabhash_part_of(ga_slabhash_view table,
                                                               const ga_slabhash_sorting &sorting,
                                                               uint64_t key)
{
    return (uint32_t)(GA_SLABHASH_HASH(table, key) >> sorting.shift);
}

/* Counts the requests of each part. The cursors are 0 before. */
template <typename word>
static __global__ void __launch_bounds__(GA_SLABHASH_PART_BLOCK)
    ga_slabhash_part_count_kernel(ga_slabhash_view table, ga_slabhash_sorting sorting)
{
    __shared__ uint32_t counts[GA_SLABHASH_PARTS];
    const word *keys = (const word *)sorting.keys;
    for (uint32_t part = threadIdx.x; part < sorting.parts; part += blockDim.x) {
        counts[part] = 0;
    }
    __syncthreads();
    uint64_t step = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < sorting.count;
         i += step) {
        atomicAdd(counts + ga_slabhash_part_of(table, sorting, keys[i]), 1u);
    }
    __syncthreads();
    for (uint32_t part = threadIdx.x; part < sorting.parts; part += blockDim.x) {
        if (counts[part]) {
            ga_post_add_relaxed(sorting.cursors + part, counts[part]); /* relaxed: read by the next
                                                                          kernel */
        }
    }
}

/* Exclusive prefix sum over the block. All threads call; `room` has an element for each. */
static __device__ __forceinline__ uint32_t ga_slabhash_sum_before(uint32_t *room, uint32_t own)
{
    room[threadIdx.x] = own;
    __syncthreads();
    for (uint32_t apart = 1; apart < blockDim.x; apart *= 2) {
        uint32_t before = threadIdx.x >= apart ? room[threadIdx.x - apart] : 0;
        __syncthreads();
        room[threadIdx.x] += before;
        __syncthreads();
    }
    return room[threadIdx.x] - own;
}

/* Where the requests of each part begin. One block. */
static __global__ void __launch_bounds__(GA_SLABHASH_PARTS)
    ga_slabhash_part_begin_kernel(ga_slabhash_sorting sorting)
{
    __shared__ uint32_t room[GA_SLABHASH_PARTS];
    uint32_t part = threadIdx.x;
    uint32_t own = part < sorting.parts ? sorting.cursors[part] : 0;
    uint32_t begin = ga_slabhash_sum_before(room, own);
    if (part < sorting.parts) {
        sorting.cursors[part] = begin;
    }
}

/* The requests that a block sorts at once, in its shared memory. */
template <typename word> struct ga_slabhash_part_room {
    static constexpr uint32_t count = GA_SLABHASH_PART_BYTES / sizeof(word); /* requests */
    word keys[count], values[count];
    uint8_t ops[count], part[count];
    uint32_t begins[GA_SLABHASH_PARTS]; /* index in here of each part's first request */
    uint32_t to[GA_SLABHASH_PARTS];     /* index in the output, less the index in here */
    uint32_t sums[GA_SLABHASH_PARTS];   /* requests of each part; later the next free index in
                                         * here */
};

/* Sorts `n` requests from number `first` on by part into the block's room. */
template <typename word>
static __device__ __forceinline__ void
ga_slabhash_part_sort(ga_slabhash_view table, const ga_slabhash_sorting &sorting, uint64_t first,
                      uint32_t n, ga_slabhash_part_room<word> *room)
{
    const word *keys = (const word *)sorting.keys + first;
    uint32_t part = threadIdx.x;
    room->sums[part] = 0;
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < n; i += GA_SLABHASH_PART_BLOCK) {
        atomicAdd(room->sums + ga_slabhash_part_of(table, sorting, keys[i]), 1u);
    }
    __syncthreads();
    uint32_t own = room->sums[part];
    __syncthreads();
    uint32_t begin = ga_slabhash_sum_before(room->begins, own);
    /* relaxed: only reserves indices */
    uint32_t to = own ? ga_add_relaxed(sorting.cursors + part, own) : 0;
    __syncthreads();
    room->to[part] = to - begin;
    room->sums[part] = begin;
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < n; i += GA_SLABHASH_PART_BLOCK) {
        word key = keys[i]; /* loaded again, from the L1 cache */
        uint32_t its_part = ga_slabhash_part_of(table, sorting, key);
        uint32_t at = atomicAdd(room->sums + its_part, 1u);
        room->keys[at] = key;
        room->part[at] = (uint8_t)its_part;
        if (sorting.values) {
            room->values[at] = ((const word *)sorting.values)[first + i];
        }
        if (sorting.ops) {
            room->ops[at] = sorting.ops[first + i];
        }
    }
    __syncthreads();
}

/* Copies the block's room to the output: runs of a part's requests to consecutive indices. */
template <typename word>
static __device__ __forceinline__ void
ga_slabhash_part_copy(const ga_slabhash_sorting &sorting, uint32_t n,
                      const ga_slabhash_part_room<word> *room)
{
    for (uint32_t i = threadIdx.x; i < n; i += GA_SLABHASH_PART_BLOCK) {
        uint32_t to = room->to[room->part[i]] + i;
        ((word *)sorting.keys_to)[to] = room->keys[i];
        if (sorting.values) {
            ((word *)sorting.values_to)[to] = room->values[i];
        }
        if (sorting.ops) {
            sorting.ops_to[to] = room->ops[i];
        }
    }
    __syncthreads();
}

/* Copies all requests to the ranges of their parts. In the end each cursor is where the next
 * part begins. */
template <typename word>
static __global__ void __launch_bounds__(GA_SLABHASH_PART_BLOCK)
    ga_slabhash_part_place_kernel(ga_slabhash_view table, ga_slabhash_sorting sorting)
{
    __shared__ ga_slabhash_part_room<word> room;
    const uint64_t each = ga_slabhash_part_room<word>::count;
    for (uint64_t first = blockIdx.x * each; first < sorting.count; first += gridDim.x * each) {
        uint64_t left = sorting.count - first;
        uint32_t n = (uint32_t)(left < each ? left : each);
        ga_slabhash_part_sort(table, sorting, first, n, &room);
        ga_slabhash_part_copy(sorting, n, &room);
    }
}

#endif
