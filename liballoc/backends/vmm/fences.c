/* SPDX-License-Identifier: MIT
 *
 * STRUCTURE  three rings: pending fences and batched pending fences, each in the order they were
 *            put, and spare ones. A fence that is done and still referenced is in no ring.
 * INVARIANT  only the newest batched fence may be open. It is recorded after the frees that it
 *            covers, never before. A fence of the legacy stream may be done before an older one of
 *            all streams; it is then found to be done later than possible.
 * ORDER      under the heap's lock
 * PROGRESS   only ga_vmm_fences_wait() and closing wait. A stream waits even for a fence of its own
 *            handle, because handles are reused: a new stream may have the handle of a destroyed
 *            one. The legacy stream is exempt, because it lives as long as its context.
 */
#include "fences.h"

#include "../../platform/cuda_captures.h"
#include "../../platform/cuda_refused.h"
#include "../../platform/libc.h"

#include <gpualloc/backend.h>

static ga_vmm_fence *fence_of(ga_vmm_link *link)
{
    return GA_VMM_OF(link, ga_vmm_fence, link);
}

void ga_vmm_fences_open(ga_vmm_fences *fences, int device)
{
    fences->device = device;
    fences->round = 1;
    ga_vmm_list_init(&fences->waiting);
    ga_vmm_list_init(&fences->batched);
    ga_vmm_list_init(&fences->spare);
}

/* ---- the device's context ------------------------------------------------------------------ */

/* A cheaper ga_cuda_enter(), because fences need the context for each free: the heap has already
 * checked that this is no child of fork(), and most callers have the context current. */
typedef struct driver_scope {
    const ga_cuda_driver *driver;
    bool pushed;
    int mode; /* the thread's previous capture mode */
} driver_scope;

static ga_status find_context(ga_vmm_fences *fences)
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

static ga_status enter(ga_vmm_fences *fences, driver_scope *scope)
{
    CUcontext current = NULL;
    ga_status status = fences->context ? GA_OK : find_context(fences);
    if (status != GA_OK) {
        return status;
    }
    scope->driver = fences->driver;
    scope->pushed =
        scope->driver->cuCtxGetCurrent(&current) != CUDA_SUCCESS || current != fences->context;
    status = scope->pushed ? GA_CUDA_CALL(scope->driver, cuCtxPushCurrent, fences->context) : GA_OK;
    if (status == GA_OK) {
        scope->mode = ga_cuda_relax_mode();
    }
    return status;
}

static void leave(const driver_scope *scope)
{
    CUcontext ours;
    ga_cuda_restore_mode(scope->mode);
    if (scope->pushed) {
        scope->driver->cuCtxPopCurrent(&ours);
    }
}

/* ---- fences ------------------------------------------------------------------------------ */

static ga_status create_fence(const driver_scope *scope, ga_vmm_fence **out)
{
    ga_vmm_fence *fence = ga_libc.calloc(1, sizeof *fence);
    if (!fence) {
        return ga_fail(GA_ERR_MEMORY, "no memory for the record of an event");
    }
    ga_vmm_list_init(&fence->link);
    ga_status status =
        GA_CUDA_CALL(scope->driver, cuEventCreate, &fence->event, CU_EVENT_DISABLE_TIMING);
    if (status != GA_OK) {
        ga_libc.free(fence);
        return status;
    }
    *out = fence;
    return GA_OK;
}

