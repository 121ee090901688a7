/* SPDX-License-Identifier: MIT
 *
 * Expansion: a chain that is full moves into a hash node of its own (§3.3). Included by update.h.
 *
 *     bucket -> a -> b -> c -> [new]       1. the new node is put at the tail: nothing can be
 *                                             added to the chain any more
 *     bucket -> a -> b -> c -> x -> [new]  2. from tail to head: a leaf leads to what is first in
 *                                             its bucket of the new node,
 *               [new] bucket -> c -> x     3. becomes the first itself,
 *     bucket -> a -> b -> [new]            4. and is cut off the chain. The last cut leads the
 *     bucket -> [new]                         bucket to the new node
 *
 * All who would add something finish this before they go on (§4.4.2), so nobody else writes in the
 * new node before it is whole. Each step is one compare-and-swap that can succeed once:
 *
 * INVARIANT  1. A tail gets a new node once: it never leads to the chain's end again at that level.
 *            2. A leaf's level rises here, once.
 *            3. Until the expansion is over, the words of the new node's buckets are FRESH, and
 *               each is there once: empty, then the leaf nearest to the tail, the one before it,
 *               ... A place in the chain that leads to the leaf, in a leaf of the old level that is
 *               not GONE or in the bucket, says that it has not been cut off. So who reads the new
 *               bucket first, and the place after that, knows a word that will never come back.
 *            4. A place that has led to a leaf of the chain, and then elsewhere, never does again.
 *
 * Leaves that do not lead to the new node can be removed and replaced meanwhile: that changes the
 * word which the cut must find. One that does lead there belongs to the expansion: whoever wants to
 * remove it finishes that first. So no thread, however late, can put a leaf that was removed into
 * the new node (the delegation problem, §4.4.3, which the thesis solves for the tail and for
 * helpers that are not late). Nothing is found again once it was retired, and one look at the
 * hazard pointers is enough.
 */
#ifndef GPUALLOC_LFHT_EXPAND_H
#define GPUALLOC_LFHT_EXPAND_H

#include "compress.h"

enum {
    EXPAND_LEAVES = 16
};

/* Take `leaf`, which `word` at `place` leads to and which is GONE, out of the chain. False where
 * the place has changed, or is none of this chain. `*word` is what stands there then. */
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

/* Whether `next` of a leaf ends the chain that moves to `below`: it leads there, or has moved. */
static bool chain_ends_at(const walk *w, const lfht_hash_node *child, lfht_word next)
{
    return lfht_level(next) == w->node->level + 1 ||
           (lfht_leads_to(next, child, LFHT_HASH) && lfht_level(next) == w->node->level);
}

/* The leaves of the chain that moves to `below`, all kept. 0 where it is there no more, or has
 * changed meanwhile. */
static uint32_t chain_read(walk *w, const lfht_hash_node *child, lfht_leaf **chain)
{
    lfht_word *location = w->bucket;
    lfht_word word = walk_load(w, location);
    uint32_t n = 0;
    while (lfht_kind(word) == LFHT_LEAF && n < w->map->chain) {
        lfht_leaf *leaf = lfht_pointer(word);
        w->most_leaves = w->most_leaves > n ? w->most_leaves : n + 1;
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

/* ---- a leaf --------------------------------------------------------------------------------- */

static bool word_unchanged(const lfht_word *location, lfht_word word)
{
    lfht_test_yield();
    return GA_LFHT_MUTANT == 2 || lfht_load(location) == word;
}

/* The leaf leads to what is first in its bucket of `below`. False where it is not to be moved any
 * more. */
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

/* The leaf is the first in its bucket of `below`. False where the expansion is over; `*dead` where
 * the node died of that. */
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

/* The place leads to `below`. Whether this thread has ended the expansion. */
static bool expand_cut_leaf(const walk *w, lfht_hash_node *child, lfht_word *location,
                            lfht_word word)
{
    if (location == w->bucket) {
        return lfht_cas(location, word, lfht_word_to(child, LFHT_HASH));
    }
    lfht_cas(location, word, lfht_word_to(child, LFHT_HASH) | lfht_level_bits(w->node->level));
    return false;
}

/* `below` has died at once: what was put into it has been removed. */
static void compress_dead_child(walk *w, lfht_hash_node *child)
{
    walk_descend(w, child);
    compress_dead_node(w);
}

/* ---- all of it ------------------------------------------------------------------------------ */

/* Finish moving the bucket's chain to `below`, which is kept in the slot for it, or find that it
 * has been done. The walk stands in the same bucket, or at the root. */
static void expand_help(walk *w, lfht_hash_node *child)
{
    lfht_leaf *chain[EXPAND_LEAVES];
    uint32_t n = chain_read(w, child, chain);
    /* A5: acquire. Pairs with A1: the node was not detached before the chain was read, so the chain
     * is not a later one of the same bucket, on its way to another node. */
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

/* The chain is full; `place` is its end, in a leaf. GA_ERR_MEMORY where there is no node for it. */
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
