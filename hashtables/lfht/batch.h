/* SPDX-License-Identifier: MIT
 *
 * Batches of calls: several keys are on their way at once, so that what one of them waits for from
 * memory comes while the others go on. Included by the file of each variant; includes the calls.
 *
 * STRUCTURE  A glance is the way of one key: it reads, and changes nothing. Each step goes to one
 *            node, which was fetched ahead, and ends with fetching the next one. Where it meets
 *            anything but whole chains (a removal, an expansion, a freezing, a word that has
 *            changed), it gives up, and the key has a call of its own.
 *
 * INVARIANT  H (walk.h), with slots of its own for each glance: two for the node and the one below
 *            it, and two for a leaf and the one behind it, which take turns. A bucket that leads to
 *            a hash node leads to one of the next level, and with the level goes the number of its
 *            bits: nobody asks the node.
 *
 * ORDER      As in a lookup: W2, and P where there are hazard pointers.
 *
 * PROGRESS   A glance takes no more steps than the trie has levels, and each chain leaves.
 */
#ifndef GPUALLOC_LFHT_BATCH_H
#define GPUALLOC_LFHT_BATCH_H

#include "update.h"

#include "mixed.h" /* behind the calls */

typedef struct glance {
    lfht_hash *node;
    const lfht_word *place; /* in the node, or in a leaf of its chain; kept */
    lfht_word seen;         /* what stood there; fetched, not kept */
    lfht_leaf *leaf;        /* the key's */
    uint64_t hash, key;
    uint32_t level, used; /* of the node */
    uint32_t count;       /* leaves met in the bucket */
    uint32_t slot;        /* the first of its own */
    size_t number;        /* of the key */
} glance;

typedef enum sight {
    GOES_ON = 0,
    SEEN,   /* the key */
    UNSEEN, /* it is not there */
    UNSURE
} sight;

/* ---- one key -------------------------------------------------------------------------------- */

LFHT_INLINE uint32_t glance_bits(const ga_lfht *map, const glance *g)
{
    return g->level ? map->chunk : map->root->bits;
}

LFHT_INLINE lfht_word *glance_bucket(const glance *g, lfht_hash *node, uint32_t used, uint32_t bits)
{
    return &node->buckets[g->hash << used >> (64 - bits)];
}

/* What the word leads to will be wanted: of a hash node the bucket alone. */
LFHT_INLINE void fetch(const ga_lfht *map, const glance *g, lfht_word word)
{
    uint32_t used = g->used + glance_bits(map, g);
    if (lfht_kind(word) == LFHT_LEAF) {
        __builtin_prefetch(lfht_at(word));
    } else if (lfht_at(word) != g->node && used < 64) {
        __builtin_prefetch(glance_bucket(g, lfht_at(word), used, map->chunk));
    }
}

LFHT_INLINE void look_at(walk *w, glance *g, const lfht_word *place)
{
    if (LFHT_HAZARDS == LFHT_PAIRS) { /* before the bucket is read */
        lfht_pair_level(w->mine, g->slot, g->level);
    }
    g->place = place;
    g->seen = look(w, place);
    fetch(w->map, g, g->seen);
}

LFHT_INLINE void begin_glance(walk *w, glance *g, uint64_t key, size_t number)
{
    uint64_t hash = lfht_hash_of(w->map, key);
    if (LFHT_HAZARDS == LFHT_PAIRS) {
        lfht_pair_hash(w->mine, g->slot, hash);
    }
    g->node = w->map->root;
    g->hash = hash;
    g->key = key;
    g->level = g->used = g->count = 0;
    g->number = number;
    __builtin_prefetch(glance_bucket(g, g->node, 0, g->node->bits));
    g->place = NULL;
}

/* Into the hash node below, which the bucket leads to. */
LFHT_INLINE sight glance_down(walk *w, glance *g)
{
    lfht_hash *below = lfht_at(g->seen);
    if (!keep(w, g->slot + g->level % 2, below, g->place, g->seen)) {
        return UNSURE;
    }
    g->used += glance_bits(w->map, g);
    g->level++;
    g->node = below;
    look_at(w, g, glance_bucket(g, below, g->used, glance_bits(w->map, g)));
    return GOES_ON;
}

