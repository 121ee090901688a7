/* SPDX-License-Identifier: MIT
 *
 * Shared by the parts of vector_tests. Only for CUDA.
 */
#ifndef TESTS_DEVICE_VECTOR_TESTS_H
#define TESTS_DEVICE_VECTOR_TESTS_H

#include "gpu_suite.h"

#include <gpualloc/vector.cuh>
#include <gpualloc/vector.hpp>

#include <exception>

typedef unsigned long long word;
typedef gpualloc::device_vector<word> words;

static const std::size_t MIB = 1 << 20;

enum {
    BLOCK = 256
};

#define CUDA(call) EXPECT((call) == cudaSuccess)

/* For a case whose memory is committed while its kernel runs. */
#define SKIP_WHERE_NOTHING_GROWS                                                                   \
    if (suite.no_growing) {                                                                        \
        SKIP("it grows under a kernel");                                                           \
    }

extern const test_case vector_append_cases[];
extern const size_t vector_append_case_count;
extern const test_case vector_device_cases[];
extern const size_t vector_device_case_count;
extern const test_case vector_process_cases[];
extern const size_t vector_process_case_count;

/* Modes in which cases start this program again; they return exit statuses. */
int vector_append_beside();
int vector_append_for_ever();

/* Runs a case so that it ends without an exception and without an error of CUDA. */
template <void (*BODY)(int)> void guarded(int device)
{
    try {
        BODY(device);
    } catch (const std::exception &caught) {
        printf("    thrown: %s\n", caught.what());
        test_fail(__FILE__, __LINE__, "no exception");
    }
    cudaDeviceSynchronize();
    const cudaError_t left = cudaGetLastError();
    if (left != cudaSuccess) {
        test_fail(__FILE__, __LINE__, cudaGetErrorString(left));
    }
}

#endif