static ga_status get_fence(ga_vmm_fences *fences, const driver_scope *scope, ga_vmm_fence **out)
{
    if (ga_vmm_list_empty(&fences->spare)) {
        return create_fence(scope, out);
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
    return ga_vmm_is_batched(stream) ? &fences->batched : &fences->waiting;
}

/* A driver may have cuCtxRecordEvent() and reject it for this device. It is not called again
 * then. */
static ga_status record_every(ga_vmm_fences *fences, ga_vmm_fence *fence, const driver_scope *scope)
{
    CUresult result = scope->driver->cuCtxRecordEvent(fences->context, fence->event);
    if (result == CUDA_ERROR_NOT_SUPPORTED) {
        fences->no_every = true;
        fence->stream = NULL;
        return GA_CUDA_CALL(scope->driver, cuEventRecord, fence->event, NULL);
    }
    return ga_cuda_check(scope->driver, result, "cuCtxRecordEvent");
}

/* Record the event behind all work that is on the fence's stream now. On failure the fence is
 * unchanged. */
static ga_status record(ga_vmm_fences *fences, ga_vmm_fence *fence, const driver_scope *scope)
{
    ga_status status = fence->stream == GA_EVERY_STREAM ? record_every(fences, fence, scope)
                                                        : GA_CUDA_CALL(scope->driver, cuEventRecord,
                                                                       fence->event, fence->stream);
    if (status == GA_OK) {
        fence->recorded = true;
        fences->open = fences->open == fence ? NULL : fences->open;
    }
    return status;
}

static ga_status start_fence(ga_vmm_fences *fences, const driver_scope *scope, ga_stream stream,
                             ga_vmm_fence **out)
{
    ga_vmm_fence *fence = NULL;
    ga_status status = get_fence(fences, scope, &fence);
    if (status != GA_OK) {
        return status;
    }
    fence->stream = stream;
    fence->done = fence->recorded = false;
    fence->round = fence->bytes = 0;
    fence->frees = fence->references = 1;
    if (ga_vmm_is_batched(stream)) {
        fences->open = fence;
        fences->batched_used = true;
        fences->every_used = fences->every_used || stream == GA_EVERY_STREAM;
    } else {
        status = record(fences, fence, scope);
    }
    ga_vmm_list_append(status == GA_OK ? ring_of(fences, stream) : &fences->spare, &fence->link);
    *out = fence;
    return status;
}

/* Add one free to the open fence. If recording fails, the next free tries again. */
static void join_open(ga_vmm_fences *fences, ga_vmm_fence *fence)
{
    driver_scope scope;
    fence->references++;
    if (++fence->frees >= GA_VMM_FENCE_BATCH && enter(fences, &scope) == GA_OK) {
        record(fences, fence, &scope);
        leave(&scope);
    }
}

static ga_status put_fence(ga_vmm_fences *fences, ga_stream stream, ga_vmm_fence **out)
{
    bool batched = ga_vmm_is_batched(stream);
    /* The open fence is of another stream, and is closed. */
    bool other = batched && fences->open;
    driver_scope scope;
    if (batched && !other && !ga_vmm_list_empty(&fences->spare)) {
        return start_fence(fences, NULL, stream, out); /* no driver call */
    }
    ga_status status = enter(fences, &scope);
    if (status != GA_OK) {
        return status;
    }
    if (other) {
        status = record(fences, fences->open, &scope);
    }
    if (status == GA_OK) {
        status = start_fence(fences, &scope, stream, out);
    }
    leave(&scope);
    return status;
}

ga_status ga_vmm_fence_put(ga_vmm_fences *fences, ga_stream stream, ga_vmm_fence **out)
{
    ga_status status = stream != GA_EVERY_STREAM || fences->context ? GA_OK : find_context(fences);
    if (status != GA_OK) {
        return status;
    }
    if (stream == GA_EVERY_STREAM && fences->no_every) {
        stream = NULL;
    }
    if (fences->open && fences->open->stream == stream) {
        *out = fences->open;
        join_open(fences, *out);
        return GA_OK;
    }
    return put_fence(fences, stream, out);
}

/* In the device's context. */
static bool query(ga_vmm_fences *fences, ga_vmm_fence *fence, const driver_scope *scope)
{
    fence->round = fences->round;
    fence->done = (fence->recorded || record(fences, fence, scope) == GA_OK) &&
                  scope->driver->cuEventQuery(fence->event) == CUDA_SUCCESS;
    if (fence->done) {
        fences->bytes -= fence->bytes;
        ga_vmm_list_remove(&fence->link);
    }
    return fence->done;
}

/* From the oldest on, up to the first fence that is not done in this round. */
static void query_ring(ga_vmm_fences *fences, ga_vmm_link *ring, const driver_scope *scope)
{
    bool done = true;
    while (done && !ga_vmm_list_empty(ring)) {
        ga_vmm_fence *oldest = fence_of(ring->after);
        done = oldest->round != fences->round && query(fences, oldest, scope);
    }
}

/* Batched fences complete in order: one query per round, and one for each that is done. */
static void query_batched(ga_vmm_fences *fences)
{
    driver_scope scope;
    if (fences->batched_round != fences->round && enter(fences, &scope) == GA_OK) {
        fences->batched_round = fences->round;
        query_ring(fences, &fences->batched, &scope);
        leave(&scope);
    }
}

bool ga_vmm_fence_query(ga_vmm_fences *fences, ga_vmm_fence *fence)
{
    driver_scope scope;
    if (ga_vmm_is_batched(fence->stream)) {
        query_batched(fences);
    } else if (enter(fences, &scope) == GA_OK) {
        query(fences, fence, &scope);
        leave(&scope);
    }
    return fence->done;
}

ga_status ga_vmm_fence_order(ga_vmm_fences *fences, ga_vmm_fence *fence, ga_stream stream)
{
    driver_scope scope;
    if (fence->done || (is_legacy(stream) && is_legacy(fence->stream))) {
        return GA_OK;
    }
    ga_status status = enter(fences, &scope);
    if (status != GA_OK) {
        return status;
    }
    if (!fence->recorded) {
        status = record(fences, fence, &scope);
    }
    if (status == GA_OK && !query(fences, fence, &scope)) {
        status = GA_CUDA_CALL(scope.driver, cuStreamWaitEvent, stream, fence->event, 0);
    }
    leave(&scope);
    return status;
}

void ga_vmm_fence_drop(ga_vmm_fences *fences, ga_vmm_fence *fence, uint64_t bytes)
{
    if (!fence) {
        return;
    }
    fence->bytes -= bytes;
    fences->bytes -= fence->done ? 0 : bytes;
    if (--fence->references == 0) {
        fences->open = fences->open == fence ? NULL : fences->open;
        ga_vmm_list_remove(&fence->link);
        ga_vmm_list_append(&fences->spare, &fence->link);
    }
}

size_t ga_vmm_fences_count(const ga_vmm_fences *fences)
{
    const ga_vmm_link *rings[] = {&fences->waiting, &fences->batched};
    size_t count = 0;
    for (size_t i = 0; i < 2; i++) {
        for (const ga_vmm_link *l = rings[i]->after; l != rings[i]; l = l->after) {
            count++;
        }
    }
    return count;
}

/* The open fence is the oldest if there is no other. */
static bool record_open(ga_vmm_fences *fences)
{
    driver_scope scope;
    bool recorded = enter(fences, &scope) == GA_OK;
    if (recorded) {
        recorded = record(fences, fences->open, &scope) == GA_OK;
        leave(&scope);
    }
    return recorded;
}

CUevent ga_vmm_fences_oldest(ga_vmm_fences *fences)
{
    const ga_vmm_link *ring =
        ga_vmm_list_empty(&fences->waiting) ? &fences->batched : &fences->waiting;
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

void ga_vmm_fences_poll(ga_vmm_fences *fences)
{
    driver_scope scope;
    if (!ga_vmm_list_empty(&fences->batched)) {
        query_batched(fences);
    }
    const ga_vmm_link *oldest = fences->waiting.after;
    if (!ga_vmm_list_empty(&fences->waiting) &&
        GA_VMM_OF(oldest, ga_vmm_fence, link)->round != fences->round &&
        enter(fences, &scope) == GA_OK) {
        query_ring(fences, &fences->waiting, &scope);
        leave(&scope);
    }
}

/* ---- the end ----------------------------------------------------------------------------- */

/* `scope` is NULL if the device cannot be entered. */
static void destroy_ring(const ga_vmm_fences *fences, ga_vmm_link *ring, const ga_cuda_scope *scope)
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

/* A batched free may have dropped a fence that was never recorded. So record one more event behind
 * all work; the caller waits for it with the others. */
static void record_last_batched(const ga_vmm_fences *fences, const ga_cuda_scope *scope)
{
    const ga_vmm_link *ring = ga_vmm_list_empty(&fences->spare) ? &fences->batched : &fences->spare;
    if (!fences->batched_used || ga_vmm_list_empty(ring)) {
        return;
    }
    CUevent event = fence_of(ring->after)->event; /* destroyed with the others */
    if (fences->every_used && !fences->no_every) {
        scope->driver->cuCtxRecordEvent(fences->context, event);
    } else {
        scope->driver->cuEventRecord(event, NULL);
    }
}

void ga_vmm_fences_close(ga_vmm_fences *fences)
{
    ga_cuda_scope scope;
    ga_vmm_link *const rings[] = {&fences->waiting, &fences->batched, &fences->spare};
    bool any = false;
    for (size_t i = 0; i < 3; i++) {
        any = any || !ga_vmm_list_empty(rings[i]);
    }
    bool entered = any && ga_cuda_enter(&scope, fences->device) == GA_OK;
    if (entered) {
        record_last_batched(fences, &scope);
    }
    for (size_t i = 0; i < 3; i++) {
        destroy_ring(fences, rings[i], entered ? &scope : NULL);
    }
    if (entered) {
        ga_cuda_leave(&scope);
    }
}
