/* SPDX-License-Identifier: MIT
 *
 * The backends by name: built-in ones, registered ones, and those from GPUALLOC_PLUGINS.
 */
#ifndef GPUALLOC_RUNTIME_REGISTRY_H
#define GPUALLOC_RUNTIME_REGISTRY_H

#include <gpualloc/backend.h>

/* The backend of that name, which lives as long as the process. NULL if there is none; then the
 * error sentence (GA_ERR_SPEC) lists the known names. Thread safe. */
const ga_backend *ga_registry_find(const char *name);

#endif
