/* SPDX-License-Identifier: MIT
 *
 * The driver's memory pools, for the `async` backend. A pool is made once and never destroyed:
 * driver 580 deadlocks or crashes if pools are destroyed while other threads allocate on a shared
 * stream (docs/internals/runtime.md has the experiment).
 *
 * Thread safe. `scope` must be of the pool's device.
 */
#ifndef GPUALLOC_NATIVE_ASYNC_POOL_H
#define GPUALLOC_NATIVE_ASYNC_POOL_H

#include "../../platform/cuda_driver.h"

/* A driver's pool, with its entry in the list of unused pools. */
typedef struct ga_async_pool {
    struct ga_async_pool *following;
    int device;
    CUmemoryPool pool;
} ga_async_pool;

/* An empty pool of `device`: an unused one or a new one. The caller owns it until it is returned.
 *
 * GA_ERR_DEVICE  the device has no pools, or the driver refuses
 * GA_ERR_MEMORY  no memory for the record */
ga_status ga_async_pool_claim(const ga_cuda_scope *scope, int device, ga_async_pool **out);

/* Return a pool for the next heap, and purge its free memory; memory that the driver does not
 * release now is released by a later purge. A pool with live blocks is not reused. `scope`: NULL if
 * the device cannot be entered. */
void ga_async_pool_return(const ga_cuda_scope *scope, ga_async_pool *pool);

#endif
