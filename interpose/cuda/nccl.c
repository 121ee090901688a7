/* SPDX-License-Identifier: MIT
 *
 * The hooks of nccl_hooks.h: ncclMemAlloc() and ncclMemFree() over a heap of the device
 * (buffers.h), and the registrations of NCCL's communicators (registered.h). Whatever a heap does
 * not serve goes to NCCL, and NCCL's result is the program's.
 *
 * In a group a window is registered, and a communicator destroyed, when the group ends; only then
 * NCCL stores the window's handle. The calls of one group are made by one thread. With a
 * communicator that does not block, NCCL may do so in a thread of its own after the call. The
 * program learns the end from ncclCommGetAsyncError(), and so do these hooks.
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
typedef int comm_error_fn(void *comm, int *error);
typedef int group_fn(void);
typedef int group_simulate_fn(void *info);

HOOK mem_alloc_fn ncclMemAlloc;
HOOK mem_free_fn ncclMemFree;
HOOK register_fn ncclCommRegister;
HOOK deregister_fn ncclCommDeregister;
HOOK window_register_fn ncclCommWindowRegister;
HOOK window_deregister_fn ncclCommWindowDeregister;
HOOK comm_fn ncclCommDestroy, ncclCommAbort;
HOOK comm_error_fn ncclCommGetAsyncError;
HOOK group_fn ncclGroupStart, ncclGroupEnd;
HOOK group_simulate_fn ncclGroupSimulateEnd;

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
static _Thread_local ga_cuda_registration *pending_ends; /* of communicators that it destroys */
static _Thread_local unsigned group_depth;

int ncclGroupStart(void)
{
    group_fn *next = NEXT(group_fn, ncclGroupStart);
    int result = next ? next() : INVALID_USAGE;
    group_depth += result == SUCCESS;
    return result;
}

/* End what was taken, if NCCL has ended it. */
static int finish(ga_cuda_registration *taken, int result)
{
    if (result == SUCCESS) {
        ga_cuda_registration_end(taken);
    } else {
        ga_cuda_registration_restore(taken, result == IN_PROGRESS);
    }
    return result;
}

/* Without a handle after the group, NCCL has made no window. */
static void settle(const pending *one, int result)
{
    if (result == IN_PROGRESS) {
        ga_cuda_registration_await(one->registration, one->out);
    } else if (*one->out) {
        ga_cuda_registration_name(one->registration, *one->out);
    } else {
        ga_cuda_registration_end(ga_cuda_registration_take_number(one->registration));
    }
}

/* After a group that failed a communicator may still exist. Then it keeps its registrations, until
 * the program destroys it once more. */
static int end_group(int result)
{
    group_depth -= group_depth > 0;
    if (group_depth) {
        return result;
    }
    ga_cuda_registration *taken = pending_ends;
    pending_ends = NULL;
    finish(taken, result);
    while (pending_windows) {
        pending *one = pending_windows;
        pending_windows = one->next;
        settle(one, result);
        ga_libc.free(one);
    }
    return result;
}

int ncclGroupEnd(void)
{
    group_fn *next = NEXT(group_fn, ncclGroupEnd);
    return end_group(next ? next() : INVALID_USAGE);
}

/* NCCL launches no kernels, but registers and destroys as at a group's end. */
int ncclGroupSimulateEnd(void *info)
{
    group_simulate_fn *next = NEXT(group_simulate_fn, ncclGroupSimulateEnd);
    return end_group(next ? next(info) : INVALID_USAGE);
}

/* ---- registrations ----------------------------------------------------------------------- */

/* Those that have failed or ended after their calls. */
static void end_late(const void *comm)
{
    ga_cuda_registration_end(ga_cuda_registration_take_ended(comm));
}

/* A registration that counts during the call, also while others of its memory end. NULL: return
 * *result; the memory is not the program's, or there is none for a record. */
static ga_cuda_registration *begin_registration(const void *comm, const void *start, size_t size,
                                                int *result)
{
    ga_cuda_registration *made = ga_cuda_registration_new(comm, start, size);
    end_late(comm);
    *result = made ? INVALID_ARGUMENT : SYSTEM_ERROR;
    if (made && size && ga_cuda_registration_is_of_free_memory(made)) {
        ga_cuda_registration_end(made);
        made = NULL;
    }
    return made;
}

