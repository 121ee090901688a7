/* SPDX-License-Identifier: MIT
 *
 * Our module in each context, and the variables of the program's code that lead to it.
 *
 * The program's code has stubs, which call the functions that the variable GA_CUBIN_VARIABLE names.
 * The driver gives each module such a variable, and each library one in every context. All those in
 * a context get the addresses of our functions there:
 *
 *   a module or library is loaded     ga_cuda_kernel_loaded: its variable, in all contexts
 *   a context comes                   ga_cuda_kernel_created, _retained: those of all libraries
 *
 * A variable begins with zeros, with which the stubs give NULL.
 *
 * STRUCTURE  A list of contexts that the preload has seen, and a list of code that was served.
 * INVARIANT  In an open context our module is loaded, and the variables of all listed code there
 *            have its functions. Closed contexts have zeros.
 *            The heap of an open context's device is open.
 * ORDER      One lock guards both lists and kernel_place.c. primary.c takes its lock before it.
 * PROGRESS   A thread waits while another one loads our module, opens a heap or copies addresses.
 *            Calls under the lock may wait for kernels of the program: the driver's, when it loads
 *            code, and where a context goes.
 */
#include "kernel_contexts.h"

#include "../../liballoc/platform/cuda_driver.h"
#include "../../liballoc/platform/forks.h"
#include "../../liballoc/platform/libc.h"
#include "../../liballoc/platform/log.h"
#include "../kernel/module.h"
#include "contexts.h"
#include "kernel_place.h"
#include "next.h"
#include "primary.h"

#include <gpualloc/backend.h>

#include <pthread.h>
#include <string.h>

enum {
    LIMIT_STACK_SIZE = 0,     /* CU_LIMIT_STACK_SIZE */
    CAPTURE_MODE_RELAXED = 2, /* CU_STREAM_CAPTURE_MODE_RELAXED */
    DEFAULT_STACK = 1024      /* the driver's */
};

typedef struct context {
    CUcontext handle;
    int device;
    unsigned sm;
    bool is_primary;
    bool has_failed; /* told once; until the heap closes */
    bool is_open;    /* these three are set */
    CUmodule module;
    CUstream stream; /* which waits for no other */
    uint64_t functions[GA_CALLS_COUNT];
    struct context *next;
} context;

typedef struct code {
    void *handle;
    CUcontext context; /* a module's; NULL: a library */
    void *copy;
    struct code *next;
} code;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static context *contexts;
static code *codes;
static uint64_t opened; /* a bit for each device whose heap opened since begin_locked() */

/* Whether there was ever a record. Hooks of programs without in-kernel malloc take no lock.
 * Relaxed: a program does not unload code, or end a context, before the call that made it has
 * returned. */
static bool is_used;

/* Functions of the driver, or NULL. They are looked up before the lock is taken, because dlsym()
 * takes the lock of the dynamic linker, which a thread holds that unloads a library of the program,
 * and with it code. Relaxed: all threads find the same. */
enum {
    EXCHANGE_MODE,
    LIBRARY_GLOBAL,
    MODULE_GLOBAL,
    GET_LIMIT,
    SYMBOLS
};

static const char *const symbol_names[SYMBOLS] = {"cuThreadExchangeStreamCaptureMode",
                                                  "cuLibraryGetGlobal", "cuModuleGetGlobal_v2",
                                                  "cuCtxGetLimit"};
static void *symbols[SYMBOLS];

static void find_symbols(void)
{
    for (int i = 0; i < SYMBOLS; i++) {
        if (!__atomic_load_n(&symbols[i], __ATOMIC_RELAXED)) { /* relaxed: see there */
            __atomic_store_n(&symbols[i], ga_cuda_next_symbol(symbol_names[i]),
                             __ATOMIC_RELAXED); /* relaxed: see there */
        }
    }
}

static void *symbol(int i)
{
    return __atomic_load_n(&symbols[i], __ATOMIC_RELAXED); /* relaxed: see there */
}

static bool was_used(void)
{
    return __atomic_load_n(&is_used, __ATOMIC_RELAXED); /* relaxed: see there */
}

