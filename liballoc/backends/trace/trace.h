/* SPDX-License-Identifier: MIT
 *
 * The `trace` backend: passes every call on to its parent and records it.
 */
#ifndef GPUALLOC_TRACE_TRACE_H
#define GPUALLOC_TRACE_TRACE_H

#include <gpualloc/backend.h>

extern const ga_backend ga_trace_backend;

#endif
