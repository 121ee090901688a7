/* SPDX-License-Identifier: MIT
 *
 * The `vmm` backend: memory is mapped block by block into addresses that are reserved once.
 */
#ifndef GPUALLOC_ARENA_VMM_H
#define GPUALLOC_ARENA_VMM_H

#include "vmm_share.h"

extern const ga_backend ga_vmm_backend;

/* Let one more device access the heap's memory, present and future. `state` is of this backend.
 * GA_ERR_UNSUPPORTED if the device cannot access it; GA_ERR_PLACE on the host. Thread safe. */
ga_status ga_vmm_backend_allow(void *state, int peer);

/* Export the chunks behind bytes of a live block on a device to another process: see
 * ga_vmm_export(). Thread safe. */
ga_status ga_vmm_backend_export(void *state, const void *start, uint64_t size, ga_vmm_pieces *out);

/* True if the heap's memory can be exported. */
bool ga_vmm_backend_shares(void *state);

/* True if the address lies in the heap's reservations, mapped or not. Thread safe. */
bool ga_vmm_backend_reserves(void *state, const void *pointer);

#endif
