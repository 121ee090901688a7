/* SPDX-License-Identifier: MIT
 *
 * Compression: detaches hash nodes that have become empty (§3.5), by one of two methods. Included
 * by expand.h.
 *
 * FREEZES    The parent's bucket gets a freeze node, which leads on to the node; then every bucket
 *            of the node is frozen. Once all are, the parent's bucket is emptied, which detaches
 *            the node. A thread that wants to insert into a frozen bucket turns the freeze node in
 *            the parent's bucket into an unfreeze node: the same node, under another kind in the
 *            word. One compare-and-swap on that bucket decides between the two. Only the thread
 *            that froze clears what it froze, also if it gave up halfway (Algorithm 7 leaves that
 *            out, line 10), and only then takes its freeze node out. So a frozen bucket whose
 *            freeze node is not in the parent's bucket belongs to a detached node.
 *
 * COUNTS     A node counts its buckets in use. A thread raises the count before it fills a bucket,
 *            and lowers it after it has emptied one or failed to fill it. Once 0 the count stays 0:
 *            the node is dead, and every thread that meets it detaches it.
 *
 * ORDER      LE1: if two threads each empty one of the last two buckets, at least one sees both
 *            empty.
 *            A: a parent that `parent` leads to is attached, because `parent` is set to NULL before
 *            the node is detached, and the parent can be detached only after that (§4.4.2).
 *            C: the thread that lowers the count to 0 sees everything that was done to the node's
 *            buckets.
 *
 * In both methods only the thread that detaches a node retires it, and then goes on with the
 * parent, never with the root.
 */
#ifndef GPUALLOC_LFHT_COMPRESS_H
#define GPUALLOC_LFHT_COMPRESS_H

#include "walk.h"

/* ---- moving up ------------------------------------------------------------------------------ */

static void node_clear_parent(lfht_hash_node *node)
{
    /* LA1: release. Pairs with LA2, through LW1: a reader that still finds the parent here found it
     * before the node was detached. */
    __atomic_store_n(&node->parent, NULL, __ATOMIC_RELEASE);
}

/* Move to the parent of a node that this walk has detached, and protect the grandparent. False at
 * the root, and if another thread is detaching the parent. */
static bool walk_ascend(walk *w)
{
    lfht_hash_node *node = w->parent;
    /* LA2: acquire. Pairs with LA1. Only a guess, which LA3 validates. */
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
        /* LA3: seq_cst or acquire. Pairs with LA1. */
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
        /* LE1: seq_cst. Pairs with LW1. */
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
        if (GA_PLANTED(lfht_nonempty_node_removed) && !lfht_is_empty_bucket(node, word)) {
            continue;
        }
        if (!lfht_is_empty_bucket(node, word) ||
            !lfht_cas(&node->buckets[i], word, frozen_word(freeze))) {
            return false;
        }
    }
    return true;
}

/* Clear the frozen buckets of a cancelled compression. No other thread can begin one before the
 * freeze node is out of the parent's bucket. */
static void thaw_buckets(lfht_word *location, lfht_hash_node *node, const lfht_freeze_node *freeze)
{
    for (uint32_t i = 0; i < 1u << node->bits; i++) {
        lfht_cas(&node->buckets[i], frozen_word(freeze), lfht_empty_bucket(node));
    }
    lfht_cas(location, lfht_word_to(freeze, LFHT_UNFREEZE), lfht_empty_bucket(node));
}

/* Freeze all buckets, then detach the node. False if the compression was cancelled, by this thread
 * because a bucket is not empty, or by another. */
