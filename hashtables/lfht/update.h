/* SPDX-License-Identifier: MIT
 *
 * The calls of one variant with chains. walk.h has the call tree. Included by batch.h.
 *
 * A new leaf goes to the tail of its chain (§3.2). A leaf is removed in two steps: its `next`
 * becomes GONE, which is when the key is removed, and then the first thread that passes unlinks
 * the leaf (§3.4). A leaf is replaced in the same way, by a GONE `next` that leads to the new
 * leaf. So a leaf's value never changes, and any 64 bits can be a value.
 */
#ifndef GPUALLOC_LFHT_UPDATE_H
#define GPUALLOC_LFHT_UPDATE_H

#include "expand.h"

/* The purpose of a search: where it ends, and how much it helps other threads. */
typedef enum walk_purpose {
    FOR_LOOKUP = 0, /* finds the key; helps with removals only */
    FOR_INSERT,     /* finds the key, or the end of a chain that is not moving */
    FOR_CHANGE,     /* like FOR_INSERT, but not a key in a leaf that is moving */
    FOR_EACH        /* visits every leaf of a chain that is not moving */
} walk_purpose;

typedef enum walk_result {
    WALK_RETRY = 0, /* search again from the walk's position */
    WALK_FOUND,
    WALK_ABSENT,
    WALK_FROZEN, /* absent; the bucket is frozen, so nothing can be inserted */
    WALK_FAILED  /* out of memory */
} walk_result;

typedef struct entry {
    uint64_t key, value;
} entry;

/* Copies of the leaves of a bucket, for ga_lfht_each(). */
typedef struct collected_leaves {
    entry *leaves;
    size_t count, capacity;
} collected_leaves;

/* ---- searching a bucket --------------------------------------------------------------------- */

static bool collect_leaf(walk *w, const lfht_leaf *leaf)
{
    collected_leaves *g = w->collected;
    if (g->count == g->capacity) {
        size_t capacity = g->capacity ? 2 * g->capacity : EXPAND_LEAVES;
        void *more = g->leaves;
        if (ga_realloc(w->map->heap, more, capacity * sizeof *g->leaves, 0, &more) != GA_OK) {
            return false;
        }
        g->leaves = more;
        g->capacity = capacity;
    }
    g->leaves[g->count++] = (entry){leaf->key, leaf->value};
    return true;
}

LFHT_INLINE bool leaf_has_key(const ga_lfht *map, uint64_t hash, uint64_t key,
                              const lfht_leaf *leaf)
{
    if (leaf->hash != hash) {
        return false;
    }
    return lfht_same_key(map, leaf->key, key);
}

/* True if the leaf's `next` shows that it is in a chain of the walk's node and has not begun to
 * move to another. */
LFHT_INLINE bool leaf_stays(const walk *w, lfht_word next)
{
    return lfht_level(next) == w->node->level &&
           (lfht_kind(next) == LFHT_LEAF || lfht_pointer(next) == w->node);
}

/* The leaf of `*word` is GONE: pass it, and unlink it. WALK_FOUND: go on with `*word` at
 * `*location`. */
LFHT_INLINE walk_result walk_pass_removed(walk *w, lfht_word **location, lfht_word *word,
                                          lfht_word next, walk_purpose purpose)
{
    lfht_leaf *leaf = lfht_pointer(*word);
    if (LFHT_HAZARDS != LFHT_HAZARD_POINTERS &&
        purpose == FOR_LOOKUP) { /* read on through the leaf: nothing behind it is freed */
        *location = &leaf->next;
        *word = next & ~LFHT_GONE;
        return WALK_FOUND;
    }
    if ((GA_PLANTED(lfht_removal_not_helped) && purpose == FOR_LOOKUP) ||
        !chain_unlink_leaf(w, *location, word, leaf, next)) {
        return w->failed ? WALK_FAILED : WALK_RETRY;
    }
    if (*location != w->bucket || !lfht_is_empty_bucket(w->node, *word)) {
        return WALK_FOUND;
    }
    compress_after_emptying(w);
    return purpose == FOR_LOOKUP ? WALK_ABSENT : WALK_RETRY;
}

