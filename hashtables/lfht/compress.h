/* SPDX-License-Identifier: MIT
 *
 * Hash nodes that have become empty are taken out (§3.5), in one of two ways. Included by
 * update.h.
 *
 * FREEZES    The parent's bucket gets a freeze node, which leads on to the node; then each empty
 *            bucket of the node is frozen. Once all are, the parent's bucket is emptied, and the
 *            node is out. Whoever wants to put something into a frozen bucket turns the freeze node
 *            in the parent's bucket into an unfreeze node: the same node, in a word that says so.
 *            One compare-and-swap on that bucket decides between the two. The thread that froze
 *            clears what it froze, also when it stops halfway (Algorithm 7 leaves it, line 10),
 *            then takes the freeze node out, and nobody else does either. So a bucket that is
 *            frozen while the parent's does not lead through this freeze node says: the node is
 *            out.
 *
 * COUNTS     A node counts its buckets in use. The count is raised before a bucket is filled, and
 *            lowered by who empties it, or raised it in vain. Once 0 it stays so: the node is dead,
 *            and whoever meets it takes it out.
 *
 * ORDER      E1: of two threads that empty the last two buckets, one sees both empty.
 *            A: a parent that `above` leads to is attached, since `above` is made NULL before the
 *            node is detached, and the parent can be only after that (§4.4.2).
 *            C: what happened to a node's buckets before the count fell to 0 is seen.
 *
 * In both, only the thread that detaches a node retires it, and goes on with the parent, never the
 * root.
 */
#ifndef GPUALLOC_LFHT_COMPRESS_H
#define GPUALLOC_LFHT_COMPRESS_H

#include "walk.h"

/* ---- up ------------------------------------------------------------------------------------- */

static void node_clear_parent(lfht_hash_node *node)
{
    /* A1: release. Pairs with A2, through W1: who still finds the parent here found it before the
     * node was detached. */
    __atomic_store_n(&node->parent, NULL, __ATOMIC_RELEASE);
}

/* The node has been detached and is no longer wanted: go to its parent, whose own parent is to be
 * kept. False at the root, and where another thread is taking the parent out. */
static bool walk_ascend(walk *w)
{
    lfht_hash_node *node = w->parent;
    /* A2: acquire. Pairs with A1. Only a guess, which A3 confirms. */
    lfht_hash_node *parent = __atomic_load_n(&node->parent, __ATOMIC_ACQUIRE);
    if (!parent) {
        return false;
    }
    uint8_t free = w->node_slot;
    w->node_slot = w->parent_slot;
    w->parent_slot = free;
    lfht_test_yield();
    if (LFHT_HAZARDS == LFHT_HAZARD_POINTERS) {
        ga_hazard_set(w->hazards, w->parent_slot, parent);
        /* A3: seq_cst or acquire. Pairs with A1. */
        uintptr_t again = ga_hazard_load(w->hazards, (const ga_hazard_word *)&node->parent);
        if (again != (uintptr_t)parent) {
            return false;
        }
    }
    walk_enter_node(w, parent, node);
    return true;
}

/* ---- freezing ------------------------------------------------------------------------------- */

static bool node_is_empty(const lfht_hash_node *node)
{
    for (uint32_t i = 0; i < 1u << node->bits; i++) {
        /* E1: seq_cst. Pairs with W1. */
        if (!lfht_is_empty_bucket(node, __atomic_load_n(&node->buckets[i], __ATOMIC_SEQ_CST))) {
            return false;
        }
    }
    return true;
}

static lfht_word frozen_word(const lfht_freeze_node *freeze)
{
    return lfht_word_to(freeze, LFHT_FREEZE | LFHT_GONE);
}

static bool freeze_buckets(lfht_hash_node *node, const lfht_freeze_node *freeze)
{
    for (uint32_t i = 0; i < 1u << node->bits; i++) {
        lfht_word word = lfht_load(&node->buckets[i]);
        if (GA_LFHT_MUTANT == 4 && !lfht_is_empty_bucket(node, word)) {
            continue;
        }
        if (!lfht_is_empty_bucket(node, word) ||
            !lfht_cas(&node->buckets[i], word, frozen_word(freeze))) {
            return false;
        }
    }
    return true;
}

/* The compression has been cancelled. Until the freeze node is out nobody begins another. */
static void thaw_buckets(lfht_word *location, lfht_hash_node *node, const lfht_freeze_node *freeze)
{
    for (uint32_t i = 0; i < 1u << node->bits; i++) {
        lfht_cas(&node->buckets[i], frozen_word(freeze), lfht_empty_bucket(node));
    }
    lfht_cas(location, lfht_word_to(freeze, LFHT_UNFREEZE), lfht_empty_bucket(node));
}

/* Whether the node is out. */
static bool freeze_and_detach(walk *w, lfht_word *location, const lfht_freeze_node *freeze)
{
    lfht_word hazards = lfht_word_to(freeze, LFHT_FREEZE);
    if (!freeze_buckets(w->node, freeze)) {
        lfht_cas(location, hazards, lfht_word_to(freeze, LFHT_UNFREEZE));
        return false;
    }
    node_clear_parent(w->node);
    if (lfht_cas(location, hazards, lfht_empty_bucket(w->parent))) {
        return true;
    }
    /* A4: release. Pairs with A2: it stays attached. */
    __atomic_store_n(&w->node->parent, w->parent, __ATOMIC_RELEASE);
    return false;
}

