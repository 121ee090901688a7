/* SPDX-License-Identifier: MIT
 *
 * The heaps behind in-kernel malloc that was replaced by linking: one for each device of the
 * process, shared by all modules that were linked that way.
 *
 *   CLOSED --publish--> OPEN or FAILED --ga_kernel_close()--> CLOSED
 *                       FAILED --ga_kernel_use()--> CLOSED
 *
 * ga_kernel_publish
 *   publish_locked
 *     open_slot          only in state CLOSED: the requested spec, else the default
 *     publish_open       copy the heap's view to the module's variable on the device
 *
 * STRUCTURE  a slot for each device, and the spec that the program chose, all guarded by `lock`
 * INVARIANT  a heap in a slot has no layer that calls malloc in kernels
 * ORDER      the lock's; NE1/NE2 for the epoch, which is read without it
 * PROGRESS   blocks while another thread opens or publishes
 */
#include "linked.h"

#include "../backends/coalesce/coalesce_heap.h"
#include "../backends/coalesce/coalesce_words.h"
#include "../device/device.h"
#include "../device/kinds.h"
#include "../platform/environment.h"
#include "../platform/forks.h"
#include "../platform/libc.h"
#include "../platform/log.h"
#include "../runtime/heap.h"
#include "../runtime/report.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    CLOSED = 0,
    OPEN,
    FAILED
};

typedef struct slot {
    int state;
    ga_heap *heap;    /* OPEN */
    ga_status status; /* FAILED: the status and the error sentence */
    char reason[512];
} slot;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static slot slots[GA_CUDA_DEVICES];
static char *chosen_spec; /* the spec given to ga_kernel_use(), or NULL */
static uint64_t epoch = 1;

/* ---- fork: the driver does not outlive it, so the child begins anew -------------------------- */

static void fork_child(void)
{
    pthread_mutex_init(&lock, NULL); /* the thread that held it is not in the child */
    memset(slots, 0, sizeof slots);
    epoch++;
}

/* A constructor, because a fork that has begun does not run handlers that are registered during
 * it. */
__attribute__((constructor)) static void watch_forks(void)
{
    static bool watched;
    ga_forks_watch(&watched, NULL, NULL, fork_child);
}

/* ---- opening --------------------------------------------------------------------------------- */

bool ga_linked_calls_cuda(const ga_heap *heap)
{
    for (; heap; heap = heap->parent) {
        if (heap->place == GA_PLACE_KERNEL && heap->backend->capabilities & GA_CAP_CUDA_MALLOC) {
            return true;
        }
    }
    return false;
}

/* The origin of the spec, for messages. ga_heap_open() names the environment variable itself. */
static const char *source(const char *spec)
{
    return spec ? "ga_kernel_use" : "GPUALLOC_KERNEL";
}

bool ga_linked_aligns(const ga_kernel_heap *view)
{
    return view->kind != GA_KERNEL_KIND_COALESCE ||
           GA_COALESCE_WORDS_BITS(view->words, GA_COALESCE_AT_FORM) >= GA_COALESCE_SIXTEEN;
}

static ga_status refuse_cuda(const char *spec, const char *text)
{
    return ga_fail(
        GA_ERR_PLACE,
        "%s: %s: malloc in kernels is replaced in this program, so that CUDA's own would "
        "call itself; expected a spec without cuda in the place kernel, as %s. To run "
        "with CUDA's malloc, link without libgpualloc-kernel.a",
        source(spec), text, ga_heap_default_spec(GA_PLACE_KERNEL));
}

/* Whether the heap can replace malloc. */
static ga_status check_heap(ga_heap *heap, const char *spec)
{
    ga_kernel_heap view;
    if (ga_linked_calls_cuda(heap)) {
        return refuse_cuda(spec, ga_heap_spec(heap));
    }
    ga_status status = ga_heap_kernel_view(heap, &view);
    if (status == GA_OK && !ga_linked_aligns(&view)) {
        return ga_fail(
            GA_ERR_ALIGN,
            "%s: %s: malloc in kernels promises blocks aligned to 16, which these headers "
            "are not; expected header=fit, none or 16",
            source(spec), ga_heap_spec(heap));
    }
    return status;
}

