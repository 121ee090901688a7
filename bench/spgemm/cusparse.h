/* SPDX-License-Identifier: MIT
 *
 * Products by cuSPARSE, which is loaded at run time.
 */
#ifndef GPUALLOC_BENCH_SPGEMM_CUSPARSE_H
#define GPUALLOC_BENCH_SPGEMM_CUSPARSE_H

#include <gpualloc/matrix.h>

#include <stdbool.h>

enum {
    BENCH_CUSPARSE_ALGORITHMS = 3
};

typedef struct bench_cusparse bench_cusparse;

typedef struct bench_cusparse_result {
    double ms;             /* all of the call, its allocations included */
    double ms_allocations; /* the part of cudaMalloc and cudaFree */
    uint64_t entries;      /* of the product */
    uint64_t peak_bytes;   /* that were allocated at most, the product included */
    bool sorted;           /* the columns of each row ascend */
} bench_cusparse_result;

/* Loads the library `path`, for device 0.
 *
 * GA_ERR_LIBRARY  it cannot be loaded, lacks a function, or does not start
 * GA_ERR_DEVICE   there is no device
 * GA_ERR_MEMORY   out of memory */
ga_status bench_cusparse_open(bench_cusparse **out, const char *path);

/* CUSPARSE_VERSION, such as 12504 for 12.5.4. */
int bench_cusparse_version(const bench_cusparse *library);

/* A times A by CUSPARSE_SPGEMM_ALG1, 2 or 3, for a matrix in host memory of fewer than 2^31
 * entries.
 *
 * GA_ERR_LIBRARY  cuSPARSE refuses it
 * GA_ERR_MEMORY   out of memory, on the host or on the device */
ga_status bench_cusparse_square(bench_cusparse *library, const ga_csr *a, int algorithm,
                                bench_cusparse_result *out);

/* NULL is ignored. */
void bench_cusparse_close(bench_cusparse *library);

#endif
