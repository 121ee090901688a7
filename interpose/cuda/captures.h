/* SPDX-License-Identifier: MIT
 *
 * Stream captures in progress. A capture forbids driver calls that a heap may have to make. So
 * while any stream captures, the driver serves all requests, and frees of a heap's blocks are
 * deferred until no stream captures. Thread safe.
 */
#ifndef GPUALLOC_INTERPOSE_CUDA_CAPTURES_H
#define GPUALLOC_INTERPOSE_CUDA_CAPTURES_H

#include "blocks.h"

/* True if any stream captures. */
bool ga_cuda_capturing(void);

/* Hold off new captures while making calls that a capture forbids. False: a stream captures
 * already. Waits while a capture begins; a thread must not nest it. */
bool ga_cuda_captures_hold_off(void);
void ga_cuda_captures_allow(void);

/* Defer the free of a removed block until no stream captures. The list uses the memory of the
 * block's record. */
void ga_cuda_defer_free(ga_cuda_block *block);

/* True if the free of a block that starts there is deferred: the program may not use it, and the
 * heap does not reuse it yet. */
bool ga_cuda_is_deferred(CUdeviceptr start);

/* Take one deferred block off the list, with its record. False: there is none. */
bool ga_cuda_pop_deferred(ga_cuda_block *out);

/* Forget the captures in a context that was destroyed. */
void ga_cuda_captures_end(CUcontext context);

/* Around fork(2). */
void ga_cuda_captures_lock(void);
void ga_cuda_captures_unlock(void);
void ga_cuda_captures_child(void);

#endif
