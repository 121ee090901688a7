/* SPDX-License-Identifier: MIT
 *
 * The heaps that serve CUDA programs: one per device, in its primary context, opened by the first
 * request there. If GPUALLOC_DEVICE names no spec, the driver serves everything. Thread safe.
 */
#ifndef GPUALLOC_INTERPOSE_CUDA_SERVED_H
#define GPUALLOC_INTERPOSE_CUDA_SERVED_H

#include "../../liballoc/backends/vmm/share.h"
#include "blocks.h"

#include <gpualloc/gpualloc.h>

typedef struct ga_cuda_device ga_cuda_device;

/* The device of the current context, locked shared, so that its heap stays open until it is
 * released. A thread holds at most one. */
typedef struct ga_cuda_device_ref {
    ga_cuda_device *device;
    CUcontext context;
    int ordinal;
} ga_cuda_device_ref;

/* Acquire the device of the current context. False: nothing is served there. Then no context is
 * current or not its device's primary one, no spec is named, or the heap could not be opened, which
 * was logged once. */
bool ga_cuda_acquire_current(ga_cuda_device_ref *ref);
void ga_cuda_release_current(const ga_cuda_device_ref *ref);

/* Valid until the device is released. */
ga_heap *ga_cuda_heap(const ga_cuda_device_ref *ref);

/* The bytes that the heap holds beyond its live blocks. */
uint64_t ga_cuda_cached(const ga_cuda_device_ref *ref);

/* True if the heap serves requests without a stream, or with one. */
bool ga_cuda_serves(const ga_cuda_device_ref *ref);
bool ga_cuda_serves_streams(const ga_cuda_device_ref *ref);

/* The bytes that the program is known to have, and their limit; UINT64_MAX: no limit, or no spec is
 * named. */
uint64_t ga_cuda_used(const ga_cuda_device_ref *ref);
uint64_t ga_cuda_limit(void);

/* The bytes of freed pinned memory to cache; 0: none, or no spec is named. */
uint64_t ga_cuda_pinned_limit(void);

/* Allocate from the heap. `stream`: NULL for none. CUDA_ERROR_OUT_OF_MEMORY: even after freeing the
 * caches. CUDA_ERROR_NOT_SUPPORTED: the caller asks the driver. */
CUresult ga_cuda_heap_alloc(const ga_cuda_device_ref *ref, size_t size, const CUstream *stream,
                            CUdeviceptr *out);

/* Count bytes that the driver is to allocate against the limit, and take them back if it does not.
 * False: the limit forbids it. */
bool ga_cuda_charge(const ga_cuda_device_ref *ref, size_t size);
void ga_cuda_uncharge(const ga_cuda_device_ref *ref, size_t size);

/* For devices that are not acquired: count bytes in a device's primary context, or bytes that
 * outlive it, and take them back. False: the limit forbids it. */
bool ga_cuda_is_device(int device);
bool ga_cuda_charge_on(int device, uint64_t size);
void ga_cuda_uncharge_on(int device, uint64_t size);
bool ga_cuda_charge_outside(int device, uint64_t size);
void ga_cuda_uncharge_outside(int device, uint64_t size);

/* The record of a block that the driver is to allocate, for ga_cuda_blocks_new_record() and
 * ga_cuda_blocks_insert(). */
ga_cuda_block ga_cuda_driver_record(const ga_cuda_device_ref *ref, size_t size);

/* Free a block that was removed from the set; `stream`: NULL for none. On an error the block is in
 * the set again. CUDA_ERROR_NOT_SUPPORTED: the driver is to free it, and
 * ga_cuda_finish_driver_free() takes its result. */
CUresult ga_cuda_heap_free(ga_cuda_block *block, const CUstream *stream);
void ga_cuda_finish_driver_free(ga_cuda_block *block, CUresult result);

/* The memory behind a live block, for export to other processes (ipc=handle).
 * CUDA_ERROR_NOT_SUPPORTED: the settings or the heap exclude it. CUDA_ERROR_OUT_OF_MEMORY: no
 * descriptors, for example. */
CUresult ga_cuda_share(const ga_cuda_block *block, ga_vmm_pieces *out);

/* True if cuIpcGetMemHandle() returns a handle for this live block of a heap's. */
bool ga_cuda_can_share(const ga_cuda_block *block);

/* True if a heap that maps its memory has reserved the address, whether for a live block or not.
 * The program may not map, unmap or retain memory there. */
bool ga_cuda_is_reserved(CUdeviceptr address);

/* True if the address, at which no live block starts, is in memory that a heap got from the driver
 * in larger blocks. The driver could take a free of it for a free of such a block. */
bool ga_cuda_is_heap_memory(CUdeviceptr address);

/* The heap's part of the statistics of its device's default pool: bytes of blocks requested with a
 * stream, these with the heap's caches, and high marks. `reserved_high` is the highest value at a
 * query. False: the driver serves such requests, or no heap is open. */
typedef struct ga_cuda_pool_stats {
    uint64_t used, used_high, reserved, reserved_high;
} ga_cuda_pool_stats;

bool ga_cuda_pool_stats_of(int device, ga_cuda_pool_stats *out);
void ga_cuda_pool_reset_high(int device, bool used);

/* As cuMemPoolTrimTo(): free cached memory until `keep` bytes, used ones included, are left. */
void ga_cuda_pool_trim(int device, size_t keep);

/* Set the current pool of a device; NULL: the default pool. A destroyed pool is current no more. */
void ga_cuda_pool_set(int device, CUmemoryPool pool);
void ga_cuda_pool_destroyed(CUmemoryPool pool);
bool ga_cuda_uses_other_pool(const ga_cuda_device_ref *ref);

/* Free the caches of the current device's heap to the driver, without or with the device acquired.
 * False: there is no heap, or a capture forbids it. */
bool ga_cuda_served_trim(void);
bool ga_cuda_trim(const ga_cuda_device_ref *ref);

/* Before a capture begins: store the statistics that calls during the capture report, because heaps
 * may not be asked then. */
void ga_cuda_served_before_capture(void);

/* Wait until all devices that are acquired now were released. */
void ga_cuda_served_barrier(void);

/* Run the deferred frees, unless a stream captures. A free that the driver refuses stays
 * deferred. */
void ga_cuda_served_free_deferred(void);

/* Before a device's primary context is destroyed: close its heap, and free all its blocks. */
void ga_cuda_served_reset(CUdevice device);

/* Let the current context's device, or `peer`, access the memory of the owner's device, or of
 * `device`. If its heap cannot, the driver serves that device from now on. */
void ga_cuda_served_enable_peer_of(CUcontext owner);
void ga_cuda_served_enable_peer(int device, int peer);

#endif
