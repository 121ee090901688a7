/* SPDX-License-Identifier: MIT
 *
 * Kernel heaps with size classes: the calls behind ga_kernel_malloc() and ga_kernel_free()
 * (gpualloc/device.cuh). sized_heap.h draws the memory that they work on.
 *
 * A unit is allocated by setting its bit in a bitmap, and freed by clearing it. The number of the
 * calling warp in its grid names the warp's home word among the words of the class, and the number
 * of a lane names its bit there. So warps do not meet while the class has a word for each of them.
 *
 * Allocation, as a call tree. All names have the prefix ga_sized_, left out here.
 *
 *     kernel_malloc               size -> class
 *      |- kernel_claim            the lanes that call together are one tile
 *      |   '- claim_tile
 *      |       |- claim_fast       FAST PATH. Two loads (the class map), then one atomic OR that
 *      |       |                   sets the bits of all lanes in the home word
 *      |       |- claim_slow       reads the class's table if the fast path could not tell where
 *      |       |   |               the home word is, and tries it: one atomic OR
 *      |       |   '- claim_rest   (sized_tile.h)
 *      |       |       '- claim_by_lane  lanes whose bits were set, each at other bits of the home
 *      |       |                       word, at the hint, at random or new words
 *      |       |- claim_lone       a lane that calls alone (sized_lone.h)
 *      |       |   |- claim_lone_fast  FAST PATH. One load (its warp's recent word), then one
 *      |       |   |                   atomic OR, two if the lane's own bit was set
 *      |       |   '- claim_lone_slow  at the hint, at random words, and once at new ones
 *      |       '- claim_slow_mixed lanes of different classes
 *      |           '- claim_each   (sized_tile.h) one atomic OR for each class, then claim_by_lane
 *      '- kernel_claim_run        larger than the largest class: a run of regions (sized_runs.h)
 *
 *     and for the lanes that have no unit then, one class after the other:
 *
 *     claim_search (sized_tile.h)
 *      |- search_class             SEARCH: at the hint, at random words, at the newest words
 *      |- search_new               or, once the class has grown, at the words that it got
 *      '- search_further
 *          |- search_grow          GROWTH: more regions for the class, from the pool (sized_grow.h,
 *          |                       sized_pool.h). May wait until the pager has committed memory
 *          |- sweep_join           unless an earlier result is valid: reads all regions together
 *          |                       with the other tiles that found nothing (sized_sweep.h)
 *          '- search_grow          once more. If the class has got no region, REFUSAL: the request
 *                                  is counted as refused and returns NULL
 *
 * A call leaves the fast path if
 *   - no class is large enough for the size,
 *   - the lanes that call together ask for different classes,
 *   - the home word is not in the contiguous regions of the class (sized_places.h): the class has
 *     no region yet, or its regions are scattered, or its regions have one word each,
 *   - the bit of any of the lanes is set already: warps share a home word because the class has
 *     fewer words than the grid has warps, or earlier blocks are still live,
 *   - a lane calls alone, and its warp has no recent word with a free bit.
 *
 * Free:
 *
 *     kernel_free
 *      |- free_fast                FAST PATH. Reads the owner of each block's region, one fence,
 *      |                           then one atomic AND for all lanes if their units share a word,
 *      |                           else one for each lane
 *      |- free_slow                blocks that are left:
 *      |   |- free_slow_flagged    units of regions with flags: notifies the sweep that watches
 *      |   '- free_slow_run        runs, and invalid pointers, which are counted
 *      '- free_checked             check=full (sized_checked.h)
 */
#ifndef GPUALLOC_SLAB_CLASSES_SIZED_KERNEL_H
#define GPUALLOC_SLAB_CLASSES_SIZED_KERNEL_H

#include <gpualloc/gpualloc.h>

#include "../units/slab_kernel.h"
#include "sized_checked.h"
#include "sized_lone.h"
#include "sized_words.h"

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
               : ga_sized_pointer(heap, ga_sized_unit(class_), got.word_indices, got.bit_indices);
}

/* Lanes that ask for different classes. Not inlined, so that the fast path stays small. Linked
 * malloc has its own: malloc_mixed (interpose/kernel/malloc.cu). */
