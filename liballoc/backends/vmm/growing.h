/* SPDX-License-Identifier: MIT
 *
 * The memories of a vmm heap that grow under kernels (growing.h): the table of open ones, and the
 * bytes that they hold.
 *
 * Thread safe. Error texts begin with the backend's name.
 */
#ifndef GPUALLOC_VMM_GROWING_H
#define GPUALLOC_VMM_GROWING_H

#include "blocks.h"

/* As ga_growing_start(), for the heap's device. Its limit is the rest of the heap's limit now.
 *
 * GA_ERR_UNSUPPORTED  on the host, or too many are open
 * GA_ERR_MEMORY       the limit leaves nothing */
ga_status ga_vmm_growing_open(ga_vmm *vmm, ga_growing *growing);
void ga_vmm_growing_close(ga_vmm *vmm, ga_growing *growing);

/* Gives the device `peer` access to all that are open. The caller holds the heap's lock. */
ga_status ga_vmm_growing_allow(ga_vmm *vmm, int peer);

/* Bytes that they hold. The caller holds the heap's lock. */
uint64_t ga_vmm_growing_held(const ga_vmm *vmm);

#endif
