/* SPDX-License-Identifier: MIT
 *
 * Heaps of all sizes in kernels: from the view that a kernel was handed to the algorithm of
 * sized_tile.h. gpualloc/device.cuh has the calls that programs use.
 */
#ifndef GPUALLOC_SLAB_SIZED_KERNEL_H
#define GPUALLOC_SLAB_SIZED_KERNEL_H

#include <gpualloc/gpualloc.h>

#include "sized_tile.h"
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
        view, class_, ga_sized_claim_second(view, ga_tile_among(lanes), class_, number, key, bits));
}

/* A unit of its class for each lane that calls. */
GA_SIMT void *ga_sized_kernel_claim(ga_sized_view heap, uint32_t class_)
{
    if (class_ == GA_SIZED_NONE) {
        return NULL;
    }
    uint32_t lanes = ga_tile_members(ga_tile_present());
    uint32_t number = ga_slab_warp();
    bool alone = !(lanes & (lanes - 1u));
    if (!alone && (lanes != GA_ALL_BITS || !ga_lanes_same(ga_tile_of(32), class_))) {
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

GA_SIMT void *ga_sized_kernel_malloc(ga_kernel_heap heap, size_t size)
{
    ga_sized_view view = ga_sized_view_of_kernel(heap);
    return ga_sized_kernel_claim(view, ga_sized_class_of(view, size));
}

GA_SIMT void ga_sized_kernel_free(ga_kernel_heap heap, void *block)
{
    ga_tile tile = ga_tile_present();
    ga_tile_publish(tile);
    ga_sized_view view = ga_sized_view_of_kernel(heap);
    ga_sized_found found = ga_sized_find(view, block);
    bool is_one = found.class_ != GA_SIZED_NONE && !found.offset;
    uint32_t giving = ga_lanes_nonzero(tile, is_one);
    if (giving) {
        ga_sized_got got = {is_one ? found.key : GA_SIZED_NONE, found.place};
        ga_sized_release(view, tile, giving, got);
    }
    if (!is_one && block) {
        ga_post_add64_relaxed(&view.heap->faults, 1); /* relaxed: a count, read between launches */
    }
}

/* Bytes that may be used of it; 0 for what is no block. */
GA_SIMT size_t ga_sized_kernel_usable_size(ga_kernel_heap heap, const void *block)
{
    ga_sized_found found = ga_sized_find(ga_sized_view_of_kernel(heap), block);
    return found.class_ == GA_SIZED_NONE || found.offset ? 0 : ga_sized_unit(found.class_);
}

#endif
