/* SPDX-License-Identifier: MIT
 *
 * The state of a vector, for vector.c and loan.c (lending it to kernels).
 */
#ifndef GPUALLOC_ARENA_VECTOR_STATE_H
#define GPUALLOC_ARENA_VECTOR_STATE_H

#include <gpualloc/vector.h>

#include "carrier.h"

typedef struct ga_loan ga_loan;

struct ga_vector {
    ga_arena *arena;
    ga_carrier carrier;
    uint64_t size, max; /* elements; `max` by limit and arithmetic */
    size_t element;     /* bytes */
    bool exact;
    ga_loan *loan; /* NULL: not lent to kernels */
};

/* Back `n` elements; reserve more addresses behind if they run out. Thread safe. */
ga_status ga_vector_grow_to(ga_vector *v, uint64_t n);

/* End the loan, if any, and drop the elements that kernels have appended. */
void ga_loan_end(ga_vector *v);

#endif
