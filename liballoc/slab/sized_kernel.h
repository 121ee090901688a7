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

GA_SIMT void *ga_sized_pointer_or_null(ga_sized_view heap, uint32_t class_, ga_sized_units got)
{
    return got.word_indices == GA_SIZED_NONE
               ? NULL
               : ga_sized_pointer(heap, ga_sized_unit(class_), got.word_indices, got.places);
}

/* Lanes that want different classes, or are some of a warp; a function of its own, so that the usual claim
 * stays small. */
GA_SIMT_SLOW void *ga_sized_claim_slow_mixed(ga_sized_heap *heap, uint32_t lanes, uint32_t class_,
                                             uint32_t number)
{
    ga_tile tile = ga_tile_among(lanes);
    ga_sized_view view = ga_sized_view_of(heap);
    return ga_sized_pointer_or_null(view, class_,
                                    ga_sized_claim(view, tile, lanes, class_, number));
}

/* The lanes want one class, and have got `bits` of the word `key` of their number: too little, or
 * there is no such word. */
GA_SIMT_SLOW void *ga_sized_claim_slow_same(ga_sized_heap *heap, uint32_t lanes, uint32_t class_,
                                            uint32_t number, uint32_t word_index, uint32_t bits)
{
    ga_sized_view view = ga_sized_view_of(heap);
    return ga_sized_pointer_or_null(
        view, class_,
        ga_warp_is_whole(lanes)
            ? ga_sized_claim_retry(view, ga_tile_of(32), class_, number, word_index, bits)
            : ga_sized_claim_retry(view, ga_tile_among(lanes), class_, number, word_index, bits));
}

/* Its own unit of its warp's word was taken, and `free` are those that are not: another one. */
GA_SIMT void *ga_sized_claim_slow_lone(ga_sized_heap *heap, uint32_t lanes, uint32_t class_,
                                       uint32_t number, uint32_t word_index, uint32_t free)
{
    ga_sized_view view = ga_sized_view_of(heap);
    uint32_t bit = free & (0u - free);
    if (free && ga_sized_claim_bits(view, class_, word_index, bit)) {
        return ga_sized_pointer(view, ga_sized_unit(class_), word_index, ga_bits_lowest(bit));
    }
    return ga_sized_claim_slow_same(heap, lanes, class_, number, GA_SIZED_NONE, 0);
}

/* What a usual claim that got too little leaves to be done. */
typedef struct ga_sized_claim_miss {
    uint32_t unit;       /* of the class, in bytes */
    uint32_t word_index; /* the word where it was; GA_SIZED_NONE where it was at none */
    uint32_t taken;      /* which of its bits were set before; all, where there is none */
} ga_sized_claim_miss;

/* Units of one class for the lanes of the tile, which all call: for each that of its own number in the warp's
 * word, by one atomic for all. NULL for all of them where one was taken; those that were not are theirs all the
 * same. So few values are alive at a time that malloc by linking (interpose/kernel) need not save registers for
 * it. */
GA_SIMT void *ga_sized_claim_fast(ga_sized_view heap, ga_tile tile, uint32_t class_,
                                  uint32_t number, ga_sized_claim_miss *missed)
{
    ga_sized_position home;
    ga_sized_class_map map = ga_sized_load_class_map(heap.heap->of + class_);
    missed->unit = map.unit;
    missed->word_index = GA_SIZED_NONE;
    missed->taken = GA_ALL_BITS;
    if (ga_sized_home_position(map, number, &home)) {
        missed->word_index = ga_sized_position_index(heap, home);
        missed->taken = ga_sized_try_set_lanes(heap, tile, missed->word_index);
    }
    return missed->taken & ga_tile_lanes(tile)
               ? NULL
               : ga_sized_position_pointer(heap, map.unit, home, ga_warp_lane());
}

/* The same lanes, where that got too little. Where their word is in a region apart from the others they have asked
 * for nothing yet. */
GA_SIMT void *ga_sized_claim_slow(ga_sized_view heap, uint32_t lanes, uint32_t number,
                                  ga_sized_claim_miss missed)
{
    uint32_t class_ = ga_sized_class_of_last(heap, missed.unit - 1u);
    if (missed.word_index == GA_SIZED_NONE) {
        ga_sized_class_map map = ga_sized_load_class_map(heap.heap->of + class_);
        uint32_t word = number < map.total_words ? number : ga_bits_round(number, map.total_words);
        missed.word_index =
            word < map.total_words ? ga_sized_word_index(heap, map, word) : GA_SIZED_NONE;
        if (missed.word_index != GA_SIZED_NONE) {
            missed.taken = ga_sized_try_set_lanes_verify(heap, ga_tile_among(lanes), class_,
                                                         missed.word_index);
        }
        if (!(missed.taken & lanes)) {
            return ga_sized_pointer(heap, missed.unit, missed.word_index, ga_warp_lane());
        }
    }
    return lanes & (lanes - 1u) ? ga_sized_claim_slow_same(heap.heap, lanes, class_, number,
                                                           missed.word_index, lanes & ~missed.taken)
                                : ga_sized_claim_slow_lone(heap.heap, lanes, class_, number,
                                                           missed.word_index, ~missed.taken);
}

