/* SPDX-License-Identifier: MIT
 *
 * The `vmm` backend: memory mapped block by block behind addresses that are reserved once.
 */
#ifndef GPUALLOC_ARENA_VMM_H
#define GPUALLOC_ARENA_VMM_H

#include "vmm_share.h"

extern const ga_backend ga_vmm_backend;

/* Let one more device reach the memory of a heap on another, as that is and will be. `state` is of this
 * backend. GA_ERR_UNSUPPORTED where the device cannot; GA_ERR_PLACE on the host. Thread safe. */
ga_status ga_vmm_backend_allow(void *state, int peer);

/* What bytes of a live block on a device lie in, for another process: ga_vmm_export(). Thread safe.
 */
ga_status ga_vmm_backend_export(void *state, const void *start, uint64_t size, ga_vmm_pieces *out);

/* Whether ga_vmm_backend_export() can have its memory. */
bool ga_vmm_backend_shares(void *state);

/* Whether a byte lies in addresses that the heap has reserved, with memory behind it or without.
 * Thread safe. */
bool ga_vmm_backend_reserves(void *state, const void *pointer);

#endif
