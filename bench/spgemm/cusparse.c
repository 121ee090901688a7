/* SPDX-License-Identifier: MIT
 *
 * Products by cuSPARSE: the calls of NVIDIA's documentation of cusparseSpGEMM, with blocks of
 * cuMemAlloc, which cudaMalloc calls. The prototypes are those of cusparse.h of CUDA 12 and 13.
 */
#include "cusparse.h"

#include "../runner/clock.h"
#include "platform/cuda_driver.h"

#include <gpualloc/backend.h>

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

enum {
    INDEX_32 = 2,
    REAL_32 = 0,
    REAL_64 = 1,
    ALGORITHM_1 = 3, /* the next two follow */
    BLOCKS_MAX = 16
};

static const char no_memory[] = "no memory";

typedef void *handle;

#define SPGEMM_ARGUMENTS                                                                           \
    handle library, int op_a, int op_b, const void *alpha, handle a, handle b, const void *beta,   \
        handle c, int type, int algorithm, handle product

#define FUNCTIONS(X)                                                                               \
    X(cusparseCreate, (handle *))                                                                  \
    X(cusparseDestroy, (handle))                                                                   \
    X(cusparseGetVersion, (handle, int *))                                                         \
    X(cusparseCreateCsr,                                                                           \
      (handle *, int64_t, int64_t, int64_t, void *, void *, void *, int, int, int, int))           \
    X(cusparseDestroySpMat, (handle))                                                              \
    X(cusparseSpMatGetSize, (handle, int64_t *, int64_t *, int64_t *))                             \
    X(cusparseCsrSetPointers, (handle, void *, void *, void *))                                    \
    X(cusparseSpGEMM_createDescr, (handle *))                                                      \
    X(cusparseSpGEMM_destroyDescr, (handle))                                                       \
    X(cusparseSpGEMM_workEstimation, (SPGEMM_ARGUMENTS, size_t *, void *))                         \
    X(cusparseSpGEMM_estimateMemory, (SPGEMM_ARGUMENTS, float, size_t *, void *, size_t *))        \
    X(cusparseSpGEMM_compute, (SPGEMM_ARGUMENTS, size_t *, void *))                                \
    X(cusparseSpGEMM_copy, (SPGEMM_ARGUMENTS))

#define MEMBER(name, parameters) int(*name) parameters;

struct bench_cusparse {
    FUNCTIONS(MEMBER)
    void *library;
    ga_cuda_scope scope; /* of the device, from open to close */
    handle cusparse;
};

/* One product. */
typedef struct run {
    bench_cusparse *lib;
    const ga_csr *a;
    int algorithm, type;
    CUdeviceptr blocks[BLOCKS_MAX];
    uint64_t sizes[BLOCKS_MAX];
    int block_count;
    uint64_t bytes;
    handle a_matrix, c_matrix, product;
    bench_cusparse_result *out;
} run;

/* The functions of the loaded library. */
static bool find_functions(bench_cusparse *lib)
{
    bool found = true;
#define FIND(name, parameters)                                                                     \
    if (found) {                                                                                   \
        void *symbol = dlsym(lib->library, #name);                                                 \
        memcpy(&lib->name, &symbol, sizeof symbol);                                                \
        found = symbol != NULL;                                                                    \
    }
    FUNCTIONS(FIND)
    return found;
}

static ga_status start(bench_cusparse *lib, const char *path)
{
    lib->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!lib->library || !find_functions(lib)) {
        return ga_fail(GA_ERR_LIBRARY, "cuSPARSE: %s", dlerror());
    }
    ga_status status = ga_cuda_enter(&lib->scope, 0);
    if (status == GA_OK && lib->cusparseCreate(&lib->cusparse)) {
        ga_cuda_leave(&lib->scope);
        status = ga_fail(GA_ERR_LIBRARY, "cuSPARSE: \"%s\": cusparseCreate failed", path);
    }
    return status;
}

ga_status bench_cusparse_open(bench_cusparse **out, const char *path)
{
    bench_cusparse *lib = calloc(1, sizeof *lib);
    *out = NULL;
    ga_status status =
        lib ? start(lib, path) : ga_fail(GA_ERR_MEMORY, "cuSPARSE: no memory for its functions");
    if (status == GA_OK) {
        *out = lib;
    } else {
        free(lib);
    }
    return status;
}

int bench_cusparse_version(const bench_cusparse *lib)
{
    int version = 0;
    lib->cusparseGetVersion(lib->cusparse, &version);
    return version;
}

void bench_cusparse_close(bench_cusparse *lib)
{
    if (lib) {
        lib->cusparseDestroy(lib->cusparse);
        ga_cuda_leave(&lib->scope);
        free(lib);
    }
}

/* ---- memory ---------------------------------------------------------------------------------- */

static double ms_since(uint64_t begin)
{
    return (double)(ga_bench_now() - begin) / 1e6;
}

