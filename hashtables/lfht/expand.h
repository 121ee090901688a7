/* SPDX-License-Identifier: MIT
 *
 * Expansion: a full chain moves into a new hash node (§3.3). Included by update.h.
 *
 *     bucket -> a -> b -> c -> [new]       1. The new node is appended at the tail, so that
 *                                             nothing can be added to the chain any more.
 *     bucket -> a -> b -> c -> x -> [new]  2. From tail to head: a leaf is made to lead to the
 *                                             first leaf of its bucket in the new node,
 *               [new] bucket -> c -> x     3. becomes the first there itself,
 *     bucket -> a -> b -> [new]            4. and is cut off the old chain. The last cut makes
 *     bucket -> [new]                         the old bucket lead to the new node.
 *
 * expand_chain does step 1. expand_help does the others: expand_aim_leaf, expand_push_leaf and
 * expand_cut_leaf for each leaf of chain_read. Every thread that wants to add to the bucket
 * finishes the expansion first (§4.4.2), so no other operation writes into the new node before the
 * end. Each step is one compare-and-swap that can succeed once:
 *
 * INVARIANT  1. A tail gets a new node once: at that level it never leads to the chain's end again.
 *            2. A leaf's level rises only in step 2, and by one.
 *            3. Until the expansion ends, the words in the new node's buckets are FRESH, and each
 *            occurs once: empty, then the leaf nearest to the tail, then the one before it, ... If
 *            a word of the old chain still leads to the leaf (in a leaf of the old level that is
 *            not GONE, or in the bucket), the leaf has not been cut off. So a thread that reads the
 *            new bucket first and that word second has read a bucket word that will never come
 *            back.
 *            4. A word that led to a leaf of the chain, and then elsewhere, never leads to that
 *            leaf again.
 *
 * A leaf that does not lead to the new node can be removed or replaced during the expansion,
 * because that changes the word which step 4 expects. A leaf that leads there belongs to the
 * expansion: a thread that wants to remove it finishes the expansion first. So no thread, however
 * late, can put a removed leaf into the new node (the delegation problem, §4.4.3, which the thesis
 * solves only for the tail and for helpers that are not late). No retired node is ever found
 * again, so one scan of the hazard pointers is enough.
 */
#ifndef GPUALLOC_LFHT_EXPAND_H
#define GPUALLOC_LFHT_EXPAND_H

#include "compress.h"

enum {
    EXPAND_LEAVES = 16
};

/* Unlink `leaf`, which is GONE and which `*word` at `location` leads to, and retire it. On success
 * `*word` is the new word. False if the word has changed, if the leaf or the location is in a chain
 * of another level, or, with `failed` set, if there is no memory to retire the leaf. */
LFHT_INLINE bool chain_unlink_leaf(walk *w, lfht_word *location, lfht_word *word, lfht_leaf *leaf,
                                   lfht_word next)
{
    bool first = location == w->bucket;
    lfht_word wanted = lfht_target(next);
    if (lfht_level(next) != w->node->level || (!first && lfht_level(*word) != w->node->level) ||
        !walk_reserve_retire(w, 1)) {
        return false;
    }
    if (!first) {
        wanted |= *word & LFHT_LEVEL;
    }
    if (!lfht_cas(location, *word, wanted)) {
        return false;
    }
    walk_retire(w, lfht_word_to(leaf, LFHT_LEAF));
    *word = wanted;
    return true;
}

/* ---- the chain ------------------------------------------------------------------------------ */

/* True if `next` of a leaf ends the chain that moves to `child`: it leads to `child`, or the leaf
 * has moved already. */
static bool chain_ends_at(const walk *w, const lfht_hash_node *child, lfht_word next)
{
    return lfht_level(next) == w->node->level + 1 ||
           (lfht_leads_to(next, child, LFHT_HASH) && lfht_level(next) == w->node->level);
}

/* Read the leaves of the chain that moves to `child`, and protect all of them. 0 if the chain is no
 * longer in the bucket, or has changed. */
static uint32_t chain_read(walk *w, const lfht_hash_node *child, lfht_leaf **chain)
{
    lfht_word *location = w->bucket;
    lfht_word word = walk_load(w, location);
    uint32_t n = 0;
    while (lfht_kind(word) == LFHT_LEAF && n < w->map->chain) {
        lfht_leaf *leaf = lfht_pointer(word);
        w->leaves_max = w->leaves_max > n ? w->leaves_max : n + 1;
        if (!walk_protect(w, walk_leaf_slot(w, n), leaf, location, word)) {
            return 0;
        }
        lfht_word next = walk_load(w, &leaf->next);
        if (next & LFHT_GONE) {
            if (!chain_unlink_leaf(w, location, &word, leaf, next)) {
                return 0;
            }
            continue;
        }
        chain[n++] = leaf;
        if (chain_ends_at(w, child, next)) {
            return n;
        }
        if (lfht_level(next) != w->node->level) {
            return 0;
        }
        location = &leaf->next;
        word = next;
    }
    return 0;
}

