/* SPDX-License-Identifier: MIT
 *
 * What network cards and programs for them ask of a block, answered as for a block of the driver's:
 * whether synchronous work on it synchronizes (CU_POINTER_ATTRIBUTE_SYNC_MEMOPS), a number that no
 * other block has had (CU_POINTER_ATTRIBUTE_BUFFER_ID), and a descriptor for it (dma-buf).
 *
 * The driver refuses SYNC_MEMOPS for memory that is mapped. There the context of the block's device
 * gets it (CU_CTX_SYNC_MEMOPS, CUDA 12.1), for all that it does from then on. Thread safe.
 */
#ifndef GPUALLOC_INTERPOSE_CUDA_RDMA_H
#define GPUALLOC_INTERPOSE_CUDA_RDMA_H

#include "blocks.h"

/* A number for CU_POINTER_ATTRIBUTE_BUFFER_ID, none of the driver's. */
uint64_t ga_cuda_rdma_number(void);

/* Whether we know better than the driver. `value` holds the driver's answer, and ours afterwards. */
bool ga_cuda_rdma_knows(const ga_cuda_block *block, CUpointer_attribute attribute);
void ga_cuda_rdma_correct(const ga_cuda_block *block, CUpointer_attribute attribute, void *value);

/* In a child of fork(): who held the lock is not here. */
void ga_cuda_rdma_child(void);

#endif