static bool freeze_and_detach(walk *w, lfht_word *location, const lfht_freeze_node *freeze)
{
    lfht_word freezing = lfht_word_to(freeze, LFHT_FREEZE);
    if (!freeze_buckets(w->node, freeze)) {
        lfht_cas(location, freezing, lfht_word_to(freeze, LFHT_UNFREEZE));
        return false;
    }
    node_clear_parent(w->node);
    if (lfht_cas(location, freezing, lfht_empty_bucket(w->parent))) {
        return true;
    }
    /* LA4: release. Pairs with LA2: the node stays attached. */
    __atomic_store_n(&w->node->parent, w->parent, __ATOMIC_RELEASE);
    return false;
}

/* Detach the node if it is empty, then its parent, and so on. The walk ends at an ancestor. */
static void compress_by_freezing(walk *w)
{
    while (w->parent && node_is_empty(w->node)) {
        lfht_word *location = lfht_bucket(w->parent, w->hash);
        lfht_freeze_node *freeze = NULL;
        if (!walk_reserve_retire(w, 2) || !(freeze = ga_lfht_alloc_node(w->map, sizeof *freeze))) {
            w->failed = false; /* the node stays, which costs memory and nothing else */
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
            continue; /* it may have become empty again */
        }
        walk_retire(w, lfht_word_to(freeze, LFHT_FREEZE));
        walk_retire(w, lfht_word_to(w->node, LFHT_HASH));
        lfht_count(&w->shard->compressions, 1);
        if (!walk_ascend(w)) {
            return;
        }
    }
}

/* The bucket is frozen with `word`, and the caller wants to insert: cancel the compression. */
static void cancel_freeze(walk *w, lfht_word word)
{
    lfht_freeze_node *freeze = lfht_pointer(word);
    lfht_word *location = lfht_bucket(w->parent, w->hash);
    lfht_word parent_word = lfht_load(location);
    bool freezes = parent_word == lfht_word_to(freeze, LFHT_FREEZE);
    bool cancelled = parent_word == lfht_word_to(freeze, LFHT_UNFREEZE);
    /* Protect the freeze node, so that no other freeze node gets its address before the swaps
     * below. The address may already have been reused, by the freeze node of a later hash node; so
     * compare. */
    if (!(freezes || cancelled) ||
        !walk_protect(w, LFHT_SLOT_FREEZE, freeze, location, parent_word) ||
        freeze->node != w->node) {
        walk_go_to_root(w); /* detached, or thawed */
    } else if (freezes) {
        lfht_cas(location, parent_word, lfht_word_to(freeze, LFHT_UNFREEZE));
    } else {
        lfht_cas(w->bucket, word, lfht_empty_bucket(w->node));
    }
}

/* ---- counting ------------------------------------------------------------------------------- */

/* Raise the count before a bucket is filled. False if the node is dead. */
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
        /* LC1: acq_rel. Pairs with LC2: the node was not dead, or is seen to be dead. */
    } while (!__atomic_compare_exchange_n(&node->count, &count, count + 1, true, __ATOMIC_ACQ_REL,
                                          __ATOMIC_RELAXED));
    return true;
}

/* Lower the count. True if the node is dead now. */
LFHT_INLINE bool node_count_lower(lfht_hash_node *node)
{
    if (LFHT_SHRINKS != LFHT_COUNTS || node->level == 0) {
        return false;
    }
    /* LC2: acq_rel. Pairs with LC1 and itself: the last thread sees everything the others did. */
    return __atomic_sub_fetch(&node->count, 1, __ATOMIC_ACQ_REL) == 0;
}

/* Detach the dead node, and its parent if that is dead then, and so on. The walk ends at an
 * ancestor. */
static void compress_by_counting(walk *w)
{
    do {
        lfht_word *location = lfht_bucket(w->parent, w->hash);
        if (!walk_reserve_retire(w, 1)) {
            w->failed = false; /* the next insertion that meets the node will try again */
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

/* This thread has emptied the bucket. The walk ends at the root if nodes can shrink. */
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

/* This thread has met a dead node. The walk ends at the root. */
static void compress_dead_node(walk *w)
{
    compress_by_counting(w);
    walk_go_to_root(w);
}

#endif