/* Open one heap and check it. `spec` as in ga_heap_open(). */
static ga_status open_one(ga_heap **out, int device, const char *spec)
{
    ga_status status = ga_heap_open(out, GA_PLACE_KERNEL, device, spec);
    if (status != GA_OK) {
        return spec ? ga_fail(status, "%s: %s", source(spec), ga_error_text()) : status;
    }
    status = check_heap(*out, spec);
    if (status != GA_OK) {
        char text[512]; /* closing may overwrite the error sentence */
        snprintf(text, sizeof text, "%s", ga_error_text());
        ga_heap_close(*out);
        *out = NULL;
        ga_fail(status, "%s", text);
    }
    return status;
}

static void stop_if_strict(void)
{
    if (ga_is_strict()) {
        ga_log(GA_LOG_ERROR, "%s", ga_error_text());
        _exit(2);
    }
}

static bool spec_requested(void)
{
    const char *value = ga_environment("GPUALLOC_KERNEL");
    return chosen_spec || (value && *value);
}

/* Open the requested heap; if that fails and is not the device's fault, the default. */
static ga_status open_heap(ga_heap **out, int device)
{
    ga_status status = open_one(out, device, chosen_spec);
    if (status == GA_OK) {
        return GA_OK;
    }
    stop_if_strict();
    if (status != GA_ERR_DEVICE && spec_requested()) {
        const char *fallback = ga_heap_default_spec(GA_PLACE_KERNEL);
        ga_log(GA_LOG_ERROR, "%s; going on with %s", ga_error_text(), fallback);
        status = ga_heap_open(out, GA_PLACE_KERNEL, device, fallback);
        if (status != GA_OK) {
            ga_fail(status, "%s: %s", fallback, ga_error_text());
        }
    }
    return status;
}

static void open_slot(slot *it, int device)
{
    it->status = open_heap(&it->heap, device);
    if (it->status == GA_OK) {
        it->state = OPEN;
        ga_log(GA_LOG_INFO, "malloc in kernels on device %d is served by %s", device,
               ga_heap_spec(it->heap));
        return;
    }
    it->state = FAILED;
    snprintf(it->reason, sizeof it->reason, "%s", ga_error_text());
    ga_log(GA_LOG_ERROR, "%s; malloc in kernels returns NULL on device %d", it->reason, device);
}

/* ---- publishing ------------------------------------------------------------------------------ */

/* The variable belongs to the current context and the heap to the primary one. Other contexts may
 * not have access to the heap's memory, so refuse them. */
static ga_status check_context(const ga_cuda_scope *scope, CUcontext before, int device)
{
    CUcontext primary = NULL;
    ga_status status = GA_CUDA_CALL(scope->driver, cuCtxGetCurrent, &primary);
    if (status == GA_OK && before && before != primary) {
        return ga_fail(GA_ERR_DEVICE,
                       "malloc in kernels is served in the primary context of device %d, that of "
                       "the CUDA runtime; expected no other to be current",
                       device);
    }
    return status;
}

static ga_status write_view(const ga_cuda_scope *scope, const ga_kernel_heap *view, void *variable)
{
    ga_status status = GA_CUDA_CALL(scope->driver, cuMemcpyHtoDAsync, (CUdeviceptr)variable, view,
                                    sizeof *view, scope->stream);
    return status == GA_OK ? GA_CUDA_CALL(scope->driver, cuStreamSynchronize, scope->stream)
                           : status;
}

/* The context that was current before we make the device's primary context current. */
static ga_status current_context(CUcontext *out)
{
    const ga_cuda_driver *driver;
    *out = NULL;
    ga_status status = ga_cuda_driver_get(&driver);
    return status == GA_OK ? GA_CUDA_CALL(driver, cuCtxGetCurrent, out) : status;
}

