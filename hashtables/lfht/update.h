/* SPDX-License-Identifier: MIT
 *
 * The calls, for one variant: its file defines LFHT_SHRINKS and LFHT_HAZARDS, and includes this.
 *
 * A leaf is put at the tail of its chain (§3.2). It is removed in two steps: its `next` becomes
 * GONE, which is when the key is out, then whoever comes by takes it out of the chain (§3.4). It is
 * replaced in the same way, by a `next` that leads to the new leaf: so a leaf's value never
 * changes, and any 64 bits can be one.
 */
#ifndef GPUALLOC_LFHT_UPDATE_H
#define GPUALLOC_LFHT_UPDATE_H

#include "expand.h"

/* What is looked for. */
typedef enum aim_of {
    READS = 0, /* the key, to read it: helps nobody, but with removals */
    ADDS,      /* the key, or the end of a chain that is whole */
    CHANGES,   /* the key in a leaf that stays in its chain, or the end of one that is whole */
    GATHERS    /* every leaf of a chain that is whole */
} aim_of;

typedef enum outcome {
    AGAIN = 0, /* from where the walk stands now */
    FOUND,
    ABSENT,
    FROZEN, /* absent; nothing can be put here */
    FAILED  /* out of memory */
} outcome;

typedef struct entry {
    uint64_t key, value;
} entry;

/* Leaves of a bucket, for ga_lfht_each(). */
typedef struct gathered {
    entry *leaves;
    size_t count, room;
} gathered;

/* ---- a bucket ------------------------------------------------------------------------------- */

static bool gather(walk *w, const lfht_leaf *leaf)
{
    gathered *g = w->gathered;
    if (g->count == g->room) {
        size_t room = g->room ? 2 * g->room : LFHT_MOST_CHAIN;
        void *more = g->leaves;
        if (ga_realloc(w->map->heap, more, room * sizeof *g->leaves, 0, &more) != GA_OK) {
            return false;
        }
        g->leaves = more;
        g->room = room;
    }
    g->leaves[g->count++] = (entry){leaf->key, leaf->value};
    return true;
}

LFHT_INLINE bool is_key(const ga_lfht *map, uint64_t hash, uint64_t key, const lfht_leaf *leaf)
{
    if (leaf->hash != hash) {
        return false;
    }
    return lfht_same_key(map, leaf->key, key);
}

/* Whether what a leaf leads to says that it is in a chain of the node, and has not begun to leave
 * it. */
LFHT_INLINE bool stays(const walk *w, lfht_word next)
{
    return lfht_level(next) == w->node->level &&
           (lfht_kind(next) == LFHT_LEAF || lfht_at(next) == w->node);
}

/* The word leads to the leaf of `word`, which is GONE. */
LFHT_INLINE outcome pass_gone(walk *w, lfht_word **place, lfht_word *word, lfht_word next,
                              aim_of aims)
{
    lfht_leaf *leaf = lfht_at(*word);
    if (LFHT_HAZARDS != LFHT_POINTERS && aims == READS) { /* what it leads to is not freed */
        *place = &leaf->next;
        *word = next & ~LFHT_GONE;
        return FOUND;
    }
    if ((GA_LFHT_MUTANT == 8 && aims == READS) || !unlink_leaf(w, *place, word, leaf, next)) {
        return w->failed ? FAILED : AGAIN;
    }
    if (*place != w->bucket || !lfht_is_empty(w->node, *word)) {
        return FOUND;
    }
    emptied(w);
    return aims == READS ? ABSENT : AGAIN;
}

/* From the bucket on. */
LFHT_INLINE outcome pass(walk *w, aim_of aims)
{
    bool limited = lfht_last(w->node) ? GA_LFHT_MUTANT == 21 : GA_LFHT_MUTANT != 20;
    uint32_t most = limited ? w->map->chain : UINT32_MAX;
    lfht_word *place = w->bucket;
    lfht_word word = look(w, place);
    w->count = 0;
    while (lfht_kind(word) == LFHT_LEAF) {
        lfht_leaf *leaf = lfht_at(word);
        uint32_t slot = leaf_slot(w, w->count);
        w->most = w->most > w->count ? w->most : w->count + 1;
        if (w->count >= most || !keep(w, slot, leaf, place, word)) {
            return AGAIN;
        }
        lfht_word next = look(w, &leaf->next);
        w->hops++;
        if (lfht_level(next) > w->node->level + 1) {
            return AGAIN;
        }
        if (next & LFHT_GONE) {
            outcome passed = pass_gone(w, &place, &word, next, aims);
            if (passed != FOUND) {
                return passed;
            }
            continue;
        }
        if (aims == GATHERS) {
            if (w->gathered && !gather(w, leaf)) {
                return FAILED;
            }
        } else if (is_key(w->map, w->hash, w->key, leaf) && (aims != CHANGES || stays(w, next))) {
            w->leaf = leaf;
            w->next = next;
            w->place = place;
            w->seen = word;
            return FOUND;
        }
        w->count++;
        place = &leaf->next;
        word = next;
    }
    w->place = place;
    w->seen = word;
    if (lfht_is_empty(w->node, word)) {
        return ABSENT;
    }
    if (lfht_frozen(word)) {
        return FROZEN;
    }
    lfht_hash *below = look_down(w, place, word);
    if (below && aims != READS && place != w->bucket && GA_LFHT_MUTANT != 3) {
        help(w, below);
    } else if (below) {
        go_down(w, below);
        w->hops++;
    }
    return AGAIN;
}

