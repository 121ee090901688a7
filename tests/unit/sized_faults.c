/* SPDX-License-Identifier: MIT
 *
 * Size-class heaps for kernels, with each call of the driver failing once: while a heap is opened,
 * during kernels, between launches, and while it is closed.
 */
#include "support/sized_scene.h"

/* Blocks of cuMemAlloc's that the driver refuses for good are lost, with a sentence. */
static bool lost_blocks(void)
{
    vmm_driver_counts left = vmm_driver_count();
    return fail_more && left.blocks && left.blocks <= 2 && !left.ranges && !left.handles &&
           !left.mappings && !left.pinned;
}

/* Nothing stays of a heap that was not opened, and another can be. */
static bool fail_open(const char *spec, uint64_t n, CUresult error)
{
    ga_heap *heap = NULL;
    begin(VMM_KERNELS_GROW);
    fail_from(n, error);
    ga_status status = ga_heap_open(&heap, GA_PLACE_KERNEL, 0, spec);
    bool failed = stop_failing();
    cr_assert(status == GA_OK || (failed && !heap), "call %" PRIu64, n);
    cr_assert(status == GA_OK || status == GA_ERR_MEMORY || status == GA_ERR_DEVICE,
              "call %" PRIu64 ": %s: %s", n, ga_status_text(status), ga_error_text());
    if (status != GA_OK) {
        heap = open_heap(spec);
    }
    cr_assert_gt(run(view_of(heap), NULL, 1024, 0), 0);
    assert_ok(ga_heap_close(heap));
    if (!lost_blocks()) {
        expect_nothing_left("open", n);
    }
    return failed;
}

static bool fail_open_growing(uint64_t n, CUresult error)
{
    return fail_open("slab:unit=classes,capacity=4M/vmm:limit=8M", n, error);
}

static bool fail_open_fixed(uint64_t n, CUresult error)
{
    return fail_open("slab:unit=classes,capacity=1M/cuda", n, error);
}

Test(sized_faults, every_call_of_opening_in_turn)
{
    each_call(fail_open_growing, 30);
    each_call(fail_open_fixed, 10);
}

/* A call that failed once refuses no request permanently. */
static bool fail_under_kernels(uint64_t n, CUresult error)
{
    begin(VMM_KERNELS_GROW);
    ga_heap *heap = open_heap(growing);
    ga_kernel_heap view = view_of(heap);
    fail_from(n, error);
    uint64_t held = run(view, NULL, 2048, 0);
    bool failed = stop_failing();
    uint64_t all = run(view, heap, 2048, 100);
    cr_assert(held <= all && all == LIMIT, "%" PRIu64 ", then %" PRIu64, held, all);
    assert_ok(ga_heap_close(heap));
    expect_nothing_left("kernels", n);
    return failed;
}

Test(sized_faults, every_call_under_kernels_in_turn)
{
    each_call(fail_under_kernels, 3);
}

/* A view, statistics, blocks of the host, their frees, trimming: refused or done; and done the next
 * time. */
static bool fail_between(vmm_driver_kernels kernels, uint64_t n, CUresult error)
{
    ga_stats stats;
    void *block = NULL;
    ga_kernel_heap view;
    begin(kernels);
    ga_heap *heap = open_heap(growing);
    uint64_t held = run(view_of(heap), NULL, 2048, 0);
    fail_from(n, error);
    bool done = ga_heap_kernel_view(heap, &view) == GA_OK && ga_trim(heap, 0) == GA_OK &&
                ga_heap_stats(heap, &stats) == GA_OK && ga_alloc(heap, 1000, 0, &block) == GA_OK;
    bool freed = block && ga_free(heap, block) == GA_OK;
    done = done && ga_heap_reset(heap) == GA_OK;
    bool failed = stop_failing();
    cr_assert(failed || (done && freed), "%s", ga_error_text());
    if (block && !freed) {
        ga_free(heap, block); /* it may have been free already: then that is said */
    }
    assert_ok(
        ga_heap_reset(heap)); /* a block may have been lost with the answer that contained it */
    expect_live(heap, 0, 0);
    assert_ok(ga_trim(heap, 0));
    uint64_t again = run(view_of(heap), heap, 1024, 0);
    cr_assert(again >= held, "%" PRIu64 " bytes, then %" PRIu64, held, again);
    assert_ok(ga_heap_close(heap));
    expect_nothing_left("between", n);
    return failed;
}

static bool fail_between_launches(uint64_t n, CUresult error)
{
    return fail_between(VMM_KERNELS_GROW, n, error);
}

/* Here the view grows the heap. */
static bool fail_growth_between_launches(uint64_t n, CUresult error)
{
    return fail_between(VMM_KERNELS_ALONE, n, error);
}

Test(sized_faults, every_call_between_launches_in_turn)
{
    each_call(fail_between_launches, 30);
    each_call(fail_growth_between_launches, 30);
}

static bool fail_close(uint64_t n, CUresult error)
{
    begin(VMM_KERNELS_GROW);
    ga_heap *heap = open_heap(growing);
    run(view_of(heap), NULL, 2048, 0);
    fail_from(n, error);
    ga_heap_close(heap);
    bool failed = stop_failing();
    expect_nothing_left("close", n);
    return failed;
}

Test(sized_faults, every_call_of_closing_in_turn)
{
    each_call(fail_close, 10);
}
