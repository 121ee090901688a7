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
    ga_hazards *hazards; /* with hazard pointers */
    lfht_shard *shard;
    uint64_t hash, key;
    lfht_hash_node *parent, *node; /* where it is, and the parent: NULL at the root */
    lfht_word *bucket;
    lfht_word *location;  /* what leads to `leaf` or to the end of the chain */
    lfht_word seen;       /* what stands there */
    lfht_leaf *leaf;      /* the key's */
    lfht_word next;       /* what it leads to */
    uint32_t count;       /* leaves that were met in the bucket */
    uint32_t most_leaves; /* ... in any bucket: so many slots are in use */
    uint64_t hops;        /* nodes that were met */
    uint8_t parent_slot, node_slot, child_slot; /* their slots, which change roles */
    bool failed;                                /* a record of what is retired could not be had */
    /* For ga_lfht_each(): leaves are collected. */
    struct collected_leaves *collected;
} walk;

/* ---- protection ----------------------------------------------------------------------------- */

/* Keep `object`, which `word` leads to. False where the place leads elsewhere by now. */
LFHT_INLINE bool walk_protect(walk *w, uint32_t slot, const void *object, const lfht_word *location,
                              lfht_word word)
{
    if (LFHT_HAZARDS != LFHT_HAZARD_POINTERS) {
        return true;
    }
    lfht_test_yield();
    ga_hazard_set(w->hazards, slot, object);
    return GA_LFHT_MUTANT == 1 || ga_hazard_load(w->hazards, location) == word;
}

/* Keep what nobody else knows yet. */
LFHT_INLINE void walk_protect_own(walk *w, uint32_t slot, const void *object)
{
    if (LFHT_HAZARDS == LFHT_HAZARD_POINTERS) {
        ga_hazard_set(w->hazards, slot, object);
    }
}

/* What stands at a place of a chain, or of the bucket. With pairs nothing is looked at twice: this
 * must see what was taken out before the pair could be seen. */
LFHT_INLINE lfht_word walk_load(const walk *w, const lfht_word *location)
{
    lfht_test_yield();
    return LFHT_HAZARDS == LFHT_HAZARD_PAIRS ? ga_hazard_load(w->hazards, location)
                                             : lfht_load(location);
}

LFHT_INLINE uint32_t walk_leaf_slot(const walk *w, uint32_t number)
{
    return LFHT_SLOT_LEAVES + number % w->map->leaf_slots;
}

/* Room for so many calls of retire(). */
LFHT_INLINE bool walk_reserve_retire(walk *w, uint32_t count)
{
    if (LFHT_HAZARDS == LFHT_HAZARD_POINTERS && ga_hazard_reserve(w->hazards, count) != GA_OK) {
        w->failed = true;
        return false;
    }
    return true;
}

/* Nobody can come to what the word leads to any more; there is room. */
LFHT_INLINE void walk_retire(walk *w, lfht_word word)
{
    if (LFHT_HAZARDS == LFHT_HAZARD_POINTERS) {
        ga_hazard_retire_to(w->hazards, lfht_pointer(word), lfht_node_bytes(word), w->map->heap);
    } else if (LFHT_HAZARDS == LFHT_HAZARD_PAIRS) {
        ga_lfht_hhl_retire(w->map, w->shard, word);
    } else {
        ga_lfht_add_garbage(w->shard, word);
    }
}

/* ---- up and down ---------------------------------------------------------------------------- */

LFHT_INLINE void walk_enter_node(walk *w, lfht_hash_node *parent, lfht_hash_node *node)
{
    if (LFHT_HAZARDS == LFHT_HAZARD_PAIRS) { /* before the bucket is read */
        lfht_test_yield();
        lfht_pair_level(w->hazards, 0, node->level);
    }
    w->parent = parent;
    w->node = node;
    w->bucket = lfht_bucket(node, w->hash);
    w->count = 0;
}

LFHT_INLINE void walk_go_to_root(walk *w)
{
    walk_enter_node(w, NULL, w->map->root);
}

LFHT_INLINE ga_status walk_begin(walk *w, ga_lfht *map, uint64_t key, uint64_t hash)
{
    w->map = map;
    w->shard = ga_lfht_own_shard(map);
    w->hash = hash;
    w->key = key;
    w->most_leaves = 0;
    w->hops = 0;
    w->parent_slot = 0;
    w->node_slot = 1;
    w->child_slot = 2;
    w->failed = false;
    w->collected = NULL;
    ga_status status = LFHT_HAZARDS ? lfht_get_hazards(map, &w->hazards) : GA_OK;
    if (status == GA_OK) {
        if (LFHT_HAZARDS == LFHT_HAZARD_PAIRS) {
            lfht_pair_hash(w->hazards, 0, hash);
        }
        walk_go_to_root(w);
    }
    return status;
}

LFHT_INLINE void walk_end(walk *w)
{
    if (LFHT_HAZARDS == LFHT_HAZARD_PAIRS) {
        ga_hazard_clear(w->hazards, LFHT_SLOT_LEVEL);
        ga_hazard_clear(w->hazards, LFHT_SLOT_HASH);
    }
    if (LFHT_HAZARDS != LFHT_HAZARD_POINTERS) {
        return;
    }
    uint32_t leaves = w->most_leaves < w->map->leaf_slots ? w->most_leaves : w->map->leaf_slots;
    for (uint32_t slot = 0; slot < LFHT_SLOT_LEAVES + leaves; slot++) {
        ga_hazard_clear(w->hazards, slot);
    }
}

/* Into `below`, which is kept in the slot for it. */
LFHT_INLINE void walk_descend(walk *w, lfht_hash_node *child)
{
    uint8_t free = w->parent_slot;
    w->parent_slot = w->node_slot;
    w->node_slot = w->child_slot;
    w->child_slot = free;
    walk_enter_node(w, w->node, child);
}

/* The hash node below that the word leads to, kept; behind a freeze node, if there is one. NULL
 * where it does not lead there any more. */
LFHT_INLINE lfht_hash_node *walk_load_child(walk *w, const lfht_word *location, lfht_word word)
{
    lfht_hash_node *child = lfht_pointer(word);
    if (lfht_kind(word) != LFHT_HASH) {
        lfht_freeze_node *freeze = lfht_pointer(word);
        if (!walk_protect(w, LFHT_SLOT_FREEZE, freeze, location, word)) {
            return NULL;
        }
        child = freeze->node;
    }
    if (!walk_protect(w, w->child_slot, child, location, word)) {
        return NULL;
    }
    /* A leaf may have gone further down than one level since. */
    return child->level == w->node->level + 1 ? child : NULL;
}

#endif
