/* SPDX-License-Identifier: MIT
 *
 * Heaps of all sizes in kernels: from the view that a kernel was handed to the algorithm of
 * sized_tile.h. gpualloc/device.cuh has the calls that programs use.
 */
#ifndef GPUALLOC_SLAB_SIZED_KERNEL_H
#define GPUALLOC_SLAB_SIZED_KERNEL_H

#include <gpualloc/gpualloc.h>

#include "sized_runs.h"
#include "sized_words.h"
#include "slab_kernel.h"

GA_SIMT ga_sized_view ga_sized_view_of_kernel(ga_kernel_heap heap)
{
    ga_sized_view view;
    view.heap = (ga_sized_heap *)heap.words[GA_SIZED_WORD_HEAP];
    view.units = (char *)heap.words[GA_SIZED_WORD_UNITS];
    view.bits = (uint32_t *)heap.words[GA_SIZED_WORD_BITS];
    view.region_bits = (uint32_t)heap.words[GA_SIZED_WORD_SHAPE];
    view.classes = (uint32_t)(heap.words[GA_SIZED_WORD_SHAPE] >> 32);
    return view;
}

GA_SIMT void *ga_sized_pointer_of(ga_sized_view heap, uint32_t class_, ga_sized_got got)
{
    return got.keys == GA_SIZED_NONE
               ? NULL
               : ga_sized_pointer(heap, ga_sized_unit(class_), got.keys, got.places);
}

/* Lanes that want different classes, or are some of a warp; a function of its own, so that the usual claim
 * stays small. */
GA_SIMT_SLOW void *ga_sized_claim_divided(ga_sized_heap *heap, uint32_t lanes, uint32_t class_,
                                          uint32_t number)
{
    ga_tile tile = ga_tile_among(lanes);
    ga_sized_view view = ga_sized_view_of(heap);
    return ga_sized_pointer_of(view, class_, ga_sized_claim(view, tile, lanes, class_, number));
}

/* The lanes want one class, and have got `bits` of the word `key`, which was too little. */
GA_SIMT_SLOW void *ga_sized_claim_others(ga_sized_heap *heap, uint32_t lanes, uint32_t class_,
                                         uint32_t number, uint32_t key, uint32_t bits)
{
    ga_sized_view view = ga_sized_view_of(heap);
    return ga_sized_pointer_of(
        view, class_,
        ga_warp_is_whole(lanes)
            ? ga_sized_claim_second(view, ga_tile_of(32), class_, number, key, bits)
            : ga_sized_claim_second(view, ga_tile_among(lanes), class_, number, key, bits));
}

/* A unit of its class for each lane that calls. */
GA_SIMT void *ga_sized_kernel_claim(ga_sized_view heap, uint32_t class_)
{
    if (class_ == GA_SIZED_NONE) {
        return NULL;
    }
    uint32_t lanes = ga_warp_present();
    uint32_t number = ga_slab_warp();
    bool alone = !(lanes & (lanes - 1u));
    if (!alone && (!ga_warp_is_whole(lanes) || !ga_lanes_same(ga_tile_of(32), class_))) {
        return ga_sized_claim_divided(heap.heap, lanes, class_, number);
    }
    /* The usual cases. Each lane's bit in its warp's word is that of its number. */
    ga_sized_way way = ga_sized_way_of(heap.heap->of + class_);
    uint32_t key = number < way.all ? ga_sized_key(heap, way, number) : GA_SIZED_NONE;
    uint32_t bits = 0;
    if (key != GA_SIZED_NONE) {
        bits = alone ? ga_sized_take(heap, key, lanes) : ga_sized_take_word(heap, key);
    }
    if (bits != lanes) {
        return ga_sized_claim_others(heap.heap, lanes, class_, number, key, bits);
    }
    return ga_sized_pointer(heap, way.unit, key, ga_warp_lane());
}

/* A run for each lane that calls; `align` in regions, at most GA_SIZED_REGIONS_MOST. */
GA_SIMT_SLOW void *ga_sized_claim_runs(ga_sized_heap *heap, size_t size, uint32_t align)
{
    ga_tile tile = ga_tile_present();
    ga_sized_view view = ga_sized_view_of(heap);
    uint32_t phase = (uint32_t)((uint64_t)view.units >> view.region_bits);
    uint32_t first = ga_sized_runs_claim(heap, tile, ga_tile_lanes(tile),
                                         ga_sized_run_regions(view, size), align, phase);
    return first == GA_SIZED_NONE ? NULL : ga_sized_run_pointer(view, first);
}

GA_SIMT void *ga_sized_kernel_malloc(ga_kernel_heap heap, size_t size)
{
    ga_sized_view view = ga_sized_view_of_kernel(heap);
    uint32_t class_ = ga_sized_class_of(view, size);
    return class_ == GA_SIZED_NONE ? ga_sized_claim_runs(view.heap, size, 1u)
                                   : ga_sized_kernel_claim(view, class_);
}

/* NULL for an `align` that is no power of two. */
GA_SIMT void *ga_sized_kernel_aligned_alloc(ga_kernel_heap heap, size_t align, size_t size)
{
    ga_sized_view view = ga_sized_view_of_kernel(heap);
    uint64_t regions = align >> view.region_bits;
    if (!align || align & (align - 1u) || regions > GA_SIZED_REGIONS_MOST) {
        return NULL;
    }
    uint32_t class_ = ga_sized_class_aligned(view, size, align);
    return class_ == GA_SIZED_NONE
               ? ga_sized_claim_runs(view.heap, size, regions ? (uint32_t)regions : 1u)
               : ga_sized_kernel_claim(view, class_);
}

