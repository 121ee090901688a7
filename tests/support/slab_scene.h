/* SPDX-License-Identifier: MIT
 *
 * Shared by the tests of the slab backend: heaps, also over a parent with little memory; how much
 * is live and how many faults were found.
 */
#ifndef GPUALLOC_TESTS_SUPPORT_SLAB_SCENE_H
#define GPUALLOC_TESTS_SUPPORT_SLAB_SCENE_H

#include "backends/slab/slab.h"

#include "expect.h"
#include "slab_fault_count.h"

#include <stdint.h>
#include <stdlib.h>

enum {
    HELD = 3000 /* blocks, where a test wants many */
};

/* ---- a parent with little: refuses once it has served `tight_left` requests ------------------ */

static int64_t tight_left;
static int64_t tight_live;
static int64_t tight_trims;

static inline ga_status tight_open(const ga_open_args *args, void **state)
{
    (void)args;
    *state = NULL;
    return GA_OK;
}

static inline void tight_close(void *state)
{
    (void)state;
}

static inline ga_status tight_alloc(void *state, size_t size, void **out)
{
    (void)state;
    if (__atomic_sub_fetch(&tight_left, 1, __ATOMIC_RELAXED) < 0) {
        return ga_fail(GA_ERR_MEMORY, "tight: refused %zu bytes", size);
    }
    *out = aligned_alloc(256, (size + 255) / 256 * 256);
    __atomic_add_fetch(&tight_live, 1, __ATOMIC_RELAXED);
    return *out ? GA_OK : ga_fail(GA_ERR_MEMORY, "tight: no memory for %zu bytes", size);
}

static inline ga_status tight_free(void *state, void *block)
{
    (void)state;
    free(block);
    __atomic_sub_fetch(&tight_live, 1, __ATOMIC_RELAXED);
    return GA_OK;
}

static inline bool tight_owns(void *state, const void *pointer)
{
    (void)state;
    return pointer != NULL;
}

static inline ga_status tight_trim(void *state, size_t keep)
{
    (void)state;
    tight_trims += keep == 4096;
    return GA_OK;
}

static const ga_backend tight = {
    .abi = GA_BACKEND_ABI,
    .size = sizeof(ga_backend),
    .name = "tight",
    .help = "serves a few requests",
    .places = GA_PLACE_BIT(GA_PLACE_HOST) | GA_PLACE_BIT(GA_PLACE_DEVICE),
    .open = tight_open,
    .close = tight_close,
    .alloc = tight_alloc,
    .free = tight_free,
    .owns = tight_owns,
    .trim = tight_trim,
};

/* ---- heaps ----------------------------------------------------------------------------------- */

static inline ga_heap *open_at(ga_place place, const char *spec)
{
    ga_heap *heap;
    static bool registered;
    if (!registered) {
        assert_ok(ga_backend_register(&tight));
        registered = true;
    }
    assert_ok(ga_heap_open(&heap, place, 0, spec));
    return heap;
}

static inline ga_heap *open_host(const char *spec)
{
    return open_at(GA_PLACE_HOST, spec);
}

static inline void *take(ga_heap *heap, size_t size)
{
    void *block;
    assert_ok(ga_alloc(heap, size, 0, &block));
    return block;
}

static inline ga_stats stats_of(ga_heap *heap)
{
    ga_stats stats;
    assert_ok(ga_heap_stats(heap, &stats));
    return stats;
}

static inline uint64_t faults(const ga_heap *heap, ga_slab_fault fault)
{
    return slab_fault_count(heap, fault);
}

#endif
