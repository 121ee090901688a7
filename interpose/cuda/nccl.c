/* SPDX-License-Identifier: MIT
 *
 * The hooks of nccl_hooks.h: ncclMemAlloc() and ncclMemFree() over a heap of the device
 * (buffers.h), and the registrations of NCCL's communicators (registered.h). Whatever a heap does
 * not serve goes to NCCL, and NCCL's result is the program's.
 *
 * In a group a window is registered when the group ends, and only then NCCL stores its handle. The
 * calls of one group are made by one thread.
 */
#include "../../liballoc/platform/libc.h"
#include "buffers.h"
#include "nccl_next.h"
#include "registered.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Results: ncclResult_t. */
enum {
    SUCCESS = 0,
    UNHANDLED_CUDA_ERROR = 1,
    SYSTEM_ERROR = 2,
    INVALID_ARGUMENT = 4,
    INVALID_USAGE = 5,
    IN_PROGRESS = 7
};

#define HOOK __attribute__((visibility("default")))

typedef int mem_alloc_fn(void **block, size_t size);
typedef int mem_free_fn(void *block);
typedef int register_fn(const void *comm, void *start, size_t size, void **handle);
typedef int deregister_fn(const void *comm, void *handle);
typedef int window_register_fn(void *comm, void *start, size_t size, void **window, int flags);
typedef int window_deregister_fn(void *comm, void *window);
typedef int comm_fn(void *comm);
typedef int group_fn(void);

HOOK mem_alloc_fn ncclMemAlloc;
HOOK mem_free_fn ncclMemFree;
HOOK register_fn ncclCommRegister;
HOOK deregister_fn ncclCommDeregister;
HOOK window_register_fn ncclCommWindowRegister;
HOOK window_deregister_fn ncclCommWindowDeregister;
HOOK comm_fn ncclCommDestroy, ncclCommAbort;
HOOK group_fn ncclGroupStart, ncclGroupEnd;

