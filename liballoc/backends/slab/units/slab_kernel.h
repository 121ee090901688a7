/* SPDX-License-Identifier: MIT
 *
 * SlabAlloc in kernels: from the view passed to the kernel to the algorithm of slab_tile.h, and the
 * hardened checks. Programs call gpualloc/device.cuh.
 *
 *   ga_slab_kernel_claim, ga_slab_kernel_claim_address
 *    |- ga_slab_claim_fast           slab_tile.h: light addressing, whole warp, no checks
 *    |- claim_missed                 its slow path: claim_slow_warp; claim_growing (slab_growing.h)
 *    `- claim_general                all other calls, a function of its own
 *        |- claim_growing            slab_growing.h
 *        `- claim_fixed              slab_tile.h; then the poison is checked
 *
 *   a tile that takes units in turn  ga_slab_tile_cache_claim() of device.cuh
 *    |- claim_word_fast              its home word, with what the view tells
 *    `- claim_word_general           all other words, a function of its own
 *
 *   ga_slab_kernel_release           publishes
 *    |- release_fast                 fast path as above, for units of 2^n bytes
 *    `- release_general              all other calls; with checks one lane at a time
 */
#ifndef GPUALLOC_SLAB_UNITS_SLAB_KERNEL_H
#define GPUALLOC_SLAB_UNITS_SLAB_KERNEL_H

#include "slab_growing.h"

/* True if the heap grows under kernels. */
GA_SIMT bool ga_slab_kernel_grows(ga_kernel_heap heap)
{
    return GA_SLAB_WORDS_FLAGS(heap.words) & GA_SLAB_FLAG_GROWS;
}

/* The number of words now, as far as the caller's copy of it tells. */
GA_SIMT uint32_t ga_slab_kernel_words(ga_kernel_heap heap)
{
    return ga_slab_words_now((const ga_slab_heap *)heap.words[GA_SLAB_WORD_HEAP],
                             GA_SLAB_WORDS_COUNT(heap.words), ga_slab_kernel_grows(heap));
}

/* The heap behind a view of the kind GA_KERNEL_KIND_SLAB. In a heap that grows under kernels
 * `words` is that of the time when the view was made. */
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

/* The view with the number of words now. */
GA_SIMT ga_slab_view ga_slab_view_now(ga_kernel_heap heap)
{
    ga_slab_view slab = ga_slab_view_of_kernel(heap);
    slab.words = ga_slab_kernel_words(heap);
    return slab;
}

/* The number of the caller's warp in a grid of any shape. Without the empty asm the compiler
 * computes it always and selects afterwards. */
GA_SIMT uint32_t ga_slab_warp_any_shape(void)
{
    asm volatile("");
    uint32_t block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    uint32_t thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    return block * ((blockDim.x * blockDim.y * blockDim.z + 31u) / 32u) + thread / 32u;
}

/* The number of the caller's warp in its grid. Few instructions in the usual case of one
 * dimension. */
GA_SIMT uint32_t ga_slab_warp(void)
{
    if (gridDim.y + gridDim.z + blockDim.y + blockDim.z != 4u) { /* each is at least 1 */
        return ga_slab_warp_any_shape();
    }
    return blockIdx.x * ((ga_block_width() + 31u) / 32u) + threadIdx.x / 32u;
}

/* The home word of a tile whose number is not below the number of words in the view. */
GA_SIMT uint32_t ga_slab_home_word_slow(ga_kernel_heap heap, ga_tile tile, uint32_t number)
{
    uint32_t words = ga_slab_kernel_words(heap);
    /* one number for the tile, because its lanes might see different ones */
    return number % ga_lanes_get(tile, ga_lanes_all(words), ga_tile_leader(tile));
}

/* The home word of the caller's warp. Warps take the words in the order of their numbers, so that
 * neighbours claim neighbouring words. */
GA_SIMT uint32_t ga_slab_home_word(ga_kernel_heap heap)
{
    uint32_t warp = ga_slab_warp();
    return warp < GA_SLAB_WORDS_COUNT(heap.words)
               ? warp
               : ga_slab_home_word_slow(heap, ga_tile_present(), warp);
}

/* The home word of the caller's tile, one of the tiles into which its warp is split. */
GA_SIMT uint32_t ga_slab_tile_home_word(ga_kernel_heap heap, ga_tile tile)
{
    uint32_t number = ga_slab_warp() * (32u / tile.width) + tile.base / tile.width;
    return number < GA_SLAB_WORDS_COUNT(heap.words) ? number
                                                    : ga_slab_home_word_slow(heap, tile, number);
}

/* ---- hardened checks --------------------------------------------------------------------- */

