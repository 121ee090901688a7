/* SPDX-License-Identifier: MIT
 *
 * The faults that the hardened checks of a slab heap have found.
 */
#ifndef GPUALLOC_TESTS_SUPPORT_SLAB_FAULT_COUNT_H
#define GPUALLOC_TESTS_SUPPORT_SLAB_FAULT_COUNT_H

#include "backends/slab/state.h"
#include "runtime/heap.h"

/* The number of faults of that kind in a slab heap for the host or a device. */
static inline uint64_t slab_fault_count(const ga_heap *heap, ga_slab_fault fault)
{
    const ga_slab_state *s = heap->state;
    uint64_t sum = 0;
    for (uint32_t class = 0; class < s->classes.count; class ++) {
        sum += __atomic_load_n(&s->slabs[class].heap.faults[fault], __ATOMIC_RELAXED);
    }
    return sum;
}

#endif
