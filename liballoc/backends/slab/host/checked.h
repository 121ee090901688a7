/* SPDX-License-Identifier: MIT
 *
 * The hardened checks (check=full) of slabs that the host works on: each free is checked against
 * the bitmap, and free units in host memory hold poison. Faults go to the log with their address,
 * and are counted in the slab's heap; the program goes on.
 *
 * Thread safe.
 */
#ifndef GPUALLOC_SLAB_HOST_CHECKED_H
#define GPUALLOC_SLAB_HOST_CHECKED_H

#include "host.h"

/* Free the unit; GA_ERR_POINTER if it was free. */
ga_status ga_slab_checked_free(ga_slab_host *slab, ga_slab_region *region, uint32_t unit,
                               void *block);

/* Check that a unit that the caller has just claimed has not been written to since it was freed. */
void ga_slab_checked_claim(ga_slab_host *slab, uint32_t unit, void *block);

/* Log and count a free of an invalid pointer. */
ga_status ga_slab_checked_no_unit(ga_slab_host *slab, const void *pointer);

#endif
