/* SPDX-License-Identifier: MIT
 *
 * The rows that are served: the driver's functions, by a heap of ours where there is one to serve
 * them, else by the driver. What is wrong with a call is told by the driver, too, in its own words:
 * a call that we cannot serve for another reason than memory is made to it as it came.
 */
#include "captures.h"
#include "entry.h"
#include "lookup.h"
#include "next.h"
#include "pinned.h"
#include "served.h"

typedef CUresult alloc_fn(CUdeviceptr *out, size_t size);
typedef CUresult alloc_pitch_fn(CUdeviceptr *out, size_t *pitch, size_t width, size_t height,
                                unsigned element);
typedef CUresult free_fn(CUdeviceptr block);
typedef CUresult alloc_async_fn(CUdeviceptr *out, size_t size, CUstream stream);
typedef CUresult alloc_from_pool_fn(CUdeviceptr *out, size_t size, CUmemoryPool pool,
                                    CUstream stream);
typedef CUresult free_async_fn(CUdeviceptr block, CUstream stream);

/* The arguments of one call, as words for the driver. */
typedef struct call {
    ga_cuda_hook_index row;
    ga_cuda_word words[5];
    bool of_current; /* it is of the pool that is current */
} call;

static CUresult ask_driver(const call *c)
{
    ga_cuda_any *next = ga_cuda_next_find(c->row);
    const ga_cuda_word *w = c->words;
    return next ? next(w[0], w[1], w[2], w[3], w[4], 0) : ga_cuda_next_missing();
}

static ga_cuda_word word(const void *pointer)
{
    return (ga_cuda_word)pointer;
}

/* ---- getting blocks ------------------------------------------------------------------------ */

static CUresult ask_driver_twice(const ga_cuda_visit *visit, const call *c)
{
    CUresult result = ask_driver(c);
    bool again = result == CUDA_ERROR_OUT_OF_MEMORY && ga_cuda_trim(visit);
    return again ? ask_driver(c) : result;
}

/* By the driver, within the limit. What a capture makes is the graph's, and is not counted. */
static CUresult from_driver(const ga_cuda_visit *visit, const call *c, size_t size,
                            const CUdeviceptr *out)
{
    if (ga_cuda_capturing()) {
        return ask_driver(c);
    }
    ga_cuda_block note = ga_cuda_driver_block(visit, size);
    if (!ga_cuda_reserve(visit, size)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result =
        ga_cuda_blocks_reserve(&note) ? ask_driver_twice(visit, c) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) {
        note.start = *out;
        ga_cuda_blocks_put(&ga_cuda_live, &note);
    } else {
        ga_cuda_blocks_unreserve(&note);
        ga_cuda_unreserve(visit, size);
    }
    return result;
}

static CUresult from_heap(const ga_cuda_visit *visit, const call *c, size_t size,
                          const CUstream *stream, CUdeviceptr *out)
{
    bool served = stream ? ga_cuda_serves_streams(visit) : ga_cuda_serves(visit);
    served = served && !(c->of_current && ga_cuda_pool_is_other(visit));
    CUresult result = served ? ga_cuda_take(visit, size, stream, out) : CUDA_ERROR_NOT_SUPPORTED;
    return result == CUDA_ERROR_NOT_SUPPORTED ? from_driver(visit, c, size, out) : result;
}

static CUresult alloc(const call *c, size_t size, const CUstream *stream, CUdeviceptr *out)
{
    ga_cuda_visit visit;
    if (!out || !size || !ga_cuda_enter_current(&visit)) {
        return ask_driver(c);
    }
    CUresult result = from_heap(&visit, c, size, stream, out);
    ga_cuda_leave_current(&visit);
    return result;
}

GA_CUDA_ENTRY(alloc_fn, cuMemAlloc_v2);

CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t size)
{
    call c = {.row = GA_HOOK_cuMemAlloc_v2, .words = {word(out), size}};
    ga_cuda_count(c.row);
    return alloc(&c, size, NULL, out);
}

/* Rows are padded to what textures want, as the driver does; 0: it is for the driver to say what is
 * wrong. */
