/* SPDX-License-Identifier: MIT
 *
 * The CUDA runtime's functions that this room calls, declared here so that the host half compiles
 * without CUDA.
 */
#ifndef GPUALLOC_KERNEL_CUDART_H
#define GPUALLOC_KERNEL_CUDART_H

#include <stddef.h>

typedef int cudaError_t; /* an enumeration in CUDA's headers */

enum {
    cudaSuccess = 0,
    cudaStreamCaptureModeRelaxed = 2,
    cudaEnableDefault = 0
};

typedef struct dim3 {
    unsigned x, y, z;
} dim3;

typedef struct CUstream_st *cudaStream_t;
typedef struct CUgraphExec_st *cudaGraphExec_t;
typedef struct CUkern_st *cudaKernel_t;

cudaError_t cudaGetDevice(int *device);
cudaError_t cudaFree(void *block);
cudaError_t cudaGetLastError(void);
cudaError_t cudaPeekAtLastError(void);
cudaError_t cudaThreadExchangeStreamCaptureMode(int *mode);
cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned version,
                                             unsigned long long flags, int *result);

#endif