LFHT_INLINE outcome find(walk *w, aim_of aims)
{
    for (;;) {
        const lfht_hash *node = w->node;
        outcome found = pass(w, aims);
        if (found != AGAIN) {
            return found;
        }
        if (w->map->counting && (w->node == node || !w->above)) { /* it has not gone down */
            lfht_add(&w->lane->retries, 1);
        }
        if (w->gathered) {
            w->gathered->count = 0;
        }
    }
}

static void tell(ga_lfht_found *was, const lfht_leaf *leaf)
{
    if (was) {
        *was = (ga_lfht_found){leaf != NULL, leaf ? leaf->value : 0};
    }
}

/* ---- lookup --------------------------------------------------------------------------------- */

static void count_lookup(walk *w)
{
    lfht_add(&w->lane->lookups, 1);
    lfht_add(&w->lane->hops, w->hops + 1);
    lfht_count_depth(w->lane, w->node->level);
}

static ga_status lookup(ga_lfht *map, uint64_t key, ga_lfht_found *was)
{
    walk w;
    ga_status status = begin(&w, map, key, lfht_hash_of(map, key));
    if (status != GA_OK) {
        return status;
    }
    outcome found = find(&w, READS);
    tell(was, found == FOUND ? w.leaf : NULL);
    if (map->counting) {
        count_lookup(&w);
    }
    end(&w);
    return found == FAILED ? GA_ERR_MEMORY : GA_OK;
}

/* ---- removing ------------------------------------------------------------------------------- */

/* The leaf is GONE, and leads on to `next`: take it out of the chain, or have another do it. */
static void sweep(walk *w, lfht_word next)
{
    lfht_word word = w->seen;
    if (!unlink_leaf(w, w->place, &word, w->leaf, next)) {
        w->failed = false;
        find(w, CHANGES); /* it meets the leaf, if that is still there */
    } else if (w->place == w->bucket && lfht_is_empty(w->node, word)) {
        emptied(w);
    }
}

static ga_status remove_key(ga_lfht *map, uint64_t key, ga_lfht_found *was)
{
    walk w;
    ga_status status = begin(&w, map, key, lfht_hash_of(map, key));
    if (status != GA_OK) {
        return status;
    }
    for (;;) {
        outcome found = find(&w, CHANGES);
        if (found == FAILED || (found == FOUND && !reserve(&w, 1))) {
            status = GA_ERR_MEMORY;
            break;
        }
        if (found != FOUND) {
            tell(was, NULL);
            break;
        }
        if (lfht_swap(&w.leaf->next, w.next, w.next | LFHT_GONE)) {
            tell(was, w.leaf);
            lfht_add(&w.lane->removed, 1);
            sweep(&w, w.next | LFHT_GONE);
            break;
        }
    }
    end(&w);
    return status;
}

/* ---- putting -------------------------------------------------------------------------------- */

/* The new leaf, made when it is needed. */
static lfht_leaf *leaf_for(walk *w, const lfht_change *change, lfht_leaf **leaf)
{
    if (!*leaf && (*leaf = ga_lfht_node(w->map, sizeof **leaf))) {
        **leaf = (lfht_leaf){0, w->hash, change->key, change->value};
    }
    return *leaf;
}

/* It goes in at the level of the node. */
LFHT_INLINE void note_birth(const walk *w, lfht_leaf *leaf)
{
    if (LFHT_HAZARDS == LFHT_PAIRS) {
        *lfht_link(lfht_to(leaf, LFHT_LEAF)) = lfht_level_bits(w->node->level);
    }
}

