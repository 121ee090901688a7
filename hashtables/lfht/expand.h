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
    LFHT_MOST_CHAIN = 16
};

/* Take `leaf`, which `word` at `place` leads to and which is GONE, out of the chain. False where
 * the place has changed, or is none of this chain. `*word` is what stands there then. */
LFHT_INLINE bool unlink_leaf(walk *w, lfht_word *place, lfht_word *word, lfht_leaf *leaf,
                             lfht_word next)
{
    bool first = place == w->bucket;
    lfht_word wanted = lfht_target(next);
    if (lfht_level(next) != w->node->level || (!first && lfht_level(*word) != w->node->level) ||
        !reserve(w, 1)) {
        return false;
    }
    if (!first) {
        wanted |= *word & LFHT_LEVEL;
    }
    if (!lfht_swap(place, *word, wanted)) {
        return false;
    }
    retire(w, lfht_to(leaf, LFHT_LEAF));
    *word = wanted;
    return true;
}

/* ---- the chain ------------------------------------------------------------------------------ */

/* Whether `next` of a leaf ends the chain that moves to `below`: it leads there, or has moved. */
static bool ends(const walk *w, const lfht_hash *below, lfht_word next)
{
    return lfht_level(next) == w->node->level + 1 ||
           (lfht_leads_to(next, below, LFHT_HASH) && lfht_level(next) == w->node->level);
}

/* The leaves of the chain that moves to `below`, all kept. 0 where it is there no more, or has
 * changed meanwhile. */
static uint32_t read_chain(walk *w, const lfht_hash *below, lfht_leaf **chain)
{
    lfht_word *place = w->bucket;
    lfht_word word = look(w, place);
    uint32_t n = 0;
    while (lfht_kind(word) == LFHT_LEAF && n < w->map->chain) {
        lfht_leaf *leaf = lfht_at(word);
        w->most = w->most > n ? w->most : n + 1;
        if (!keep(w, leaf_slot(w, n), leaf, place, word)) {
            return 0;
        }
        lfht_word next = look(w, &leaf->next);
        if (next & LFHT_GONE) {
            if (!unlink_leaf(w, place, &word, leaf, next)) {
                return 0;
            }
            continue;
        }
        chain[n++] = leaf;
        if (ends(w, below, next)) {
            return n;
        }
        if (lfht_level(next) != w->node->level) {
            return 0;
        }
        place = &leaf->next;
        word = next;
    }
    return 0;
}

/* ---- a leaf --------------------------------------------------------------------------------- */

static bool still(const lfht_word *place, lfht_word word)
{
    lfht_nap();
    return GA_LFHT_MUTANT == 2 || lfht_read(place) == word;
}

/* The leaf leads to what is first in its bucket of `below`. False where it is not to be moved any
 * more. */
static bool aim(const walk *w, lfht_hash *below, const lfht_word *place, lfht_word word,
                lfht_leaf *leaf)
{
    lfht_nap();
    lfht_word next = lfht_read(&leaf->next);
    if (lfht_level(next) == w->node->level) {
        lfht_word first = lfht_read(lfht_bucket(below, leaf->hash));
        if (!lfht_leads_to(next, below, LFHT_HASH) || !still(place, word)) {
            return false;
        }
        lfht_swap(&leaf->next, next, lfht_target(first) | lfht_level_bits(below->level));
        next = lfht_read(&leaf->next);
    }
    return lfht_level(next) == below->level && !(next & LFHT_GONE);
}

/* The leaf is the first in its bucket of `below`. False where the expansion is over; `*dead` where
 * the node died of that. */
static bool put(lfht_hash *below, const lfht_word *place, lfht_word word, lfht_leaf *leaf,
                bool *dead)
{
    lfht_word *bucket = lfht_bucket(below, leaf->hash);
    lfht_word first = lfht_read(bucket);
    if (!still(place, word)) {
        return false;
    }
    if (lfht_leads_to(first, leaf, LFHT_LEAF)) {
        return true;
    }
    bool fills = lfht_is_empty(below, first);
    if (fills && !raise_count(below)) {
        return false;
    }
    if (!lfht_swap(bucket, first, lfht_to(leaf, LFHT_LEAF) | LFHT_FRESH) && fills) {
        *dead = lower_count(below);
    }
    return true;
}

/* The place leads to `below`. Whether this thread has ended the expansion. */
static bool cut(const walk *w, lfht_hash *below, lfht_word *place, lfht_word word)
{
    if (place == w->bucket) {
        return lfht_swap(place, word, lfht_to(below, LFHT_HASH));
    }
    lfht_swap(place, word, lfht_to(below, LFHT_HASH) | lfht_level_bits(w->node->level));
    return false;
}

/* `below` has died at once: what was put into it has been removed. */
static void bury_below(walk *w, lfht_hash *below)
{
    go_down(w, below);
    bury(w);
}

/* ---- all of it ------------------------------------------------------------------------------ */

/* Finish moving the bucket's chain to `below`, which is kept in the slot for it, or find that it
 * has been done. The walk stands in the same bucket, or at the root. */
static void help(walk *w, lfht_hash *below)
{
    lfht_leaf *chain[LFHT_MOST_CHAIN];
    uint32_t n = read_chain(w, below, chain);
    /* A5: acquire. Pairs with A1: the node was not detached before the chain was read, so the chain
     * is not a later one of the same bucket, on its way to another node. */
    if (!__atomic_load_n(&below->above, __ATOMIC_ACQUIRE)) {
        return;
    }
    while (n-- > 0) {
        lfht_leaf *leaf = chain[n];
        lfht_word *place = n ? &chain[n - 1]->next : w->bucket;
        lfht_word word = lfht_read(place);
        bool dead = false;
        if (!lfht_leads_to(word, leaf, LFHT_LEAF) || word & LFHT_GONE ||
            (n && lfht_level(word) != w->node->level)) {
            return;
        }
        if (!aim(w, below, place, word, leaf) || !put(below, place, word, leaf, &dead)) {
            return;
        }
        if (!dead && cut(w, below, place, word)) {
            lfht_add(&w->lane->expansions, 1);
            dead = lower_count(below);
        }
        if (dead) {
            bury_below(w, below);
            return;
        }
    }
}

/* The chain is full; `place` is its end, in a leaf. GA_ERR_MEMORY where there is no node for it. */
static ga_status expand(walk *w)
{
    lfht_hash *node = w->node;
    lfht_hash *below =
        ga_lfht_hash_node(w->map, node, node->level + 1, node->used + node->bits, w->map->chunk);
    if (!below) {
        return GA_ERR_MEMORY;
    }
    keep_own(w, w->at_below, below);
    if (lfht_swap(w->place, w->seen, lfht_to(below, LFHT_HASH) | lfht_level_bits(node->level))) {
        help(w, below);
    } else {
        ga_free(w->map->heap, below);
    }
    return GA_OK;
}

#endif