/* To the leaf that the word leads to. */
LFHT_INLINE sight glance_along(walk *w, glance *g)
{
    lfht_leaf *leaf = lfht_at(g->seen);
    bool last = g->used + glance_bits(w->map, g) >= 64;
    if ((g->count >= w->map->chain && !last) ||
        !keep(w, g->slot + 2 + g->count % 2, leaf, g->place, g->seen)) {
        return UNSURE;
    }
    g->count++;
    lfht_word next = look(w, &leaf->next);
    if (next & LFHT_GONE || lfht_level(next) != g->level) {
        return UNSURE;
    }
    if (is_key(w->map, g->hash, g->key, leaf)) {
        g->leaf = leaf;
        return SEEN;
    }
    g->place = &leaf->next;
    g->seen = next;
    fetch(w->map, g, next);
    return GOES_ON;
}

/* One node further. */
LFHT_INLINE sight step(walk *w, glance *g)
{
    sight saw;
    if (!g->place) {
        look_at(w, g, glance_bucket(g, g->node, 0, w->map->root->bits));
        saw = GOES_ON;
    } else if (lfht_kind(g->seen) == LFHT_LEAF) {
        saw = glance_along(w, g);
    } else {
        saw = glance_down(w, g);
    }
    if (saw != GOES_ON || lfht_kind(g->seen) == LFHT_LEAF) {
        return saw;
    }
    if (lfht_is_empty(g->node, g->seen)) {
        return UNSEEN;
    }
    /* A hash node behind a leaf: the chain is moving. */
    bool below = lfht_kind(g->seen) == LFHT_HASH && !(g->seen & LFHT_GONE);
    return below && g->count == 0 ? GOES_ON : UNSURE;
}

/* ---- several -------------------------------------------------------------------------------- */

LFHT_INLINE uint32_t glance_slot(const ga_lfht *map, uint32_t number)
{
    return LFHT_HAZARDS == LFHT_PAIRS
               ? LFHT_PAIR_SLOTS * (1 + number)
               : LFHT_SLOT_LEAVES + map->leaf_slots + LFHT_GLANCE_SLOTS * number;
}

LFHT_INLINE void end_glances(walk *w)
{
    uint32_t last = glance_slot(w->map, LFHT_WIDTH);
    for (uint32_t slot = glance_slot(w->map, 0); LFHT_HAZARDS && slot < last; slot++) {
        ga_hazard_clear(w->mine, slot);
    }
    end(w);
}

LFHT_INLINE void place_glances(const ga_lfht *map, glance *glances)
{
    for (uint32_t i = 0; i < LFHT_WIDTH; i++) {
        glances[i].slot = glance_slot(map, i);
    }
}

/* The answer of a glance that has ended. */
static ga_status answer(ga_lfht *map, walk *w, const glance *g, sight saw, ga_lfht_found *found)
{
    if (saw == UNSURE) {
        return lookup(map, g->key, &found[g->number]);
    }
    found[g->number] = (ga_lfht_found){saw == SEEN, saw == SEEN ? g->leaf->value : 0};
    if (map->counting) {
        lfht_add(&w->lane->lookups, 1);
        lfht_add(&w->lane->hops, g->level + 1 + g->count);
        lfht_count_depth(w->lane, g->level);
    }
    return GA_OK;
}

/* Whoever has its answer makes room for the next key. */
static ga_status lookup_batch(ga_lfht *map, const uint64_t *keys, size_t n, ga_lfht_found *found)
{
    walk w;
    glance glances[LFHT_WIDTH];
    uint32_t width = 0;
    size_t next = 0;
    ga_status status = begin(&w, map, 0, 0);
    if (status != GA_OK) {
        return status;
    }
    place_glances(map, glances);
    for (; width < LFHT_WIDTH && next < n; width++, next++) {
        begin_glance(&w, &glances[width], keys[next], next);
    }
    while (width > 0 && status == GA_OK) {
        for (uint32_t i = 0; i < width && status == GA_OK; i++) {
            sight saw = step(&w, &glances[i]);
            if (saw == GOES_ON) {
                continue;
            }
            status = answer(map, &w, &glances[i], saw, found);
            if (next < n) {
                begin_glance(&w, &glances[i], keys[next], next);
                next++;
            } else {
                glances[i] = glances[--width];
            }
        }
    }
    end_glances(&w);
    return status;
}