GA_SIMT_SLOW void *ga_sized_claim_slow_mixed(ga_sized_heap *heap, uint32_t lanes, uint32_t class_,
                                             uint32_t number)
{
    ga_tile tile = ga_tile_among(lanes);
    ga_sized_view view = ga_sized_view_of(heap);
    return ga_sized_pointer_or_null(view, class_,
                                    ga_sized_claim(view, tile, lanes, class_, number));
}

/* Lanes of one class, as for ga_sized_claim_rest(). */
GA_SIMT_SLOW void *ga_sized_claim_rest_noinline(ga_sized_heap *heap, uint32_t lanes,
                                                uint32_t class_, uint32_t number,
                                                uint32_t word_index, uint32_t taken)
{
    ga_sized_view view = ga_sized_view_of(heap);
    ga_sized_units got =
        ga_warp_is_whole(lanes)
            ? ga_sized_claim_rest(view, ga_tile_of(32), class_, number, word_index, taken)
            : ga_sized_claim_rest(view, ga_tile_among(lanes), class_, number, word_index, taken);
    return ga_sized_pointer_or_null(view, class_, got);
}

/* The state that claim_fast() leaves to claim_slow(). */
typedef struct ga_sized_claim_miss {
    uint32_t unit;       /* bytes of a unit; names the class */
    uint32_t word_index; /* home word, or GA_SIZED_NONE if it has not been tried */
    uint32_t taken;      /* its bits that were set before; all bits if it was not tried */
} ga_sized_claim_miss;

/* Fast path: a unit of one class for each lane of the tile, by one atomic OR on the home word. All
 * lanes of the tile call. On success returns the lane's unit. If the bit of any lane was set
 * already, returns NULL in all lanes. Then the lanes whose bits were clear hold these bits, and
 * claim_slow() must use them. Few values are live at a time, so that linked malloc
 * (interpose/kernel) need not save registers for it. */
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

/* A number that differs for most warps of a grid, and is the same in all lanes of a warp if a row
 * of the block has whole warps. Fewer instructions than ga_slab_warp(). */
GA_SIMT uint32_t ga_sized_rough_number(void)
{
    return (blockIdx.x * ga_block_width() + threadIdx.x) / 32u + threadIdx.y * 1031u +
           blockIdx.y * 40503u;
}

/* A unit of the class for the lane, which calls alone. */
GA_SIMT void *ga_sized_claim_lone(ga_sized_view heap, uint32_t class_)
{
    uint32_t number = ga_sized_rough_number();
    void *block = ga_sized_claim_lone_fast(heap, class_, number, ga_warp_lane());
    return block ? block
                 : ga_sized_claim_lone_slow(heap.heap, class_, number, ga_slab_warp(),
                                            ga_warp_lane());
}

/* Slow path of claim_fast(), for the lanes that called, of which there are several. If the home
 * word is not in the contiguous regions of the class, it has not been tried and no bits have been
 * set. */
GA_SIMT void *ga_sized_claim_slow(ga_sized_view heap, uint32_t lanes, uint32_t number,
                                  ga_sized_claim_miss missed)
{
    uint32_t class_ = ga_sized_class_of_last(heap, missed.unit - 1u);
    if (missed.word_index == GA_SIZED_NONE) {
        missed.word_index =
            ga_sized_home_word(heap, ga_sized_load_class_map(heap.heap->of + class_), number);
        if (missed.word_index != GA_SIZED_NONE) {
            missed.taken = ga_sized_try_set_lanes_verify(heap, ga_tile_among(lanes), class_,
                                                         missed.word_index);
        }
        if (!(missed.taken & lanes)) {
            return ga_sized_pointer(heap, missed.unit, missed.word_index, ga_warp_lane());
        }
    }
    return ga_sized_claim_rest_noinline(heap.heap, lanes, class_, number, missed.word_index,
                                        missed.taken);
}

/* Not inlined, so that the fast path stays small. */
GA_SIMT_SLOW void *ga_sized_claim_slow_noinline(ga_sized_heap *heap, uint32_t lanes,
                                                uint32_t number, uint32_t unit, uint32_t word_index,
                                                uint32_t taken)
{
    ga_sized_claim_miss missed = {unit, word_index, taken};
    return ga_sized_claim_slow(ga_sized_view_of(heap), lanes, number, missed);
}

