/* SPDX-License-Identifier: MIT
 *
 * The host's record of a slab hash in device memory, the choice of the kernel for a kind of table,
 * and the memory of arrays. Included by gpualloc/slabhash.cuh; docs/internals/slabhash.md.
 */
#ifndef GPUALLOC_SLABHASH_DEVICE_TABLE_HOST_CUH
#define GPUALLOC_SLABHASH_DEVICE_TABLE_HOST_CUH

#include "all_kernel.cuh"
#include "batch_kernel.cuh"
#include "move_kernel.cuh"
#include "whole_kernel.cuh"

#include <initializer_list>

/* A table in device memory. `view` is passed to kernels by value; the other fields belong to the
 * functions. */
typedef struct ga_slabhash_device {
    ga_slabhash_view view;
    ga_heap *buckets; /* heap of the table's own records */
    ga_heap *arrays;  /* heap of the buckets' slabs: `buckets`, or one that kernels or streams
                       * use */
    ga_heap *slabs;   /* heap of overflow slabs */
    bool own_slabs;
    ga_heap *sort_heap; /* for sorting batches; NULL until the first use */
    bool no_sort_heap;
    bool buckets_valid; /* the buckets were initialised, and refer only to slabs of the heap */
    uint64_t *scratch;  /* device memory: a census, or a cursor */
    uint64_t *loaded;   /* behind it: counts of a load, during which the table may grow */
    uint64_t seed;      /* of the hash: the option, or the seed that was drawn */
    int device;
    int grid;       /* blocks that fill the device */
    uint64_t cache; /* bytes of the L2 cache */
    bool grows;
    bool streamed;                  /* `arrays` allocates in stream order */
    uint32_t least;                 /* fewest buckets, if the table grows */
    uint64_t slots_taken;           /* tables that grow: slots in use at the last count, */
    uint32_t filled_at_count;       /* and `filled` at that time */
    uint32_t requests_total;        /* requests that may fill slots, since open */
    uint64_t requests_since_count;  /* the same, since the last count */
    uint64_t requests_since_clear;  /* the same, since open or clear */
    uint32_t since_refresh;         /* the same, since device_refresh_heap() */
    uint32_t *filled;               /* device memory; see ga_slabhash_progress_settings */
    ga_slabhash_progress *progress; /* host memory */
} ga_slabhash_device;

static inline ga_status ga_slabhash_cuda(const char *what, cudaError_t error)
{
    return error == cudaSuccess
               ? GA_OK
               : ga_fail(error == cudaErrorMemoryAllocation ? GA_ERR_MEMORY : GA_ERR_DEVICE,
                         "slabhash: cannot %s: %s: expected it to succeed", what,
                         cudaGetErrorString(error));
}

/* Loads kernels on the current device: to ask about one does so. */
static inline ga_status ga_slabhash_load_kernels(std::initializer_list<const void *> kernels)
{
    ga_status status = GA_OK;
    for (const void *kernel : kernels) {
        cudaFuncAttributes attributes;
        status =
            status ? status
                   : ga_slabhash_cuda("load a kernel", cudaFuncGetAttributes(&attributes, kernel));
    }
    return status;
}

/* Makes the table's device current for a scope, then the caller's again. */
struct ga_slabhash_device_scope {
    int before;
    ga_status status;
    explicit ga_slabhash_device_scope(int device) : before(-1)
    {
        status = ga_slabhash_cuda("ask for the current device", cudaGetDevice(&before));
        status = status || before == device
                     ? status
                     : ga_slabhash_cuda("make the table's device the current one",
                                        cudaSetDevice(device));
    }
    ~ga_slabhash_device_scope()
    {
        if (before >= 0) {
            (void)cudaSetDevice(before);
        }
    }
    ga_slabhash_device_scope(const ga_slabhash_device_scope &) = delete;
    ga_slabhash_device_scope &operator=(const ga_slabhash_device_scope &) = delete;
};

static inline ga_status ga_slabhash_device_check(const ga_slabhash_device *table)
{
    return table && table->view.rows
               ? GA_OK
               : ga_fail(GA_ERR_ARGUMENT, "slabhash: %s: expected one that is open",
                         table ? "a table that is closed" : "no table");
}

/* Programs with checks: allocates the two words that ga_slabhash_view describes, zeroed. */
static inline ga_status ga_slabhash_device_begin_checks(ga_slabhash_device *table,
                                                        cudaStream_t stream)
{
#ifdef GA_SLABHASH_CHECKED
    void *use = NULL;
    ga_status status = ga_alloc(table->buckets, 2 * sizeof(uint64_t), 0, &use);
    table->view.use = (uint64_t *)use;
    return status ? status
                  : ga_slabhash_cuda("begin to watch the table",
                                     cudaMemsetAsync(use, 0, 2 * sizeof(uint64_t), stream));
#else
    (void)table;
    (void)stream;
    return GA_OK;
#endif
}

/* Reports, once, the conflicts that kernels have found. Those kernels must have ended. */
static inline ga_status ga_slabhash_device_report_conflicts(ga_slabhash_device *table)
{
#ifdef GA_SLABHASH_CHECKED
    uint64_t met = 0;
    if (!table->view.use) {
        return GA_OK;
    }
    ga_status status =
        ga_slabhash_cuda("see who used the table",
                         cudaMemcpy(&met, table->view.use + 1, sizeof met, cudaMemcpyDeviceToHost));
    if (status == GA_OK && met) {
        status = ga_slabhash_cuda("forget who used the table",
                                  cudaMemset(table->view.use + 1, 0, sizeof met));
    }
    return status || !met
               ? status
               : ga_fail(GA_ERR_ARGUMENT,
                         "slabhash: %llu sessions of tiles beside a flush or clear: expected one "
                         "stream, or one after the other",
                         (unsigned long long)met);
#else
    (void)table;
    return GA_OK;
#endif
}

