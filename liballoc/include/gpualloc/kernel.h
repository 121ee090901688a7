/* SPDX-License-Identifier: MIT
 *
 * In-kernel malloc served by gpualloc. A program whose device code is compiled with -rdc=true and
 * linked with libgpualloc-kernel.a has its malloc, free, new and delete in kernels replaced, and
 * needs nothing of this header: with the flags of `pkg-config --libs gpualloc-kernel` the heap opens
 * at the first launch. docs/kernel.md has the ways to link.
 *
 * There is one heap for each device of the process, whichever modules use it: what a kernel of the
 * program allocates, a kernel of a shared library may free. Its spec is ga_kernel_use()'s, else
 * GPUALLOC_KERNEL's, else the default for kernels. CUDA's own malloc (`cuda` in the place `kernel`)
 * is refused there: it would call itself.
 *
 * Every call is thread safe. None may be made from a constructor that runs before main(): they
 * create CUDA's context.
 *
 * Compiles alone as C11, C++17 and under nvcc.
 */
#ifndef GPUALLOC_KERNEL_H
#define GPUALLOC_KERNEL_H

#include <gpualloc/gpualloc.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- in libgpualloc-kernel.a, for each program or shared library that is linked with it --------- */

/* Open the heap of the current device, where it is not open yet, and let this module's kernels have
 * it. Only needed without the wrap flags. Call it for every device that launches, after
 * cudaSetDevice(), before the first launch there, and again after cudaDeviceReset(). Called between
 * launches it also lets a heap grow that cannot do so under kernels.
 *
 * GA_ERR_UNSUPPORTED  replacement is not active: the device link took nothing from the archive, as
 *                     no kernel of this module calls malloc, or as the archive has no code for the
 *                     architecture. Kernels have CUDA's own malloc.
 * GA_ERR_DEVICE       no device, or the context is not the device's primary one
 * else                as ga_heap_open(); malloc in kernels answers NULL
 *
 * Waits for a copy of its own to the device, for nothing else. */
ga_status ga_kernel_init(void) __attribute__((visibility("hidden")));

/* ---- in libgpualloc ----------------------------------------------------------------------------- */

/* From now on heaps that replace malloc are opened from `spec`, which is copied; NULL goes back to
 * GPUALLOC_KERNEL. A heap that is open stays; one that could not be opened is tried again. Call it
 * before the first launch.
 *
 * GA_ERR_MEMORY  no memory for the copy
 */
GA_API ga_status ga_kernel_use(const char *spec);

/* The heap that serves malloc in kernels on `device`, for its statistics; NULL before it is open, and
 * where it could not be opened. It belongs to the library. */
GA_API ga_heap *ga_kernel_serving(int device);

/* Close the heap that serves `device`, whatever is still allocated from it, and let go of the
 * device's context. For whoever calls cudaDeviceReset() without the wrap flags: before that. No kernel
 * may be running there. The next launch, or ga_kernel_init(), opens a new one. GA_OK where none is
 * open. */
GA_API ga_status ga_kernel_close(int device);

/* Open the heap of `device`, where it is not open yet, and write what kernels need of it to
 * `variable`, the device's address of a ga_kernel_heap in a __device__ or __constant__ variable.
 * What libgpualloc-kernel.a and malloc.cuh are made of. NULL says that this module has no such
 * variable, which is logged and reported.
 *
 * GA_ERR_UNSUPPORTED  `variable` is NULL
 * GA_ERR_DEVICE       no such device, or the current context is not its primary one
 * else                as ga_heap_open()
 */
GA_API ga_status ga_kernel_publish(int device, void *variable);

/* A number that changes when a heap that ga_kernel_publish() published has been closed: then publish
 * again. */
GA_API uint64_t ga_kernel_epoch(void);

#ifdef __cplusplus
}
#endif
#endif
