/* SPDX-License-Identifier: MIT
 *
 * Shared by the tests of heaps for kernels: heaps over `vmm` and `cuda` and a driver of host memory
 * that runs the library's own kernels, each call of which can fail once.
 */
#ifndef GPUALLOC_TESTS_SUPPORT_KERNEL_SCENE_H
#define GPUALLOC_TESTS_SUPPORT_KERNEL_SCENE_H

#include "expect.h"
#include "vmm_recover.h"

#include <inttypes.h>

static inline void begin(vmm_driver_kernels kernels)
{
    vmm_driver_start(&(vmm_driver_options){.kernels = kernels});
}

static inline ga_heap *open_heap(const char *spec)
{
    ga_heap *heap = NULL;
    assert_ok(ga_heap_open(&heap, GA_PLACE_KERNEL, 0, spec));
    return heap;
}

/* And stop the driver. */
static inline void expect_nothing_left(const char *after, uint64_t n)
{
    vmm_driver_counts now = vmm_driver_count();
    cr_assert_eq(
        now.ranges + now.chunks + now.handles + now.mappings + now.blocks + now.pinned + now.events,
        0,
        "%s, call %" PRIu64 ": %" PRIu64 " ranges, %" PRIu64 " chunks, %" PRIu64
        " handles, %" PRIu64 " mappings, %" PRIu64 " blocks, %" PRIu64 " pinned",
        after, n, now.ranges, now.chunks, now.handles, now.mappings, now.blocks, now.pinned);
    vmm_driver_stop();
}

static inline void end(ga_heap *heap)
{
    assert_ok(ga_heap_close(heap));
    expect_nothing_left("all", 0);
}

static inline ga_stats stats_of(ga_heap *heap)
{
    ga_stats stats = {0};
    assert_ok(ga_heap_stats(heap, &stats));
    return stats;
}

/* For scene_in_child(): a child has no view of its parent's heap, and closes it. */
static inline int close_in_child(void *context)
{
    ga_kernel_heap view;
    ga_heap *heap = context;
    bool refused = ga_heap_kernel_view(heap, &view) != GA_OK;
    ga_heap_close(heap);
    return refused ? 0 : 1;
}

/* ---- every call of the driver -------------------------------------------------------------- */

static uint64_t fail_more; /* calls after the failing one that fail, too */

/* Let the first call fail, then the second one, and so on until no call fails: after more than
 * `least`. */
static inline void each_call(bool (*fails)(uint64_t n, CUresult error), uint64_t least)
{
    static const CUresult errors[] = {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_NOT_PERMITTED};
    for (int i = 0; i < VMM_SOME_CALLS; i++) {
        uint64_t n = 1;
        fail_more = vmm_more_calls[i];
        while (fails(n, errors[n % 2])) {
            n++;
        }
        cr_assert_gt(n, least, "only %" PRIu64 " calls", n - 1);
    }
}

/* The n-th call from now on fails, and in the second round of each_call() all behind it do. */
static inline void fail_from(uint64_t n, CUresult error)
{
    vmm_driver_fail_many(NULL, n, fail_more, error);
}

/* Returns true if the call that was to fail was made. No more calls fail. */
static inline bool stop_failing(void)
{
    return vmm_recover();
}

#endif
