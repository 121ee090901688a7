/* SPDX-License-Identifier: MIT
 *
 * What GPUALLOC_DEVICE says to the preload: a spec, whose first layer may have three options more.
 *
 *   free=sync   cuMemFree() waits for the device, as the driver's does (the default)
 *   free=event  it does not: the block is used again once all work is done that is now on streams of
 *               the device; of `async`, and by drivers before CUDA 12.5, on those that wait for the
 *               legacy default stream, and work on others is the program's affair
 *   free=order  it does not, and nor does cuMemAlloc(): a block is used again at once, by work that
 *               comes after the free in the order of the legacy default stream
 *   limit=SIZE  the program may have so many bytes, and is told that the device has no more
 *   ipc=compat  cuMemAlloc() is the driver's, so that cuIpcGetMemHandle() takes its blocks
 *   ipc=handle  heaps over vmm make memory that other processes can map, and cuIpcGetMemHandle()
 *               gives them to those under this preload; for other heaps as compat
 *   ipc=none    it is the heap's
 *   ipc=auto    handle for heaps over vmm whose device can do that, else none (the default)
 *   pinned=SIZE so many bytes of pinned host memory that the program has freed are kept for it;
 *               none by default
 */
#ifndef GPUALLOC_INTERPOSE_CUDA_SETTINGS_H
#define GPUALLOC_INTERPOSE_CUDA_SETTINGS_H

#include "../../liballoc/runtime/spec.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum ga_cuda_ipc {
    GA_CUDA_IPC_AUTO = 0,
    GA_CUDA_IPC_NONE,
    GA_CUDA_IPC_COMPAT,
    GA_CUDA_IPC_HANDLE
} ga_cuda_ipc;

/* What cuMemFree() waits for. */
typedef enum ga_cuda_free {
    GA_CUDA_FREE_SYNC = 0,
    GA_CUDA_FREE_EVENT,
    GA_CUDA_FREE_ORDER
} ga_cuda_free;

typedef struct ga_cuda_settings {
    char spec[GA_SPEC_LENGTH]; /* without the options above, as far as the layer has none such;
                                  vmm's with cache=wide (0 under PyTorch's cache), rdma=auto and a share= for ipc=, unless told */
    uint64_t limit;            /* UINT64_MAX: none */
    uint64_t pinned;           /* 0: none */
    ga_cuda_free free;
    ga_cuda_ipc ipc;
} ga_cuda_settings;

/* GA_ERR_SPEC: the text does not parse, or a value is none of the above. What else may be wrong
 * with it shows when it is opened. */
ga_status ga_cuda_settings_read(ga_cuda_settings *out, const char *text);

#endif
