/* SPDX-License-Identifier: MIT
 *
 * Slab heaps for kernels as programs open them, over `vmm` and a driver of host memory that runs
 * the library's own kernels; programs' kernels are threads that claim with all lanes of a tile. The
 * heaps grow during kernels, or between launches if the driver permits no more. Each call of the
 * driver fails once. Compiled with the spread of heaps for kernels.
 */
#include "backends/slab/units/slab_growing.h"
#include "device/kinds.h"

#include "support/kernel_scene.h"
#include "support/scene.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    KIB = 1 << 10,
    UNITS = 12 << 10, /* units within the limit */
    WARPS = 3,
    EACH = UNITS / WARPS + 32 /* units that a warp may hold */
};

static const char small[] = "slab:unit=1K,capacity=4M,limit=6M/vmm";
static const char spec[] = "slab:unit=1K,capacity=4M,limit=12M/vmm";

/* ---- kernels ------------------------------------------------------------------------------- */

typedef struct warp {
    ga_slab_heap *heap;
    uint32_t number, retries;
    uint32_t held;
    uint32_t units[EACH + 32];
} warp;

static uint64_t *unit_at(ga_slab_heap *heap, uint32_t unit)
{
    return ga_slab_pointer(ga_slab_view_of(heap), unit);
}

/* Write the owner to both ends. */
static void keep(warp *w, uint32_t unit)
{
    uint64_t mark = (uint64_t)w->number << 32 | unit;
    unit_at(w->heap, unit)[0] = mark;
    unit_at(w->heap, unit)[KIB / sizeof mark - 1] = ~mark;
    w->units[w->held++] = unit;
}

/* Claims until it is refused, or holds enough. */
static void *run_warp(void *argument)
{
    warp *w = argument;
    while (w->held < EACH) {
        ga_lanes units =
            ga_slab_claim_growing(w->heap, GA_ALL_BITS, w->number, ga_lanes_all(GA_SLAB_FULL));
        uint32_t before = w->held;
        for (uint32_t lane = 0; lane < 32; lane++) {
            uint32_t unit = ga_lane_read(units, lane);
            if (unit != GA_SLAB_FULL) {
                keep(w, unit);
            }
        }
        if (w->held == before && !w->retries--) {
            break;
        }
        if (w->held == before) {
            usleep(1000); /* a refusal is believed for a while */
        }
    }
    return NULL;
}

static void give_back(warp *w)
{
    for (uint32_t i = 0; i < w->held; i++) {
        uint64_t mark = (uint64_t)w->number << 32 | w->units[i];
        cr_assert_eq(unit_at(w->heap, w->units[i])[0], mark);
        cr_assert_eq(unit_at(w->heap, w->units[i])[KIB / sizeof mark - 1], ~mark);
        ga_slab_release_lanes(ga_slab_view_of(w->heap), ga_tile_of(32), 1,
                              ga_lanes_all(w->units[i]));
    }
}

/* Several warps claim all units that they can, and free them. Returns their number. */
static uint32_t run(ga_kernel_heap view, uint32_t retries)
{
    pthread_t threads[WARPS];
    warp *warps = calloc(WARPS, sizeof *warps);
    uint32_t held = 0;
    for (uint32_t i = 0; i < WARPS; i++) {
        warps[i].heap = (ga_slab_heap *)view.words[GA_SLAB_WORD_HEAP];
        warps[i].number = i;
        warps[i].retries = retries;
        pthread_create(&threads[i], NULL, run_warp, &warps[i]);
    }
    for (uint32_t i = 0; i < WARPS; i++) {
        pthread_join(threads[i], NULL);
        held += warps[i].held;
    }
    for (uint32_t i = 0; i < WARPS; i++) {
        give_back(&warps[i]);
    }
    free(warps);
    return held;
}

/* ---- growing ------------------------------------------------------------------------------- */

static uint32_t units_within(ga_heap *heap)
{
    return (uint32_t)(stats_of(heap).held_bytes / KIB);
}

