/* SPDX-License-Identifier: MIT
 *
 * The SERVES rows of the hook table: calls that allocate and free device memory. A heap serves them
 * where it can, else the driver does. A call that a heap cannot serve, but for lack of memory, goes
 * to the driver unchanged, so that the driver reports the error.
 *
 *   cuMemAlloc, cuMemAllocPitch   alloc ------------+-> alloc_from_heap --+-> ga_cuda_heap_alloc
 *   cuMemAllocAsync               alloc_on_stream --+                     +-> alloc_from_driver
 *   cuMemAllocManaged, other pools                  alloc_charged ----------> alloc_from_driver
 *   cuMemFree, cuMemFreeAsync     free_block --> ga_cuda_heap_free, or the driver
 */
#include "captures.h"
#include "entry.h"
#include "lookup.h"
#include "next.h"
#include "pinned.h"
#include "registered.h"
#include "served.h"

typedef CUresult alloc_fn(CUdeviceptr *out, size_t size);
typedef CUresult alloc_pitch_fn(CUdeviceptr *out, size_t *pitch, size_t width, size_t height,
                                unsigned element);
typedef CUresult free_fn(CUdeviceptr block);
typedef CUresult alloc_async_fn(CUdeviceptr *out, size_t size, CUstream stream);
typedef CUresult alloc_from_pool_fn(CUdeviceptr *out, size_t size, CUmemoryPool pool,
                                    CUstream stream);
typedef CUresult free_async_fn(CUdeviceptr block, CUstream stream);

/* The arguments of one call, as words to pass to the driver. */
typedef struct call {
    ga_cuda_hook_index row;
    ga_cuda_word words[5];
    bool from_current_pool; /* it allocates from the current pool */
} call;

static CUresult call_driver(const call *c)
{
    ga_cuda_any *next = ga_cuda_next_find(c->row);
    const ga_cuda_word *w = c->words;
    return next ? next(w[0], w[1], w[2], w[3], w[4], 0) : ga_cuda_next_missing();
}

static ga_cuda_word word(const void *pointer)
{
    return (ga_cuda_word)pointer;
}

/* ---- allocating ---------------------------------------------------------------------------- */

static CUresult call_driver_retry(const ga_cuda_device_ref *ref, const call *c)
{
    CUresult result = call_driver(c);
    bool retry = result == CUDA_ERROR_OUT_OF_MEMORY && ga_cuda_trim(ref);
    return retry ? call_driver(c) : result;
}

/* Allocate from the driver, within limit=. Memory that a capture allocates belongs to the graph and
 * is not counted. */
static CUresult alloc_from_driver(const ga_cuda_device_ref *ref, const call *c, size_t size,
                                  const CUdeviceptr *out)
{
    if (ga_cuda_capturing()) {
        return call_driver(c);
    }
    ga_cuda_block record = ga_cuda_driver_record(ref, size);
    if (!ga_cuda_charge(ref, size)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result =
        ga_cuda_blocks_new_record(&record) ? call_driver_retry(ref, c) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) {
        record.start = *out;
        ga_cuda_blocks_insert(&ga_cuda_live, &record);
    } else {
        ga_cuda_blocks_free_record(&record);
        ga_cuda_uncharge(ref, size);
    }
    return result;
}

static CUresult alloc_from_heap(const ga_cuda_device_ref *ref, const call *c, size_t size,
                                const CUstream *stream, CUdeviceptr *out)
{
    bool served = stream ? ga_cuda_serves_streams(ref) : ga_cuda_serves(ref);
    served = served && !(c->from_current_pool && ga_cuda_uses_other_pool(ref));
    CUresult result =
        served ? ga_cuda_heap_alloc(ref, size, stream, out) : CUDA_ERROR_NOT_SUPPORTED;
    return result == CUDA_ERROR_NOT_SUPPORTED ? alloc_from_driver(ref, c, size, out) : result;
}

static CUresult alloc(const call *c, size_t size, const CUstream *stream, CUdeviceptr *out)
{
    ga_cuda_device_ref ref;
    if (!out || !size || !ga_cuda_acquire_current(&ref)) {
        return call_driver(c);
    }
    CUresult result = alloc_from_heap(&ref, c, size, stream, out);
    ga_cuda_release_current(&ref);
    return result;
}