/* Count a fault and report it to the host. Reports beyond the end of the array are only counted. */
GA_SIMT_SLOW void ga_slab_report_fault(ga_slab_heap *heap, uint32_t fault, const void *address)
{
    ga_post_add64_relaxed(&heap->faults[fault], 1); /* relaxed: a count, read between launches */
    if (heap->check) {
        ga_slab_report_put(heap->reports, &heap->reported, fault, address);
    }
}

/* Report the first word of a free unit that no longer holds GA_SLAB_POISON: the program wrote to
 * the unit after it was freed. */
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

/* Free one unit with all checks. Each lane works for itself; contention on a word does not matter
 * here. */
GA_SIMT_SLOW void ga_slab_release_checked(ga_slab_heap *heap, void *pointer)
{
    ga_slab_view slab = ga_slab_view_of(heap);
    uint32_t unit = ga_slab_unit(slab, pointer);
    if (unit == GA_SLAB_FULL) {
        ga_slab_report_fault(heap, GA_SLAB_NO_UNIT, pointer);
        return;
    }
    uint32_t *at = ga_slab_word(slab, unit / 32u);
    uint32_t bit = 1u << (unit % 32u);
    /* relaxed: the caller owns the unit, so its bit is set, unless this is a second free. */
    if (ga_load_relaxed(at) & bit) {
        uint32_t *words = (uint32_t *)pointer;
        for (uint32_t i = 0; i < heap->unit / 4u; i++) {
            ga_store_relaxed(words + i, GA_SLAB_POISON);
        }
        /* SU2: release, with a result. Pairs with SU1 (slab_tile.h). */
        if (ga_and_release(at, ~bit) & bit) {
            ga_slab_count_released(slab, unit / 32u, 1);
            return;
        }
    }
    ga_slab_report_fault(heap, GA_SLAB_DOUBLE_FREE, pointer);
}

/* ---- claims -------------------------------------------------------------------------------- */

/* Claim in a heap that does not grow under kernels. */
GA_SIMT_SLOW uint32_t ga_slab_claim_fixed(ga_slab_heap *heap, uint32_t lanes, uint32_t home)
{
    return ga_slab_claim_lanes(ga_slab_view_of(heap), ga_tile_among(lanes), lanes, home);
}

/* A claim by some lanes of a warp, in a heap with two-level addressing, or in one with checks.
 * `lanes` are the calling lanes, `home` is their ga_slab_home_word(). */
GA_SIMT uint32_t ga_slab_claim_general_unit(ga_slab_heap *heap, uint32_t lanes, uint32_t home)
{
    uint32_t unit = heap->growth ? ga_slab_claim_growing(heap, lanes, ga_slab_warp(), GA_SLAB_FULL)
                                 : ga_slab_claim_fixed(heap, lanes, home);
    if (unit != GA_SLAB_FULL && heap->check) {
        ga_slab_check_poison(heap, ga_slab_pointer(ga_slab_view_of(heap), unit));
    }
    return unit;
}

/* Functions of their own, so that the fast paths stay small. The view is made after the claim, so
 * that no register of it is kept over that. */
GA_SIMT_SLOW void *ga_slab_claim_general(ga_slab_heap *heap, uint32_t lanes, uint32_t home)
{
    uint32_t unit = ga_slab_claim_general_unit(heap, lanes, home);
    return unit == GA_SLAB_FULL ? NULL : ga_slab_pointer(ga_slab_view_of(heap), unit);
}

GA_SIMT_SLOW uint32_t ga_slab_claim_address_general(ga_slab_heap *heap, uint32_t lanes,
                                                    uint32_t home)
{
    uint32_t unit = ga_slab_claim_general_unit(heap, lanes, home);
    return ga_slab_address_of_unit(ga_slab_view_of(heap), unit);
}

/* True if a call of these lanes takes the slow path. */
GA_SIMT bool ga_slab_is_general(ga_kernel_heap heap, uint32_t lanes)
{
    return (GA_SLAB_WORDS_FLAGS(heap.words) & GA_SLAB_FLAG_GENERAL) || !ga_warp_is_whole(lanes);
}

/* The slow path of a claim by a whole warp, after ga_slab_claim_fast(). */
GA_SIMT_SLOW uint32_t ga_slab_claim_missed(ga_slab_heap *heap, uint32_t home, uint32_t word,
                                           uint32_t got)
{
    uint32_t unit =
        ga_slab_claim_slow_warp(heap, GA_ALL_BITS, home, word, got, ga_slab_words(heap));
    return heap->growth ? ga_slab_claim_growing(heap, GA_ALL_BITS, ga_slab_warp(), unit) : unit;
}

