/* SPDX-License-Identifier: MIT
 *
 * Size-class heaps for kernels as programs open them: kernels can allocate all memory, in one size
 * or in all; specs that are refused; contexts that go first, and children.
 */
#include "support/scene.h"
#include "support/sized_scene.h"

/* ---- all that there is ---------------------------------------------------------------------- */

/* Of each size, allocate all that the limit permits, again and again: regions change their
 * class. */
static void fill_again(vmm_driver_kernels kernels, const char *spec, uint64_t room)
{
    static const uint32_t sizes[] = {1024, 16, 256, 4096, 128, 1024, 2048};
    begin(kernels);
    ga_heap *heap = open_heap(spec);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        assert_ok(ga_trim(heap, 0));
        uint64_t bytes = run(view_of(heap), heap, sizes[i], 0);
        cr_assert_eq(bytes, room, "%u bytes each: %" PRIu64 " of %" PRIu64, sizes[i], bytes, room);
    }
    end(heap);
}

Test(sized, grows_to_its_limit_and_classes_change_hands)
{
    fill_again(VMM_KERNELS_GROW, growing, LIMIT);
}

Test(sized, takes_all_of_a_fixed_capacity)
{
    fill_again(VMM_KERNELS_GROW, fixed, LIMIT);
    fill_again(VMM_KERNELS_GROW, "slab:unit=classes,capacity=128K/cuda", 128 << 10);
}

/* The view is enough where kernels have been refused. */
Test(sized, a_view_takes_back_what_classes_do_not_use)
{
    begin(VMM_KERNELS_GROW);
    ga_heap *heap = open_heap(fixed);
    for (uint32_t size = 16; size <= 4096; size *= 4) {
        cr_assert_eq(run(view_of(heap), NULL, size, 0), LIMIT, "%u bytes", size);
    }
    end(heap);
}

Test(sized, sizes_mixed)
{
    begin(VMM_KERNELS_GROW);
    ga_heap *heap = open_heap(growing);
    for (int round = 0; round < 3; round++) {
        uint64_t bytes = run(view_of(heap), heap, 0, 0);
        cr_assert(bytes <= LIMIT && bytes > LIMIT / 10 * 8, "%" PRIu64 " bytes", bytes);
        cr_assert_leq(stats_of(heap).held_bytes, LIMIT + 4 * MIB);
    }
    end(heap);
}

/* Doubles at each view after kernels that found it full. */
Test(sized, grows_between_launches)
{
    begin(VMM_KERNELS_ALONE);
    ga_heap *heap = open_heap(growing);
    uint64_t held = 0;
    uint32_t rounds = 0;
    for (uint64_t before = 1; held != before; rounds++) {
        before = held;
        held = run(view_of(heap), heap, 1024, 0);
        cr_assert(held >= before);
    }
    cr_assert_eq(held, LIMIT, "%" PRIu64 " bytes", held);
    cr_assert(rounds > 2 && rounds < 9, "%u launches", rounds);
    end(heap);
}

/* Without a limit: the device's memory. */
Test(sized, grows_to_what_the_device_has)
{
    vmm_driver_start(
        &(vmm_driver_options){.kernels = VMM_KERNELS_GROW, .memory = (size_t)32 * MIB});
    ga_heap *heap = open_heap("slab:unit=classes,capacity=4M/vmm");
    uint64_t bytes = run(view_of(heap), heap, 2048, 0);
    cr_assert(bytes >= LIMIT && bytes <= 32 * MIB, "%" PRIu64 " bytes", bytes);
    end(heap);
}

/* ---- specs ---------------------------------------------------------------------------------- */