/* NCCL returns no handle if it does not register on this machine. */
int ncclCommRegister(const void *comm, void *start, size_t size, void **handle)
{
    register_fn *next = NEXT(register_fn, ncclCommRegister);
    if (!next) {
        return INVALID_USAGE;
    }
    int result;
    ga_cuda_registration *made = begin_registration(comm, start, size, &result);
    if (!made) {
        return result;
    }
    result = next(comm, start, size, handle);
    if (result == SUCCESS && handle && *handle) {
        ga_cuda_registration_made(made, *handle);
    } else {
        ga_cuda_registration_end(made);
    }
    return result;
}

int ncclCommDeregister(const void *comm, void *handle)
{
    deregister_fn *next = NEXT(deregister_fn, ncclCommDeregister);
    if (!next) {
        return INVALID_USAGE;
    }
    end_late(comm);
    ga_cuda_registration *taken = ga_cuda_registration_take(comm, handle);
    return finish(taken, next(comm, handle));
}

/* True if NCCL may register the window after the call. A communicator that does not block reports
 * success then. */
static bool comes_later(comm_error_fn *get_error, void *comm, int result)
{
    int state = SUCCESS;
    if (result != SUCCESS || group_depth) {
        return result == SUCCESS || result == IN_PROGRESS;
    }
    return get_error && get_error(comm, &state) == SUCCESS && state == IN_PROGRESS;
}

/* The window has its handle later. */
static void add_later(ga_cuda_registration *made, pending *later, void **window)
{
    uint64_t number = ga_cuda_registration_made(made, NULL);
    if (group_depth) {
        *later = (pending){number, window, pending_windows};
        pending_windows = later;
    } else {
        ga_cuda_registration_await(number, window);
        ga_libc.free(later);
    }
}

static void add_window(ga_cuda_registration *made, pending *later, void **window, bool is_later)
{
    void *handle = __atomic_load_n(window, __ATOMIC_RELAXED); /* relaxed: an address */
    if (!handle && is_later) {
        add_later(made, later, window);
        return;
    }
    if (handle) {
        ga_cuda_registration_made(made, handle);
    } else {
        ga_cuda_registration_end(made);
    }
    ga_libc.free(later);
}

int ncclCommWindowRegister(void *comm, void *start, size_t size, void **window, int flags)
{
    window_register_fn *next = NEXT(window_register_fn, ncclCommWindowRegister);
    if (!next || !window) {
        return next ? next(comm, start, size, window, flags) : INVALID_USAGE;
    }
    int result = SYSTEM_ERROR;
    pending *later = ga_libc.malloc(sizeof *later);
    ga_cuda_registration *made = later ? begin_registration(comm, start, size, &result) : NULL;
    if (!made) {
        ga_libc.free(later);
        return result;
    }
    *window = NULL; /* as NCCL does, before anything can fail */
    result = next(comm, start, size, window, flags);
    comm_error_fn *get_error = NEXT(comm_error_fn, ncclCommGetAsyncError);
    add_window(made, later, window, comes_later(get_error, comm, result));
    return result;
}

int ncclCommWindowDeregister(void *comm, void *window)
{
    window_deregister_fn *next = NEXT(window_deregister_fn, ncclCommWindowDeregister);
    if (!next) {
        return INVALID_USAGE;
    }
    end_late(comm);
    ga_cuda_registration *taken = ga_cuda_registration_take(comm, window);
    return finish(taken, next(comm, window));
}

/* ---- communicators ----------------------------------------------------------------------- */

/* After an error the communicator exists: NCCL refuses one that has an operation in progress. */
static int end_communicator(comm_fn *next, void *comm)
{
    if (!next) {
        return INVALID_USAGE;
    }
    ga_cuda_registration *taken = ga_cuda_registration_take_all(comm);
    int result = next(comm);
    if (result == SUCCESS && group_depth) {
        pending_ends = ga_cuda_registration_join(taken, pending_ends);
        return result;
    }
    return finish(taken, result);
}

int ncclCommDestroy(void *comm)
{
    return end_communicator(NEXT(comm_fn, ncclCommDestroy), comm);
}

int ncclCommAbort(void *comm)
{
    return end_communicator(NEXT(comm_fn, ncclCommAbort), comm);
}

/* Ends nothing: frees may wait for the device, but a program calls this when its work does not
 * end, to abort the communicator then. */
int ncclCommGetAsyncError(void *comm, int *error)
{
    comm_error_fn *next = NEXT(comm_error_fn, ncclCommGetAsyncError);
    uint64_t begun = ga_cuda_registration_begun();
    int result = next ? next(comm, error) : INVALID_USAGE;
    if (result == SUCCESS && *error != IN_PROGRESS) {
        ga_cuda_registration_settle(comm, begun);
    }
    return result;
}
