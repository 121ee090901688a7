/* SPDX-License-Identifier: MIT
 *
 * The passes of a product: what a thread does with one piece of rows.
 *
 * ORDER      XR: a thread that sees job->backed sees the memory that another thread has mapped.
 *            The vectors grow under job->growth only.
 */
#include "job.h"

#include "../order_tile.h"

#include "arena/vector_state.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum {
    SPAN_CACHED = 1 << 16, /* columns whose window, of 768 KiB, stays in a processor's cache */
    SPAN_MOST = 1 << 22,   /* columns of a window, which takes 48 MiB then */
    SPREAD = 16,           /* columns of a larger span for each multiplication, at most */
    /* Entries by which vectors grow beyond what is needed: a part of that, within these. */
    MORE_PARTS = 64,
    MORE_LEAST = 1 << 13,
    MORE_MOST = 1 << 22
};

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

/* Finds the first and the last column that the row may have. */
static void find_span(const ga_spgemm_job *job, ga_spgemm_scratch *s, uint64_t row)
{
    const ga_csr *a = job->a, *b = job->b;
    s->low = UINT32_MAX;
    s->high = 0;
    for (uint64_t entry = a->offsets[row]; entry < a->offsets[row + 1]; entry++) {
        uint64_t begin = b->offsets[a->indices[entry]], end = b->offsets[a->indices[entry] + 1ull];
        if (begin < end) {
            s->low = b->indices[begin] < s->low ? b->indices[begin] : s->low;
            s->high = b->indices[end - 1] > s->high ? b->indices[end - 1] : s->high;
        }
    }
    s->low = s->low < s->high ? s->low : s->high;
}

/* Whether the row gets a sum for each column of its span: that is fast if the sums stay in the
 * cache, or if the row takes many multiplications for its span. Prepares the window for it; without
 * memory the row gets a hash table. */
static bool choose(ga_spgemm_job *job, ga_spgemm_scratch *s, uint64_t row)
{
    find_span(job, s, row);
    uint64_t span = (uint64_t)s->high - s->low + 1;
    bool is_close =
        span <= SPAN_CACHED || (span <= SPAN_MOST && span / SPREAD <= upper_of(job, row));
    s->is_dense =
        ga_spgemm_scratch_set(job, s) && is_close && ga_spgemm_scratch_window(job, s, span);
    if (s->is_dense && ++s->stamp == 0) {
        memset(s->stamps, 0, s->width * sizeof *s->stamps);
        s->stamp = 1;
    }
    return s->is_dense;
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

/* Forgets a row that was added without sums. */
static void drop(ga_spgemm_scratch *scratch)
{
    if (scratch->is_dense) {
        scratch->count = 0;
    } else {
        ga_spgemm_empty(table_of(scratch));
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
        drop(scratch);
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

/* Gives the vectors room for `end` entries, and for a part more, so that few threads come here.
 * Others wait meanwhile. Returns false if a vector cannot grow; job->reason says why. */
static bool grow(ga_spgemm_job *job, uint64_t end)
{
    const ga_spgemm_product *c = job->product;
    uint64_t most = c->indices->max < c->values->max ? c->indices->max : c->values->max;
    uint64_t more = end / MORE_PARTS;
    more = more < MORE_LEAST ? MORE_LEAST : more > MORE_MOST ? MORE_MOST : more;
    uint64_t want = most > more && most - more > end ? end + more : most;
    pthread_mutex_lock(&job->growth);
    uint64_t backed = ga_load64_relaxed(&job->backed); /* relaxed: the lock orders it */
    if (backed < end) {
        ga_status status = ga_vector_reserve(c->indices, want > end ? want : end);
        status = status ? status : ga_vector_reserve(c->values, want > end ? want : end);
        if (status != GA_OK) { /* perhaps there is memory for less */
            status = ga_vector_reserve(c->indices, end);
            status = status ? status : ga_vector_reserve(c->values, end);
        }
        if (status == GA_OK) {
            uint64_t indices = ga_vector_capacity(c->indices);
            uint64_t values = ga_vector_capacity(c->values);
            backed = indices < values ? indices : values;
            ga_store64_release(&job->backed, backed); /* XR1: release. Pairs with XR2. */
        } else {
            snprintf(job->reason, sizeof job->reason, "%s", ga_error_text());
        }
    }
    pthread_mutex_unlock(&job->growth);
    return backed >= end;
}

static bool make_room(ga_spgemm_job *job, uint64_t end)
{
    /* XR2: acquire. Pairs with XR1: the memory is mapped. */
    return ga_load64_acquire(&job->backed) >= end || grow(job, end);
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
    if (!make_room(job, position + count)) {
        return ga_spgemm_fail(job, piece, GA_SPGEMM_NO_ROOM);
    }
    store_at(job, scratch, piece, position, count);
    return true;
}