/* The driver does not outlive a fork, and its handles mean nothing in the child. */
static void fork_child(void)
{
    pthread_mutex_init(&lock, NULL); /* the thread that held it is not in the child */
    contexts = NULL;
    codes = NULL;
    opened = 0;
    ga_cuda_place_child();
}

/* A constructor, because a fork that has begun does not run handlers that are registered during
 * it. */
__attribute__((constructor)) static void begin(void)
{
    static bool watched;
    ga_forks_watch(&watched, NULL, NULL, fork_child);
}

/* ---- driver ---------------------------------------------------------------------------------- */

/* The thread in a context. */
typedef struct scope {
    const ga_cuda_driver *driver;
} scope;

static ga_status enter(scope *s, CUcontext handle)
{
    ga_status status = ga_cuda_driver_get(&s->driver);
    return status == GA_OK ? GA_CUDA_CALL(s->driver, cuCtxPushCurrent, handle) : status;
}

static void leave(const scope *s)
{
    CUcontext ours;
    s->driver->cuCtxPopCurrent(&ours);
}

static void exchange_capture_mode(int *mode)
{
    typedef CUresult exchange_mode(int *mode);
    exchange_mode *exchange;
    *(void **)&exchange = symbol(EXCHANGE_MODE);
    if (exchange) {
        exchange(mode);
    }
}

/* Code may be loaded while a stream captures. The calls made here concern none of the program's
 * streams, so the capture need not end for them. Returns the mode for end(). */
static int begin_locked(void)
{
    int mode = CAPTURE_MODE_RELAXED;
    find_symbols();
    pthread_mutex_lock(&lock);
    exchange_capture_mode(&mode);
    return mode;
}

/* The lock of primary.c comes before ours. */
static void end_locked(int mode)
{
    uint64_t devices = opened;
    opened = 0;
    exchange_capture_mode(&mode);
    pthread_mutex_unlock(&lock);
    for (; devices; devices &= devices - 1) {
        ga_cuda_primary_used(__builtin_ctzll(devices));
    }
}

static ga_status find_variable(const scope *s, CUdeviceptr *out, size_t size, const char *name,
                               void *handle, bool is_library)
{
    typedef CUresult get_global(CUdeviceptr * start, size_t * size, void *code, const char *name);
    const char *call = is_library ? "cuLibraryGetGlobal" : "cuModuleGetGlobal_v2";
    size_t found = 0;
    get_global *get;
    *(void **)&get = symbol(is_library ? LIBRARY_GLOBAL : MODULE_GLOBAL);
    ga_status status = ga_cuda_check(
        s->driver, get ? get(out, &found, handle, name) : CUDA_ERROR_NOT_SUPPORTED, call);
    return status == GA_OK && found != size
               ? ga_fail(GA_ERR_DEVICE, "%s: expected %zu bytes of %s, got %zu", call, size, name,
                         found)
               : status;
}

/* ---- contexts -------------------------------------------------------------------------------- */

static context *find_context(CUcontext handle)
{
    context *c = contexts;
    while (c && c->handle != handle) {
        c = c->next;
    }
    return c;
}

static context *find_or_add(const ga_cuda_target *target)
{
    context *c = find_context(target->context);
    if (c) {
        return c;
    }
    c = ga_libc.calloc(1, sizeof *c);
    if (!c) {
        ga_fail(GA_ERR_MEMORY, "no memory for the record of a context");
        return NULL;
    }
    *c = (context){.handle = target->context,
                   .device = target->device,
                   .sm = target->sm,
                   .is_primary = target->is_primary,
                   .next = contexts};
    contexts = c;
    __atomic_store_n(&is_used, true, __ATOMIC_RELAXED); /* relaxed: see there */
    return c;
}

static bool runs_in(const code *k, const context *c)
{
    return !k->context || k->context == c->handle;
}

/* `functions` to the variable of `k` in `c`, which is current. The driver then loads a library
 * there, if it has not yet. */
