/* SPDX-License-Identifier: MIT
 *
 * Captures under way. A capture forbids calls that our heaps may have to make, so that while there
 * is one anywhere, requests go to the driver as they would without us, and frees of our blocks are
 * put off until there is none. Thread safe.
 */
#ifndef GPUALLOC_INTERPOSE_CUDA_CAPTURES_H
#define GPUALLOC_INTERPOSE_CUDA_CAPTURES_H

#include "blocks.h"

/* Whether there is one. */
bool ga_cuda_capturing(void);

/* For calls that captures forbid: none begins until it is let go of. False: there is one. Blocks
 * while one begins; not twice in a thread. */
bool ga_cuda_captures_hold(void);
void ga_cuda_captures_let_go(void);

/* Keep a block that was taken out of its set, in the memory of its note, until there is none. */
void ga_cuda_put_off(ga_cuda_block *block);

/* Whether a block that starts there is kept: it is free to the program, though not yet to anybody.
 */
bool ga_cuda_is_put_off(CUdeviceptr start);

/* One that was kept, with its note; false: there is none left. */
bool ga_cuda_put_off_next(ga_cuda_block *out);

/* Forget the captures of a context that goes. */
void ga_cuda_captures_end(CUcontext context);

/* Around fork(2). */
void ga_cuda_captures_lock(void);
void ga_cuda_captures_unlock(void);
void ga_cuda_captures_child(void);

#endif
