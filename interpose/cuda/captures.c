/* SPDX-License-Identifier: MIT
 *
 * STRUCTURE  under one lock: the list of capturing streams and the list of deferred blocks. The
 *            number of captures is also read without the lock
 * INVARIANT  a stream is in the list from before its capture begins until the driver says that it
 *            does not capture
 * ORDER      IC1/IC2 for the number. Readers hold a device's lock (served.h) or hold captures off.
 *            A capture begins after all of them that may have read the earlier number have finished
 * PROGRESS   a thread waits for the holder of the lock
 */
#include "captures.h"

#include "../../liballoc/platform/cuda_captures.h"
#include "../../liballoc/platform/libc.h"
#include "entry.h"
#include "ipc.h"
#include "lookup.h"
#include "next.h"
#include "served.h"

#include <pthread.h>

typedef struct capture {
    CUcontext context;
    CUstream stream;
    pthread_t thread; /* for a CU_STREAM_PER_THREAD capture: the thread */
    struct capture *following;
} capture;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static capture *captures;
static ga_cuda_blocks_list deferred;
static unsigned capture_count; /* length of the list */

bool ga_cuda_capturing(void)
{
    /* IC2: acquire. Pairs with IC1. */
    return __builtin_expect(__atomic_load_n(&capture_count, __ATOMIC_ACQUIRE) != 0, 0);
}

/* Shared while a thread makes calls that captures forbid; taken exclusively before a capture
 * begins, without any device's lock. */
static pthread_rwlock_t hold_lock = PTHREAD_RWLOCK_INITIALIZER;

bool ga_cuda_captures_hold_off(void)
{
    pthread_rwlock_rdlock(&hold_lock);
    bool none = !ga_cuda_capturing();
    if (!none) {
        pthread_rwlock_unlock(&hold_lock);
    }
    return none;
}

void ga_cuda_captures_allow(void)
{
    pthread_rwlock_unlock(&hold_lock);
}

static void wait_for_holders(void)
{
    pthread_rwlock_wrlock(&hold_lock);
    pthread_rwlock_unlock(&hold_lock);
}

/* ---- deferred frees ------------------------------------------------------------------------ */

void ga_cuda_defer_free(ga_cuda_block *block)
{
    pthread_mutex_lock(&lock);
    ga_cuda_blocks_push(&deferred, block);
    pthread_mutex_unlock(&lock);
}

bool ga_cuda_is_deferred(CUdeviceptr start)
{
    pthread_mutex_lock(&lock);
    bool listed = ga_cuda_blocks_list_has(&deferred, start);
    pthread_mutex_unlock(&lock);
    return listed;
}

bool ga_cuda_pop_deferred(ga_cuda_block *out)
{
    pthread_mutex_lock(&lock);
    bool found = ga_cuda_blocks_pop(&deferred, out);
    pthread_mutex_unlock(&lock);
    return found;
}

/* ---- the list of captures ------------------------------------------------------------------ */

enum {
    STREAM_LEGACY = 1,
    STREAM_THREAD = 2 /* the handles CU_STREAM_LEGACY and CU_STREAM_PER_THREAD */
};

static CUstream stream_handle(int number)
{
    return (CUstream)(uintptr_t)number;
}

static CUstream canonical_stream(CUstream stream, ga_cuda_streams meaning)
{
    if (stream) {
        return stream == stream_handle(STREAM_LEGACY) ? NULL : stream;
    }
    return meaning == GA_CUDA_THREAD ? stream_handle(STREAM_THREAD) : NULL;
}

static bool is_capturing(CUstream stream)
{
    const ga_cuda_api *api = ga_cuda_next_api();
    int status = CU_STREAM_CAPTURE_STATUS_NONE;
    return api && api->cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
           status != CU_STREAM_CAPTURE_STATUS_NONE;
}

static CUcontext current(void)
{
    const ga_cuda_api *api = ga_cuda_next_api();
    CUcontext context = NULL;
    return api && api->cuCtxGetCurrent(&context) == CUDA_SUCCESS ? context : NULL;
}

/* The preload sees every capture, so the library need not ask each stream whether it captures. */
__attribute__((constructor)) static void disable_library_watch(void)
{
    ga_cuda_captures_unwatch();
}

/* False: out of memory. A call of a heap's would invalidate a capture that is not in the list, so
 * the capture must not begin. */
static bool add_capture(CUstream stream)
{
    capture *made = ga_libc.malloc(sizeof *made);
    if (made) {
        pthread_mutex_lock(&lock);
        *made = (capture){current(), stream, pthread_self(), captures};
        captures = made;
        /* IC1: release. Pairs with IC2. */
        __atomic_fetch_add(&capture_count, 1, __ATOMIC_RELEASE);
        pthread_mutex_unlock(&lock);
    }
    return made != NULL;
}

