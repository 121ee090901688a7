/* SPDX-License-Identifier: MIT
 *
 * A product, in the place of its vectors: multiply.c has checked the arguments.
 */
#ifndef GPUALLOC_SPGEMM_MULTIPLY_H
#define GPUALLOC_SPGEMM_MULTIPLY_H

#include <gpualloc/backend.h>
#include <gpualloc/spgemm.h>

enum {
    GA_SPGEMM_THREADS_MAX = 1024
};

/* Checks the entries of both matrices, and computes the product by report->method. GA_ERR_ARGUMENT
 * if a matrix is not valid; then the vectors are unchanged. After another failure the caller
 * empties them. */
typedef ga_status ga_spgemm_run(const ga_csr *a, const ga_csr *b, const ga_spgemm_options *options,
                                ga_spgemm_product *product, ga_spgemm_report *report);
ga_spgemm_run ga_spgemm_on_host, ga_spgemm_on_device;

/* Begins the product, once the matrices have been checked: the vectors are empty, but the offsets,
 * which are not set, have their length. */
ga_status ga_spgemm_begin(const ga_csr *a, const ga_csr *b, ga_spgemm_product *product);

/* Gives the vectors of indices and values room for exactly `entries`. */
ga_status ga_spgemm_resize(const ga_spgemm_product *product, uint64_t entries);

/* Entries and bytes for which there is memory, if they are more than before. */
void ga_spgemm_note_peak(const ga_spgemm_product *product, ga_spgemm_report *report);

/* The bytes of indices and values and `more`, if they are more than before. */
void ga_spgemm_note_bytes(const ga_spgemm_product *product, uint64_t more,
                          ga_spgemm_report *report);

/* ---- vectors on loan ------------------------------------------------------------------------- */

/* Indices and values while a kernel appends to them. */
typedef struct ga_spgemm_loan {
    void *indices, *values; /* the states for arena/append.h; NULL: not lent */
} ga_spgemm_loan;

/* Lends both vectors; they grow by about a part of `expected` entries. */
ga_status ga_spgemm_lend(const ga_spgemm_product *product, uint64_t expected, ga_spgemm_loan *loan);

/* Ends the loan. *reason is why a vector could not grow, or "". */
ga_status ga_spgemm_end_loan(const ga_spgemm_product *product, const ga_spgemm_loan *loan,
                             const char **reason);

#endif
