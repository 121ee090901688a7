/* SPDX-License-Identifier: MIT
 *
 * The memories of a vmm heap that grow under kernels (growing.h): how many are open, and what they
 * hold.
 *
 * Thread safe. Errors have the backend's name in front.
 */
#ifndef GPUALLOC_ARENA_VMM_GROWING_H
#define GPUALLOC_ARENA_VMM_GROWING_H

#include "vmm_blocks.h"

/* As ga_growing_start(), for the heap's device; its limit is what the heap's leaves now.
 *
 * GA_ERR_UNSUPPORTED  on the host, or too many are open
 * GA_ERR_MEMORY       the limit leaves nothing */
ga_status ga_vmm_growing_open(ga_vmm *vmm, ga_growing *growing);
void ga_vmm_growing_close(ga_vmm *vmm, ga_growing *growing);

/* Bytes that they hold. With the heap's lock. */
uint64_t ga_vmm_growing_held(const ga_vmm *vmm);

#endif