static size_t pitch_of(size_t width, size_t height, unsigned element)
{
    const ga_cuda_asks *asks = ga_cuda_next_asks();
    CUdevice device;
    int align = 0;
    if (!asks || asks->cuCtxGetDevice(&device) != CUDA_SUCCESS ||
        asks->cuDeviceGetAttribute(&align, CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, device) !=
            CUDA_SUCCESS) {
        return 0;
    }
    size_t to = align > 0 ? (size_t)align : 0;
    bool good = to && width && height && width <= SIZE_MAX - to &&
                (element == 4 || element == 8 || element == 16);
    size_t pitch = good ? (width + to - 1) / to * to : 0;
    return pitch && pitch <= SIZE_MAX / height ? pitch : 0;
}

GA_CUDA_ENTRY(alloc_pitch_fn, cuMemAllocPitch_v2);

CUresult cuMemAllocPitch_v2(CUdeviceptr *out, size_t *pitch, size_t width, size_t height,
                            unsigned element)
{
    call c = {.row = GA_HOOK_cuMemAllocPitch_v2,
              .words = {word(out), word(pitch), width, height, element}};
    size_t padded = pitch ? pitch_of(width, height, element) : 0;
    ga_cuda_count(c.row);
    if (!padded) {
        return ask_driver(&c);
    }
    *pitch = padded; /* the driver, where it serves, says what it did */
    return alloc(&c, padded * height, NULL, out);
}

/* ---- in stream order ----------------------------------------------------------------------- */

enum {
    STREAM_LEGACY = 1, /* CU_STREAM_LEGACY and CU_STREAM_PER_THREAD, as handles */
    STREAM_THREAD = 2
};

/* One handle for each stream: NULL for the legacy default stream. */
static CUstream named(CUstream stream, ga_cuda_hook_index row)
{
    if (!stream && ga_cuda_hooks[row].streams == GA_CUDA_THREAD) {
        return (CUstream)(uintptr_t)STREAM_THREAD;
    }
    return (uintptr_t)stream == STREAM_LEGACY ? NULL : stream;
}

/* A stream of another context is served by the driver: the device is that one's. */
static bool is_here(CUstream stream)
{
    const ga_cuda_asks *asks = ga_cuda_next_asks();
    CUcontext current = NULL;
    CUcontext of_stream = NULL;
    if ((uintptr_t)stream <= STREAM_THREAD) {
        return true;
    }
    return asks && asks->cuCtxGetCurrent(&current) == CUDA_SUCCESS &&
           asks->cuStreamGetCtx(stream, &of_stream) == CUDA_SUCCESS && of_stream == current;
}

static CUresult alloc_on(const call *c, CUdeviceptr *out, size_t size, CUstream stream)
{
    CUstream on = named(stream, c->row);
    ga_cuda_count(c->row);
    if (ga_cuda_capturing() || !is_here(on)) {
        return ask_driver(c);
    }
    return alloc(c, size, &on, out);
}