/* The same as a function, so that the usual claim stays small. */
GA_SIMT_SLOW void *ga_sized_claim_slow_noinline(ga_sized_heap *heap, uint32_t lanes,
                                                uint32_t number, uint32_t unit, uint32_t word_index,
                                                uint32_t taken)
{
    ga_sized_claim_miss missed = {unit, word_index, taken};
    return ga_sized_claim_slow(ga_sized_view_of(heap), lanes, number, missed);
}

/* A unit of its class for each lane of the tile, which are those that call. */
GA_SIMT void *ga_sized_claim_tile(ga_sized_view heap, ga_tile tile, uint32_t class_)
{
    ga_sized_claim_miss missed;
    uint32_t lanes = ga_tile_lanes(tile);
    uint32_t number = ga_slab_warp();
    if (lanes & (lanes - 1u) && !ga_lanes_same(tile, class_)) {
        return ga_sized_claim_slow_mixed(heap.heap, lanes, class_, number);
    }
    void *block = ga_sized_claim_fast(heap, tile, class_, number, &missed);
    return block ? block
                 : ga_sized_claim_slow_noinline(heap.heap, lanes, number, missed.unit,
                                                missed.word_index, missed.taken);
}

GA_SIMT void *ga_sized_kernel_claim(ga_sized_view heap, uint32_t class_)
{
    uint32_t lanes = ga_warp_present();
    if (class_ == GA_SIZED_NONE) {
        return NULL;
    }
    return ga_warp_is_whole(lanes) ? ga_sized_claim_tile(heap, ga_tile_of(32), class_)
                                   : ga_sized_claim_tile(heap, ga_tile_among(lanes), class_);
}

/* A run for each lane that calls; `align` in regions, at most GA_SIZED_REGIONS_MOST. */
GA_SIMT_SLOW void *ga_sized_kernel_claim_run(ga_sized_heap *heap, size_t size, uint32_t align)
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
    return class_ == GA_SIZED_NONE ? ga_sized_kernel_claim_run(view.heap, size, 1u)
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
               ? ga_sized_kernel_claim_run(view.heap, size, regions ? (uint32_t)regions : 1u)
               : ga_sized_kernel_claim(view, class_);
}

/* The blocks of these lanes for which `got` has no key: those that are units of a region with flags are
 * freed, and get their keys. The lanes have published. */
GA_SIMT void ga_sized_free_slow_flagged(ga_sized_view view, uint32_t lanes, void *block,
                                        ga_sized_units *got)
{
    ga_tile tile = ga_tile_among(lanes);
    if (!ga_lanes_any(tile, got->word_indices == GA_SIZED_NONE && block)) {
        return; /* most calls: units of several words, in regions without flags */
    }
    uint32_t owner = ga_sized_load_owner(view, block);
    ga_sized_found found = ga_sized_find(view, block);
    bool is_one =
        got->word_indices == GA_SIZED_NONE && found.class_ != GA_SIZED_NONE && !found.offset;
    uint32_t freeing = ga_lanes_nonzero(tile, is_one);
    if (is_one) {
        got->word_indices = found.word_index;
        got->places = found.place;
    }
    if (freeing) {
        ga_sized_free_units(view, tile, freeing, *got);
    }
    uint32_t region = found.word_index >> ga_sized_stride_bits(view.region_bits);
    uint32_t watched = ga_lanes_nonzero(tile, is_one && owner & GA_SIZED_WATCH);
    uint32_t equal = ga_lanes_equal(tile, watched, region);
    ga_tile_sync(tile); /* one lane speaks for all that have freed in its region */
    if (watched >> ga_warp_lane() & 1u && ga_bits_lowest(equal) == ga_warp_lane()) {
        ga_sized_notify_sweep(view.heap, region);
    }
}

