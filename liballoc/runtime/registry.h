/* SPDX-License-Identifier: MIT
 *
 * The backends by name: those built in, those registered, and those from GPUALLOC_PLUGINS.
 */
#ifndef GPUALLOC_RUNTIME_REGISTRY_H
#define GPUALLOC_RUNTIME_REGISTRY_H

#include <gpualloc/backend.h>

/* NULL with a sentence that lists the known names (GA_ERR_SPEC). Thread safe. */
const ga_backend *ga_registry_find(const char *name);

#endif
