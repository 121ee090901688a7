/* SPDX-License-Identifier: MIT
 *
 * Matrices to measure products with. The collection of *vmm-spgemm-2023* (table 4.1) cannot be part
 * of the project, so that generators stand in: three have exactly the pattern of the original and
 * carry its name; a name `like-NAME` says that rows, multiplications and entries of the product are
 * close to NAME's. `rmat` and `powerlaw` are skewed, which the thesis's are not.
 */
#ifndef GPUALLOC_BENCH_SPGEMM_MATRICES_H
#define GPUALLOC_BENCH_SPGEMM_MATRICES_H

#include <gpualloc/matrix.h>

#define BENCH_SCALE_MIN 1e-6
#define BENCH_SCALE_MAX 8.0

/* A matrix by name, with the thesis's numbers of the original; 0 where it has none. The number of
 * non-zeros leaves out stored zeros, and the multiplications include them. */
typedef struct bench_facts {
    const char *name;
    bool exact;               /* the pattern is the original's */
    uint64_t rows;            /* table 4.1 */
    uint64_t nonzeros;        /* table 4.1 */
    uint64_t multiplications; /* of A times A: "Estimation" in table 5.2 */
    uint64_t product;         /* entries of A times A: "Actual" in table 5.2 */
} bench_facts;

/* The matrix of that number, in the order of table 4.1, then the skewed ones; NULL behind the last.
 */
const bench_facts *bench_facts_at(size_t number);

/* NULL if there is no such name. */
const bench_facts *bench_facts_of(const char *name);

typedef struct bench_matrix {
    ga_csr csr; /* in host memory; the arrays belong to this record */
} bench_matrix;

/* Generates a matrix. Equal arguments give equal matrices; like-boneS10 and powerlaw depend on the
 * last bits of the C library's sin() and powl(), too. Several threads may generate at once.
 *
 * `scale`  about the number of rows, in those of the original: 1, or 0.1 for a tenth
 * `seed`   of values, and of patterns that are drawn
 *
 * GA_ERR_ARGUMENT  no such name, or the scale is out of range
 * GA_ERR_MEMORY    out of memory */
ga_status bench_matrix_make(bench_matrix *out, const char *name, double scale, uint64_t seed,
                            ga_value_type type);

/* Also for a record of zeros. */
void bench_matrix_free(bench_matrix *matrix);

/* The multiplications of A times A, a square matrix: for each entry of A the length of the row that
 * its column names. */
uint64_t bench_multiplications(const ga_csr *a);

/* The entries of A times A. Time proportional to the multiplications. GA_ERR_MEMORY. */
ga_status bench_product_entries(const ga_csr *a, uint64_t *out);

#endif