/* NCCL's function for the hook's caller, with the type of the hook. */
#define NEXT(type, symbol)                                                                         \
    ((type *)(uintptr_t)ga_nccl_next_of(GA_HOOK_##symbol, __builtin_return_address(0)))

/* ---- memory ------------------------------------------------------------------------------ */

int ncclMemAlloc(void **block, size_t size)
{
    mem_alloc_fn *next = NEXT(mem_alloc_fn, ncclMemAlloc);
    if (!next) {
        return INVALID_USAGE;
    }
    return block && size && ga_cuda_buffers_alloc(size, block) ? SUCCESS : next(block, size);
}

int ncclMemFree(void *block)
{
    mem_free_fn *next = NEXT(mem_free_fn, ncclMemFree);
    CUresult result = block ? ga_cuda_buffers_free(block) : CUDA_ERROR_NOT_SUPPORTED;
    switch (result) {
    case CUDA_SUCCESS:
        return SUCCESS;
    case CUDA_ERROR_INVALID_VALUE:
        return INVALID_ARGUMENT;
    case CUDA_ERROR_NOT_SUPPORTED:
        return next ? next(block) : INVALID_USAGE;
    default:
        return UNHANDLED_CUDA_ERROR;
    }
}

/* ---- groups ------------------------------------------------------------------------------ */

/* A window of the thread's group, whose handle NCCL stores at `out` when the group ends. */
typedef struct pending {
    uint64_t registration;
    void **out;
    struct pending *next;
} pending;

static _Thread_local pending *pending_windows;
static _Thread_local unsigned group_depth;

int ncclGroupStart(void)
{
    group_fn *next = NEXT(group_fn, ncclGroupStart);
    int result = next ? next() : INVALID_USAGE;
    group_depth += result == SUCCESS;
    return result;
}

/* Without a handle after the call, NCCL made no window. With communicators that do not block it may
 * come later: then the registration ends with its communicator. */
static void settle(const pending *one, int result)
{
    if (*one->out) {
        ga_cuda_registration_name(one->registration, *one->out);
    } else if (result != IN_PROGRESS) {
        ga_cuda_registration_end(ga_cuda_registration_take_number(one->registration));
    }
}

int ncclGroupEnd(void)
{
    group_fn *next = NEXT(group_fn, ncclGroupEnd);
    int result = next ? next() : INVALID_USAGE;
    group_depth -= group_depth > 0;
    while (!group_depth && pending_windows) {
        pending *one = pending_windows;
        pending_windows = one->next;
        settle(one, result);
        ga_libc.free(one);
    }
    return result;
}

/* ---- registrations ----------------------------------------------------------------------- */

/* NCCL returns no handle if it does not register on this machine. */
int ncclCommRegister(const void *comm, void *start, size_t size, void **handle)
{
    register_fn *next = NEXT(register_fn, ncclCommRegister);
    ga_cuda_registration *made = next ? ga_cuda_registration_new(comm, start, size) : NULL;
    if (!made) {
        return next ? SYSTEM_ERROR : INVALID_USAGE;
    }
    int result = next(comm, start, size, handle);
    if (result == SUCCESS && handle && *handle) {
        ga_cuda_registration_add(made, *handle);
    } else {
        ga_cuda_registration_drop(made);
    }
    return result;
}

/* End what was taken, if NCCL has ended it. */
static int finish(ga_cuda_registration *taken, int result)
{
    if (result == SUCCESS || result == IN_PROGRESS) {
        ga_cuda_registration_end(taken);
    } else {
        ga_cuda_registration_restore(taken);
    }
    return result;
}

int ncclCommDeregister(const void *comm, void *handle)
{
    deregister_fn *next = NEXT(deregister_fn, ncclCommDeregister);
    if (!next) {
        return INVALID_USAGE;
    }
    ga_cuda_registration *taken = ga_cuda_registration_take(comm, handle);
    return finish(taken, next(comm, handle));
}

/* In a group the window counts from now on, because the program may end the group in any way. */
static void add_window(ga_cuda_registration *made, pending *later, void **window, int result)
{
    bool is_later = !*window && (result == IN_PROGRESS || (result == SUCCESS && group_depth));
    if (result != SUCCESS && result != IN_PROGRESS) {
        ga_cuda_registration_drop(made);
    } else if (*window) {
        ga_cuda_registration_add(made, *window);
    } else if (is_later) {
        uint64_t number = ga_cuda_registration_add(made, NULL);
        if (group_depth) {
            *later = (pending){number, window, pending_windows};
            pending_windows = later;
            return;
        }
    } else {
        ga_cuda_registration_drop(made);
    }
    ga_libc.free(later);
}

int ncclCommWindowRegister(void *comm, void *start, size_t size, void **window, int flags)
{
    window_register_fn *next = NEXT(window_register_fn, ncclCommWindowRegister);
    if (!next || !window) {
        return next ? next(comm, start, size, window, flags) : INVALID_USAGE;
    }
    ga_cuda_registration *made = ga_cuda_registration_new(comm, start, size);
    pending *later = made ? ga_libc.malloc(sizeof *later) : NULL;
    if (!later) {
        ga_cuda_registration_drop(made);
        return SYSTEM_ERROR;
    }
    *window = NULL; /* as NCCL does, before anything can fail */
    int result = next(comm, start, size, window, flags);
    add_window(made, later, window, result);
    return result;
}

int ncclCommWindowDeregister(void *comm, void *window)
{
    window_deregister_fn *next = NEXT(window_deregister_fn, ncclCommWindowDeregister);
    if (!next) {
        return INVALID_USAGE;
    }
    ga_cuda_registration *taken = ga_cuda_registration_take(comm, window);
    return finish(taken, next(comm, window));
}

/* ---- communicators ----------------------------------------------------------------------- */

/* Whether or not NCCL reports an error, the communicator cannot be used any more. */
static int end_communicator(comm_fn *next, void *comm)
{
    if (!next) {
        return INVALID_USAGE;
    }
    ga_cuda_registration *taken = ga_cuda_registration_take_all(comm);
    int result = next(comm);
    ga_cuda_registration_end(taken);
    return result;
}

int ncclCommDestroy(void *comm)
{
    return end_communicator(NEXT(comm_fn, ncclCommDestroy), comm);
}

int ncclCommAbort(void *comm)
{
    return end_communicator(NEXT(comm_fn, ncclCommAbort), comm);
}
