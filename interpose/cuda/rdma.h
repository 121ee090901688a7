/* SPDX-License-Identifier: MIT
 *
 * Attributes of a heap's block that network cards and their libraries use, answered as for a block
 * of the driver's: whether synchronous work on it synchronises (CU_POINTER_ATTRIBUTE_SYNC_MEMOPS),
 * a number that no other block has had (CU_POINTER_ATTRIBUTE_BUFFER_ID), and a dma-buf descriptor.
 *
 * The driver refuses SYNC_MEMOPS for mapped memory. For such a block the context of its device is
 * set to CU_CTX_SYNC_MEMOPS (CUDA 12.1), which affects all later synchronous calls there. Thread
 * safe.
 */
#ifndef GPUALLOC_INTERPOSE_CUDA_RDMA_H
#define GPUALLOC_INTERPOSE_CUDA_RDMA_H

#include "blocks.h"

/* A new value for CU_POINTER_ATTRIBUTE_BUFFER_ID, distinct from the driver's. */
uint64_t ga_cuda_rdma_number(void);

/* True if the driver's answer for this attribute is to be replaced. `value` holds the driver's
 * answer, and is overwritten. */
bool ga_cuda_rdma_overrides(const ga_cuda_block *block, CUpointer_attribute attribute);
void ga_cuda_rdma_correct(const ga_cuda_block *block, CUpointer_attribute attribute, void *value);

/* In a child of fork(): the thread that held the lock exists in the parent only. */
void ga_cuda_rdma_child(void);

#endif
