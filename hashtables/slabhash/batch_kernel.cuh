/* SPDX-License-Identifier: MIT
 *
 * The kernel of a batch: the requests of arrays in device memory, their answers, and how many there were
 * of each. For gpualloc/slabhash.cuh, which includes it; docs/slabhash.md.
 *
 * STRUCTURE  Tables that are ordered (near_tile.h): each lane serves one request, and begins with the
 *            next of its warp's stream as soon as it has the answer. Others: warps serve 32
 *            requests together, and the next 32. Searches of most kinds: search_kernel.cuh.
 */
#ifndef GPUALLOC_SLABHASH_BATCH_KERNEL_CUH
#define GPUALLOC_SLABHASH_BATCH_KERNEL_CUH

#include "stream_kernel.cuh"

enum {
    GA_SLABHASH_BLOCK = 128,               /* threads */
    GA_SLABHASH_BLOCKS = 16,               /* of a launch, for each multiprocessor, at most */
    GA_SLABHASH_RESIDENT = 8,              /* on one at once, where lanes go on by themselves */
    GA_SLABHASH_ANY = GA_SLABHASH_OP_COUNT /* operation of a kernel: what the batch says */
};

static __device__ __forceinline__ uint64_t ga_slabhash_grid_tile(void)
{
    return ((uint64_t)blockIdx.x * blockDim.x + threadIdx.x) / GA_SLABHASH_TILE;
}

static __device__ __forceinline__ uint64_t ga_slabhash_grid_tiles(void)
{
    return (uint64_t)gridDim.x * (blockDim.x / GA_SLABHASH_TILE);
}

template <uint32_t kind>
static __device__ __forceinline__ uint64_t ga_slabhash_of(const void *array, uint64_t i)
{
    return GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP64 ? ((const uint64_t *)array)[i]
                                                       : ((const uint32_t *)array)[i];
}

/* What the arrays of a batch have for a request: `op` as it stands there. */
template <uint32_t kind> struct ga_slabhash_request {
    typename ga_slabhash_word<kind>::type key, value;
    uint32_t op;
};

/* Loaded, and nothing made of it, so that nobody waits for it yet. Where there is no array another
 * stands in, and behind the last request that one: there is no branch. */
template <uint32_t kind, uint32_t fixed>
static __device__ __forceinline__ void ga_slabhash_fetch(const ga_slabhash_batch &batch, uint64_t i,
                                                         ga_slabhash_request<kind> *request)
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

/* The operation of a request that was fetched: none where its value is missing. */
template <uint32_t kind, uint32_t fixed>
static __device__ __forceinline__ uint32_t
ga_slabhash_op_of(const ga_slabhash_batch &batch, const ga_slabhash_request<kind> &request)
{
    if (fixed != GA_SLABHASH_ANY) {
        return fixed;
    }
    uint32_t op = batch.ops ? request.op : (uint32_t)batch.op;
    bool misses = !batch.values && GA_SLABHASH_MODE(kind) != GA_SLABHASH_SET32;
    return misses && ga_slabhash_puts(op) ? (uint32_t)GA_SLABHASH_OP_COUNT : op;
}

/* How often each result came to each thread of the block, and how many places it filled: in shared
 * memory, since registers are few. */
typedef struct ga_slabhash_counted {
    uint32_t of[GA_SLABHASH_REFUSED + 1][GA_SLABHASH_BLOCK];
    uint32_t placed[GA_SLABHASH_BLOCK];
} ga_slabhash_counted;

/* Write the answer to the operation down; `tally` may be NULL. */
template <uint32_t kind>
static __device__ __forceinline__ void
ga_slabhash_answers(const ga_slabhash_batch &batch, uint64_t i, uint32_t op,
                    ga_slabhash_answer answer, ga_slabhash_counted *tally)
{
    if (batch.results) {
        batch.results[i] = (uint8_t)answer.result;
    }
    if (batch.found) {
        ga_slabhash_write(kind, batch.found, i, answer.value);
    }
    if (tally) {
        tally->of[answer.result][threadIdx.x]++;
    }
    if (tally && ga_slabhash_puts(op) && answer.result == GA_SLABHASH_ABSENT) {
        tally->placed[threadIdx.x]++;
    }
}

