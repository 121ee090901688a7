/* SPDX-License-Identifier: MIT
 *
 * A product, in the place of its vectors: multiply.c has checked the arguments and made the vector
 * of offsets as long as it will be.
 */
#ifndef GPUALLOC_SPGEMM_MULTIPLY_H
#define GPUALLOC_SPGEMM_MULTIPLY_H

#include <gpualloc/backend.h>
#include <gpualloc/spgemm.h>

enum {
    GA_SPGEMM_THREADS_MAX = 1024
};

/* Checks the entries of both matrices. */
ga_status ga_spgemm_check_on_host(const ga_csr *a, const ga_csr *b);
ga_status ga_spgemm_check_on_device(const ga_csr *a, const ga_csr *b,
                                    const ga_spgemm_product *product);

/* Computes the product, by report->method. If it fails, the caller empties the vectors. */
typedef ga_status ga_spgemm_run(const ga_csr *a, const ga_csr *b, const ga_spgemm_options *options,
                                ga_spgemm_product *product, ga_spgemm_report *report);
ga_spgemm_run ga_spgemm_on_host, ga_spgemm_on_device;

/* Gives the vectors of indices and values room for exactly `entries`. */
ga_status ga_spgemm_resize(const ga_spgemm_product *product, uint64_t entries);

/* The entries for which there is memory, if they are more than before. */
void ga_spgemm_note_peak(const ga_spgemm_product *product, ga_spgemm_report *report);

/* ---- vectors on loan ------------------------------------------------------------------------- */

/* Indices and values while kernels, or threads, append to them. */
typedef struct ga_spgemm_loan {
    void *indices, *values; /* the states for arena/append.h; NULL: not lent */
} ga_spgemm_loan;

/* Lends both vectors; they grow by about a part of `expected` entries. */
ga_status ga_spgemm_lend(const ga_spgemm_product *product, uint64_t expected, ga_spgemm_loan *loan);

/* Ends the loan. *reason is why a vector could not grow, or "". */
ga_status ga_spgemm_end_loan(const ga_spgemm_product *product, const ga_spgemm_loan *loan,
                             const char **reason);

#endif
