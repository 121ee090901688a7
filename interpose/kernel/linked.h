/* SPDX-License-Identifier: MIT
 *
 * The interfaces within libgpualloc-kernel.a. All are hidden, because each program and shared
 * library that links the archive has its own copy.
 */
#ifndef GPUALLOC_KERNEL_LINKED_H
#define GPUALLOC_KERNEL_LINKED_H

#ifdef __cplusplus
extern "C" {
#endif

/* The address, in the current context, of the variable from which kernels read their heap. Returns
 * a CUDA runtime error if the module has none. Makes the device's primary context current if no
 * context is. */
int ga_kernel_linked_address(void **out) __attribute__((visibility("hidden")));

/* Before a launch: publish the heap in the current context. Cannot fail: errors are logged, and
 * malloc in kernels returns NULL. */
void ga_kernel_before_launch(void) __attribute__((visibility("hidden")));

/* Before cudaDeviceReset(). */
void ga_kernel_before_reset(void) __attribute__((visibility("hidden")));

#ifdef __cplusplus
}
#endif
#endif
