/* SPDX-License-Identifier: MIT
 *
 * Loads the driver, and keeps each device's primary context and one stream.
 *
 * ga_cuda_enter
 *   ga_cuda_driver_get   load() at the first call; refused in a child of fork()
 *   slot_of              fill_slot() at the device's first use, else one load
 *   push the context, relax the capture mode, retry releases that the driver refused
 *
 * STRUCTURE  one table, filled once; one slot per device with its primary context and a stream
 * INVARIANT  a slot with a context is complete, and changes again only in ga_cuda_forget()
 * ORDER      PD1/PD2 publish a slot; PL1/PL2 the table and the library
 * PROGRESS   lock-free once a device has been used; its first use takes slots_lock. No lock over
 *            dlopen(), whose own lock a thread holds that runs constructors, which may call this:
 *            threads that come at once all load, and the record of the first one stays
 */
#include "cuda_driver.h"

#include "cuda_captures.h"
#include "cuda_refused.h"
#include "environment.h"
#include "forks.h"
#include "libc.h"

#include <gpualloc/backend.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- loading ------------------------------------------------------------------------------ */

#define ROW(name, symbol, parameters) {symbol, offsetof(ga_cuda_driver, name)},

static const struct {
    const char *symbol;
    size_t offset;
} rows[] = {GA_CUDA_FUNCTIONS(ROW)};

/* Does not change once it is published. */
typedef struct loaded_driver {
    ga_cuda_driver table;
    void *library;
    bool usable;
    pid_t pid; /* of the process that started the driver */
    char reason[400];
} loaded_driver;

static loaded_driver *loaded; /* NULL: not yet; never freed */

/* This process is a child of the one that started the driver. A fork handler sets it in the child,
 * which has one thread then. A getpid() in each call would cost a system call. */
static bool inherited;

static const ga_cuda_driver *stand_in; /* set by tests, while no other thread uses this file */
static bool stand_in_inherited;
static pid_t stand_in_pid;
static bool gone; /* relaxed: a hint that needs no order */

__attribute__((format(printf, 2, 3))) static void refuse(loaded_driver *it, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(it->reason, sizeof it->reason, format, args);
    va_end(args);
}

static bool is_optional(const char *symbol)
{
    static const char *const names[] = {"cuCtxRecordEvent", "cuDeviceGetUuid_v2",
                                        "cuStreamWriteValue32_v2", "cuStreamWaitValue32_v2"};
    bool found = false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        found |= strcmp(symbol, names[i]) == 0;
    }
    return found;
}

/* Fill the table. Returns NULL, or the first required symbol that the library does not define. */
static const char *resolve(ga_cuda_driver *table, void *library)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        void *function = dlsym(library, rows[i].symbol);
        if (!function && !is_optional(rows[i].symbol)) {
            return rows[i].symbol;
        }
        memcpy((char *)table + rows[i].offset, &function, sizeof function);
    }
    return NULL;
}

static const loaded_driver *find_loaded(void)
{
    /* PL2: acquire. Pairs with PL1. */
    return __atomic_load_n(&loaded, __ATOMIC_ACQUIRE);
}

static void set_inherited(void)
{
    const loaded_driver *it = find_loaded();
    inherited = it && it->usable;
    stand_in_inherited = stand_in != NULL;
}

__attribute__((constructor)) static void watch_forks(void)
{
    static bool watched;
    ga_forks_watch(&watched, NULL, NULL, set_inherited);
}

/* The library is never unloaded, because the driver has threads of its own. If a fork interrupted
 * load() in another thread, the child begins anew; the driver may then report that it belongs to
 * the parent. */
