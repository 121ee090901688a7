/* SPDX-License-Identifier: MIT
 *
 * Publishes the heap to this module's kernels, before the first launch in each context.
 *
 *   launch -> ga_kernel_before_launch   fast: the thread's last context and epoch
 *             publish_slow              slow: `served`, under the lock
 *             publish_locked            slowest: opens the heap, writes the module's variable
 *
 * STRUCTURE  the ids of the contexts that have the heap, and for each thread the last context that
 *            it launched in
 * INVARIANT  an id is in `served` only while the heap published there is open: the driver does not
 *            reuse the id of a destroyed context, and closing a heap changes the epoch
 * ORDER      the lock's
 * PROGRESS   a thread that launches in the same context as before takes no lock. Under the lock
 *            nothing is looked up by the dynamic linker, whose own lock a thread holds that runs
 *            constructors, which may launch
 */
#include "cudart.h"
#include "linked.h"

#include <gpualloc/backend.h>
#include <gpualloc/kernel.h>

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

enum {
    CONTEXTS = 64 /* beyond these, contexts replace each other and are published again */
};

typedef int get_context_id(void *context, unsigned long long *out);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned long long served[CONTEXTS]; /* 0: none */
static unsigned next;
static uint64_t served_epoch;
static get_context_id *context_id; /* NULL: not looked up yet; relaxed: all threads find the same */

static _Thread_local struct {
    unsigned long long context;
    uint64_t epoch;
    int device; /* the device + 1; 0: none */
} last;

/* ---- fork ---------------------------------------------------------------------------------- */

static void fork_child(void)
{
    pthread_mutex_init(&lock, NULL); /* the thread that held it exists in the parent only */
    served_epoch = 0;
}

/* In a constructor, because a fork in progress does not run handlers that are registered during
 * it. */
__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, fork_child);
}

/* In the place of the driver's cuCtxGetId(), if it has none. */
static int no_context_id(void *context, unsigned long long *out)
{
    (void)context;
    *out = 0;
    return -1;
}

static get_context_id *look_up_context_id(void)
{
    get_context_id *found = no_context_id;
    void *function = NULL;
    int result;
    cudaError_t error = cudaGetDriverEntryPointByVersion("cuCtxGetId", &function, 12000,
                                                         cudaEnableDefault, &result);
    if (error == cudaSuccess && function) {
        memcpy(&found, &function, sizeof found);
    }
    __atomic_store_n(&context_id, found, __ATOMIC_RELAXED); /* relaxed: see there */
    return found;
}

static get_context_id *find_context_id(void)
{
    get_context_id *found = __atomic_load_n(&context_id, __ATOMIC_RELAXED); /* relaxed: see there */
    return found ? found : look_up_context_id();
}

/* ---- which context --------------------------------------------------------------------------- */

/* The current context's id, unique in this process; 0: no context. Without the driver's
 * cuCtxGetId(), the device + 1. */
static unsigned long long current_context(void)
{
    unsigned long long id = 0;
    get_context_id *get = find_context_id();
    if (get != no_context_id) {
        return get(NULL, &id) == 0 ? id : 0;
    }
    int device;
    return cudaGetDevice(&device) == cudaSuccess ? (unsigned long long)device + 1 : 0;
}

static bool is_served(unsigned long long context)
{
    for (unsigned i = 0; i < CONTEXTS; i++) {
        if (served[i] == context) {
            return true;
        }
    }
    return false;
}

static void forget_served(uint64_t epoch)
{
    for (unsigned i = 0; i < CONTEXTS; i++) {
        served[i] = 0;
    }
    served_epoch = epoch;
}

static void remember(unsigned long long context)
{
    if (!is_served(context)) {
        served[next++ % CONTEXTS] = context;
    }
}

/* ---- publishing ----------------------------------------------------------------------------- */

/* The address of the module's variable in the current context. GA_OK and NULL: the module has none.
 * GA_ERR_DEVICE: the runtime cannot use the device, which the program finds out itself. */
static ga_status find_variable(void **out)
{
    if (ga_kernel_linked_address(out) == cudaSuccess) {
        return GA_OK;
    }
    *out = NULL;
    return cudaFree(NULL) == cudaSuccess ? GA_OK : GA_ERR_DEVICE;
}

static ga_status publish_quietly(int device)
{
    void *variable;
    ga_status status = find_variable(&variable);
    return status == GA_OK ? ga_kernel_publish(device, variable)
                           : ga_fail(status, "the CUDA runtime cannot use device %d", device);
}

/* Works also while a stream is being captured, because it uses none of the program's streams. The
 * program must not find errors of these calls with cudaGetLastError(), so they are cleared. */
static ga_status publish(void)
{
    int device;
    int mode = cudaStreamCaptureModeRelaxed;
    bool was_clean = cudaPeekAtLastError() == cudaSuccess;
    ga_status status = GA_ERR_DEVICE;
    if (cudaGetDevice(&device) == cudaSuccess) {
        last.device = device + 1;
        bool exchanged = cudaThreadExchangeStreamCaptureMode(&mode) == cudaSuccess;
        status = publish_quietly(device);
        if (exchanged) {
            cudaThreadExchangeStreamCaptureMode(&mode);
        }
    }
    if (was_clean) {
        cudaGetLastError();
    }
    return status;
}

/* Failures are remembered, too, so that launches do not retry. */
static ga_status publish_locked(void)
{
    uint64_t epoch = ga_kernel_epoch();
    ga_status status = publish();
    if (served_epoch != epoch) {
        forget_served(epoch);
    }
    last.context = current_context();
    last.epoch = epoch;
    if (last.context) {
        remember(last.context);
    }
    return status;
}

static void prepare(void)
{
    find_context_id();
    ga_kernel_prepare();
}

ga_status ga_kernel_init(void)
{
    prepare();
    pthread_mutex_lock(&lock);
    ga_status status = publish_locked();
    pthread_mutex_unlock(&lock);
    return status;
}

static void publish_slow(unsigned long long context, uint64_t epoch)
{
    prepare();
    pthread_mutex_lock(&lock);
    if (context && served_epoch == epoch && is_served(context)) {
        int device;
        last.context = context;
        last.epoch = epoch;
        last.device = cudaGetDevice(&device) == cudaSuccess ? device + 1 : 0;
    } else {
        publish_locked();
    }
    pthread_mutex_unlock(&lock);
}

void ga_kernel_before_launch(void)
{
    unsigned long long context = current_context();
    uint64_t epoch = ga_kernel_epoch();
    if (context && context == last.context && epoch == last.epoch) {
        return;
    }
    publish_slow(context, epoch);
}

void ga_kernel_before_reset(void)
{
    int device;
    if (cudaGetDevice(&device) != cudaSuccess) {
        device = last.device - 1; /* after a kernel that trapped, cudaGetDevice() may fail */
    }
    if (device >= 0) {
        ga_kernel_close(device);
    }
}
