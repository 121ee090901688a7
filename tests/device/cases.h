/* SPDX-License-Identifier: MIT
 *
 * The device cases, by subject.
 */
#ifndef TESTS_DEVICE_CASES_H
#define TESTS_DEVICE_CASES_H

#include "../../liballoc/platform/cuda_driver.h"
#include "runner.h"

typedef struct case_list {
    const char *title;
    const test_case *cases;
    size_t count;
} case_list;

case_list driver_cases(void);
case_list heap_cases(void);
case_list stream_cases(void);
case_list process_cases(void);
case_list arena_cases(void);
case_list arena_process_cases(void);
case_list vmm_cases(void);

/* Put `size` bytes of `value` at `to`, and check that they are there; both wait. */
bool device_fill(int device, void *to, unsigned char value, size_t size);
bool device_holds(int device, const void *from, unsigned char value, size_t size);

/* Modes in which process cases start this program again; they return exit statuses. */
int exit_with_blocks(void);
int first_use_cuda(void);
int first_use_async(void);
int first_use_both(void);
int pools_by_threads(void);
int arena_import_chunk(void);
int arena_import_far_chunk(void);
int arena_work_beside(void);
int arena_grow_for_ever(void);
int arena_exit_with_one(void);
int arena_context_destroyed(void);

#endif
