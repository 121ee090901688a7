/* SPDX-License-Identifier: MIT
 *
 * Backends over existing allocators. The registry lists them.
 */
#ifndef GPUALLOC_NATIVE_NATIVE_H
#define GPUALLOC_NATIVE_NATIVE_H

#include <gpualloc/backend.h>

extern const ga_backend ga_system_backend;
extern const ga_backend ga_jemalloc_backend; /* defined if GA_HAVE_JEMALLOC is */
extern const ga_backend ga_dl_backend;
extern const ga_backend ga_cuda_backend;
extern const ga_backend ga_managed_backend;
extern const ga_backend ga_pinned_backend;
extern const ga_backend ga_async_backend;

#endif
