/* SPDX-License-Identifier: MIT
 *
 * Access to a vmm heap's memory from elsewhere: other processes and machines (share=), network
 * cards (rdma=), and communication libraries that register single blocks (register=).
 */
#ifndef GPUALLOC_VMM_ACCESS_H
#define GPUALLOC_VMM_ACCESS_H

#include "../../arena/space.h"

typedef enum ga_vmm_share {
    GA_VMM_SHARE_NONE = 0,
    GA_VMM_SHARE_FD,
    GA_VMM_SHARE_FABRIC, /* and file descriptors; these alone where there is no fabric */
    GA_VMM_SHARE_AUTO    /* file descriptors, where the device has them */
} ga_vmm_share;

typedef enum ga_vmm_rdma {
    GA_VMM_RDMA_OFF = 0,
    GA_VMM_RDMA_ON,
    GA_VMM_RDMA_AUTO
} ga_vmm_rdma;

typedef struct ga_vmm_access {
    ga_vmm_share share;
    ga_vmm_rdma rdma;
    /* Memory as ncclMemAlloc() makes it: shared by file descriptor and fabric, for network cards
     * where the device can, of the recommended granularity, and accessible from all peers. */
    bool registers;
} ga_vmm_access;

/* Open the space of a heap. GA_ERR_UNSUPPORTED: the device or the driver cannot do what is asked
 * for; other errors as ga_space_open(). */
ga_status ga_vmm_access_open(ga_space *space, ga_place place, int device, ga_vmm_access access);

#endif
