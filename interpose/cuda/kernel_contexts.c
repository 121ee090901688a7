/* SPDX-License-Identifier: MIT
 *
 * Our module in each context, and the variables of the program's code that lead to it.
 *
 * The program's code has stubs, which call the functions that the variable GA_CUBIN_VARIABLE names.
 * The driver gives each module such a variable, and each library one in every context. All those in
 * a context get the addresses of our functions there, as soon as a kernel of them may run:
 *
 *   a module or library is loaded     ga_cuda_kernel_loaded: its variable in the current context
 *   a library's kernel may run        ga_cuda_kernel_launching: in another context, or in one that
 *                                     came later
 *
 * A variable begins with a function that gives NULL. Other contexts wait for a launch,
 * because the driver loads a library there to find its variable, and may wait for kernels that run
 * there before.
 *
 * STRUCTURE  kernel_list.c, the contexts that the preload has seen; kernel_codes.c, the served code
 *
 *   CLOSED --code is loaded, or a launch--> OPEN --the primary context goes--> CLOSED
 *
 * INVARIANT  In an OPEN context our module is loaded, and the variables of all code there with a
 *            number up to `filled` have its functions. In CLOSED ones they have the one for NULL.
 *            The heap of an OPEN context's device is open.
 * ORDER      A lock for each device guards its record in kernel_place.c, and the states of its
 *            contexts; a thread that destroys a context or resets the device holds it until the
 *            driver has done so. primary.c takes its lock before it.
 * PROGRESS   A thread waits while another one opens, fills, closes or destroys on the same device.
 *            The driver's calls under that lock may wait for kernels of the program there.
 */
#include "kernel_contexts.h"

#include "../../liballoc/platform/cuda_driver.h"
#include "../../liballoc/platform/forks.h"
#include "../../liballoc/platform/libc.h"
#include "../../liballoc/platform/local_socket.h"
#include "../../liballoc/platform/log.h"
#include "contexts.h"
#include "kernel_code.h"
#include "kernel_graphs.h"
#include "kernel_list.h"
#include "kernel_place.h"
#include "next.h"
#include "primary.h"

#include <gpualloc/backend.h>

#include <pthread.h>
#include <stdio.h>
#include <string.h>

typedef struct device {
    pthread_mutex_t lock;
    bool has_opened; /* its heap, since the lock was taken */
} device;

static device devices[GA_CUDA_DEVICES];

/* Whether there was ever a record. Hooks of programs without in-kernel malloc take no lock.
 * Relaxed: a program does not unload code, or end a context, before the call that made it has
 * returned. */
static bool is_used;

bool ga_cuda_kernel_has_served(void)
{
    return __atomic_load_n(&is_used, __ATOMIC_RELAXED); /* relaxed: see there */
}

static void set_used(void)
{
    __atomic_store_n(&is_used, true, __ATOMIC_RELAXED); /* relaxed: see there */
}

static void init_locks(void)
{
    for (int i = 0; i < GA_CUDA_DEVICES; i++) {
        pthread_mutex_init(&devices[i].lock, NULL);
    }
}

/* The driver does not outlive a fork, and its handles mean nothing in the child. */
static void fork_child(void)
{
    init_locks(); /* the threads that held them are not in the child */
    ga_cuda_listed_child();
    ga_cuda_codes_child();
    ga_cuda_graphs_child();
    ga_cuda_place_child();
}

/* A constructor, because a fork that has begun does not run handlers that are registered during
 * it. */
__attribute__((constructor)) static void begin(void)
{
    static bool watched;
    init_locks();
    ga_forks_watch(&watched, NULL, NULL, fork_child);
}

/* ---- the lock of a device -------------------------------------------------------------------- */

/* Returns the capture mode for unlock(). */
static int lock(int number)
{
    ga_cuda_instance_prepare();
    pthread_mutex_lock(&devices[number].lock);
    return ga_cuda_instance_relax();
}

/* The lock of primary.c comes before ours. */
static void unlock(int number, int mode)
{
    bool has_opened = devices[number].has_opened;
    devices[number].has_opened = false;
    ga_cuda_instance_restore(mode);
    pthread_mutex_unlock(&devices[number].lock);
    if (has_opened) {
        ga_cuda_primary_used(number);
    }
}

/* With the lock of its device held. */
static void remove_context(ga_cuda_listed *gone)
{
    ga_cuda_codes_context_gone(gone->at.context);
    ga_cuda_listed_remove(gone);
}

/* ---- open and closed contexts: the lock of their device is held ------------------------------ */

static void report(const ga_cuda_listed *c, const char *until)
{
    ga_log(GA_LOG_ERROR, "kernels in a context of device %d get NULL from malloc%s: %s",
           c->at.device, until, ga_error_text());
    ga_cuda_kernel_stop_if_strict();
}