/* The new leaf becomes the last of the chain. */
static bool append(walk *w, lfht_leaf *leaf)
{
    bool first = w->place == w->bucket;
    lfht_word level = lfht_level_bits(w->node->level);
    leaf->next = lfht_empty(w->node) | level;
    note_birth(w, leaf);
    if (first && GA_LFHT_MUTANT != 5 && !raise_count(w->node)) {
        bury(w);
        return false;
    }
    if (lfht_swap(w->place, w->seen, lfht_to(leaf, LFHT_LEAF) | (first ? 0 : level))) {
        if (first && GA_LFHT_MUTANT == 5) {
            raise_count(w->node);
        }
        return true;
    }
    if (first && GA_LFHT_MUTANT != 5 && lower_count(w->node)) {
        bury(w);
    }
    return false;
}

static ga_status add(walk *w, const lfht_change *change, lfht_leaf **leaf, bool *done)
{
    if (w->count >= w->map->chain && !lfht_last(w->node)) {
        return expand(w);
    }
    if (!leaf_for(w, change, leaf)) {
        return GA_ERR_MEMORY;
    }
    if (append(w, *leaf)) {
        lfht_add(&w->lane->inserted, 1);
        *leaf = NULL;
        *done = true;
    }
    return GA_OK;
}

/* The new leaf stands for the old one. */
static ga_status exchange(walk *w, const lfht_change *change, lfht_leaf **leaf, bool *done)
{
    if (!reserve(w, 1) || !leaf_for(w, change, leaf)) {
        return GA_ERR_MEMORY;
    }
    lfht_word level = lfht_level_bits(w->node->level);
    (*leaf)->next = w->next;
    note_birth(w, *leaf);
    lfht_word next = lfht_to(*leaf, LFHT_LEAF) | level | LFHT_GONE;
    if (lfht_swap(&w->leaf->next, w->next, next)) {
        *leaf = NULL;
        *done = true;
        sweep(w, next);
    }
    return GA_OK;
}

/* One attempt. */
static ga_status try_put(walk *w, const lfht_change *change, lfht_leaf **leaf, ga_lfht_found *was,
                         bool *done)
{
    outcome found = find(w, change->how == LFHT_INSERT ? ADDS : CHANGES);
    if (found == FAILED) {
        return GA_ERR_MEMORY;
    }
    tell(was, found == FOUND ? w->leaf : NULL);
    if (found == FOUND) {
        *done = change->how == LFHT_INSERT ||
                (change->how == LFHT_COMPARE && w->leaf->value != change->expected);
        return *done ? GA_OK : exchange(w, change, leaf, done);
    }
    if (change->how != LFHT_INSERT && change->how != LFHT_UPSERT) {
        *done = true;
        return GA_OK;
    }
    if (found == FROZEN) {
        unfreeze(w, w->seen);
        return GA_OK;
    }
    return add(w, change, leaf, done);
}

static ga_status put_hashed(ga_lfht *map, const lfht_change *change, uint64_t hash,
                            ga_lfht_found *was)
{
    walk w;
    lfht_leaf *leaf = NULL;
    bool done = false;
    ga_status status = begin(&w, map, change->key, hash);
    if (status != GA_OK) {
        return status;
    }
    while (status == GA_OK && !done) {
        status = try_put(&w, change, &leaf, was, &done);
    }
    end(&w);
    ga_free(map->heap, leaf);
    return status;
}

static ga_status put_key(ga_lfht *map, const lfht_change *change, ga_lfht_found *was)
{
    return put_hashed(map, change, lfht_hash_of(map, change->key), was);
}

/* ---- all of them ---------------------------------------------------------------------------- */

/* The leaves of the bucket that has `hash`, or nothing but finishing what others have begun there.
 * `*behind` is the first hash behind the bucket, 0 for none. */
static ga_status gather_bucket(ga_lfht *map, uint64_t hash, gathered *leaves, uint64_t *behind)
{
    walk w;
    ga_status status = begin(&w, map, 0, hash);
    if (status != GA_OK) {
        return status;
    }
    w.gathered = leaves;
    if (find(&w, GATHERS) == FAILED) {
        status = GA_ERR_MEMORY;
    }
    uint32_t below = w.node->used + w.node->bits; /* bits that tell buckets from each other */
    *behind = below < 64 ? ((hash >> (64 - below)) + 1) << (64 - below) : hash + 1;
    end(&w);
    return status;
}

static ga_status each(ga_lfht *map, ga_lfht_visit *visit, void *context)
{
    gathered leaves = {NULL, 0, 0};
    uint64_t hash = 0;
    bool goes_on = true;
    ga_status status;
    do {
        leaves.count = 0;
        status = gather_bucket(map, hash, visit ? &leaves : NULL, &hash);
        for (size_t i = 0; status == GA_OK && goes_on && i < leaves.count; i++) {
            goes_on = visit(context, leaves.leaves[i].key, leaves.leaves[i].value);
        }
    } while (status == GA_OK && goes_on && hash != 0);
    ga_free(map->heap, leaves.leaves);
    return status;
}

#endif
