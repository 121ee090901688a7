/* SPDX-License-Identifier: MIT
 *
 * Shared by the programs that test kernels: their options, failures that name values, and a run on
 * every device. A header, since each is compiled for architectures of its own. Only for CUDA.
 */
#ifndef TESTS_DEVICE_GPU_SUITE_H
#define TESTS_DEVICE_GPU_SUITE_H

extern "C" {
#include "runner.h"
}

#include <cuda_runtime.h>

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- options --------------------------------------------------------------------------------- */

/* The arguments of main(). */
typedef struct suite_options {
    const char *only;    /* --only WORDS: cases whose name contains them; NULL: all */
    bool quick;          /* --quick: less work, for a sanitizer */
    bool no_growing;     /* --no-growing: without heaps that grow during kernels, which a sanitizer
                       * cannot follow */
    uint64_t operations; /* --operations N: how many a property must hold for; 0: as usual */
} suite_options;

inline suite_options suite;

static inline bool suite_read(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--quick")) {
            suite.quick = true;
        } else if (!strcmp(argv[i], "--no-growing")) {
            suite.no_growing = true;
        } else if (!strcmp(argv[i], "--only") && i + 1 < argc) {
            suite.only = argv[++i];
        } else if (!strcmp(argv[i], "--operations") && i + 1 < argc) {
            suite.operations = strtoull(argv[++i], NULL, 10);
        } else {
            fprintf(stderr,
                    "%s: unknown argument \"%s\"; usage: [--only WORDS] [--quick] [--no-growing] "
                    "[--operations N]\n",
                    argv[0], argv[i]);
            return false;
        }
    }
    return true;
}

/* ---- failures -------------------------------------------------------------------------------- */

/* Fail the case with the expectation as a sentence. */
__attribute__((format(printf, 3, 4))) static inline void suite_fail(const char *file, int line,
                                                                    const char *format, ...)
{
    char text[512];
    const char *name = strrchr(file, '/');
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    test_fail(name ? name + 1 : file, line, text);
}
#define FAIL(...) suite_fail(__FILE__, __LINE__, __VA_ARGS__)

/* Returns true if the call succeeded; otherwise the case has failed. */
static inline bool suite_cuda(const char *file, int line, const char *call, cudaError_t error)
{
    if (error != cudaSuccess) {
        suite_fail(file, line, "%s to succeed, got %s", call, cudaGetErrorString(error));
    }
    return error == cudaSuccess;
}
#define CUDA_DONE(call) suite_cuda(__FILE__, __LINE__, #call, (call))

/* True if the previous launch and all other work ended without error. */
#define KERNELS_DONE() (CUDA_DONE(cudaGetLastError()) && CUDA_DONE(cudaDeviceSynchronize()))

static inline bool suite_equal(const char *file, int line, const char *what, uint64_t got,
                               uint64_t expected)
{
    if (got != expected) {
        suite_fail(file, line, "%s to be %llu (0x%llx), got %llu (0x%llx)", what,
                   (unsigned long long)expected, (unsigned long long)expected,
                   (unsigned long long)got, (unsigned long long)got);
    }
    return got == expected;
}
#define EXPECT_EQUAL(what, got, expected)                                                          \
    suite_equal(__FILE__, __LINE__, what, (uint64_t)(got), (uint64_t)(expected))

/* Memory of the device, all 0; NULL when there is none, and the case has failed. */
static inline void *suite_memory(size_t size)
{
    void *memory = NULL;
    if (!CUDA_DONE(cudaMalloc(&memory, size))) {
        return NULL;
    }
    if (!CUDA_DONE(cudaMemset(memory, 0, size)) || !CUDA_DONE(cudaDeviceSynchronize())) {
        cudaFree(memory);
        return NULL;
    }
    return memory;
}

/* ---- devices --------------------------------------------------------------------------------- */

/* All of main(): `run` on each device, which is then the current one. */
static inline int suite_main(int argc, char **argv, void (*run)(int device))
{
    int devices = 0;
    if (!suite_read(argc, argv)) {
        return 2;
    }
    cudaError_t error = cudaGetDeviceCount(&devices);
    if (error != cudaSuccess) {
        printf("no device: %s\n", cudaGetErrorString(error));
        devices = 0;
    }
    for (int device = 0; device < devices; device++) {
        cudaDeviceProp properties;
        if (cudaSetDevice(device) != cudaSuccess ||
            cudaGetDeviceProperties(&properties, device) != cudaSuccess) {
            printf("device %d cannot be used: %s\n", device,
                   cudaGetErrorString(cudaGetLastError()));
            continue;
        }
        printf("device %d: %s, sm_%d%d, %d multiprocessors\n", device, properties.name,
               properties.major, properties.minor, properties.multiProcessorCount);
        run(device);
    }
    return test_summary();
}

#endif