static void *allocate(run *r, uint64_t bytes)
{
    CUdeviceptr block = 0;
    uint64_t begin = ga_bench_now();
    if (r->lib->scope.driver->cuMemAlloc(&block, bytes + 16) == CUDA_SUCCESS) {
        r->blocks[r->block_count] = block;
        r->sizes[r->block_count++] = bytes;
        r->bytes += bytes;
        r->out->peak_bytes = r->bytes > r->out->peak_bytes ? r->bytes : r->out->peak_bytes;
    }
    r->out->ms_allocations += ms_since(begin);
    return (void *)block;
}

static void release(run *r, int number)
{
    uint64_t begin = ga_bench_now();
    r->lib->scope.driver->cuMemFree(r->blocks[number]);
    r->bytes -= r->sizes[number];
    r->blocks[number] = r->blocks[--r->block_count];
    r->sizes[number] = r->sizes[r->block_count];
    r->out->ms_allocations += ms_since(begin);
}

static bool copy_to(run *r, void *to, const void *from, uint64_t bytes)
{
    const ga_cuda_driver *driver = r->lib->scope.driver;
    return to && driver->cuMemcpyHtoDAsync((CUdeviceptr)to, from, bytes, NULL) == CUDA_SUCCESS &&
           driver->cuStreamSynchronize(NULL) == CUDA_SUCCESS;
}

static bool copy_from(run *r, void *to, const void *from, uint64_t bytes)
{
    const ga_cuda_driver *driver = r->lib->scope.driver;
    return driver->cuMemcpyDtoHAsync(to, (CUdeviceptr)from, bytes, NULL) == CUDA_SUCCESS &&
           driver->cuStreamSynchronize(NULL) == CUDA_SUCCESS;
}

/* ---- the calls ------------------------------------------------------------------------------- */

#define PRODUCT_ARGUMENTS(r, one, zero)                                                            \
    (r)->lib->cusparse, 0, 0, one, (r)->a_matrix, (r)->a_matrix, zero, (r)->c_matrix, (r)->type,   \
        (r)->algorithm, (r)->product

/* The calls up to the size of the product. Returns NULL, or the name of the failed step. */
static const char *compute(run *r, const void *one, const void *zero)
{
    size_t work = 0, estimate = 0, more = 0;
    void *block;
    if (r->lib->cusparseSpGEMM_workEstimation(PRODUCT_ARGUMENTS(r, one, zero), &work, NULL)) {
        return "workEstimation";
    }
    block = allocate(r, work);
    if (!block) {
        return no_memory;
    }
    if (r->lib->cusparseSpGEMM_workEstimation(PRODUCT_ARGUMENTS(r, one, zero), &work, block)) {
        return "workEstimation";
    }
    if (r->algorithm != ALGORITHM_1) {
        float chunk = 0.2f; /* NVIDIA's example */
        if (r->lib->cusparseSpGEMM_estimateMemory(PRODUCT_ARGUMENTS(r, one, zero), chunk, &estimate,
                                                  NULL, NULL)) {
            return "estimateMemory";
        }
        block = allocate(r, estimate);
        if (!block) {
            return no_memory;
        }
        if (r->lib->cusparseSpGEMM_estimateMemory(PRODUCT_ARGUMENTS(r, one, zero), chunk, &estimate,
                                                  block, &more)) {
            return "estimateMemory";
        }
        release(r, r->block_count - 1);
    } else if (r->lib->cusparseSpGEMM_compute(PRODUCT_ARGUMENTS(r, one, zero), &more, NULL)) {
        return "compute";
    }
    block = allocate(r, more);
    return !block ? no_memory
           : r->lib->cusparseSpGEMM_compute(PRODUCT_ARGUMENTS(r, one, zero), &more, block)
               ? "compute"
               : NULL;
}

/* Allocates the product and copies it there. Returns NULL, or the name of the failed step. */
static const char *copy(run *r, int32_t *offsets, const void *one, const void *zero,
                        int32_t **columns)
{
    int64_t rows, width, entries;
    if (r->lib->cusparseSpMatGetSize(r->c_matrix, &rows, &width, &entries)) {
        return "GetSize";
    }
    *columns = allocate(r, (uint64_t)entries * sizeof **columns);
    void *values = allocate(r, (uint64_t)entries * ga_value_size(r->a->type));
    if (!*columns || !values) {
        return no_memory;
    }
    r->out->entries = (uint64_t)entries;
    return r->lib->cusparseCsrSetPointers(r->c_matrix, offsets, *columns, values) ? "SetPointers"
           : r->lib->cusparseSpGEMM_copy(PRODUCT_ARGUMENTS(r, one, zero))         ? "copy"
                                                                                  : NULL;
}

