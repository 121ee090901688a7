/* SPDX-License-Identifier: MIT
 *
 * The host's side of `coalesce`, over a driver made of host memory: the meaning of its options
 * together, the view's contents, that nothing leaks, and that each call of the driver may fail.
 */
#include "backends/coalesce/coalesce_heap.h"
#include "backends/coalesce/coalesce_words.h"

#include "backends/slab/classes/sized_words.h"
#include "device/kinds.h"
#include "support/expect.h"
#include "support/sized_actor.h"
#include "support/vmm_recover.h"

#include <gpualloc/backend.h>

#include <stdio.h>

#define SLABS "slab:unit=classes,capacity=16M/cuda"

static void start(void)
{
    vmm_driver_start(NULL);
}

static void stop_with(uint64_t blocks)
{
    vmm_driver_counts left = vmm_driver_count();
    cr_assert_leq(left.blocks, blocks, "%llu blocks are left", (unsigned long long)left.blocks);
    cr_assert_eq(left.ranges + left.handles + left.mappings + left.pinned, 0);
    vmm_driver_stop();
}

static void stop(void)
{
    stop_with(0);
}

TestSuite(coalesce_backend, .init = start, .fini = stop);

static ga_heap *heap_of(const char *spec)
{
    ga_heap *heap;
    assert_ok(ga_heap_open(&heap, GA_PLACE_KERNEL, 0, spec));
    return heap;
}

/* ---- options --------------------------------------------------------------------------------- */

static const struct {
    const char *spec;
    uint32_t form, parent, bare, noted, together, max, buckets;
} views[] = {
    {"coalesce", GA_COALESCE_SIXTEEN, GA_BELOW_CUDA, 0, 0, GA_COALESCE_HB, 1 << 26, 0},
    {"coalesce:header=auto/cuda", GA_COALESCE_AUTO, GA_BELOW_CUDA, 0, 0, GA_COALESCE_HB, 1 << 26,
     0},
    {"coalesce:header=8,static=hw/cuda", GA_COALESCE_EIGHT, GA_BELOW_CUDA, 0, 0, GA_COALESCE_HW,
     1 << 26, 0},
    {"coalesce:static=nb,map=1000/cuda", GA_COALESCE_SIXTEEN, GA_BELOW_CUDA, GA_COALESCE_BY_MAP, 0,
     GA_COALESCE_NB, 1 << 26, 256},
    {"coalesce:header=auto,static=nw,map=8/cuda", GA_COALESCE_AUTO, GA_BELOW_CUDA,
     GA_COALESCE_BY_MAP, 0, GA_COALESCE_NW, 1 << 26, 2},
    {"coalesce/" SLABS, GA_COALESCE_HEADERLESS, GA_BELOW_SIZED, 0, 1, GA_COALESCE_HB, 1 << 26, 0},
    {"coalesce:max=4K,static=nb/" SLABS, GA_COALESCE_HEADERLESS, GA_BELOW_SIZED, 0, 1,
     GA_COALESCE_NB, 4096, 0},
    {"coalesce:header=16,static=nb/" SLABS, GA_COALESCE_SIXTEEN, GA_BELOW_SIZED,
     GA_COALESCE_BY_NOTE, 1, GA_COALESCE_NB, 1 << 26, 0},
    {"coalesce:header=16/" SLABS, GA_COALESCE_SIXTEEN, GA_BELOW_SIZED, 0, 0, GA_COALESCE_HB,
     1 << 26, 0},
    {"coalesce:header=auto,static=nw,map=9/" SLABS, GA_COALESCE_AUTO, GA_BELOW_SIZED,
     GA_COALESCE_BY_MAP, 0, GA_COALESCE_NW, 1 << 26, 4},
};

