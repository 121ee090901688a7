/* SPDX-License-Identifier: MIT
 *
 * The heaps behind in-kernel malloc that was replaced by linking. gpualloc/kernel.h has the public
 * calls; this header is for tests.
 */
#ifndef GPUALLOC_LINKED_LINKED_H
#define GPUALLOC_LINKED_LINKED_H

#include <gpualloc/kernel.h>

/* Whether a layer of the heap is CUDA's in-kernel malloc, which would call itself. */
bool ga_linked_calls_cuda(const ga_heap *heap);

/* Whether blocks of the heap have the alignment that CUDA's in-kernel malloc promises: 16 bytes. */
bool ga_linked_aligns(const ga_kernel_heap *view);

#endif
