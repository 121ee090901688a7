/* SPDX-License-Identifier: MIT
 *
 * The kernel of a batch: serves the requests of arrays in device memory, writes their results and
 * counts these. Included by gpualloc/slabhash.cuh; docs/internals/slabhash.md.
 *
 *     ga_slabhash_batch_kernel
 *       ordered tables      batch_by_lanes   each lane serves its own request (many_tile.h),
 *                                            and then takes the next of the warp's stream
 *         then              batch_append     deferred inserts that need only a slab
 *         then              batch_by_warps   all other deferred requests
 *       other tables        batch_by_warps   32 requests together, then the next 32
 *     ga_slabhash_search_kernel             searches of most kinds: search_kernel.cuh
 */
#ifndef GPUALLOC_SLABHASH_DEVICE_BATCH_KERNEL_CUH
#define GPUALLOC_SLABHASH_DEVICE_BATCH_KERNEL_CUH

#include "stream_kernel.cuh"

enum {
    GA_SLABHASH_BLOCKS = 16 /* of a launch, at most, for each multiprocessor */
};

/* Resident blocks of the kernel on a multiprocessor, where lanes take requests by themselves.
 * Measured best on an H200. */
static constexpr int ga_slabhash_resident_for(uint32_t fixed)
{
    return fixed == GA_SLABHASH_INSERT ? 6 : 7;
}

static __device__ __forceinline__ uint64_t ga_slabhash_grid_tile(void)
{
    return ((uint64_t)blockIdx.x * blockDim.x + threadIdx.x) / GA_SLABHASH_TILE;
}

static __device__ __forceinline__ uint64_t ga_slabhash_grid_tiles(void)
{
    return (uint64_t)gridDim.x * (blockDim.x / GA_SLABHASH_TILE);
}

template <uint32_t kind>
static __device__ __forceinline__ uint64_t ga_slabhash_load_element(const void *array, uint64_t i)
{
    return GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP64 ? ((const uint64_t *)array)[i]
                                                       : ((const uint32_t *)array)[i];
}

/* Issues the loads only and does not use the values, so that the warp does not stall. A missing
 * array is replaced by the keys, an index behind the end by the last request: there is no
 * branch. */
template <uint32_t kind, uint32_t fixed>
static __device__ __forceinline__ void
ga_slabhash_fetch_request(const ga_slabhash_batch &batch, uint64_t i,
                          ga_slabhash_batch_request<kind> *request)
{
    typedef typename ga_slabhash_word<kind>::type word;
    i = i < batch.count ? i : batch.count - 1u;
    request->key = ((const word *)batch.keys)[i];
    if (GA_SLABHASH_MODE(kind) != GA_SLABHASH_SET32 && ga_slabhash_may_put(fixed)) {
        request->value = ((const word *)(batch.values ? batch.values : batch.keys))[i];
    }
    if (fixed == GA_SLABHASH_ANY) {
        request->op = (batch.ops ? batch.ops : (const uint8_t *)batch.keys)[i];
    }
}

/* The operation of a fetched request; GA_SLABHASH_OP_COUNT, which is refused, if it needs a
 * value and the batch has none. */
template <uint32_t kind, uint32_t fixed>
static __device__ __forceinline__ uint32_t
ga_slabhash_op_of(const ga_slabhash_batch &batch, const ga_slabhash_batch_request<kind> &request)
{
    if (fixed != GA_SLABHASH_ANY) {
        return fixed;
    }
    uint32_t op = batch.ops ? request.op : (uint32_t)batch.op;
    bool misses = !batch.values && GA_SLABHASH_MODE(kind) != GA_SLABHASH_SET32;
    return misses && ga_slabhash_puts(op) ? (uint32_t)GA_SLABHASH_OP_COUNT : op;
}

/* For each thread of the block: how often each result occurred, and how many slots it filled. In
 * shared memory, to save registers. */
