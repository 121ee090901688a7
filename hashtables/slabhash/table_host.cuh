/* SPDX-License-Identifier: MIT
 *
 * A slab hash in device memory as the host sees it: what it consists of, which kernel its kind calls for,
 * and where its arrays come from. For gpualloc/slabhash.cuh, which includes it; docs/slabhash.md.
 */
#ifndef GPUALLOC_SLABHASH_TABLE_HOST_CUH
#define GPUALLOC_SLABHASH_TABLE_HOST_CUH

#include "all_kernel.cuh"
#include "batch_kernel.cuh"
#include "move_kernel.cuh"
#include "whole_kernel.cuh"

#ifdef GA_SLABHASH_GROWING_KINDS
#include "grow_kernel.cuh"
#endif

/* A table in device memory. `view` goes to kernels by value, the rest is the functions'. */
typedef struct ga_slabhash_device {
    ga_slabhash_view view;
    ga_heap *buckets; /* where the table's own memory comes from */
    ga_heap *arrays;  /* and the bucket slabs: the same, or a heap that kernels ask, too */
    ga_heap *slabs;   /* and the others */
    bool own_slabs;
    ga_heap *sort_heap; /* of requests that are sorted; NULL: not yet, or never: */
    bool no_sort_heap;
    bool emptied;      /* the buckets, so that they hold slabs of the heap's and nothing else */
    uint64_t *scratch; /* of the device's: a census, or a cursor */
    uint64_t *loaded;  /* behind it: results of a load, in the middle of which a table may grow */
    uint64_t seed;     /* of the hash: the option, or the seed that was drawn for the table */
    int device;
    int grid;       /* blocks that fill the device */
    uint64_t cache; /* bytes of its L2 cache */
    bool grows;
    bool streamed;          /* `arrays` has the order of streams */
    uint32_t least;         /* buckets, where it grows */
    uint64_t taken;         /* where it grows: places that were taken when it was last counted, */
    uint32_t counted;       /* and what `placed` was then */
    uint32_t asked;         /* requests that may have filled places, since it was opened */
    uint64_t since;         /* the same, since it was last counted, */
    uint64_t fills;         /* or since it was opened or cleared */
    uint32_t since_refresh; /* the same, since the heap of slabs was asked whether it is to grow */
    uint32_t *placed;       /* of the device's; see ga_slabhash_progress_settings */
    ga_slabhash_progress *progress; /* of the host's */
} ga_slabhash_device;

static inline ga_status ga_slabhash_cuda(const char *what, cudaError_t error)
{
    return error == cudaSuccess
               ? GA_OK
               : ga_fail(error == cudaErrorMemoryAllocation ? GA_ERR_MEMORY : GA_ERR_DEVICE,
                         "slabhash: cannot %s: %s: expected it to succeed", what,
                         cudaGetErrorString(error));
}

/* What a call does is done on the table's device; behind it the caller's is current again. */
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

/* In programs with checks: two words, zero, for what ga_slabhash_view says of them. */
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

/* What was noticed up to now, by kernels that have ended; once. */
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
                         "slabhash: %llu turns of tiles beside a flush or clear: expected one "
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

/* Functions that launch kernels are templates, so that those, many and slow to compile, are
 * compiled where they are called and not wherever this is included. */
#define GA_SLABHASH_WHERE_CALLED template <typename unused = void>

enum {
    GA_SLABHASH_DEVICE_BUCKETS = 16384, /* at first, in tables that grow */
    GA_SLABHASH_FULL_AT = 75,           /* of 100 places: then they grow, */
    GA_SLABHASH_FILL_TO = 60,           /* so far that these are taken, */
    GA_SLABHASH_FILL_LESS = 52,         /* or these, where it was a small part that was too much */
    GA_SLABHASH_REFRESH_EACH = 1 << 20  /* requests, and the heap of slabs is asked */
};

/* CALL(kind) for the table's, of those that do not grow in kernels. */
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

#ifdef GA_SLABHASH_GROWING_KINDS
#define GA_SLABHASH_EACH_KIND(of, CALL)                                                            \
    if (GA_SLABHASH_IS_GROWING(of)) {                                                              \
        GA_SLABHASH_EACH_GROWING_KIND(of, CALL)                                                    \
    } else {                                                                                       \
        GA_SLABHASH_EACH_FIXED_KIND(of, CALL)                                                      \
    }
#else
#define GA_SLABHASH_EACH_KIND(of, CALL) GA_SLABHASH_EACH_FIXED_KIND(of, CALL)
#endif

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

/* Memory for an array, for what is on `stream` from now on. */
static inline ga_status ga_slabhash_device_alloc_array(ga_slabhash_device *table, uint64_t bytes,
                                                       void **rows, cudaStream_t stream)
{
    return table->streamed ? ga_alloc_on(table->arrays, bytes, 0, (ga_stream)stream, rows)
                           : ga_alloc(table->arrays, bytes, 0, rows);
}

/* An array goes back, after what is on `stream`: for which this waits where its heap does not. */
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

/* Give an array's slabs, unless it is `bare` and has none, and the array back; nobody uses it. */
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
