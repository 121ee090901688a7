/* SPDX-License-Identifier: MIT
 *
 * The host's part of kernel_tests in a case's process: 0 is success, and errors are printed.
 */
#ifndef GPUALLOC_TESTS_KERNEL_CASES_CUH
#define GPUALLOC_TESTS_KERNEL_CASES_CUH

#include "kernel_other.h"
#include "kernels.cuh"

#include <gpualloc/kernel.h>

#include <cuda_runtime.h>

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    THREADS = 4096
};

static int complain(const char *file, int line, const char *expected)
{
    printf("    %s:%d: expected %s; cuda: %s; gpualloc: %s\n", strrchr(file, '/') + 1, line,
           expected, cudaGetErrorString(cudaPeekAtLastError()), ga_error_text());
    return 1;
}

#define NEED(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            return complain(__FILE__, __LINE__, #condition);                                       \
        }                                                                                          \
    } while (0)

static bool done()
{
    return cudaGetLastError() == cudaSuccess && cudaDeviceSynchronize() == cudaSuccess;
}

/* The threads' pointers: managed memory, so that the host may read them. */
struct scene {
    void **pointers;
    uint32_t *wrong;
};

static bool make(scene *it)
{
    return cudaMallocManaged(&it->pointers, THREADS * sizeof *it->pointers) == cudaSuccess &&
           cudaMallocManaged(&it->wrong, sizeof *it->wrong) == cudaSuccess &&
           cudaMemset(it->wrong, 0, sizeof *it->wrong) == cudaSuccess;
}

static uint32_t served(const scene *it)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < THREADS; i++) {
        n += it->pointers[i] != NULL;
    }
    return n;
}

/* True if the heap that serves the device reports live blocks, or none, as `some` requires. */
static bool holds(int device, bool some)
{
    ga_stats stats = {};
    ga_heap *heap = ga_kernel_serving(device);
    if (!heap || ga_heap_stats(heap, &stats) != GA_OK) {
        return false;
    }
    return (stats.live_blocks != 0) == some;
}

/* A round with every block counted by the heap: that it was ours that served them. */
static int round_of(int device, size_t size)
{
    scene it;
    NEED(make(&it));
    take<<<THREADS / 256, 256>>>(it.pointers, size);
    NEED(done());
    NEED(served(&it) == THREADS);
    NEED(holds(device, true));
    give<<<THREADS / 256, 256>>>(it.pointers, it.wrong);
    NEED(done());
    NEED(*it.wrong == 0);
    NEED(holds(device, false));
    cudaFree(it.pointers);
    cudaFree(it.wrong);
    return 0;
}

static int round_on(int device)
{
    return round_of(device, SIZE);
}

static int first_launch()
{
    NEED(!ga_kernel_serving(0));
    return round_on(0);
}

static int by_hand()
{
    NEED(ga_kernel_init() == GA_OK);
    NEED(ga_kernel_serving(0));
    return round_on(0);
}

static int resets()
{
    for (int i = 0; i < 4; i++) {
        NEED(round_on(0) == 0);
        scene it;
        NEED(make(&it));
        take<<<THREADS / 256, 256>>>(it.pointers,
                                     SIZE); /* still live when the context is destroyed */
        NEED(done());
        NEED(cudaDeviceReset() == cudaSuccess);
        NEED(!ga_kernel_serving(0));
    }
    return round_on(0);
}

static int closed_by_hand()
{
    for (int i = 0; i < 3; i++) {
        NEED(round_on(0) == 0);
        NEED(ga_kernel_close(0) == GA_OK);
    }
    return 0;
}

static int from_another_module()
{
    scene it;
    NEED(make(&it));
    NEED(kernel_other_take(it.pointers, THREADS, SIZE) == 0);
    NEED(served(&it) == THREADS);
    NEED(holds(0, true));
    give<<<THREADS / 256, 256>>>(it.pointers, it.wrong); /* freed on the device that allocated */
    NEED(done());
    NEED(holds(0, false));
    take<<<THREADS / 256, 256>>>(it.pointers, SIZE);
    NEED(done());
    NEED(kernel_other_give(it.pointers, THREADS) == 0);
    NEED(holds(0, false));
    return *it.wrong != 0;
}

static int another_device()
{
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices < 2) {
        return 77;
    }
    for (int i = 0; i < 3; i++) {
        for (int device = 0; device < 2; device++) {
            NEED(cudaSetDevice(device) == cudaSuccess);
            NEED(round_on(device) == 0);
        }
    }
    return ga_kernel_serving(0) == ga_kernel_serving(1);
}

