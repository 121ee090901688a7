/* SPDX-License-Identifier: MIT
 *
 * The rows of a product, by persistent blocks. Part of device_code.cu.
 *
 * STRUCTURE  Blocks take pieces in their order. Of a piece of whole rows, each tile of the block
 *            computes one row, in a table of its own in shared memory. A large row is a piece, and
 *            is computed by all tiles: in one table, which is cut into windows of columns, one
 *            after another, if the row does not fit; or, if the row is too large for that, or its
 *            columns are close together, with a bitmap of them (bitmap.cuh) in shared memory, or
 *            for a wide row in device memory. A row that is expected to fit into the table of a
 *            tile, but does not, is computed in windows.
 *
 * INVARIANT  Tables and bitmaps are empty between pieces. A window that is no wider than two thirds
 *            of the slots fits.
 *
 * ORDER      order_tile.h gives the pieces their positions; the vectors may grow meanwhile. A block
 *            stores the length of its piece before it waits for the position, so that later pieces
 *            wait for its length only; and mostly it defers the piece (deferred_of_kernel.cuh). If
 *            the tables have no room for all of the piece, it is computed twice: first for its
 *            length. XT: wide rows use a bitmap in device memory in their order, each after the one
 *            before has cleared it.
 *
 * PROGRESS   As order_tile.h; a wide row waits for the turn of an earlier one. A block that finds
 *            no memory stops the kernel: no block takes another piece, and those that wait for a
 *            position get none.
 */
#ifndef GPUALLOC_SPGEMM_DEVICE_ROWS_KERNEL_CUH
#define GPUALLOC_SPGEMM_DEVICE_ROWS_KERNEL_CUH

#include "../order_tile.h"
#include "sort_tile.cuh"
#include "values_tile.cuh"
#include "work.h"

#define GA_SPGEMM_RESIDENT 4u  /* blocks of a multiprocessor for which there are registers */
#define GA_SPGEMM_PROBES   16u /* of a window that may not fit */
#define GA_SPGEMM_NO_FIT   0xffffffffu
#define GA_SPGEMM_NO_ROOM  0xffffffffu
#define GA_SPGEMM_NOWHERE  (~(uint64_t)1) /* no position: the kernel has stopped */
#define GA_SPGEMM_UNPLACED (~(uint64_t)2) /* a position that is not known yet */
#define GA_SPGEMM_COUNTS   (~(uint64_t)3) /* no position: entries are counted, not stored */
#define GA_SPGEMM_CROWDED  (~(uint64_t)4) /* no position, and no room for a deferred piece */

/* Uses of the shared memory. Each leaves it as it needs it: empty. */
enum {
    GA_SPGEMM_NOTHING,
    GA_SPGEMM_TABLES, /* of tiles */
    GA_SPGEMM_WINDOW, /* a table for all threads */
    GA_SPGEMM_BITMAP
};

/* A piece that waits for its position: its rows, how many entries they have, and where these are in
 * the block's ring. `position` is GA_SPGEMM_UNPLACED until ga_spgemm_find_ready() has found it. */
typedef struct ga_spgemm_waiting {
    uint64_t piece, row, position;
    uint32_t rows, length, at;
} ga_spgemm_waiting;

/* What the warps of a block tell each other, in shared memory. */
typedef struct ga_spgemm_block {
    uint64_t piece, position;
    uint32_t *indices; /* where the entries of the piece belong */
    void *values;
    uint32_t *ends;                      /* of a deferred piece's rows */
    uint32_t counts[GA_SPGEMM_ROWS_MAX]; /* of the rows, or GA_SPGEMM_NO_FIT; or of segments */
    uint32_t before[GA_SPGEMM_ROWS_MAX]; /* elements of the rows, or segments, before */
    uint32_t total, done;                /* elements of the first `done` rows, or of a bitmap */
    uint32_t listed;                     /* columns of a window */
    uint32_t use;                        /* of the shared memory */
    uint32_t deferred;                   /* pieces that wait for their position */
    uint32_t oldest;                     /* of these, in `waiting` */
    uint32_t ready;                      /* of these, from the oldest on, those being moved */
    uint64_t backed;                     /* of ga_spgemm_await_both() */
    ga_spgemm_waiting waiting[GA_SPGEMM_DEFERRED];
    ga_spgemm_bitmap bitmap;
    ga_spgemm_longs longs;
} ga_spgemm_block;

