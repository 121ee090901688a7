/* SPDX-License-Identifier: MIT
 *
 * Products of sparse matrices, C = A B, whose size is not known before they have been computed
 * (vmm-spgemm-2023: docs/sources.md). The result is stored in vectors of the caller, which grow in
 * place. It is computed where they are: on the host by threads, or on a device by kernels, on their
 * stream.
 *
 *     ga_spgemm_product c = {.offsets = offsets, .indices = indices, .values = values};
 *     ga_spgemm_multiply(&a, &b, NULL, &c, NULL);
 *     ga_csr result = ga_spgemm_view(&c);
 *
 * Errors: as in gpualloc.h. A call that fails leaves the matrices unchanged. If it refuses its
 * arguments (GA_ERR_ARGUMENT), the product is unchanged, too; else the vectors are empty, and
 * `rows` and `columns` are 0.
 *
 * Thread safety: calls with different vectors are independent; calls may share A and B. No call is
 * async-signal-safe.
 *
 * Compiles alone as C11, C++17 and under nvcc.
 */
#ifndef GPUALLOC_SPGEMM_H
#define GPUALLOC_SPGEMM_H

#include <gpualloc/matrix.h>
#include <gpualloc/vector.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How the memory of the result is found (vmm-spgemm-2023, §2.2 and §3.2). The entries of a row of C
 * are at most the multiplications that the row takes: its upper bound. */
typedef enum ga_spgemm_method {
    GA_SPGEMM_AUTO = 0, /* GA_SPGEMM_GROWING; for the goal memory, and on a device where many rows
                         * of C have hundreds of entries and one is expected to have more than about
                         * 8,000, GA_SPGEMM_PRECISE */
    GA_SPGEMM_PRECISE,  /* computes the pattern first, for the exact size, and then the values */
    GA_SPGEMM_UPPER, /* computes once, into memory for the upper bound, and then closes the gaps */
    GA_SPGEMM_GROWING, /* computes once, and appends rows in their order while the vectors grow */
    GA_SPGEMM_DYNAMIC, /* computes once, in rounds: in each the vectors grow by `size_per_row`
                        * entries for each row that is not complete; then gathers the rows
                        * (Algorithm 3, §3.2) */
    GA_SPGEMM_METHOD_COUNT
} ga_spgemm_method;

/* "auto", "precise", ...; "?" for values out of range. Static. */
GA_API const char *ga_spgemm_method_text(ga_spgemm_method method);

enum {
    /* The columns of each row of C are in any order, which is faster. Then C is no matrix for
     * ga_csr_check(), and so neither for another product nor for ga_matrix_write(). */
    GA_SPGEMM_UNSORTED = 1,
    /* Expert: all rounds of GA_SPGEMM_DYNAMIC in one launch, while the vectors grow, with barriers
     * of all blocks between them (§6.2). On a device, with GA_SPGEMM_KERNEL_ROWS only. */
    GA_SPGEMM_COOPERATIVE = 2
};

/* How rows of C are computed. */
typedef enum ga_spgemm_kernel {
    GA_SPGEMM_KERNEL_ROWS = 0, /* the rows of B that a row of A names are added up */
    /* Expert: each row of A is merged with each column of B (vmm-spgemm-2023, Listing 2.1), by one
     * thread a row, which takes time proportional to rows times columns. For small matrices, to
     * reproduce the thesis: on a device B is copied to the host, transposed there, and copied back.
     * Not with GA_SPGEMM_GROWING, GA_SPGEMM_AUTO. */
    GA_SPGEMM_KERNEL_DOT,
    GA_SPGEMM_KERNEL_COUNT
} ga_spgemm_kernel;

/* What GA_SPGEMM_AUTO, and `size_per_row` of 0, are chosen for. */
typedef enum ga_spgemm_goal {
    GA_SPGEMM_GOAL_TIME = 0,
    GA_SPGEMM_GOAL_MEMORY, /* little memory at the peak: GA_SPGEMM_PRECISE */
    GA_SPGEMM_GOAL_COUNT
} ga_spgemm_goal;

