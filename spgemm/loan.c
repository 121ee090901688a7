/* SPDX-License-Identifier: MIT
 *
 * The memory of a product's vectors.
 */
#include "multiply.h"

#include "arena/vector_state.h"

enum {
    /* Bytes by which vectors on loan grow: a part of what is expected, within these. */
    STEP_PARTS = 64,
    STEP_MIN = 64 << 10,
    STEP_MAX = 64 << 20
};

ga_status ga_spgemm_resize(const ga_spgemm_product *product, uint64_t entries)
{
    ga_status status = ga_vector_reserve(product->indices, entries);
    status = status ? status : ga_vector_reserve(product->values, entries);
    status = status ? status : ga_vector_resize(product->indices, entries);
    return status ? status : ga_vector_resize(product->values, entries);
}

static uint64_t bytes_of(const ga_vector *vector)
{
    return ga_vector_capacity(vector) * ga_vector_element(vector);
}

void ga_spgemm_note_bytes(const ga_spgemm_product *product, uint64_t more, ga_spgemm_report *report)
{
    uint64_t bytes = bytes_of(product->indices) + bytes_of(product->values) + more;
    report->bytes_peak = bytes > report->bytes_peak ? bytes : report->bytes_peak;
}

void ga_spgemm_note_peak(const ga_spgemm_product *product, ga_spgemm_report *report)
{
    uint64_t peak = ga_vector_capacity(product->indices);
    report->entries_peak = peak > report->entries_peak ? peak : report->entries_peak;
    ga_spgemm_note_bytes(product, 0, report);
}

/* Bytes by which the vector grows, such that whole steps fill its limit, but for some bytes. */
static uint64_t step_of(const ga_vector *vector, uint64_t expected)
{
    uint64_t limit = vector->max * vector->element;
    uint64_t step = expected * vector->element / STEP_PARTS;
    step = step < STEP_MIN ? STEP_MIN : step > STEP_MAX ? STEP_MAX : step;
    return limit < step ? limit : limit / (limit / step);
}

/* A vector with a limit below the least step gets all of its memory before. */
static ga_status lend(ga_vector *vector, uint64_t expected, void **state)
{
    ga_kernel_vector view;
    uint64_t step = step_of(vector, expected);
    ga_status status = step < STEP_MIN ? ga_vector_reserve(vector, vector->max) : GA_OK;
    if (status == GA_OK) {
        status = ga_vector_lend(vector, step < STEP_MIN ? STEP_MIN : step, &view);
    }
    *state = status == GA_OK ? view.state : NULL;
    return status;
}

ga_status ga_spgemm_lend(const ga_spgemm_product *product, uint64_t expected, ga_spgemm_loan *loan)
{
    *loan = (ga_spgemm_loan){0};
    ga_status status = lend(product->indices, expected, &loan->indices);
    return status ? status : lend(product->values, expected, &loan->values);
}

ga_status ga_spgemm_end_loan(const ga_spgemm_product *product, const ga_spgemm_loan *loan,
                             const char **reason)
{
    ga_vector_appended appended[2] = {{.reason = ""}, {.reason = ""}};
    ga_status indices = loan->indices ? ga_vector_end_loan(product->indices, &appended[0]) : GA_OK;
    ga_status values = loan->values ? ga_vector_end_loan(product->values, &appended[1]) : GA_OK;
    *reason = appended[*appended[0].reason ? 0 : 1].reason;
    return indices ? indices : values;
}
