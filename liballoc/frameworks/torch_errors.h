/* SPDX-License-Identifier: MIT
 *
 * Reports a failed request as PyTorch's exception, thrown from C.
 */
#ifndef GPUALLOC_FRAMEWORKS_TORCH_ERRORS_H
#define GPUALLOC_FRAMEWORKS_TORCH_ERRORS_H

#include <gpualloc/gpualloc.h>

#include <stddef.h>

/* Throw c10::OutOfMemoryError for GA_ERR_MEMORY and c10::Error for other statuses, with
 * ga_error_text() as the reason. Throws std::bad_alloc if PyTorch's exceptions have another shape.
 * `size`: bytes of the request, for the message.
 *
 * Returns if there is nothing to throw: PyTorch is not loaded in this process, or its current
 * allocator is its own, which handles a NULL from the allocator of a MemPool itself. The caller
 * holds no lock. Thread safe. */
void ga_torch_throw(ga_status status, size_t size, int device);

#endif
