/* SPDX-License-Identifier: MIT
 *
 * Blocks of all sizes for the lanes of a tile, by every method: shared by the tests of the
 * algorithm. A header, so that each program compiles the algorithm for itself, with or without
 * planted bugs.
 */
#ifndef GPUALLOC_TESTS_SUPPORT_SIZED_ACTOR_H
#define GPUALLOC_TESTS_SUPPORT_SIZED_ACTOR_H

#include "backends/slab/classes/sized_lone.h"

static inline ga_tile sized_tile(void)
{
    return ga_tile_of(32);
}

/* The block that lane `lane` got of the class, or NULL. */
static inline char *sized_pointer(ga_sized_heap *heap, uint32_t class, ga_sized_units got,
                                  uint32_t lane)
{
    uint32_t key = ga_lane_read(got.word_indices, lane);
    return key == GA_SIZED_NONE ? NULL
                                : ga_sized_pointer(ga_sized_view_of(heap), ga_sized_unit(class),
                                                   key, ga_lane_read(got.bit_indices, lane));
}

/* A block of the class for a lane that calls alone, or NULL. */
static inline char *sized_claim_lone(ga_sized_heap *heap, uint32_t class, uint32_t number,
                                     uint32_t lane)
{
    char *block = ga_sized_claim_lone_fast(ga_sized_view_of(heap), class, number, lane);
    return block ? block : ga_sized_claim_lone_slow(heap, class, number, number, lane);
}

/* A block of its class for each lane of the mask, NULL for lanes that got none and all others.
 * Returns the number of lanes that got one. */
static inline uint32_t sized_claim(ga_sized_heap *heap, uint32_t lanes, const uint32_t *classes,
                                   uint32_t number, char **blocks)
{
    ga_lanes wanted = ga_lanes_all(GA_SIZED_NONE);
    uint32_t count = 0;
    for (uint32_t lane = 0; lane < 32; lane++) {
        ga_lane_write(&wanted, lane, classes[lane]);
        blocks[lane] = NULL;
    }
    if (!(lanes & (lanes - 1u))) {
        uint32_t lane = ga_bits_lowest(lanes);
        blocks[lane] = sized_claim_lone(heap, classes[lane], number, lane);
        return blocks[lane] != NULL;
    }
    ga_sized_units got =
        ga_sized_claim(ga_sized_view_of(heap), sized_tile(), lanes, wanted, number);
    for (uint32_t lane = 0; lane < 32; lane++) {
        blocks[lane] = sized_pointer(heap, classes[lane], got, lane);
        count += blocks[lane] != NULL;
    }
    return count;
}

/* As above for all lanes and one class, as in kernels if all lanes of a warp call: the whole home
 * word first. */
static inline uint32_t sized_claim_warp(ga_sized_heap *heap, uint32_t class, uint32_t number,
                                        char **blocks)
{
    ga_sized_position home;
    ga_sized_view view = ga_sized_view_of(heap);
    ga_sized_class_map map = ga_sized_load_class_map(heap->of + class);
    bool straight = ga_sized_home_position(map, number, &home);
    uint32_t key = straight ? ga_sized_position_index(view, home) : GA_SIZED_NONE;
    uint32_t taken = straight ? ~ga_sized_claim_word(view, key) : GA_ALL_BITS;
    uint32_t count = 0;
    if (!taken) {
        for (uint32_t lane = 0; lane < 32; lane++) {
            blocks[lane] = ga_sized_position_pointer(view, map.unit, home, lane);
        }
        return 32;
    }
    ga_sized_units got = ga_sized_claim_rest(view, sized_tile(), class, number, key, taken);
    for (uint32_t lane = 0; lane < 32; lane++) {
        blocks[lane] = sized_pointer(heap, class, got, lane);
        count += blocks[lane] != NULL;
    }
    return count;
}

/* Free the block of each lane of the mask. Returns false if one is not the beginning of a block. */
static inline bool sized_release(ga_sized_heap *heap, uint32_t lanes, char *const *blocks)
{
    ga_sized_view view = ga_sized_view_of(heap);
    ga_sized_units got = {ga_lanes_all(GA_SIZED_NONE), ga_lanes_all(0)};
    for (uint32_t rest = lanes; rest; rest &= rest - 1u) {
        uint32_t lane = ga_bits_lowest(rest);
        ga_sized_found found = ga_sized_find(view, blocks[lane]);
        if (found.class_ == GA_SIZED_NONE || found.offset) {
            return false;
        }
        ga_lane_write(&got.word_indices, lane, found.word_index);
        ga_lane_write(&got.bit_indices, lane, found.bit_index);
    }
    ga_tile_publish(sized_tile());
    ga_sized_free_units(view, sized_tile(), lanes, got);
    return true;
}

#endif
