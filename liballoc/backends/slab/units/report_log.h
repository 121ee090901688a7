/* SPDX-License-Identifier: MIT
 *
 * The host's side of report.h.
 */
#ifndef GPUALLOC_SLAB_UNITS_REPORT_LOG_H
#define GPUALLOC_SLAB_UNITS_REPORT_LOG_H

#include "report.h"

/* Log the reports of kernels that are new: the first `*logged` of the `reported` ones have been
 * logged. `reports` is a copy of the heap's; `faults` has the text for each kind. */
void ga_slab_report_log(int device, const char *const *faults, const ga_slab_report *reports,
                        uint64_t reported, uint64_t *logged);

/* Without the checks kernels only count the pointers that they were to free and that are no blocks:
 * log how many are new since `*logged`. */
void ga_slab_report_invalid(int device, uint64_t invalid, uint64_t *logged);

#endif
