/* SPDX-License-Identifier: MIT
 *
 *   driver --cuMemHostAlloc--> live <--cuMemHostAlloc, cuMemFreeHost--> kept --> driver
 *
 * STRUCTURE  live blocks by address; what is kept, a list for each step of sizes, under one lock. A
 *            block is as large as its step: every fitting request finds every kept one.
 * INVARIANT  what is kept is used by nobody: all devices were waited for
 * ORDER      the lock's
 * PROGRESS   blocks while another thread is in here; the driver is called without the lock
 */
#include "pinned.h"

#include "../../liballoc/arena/vmm_steps.h"
#include "../../liballoc/platform/cuda_driver.h"
#include "../../liballoc/platform/libc.h"
#include "captures.h"
#include "contexts.h"
#include "entry.h"
#include "lookup.h"
#include "next.h"
#include "served.h"

#include <pthread.h>

enum {
    PAGE = 4096,
    SHIFT = 3, /* eight steps to each doubling: an eighth of a block may be unused */
    STEPS = 320
};

static const size_t MOST = (size_t)1 << 40; /* of one block that is kept */

typedef struct kept {
    CUdeviceptr start;
    unsigned flags; /* of cuMemHostAlloc() */
    int device;     /* whose context it is pinned in */
    struct kept *following;
} kept;

static ga_cuda_blocks live = GA_CUDA_BLOCKS_INIT; /* their `generation` is their flags */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static kept *lists[STEPS];
static uint64_t kept_bytes; /* and what is on its way to be kept */

void ga_cuda_pinned_lock(void)
{
    pthread_mutex_lock(&lock);
    ga_cuda_blocks_lock(&live);
}

void ga_cuda_pinned_unlock(void)
{
    ga_cuda_blocks_unlock(&live);
    pthread_mutex_unlock(&lock);
}

/* It is the parent's memory: here it is no longer pinned, nor known to a driver. */
void ga_cuda_pinned_child(void)
{
    ga_cuda_pinned_unlock();
    ga_cuda_block gone;
    while (ga_cuda_blocks_take_first(&live, &gone)) {
    }
    for (int i = 0; i < STEPS; i++) {
        while (lists[i]) {
            kept *k = lists[i];
            lists[i] = k->following;
            ga_libc.free(k);
        }
    }
    kept_bytes = 0;
}

bool ga_cuda_pinned_find(CUdeviceptr address, ga_cuda_block *out)
{
    return ga_cuda_blocks_find(&live, address, out);
}

/* ---- sizes ------------------------------------------------------------------------------- */

static uint32_t step_of(size_t size)
{
    return ga_vmm_step((size + PAGE - 1) / PAGE, SHIFT);
}

static size_t step_bytes(uint32_t step)
{
    return (size_t)ga_vmm_step_size(step, SHIFT) * PAGE;
}

/* ---- what is kept ------------------------------------------------------------------------ */

static bool reserve(size_t bytes)
{
    uint64_t most = ga_cuda_pinned_limit();
    pthread_mutex_lock(&lock);
    bool fits = bytes <= most && kept_bytes <= most - bytes;
    kept_bytes += fits ? bytes : 0;
    pthread_mutex_unlock(&lock);
    return fits;
}

static void unreserve(size_t bytes)
{
    pthread_mutex_lock(&lock);
    kept_bytes -= bytes;
    pthread_mutex_unlock(&lock);
}

/* Reserved; nobody uses it. */
static void keep(kept *made, uint32_t step)
{
    pthread_mutex_lock(&lock);
    made->following = lists[step];
    lists[step] = made;
    pthread_mutex_unlock(&lock);
}

/* One of that step, flags and device; with `any`, of that device (-1: of any), whatever flags. */
static kept *take(uint32_t step, unsigned flags, int device, bool any)
{
    pthread_mutex_lock(&lock);
    kept **at = &lists[step];
    while (*at &&
           ((!any && (*at)->flags != flags) || ((*at)->device != device && !(any && device < 0)))) {
        at = &(*at)->following;
    }
    kept *found = *at;
    if (found) {
        *at = found->following;
        kept_bytes -= step_bytes(step);
    }
    pthread_mutex_unlock(&lock);
    return found;
}

static bool is_kept(CUdeviceptr start)
{
    bool found = false;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < STEPS && !found && kept_bytes; i++) {
        for (const kept *k = lists[i]; k && !found; k = k->following) {
            found = k->start == start;
        }
    }
    pthread_mutex_unlock(&lock);
    return found;
}

typedef CUresult free_fn(void *block);

static free_fn *next_free(void)
{
    return (free_fn *)(uintptr_t)ga_cuda_next_find(GA_HOOK_cuMemFreeHost);
}

/* What the driver would not have is kept on, and counted. */
static void keep_on(kept *list, uint32_t step)
{
    while (list) {
        kept *k = list;
        list = k->following;
        pthread_mutex_lock(&lock);
        kept_bytes += step_bytes(step);
        pthread_mutex_unlock(&lock);
        keep(k, step);
    }
}

/* -1: of all devices. False: nothing went. */
static bool trim(int device)
{
    bool trimmed = false;
    free_fn *next = next_free();
    for (uint32_t step = 0; next && step < STEPS; step++) {
        kept *refused = NULL;
        for (kept *k; (k = take(step, 0, device, true)) != NULL;) {
            if (next((void *)(uintptr_t)k->start) == CUDA_SUCCESS) {
                ga_libc.free(k);
                trimmed = true;
            } else {
                k->following = refused;
                refused = k;
            }
        }
        keep_on(refused, step);
    }
    return trimmed;
}

