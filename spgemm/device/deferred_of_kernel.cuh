/* SPDX-License-Identifier: MIT
 *
 * Pieces that are computed before their position is known, for one type of values: GA_SPGEMM_VALUE
 * and GA_SPGEMM_OF(name) are as for row_tile.cuh. rows_kernel.cuh includes this file.
 *
 * STRUCTURE  A block that has computed a piece does not wait for its position, which mostly is not
 *            known yet: it stores the entries in memory of its own, and goes on with the next
 *            piece. Later it moves them to their place. That memory is a ring of entries, which
 *            begins again at its start once it is empty, so that no more of it is used than is
 *            needed. While one warp takes a piece, another one finds the deferred pieces that can
 *            be moved (ga_spgemm_find_next()); then all warps move these, and go on to their rows
 *            without a barrier.
 *
 * INVARIANT  A moved piece counts as deferred, in block->ready, until all threads have met and the
 *            block retires it. So its part of the ring is not used again while a warp may still
 *            load from it.
 *
 * PROGRESS   The length of a piece is published before it is deferred, so that no other block waits
 *            for it. A block with GA_SPGEMM_DEFERRED such pieces waits for the oldest, and so does
 *            one whose ring has no room. A piece that is larger than the ring waits for its
 *            position.
 */

/* The block's ring: ends of the rows of each deferred piece, then values, then columns. */
GA_SIMT char *GA_SPGEMM_OF(ga_spgemm_ring)(const ga_spgemm_work *work)
{
    return work->store.first + blockIdx.x * work->store.bytes;
}

GA_SIMT uint32_t *GA_SPGEMM_OF(ga_spgemm_ring_ends)(const ga_spgemm_work *work, uint32_t number)
{
    return (uint32_t *)GA_SPGEMM_OF(ga_spgemm_ring)(work) + number * GA_SPGEMM_ROWS_MAX;
}

GA_SIMT GA_SPGEMM_VALUE *GA_SPGEMM_OF(ga_spgemm_ring_values)(const ga_spgemm_work *work)
{
    return (GA_SPGEMM_VALUE *)GA_SPGEMM_OF(ga_spgemm_ring_ends)(work, GA_SPGEMM_DEFERRED);
}

GA_SIMT uint32_t *GA_SPGEMM_OF(ga_spgemm_ring_columns)(const ga_spgemm_work *work)
{
    return (uint32_t *)(GA_SPGEMM_OF(ga_spgemm_ring_values)(work) + work->store.capacity);
}

/* Where `length` entries have room in the ring, or GA_SPGEMM_NO_ROOM. */
GA_SIMT uint32_t GA_SPGEMM_OF(ga_spgemm_ring_room)(const ga_spgemm_work *work,
                                                   const ga_spgemm_block *block, uint64_t length)
{
    uint32_t capacity = work->store.capacity;
    if (!block->deferred) {
        return length <= capacity ? 0 : GA_SPGEMM_NO_ROOM;
    }
    uint32_t newest = (block->oldest + block->deferred - 1u) % GA_SPGEMM_DEFERRED;
    uint32_t first = block->waiting[block->oldest].at, last = block->waiting[newest].at;
    uint32_t end = last + block->waiting[newest].length;
    /* The newest never ends where the oldest begins, so that their order tells whether the ring has
     * begun at its start again. */
    if (last < first) {
        return end + length < first ? end : GA_SPGEMM_NO_ROOM;
    }
    return end + length <= capacity ? end : length < first ? 0 : GA_SPGEMM_NO_ROOM;
}

/* Move the entries of a deferred piece to their position, and store the ends of its rows. A thread
 * loads several entries before it stores one, because each load takes long. By all threads. */
GA_SIMT void GA_SPGEMM_OF(ga_spgemm_settle)(const ga_spgemm_work *work, ga_spgemm_waiting waiting,
                                            uint32_t number)
{
    uint64_t position = waiting.position;
    const uint32_t *ends = GA_SPGEMM_OF(ga_spgemm_ring_ends)(work, number);
    const uint32_t *columns = GA_SPGEMM_OF(ga_spgemm_ring_columns)(work) + waiting.at;
    const GA_SPGEMM_VALUE *from = GA_SPGEMM_OF(ga_spgemm_ring_values)(work) + waiting.at;
    uint32_t *indices = work->indices + position;
    GA_SPGEMM_VALUE *values = (GA_SPGEMM_VALUE *)work->values + position;
    for (uint32_t i = threadIdx.x; i < waiting.length; i += GA_SPGEMM_AT_ONCE * GA_SPGEMM_BLOCK) {
        uint32_t column[GA_SPGEMM_AT_ONCE];
        GA_SPGEMM_VALUE value[GA_SPGEMM_AT_ONCE];
#pragma unroll
        for (uint32_t j = 0; j < GA_SPGEMM_AT_ONCE; j++) {
            uint32_t at = i + j * GA_SPGEMM_BLOCK;
            at = at < waiting.length ? at : i;
            column[j] = columns[at];
            value[j] = from[at];
        }
#pragma unroll
        for (uint32_t j = 0; j < GA_SPGEMM_AT_ONCE; j++) {
            uint32_t at = i + j * GA_SPGEMM_BLOCK;
            if (at < waiting.length) {
                __stcs(indices + at, column[j]);
                __stcs(values + at, value[j]);
            }
        }
    }
    if (threadIdx.x < waiting.rows) {
        work->offsets[waiting.row + threadIdx.x + 1u] = position + ends[threadIdx.x];
    }
}