static __device__ __forceinline__ void ga_slabhash_begin_counts(ga_slabhash_counted *tally)
{
    if (!tally) {
        return;
    }
    for (uint32_t result = 0; result <= GA_SLABHASH_REFUSED; result++) {
        tally->of[result][threadIdx.x] = 0;
    }
    tally->placed[threadIdx.x] = 0;
}

/* The warp adds them up; `counts` may be NULL. */
static __device__ __forceinline__ void ga_slabhash_add_counts(const ga_slabhash_counted *tally,
                                                              uint64_t *counts)
{
    ga_tile warp = ga_tile_of(32);
    for (uint32_t result = 0; counts && result <= GA_SLABHASH_REFUSED; result++) {
        uint32_t n = ga_lanes_sum(warp, tally->of[result][threadIdx.x]);
        if (n && warp.lane == 0) {
            ga_post_add64_relaxed(counts + result, n); /* relaxed: read after the kernel */
        }
    }
}

/* What the host is told without being waited for: in its own memory, which kernels write. All
 * relaxed: figures, of which late ones do no harm. */
typedef struct ga_slabhash_news {
    uint64_t placed; /* above: requests asked before some batch; below: places filled by then */
    uint32_t full;   /* not 0: something found no slab */
    uint32_t read;   /* by a copy: places filled */
} ga_slabhash_news;

/* For a batch's kernel: where it tells what. */
typedef struct ga_slabhash_teller {
    ga_slabhash_news *news;
    uint32_t *placed; /* of the device's: places filled by batches; NULL: not counted */
    uint32_t asked;   /* requests before this batch */
} ga_slabhash_teller;

static __device__ __forceinline__ void ga_slabhash_tell_placed(ga_slabhash_teller teller)
{
    if (teller.placed && blockIdx.x == 0 && threadIdx.x == 0) {
        uint64_t placed = ga_load_relaxed(teller.placed); /* relaxed: see ga_slabhash_news */
        ga_store64_relaxed_system(&teller.news->placed, (uint64_t)teller.asked << 32 | placed);
    }
}

/* The warp's share: places that it has filled, and whether it found no slab. */
static __device__ __forceinline__ void ga_slabhash_tell_more(ga_slabhash_teller teller,
                                                             uint32_t placed, uint32_t full)
{
    ga_tile warp = ga_tile_of(32);
    uint32_t sum = teller.placed ? ga_lanes_sum(warp, placed) : 0;
    bool lacks = ga_lanes_any(warp, full);
    if (sum && warp.lane == 0) {
        ga_post_add_relaxed(teller.placed, sum); /* relaxed: see ga_slabhash_news */
    }
    if (lacks && warp.lane == 0) {
        ga_store_relaxed_system(&teller.news->full, 1u); /* relaxed: see there */
    }
}

/* Tables without an order: warps serve 32 requests of the batch, and the next 32. */
template <uint32_t kind, uint32_t fixed>
static __device__ __forceinline__ void ga_slabhash_batch_abreast(ga_slabhash_turn *turn,
                                                                 const ga_slabhash_batch *batch,
                                                                 ga_slabhash_counted *tally)
{
    ga_tile warp = ga_tile_of(32);
    uint64_t thread = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    uint64_t step = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t first = thread - warp.lane; first < batch->count; first += step) {
        uint64_t i = first + warp.lane;
        bool asks = i < batch->count;
        ga_slabhash_request<kind> request = {};
        ga_slabhash_fetch<kind, fixed>(*batch, i, &request);
        uint32_t op = ga_slabhash_op_of<kind, fixed>(*batch, request);
        uint64_t value = batch->values ? request.value : 0;
        ga_tile_sync(warp); /* its tiles go on abreast */
        ga_slabhash_answer answer = ga_slabhash_lanes<kind, fixed, true>(
            turn, asks, op, request.key, value, (uint32_t)batch->how);
        if (asks) {
            ga_slabhash_answers<kind>(*batch, i, op, answer, tally);
        }
    }
    ga_tile_sync(warp);
}