/* The dynamic shared memory: the sums of all slots, and their keys. */
extern __shared__ uint4 ga_spgemm_shared[];

GA_SIMT uint32_t ga_spgemm_block_slots(const ga_spgemm_work *work)
{
    return GA_SPGEMM_BLOCK / work->width * work->slots;
}

/* The keys behind the sums of so many slots. */
GA_SIMT uint32_t *ga_spgemm_keys(const ga_spgemm_work *work, uint32_t slots)
{
    uint32_t sum_words = work->indices ? (work->a.type == GA_FLOAT64 ? 2u : 1u) : 0;
    return (uint32_t *)ga_spgemm_shared + sum_words * slots;
}

/* ---- positions ------------------------------------------------------------------------------- */

/* The position of a piece whose predecessors have ended: it is known from an earlier kernel. */
GA_SIMT uint64_t ga_spgemm_known(const ga_spgemm_work *work, uint64_t piece)
{
    return piece ? work->order[piece - 1u] & ~GA_ORDER_STATE : 0;
}

/* True once the vector has memory for the elements from `begin` to `end`. A vector grows by steps.
 * In the newest of those that have memory, a warp whose elements are far apart, or one in some,
 * requests the next step. Lowers *backed to the elements before the newest step, for which nothing
 * is to be done. For a warp. */
GA_SIMT bool ga_spgemm_await(ga_append *append, uint64_t begin, uint64_t end, uint64_t *backed)
{
    ga_tile tile = ga_tile_of(32);
    uint64_t gate = ga_append_gate(tile, append), step = append->step / append->element;
    uint64_t interval = step / 16u + 1u;
    if (!(gate & GA_APPEND_CLOSED) && end > gate >> 1) {
        gate = ga_append_await(append, GA_ALL_BITS, end);
    } else if (!(gate & GA_APPEND_CLOSED) && (gate >> 1) - end < step &&
               begin / interval != end / interval) {
        ga_append_hint(append, GA_ALL_BITS, gate >> 1);
    }
    uint64_t before = gate >> 1 > step ? (gate >> 1) - step : 0;
    *backed = before < *backed ? before : *backed;
    return end <= gate >> 1;
}

/* True once both vectors have memory. *backed, at first 0, is kept for the next call, so that it
 * need not look at the vectors. For a warp. */
GA_SIMT bool ga_spgemm_await_both(const ga_spgemm_work *work, uint64_t begin, uint64_t end,
                                  uint64_t *backed)
{
    uint32_t stop = GA_SPGEMM_STOP_NONE;
    uint64_t now = ~(uint64_t)0;
    if (!work->indices_state || end <= *backed) {
        return true;
    }
    if (!ga_spgemm_await(work->indices_state, begin, end, &now)) {
        stop = GA_SPGEMM_STOP_INDICES;
    } else if (!ga_spgemm_await(work->values_state, begin, end, &now)) {
        stop = GA_SPGEMM_STOP_VALUES;
    } else {
        *backed = now; /* all lanes store one value */
    }
    if (stop && ga_warp_lane() == 0) {
        ga_store_relaxed(&work->totals->stop, stop); /* relaxed: blocks poll it */
    }
    return !stop;
}

/* True if both vectors have memory now. Else the next step is requested. For a warp. */
GA_SIMT bool ga_spgemm_has_memory(const ga_spgemm_work *work, uint64_t end, uint64_t backed)
{
    if (!work->indices_state || end <= backed) {
        return true;
    }
    ga_append *states[2] = {work->indices_state, work->values_state};
    bool has = true;
    for (uint32_t i = 0; i < 2u; i++) {
        uint64_t gate = ga_append_gate(ga_tile_of(32), states[i]);
        if (end > gate >> 1) {
            has = false;
            if (!(gate & GA_APPEND_CLOSED)) {
                ga_append_hint(states[i], GA_ALL_BITS, gate >> 1);
            }
        }
    }
    return has;
}

