/* SPDX-License-Identifier: MIT
 *
 * The stack of contexts of a thread, with contexts that are not a device's own: missing in
 * vmm_driver.
 */
#include "libcuda.h"

#include <string.h>

#pragma GCC diagnostic ignored "-Wunused-parameter" /* functions of one form, in a table */

#define WORDS                                                                                      \
    stand_in_word a, stand_in_word b, stand_in_word c, stand_in_word d, stand_in_word e,           \
        stand_in_word f

/* A context that is not the device's own: calls on it act on the device's. */
enum {
    OTHERS = 64,
    DEPTH = 16
};

struct CUctx_st {
    CUdevice device;
    bool exists;
    unsigned references; /* of cuCtxCreate() and cuCtxAttach() */
};

static struct CUctx_st others[OTHERS];
static int other_count;
static CUcontext ended; /* its handle is given out again */

/* The thread's stack: NULL where the device's own context is. */
static _Thread_local struct {
    CUcontext others[DEPTH];
    int depth;
} stack;

STAND_IN_API CUresult cuCtxPushCurrent_v2(CUcontext context);
STAND_IN_API CUresult cuCtxPopCurrent_v2(CUcontext *context);

bool stand_in_is_other(CUcontext context)
{
    return context >= others && context < others + OTHERS;
}

/* The one that is current; NULL: it is a device's own, or there is none. */
static CUcontext current_other(void)
{
    return stack.depth > 0 && stack.depth <= DEPTH ? stack.others[stack.depth - 1] : NULL;
}

bool stand_in_other_device(CUdevice *device)
{
    CUcontext other = current_other();
    *device = other ? other->device : 0;
    return other != NULL;
}

static int bad_pushes;

int stand_in_bad_pushes(void)
{
    return bad_pushes;
}

static CUresult push(CUcontext context)
{
    CUcontext own = context;
    CUresult result = CUDA_SUCCESS;
    if (stand_in_is_other(context)) {
        result = context->exists ? stand_in_table.cuDevicePrimaryCtxRetain(&own, context->device)
                                 : CUDA_ERROR_INVALID_CONTEXT;
        __atomic_fetch_add(&bad_pushes, !context->exists, __ATOMIC_RELAXED); /* a figure */
    }
    result = result == CUDA_SUCCESS ? stand_in_table.cuCtxPushCurrent(own) : result;
    if (result == CUDA_SUCCESS && stack.depth++ < DEPTH) {
        stack.others[stack.depth - 1] = stand_in_is_other(context) ? context : NULL;
    }
    return result;
}

CUresult cuCtxPushCurrent_v2(CUcontext context)
{
    CUresult result = stand_in_arrive(true);
    return result == CUDA_SUCCESS ? push(context) : result;
}

CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
    CUresult result = stand_in_arrive(true);
    CUcontext other = current_other();
    result = result == CUDA_SUCCESS ? stand_in_table.cuCtxPopCurrent(context) : result;
    stack.depth -= result == CUDA_SUCCESS;
    if (result == CUDA_SUCCESS && other && context) {
        *context = other;
    }
    return result;
}

CUresult cuCtxGetCurrent(CUcontext *context)
{
    CUresult result = stand_in_arrive(true);
    CUcontext other = current_other();
    if (result == CUDA_SUCCESS && other) {
        *context = other;
        return CUDA_SUCCESS;
    }
    return result == CUDA_SUCCESS ? stand_in_table.cuCtxGetCurrent(context) : result;
}

/* NULL: there are too many. */
static CUcontext make(CUdevice device)
{
    CUcontext context = __atomic_exchange_n(&ended, NULL, __ATOMIC_RELAXED);
    if (!context) {
        int number = __atomic_fetch_add(&other_count, 1, __ATOMIC_RELAXED); /* a figure */
        context = number < OTHERS ? &others[number] : NULL;
    }
    if (context) {
        *context = (struct CUctx_st){device, true, 1};
    }
    return context;
}

static CUresult create(CUcontext *context, CUdevice device)
{
    *context = make(device);
    return *context ? push(*context) : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult create_v2(WORDS)
{
    return create((CUcontext *)a, (CUdevice)c);
}

static CUresult create_v3(WORDS)
{
    return create((CUcontext *)a, (CUdevice)e);
}

static CUresult create_v4(WORDS)
{
    return create((CUcontext *)a, (CUdevice)d);
}

static CUresult destroy(WORDS)
{
    CUcontext context = (CUcontext)a;
    CUcontext ours;
    if (!stand_in_is_other(context)) {
        return CUDA_SUCCESS;
    }
    if (!context->exists) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (current_other() == context) {
        cuCtxPopCurrent_v2(&ours);
    }
    context->exists = false;
    stand_in_modules_gone(context);
    stand_in_captures_gone(context);
    return CUDA_SUCCESS;
}

CUresult stand_in_end_context(CUcontext context)
{
    CUresult result = destroy((stand_in_word)context, 0, 0, 0, 0, 0);
    if (result == CUDA_SUCCESS) {
        __atomic_store_n(&ended, context, __ATOMIC_RELAXED);
    }
    return result;
}

/* The handle of a green context is one byte behind its context's. */
STAND_IN_API CUresult cuGreenCtxCreate(char **green, void *resources, CUdevice device,
                                       unsigned flags);
STAND_IN_API CUresult cuCtxFromGreenCtx(CUcontext *context, char *green);

CUresult cuGreenCtxCreate(char **green, void *resources, CUdevice device, unsigned flags)
{
    CUcontext made = make(device);
    *green = (char *)made + 1;
    return made ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuCtxFromGreenCtx(CUcontext *context, char *green)
{
    *context = (CUcontext)(void *)(green - 1);
    return CUDA_SUCCESS;
}

static CUresult destroy_green(WORDS)
{
    return destroy(a - 1, b, c, d, e, f);
}

static CUresult attach(WORDS)
{
    CUcontext context = current_other();
    if (!context) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    context->references++;
    *(CUcontext *)a = context;
    stand_in_during("attached");
    return CUDA_SUCCESS;
}

static CUresult detach(WORDS)
{
    CUcontext context = (CUcontext)a;
    if (!stand_in_is_other(context) || !context->exists) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    return --context->references ? CUDA_SUCCESS : destroy(a, b, c, d, e, f);
}

/* It refuses a context that has more than one reference. */
static CUresult destroy_v1(WORDS)
{
    CUcontext context = (CUcontext)a;
    bool is_shared = stand_in_is_other(context) && context->references > 1;
    return is_shared ? CUDA_ERROR_INVALID_VALUE : destroy(a, b, c, d, e, f);
}

stand_in_function *stand_in_other_context(const char *symbol)
{
    static const struct {
        const char *symbol;
        stand_in_function *function;
    } own[] = {
        {"cuCtxCreate", create_v2},
        {"cuCtxCreate_v2", create_v2},
        {"cuCtxCreate_v3", create_v3},
        {"cuCtxCreate_v4", create_v4},
        {"cuCtxDestroy", destroy_v1},
        {"cuCtxDestroy_v2", destroy},
        {"cuCtxAttach", attach},
        {"cuCtxDetach", detach},
        {"cuGreenCtxDestroy", destroy_green},
    };
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        if (strcmp(own[i].symbol, symbol) == 0) {
            return own[i].function;
        }
    }
    return NULL;
}
