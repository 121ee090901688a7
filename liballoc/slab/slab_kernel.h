/* SPDX-License-Identifier: MIT
 *
 * SlabAlloc in kernels: from the view that a kernel was handed to the algorithm of slab_tile.h, and
 * the hardened checks. gpualloc/device.cuh has the calls that programs use.
 */
#ifndef GPUALLOC_SLAB_SLAB_KERNEL_H
#define GPUALLOC_SLAB_SLAB_KERNEL_H

#include "slab_growing.h"

/* The heap behind a view of the kind GA_KERNEL_KIND_SLAB. */
GA_SIMT ga_slab_view ga_slab_view_of_kernel(ga_kernel_heap heap)
{
    ga_slab_view view;
    uint32_t flags = GA_SLAB_WORDS_FLAGS(heap.words);
    view.heap = (ga_slab_heap *)heap.words[GA_SLAB_WORD_HEAP];
    view.free = (uint32_t *)heap.words[GA_SLAB_WORD_FREE];
    view.rows = (uint32_t *)heap.words[GA_SLAB_WORD_ROWS];
    view.units = (char *)heap.words[GA_SLAB_WORD_UNITS];
    view.unit = GA_SLAB_WORDS_UNIT(heap.words);
    view.words = GA_SLAB_WORDS_COUNT(heap.words);
    view.shift = flags & GA_SLAB_FLAG_SHIFT;
    view.inverse = flags & GA_SLAB_FLAG_ODD ? view.heap->inverse : 0;
    view.light = view.rows != NULL;
    return view;
}

/* The number of the caller's warp in its grid, of any shape. The empty asm keeps the compiler from
 * working it out always, to choose afterwards. */
GA_SIMT uint32_t ga_slab_warp_of_any(void)
{
    asm volatile("");
    uint32_t block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    uint32_t thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    return block * ((blockDim.x * blockDim.y * blockDim.z + 31u) / 32u) + thread / 32u;
}

/* The same; of one dimension, which is usual, it takes few instructions. */
GA_SIMT uint32_t ga_slab_warp(void)
{
    if (gridDim.y + gridDim.z + blockDim.y + blockDim.z != 4u) { /* each is 1 at least */
        return ga_slab_warp_of_any();
    }
    return blockIdx.x * ((blockDim.x + 31u) / 32u) + threadIdx.x / 32u;
}

/* Where the caller's warp begins to search: warps in the order of their numbers, so that neighbours
 * take neighbouring words. */
GA_SIMT uint32_t ga_slab_start(ga_slab_view slab)
{
    uint32_t warp = ga_slab_warp();
    return warp < slab.words ? warp : warp % slab.words;
}

/* ---- hardened checks --------------------------------------------------------------------- */

/* Tell the host. Reports beyond the array's end are only counted. */
GA_SIMT_SLOW void ga_slab_report_fault(ga_slab_heap *heap, uint32_t fault, const void *address)
{
    ga_post_add64_relaxed(&heap->faults[fault], 1); /* relaxed: a count, read between launches */
    if (heap->check) {
        ga_slab_report_put(heap->reports, &heap->reported, fault, address);
    }
}

/* A unit that has been free since it was filled with GA_SLAB_POISON: where it holds anything else,
 * say where, once. */
GA_SIMT_SLOW void ga_slab_check_poison(ga_slab_heap *heap, void *unit)
{
    uint32_t *words = (uint32_t *)unit;
    for (uint32_t i = 0; i < heap->unit / 4u; i++) {
        if (ga_load_relaxed(words + i) != GA_SLAB_POISON) {
            ga_slab_report_fault(heap, GA_SLAB_WRITTEN_FREE, words + i);
            return;
        }
    }
}

/* Free one unit with every check. Each lane for itself; false sharing of words is no concern
 * here. */
