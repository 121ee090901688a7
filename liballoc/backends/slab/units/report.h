/* SPDX-License-Identifier: MIT
 *
 * Reports of the hardened checks (check=full), from kernels to the host: an array of slots, each
 * used once. Faults beyond its end are only counted.
 *
 * ORDER      SF1 with SF2 (checked.c): a report that is ready is complete.
 */
#ifndef GPUALLOC_SLAB_UNITS_REPORT_H
#define GPUALLOC_SLAB_UNITS_REPORT_H

#include "../../../simt/atomic.h"

#define GA_SLAB_REPORTS 64u

typedef enum ga_slab_fault {
    GA_SLAB_DOUBLE_FREE = 0, /* the unit was free */
    GA_SLAB_NO_UNIT,         /* no unit of this heap begins there */
    GA_SLAB_WRITTEN_FREE,    /* a free unit was written to */
    GA_SLAB_FAULTS
} ga_slab_fault;

typedef struct ga_slab_report {
    uint64_t address;
    uint32_t fault;
    uint32_t ready; /* 1 once the other two fields are set */
} ga_slab_report;

/* Report a fault to the host. `reported` counts the slots requested. By one lane. */
GA_SIMT void ga_slab_report_put(ga_slab_report *reports, uint64_t *reported, uint32_t fault,
                                const void *address)
{
    uint64_t place = ga_add64_relaxed(reported, 1); /* relaxed: assigns slots */
    if (place < GA_SLAB_REPORTS) {
        reports[place].address = (uint64_t)address;
        reports[place].fault = fault;
        /* SF1: release, to the host. Pairs with SF2 (checked.c): the host may read while the kernel
         * runs. */
        ga_store_release_system(&reports[place].ready, 1);
    }
}

#endif