/* Whether the columns of the first rows ascend. Waits for the product. */
static bool is_sorted(run *r, const int32_t *offsets, const int32_t *columns)
{
    enum {
        ROWS = 1000
    };
    static int32_t ends[ROWS + 1];
    uint64_t rows = r->a->rows < ROWS ? r->a->rows : ROWS;
    if (!copy_from(r, ends, offsets, (rows + 1) * sizeof *ends)) {
        return false;
    }
    size_t bytes = ((size_t)ends[rows] + 1) * sizeof(int32_t);
    int32_t *copies = malloc(bytes);
    bool sorted = copies && copy_from(r, copies, columns, bytes - sizeof(int32_t));
    for (uint64_t row = 0; sorted && row < rows; row++) {
        for (int32_t i = ends[row] + 1; i < ends[row + 1]; i++) {
            sorted = sorted && copies[i - 1] < copies[i];
        }
    }
    free(copies);
    return sorted;
}

/* The matrix, in device memory: its offsets as 32 bits. Returns NULL, or the name of the failed
 * step. */
static const char *upload(run *r, uint64_t entries)
{
    const ga_csr *a = r->a;
    size_t value = ga_value_size(a->type);
    int32_t *offsets = malloc((a->rows + 1) * sizeof *offsets);
    void *blocks[3] = {allocate(r, (a->rows + 1) * sizeof *offsets),
                       allocate(r, entries * sizeof *a->indices), allocate(r, entries * value)};
    for (uint64_t i = 0; offsets && i <= a->rows; i++) {
        offsets[i] = (int32_t)a->offsets[i];
    }
    bool copied = offsets && copy_to(r, blocks[0], offsets, (a->rows + 1) * sizeof *offsets) &&
                  copy_to(r, blocks[1], a->indices, entries * sizeof *a->indices) &&
                  copy_to(r, blocks[2], a->values, entries * value);
    free(offsets);
    return !copied ? no_memory
           : r->lib->cusparseCreateCsr(&r->a_matrix, (int64_t)a->rows, (int64_t)a->columns,
                                       (int64_t)entries, blocks[0], blocks[1], blocks[2], INDEX_32,
                                       INDEX_32, 0, r->type)
               ? "CreateCsr"
               : NULL;
}

/* The timed part. Returns NULL, or the name of the failed step. */
static const char *square(run *r)
{
    static const double one64 = 1, zero64 = 0;
    static const float one32 = 1, zero32 = 0;
    bool is_wide = r->type == REAL_64;
    const void *one = is_wide ? (const void *)&one64 : &one32;
    const void *zero = is_wide ? (const void *)&zero64 : &zero32;
    int32_t *columns = NULL;
    uint64_t begin = ga_bench_now();
    r->out->ms_allocations = 0;
    r->out->peak_bytes = 0;
    r->bytes = 0; /* the matrix A does not count */
    int32_t *offsets = allocate(r, (r->a->rows + 1) * sizeof *offsets);
    if (!offsets) {
        return no_memory;
    }
    int64_t rows = (int64_t)r->a->rows, width = (int64_t)r->a->columns;
    if (r->lib->cusparseCreateCsr(&r->c_matrix, rows, width, 0, offsets, NULL, NULL, INDEX_32,
                                  INDEX_32, 0, r->type) ||
        r->lib->cusparseSpGEMM_createDescr(&r->product)) {
        return "CreateCsr";
    }
    const char *failed = compute(r, one, zero);
    failed = failed ? failed : copy(r, offsets, one, zero, &columns);
    if (!failed && r->lib->scope.driver->cuCtxSynchronize() != CUDA_SUCCESS) {
        failed = "synchronize";
    }
    r->out->ms = ms_since(begin);
    r->out->sorted = !failed && is_sorted(r, offsets, columns);
    return failed;
}

static ga_status result_of(const run *r, const char *failed)
{
    return !failed               ? GA_OK
           : failed == no_memory ? ga_fail(GA_ERR_MEMORY, "cuSPARSE: no memory")
                                 : ga_fail(GA_ERR_LIBRARY, "cuSPARSE: ALG%d: %s failed",
                                           r->algorithm - ALGORITHM_1 + 1, failed);
}

ga_status bench_cusparse_square(bench_cusparse *lib, const ga_csr *a, int algorithm,
                                bench_cusparse_result *out)
{
    run r = {.lib = lib,
             .a = a,
             .algorithm = ALGORITHM_1 + algorithm - 1,
             .type = a->type == GA_FLOAT64 ? REAL_64 : REAL_32,
             .out = out};
    uint64_t entries = a->offsets[a->rows];
    *out = (bench_cusparse_result){0};
    if (entries > INT32_MAX) {
        return ga_fail(GA_ERR_LIBRARY, "cuSPARSE: %llu entries: expected fewer than 2^31",
                       (unsigned long long)entries);
    }
    const char *failed = upload(&r, entries);
    failed = failed ? failed : square(&r);
    if (r.product) {
        lib->cusparseSpGEMM_destroyDescr(r.product);
    }
    if (r.c_matrix) {
        lib->cusparseDestroySpMat(r.c_matrix);
    }
    if (r.a_matrix) {
        lib->cusparseDestroySpMat(r.a_matrix);
    }
    while (r.block_count) {
        release(&r, r.block_count - 1);
    }
    return result_of(&r, failed);
}
