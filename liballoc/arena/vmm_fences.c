/* SPDX-License-Identifier: MIT
 *
 * STRUCTURE  three rings of fences: those that are waited for, in the order they were put, the late
 *            ones apart from the others', and spare ones; those that are done and not yet dropped are
 *            in none
 * INVARIANT  only the last of the late ones may be open. What is freed so stays behind it: the event
 *            comes later than the free, never earlier. One of the legacy stream's may be done before
 *            one of all streams' that was put earlier: it is found to be, later than it could.
 * ORDER      under the heap's lock
 * PROGRESS   nobody waits but in ga_vmm_fences_wait() and at the end. That a stream has a fence of
 *            its own in front of it is no reason to leave the wait out: streams come and go, and a
 *            new one may have an old one's handle. The legacy one does not: it is its context's.
 */
#include "vmm_fences.h"

#include "../platform/cuda_captures.h"
#include "../platform/cuda_refused.h"
#include "../platform/libc.h"

#include <gpualloc/backend.h>

static ga_vmm_fence *fence_of(ga_vmm_link *link)
{
    return GA_VMM_OF(link, ga_vmm_fence, link);
}

void ga_vmm_fences_open(ga_vmm_fences *fences, int device)
{
    fences->device = device;
    fences->round = 1;
    ga_vmm_list_begin(&fences->waiting);
    ga_vmm_list_begin(&fences->late);
    ga_vmm_list_begin(&fences->spare);
}

/* ---- the device's context ------------------------------------------------------------------ */

/* ga_cuda_enter() asks for more than fences need with each block: whether this is a child of fork()
 * is the heap's to know, and most who call have the context current already. */
typedef struct visit {
    const ga_cuda_driver *driver;
    bool pushed;
    int mode; /* the thread's capture mode before */
} visit;

static ga_status learn(ga_vmm_fences *fences)
{
    ga_cuda_scope scope;
    CUcontext context = NULL;
    ga_status status = ga_cuda_enter(&scope, fences->device);
    if (status == GA_OK) {
        status = GA_CUDA_CALL(scope.driver, cuCtxGetCurrent, &context);
        ga_cuda_leave(&scope);
    }
    if (status == GA_OK) {
        fences->driver = scope.driver;
        fences->context = context;
        fences->no_every = !scope.driver->cuCtxRecordEvent;
    }
    return status;
}

static ga_status enter(ga_vmm_fences *fences, visit *v)
{
    CUcontext current = NULL;
    ga_status status = fences->context ? GA_OK : learn(fences);
    if (status != GA_OK) {
        return status;
    }
    v->driver = fences->driver;
    v->pushed = v->driver->cuCtxGetCurrent(&current) != CUDA_SUCCESS || current != fences->context;
    status = v->pushed ? GA_CUDA_CALL(v->driver, cuCtxPushCurrent, fences->context) : GA_OK;
    if (status == GA_OK) {
        v->mode = ga_cuda_relax_mode();
    }
    return status;
}

static void leave(const visit *v)
{
    CUcontext ours;
    ga_cuda_restore_mode(v->mode);
    if (v->pushed) {
        v->driver->cuCtxPopCurrent(&ours);
    }
}

/* ---- fences ------------------------------------------------------------------------------ */

static ga_status make(const visit *v, ga_vmm_fence **out)
{
    ga_vmm_fence *fence = ga_libc.calloc(1, sizeof *fence);
    if (!fence) {
        return ga_fail(GA_ERR_MEMORY, "no memory for the record of an event");
    }
    ga_vmm_list_begin(&fence->link);
    ga_status status =
        GA_CUDA_CALL(v->driver, cuEventCreate, &fence->event, CU_EVENT_DISABLE_TIMING);
    if (status != GA_OK) {
        ga_libc.free(fence);
        return status;
    }
    *out = fence;
    return GA_OK;
}

static ga_status get(ga_vmm_fences *fences, const visit *v, ga_vmm_fence **out)
{
    if (ga_vmm_list_empty(&fences->spare)) {
        return make(v, out);
    }
    *out = fence_of(fences->spare.before);
    ga_vmm_list_remove(&(*out)->link);
    return GA_OK;
}

static bool is_legacy(ga_stream stream)
{
    return stream == NULL;
}

static ga_vmm_link *ring_of(ga_vmm_fences *fences, ga_stream stream)
{
    return ga_vmm_is_late(stream) ? &fences->late : &fences->waiting;
}

/* A driver may have the call and no such event on this device: then never again. */
static ga_status record_every(ga_vmm_fences *fences, ga_vmm_fence *fence, const visit *v)
{
    CUresult result = v->driver->cuCtxRecordEvent(fences->context, fence->event);
    if (result == CUDA_ERROR_NOT_SUPPORTED) {
        fences->no_every = true;
        fence->stream = NULL;
        return GA_CUDA_CALL(v->driver, cuEventRecord, fence->event, NULL);
    }
    return ga_cuda_check(v->driver, result, "cuCtxRecordEvent");
}

