/* SPDX-License-Identifier: MIT
 *
 * The allocators that already exist, behind our interface. The registry lists them.
 */
#ifndef GPUALLOC_NATIVE_NATIVE_H
#define GPUALLOC_NATIVE_NATIVE_H

#include <gpualloc/backend.h>

extern const ga_backend ga_system_backend;
extern const ga_backend ga_jemalloc_backend; /* where it was built: GA_HAVE_JEMALLOC */
extern const ga_backend ga_dl_backend;
extern const ga_backend ga_cuda_backend;
extern const ga_backend ga_async_backend;

#endif
