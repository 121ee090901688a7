/* SPDX-License-Identifier: MIT
 *
 * Finding entries of a sparse matrix, by the lanes of a tile.
 */
#ifndef GPUALLOC_SPGEMM_CSR_TILE_H
#define GPUALLOC_SPGEMM_CSR_TILE_H

#include "simt/simt.h"

#include <gpualloc/matrix.h>

#define GA_SPGEMM_EMPTY 0xffffffffu /* no column: matrices have at most 2^32 - 1 */

/* The lanes that have an element of the `left` ones. */
GA_SIMT uint32_t ga_spgemm_lanes(ga_tile tile, uint64_t left)
{
    return left < ga_tile_size(tile) ? ga_bits_below((uint32_t)left) : ga_tile_lanes(tile);
}

/* The first entry from `begin` to `end` whose column is at least `column`. By one lane. */
GA_SIMT uint64_t ga_spgemm_find(const ga_csr *m, uint64_t begin, uint64_t end, uint32_t column)
{
    while (begin < end) {
        uint64_t middle = begin + (end - begin) / 2u;
        if (m->indices[middle] < column) {
            begin = middle + 1u;
        } else {
            end = middle;
        }
    }
    return begin;
}

#endif
