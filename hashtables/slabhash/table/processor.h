/* SPDX-License-Identifier: MIT
 *
 * The parts of the algorithms in this folder that differ between the CPU and the GPU.
 */
#ifndef GPUALLOC_SLABHASH_TABLE_PROCESSOR_H
#define GPUALLOC_SLABHASH_TABLE_PROCESSOR_H

#ifdef __CUDACC__

#include <gpualloc/detail/backends/slab/units/slab_kernel.h>

/* Tiles that share an exchange (search_tile.h): the four of a warp, interleaved, so that they use
 * different banks of shared memory. */
enum {
    GA_SLABHASH_TILES_PER_WARP = 4
};

/* Claim the free units of a word of the heap, which has `words`, from claimed.word on. */
GA_SIMT ga_slab_claimed ga_slabhash_claim_from(ga_slab_heap *heap, ga_tile tile, uint32_t words,
                                               ga_slab_claimed claimed)
{
    (void)words;
    return ga_slab_claim_word_general(heap, ga_tile_members(tile), claimed.word);
}

/* The caller's function for APPLY, which is a macro in kernels. */
#define GA_SLABHASH_CALL(operation, there) GA_SLABHASH_FUNCTION(there, (operation).value)

/* The hash of a key that migrates. */
#define GA_SLABHASH_REHASH(shift, key) GA_SLABHASH_HASH((shift).from, key)

#else

#include <gpualloc/detail/backends/slab/units/slab_in_turn.h>

enum {
    GA_SLABHASH_TILES_PER_WARP = 1
};

GA_SIMT ga_slab_claimed ga_slabhash_claim_from(ga_slab_heap *heap, ga_tile tile, uint32_t words,
                                               ga_slab_claimed claimed)
{
    ga_slab_claim_word(ga_slab_view_with(heap, words), tile, &claimed);
    return claimed;
}

#define GA_SLABHASH_CALL(operation, there)                                                         \
    (operation).function((operation).context, there, (operation).value)

#define GA_SLABHASH_REHASH(shift, key)                                                             \
    ((shift).hash ? (shift).hash((shift).context, key) : ga_slabhash_seeded((shift).from, key))

#endif

#endif