/* The same as a function of its own, for kinds of which most tables have an order. */
template <uint32_t kind, uint32_t fixed>
static __device__ __noinline__ void ga_slabhash_batch_apart(ga_slabhash_turn *turn,
                                                            const ga_slabhash_batch *batch,
                                                            ga_slabhash_counted *tally)
{
    ga_slabhash_batch_abreast<kind, fixed>(turn, batch, tally);
}

/* The requests whose numbers the lanes have left, `count` of each, one by one. */
template <uint32_t kind, uint32_t fixed>
static __device__ __noinline__ void
ga_slabhash_batch_left(ga_slabhash_turn *turn, const ga_slabhash_batch *batch, const uint64_t *left,
                       uint32_t count, ga_slabhash_counted *tally)
{
    ga_tile warp = ga_tile_of(32);
    while (ga_lanes_any(warp, count)) {
        bool asks = count != 0;
        count -= asks ? 1u : 0u;
        uint64_t i = asks ? left[count * GA_SLABHASH_BLOCK] : 0;
        ga_slabhash_request<kind> request = {};
        ga_slabhash_answer mine = {};
        ga_slabhash_fetch<kind, fixed>(*batch, i, &request);
        uint32_t op = ga_slabhash_op_of<kind, fixed>(*batch, request);
        uint64_t value = batch->values ? request.value : 0;
        ga_slabhash_in_turn<kind, fixed>(turn, asks, op, request.key, value, (uint32_t)batch->how,
                                         &mine);
        ga_tile_sync(warp);
        if (asks) {
            ga_slabhash_answers<kind>(*batch, i, op, mine, tally);
        }
    }
}

enum {
    GA_SLABHASH_LEFT = 4 /* requests that a lane leaves for later before it waits for the others */
};

/* A lane begins with request i, whose key it has: whether that is served lane by lane. Else its result
 * says what becomes of it. */
template <uint32_t kind, uint32_t fixed>
static __device__ __forceinline__ bool
ga_slabhash_batch_begin(ga_slabhash_view table, const ga_slabhash_batch &batch, uint64_t i,
                        uint64_t key, ga_slabhash_many *many)
{
    ga_slabhash_request<kind> request = {};
    ga_slabhash_fetch<kind, fixed>(batch, i, &request);
    uint64_t value = batch.values ? request.value : 0;
    uint32_t op = ga_slabhash_op_of<kind, fixed>(batch, request);
    bool allowed = ga_slabhash_has(kind, op) && ga_slabhash_allowed(kind, op, key, value);
    many->key = (uint32_t)key;
    many->key_high = (uint32_t)(key >> 32);
    many->value = (uint32_t)value;
    many->value_high = (uint32_t)(value >> 32);
    many->op = op;
    many->result = allowed ? (uint32_t)GA_SLABHASH_LATER : (uint32_t)GA_SLABHASH_REFUSED;
    many->was = many->was_high = 0;
    ga_slabhash_many_begin(table, many, ga_tile_of(GA_SLABHASH_TILE).lane,
                           GA_SLABHASH_HASH(table, key));
    return allowed && ga_slabhash_is_served(kind, op);
}

/* Requests of the warp's stream, in an ordered table: a lane begins with the next as soon as it has the
 * answer to the one before, whatever the other lanes are at. Until none is left, but that a lane
 * begins with no more once so many of its own are for later. */