typedef bool matcher(const capture *c, const void *context);

static void remove_captures(matcher *matches, const void *context, bool all)
{
    pthread_mutex_lock(&lock);
    for (capture **at = &captures; *at;) {
        capture *c = *at;
        if (!matches(c, context)) {
            at = &c->following;
            continue;
        }
        *at = c->following;
        ga_libc.free(c);
        /* IC1: release. Pairs with IC2. */
        __atomic_fetch_sub(&capture_count, 1, __ATOMIC_RELEASE);
        if (!all) {
            break;
        }
    }
    pthread_mutex_unlock(&lock);
    if (!ga_cuda_capturing()) {
        ga_cuda_served_free_deferred();
        ga_cuda_ipc_unmap_deferred();
    }
}

static bool is_stream(const capture *c, const void *context)
{
    const CUstream *stream = context;
    return c->stream == *stream &&
           (*stream != stream_handle(STREAM_THREAD) || pthread_equal(c->thread, pthread_self()));
}

static bool is_context(const capture *c, const void *context)
{
    return c->context == (CUcontext)(uintptr_t)context;
}

void ga_cuda_captures_end(CUcontext context)
{
    if (ga_cuda_capturing()) {
        remove_captures(is_context, context, true);
    }
}

void ga_cuda_captures_lock(void)
{
    pthread_mutex_lock(&lock);
}

void ga_cuda_captures_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

/* The threads that held `hold_lock` shared are not in the child, so it is initialised again. */
void ga_cuda_captures_child(void)
{
    pthread_mutex_unlock(&lock);
    pthread_rwlock_init(&hold_lock, NULL);
}

/* ---- the driver's functions ---------------------------------------------------------------- */

static CUresult begin_capture(ga_cuda_hook_index row, ga_cuda_word a, ga_cuda_word b,
                              ga_cuda_word c, ga_cuda_word d, ga_cuda_word e, ga_cuda_word f)
{
    ga_cuda_any *next = ga_cuda_next_find(row);
    CUstream stream = canonical_stream((CUstream)a, ga_cuda_hooks[row].streams);
    ga_cuda_count(row);
    if (!next) {
        return ga_cuda_next_missing();
    }
    ga_cuda_served_before_capture();
    if (!add_capture(stream)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    ga_cuda_served_barrier();
    wait_for_holders();
    CUresult result = next(a, b, c, d, e, f);
    if (result != CUDA_SUCCESS) {
        remove_captures(is_stream, &stream, false);
    }
    return result;
}

/* Whether or not the call succeeds, the driver's answer for the stream afterwards decides. */
static CUresult end_capture(ga_cuda_hook_index row, ga_cuda_word a, ga_cuda_word b, ga_cuda_word c,
                            ga_cuda_word d, ga_cuda_word e, ga_cuda_word f)
{
    ga_cuda_any *next = ga_cuda_next_find(row);
    CUstream stream = canonical_stream((CUstream)a, ga_cuda_hooks[row].streams);
    ga_cuda_count(row);
    if (!next) {
        return ga_cuda_next_missing();
    }
    bool was_capturing = ga_cuda_capturing() && is_capturing(stream);
    CUresult result = next(a, b, c, d, e, f);
    bool destroyed = row == GA_HOOK_cuStreamDestroy_v2 && result == CUDA_SUCCESS;
    if (was_capturing && (destroyed || !is_capturing(stream))) {
        remove_captures(is_stream, &stream, false);
    }
    return result;
}

#define DEFINE(symbol, function)                                                                   \
    GA_CUDA_ENTRY(ga_cuda_any, symbol);                                                            \
    CUresult symbol(ga_cuda_word a, ga_cuda_word b, ga_cuda_word c, ga_cuda_word d,                \
                    ga_cuda_word e, ga_cuda_word f)                                                \
    {                                                                                              \
        return function(GA_HOOK_##symbol, a, b, c, d, e, f);                                       \
    }

DEFINE(cuStreamBeginCapture, begin_capture)
DEFINE(cuStreamBeginCapture_ptsz, begin_capture)
DEFINE(cuStreamBeginCapture_v2, begin_capture)
DEFINE(cuStreamBeginCapture_v2_ptsz, begin_capture)
DEFINE(cuStreamBeginCaptureToGraph, begin_capture)
DEFINE(cuStreamBeginCaptureToGraph_ptsz, begin_capture)
DEFINE(cuStreamEndCapture, end_capture)
DEFINE(cuStreamEndCapture_ptsz, end_capture)
DEFINE(cuStreamDestroy_v2, end_capture)
