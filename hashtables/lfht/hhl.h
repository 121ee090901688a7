/* SPDX-License-Identifier: MIT
 *
 * Hazard hash and level (lfht-reclamation-2022, §4.3.2): a thread says in one pair which chain it
 * is in, not which leaves it looks at. hhl.c has the rules.
 */
#ifndef GPUALLOC_LFHT_HHL_H
#define GPUALLOC_LFHT_HHL_H

#include "map.h"

enum {
    /* Slots of a pair; the first is the walk's, and behind it each glance has one. */
    LFHT_SLOT_HASH = 0,
    LFHT_SLOT_LEVEL = 1, /* the level and 1: 0 says that nothing is protected */
    LFHT_PAIR_SLOTS = 2
};

/* From here on no leaf of the bucket that `hash` has in the node of that level is freed which the
 * thread finds from that bucket on. */
static inline void lfht_pair_level(const ga_hazards *hazards, uint32_t slot, uint32_t level)
{
    uintptr_t says = GA_LFHT_MUTANT == 11 ? 1 : level + 1;
    ga_hazard_set(hazards, slot + LFHT_SLOT_LEVEL, (const void *)says);
}

static inline void lfht_pair_hash(const ga_hazards *hazards, uint32_t slot, uint64_t hash)
{
    ga_hazard_clear(hazards, slot + LFHT_SLOT_LEVEL);
    ga_hazard_set(hazards, slot + LFHT_SLOT_HASH, (const void *)(uintptr_t)hash);
}

/* The leaf that the word leads to, which was born where its link says, and is out of its chain, is
 * freed when no pair protects it. Now and then frees what has come together. */
void ga_lfht_hhl_retire(ga_lfht *map, lfht_shard *shard, lfht_word word);

/* Free what threads have retired, as far as no pair protects it. False where the kernel refused the
 * membarrier. */
bool ga_lfht_hhl_drain(ga_lfht *map);

#endif
