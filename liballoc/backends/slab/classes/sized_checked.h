/* SPDX-License-Identifier: MIT
 *
 * Free with the hardened checks (check=full). Each free tests the bitmap, or the owner of the run's
 * first region, by one atomic, whose answer tells if the block was live. A block that was not, or
 * an invalid pointer, is reported (report.h) and otherwise ignored.
 *
 * ORDER      KU2 (sized_search.h), with an answer: of several lanes that free a unit, one finds it
 *            live.
 */
#ifndef GPUALLOC_SLAB_CLASSES_SIZED_CHECKED_H
#define GPUALLOC_SLAB_CLASSES_SIZED_CHECKED_H

#include "sized_runs.h"

/* By one lane. */
GA_SIMT void ga_sized_report(ga_sized_heap *heap, uint32_t fault, const void *address)
{
    ga_post_add64_relaxed(&heap->faults, 1); /* relaxed: a counter, read between launches */
    ga_slab_report_put(heap->reports, &heap->reported, fault, address);
}

/* Free the unit that begins at the lane's block. */
GA_SIMT void ga_sized_free_unit_checked(ga_sized_view heap, ga_sized_found found, const void *block)
{
    uint32_t bit = 1u << found.bit_index;
    /* KU2: release, with an answer. Pairs with KU1 (sized_search.h). */
    if (!(ga_and_release(heap.bits + found.word_index, ~bit) & bit)) {
        ga_sized_report(heap.heap, GA_SLAB_DOUBLE_FREE, block);
    }
    ga_sized_notify_sweep(heap.heap, found.word_index >> ga_sized_stride_bits(heap.region_bits));
}

/* For a block that is not a unit: the first region of the run that begins there, + 1. Otherwise
 * reports the pointer, and returns 0. */
GA_SIMT uint32_t ga_sized_find_run_checked(ga_sized_view heap, const void *block)
{
    ga_sized_run run = ga_sized_run_find(heap, block);
    if (run.n && !run.offset) {
        return run.first + 1u;
    }
    ga_sized_report(heap.heap, GA_SLAB_NO_UNIT, block);
    return 0;
}

/* Free the blocks of the lanes `freeing`, given as the halves of their addresses; none is NULL. */
GA_SIMT void ga_sized_free_lanes_checked(ga_sized_heap *heap, ga_tile tile, uint32_t freeing,
                                         ga_lanes low, ga_lanes high)
{
    ga_sized_view view = ga_sized_view_of(heap);
    ga_lanes runs = ga_lanes_all(0);
    ga_tile_publish(tile); /* the lanes' accesses to the memory of runs */
    GA_EACH_LANE(tile, freeing, own)
    {
        const void *block =
            (const void *)((uint64_t)ga_lane_read(high, own) << 32 | ga_lane_read(low, own));
        ga_sized_found found = ga_sized_find(view, block);
        if (found.class_ == GA_SIZED_NONE) {
            ga_lane_write(&runs, own, ga_sized_find_run_checked(view, block));
        } else if (found.offset) {
            ga_sized_report(heap, GA_SLAB_NO_UNIT, block);
        } else {
            ga_sized_free_unit_checked(view, found, block);
        }
    }
    uint32_t ending = ga_lanes_nonzero(tile, runs) & freeing;
    uint32_t ended =
        ending ? ga_sized_runs_free(heap, tile, ending, runs + ga_lanes_all(0u - 1u)) : 0;
    GA_EACH_LANE(tile, ending & ~ended, own) /* another lane freed it first */
    {
        uint64_t address = (uint64_t)ga_lane_read(high, own) << 32 | ga_lane_read(low, own);
        ga_sized_report(heap, GA_SLAB_DOUBLE_FREE, (const void *)address);
    }
}

#endif
