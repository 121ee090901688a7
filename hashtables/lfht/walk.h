/* SPDX-License-Identifier: MIT
 *
 * The way of a thread through a map, and how it keeps what it stands on from being freed. Written
 * once for all variants: the file of each says LFHT_SHRINKS and LFHT_HAZARDS and includes
 * update.h, which includes this.
 *
 * STRUCTURE  root -> hash node -> ... -> bucket -> leaf -> ... -> the hash node again. A thread
 *            stands in a bucket of `node`, before `place`, the word that it has read.
 *
 * INVARIANT  H: `node` was attached to `above` when the thread went down to it, and both are
 *            protected until the thread goes on. A word that is not GONE and whose owner is
 *            protected leads to nothing that was retired before.
 *
 * ORDER      W (words.h): the words. A (compress.h): the parents. Hazard pointers: P and S of
 *            gpualloc/reclaim.h.
 *
 * PROGRESS   A thread goes back to its bucket when what it stood on has changed, which somebody
 *            did who has got further, or when it has met more leaves than a chain can have (Figure
 *            4.8). It never waits for somebody who has stopped: what is half done it finishes.
 */
#ifndef GPUALLOC_LFHT_WALK_H
#define GPUALLOC_LFHT_WALK_H

#include "hhl.h"

enum {
    LFHT_NEVER = 0, /* LFHT_SHRINKS */
    LFHT_FREEZES,
    LFHT_COUNTS
};

#define LFHT_INLINE static inline __attribute__((always_inline))

typedef struct walk {
    ga_lfht *map;
    ga_hazards *mine; /* with hazard pointers */
    lfht_lane *lane;
    uint64_t hash, key;
    lfht_hash *above, *node; /* where it is, and the parent: NULL at the root */
    lfht_word *bucket;
    lfht_word *place;                    /* what leads to `leaf` or to the end of the chain */
    lfht_word seen;                      /* what stands there */
    lfht_leaf *leaf;                     /* the key's */
    lfht_word next;                      /* what it leads to */
    uint32_t count;                      /* leaves that were met in the bucket */
    uint32_t most;                       /* ... in any bucket: so many slots are in use */
    uint64_t hops;                       /* nodes that were met */
    uint8_t at_above, at_node, at_below; /* their slots, which change roles */
    bool failed;                         /* a record of what is retired could not be had */
    /* For ga_lfht_each(): leaves are collected. */
    struct gathered *gathered;
} walk;

/* ---- protection ----------------------------------------------------------------------------- */

/* Keep `object`, which `word` leads to. False where the place leads elsewhere by now. */
LFHT_INLINE bool keep(walk *w, uint32_t slot, const void *object, const lfht_word *place,
                      lfht_word word)
{
    if (LFHT_HAZARDS != LFHT_POINTERS) {
        return true;
    }
    lfht_nap();
    ga_hazard_set(w->mine, slot, object);
    return GA_LFHT_MUTANT == 1 || ga_hazard_load(w->mine, place) == word;
}

/* Keep what nobody else knows yet. */
LFHT_INLINE void keep_own(walk *w, uint32_t slot, const void *object)
{
    if (LFHT_HAZARDS == LFHT_POINTERS) {
        ga_hazard_set(w->mine, slot, object);
    }
}

/* What stands at a place of a chain, or of the bucket. With pairs nothing is looked at twice: this
 * must see what was taken out before the pair could be seen. */
LFHT_INLINE lfht_word look(const walk *w, const lfht_word *place)
{
    lfht_nap();
    return LFHT_HAZARDS == LFHT_PAIRS ? ga_hazard_load(w->mine, place) : lfht_read(place);
}

LFHT_INLINE uint32_t leaf_slot(const walk *w, uint32_t number)
{
    return LFHT_SLOT_LEAVES + number % w->map->leaf_slots;
}

/* Room for so many calls of retire(). */
LFHT_INLINE bool reserve(walk *w, uint32_t count)
{
    if (LFHT_HAZARDS == LFHT_POINTERS && ga_hazard_reserve(w->mine, count) != GA_OK) {
        w->failed = true;
        return false;
    }
    return true;
}

/* Nobody can come to what the word leads to any more; there is room. */
LFHT_INLINE void retire(walk *w, lfht_word word)
{
    if (LFHT_HAZARDS == LFHT_POINTERS) {
        ga_hazard_retire_to(w->mine, lfht_at(word), lfht_size(word), w->map->heap);
    } else if (LFHT_HAZARDS == LFHT_PAIRS) {
        ga_lfht_hhl_retire(w->map, w->lane, word);
    } else {
        ga_lfht_keep(w->lane, word);
    }
}

/* ---- up and down ---------------------------------------------------------------------------- */

LFHT_INLINE void stand(walk *w, lfht_hash *above, lfht_hash *node)
{
    if (LFHT_HAZARDS == LFHT_PAIRS) { /* before the bucket is read */
        lfht_nap();
        lfht_pair_level(w->mine, 0, node->level);
    }
    w->above = above;
    w->node = node;
    w->bucket = lfht_bucket(node, w->hash);
    w->count = 0;
}

LFHT_INLINE void go_to_root(walk *w)
{
    stand(w, NULL, w->map->root);
}

LFHT_INLINE ga_status begin(walk *w, ga_lfht *map, uint64_t key, uint64_t hash)
{
    w->map = map;
    w->lane = ga_lfht_lane(map);
    w->hash = hash;
    w->key = key;
    w->most = 0;
    w->hops = 0;
    w->at_above = 0;
    w->at_node = 1;
    w->at_below = 2;
    w->failed = false;
    w->gathered = NULL;
    ga_status status = LFHT_HAZARDS ? lfht_join(map, &w->mine) : GA_OK;
    if (status == GA_OK) {
        if (LFHT_HAZARDS == LFHT_PAIRS) {
            lfht_pair_hash(w->mine, 0, hash);
        }
        go_to_root(w);
    }
    return status;
}

LFHT_INLINE void end(walk *w)
{
    if (LFHT_HAZARDS == LFHT_PAIRS) {
        ga_hazard_clear(w->mine, LFHT_SLOT_LEVEL);
        ga_hazard_clear(w->mine, LFHT_SLOT_HASH);
    }
    if (LFHT_HAZARDS != LFHT_POINTERS) {
        return;
    }
    uint32_t leaves = w->most < w->map->leaf_slots ? w->most : w->map->leaf_slots;
    for (uint32_t slot = 0; slot < LFHT_SLOT_LEAVES + leaves; slot++) {
        ga_hazard_clear(w->mine, slot);
    }
}

/* Into `below`, which is kept in the slot for it. */
LFHT_INLINE void go_down(walk *w, lfht_hash *below)
{
    uint8_t free = w->at_above;
    w->at_above = w->at_node;
    w->at_node = w->at_below;
    w->at_below = free;
    stand(w, w->node, below);
}

/* The hash node below that the word leads to, kept; behind a freeze node, if there is one. NULL
 * where it does not lead there any more. */
LFHT_INLINE lfht_hash *look_down(walk *w, const lfht_word *place, lfht_word word)
{
    lfht_hash *below = lfht_at(word);
    if (lfht_kind(word) != LFHT_HASH) {
        lfht_freeze *freeze = lfht_at(word);
        if (!keep(w, LFHT_SLOT_FREEZE, freeze, place, word)) {
            return NULL;
        }
        below = freeze->node;
    }
    if (!keep(w, w->at_below, below, place, word)) {
        return NULL;
    }
    /* A leaf may have gone further down than one level since. */
    return below->level == w->node->level + 1 ? below : NULL;
}

#endif
