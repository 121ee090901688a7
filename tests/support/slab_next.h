/* SPDX-License-Identifier: MIT
 *
 * Claims one unit after the other from words that were claimed whole. Compiled for the CPU and for
 * kernels.
 */
#ifndef GPUALLOC_TESTS_SUPPORT_SLAB_NEXT_H
#define GPUALLOC_TESTS_SUPPORT_SLAB_NEXT_H

#include "../../liballoc/backends/slab/units/slab_in_turn.h"

/* One unit for the tile from its claimed word, and from the next word once that is used up; or
 * GA_SLAB_FULL. One atomic serves up to 32 units. */
GA_SIMT uint32_t slab_claim_next(ga_slab_view slab, ga_tile tile, ga_slab_claimed *claimed)
{
    if (!claimed->units) {
        ga_slab_claim_word(slab, tile, claimed);
        if (!claimed->units) {
            return GA_SLAB_FULL;
        }
    }
    uint32_t unit = claimed->word * 32u + ga_bits_lowest(claimed->units);
    claimed->units &= claimed->units - 1u;
    return unit;
}

#endif
