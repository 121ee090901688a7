/* SPDX-License-Identifier: MIT
 *
 * Legacy IPC of blocks that are a heap's (ipc=handle): the 64 bytes that the program sends to
 * another process name this one and the block, and the preload there asks here for the memory.
 * Thread safe.
 */
#ifndef GPUALLOC_INTERPOSE_CUDA_IPC_H
#define GPUALLOC_INTERPOSE_CUDA_IPC_H

#include "blocks.h"

/* CUipcMemHandle, which is passed by value. */
typedef struct ga_cuda_ipc_bytes {
    char bytes[64];
} ga_cuda_ipc_bytes;

/* The block is freed: others that have it keep it, nobody gets it any more. */
void ga_cuda_ipc_freed(CUdeviceptr start);

/* The block of another process's that holds the address. */
bool ga_cuda_ipc_find(CUdeviceptr address, ga_cuda_block *out);

/* The primary context of the device goes: so does what was given away and mapped there. */
void ga_cuda_ipc_reset(int device);

/* Unmap what was closed during a capture, now that no stream captures; and what the driver would not
 * take back before. */
void ga_cuda_ipc_put_off(void);

/* Around fork(2). */
void ga_cuda_ipc_lock(void);
void ga_cuda_ipc_unlock(void);
void ga_cuda_ipc_child(void);

#endif
