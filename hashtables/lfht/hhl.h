/* SPDX-License-Identifier: MIT
 *
 * Hazard hash and level (lfht-reclamation-2022, §4.3.2). A thread publishes which chain it reads,
 * as one pair of hash and level, not which leaves. hhl.c has the rules.
 */
#ifndef GPUALLOC_LFHT_HHL_H
#define GPUALLOC_LFHT_HHL_H

#include "map.h"

enum {
    /* Hazard slots of a pair. Pair 0 belongs to the walk; each cursor of a batch has one behind
     * it. */
    LFHT_SLOT_HASH = 0,
    LFHT_SLOT_LEVEL = 1, /* level + 1; 0: the pair protects nothing */
    LFHT_PAIR_SLOTS = 2
};

/* Publish the level. From now on no leaf is freed that the thread reaches from the bucket of `hash`
 * in the node of that level. */
static inline void lfht_pair_level(const ga_hazards *hazards, uint32_t slot, uint32_t level)
{
    uintptr_t says = GA_PLANTED(lfht_level_not_published) ? 1 : level + 1;
    ga_hazard_set(hazards, slot + LFHT_SLOT_LEVEL, (const void *)says);
}

static inline void lfht_pair_hash(const ga_hazards *hazards, uint32_t slot, uint64_t hash)
{
    ga_hazard_clear(hazards, slot + LFHT_SLOT_LEVEL);
    ga_hazard_set(hazards, slot + LFHT_SLOT_HASH, (const void *)(uintptr_t)hash);
}

/* Retire the leaf, which has been unlinked; its garbage link holds the level at which it was
 * inserted. Every `batch` leaves this scans the pairs and frees the leaves that no pair
 * protects. */
void ga_lfht_hhl_retire(ga_lfht *map, lfht_shard *shard, lfht_word word);

/* Free the retired leaves of all threads that no pair protects. False if membarrier(2) failed. */
bool ga_lfht_hhl_drain(ga_lfht *map);

#endif
