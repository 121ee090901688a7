/* SPDX-License-Identifier: MIT
 *
 * A thread's walk through a map with chains, and the protection of its position from reclamation.
 * Written once for the six variants with chains: the file of each (snf.c, fnf.c, cnf.c, fhp.c,
 * hhl.c) defines LFHT_SHRINKS and LFHT_HAZARDS and includes batch.h, which includes update.h, then
 * expand.h, compress.h and this file. So each variant has static copies of its own.
 *
 * Call tree:
 *
 *     variant_lookup
 *     `- walk_search                         repeats scan_chain until that has a result
 *        `- scan_chain
 *           |- walk_pass_removed             a removed leaf is still linked: unlink it
 *           |  |- chain_unlink_leaf
 *           |  `- compress_after_emptying    the bucket is empty now
 *           |- walk_descend                  the chain ends at a child node: search there
 *           `- expand_help                   the chain is moving (not for lookups): finish that
 *     variant_put -> put_with_hash -> put_once
 *     |- walk_search
 *     |- put_new_key                         the key is absent
 *     |  |- chain_append                     fast path: a leaf at the tail of the chain
 *     |  `- expand_chain -> expand_help      the chain is full: move it to a child node, retry
 *     |- put_replacement -> unlink_removed   the key is present
 *     `- cancel_freeze                       the bucket is frozen: cancel the compression, retry
 *     variant_remove
 *     |- walk_search
 *     `- unlink_removed
 *        |- chain_unlink_leaf                fast path; if it fails, walk_search unlinks the leaf
 *        `- compress_after_emptying          the bucket is empty now: detach empty nodes, upwards
 *
 * STRUCTURE  root -> hash node -> ... -> bucket -> leaf -> ... -> the hash node again. The position
 *            of a walk is a bucket of `node`, and in its chain `location`, the address of the word
 *            read last.
 *
 * INVARIANT  H: `node` was attached to `parent` when the walk entered it, and both are protected
 *            until the walk moves on. A word that is not GONE, in a protected owner, leads to no
 *            node that was retired before.
 *
 * ORDER      LW (words.h): the words. LA (compress.h): the parents. Hazard pointers: RP and RS of
 *            gpualloc/reclaim.h.
 *
 * PROGRESS   A walk returns to its bucket if its position has changed, which another thread's
 *            progress caused, or if it has met more leaves than a chain can have (Figure 4.8). It
 *            never waits for a stopped thread: it finishes the half-done operation itself.
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
    ga_hazards *hazards; /* the thread's hazard slots; unset without hazards */
    lfht_shard *shard;
    uint64_t hash, key;
    lfht_hash_node *parent, *node; /* position, and its parent: NULL at the root */
    lfht_word *bucket;
    lfht_word *location; /* address of the word that leads to `leaf` or to the end of the chain */
    lfht_word seen;      /* the word read there */
    lfht_leaf *leaf;     /* the leaf with the key */
    lfht_word next;      /* the word in leaf->next */
    uint32_t count;      /* leaves met in this bucket */
    uint32_t leaves_max; /* maximum of `count`: hazard slots of leaves in use */
    uint64_t hops;       /* nodes met */
    uint8_t parent_slot, node_slot, child_slot; /* hazard slots, which change roles */
    bool failed;                                /* no memory for the retire list */
    /* ga_lfht_each(): the leaves of the bucket */
    struct collected_leaves *collected;
} walk;

/* ---- protection ----------------------------------------------------------------------------- */

/* Protect `object`, which `word` at `location` leads to, and validate. False if the word has
 * changed. */
LFHT_INLINE bool walk_protect(walk *w, uint32_t slot, const void *object, const lfht_word *location,
                              lfht_word word)
{
    if (LFHT_HAZARDS != LFHT_HAZARD_POINTERS) {
        return true;
    }
    lfht_test_yield();
    ga_hazard_set(w->hazards, slot, object);
    return GA_PLANTED(lfht_not_validated) || ga_hazard_load(w->hazards, location) == word;
}

/* Protect a node that is not published yet; nothing to validate. */
LFHT_INLINE void walk_protect_own(walk *w, uint32_t slot, const void *object)
{
    if (LFHT_HAZARDS == LFHT_HAZARD_POINTERS) {
        ga_hazard_set(w->hazards, slot, object);
    }
}

/* Load a word of a chain or bucket. With hazard pairs no validation follows, so this load must see
 * every unlink that came before the pair could be seen by a scan. */
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

/* Reserve memory for `count` calls of walk_retire(). False, with `failed` set, if there is none. */
LFHT_INLINE bool walk_reserve_retire(walk *w, uint32_t count)
{
    if (LFHT_HAZARDS == LFHT_HAZARD_POINTERS && ga_hazard_reserve(w->hazards, count) != GA_OK) {
        w->failed = true;
        return false;
    }
    return true;
}

/* Retire the node: it is unreachable. The caller has reserved memory. */
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

/* ---- moving up and down --------------------------------------------------------------------- */

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
    w->leaves_max = 0;
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
    uint32_t leaves = w->leaves_max < w->map->leaf_slots ? w->leaves_max : w->map->leaf_slots;
    for (uint32_t slot = 0; slot < LFHT_SLOT_LEAVES + leaves; slot++) {
        ga_hazard_clear(w->hazards, slot);
    }
}

/* Enter `child`, which `child_slot` protects. The slots change roles; their contents stay. */
LFHT_INLINE void walk_descend(walk *w, lfht_hash_node *child)
{
    uint8_t free = w->parent_slot;
    w->parent_slot = w->node_slot;
    w->node_slot = w->child_slot;
    w->child_slot = free;
    walk_enter_node(w, w->node, child);
}

/* Protect the child that the word leads to, through a freeze node if there is one. NULL if the word
 * has changed. */
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
    /* a leaf may have moved down more than one level */
    return child->level == w->node->level + 1 ? child : NULL;
}

#endif
