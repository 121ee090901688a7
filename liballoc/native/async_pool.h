/* SPDX-License-Identifier: MIT
 *
 * The driver's memory pools, for the `async` backend. A pool is made once and then kept: where
 * pools are destroyed while other threads allocate on a stream in common, driver 580 deadlocks or
 * crashes (docs/internals/runtime.md has the experiment).
 *
 * Thread safe. `scope` is of the pool's device.
 */
#ifndef GPUALLOC_NATIVE_ASYNC_POOL_H
#define GPUALLOC_NATIVE_ASYNC_POOL_H

#include "../platform/cuda_driver.h"

/* A pool of the driver's, with the list entry for the time after its heap. */
typedef struct ga_async_pool {
    struct ga_async_pool *following;
    int device;
    CUmemoryPool pool;
} ga_async_pool;

/* An empty pool of `device`: one that was left, or a new one.
 *
 * GA_ERR_DEVICE  the device has no pools, or the driver refuses
 * GA_ERR_MEMORY  no memory for the entry */
ga_status ga_async_pool_take(const ga_cuda_scope *scope, int device, ga_async_pool **out);

/* Leave a pool to the next heap that takes one, with its free memory given back; what the driver
 * does not give back now, it does then. A pool with live blocks is not used again. `scope` is NULL
 * where the device cannot be entered. */
void ga_async_pool_leave(const ga_cuda_scope *scope, ga_async_pool *pool);

#endif