GA_SIMT void *ga_slab_kernel_claim(ga_kernel_heap heap)
{
    ga_slab_view slab = ga_slab_view_of_kernel(heap);
    uint32_t lanes = ga_warp_present();
    uint32_t home = ga_slab_home_word(heap);
    ga_slab_tried tried;
    if (ga_slab_is_general(heap, lanes)) {
        return ga_slab_claim_general(slab.heap, lanes, home);
    }
    slab.light = true; /* a constant from here on */
    if (!ga_slab_claim_fast(slab, ga_slab_kernel_grows(heap), home, &tried)) {
        uint32_t unit = ga_slab_claim_missed(slab.heap, home, tried.word, tried.got);
        return unit == GA_SLAB_FULL ? NULL : ga_slab_pointer(slab, unit);
    }
    return ga_slab_pointer(slab, tried.word * 32u + ga_warp_lane());
}

/* ---- 32-bit addresses ----------------------------------------------------------------------- */

GA_SIMT uint32_t ga_slab_kernel_claim_address(ga_kernel_heap heap)
{
    ga_slab_view slab = ga_slab_view_of_kernel(heap);
    uint32_t lanes = ga_warp_present();
    uint32_t home = ga_slab_home_word(heap);
    ga_slab_tried tried;
    if (ga_slab_is_general(heap, lanes)) {
        return ga_slab_claim_address_general(slab.heap, lanes, home);
    }
    slab.light = true; /* a constant from here on */
    return ga_slab_claim_fast(slab, ga_slab_kernel_grows(heap), home, &tried)
               ? tried.word * 32u + ga_warp_lane()
               : ga_slab_claim_missed(slab.heap, home, tried.word, tried.got);
}

GA_SIMT void *ga_slab_kernel_pointer(ga_kernel_heap heap, uint32_t address)
{
    ga_slab_view slab = ga_slab_view_of_kernel(heap);
    return ga_slab_pointer(slab, ga_slab_unit_of_address(slab, address));
}

/* Claim a word of units for a tile, in any kind of slab heap. */
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

/* The fast path: the free units of one word, by one atomic. 0 if the heap has checks, or two-level
 * addressing. */
GA_SIMT uint32_t ga_slab_claim_word_fast(ga_kernel_heap heap, ga_tile tile, uint32_t word)
{
    ga_slab_view slab = ga_slab_view_of_kernel(heap);
    slab.light = true; /* a constant from here on */
    return GA_SLAB_WORDS_FLAGS(heap.words) & GA_SLAB_FLAG_GENERAL
               ? 0
               : ~ga_slab_tile_claim_bits(slab, tile, word, GA_ALL_BITS);
}

/* Free the units of the tile's lanes, which have published. GA_SLAB_FULL: this lane has none. */
GA_SIMT void ga_slab_release_units(ga_slab_view slab, ga_tile tile, uint32_t unit)
{
    uint32_t releasing = ga_lanes_nonzero(tile, ~unit); /* ~GA_SLAB_FULL is 0 */
    if (releasing) {
        ga_slab_release_lanes(slab, tile, releasing, unit);
    }
}

/* The slow path of a free: some lanes of a warp, two-level addressing, checks, or units that are
 * not 2^n bytes. The lanes have published their writes. */
GA_SIMT_SLOW void ga_slab_release_general(ga_slab_heap *heap, uint32_t lanes, void *pointer)
{
    if (heap->check) {
        if (pointer) {
            ga_slab_release_checked(heap, pointer);
        }
        return;
    }
    ga_slab_view slab = ga_slab_view_of(heap);
    uint32_t unit = pointer ? ga_slab_unit(slab, pointer) : GA_SLAB_FULL;
    if (ga_warp_is_whole(lanes)) {
        ga_slab_release_units(slab, ga_tile_of(32), unit);
    } else {
        ga_slab_release_units(slab, ga_tile_among(lanes), unit);
    }
    if (unit == GA_SLAB_FULL && pointer) {
        ga_slab_report_fault(heap, GA_SLAB_NO_UNIT, pointer);
    }
}

/* Publish before a free. This comes first, because the load of the pointer may be under way:
 * measured to be best. */
GA_SIMT void ga_slab_publish(uint32_t lanes)
{
    if (ga_warp_is_whole(lanes)) {
        ga_tile_publish(ga_tile_of(32));
    } else {
        ga_tile_publish(ga_tile_among(lanes));
    }
}

/* The fast path of a free, for a whole warp that has published: true if all pointers are units, as
 * far as the view tells; they are free then. */
