/* SPDX-License-Identifier: MIT
 *
 * Third-party device code: the runtime of numba-cuda (nrt.cu, BSD-2-Clause), which counts
 * references to the allocations of kernels, over malloc and free in kernels. This drives it: per
 * thread, per block, and across launches. It knows nothing of gpualloc: with and without
 * libgpualloc-kernel.a its output must be equal. scripts/install-numba-runtime fetches nrt.cu.
 *
 *     numba_runtime      prints a line for each pattern; exits with 1 where one went wrong, 77
 *                        where there is no GPU
 */
#include <cuda_runtime.h>

#include <cassert>
#include <cstdint>
#include <cstdio>

#include "nrt.cu"

enum {
    BLOCKS = 64,
    THREADS = 128,
    ALL = BLOCKS * THREADS
};

struct counts {
    unsigned long long served, refused, wrong;
};

__device__ counts found;
__device__ NRT_MemInfo *kept[ALL];

static __device__ unsigned own_number()
{
    return blockIdx.x * blockDim.x + threadIdx.x;
}

static __device__ size_t size_of(unsigned n)
{
    return 8 + n * 37u % 500u;
}

static __device__ NRT_MemInfo *filled(NRT_MemInfo *info, size_t size, unsigned n)
{
    atomicAdd(info ? &found.served : &found.refused, 1ull);
    for (size_t i = 0; info && i < size; i++) {
        ((volatile unsigned char *)NRT_MemInfo_data_fast(info))[i] = (unsigned char)(n + i);
    }
    return info;
}

/* Check it, and release it. */
static __device__ void release(NRT_MemInfo *info, size_t size, unsigned n)
{
    bool right = true;
    for (size_t i = 0; info && i < size; i++) {
        right &=
            ((volatile unsigned char *)NRT_MemInfo_data_fast(info))[i] == (unsigned char)(n + i);
    }
    if (!right) {
        atomicAdd(&found.wrong, 1ull);
    }
    NRT_decref(info);
}

__global__ void for_each_thread()
{
    unsigned n = own_number();
    NRT_MemInfo *info = filled(NRT_MemInfo_new_varsize(size_of(n)), size_of(n), n);
    __syncthreads();
    release(info, size_of(n), n);
}

__global__ void for_each_block()
{
    __shared__ NRT_MemInfo *shared;
    if (threadIdx.x == 0) {
        shared = filled(NRT_MemInfo_alloc_aligned(THREADS * 64, 64), THREADS * 64, blockIdx.x);
        if (shared && (size_t)NRT_MemInfo_data_fast(shared) % 64 != 0) {
            atomicAdd(&found.wrong, 1ull);
        }
    }
    __syncthreads();
    if (threadIdx.x == THREADS - 1) { /* another thread than the allocating one */
        release(shared, THREADS * 64, blockIdx.x);
    }
}

__global__ void keep()
{
    unsigned n = own_number();
    kept[n] = filled(NRT_MemInfo_new_varsize(size_of(n)), size_of(n), n);
}

__global__ void let_go()
{
    unsigned n = ALL - 1 - own_number(); /* of other threads, in another launch */
    release(kept[n], size_of(n), n);
}

static bool report(const char *what)
{
    counts now, none = {};
    if (cudaDeviceSynchronize() != cudaSuccess ||
        cudaMemcpyFromSymbol(&now, found, sizeof now) != cudaSuccess ||
        cudaMemcpyToSymbol(found, &none, sizeof none) != cudaSuccess) {
        printf("%s: %s\n", what, cudaGetErrorString(cudaGetLastError()));
        return false;
    }
    printf("%s: %llu served, %llu refused, %llu wrong\n", what, now.served, now.refused, now.wrong);
    return now.served && !now.refused && !now.wrong;
}

int main()
{
    int devices = 0;
    bool right = true;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || !devices) {
        printf("skipped, this machine has no GPU\n");
        return 77;
    }
    if (cudaDeviceSetLimit(cudaLimitMallocHeapSize, (size_t)64 << 20) != cudaSuccess) {
        return 1;
    }
    for_each_thread<<<BLOCKS, THREADS>>>();
    right &= report("for each thread");
    for_each_block<<<BLOCKS, THREADS>>>();
    right &= report("for each block");
    keep<<<BLOCKS, THREADS>>>();
    let_go<<<BLOCKS, THREADS>>>();
    right &= report("across launches");
    return right ? 0 : 1;
}