GA_CUDA_ENTRY(alloc_fn, cuMemAlloc_v2);

CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t size)
{
    call c = {.row = GA_HOOK_cuMemAlloc_v2, .words = {word(out), size}};
    ga_cuda_count(c.row);
    return alloc(&c, size, NULL, out);
}

/* The row length in bytes: padded to the texture alignment, as the driver pads it. 0: the arguments
 * are invalid, and the driver reports it. */
static size_t pitch_of(size_t width, size_t height, unsigned element)
{
    const ga_cuda_api *api = ga_cuda_next_api();
    CUdevice device;
    int align = 0;
    if (!api || api->cuCtxGetDevice(&device) != CUDA_SUCCESS ||
        api->cuDeviceGetAttribute(&align, CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, device) !=
            CUDA_SUCCESS) {
        return 0;
    }
    size_t alignment = align > 0 ? (size_t)align : 0;
    bool valid = alignment && width && height && width <= SIZE_MAX - alignment &&
                 (element == 4 || element == 8 || element == 16);
    size_t pitch = valid ? (width + alignment - 1) / alignment * alignment : 0;
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
        return call_driver(&c);
    }
    *pitch = padded; /* where the driver serves, it overwrites this */
    return alloc(&c, padded * height, NULL, out);
}

/* ---- in stream order ----------------------------------------------------------------------- */

enum {
    STREAM_LEGACY = 1, /* the handles CU_STREAM_LEGACY and CU_STREAM_PER_THREAD */
    STREAM_THREAD = 2
};

/* One handle per stream: NULL for the legacy default stream, which has two. */
static CUstream canonical_stream(CUstream stream, ga_cuda_hook_index row)
{
    if (!stream && ga_cuda_hooks[row].streams == GA_CUDA_THREAD) {
        return (CUstream)(uintptr_t)STREAM_THREAD;
    }
    return (uintptr_t)stream == STREAM_LEGACY ? NULL : stream;
}

/* The driver serves a stream of another context, because the stream may be on another device. */
static bool is_of_current_context(CUstream stream)
{
    const ga_cuda_api *api = ga_cuda_next_api();
    CUcontext current = NULL;
    CUcontext stream_context = NULL;
    if ((uintptr_t)stream <= STREAM_THREAD) {
        return true;
    }
    return api && api->cuCtxGetCurrent(&current) == CUDA_SUCCESS &&
           api->cuStreamGetCtx(stream, &stream_context) == CUDA_SUCCESS &&
           stream_context == current;
}

static CUresult alloc_on_stream(const call *c, CUdeviceptr *out, size_t size, CUstream stream)
{
    CUstream on = canonical_stream(stream, c->row);
    ga_cuda_count(c->row);
    if (ga_cuda_capturing() || !is_of_current_context(on)) {
        return call_driver(c);
    }
    return alloc(c, size, &on, out);
}

