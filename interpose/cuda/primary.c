/* SPDX-License-Identifier: MIT
 *
 * The program's references to primary contexts. The heap holds a reference of its own, so the
 * context, with all its memory, would outlive the program's last reference. So the heap is closed
 * before the last reference is released.
 *
 * STRUCTURE  for each device the number of successful retains minus successful releases
 * INVARIANT  a device whose count may be wrong keeps its heap: memory was requested there without a
 *            known reference, or there were more releases than retains. Such references bypassed
 *            the preload
 * ORDER      one lock, held from the decision that a reference is the last until the driver has
 *            released it, so that a new reference does not find its heap closed
 * PROGRESS   a thread waits while another thread retains or releases a context
 */
#include "primary.h"

#include "../../liballoc/platform/forks.h"
#include "contexts.h"
#include "entry.h"
#include "ipc.h"
#include "kernel_contexts.h"
#include "lookup.h"
#include "next.h"
#include "pinned.h"
#include "served.h"

#include <pthread.h>

typedef CUresult retain_fn(CUcontext *context, CUdevice device);
typedef CUresult release_fn(CUdevice device);

typedef struct primary {
    uint64_t references;
    bool has_unknown; /* references exist that bypassed the preload */
} primary;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static primary primaries[GA_CUDA_DEVICES];

static void fork_child(void)
{
    pthread_mutex_init(&lock, NULL); /* the thread that held it is not in the child */
}

__attribute__((constructor)) static void watch_forks(void)
{
    static bool watched;
    ga_forks_watch(&watched, NULL, NULL, fork_child);
}

static primary *primary_of(CUdevice device)
{
    return device >= 0 && device < GA_CUDA_DEVICES ? &primaries[device] : NULL;
}

void ga_cuda_primary_used(int device)
{
    pthread_mutex_lock(&lock);
    primary *p = primary_of(device);
    if (p && !p->references) {
        p->has_unknown = true;
    }
    pthread_mutex_unlock(&lock);
}

void ga_cuda_primary_close(CUdevice device)
{
    ga_cuda_ipc_reset(device);
    ga_cuda_pinned_reset(device);
    ga_cuda_kernel_close(device);
    ga_cuda_served_reset(device);
}

void ga_cuda_primary_closed(CUdevice device, bool is_gone)
{
    ga_cuda_kernel_closed(device, is_gone);
}

GA_CUDA_ENTRY(retain_fn, cuDevicePrimaryCtxRetain);

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    retain_fn *next = GA_CUDA_NEXT(retain_fn, cuDevicePrimaryCtxRetain);
    ga_cuda_count(GA_HOOK_cuDevicePrimaryCtxRetain);
    if (!next) {
        return ga_cuda_next_missing();
    }
    pthread_mutex_lock(&lock);
    CUresult result = next(context, device);
    if (result == CUDA_SUCCESS && primary_of(device)) {
        primary_of(device)->references++;
    }
    pthread_mutex_unlock(&lock);
    if (result == CUDA_SUCCESS) {
        ga_cuda_kernel_retained(device);
    }
    return result;
}

/* With the lock held. */
static void drop_reference(primary *p)
{
    if (p->references) {
        p->references--;
    } else {
        p->has_unknown = true;
    }
}

/* If the driver refuses the last release, the heap is closed nevertheless; the next request opens
 * it again. */
static CUresult release(ga_cuda_hook_index row, CUdevice device)
{
    release_fn *next = (release_fn *)(uintptr_t)ga_cuda_next_find(row);
    ga_cuda_count(row);
    if (!next) {
        return ga_cuda_next_missing();
    }
    pthread_mutex_lock(&lock);
    primary *p = primary_of(device);
    bool is_last = p && p->references == 1 && !p->has_unknown;
    if (is_last) {
        ga_cuda_primary_close(device);
    }
    CUresult result = next(device);
    if (is_last) {
        ga_cuda_primary_closed(device, result == CUDA_SUCCESS);
    }
    if (p && result == CUDA_SUCCESS) {
        drop_reference(p);
    }
    pthread_mutex_unlock(&lock);
    ga_cuda_contexts_changed();
    return result;
}

#define DEFINE_RELEASE(symbol)                                                                     \
    GA_CUDA_ENTRY(release_fn, symbol);                                                             \
    CUresult symbol(CUdevice device)                                                               \
    {                                                                                              \
        return release(GA_HOOK_##symbol, device);                                                  \
    }

DEFINE_RELEASE(cuDevicePrimaryCtxRelease)
DEFINE_RELEASE(cuDevicePrimaryCtxRelease_v2)