Test(coalesce_backend, the_view_says_what_the_options_mean)
{
    for (size_t i = 0; i < sizeof views / sizeof *views; i++) {
        ga_heap *heap = heap_of(views[i].spec);
        ga_kernel_heap view;
        assert_ok(ga_heap_kernel_view(heap, &view));
        cr_assert_eq(view.kind, GA_KERNEL_KIND_COALESCE);
        cr_assert_eq(view.abi, GA_KERNEL_HEAP_ABI);
#define IS(what, at, wanted)                                                                       \
    cr_assert_eq(GA_COALESCE_WORDS_BITS(view.words, at), wanted, "%s: " what " %u", views[i].spec, \
                 GA_COALESCE_WORDS_BITS(view.words, at))
        IS("form", GA_COALESCE_AT_FORM, views[i].form);
        IS("parent", GA_COALESCE_AT_PARENT, views[i].parent);
        IS("bare", GA_COALESCE_AT_BARE, views[i].bare);
        IS("noted", GA_COALESCE_AT_NOTED, views[i].noted);
        IS("static", GA_COALESCE_AT_STATIC, views[i].together);
        cr_assert_eq(GA_COALESCE_WORDS_MAX(view.words), views[i].max, "%s", views[i].spec);
        /* Device memory is the host's here. */
        const ga_coalesce_heap *image = (const void *)view.words[GA_COALESCE_WORD_HEAP];
        cr_assert_eq(image->map.buckets, views[i].buckets, "%s: %u buckets", views[i].spec,
                     image->map.buckets);
        for (uint32_t b = 0; b < image->map.buckets; b++) {
            cr_assert_eq(image->map.entries[b * GA_MAP_BUCKET].key + image->map.spilled[b], 0);
        }
        ga_heap_close(heap);
    }
}

/* The view of the parent is part of it. */
Test(coalesce_backend, the_view_has_the_parents)
{
    ga_heap *below = heap_of(SLABS);
    ga_kernel_heap view;
    assert_ok(ga_heap_kernel_view(below, &view));
    uint64_t shape = view.words[3];
    ga_heap_close(below);
    ga_heap *heap = heap_of("coalesce/" SLABS);
    assert_ok(ga_heap_kernel_view(heap, &view));
    cr_assert_eq(view.words[GA_COALESCE_WORD_PARENT + 3], shape);
    cr_assert_neq(view.words[GA_COALESCE_WORD_PARENT], 0);
    ga_heap_close(heap);
}

static const struct {
    const char *spec;
    ga_place place;
    const char *sentence;
} refused[] = {
    {"coalesce:header=none/cuda", GA_PLACE_KERNEL,
     "coalesce: header: none: expected a parent that finds blocks by their addresses, "
     "slab:unit=classes, "
     "got cuda"},
    {"coalesce:static=nw/cuda", GA_PLACE_KERNEL,
     "coalesce: static: nw over cuda: expected map=ENTRIES"},
    {"coalesce:map=100/cuda", GA_PLACE_KERNEL,
     "coalesce: map: expected with static=nb or static=nw and headers, got it with "
     "static=hb,header=16"},
    {"coalesce:map=100,static=nb/" SLABS, GA_PLACE_KERNEL,
     "coalesce: map: expected with static=nb or static=nw and headers, got it with "
     "static=nb,header=none"},
};

Test(coalesce_backend, what_does_not_go_together)
{
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        ga_heap *heap;
        assert_fails(ga_heap_open(&heap, refused[i].place, 0, refused[i].spec), GA_ERR_SPEC,
                     refused[i].sentence);
    }
    ga_heap *heap;
    cr_assert_neq(ga_heap_open(&heap, GA_PLACE_HOST, 0, "coalesce/system"), GA_OK);
    cr_assert_neq(ga_heap_open(&heap, GA_PLACE_DEVICE, 0, "coalesce/cuda"), GA_OK);
    cr_assert_neq(ga_heap_open(&heap, GA_PLACE_KERNEL, 0, "coalesce:max=65M"), GA_OK);
    cr_assert_neq(ga_heap_open(&heap, GA_PLACE_KERNEL, 0, "coalesce:max=0"), GA_OK);
}

static const struct {
    const char *spec;
    bool single;
} checked[] = {
    {"coalesce/slab:unit=classes,capacity=16M,check=full/cuda", true},
    {"coalesce:check=full/slab:unit=classes,capacity=16M,check=full/cuda", true},
    {"coalesce:check=full,static=nb/slab:unit=classes,capacity=16M,check=full/vmm", true},
    {"coalesce:check=off/slab:unit=classes,capacity=16M,check=full/cuda", false},
    {"coalesce:header=16/slab:unit=classes,capacity=16M,check=full/cuda", false},
    {"coalesce/" SLABS, false},
    {"coalesce", false},
};

Test(coalesce_backend, a_parent_that_checks_sees_each_free)
{
    static const char *const no_parent[] = {
        "coalesce:check=full/cuda", "coalesce:check=full/" SLABS,
        "coalesce:check=full,header=16/slab:unit=classes,capacity=16M,check=full/cuda"};
    for (size_t i = 0; i < sizeof checked / sizeof *checked; i++) {
        ga_heap *heap = heap_of(checked[i].spec);
        ga_kernel_heap view;
        assert_ok(ga_heap_kernel_view(heap, &view));
        cr_assert_eq(GA_COALESCE_WORDS_BITS(view.words, GA_COALESCE_AT_SINGLE), checked[i].single,
                     "%s", checked[i].spec);
        ga_heap_close(heap);
    }
    for (size_t i = 0; i < sizeof no_parent / sizeof *no_parent; i++) {
        ga_heap *heap;
        assert_fails(
            ga_heap_open(&heap, GA_PLACE_KERNEL, 0, no_parent[i]), GA_ERR_SPEC,
            "coalesce: check: full: expected slab:unit=classes,check=full as parent, and no "
            "headers");
    }
}