static void load(loaded_driver *it)
{
    watch_forks();
    /* ga_environment() ignores the variable in a process with another user's rights. */
    const char *named = ga_environment("GPUALLOC_CUDA_DRIVER");
    const char *path = named && *named ? named : "libcuda.so.1";
    it->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!it->library) {
        const char *why = dlerror();
        refuse(it, "no CUDA driver: %s", why ? why : path);
        return;
    }
    const char *missing = resolve(&it->table, it->library);
    if (missing) {
        refuse(it, "no CUDA driver: %s lacks %s; expected a driver for CUDA 11.2 or later", path,
               missing);
        return;
    }
    CUresult result = it->table.cuInit(0);
    if (ga_cuda_check(&it->table, result, "cuInit") != GA_OK) {
        refuse(it, "no CUDA driver: %s refuses to start: %s", path, ga_error_text());
        return;
    }
    it->pid = getpid();
    it->usable = true;
}

/* NULL: there is no memory for the record. */
static const loaded_driver *load_once(void)
{
    loaded_driver *none = NULL;
    const loaded_driver *there = find_loaded();
    loaded_driver *made = there ? NULL : ga_libc.calloc(1, sizeof *made);
    if (!made) {
        return there;
    }
    load(made);
    /* PL1: release. Pairs with PL2: a reader of the pointer sees the whole record. */
    if (!__atomic_compare_exchange_n(&loaded, &none, made, false, __ATOMIC_RELEASE,
                                     __ATOMIC_RELAXED)) {
        ga_libc.free(made);
    }
    return find_loaded();
}

static ga_status check_inherited(bool is, pid_t pid)
{
    return is ? ga_fail(GA_ERR_DEVICE,
                        "no CUDA in this process: process %ld started the driver before fork(), "
                        "and the driver does not outlive that; start it after fork()",
                        (long)pid)
              : GA_OK;
}

ga_status ga_cuda_driver_get(const ga_cuda_driver **out)
{
    *out = NULL;
    if (stand_in) {
        *out = stand_in_inherited ? NULL : stand_in;
        return check_inherited(stand_in_inherited, stand_in_pid);
    }
    const loaded_driver *it = load_once();
    if (!it) {
        return ga_fail(GA_ERR_MEMORY, "no memory for the functions of the driver");
    }
    if (!it->usable) {
        return ga_fail(GA_ERR_DEVICE, "%s", it->reason);
    }
    *out = inherited ? NULL : &it->table;
    return check_inherited(inherited, it->pid);
}

void *ga_cuda_driver_symbol(const char *symbol)
{
    const loaded_driver *it = stand_in ? NULL : find_loaded();
    return it && it->usable ? dlsym(it->library, symbol) : NULL;
}

ga_status ga_cuda_check(const ga_cuda_driver *driver, CUresult result, const char *call)
{
    if (__builtin_expect(result == CUDA_SUCCESS, 1)) {
        return GA_OK;
    }
    if (result == CUDA_ERROR_DEINITIALIZED) {
        __atomic_store_n(&gone, true, __ATOMIC_RELAXED);
    }
    ga_status status = result == CUDA_ERROR_OUT_OF_MEMORY ? GA_ERR_MEMORY : GA_ERR_DEVICE;
    const char *name = NULL;
    const char *text = NULL;
    driver->cuGetErrorName(result, &name);
    driver->cuGetErrorString(result, &text);
    if (!name) {
        return ga_fail(status, "%s: the driver's error %d", call, (int)result);
    }
    return ga_fail(status, "%s: %s (%s)", call, name, text ? text : "no text");
}

bool ga_cuda_is_gone(void)
{
    return __atomic_load_n(&gone, __ATOMIC_RELAXED);
}

/* ---- devices and their contexts ----------------------------------------------------------- */

typedef struct device_slot {
    CUcontext context; /* retained for the life of the process: modules live in it */
    CUstream stream;
} device_slot;

static device_slot slots[GA_CUDA_DEVICES]; /* written under slots_lock */
static pthread_mutex_t slots_lock = PTHREAD_MUTEX_INITIALIZER;

