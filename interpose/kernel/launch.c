/* SPDX-License-Identifier: MIT
 *
 * Wrappers of the CUDA runtime's launch functions, installed by the linker's --wrap: each publishes
 * the heap first. A launch in CUDA C++ syntax calls __cudaLaunchKernel(). The _ptsz variants serve
 * programs with a default stream per thread. meson.build lists the same functions.
 */
#include "cudart.h"
#include "linked.h"

#define KERNEL_LAUNCH(name, type)                                                                  \
    cudaError_t __real_##name(type kernel, dim3 grid, dim3 block, void **arguments, size_t shared, \
                              cudaStream_t stream);                                                \
    cudaError_t __wrap_##name(type kernel, dim3 grid, dim3 block, void **arguments, size_t shared, \
                              cudaStream_t stream);                                                \
    cudaError_t __wrap_##name(type kernel, dim3 grid, dim3 block, void **arguments, size_t shared, \
                              cudaStream_t stream)                                                 \
    {                                                                                              \
        ga_kernel_before_launch();                                                                 \
        return __real_##name(kernel, grid, block, arguments, shared, stream);                      \
    }

#define CONFIG_LAUNCH(name)                                                                        \
    cudaError_t __real_##name(const void *config, const void *kernel, void **arguments);           \
    cudaError_t __wrap_##name(const void *config, const void *kernel, void **arguments);           \
    cudaError_t __wrap_##name(const void *config, const void *kernel, void **arguments)            \
    {                                                                                              \
        ga_kernel_before_launch();                                                                 \
        return __real_##name(config, kernel, arguments);                                           \
    }

#define GRAPH_LAUNCH(name)                                                                         \
    cudaError_t __real_##name(cudaGraphExec_t graph, cudaStream_t stream);                         \
    cudaError_t __wrap_##name(cudaGraphExec_t graph, cudaStream_t stream);                         \
    cudaError_t __wrap_##name(cudaGraphExec_t graph, cudaStream_t stream)                          \
    {                                                                                              \
        ga_kernel_before_launch();                                                                 \
        return __real_##name(graph, stream);                                                       \
    }

KERNEL_LAUNCH(__cudaLaunchKernel, cudaKernel_t)
KERNEL_LAUNCH(__cudaLaunchKernel_ptsz, cudaKernel_t)
KERNEL_LAUNCH(cudaLaunchKernel, const void *)
KERNEL_LAUNCH(cudaLaunchKernel_ptsz, const void *)
KERNEL_LAUNCH(cudaLaunchCooperativeKernel, const void *)
KERNEL_LAUNCH(cudaLaunchCooperativeKernel_ptsz, const void *)
CONFIG_LAUNCH(cudaLaunchKernelExC)
CONFIG_LAUNCH(cudaLaunchKernelExC_ptsz)
GRAPH_LAUNCH(cudaGraphLaunch)
GRAPH_LAUNCH(cudaGraphLaunch_ptsz)

cudaError_t __real_cudaDeviceReset(void);
cudaError_t __wrap_cudaDeviceReset(void);

cudaError_t __wrap_cudaDeviceReset(void)
{
    ga_kernel_before_reset();
    return __real_cudaDeviceReset();
}
