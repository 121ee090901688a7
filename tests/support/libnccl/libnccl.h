/* SPDX-License-Identifier: MIT
 *
 * A libnccl.so.2 for tests of the preload: memory and registrations, with the driver calls that
 * NCCL 2.28 makes for them. A communicator is only a name; either all block, or none. The older
 * one, NCCL 2.26, has no windows.
 */
#ifndef GPUALLOC_TESTS_SUPPORT_LIBNCCL_H
#define GPUALLOC_TESTS_SUPPORT_LIBNCCL_H

#include <stddef.h>

/* X(member, symbol, parameters) */
/* clang-format off */
#define NCCL_FUNCTIONS(X)                                                                          \
    X(alloc, ncclMemAlloc, (void **block, size_t size))                                            \
    X(free, ncclMemFree, (void *block))                                                            \
    X(enroll, ncclCommRegister, (const void *comm, void *start, size_t size, void **handle))       \
    X(expel, ncclCommDeregister, (const void *comm, void *handle))                                 \
    X(window, ncclCommWindowRegister,                                                              \
      (void *comm, void *start, size_t size, void **window, int flags))                            \
    X(end_window, ncclCommWindowDeregister, (void *comm, void *window))                            \
    X(destroy, ncclCommDestroy, (void *comm))                                                      \
    X(abort, ncclCommAbort, (void *comm))                                                          \
    X(get_error, ncclCommGetAsyncError, (void *comm, int *error))                                  \
    X(group_start, ncclGroupStart, (void))                                                         \
    X(group_end, ncclGroupEnd, (void))                                                             \
    X(group_simulate_end, ncclGroupSimulateEnd, (void *info))
/* clang-format on */

/* Results. */
enum {
    NCCL_SUCCESS = 0,
    NCCL_CUDA_ERROR = 1,
    NCCL_SYSTEM_ERROR = 2,
    NCCL_INVALID_ARGUMENT = 4,
    NCCL_INVALID_USAGE = 5,
    NCCL_IN_PROGRESS = 7
};

/* The next call of that function returns `result`, and does nothing; ncclGroupEnd drops the group's
 * windows and keeps its communicators. For ncclCommWindowRegister, NCCL_IN_PROGRESS and
 * NCCL_SUCCESS give no window. */
typedef void nccl_stand_in_fail_fn(const char *symbol, int result);
/* Communicators block, as they do at first, or not. Those that do not register windows when
 * nccl_stand_in_proceed() is called; ncclCommGetAsyncError() returns its argument from then on. */
typedef void nccl_stand_in_block_fn(int blocks);
typedef void nccl_stand_in_proceed_fn(int result);
/* The next ncclCommRegister() or ncclCommWindowRegister() makes this call before it does anything,
 * and the next ncclCommGetAsyncError() after its answer, before it returns. */
typedef void nccl_stand_in_during_fn(const char *symbol, void (*call)(void));
/* Calls of that function that arrived here. */
typedef int nccl_stand_in_calls_fn(const char *symbol);

#endif