GA_SIMT bool ga_slab_release_fast(ga_slab_view slab, void *pointer)
{
    ga_tile all = ga_tile_of(32);
    slab.light = true; /* constants from here on */
    slab.inverse = 0;
    uint32_t unit = ga_slab_unit(slab, pointer);
    bool are_units = ga_lanes_nonzero(all, ~unit) == GA_ALL_BITS; /* ~GA_SLAB_FULL is 0 */
    if (are_units) {
        ga_slab_release_lanes(slab, all, GA_ALL_BITS, unit);
    }
    return are_units;
}

/* True if a free by these lanes may take the fast path. */
GA_SIMT bool ga_slab_may_release_fast(ga_kernel_heap heap, uint32_t lanes)
{
    return !(GA_SLAB_WORDS_FLAGS(heap.words) & GA_SLAB_FLAGS_DIVIDE) && ga_warp_is_whole(lanes);
}

GA_SIMT void ga_slab_kernel_release(ga_kernel_heap heap, void *pointer)
{
    ga_slab_view slab = ga_slab_view_now(heap);
    uint32_t lanes = ga_warp_present();
    ga_slab_publish(lanes);
    if (!ga_slab_may_release_fast(heap, lanes) || !ga_slab_release_fast(slab, pointer)) {
        ga_slab_release_general(slab.heap, lanes, pointer);
    }
}

/* Pointers for one call of the slow path. A copy, made only for that call, so that the caller's
 * pointers stay in registers. */
#define GA_SLAB_TOGETHER 4u
typedef struct ga_slab_pointers {
    void *pointers[GA_SLAB_TOGETHER];
} ga_slab_pointers;

/* The slow path of ga_slab_kernel_release_several(). */
GA_SIMT_SLOW void ga_slab_release_rest(ga_slab_heap *heap, uint32_t lanes, ga_slab_pointers rest)
{
    for (uint32_t i = 0; i < GA_SLAB_TOGETHER; i++) {
        ga_slab_release_general(heap, lanes, rest.pointers[i]);
    }
}

/* Free several pointers a lane: the lanes stay together, and wait at one fence. */
GA_SIMT void ga_slab_kernel_release_several(ga_kernel_heap heap, void *const *pointers, uint32_t n)
{
    ga_slab_view slab = ga_slab_view_now(heap);
    uint32_t lanes = ga_warp_present();
    ga_slab_publish(lanes);
    bool fast = ga_slab_may_release_fast(heap, lanes);
#pragma unroll
    for (uint32_t first = 0; first < n; first += GA_SLAB_TOGETHER) {
        ga_slab_pointers rest;
#pragma unroll
        for (uint32_t i = 0; i < GA_SLAB_TOGETHER; i++) {
            void *pointer = first + i < n ? pointers[first + i] : NULL;
            fast = first + i >= n ? fast : fast && ga_slab_release_fast(slab, pointer);
            rest.pointers[i] = fast ? NULL : pointer;
        }
        if (!fast) {
            ga_slab_release_rest(slab.heap, lanes, rest);
        }
    }
}

/* The slow path of ga_slab_kernel_release_address(). */
GA_SIMT_SLOW void ga_slab_release_address_general(ga_slab_heap *heap, uint32_t lanes,
                                                  uint32_t address)
{
    ga_slab_view slab = ga_slab_view_of(heap);
    uint32_t unit = ga_slab_unit_of_address(slab, address);
    bool is_one = unit / 32u < slab.words && ga_slab_address_of_unit(slab, unit) == address;
    /* If no unit has that address, the report shows the address itself. */
    void *pointer = address == GA_SLAB_FULL ? NULL
                    : is_one                ? ga_slab_pointer(slab, unit)
                                            : (void *)(uint64_t)address;
    ga_slab_release_general(heap, lanes, pointer);
}

GA_SIMT void ga_slab_kernel_release_address(ga_kernel_heap heap, uint32_t address)
{
    ga_slab_view slab = ga_slab_view_now(heap);
    uint32_t lanes = ga_warp_present();
    ga_slab_publish(lanes);
    if (!ga_slab_is_general(heap, lanes)) {
        ga_tile all = ga_tile_of(32);
        slab.light = true;
        if (ga_lanes_nonzero(all, address / 32u < slab.words) == GA_ALL_BITS) {
            ga_slab_release_lanes(slab, all, GA_ALL_BITS, address);
            return;
        }
    }
    ga_slab_release_address_general(slab.heap, lanes, address);
}

/* Bytes of the unit that begins at `pointer`; 0 if none does. */
GA_SIMT_SLOW size_t ga_slab_kernel_usable_size(ga_kernel_heap heap, const void *pointer)
{
    ga_slab_view slab = ga_slab_view_of((ga_slab_heap *)heap.words[GA_SLAB_WORD_HEAP]);
    return ga_slab_unit(slab, pointer) == GA_SLAB_FULL ? 0 : GA_SLAB_WORDS_UNIT(heap.words);
}

#endif