#define DEFINE_ALLOC(symbol)                                                                       \
    GA_CUDA_ENTRY(alloc_async_fn, symbol);                                                         \
    CUresult symbol(CUdeviceptr *out, size_t size, CUstream stream)                                \
    {                                                                                              \
        call c = {GA_HOOK_##symbol, {word(out), size, word(stream)}, true};                        \
        return alloc_on_stream(&c, out, size, stream);                                             \
    }

DEFINE_ALLOC(cuMemAllocAsync)
DEFINE_ALLOC(cuMemAllocAsync_ptsz)

/* From the driver, counted against limit=. */
static CUresult alloc_charged(const call *c, CUdeviceptr *out, size_t size)
{
    ga_cuda_device_ref ref;
    if (!out || !size || !ga_cuda_acquire_current(&ref)) {
        return call_driver(c);
    }
    CUresult result = alloc_from_driver(&ref, c, size, out);
    ga_cuda_release_current(&ref);
    return result;
}

typedef CUresult managed_fn(CUdeviceptr *out, size_t size, unsigned flags);

GA_CUDA_ENTRY(managed_fn, cuMemAllocManaged);

CUresult cuMemAllocManaged(CUdeviceptr *out, size_t size, unsigned flags)
{
    call c = {.row = GA_HOOK_cuMemAllocManaged, .words = {word(out), size, flags}};
    ga_cuda_count(c.row);
    CUresult result = alloc_charged(&c, out, size);
    bool retry = result == CUDA_ERROR_OUT_OF_MEMORY && ga_cuda_pinned_trim();
    return retry ? alloc_charged(&c, out, size) : result;
}

/* The program's own pools are left to the driver: the program expects its memory in their
 * statistics. */
static bool is_default_pool(CUmemoryPool pool)
{
    const ga_cuda_api *api = ga_cuda_next_api();
    CUmemoryPool default_pool = NULL;
    CUdevice device;
    return api && api->cuCtxGetDevice(&device) == CUDA_SUCCESS &&
           api->cuDeviceGetDefaultMemPool(&default_pool, device) == CUDA_SUCCESS &&
           default_pool == pool;
}

static CUresult alloc_from_pool(const call *c, CUdeviceptr *out, size_t size, CUmemoryPool pool,
                                CUstream stream)
{
    if (!ga_cuda_capturing() && is_default_pool(pool)) {
        return alloc_on_stream(c, out, size, stream);
    }
    ga_cuda_count(c->row);
    return alloc_charged(c, out, size);
}

#define DEFINE_ALLOC_FROM(symbol)                                                                  \
    GA_CUDA_ENTRY(alloc_from_pool_fn, symbol);                                                     \
    CUresult symbol(CUdeviceptr *out, size_t size, CUmemoryPool pool, CUstream stream)             \
    {                                                                                              \
        call c = {GA_HOOK_##symbol, {word(out), size, word(pool), word(stream)}, false};           \
        return alloc_from_pool(&c, out, size, pool, stream);                                       \
    }

DEFINE_ALLOC_FROM(cuMemAllocFromPoolAsync)
DEFINE_ALLOC_FROM(cuMemAllocFromPoolAsync_ptsz)

/* ---- freeing ------------------------------------------------------------------------------- */

/* A block without a record belongs to the driver or is invalid; the driver decides. The driver must
 * not see the address of a heap's memory or of a block that is being freed already. */
static CUresult free_block(const call *c, CUdeviceptr start, const CUstream *stream)
{
    ga_cuda_block block;
    if (!start || !ga_cuda_blocks_remove(&ga_cuda_live, start, &block)) {
        bool invalid = start && (ga_cuda_is_deferred(start) || ga_cuda_registered_has_held(start) ||
                                 ga_cuda_is_heap_memory(start) ||
                                 ga_cuda_blocks_is_being_freed(&ga_cuda_live, start));
        return invalid ? CUDA_ERROR_INVALID_VALUE : call_driver(c);
    }
    CUresult result = ga_cuda_heap_free(&block, stream);
    if (result == CUDA_ERROR_NOT_SUPPORTED) {
        result = call_driver(c);
        ga_cuda_finish_driver_free(&block, result);
    }
    return result;
}

GA_CUDA_ENTRY(free_fn, cuMemFree_v2);

CUresult cuMemFree_v2(CUdeviceptr block)
{
    call c = {.row = GA_HOOK_cuMemFree_v2, .words = {(ga_cuda_word)block}};
    ga_cuda_count(c.row);
    return free_block(&c, block, NULL);
}

/* True if the free becomes a node of a graph. Such a free takes only memory that a graph
 * allocated. */
static bool is_being_captured(CUstream stream)
{
    const ga_cuda_api *api = ga_cuda_capturing() ? ga_cuda_next_api() : NULL;
    int status = CU_STREAM_CAPTURE_STATUS_NONE;
    return api && api->cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
           status != CU_STREAM_CAPTURE_STATUS_NONE;
}

static CUresult free_on_stream(const call *c, CUdeviceptr block, CUstream stream)
{
    CUstream on = canonical_stream(stream, c->row);
    ga_cuda_count(c->row);
    return is_being_captured(on) ? call_driver(c) : free_block(c, block, &on);
}

#define DEFINE_FREE(symbol)                                                                        \
    GA_CUDA_ENTRY(free_async_fn, symbol);                                                          \
    CUresult symbol(CUdeviceptr block, CUstream stream)                                            \
    {                                                                                              \
        call c = {GA_HOOK_##symbol, {(ga_cuda_word)block, word(stream)}, false};                   \
        return free_on_stream(&c, block, stream);                                                  \
    }

DEFINE_FREE(cuMemFreeAsync)
DEFINE_FREE(cuMemFreeAsync_ptsz)
