/* SPDX-License-Identifier: MIT
 *
 * GA_SPGEMM_DYNAMIC: rounds in which the vectors of a product grow and its rows go on, and the
 * gathering of these pieces to a matrix (vmm-spgemm-2023, Algorithm 3). The host and the device
 * have functions for the work; memory is found here for both.
 */
#ifndef GPUALLOC_SPGEMM_ROUNDS_H
#define GPUALLOC_SPGEMM_ROUNDS_H

#include "multiply.h"
#include "round_tile.h"

#include <gpualloc/vector.h>

enum {
    GA_SPGEMM_SIZE_MIN = 8,
    GA_SPGEMM_SIZE_MAX = 256,
    GA_SPGEMM_LIST_STEP = 2 << 20 /* bytes by which the list of rows grows under a kernel */
};

typedef struct ga_spgemm_rounds ga_spgemm_rounds;

struct ga_spgemm_rounds {
    /* By the caller, with round.size, round.all and round.cursors; the cursors are 0. */
    const ga_spgemm_product *product;
    ga_spgemm_report *report;
    uint64_t row_most; /* entries that a row can have */
    void *context;

    /* Computes the pieces of the round, adds their numbers of entries to offsets[row + 1], and
     * lists the rows for the next one. *listed is the number of rows in the list then. */
    ga_status (*fill)(ga_spgemm_rounds *rounds, uint64_t *listed);

    /* NULL, or computes all rounds, and the memory that they need. */
    ga_status (*run)(ga_spgemm_rounds *rounds);

    /* Makes offsets of the numbers of entries. *entries is their sum. */
    ga_status (*sum)(ga_spgemm_rounds *rounds, uint64_t *entries);

    /* Copies all pieces, of elements of `element` bytes, from one array to their positions in the
     * other. */
    ga_status (*gather)(ga_spgemm_rounds *rounds, const void *from, void *to, size_t element);

    /* The state. */
    ga_spgemm_round round;
    ga_vector *starts, *rows; /* the arrays of the round */
};

/* Computes the product. The vectors are empty, but the offsets, which are 0, have their length.
 * Sets the report but for multiplications, estimate and threads; scratch_bytes is that of the
 * lists. */
ga_status ga_spgemm_run_rounds(ga_spgemm_rounds *rounds);

/* The size of a piece for a goal. 31 of 32 rows have at most `usual` entries. */
uint32_t ga_spgemm_choose_size(ga_spgemm_goal goal, double usual, double mean);

#endif
