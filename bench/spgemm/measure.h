/* SPDX-License-Identifier: MIT
 *
 * One product A A, by a method of gpualloc/spgemm.h or by cuSPARSE.
 */
#ifndef GPUALLOC_BENCH_SPGEMM_MEASURE_H
#define GPUALLOC_BENCH_SPGEMM_MEASURE_H

#include "cusparse.h"

#include <gpualloc/spgemm.h>

typedef struct bench_square_case {
    ga_csr host;              /* A, in host memory */
    ga_csr a;                 /* A, in memory of `place` */
    ga_place place;           /* of A and of the product */
    uint32_t threads, flags;  /* as in ga_spgemm_options */
    bench_cusparse *cusparse; /* NULL: cuSPARSE is not measured */
    const ga_csr *expected;   /* A A, in host memory; NULL: products are not checked */
    uint64_t multiplications;
} bench_square_case;

/* A method of gpualloc/spgemm.h with its options, or an algorithm of cuSPARSE. */
typedef struct bench_square_method {
    const char *name; /* "precise", ..., "cusparse-ALG3" */
    char text[24];    /* the name, and the size of pieces if several are measured */
    ga_spgemm_method method;
    ga_spgemm_kernel kernel;
    ga_spgemm_goal goal;
    uint32_t flags, size_per_row;
    int algorithm; /* of cuSPARSE: 1 to BENCH_CUSPARSE_ALGORITHMS; else 0 */
} bench_square_method;

enum {
    BENCH_SQUARE_METHODS = 40 /* at most, all of bench_square_methods() */
};

/* Stores the methods of a name in `list`, which has room for BENCH_SQUARE_METHODS: several if they
 * differ by the size of pieces. Returns their number; 0 for an unknown name. */
size_t bench_square_methods(const char *name, bench_square_method *list);

/* The names, separated by commas. Static. */
const char *bench_square_method_names(void);

typedef struct bench_square_sample {
    double ms;                /* all of the call, with its allocations */
    double allocation_ms;     /* of cuSPARSE: the part of cudaMalloc and cudaFree; else NAN */
    double growth_ms;         /* of the vectors of indices and values; NAN for cuSPARSE. A part of
                               * it may be while the kernel runs. */
    uint64_t entries;         /* of the product */
    uint64_t estimated;       /* entries, from a sample; 0: no estimate was made */
    uint64_t rounds;          /* of GA_SPGEMM_DYNAMIC */
    uint32_t size_per_row;    /* likewise */
    uint64_t product_bytes;   /* of the product, without unused memory */
    uint64_t peak_bytes;      /* of the product's memory, at most, with a second copy of a part;
                               * of cuSPARSE with all buffers */
    uint64_t scratch_bytes;   /* beside peak_bytes */
    double efficiency;        /* entries over those that had memory at most; NAN for cuSPARSE */
    double mapped_efficiency; /* product_bytes over peak_bytes */
    uint32_t threads;         /* 0 on a device */
    bool sorted;              /* the columns of each row ascend */
} bench_square_sample;

/* Multiplies into new memory, whose allocation is part of the time. With `checks` it compares the
 * product with `expected`: the pattern, and values up to the last digits; of unsorted products the
 * lengths of the rows and the sum of the values; of cuSPARSE's the number of entries. Any status of
 * ga_spgemm_multiply(), and
 *
 * GA_ERR_LIBRARY  the product differs from `expected`, or cuSPARSE fails */
ga_status bench_square(const bench_square_case *c, const bench_square_method *method, bool checks,
                       bench_square_sample *out);

/* A copy of a matrix on the host, in new vectors of a place; closed by bench_product_close(), also
 * if the call fails. */
ga_status bench_product_copy(ga_spgemm_product *out, const ga_csr *a, ga_place place);

/* Empty vectors; closed by bench_product_close(), also if the call fails. */
ga_status bench_product_open(ga_spgemm_product *out, ga_place place, ga_value_type type);

/* Also for a record of zeros. */
void bench_product_close(const ga_spgemm_product *product);

#endif