typedef struct ga_slabhash_result_counts {
    uint32_t of[GA_SLABHASH_REFUSED + 1][GA_SLABHASH_BLOCK];
    uint32_t filled[GA_SLABHASH_BLOCK];
} ga_slabhash_result_counts;

/* Stores the result of an operation and counts it; `tally` may be NULL. */
template <uint32_t kind>
static __device__ __forceinline__ void
ga_slabhash_write_answer(const ga_slabhash_batch &batch, uint64_t i, uint32_t op,
                         ga_slabhash_answer answer, ga_slabhash_result_counts *tally)
{
    if (batch.results) {
        batch.results[i] = (uint8_t)answer.result;
    }
    if (batch.found) {
        ga_slabhash_store_element(kind, batch.found, i, answer.value);
    }
    if (tally) {
        tally->of[answer.result][threadIdx.x]++;
    }
    if (tally && ga_slabhash_puts(op) && answer.result == GA_SLABHASH_ABSENT) {
        tally->filled[threadIdx.x]++;
    }
}

static __device__ __forceinline__ void ga_slabhash_begin_counts(ga_slabhash_result_counts *tally)
{
    if (!tally) {
        return;
    }
    for (uint32_t result = 0; result <= GA_SLABHASH_REFUSED; result++) {
        tally->of[result][threadIdx.x] = 0;
    }
    tally->filled[threadIdx.x] = 0;
}

/* Adds the warp's counts to `counts`, which may be NULL. */
static __device__ __forceinline__ void
ga_slabhash_add_counts(const ga_slabhash_result_counts *tally, uint64_t *counts)
{
    ga_tile warp = ga_tile_of(32);
    for (uint32_t result = 0; counts && result <= GA_SLABHASH_REFUSED; result++) {
        uint32_t n = ga_lanes_sum(warp, tally->of[result][threadIdx.x]);
        if (n && warp.lane == 0) {
            ga_post_add64_relaxed(counts + result, n); /* relaxed: read after the kernel */
        }
    }
}

/* Progress that kernels report to the host in the host's memory, so that the host never waits.
 * All accesses are relaxed: statistics, of which late ones do no harm. */
typedef struct ga_slabhash_progress {
    uint64_t filled; /* upper half: requests launched before a batch; lower half: slots filled by
                      * then */
    uint32_t full;   /* not 0: a request found no slab */
    uint32_t read;   /* slots filled; written by a copy on a stream */
} ga_slabhash_progress;

/* Where a batch's kernel reports its progress. */
typedef struct ga_slabhash_progress_settings {
    ga_slabhash_progress *progress;
    uint32_t *filled; /* device memory: slots filled by batches; NULL: not counted */
    uint32_t asked;   /* requests launched before this batch */
} ga_slabhash_progress_settings;

static __device__ __forceinline__ void
ga_slabhash_publish_filled(ga_slabhash_progress_settings settings)
{
    if (settings.filled && blockIdx.x + blockIdx.y + threadIdx.x == 0) {
        uint64_t filled = ga_load_relaxed(settings.filled); /* relaxed: see ga_slabhash_progress */
        ga_store64_relaxed_system(&settings.progress->filled,
                                  (uint64_t)settings.asked << 32 | filled);
    }
}

/* Reports the warp's share: the slots that it filled, and whether a request found no slab. */
static __device__ __forceinline__ void
ga_slabhash_publish_progress(ga_slabhash_progress_settings settings, uint32_t filled, uint32_t full)
{
    ga_tile warp = ga_tile_of(32);
    uint32_t sum = settings.filled ? ga_lanes_sum(warp, filled) : 0;
    bool needs_slab = ga_lanes_any(warp, full);
    if (sum && warp.lane == 0) {
        ga_post_add_relaxed(settings.filled, sum); /* relaxed: see ga_slabhash_progress */
    }
    if (needs_slab && warp.lane == 0) {
        ga_store_relaxed_system(&settings.progress->full, 1u); /* relaxed: see there */
    }
}