/* ---- blocks for the host, figures, failures -------------------------------------------------- */

Test(coalesce_backend, blocks_of_the_host_over_cuda)
{
    ga_heap *heap = heap_of("coalesce/cuda");
    void *block;
    assert_ok(ga_alloc(heap, 100, 0, &block));
    cr_assert(ga_owns(heap, block));
    assert_ok(ga_free(heap, block));
    cr_assert_neq(ga_free(heap, (char *)block + 1), GA_OK);
    ga_heap_close(heap);
}

/* Live bytes are those of the parent: a superblock counts as one block. */
Test(coalesce_backend, statistics_are_the_parents)
{
    static const uint32_t classes[32] = {3, 3, 3, 9};
    char *blocks[32];
    ga_stats stats;
    ga_kernel_heap view;
    vmm_driver_stop();
    vmm_driver_start(&(vmm_driver_options){.kernels = VMM_KERNELS_GROW});
    ga_heap *heap = heap_of("coalesce/" SLABS);
    assert_ok(ga_heap_kernel_view(heap, &view));
    ga_sized_heap *below =
        (ga_sized_heap *)view.words[GA_COALESCE_WORD_PARENT + GA_SIZED_WORD_HEAP];
    assert_ok(ga_heap_stats(heap, &stats));
    cr_assert_eq(stats.live_blocks, 0);
    cr_assert_geq(stats.held_bytes, 16 << 20);
    cr_assert_eq(sized_claim(below, 0xf, classes, 0, blocks), 4);
    assert_ok(ga_heap_stats(heap, &stats));
    cr_assert_eq(stats.live_blocks, 4, "%llu", (unsigned long long)stats.live_blocks);
    cr_assert_eq(stats.live_bytes, 3 * ga_sized_unit(3) + ga_sized_unit(9));
    cr_assert(sized_release(below, 0xf, blocks));
    assert_ok(ga_heap_stats(heap, &stats));
    cr_assert_eq(stats.live_blocks + stats.live_bytes, 0);
    cr_assert_gt(below->of[3].map.total_words, 0);
    assert_ok(ga_trim(heap, 0));
    cr_assert_eq(below->of[3].map.total_words, 0, "its regions go back to the pool");
    ga_heap_close(heap);
}

static uint64_t open_and_view(const char *spec, ga_status *status)
{
    ga_heap *heap;
    ga_kernel_heap view;
    uint64_t calls = vmm_driver_calls(NULL);
    *status = ga_heap_open(&heap, GA_PLACE_KERNEL, 0, spec);
    if (*status == GA_OK) {
        *status = ga_heap_kernel_view(heap, &view);
        ga_heap_close(heap);
    }
    return vmm_driver_calls(NULL) - calls;
}

/* Nothing leaks when one call fails, or all calls from one on. Of the blocks that slab has from
 * cuda, those are lost that the driver permanently refuses to free, with a sentence. */
Test(coalesce_backend, each_call_of_the_driver_fails)
{
    static const char *const specs[] = {"coalesce:static=nb,map=100/cuda", "coalesce/" SLABS};
    for (size_t i = 0; i < 2; i++) {
        ga_status status;
        uint64_t calls = open_and_view(specs[i], &status);
        uint32_t failures = 0;
        assert_ok(status);
        for (uint64_t n = 0; n < calls * VMM_SOME_CALLS; n++) {
            uint64_t more = vmm_more_calls[n % VMM_SOME_CALLS];
            vmm_driver_fail_many(NULL, n / VMM_SOME_CALLS + 1, more, CUDA_ERROR_OUT_OF_MEMORY);
            open_and_view(specs[i], &status);
            failures += status != GA_OK;
            vmm_recover();
            stop_with(i && more ? 2 : 0);
            start();
        }
        cr_assert_gt(failures, calls / 3, "%u of %llu", failures, (unsigned long long)calls);
        open_and_view(specs[i], &status);
        assert_ok(status);
    }
    vmm_driver_stop();
    vmm_driver_start(NULL);
}
