/* SPDX-License-Identifier: MIT
 *
 * Memory of a device that grows while kernels use it, for a backend above (gpualloc/backend.h): one
 * or two arenas that are backed in step, and the pager that does it. Where the device cannot do it
 * (growth_probe.h), there is no mailbox, and the host grows it between launches.
 *
 * Calls on one of them do not run beside each other; the pager runs beside all but opening and
 * closing.
 */
#ifndef GPUALLOC_ARENA_GROWING_H
#define GPUALLOC_ARENA_GROWING_H

#include "../platform/latency.h"

#include <gpualloc/backend.h>

/* `growing` as backend.h says. `limit`: the most bytes that it may back, both ranges together; 0:
 * none. GA_ERR_ARGUMENT for no steps or no bytes in a step; else as ga_arena_open() and
 * ga_arena_grow(). */
ga_status ga_growing_start(ga_growing *growing, int device, uint64_t limit);

/* At least `steps` are backed. No kernel that could ask for more may be running. */
ga_status ga_growing_reach(ga_growing *growing, uint32_t steps);

/* Nobody uses it any more. */
void ga_growing_end(ga_growing *growing);

/* How long the pager took for each wish, added to what `out` has; nothing where there is none. */
void ga_growing_add_times(const ga_growing *growing, ga_latency *out);

/* Bytes backed now. */
uint64_t ga_growing_held(const ga_growing *growing);

#endif
