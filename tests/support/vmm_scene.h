/* SPDX-License-Identifier: MIT
 *
 * Shared by the tests of the vmm backend: a heap over a device made of host memory.
 */
#ifndef GPUALLOC_TESTS_SUPPORT_VMM_SCENE_H
#define GPUALLOC_TESTS_SUPPORT_VMM_SCENE_H

#include "expect.h"
#include "vmm_driver.h"

#include <inttypes.h>

#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)

/* Start the driver, and open a heap on device 0. */
static inline ga_heap *vmm_open(const vmm_driver_options *options, const char *spec)
{
    ga_heap *heap;
    vmm_driver_start(options);
    assert_ok(ga_heap_open(&heap, GA_PLACE_DEVICE, 0, spec));
    return heap;
}

/* Allocate a block, or fail. */
static inline void *vmm_take(ga_heap *heap, size_t size)
{
    void *block = NULL;
    ga_status status = ga_alloc(heap, size, 0, &block);
    cr_assert_eq(status, GA_OK, "%zu bytes: %s", size, ga_error_text());
    return block;
}

/* Allocate several blocks of one size. */
static inline void vmm_take_many(ga_heap *heap, void **blocks, size_t count, size_t size)
{
    for (size_t i = 0; i < count; i++) {
        blocks[i] = vmm_take(heap, size);
    }
}

static inline void vmm_free_many(ga_heap *heap, void *const *blocks, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        assert_ok(ga_free(heap, blocks[i]));
    }
}

static inline uint64_t vmm_held(ga_heap *heap)
{
    ga_stats stats;
    assert_ok(ga_heap_stats(heap, &stats));
    return stats.held_bytes;
}

static inline void vmm_assert_nothing_left(void)
{
    vmm_driver_counts left = vmm_driver_count();
    cr_assert_eq(left.ranges, 0, "%" PRIu64 " ranges", left.ranges);
    cr_assert_eq(left.mappings, 0, "%" PRIu64 " mappings", left.mappings);
    cr_assert_eq(left.handles, 0, "%" PRIu64 " handles", left.handles);
    cr_assert_eq(left.chunks, 0, "%" PRIu64 " chunks", left.chunks);
    cr_assert_eq(left.events, 0, "%" PRIu64 " events", left.events);
}

/* Close the heap: nothing may be left. Stop the driver. */
static inline void vmm_end(ga_heap *heap)
{
    assert_ok(ga_heap_close(heap));
    vmm_assert_nothing_left();
    vmm_driver_stop();
}

#endif
