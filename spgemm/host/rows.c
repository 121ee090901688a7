/* SPDX-License-Identifier: MIT
 *
 * The passes of a product: what a thread does with one piece of rows.
 */
#include "job.h"

#include "../order_tile.h"

#include "arena/append.h"

#include <string.h>

static uint64_t upper_of(const ga_spgemm_job *job, uint64_t row)
{
    return job->uppers[row + 1] - job->uppers[row];
}

/* The most entries that the row can have. */
static uint64_t most_of(const ga_spgemm_job *job, uint64_t row)
{
    uint64_t upper = upper_of(job, row);
    return upper < job->b->columns ? upper : job->b->columns;
}

/* Slots for the row: as the last one, with some more. A small table stays in the cache. */
static uint64_t slots_guess(const ga_spgemm_job *job, const ga_spgemm_scratch *s, uint64_t row)
{
    uint64_t most = most_of(job, row), guess = s->last + s->last / 4;
    return ga_spgemm_slots(guess < most ? guess : most);
}

static ga_spgemm_table table_of(ga_spgemm_scratch *s)
{
    uint32_t mask = (uint32_t)(s->now - 1);
    return (ga_spgemm_table){s->keys, s->used, &s->count, mask, ga_bits_leading(mask)};
}

/* The next larger table for the row, which was full; at last one that cannot be. */
static uint64_t slots_more(const ga_spgemm_job *job, const ga_spgemm_scratch *s, uint64_t row)
{
    uint64_t enough = ga_spgemm_slots(most_of(job, row));
    return s->now * 4 < enough ? s->now * 4 : enough;
}

#define GA_SPGEMM_VALUE    double
#define GA_SPGEMM_OF(name) name##_f64
#include "rows_of.h"

#define GA_SPGEMM_VALUE    float
#define GA_SPGEMM_OF(name) name##_f32
#include "rows_of.h"

/* Adds the row to the empty table; its sums too, if `with_sums`. Returns false if there is no
 * memory. */
static bool add(ga_spgemm_job *job, ga_spgemm_scratch *scratch, uint64_t row, bool with_sums)
{
    return job->a->type == GA_FLOAT64 ? add_f64(job, scratch, row, with_sums)
                                      : add_f32(job, scratch, row, with_sums);
}

/* Moves the row from the table to the arrays, from entry `at` on. `scratch->last` is the number of
 * its entries then. */
static void take(const ga_spgemm_job *job, ga_spgemm_scratch *scratch, uint32_t *indices,
                 void *values, uint64_t at)
{
    if (job->a->type == GA_FLOAT64) {
        take_f64(job, scratch, indices + at, (double *)values + at);
    } else {
        take_f32(job, scratch, indices + at, (float *)values + at);
    }
}

bool ga_spgemm_count_piece(ga_spgemm_job *job, ga_spgemm_scratch *scratch, uint64_t piece)
{
    for (uint64_t row = job->pieces[piece]; row < job->pieces[piece + 1]; row++) {
        if (!add(job, scratch, row, false)) {
            return ga_spgemm_fail(job, piece, GA_SPGEMM_NO_SCRATCH);
        }
        scratch->last = scratch->count;
        job->offsets[row + 1] = scratch->count;
        ga_spgemm_empty(table_of(scratch));
    }
    return true;
}

bool ga_spgemm_store_piece(ga_spgemm_job *job, ga_spgemm_scratch *scratch, uint64_t piece)
{
    bool upper = job->report->method == GA_SPGEMM_UPPER;
    for (uint64_t row = job->pieces[piece]; row < job->pieces[piece + 1]; row++) {
        uint64_t at = upper ? job->uppers[row] : job->offsets[row];
        if (!add(job, scratch, row, true)) {
            return ga_spgemm_fail(job, piece, GA_SPGEMM_NO_SCRATCH);
        }
        take(job, scratch, job->indices, job->values, at);
        if (upper) {
            job->offsets[row + 1] = scratch->last;
        }
    }
    return true;
}

/* ---- in order -------------------------------------------------------------------------------- */

/* True once the vector has memory for `end` elements. */
static bool await_room(ga_append *append, uint64_t end)
{
    ga_tile tile = ga_tile_of(32);
    uint64_t gate = ga_append_gate(tile, append);
    if (gate >> 1 < end && !(gate & GA_APPEND_CLOSED)) {
        gate = ga_append_await(append, ga_tile_members(tile), end);
    }
    return gate >> 1 >= end;
}

/* Computes the rows of the piece into the scratch memory. Sets `*count` to the number of entries,
 * and the offset of each row's end, from the beginning of the piece. Returns false if there is no
 * memory. */
static bool compute_piece(ga_spgemm_job *job, ga_spgemm_scratch *scratch, uint64_t piece,
                          uint64_t *count)
{
    *count = 0;
    for (uint64_t row = job->pieces[piece]; row < job->pieces[piece + 1]; row++) {
        if (!add(job, scratch, row, true) ||
            !ga_spgemm_scratch_room(job, scratch, *count, *count + scratch->count)) {
            return false;
        }
        take(job, scratch, scratch->indices, scratch->values, *count);
        *count += scratch->last;
        job->offsets[row + 1] = *count;
    }
    return true;
}

/* Copies the piece to its position, and makes its offsets those of the result. */
static void store_at(ga_spgemm_job *job, const ga_spgemm_scratch *scratch, uint64_t piece,
                     uint64_t position, uint64_t count)
{
    size_t size = ga_value_size(job->a->type);
    memcpy(job->indices + position, scratch->indices, count * sizeof *job->indices);
    memcpy((char *)job->values + position * size, scratch->values, count * size);
    for (uint64_t row = job->pieces[piece]; row < job->pieces[piece + 1]; row++) {
        job->offsets[row + 1] += position;
    }
}

bool ga_spgemm_append_piece(ga_spgemm_job *job, ga_spgemm_scratch *scratch, uint64_t piece)
{
    uint64_t count, position;
    if (!compute_piece(job, scratch, piece, &count)) {
        return ga_spgemm_fail(job, piece, GA_SPGEMM_NO_SCRATCH);
    }
    ga_order_store(ga_tile_of(32), job->order, piece, GA_ORDER_LENGTH | count);
    for (bool again = false;; again = true) {
        position = ga_order_known(job->order, piece, count);
        if (position != GA_ORDER_LATER) {
            break;
        }
        if (ga_load64_relaxed(&job->failed)) { /* relaxed: as where it is stored */
            return false;
        }
        if (again) { /* mostly the first advance suffices, and the least sleep takes 50 us */
            ga_clock_sleep(100);
        }
        ga_order_advance(ga_tile_of(32), job->order, job->piece_count, &job->scan);
    }
    if (!await_room(job->loan.indices, position + count) ||
        !await_room(job->loan.values, position + count)) {
        return ga_spgemm_fail(job, piece, GA_SPGEMM_NO_ROOM);
    }
    store_at(job, scratch, piece, position, count);
    return true;
}