#define DEFINE_ALLOC(symbol)                                                                       \
    GA_CUDA_ENTRY(alloc_async_fn, symbol);                                                         \
    CUresult symbol(CUdeviceptr *out, size_t size, CUstream stream)                                \
    {                                                                                              \
        call c = {GA_HOOK_##symbol, {word(out), size, word(stream)}, true};                        \
        return alloc_on(&c, out, size, stream);                                                    \
    }

DEFINE_ALLOC(cuMemAllocAsync)
DEFINE_ALLOC(cuMemAllocAsync_ptsz)

/* By the driver, and counted. */
static CUresult alloc_counted(const call *c, CUdeviceptr *out, size_t size)
{
    ga_cuda_visit visit;
    if (!out || !size || !ga_cuda_enter_current(&visit)) {
        return ask_driver(c);
    }
    CUresult result = from_driver(&visit, c, size, out);
    ga_cuda_leave_current(&visit);
    return result;
}

typedef CUresult managed_fn(CUdeviceptr *out, size_t size, unsigned flags);

GA_CUDA_ENTRY(managed_fn, cuMemAllocManaged);

CUresult cuMemAllocManaged(CUdeviceptr *out, size_t size, unsigned flags)
{
    call c = {.row = GA_HOOK_cuMemAllocManaged, .words = {word(out), size, flags}};
    ga_cuda_count(c.row);
    CUresult result = alloc_counted(&c, out, size);
    bool again = result == CUDA_ERROR_OUT_OF_MEMORY && ga_cuda_pinned_trim();
    return again ? alloc_counted(&c, out, size) : result;
}

/* A pool that the program has made is its own affair: what it asks of it, it is to find there. */
static bool is_default(CUmemoryPool pool)
{
    const ga_cuda_asks *asks = ga_cuda_next_asks();
    CUmemoryPool usual = NULL;
    CUdevice device;
    return asks && asks->cuCtxGetDevice(&device) == CUDA_SUCCESS &&
           asks->cuDeviceGetDefaultMemPool(&usual, device) == CUDA_SUCCESS && usual == pool;
}

static CUresult alloc_from(const call *c, CUdeviceptr *out, size_t size, CUmemoryPool pool,
                           CUstream stream)
{
    if (!ga_cuda_capturing() && is_default(pool)) {
        return alloc_on(c, out, size, stream);
    }
    ga_cuda_count(c->row);
    return alloc_counted(c, out, size);
}

#define DEFINE_ALLOC_FROM(symbol)                                                                  \
    GA_CUDA_ENTRY(alloc_from_pool_fn, symbol);                                                     \
    CUresult symbol(CUdeviceptr *out, size_t size, CUmemoryPool pool, CUstream stream)             \
    {                                                                                              \
        call c = {GA_HOOK_##symbol, {word(out), size, word(pool), word(stream)}, false};           \
        return alloc_from(&c, out, size, pool, stream);                                            \
    }

DEFINE_ALLOC_FROM(cuMemAllocFromPoolAsync)
DEFINE_ALLOC_FROM(cuMemAllocFromPoolAsync_ptsz)

/* ---- giving them back ---------------------------------------------------------------------- */

/* A block that is not known is the driver's, or nobody's: it says which. */
static CUresult give(const call *c, CUdeviceptr start, const CUstream *stream)
{
    ga_cuda_block block;
    if (!start || !ga_cuda_blocks_take(&ga_cuda_live, start, &block)) {
        bool nobodys = start && (ga_cuda_is_put_off(start) || ga_cuda_holds(start) ||
                                 ga_cuda_blocks_is_going(&ga_cuda_live, start));
        return nobodys ? CUDA_ERROR_INVALID_VALUE : ask_driver(c);
    }
    CUresult result = ga_cuda_give(&block, stream);
    if (result == CUDA_ERROR_NOT_SUPPORTED) {
        result = ask_driver(c);
        ga_cuda_driver_freed(&block, result);
    }
    return result;
}

GA_CUDA_ENTRY(free_fn, cuMemFree_v2);

CUresult cuMemFree_v2(CUdeviceptr block)
{
    call c = {.row = GA_HOOK_cuMemFree_v2, .words = {(ga_cuda_word)block}};
    ga_cuda_count(c.row);
    return give(&c, block, NULL);
}

/* Whether the free is part of a graph, which takes only what graphs have made. */
static bool is_captured(CUstream stream)
{
    const ga_cuda_asks *asks = ga_cuda_capturing() ? ga_cuda_next_asks() : NULL;
    int status = CU_STREAM_CAPTURE_STATUS_NONE;
    return asks && asks->cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
           status != CU_STREAM_CAPTURE_STATUS_NONE;
}

static CUresult free_on(const call *c, CUdeviceptr block, CUstream stream)
{
    CUstream on = named(stream, c->row);
    ga_cuda_count(c->row);
    return is_captured(on) ? ask_driver(c) : give(c, block, &on);
}

#define DEFINE_FREE(symbol)                                                                        \
    GA_CUDA_ENTRY(free_async_fn, symbol);                                                          \
    CUresult symbol(CUdeviceptr block, CUstream stream)                                            \
    {                                                                                              \
        call c = {GA_HOOK_##symbol, {(ga_cuda_word)block, word(stream)}, false};                   \
        return free_on(&c, block, stream);                                                         \
    }

DEFINE_FREE(cuMemFreeAsync)
DEFINE_FREE(cuMemFreeAsync_ptsz)
