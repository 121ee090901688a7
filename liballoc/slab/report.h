/* SPDX-License-Identifier: MIT
 *
 * What the hardened checks (check=full) find in kernels, on its way to the host: places of an
 * array, which are taken once and for all. Faults beyond its end are only counted.
 *
 * ORDER  F1 with F2 (checked.c): a report that is ready is whole.
 */
#ifndef GPUALLOC_SLAB_REPORT_H
#define GPUALLOC_SLAB_REPORT_H

#include "../simt/atomic.h"

#define GA_SLAB_REPORTS 64u

typedef enum ga_slab_fault {
    GA_SLAB_DOUBLE_FREE = 0, /* the unit was free */
    GA_SLAB_NO_UNIT,         /* no unit of this heap begins there */
    GA_SLAB_WRITTEN_FREE,    /* a free unit has been written to */
    GA_SLAB_FAULTS
} ga_slab_fault;

typedef struct ga_slab_report {
    uint64_t address;
    uint32_t fault;
    uint32_t ready; /* 1 once the other two are there */
} ga_slab_report;

/* Tell the host; `reported` counts the places that were asked for. By one lane. */
GA_SIMT void ga_slab_report_put(ga_slab_report *reports, uint64_t *reported, uint32_t fault,
                                const void *address)
{
    uint64_t place = ga_add64_relaxed(reported, 1); /* relaxed: hands out places */
    if (place < GA_SLAB_REPORTS) {
        reports[place].address = (uint64_t)address;
        reports[place].fault = fault;
        /* F1: release, to the host. Pairs with F2 (checked.c): it may look while we run. */
        ga_store_release_system(&reports[place].ready, 1);
    }
}

#endif