static ga_status write_variable(const scope *s, const context *c, const code *k,
                                const uint64_t functions[GA_CALLS_COUNT])
{
    CUdeviceptr at;
    size_t size = GA_CALLS_COUNT * sizeof *functions;
    ga_status status = find_variable(s, &at, size, GA_CUBIN_VARIABLE, k->handle, !k->context);
    if (status == GA_OK) {
        status = GA_CUDA_CALL(s->driver, cuMemcpyHtoDAsync, at, functions, size, c->stream);
    }
    return status == GA_OK ? GA_CUDA_CALL(s->driver, cuStreamSynchronize, c->stream) : status;
}

static ga_status write_code(const context *c, const code *k)
{
    scope s;
    ga_status status = enter(&s, c->handle);
    if (status == GA_OK) {
        status = write_variable(&s, c, k, c->functions);
        leave(&s);
    }
    return status;
}

static void report(const context *c)
{
    ga_log(GA_LOG_ERROR, "kernels in a context of device %d get NULL from malloc: %s", c->device,
           ga_error_text());
}

/* All code that runs in the context, which is current. */
static void write_all(const scope *s, const context *c, const uint64_t functions[GA_CALLS_COUNT])
{
    for (const code *k = codes; k; k = k->next) {
        if (runs_in(k, c) && write_variable(s, c, k, functions) != GA_OK) {
            report(c);
        }
    }
}

/* ---- our module ------------------------------------------------------------------------------ */

static ga_status read_functions(const scope *s, context *c)
{
    CUdeviceptr at;
    size_t size = sizeof c->functions;
    ga_status status = find_variable(s, &at, size, GA_KERNEL_MODULE_FUNCTIONS, c->module, false);
    if (status == GA_OK) {
        status = GA_CUDA_CALL(s->driver, cuMemcpyDtoHAsync, c->functions, at, size, c->stream);
    }
    if (status == GA_OK) {
        status = GA_CUDA_CALL(s->driver, cuStreamSynchronize, c->stream);
    }
    for (int i = 0; status == GA_OK && i < GA_CALLS_COUNT; i++) {
        if (!c->functions[i]) {
            return ga_fail(GA_ERR_DEVICE,
                           "device %d: expected the address of function %d of the module, got 0",
                           c->device, i);
        }
    }
    return status;
}

/* Take our module out of the context, which is current. */
static void unload(const scope *s, context *c)
{
    ga_cuda_any *unload_module = ga_cuda_next_find(GA_HOOK_cuModuleUnload);
    if (c->module && unload_module) {
        unload_module((ga_cuda_word)c->module, 0, 0, 0, 0, 0);
    }
    if (c->stream) {
        s->driver->cuStreamDestroy(c->stream);
    }
    c->module = NULL;
    c->stream = NULL;
    c->is_open = false;
    memset(c->functions, 0, sizeof c->functions);
}

static ga_status load(const scope *s, context *c, const ga_cuda_place *place)
{
    ga_status status = GA_CUDA_CALL(s->driver, cuStreamCreate, &c->stream, CU_STREAM_NON_BLOCKING);
    if (status == GA_OK) {
        status = GA_CUDA_CALL(s->driver, cuModuleLoadData, &c->module, place->cubin.image.bytes);
    }
    return status == GA_OK ? read_functions(s, c) : status;
}

static ga_status open_place(const ga_cuda_place **place, int device, unsigned sm)
{
    bool was_open = ga_cuda_place_is_open(device);
    ga_status status = ga_cuda_place_open(place, device, sm);
    if (status == GA_OK && !was_open) {
        opened |= UINT64_C(1) << device;
    }
    return status;
}

static ga_status open_context(context *c)
{
    const ga_cuda_place *place;
    scope s;
    if (c->is_open) {
        return GA_OK;
    }
    ga_status status = open_place(&place, c->device, c->sm);
    if (status == GA_OK) {
        status = enter(&s, c->handle);
    }
    if (status != GA_OK) {
        return status;
    }
    status = load(&s, c, place);
    if (status == GA_OK) {
        c->is_open = true;
        write_all(&s, c, c->functions);
    } else {
        unload(&s, c);
    }
    leave(&s);
    return status;
}