GA_SIMT_SLOW void ga_slab_release_checked(ga_slab_heap *heap, void *pointer)
{
    ga_slab_view slab = ga_slab_view_of(heap);
    uint32_t unit = ga_slab_unit(slab, pointer);
    if (unit == GA_SLAB_FULL) {
        ga_slab_report_fault(heap, GA_SLAB_NO_UNIT, pointer);
        return;
    }
    uint32_t *word = ga_slab_word(slab, unit / 32u);
    uint32_t bit = 1u << (unit % 32u);
    /* relaxed: the unit is the caller's, so the bit is set, unless this is a second free. */
    if (ga_load_relaxed(word) & bit) {
        uint32_t *words = (uint32_t *)pointer;
        for (uint32_t i = 0; i < heap->unit / 4u; i++) {
            ga_store_relaxed(words + i, GA_SLAB_POISON);
        }
        /* U2: release, with an answer. Pairs with U1 (slab_tile.h). */
        if (ga_and_release(word, ~bit) & bit) {
            ga_slab_count_given(slab, unit / 32u, 1);
            return;
        }
    }
    ga_slab_report_fault(heap, GA_SLAB_DOUBLE_FREE, pointer);
}

/* ---- typed calls -------------------------------------------------------------------------- */

/* A claim in a heap that does not grow. */
GA_SIMT_SLOW uint32_t ga_slab_claim_fixed(ga_slab_heap *heap, uint32_t lanes, uint32_t start)
{
    return ga_slab_claim_lanes(ga_slab_view_of(heap), ga_tile_among(lanes), lanes, start);
}

/* A claim of some lanes of a warp, or with two-level addressing, checks or growth: a function of
 * its own, so that the usual claim stays small. `lanes` are those that call, `start` as
 * ga_slab_start() gives it. */
GA_SIMT_SLOW void *ga_slab_claim_general(ga_slab_heap *heap, uint32_t lanes, uint32_t start)
{
    uint32_t unit = heap->growth ? ga_slab_claim_growing(heap, lanes, ga_slab_warp())
                                 : ga_slab_claim_fixed(heap, lanes, start);
    if (unit == GA_SLAB_FULL) {
        return NULL;
    }
    /* A view only from here on: nothing of it is kept over the claim. */
    void *pointer = ga_slab_pointer(ga_slab_view_of(heap), unit);
    if (heap->check) {
        ga_slab_check_poison(heap, pointer);
    }
    return pointer;
}

/* Whether a call of these lanes is not a usual one. */
GA_SIMT bool ga_slab_is_general(ga_kernel_heap heap, uint32_t lanes)
{
    return (GA_SLAB_WORDS_FLAGS(heap.words) & GA_SLAB_FLAG_GENERAL) || !ga_warp_is_whole(lanes);
}

GA_SIMT void *ga_slab_kernel_claim(ga_kernel_heap heap)
{
    ga_slab_view slab = ga_slab_view_of_kernel(heap);
    uint32_t lanes = ga_warp_present();
    uint32_t start = ga_slab_start(slab);
    if (ga_slab_is_general(heap, lanes)) {
        return ga_slab_claim_general(slab.heap, lanes, start);
    }
    slab.light = true; /* a constant from here on */
    uint32_t unit = ga_slab_claim_lanes(slab, ga_tile_of(32), GA_ALL_BITS, start);
    return unit == GA_SLAB_FULL ? NULL : ga_slab_pointer(slab, unit);
}

/* ---- 32-bit addresses (shape.h): with light addressing, the unit's number -------------------- */

GA_SIMT uint32_t ga_slab_address_of_unit(ga_slab_view slab, uint32_t unit)
{
    if (slab.light || unit == GA_SLAB_FULL) {
        return unit;
    }
    uint32_t bits = slab.heap->super_bits + GA_SLAB_BLOCK_BITS;
    return (unit >> bits) << slab.heap->address_bits | (unit & ga_bits_below(bits));
}

