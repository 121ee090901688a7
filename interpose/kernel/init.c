/* SPDX-License-Identifier: MIT
 *
 * When this module's kernels get their heap: before the first launch in each context.
 *
 * STRUCTURE  the contexts that have it, as the driver numbers them, and for each thread the last one
 *            that it launched in
 * INVARIANT  a number stands in `served` only while what was published under it is open: a context
 *            that was destroyed has a number that does not come back, and closing a heap changes the
 *            epoch
 * ORDER      the lock's
 * PROGRESS   a thread that launches in the same context as before takes no lock
 */
#include "cudart.h"
#include "linked.h"

#include <gpualloc/backend.h>
#include <gpualloc/kernel.h>

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

enum {
    CONTEXTS = 64 /* more than that are published again and again */
};

typedef int get_context_id(void *context, unsigned long long *out);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned long long served[CONTEXTS]; /* 0: none */
static unsigned next;
static uint64_t served_epoch;
static get_context_id *context_id; /* the driver's cuCtxGetId, set once */

static _Thread_local struct {
    unsigned long long context;
    uint64_t epoch;
    int device; /* + 1; 0: none */
} last;

/* ---- fork --------------------------------------------------------------------------------------- */

static void fork_child(void)
{
    pthread_mutex_init(&lock, NULL); /* who held it is not here */
    served_epoch = 0;
}

/* From the start, since a fork that has begun does not run what is registered meanwhile. */
__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, fork_child);
}

static void find_context_id(void)
{
    void *function = NULL;
    int result;
    cudaError_t error = cudaGetDriverEntryPointByVersion("cuCtxGetId", &function, 12000,
                                                         cudaEnableDefault, &result);
    if (error == cudaSuccess) {
        memcpy(&context_id, &function, sizeof context_id);
    }
}

static void start_once(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_context_id);
}

/* ---- which context -------------------------------------------------------------------------------- */

/* The number of the current context, which no other ever has in this process; 0 where there is none.
 * Without the driver's numbers, the device's own. */
static unsigned long long current_context(void)
{
    unsigned long long id = 0;
    if (context_id) {
        return context_id(NULL, &id) == 0 ? id : 0;
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

/* ---- publishing ------------------------------------------------------------------------------------ */

/* Where our variable stands in the current context: GA_OK and NULL for a module that lacks it,
 * GA_ERR_DEVICE where the runtime cannot use the device at all, as the program will see for itself. */
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

/* Also while a stream of this or another thread is being captured into a graph: we use none of the
 * program's streams. And the errors that we meet are not the program's: it must not find them with
 * cudaGetLastError(). */
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

/* Outcomes are remembered, good or bad: what failed once is not tried at every launch. */
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

ga_status ga_kernel_init(void)
{
    start_once();
    pthread_mutex_lock(&lock);
    ga_status status = publish_locked();
    pthread_mutex_unlock(&lock);
    return status;
}

static void look_again(unsigned long long context, uint64_t epoch)
{
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
    start_once();
    unsigned long long context = current_context();
    uint64_t epoch = ga_kernel_epoch();
    if (context && context == last.context && epoch == last.epoch) {
        return;
    }
    look_again(context, epoch);
}

void ga_kernel_before_reset(void)
{
    int device;
    if (cudaGetDevice(&device) != cudaSuccess) {
        device = last.device - 1; /* after a kernel that trapped the runtime may answer only that */
    }
    if (device >= 0) {
        ga_kernel_close(device);
    }
}
