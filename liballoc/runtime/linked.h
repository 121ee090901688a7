/* SPDX-License-Identifier: MIT
 *
 * What in-kernel malloc is served from when it has been replaced by linking; gpualloc/kernel.h has
 * the calls. Here is only what tests need.
 */
#ifndef GPUALLOC_RUNTIME_LINKED_H
#define GPUALLOC_RUNTIME_LINKED_H

#include <gpualloc/kernel.h>

/* Whether one of the layers is CUDA's malloc in kernels. */
bool ga_linked_calls_cuda(const ga_heap *heap);

/* Whether its blocks are aligned as CUDA's malloc in kernels promises, to 16. */
bool ga_linked_aligns(const ga_kernel_heap *view);

#endif
