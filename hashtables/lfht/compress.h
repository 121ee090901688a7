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

static void forget_parent(lfht_hash *node)
{
    /* A1: release. Pairs with A2, through W1: who still finds the parent here found it before the
     * node was detached. */
    __atomic_store_n(&node->above, NULL, __ATOMIC_RELEASE);
}

/* The node has been detached and is no longer wanted: go to its parent, whose own parent is to be
 * kept. False at the root, and where another thread is taking the parent out. */
static bool go_up(walk *w)
{
    lfht_hash *node = w->above;
    /* A2: acquire. Pairs with A1. Only a guess, which A3 confirms. */
    lfht_hash *above = __atomic_load_n(&node->above, __ATOMIC_ACQUIRE);
    if (!above) {
        return false;
    }
    uint8_t free = w->at_node;
    w->at_node = w->at_above;
    w->at_above = free;
    lfht_nap();
    if (LFHT_HAZARDS == LFHT_POINTERS) {
        ga_hazard_set(w->mine, w->at_above, above);
        /* A3: seq_cst or acquire. Pairs with A1. */
        uintptr_t again = ga_hazard_load(w->mine, (const ga_hazard_word *)&node->above);
        if (again != (uintptr_t)above) {
            return false;
        }
    }
    stand(w, above, node);
    return true;
}

/* ---- freezing ------------------------------------------------------------------------------- */

static bool all_empty(const lfht_hash *node)
{
    for (uint32_t i = 0; i < 1u << node->bits; i++) {
        /* E1: seq_cst. Pairs with W1. */
        if (!lfht_is_empty(node, __atomic_load_n(&node->buckets[i], __ATOMIC_SEQ_CST))) {
            return false;
        }
    }
    return true;
}

static lfht_word frozen(const lfht_freeze *freeze)
{
    return lfht_to(freeze, LFHT_FREEZE | LFHT_GONE);
}

static bool freeze_all(lfht_hash *node, const lfht_freeze *freeze)
{
    for (uint32_t i = 0; i < 1u << node->bits; i++) {
        lfht_word word = lfht_read(&node->buckets[i]);
        if (GA_LFHT_MUTANT == 4 && !lfht_is_empty(node, word)) {
            continue;
        }
        if (!lfht_is_empty(node, word) || !lfht_swap(&node->buckets[i], word, frozen(freeze))) {
            return false;
        }
    }
    return true;
}

/* The compression has been cancelled. Until the freeze node is out nobody begins another. */
static void thaw_all(lfht_word *place, lfht_hash *node, const lfht_freeze *freeze)
{
    for (uint32_t i = 0; i < 1u << node->bits; i++) {
        lfht_swap(&node->buckets[i], frozen(freeze), lfht_empty(node));
    }
    lfht_swap(place, lfht_to(freeze, LFHT_UNFREEZE), lfht_empty(node));
}

/* Whether the node is out. */
static bool freeze_out(walk *w, lfht_word *place, const lfht_freeze *freeze)
{
    lfht_word mine = lfht_to(freeze, LFHT_FREEZE);
    if (!freeze_all(w->node, freeze)) {
        lfht_swap(place, mine, lfht_to(freeze, LFHT_UNFREEZE));
        return false;
    }
    forget_parent(w->node);
    if (lfht_swap(place, mine, lfht_empty(w->above))) {
        return true;
    }
    /* A4: release. Pairs with A2: it stays attached. */
    __atomic_store_n(&w->node->above, w->above, __ATOMIC_RELEASE);
    return false;
}

/* Take out the node, if it is empty, and its parent, and so on. Leaves the walk somewhere above. */
static void compress_frozen(walk *w)
{
    while (w->above && all_empty(w->node)) {
        lfht_word *place = lfht_bucket(w->above, w->hash);
        lfht_freeze *freeze = NULL;
        if (!reserve(w, 2) || !(freeze = ga_lfht_node(w->map, sizeof *freeze))) {
            w->failed = false; /* it stays: that costs memory, no more */
            return;
        }
        freeze->node = w->node;
        if (!lfht_swap(place, lfht_empty(w->node), lfht_to(freeze, LFHT_FREEZE))) {
            ga_free(w->map->heap, freeze);
            return;
        }
        if (!freeze_out(w, place, freeze)) {
            thaw_all(place, w->node, freeze);
            retire(w, lfht_to(freeze, LFHT_FREEZE));
            lfht_add(&w->lane->aborted, 1);
            continue; /* it may have been emptied again meanwhile */
        }
        retire(w, lfht_to(freeze, LFHT_FREEZE));
        retire(w, lfht_to(w->node, LFHT_HASH));
        lfht_add(&w->lane->compressions, 1);
        if (!go_up(w)) {
            return;
        }
    }
}

/* The bucket is frozen, by `word`, and something is to go there: cancel. */
static void unfreeze(walk *w, lfht_word word)
{
    lfht_freeze *freeze = lfht_at(word);
    lfht_word *place = lfht_bucket(w->above, w->hash);
    lfht_word mine = lfht_read(place);
    bool freezes = mine == lfht_to(freeze, LFHT_FREEZE);
    bool cancelled = mine == lfht_to(freeze, LFHT_UNFREEZE);
    /* Kept, so that no other freeze node gets its address before the swaps below. It may have one
     * by now, and be that of a node that came after this one. */
    if (!(freezes || cancelled) || !keep(w, LFHT_SLOT_FREEZE, freeze, place, mine) ||
        freeze->node != w->node) {
        go_to_root(w); /* the node is out, or has been thawed */
    } else if (freezes) {
        lfht_swap(place, mine, lfht_to(freeze, LFHT_UNFREEZE));
    } else {
        lfht_swap(w->bucket, word, lfht_empty(w->node));
    }
}

/* ---- counting ------------------------------------------------------------------------------- */

/* Before a bucket of the node is filled. False where the node is dead. */
LFHT_INLINE bool raise_count(lfht_hash *node)
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
LFHT_INLINE bool lower_count(lfht_hash *node)
{
    if (LFHT_SHRINKS != LFHT_COUNTS || node->level == 0) {
        return false;
    }
    /* C2: acq_rel. Pairs with C1 and with itself: the last one sees all that was done. */
    return __atomic_sub_fetch(&node->count, 1, __ATOMIC_ACQ_REL) == 0;
}

/* The node is dead: take it out, and its parent if it dies of it. Leaves the walk somewhere
 * above. */
static void compress_counted(walk *w)
{
    do {
        lfht_word *place = lfht_bucket(w->above, w->hash);
        if (!reserve(w, 1)) {
            w->failed = false; /* whoever wants to put something there will try again */
            return;
        }
        forget_parent(w->node);
        if (!lfht_swap(place, lfht_empty(w->node), lfht_empty(w->above))) {
            return;
        }
        retire(w, lfht_to(w->node, LFHT_HASH));
        lfht_add(&w->lane->compressions, 1);
    } while (lower_count(w->above) && go_up(w));
}

/* ---- both ----------------------------------------------------------------------------------- */

/* This thread has emptied the bucket. Ends at the root. */
static void emptied(walk *w)
{
    if (LFHT_SHRINKS == LFHT_FREEZES) {
        compress_frozen(w);
        go_to_root(w);
    } else if (LFHT_SHRINKS == LFHT_COUNTS && lower_count(w->node)) {
        compress_counted(w);
        go_to_root(w);
    }
}

/* This thread has met a node that is dead. */
static void bury(walk *w)
{
    compress_counted(w);
    go_to_root(w);
}

#endif
