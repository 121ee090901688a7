/* SPDX-License-Identifier: MIT
 *
 * The parts of libgpualloc-kernel.a. Each program and each shared library that is linked with it has
 * its own: everything here is hidden.
 */
#ifndef GPUALLOC_KERNEL_LINKED_H
#define GPUALLOC_KERNEL_LINKED_H

#ifdef __cplusplus
extern "C" {
#endif

/* Where the variable that kernels read their heap from stands in the current context, and an error of
 * the CUDA runtime's, where the module has none. Makes the device's context current, if none is. */
int ga_kernel_linked_address(void **out) __attribute__((visibility("hidden")));

/* Before a launch: have the heap published in the current context. Never fails; what goes wrong has
 * been logged, and malloc in kernels answers NULL. */
void ga_kernel_before_launch(void) __attribute__((visibility("hidden")));

/* Before cudaDeviceReset(). */
void ga_kernel_before_reset(void) __attribute__((visibility("hidden")));

#ifdef __cplusplus
}
#endif
#endif
