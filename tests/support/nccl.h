/* SPDX-License-Identifier: MIT
 *
 * A libnccl.so.2 for machines without GPUs, whose ranks are threads of one process and whose device
 * memory is memory of the host: with the driver of vmm_driver.h. Groups of messages are exchanged
 * when they end. The test finds these functions by dlsym().
 */
#ifndef GPUALLOC_TESTS_SUPPORT_NCCL_H
#define GPUALLOC_TESTS_SUPPORT_NCCL_H

#include <stdbool.h>
#include <stdint.h>

/* Makes communicators of that many ranks, on devices 0, 1, ... */
typedef void nccl_begin_fn(void **comms, uint32_t count);
/* Frees all communicators. */
typedef void nccl_end_fn(void);
/* Let the n-th call from now on of that rank (0: the next) fail with `error`, in a communicator
 * that was split off; n < 0: none. */
typedef void nccl_fail_fn(uint32_t rank, int n, int error);
/* The version that ncclGetVersion() says from now on, and what is wrong with windows. */
typedef enum nccl_fault {
    NCCL_NO_FAULT,
    NCCL_NO_MEMORY,     /* the next call of ncclMemAlloc() */
    NCCL_NO_WINDOW,     /* rank 1 has none */
    NCCL_WRONG_ADDRESS, /* rank 1 has an address of its own for each rank */
    NCCL_HOST_HANDLE    /* the handles are memory of the host */
} nccl_fault;
typedef void nccl_set_windows_fn(int version, nccl_fault fault);
/* Blocks of ncclMemAlloc() and windows that are not freed; windows so far. */
typedef int nccl_windows_fn(int *made);
/* Whether it is in a block of ncclMemAlloc(), or in a window, or its handle. */
typedef bool nccl_is_on_device_fn(const void *at);
/* As NCCL frees memory of devices, an abort waits until `waiting` is 0: for all work on them. Where
 * that lasts for 10 s, the program ends. NULL: it does not wait. */
typedef void nccl_set_waiting_fn(int (*waiting)(void));
/* Calls so far of that rank; communicators that were aborted. */
typedef int nccl_calls_fn(uint32_t rank);
typedef int nccl_aborts_fn(void);

#endif