static ga_status publish_open(slot *it, int device, void *variable)
{
    CUcontext before;
    ga_cuda_scope scope;
    ga_kernel_heap view;
    ga_status status = ga_heap_kernel_view(it->heap, &view);
    if (status == GA_OK) {
        status = current_context(&before);
    }
    if (status == GA_OK) {
        status = ga_cuda_enter(&scope, device);
    }
    if (status != GA_OK) {
        return status;
    }
    status = check_context(&scope, before, device);
    if (status == GA_OK) {
        status = write_view(&scope, &view, variable);
    }
    ga_cuda_leave(&scope);
    it->heap->published += status == GA_OK;
    return status;
}

static ga_status publish_locked(slot *it, int device, void *variable)
{
    if (it->state == CLOSED) {
        open_slot(it, device);
    }
    if (it->state == FAILED) {
        return ga_fail(it->status, "%s", it->reason);
    }
    ga_status status = publish_open(it, device, variable);
    if (status != GA_OK) {
        ga_log(GA_LOG_ERROR, "%s; malloc in kernels returns NULL there", ga_error_text());
    }
    return status;
}

static ga_status not_active(int device)
{
    const char *what =
        "malloc in kernels is CUDA's own here: the device link took nothing from "
        "libgpualloc-kernel.a. Either no kernel calls malloc, or the archive has no code for the "
        "architecture that was linked";
    ga_log(GA_LOG_WARN, "device %d: %s", device, what);
    ga_report_unreplaced(device);
    return ga_fail(GA_ERR_UNSUPPORTED, "device %d: %s", device, what);
}

static slot *slot_of(int device)
{
    return device >= 0 && device < GA_CUDA_DEVICES ? &slots[device] : NULL;
}

static ga_status no_slot(int device)
{
    return ga_fail(GA_ERR_DEVICE, "no CUDA device %d: expected one from 0 to %d", device,
                   GA_CUDA_DEVICES - 1);
}

void ga_kernel_prepare(void)
{
    ga_heap_prepare();
}

ga_status ga_kernel_publish(int device, void *variable)
{
    slot *it = slot_of(device);
    if (!it) {
        return no_slot(device);
    }
    ga_heap_prepare();
    pthread_mutex_lock(&lock);
    ga_status status = variable ? publish_locked(it, device, variable) : not_active(device);
    pthread_mutex_unlock(&lock);
    return status;
}

uint64_t ga_kernel_epoch(void)
{
    /* NE2: acquire. Pairs with NE1: a thread that sees the new epoch finds the slot closed. */
    return __atomic_load_n(&epoch, __ATOMIC_ACQUIRE);
}

/* ---- choosing, querying, closing ------------------------------------------------------------- */

static void retry_failed(void)
{
    for (int i = 0; i < GA_CUDA_DEVICES; i++) {
        if (slots[i].state == FAILED) {
            slots[i].state = CLOSED;
        }
    }
    /* NE1: release. Pairs with NE2. */
    __atomic_add_fetch(&epoch, 1, __ATOMIC_RELEASE);
}

ga_status ga_kernel_use(const char *spec)
{
    char *copy = NULL;
    if (spec) {
        size_t size = strlen(spec) + 1;
        copy = ga_libc.malloc(size);
        if (!copy) {
            return ga_fail(GA_ERR_MEMORY, "ga_kernel_use: no memory for a copy of %zu bytes", size);
        }
        memcpy(copy, spec, size);
    }
    pthread_mutex_lock(&lock);
    char *old = chosen_spec;
    chosen_spec = copy;
    ga_libc.free(old);
    retry_failed();
    pthread_mutex_unlock(&lock);
    return GA_OK;
}

ga_heap *ga_kernel_serving(int device)
{
    slot *it = slot_of(device);
    if (!it) {
        return NULL;
    }
    pthread_mutex_lock(&lock);
    ga_heap *heap = it->state == OPEN ? it->heap : NULL;
    pthread_mutex_unlock(&lock);
    return heap;
}

ga_status ga_kernel_close(int device)
{
    slot *it = slot_of(device);
    ga_status status = GA_OK;
    if (!it) {
        return no_slot(device);
    }
    pthread_mutex_lock(&lock);
    if (it->state == OPEN) {
        status = ga_heap_close(it->heap);
        ga_device_forget(device);
    }
    *it = (slot){0};
    /* NE1: release. Pairs with NE2. */
    __atomic_add_fetch(&epoch, 1, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&lock);
    return status;
}
