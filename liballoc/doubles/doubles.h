/* SPDX-License-Identifier: MIT
 *
 * Backends for tests: one that has nothing, one that fails when told to. The third double,
 * `trace`, lives in trace/.
 */
#ifndef GPUALLOC_DOUBLES_DOUBLES_H
#define GPUALLOC_DOUBLES_DOUBLES_H

#include <gpualloc/backend.h>

extern const ga_backend ga_null_backend;
extern const ga_backend ga_fail_backend;

#endif