/* Behind all that is on its stream now. One that the driver refuses stays as it is. */
static ga_status record(ga_vmm_fences *fences, ga_vmm_fence *fence, const visit *v)
{
    ga_status status = fence->stream == GA_EVERY_STREAM
                           ? record_every(fences, fence, v)
                           : GA_CUDA_CALL(v->driver, cuEventRecord, fence->event, fence->stream);
    if (status == GA_OK) {
        fence->recorded = true;
        fences->open = fences->open == fence ? NULL : fences->open;
    }
    return status;
}

static ga_status begin(ga_vmm_fences *fences, const visit *v, ga_stream stream, ga_vmm_fence **out)
{
    ga_vmm_fence *fence = NULL;
    ga_status status = get(fences, v, &fence);
    if (status != GA_OK) {
        return status;
    }
    fence->stream = stream;
    fence->done = fence->recorded = false;
    fence->round = fence->bytes = 0;
    fence->puts = fence->uses = 1;
    if (ga_vmm_is_late(stream)) {
        fences->open = fence;
        fences->late_used = true;
        fences->every_used = fences->every_used || stream == GA_EVERY_STREAM;
    } else {
        status = record(fences, fence, v);
    }
    ga_vmm_list_append(status == GA_OK ? ring_of(fences, stream) : &fences->spare, &fence->link);
    *out = fence;
    return status;
}

/* The open one takes one more; that it cannot be recorded is tried again with the next. */
static void join(ga_vmm_fences *fences, ga_vmm_fence *fence)
{
    visit v;
    fence->uses++;
    if (++fence->puts >= GA_VMM_FENCE_BATCH && enter(fences, &v) == GA_OK) {
        record(fences, fence, &v);
        leave(&v);
    }
}

static ga_status put(ga_vmm_fences *fences, ga_stream stream, ga_vmm_fence **out)
{
    bool late = ga_vmm_is_late(stream);
    bool other = late && fences->open; /* of another stream: it takes no more */
    visit v;
    if (late && !other && !ga_vmm_list_empty(&fences->spare)) {
        return begin(fences, NULL, stream, out); /* asks the driver nothing */
    }
    ga_status status = enter(fences, &v);
    if (status != GA_OK) {
        return status;
    }
    if (other) {
        status = record(fences, fences->open, &v);
    }
    if (status == GA_OK) {
        status = begin(fences, &v, stream, out);
    }
    leave(&v);
    return status;
}

ga_status ga_vmm_fence_put(ga_vmm_fences *fences, ga_stream stream, ga_vmm_fence **out)
{
    ga_status status = stream != GA_EVERY_STREAM || fences->context ? GA_OK : learn(fences);
    if (status != GA_OK) {
        return status;
    }
    if (stream == GA_EVERY_STREAM && fences->no_every) {
        stream = NULL;
    }
    if (fences->open && fences->open->stream == stream) {
        *out = fences->open;
        join(fences, *out);
        return GA_OK;
    }
    return put(fences, stream, out);
}

/* In the device's context. */
static bool look(ga_vmm_fences *fences, ga_vmm_fence *fence, const visit *v)
{
    fence->round = fences->round;
    fence->done = (fence->recorded || record(fences, fence, v) == GA_OK) &&
                  v->driver->cuEventQuery(fence->event) == CUDA_SUCCESS;
    if (fence->done) {
        fences->bytes -= fence->bytes;
        ga_vmm_list_remove(&fence->link);
    }
    return fence->done;
}

/* From the oldest on, up to the first that is not done in this round. */
static void look_along(ga_vmm_fences *fences, ga_vmm_link *ring, const visit *v)
{
    bool done = true;
    while (done && !ga_vmm_list_empty(ring)) {
        ga_vmm_fence *oldest = fence_of(ring->after);
        done = oldest->round != fences->round && look(fences, oldest, v);
    }
}

/* None of its fences is done before those that were put earlier: one query a round, and one for
 * each that is done. */
static void look_at_late(ga_vmm_fences *fences)
{
    visit v;
    if (fences->late_round != fences->round && enter(fences, &v) == GA_OK) {
        fences->late_round = fences->round;
        look_along(fences, &fences->late, &v);
        leave(&v);
    }
}

bool ga_vmm_fence_ask(ga_vmm_fences *fences, ga_vmm_fence *fence)
{
    visit v;
    if (ga_vmm_is_late(fence->stream)) {
        look_at_late(fences);
    } else if (enter(fences, &v) == GA_OK) {
        look(fences, fence, &v);
        leave(&v);
    }
    return fence->done;
}

ga_status ga_vmm_fence_order(ga_vmm_fences *fences, ga_vmm_fence *fence, ga_stream stream)
{
    visit v;
    if (fence->done || (is_legacy(stream) && is_legacy(fence->stream))) {
        return GA_OK;
    }
    ga_status status = enter(fences, &v);
    if (status != GA_OK) {
        return status;
    }
    if (!fence->recorded) {
        status = record(fences, fence, &v);
    }
    if (status == GA_OK && !look(fences, fence, &v)) {
        status = GA_CUDA_CALL(v.driver, cuStreamWaitEvent, stream, fence->event, 0);
    }
    leave(&v);
    return status;
}

