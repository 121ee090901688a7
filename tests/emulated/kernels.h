/* SPDX-License-Identifier: MIT
 *
 * A launch, for cuda.cc.
 */
#ifndef GPUALLOC_TESTS_EMULATED_KERNELS_H
#define GPUALLOC_TESTS_EMULATED_KERNELS_H

#include <stdint.h>

struct emulated_kernel {
    const char *name;
    void (*run)(const emulated_kernel *kernel); /* by each thread */
    void **parameters;
    uint32_t blocks, threads, shared;
};

/* Runs the kernel, and waits for it. */
void emulated_run(const emulated_kernel *kernel);

#endif
