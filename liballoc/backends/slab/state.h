/* SPDX-License-Identifier: MIT
 *
 * The state of a heap of the `slab` backend.
 */
#ifndef GPUALLOC_SLAB_STATE_H
#define GPUALLOC_SLAB_STATE_H

#include "classes/sized.h"
#include "host/cache.h"
#include "host/classes.h"
#include "host/large.h"
#include "units/kernel.h"

typedef struct ga_slab_state {
    size_t fast_max; /* the largest request that the fast path serves */
    ga_slab_store store;
    ga_slab_classes classes;
    /* In the place kernel one of these two; all other fields are unused then. */
    ga_slab_kernel *kernel;
    ga_sized *sized;
    int device;
    bool on_device;
    bool check;
    ga_slab_large large;
    ga_slab_host slabs[];
} ga_slab_state;

/* The calling thread's cache, or NULL in a heap without caches (cache.h). */
static inline ga_slab_cache *ga_slab_state_cache(ga_slab_state *s)
{
    return s->check || s->on_device ? NULL : ga_slab_cache_get(&s->store);
}

static inline bool ga_slab_state_in_kernels(const ga_slab_state *s)
{
    return s->kernel || s->sized;
}

/* This heap's region at that address, or NULL. */
static inline ga_slab_region *ga_slab_state_region(const ga_slab_state *s, const void *pointer)
{
    ga_slab_region *region = ga_slab_region_at(pointer);
    /* relaxed: a stale value is that of a heap that is being closed, not of this one */
    bool own = region && __atomic_load_n(&region->heap, __ATOMIC_RELAXED) == s->store.serial;
    return __builtin_expect(own, 1) ? region : NULL;
}

/* Members of the backend (slab.c), and the slow paths of alloc and free. */
ga_status ga_slab_state_alloc_slow(ga_slab_state *s, size_t size, void **out);
ga_status ga_slab_state_free_slow(ga_slab_state *s, void *block);
ga_status ga_slab_state_alloc_zeroed(void *state, size_t size, void **out);
ga_status ga_slab_state_alloc_aligned(void *state, size_t size, size_t align, void **out);
ga_status ga_slab_state_realloc(void *state, void *block, size_t size, void **out);
size_t ga_slab_state_usable_size(void *state, const void *block);

/* table.c. NULL for all heaps but the first that requests it. */
const ga_malloc_table *ga_slab_state_malloc_table(void *state);
void ga_slab_state_unserve(const ga_slab_state *s);

/* live.c */
ga_status ga_slab_state_each_live(void *state, ga_visit *visit, void *context);
void ga_slab_state_stats(void *state, ga_backend_stats *out);
ga_status ga_slab_state_reset(void *state);

#endif
