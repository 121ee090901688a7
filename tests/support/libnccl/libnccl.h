/* SPDX-License-Identifier: MIT
 *
 * A libnccl.so.2 for tests of the preload: memory and registrations, with the driver calls that
 * NCCL 2.28 makes for them. A communicator is only a name. The older one, NCCL 2.26, has no
 * windows.
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
    X(group_start, ncclGroupStart, (void))                                                         \
    X(group_end, ncclGroupEnd, (void))
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
 * windows. For ncclCommWindowRegister, NCCL_IN_PROGRESS and NCCL_SUCCESS give no window. */
typedef void nccl_stand_in_fail_fn(const char *symbol, int result);
/* Calls of that function that arrived here. */
typedef int nccl_stand_in_calls_fn(const char *symbol);

#endif
