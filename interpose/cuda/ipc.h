/* SPDX-License-Identifier: MIT
 *
 * Legacy IPC for a heap's blocks (ipc=handle). The 64-byte handle that the program sends to another
 * process names this process and the block; the preload in that process requests the memory here.
 * Thread safe.
 */
#ifndef GPUALLOC_INTERPOSE_CUDA_IPC_H
#define GPUALLOC_INTERPOSE_CUDA_IPC_H

#include "blocks.h"

/* CUipcMemHandle; the driver takes it by value. */
typedef struct ga_cuda_ipc_bytes {
    char bytes[64];
} ga_cuda_ipc_bytes;

/* Call before a block is freed. Its handle opens no more; processes that have it open keep the
 * memory. */
void ga_cuda_ipc_freed(CUdeviceptr start);

/* Find the imported block that holds the address. */
bool ga_cuda_ipc_find(CUdeviceptr address, ga_cuda_block *out);

/* Before a device's primary context is destroyed: drop its exports, and unmap its imports. */
void ga_cuda_ipc_reset(int device);

/* Unmap imports whose unmapping was deferred: they were closed during a capture, or the driver
 * refused. */
void ga_cuda_ipc_unmap_deferred(void);

/* Around fork(2). */
void ga_cuda_ipc_lock(void);
void ga_cuda_ipc_unlock(void);
void ga_cuda_ipc_child(void);

#endif