/* Serves 32 requests of a warp at a time. If `deferred` is NULL, those of the batch; else the
 * lanes' `count` deferred requests, whose numbers it has. */
template <uint32_t kind, uint32_t fixed>
static __device__ __forceinline__ void
ga_slabhash_batch_by_warps(ga_slabhash_session *session, const ga_slabhash_batch *batch,
                           const uint64_t *deferred, uint32_t count,
                           ga_slabhash_result_counts *tally)
{
    ga_tile warp = ga_tile_of(32);
    uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    uint64_t step = deferred ? 0 : (uint64_t)gridDim.x * blockDim.x;
    for (;; i += step) {
        bool asks = deferred ? count != 0 : i < batch->count;
        if (!ga_lanes_any(warp, asks ? 1u : 0u)) {
            return;
        }
        if (deferred && asks) {
            i = deferred[--count * GA_SLABHASH_BLOCK];
        }
        ga_slabhash_batch_request<kind> request = {};
        ga_slabhash_fetch_request<kind, fixed>(*batch, i, &request);
        uint32_t op = ga_slabhash_op_of<kind, fixed>(*batch, request);
        uint64_t value = batch->values ? request.value : 0;
        ga_tile_sync(warp); /* reconverges the warp: its tiles run in step from here on */
        ga_slabhash_answer answer = ga_slabhash_lanes<kind, fixed, true>(
            session, asks, op, request.key, value, (uint32_t)batch->how);
        if (asks) {
            ga_slabhash_write_answer<kind>(*batch, i, op, answer, tally);
        }
        ga_tile_sync(warp);
    }
}

/* Outlined copy for kinds whose tables are ordered in most cases. */
template <uint32_t kind, uint32_t fixed>
static __device__ __noinline__ void
ga_slabhash_batch_by_warps_outlined(ga_slabhash_session *session, const ga_slabhash_batch *batch,
                                    const uint64_t *deferred, uint32_t count,
                                    ga_slabhash_result_counts *tally)
{
    ga_slabhash_batch_by_warps<kind, fixed>(session, batch, deferred, count, tally);
}

enum {
    GA_SLABHASH_DEFER_MAX = 2,  /* requests that a lane may defer before it stops taking new ones */
    GA_SLABHASH_DEFER_LANES = 8 /* lanes that have deferred the maximum, before the warp serves
                                 * all that it has deferred */
};

/* Deferred requests, in shared memory: their numbers, and the slab behind which a slab is
 * needed, or NULL. */
typedef struct ga_slabhash_deferred {
    uint64_t number[GA_SLABHASH_DEFER_MAX][GA_SLABHASH_BLOCK];
    uint32_t *last_slab[GA_SLABHASH_DEFER_MAX][GA_SLABHASH_BLOCK];
} ga_slabhash_deferred;

/* Appends slabs for those of the lanes' `count` deferred requests that need only a slab. Returns
 * the number that the lane still defers. If several lanes need a slab behind the same one, one
 * lane links its slab, and the others find room in it later. */
template <uint32_t kind, uint32_t fixed>
static __device__ __noinline__ uint32_t ga_slabhash_batch_append(ga_slabhash_session *session,
                                                                 const ga_slabhash_batch *batch,
                                                                 ga_slabhash_deferred *deferred,
                                                                 uint32_t count,
                                                                 ga_slabhash_result_counts *tally)
{
    uint32_t remaining = 0;
    for (uint32_t at = 0; ga_lanes_any(ga_tile_of(32), at < count ? 1u : 0u); at++) {
        bool asks = at < count;
        uint64_t i = asks ? deferred->number[at][threadIdx.x] : 0;
        uint64_t last_slab = asks ? (uint64_t)(uintptr_t)deferred->last_slab[at][threadIdx.x] : 0;
        ga_slabhash_batch_request<kind> request = {};
        ga_slabhash_fetch_request<kind, fixed>(*batch, i, &request);
        uint64_t key = request.key, value = batch->values ? request.value : 0;
        ga_slabhash_pairs pairs = {(uint32_t)key,       (uint32_t)(key >> 32),
                                   (uint32_t)value,     (uint32_t)(value >> 32),
                                   (uint32_t)last_slab, (uint32_t)(last_slab >> 32)};
        uint32_t lanes = ga_lanes_nonzero(session->tile, last_slab ? 1u : 0u);
        uint32_t done = ga_slabhash_append_all(kind, session->table, session->tile, lanes, &pairs,
                                               &session->claimed);
        if (done >> session->tile.lane & 1u) {
            ga_slabhash_write_answer<kind>(*batch, i, GA_SLABHASH_INSERT,
                                           ga_slabhash_answer_of(GA_SLABHASH_ABSENT, 0), tally);
        } else if (asks) {
            deferred->number[remaining++][threadIdx.x] = i;
        }
        ga_tile_sync(ga_tile_of(32)); /* reconverges the warp: its tiles run in step from here on */
    }
    return remaining;
}

