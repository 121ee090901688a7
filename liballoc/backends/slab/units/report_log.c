/* SPDX-License-Identifier: MIT
 *
 * Logs the faults that kernels reported.
 */
#include "report_log.h"

#include "../../../platform/log.h"

void ga_slab_report_log(int device, const char *const *faults, const ga_slab_report *reports,
                        uint64_t reported, uint64_t *logged)
{
    for (; *logged < reported && *logged < GA_SLAB_REPORTS; ++*logged) {
        const ga_slab_report *report = &reports[*logged];
        /* SF2: the state when the heap was copied. Pairs with SF1 (report.h). */
        if (!report->ready) {
            return; /* a kernel is still writing it */
        }
        ga_log(GA_LOG_ERROR, "slab: device %d: 0x%llx: %s", device,
               (unsigned long long)report->address, faults[report->fault]);
    }
    if (reported > GA_SLAB_REPORTS && *logged < reported) {
        ga_log(GA_LOG_ERROR, "slab: device %d: %llu more faults, which had no room to be reported",
               device,
               (unsigned long long)(reported -
                                    (*logged > GA_SLAB_REPORTS ? *logged : GA_SLAB_REPORTS)));
        *logged = reported;
    }
}

void ga_slab_report_invalid(int device, uint64_t invalid, uint64_t *logged)
{
    if (invalid > *logged) {
        ga_log(GA_LOG_ERROR, "slab: device %d: %llu blocks were freed, but are none of this heap's",
               device, (unsigned long long)(invalid - *logged));
        *logged = invalid;
    }
}