/* Search the chain, from the bucket on. At most `chain` leaves; more show that the chain is moving.
 * At the last level chains have no limit. WALK_RETRY: the walk has moved to a child, or has to read
 * the bucket again. */
LFHT_INLINE walk_result scan_chain(walk *w, walk_purpose purpose)
{
    bool limited = lfht_is_last_level(w->node) ? GA_PLANTED(lfht_hops_limited_at_last_level)
                                               : !GA_PLANTED(lfht_hops_not_limited);
    uint32_t limit = limited ? w->map->chain : UINT32_MAX;
    lfht_word *location = w->bucket;
    lfht_word word = walk_load(w, location);
    w->count = 0;
    while (lfht_kind(word) == LFHT_LEAF) {
        lfht_leaf *leaf = lfht_pointer(word);
        uint32_t slot = walk_leaf_slot(w, w->count);
        w->leaves_max = w->leaves_max > w->count ? w->leaves_max : w->count + 1;
        if (w->count >= limit || !walk_protect(w, slot, leaf, location, word)) {
            return WALK_RETRY;
        }
        lfht_word next = walk_load(w, &leaf->next);
        w->hops++;
        if (lfht_level(next) > w->node->level + 1) {
            return WALK_RETRY;
        }
        if (next & LFHT_GONE) {
            walk_result passed = walk_pass_removed(w, &location, &word, next, purpose);
            if (passed != WALK_FOUND) {
                return passed;
            }
            continue;
        }
        if (purpose == FOR_EACH) {
            if (w->collected && !collect_leaf(w, leaf)) {
                return WALK_FAILED;
            }
        } else if (leaf_has_key(w->map, w->hash, w->key, leaf) &&
                   (purpose != FOR_CHANGE || leaf_stays(w, next))) {
            w->leaf = leaf;
            w->next = next;
            w->location = location;
            w->seen = word;
            return WALK_FOUND;
        }
        w->count++;
        location = &leaf->next;
        word = next;
    }
    w->location = location;
    w->seen = word;
    if (lfht_is_empty_bucket(w->node, word)) {
        return WALK_ABSENT;
    }
    if (lfht_is_frozen(word)) {
        return WALK_FROZEN;
    }
    lfht_hash_node *child = walk_load_child(w, location, word);
    if (child && purpose != FOR_LOOKUP && location != w->bucket &&
        !GA_PLANTED(lfht_expansion_not_helped)) {
        expand_help(w, child);
    } else if (child) {
        walk_descend(w, child);
        w->hops++;
    }
    return WALK_RETRY;
}

LFHT_INLINE walk_result walk_search(walk *w, walk_purpose purpose)
{
    for (;;) {
        const lfht_hash_node *node = w->node;
        walk_result found = scan_chain(w, purpose);
        if (found != WALK_RETRY) {
            return found;
        }
        if (w->map->counting && (w->node == node || !w->parent)) { /* not by a move to a child */
            lfht_count(&w->shard->retries, 1);
        }
        if (w->collected) {
            w->collected->count = 0;
        }
    }
}

static void set_result(ga_lfht_found *was, const lfht_leaf *leaf)
{
    if (was) {
        *was = (ga_lfht_found){leaf != NULL, leaf ? leaf->value : 0};
    }
}

/* ---- lookup --------------------------------------------------------------------------------- */

static void count_lookup(walk *w)
{
    lfht_count(&w->shard->lookups, 1);
    lfht_count(&w->shard->hops, w->hops + 1);
    lfht_count_depth(w->shard, w->node->level);
}

static ga_status variant_lookup(ga_lfht *map, uint64_t key, ga_lfht_found *was)
{
    walk w;
    ga_status status = walk_begin(&w, map, key, lfht_hash_of(map, key));
    if (status != GA_OK) {
        return status;
    }
    walk_result found = walk_search(&w, FOR_LOOKUP);
    set_result(was, found == WALK_FOUND ? w.leaf : NULL);
    if (map->counting) {
        count_lookup(&w);
    }
    walk_end(&w);
    return found == WALK_FAILED ? GA_ERR_MEMORY : GA_OK;
}

