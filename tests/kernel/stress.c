/* SPDX-License-Identifier: MIT
 *
 * Threads that launch on two devices at once, each for the first time after the devices were reset:
 * the first one opens the heap, and no launch begins before its device has the heap. A plain
 * program, for the thread sanitizer.
 */
#include "cudart.h"

#include "device/kinds.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    THREADS = 6,
    ROUNDS = 12,
    LAUNCHES = 40
};

static pthread_barrier_t barrier;
static int failures; /* relaxed: read once the threads have been joined */

static void launch_on(int device)
{
    dim3 grid = {2, 3, 4};
    dim3 block = {5, 6, 7};
    runtime_use(device);
    cudaError_t error =
        __wrap___cudaLaunchKernel((cudaKernel_t)1, grid, block, (void **)8, 9, (cudaStream_t)10);
    if (error != cudaSuccess || runtime_view(device).kind != GA_KERNEL_KIND_SLAB ||
        !ga_kernel_serving(device)) {
        __atomic_add_fetch(&failures, 1, __ATOMIC_RELAXED);
    }
}

static void reset_all(void)
{
    for (int device = 0; device < RUNTIME_DEVICES; device++) {
        runtime_use(device);
        __wrap_cudaDeviceReset();
        if (ga_kernel_serving(device)) {
            __atomic_add_fetch(&failures, 1, __ATOMIC_RELAXED);
        }
    }
}

static void *work(void *context)
{
    int number = *(int *)context;
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < LAUNCHES; i++) {
            launch_on((number + i / 4) % RUNTIME_DEVICES);
        }
        if (pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD) {
            reset_all();
        }
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    int numbers[THREADS];
    setenv("GPUALLOC_KERNEL", "slab:unit=1K,capacity=4M,limit=20M/cuda", 1);
    setenv("GPUALLOC_LOG", "error", 1);
    runtime_start(&(vmm_driver_options){.devices = RUNTIME_DEVICES, .kernels = VMM_KERNELS_GROW});
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        if (pthread_create(&threads[i], NULL, work, &numbers[i]) != 0) {
            return 77;
        }
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    vmm_driver_stop();
    printf("%u launches, %d failures\n", runtime_launches(), failures);
    return failures != 0 || runtime_launches() != THREADS * ROUNDS * LAUNCHES;
}
