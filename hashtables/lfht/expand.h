/* SPDX-License-Identifier: MIT
 *
 * Expansion: a chain that is full moves into a hash node of its own (§3.3). Included by update.h.
 *
 *     bucket -> a -> b -> c -> [new]        1. the new node is put at the tail: nothing can be added
 *                                              to the chain any more
 *     bucket -> a => b => c => [new]        2. every leaf is MOVING: nothing can be removed from it
 *     bucket -> a => b -> [new] -> c        3. from tail to head: c is put before what is in its
 *     bucket -> a -> [new] -> b -> c           bucket of the new node, then cut off the chain
 *     bucket -> [new] -> a -> ...           4. the last cut leads the bucket to the new node
 *
 * Any thread can do any of the steps, and all who change something do them before they go on
 * (§4.4.2), so that nobody else writes in the new node before it is whole. Each step is one
 * compare-and-swap that can succeed once:
 *
 * INVARIANT  1. A tail gets a new node once: it never leads to the chain's end again at that level.
 *            2. MOVING is only set by who has seen the new node at the tail, or a leaf that has
 *               moved, behind the leaf: then the leaf is part of an expansion, or no longer at this
 *               level, which its word says.
 *            3. A leaf's level rises once. Until the expansion is over, the words of the new node's
 *               buckets are FRESH, and each is there once: the word of its first leaf, the one
 *               before it, ... A place that still leads to the leaf says that it is not over. So
 *               who reads the bucket first and the place after that has a word that never comes
 *               back.
 *            4. The bucket leads to the first leaf, which never comes back to this level.
 *
 * A leaf that is removed cannot be put in again by a thread that was stopped (the delegation
 * problem, §4.4.3): a leaf that is MOVING is not removed, one that is in two chains neither, and a
 * thread that is late fails at every step. So nothing is found again once it was retired, and the
 * hazard pointers are looked through once.
 */
#ifndef GPUALLOC_LFHT_EXPAND_H
#define GPUALLOC_LFHT_EXPAND_H

#include "compress.h"

enum {
    LFHT_MOST_CHAIN = 16
};

/* A leaf of the chain, and what it led to. */
typedef struct link {
    lfht_leaf *leaf;
    lfht_word next;
} link;

/* Take `leaf`, which `word` at `place` leads to and which is GONE, out of the chain. False where the
 * place has changed, or is none of this chain. `*word` is what stands there then. */
LFHT_INLINE bool unlink_leaf(walk *w, lfht_word *place, lfht_word *word, lfht_leaf *leaf,
                             lfht_word next)
{
    bool first = place == w->bucket;
    lfht_word wanted = lfht_target(next);
    if (lfht_level(next) != w->node->level ||
        (!first && lfht_level(*word) != w->node->level) || !reserve(w, 1)) {
        return false;
    }
    if (!first) {
        wanted |= *word & (LFHT_LEVEL | LFHT_MOVING);
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
static uint32_t read_chain(walk *w, const lfht_hash *below, link *chain)
{
    lfht_word *place = w->bucket;
    lfht_word word = lfht_read(place);
    uint32_t n = 0;
    while (lfht_kind(word) == LFHT_LEAF && n < w->map->chain) {
        lfht_leaf *leaf = lfht_at(word);
        w->most = w->most > n ? w->most : n + 1;
        if (!keep(w, leaf_slot(w, n), leaf, place, word)) {
            return 0;
        }
        lfht_word next = lfht_read(&leaf->next);
        if (next & LFHT_GONE) {
            if (!unlink_leaf(w, place, &word, leaf, next)) {
                return 0;
            }
            continue;
        }
        chain[n++] = (link){leaf, next};
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

/* Nothing goes out of the chain any more. False where something has gone, or it has moved. */
static bool hold_chain(const walk *w, link *chain, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        lfht_word next = chain[i].next;
        if (GA_LFHT_MUTANT == 3 || lfht_level(next) != w->node->level || next & LFHT_MOVING) {
            continue;
        }
        if (!lfht_swap(&chain[i].leaf->next, next, next | LFHT_MOVING)) {
            return false;
        }
        chain[i].next |= LFHT_MOVING;
    }
    return true;
}

/* ---- a leaf --------------------------------------------------------------------------------- */

static bool still(const lfht_word *place, lfht_word word)
{
    lfht_nap();
    return GA_LFHT_MUTANT == 4 || lfht_read(place) == word;
}

/* The leaf leads to what is first in its bucket of `below`. False where it is not to be moved any
 * more. */
static bool aim(const walk *w, lfht_hash *below, const lfht_word *place, lfht_word word,
                lfht_leaf *leaf)
{
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
static bool put(lfht_hash *below, const lfht_word *place, lfht_word word, lfht_leaf *leaf, bool *dead)
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
    lfht_swap(place, word,
              lfht_to(below, LFHT_HASH) | lfht_level_bits(w->node->level) | LFHT_MOVING);
    return false;
}

/* `below` has died at once: what was put into it has been removed. */
static void bury_below(walk *w, lfht_hash *below)
{
    go_down(w, below);
    bury(w);
}

/* ---- all of it ------------------------------------------------------------------------------ */

/* Finish moving the bucket's chain to `below`, which is kept in the slot for it, or find that it has
 * been done. The walk stands in the same bucket, or at the root. */
static void help(walk *w, lfht_hash *below)
{
    link chain[LFHT_MOST_CHAIN];
    uint32_t n = read_chain(w, below, chain);
    /* A5: acquire. Pairs with A1: the node was not detached before the chain was read, so the chain
     * is not a later one of the same bucket, on its way to another node. */
    if (!__atomic_load_n(&below->above, __ATOMIC_ACQUIRE) || !hold_chain(w, chain, n)) {
        return;
    }
    while (n-- > 0) {
        lfht_leaf *leaf = chain[n].leaf;
        lfht_word *place = n ? &chain[n - 1].leaf->next : w->bucket;
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
    lfht_hash *below = ga_lfht_hash_node(w->map, node, node->level + 1, node->used + node->bits,
                                         w->map->chunk);
    if (!below) {
        return GA_ERR_MEMORY;
    }
    keep_own(w, w->at_below, below);
    if (lfht_swap(w->place, w->seen,
                  lfht_to(below, LFHT_HASH) | lfht_level_bits(node->level) | LFHT_MOVING)) {
        help(w, below);
    } else {
        ga_free(w->map->heap, below);
    }
    return GA_OK;
}

#endif
