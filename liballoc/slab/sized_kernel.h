/* SPDX-License-Identifier: MIT
 *
 * Heaps of all sizes in kernels: from the view that a kernel was handed to the algorithm of
 * sized_tile.h. gpualloc/device.cuh has the calls that programs use.
 */
#ifndef GPUALLOC_SLAB_SIZED_KERNEL_H
#define GPUALLOC_SLAB_SIZED_KERNEL_H

#include <gpualloc/gpualloc.h>

#include "sized_checked.h"
#include "sized_words.h"
#include "slab_kernel.h"

GA_SIMT ga_sized_view ga_sized_view_of_kernel(ga_kernel_heap heap)
{
    ga_sized_view view;
    view.heap = (ga_sized_heap *)heap.words[GA_SIZED_WORD_HEAP];
    view.units = (char *)heap.words[GA_SIZED_WORD_UNITS];
    view.bits = (uint32_t *)heap.words[GA_SIZED_WORD_BITS];
    view.owners = (uint32_t *)(heap.words[GA_SIZED_WORD_HEAP] + GA_SIZED_OWNERS_AT);
    view.region_bits = GA_SIZED_WORDS_REGION_BITS(heap.words);
    view.classes = (uint32_t)(heap.words[GA_SIZED_WORD_SHAPE] >> 32);
    view.regions = GA_SIZED_WORDS_REGIONS(heap.words);
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

/* The lanes want one class, and have got `bits` of the word `key` of their number: too little, or
 * there is no such word. */
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

/* Its own unit of its warp's word was taken, and `free` are those that are not: another one. */
GA_SIMT_SLOW void *ga_sized_claim_beside(ga_sized_heap *heap, uint32_t lanes, uint32_t class_,
                                         uint32_t number, uint32_t key, uint32_t free)
{
    ga_sized_view view = ga_sized_view_of(heap);
    uint32_t bit = free & (0u - free);
    if (free && ga_sized_take(view, key, bit)) {
        return ga_sized_pointer(view, ga_sized_unit(class_), key, ga_bits_lowest(bit));
    }
    return ga_sized_claim_others(heap, lanes, class_, number, GA_SIZED_NONE, 0);
}

/* A unit for a lane that calls alone, `lanes` its bit: that of its number in its warp's word. */
GA_SIMT void *ga_sized_claim_alone(ga_sized_view heap, uint32_t lanes, uint32_t class_,
                                   uint32_t number)
{
    ga_sized_spot spot;
    ga_sized_way way = ga_sized_way_of(heap.heap->of + class_);
    uint32_t key = GA_SIZED_NONE;
    uint32_t taken = GA_ALL_BITS;
    if (ga_sized_straight(way, number, &spot)) {
        key = ga_sized_spot_key(heap, spot);
        taken = ga_sized_ask(heap, key, lanes);
    }
    if (taken & lanes) {
        return ga_sized_claim_beside(heap.heap, lanes, class_, number, key, ~taken);
    }
    return ga_sized_spot_pointer(heap, way.unit, spot, ga_warp_lane());
}

/* Units of one class for a whole warp: all of its word. */
GA_SIMT void *ga_sized_claim_together(ga_sized_view heap, uint32_t class_, uint32_t number)
{
    ga_sized_way way = ga_sized_way_of(heap.heap->of + class_);
    ga_sized_home home = ga_sized_home_of(heap, way, number);
    uint32_t bits = home.key != GA_SIZED_NONE ? ga_sized_take_word(heap, home.key) : 0;
    if (bits != GA_ALL_BITS) {
        return ga_sized_claim_others(heap.heap, GA_ALL_BITS, class_, number, home.key, bits);
    }
    return ga_sized_home_pointer(heap, way.unit, home, ga_warp_lane());
}

/* The usual calls, of a lone lane and of a whole warp that wants one class: a unit for each, or
 * NULL. False where it is another, and nothing is done. */
GA_SIMT bool ga_sized_claim_usual(ga_sized_view heap, uint32_t lanes, uint32_t class_, void **block)
{
    if (!(lanes & (lanes - 1u))) {
        *block = ga_sized_claim_alone(heap, lanes, class_, ga_slab_warp());
        return true;
    }
    if (ga_warp_is_whole(lanes) && ga_lanes_same(ga_tile_of(32), class_)) {
        *block = ga_sized_claim_together(heap, class_, ga_slab_warp());
        return true;
    }
    return false;
}

/* A unit of its class for each lane that calls. */
GA_SIMT void *ga_sized_kernel_claim(ga_sized_view heap, uint32_t class_)
{
    void *block = NULL;
    uint32_t lanes = ga_warp_present();
    if (class_ != GA_SIZED_NONE && !ga_sized_claim_usual(heap, lanes, class_, &block)) {
        block = ga_sized_claim_divided(heap.heap, lanes, class_, ga_slab_warp());
    }
    return block;
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
    uint32_t owner = ga_sized_owner(view, block); /* under way while the fence waits */
    ga_tile_publish(tile);
    ga_tile_gate(tile); /* the assembler would wait for it first */
    ga_sized_found found = ga_sized_find_in(view, owner, block);
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
    uint32_t owner = ga_sized_owner(view, block);
    ga_lane_publish();
    ga_sized_found found = ga_sized_find_in(view, owner, block);
    bool is_one = found.class_ != GA_SIZED_NONE && !found.offset;
    if (is_one) {
        ga_sized_give(view, found.key, 1u << found.place);
    }
    return is_one;
}

/* Of each lane that calls, with every check. */
GA_SIMT_SLOW void ga_sized_free_checked(ga_sized_heap *heap, void *block)
{
    ga_tile tile = ga_tile_present();
    ga_sized_release_checked(heap, tile, ga_lanes_nonzero(tile, block != NULL),
                             (uint32_t)(uint64_t)block, (uint32_t)((uint64_t)block >> 32));
}

/* The usual frees, of a lone lane and of a whole warp: false where they are others, or for a lane
 * whose block is no unit. */
GA_SIMT bool ga_sized_free_usual(ga_sized_view view, uint32_t lanes, void *block)
{
    if (ga_warp_is_whole(lanes)) {
        return ga_sized_free_units(view, ga_tile_of(32), block);
    }
    return !(lanes & (lanes - 1u)) && ga_sized_free_alone(view, block);
}

GA_SIMT void ga_sized_kernel_free(ga_kernel_heap heap, void *block)
{
    ga_sized_view view = ga_sized_view_of_kernel(heap);
    uint32_t lanes = ga_warp_present();
    bool done;
    if (GA_SIZED_WORDS_CHECK(heap.words)) {
        ga_sized_free_checked(view.heap, block);
        return;
    }
    if (ga_warp_is_whole(lanes) || !(lanes & (lanes - 1u))) {
        done = ga_sized_free_usual(view, lanes, block);
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