/* What is no unit's first byte, for each lane that calls: runs, and faults. The lanes have published. */
GA_SIMT_SLOW void ga_sized_free_others(ga_sized_heap *heap, void *block)
{
    ga_tile tile = ga_tile_present();
    ga_sized_run run = ga_sized_run_find(ga_sized_view_of(heap), block);
    uint32_t giving = ga_lanes_nonzero(tile, run.n && !run.offset);
    uint32_t given = giving ? ga_sized_runs_release(heap, tile, giving, run.first) : 0;
    if (!(given >> ga_warp_lane() & 1u)) {
        ga_post_add64_relaxed(&heap->faults, 1); /* relaxed: a count, read between launches */
    }
}

/* The units at which the blocks of the tile's lanes begin: false for a lane whose block is none. */
GA_SIMT bool ga_sized_free_units(ga_sized_view view, ga_tile tile, void *block)
{
    ga_tile_publish(tile);
    ga_sized_found found = ga_sized_find(view, block);
    bool is_one = found.class_ != GA_SIZED_NONE && !found.offset;
    uint32_t giving = ga_lanes_nonzero(tile, is_one);
    if (giving) {
        ga_sized_got got = {is_one ? found.key : GA_SIZED_NONE, found.place};
        ga_sized_release(view, tile, giving, got);
    }
    return is_one;
}

GA_SIMT_SLOW bool ga_sized_free_some(ga_sized_heap *heap, uint32_t lanes, void *block)
{
    return ga_sized_free_units(ga_sized_view_of(heap), ga_tile_among(lanes), block);
}

/* The same for a lone lane, which waits for nobody. */
GA_SIMT bool ga_sized_free_alone(ga_sized_view view, void *block)
{
    ga_lane_publish();
    ga_sized_found found = ga_sized_find(view, block);
    bool is_one = found.class_ != GA_SIZED_NONE && !found.offset;
    if (is_one) {
        ga_sized_give(view, found.key, 1u << found.place);
    }
    return is_one;
}

GA_SIMT void ga_sized_kernel_free(ga_kernel_heap heap, void *block)
{
    ga_sized_view view = ga_sized_view_of_kernel(heap);
    uint32_t lanes = ga_warp_present();
    bool done;
    if (ga_warp_is_whole(lanes)) {
        done = ga_sized_free_units(view, ga_tile_of(32), block);
    } else if (!(lanes & (lanes - 1u))) {
        done = ga_sized_free_alone(view, block);
    } else {
        done = ga_sized_free_some(view.heap, lanes, block);
    }
    if (!done && block) {
        ga_sized_free_others(view.heap, block);
    }
}

/* ---- questions: each lane for itself ------------------------------------------------------------------ */

/* The run that begins there; `n` is 0 where none does. */
GA_SIMT ga_sized_run ga_sized_kernel_run(ga_sized_view heap, const void *block)
{
    ga_sized_run run = ga_sized_run_find(heap, block);
    run.n = run.offset ? 0 : run.n;
    return run;
}

/* Bytes that may be used of it; 0 for what is no block. */
GA_SIMT_SLOW size_t ga_sized_usable(ga_sized_heap *heap, const void *block)
{
    ga_sized_view view = ga_sized_view_of(heap);
    ga_sized_found found = ga_sized_find(view, block);
    if (found.class_ != GA_SIZED_NONE) {
        return found.offset ? 0 : ga_sized_unit(found.class_);
    }
    return (size_t)ga_sized_kernel_run(view, block).n << view.region_bits;
}

GA_SIMT size_t ga_sized_kernel_usable_size(ga_kernel_heap heap, const void *block)
{
    return ga_sized_usable((ga_sized_heap *)heap.words[GA_SIZED_WORD_HEAP], block);
}

/* Where the block begins that `pointer` is in; NULL where it is in none. A unit counts whether it is taken
 * or not. */
GA_SIMT_SLOW char *ga_sized_run_start(ga_sized_heap *heap, const void *pointer)
{
    ga_sized_run run = ga_sized_run_find(ga_sized_view_of(heap), pointer);
    return run.n ? (char *)pointer - run.offset : NULL;
}

/* ---- resizing -------------------------------------------------------------------------------------------- */

/* Whether the block of each lane that calls, of `usable` bytes, can stay where it is with `size` bytes. A
 * run gives back what is not needed any more; a unit stays until half of it is enough. */
GA_SIMT_SLOW bool ga_sized_resize(ga_sized_heap *heap, void *block, size_t usable, size_t size)
{
    ga_tile tile = ga_tile_present();
    ga_sized_view view = ga_sized_view_of(heap);
    ga_sized_run run = ga_sized_kernel_run(view, block);
    uint32_t n = ga_sized_run_regions(view, size);
    bool shorter = run.n > n && ga_sized_class_of(view, size) == GA_SIZED_NONE;
    ga_tile_publish(tile); /* what the lanes did with what is given back */
    GA_SHARE(tile, ga_lanes_nonzero(tile, shorter), lane)
    {
        ga_sized_run theirs = {ga_lanes_get(tile, run.first, lane), ga_lanes_get(tile, run.n, lane),
                               0};
        ga_sized_run_shorten(heap, tile, theirs, ga_lanes_get(tile, n, lane));
    }
    return shorter || (size <= usable && (size > usable / 2u || usable <= GA_SIZED_GRANULE));
}

GA_SIMT bool ga_sized_kernel_resize(ga_kernel_heap heap, void *block, size_t usable, size_t size)
{
    return ga_sized_resize((ga_sized_heap *)heap.words[GA_SIZED_WORD_HEAP], block, usable, size);
}

#endif
