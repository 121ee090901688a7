/* SPDX-License-Identifier: MIT
 *
 * The transpose of a matrix, for the kernel dot.
 */
#ifndef GPUALLOC_SPGEMM_TRANSPOSE_H
#define GPUALLOC_SPGEMM_TRANSPOSE_H

#include <gpualloc/backend.h>
#include <gpualloc/matrix.h>

typedef struct ga_spgemm_transpose {
    ga_csr view;
    void *block; /* with all arrays */
    uint64_t bytes;
} ga_spgemm_transpose;

/* The transpose of a matrix in host memory. GA_ERR_MEMORY */
ga_status ga_spgemm_transpose_make(const ga_csr *matrix, ga_spgemm_transpose *out);

/* The arrays in a block at another address. */
ga_csr ga_spgemm_transpose_at(const ga_spgemm_transpose *transpose, void *block);

/* Also for a record of zeros. */
void ga_spgemm_transpose_free(ga_spgemm_transpose *transpose);

#endif