/* There was no memory for code behind `number`, in a try that began at `began`. */
static void delay(ga_cuda_listed *c, uint64_t number, int64_t began)
{
    if (!ga_cuda_listed_delay(c, number, began)) {
        report(c, " until there is memory");
    }
}

static void report_served(const ga_cuda_listed *c)
{
    ga_log(GA_LOG_WARN, "kernels in a context of device %d are served: there is memory again",
           c->at.device);
}

/* Code for which there is no memory waits for a later launch. Any other error is final. */
static void fill(ga_cuda_listed *c)
{
    CUcontext handle = c->at.context;
    int64_t began = ga_local_now();
    uint64_t filled;
    uint64_t last = ga_cuda_listed_wants(c, &filled);
    uint64_t waiting = 0; /* the first code that waits */
    char reason[256];
    for (const ga_cuda_code *k = ga_cuda_codes_next(NULL, filled, handle); k;
         k = ga_cuda_codes_next(k, filled, handle)) {
        ga_status status = ga_cuda_instance_write(&c->instance, k, true);
        if (status == GA_ERR_MEMORY && !waiting) {
            waiting = k->number;
            snprintf(reason, sizeof reason, "%s", ga_error_text());
        } else if (status != GA_OK && status != GA_ERR_MEMORY) {
            report(c, "");
        }
        last = last < k->number ? k->number : last; /* it may have come meanwhile */
    }
    if (waiting) {
        ga_fail(GA_ERR_MEMORY, "%s", reason);
        delay(c, waiting - 1, began);
    } else if (ga_cuda_listed_filled(c, last)) {
        report_served(c);
    }
}

static ga_status open_context(ga_cuda_listed *c)
{
    ga_image module;
    if (c->is_open) {
        return GA_OK;
    }
    bool was_open = ga_cuda_place_is_open(c->at.device);
    ga_status status = ga_cuda_place_open(&module, c->at.device, c->at.sm);
    if (status == GA_OK && !was_open) {
        devices[c->at.device].has_opened = true;
    }
    if (status == GA_OK) {
        status = ga_cuda_instance_load(&c->instance, c->at.context, module);
    }
    if (status == GA_OK) {
        c->is_open = true;
        fill(c);
    }
    return status;
}

/* Kernels that run may use the heap, which is about to close. Returns true if there may be some. */
static bool close_context(ga_cuda_listed *c)
{
    CUcontext handle = c->at.context;
    bool lives = c->is_open && ga_cuda_instance_lives(&c->instance);
    if (lives) {
        for (const ga_cuda_code *k = ga_cuda_codes_next(NULL, 0, handle); k;
             k = ga_cuda_codes_next(k, 0, handle)) {
            if (ga_cuda_instance_write(&c->instance, k, false) != GA_OK) {
                ga_log(GA_LOG_ERROR,
                       "kernels in a context of device %d keep a heap that closes: %s",
                       c->at.device, ga_error_text());
            }
        }
        ga_cuda_instance_unload(&c->instance, true);
    }
    c->is_open = false;
    uint64_t last = ga_cuda_codes_last(handle);
    ga_cuda_listed_emptied(c, last);
    return lives && last;
}

/* ---- code ------------------------------------------------------------------------------------ */

static unsigned sm_of(int number)
{
    const ga_cuda_api *api = ga_cuda_next_api();
    int major = 0;
    int minor = 0;
    if (api) {
        api->cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, number);
        api->cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, number);
    }
    return (unsigned)(10 * major + minor);
}

/* The context gets the code that runs there at its next launch. It is listed first, so that it does
 * not miss code that comes now. NULL: no memory. */
static ga_cuda_listed *add_context(const ga_cuda_target *target)
{
    ga_cuda_listed *c = ga_cuda_listed_add(target);
    if (c) {
        set_used();
        ga_cuda_listed_want(target->context, ga_cuda_codes_last(target->context));
    }
    return c;
}

/* The primary context of a device, if it is active. */
static void see_primary(int number)
{
    if (ga_cuda_is_active(number)) {
        ga_cuda_target target = {ga_cuda_primary(number), true, number, sm_of(number)};
        if (target.context) {
            add_context(&target);
        }
    }
}

static ga_status add_code(uint64_t *number, void *handle, CUcontext handle_of, void *copy)
{
    *number = ga_cuda_codes_add(handle, handle_of, copy);
    set_used();
    return *number ? GA_OK : ga_fail(GA_ERR_MEMORY, "no memory for the record of a module");
}

