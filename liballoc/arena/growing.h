/* SPDX-License-Identifier: MIT
 *
 * Device memory that grows while kernels use it, for a backend above (gpualloc/backend.h): one or
 * two arenas that are backed in equal steps, and a pager client. If the device does not support
 * this (growth_probe.h), there is no mailbox, and the host grows the memory between launches.
 *
 * Calls on one ga_growing must not overlap. The pager runs concurrently with all of them except
 * opening and closing.
 */
#ifndef GPUALLOC_ARENA_GROWING_H
#define GPUALLOC_ARENA_GROWING_H

#include "../platform/latency.h"

#include <gpualloc/backend.h>

/* `growing` as described in backend.h. `limit`: most bytes to back, both ranges together; 0: no
 * limit. GA_ERR_ARGUMENT for no steps or steps of no bytes; else as ga_arena_open() and
 * ga_arena_grow(). */
ga_status ga_growing_start(ga_growing *growing, int device, uint64_t limit);

/* Back at least `steps` steps. No kernel that could request more may be running. */
ga_status ga_growing_reach(ga_growing *growing, uint32_t steps);

/* The memory must not be in use any more. */
void ga_growing_end(ga_growing *growing);

/* Add the times of all requests of kernels to `out`. Nothing is added without a pager. */
void ga_growing_add_times(const ga_growing *growing, ga_latency *out);

/* Give the device `peer` access to the memory, present and future. Kernels and the pager may be
 * using it. GA_ERR_UNSUPPORTED: the peer cannot access the device. */
ga_status ga_growing_add_peer(const ga_growing *growing, int peer);

/* Bytes that are backed now. */
uint64_t ga_growing_held(const ga_growing *growing);

#endif
