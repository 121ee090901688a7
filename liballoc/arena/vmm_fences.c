/* SPDX-License-Identifier: MIT
 *
 * STRUCTURE  two rings of fences: those that are waited for, in the order they were put, and spare
 *            ones; those that are done and not yet dropped are in neither
 * ORDER      under the heap's lock
 * PROGRESS   nobody waits but in ga_vmm_fences_wait() and at the end. That a stream has a fence of
 *            its own in front of it is no reason to leave the wait out: streams come and go, and a
 *            new one may have an old one's handle.
 */
#include "vmm_fences.h"

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
    ga_vmm_list_begin(&fences->spare);
}

/* ---- the device's context ------------------------------------------------------------------ */

/* ga_cuda_enter() asks for more than fences need with each block: whether this is a child of fork()
 * is the heap's to know, and most who call have the context current already. */
typedef struct visit {
    const ga_cuda_driver *driver;
    bool pushed;
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
    return v->pushed ? GA_CUDA_CALL(v->driver, cuCtxPushCurrent, fences->context) : GA_OK;
}

static void leave(const visit *v)
{
    CUcontext ours;
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

static ga_status put(ga_vmm_fences *fences, const visit *v, ga_stream stream, ga_vmm_fence **out)
{
    ga_vmm_fence *fence = NULL;
    ga_status status = get(fences, v, &fence);
    if (status != GA_OK) {
        return status;
    }
    status = GA_CUDA_CALL(v->driver, cuEventRecord, fence->event, stream);
    ga_vmm_list_append(status == GA_OK ? &fences->waiting : &fences->spare, &fence->link);
    fence->stream = stream;
    fence->done = false;
    fence->round = 0;
    fence->uses = 1;
    *out = fence;
    return status;
}

ga_status ga_vmm_fence_put(ga_vmm_fences *fences, ga_stream stream, ga_vmm_fence **out)
{
    visit v;
    ga_status status = enter(fences, &v);
    if (status == GA_OK) {
        status = put(fences, &v, stream, out);
        leave(&v);
    }
    return status;
}

/* In the device's context. */
static bool look(const ga_vmm_fences *fences, ga_vmm_fence *fence, const visit *v)
{
    fence->round = fences->round;
    fence->done = v->driver->cuEventQuery(fence->event) == CUDA_SUCCESS;
    if (fence->done) {
        ga_vmm_list_remove(&fence->link);
    }
    return fence->done;
}

bool ga_vmm_fence_done(ga_vmm_fences *fences, ga_vmm_fence *fence)
{
    visit v;
    bool ask = !fence->done && fence->round != fences->round;
    if (ask && enter(fences, &v) == GA_OK) {
        look(fences, fence, &v);
        leave(&v);
    }
    return fence->done;
}

ga_status ga_vmm_fence_order(ga_vmm_fences *fences, ga_vmm_fence *fence, ga_stream stream)
{
    visit v;
    ga_status status = fence->done ? GA_OK : enter(fences, &v);
    if (fence->done || status != GA_OK) {
        return status;
    }
    if (!look(fences, fence, &v)) {
        status = GA_CUDA_CALL(v.driver, cuStreamWaitEvent, stream, fence->event, 0);
    }
    leave(&v);
    return status;
}

void ga_vmm_fence_drop(ga_vmm_fences *fences, ga_vmm_fence *fence)
{
    if (fence && --fence->uses == 0) {
        ga_vmm_list_remove(&fence->link);
        ga_vmm_list_append(&fences->spare, &fence->link);
    }
}

CUevent ga_vmm_fences_oldest(const ga_vmm_fences *fences)
{
    return ga_vmm_list_empty(&fences->waiting) ? NULL : fence_of(fences->waiting.after)->event;
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
    if (ga_vmm_list_empty(&fences->waiting) || enter(fences, &v) != GA_OK) {
        return;
    }
    ga_vmm_fence *oldest = fence_of(fences->waiting.after);
    while (oldest->round != fences->round && look(fences, oldest, &v) &&
           !ga_vmm_list_empty(&fences->waiting)) {
        oldest = fence_of(fences->waiting.after);
    }
    leave(&v);
}

/* ---- the end ----------------------------------------------------------------------------- */

static void end(ga_vmm_link *ring, const ga_cuda_scope *scope)
{
    while (!ga_vmm_list_empty(ring)) {
        ga_vmm_fence *fence = fence_of(ring->after);
        if (scope) {
            scope->driver->cuEventSynchronize(fence->event);
            scope->driver->cuEventDestroy(fence->event);
        }
        ga_vmm_list_remove(&fence->link);
        ga_libc.free(fence);
    }
}

void ga_vmm_fences_close(ga_vmm_fences *fences)
{
    ga_cuda_scope scope;
    bool any = !ga_vmm_list_empty(&fences->waiting) || !ga_vmm_list_empty(&fences->spare);
    bool entered = any && ga_cuda_enter(&scope, fences->device) == GA_OK;
    end(&fences->waiting, entered ? &scope : NULL);
    end(&fences->spare, entered ? &scope : NULL);
    if (entered) {
        ga_cuda_leave(&scope);
    }
}
