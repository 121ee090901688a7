/* SPDX-License-Identifier: MIT
 *
 * A heap's counters: one set for each thread slot, added up by whoever reads them.
 */
#ifndef GPUALLOC_RUNTIME_COUNTERS_H
#define GPUALLOC_RUNTIME_COUNTERS_H

#include <gpualloc/gpualloc.h>

typedef struct ga_counters ga_counters;

/* NULL where there is no memory for them. */
ga_counters *ga_counters_new(void);
void ga_counters_delete(ga_counters *counters);

/* `usable` is what the block can hold, 0 where the backend cannot say. Without counters, with NULL,
 * these four do nothing. */
void ga_counters_alloc(ga_counters *counters, size_t requested, size_t usable);
void ga_counters_free(ga_counters *counters, size_t usable);
void ga_counters_resize(ga_counters *counters, size_t requested, size_t before, size_t after);
void ga_counters_failure(ga_counters *counters);

/* All blocks that are live are free now. No other thread counts beside it. */
void ga_counters_free_all(ga_counters *counters);

/* Fills everything that is counted here; held_bytes and growths are the backend's. */
void ga_counters_read(const ga_counters *counters, ga_stats *out);

#endif