Test(sized, specs_that_are_refused)
{
    static const struct {
        const char *spec;
        ga_status status;
    } bad[] = {
        {"slab:unit=classes,capacity=64K/cuda", GA_ERR_SPEC},
        {"slab:unit=classes,limit=64K/vmm", GA_ERR_SPEC},
        {"slab:unit=classes,capacity=0/vmm", GA_ERR_SPEC},
        {"slab:unit=classes,limit=0/vmm", GA_ERR_SPEC},
        {"slab:unit=classes,max=4K/vmm", GA_ERR_SPEC},
        {"slab:unit=classes,blocks=4/vmm", GA_ERR_SPEC},
        {"slab:unit=classes,check=some/vmm", GA_ERR_SPEC},
        {"slab:unit=classes,preset=paper/vmm", GA_ERR_SPEC},
        {"slab:unit=classes,addressing=table/vmm", GA_ERR_SPEC},
        {"slab:unit=classes,capacity=2G/cuda", GA_ERR_MEMORY},
        {"slab:unit=classes,capacity=2G/vmm", GA_ERR_MEMORY},
        {"slab:unit=classes,capacity=4M/fail:nth=1/cuda", GA_ERR_MEMORY},
        {"slab:unit=classes,capacity=4M/fail:nth=2/cuda", GA_ERR_MEMORY},
        {"slab:unit=classes/system", GA_ERR_PLACE},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ga_heap *heap = NULL;
        begin(VMM_KERNELS_GROW);
        ga_status status = ga_heap_open(&heap, GA_PLACE_KERNEL, 0, bad[i].spec);
        cr_assert_eq(status, bad[i].status, "%s: %s: %s", bad[i].spec, ga_status_text(status),
                     ga_error_text());
        cr_assert_null(heap);
        cr_assert(ga_error_text()[0]);
        expect_nothing_left(bad[i].spec, 0);
    }
}

/* ---- contexts that go first, and children ------------------------------------------------- */

Test(sized, a_context_that_is_destroyed_first)
{
    ga_kernel_heap view;
    void *block;
    begin(VMM_KERNELS_GROW);
    ga_heap *heap = open_heap(growing);
    view = view_of(heap);
    vmm_driver_destroy_context(0);
    cr_assert_lt(run(view, NULL, 2048, 0), LIMIT); /* the memory at that time, and no more */
    cr_assert_eq(ga_heap_kernel_view(heap, &view), GA_ERR_DEVICE);
    cr_assert_eq(ga_alloc(heap, 100, 0, &block), GA_ERR_DEVICE);
    cr_assert_eq(ga_heap_reset(heap), GA_ERR_DEVICE);
    cr_assert_eq(ga_trim(heap, 0), GA_ERR_DEVICE);
    ga_heap_close(heap);
    vmm_driver_stop();
}

Test(sized, a_fork_with_a_live_pager)
{
    begin(VMM_KERNELS_GROW);
    ga_heap *heap = open_heap(growing);
    ga_kernel_heap view = view_of(heap);
    cr_assert_eq(scene_in_child(close_in_child, heap), 0);
    cr_assert_eq(run(view, heap, 1024, 0), LIMIT);
    end(heap);
}

/* Without the checks kernels count them; the next view says how many are new. */
Test(sized, invalid_frees_are_reported)
{
    begin(VMM_KERNELS_GROW);
    ga_heap *heap = open_heap(fixed);
    ga_sized_heap *inside = (ga_sized_heap *)view_of(heap).words[GA_SIZED_WORD_HEAP];
    inside->faults = 3;
    scene_capture_begin();
    view_of(heap);
    view_of(heap);
    const char *text = scene_capture_end();
    const char *said = strstr(text, "device 0: 3 blocks were freed, but are none of this heap's");
    cr_assert(said, "%s", text);
    cr_assert_null(strstr(strstr(said, "were freed") + 1, "were freed"), "once: %s", text);
    inside->faults = 4;
    scene_capture_begin();
    assert_ok(ga_heap_close(heap));
    text = scene_capture_end();
    cr_assert(strstr(text, "device 0: 1 blocks were freed"), "%s", text);
    expect_nothing_left("invalid frees", 0);
}

Test(sized, live_blocks_are_reported_at_the_end)
{
    void *block;
    begin(VMM_KERNELS_GROW);
    ga_heap *heap = open_heap(fixed);
    assert_ok(ga_alloc(heap, 1000, 0, &block));
    scene_capture_begin();
    assert_ok(ga_heap_close(heap));
    const char *text = scene_capture_end();
    cr_assert(strstr(text, "1 block") && strstr(text, "1024 bytes"), "%s", text);
    expect_nothing_left("a leak", 0);
}
