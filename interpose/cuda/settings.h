/* SPDX-License-Identifier: MIT
 *
 * The settings in GPUALLOC_DEVICE: a spec, whose first layer may also have the preload's options.
 *
 *   free=sync   cuMemFree() waits for the device, as the driver's does (the default)
 *   free=event  cuMemFree() does not wait. The block is reused after all work that is now on
 *               streams of the device. With `async`, and with drivers before CUDA 12.5, only after
 *               work on streams that wait for the legacy default stream; the program orders other
 *               streams
 *   free=order  neither cuMemFree() nor cuMemAlloc() waits. A block is reused at once, by work that
 *               follows the free in the order of the legacy default stream
 *   limit=SIZE  the bytes that the program may have; cuMemGetInfo() reports no more
 *   ipc=compat  the driver serves cuMemAlloc(), so that cuIpcGetMemHandle() accepts the blocks
 *   ipc=handle  heaps over vmm allocate memory that other processes can map, and
 *               cuIpcGetMemHandle() exports it to processes under this preload; other heaps: compat
 *   ipc=none    the heap serves cuMemAlloc(), and its blocks cannot be exported
 *   ipc=auto    handle for heaps over vmm whose device supports it, else none (the default)
 *   pinned=SIZE bytes of freed pinned host memory to cache for the program; none by default
 */
#ifndef GPUALLOC_INTERPOSE_CUDA_SETTINGS_H
#define GPUALLOC_INTERPOSE_CUDA_SETTINGS_H

#include "../../liballoc/runtime/spec.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum ga_cuda_ipc_mode {
    GA_CUDA_IPC_AUTO = 0,
    GA_CUDA_IPC_NONE,
    GA_CUDA_IPC_COMPAT,
    GA_CUDA_IPC_HANDLE
} ga_cuda_ipc_mode;

/* When a block that was freed without a stream may be reused. */
typedef enum ga_cuda_free_mode {
    GA_CUDA_FREE_SYNC = 0,
    GA_CUDA_FREE_EVENT,
    GA_CUDA_FREE_ORDER
} ga_cuda_free_mode;

typedef struct ga_cuda_settings {
    char spec[GA_SPEC_LENGTH]; /* the heap's: without these options, with defaults */
    uint64_t limit;            /* UINT64_MAX: none */
    uint64_t pinned;           /* 0: none */
    ga_cuda_free_mode free;
    ga_cuda_ipc_mode ipc;
} ga_cuda_settings;

/* GA_ERR_SPEC: the text does not parse, or a value is not one of the above. Opening the heap finds
 * other errors. */
ga_status ga_cuda_settings_read(ga_cuda_settings *out, const char *text);

#endif
