/* SPDX-License-Identifier: MIT
 *
 * Calls of the driver for one context. All may wait for kernels of the program that run on the
 * context's device: the driver does, when it loads code.
 */
#include "kernel_instance.h"

#include "../../liballoc/platform/cuda_driver.h"
#include "../../liballoc/runtime/heap.h"
#include "../kernel/module.h"
#include "next.h"

#include <gpualloc/backend.h>

#include <stddef.h>
#include <string.h>

enum {
    LIMIT_STACK_SIZE = 0,     /* CU_LIMIT_STACK_SIZE */
    CAPTURE_MODE_RELAXED = 2, /* CU_STREAM_CAPTURE_MODE_RELAXED */
    DEFAULT_STACK = 1024      /* the driver's */
};

/* ---- functions of the driver ----------------------------------------------------------------- */

/* NULL: the driver has none. Relaxed: all threads find the same. */
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

void ga_cuda_instance_prepare(void)
{
    ga_heap_prepare();
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

/* ---- the thread ------------------------------------------------------------------------------ */

static void exchange_capture_mode(int *mode)
{
    typedef CUresult exchange_mode(int *mode);
    exchange_mode *exchange;
    *(void **)&exchange = symbol(EXCHANGE_MODE);
    if (exchange) {
        exchange(mode);
    }
}

int ga_cuda_instance_relax(void)
{
    int mode = CAPTURE_MODE_RELAXED;
    exchange_capture_mode(&mode);
    return mode;
}

void ga_cuda_instance_restore(int mode)
{
    exchange_capture_mode(&mode);
}

/* The thread in a context. */
typedef struct scope {
    const ga_cuda_driver *driver;
} scope;

static ga_status enter(scope *s, CUcontext context)
{
    ga_status status = ga_cuda_driver_get(&s->driver);
    return status == GA_OK ? GA_CUDA_CALL(s->driver, cuCtxPushCurrent, context) : status;
}

static void leave(const scope *s)
{
    CUcontext ours;
    s->driver->cuCtxPopCurrent(&ours);
}

/* ---- our module ------------------------------------------------------------------------------ */

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

static ga_status read_functions(const scope *s, ga_cuda_instance *it)
{
    CUdeviceptr at;
    size_t size = sizeof it->functions;
    ga_status status = find_variable(s, &at, size, GA_KERNEL_MODULE_FUNCTIONS, it->module, false);
    if (status == GA_OK) {
        status = GA_CUDA_CALL(s->driver, cuMemcpyDtoHAsync, it->functions, at, size, it->stream);
    }
    if (status == GA_OK) {
        status = GA_CUDA_CALL(s->driver, cuStreamSynchronize, it->stream);
    }
    for (int i = 0; status == GA_OK && i < GA_CALLS_COUNT; i++) {
        if (!it->functions[i]) {
            return ga_fail(GA_ERR_DEVICE,
                           "expected the address of function %d of the module, got 0", i);
        }
    }
    return status;
}

static void unload(const scope *s, ga_cuda_instance *it)
{
    ga_cuda_any *unload_module = ga_cuda_next_find(GA_HOOK_cuModuleUnload);
    if (it->module && unload_module) {
        unload_module((ga_cuda_word)it->module, 0, 0, 0, 0, 0);
    }
    if (it->stream) {
        s->driver->cuStreamDestroy(it->stream);
    }
    *it = (ga_cuda_instance){0};
}

ga_status ga_cuda_instance_load(ga_cuda_instance *out, CUcontext context, ga_image module)
{
    scope s;
    *out = (ga_cuda_instance){.context = context};
    ga_status status = enter(&s, context);
    if (status != GA_OK) {
        return status;
    }
    status = GA_CUDA_CALL(s.driver, cuStreamCreate, &out->stream, CU_STREAM_NON_BLOCKING);
    if (status == GA_OK) {
        status = GA_CUDA_CALL(s.driver, cuModuleLoadData, &out->module, module.bytes);
    }
    if (status == GA_OK) {
        status = read_functions(&s, out);
    }
    if (status != GA_OK) {
        unload(&s, out);
    }
    leave(&s);
    return status;
}

bool ga_cuda_instance_is_gone(CUcontext context)
{
    scope s;
    if (ga_cuda_driver_get(&s.driver) != GA_OK) {
        return false;
    }
    CUresult result = s.driver->cuCtxPushCurrent(context);
    if (result == CUDA_SUCCESS) {
        leave(&s);
    }
    return result == CUDA_ERROR_INVALID_CONTEXT || result == CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

bool ga_cuda_instance_lives(const ga_cuda_instance *it)
{
    scope s;
    bool lives = enter(&s, it->context) == GA_OK;
    if (lives) {
        leave(&s);
    }
    return lives;
}

void ga_cuda_instance_unload(ga_cuda_instance *it, bool waits)
{
    scope s;
    if (enter(&s, it->context) != GA_OK) {
        *it = (ga_cuda_instance){0}; /* it went with its context */
        return;
    }
    if (waits) {
        s.driver->cuCtxSynchronize();
    }
    unload(&s, it);
    leave(&s);
}

/* ---- the program's code ---------------------------------------------------------------------- */

/* What the driver wrote into each word of the variable when it loaded the code. */
static ga_status read_none(const scope *s, uint64_t out[GA_CALLS_COUNT], CUdeviceptr variable,
                           CUstream stream)
{
    CUdeviceptr at = variable + offsetof(ga_cubin_variable, none);
    ga_status status = GA_CUDA_CALL(s->driver, cuMemcpyDtoHAsync, out, at, sizeof *out, stream);
    if (status == GA_OK) {
        status = GA_CUDA_CALL(s->driver, cuStreamSynchronize, stream);
    }
    for (int i = 1; status == GA_OK && i < GA_CALLS_COUNT; i++) {
        out[i] = out[0];
    }
    return status;
}

static ga_status write_functions(const scope *s, CUdeviceptr variable,
                                 const CUdeviceptr slots[GA_CALLS_COUNT],
                                 const uint64_t functions[GA_CALLS_COUNT], CUstream stream)
{
    ga_status status = GA_CUDA_CALL(s->driver, cuMemcpyHtoDAsync, variable, functions,
                                    GA_CALLS_COUNT * sizeof *functions, stream);
    for (int i = 0; status == GA_OK && i < GA_CALLS_COUNT; i++) {
        status = GA_CUDA_CALL(s->driver, cuMemcpyHtoDAsync, slots[i], &functions[i],
                              sizeof functions[i], stream);
    }
    return status == GA_OK ? GA_CUDA_CALL(s->driver, cuStreamSynchronize, stream) : status;
}

ga_status ga_cuda_instance_write(const ga_cuda_instance *it, const ga_cuda_code *code, bool is_open)
{
    static const char *const names[GA_CALLS_COUNT] = GA_CUBIN_SLOTS;
    uint64_t none[GA_CALLS_COUNT];
    CUdeviceptr slots[GA_CALLS_COUNT];
    CUdeviceptr at;
    scope s;
    ga_status status = enter(&s, it->context);
    if (status != GA_OK) {
        return status;
    }
    status = find_variable(&s, &at, sizeof(ga_cubin_variable), GA_CUBIN_VARIABLE, code->handle,
                           !code->context);
    for (int i = 0; status == GA_OK && i < GA_CALLS_COUNT; i++) {
        status =
            find_variable(&s, &slots[i], sizeof none[i], names[i], code->handle, !code->context);
    }
    if (status == GA_OK && !is_open) {
        status = read_none(&s, none, at, it->stream);
    }
    if (status == GA_OK) {
        status = write_functions(&s, at, slots, is_open ? it->functions : none, it->stream);
    }
    leave(&s);
    return status;
}

uint32_t ga_cuda_instance_stack_limit(CUcontext context)
{
    typedef CUresult get_limit(size_t * value, int limit);
    size_t value = DEFAULT_STACK;
    scope s;
    get_limit *get;
    *(void **)&get = symbol(GET_LIMIT);
    if (get && context && enter(&s, context) == GA_OK) {
        value = get(&value, LIMIT_STACK_SIZE) == CUDA_SUCCESS ? value : DEFAULT_STACK;
        leave(&s);
    }
    return value < UINT32_MAX / 2 ? (uint32_t)value : UINT32_MAX / 2;
}