/* ---- remove --------------------------------------------------------------------------------- */

/* The leaf of this walk is GONE with `next`: unlink it, or make sure that another thread does. */
static void unlink_removed(walk *w, lfht_word next)
{
    lfht_word word = w->seen;
    if (!chain_unlink_leaf(w, w->location, &word, w->leaf, next)) {
        w->failed = false;
        walk_search(w, FOR_CHANGE); /* passes the leaf and unlinks it, if it is still linked */
    } else if (w->location == w->bucket && lfht_is_empty_bucket(w->node, word)) {
        compress_after_emptying(w);
    }
}

static ga_status variant_remove(ga_lfht *map, uint64_t key, ga_lfht_found *was)
{
    walk w;
    ga_status status = walk_begin(&w, map, key, lfht_hash_of(map, key));
    if (status != GA_OK) {
        return status;
    }
    for (;;) {
        walk_result found = walk_search(&w, FOR_CHANGE);
        if (found == WALK_FAILED || (found == WALK_FOUND && !walk_reserve_retire(&w, 1))) {
            status = GA_ERR_MEMORY;
            break;
        }
        if (found != WALK_FOUND) {
            set_result(was, NULL);
            break;
        }
        if (lfht_cas(&w.leaf->next, w.next, w.next | LFHT_GONE)) {
            set_result(was, w.leaf);
            lfht_count(&w.shard->removed, 1);
            unlink_removed(&w, w.next | LFHT_GONE);
            break;
        }
    }
    walk_end(&w);
    return status;
}

/* ---- insert, upsert, replace ---------------------------------------------------------------- */

/* The new leaf, allocated at the first need and reused by retries. */
static lfht_leaf *leaf_make_once(walk *w, const lfht_change *change, lfht_leaf **leaf)
{
    if (!*leaf && (*leaf = ga_lfht_alloc_node(w->map, sizeof **leaf))) {
        **leaf = (lfht_leaf){0, w->hash, change->key, change->value};
    }
    return *leaf;
}

/* HHL: record the level at which the leaf is inserted. */
LFHT_INLINE void leaf_record_birth(const walk *w, lfht_leaf *leaf)
{
    if (LFHT_HAZARDS == LFHT_HAZARD_PAIRS) {
        *lfht_garbage_link(lfht_word_to(leaf, LFHT_LEAF)) = lfht_level_bits(w->node->level);
    }
}

/* Append the new leaf to the chain. False if the chain has changed or the node is dead. */
static bool chain_append(walk *w, lfht_leaf *leaf)
{
    bool first = w->location == w->bucket;
    lfht_word level = lfht_level_bits(w->node->level);
    leaf->next = lfht_empty_bucket(w->node) | level;
    leaf_record_birth(w, leaf);
    if (first && !GA_PLANTED(lfht_count_raised_late) && !node_count_raise(w->node)) {
        compress_dead_node(w);
        return false;
    }
    if (lfht_cas(w->location, w->seen, lfht_word_to(leaf, LFHT_LEAF) | (first ? 0 : level))) {
        if (first && GA_PLANTED(lfht_count_raised_late)) {
            node_count_raise(w->node);
        }
        return true;
    }
    if (first && !GA_PLANTED(lfht_count_raised_late) && node_count_lower(w->node)) {
        compress_dead_node(w);
    }
    return false;
}

static ga_status put_new_key(walk *w, const lfht_change *change, lfht_leaf **leaf, bool *done)
{
    if (w->count >= w->map->chain && !lfht_is_last_level(w->node)) {
        return expand_chain(w);
    }
    if (!leaf_make_once(w, change, leaf)) {
        return GA_ERR_MEMORY;
    }
    if (chain_append(w, *leaf)) {
        lfht_count(&w->shard->inserted, 1);
        *leaf = NULL;
        *done = true;
    }
    return GA_OK;
}