/* A lane takes a request. True if it is served by the lane; otherwise its state is REFUSED or
 * DEFERRED already. */
template <uint32_t kind, uint32_t fixed>
static __device__ __forceinline__ bool
ga_slabhash_batch_begin(ga_slabhash_view table, const ga_slabhash_batch &batch,
                        const ga_slabhash_batch_request<kind> &request,
                        ga_slabhash_requests *requests)
{
    uint64_t key = request.key, value = batch.values ? request.value : 0;
    uint32_t op = ga_slabhash_op_of<kind, fixed>(batch, request);
    bool allowed = ga_slabhash_supports(kind, op) && ga_slabhash_allowed(kind, op, key, value);
    requests->key = (uint32_t)key;
    requests->key_high = (uint32_t)(key >> 32);
    requests->value = (uint32_t)value;
    requests->value_high = (uint32_t)(value >> 32);
    requests->op = op;
    requests->result = allowed ? (uint32_t)GA_SLABHASH_DEFERRED : (uint32_t)GA_SLABHASH_REFUSED;
    requests->was = requests->was_high = 0;
    ga_slabhash_requests_begin(table, true, requests, ga_tile_of(GA_SLABHASH_TILE).lane,
                               GA_SLABHASH_HASH(table, key));
    return allowed && ga_slabhash_is_served(kind, op);
}

/* Serves requests of the warp's stream from `at` on, in an ordered table. Ends when the stream
 * ends, or when GA_SLABHASH_DEFER_LANES lanes have deferred all they may, because ever fewer
 * lanes would do the rest. */
template <uint32_t kind, uint32_t fixed>
static __device__ __forceinline__ void
ga_slabhash_batch_by_lanes(ga_slabhash_view table, const ga_slabhash_batch &batch,
                           ga_slabhash_ring<kind, fixed> *ring, uint32_t end, uint32_t *at,
                           ga_slabhash_deferred *deferred, uint32_t *deferred_count,
                           ga_slabhash_result_counts *tally)
{
    ga_tile tile = ga_tile_abreast(GA_SLABHASH_TILE), warp = ga_tile_of(32);
    ga_slabhash_requests requests = {};
    uint32_t stream_index = 0;
    bool asks = false;
    for (;;) {
        ga_slabhash_batch_request<kind> request = {};
        uint32_t failed;
        bool waits = *deferred_count >= GA_SLABHASH_DEFER_MAX;
        bool goes_on =
            *at < end && ga_bits_count(ga_lanes_nonzero(warp, waits)) < GA_SLABHASH_DEFER_LANES;
        bool served = asks;
        bool begins = ga_slabhash_stream_next<kind, fixed>(
            batch, ring, end, at, goes_on && !asks && !waits, &stream_index, &request);
        asks = asks || begins;
        if (!ga_lanes_any(warp, asks ? 1u : 0u)) {
            return;
        }
        if (begins) {
            served = ga_slabhash_batch_begin<kind, fixed>(table, batch, request, &requests);
        }
        uint32_t asking = ga_lanes_nonzero(tile, served ? 1u : 0u);
        uint32_t ongoing =
            ga_slabhash_serve_step(kind, fixed, table, tile, asking, &requests, &failed);
        if (asks && !((ongoing | failed) >> tile.lane & 1u)) {
            uint64_t i = ga_slabhash_stream_number(stream_index);
            asks = false;
            if (requests.result >= GA_SLABHASH_DEFERRED) {
                bool needs_slab = requests.result == GA_SLABHASH_NEEDS_SLAB;
                deferred->number[*deferred_count][threadIdx.x] = i;
                deferred->last_slab[*deferred_count][threadIdx.x] =
                    needs_slab ? ga_slabhash_requests_row(&requests, tile.lane) : NULL;
                ++*deferred_count;
            } else {
                uint64_t was = requests.was | (uint64_t)requests.was_high << 32;
                uint32_t op = fixed < GA_SLABHASH_OP_COUNT ? fixed : requests.op;
                ga_slabhash_write_answer<kind>(batch, i, op,
                                               ga_slabhash_answer_of(requests.result, was), tally);
            }
        }
    }
}

