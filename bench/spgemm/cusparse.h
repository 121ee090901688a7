/* SPDX-License-Identifier: MIT
 *
 * Products by cuSPARSE, which is loaded when the program runs.
 */
#ifndef GPUALLOC_BENCH_SPGEMM_CUSPARSE_H
#define GPUALLOC_BENCH_SPGEMM_CUSPARSE_H

#include <gpualloc/matrix.h>

#include <stdbool.h>

enum {
    BENCH_CUSPARSE_ALGORITHMS = 3
};

/* The monotonic clock. */
double bench_now_ms(void);

typedef struct bench_cusparse bench_cusparse;

typedef struct bench_cusparse_result {
    double ms;             /* all of the call, its allocations included */
    double ms_allocations; /* the part of cudaMalloc and cudaFree */
    uint64_t entries;      /* of the product */
    uint64_t peak_bytes;   /* that were allocated at most, the product included */
    bool sorted;           /* the columns of each row ascend */
} bench_cusparse_result;

/* Loads the library `path`. NULL, with a message on standard error, if it cannot be loaded. */
bench_cusparse *bench_cusparse_open(const char *path);

/* A times A by CUSPARSE_SPGEMM_ALG1, 2 or 3, for a matrix in host memory of fewer than 2^31
 * entries. False, with the reason in `why`, if cuSPARSE refuses it or memory is exhausted. */
bool bench_cusparse_square(bench_cusparse *library, const ga_csr *a, int algorithm,
                           bench_cusparse_result *out, const char **why);

void bench_cusparse_close(bench_cusparse *library);

#endif
