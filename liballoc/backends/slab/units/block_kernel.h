/* SPDX-License-Identifier: MIT
 *
 * Zero and copy blocks in kernels, for heaps of every kind. A lane does a small block alone. Large
 * blocks are done one after the other by all lanes that called together, so that the lanes access
 * consecutive addresses.
 */
#ifndef GPUALLOC_SLAB_UNITS_BLOCK_KERNEL_H
#define GPUALLOC_SLAB_UNITS_BLOCK_KERNEL_H

#include "../../../simt/share.h"
#include "../../../simt/simt.h"

#define GA_BLOCK_SMALL 256u /* bytes: the largest block that a lane does alone */

GA_SIMT uint64_t ga_block_get64(ga_tile tile, uint64_t value, uint32_t lane)
{
    uint32_t high = ga_lanes_get(tile, (uint32_t)(value >> 32), lane);
    return (uint64_t)high << 32 | ga_lanes_get(tile, (uint32_t)value, lane);
}

/* The share of lane `rank` of `step` lanes, in words of this type. Zeros if `from` is NULL. */
template <class WORD>
GA_SIMT void ga_block_fill_words(char *to, const char *from, size_t bytes, size_t rank, size_t step)
{
    for (size_t i = rank; i < bytes / sizeof(WORD); i += step) {
        ((WORD *)to)[i] = from ? ((const WORD *)from)[i] : WORD();
    }
    for (size_t i = bytes / sizeof(WORD) * sizeof(WORD) + rank; i < bytes; i += step) {
        to[i] = from ? from[i] : 0;
    }
}

GA_SIMT void ga_block_fill_share(char *to, const char *from, size_t bytes, size_t rank, size_t step)
{
    uint32_t odd = (uint32_t)((size_t)to | (size_t)from);
    if (odd % 16u == 0) {
        ga_block_fill_words<uint4>(to, from, bytes, rank, step);
    } else if (odd % 4u == 0) {
        ga_block_fill_words<uint32_t>(to, from, bytes, rank, step);
    } else {
        ga_block_fill_words<char>(to, from, bytes, rank, step);
    }
}

/* Copy `bytes` bytes, or zero them if `from` is NULL, for each lane that calls. The blocks do not
 * overlap. */
GA_SIMT_SLOW void ga_block_fill(void *to, const void *from, size_t bytes)
{
    ga_tile tile = ga_tile_present();
    bool large = bytes > GA_BLOCK_SMALL;
    if (!large) {
        ga_block_fill_share((char *)to, (const char *)from, bytes, 0, 1);
    }
    uint32_t asking = ga_lanes_nonzero(tile, large);
    ga_tile_sync(tile); /* the other lanes read the memory that this lane wrote */
    GA_SHARE(tile, asking, lane)
    {
        ga_block_fill_share((char *)ga_block_get64(tile, (uint64_t)to, lane),
                            (const char *)ga_block_get64(tile, (uint64_t)from, lane),
                            ga_block_get64(tile, bytes, lane), ga_tile_ranks(tile),
                            ga_tile_size(tile));
    }
    ga_tile_sync(tile); /* and this lane uses the memory that they wrote */
}

#endif