static inline int ga_slabhash_device_grid(const ga_slabhash_device *table, uint64_t tiles)
{
    uint64_t blocks = (tiles * GA_SLABHASH_TILE + GA_SLABHASH_BLOCK - 1) / GA_SLABHASH_BLOCK;
    return blocks < (uint64_t)table->grid ? (int)blocks : table->grid;
}

/* Functions that launch kernels are templates: they are many and slow to compile, and so are
 * compiled only where they are called. */
#define GA_SLABHASH_WHERE_CALLED template <typename unused = void>

enum {
    GA_SLABHASH_DEVICE_BUCKETS = 16384, /* initial buckets of tables that grow */
    GA_SLABHASH_FULL_AT = 75,           /* percent of slots in use at which a table grows, */
    GA_SLABHASH_FILL_TO = 60,           /* and percent in use afterwards, */
    GA_SLABHASH_FILL_LESS = 52,         /* or this, if a small batch was too much */
    GA_SLABHASH_REFRESH_EACH = 1 << 20  /* requests after which the slab heap may grow */
};

/* CALL(kind) for the kind `of`, one that does not grow in kernels. */
#ifdef GA_SLABHASH_ONLY_KIND
#define GA_SLABHASH_EACH_FIXED_KIND(of, CALL) CALL(GA_SLABHASH_ONLY_KIND);
#else
#define GA_SLABHASH_EACH_FIXED_KIND(of, CALL)                                                      \
    switch (of) {                                                                                  \
    case GA_SLABHASH_KIND(GA_SLABHASH_SET32, false):                                               \
        CALL(0u);                                                                                  \
        break;                                                                                     \
    case GA_SLABHASH_KIND(GA_SLABHASH_MAP32, false):                                               \
        CALL(1u);                                                                                  \
        break;                                                                                     \
    case GA_SLABHASH_KIND(GA_SLABHASH_MAP64, false):                                               \
        CALL(2u);                                                                                  \
        break;                                                                                     \
    case GA_SLABHASH_KIND(GA_SLABHASH_SET32, true):                                                \
        CALL(4u);                                                                                  \
        break;                                                                                     \
    case GA_SLABHASH_KIND(GA_SLABHASH_MAP32, true):                                                \
        CALL(5u);                                                                                  \
        break;                                                                                     \
    default:                                                                                       \
        CALL(6u);                                                                                  \
        break;                                                                                     \
    }
#endif

/* CALL(kind) for the kind `of`. */
#define GA_SLABHASH_EACH_KIND(of, CALL)                                                            \
    if (GA_SLABHASH_IS_GROWING(of)) {                                                              \
        GA_SLABHASH_EACH_GROWING_KIND(of, CALL)                                                    \
    } else {                                                                                       \
        GA_SLABHASH_EACH_FIXED_KIND(of, CALL)                                                      \
    }

template <uint32_t task>
static inline ga_status ga_slabhash_device_whole(ga_slabhash_device *table,
                                                 const ga_slabhash_whole *whole,
                                                 cudaStream_t stream)
{
    ga_slabhash_device_scope scope(table->device);
    if (scope.status != GA_OK) {
        return scope.status;
    }
    int grid = ga_slabhash_device_grid(table, table->view.buckets);
#define GA_SLABHASH_WHOLE_CALL(kind)                                                               \
    ga_slabhash_whole_kernel<kind, task>                                                           \
        <<<grid, GA_SLABHASH_BLOCK, 0, stream>>>(table->view, *whole)
    GA_SLABHASH_EACH_KIND(table->view.kind, GA_SLABHASH_WHOLE_CALL)
#undef GA_SLABHASH_WHOLE_CALL
    return ga_slabhash_cuda("launch a kernel for all buckets", cudaGetLastError());
}

/* Allocates an array for work that is enqueued on `stream` from now on. */
static inline ga_status ga_slabhash_device_alloc_array(ga_slabhash_device *table, uint64_t bytes,
                                                       void **rows, cudaStream_t stream)
{
    return table->streamed ? ga_alloc_on(table->arrays, bytes, 0, (ga_stream)stream, rows)
                           : ga_alloc(table->arrays, bytes, 0, rows);
}

/* Frees an array after the work on `stream`. Waits for that work if the heap is not
 * stream-ordered. */
static inline ga_status ga_slabhash_device_free_array(ga_slabhash_device *table, void *rows,
                                                      cudaStream_t stream)
{
    if (table->streamed) {
        return ga_free_on(table->arrays, rows, (ga_stream)stream);
    }
    ga_status status =
        ga_slabhash_cuda("wait to give an array back", cudaStreamSynchronize(stream));
    ga_free(table->arrays, rows);
    return status;
}

/* Frees an array and its overflow slabs. The table has none if it is `bare`. No kernel may use
 * them. */
GA_SLABHASH_WHERE_CALLED
static inline ga_status ga_slabhash_device_drop(ga_slabhash_device *table, ga_slabhash_view view,
                                                bool bare, cudaStream_t stream)
{
    ga_slabhash_device gone = *table;
    ga_slabhash_whole whole = {};
    gone.view = view;
    ga_status status =
        bare ? GA_OK : ga_slabhash_device_whole<GA_SLABHASH_CLEAR_ALL>(&gone, &whole, stream);
    ga_status given = ga_slabhash_device_free_array(table, view.rows, stream);
    return status ? status : given;
}

#endif