/* Move the pieces block->ready. By all threads. */
GA_SIMT void GA_SPGEMM_OF(ga_spgemm_settle_ready)(const ga_spgemm_work *work,
                                                  const ga_spgemm_block *block)
{
    for (uint32_t i = 0; i < block->ready; i++) {
        uint32_t number = (block->oldest + i) % GA_SPGEMM_DEFERRED;
        if (block->waiting[number].position != GA_SPGEMM_NOWHERE) {
            GA_SPGEMM_OF(ga_spgemm_settle)(work, block->waiting[number], number);
        }
    }
}

/* Move deferred pieces whose position is known, from the oldest on. Waits while there are more than
 * `most`. By all threads. */
static __device__ __noinline__ void
GA_SPGEMM_OF(ga_spgemm_flush)(const ga_spgemm_work *work, ga_spgemm_block *block, uint32_t most)
{
    uint32_t deferred = block->deferred - block->ready;
    uint32_t oldest = (block->oldest + block->ready) % GA_SPGEMM_DEFERRED;
    do {
        __syncthreads();
        if (threadIdx.x < 32u) { /* all lanes store one value */
            block->ready =
                deferred ? ga_spgemm_find_ready(work, block, deferred, oldest, deferred > most) : 0;
            block->oldest = oldest;
        }
        __syncthreads();
        GA_SPGEMM_OF(ga_spgemm_settle_ready)(work, block);
        deferred -= block->ready;
        oldest = (oldest + block->ready) % GA_SPGEMM_DEFERRED;
    } while (deferred > most);
    __syncthreads();
    block->deferred = deferred; /* all threads store one value */
    block->oldest = oldest;
    block->ready = 0;
    __syncthreads();
}

/* Add the block's piece to those that wait, at `at` in the ring. For the first warp. */
GA_SIMT void GA_SPGEMM_OF(ga_spgemm_defer)(const ga_spgemm_work *work, ga_spgemm_block *block,
                                           uint64_t row, uint32_t rows, uint32_t length,
                                           uint32_t at)
{
    uint32_t deferred = block->deferred, number = (block->oldest + deferred) % GA_SPGEMM_DEFERRED;
    ga_tile_sync(ga_tile_of(32));
    /* All lanes store one value. */
    block->waiting[number] =
        ga_spgemm_waiting{block->piece, row, GA_SPGEMM_UNPLACED, rows, length, at};
    block->position = GA_ORDER_LATER;
    block->ends = GA_SPGEMM_OF(ga_spgemm_ring_ends)(work, number);
    block->indices = GA_SPGEMM_OF(ga_spgemm_ring_columns)(work) + at;
    block->values = GA_SPGEMM_OF(ga_spgemm_ring_values)(work) + at;
    block->deferred = deferred + 1u;
}

/* Find where the entries of the block's piece belong, whose length is published: block->indices and
 * block->values, unless block->position is GA_SPGEMM_NOWHERE. `position` may be known. If it is
 * not, and the ring has no room before other pieces are moved, block->position is
 * GA_SPGEMM_CROWDED. For the first warp. */
GA_SIMT void GA_SPGEMM_OF(ga_spgemm_try_place)(const ga_spgemm_work *work, ga_spgemm_block *block,
                                               uint64_t position, uint64_t row, uint32_t rows,
                                               uint64_t length)
{
    uint32_t at = GA_SPGEMM_NO_ROOM;
    if (position == GA_SPGEMM_UNPLACED && work->store.capacity) {
        ga_spgemm_retire(block);
        at = block->deferred < GA_SPGEMM_DEFERRED
                 ? GA_SPGEMM_OF(ga_spgemm_ring_room)(work, block, length)
                 : GA_SPGEMM_NO_ROOM;
        if (at == GA_SPGEMM_NO_ROOM && block->deferred) {
            block->position = GA_SPGEMM_CROWDED; /* all lanes store one value */
            return;
        }
    }
    if (at != GA_SPGEMM_NO_ROOM) {
        GA_SPGEMM_OF(ga_spgemm_defer)(work, block, row, rows, (uint32_t)length, at);
        return;
    }
    ga_spgemm_place(work, block, position, length);
    block->indices = work->indices + block->position;
    block->values = (GA_SPGEMM_VALUE *)work->values + block->position;
}

/* As ga_spgemm_try_place(), but it waits until the ring has room. By all threads. */
GA_SIMT void GA_SPGEMM_OF(ga_spgemm_find_place)(const ga_spgemm_work *work, ga_spgemm_block *block,
                                                uint64_t position, uint64_t row, uint32_t rows,
                                                uint64_t length)
{
    for (;;) {
        if (threadIdx.x < 32u) {
            GA_SPGEMM_OF(ga_spgemm_try_place)(work, block, position, row, rows, length);
        }
        __syncthreads();
        if (block->position != GA_SPGEMM_CROWDED) {
            return;
        }
        GA_SPGEMM_OF(ga_spgemm_flush)(work, block, block->deferred - 1u);
    }
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
