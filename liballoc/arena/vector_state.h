/* SPDX-License-Identifier: MIT
 *
 * A vector, for the files that make it up: vector.c, and loan.c for what kernels do with it.
 */
#ifndef GPUALLOC_ARENA_VECTOR_STATE_H
#define GPUALLOC_ARENA_VECTOR_STATE_H

#include <gpualloc/vector.h>

#include "carrier.h"

typedef struct ga_loan ga_loan;

struct ga_vector {
    ga_arena *arena;
    ga_carrier carrier;
    uint64_t size, most; /* elements; `most` as limit or arithmetic allow */
    size_t element;      /* bytes */
    bool exact;
    ga_loan *loan; /* NULL: kernels do not have it */
};

/* Back `n` elements, and reserve more addresses behind where they run out. Thread safe. */
ga_status ga_vector_grow_to(ga_vector *v, uint64_t n);

/* Forget a loan, if there is one, and with it what kernels have appended. */
void ga_loan_end(ga_vector *v);

#endif