/* Replace the walk's leaf with the new one. */
static ga_status put_replacement(walk *w, const lfht_change *change, lfht_leaf **leaf, bool *done)
{
    if (!walk_reserve_retire(w, 1) || !leaf_make_once(w, change, leaf)) {
        return GA_ERR_MEMORY;
    }
    lfht_word level = lfht_level_bits(w->node->level);
    (*leaf)->next = w->next;
    leaf_record_birth(w, *leaf);
    lfht_word next = lfht_word_to(*leaf, LFHT_LEAF) | level | LFHT_GONE;
    if (lfht_cas(&w->leaf->next, w->next, next)) {
        *leaf = NULL;
        *done = true;
        unlink_removed(w, next);
    }
    return GA_OK;
}

/* One attempt. `*done` is set once the call has taken effect. */
static ga_status put_once(walk *w, const lfht_change *change, lfht_leaf **leaf, ga_lfht_found *was,
                          bool *done)
{
    walk_result found = walk_search(w, change->kind == LFHT_INSERT ? FOR_INSERT : FOR_CHANGE);
    if (found == WALK_FAILED) {
        return GA_ERR_MEMORY;
    }
    set_result(was, found == WALK_FOUND ? w->leaf : NULL);
    if (found == WALK_FOUND) {
        *done = change->kind == LFHT_INSERT ||
                (change->kind == LFHT_COMPARE && w->leaf->value != change->expected);
        return *done ? GA_OK : put_replacement(w, change, leaf, done);
    }
    if (change->kind != LFHT_INSERT && change->kind != LFHT_UPSERT) {
        *done = true;
        return GA_OK;
    }
    if (found == WALK_FROZEN) {
        cancel_freeze(w, w->seen);
        return GA_OK;
    }
    return put_new_key(w, change, leaf, done);
}

static ga_status put_with_hash(ga_lfht *map, const lfht_change *change, uint64_t hash,
                               ga_lfht_found *was)
{
    walk w;
    lfht_leaf *leaf = NULL;
    bool done = false;
    ga_status status = walk_begin(&w, map, change->key, hash);
    if (status != GA_OK) {
        return status;
    }
    while (status == GA_OK && !done) {
        status = put_once(&w, change, &leaf, was, &done);
    }
    walk_end(&w);
    ga_free(map->heap, leaf);
    return status;
}

static ga_status variant_put(ga_lfht *map, const lfht_change *change, ga_lfht_found *was)
{
    return put_with_hash(map, change, lfht_hash_of(map, change->key), was);
}

/* ---- visit all keys ------------------------------------------------------------------------- */

/* Collect the leaves of the bucket of `hash`, or, with `leaves` NULL, only finish operations of
 * other threads there. `*behind` is the first hash behind the bucket, or 0 after the last one. */
static ga_status collect_bucket(ga_lfht *map, uint64_t hash, collected_leaves *leaves,
                                uint64_t *behind)
{
    walk w;
    ga_status status = walk_begin(&w, map, 0, hash);
    if (status != GA_OK) {
        return status;
    }
    w.collected = leaves;
    if (walk_search(&w, FOR_EACH) == WALK_FAILED) {
        status = GA_ERR_MEMORY;
    }
    uint32_t prefix_bits = w.node->used + w.node->bits; /* bits that select the bucket */
    *behind =
        prefix_bits < 64 ? ((hash >> (64 - prefix_bits)) + 1) << (64 - prefix_bits) : hash + 1;
    walk_end(&w);
    return status;
}

static ga_status variant_each(ga_lfht *map, ga_lfht_visit *visit, void *context)
{
    collected_leaves leaves = {NULL, 0, 0};
    uint64_t hash = 0;
    bool goes_on = true;
    ga_status status;
    do {
        leaves.count = 0;
        status = collect_bucket(map, hash, visit ? &leaves : NULL, &hash);
        for (size_t i = 0; status == GA_OK && goes_on && i < leaves.count; i++) {
            goes_on = visit(context, leaves.leaves[i].key, leaves.leaves[i].value);
        }
    } while (status == GA_OK && goes_on && hash != 0);
    ga_free(map->heap, leaves.leaves);
    return status;
}

#endif
