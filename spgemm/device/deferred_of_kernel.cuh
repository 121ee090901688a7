/* SPDX-License-Identifier: MIT
 *
 * Pieces that are computed before their position is known, for one type of values: GA_SPGEMM_VALUE
 * and GA_SPGEMM_OF(name) are as for row_tile.cuh. rows_kernel.cuh includes this file.
 *
 * STRUCTURE  A block that has computed a piece while an earlier one has no length yet does not wait
 *            for it: it stores the entries in memory of its own, and goes on with the next piece.
 *            Later it moves them to their place. That memory is small, and stays in the L2 cache.
 *
 * PROGRESS   The length of a piece is published before it is deferred, so that no other block waits
 *            for it. A block with GA_SPGEMM_DEFERRED such pieces waits for the oldest.
 */

/* The memory of deferred piece number `slot` of the block: ends of rows, then values, then columns.
 */
GA_SIMT char *GA_SPGEMM_OF(ga_spgemm_slot_of)(const ga_spgemm_work *work, uint32_t slot)
{
    return work->store.first +
           ((uint64_t)blockIdx.x * work->store.count + slot) * work->store.bytes;
}

GA_SIMT GA_SPGEMM_VALUE *GA_SPGEMM_OF(ga_spgemm_slot_values)(char *slot)
{
    return (GA_SPGEMM_VALUE *)(slot + GA_SPGEMM_ROWS_MAX * sizeof(uint32_t));
}

GA_SIMT uint32_t *GA_SPGEMM_OF(ga_spgemm_slot_columns)(const ga_spgemm_work *work, char *slot)
{
    return (uint32_t *)(GA_SPGEMM_OF(ga_spgemm_slot_values)(slot) + work->store.capacity);
}

/* Move the entries of a deferred piece to `position`, and store the ends of its rows. By all
 * threads. */
GA_SIMT void GA_SPGEMM_OF(ga_spgemm_settle)(const ga_spgemm_work *work, ga_spgemm_waiting waiting,
                                            char *slot, uint64_t position)
{
    const uint32_t *ends = (const uint32_t *)slot;
    const uint32_t *columns = GA_SPGEMM_OF(ga_spgemm_slot_columns)(work, slot);
    const GA_SPGEMM_VALUE *from = GA_SPGEMM_OF(ga_spgemm_slot_values)(slot);
    GA_SPGEMM_VALUE *values = (GA_SPGEMM_VALUE *)work->values + position;
#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < waiting.length; i += GA_SPGEMM_BLOCK) {
        __stcs(work->indices + position + i, columns[i]);
        __stcs(values + i, from[i]);
    }
    if (threadIdx.x < waiting.rows) {
        work->offsets[waiting.row + threadIdx.x + 1u] = position + ends[threadIdx.x];
    }
}

/* Move deferred pieces whose position is known, from the oldest on. Waits while there are more than
 * `most`. By all threads. */
static __device__ __noinline__ void
GA_SPGEMM_OF(ga_spgemm_flush)(const ga_spgemm_work *work, ga_spgemm_block *block, uint32_t most)
{
    uint32_t deferred = block->deferred, oldest = block->oldest;
    for (; deferred; deferred--) {
        ga_spgemm_waiting waiting = block->waiting[oldest];
        __syncthreads();
        if (threadIdx.x < 32u) {
            uint64_t position =
                ga_spgemm_find_position(work, waiting.piece, waiting.length, deferred > most);
            block->position =
                position == GA_ORDER_LATER
                    ? position
                    : ga_spgemm_await_memory(work, waiting.piece, position, waiting.length);
        }
        __syncthreads();
        if (block->position == GA_ORDER_LATER) {
            break;
        }
        if (block->position != GA_ORDER_NONE) {
            GA_SPGEMM_OF(ga_spgemm_settle)
            (work, waiting, GA_SPGEMM_OF(ga_spgemm_slot_of)(work, oldest), block->position);
        }
        oldest = oldest + 1u < work->store.count ? oldest + 1u : 0;
    }
    __syncthreads();
    block->deferred = deferred; /* all threads store one value */
    block->oldest = oldest;
    __syncthreads();
}

/* Add the block's piece to those that wait. For the first warp. */
GA_SIMT void GA_SPGEMM_OF(ga_spgemm_defer)(const ga_spgemm_work *work, ga_spgemm_block *block,
                                           uint64_t row, uint32_t rows, uint32_t length)
{
    uint32_t deferred = block->deferred, number = block->oldest + deferred;
    number -= number < work->store.count ? 0 : work->store.count;
    char *slot = GA_SPGEMM_OF(ga_spgemm_slot_of)(work, number);
    ga_tile_sync(ga_tile_of(32));
    block->waiting[number] = ga_spgemm_waiting{block->piece, row, rows, length};
    block->ends = (uint32_t *)slot; /* all lanes store one value */
    block->indices = GA_SPGEMM_OF(ga_spgemm_slot_columns)(work, slot);
    block->values = GA_SPGEMM_OF(ga_spgemm_slot_values)(slot);
    block->deferred = deferred + 1u;
}

/* Find where the entries of the block's piece belong, whose length is published: block->indices and
 * block->values, unless block->position is GA_ORDER_NONE. `position` may be known. `flushes`: the
 * block had deferred pieces, read before the last barrier, because here the first warp adds one. By
 * all threads. */
GA_SIMT void GA_SPGEMM_OF(ga_spgemm_find_place)(const ga_spgemm_work *work, ga_spgemm_block *block,
                                                uint64_t position, uint64_t row, uint32_t rows,
                                                uint64_t length, bool flushes)
{
    bool can_wait = position == GA_SPGEMM_UNPLACED && length <= work->store.capacity;
    if (flushes) {
        GA_SPGEMM_OF(ga_spgemm_flush)(work, block, work->store.count - 1u);
    }
    if (threadIdx.x < 32u) {
        ga_spgemm_place(work, block, position, length, can_wait && work->store.count);
        if (block->position == GA_ORDER_LATER) {
            GA_SPGEMM_OF(ga_spgemm_defer)(work, block, row, rows, (uint32_t)length);
        } else {
            block->indices = work->indices + block->position;
            block->values = (GA_SPGEMM_VALUE *)work->values + block->position;
        }
    }
    __syncthreads();
}

/* Store where a row of the block's piece ends: `before` are the entries of its rows before, and
 * `count` are its own. */
GA_SIMT void GA_SPGEMM_OF(ga_spgemm_store_end)(const ga_spgemm_work *work,
                                               const ga_spgemm_block *block, uint64_t first,
                                               uint32_t number, uint64_t before, uint64_t count)
{
    if (block->position == GA_ORDER_LATER) {
        block->ends[number] = (uint32_t)(before + count);
    } else if (!work->is_placed) {
        work->offsets[first + number + 1u] =
            work->has_gaps || ga_spgemm_counts(work) ? count : block->position + before + count;
    }
}