/* Kernels that run may use the heap, which is about to close. */
static void close_context(context *c)
{
    static const uint64_t none[GA_CALLS_COUNT];
    scope s;
    c->has_failed = false;
    if (!c->is_open || enter(&s, c->handle) != GA_OK) {
        c->is_open = false;
        return;
    }
    write_all(&s, c, none);
    s.driver->cuCtxSynchronize();
    unload(&s, c);
    leave(&s);
}

static void remove_context(const context *gone)
{
    for (code **at = &codes; *at;) {
        code *k = *at;
        if (k->context == gone->handle) {
            *at = k->next;
            ga_libc.free(k);
        } else {
            at = &k->next;
        }
    }
    for (context **at = &contexts; *at; at = &(*at)->next) {
        if (*at == gone) {
            *at = gone->next;
            ga_libc.free((void *)(uintptr_t)gone);
            return;
        }
    }
}

/* ---- code ------------------------------------------------------------------------------------ */

static bool has_code(const context *c)
{
    const code *k = codes;
    while (k && !runs_in(k, c)) {
        k = k->next;
    }
    return k != NULL;
}

static unsigned sm_of(int device)
{
    const ga_cuda_api *api = ga_cuda_next_api();
    int major = 0;
    int minor = 0;
    if (api) {
        api->cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
        api->cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
    }
    return (unsigned)(10 * major + minor);
}

/* The primary context of `device`, if it is active. */
static void see_primary(int device)
{
    const ga_cuda_api *api = ga_cuda_next_api();
    unsigned flags;
    int active = 0;
    if (api && api->cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS && active) {
        ga_cuda_target target = {ga_cuda_primary(device), true, device, sm_of(device)};
        if (target.context) {
            find_or_add(&target);
        }
    }
}

/* Open the contexts in which listed code may run: of a device, or -1 for all. */
static void open_all(int device)
{
    for (context *c = contexts; c; c = c->next) {
        bool is_meant = (device < 0 || c->device == device) && !c->has_failed;
        if (is_meant && has_code(c) && open_context(c) != GA_OK) {
            c->has_failed = true;
            report(c);
        }
    }
}

/* A library, which is in the list, in all contexts but `done`. */
static void write_library(const code *k, const context *done)
{
    int count = 0;
    ga_cuda_device_count(&count);
    for (const context *c = contexts; c; c = c->next) {
        if (c != done && c->is_open && write_code(c, k) != GA_OK) {
            report(c);
        }
    }
    for (int i = 0; i < count && i < GA_CUDA_DEVICES; i++) {
        see_primary(i);
    }
    open_all(-1);
}

static ga_status loaded_locked(void *handle, bool is_library, void *copy,
                               const ga_cuda_target *target)
{
    context *c = target->context ? find_context(target->context) : NULL;
    if (!c && !is_library) {
        return ga_fail(GA_ERR_DEVICE, "device %d: its context was reset meanwhile", target->device);
    }
    code *k = ga_libc.calloc(1, sizeof *k);
    if (!k) {
        return ga_fail(GA_ERR_MEMORY, "no memory for the record of a module");
    }
    *k = (code){handle, is_library ? NULL : target->context, copy, codes};
    ga_status status = c ? open_context(c) : GA_OK; /* again, if the heap was closed meanwhile */
    status = status || !c ? status : write_code(c, k);
    if (status != GA_OK) {
        ga_libc.free(k);
        return status;
    }
    codes = k;
    __atomic_store_n(&is_used, true, __ATOMIC_RELAXED); /* relaxed: see there */
    if (is_library) {
        write_library(k, c);
    }
    return GA_OK;
}

ga_status ga_cuda_kernel_loaded(void *handle, bool is_library, void *copy,
                                const ga_cuda_target *target)
{
    int mode = begin_locked();
    ga_status status = loaded_locked(handle, is_library, copy, target);
    end_locked(mode);
    return status;
}

void *ga_cuda_kernel_unloading(const void *handle)
{
    void *copy = NULL;
    if (!was_used()) {
        return NULL;
    }
    pthread_mutex_lock(&lock);
    for (code **at = &codes; *at; at = &(*at)->next) {
        code *k = *at;
        if (k->handle == handle) {
            copy = k->copy;
            *at = k->next;
            ga_libc.free(k);
            break;
        }
    }
    pthread_mutex_unlock(&lock);
    return copy;
}