/* In the target's context, whose device's lock is held. */
static ga_status fill_loaded(uint64_t *number, const ga_cuda_code *code, void *copy,
                             const ga_cuda_target *target)
{
    ga_cuda_listed *c = ga_cuda_listed_find(target->context);
    if (!c) {
        return ga_fail(GA_ERR_DEVICE, "device %d: its context was reset meanwhile", target->device);
    }
    ga_status status = open_context(c); /* again, if the heap was closed meanwhile */
    if (status == GA_OK) {
        status = ga_cuda_instance_write(&c->instance, code, true);
    }
    if (status == GA_OK) {
        status = add_code(number, code->handle, code->context, copy);
    }
    if (status == GA_OK) {
        ga_cuda_listed_loaded(c, *number);
    }
    return status;
}

ga_status ga_cuda_kernel_loaded(void *handle, bool is_library, void *copy,
                                const ga_cuda_target *target)
{
    const ga_cuda_code code = {handle, is_library ? NULL : target->context, 0};
    uint64_t number = 0;
    ga_status status;
    if (target->context) {
        int mode = lock(target->device);
        status = fill_loaded(&number, &code, copy, target);
        unlock(target->device, mode);
    } else {
        status = add_code(&number, handle, NULL, copy);
    }
    if (status == GA_OK && is_library) {
        for (int i = 0; i < ga_cuda_devices(); i++) {
            see_primary(i);
        }
        ga_cuda_listed_want_all(number, target->context);
    }
    return status;
}

const ga_cuda_code *ga_cuda_kernel_unloading(const void *handle)
{
    return ga_cuda_kernel_has_served() ? ga_cuda_codes_leave(handle) : NULL;
}

void ga_cuda_kernel_unloaded(const ga_cuda_code *code, bool is_gone)
{
    if (!code) {
        return;
    }
    CUcontext context = code->context;
    uint64_t number = ga_cuda_codes_left(code, is_gone);
    if (number && context) {
        ga_cuda_listed_want(context, number);
    } else if (number) {
        ga_cuda_listed_want_all(number, NULL);
    }
}

/* ---- serving --------------------------------------------------------------------------------- */

static ga_status open_target(const ga_cuda_target *target)
{
    int mode = lock(target->device);
    ga_cuda_listed *c = add_context(target);
    ga_status status = c ? open_context(c) : GA_ERR_MEMORY;
    unlock(target->device, mode);
    return status;
}

ga_status ga_cuda_kernel_serve(ga_image *out, void **owned, const ga_cuda_target *target,
                               ga_image image, unsigned calls)
{
    const ga_kernel_code *code;
    ga_cubin cubin;
    *owned = NULL;
    ga_cuda_instance_prepare();
    ga_status status = ga_kernel_code_prepare(&code, target->device, target->sm);
    if (status == GA_OK) {
        status = ga_cubin_open(&cubin, image);
    }
    if (status != GA_OK) {
        return status;
    }
    ga_cubin_needs needs = calls & GA_CALLS_ALIGNED ? code->aligned : code->plain;
    needs.recursion = needs.stack + ga_cuda_instance_stack_limit(target->context);
    status = ga_cubin_serve(out, owned, &cubin, &code->cubin, &needs);
    if (status == GA_OK && target->context) {
        status = open_target(target); /* last, because there may be nothing to serve from a heap */
    }
    if (status != GA_OK) {
        ga_libc.free(*owned);
        *owned = NULL;
    }
    return status;
}

/* ---- launches -------------------------------------------------------------------------------- */

/* With the lock of its device held. A context that ended by a call without a hook is removed. */
static void settle(ga_cuda_listed *c)
{
    int64_t began = ga_local_now();
    uint64_t filled;
    if (ga_cuda_instance_is_gone(c->at.context)) {
        remove_context(c);
        return;
    }
    if (c->is_open) {
        fill(c);
        return;
    }
    ga_cuda_listed_wants(c, &filled);
    ga_status status = open_context(c);
    if (status == GA_ERR_MEMORY) {
        delay(c, filled, began);
    } else if (status != GA_OK) {
        report(c, "");
        ga_cuda_listed_failed(c);
    }
}

/* Of a device, whose lock is held. */
static void settle_due(int number)
{
    for (ga_cuda_listed *c = ga_cuda_listed_next(number, NULL); c;) {
        ga_cuda_listed *next = ga_cuda_listed_next(number, c);
        if (ga_cuda_listed_is_due(c->at.context)) {
            settle(c);
        }
        c = next;
    }
}

void ga_cuda_kernel_launching(CUcontext handle)
{
    int number = ga_cuda_listed_is_due(handle) ? ga_cuda_listed_device(handle) : -1;
    if (number < 0) {
        return;
    }
    int mode = lock(number);
    if (ga_cuda_listed_is_due(handle) && ga_cuda_listed_device(handle) == number) {
        settle(ga_cuda_listed_find(handle));
    }
    unlock(number, mode);
}