/* A unit of the lane's class for each lane of the tile. Exactly these lanes call. */
GA_SIMT void *ga_sized_claim_tile(ga_sized_view heap, ga_tile tile, uint32_t class_)
{
    ga_sized_claim_miss missed;
    uint32_t lanes = ga_tile_lanes(tile);
    if (!(lanes & (lanes - 1u))) {
        return ga_sized_claim_lone(heap, class_);
    }
    uint32_t number = ga_slab_warp();
    if (!ga_lanes_same(tile, class_)) {
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

/* A run of whole regions for each lane that calls. `align` counts regions and is at most
 * GA_SIZED_REGIONS_MAX. */
GA_SIMT_SLOW void *ga_sized_kernel_claim_run(ga_sized_heap *heap, size_t size, uint32_t align)
{
    GA_SIMT_SAVES_REGISTERS(ga_sized_kernel_claim_run);
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

/* Returns NULL if `align` is not a power of two. */
GA_SIMT void *ga_sized_kernel_aligned_alloc(ga_kernel_heap heap, size_t align, size_t size)
{
    ga_sized_view view = ga_sized_view_of_kernel(heap);
    uint64_t regions = align >> view.region_bits;
    if (!align || align & (align - 1u) || regions > GA_SIZED_REGIONS_MAX) {
        return NULL;
    }
    uint32_t class_ = ga_sized_class_aligned(view, size, align);
    return class_ == GA_SIZED_NONE
               ? ga_sized_kernel_claim_run(view.heap, size, regions ? (uint32_t)regions : 1u)
               : ga_sized_kernel_claim(view, class_);
}

/* Free the blocks of lanes that are not in `freed`, if they are units of regions with flags.
 * Returns the lanes whose blocks are free now. Precondition: the lanes have called
 * ga_tile_publish(). */
GA_SIMT uint32_t ga_sized_free_slow_flagged(ga_sized_view view, uint32_t lanes, uint32_t freed,
                                            void *block)
{
    ga_tile tile = ga_tile_among(lanes);
    bool is_left = block && !(freed >> ga_warp_lane() & 1u);
    if (!ga_lanes_any(tile, is_left)) {
        return freed; /* the others free NULL */
    }
    uint32_t owner = ga_sized_load_owner(view, block);
    ga_sized_found found = ga_sized_find(view, block);
    bool is_one = is_left && found.class_ != GA_SIZED_NONE && !found.offset;
    uint32_t freeing = ga_lanes_nonzero(tile, is_one);
    if (freeing) {
        ga_sized_units units = {found.word_index, found.bit_index};
        ga_sized_free_units(view, tile, freeing, units);
    }
    uint32_t region = found.word_index >> ga_sized_stride_bits(view.region_bits);
    uint32_t watched = ga_lanes_nonzero(tile, is_one && owner & GA_SIZED_WATCH);
    uint32_t equal = ga_lanes_equal(tile, watched, region);
    /* One lane of each region notifies the sweep, after all lanes have cleared their bits. */
    ga_tile_sync(tile);
    if (watched >> ga_warp_lane() & 1u && ga_bits_lowest(equal) == ga_warp_lane()) {
        ga_sized_notify_sweep(view.heap, region);
    }
    return freed | freeing;
}

/* Free a run for each lane that calls, and count invalid pointers. No block begins a unit.
 * Precondition: the lanes have called ga_tile_publish(). */
GA_SIMT_SLOW void ga_sized_free_slow_run(ga_sized_heap *heap, void *block)
{
    ga_tile tile = ga_tile_present();
    ga_sized_run run = ga_sized_run_find(ga_sized_view_of(heap), block);
    uint32_t freeing = ga_lanes_nonzero(tile, run.n && !run.offset);
    uint32_t freed = freeing ? ga_sized_runs_free(heap, tile, freeing, run.first) : 0;
    if (!(freed >> ga_warp_lane() & 1u)) {
        ga_post_add64_relaxed(&heap->faults, 1); /* relaxed: a counter, read between launches */
    }
}

/* Find the unit that begins at each lane's block, and publish the writes of the lanes. A lane has
 * GA_SIZED_NONE if no unit begins at its block or if its region has flags. */
GA_SIMT ga_sized_units ga_sized_free_locate(ga_sized_view view, ga_tile tile, void *block)
{
    /* this load is in flight while the fence waits */
    uint32_t owner = ga_sized_load_owner(view, block);
    ga_tile_publish(tile);
    ga_tile_gate(tile); /* else the assembler waits for the load before the fence */
    ga_sized_found found = ga_sized_find_with_owner(view, owner, block);
    bool is_one = found.class_ != GA_SIZED_NONE && !found.offset;
    ga_sized_units got = {is_one ? found.word_index : GA_SIZED_NONE, found.bit_index};
    return got;
}

/* Fast path of free: frees the blocks that are units of regions without flags, and returns a mask
 * of their lanes. */
GA_SIMT uint32_t ga_sized_free_fast(ga_sized_view view, ga_tile tile, void *block)
{
    uint32_t lanes = ga_tile_lanes(tile);
    ga_sized_units got = ga_sized_free_locate(view, tile, block);
    if (!(lanes & (lanes - 1u)) && got.word_indices != GA_SIZED_NONE) { /* needs no vote */
        ga_sized_release_bits(view, got.word_indices, 1u << got.bit_indices);
        return lanes;
    }
    if (!ga_lanes_any(tile, got.word_indices == GA_SIZED_NONE)) {
        ga_sized_free_units(view, tile, lanes, got);
        return lanes;
    }
    if (got.word_indices != GA_SIZED_NONE) {
        ga_sized_release_bits(view, got.word_indices, 1u << got.bit_indices);
    }
    return ga_lanes_nonzero(tile, got.word_indices != GA_SIZED_NONE);
}

/* Slow path of free, for lanes whose blocks free_fast() has not `freed`: units of regions with
 * flags, runs, invalid pointers. All of `lanes` call. */
GA_SIMT_SLOW void ga_sized_free_slow(ga_sized_heap *heap, uint32_t lanes, uint32_t freed,
                                     void *block)
{
    freed = ga_sized_free_slow_flagged(ga_sized_view_of(heap), lanes, freed, block);
    if (block && !(freed >> ga_warp_lane() & 1u)) {
        ga_sized_free_slow_run(heap, block);
    }
}

/* Free with all hardened checks, for each lane that calls. */
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
    if (GA_SIZED_WORDS_CHECK(heap.words)) {
        ga_sized_free_checked(view.heap, block);
        return;
    }
    uint32_t freed = ga_warp_is_whole(lanes)
                         ? ga_sized_free_fast(view, ga_tile_of(32), block)
                         : ga_sized_free_fast(view, ga_tile_among(lanes), block);
    if (freed != lanes) {
        ga_sized_free_slow(view.heap, lanes, freed, block);
    }
}

/* ---- queries, by each lane for itself -------------------------------------------------- */

/* The run that begins at `block`; its `n` is 0 if none begins there. */
GA_SIMT ga_sized_run ga_sized_run_starting_at(ga_sized_view heap, const void *block)
{
    ga_sized_run run = ga_sized_run_find(heap, block);
    run.n = run.offset ? 0 : run.n;
    return run;
}

/* Usable bytes of the block; 0 for an invalid pointer. */
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

/* The start of the run that contains `pointer`, or NULL. */
GA_SIMT_SLOW char *ga_sized_run_start(ga_sized_heap *heap, const void *pointer)
{
    ga_sized_run run = ga_sized_run_find(ga_sized_view_of(heap), pointer);
    return run.n ? (char *)pointer - run.offset : NULL;
}

/* ---- resizing -------------------------------------------------------------------------- */

/* True if the block of the lane, of `usable` bytes, stays in place at a size of `size` bytes. A run
 * frees the regions that it no longer needs. A unit stays until half of it is enough. All lanes
 * that call share the work. */
GA_SIMT_SLOW bool ga_sized_resize(ga_sized_heap *heap, void *block, size_t usable, size_t size)
{
    ga_tile tile = ga_tile_present();
    ga_sized_view view = ga_sized_view_of(heap);
    ga_sized_run run = ga_sized_run_starting_at(view, block);
    uint32_t n = ga_sized_run_regions(view, size);
    bool shorter = run.n > n && ga_sized_class_of(view, size) == GA_SIZED_NONE;
    ga_tile_publish(tile); /* before regions are freed: the lanes' writes to them */
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
