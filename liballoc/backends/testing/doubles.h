/* SPDX-License-Identifier: MIT
 *
 * Backends for tests: `null` has no memory, `fail` refuses chosen requests. The third test backend,
 * `trace`, is in trace/.
 */
#ifndef GPUALLOC_TESTING_DOUBLES_H
#define GPUALLOC_TESTING_DOUBLES_H

#include <gpualloc/backend.h>

extern const ga_backend ga_null_backend;
extern const ga_backend ga_fail_backend;

#endif