void ga_vmm_fence_drop(ga_vmm_fences *fences, ga_vmm_fence *fence, uint64_t bytes)
{
    if (!fence) {
        return;
    }
    fence->bytes -= bytes;
    fences->bytes -= fence->done ? 0 : bytes;
    if (--fence->uses == 0) {
        fences->open = fences->open == fence ? NULL : fences->open;
        ga_vmm_list_remove(&fence->link);
        ga_vmm_list_append(&fences->spare, &fence->link);
    }
}

size_t ga_vmm_fences_count(const ga_vmm_fences *fences)
{
    const ga_vmm_link *rings[] = {&fences->waiting, &fences->late};
    size_t count = 0;
    for (size_t i = 0; i < 2; i++) {
        for (const ga_vmm_link *l = rings[i]->after; l != rings[i]; l = l->after) {
            count++;
        }
    }
    return count;
}

/* The oldest is the open one where there is no other. */
static bool record_open(ga_vmm_fences *fences)
{
    visit v;
    bool recorded = enter(fences, &v) == GA_OK;
    if (recorded) {
        recorded = record(fences, fences->open, &v) == GA_OK;
        leave(&v);
    }
    return recorded;
}

CUevent ga_vmm_fences_oldest(ga_vmm_fences *fences)
{
    const ga_vmm_link *ring =
        ga_vmm_list_empty(&fences->waiting) ? &fences->late : &fences->waiting;
    if (ga_vmm_list_empty(ring)) {
        return NULL;
    }
    const ga_vmm_fence *oldest = fence_of(ring->after);
    return oldest->recorded || record_open(fences) ? oldest->event : NULL;
}

ga_status ga_vmm_fences_wait(int device, CUevent event)
{
    ga_cuda_scope scope;
    ga_status status = ga_cuda_enter(&scope, device);
    if (status == GA_OK) {
        status = GA_CUDA_CALL(scope.driver, cuEventSynchronize, event);
        ga_cuda_leave(&scope);
    }
    return status;
}

void ga_vmm_fences_look(ga_vmm_fences *fences)
{
    visit v;
    if (!ga_vmm_list_empty(&fences->late)) {
        look_at_late(fences);
    }
    const ga_vmm_link *oldest = fences->waiting.after;
    if (!ga_vmm_list_empty(&fences->waiting) &&
        GA_VMM_OF(oldest, ga_vmm_fence, link)->round != fences->round &&
        enter(fences, &v) == GA_OK) {
        look_along(fences, &fences->waiting, &v);
        leave(&v);
    }
}

/* ---- the end ----------------------------------------------------------------------------- */

/* `scope` is NULL where the device cannot be entered. */
static void end(const ga_vmm_fences *fences, ga_vmm_link *ring, const ga_cuda_scope *scope)
{
    while (!ga_vmm_list_empty(ring)) {
        ga_vmm_fence *fence = fence_of(ring->after);
        if (scope) {
            scope->driver->cuEventSynchronize(fence->event);
        }
        if (!scope || GA_CUDA_CALL(scope->driver, cuEventDestroy, fence->event) != GA_OK) {
            ga_cuda_refused_add(fences->device, GA_CUDA_REFUSED_EVENT, (uintptr_t)fence->event, 1);
        }
        ga_vmm_list_remove(&fence->link);
        ga_libc.free(fence);
    }
}

/* What was freed late may have dropped a fence that was never recorded. */
static void wait_for_late(const ga_vmm_fences *fences, const ga_cuda_scope *scope)
{
    const ga_vmm_link *ring = ga_vmm_list_empty(&fences->spare) ? &fences->late : &fences->spare;
    if (!fences->late_used || ga_vmm_list_empty(ring)) {
        return;
    }
    CUevent event = fence_of(ring->after)->event; /* ended with the others */
    if (fences->every_used && !fences->no_every) {
        scope->driver->cuCtxRecordEvent(fences->context, event);
    } else {
        scope->driver->cuEventRecord(event, NULL);
    }
}

void ga_vmm_fences_close(ga_vmm_fences *fences)
{
    ga_cuda_scope scope;
    ga_vmm_link *const rings[] = {&fences->waiting, &fences->late, &fences->spare};
    bool any = false;
    for (size_t i = 0; i < 3; i++) {
        any = any || !ga_vmm_list_empty(rings[i]);
    }
    bool entered = any && ga_cuda_enter(&scope, fences->device) == GA_OK;
    if (entered) {
        wait_for_late(fences, &scope);
    }
    for (size_t i = 0; i < 3; i++) {
        end(fences, rings[i], entered ? &scope : NULL);
    }
    if (entered) {
        ga_cuda_leave(&scope);
    }
}