void ga_cuda_driver_set(const ga_cuda_driver *driver)
{
    memset(slots, 0, sizeof slots);
    gone = false;
    stand_in = driver;
    stand_in_inherited = false;
    stand_in_pid = getpid();
    ga_cuda_refused_clear();
}

ga_status ga_cuda_device_count(int *out)
{
    const ga_cuda_driver *driver;
    *out = 0;
    ga_status status = ga_cuda_driver_get(&driver);
    return status == GA_OK ? GA_CUDA_CALL(driver, cuDeviceGetCount, out) : status;
}

static ga_status no_device(const ga_cuda_driver *driver, int device)
{
    int count = 0;
    driver->cuDeviceGetCount(&count);
    return ga_fail(GA_ERR_DEVICE, "no CUDA device %d: the driver has %d, counted from 0", device,
                   count);
}

static ga_status make_stream(const ga_cuda_driver *driver, CUcontext context, CUstream *out)
{
    ga_status status = GA_CUDA_CALL(driver, cuCtxPushCurrent, context);
    if (status == GA_OK) {
        status = GA_CUDA_CALL(driver, cuStreamCreate, out, CU_STREAM_NON_BLOCKING);
        driver->cuCtxPopCurrent(&context);
    }
    return status;
}

static ga_status fill_slot(const ga_cuda_driver *driver, int ordinal, device_slot *slot)
{
    CUdevice device;
    CUcontext context;
    if (driver->cuDeviceGet(&device, ordinal) != CUDA_SUCCESS) {
        return no_device(driver, ordinal);
    }
    ga_status status = GA_CUDA_CALL(driver, cuDevicePrimaryCtxRetain, &context, device);
    if (status != GA_OK) {
        return status;
    }
    status = make_stream(driver, context, &slot->stream);
    if (status != GA_OK) {
        driver->cuDevicePrimaryCtxRelease(device);
        return status;
    }
    /* PD1: release. Pairs with PD2: the stream is seen with the context. */
    __atomic_store_n(&slot->context, context, __ATOMIC_RELEASE);
    return GA_OK;
}

static ga_status slot_of(const ga_cuda_driver *driver, int device, const device_slot **out)
{
    if (device < 0 || device >= GA_CUDA_DEVICES) {
        return no_device(driver, device);
    }
    device_slot *slot = &slots[device];
    *out = slot;
    /* PD2: acquire. Pairs with PD1. */
    if (__atomic_load_n(&slot->context, __ATOMIC_ACQUIRE)) {
        return GA_OK;
    }
    pthread_mutex_lock(&slots_lock);
    ga_status status = slot->context ? GA_OK : fill_slot(driver, device, slot);
    pthread_mutex_unlock(&slots_lock);
    return status;
}

ga_status ga_cuda_enter(ga_cuda_scope *scope, int device)
{
    const device_slot *slot = NULL;
    ga_status status = ga_cuda_driver_get(&scope->driver);
    if (status == GA_OK) {
        status = slot_of(scope->driver, device, &slot);
    }
    if (status != GA_OK) {
        return status;
    }
    scope->stream = slot->stream;
    status = GA_CUDA_CALL(scope->driver, cuCtxPushCurrent, slot->context);
    if (status == GA_OK) {
        scope->mode = ga_cuda_relax_mode();
        ga_cuda_refused_retry(scope->driver, device);
    }
    return status;
}

void ga_cuda_leave(const ga_cuda_scope *scope)
{
    CUcontext ours;
    ga_cuda_restore_mode(scope->mode);
    scope->driver->cuCtxPopCurrent(&ours);
}

