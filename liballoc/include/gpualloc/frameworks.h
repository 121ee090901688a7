/* SPDX-License-Identifier: MIT
 *
 * Device memory for frameworks with caches of their own, in the forms in which they accept
 * allocators:
 *
 *   PyTorch  torch.cuda.memory.CUDAPluggableAllocator("libgpualloc.so.0", "ga_torch_alloc",
 *            "ga_torch_free"), and the optional functions by their addresses
 *   CuPy     cupy.cuda.PythonFunctionAllocator that calls ga_framework_alloc and ga_framework_free
 *            by ctypes; or CFunctionAllocator with the addresses of ga_cupy_malloc and
 *            ga_cupy_free, which does not test for NULL
 *   Numba    a cuda.HostOnlyCUDAMemoryManager that calls ga_cupy_malloc and ga_cupy_free by ctypes
 *
 * examples/frameworks has one of each. C++ frameworks use gpualloc/cccl.hpp and gpualloc/rmm.hpp.
 *
 * Each device has one heap, opened by the first request, with the spec of ga_framework_choose() or
 * that of GPUALLOC_DEVICE, and never closed. A request that fails returns NULL, with the reason in
 * ga_error_text(); ga_torch_alloc() throws if PyTorch would not test for NULL. A pointer that is no
 * block of these heaps is logged and otherwise ignored. In the child of a fork() all requests fail.
 * Sizes are in bytes. All functions are thread safe.
 *
 * Compiles alone as C11, C++17 and under nvcc.
 */
#ifndef GPUALLOC_FRAMEWORKS_H
#define GPUALLOC_FRAMEWORKS_H

#include <gpualloc/gpualloc.h>

#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Set the spec of the heaps that are not open yet, instead of GPUALLOC_DEVICE. CUDA is not started.
 * NULL: use GPUALLOC_DEVICE again, whichever heaps are open.
 *
 * GA_ERR_SPEC  a heap is open with a spec that is written differently
 * else         as ga_heap_check() */
GA_API ga_status ga_framework_choose(const char *spec);

/* The heap of a device, opened at the first call. Owned by the library. NULL if it cannot be
 * opened, with the reason in ga_error_text(), which is ga_heap_open()'s; then every request on that
 * device fails with it, and opening is not tried again. */
GA_API ga_heap *ga_framework_heap(int device);

/* Bound the requested bytes of all live blocks on a device; UINT64_MAX: no bound, as before the
 * first call. Requests above it fail with GA_ERR_MEMORY. Does not open the heap.
 *
 * GA_ERR_DEVICE  there can be no such device
 * else           the heap could not be opened: the error of that */
GA_API ga_status ga_framework_limit(int device, uint64_t bytes);

/* The statistics of a device's heap; zeros if no request has opened it, which this does not. Errors
 * as ga_framework_limit(). */
GA_API ga_status ga_framework_stats(int device, ga_stats *out);

typedef struct ga_framework_block {
    void *address;
    size_t size; /* usable bytes */
} ga_framework_block;

/* List the live blocks of a device's heap. `*count`: the size of the array; afterwards the number
 * of live blocks, of which the array has the first. None if no request has opened the heap, which
 * this does not. Errors as ga_heap_each_live(), and those of ga_framework_limit(). */
GA_API ga_status ga_framework_blocks(int device, ga_framework_block *blocks, size_t *count);

/* ga_framework_alloc(): as ga_torch_alloc(), but a failed request always returns NULL.
 * ga_framework_free(): as ga_torch_free(). */
GA_API void *ga_framework_alloc(size_t size, int device, ga_stream stream);
GA_API void ga_framework_free(void *block, size_t size, int device, ga_stream stream);

/* ---- PyTorch ------------------------------------------------------------------------------ */

/* Allocate a block for work that is enqueued on `stream` after the call: in stream order if the
 * heap has it, else usable at once on every stream.
 *
 * A failed request throws under change_current_allocator() and in a subclass of
 * CUDAPluggableAllocator, because PyTorch does not test the result of a plug-in there:
 * c10::OutOfMemoryError if there is no memory, which Python sees as torch.OutOfMemoryError, and
 * c10::Error otherwise. In a MemPool, where PyTorch tests the result, and in a process without
 * PyTorch, it returns NULL. */
GA_API void *ga_torch_alloc(ssize_t size, int device, ga_stream stream);

/* Free a block after the work that is now on `stream`, and on the streams passed to
 * ga_torch_record_stream(), which must still exist. With stream order (`vmm`, `async`) the call
 * does not wait, except for a stream of another device. Without it, and for threads' default
 * streams, the call waits for the work on these streams or on the device. `size`: the requested
 * size. */
GA_API void ga_torch_free(void *block, ssize_t size, int device, ga_stream stream);

/* The optional functions, for set_init_fn, set_reset_fn, set_memory_fraction_fn, set_base_alloc_fn
 * and set_record_stream_fn. */

/* Does nothing, because the first request opens a heap. */
GA_API void ga_torch_init(int device_count);

/* For torch.cuda.empty_cache(): trims all heaps to give free memory back to the driver. */
GA_API void ga_torch_reset(void);

/* Limit the memory in use on a device to this fraction of its total, from 0 to 1. Requests above it
 * fail with GA_ERR_MEMORY. */
GA_API void ga_torch_memory_fraction(double fraction, int device);

/* Returns `block`, which is the start of its allocation, and its usable bytes in `*size`; 0 if it
 * is not a block of these heaps. */
GA_API void *ga_torch_base_alloc(void *block, size_t *size);

/* Record that another stream uses the block, too. Its free then also waits, in stream order, for
 * the work that is on that stream at the time of the free. */
GA_API void ga_torch_record_stream(void *block, ga_stream stream);

/* ---- CuPy, and frameworks without streams ------------------------------------------------- */

/* Allocate a block that may be used at once on every stream; NULL on failure. `heap`: NULL for the
 * device's heap, or a ga_heap of the caller. */
GA_API void *ga_cupy_malloc(void *heap, size_t size, int device);

/* Free a block after all work on the device, unless the spec says otherwise (free=now). With a heap
 * of the caller it is ga_free(). */
GA_API void ga_cupy_free(void *heap, void *block, int device);

#ifdef __cplusplus
}
#endif
#endif