/* Take out the node, if it is empty, and its parent, and so on. Leaves the walk somewhere above. */
static void compress_by_freezing(walk *w)
{
    while (w->parent && node_is_empty(w->node)) {
        lfht_word *location = lfht_bucket(w->parent, w->hash);
        lfht_freeze_node *freeze = NULL;
        if (!walk_reserve_retire(w, 2) || !(freeze = ga_lfht_alloc_node(w->map, sizeof *freeze))) {
            w->failed = false; /* it stays: that costs memory, no more */
            return;
        }
        freeze->node = w->node;
        if (!lfht_cas(location, lfht_empty_bucket(w->node), lfht_word_to(freeze, LFHT_FREEZE))) {
            ga_free(w->map->heap, freeze);
            return;
        }
        if (!freeze_and_detach(w, location, freeze)) {
            thaw_buckets(location, w->node, freeze);
            walk_retire(w, lfht_word_to(freeze, LFHT_FREEZE));
            lfht_count(&w->shard->aborted, 1);
            continue; /* it may have been emptied again meanwhile */
        }
        walk_retire(w, lfht_word_to(freeze, LFHT_FREEZE));
        walk_retire(w, lfht_word_to(w->node, LFHT_HASH));
        lfht_count(&w->shard->compressions, 1);
        if (!walk_ascend(w)) {
            return;
        }
    }
}

/* The bucket is frozen, by `word`, and something is to go there: cancel. */
static void cancel_freeze(walk *w, lfht_word word)
{
    lfht_freeze_node *freeze = lfht_pointer(word);
    lfht_word *location = lfht_bucket(w->parent, w->hash);
    lfht_word hazards = lfht_load(location);
    bool freezes = hazards == lfht_word_to(freeze, LFHT_FREEZE);
    bool cancelled = hazards == lfht_word_to(freeze, LFHT_UNFREEZE);
    /* Kept, so that no other freeze node gets its address before the swaps below. It may have one
     * by now, and be that of a node that came after this one. */
    if (!(freezes || cancelled) || !walk_protect(w, LFHT_SLOT_FREEZE, freeze, location, hazards) ||
        freeze->node != w->node) {
        walk_go_to_root(w); /* the node is out, or has been thawed */
    } else if (freezes) {
        lfht_cas(location, hazards, lfht_word_to(freeze, LFHT_UNFREEZE));
    } else {
        lfht_cas(w->bucket, word, lfht_empty_bucket(w->node));
    }
}

/* ---- counting ------------------------------------------------------------------------------- */

/* Before a bucket of the node is filled. False where the node is dead. */
LFHT_INLINE bool node_count_raise(lfht_hash_node *node)
{
    if (LFHT_SHRINKS != LFHT_COUNTS || node->level == 0) {
        return true;
    }
    uint64_t count = __atomic_load_n(&node->count, __ATOMIC_RELAXED); /* relaxed: a guess */
    do {
        if (count == 0) {
            return false;
        }
        /* C1: acq_rel. Pairs with C2: it was not dead, or is seen to be. */
    } while (!__atomic_compare_exchange_n(&node->count, &count, count + 1, true, __ATOMIC_ACQ_REL,
                                          __ATOMIC_RELAXED));
    return true;
}

/* Whether the node is dead now. */
LFHT_INLINE bool node_count_lower(lfht_hash_node *node)
{
    if (LFHT_SHRINKS != LFHT_COUNTS || node->level == 0) {
        return false;
    }
    /* C2: acq_rel. Pairs with C1 and with itself: the last one sees all that was done. */
    return __atomic_sub_fetch(&node->count, 1, __ATOMIC_ACQ_REL) == 0;
}

/* The node is dead: take it out, and its parent if it dies of it. Leaves the walk somewhere
 * above. */
static void compress_by_counting(walk *w)
{
    do {
        lfht_word *location = lfht_bucket(w->parent, w->hash);
        if (!walk_reserve_retire(w, 1)) {
            w->failed = false; /* whoever wants to put something there will try again */
            return;
        }
        node_clear_parent(w->node);
        if (!lfht_cas(location, lfht_empty_bucket(w->node), lfht_empty_bucket(w->parent))) {
            return;
        }
        walk_retire(w, lfht_word_to(w->node, LFHT_HASH));
        lfht_count(&w->shard->compressions, 1);
    } while (node_count_lower(w->parent) && walk_ascend(w));
}

/* ---- both ----------------------------------------------------------------------------------- */

/* This thread has emptied the bucket. Ends at the root. */
static void compress_after_emptying(walk *w)
{
    if (LFHT_SHRINKS == LFHT_FREEZES) {
        compress_by_freezing(w);
        walk_go_to_root(w);
    } else if (LFHT_SHRINKS == LFHT_COUNTS && node_count_lower(w->node)) {
        compress_by_counting(w);
        walk_go_to_root(w);
    }
}

/* This thread has met a node that is dead. */
static void compress_dead_node(walk *w)
{
    compress_by_counting(w);
    walk_go_to_root(w);
}

#endif
