/* SPDX-License-Identifier: MIT
 *
 * The `hardened` backend: an allocator for hosts that must survive memory errors in the programs
 * they run, or at least end them before an attacker can use the error. docs/guide/host.md.
 */
#ifndef GPUALLOC_HARDENED_HARDENED_H
#define GPUALLOC_HARDENED_HARDENED_H

#include <gpualloc/backend.h>

extern const ga_backend ga_hardened_backend;

#endif
