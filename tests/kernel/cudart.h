/* SPDX-License-Identifier: MIT
 *
 * A CUDA runtime for the tests of the host's half of libgpualloc-kernel.a, over the driver of host
 * memory: the functions that this half calls. A module's variable is host memory, one for each
 * device and life of its context; launches are only counted.
 */
#ifndef TESTS_KERNEL_CUDART_H
#define TESTS_KERNEL_CUDART_H

#include "interpose/kernel/cudart.h"
#include "interpose/kernel/linked.h"
#include "support/vmm_driver.h"

#include <gpualloc/kernel.h>

enum {
    RUNTIME_DEVICES = 2
};

/* The properties of the program and its machine; set by tests. */
typedef struct test_runtime {
    bool no_variable; /* the device link took nothing */
    bool no_numbers;  /* a driver that does not number its contexts */
    bool no_device;   /* cudaGetDevice() fails */
    bool no_driver;   /* every call that needs a driver fails */
} test_runtime;

extern test_runtime runtime;

/* Begin anew, over vmm_driver_start(). */
void runtime_start(const vmm_driver_options *options);

/* The device of the calling thread: cudaSetDevice(). */
void runtime_use(int device);

/* The variable that kernels of the device read. */
ga_kernel_heap runtime_view(int device);

/* Launches that arrived, and the capture mode that the thread is left in. */
unsigned runtime_launches(void);
int runtime_capture_mode(void);

/* The error that cudaPeekAtLastError() returns. */
void runtime_set_error(cudaError_t error);

/* The linker's --wrap names. */
cudaError_t __wrap___cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments,
                                      size_t shared, cudaStream_t stream);
cudaError_t __wrap_cudaLaunchKernelExC(const void *config, const void *kernel, void **arguments);
cudaError_t __wrap_cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream);
cudaError_t __wrap_cudaDeviceReset(void);

#endif
