/* SPDX-License-Identifier: MIT
 *
 * The heaps that serve CUDA programs: one for each device, in its primary context, opened by the
 * first request there. Until GPUALLOC_DEVICE names a spec, all is the driver's. Thread safe.
 */
#ifndef GPUALLOC_INTERPOSE_CUDA_SERVED_H
#define GPUALLOC_INTERPOSE_CUDA_SERVED_H

#include "../../liballoc/arena/vmm_share.h"
#include "blocks.h"

#include <gpualloc/gpualloc.h>

typedef struct ga_cuda_device ga_cuda_device;

/* A visit to the device of the context that is current: its heap stays until the visit ends. A
 * thread makes one at a time. */
typedef struct ga_cuda_visit {
    ga_cuda_device *device;
    CUcontext context;
    int ordinal;
} ga_cuda_visit;

/* False: nothing is served here. The context is not its device's primary one, or there is none; no
 * spec is named; the heap could not be opened, which was logged once. */
bool ga_cuda_enter_current(ga_cuda_visit *visit);
void ga_cuda_leave_current(const ga_cuda_visit *visit);

/* The heap, for the length of a visit. */
ga_heap *ga_cuda_heap(const ga_cuda_visit *visit);

/* The bytes that it holds and no block has. */
uint64_t ga_cuda_cached(const ga_cuda_visit *visit);

/* Whether requests without a stream, and those with one, are the heap's at all. */
bool ga_cuda_serves(const ga_cuda_visit *visit);
bool ga_cuda_serves_streams(const ga_cuda_visit *visit);

/* The bytes that the program has, as far as we know, and how many there may be; UINT64_MAX: no limit,
 * or no spec is named. */
uint64_t ga_cuda_used(const ga_cuda_visit *visit);
uint64_t ga_cuda_limit(void);

/* The bytes of pinned memory to keep; 0: none, or no spec is named. */
uint64_t ga_cuda_pinned_limit(void);

/* A block of the heap. CUDA_ERROR_OUT_OF_MEMORY: also after all caches were given back.
 * CUDA_ERROR_NOT_SUPPORTED: ask the driver. `stream`: NULL for none. */
CUresult ga_cuda_take(const ga_cuda_visit *visit, size_t size, const CUstream *stream,
                      CUdeviceptr *out);

/* Count a block that the driver is to serve; give the bytes back where it does not. */
bool ga_cuda_reserve(const ga_cuda_visit *visit, size_t size);
void ga_cuda_unreserve(const ga_cuda_visit *visit, size_t size);

/* Bytes of a device's that no visit asks for: of its primary context, and outside of all contexts.
 * False: the limit forbids it. */
bool ga_cuda_is_device(int device);
bool ga_cuda_reserve_on(int device, uint64_t size);
void ga_cuda_release_on(int device, uint64_t size);
bool ga_cuda_reserve_outside(int device, uint64_t size);
void ga_cuda_release_outside(int device, uint64_t size);

/* The record of a block that the driver is to serve, for ga_cuda_blocks_reserve() and
 * ga_cuda_blocks_put(). */
ga_cuda_block ga_cuda_driver_block(const ga_cuda_visit *visit, size_t size);

/* Give back a block that was struck out; NULL for no stream. Where it fails, the block is noted
 * again. CUDA_ERROR_NOT_SUPPORTED: it is the driver's to free, see ga_cuda_driver_freed(). */
CUresult ga_cuda_give(ga_cuda_block *block, const CUstream *stream);
void ga_cuda_driver_freed(ga_cuda_block *block, CUresult result);

/* What a live block lies in, for other processes (ipc=handle). CUDA_ERROR_NOT_SUPPORTED: that is
 * not wanted, or its heap has no such memory. CUDA_ERROR_OUT_OF_MEMORY: no descriptors, say. */
CUresult ga_cuda_share(const ga_cuda_block *block, ga_vmm_pieces *out);

/* Whether cuIpcGetMemHandle() has a handle for a live block of a heap's. */
bool ga_cuda_can_share(const ga_cuda_block *block);

/* Whether an address lies in what a heap over vmm has reserved: a live block's, a free one's or
 * nobody's yet. The program has nothing to map, unmap or retain there. */
bool ga_cuda_reserves(CUdeviceptr address);

/* Whether an address that no live block starts at lies in memory of a heap's that has it from the
 * driver in larger blocks: freed there, it could be one of those. */
bool ga_cuda_holds(CUdeviceptr address);

/* What a heap says of the default pool of its device: bytes of blocks that were asked for with a
 * stream, with what the heap keeps, and the most there were. `reserved_high` is the most that was
 * seen when it was asked for. False: the driver serves those, or no heap is open. */
typedef struct ga_cuda_pool_stats {
    uint64_t used, used_high, reserved, reserved_high;
} ga_cuda_pool_stats;

bool ga_cuda_pool_stats_of(int device, ga_cuda_pool_stats *out);
void ga_cuda_pool_reset_high(int device, bool used);

/* As cuMemPoolTrimTo(): what is free, until `keep` bytes are left in all. */
void ga_cuda_pool_trim(int device, size_t keep);

/* The pool that is current on a device; NULL: the default one. One that is gone is no more. */
void ga_cuda_pool_set(int device, CUmemoryPool pool);
void ga_cuda_pool_gone(CUmemoryPool pool);
bool ga_cuda_pool_is_other(const ga_cuda_visit *visit);

/* Give the caches of the current device's heap back to the driver, outside a visit or within one.
 * False: it has none, or a capture forbids it. */
bool ga_cuda_served_trim(void);
bool ga_cuda_trim(const ga_cuda_visit *visit);

/* Take the figures that calls during a capture are answered with: heaps are not asked then. */
void ga_cuda_served_before_capture(void);

/* Until every visit that is under way has ended. */
void ga_cuda_served_barrier(void);

/* Free what was put off, now that no stream captures. What the driver refuses stays put off. */
void ga_cuda_served_put_off(void);

/* Before the primary context of a device goes: our heap there goes, and every block. */
void ga_cuda_served_reset(CUdevice device);

/* The device of the current context is to reach memory of the owner's from now on. A heap that
 * cannot let it serves no more: the driver does. */
void ga_cuda_served_peer(CUcontext owner);
void ga_cuda_served_admit(int device, int peer);

#endif