/* The first launch is captured; so are launches of a cooperative grid and with attributes. */
static int captured()
{
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t ready;
    scene it;
    NEED(make(&it));
    NEED(cudaStreamCreate(&stream) == cudaSuccess);
    NEED(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess);
    take<<<THREADS / 256, 256, 0, stream>>>(it.pointers, SIZE);
    give<<<THREADS / 256, 256, 0, stream>>>(it.pointers, it.wrong);
    NEED(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
    NEED(cudaGraphInstantiate(&ready, graph, 0) == cudaSuccess);
    for (int i = 0; i < 3; i++) {
        NEED(cudaGraphLaunch(ready, stream) == cudaSuccess);
        NEED(cudaStreamSynchronize(stream) == cudaSuccess);
    }
    NEED(served(&it) == THREADS); /* the pointers, though their blocks are free again */
    NEED(*it.wrong == 0);
    NEED(holds(0, false));
    return 0;
}

static int cooperative()
{
    scene it;
    size_t size = SIZE;
    NEED(make(&it));
    void *arguments[] = {&it.pointers, &size};
    NEED(cudaLaunchCooperativeKernel((void *)take, THREADS / 256, 256, arguments, 0, NULL) ==
         cudaSuccess);
    NEED(done());
    NEED(served(&it) == THREADS);
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(THREADS / 256);
    config.blockDim = dim3(256);
    NEED(cudaLaunchKernelEx(&config, give, it.pointers, it.wrong) == cudaSuccess);
    NEED(done());
    return !holds(0, false);
}

static int aligned()
{
    scene it;
    NEED(make(&it));
    take_aligned<<<THREADS / 256, 256>>>(it.pointers, 100);
    NEED(done());
    NEED(served(&it) == THREADS);
    for (uint32_t i = 0; i < THREADS; i++) {
        NEED((size_t)it.pointers[i] % ((size_t)16 << i % 6) == 0);
    }
    return 0;
}

/* CUDA's own heap has nothing to do with it: 16 times as much is served. */
static int with_cudas_limit()
{
    const size_t limit = 1 << 20;
    NEED(cudaDeviceSetLimit(cudaLimitMallocHeapSize, limit) == cudaSuccess);
    return round_of(0, 16 * limit / THREADS);
}

/* The program's setting takes precedence over the environment's, and does not change an open
 * heap. */
static int chosen_by_the_program()
{
    NEED(ga_kernel_use("slab:unit=512,capacity=8M/vmm") == GA_OK);
    NEED(round_on(0) == 0);
    NEED(strstr(ga_heap_spec(ga_kernel_serving(0)), "unit=512"));
    NEED(ga_kernel_use("slab:unit=1K,capacity=8M/vmm") == GA_OK);
    NEED(round_on(0) == 0);
    NEED(strstr(ga_heap_spec(ga_kernel_serving(0)), "unit=512"));
    return 0;
}

/* Far beyond any class, and of more than 2^32 bytes. */
static int large_blocks()
{
    scene it;
    NEED(make(&it));
    for (size_t size : {(size_t)100 << 20, ((size_t)4 << 30) + 4, (size_t)20 << 30}) {
        take_large<<<1, 1>>>(it.pointers, size);
        NEED(done());
        NEED(it.pointers[0]);
        give<<<1, 1>>>(it.pointers, it.wrong);
        NEED(done());
        NEED(holds(0, false));
    }
    take<<<1, 64>>>(it.pointers, (size_t)200 << 20); /* each lane of two warps */
    NEED(done());
    NEED(served(&it) == 64);
    give<<<1, 64>>>(it.pointers, it.wrong);
    NEED(done());
    NEED(*it.wrong == 0);
    return !holds(0, false);
}

/* Invalid frees are counted, and do no harm. The log has their number: three per thread. */
static int wrong_frees()
{
    char *foreign;
    scene it;
    NEED(make(&it));
    NEED(cudaMalloc(&foreign, 16 * 256) == cudaSuccess);
    free_wrongly<<<2, 128>>>(it.pointers, foreign);
    NEED(done());
    NEED(served(&it) == 256);
    NEED(holds(0, false));
    NEED(round_on(0) == 0);
    return ga_kernel_close(0) != GA_OK;
}

/* With check=full each excess free is detected: of 16 blocks that two lanes free at once, and of
 * the 16 others that have been freed once by then. */
static int double_frees()
{
    scene it;
    NEED(make(&it));
    free_twice<<<1, 32>>>(it.pointers);
    NEED(done());
    NEED(served(&it) == 32);
    NEED(holds(0, false));
    NEED(round_on(0) == 0);
    return ga_kernel_close(0) != GA_OK;
}

static void *launch_rounds(void *)
{
    scene it;
    bool well = make(&it);
    for (int i = 0; well && i < 5; i++) {
        cudaStream_t stream = cudaStreamPerThread;
        take<<<THREADS / 256, 256, 0, stream>>>(it.pointers, SIZE);
        well = cudaStreamSynchronize(stream) == cudaSuccess && served(&it) == THREADS;
        give<<<THREADS / 256, 256, 0, stream>>>(it.pointers, it.wrong);
        well = well && cudaStreamSynchronize(stream) == cudaSuccess && *it.wrong == 0;
    }
    return well ? NULL : (void *)1;
}

static int threads()
{
    pthread_t running[8];
    void *failed = NULL;
    int failures = 0;
    for (pthread_t &thread : running) {
        NEED(pthread_create(&thread, NULL, launch_rounds, NULL) == 0);
    }
    for (pthread_t thread : running) {
        pthread_join(thread, &failed);
        failures += failed != NULL;
    }
    NEED(failures == 0);
    return !holds(0, false);
}

static int ended(pid_t child)
{
    int status = -1;
    return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int forks()
{
    fflush(stdout);
    pid_t before = fork(); /* before CUDA: the child can use it as its parent can */
    if (before == 0) {
        _exit(round_on(0));
    }
    NEED(ended(before) == 0);
    NEED(round_on(0) == 0);
    fflush(stdout);
    pid_t after = fork(); /* after it: the child's launches fail, and nothing else */
    if (after == 0) {
        take<<<1, 32>>>(NULL, 1);
        _exit(cudaGetLastError() == cudaSuccess);
    }
    NEED(ended(after) == 0);
    return round_on(0);
}

static int traps()
{
    take_and_trap<<<4, 64>>>();
    NEED(cudaDeviceSynchronize() != cudaSuccess);
    return 0; /* and the process ends well */
}

/* The context is lost with all its memory. After a reset a new heap serves, if CUDA itself
 * continues in this process, which not every driver permits. */
static int traps_and_goes_on()
{
    NEED(round_on(0) == 0);
    take_and_trap<<<4, 64>>>();
    NEED(cudaDeviceSynchronize() != cudaSuccess);
    bool was_reset = cudaDeviceReset() == cudaSuccess;
    NEED(!ga_kernel_serving(0));
    cudaGetLastError();
    if (!was_reset || cudaFree(NULL) != cudaSuccess) {
        printf("    CUDA does not go on after a trap: %s\n",
               cudaGetErrorString(cudaGetLastError()));
        return 77;
    }
    NEED(round_on(0) == 0);
    return round_on(0);
}

/* Recursion from destructors, a hundred levels deep, each lane at another depth. */
static int deep_trees()
{
    scene it;
    NEED(cudaDeviceSetLimit(cudaLimitStackSize, 16 << 10) == cudaSuccess);
    NEED(make(&it));
    for (uint32_t round = 0; round < 3; round++) {
        *it.wrong = 0; /* counts nodes here */
        grow_trees<<<8, 64>>>(it.pointers, 100 + round, it.wrong);
        NEED(done());
        NEED(*it.wrong > 512 * 100);
        NEED(holds(0, true));
        cut_trees<<<8, 64>>>(it.pointers);
        NEED(done());
        NEED(holds(0, false));
    }
    return 0;
}

/* The host frees kernels' blocks, single and coalesced ones, and kernels free the host's. */
static int freed_by_the_host()
{
    const uint32_t few = 64;
    scene it;
    NEED(make(&it));
    for (int round = 0; round < 2; round++) {
        if (round) {
            take_mixed<<<1, few>>>(it.pointers);
        } else {
            take<<<1, few>>>(it.pointers, SIZE);
        }
        NEED(done());
        ga_heap *heap = ga_kernel_serving(0);
        NEED(heap);
        for (uint32_t i = 0; i < few; i++) {
            NEED(it.pointers[i]);
            NEED(ga_owns(heap, it.pointers[i]));
            NEED(holds(0, true));
            NEED(ga_free(heap, it.pointers[i]) == GA_OK);
        }
        NEED(holds(0, false));
        NEED(ga_free(heap, &it) == GA_ERR_POINTER);
    }
    NEED(ga_alloc(ga_kernel_serving(0), 300, 0, it.pointers) == GA_OK);
    NEED(cudaMemset(it.pointers[0], 0, 300) == cudaSuccess);
    NEED(cudaDeviceSynchronize() == cudaSuccess);
    give<<<1, 1>>>(it.pointers, it.wrong);
    NEED(done());
    NEED(*it.wrong == 0);
    return !holds(0, false);
}

/* With a heap that cannot be opened: NULLs. */
static int unserved()
{
    scene it;
    NEED(make(&it));
    take<<<THREADS / 256, 256>>>(it.pointers, SIZE);
    NEED(done());
    NEED(served(&it) == (ga_kernel_serving(0) ? THREADS : 0));
    give<<<THREADS / 256, 256>>>(it.pointers, it.wrong);
    NEED(done());
    return 0;
}

static int statistics()
{
    NEED(round_on(0) == 0);
    return 0; /* the report is written at exit */
}

#endif
