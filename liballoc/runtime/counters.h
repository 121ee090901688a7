/* SPDX-License-Identifier: MIT
 *
 * A heap's counters: one set for each thread slot, added up by the reader.
 */
#ifndef GPUALLOC_RUNTIME_COUNTERS_H
#define GPUALLOC_RUNTIME_COUNTERS_H

#include <gpualloc/gpualloc.h>

typedef struct ga_counters ga_counters;

/* NULL without memory. The caller deletes the counters, once no other thread uses them. */
ga_counters *ga_counters_new(void);
void ga_counters_delete(ga_counters *counters);

/* Count one call. Sizes are in bytes; `usable`, `before` and `after` are usable sizes of the block,
 * 0 if the backend does not know. These four do nothing if `counters` is NULL. Thread safe. */
void ga_counters_alloc(ga_counters *counters, size_t requested, size_t usable);
void ga_counters_free(ga_counters *counters, size_t usable);
void ga_counters_resize(ga_counters *counters, size_t requested, size_t before, size_t after);
void ga_counters_failure(ga_counters *counters);

/* Count all live blocks as freed. No other thread may count at the same time. */
void ga_counters_free_all(ga_counters *counters);

/* Fill the members that are counted here; held_bytes and growths come from the backend. Thread
 * safe. */
void ga_counters_read(const ga_counters *counters, ga_stats *out);

#endif
