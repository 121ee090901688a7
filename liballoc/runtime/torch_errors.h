/* SPDX-License-Identifier: MIT
 *
 * A failed request as PyTorch's exception, thrown from C.
 */
#ifndef GPUALLOC_RUNTIME_TORCH_ERRORS_H
#define GPUALLOC_RUNTIME_TORCH_ERRORS_H

#include <gpualloc/gpualloc.h>

#include <stddef.h>

/* Throw c10::OutOfMemoryError for GA_ERR_MEMORY and c10::Error for other statuses, with
 * ga_error_text() as the reason; std::bad_alloc where PyTorch's exceptions have another shape.
 *
 * Returns where nothing is to be thrown: PyTorch is not loaded in this process, or its current
 * allocator is its own, which handles a NULL of the allocator of a MemPool by itself. The caller
 * holds no lock. Thread safe. */
void ga_torch_throw(ga_status status, size_t size, int device);

#endif