/* All of them to their ends: what they have met is near. */
static void glance_at_all(walk *w, glance *glances, sight *saw, uint32_t width)
{
    uint32_t going = width;
    for (uint32_t i = 0; i < width; i++) {
        saw[i] = GOES_ON;
    }
    while (going > 0) {
        for (uint32_t i = 0; i < width; i++) {
            if (saw[i] == GOES_ON) {
                saw[i] = step(w, &glances[i]);
                going -= saw[i] != GOES_ON;
            }
        }
    }
}

/* As many keys as fit, in their order. How many were put in, or found, without a failure. */
static ga_status insert_some(ga_lfht *map, walk *w, const uint64_t *keys, const uint64_t *values,
                             uint32_t width, ga_lfht_found *was, size_t *done)
{
    glance glances[LFHT_WIDTH];
    sight saw[LFHT_WIDTH];
    ga_status status = GA_OK;
    place_glances(map, glances);
    for (uint32_t i = 0; i < width; i++) {
        begin_glance(w, &glances[i], keys[i], i);
    }
    glance_at_all(w, glances, saw, width);
    for (uint32_t i = 0; i < width && status == GA_OK; i++) {
        if (saw[i] == SEEN) {
            tell(was ? &was[i] : NULL, glances[i].leaf);
        } else {
            lfht_change change = {LFHT_INSERT, keys[i], values[i], 0};
            status = put_hashed(map, &change, glances[i].hash, was ? &was[i] : NULL);
        }
        *done += status == GA_OK;
    }
    return status;
}

static ga_status insert_batch(ga_lfht *map, const uint64_t *keys, const uint64_t *values, size_t n,
                              ga_lfht_found *was, size_t *done)
{
    walk w;
    ga_status status = begin(&w, map, 0, 0);
    if (status != GA_OK) {
        return status;
    }
    while (*done < n && status == GA_OK) {
        size_t first = *done;
        uint32_t width = n - first < LFHT_WIDTH ? (uint32_t)(n - first) : LFHT_WIDTH;
        status = insert_some(map, &w, keys + first, values + first, width, was ? was + first : NULL,
                             done);
    }
    end_glances(&w);
    return status;
}

/* Of as many as fit the keys are looked at, which brings the nodes near; then they are made. */
static ga_status do_some(ga_lfht *map, walk *w, ga_lfht_call *calls, uint32_t width, size_t *done)
{
    glance glances[LFHT_WIDTH];
    sight saw[LFHT_WIDTH];
    place_glances(map, glances);
    for (uint32_t i = 0; i < width; i++) {
        begin_glance(w, &glances[i], calls[i].key, i);
    }
    glance_at_all(w, glances, saw, width);
    return do_calls(map, calls, width, done);
}

static ga_status do_batch(ga_lfht *map, ga_lfht_call *calls, size_t n, size_t *done)
{
    walk w;
    ga_status status = begin(&w, map, 0, 0);
    if (status != GA_OK) {
        return status;
    }
    while (*done < n && status == GA_OK) {
        size_t left = n - *done;
        status =
            do_some(map, &w, calls + *done, left < LFHT_WIDTH ? (uint32_t)left : LFHT_WIDTH, done);
    }
    end_glances(&w);
    return status;
}

#define LFHT_VARIANT(variable, text, sequential)                                                   \
    const lfht_variant variable = {.put = put_key,                                                 \
                                   .remove = remove_key,                                           \
                                   .lookup = lookup,                                               \
                                   .lookup_batch = lookup_batch,                                   \
                                   .insert_batch = insert_batch,                                   \
                                   .do_batch = do_batch,                                           \
                                   .each = each,                                                   \
                                   .make_root = ga_lfht_make_root,                                 \
                                   .clear_root = ga_lfht_clear_root,                               \
                                   .fill_root = ga_lfht_fill_root,                                 \
                                   .root_keys = LFHT_ROOT_KEYS,                                    \
                                   .chunk = LFHT_CHUNK,                                            \
                                   .chain = LFHT_CHAIN,                                            \
                                   .most = LFHT_CHAIN_MOST,                                        \
                                   .hazards = LFHT_HAZARDS,                                        \
                                   .shrinks = LFHT_SHRINKS != LFHT_NEVER,                          \
                                   .seq_cst = (sequential),                                        \
                                   .name = (text)}

#endif