Test(slab_kernel, grows_under_kernels_to_its_limit)
{
    ga_kernel_heap view;
    begin(VMM_KERNELS_GROW);
    ga_heap *heap = open_heap(spec);
    assert_ok(ga_heap_kernel_view(heap, &view));
    cr_assert_lt(units_within(heap), UNITS);
    uint32_t all = run(view, 0);
    cr_assert(all <= UNITS && all > UNITS * 9 / 10, "%u units", all);
    for (int round = 0; round < 3; round++) { /* the heap stays grown */
        assert_ok(ga_heap_kernel_view(heap, &view));
        cr_assert_eq(stats_of(heap).live_blocks, 0);
        cr_assert_eq(run(view, 0), all);
    }
    end(heap);
}

/* The host claims units, too. */
Test(slab_kernel, the_host_takes_units_too)
{
    void *block, *other;
    ga_kernel_heap view;
    begin(VMM_KERNELS_GROW);
    ga_heap *heap = open_heap(spec);
    assert_ok(ga_alloc(heap, 1000, 0, &block));
    assert_ok(ga_heap_kernel_view(heap, &view));
    uint32_t rest = run(view, 0);
    assert_ok(ga_alloc(heap, 1000, 0, &other));
    cr_assert_eq(stats_of(heap).live_blocks, 2);
    assert_ok(ga_free(heap, block));
    assert_ok(ga_free(heap, other));
    assert_ok(ga_heap_kernel_view(heap, &view));
    cr_assert_eq(run(view, 0), rest + 1);
    end(heap);
}

/* Without the checks kernels count them; the next view says how many are new. */
Test(slab_kernel, invalid_frees_are_reported)
{
    ga_kernel_heap view;
    begin(VMM_KERNELS_GROW);
    ga_heap *heap = open_heap(spec);
    assert_ok(ga_heap_kernel_view(heap, &view));
    ((ga_slab_heap *)view.words[GA_SLAB_WORD_HEAP])->faults[GA_SLAB_NO_UNIT] = 3;
    scene_capture_begin();
    assert_ok(ga_heap_kernel_view(heap, &view));
    assert_ok(ga_heap_kernel_view(heap, &view));
    const char *text = scene_capture_end();
    const char *said = strstr(text, "device 0: 3 blocks were freed, but are none of this heap's");
    cr_assert(said, "%s", text);
    cr_assert_null(strstr(strstr(said, "were freed") + 1, "were freed"), "once: %s", text);
    end(heap);
}

/* Doubles at each view after kernels that found it full. */
Test(slab_kernel, grows_between_launches)
{
    ga_kernel_heap view;
    begin(VMM_KERNELS_ALONE);
    ga_heap *heap = open_heap(spec);
    uint32_t held = 0, rounds = 0;
    for (uint32_t before = 1; held != before; rounds++) {
        before = held;
        assert_ok(ga_heap_kernel_view(heap, &view));
        held = run(view, 0);
        cr_assert(held >= before);
    }
    cr_assert(held <= UNITS && held > UNITS * 9 / 10, "%u units", held);
    cr_assert(rounds > 2 && rounds < 9, "%u launches", rounds);
    end(heap);
}

/* ---- every call of the driver -------------------------------------------------------------- */

/* Nothing stays of a heap that was not opened, and another can be. */
static bool fail_open(uint64_t n, CUresult error)
{
    ga_heap *heap = NULL;
    ga_kernel_heap view;
    begin(VMM_KERNELS_GROW);
    fail_from(n, error);
    ga_status status = ga_heap_open(&heap, GA_PLACE_KERNEL, 0, small);
    bool failed = stop_failing();
    cr_assert(status == GA_OK || (failed && !heap), "call %" PRIu64, n);
    if (status != GA_OK) {
        heap = open_heap(small);
    }
    assert_ok(ga_heap_kernel_view(heap, &view));
    cr_assert_gt(run(view, 0), 0);
    assert_ok(ga_heap_close(heap));
    expect_nothing_left("open", n);
    return failed;
}

Test(slab_kernel, every_call_of_opening_in_turn)
{
    each_call(fail_open, 30);
}

