/* SPDX-License-Identifier: MIT
 *
 * Device memory in the forms that frameworks with caches of their own take allocators in:
 *
 *   PyTorch  torch.cuda.memory.CUDAPluggableAllocator("libgpualloc.so.0", "ga_torch_alloc",
 *            "ga_torch_free"), and the optional functions by their addresses
 *   CuPy     cupy.cuda.PythonFunctionAllocator that calls ga_framework_alloc and ga_framework_free by
 *            ctypes; or CFunctionAllocator with the addresses of ga_cupy_malloc and ga_cupy_free, which
 *            does not test for NULL
 *   Numba    a cuda.HostOnlyCUDAMemoryManager that calls ga_cupy_malloc and ga_cupy_free by ctypes
 *
 * examples/frameworks has one of each. Frameworks of C++ have gpualloc/cccl.hpp and
 * gpualloc/rmm.hpp.
 *
 * There is one heap for each device, opened by the first request from GPUALLOC_DEVICE, and open
 * until the process ends. A request that fails returns NULL, with the reason in ga_error_text();
 * ga_torch_alloc() throws where PyTorch would not see a NULL. A pointer that is no block of these
 * heaps is logged and otherwise ignored. In the child of a fork() all requests fail. Every function
 * is thread safe.
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

/* The heap of a device, opened if need be. It belongs to the library. NULL with a sentence where it
 * cannot be opened: then every request there fails, and is not tried again. */
GA_API ga_heap *ga_framework_heap(int device);

/* A block in the order of a stream, for frameworks that test for NULL; and its free, as
 * ga_torch_free(). */
GA_API void *ga_framework_alloc(size_t size, int device, ga_stream stream);
GA_API void ga_framework_free(void *block, size_t size, int device, ga_stream stream);

/* ---- PyTorch ----------------------------------------------------------------------------------
 */

/* A block that work put on `stream` after the call may use; in stream order where the heap has one,
 * else at once, on every stream.
 *
 * A request that fails under change_current_allocator(), and in a subclass of
 * CUDAPluggableAllocator, throws: c10::OutOfMemoryError, which Python sees as
 * torch.OutOfMemoryError, where there is no memory, and c10::Error otherwise. (PyTorch does not test
 * what a plug-in returns there.) In a MemPool, where PyTorch does, and in a process without PyTorch,
 * it returns NULL. */
GA_API void *ga_torch_alloc(ssize_t size, int device, ga_stream stream);

/* Free it once the work is done that is now on `stream`, and on the streams that ga_torch_record_stream()
 * was told of, which have to be there yet. Waits for nothing where the heap has stream order (`vmm`,
 * `async`), but for a stream of another device; else, and for threads' default streams, for the
 * device. `size` as it was asked for. */
GA_API void ga_torch_free(void *block, ssize_t size, int device, ga_stream stream);

/* The optional functions: set_init_fn, set_reset_fn, set_memory_fraction_fn, set_base_alloc_fn and
 * set_record_stream_fn. */

/* Does nothing yet: heaps are opened by the first request. */
GA_API void ga_torch_init(int device_count);

/* torch.cuda.empty_cache(): gives free memory of all heaps back to the driver. */
GA_API void ga_torch_reset(void);

/* No more than this part of the device's memory, from 0 to 1, is handed out there from now on. */
GA_API void ga_torch_memory_fraction(double fraction, int device);

/* Where a block begins and how many bytes may be used; a block of ours begins where it begins. */
GA_API void *ga_torch_base_alloc(void *block, size_t *size);

/* Another stream uses the block, too. Its work is looked at when the block is freed. */
GA_API void ga_torch_record_stream(void *block, ga_stream stream);

/* ---- CuPy, and whoever has no streams ---------------------------------------------------------
 */

/* A block that may be used at once, on every stream. `heap`: NULL for the device's, or one of the
 * caller's, a ga_heap. */
GA_API void *ga_cupy_malloc(void *heap, size_t size, int device);

/* Free it, once all work on the device is done, unless the spec says otherwise (free=now). A heap
 * of the caller's is handed the block as it is: ga_free(). */
GA_API void ga_cupy_free(void *heap, void *block, int device);

#ifdef __cplusplus
}
#endif
#endif
