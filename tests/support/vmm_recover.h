/* SPDX-License-Identifier: MIT
 *
 * The end of trouble with the driver of vmm_driver.h.
 */
#ifndef GPUALLOC_TESTS_SUPPORT_VMM_RECOVER_H
#define GPUALLOC_TESTS_SUPPORT_VMM_RECOVER_H

#include "vmm_driver.h"

#include <stdint.h>

enum {
    VMM_SOME_CALLS = 2
};

/* The number of calls that fail after the n-th: none, and all. */
static const uint64_t vmm_more_calls[VMM_SOME_CALLS] = {0, UINT64_MAX};

/* No call fails from now on. The next visit to the device releases memory that the driver has
 * refused to release. Returns true if a call has failed. */
static inline bool vmm_recover(void)
{
    ga_cuda_scope scope;
    bool failed = vmm_driver_has_failed();
    vmm_driver_fail(NULL, 0, CUDA_SUCCESS);
    if (ga_cuda_enter(&scope, 0) == GA_OK) {
        ga_cuda_leave(&scope);
    }
    return failed;
}

#endif
