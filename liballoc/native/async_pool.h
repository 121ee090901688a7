/* SPDX-License-Identifier: MIT
 *
 * The driver's memory pools, for the `async` backend. A pool is made once and then kept: where
 * pools are destroyed while other threads allocate on a stream in common, driver 580 deadlocks or
 * crashes (docs/device.md has the experiment).
 *
 * Thread safe. `scope` is of the pool's device.
 */
#ifndef GPUALLOC_NATIVE_ASYNC_POOL_H
#define GPUALLOC_NATIVE_ASYNC_POOL_H

#include "../platform/cuda_driver.h"

/* An empty pool of `device`: one that was left, or a new one. GA_ERR_DEVICE where the device has
 * no pools or the driver refuses. */
ga_status ga_async_pool_take(const ga_cuda_scope *scope, int device, CUmemoryPool *out);

/* Leave a pool to the next who takes one, with its free memory given back. One that still has live
 * blocks stays theirs for ever. */
void ga_async_pool_leave(const ga_cuda_scope *scope, int device, CUmemoryPool pool);

/* The pool of a heap of the `async` backend, by its state. */
CUmemoryPool ga_async_backend_pool(void *state);

#endif
