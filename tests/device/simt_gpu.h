/* SPDX-License-Identifier: MIT
 *
 * What the parts of simt_tests share.
 */
#ifndef TESTS_DEVICE_SIMT_GPU_H
#define TESTS_DEVICE_SIMT_GPU_H

extern "C" {
#include "runner.h"
}

#include <cuda_runtime.h>

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Less work, for a sanitizer. */
extern bool simt_quick;

extern const test_case simt_word_cases[];
extern const size_t simt_word_case_count;
void simt_races(int device);    /* a case */
void simt_meetings(int device); /* a case */

extern const test_case simt_litmus_cases[];
extern const size_t simt_litmus_case_count;

/* The case has failed: what was expected, as a sentence. */
void simt_fail(int line, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Whether the call succeeded; where it did not, the case has failed. */
bool simt_cuda(int line, const char *call, cudaError_t error);

#define CUDA_DONE(call) simt_cuda(__LINE__, #call, (call))

/* Memory of the device, all 0; NULL when there is none, and the case has failed. */
void *simt_device_memory(size_t size);

/* Memory of the host that kernels can use, all 0. */
void *simt_pinned_memory(size_t size);

#endif