bool ga_cuda_pinned_trim(void)
{
    /* relaxed: a hint */
    bool trimmed = __atomic_load_n(&kept_bytes, __ATOMIC_RELAXED) && ga_cuda_captures_hold();
    if (trimmed) {
        trimmed = trim(-1);
        ga_cuda_captures_let_go();
    }
    return trimmed;
}

/* The driver frees with the context what it would not free before. */
void ga_cuda_pinned_reset(int device)
{
    ga_cuda_block gone;
    if (ga_cuda_pinned_limit()) {
        trim(device);
        for (uint32_t step = 0; step < STEPS; step++) {
            for (kept *k; (k = take(step, 0, device, true)) != NULL;) {
                ga_libc.free(k);
            }
        }
        while (ga_cuda_blocks_take_any(&live, device, &gone)) {
        }
    }
}

/* ---- getting blocks ---------------------------------------------------------------------- */

/* A call as it came. */
typedef struct call {
    ga_cuda_hook_index row;
    void **out;
    unsigned flags;
} call;

static CUresult ask_driver(const call *c, size_t size)
{
    ga_cuda_any *next = ga_cuda_next_find(c->row);
    return next ? next((ga_cuda_word)c->out, size, c->flags, 0, 0, 0) : ga_cuda_next_missing();
}

/* Where the driver has none, it gets back what is kept. */
static CUresult ask_twice(const call *c, size_t size)
{
    CUresult result = ask_driver(c, size);
    return result == CUDA_ERROR_OUT_OF_MEMORY && ga_cuda_pinned_trim() ? ask_driver(c, size)
                                                                       : result;
}

/* Without memory for the note it is the driver's alone. */
static void note(const call *c, size_t size, int device)
{
    ga_cuda_block block = {.start = (CUdeviceptr)(uintptr_t)*c->out,
                           .size = size,
                           .device = device,
                           .generation = c->flags};
    ga_cuda_blocks_put(&live, &block);
}

static CUresult get(const call *c, size_t size, int device)
{
    kept *k = take(step_of(size), c->flags, device, false);
    if (k) {
        *c->out = (void *)(uintptr_t)k->start;
        ga_libc.free(k);
        note(c, size, device);
        return CUDA_SUCCESS;
    }
    CUresult result = ask_twice(c, step_bytes(step_of(size)));
    if (result == CUDA_SUCCESS) {
        note(c, size, device);
    }
    return result == CUDA_ERROR_OUT_OF_MEMORY ? ask_driver(c, size) : result;
}

static CUresult alloc(const call *c, size_t size)
{
    const ga_cuda_asks *asks = ga_cuda_pinned_limit() ? ga_cuda_next_asks() : NULL;
    CUcontext context;
    int device = -1;
    ga_cuda_count(c->row);
    if (asks && c->out && size && size <= MOST && !ga_cuda_capturing()) {
        device = ga_cuda_context_device(asks, &context);
    }
    return device < 0 ? ask_driver(c, size) : get(c, size, device);
}

typedef CUresult host_alloc_fn(void **out, size_t size, unsigned flags);
typedef CUresult alloc_host_fn(void **out, size_t size);

GA_CUDA_ENTRY(host_alloc_fn, cuMemHostAlloc);
GA_CUDA_ENTRY(alloc_host_fn, cuMemAllocHost_v2);

CUresult cuMemHostAlloc(void **out, size_t size, unsigned flags)
{
    call c = {GA_HOOK_cuMemHostAlloc, out, flags};
    return alloc(&c, size);
}

CUresult cuMemAllocHost_v2(void **out, size_t size)
{
    call c = {GA_HOOK_cuMemAllocHost_v2, out, 0};
    return alloc(&c, size);
}

/* ---- giving them back -------------------------------------------------------------------- */

/* False: a capture forbids it, or it fails. */
static bool wait_for_all(void)
{
    bool waited = ga_cuda_captures_hold();
    if (waited) {
        waited = ga_cuda_wait_for_all();
        ga_cuda_captures_let_go();
    }
    return waited;
}

/* False: it goes to the driver. Pinned memory is every device's: all are waited for. */
static bool keep_block(const ga_cuda_block *block)
{
    size_t bytes = step_bytes(step_of(block->size));
    if (!reserve(bytes)) {
        return false;
    }
    kept *made = ga_libc.malloc(sizeof *made);
    if (!made || !wait_for_all()) {
        ga_libc.free(made);
        unreserve(bytes);
        return false;
    }
    *made = (kept){block->start, block->generation, block->device, NULL};
    keep(made, step_of(block->size));
    return true;
}

GA_CUDA_ENTRY(free_fn, cuMemFreeHost);

CUresult cuMemFreeHost(void *pointer)
{
    free_fn *next = next_free();
    ga_cuda_block block;
    ga_cuda_count(GA_HOOK_cuMemFreeHost);
    bool known = ga_cuda_blocks_take(&live, (CUdeviceptr)(uintptr_t)pointer, &block);
    if (known && keep_block(&block)) {
        ga_cuda_blocks_gone(&live, &block);
        return CUDA_SUCCESS;
    }
    if (!known && pointer && is_kept((CUdeviceptr)(uintptr_t)pointer)) {
        return CUDA_ERROR_INVALID_VALUE; /* freed twice */
    }
    CUresult result = next ? next(pointer) : ga_cuda_next_missing();
    if (known && result != CUDA_SUCCESS) {
        ga_cuda_blocks_put(&live, &block);
    } else if (known) {
        ga_cuda_blocks_gone(&live, &block);
    }
    return result;
}