/* Any other error of the driver does not mean that the context is gone. */
bool ga_cuda_has_context(int device)
{
    const ga_cuda_driver *driver;
    if (device < 0 || device >= GA_CUDA_DEVICES || ga_cuda_driver_get(&driver) != GA_OK) {
        return false;
    }
    /* PD2: acquire. Pairs with PD1. */
    CUcontext context = __atomic_load_n(&slots[device].context, __ATOMIC_ACQUIRE);
    CUresult result = context ? driver->cuCtxPushCurrent(context) : CUDA_ERROR_INVALID_CONTEXT;
    if (result == CUDA_SUCCESS) {
        driver->cuCtxPopCurrent(&context);
    }
    return result != CUDA_ERROR_INVALID_CONTEXT && result != CUDA_ERROR_CONTEXT_IS_DESTROYED &&
           result != CUDA_ERROR_DEINITIALIZED;
}

static void forget_locked(const ga_cuda_driver *driver, int ordinal, device_slot *slot)
{
    CUdevice device;
    CUcontext context = slot->context;
    if (driver->cuCtxPushCurrent(context) == CUDA_SUCCESS) {
        ga_cuda_refused_retry(driver, ordinal);
        driver->cuStreamDestroy(slot->stream);
        driver->cuCtxPopCurrent(&context);
    }
    if (driver->cuDeviceGet(&device, ordinal) == CUDA_SUCCESS) {
        driver->cuDevicePrimaryCtxRelease(device);
    }
    slot->stream = NULL;
    /* relaxed: no other thread uses the device's slot, and the next one takes the lock. */
    __atomic_store_n(&slot->context, NULL, __ATOMIC_RELAXED);
}

void ga_cuda_forget(int device)
{
    const ga_cuda_driver *driver;
    bool known = device >= 0 && device < GA_CUDA_DEVICES;
    /* PD2: acquire. Pairs with PD1. Without a context the driver need not be loaded. */
    known = known && __atomic_load_n(&slots[device].context, __ATOMIC_ACQUIRE);
    if (!known || ga_cuda_driver_get(&driver) != GA_OK) {
        return;
    }
    pthread_mutex_lock(&slots_lock);
    if (slots[device].context) {
        forget_locked(driver, device, &slots[device]);
    }
    pthread_mutex_unlock(&slots_lock);
}

/* ---- small work --------------------------------------------------------------------------- */

ga_status ga_cuda_describe(const ga_cuda_scope *scope, const void *pointer, ga_cuda_pointer *out)
{
    CUpointer_attribute attributes[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE};
    void *values[] = {&out->memory_type, &out->device, &out->managed, &out->pool};
    *out = (ga_cuda_pointer){0};
    return GA_CUDA_CALL(scope->driver, cuPointerGetAttributes,
                        sizeof attributes / sizeof *attributes, attributes, values,
                        (CUdeviceptr)pointer);
}

size_t ga_cuda_block_size(const ga_cuda_scope *scope, const void *block)
{
    CUdeviceptr base = 0;
    size_t size = 0;
    CUresult result = scope->driver->cuMemGetAddressRange(&base, &size, (CUdeviceptr)block);
    return result == CUDA_SUCCESS && base == (CUdeviceptr)block ? size : 0;
}

ga_status ga_cuda_clear(const ga_cuda_scope *scope, void *block, size_t size)
{
    const ga_cuda_driver *driver = scope->driver;
    ga_status status =
        GA_CUDA_CALL(driver, cuMemsetD8Async, (CUdeviceptr)block, 0, size, scope->stream);
    return status == GA_OK ? GA_CUDA_CALL(driver, cuStreamSynchronize, scope->stream) : status;
}

ga_status ga_cuda_copy(const ga_cuda_scope *scope, void *to, const void *from, size_t size)
{
    const ga_cuda_driver *driver = scope->driver;
    ga_status status = ga_cuda_check(driver, driver->cuCtxSynchronize(), "cuCtxSynchronize");
    if (status == GA_OK) {
        status = GA_CUDA_CALL(driver, cuMemcpyDtoDAsync, (CUdeviceptr)to, (CUdeviceptr)from, size,
                              scope->stream);
    }
    return status == GA_OK ? GA_CUDA_CALL(driver, cuStreamSynchronize, scope->stream) : status;
}
