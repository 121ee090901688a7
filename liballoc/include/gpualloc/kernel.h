/* SPDX-License-Identifier: MIT
 *
 * In-kernel malloc served by gpualloc. If device code is compiled with -rdc=true and linked with
 * libgpualloc-kernel.a, its malloc, free, new and delete in kernels are replaced. With the flags of
 * `pkg-config --libs gpualloc-kernel` the heap opens at the first launch, and the program needs no
 * call of this header. docs/guide/kernels.md describes the ways to link.
 *
 * Each device of the process has one heap, shared by all modules: a kernel of a shared library may
 * free a block that a kernel of the program has allocated. The spec is that of ga_kernel_use(),
 * else of GPUALLOC_KERNEL, else the default for kernels. CUDA's own malloc (`cuda` in the place
 * `kernel`) is refused, because it would call itself.
 *
 * All functions are thread safe. None may be called from a constructor that runs before main(),
 * because they create CUDA's context.
 *
 * Compiles alone as C11, C++17 and under nvcc.
 */
#ifndef GPUALLOC_KERNEL_H
#define GPUALLOC_KERNEL_H

#include <gpualloc/gpualloc.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- in libgpualloc-kernel.a, for each program or shared library that is linked with it ------ */

/* Open the heap of the current device, unless it is open, and make it available to this module's
 * kernels. Only needed without the wrap flags. Call it after cudaSetDevice() for every device that
 * launches, before the first launch there, and again after cudaDeviceReset(). A call between
 * launches also lets a heap grow that cannot grow while kernels run.
 *
 * Waits only for its own copy to the device.
 *
 * GA_ERR_UNSUPPORTED  replacement is not active: the device link took nothing from the archive.
 *                     Either no kernel of this module calls malloc, or the archive has no code
 *                     for the architecture. Kernels use CUDA's own malloc.
 * GA_ERR_DEVICE       no device, or the context is not the device's primary one
 * else                as ga_heap_open(); malloc in kernels returns NULL */
ga_status ga_kernel_init(void) __attribute__((visibility("hidden")));

/* ---- in libgpualloc -------------------------------------------------------------------------- */

/* Set the spec of heaps that replace malloc and are opened from now on; it is copied. NULL: use
 * GPUALLOC_KERNEL again. An open heap stays as it is; a heap that could not be opened is tried
 * again. Call it before the first launch.
 *
 * GA_ERR_MEMORY  no memory for the copy */
GA_API ga_status ga_kernel_use(const char *spec);

/* The heap that serves malloc in kernels on `device`, for its statistics. Owned by the library.
 * NULL if it is not open. */
GA_API ga_heap *ga_kernel_serving(int device);

/* Close the heap that serves `device`, even if blocks are live, and release the device's context.
 * Without the wrap flags, call it before cudaDeviceReset(). No kernel may be running there. The
 * next launch or ga_kernel_init() opens a new heap. GA_OK if no heap is open. */
GA_API ga_status ga_kernel_close(int device);

/* Load the driver and GPUALLOC_PLUGINS, as ga_kernel_publish() does at its first call. That takes
 * the lock of the dynamic linker, under which constructors of libraries run, so call it before a
 * lock that a constructor may wait for is held over ga_kernel_publish(). */
GA_API void ga_kernel_prepare(void);

/* Open the heap of `device`, unless it is open, and write its view to `variable`: the device
 * address of a ga_kernel_heap in a __device__ or __constant__ variable. For libgpualloc-kernel.a
 * and malloc.cuh. NULL means that the module has no such variable, which is logged and reported.
 *
 * GA_ERR_UNSUPPORTED  `variable` is NULL
 * GA_ERR_DEVICE       no such device, or the current context is not its primary one
 * else                as ga_heap_open() */
GA_API ga_status ga_kernel_publish(int device, void *variable);

/* A number that changes when a published heap has been closed, or when the spec has changed: then
 * call ga_kernel_publish() again. */
GA_API uint64_t ga_kernel_epoch(void);

#ifdef __cplusplus
}
#endif
#endif