template <uint32_t kind, uint32_t fixed>
static __device__ __forceinline__ void
ga_slabhash_batch_some(ga_slabhash_view table, const ga_slabhash_batch &batch,
                       ga_slabhash_stream<kind> *stream, uint64_t *left, uint32_t *left_count,
                       ga_slabhash_counted *tally)
{
    ga_tile tile = ga_tile_abreast(GA_SLABHASH_TILE);
    ga_slabhash_many many = {};
    uint64_t i = 0;
    bool asks = false;
    for (;;) {
        uint64_t key = 0;
        uint32_t failed;
        bool begins = !asks && *left_count < GA_SLABHASH_LEFT;
        bool served = asks;
        ga_slabhash_stream_next<kind>(batch, stream, begins, &i, &key);
        if (begins) {
            asks = i < batch.count;
            served = ga_slabhash_batch_begin<kind, fixed>(table, batch, i, key, &many) && asks;
        }
        if (!ga_lanes_any(tile, asks ? 1u : 0u)) {
            return;
        }
        uint32_t asking = ga_lanes_nonzero(tile, served ? 1u : 0u);
        uint32_t on = ga_slabhash_serve_step(kind, fixed, table, tile, asking, &many, &failed);
        if (asks && !((on | failed) >> tile.lane & 1u)) {
            asks = false;
            if (many.result == GA_SLABHASH_LATER) {
                left[(*left_count)++ * GA_SLABHASH_BLOCK] = i;
            } else {
                uint64_t was = many.was | (uint64_t)many.was_high << 32;
                uint32_t op = fixed < GA_SLABHASH_OP_COUNT ? fixed : many.op;
                ga_slabhash_answers<kind>(batch, i, op, ga_slabhash_say(many.result, was), tally);
            }
        }
    }
}

/* Blocks on a multiprocessor, which the registers are for. */
template <uint32_t kind, uint32_t fixed> struct ga_slabhash_resident {
    static constexpr int blocks =
        fixed == GA_SLABHASH_SEARCH || !(GA_SLABHASH_IS_MULTI(kind) || GA_SLABHASH_IS_GROWING(kind))
            ? GA_SLABHASH_RESIDENT
            : 6;
};

template <uint32_t kind, uint32_t fixed>
static __global__ void __launch_bounds__(GA_SLABHASH_BLOCK,
                                         (ga_slabhash_resident<kind, fixed>::blocks))
    ga_slabhash_batch_kernel(ga_slabhash_view table,
                             const __grid_constant__ ga_slabhash_batch batch, uint64_t *counts,
                             ga_slabhash_teller teller)
{
    __shared__ uint64_t left[GA_SLABHASH_LEFT * GA_SLABHASH_BLOCK];
    __shared__ ga_slabhash_counted tallies;
    ga_slabhash_counted *tally = counts || fixed != GA_SLABHASH_SEARCH ? &tallies : NULL;
    ga_slabhash_tell_placed(teller);
    ga_slabhash_turn turn = ga_slabhash_turn_of<kind>(table);
    ga_slabhash_begin_counts(tally);
    if (!ga_slabhash_may_be_near(kind)) {
        ga_slabhash_batch_abreast<kind, fixed>(&turn, &batch, tally);
    } else if (ga_slabhash_is_ordered(table)) {
        ga_slabhash_stream<kind> stream = ga_slabhash_stream_begin<kind>(batch);
        do {
            uint32_t count = 0;
            ga_slabhash_batch_some<kind, fixed>(table, batch, &stream, left + threadIdx.x, &count,
                                                tally);
            ga_slabhash_batch_left<kind, fixed>(&turn, &batch, left + threadIdx.x, count, tally);
        } while (ga_slabhash_stream_goes_on<kind>(batch, stream));
    } else {
        ga_slabhash_batch_apart<kind, fixed>(&turn, &batch, tally);
    }
    if (fixed != GA_SLABHASH_SEARCH) {
        ga_slabhash_tell_more(teller, tally->placed[threadIdx.x],
                              tally->of[GA_SLABHASH_FULL][threadIdx.x]);
    }
    ga_slabhash_add_counts(tally, counts);
    ga_slabhash_turn_end(&turn);
}

#endif