/* Whether the kernel only counts the entries; ga_spgemm_scan_kernel() finds the positions then. */
GA_SIMT bool ga_spgemm_counts(const ga_spgemm_work *work)
{
    return !work->indices;
}

/* Store the length of the piece, so that later pieces need not wait. For the first warp. */
GA_SIMT void ga_spgemm_publish(const ga_spgemm_work *work, ga_spgemm_block *block, uint64_t length)
{
    ga_order_store(ga_tile_of(32), work->order, block->piece, GA_ORDER_LENGTH | length);
}

/* Find the ends of pieces whose lengths are published. False if another warp does. For a warp. The
 * scan is too much code for each place that calls it. */
static __device__ __noinline__ bool ga_spgemm_advance_in(uint64_t *order, uint64_t pieces,
                                                         ga_order_scan *scan)
{
    return ga_order_advance(ga_tile_of(32), order, pieces, scan);
}

GA_SIMT bool ga_spgemm_advance(const ga_spgemm_work *work)
{
    return ga_spgemm_advance_in(work->order, work->piece_count, &work->totals->scan);
}

/* The number of entries of C, if this is the last piece. */
GA_SIMT void ga_spgemm_note_end(const ga_spgemm_work *work, uint64_t piece, uint64_t end)
{
    if (work->indices_state && piece + 1u == work->piece_count) {
        /* relaxed: the host reads it after the kernel */
        ga_store64_relaxed(&work->indices_state->tail, end);
        ga_store64_relaxed(&work->values_state->tail, end);
    }
}

/* Wait for the position of the block's piece, whose length is published. GA_SPGEMM_NOWHERE if the
 * kernel stops. For a warp. */
GA_SIMT uint64_t ga_spgemm_await_position(const ga_spgemm_work *work, uint64_t piece,
                                          uint64_t length)
{
    for (;;) {
        uint64_t position = ga_order_known(work->order, piece, length);
        if (!__ballot_sync(GA_ALL_BITS, position == GA_ORDER_LATER)) {
            return position;
        }
        /* relaxed: as where it is stored */
        if (__ballot_sync(GA_ALL_BITS, ga_load_relaxed(&work->totals->stop))) {
            return GA_SPGEMM_NOWHERE;
        }
        ga_spgemm_advance(work);
        ga_clock_sleep(100);
    }
}

/* Set block->position to that of `length` elements: `position`, unless that is not known, and then
 * that of the piece, which has no other elements. GA_SPGEMM_NOWHERE if there is no memory; 0 if the
 * kernel counts. For the first warp. */
GA_SIMT void ga_spgemm_place(const ga_spgemm_work *work, ga_spgemm_block *block, uint64_t position,
                             uint64_t length)
{
    if (ga_spgemm_counts(work)) {
        position = 0;
    } else if (position == GA_SPGEMM_UNPLACED) {
        position = ga_spgemm_await_position(work, block->piece, length);
        if (position != GA_SPGEMM_NOWHERE) {
            ga_spgemm_note_end(work, block->piece, position + length);
        }
    }
    if (position != GA_SPGEMM_NOWHERE &&
        !ga_spgemm_await_both(work, position, position + length, &block->backed)) {
        position = GA_SPGEMM_NOWHERE;
    }
    block->position = position; /* all lanes store one value */
}

/* ---- deferred pieces ------------------------------------------------------------------------- */

/* Find the positions of the block's deferred pieces, for as many from the oldest on as have one,
 * and memory for their entries. Returns their number: at least one if it `waits`; else 0 if there
 * is no memory yet. Their position is GA_SPGEMM_NOWHERE if the kernel stops. For a warp. */