void ga_cuda_kernel_launching_any(void)
{
    for (int i = 0; i < GA_CUDA_DEVICES; i++) {
        if (ga_cuda_listed_device_is_due(i)) {
            int mode = lock(i);
            settle_due(i);
            unlock(i, mode);
        }
    }
}

/* ---- contexts that come and go --------------------------------------------------------------- */

/* One that ended by a call without a hook, or that another thread is destroying. */
static void forget(CUcontext handle)
{
    int number = ga_cuda_listed_device(handle);
    if (number < 0) {
        return;
    }
    int mode = lock(number);
    ga_cuda_listed *c = ga_cuda_listed_find(handle);
    if (c) {
        remove_context(c);
    }
    unlock(number, mode);
}

void ga_cuda_kernel_created(CUcontext handle)
{
    const ga_cuda_api *api = ga_cuda_next_api();
    CUdevice number;
    if ((!ga_cuda_kernel_wanted() && !ga_cuda_kernel_has_served()) || !api ||
        api->cuCtxGetDevice(&number) != CUDA_SUCCESS || number >= GA_CUDA_DEVICES) {
        return;
    }
    ga_cuda_target target = {handle, false, number, sm_of(number)};
    forget(handle);
    add_context(&target);
}

void ga_cuda_kernel_retained(int number)
{
    if (ga_cuda_kernel_has_served() && number >= 0 && number < GA_CUDA_DEVICES) {
        see_primary(number);
    }
}

/* Of a primary context, the driver refuses the call. */
int ga_cuda_kernel_destroying(CUcontext handle)
{
    int number = ga_cuda_kernel_has_served() ? ga_cuda_listed_device(handle) : -1;
    if (number >= 0) {
        pthread_mutex_lock(&devices[number].lock);
    }
    return number;
}

void ga_cuda_kernel_destroyed(int number, CUcontext handle, bool is_gone)
{
    if (number < 0) {
        return;
    }
    ga_cuda_listed *c = is_gone ? ga_cuda_listed_find(handle) : NULL;
    if (c && !c->at.is_primary) {
        remove_context(c);
    }
    pthread_mutex_unlock(&devices[number].lock);
}

static void remove_primary(int number)
{
    for (ga_cuda_listed *c = ga_cuda_listed_next(number, NULL); c;) {
        ga_cuda_listed *next = ga_cuda_listed_next(number, c);
        if (c->at.is_primary) {
            remove_context(c);
        }
        c = next;
    }
}

/* Returns the number of other contexts that lose blocks. */
static unsigned close_all(int number)
{
    unsigned others = 0;
    int mode = ga_cuda_instance_relax();
    for (ga_cuda_listed *c = ga_cuda_listed_next(number, NULL); c;
         c = ga_cuda_listed_next(number, c)) {
        bool has_blocks = close_context(c);
        others += has_blocks && !c->at.is_primary;
    }
    ga_cuda_place_close(number);
    ga_cuda_instance_restore(mode);
    return others;
}

void ga_cuda_kernel_close(int number)
{
    unsigned others = 0;
    if (number < 0 || number >= GA_CUDA_DEVICES) {
        return;
    }
    pthread_mutex_lock(&devices[number].lock);
    if (ga_cuda_kernel_has_served()) {
        others = close_all(number);
    }
    if (others) {
        ga_log(GA_LOG_WARN,
               "the primary context of device %d goes, with the heap: kernels of %u other contexts "
               "lose their blocks, and get another heap",
               number, others);
    }
}

/* Another thread may have seen it meanwhile. */
void ga_cuda_kernel_closed(int number, bool is_gone)
{
    if (number < 0 || number >= GA_CUDA_DEVICES) {
        return;
    }
    if (ga_cuda_kernel_has_served()) {
        if (is_gone) {
            remove_primary(number);
        }
        see_primary(number);
    }
    pthread_mutex_unlock(&devices[number].lock);
}

static bool has_code(int number)
{
    bool has = false;
    for (ga_cuda_listed *c = ga_cuda_listed_next(number, NULL); c && !has;
         c = ga_cuda_listed_next(number, c)) {
        has = ga_cuda_codes_last(c->at.context) != 0;
    }
    return has;
}

void ga_cuda_kernel_close_unused(int number)
{
    if (!ga_cuda_kernel_has_served() || number < 0 || number >= GA_CUDA_DEVICES) {
        return;
    }
    int mode = lock(number);
    if (!has_code(number)) {
        close_all(number);
    }
    unlock(number, mode);
}