GA_SIMT uint32_t ga_slab_unit_of_address(ga_slab_view slab, uint32_t address)
{
    if (slab.light || address == GA_SLAB_FULL) {
        return address;
    }
    uint32_t bits = slab.heap->super_bits + GA_SLAB_BLOCK_BITS;
    return (address >> slab.heap->address_bits) << bits | (address & ga_bits_below(bits));
}

GA_SIMT uint32_t ga_slab_kernel_claim_address(ga_kernel_heap heap)
{
    ga_slab_view slab = ga_slab_view_of_kernel(heap);
    uint32_t lanes = ga_warp_present();
    uint32_t start = ga_slab_start(slab);
    if (ga_slab_is_general(heap, lanes)) {
        void *pointer = ga_slab_claim_general(slab.heap, lanes, start);
        return pointer ? ga_slab_address_of_unit(slab, ga_slab_unit(slab, pointer)) : GA_SLAB_FULL;
    }
    slab.light = true;
    return ga_slab_claim_lanes(slab, ga_tile_of(32), GA_ALL_BITS, start);
}

GA_SIMT void *ga_slab_kernel_pointer(ga_kernel_heap heap, uint32_t address)
{
    ga_slab_view slab = ga_slab_view_of_kernel(heap);
    return ga_slab_pointer(slab, ga_slab_unit_of_address(slab, address));
}

/* A word of units for a tile, wherever the heap's bitmaps are. */
GA_SIMT_SLOW ga_slab_claimed ga_slab_claim_word_general(ga_slab_heap *heap, uint32_t lanes,
                                                        uint32_t word)
{
    ga_tile tile = ga_tile_among(lanes);
    ga_slab_view slab = ga_slab_view_of(heap);
    ga_slab_claimed claimed = {word, 0};
    if (heap->growth) {
        claimed = ga_slab_claim_word_growing(heap, lanes, word);
    } else {
        ga_slab_claim_word(slab, tile, &claimed);
    }
    for (uint32_t rest = heap->check ? claimed.units : 0; rest; rest &= rest - 1u) {
        GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
        {
            (void)own;
            ga_slab_check_poison(heap,
                                 ga_slab_pointer(slab, claimed.word * 32u + ga_bits_lowest(rest)));
        }
    }
    return claimed;
}

/* The units of the lanes of the tile, which have published; GA_SLAB_FULL is none. */
GA_SIMT void ga_slab_release_all(ga_slab_view slab, ga_tile tile, uint32_t unit)
{
    uint32_t giving = ga_lanes_nonzero(tile, ~unit); /* ~GA_SLAB_FULL is 0 */
    if (giving) {
        ga_slab_release_lanes(slab, tile, giving, unit);
    }
}

/* The same where the heap may be one that grows, or has the hardened checks, which look at each
 * pointer. */
GA_SIMT void ga_slab_release_any(ga_slab_view slab, ga_tile tile, uint32_t unit, void *pointer)
{
    uint32_t giving = ga_lanes_nonzero(tile, ~unit);
    if (slab.heap->growth && giving) {
        ga_slab_weigh(slab.heap, tile, 0u - ga_bits_count(giving));
    }
    if (!slab.heap->check) {
        ga_slab_release_all(slab, tile, unit);
    } else if (pointer) {
        ga_slab_release_checked(slab.heap, pointer);
    }
}

/* A free of some lanes of a warp, or with two-level addressing, checks or growth. The lanes have
 * published what they did. */
GA_SIMT_SLOW void ga_slab_release_general(ga_slab_heap *heap, uint32_t lanes, void *pointer)
{
    ga_slab_view slab = ga_slab_view_of(heap);
    uint32_t unit = pointer ? ga_slab_unit(slab, pointer) : GA_SLAB_FULL;
    if (ga_warp_is_whole(lanes)) {
        ga_slab_release_any(slab, ga_tile_of(32), unit, pointer);
    } else {
        ga_slab_release_any(slab, ga_tile_among(lanes), unit, pointer);
    }
    if (unit == GA_SLAB_FULL && pointer && !heap->check) {
        ga_slab_report_fault(heap, GA_SLAB_NO_UNIT, pointer);
    }
}