GA_SIMT uint32_t ga_spgemm_find_ready(const ga_spgemm_work *work, ga_spgemm_block *block,
                                      uint32_t deferred, uint32_t oldest, bool waits)
{
    uint32_t lane = ga_warp_lane();
    ga_spgemm_waiting *own = &block->waiting[(oldest + lane) % GA_SPGEMM_DEFERRED];
    uint64_t position = 0;
    uint32_t missing;
    for (bool again = false;; again = true) {
        position =
            lane < deferred ? ga_order_known(work->order, own->piece, own->length) : GA_ORDER_LATER;
        missing = __ballot_sync(GA_ALL_BITS, position == GA_ORDER_LATER);
        if (!(missing & 1u)) {
            break;
        }
        if (!waits && (again || !ga_spgemm_advance(work))) {
            return 0;
        }
        /* relaxed: as where it is stored */
        if (waits && __ballot_sync(GA_ALL_BITS, ga_load_relaxed(&work->totals->stop))) {
            own->position = GA_SPGEMM_NOWHERE;
            return deferred;
        }
        if (waits) {
            ga_spgemm_advance(work);
            ga_clock_sleep(100);
        }
    }
    uint32_t ready = missing ? ga_bits_lowest(missing) : 32u;
    uint64_t end = position + own->length, begin = __shfl_sync(GA_ALL_BITS, position, 0);
    uint64_t last = __shfl_sync(GA_ALL_BITS, end, (int)ready - 1);
    if (!waits && !ga_spgemm_has_memory(work, last, block->backed)) {
        return 0;
    }
    if (!ga_spgemm_await_both(work, begin, last, &block->backed)) {
        position = GA_SPGEMM_NOWHERE;
    } else if (lane < ready) {
        ga_spgemm_note_end(work, own->piece, end);
    }
    if (lane < ready) {
        own->position = position;
    }
    return ready;
}

/* Retire the deferred pieces that the block has moved. By a warp, once all threads have met since
 * they were moved. */
GA_SIMT void ga_spgemm_retire(ga_spgemm_block *block)
{
    uint32_t deferred = block->deferred - block->ready;
    uint32_t oldest = (block->oldest + block->ready) % GA_SPGEMM_DEFERRED;
    ga_tile_sync(ga_tile_of(32)); /* all lanes have read them */
    block->deferred = deferred;   /* all lanes store one value */
    block->oldest = oldest;
    block->ready = 0;
    ga_tile_sync(ga_tile_of(32));
}

/* Find the deferred pieces that can be moved now: block->ready. By a warp, while another one takes
 * a piece and the others wait. It does not wait for memory, because the block's next piece has no
 * length yet, for which all later ones wait. */