/* What is no unit's first byte, for each lane that calls: runs, and faults. The lanes have published. */
GA_SIMT_SLOW void ga_sized_free_slow_run(ga_sized_heap *heap, void *block)
{
    ga_tile tile = ga_tile_present();
    ga_sized_run run = ga_sized_run_find(ga_sized_view_of(heap), block);
    uint32_t freeing = ga_lanes_nonzero(tile, run.n && !run.offset);
    uint32_t freed = freeing ? ga_sized_runs_free(heap, tile, freeing, run.first) : 0;
    if (!(freed >> ga_warp_lane() & 1u)) {
        ga_post_add64_relaxed(&heap->faults, 1); /* relaxed: a count, read between launches */
    }
}

/* The units at which the blocks of the tile's lanes begin; GA_SIZED_NONE is the key of a lane whose block is
 * none. What the lanes did with them is published. */
GA_SIMT ga_sized_units ga_sized_free_locate(ga_sized_view view, ga_tile tile, void *block)
{
    uint32_t owner = ga_sized_load_owner(view, block); /* under way while the fence waits */
    ga_tile_publish(tile);
    ga_tile_gate(tile); /* the assembler would wait for it first */
    ga_sized_found found = ga_sized_find_with_owner(view, owner, block);
    bool is_one = found.class_ != GA_SIZED_NONE && !found.offset;
    ga_sized_units got = {is_one ? found.word_index : GA_SIZED_NONE, found.place};
    return got;
}

/* The usual frees, of lanes that call together: all blocks are units, of one word or no two of one. False, for all
 * of them, where it is not so: then nothing is given back, and `got` is what has been found. */
GA_SIMT bool ga_sized_free_fast(ga_sized_view view, ga_tile tile, void *block, ga_sized_units *got)
{
    uint32_t lanes = ga_tile_lanes(tile);
    *got = ga_sized_free_locate(view, tile, block);
    if (!(lanes & (lanes - 1u)) &&
        got->word_indices != GA_SIZED_NONE) { /* a lone lane has nobody to ask */
        ga_sized_release_bits(view, got->word_indices, 1u << got->places);
        return true;
    }
    return !ga_lanes_any(tile, got->word_indices == GA_SIZED_NONE) &&
           ga_sized_free_units_fast(view, tile, *got);
}

/* The units of what the usual free has found. */
GA_SIMT void ga_sized_free_slow_units(ga_sized_view view, uint32_t lanes, ga_sized_units got)
{
    ga_tile tile = ga_tile_among(lanes);
    uint32_t freeing = ga_lanes_nonzero(tile, got.word_indices != GA_SIZED_NONE);
    if (freeing) {
        ga_sized_free_units(view, tile, freeing, got);
    }
}

/* Free units of several words, units of regions with flags, and runs; count faults. */
GA_SIMT_SLOW void ga_sized_free_slow(ga_sized_heap *heap, uint32_t lanes, void *block,
                                     uint32_t word_index, uint32_t place)
{
    ga_sized_units got = {word_index, place};
    ga_sized_free_slow_units(ga_sized_view_of(heap), lanes, got);
    ga_sized_free_slow_flagged(ga_sized_view_of(heap), lanes, block, &got);
    if (got.word_indices == GA_SIZED_NONE && block) {
        ga_sized_free_slow_run(heap, block);
    }
}

/* Of each lane that calls, with every check. */
GA_SIMT_SLOW void ga_sized_free_checked(ga_sized_heap *heap, void *block)
{
    ga_tile tile = ga_tile_present();
    ga_sized_free_lanes_checked(heap, tile, ga_lanes_nonzero(tile, block != NULL),
                                (uint32_t)(uint64_t)block, (uint32_t)((uint64_t)block >> 32));
}

GA_SIMT void ga_sized_kernel_free(ga_kernel_heap heap, void *block)
{
    ga_sized_view view = ga_sized_view_of_kernel(heap);
    uint32_t lanes = ga_warp_present();
    ga_sized_units got;
    if (GA_SIZED_WORDS_CHECK(heap.words)) {
        ga_sized_free_checked(view.heap, block);
    } else if (ga_warp_is_whole(lanes)
                   ? !ga_sized_free_fast(view, ga_tile_of(32), block, &got)
                   : !ga_sized_free_fast(view, ga_tile_among(lanes), block, &got)) {
        ga_sized_free_slow(view.heap, lanes, block, got.word_indices, got.places);
    }
}

/* ---- questions: each lane for itself ------------------------------------------------------------------ */

/* The run that begins there; `n` is 0 where none does. */
GA_SIMT ga_sized_run ga_sized_run_starting_at(ga_sized_view heap, const void *block)
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
    return (size_t)ga_sized_run_starting_at(view, block).n << view.region_bits;
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
    ga_sized_run run = ga_sized_run_starting_at(view, block);
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