/* The lanes will free something. First of all, as was measured to be best: the load of what to free
 * may be under way. */
GA_SIMT void ga_slab_publish(uint32_t lanes)
{
    if (ga_warp_is_whole(lanes)) {
        ga_tile_publish(ga_tile_of(32));
    } else {
        ga_tile_publish(ga_tile_among(lanes));
    }
}

/* One free of the lanes, which have published. */
GA_SIMT void ga_slab_release_here(ga_kernel_heap heap, ga_slab_view slab, uint32_t lanes,
                                  void *pointer)
{
    if ((GA_SLAB_WORDS_FLAGS(heap.words) & GA_SLAB_FLAGS_DIVIDE) || !ga_warp_is_whole(lanes)) {
        ga_slab_release_general(slab.heap, lanes, pointer);
        return;
    }
    slab.light = true; /* constants from here on */
    slab.inverse = 0;
    uint32_t unit = ga_slab_unit(slab, pointer);
    ga_slab_release_all(slab, ga_tile_of(32), unit);
    if (unit == GA_SLAB_FULL && pointer) {
        ga_slab_report_fault(slab.heap, GA_SLAB_NO_UNIT, pointer);
    }
}

GA_SIMT void ga_slab_kernel_release(ga_kernel_heap heap, void *pointer)
{
    uint32_t lanes = ga_warp_present();
    ga_slab_publish(lanes);
    ga_slab_release_here(heap, ga_slab_view_of_kernel(heap), lanes, pointer);
}

/* The lanes stay together from one to the next, and wait once. */
GA_SIMT void ga_slab_kernel_release_several(ga_kernel_heap heap, void *const *pointers, uint32_t n)
{
    ga_slab_view slab = ga_slab_view_of_kernel(heap);
    uint32_t lanes = ga_warp_present();
    ga_slab_publish(lanes);
#pragma unroll
    for (uint32_t i = 0; i < n; i++) {
        ga_slab_release_here(heap, slab, lanes, pointers[i]);
    }
}

GA_SIMT void ga_slab_kernel_release_address(ga_kernel_heap heap, uint32_t address)
{
    uint32_t lanes = ga_warp_present();
    ga_slab_publish(lanes);
    ga_slab_view slab = ga_slab_view_of_kernel(heap);
    if (ga_slab_is_general(heap, lanes)) {
        uint32_t unit = ga_slab_unit_of_address(slab, address);
        bool is_one =
            unit / 32u < ga_slab_words(slab.heap) && ga_slab_address_of_unit(slab, unit) == address;
        /* Of an address that is no unit's, the report has the address itself. */
        void *pointer = address == GA_SLAB_FULL ? NULL
                        : is_one                ? ga_slab_pointer(slab, unit)
                                                : (void *)(uint64_t)address;
        ga_slab_release_general(slab.heap, lanes, pointer);
        return;
    }
    slab.light = true;
    if (address != GA_SLAB_FULL && address / 32u >= slab.words) {
        ga_slab_report_fault(slab.heap, GA_SLAB_NO_UNIT, ga_slab_pointer(slab, address));
        address = GA_SLAB_FULL;
    }
    ga_slab_release_all(slab, ga_tile_of(32), address);
}

/* Bytes of the unit that begins there; 0 where none does. */
GA_SIMT_SLOW size_t ga_slab_kernel_usable_size(ga_kernel_heap heap, const void *pointer)
{
    ga_slab_view slab = ga_slab_view_of((ga_slab_heap *)heap.words[GA_SLAB_WORD_HEAP]);
    return ga_slab_unit(slab, pointer) == GA_SLAB_FULL ? 0 : GA_SLAB_WORDS_UNIT(heap.words);
}

#endif