GA_SIMT void ga_spgemm_find_next(const ga_spgemm_work *work, ga_spgemm_block *block)
{
    ga_spgemm_retire(block);
    uint32_t deferred = block->deferred;
    if (deferred) {
        block->ready = ga_spgemm_find_ready(work, block, deferred, block->oldest, false);
    }
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Sum the counts of the rows up to the first that does not fit. For the first warp. */
GA_SIMT void ga_spgemm_sum_counts(const ga_spgemm_work *work, ga_spgemm_block *block,
                                  uint64_t first, uint32_t rows)
{
    ga_tile tile = ga_tile_of(32);
    uint32_t total = 0, done = 0;
    for (uint32_t at = 0; at < rows && done == at; at += 32u) {
        uint32_t row = at + tile.lane;
        uint32_t count = row < rows ? block->counts[row] : 0;
        uint32_t not_fit = ga_lanes_nonzero(tile, count == GA_SPGEMM_NO_FIT);
        uint32_t fit = not_fit ? ga_bits_below(ga_bits_lowest(not_fit)) : GA_ALL_BITS;
        uint32_t length = work->has_gaps && row < rows ? work->uppers[first + row] : count;
        length = (fit >> tile.lane) & 1u ? length : 0;
        uint32_t before = total + ga_lanes_prefix_sum(tile, length);
        if (row < rows) {
            block->before[row] = before;
        }
        total += ga_lanes_sum(tile, length);
        done += ga_bits_count(fit);
    }
    done = done < rows ? done : rows;
    block->total = total; /* all lanes store one value */
    block->done = done;
    ga_tile_sync(tile);
}

/* ---- the bitmap of a block: by all threads --------------------------------------------------- */

GA_SIMT void ga_spgemm_begin_block(ga_spgemm_block *block)
{
    for (uint32_t i = threadIdx.x; i < GA_SPGEMM_CHUNKS / 32u; i += GA_SPGEMM_BLOCK) {
        block->bitmap.used[i] = 0;
    }
    block->use = GA_SPGEMM_NOTHING; /* all threads store one value */
    block->bitmap.is_wide = false;
    block->deferred = block->oldest = block->ready = 0;
    block->backed = 0;
    block->longs.count = 0;
    __syncthreads();
}

/* Whether the shared memory had another use, and must be emptied for this one. */
GA_SIMT bool ga_spgemm_takes_over(ga_spgemm_block *block, uint32_t use)
{
    if (block->use == use) {
        return false;
    }
    __syncthreads();
    block->use = use; /* all threads store one value */
    return true;
}

/* Use the shared memory for the bitmap. */
GA_SIMT void ga_spgemm_make_bitmap(const ga_spgemm_work *work, ga_spgemm_block *block)
{
    uint32_t *bits = (uint32_t *)ga_spgemm_shared;
    if (ga_spgemm_takes_over(block, GA_SPGEMM_BITMAP)) {
        for (uint32_t at = threadIdx.x; at < work->span / 32u; at += GA_SPGEMM_BLOCK) {
            bits[at] = 0;
        }
    }
    __syncthreads();
    block->bitmap.bits = bits; /* all threads store one value */
    block->bitmap.ranks = bits + work->span / 32u;
}

/* Use a buffer in device memory for the bitmap. */
GA_SIMT void ga_spgemm_use_buffer(const ga_spgemm_work *work, ga_spgemm_block *block,
                                  uint32_t number)
{
    uint32_t *bits = (uint32_t *)(work->buffers.first + number * work->buffers.bytes);
    __syncthreads();
    block->bitmap.is_wide = true; /* all threads store one value */
    block->bitmap.bits = bits;
    block->bitmap.ranks = bits + work->buffers.words;
}

/* Set the bitmap's `low` and `high` to the columns of a row of C that has entries. */
GA_SIMT void ga_spgemm_span_of_row(const ga_spgemm_work *work, ga_spgemm_block *block, uint64_t row)
{
    ga_spgemm_span span =
        ga_spgemm_span_of(work, row, threadIdx.x, GA_SPGEMM_BLOCK, ga_tile_of(32), 0xffffffffu);
    block->bitmap.low = 0xffffffffu; /* all threads store one value */
    block->bitmap.high = 0;
    __syncthreads();
    if (ga_warp_lane() == 0) {
        atomicMin(&block->bitmap.low, span.low);
        atomicMax(&block->bitmap.high, span.high);
    }
    __syncthreads();
}

/* Count the columns of each segment: block->before of those before it, and block->total of all. */
GA_SIMT void ga_spgemm_count_bitmap(ga_spgemm_block *block)
{
    ga_tile tile = ga_tile_of(32);
    for (uint32_t i = threadIdx.x / 32u; i < GA_SPGEMM_SEGMENTS; i += GA_SPGEMM_WARPS) {
        block->counts[i] = ga_spgemm_count_segment(&block->bitmap, i); /* one value in all lanes */
    }
    __syncthreads();
    if (threadIdx.x < 32u) {
        uint32_t first = block->counts[2u * tile.lane], second = block->counts[2u * tile.lane + 1u];
        uint32_t before = ga_lanes_prefix_sum(tile, first + second);
        block->before[2u * tile.lane] = before;
        block->before[2u * tile.lane + 1u] = before + first;
        block->total = ga_lanes_sum(tile, first + second); /* one value in all lanes */
    }
    __syncthreads();
}

#define GA_SPGEMM_VALUE    double
#define GA_SPGEMM_OF(name) name##_f64
#include "deferred_of_kernel.cuh"
#include "together_of_kernel.cuh"

#include "bitmap_of_kernel.cuh"
#include "large_of_kernel.cuh"
#include "rows_of_kernel.cuh"

#define GA_SPGEMM_VALUE    float
#define GA_SPGEMM_OF(name) name##_f32
#include "deferred_of_kernel.cuh"
#include "together_of_kernel.cuh"

#include "bitmap_of_kernel.cuh"
#include "large_of_kernel.cuh"
#include "rows_of_kernel.cuh"

#endif
