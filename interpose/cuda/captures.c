/* SPDX-License-Identifier: MIT
 *
 * STRUCTURE  two lists under one lock: streams that capture, and blocks put off; a count of the
 *            first that is read without it
 * INVARIANT  a stream is in the list from before its capture begins until the driver says that it
 *            does not capture
 * ORDER      C1/C2 for the count, which is asked during visits to a device (served.h) and by those
 *            who hold; a capture begins once all have ended that may have seen the count of before
 * PROGRESS   blocks while another thread is in here
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
    pthread_t thread; /* whose default stream it is, for those of threads */
    struct capture *following;
} capture;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static capture *captures;
static ga_cuda_blocks_list put_off;
static unsigned count; /* of the captures */

bool ga_cuda_capturing(void)
{
    /* C2: acquire. Pairs with C1. */
    return __builtin_expect(__atomic_load_n(&count, __ATOMIC_ACQUIRE) != 0, 0);
}

/* Shared by calls that captures forbid; exclusive before one begins, outside visits to a device. */
static pthread_rwlock_t calm = PTHREAD_RWLOCK_INITIALIZER;

bool ga_cuda_captures_hold(void)
{
    pthread_rwlock_rdlock(&calm);
    bool none = !ga_cuda_capturing();
    if (!none) {
        pthread_rwlock_unlock(&calm);
    }
    return none;
}

void ga_cuda_captures_let_go(void)
{
    pthread_rwlock_unlock(&calm);
}

static void wait_for_calm(void)
{
    pthread_rwlock_wrlock(&calm);
    pthread_rwlock_unlock(&calm);
}

/* ---- blocks put off ------------------------------------------------------------------------ */

void ga_cuda_put_off(ga_cuda_block *block)
{
    pthread_mutex_lock(&lock);
    ga_cuda_blocks_push(&put_off, block);
    pthread_mutex_unlock(&lock);
}

bool ga_cuda_is_put_off(CUdeviceptr start)
{
    pthread_mutex_lock(&lock);
    bool is = ga_cuda_blocks_lists(&put_off, start);
    pthread_mutex_unlock(&lock);
    return is;
}

bool ga_cuda_put_off_next(ga_cuda_block *out)
{
    pthread_mutex_lock(&lock);
    bool found = ga_cuda_blocks_pop(&put_off, out);
    pthread_mutex_unlock(&lock);
    return found;
}

/* ---- the list of captures ------------------------------------------------------------------ */

enum {
    STREAM_LEGACY = 1,
    STREAM_THREAD = 2 /* CU_STREAM_LEGACY and CU_STREAM_PER_THREAD, as handles */
};

static CUstream handle(int number)
{
    return (CUstream)(uintptr_t)number;
}

static CUstream named(CUstream stream, ga_cuda_streams meaning)
{
    if (stream) {
        return stream == handle(STREAM_LEGACY) ? NULL : stream;
    }
    return meaning == GA_CUDA_THREAD ? handle(STREAM_THREAD) : NULL;
}

static bool is_capturing(CUstream stream)
{
    const ga_cuda_asks *asks = ga_cuda_next_asks();
    int status = CU_STREAM_CAPTURE_STATUS_NONE;
    return asks && asks->cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
           status != CU_STREAM_CAPTURE_STATUS_NONE;
}

static CUcontext current(void)
{
    const ga_cuda_asks *asks = ga_cuda_next_asks();
    CUcontext context = NULL;
    return asks && asks->cuCtxGetCurrent(&context) == CUDA_SUCCESS ? context : NULL;
}

/* The library need not ask streams whether they capture. */
__attribute__((constructor)) static void watch_alone(void)
{
    ga_cuda_captures_unwatch();
}

/* False: no memory. Our calls would end a capture that we do not know of, so it must not begin. */
static bool note(CUstream stream)
{
    capture *made = ga_libc.malloc(sizeof *made);
    if (made) {
        pthread_mutex_lock(&lock);
        *made = (capture){current(), stream, pthread_self(), captures};
        captures = made;
        /* C1: release. Pairs with C2. */
        __atomic_fetch_add(&count, 1, __ATOMIC_RELEASE);
        pthread_mutex_unlock(&lock);
    }
    return made != NULL;
}