/* Resident blocks on a multiprocessor; this bounds the registers of a thread. */
template <uint32_t kind, uint32_t fixed> struct ga_slabhash_resident {
    static constexpr int blocks = GA_SLABHASH_IS_UNIQUE_FIXED(kind)
                                      ? ga_slabhash_resident_for(fixed)
                                  : fixed == GA_SLABHASH_SEARCH ? 8
                                                                : 6;
};

template <uint32_t kind, uint32_t fixed>
static __global__ void __launch_bounds__(GA_SLABHASH_BLOCK,
                                         (ga_slabhash_resident<kind, fixed>::blocks))
    ga_slabhash_batch_kernel(ga_slabhash_view table,
                             const __grid_constant__ ga_slabhash_batches batches, uint64_t *counts,
                             ga_slabhash_progress_settings settings)
{
    const ga_slabhash_batch &batch = batches.of[blockIdx.y];
    __shared__ ga_slabhash_deferred deferred;
    __shared__ ga_slabhash_result_counts tallies;
    __shared__ ga_slabhash_ring<kind, fixed> rings[GA_SLABHASH_BLOCK / 32];
    ga_slabhash_result_counts *tally = counts || fixed != GA_SLABHASH_SEARCH ? &tallies : NULL;
    ga_slabhash_publish_filled(settings);
    ga_slabhash_session session = ga_slabhash_session_of<kind>(table);
    ga_slabhash_begin_counts(tally);
    if (!ga_slabhash_may_be_ordered(kind)) {
        ga_slabhash_batch_by_warps<kind, fixed>(&session, &batch, NULL, 0, tally);
    } else if (ga_slabhash_is_ordered(table)) {
        ga_slabhash_ring<kind, fixed> *ring = rings + threadIdx.x / 32u;
        uint32_t at = 0, end = ga_slabhash_stream_end(batch);
        ga_slabhash_stream_begin<kind, fixed>(batch, ring);
        do {
            uint32_t count = 0;
            ga_slabhash_batch_by_lanes<kind, fixed>(table, batch, ring, end, &at, &deferred, &count,
                                                    tally);
            count =
                ga_slabhash_batch_append<kind, fixed>(&session, &batch, &deferred, count, tally);
            ga_slabhash_batch_by_warps_outlined<kind, fixed>(
                &session, &batch, deferred.number[0] + threadIdx.x, count, tally);
        } while (at < end);
    } else {
        ga_slabhash_batch_by_warps_outlined<kind, fixed>(&session, &batch, NULL, 0, tally);
    }
    if (fixed != GA_SLABHASH_SEARCH) {
        ga_slabhash_publish_progress(settings, tally->filled[threadIdx.x],
                                     tally->of[GA_SLABHASH_FULL][threadIdx.x]);
    }
    ga_slabhash_add_counts(tally, counts);
    ga_slabhash_session_end(&session);
}

#endif
