/* SPDX-License-Identifier: MIT
 *
 * Memory for the rounds of a product, and for the gathering of its pieces.
 */
#include "rounds.h"

#include "arena/vector_state.h"

uint32_t ga_spgemm_choose_size(ga_spgemm_goal goal, double usual, double mean)
{
    static const uint32_t sizes[] = {8, 16, 32, 48, 64, 96, 128, 256};
    size_t i = 0, last = sizeof sizes / sizeof *sizes - 1;
    if (goal == GA_SPGEMM_GOAL_MEMORY) {
        while (i < last && sizes[i + 1] / 2.0 <= 0.05 * mean) { /* a row wastes half a piece */
            i++;
        }
        return sizes[i];
    }
    while (i < last && sizes[i] < usual) {
        i++;
    }
    return sizes[i];
}

/* ---- rounds ---------------------------------------------------------------------------------- */

/* A vector where the product is, with addresses for `most` elements: by default there would be
 * many more. */
static ga_status open_vector(const ga_spgemm_product *product, size_t element, uint64_t most,
                             ga_vector **out)
{
    const ga_carrier *carrier = &product->offsets->carrier;
    ga_arena_options options = {.options_size = sizeof options,
                                .flags = GA_ARENA_EXACT,
                                .place = carrier->place,
                                .device = carrier->device,
                                .reserve = (most + 1) * element};
    return ga_vector_open(out, element, &options, carrier->stream);
}

static ga_status open_lists(ga_spgemm_rounds *r)
{
    uint64_t rounds = r->row_most / r->round.size + 1;
    /* The list of the next round has room for all rows of this one. */
    uint64_t rows = r->report->multiplications / r->round.size + 2 * r->round.all +
                    GA_SPGEMM_LIST_STEP / sizeof *r->round.rows;
    if (r->round.all > UINT32_MAX) {
        return ga_fail(GA_ERR_SIZE, "spgemm: %llu rows: expected at most %u for the method dynamic",
                       (unsigned long long)r->round.all, UINT32_MAX);
    }
    ga_status status = open_vector(r->product, sizeof *r->round.starts, rounds, &r->starts);
    status = status ? status : open_vector(r->product, sizeof *r->round.rows, rows, &r->rows);
    status = status ? status : ga_vector_reserve(r->starts, rounds);
    if (status == GA_OK) {
        r->round.starts = ga_vector_data(r->starts);
        r->round.rows = ga_vector_data(r->rows);
        r->round.active = r->round.all;
    }
    return status;
}

/* Room for the pieces of a round, and for the list of the next one. */
static ga_status grow(ga_spgemm_rounds *r)
{
    uint64_t pieces = r->round.first + r->round.active;
    ga_status status = ga_spgemm_resize(r->product, pieces * r->round.size);
    ga_spgemm_note_peak(r->product, r->report);
    return status ? status : ga_vector_reserve(r->rows, pieces + r->round.active - r->round.all);
}

static ga_status run(ga_spgemm_rounds *r)
{
    ga_status status = GA_OK;
    while (status == GA_OK && r->round.active) {
        uint64_t listed = 0;
        status = grow(r);
        status = status ? status : r->fill(r, &listed);
        ga_spgemm_next_round(&r->round, listed);
    }
    return status;
}

/* ---- gathering ------------------------------------------------------------------------------- */

/* Gathers the pieces of a vector in a second one, and copies them back. */
static ga_status gather(ga_spgemm_rounds *r, ga_vector *vector)
{
    ga_vector *copy = NULL;
    uint64_t entries = r->report->entries;
    ga_status status = open_vector(r->product, vector->element, entries, &copy);
    status = status ? status : ga_vector_reserve(copy, entries);
    if (status == GA_OK) {
        ga_spgemm_note_bytes(r->product, ga_vector_capacity(copy) * copy->element, r->report);
        status = r->gather(r, ga_vector_data(vector), ga_vector_data(copy), vector->element);
    }
    status = status ? status : ga_vector_resize(vector, entries);
    status = status ? status : ga_vector_write(vector, 0, entries, ga_vector_data(copy));
    status = status ? status : ga_vector_shrink_to_fit(vector);
    ga_vector_close(copy);
    return status;
}

static ga_status gather_both(ga_spgemm_rounds *r)
{
    ga_status status = r->sum(r, &r->report->entries);
    status = status ? status : gather(r, r->product->indices);
    return status ? status : gather(r, r->product->values);
}

ga_status ga_spgemm_run_rounds(ga_spgemm_rounds *r)
{
    ga_status status = open_lists(r);
    status = status ? status : r->run ? r->run(r) : run(r);
    status = status ? status : gather_both(r);
    if (status == GA_OK) {
        r->report->rounds = r->round.number;
        r->report->size_per_row = r->round.size;
        r->report->scratch_bytes = ga_vector_capacity(r->starts) * r->starts->element +
                                   ga_vector_capacity(r->rows) * r->rows->element;
    }
    ga_vector_close(r->starts);
    ga_vector_close(r->rows);
    return status;
}