/* ---- serving --------------------------------------------------------------------------------- */

/* The limit on the stack of kernels whose need is not known, now. */
static uint32_t stack_limit(CUcontext handle)
{
    typedef CUresult get_limit(size_t * value, int limit);
    size_t value = DEFAULT_STACK;
    scope s;
    get_limit *get;
    *(void **)&get = symbol(GET_LIMIT);
    if (get && handle && enter(&s, handle) == GA_OK) {
        value = get(&value, LIMIT_STACK_SIZE) == CUDA_SUCCESS ? value : DEFAULT_STACK;
        leave(&s);
    }
    return value < UINT32_MAX / 2 ? (uint32_t)value : UINT32_MAX / 2;
}

static ga_status open_target(const ga_cuda_place **place, const ga_cuda_target *target)
{
    ga_status status = open_place(place, target->device, target->sm);
    if (status == GA_OK && target->context) {
        context *c = find_or_add(target);
        status = c ? open_context(c) : GA_ERR_MEMORY;
    }
    if (status == GA_OK && opened) {
        open_all(target->device); /* contexts that lost the heap before */
    }
    return status;
}

ga_status ga_cuda_kernel_serve(ga_image *out, void **owned, const ga_cuda_target *target,
                               ga_image image, unsigned calls)
{
    const ga_cuda_place *place;
    ga_cubin cubin;
    int mode = begin_locked();
    ga_status status = open_target(&place, target);
    if (status == GA_OK) {
        status = ga_cubin_open(&cubin, image);
    }
    if (status == GA_OK) {
        ga_cubin_needs needs = calls & GA_CALLS_ALIGNED ? place->aligned : place->plain;
        needs.recursion =
            needs.stack +
            stack_limit(target->context ? target->context : ga_cuda_primary(target->device));
        status = ga_cubin_serve(out, owned, &cubin, &place->cubin, &needs);
    }
    end_locked(mode);
    return status;
}

/* ---- contexts that come and go --------------------------------------------------------------- */

void ga_cuda_kernel_created(CUcontext handle)
{
    const ga_cuda_api *api = ga_cuda_next_api();
    CUdevice device;
    if ((!ga_cuda_kernel_wanted() && !was_used()) || !api ||
        api->cuCtxGetDevice(&device) != CUDA_SUCCESS || device >= GA_CUDA_DEVICES) {
        return;
    }
    ga_cuda_target target = {handle, false, device, sm_of(device)};
    int mode = begin_locked();
    context *c = find_context(handle);
    if (c) { /* one that ended by a call without a hook: cuCtxDetach() */
        remove_context(c);
    }
    c = find_or_add(&target);
    if (c && has_code(c) && open_context(c) != GA_OK) {
        report(c);
    }
    end_locked(mode);
}

void ga_cuda_kernel_retained(int device)
{
    if (!was_used() || device < 0 || device >= GA_CUDA_DEVICES) {
        return;
    }
    int mode = begin_locked();
    if (codes) {
        see_primary(device);
        open_all(device);
    }
    end_locked(mode);
}

void ga_cuda_kernel_destroying(CUcontext handle)
{
    if (!was_used()) {
        return;
    }
    pthread_mutex_lock(&lock);
    const context *c = find_context(handle);
    if (c && !c->is_primary) { /* of which the driver refuses the call */
        remove_context(c);
    }
    pthread_mutex_unlock(&lock);
}

void ga_cuda_kernel_close(int device)
{
    if (!was_used() || device < 0 || device >= GA_CUDA_DEVICES) {
        return;
    }
    unsigned others = 0;
    int mode = begin_locked();
    for (context *c = contexts; c;) {
        context *next = c->next;
        if (c->device == device) {
            others += c->is_open && !c->is_primary && has_code(c);
            close_context(c);
            if (c->is_primary) {
                remove_context(c);
            }
        }
        c = next;
    }
    ga_cuda_place_close(device);
    end_locked(mode);
    if (others) {
        ga_log(GA_LOG_WARN,
               "the primary context of device %d goes, with the heap: until it is retained again, "
               "malloc gives NULL in kernels of %u other contexts",
               device, others);
    }
}
