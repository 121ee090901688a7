/* SPDX-License-Identifier: MIT
 *
 * Each thread caches the last context that it looked up. The thread that destroys a context changes
 * `epoch`, a hint to look up again. It need be no more than a hint: a program in which another
 * thread uses a destroyed context is wrong without the preload, too.
 */
#include "contexts.h"

#include "../../liballoc/platform/cuda_driver.h"
#include "../../liballoc/platform/forks.h"
#include "../../liballoc/platform/libc.h"

#include <pthread.h>

static unsigned epoch = 1;

static _Thread_local struct {
    CUcontext context;
    unsigned epoch;
    int device; /* whose primary context it is; -1: no device's */
} cached;

void ga_cuda_contexts_changed(void)
{
    __atomic_fetch_add(&epoch, 1, __ATOMIC_RELAXED); /* relaxed: a hint, see the file head */
}

/* Does not create a primary context: one that is not active cannot be current. */
static int lookup_device(const ga_cuda_api *api, CUcontext context)
{
    CUdevice device = -1;
    CUcontext primary = NULL;
    unsigned flags;
    int active = 0;
    if (api->cuCtxGetDevice(&device) != CUDA_SUCCESS ||
        api->cuDevicePrimaryCtxGetState(device, &flags, &active) != CUDA_SUCCESS || !active ||
        api->cuDevicePrimaryCtxRetain(&primary, device) != CUDA_SUCCESS) {
        return -1;
    }
    api->cuDevicePrimaryCtxRelease_v2(device);
    return primary == context && device < GA_CUDA_DEVICES ? device : -1;
}

bool ga_cuda_wait_for(int device)
{
    ga_cuda_scope scope;
    if (ga_cuda_enter(&scope, device) != GA_OK) {
        return false;
    }
    ga_status status =
        ga_cuda_check(scope.driver, scope.driver->cuCtxSynchronize(), "cuCtxSynchronize");
    ga_cuda_leave(&scope);
    return status == GA_OK;
}

int ga_cuda_devices(void)
{
    const ga_cuda_api *api = ga_cuda_next_api();
    int count = 0;
    if (!api || api->cuDeviceGetCount(&count) != CUDA_SUCCESS) {
        return 0;
    }
    return count < GA_CUDA_DEVICES ? count : GA_CUDA_DEVICES;
}

bool ga_cuda_is_active(int device)
{
    const ga_cuda_api *api = ga_cuda_next_api();
    unsigned flags;
    int active = 0;
    return api && api->cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS &&
           active;
}

/* Waiting would activate an inactive primary context. */
bool ga_cuda_wait_if_active(int device)
{
    return !ga_cuda_is_active(device) || ga_cuda_wait_for(device);
}

bool ga_cuda_wait_for_all(void)
{
    bool waited = ga_cuda_next_api() != NULL;
    for (int i = 0; waited && i < ga_cuda_devices(); i++) {
        waited = ga_cuda_wait_if_active(i);
    }
    return waited;
}

int ga_cuda_context_device(const ga_cuda_api *api, CUcontext *context)
{
    if (api->cuCtxGetCurrent(context) != CUDA_SUCCESS || !*context) {
        return -1;
    }
    unsigned now =
        __atomic_load_n(&epoch, __ATOMIC_RELAXED); /* relaxed: a hint, see the file head */
    if (__builtin_expect(cached.context != *context || cached.epoch != now, 0)) {
        cached.device = lookup_device(api, *context);
        cached.context = *context;
        cached.epoch = now;
    }
    return cached.device;
}

CUcontext ga_cuda_primary(int device)
{
    const ga_cuda_api *api = ga_cuda_next_api();
    CUcontext primary = NULL;
    if (api && api->cuDevicePrimaryCtxRetain(&primary, device) == CUDA_SUCCESS) {
        api->cuDevicePrimaryCtxRelease_v2(device);
    }
    return primary;
}

/* ---- references ------------------------------------------------------------------------------ */

/* One of cuCtxAttach(). */
struct ga_cuda_reference {
    CUcontext context;
    ga_cuda_reference *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* no other is taken under it */
static ga_cuda_reference *references;

static void fork_child(void)
{
    pthread_mutex_init(&lock, NULL); /* the thread that held it is not in the child */
    references = NULL;
}

__attribute__((constructor)) static void watch_forks(void)
{
    static bool watched;
    ga_forks_watch(&watched, NULL, NULL, fork_child);
}

ga_cuda_reference *ga_cuda_reference_create(void)
{
    return ga_libc.calloc(1, sizeof(ga_cuda_reference));
}

void ga_cuda_reference_add(ga_cuda_reference *made, CUcontext context)
{
    pthread_mutex_lock(&lock);
    made->context = context;
    made->next = references;
    references = made;
    pthread_mutex_unlock(&lock);
}

ga_cuda_reference *ga_cuda_reference_remove(CUcontext context)
{
    pthread_mutex_lock(&lock);
    ga_cuda_reference **at = &references;
    while (*at && (*at)->context != context) {
        at = &(*at)->next;
    }
    ga_cuda_reference *found = *at;
    if (found) {
        *at = found->next;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

void ga_cuda_references_end(CUcontext context)
{
    for (ga_cuda_reference *r; (r = ga_cuda_reference_remove(context));) {
        ga_libc.free(r);
    }
}
