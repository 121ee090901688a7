/* SPDX-License-Identifier: MIT
 *
 * The hardened checks (check=full) of slabs that the host works on: each free is checked against
 * the bitmap, free units of host memory hold poison. What is found goes to the log with its
 * address, and is counted in the slab's heap; the program goes on. And what kernels have found.
 *
 * Thread safe.
 */
#ifndef GPUALLOC_SLAB_CHECKED_H
#define GPUALLOC_SLAB_CHECKED_H

#include "host.h"

/* Free the unit, or GA_ERR_POINTER where it was free. */
ga_status ga_slab_checked_free(ga_slab_host *slab, ga_slab_region *region, uint32_t unit,
                               void *block);

/* The caller has claimed the unit: has anybody written to it since it was freed? */
void ga_slab_checked_claim(ga_slab_host *slab, uint32_t unit, void *block);

/* What kernels have reported and the log has not had: `*told` of all that were `reported` it has.
 * `reports`: a copy of them; `faults`: words for each. */
void ga_slab_checked_log(int device, const char *const *faults, const ga_slab_report *reports,
                         uint64_t reported, uint64_t *told);

/* Log and count it. */
ga_status ga_slab_checked_no_unit(ga_slab_host *slab, const void *pointer);

#endif