typedef struct ga_spgemm_options {
    uint32_t options_size; /* sizeof(ga_spgemm_options) */
    uint32_t flags;        /* GA_SPGEMM_UNSORTED and GA_SPGEMM_COOPERATIVE, or 0 */
    ga_spgemm_method method;
    uint32_t threads; /* on the host: 1 to 1024; 0: one for each processor that the process may
                       * use */
    ga_spgemm_goal goal;
    /* GA_SPGEMM_DYNAMIC: the entries by which a row grows in a round, 8 to 256; 0: chosen by the
     * goal and a sample of the rows. For time, about the least of 8, 16, 32, 48, 64, 96, 128 and
     * 256 that holds 31 of 32 rows in one round; for memory, the largest of them that wastes at
     * most about 5 %, or 8. */
    uint32_t size_per_row;
    ga_spgemm_kernel kernel;
} ga_spgemm_options;

/* The result: vectors on the host, or all on one device and one stream, of elements of 8 bytes
 * (offsets), 4 bytes (indices) and ga_value_size() bytes (values), opened by the caller. Vectors
 * opened with GA_ARENA_EXACT take the least memory. `rows`, `columns` and `type` are set by the
 * call. */
typedef struct ga_spgemm_product {
    ga_vector *offsets, *indices, *values;
    uint64_t rows, columns;
    ga_value_type type;
} ga_spgemm_product;

/* The result of the last call, if it succeeded, as a matrix in the memory of the vectors: valid
 * until they change. All zeros for NULL. */
GA_API ga_csr ga_spgemm_view(const ga_spgemm_product *product);

/* Measures of a call. */
typedef struct ga_spgemm_report {
    ga_spgemm_method method; /* that was used */
    uint32_t threads;
    uint64_t multiplications;   /* the sum of the upper bounds of all rows */
    uint64_t entries;           /* of C */
    uint64_t entries_estimated; /* of C, from a sample of its rows and the multiplications of large
                                 * ones; 0: no estimate was needed */
    uint64_t entries_peak;      /* for which memory was mapped at most, in the vector of indices */
    /* Of the indices and values, mapped at most, with the second copy of one of the vectors while
     * GA_SPGEMM_DYNAMIC gathers rows. */
    uint64_t bytes_peak;
    uint64_t scratch_bytes; /* of all threads together, when the last one ended; or in device
                               * memory; without the second copy */
    uint64_t rounds;        /* GA_SPGEMM_DYNAMIC: of them; else 0 */
    uint32_t size_per_row;  /* GA_SPGEMM_DYNAMIC: as it was chosen; else 0 */
} ga_spgemm_report;

/* C = A B, for matrices of one type: in host memory for vectors on the host, else in memory that
 * the kernels of the vectors' device can access. An entry of C is stored for each position at which
 * a row of A and a column of B have entries in common, also if its value is zero. The values are
 * sums in an order that is not specified, so that they may differ in the last digits from call to
 * call. NaN and infinities are multiplied and added as IEEE 754 says.
 *
 * On a device the call waits for the stream, because it reads sizes back, and the matrices must
 * not change meanwhile. Besides the result it needs some bytes for each row; up to 1 MiB for each
 * multiprocessor, for GA_SPGEMM_GROWING; and, if rows of C have more than about a thousand entries,
 * up to 5/32 of a byte for each column of B in each running block: together at most 256 MiB, half
 * of the expected result, or what one block needs, whichever is the most.
 * GA_SPGEMM_DYNAMIC needs 4 bytes for each row and for each piece of `size_per_row` entries, and a
 * second copy of the indices, and then of the values.
 *
 * NULL for `options` is all zeros. `report` may be NULL.
 *
 * GA_ERR_ARGUMENT     the columns of A are not the rows of B, the types differ, a matrix is not as
 *                     ga_csr says, a vector has elements of another size or is given twice, the
 *                     vectors are in different places, the kernels cannot access A or B, A or B is
 *                     in one of the vectors, or an option is out of range
 * GA_ERR_MEMORY       out of memory, or a vector is at its limit
 * GA_ERR_DEVICE       the driver fails, the library was built without device code, or the device
 *                     has no cooperative launches: GA_SPGEMM_COOPERATIVE
 * GA_ERR_SIZE         a row takes 2^32 - 1 multiplications or more: GA_SPGEMM_UPPER on a device;
 *                     2^32 rows or more: GA_SPGEMM_DYNAMIC
 * GA_ERR_SIZE, GA_ERR_CANNOT_GROW: as ga_vector_reserve() */
GA_API ga_status ga_spgemm_multiply(const ga_csr *a, const ga_csr *b,
                                    const ga_spgemm_options *options, ga_spgemm_product *product,
                                    ga_spgemm_report *report);

#ifdef __cplusplus
}
#endif

#endif