typedef bool is_it(const capture *c, const void *context);

static void strike_out(is_it *matches, const void *context, bool all)
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
        /* C1: release. Pairs with C2. */
        __atomic_fetch_sub(&count, 1, __ATOMIC_RELEASE);
        if (!all) {
            break;
        }
    }
    pthread_mutex_unlock(&lock);
    if (!ga_cuda_capturing()) {
        ga_cuda_served_put_off();
        ga_cuda_ipc_put_off();
    }
}

static bool is_stream(const capture *c, const void *context)
{
    const CUstream *stream = context;
    return c->stream == *stream &&
           (*stream != handle(STREAM_THREAD) || pthread_equal(c->thread, pthread_self()));
}

static bool is_context(const capture *c, const void *context)
{
    return c->context == (CUcontext)(uintptr_t)context;
}

void ga_cuda_captures_end(CUcontext context)
{
    if (ga_cuda_capturing()) {
        strike_out(is_context, context, true);
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

/* Who held the other lock is not here. */
void ga_cuda_captures_child(void)
{
    pthread_mutex_unlock(&lock);
    pthread_rwlock_init(&calm, NULL);
}

/* ---- the driver's functions ---------------------------------------------------------------- */

static CUresult begin(ga_cuda_hook_index row, ga_cuda_word a, ga_cuda_word b, ga_cuda_word c,
                      ga_cuda_word d, ga_cuda_word e, ga_cuda_word f)
{
    ga_cuda_any *next = ga_cuda_next_find(row);
    CUstream stream = named((CUstream)a, ga_cuda_hooks[row].streams);
    ga_cuda_count(row);
    if (!next) {
        return ga_cuda_next_missing();
    }
    ga_cuda_served_before_capture();
    if (!note(stream)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    ga_cuda_served_barrier();
    wait_for_calm();
    CUresult result = next(a, b, c, d, e, f);
    if (result != CUDA_SUCCESS) {
        strike_out(is_stream, &stream, false);
    }
    return result;
}

/* However the call ends: it is what the driver says of the stream afterwards that counts. */
static CUresult end(ga_cuda_hook_index row, ga_cuda_word a, ga_cuda_word b, ga_cuda_word c,
                    ga_cuda_word d, ga_cuda_word e, ga_cuda_word f)
{
    ga_cuda_any *next = ga_cuda_next_find(row);
    CUstream stream = named((CUstream)a, ga_cuda_hooks[row].streams);
    ga_cuda_count(row);
    if (!next) {
        return ga_cuda_next_missing();
    }
    bool was = ga_cuda_capturing() && is_capturing(stream);
    CUresult result = next(a, b, c, d, e, f);
    bool gone = row == GA_HOOK_cuStreamDestroy_v2 && result == CUDA_SUCCESS;
    if (was && (gone || !is_capturing(stream))) {
        strike_out(is_stream, &stream, false);
    }
    return result;
}

#define DEFINE(symbol, how)                                                                        \
    GA_CUDA_ENTRY(ga_cuda_any, symbol);                                                            \
    CUresult symbol(ga_cuda_word a, ga_cuda_word b, ga_cuda_word c, ga_cuda_word d,                \
                    ga_cuda_word e, ga_cuda_word f)                                                \
    {                                                                                              \
        return how(GA_HOOK_##symbol, a, b, c, d, e, f);                                            \
    }

DEFINE(cuStreamBeginCapture, begin)
DEFINE(cuStreamBeginCapture_ptsz, begin)
DEFINE(cuStreamBeginCapture_v2, begin)
DEFINE(cuStreamBeginCapture_v2_ptsz, begin)
DEFINE(cuStreamBeginCaptureToGraph, begin)
DEFINE(cuStreamBeginCaptureToGraph_ptsz, begin)
DEFINE(cuStreamEndCapture, end)
DEFINE(cuStreamEndCapture_ptsz, end)
DEFINE(cuStreamDestroy_v2, end)
