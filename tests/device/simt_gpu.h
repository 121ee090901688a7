/* SPDX-License-Identifier: MIT
 *
 * Shared by the parts of simt_tests.
 */
#ifndef TESTS_DEVICE_SIMT_GPU_H
#define TESTS_DEVICE_SIMT_GPU_H

#include "gpu_suite.h"

extern const test_case simt_word_cases[];
extern const size_t simt_word_case_count;
void simt_races(int device);    /* a case */
void simt_meetings(int device); /* a case */
void simt_clock(int device);    /* a case */
void simt_epochs(int device);   /* a case */

extern const test_case simt_litmus_cases[];
extern const size_t simt_litmus_case_count;

/* Memory of the host that kernels can use, all 0. */
void *simt_pinned_memory(size_t size);

#endif
