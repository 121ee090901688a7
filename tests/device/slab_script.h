/* SPDX-License-Identifier: MIT
 *
 * The actions of a lone tile on a slab heap, step after step, written once: slab_oracle.c compiles
 * it for the CPU, where it also generates the script, and slab_lone.cu for the GPU, where a warp
 * plays the script and must get equal units.
 */
#ifndef TESTS_DEVICE_SLAB_SCRIPT_H
#define TESTS_DEVICE_SLAB_SCRIPT_H

#include "backends/slab/units/slab_in_turn.h"

#include "../support/slab_next.h"

typedef enum slab_step_kind {
    SLAB_CLAIM_LANES = 0, /* the lanes of `mask`, from word `start` on */
    SLAB_RELEASE_LANES,   /* the lanes of `mask` free `units` */
    SLAB_BEGIN,           /* a tile of `width` begins as number `start` */
    SLAB_CLAIM_ONE,
    SLAB_RELEASE_ONE, /* units[0] */
    SLAB_AIM,         /* the rest of its claimed word is freed; the next search begins at `start` */
    SLAB_CLAIM_NEXT,
    SLAB_STEP_KINDS
} slab_step_kind;

typedef struct slab_step {
    uint32_t kind;
    uint32_t width; /* 4, 8, 16 or 32 */
    uint32_t mask;
    uint32_t start;
    uint32_t units[32]; /* the units to free; or those that the CPU got, a tile's in units[0] */
} slab_step;

/* The tiles that a script uses: one of each width, with its state. */
typedef struct slab_player {
    ga_slab_resident resident;
    ga_slab_claimed claimed;
} slab_player;

GA_SIMT ga_lanes slab_play_lanes(ga_slab_view slab, const slab_step *step)
{
    ga_tile tile = ga_tile_of(32);
    ga_lanes units = ga_lanes_all(0);
    if (step->kind == SLAB_CLAIM_LANES) {
        return ga_slab_claim_lanes(slab, tile, step->mask, step->start);
    }
    GA_EACH_LANE(tile, step->mask, own)
    {
        ga_lane_write(&units, own, step->units[own]);
    }
    ga_tile_publish(tile);
    ga_slab_release_lanes(slab, tile, step->mask, units);
    return units;
}

/* A step of the tile of that width; returns its unit. */
GA_SIMT uint32_t slab_play_tile(ga_slab_view slab, ga_tile tile, slab_player *player,
                                const slab_step *step)
{
    if (step->kind == SLAB_BEGIN) {
        ga_slab_resident_begin(slab, tile, step->start, &player->resident);
    } else if (step->kind == SLAB_CLAIM_ONE) {
        return ga_slab_claim_one(slab, tile, &player->resident);
    } else if (step->kind == SLAB_RELEASE_ONE) {
        ga_slab_release_one(slab, tile, step->units[0]);
    } else if (step->kind == SLAB_AIM) {
        ga_slab_release_word(slab, tile, &player->claimed);
        player->claimed.word = step->start;
    } else if (step->kind == SLAB_CLAIM_NEXT) {
        return slab_claim_next(slab, tile, &player->claimed);
    }
    return 0;
}

#endif