/* A call that failed once refuses no request permanently. */
static bool fail_under_kernels(uint64_t n, CUresult error)
{
    ga_kernel_heap view;
    begin(VMM_KERNELS_GROW);
    ga_heap *heap = open_heap(spec);
    assert_ok(ga_heap_kernel_view(heap, &view));
    fail_from(n, error);
    uint32_t held = run(view, 0);
    bool failed = stop_failing();
    uint32_t all = run(view, 100);
    cr_assert(held <= all && all <= UNITS && all > UNITS * 9 / 10, "%u, then %u", held, all);
    cr_assert_eq(stats_of(heap).live_blocks, 0);
    assert_ok(ga_heap_close(heap));
    expect_nothing_left("kernels", n);
    return failed;
}

Test(slab_kernel, every_call_under_kernels_in_turn)
{
    each_call(fail_under_kernels, 3);
}

/* A view, statistics, a unit of the host and its free: refused or done; and done the next time. */
static bool fail_between(vmm_driver_kernels kernels, uint64_t n, CUresult error)
{
    ga_stats stats;
    void *block = NULL;
    ga_kernel_heap view;
    begin(kernels);
    ga_heap *heap = open_heap(spec);
    assert_ok(ga_heap_kernel_view(heap, &view));
    uint32_t held = run(view, 0);
    fail_from(n, error);
    if (ga_heap_kernel_view(heap, &view) != GA_OK || ga_heap_stats(heap, &stats) != GA_OK ||
        ga_alloc(heap, 1000, 0, &block) != GA_OK) {
        cr_assert(vmm_driver_has_failed(), "%s", ga_error_text());
    }
    bool freed = block && ga_free(heap, block) == GA_OK;
    bool failed = stop_failing();
    cr_assert(failed || freed);
    if (block && !freed) {
        ga_free(heap, block); /* it may have been free already: then that is said */
    }
    assert_ok(ga_heap_kernel_view(heap, &view));
    uint32_t again = run(view, 0);
    cr_assert(again + 1 >= held, "%u units, then %u", held, again);
    assert_ok(
        ga_heap_reset(heap)); /* a unit may have been lost with the answer that contained it */
    assert_ok(ga_heap_close(heap));
    expect_nothing_left("between", n);
    return failed;
}

static bool fail_between_launches(uint64_t n, CUresult error)
{
    return fail_between(VMM_KERNELS_GROW, n, error);
}

Test(slab_kernel, every_call_between_launches_in_turn)
{
    each_call(fail_between_launches, 20);
}

/* Here the view grows the heap. */
static bool fail_growth_between_launches(uint64_t n, CUresult error)
{
    return fail_between(VMM_KERNELS_ALONE, n, error);
}

Test(slab_kernel, every_call_of_growth_between_launches_in_turn)
{
    each_call(fail_growth_between_launches, 20);
}

static bool fail_close(uint64_t n, CUresult error)
{
    ga_kernel_heap view;
    begin(VMM_KERNELS_GROW);
    ga_heap *heap = open_heap(spec);
    assert_ok(ga_heap_kernel_view(heap, &view));
    run(view, 0);
    fail_from(n, error);
    ga_heap_close(heap);
    bool failed = stop_failing();
    expect_nothing_left("close", n);
    return failed;
}

Test(slab_kernel, every_call_of_closing_in_turn)
{
    each_call(fail_close, 10);
}

/* ---- contexts that go first, and children ------------------------------------------------- */

Test(slab_kernel, a_context_that_is_destroyed_first)
{
    ga_kernel_heap view;
    begin(VMM_KERNELS_GROW);
    ga_heap *heap = open_heap(spec);
    assert_ok(ga_heap_kernel_view(heap, &view));
    uint32_t before = units_within(heap);
    vmm_driver_destroy_context(0);
    cr_assert(run(view, 0) <= before); /* the units at that time, and no more */
    cr_assert_eq(ga_heap_kernel_view(heap, &view), GA_ERR_DEVICE);
    ga_heap_close(heap);
    vmm_driver_stop();
}

Test(slab_kernel, a_fork_with_a_live_pager)
{
    ga_kernel_heap view;
    begin(VMM_KERNELS_GROW);
    ga_heap *heap = open_heap(spec);
    assert_ok(ga_heap_kernel_view(heap, &view));
    cr_assert_eq(scene_in_child(close_in_child, heap), 0);
    cr_assert_gt(run(view, 0), UNITS * 9 / 10);
    end(heap);
}
