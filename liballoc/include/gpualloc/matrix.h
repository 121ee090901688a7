/* SPDX-License-Identifier: MIT
 *
 * Sparse matrices in compressed sparse rows (CSR), and Matrix Market files of them
 * (https://math.nist.gov/MatrixMarket/formats.html).
 *
 *     ga_matrix *matrix;
 *     ga_matrix_read(&matrix, "cage14.mtx", NULL);
 *     ga_csr a = ga_matrix_view(matrix);
 *     a.offsets[i] to a.offsets[i + 1] are the entries of row i in a.indices and a.values
 *     ga_matrix_free(matrix);
 *
 * An entry is stored, whether its value is zero or not: files have explicit zeros, and products of
 * patterns count them.
 *
 * Errors: as in gpualloc.h. Thread safety: any thread may call at any time; a matrix does not
 * change between ga_matrix_read() and ga_matrix_free(), so threads may share it. No call is
 * async-signal-safe. Calls for files block while the file system does.
 *
 * Compiles alone as C11, C++17 and under nvcc.
 */
#ifndef GPUALLOC_MATRIX_H
#define GPUALLOC_MATRIX_H

#include <gpualloc/gpualloc.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ga_value_type {
    GA_FLOAT64 = 0,
    GA_FLOAT32,
    GA_VALUE_TYPE_COUNT
} ga_value_type;

/* Bytes of one value: 8 or 4; 0 for types out of range. */
GA_API size_t ga_value_size(ga_value_type type);

/* "float64", "float32"; "?" for values out of range. Static. */
GA_API const char *ga_value_type_text(ga_value_type type);

/* A view of a matrix of `rows` times `columns`; it owns nothing. The arrays may be in host or in
 * device memory: each function says which it reads. Entries of a row have ascending columns, each
 * column once. */
typedef struct ga_csr {
    uint64_t rows;
    uint64_t columns;        /* at most 2^32 - 1 */
    const uint64_t *offsets; /* rows + 1: entries of row i begin at offsets[i]; offsets[0] is 0, and
                              * offsets[rows] the number of entries */
    const uint32_t *indices; /* the column of each entry, from 0 */
    const void *values;      /* the value of each entry, of `type` */
    ga_value_type type;
} ga_csr;

/* Checks that a matrix in host memory is as ga_csr says. The arrays must be as long as `rows` and
 * offsets[rows] require. `indices` and `values` may be NULL if there are no entries. Time
 * proportional to rows and entries.
 *
 * GA_ERR_ARGUMENT  it is not, or a pointer is NULL; the message names the row and the value */
GA_API ga_status ga_csr_check(const ga_csr *matrix);

/* ---- matrices that own their memory --------------------------------------------------------- */

typedef struct ga_matrix ga_matrix;

/* The view of a matrix, in host memory; valid until the matrix is freed. All zeros for NULL. */
GA_API ga_csr ga_matrix_view(const ga_matrix *matrix);

/* Frees the matrix; no thread may be using it or its view. NULL is ignored. */
GA_API void ga_matrix_free(ga_matrix *matrix);

enum {
    GA_MATRIX_DROP_ZEROS = 1 /* entries whose value is zero, also as a sum, are not stored */
};

typedef struct ga_matrix_options {
    uint32_t options_size; /* sizeof(ga_matrix_options) */
    uint32_t flags;        /* GA_MATRIX_DROP_ZEROS, or 0 */
    ga_value_type type;    /* of the values in memory */
    uint32_t reserved;     /* 0 */
    uint64_t rows_max;     /* rows that a file may have. Empty rows take memory but no bytes of the
                            * file, so that a small file could exhaust the memory; 0: 2^24, or 16
                            * for each byte of the file if that is more */
    ga_heap *heap;         /* source of memory: a host heap that outlives the matrix; NULL: one is
                            * opened as `system` */
} ga_matrix_options;

/* Reads a Matrix Market file; the caller frees the matrix. NULL for `options` keeps zeros, as
 * float64.
 *
 *   formats   coordinate, array
 *   fields    real, integer, pattern (each value is 1)
 *   symmetry  general, symmetric, skew-symmetric: the file has the lower triangle, the matrix both
 *
 * Entries may be in any order. Values of one position are added in the order of the file, in
 * float64, and then rounded to `type`. NaN and infinities are kept. An array becomes a matrix with
 * an entry at each position. Lines have at most 1024 bytes; lines that end with CR LF, blank lines,
 * and comments before the sizes are accepted. Numbers are read as in the locale "C", whatever
 * locale the program has set.
 *
 * Memory: 8 bytes for each row and 12 for each entry of the matrix, and during the call up to 16
 * more for each entry of the file, 32 for each entry of the longest row, and 1 MiB.
 *
 * GA_ERR_IO           the file cannot be read, is no regular file, or is damaged; the message has
 *                     the file, the line, its text and the expected text
 * GA_ERR_UNSUPPORTED  a field `complex` or a symmetry `hermitian`
 * GA_ERR_MEMORY       out of memory
 * GA_ERR_PLACE        the heap is not on the host
 * GA_ERR_ARGUMENT     a pointer is NULL, or an option is out of range */
GA_API ga_status ga_matrix_read(ga_matrix **out, const char *path,
                                const ga_matrix_options *options);

/* Writes a matrix in host memory as a Matrix Market file: coordinate, real, general, row by row.
 * Values have as many digits as a reader needs for exactly the same value; a NaN keeps its sign
 * alone. The file is written beside `path` and renamed, so that a call that fails leaves no new
 * file, and an older one as it was.
 *
 * GA_ERR_IO        the file cannot be written, or `path` is neither free nor a regular file
 *                  (symbolic links are refused)
 * GA_ERR_MEMORY    out of memory
 * GA_ERR_ARGUMENT  ga_csr_check() refuses the matrix; `path` is NULL */
GA_API ga_status ga_matrix_write(const ga_csr *matrix, const char *path);

#ifdef __cplusplus
}
#endif

#endif