/* ---- one leaf ------------------------------------------------------------------------------- */

static bool word_unchanged(const lfht_word *location, lfht_word word)
{
    lfht_test_yield();
    return GA_PLANTED(lfht_leaf_moved_twice) || lfht_load(location) == word;
}

/* Step 2: make the leaf lead to the first leaf of its bucket in `child`. False if the leaf must not
 * be moved any more. */
static bool expand_aim_leaf(const walk *w, lfht_hash_node *child, const lfht_word *location,
                            lfht_word word, lfht_leaf *leaf)
{
    lfht_test_yield();
    lfht_word next = lfht_load(&leaf->next);
    if (lfht_level(next) == w->node->level) {
        lfht_word first = lfht_load(lfht_bucket(child, leaf->hash));
        if (!lfht_leads_to(next, child, LFHT_HASH) || !word_unchanged(location, word)) {
            return false;
        }
        lfht_cas(&leaf->next, next, lfht_target(first) | lfht_level_bits(child->level));
        next = lfht_load(&leaf->next);
    }
    return lfht_level(next) == child->level && !(next & LFHT_GONE);
}

/* Step 3: make the leaf the first in its bucket of `child`. False if the expansion is over, or if
 * CNF's `child` is dead already. `*dead` is set if this call's lowering of the count killed
 * `child`. */
static bool expand_push_leaf(lfht_hash_node *child, const lfht_word *location, lfht_word word,
                             lfht_leaf *leaf, bool *dead)
{
    lfht_word *bucket = lfht_bucket(child, leaf->hash);
    lfht_word first = lfht_load(bucket);
    if (!word_unchanged(location, word)) {
        return false;
    }
    if (lfht_leads_to(first, leaf, LFHT_LEAF)) {
        return true;
    }
    bool fills = lfht_is_empty_bucket(child, first);
    if (fills && !node_count_raise(child)) {
        return false;
    }
    if (!lfht_cas(bucket, first, lfht_word_to(leaf, LFHT_LEAF) | LFHT_FRESH) && fills) {
        *dead = node_count_lower(child);
    }
    return true;
}

/* Step 4: cut the leaf off; `location` leads to `child` then. True if this call has ended the
 * expansion. */
static bool expand_cut_leaf(const walk *w, lfht_hash_node *child, lfht_word *location,
                            lfht_word word)
{
    if (location == w->bucket) {
        return lfht_cas(location, word, lfht_word_to(child, LFHT_HASH));
    }
    lfht_cas(location, word, lfht_word_to(child, LFHT_HASH) | lfht_level_bits(w->node->level));
    return false;
}

/* `child` is dead: its leaves have already been removed again. */
static void compress_dead_child(walk *w, lfht_hash_node *child)
{
    walk_descend(w, child);
    compress_dead_node(w);
}

/* ---- the whole expansion -------------------------------------------------------------------- */

/* Finish the move of the bucket's chain to `child`, which `child_slot` protects, or find it done.
 * The walk stays at its bucket, or ends at the root. */
static void expand_help(walk *w, lfht_hash_node *child)
{
    lfht_leaf *chain[EXPAND_LEAVES];
    uint32_t n = chain_read(w, child, chain);
    /* LA5: acquire. Pairs with LA1: `child` was not detached before the chain was read. So the
     * chain is not a later one of the same bucket that moves to another node. */
    if (!__atomic_load_n(&child->parent, __ATOMIC_ACQUIRE)) {
        return;
    }
    while (n-- > 0) {
        lfht_leaf *leaf = chain[n];
        lfht_word *location = n ? &chain[n - 1]->next : w->bucket;
        lfht_word word = lfht_load(location);
        bool dead = false;
        if (!lfht_leads_to(word, leaf, LFHT_LEAF) || word & LFHT_GONE ||
            (n && lfht_level(word) != w->node->level)) {
            return;
        }
        if (!expand_aim_leaf(w, child, location, word, leaf) ||
            !expand_push_leaf(child, location, word, leaf, &dead)) {
            return;
        }
        if (!dead && expand_cut_leaf(w, child, location, word)) {
            lfht_count(&w->shard->expansions, 1);
            dead = node_count_lower(child);
        }
        if (dead) {
            compress_dead_child(w, child);
            return;
        }
    }
}

/* The chain is full and `location` is its end: append a new hash node and move the chain.
 * GA_ERR_MEMORY if there is no memory for the node. */
static ga_status expand_chain(walk *w)
{
    lfht_hash_node *node = w->node;
    lfht_hash_node *child = ga_lfht_alloc_hash_node(w->map, node, node->level + 1,
                                                    node->used + node->bits, w->map->chunk);
    if (!child) {
        return GA_ERR_MEMORY;
    }
    walk_protect_own(w, w->child_slot, child);
    if (lfht_cas(w->location, w->seen,
                 lfht_word_to(child, LFHT_HASH) | lfht_level_bits(node->level))) {
        expand_help(w, child);
    } else {
        ga_free(w->map->heap, child);
    }
    return GA_OK;
}

#endif
