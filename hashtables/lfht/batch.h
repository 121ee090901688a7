/* SPDX-License-Identifier: MIT
 *
 * Batches of calls: several keys are on their way at once, so that the memory accesses of one key
 * overlap with the work on others. Included by the file of each variant; includes the single
 * calls.
 *
 * STRUCTURE  A cursor is one key's way down. It only reads. Each step visits one node, which was
 *            prefetched, and ends with the prefetch of the next. A cursor that meets a chain in
 *            change (a removal, an expansion, a freezing, a changed word) gives up, and the key is
 *            looked up by a call of its own.
 *
 * INVARIANT  H (walk.h), with hazard slots of its own for each cursor: two for the node and its
 *            child, and two for a leaf and its successor, which take turns. A bucket that leads to
 *            a hash node leads to the next level, and the level determines the number of bits, so
 *            the cursor need not read it from the node.
 *
 * ORDER      As in a lookup: LW2, and RP with hazard pointers.
 *
 * PROGRESS   A cursor takes at most as many steps as the trie has levels and its chains leaves.
 */
#ifndef GPUALLOC_LFHT_BATCH_H
#define GPUALLOC_LFHT_BATCH_H

#include "update.h"

#include "mixed.h" /* after the functions that it calls */

typedef struct cursor {
    lfht_hash_node *node;
    const lfht_word *location; /* in the node, or in a leaf of its chain; protected */
    lfht_word seen;            /* the word read there; its target is prefetched, not protected */
    lfht_leaf *leaf;           /* the leaf with the key */
    uint64_t hash, key;
    uint32_t level, used; /* level, and hash bits above it, of the node */
    uint32_t count;       /* leaves met in this bucket */
    uint32_t slot;        /* the first of its hazard slots */
    size_t key_index;     /* in the caller's arrays */
} cursor;

typedef enum cursor_result {
    CURSOR_CONTINUES = 0,
    CURSOR_FOUND,  /* the key is in `leaf` */
    CURSOR_ABSENT, /* the key is absent */
    CURSOR_UNSURE
} cursor_result;

/* ---- one key -------------------------------------------------------------------------------- */

LFHT_INLINE uint32_t cursor_bits(const ga_lfht *map, const cursor *c)
{
    return c->level ? map->chunk : map->root->bits;
}

LFHT_INLINE lfht_word *cursor_bucket(const cursor *c, lfht_hash_node *node, uint32_t used,
                                     uint32_t bits)
{
    return &node->buckets[c->hash << used >> (64 - bits)];
}

/* Prefetch the target of the word; of a hash node only the bucket. */
LFHT_INLINE void cursor_prefetch(const ga_lfht *map, const cursor *c, lfht_word word)
{
    uint32_t used = c->used + cursor_bits(map, c);
    if (lfht_kind(word) == LFHT_LEAF) {
        __builtin_prefetch(lfht_pointer(word));
    } else if (lfht_pointer(word) != c->node && used < 64) {
        __builtin_prefetch(cursor_bucket(c, lfht_pointer(word), used, map->chunk));
    }
}

LFHT_INLINE void cursor_load(walk *w, cursor *c, const lfht_word *location)
{
    if (LFHT_HAZARDS == LFHT_HAZARD_PAIRS) { /* before the bucket is read */
        lfht_pair_level(w->hazards, c->slot, c->level);
    }
    c->location = location;
    c->seen = walk_load(w, location);
    cursor_prefetch(w->map, c, c->seen);
}

LFHT_INLINE void cursor_begin(walk *w, cursor *c, uint64_t key, size_t number)
{
    uint64_t hash = lfht_hash_of(w->map, key);
    if (LFHT_HAZARDS == LFHT_HAZARD_PAIRS) {
        lfht_pair_hash(w->hazards, c->slot, hash);
    }
    c->node = w->map->root;
    c->hash = hash;
    c->key = key;
    c->level = c->used = c->count = 0;
    c->key_index = number;
    __builtin_prefetch(cursor_bucket(c, c->node, 0, c->node->bits));
    c->location = NULL;
}

/* Enter the child that the bucket leads to. */
LFHT_INLINE cursor_result cursor_descend(walk *w, cursor *c)
{
    lfht_hash_node *child = lfht_pointer(c->seen);
    if (!walk_protect(w, c->slot + c->level % 2, child, c->location, c->seen)) {
        return CURSOR_UNSURE;
    }
    c->used += cursor_bits(w->map, c);
    c->level++;
    c->node = child;
    cursor_load(w, c, cursor_bucket(c, child, c->used, cursor_bits(w->map, c)));
    return CURSOR_CONTINUES;
}

/* Visit the leaf that the word leads to. */
LFHT_INLINE cursor_result cursor_visit_leaf(walk *w, cursor *c)
{
    lfht_leaf *leaf = lfht_pointer(c->seen);
    bool last = c->used + cursor_bits(w->map, c) >= 64;
    if ((c->count >= w->map->chain && !last) ||
        !walk_protect(w, c->slot + 2 + c->count % 2, leaf, c->location, c->seen)) {
        return CURSOR_UNSURE;
    }
    c->count++;
    lfht_word next = walk_load(w, &leaf->next);
    if (next & LFHT_GONE || lfht_level(next) != c->level) {
        return CURSOR_UNSURE;
    }
    if (leaf_has_key(w->map, c->hash, c->key, leaf)) {
        c->leaf = leaf;
        return CURSOR_FOUND;
    }
    c->location = &leaf->next;
    c->seen = next;
    cursor_prefetch(w->map, c, next);
    return CURSOR_CONTINUES;
}

/* Visit the next node. */
LFHT_INLINE cursor_result cursor_step(walk *w, cursor *c)
{
    cursor_result result;
    if (!c->location) {
        cursor_load(w, c, cursor_bucket(c, c->node, 0, w->map->root->bits));
        result = CURSOR_CONTINUES;
    } else if (lfht_kind(c->seen) == LFHT_LEAF) {
        result = cursor_visit_leaf(w, c);
    } else {
        result = cursor_descend(w, c);
    }
    if (result != CURSOR_CONTINUES || lfht_kind(c->seen) == LFHT_LEAF) {
        return result;
    }
    if (lfht_is_empty_bucket(c->node, c->seen)) {
        return CURSOR_ABSENT;
    }
    /* A hash node behind a leaf means that the chain is moving. */
    bool child = lfht_kind(c->seen) == LFHT_HASH && !(c->seen & LFHT_GONE);
    return child && c->count == 0 ? CURSOR_CONTINUES : CURSOR_UNSURE;
}

/* ---- several keys --------------------------------------------------------------------------- */

LFHT_INLINE uint32_t cursor_slot(const ga_lfht *map, uint32_t number)
{
    return LFHT_HAZARDS == LFHT_HAZARD_PAIRS
               ? LFHT_PAIR_SLOTS * (1 + number)
               : LFHT_SLOT_LEAVES + map->leaf_slots + LFHT_CURSOR_SLOTS * number;
}

LFHT_INLINE void cursors_end(walk *w)
{
    uint32_t last = cursor_slot(w->map, LFHT_BATCH_WIDTH);
    for (uint32_t slot = cursor_slot(w->map, 0); LFHT_HAZARDS && slot < last; slot++) {
        ga_hazard_clear(w->hazards, slot);
    }
    walk_end(w);
}

LFHT_INLINE void cursors_assign_slots(const ga_lfht *map, cursor *cursors)
{
    for (uint32_t i = 0; i < LFHT_BATCH_WIDTH; i++) {
        cursors[i].slot = cursor_slot(map, i);
    }
}

/* Store the result of a cursor that has ended. If it gave up, look the key up by a single call. */
static ga_status cursor_answer(ga_lfht *map, walk *w, const cursor *c, cursor_result result,
                               ga_lfht_found *found)
{
    if (result == CURSOR_UNSURE) {
        return variant_lookup(map, c->key, &found[c->key_index]);
    }
    found[c->key_index] =
        (ga_lfht_found){result == CURSOR_FOUND, result == CURSOR_FOUND ? c->leaf->value : 0};
    if (map->counting) {
        lfht_count(&w->shard->lookups, 1);
        lfht_count(&w->shard->hops, c->level + 1 + c->count);
        lfht_count_depth(w->shard, c->level);
    }
    return GA_OK;
}

/* A cursor that has its result takes the next key. */
static ga_status variant_lookup_batch(ga_lfht *map, const uint64_t *keys, size_t n,
                                      ga_lfht_found *found)
{
    walk w;
    cursor cursors[LFHT_BATCH_WIDTH];
    uint32_t width = 0;
    size_t next = 0;
    ga_status status = walk_begin(&w, map, 0, 0);
    if (status != GA_OK) {
        return status;
    }
    cursors_assign_slots(map, cursors);
    for (; width < LFHT_BATCH_WIDTH && next < n; width++, next++) {
        cursor_begin(&w, &cursors[width], keys[next], next);
    }
    while (width > 0 && status == GA_OK) {
        for (uint32_t i = 0; i < width && status == GA_OK; i++) {
            cursor_result result = cursor_step(&w, &cursors[i]);
            if (result == CURSOR_CONTINUES) {
                continue;
            }
            status = cursor_answer(map, &w, &cursors[i], result, found);
            if (next < n) {
                cursor_begin(&w, &cursors[i], keys[next], next);
                next++;
            } else {
                cursors[i] = cursors[--width];
            }
        }
    }
    cursors_end(&w);
    return status;
}

/* Run all cursors to their ends. The nodes that they met are in the caches then. */
static void cursors_run(walk *w, cursor *cursors, cursor_result *result, uint32_t width)
{
    uint32_t going = width;
    for (uint32_t i = 0; i < width; i++) {
        result[i] = CURSOR_CONTINUES;
    }
    while (going > 0) {
        for (uint32_t i = 0; i < width; i++) {
            if (result[i] == CURSOR_CONTINUES) {
                result[i] = cursor_step(w, &cursors[i]);
                going -= result[i] != CURSOR_CONTINUES;
            }
        }
    }
}

/* Insert up to LFHT_BATCH_WIDTH keys, in their order. `*done` grows by those that were inserted or
 * found before a failure. */
static ga_status insert_group(ga_lfht *map, walk *w, const uint64_t *keys, const uint64_t *values,
                              uint32_t width, ga_lfht_found *was, size_t *done)
{
    cursor cursors[LFHT_BATCH_WIDTH];
    cursor_result result[LFHT_BATCH_WIDTH];
    ga_status status = GA_OK;
    cursors_assign_slots(map, cursors);
    for (uint32_t i = 0; i < width; i++) {
        cursor_begin(w, &cursors[i], keys[i], i);
    }
    cursors_run(w, cursors, result, width);
    for (uint32_t i = 0; i < width && status == GA_OK; i++) {
        if (result[i] == CURSOR_FOUND) {
            set_result(was ? &was[i] : NULL, cursors[i].leaf);
        } else {
            lfht_change change = {LFHT_INSERT, keys[i], values[i], 0};
            status = put_with_hash(map, &change, cursors[i].hash, was ? &was[i] : NULL);
        }
        *done += status == GA_OK;
    }
    return status;
}

static ga_status variant_insert_batch(ga_lfht *map, const uint64_t *keys, const uint64_t *values,
                                      size_t n, ga_lfht_found *was, size_t *done)
{
    walk w;
    ga_status status = walk_begin(&w, map, 0, 0);
    if (status != GA_OK) {
        return status;
    }
    while (*done < n && status == GA_OK) {
        size_t first = *done;
        uint32_t width = n - first < LFHT_BATCH_WIDTH ? (uint32_t)(n - first) : LFHT_BATCH_WIDTH;
        status = insert_group(map, &w, keys + first, values + first, width,
                              was ? was + first : NULL, done);
    }
    cursors_end(&w);
    return status;
}

/* Run cursors for up to LFHT_BATCH_WIDTH calls, which brings the nodes into the caches, then make
 * the calls. */
static ga_status do_group(ga_lfht *map, walk *w, ga_lfht_call *calls, uint32_t width, size_t *done)
{
    cursor cursors[LFHT_BATCH_WIDTH];
    cursor_result result[LFHT_BATCH_WIDTH];
    cursors_assign_slots(map, cursors);
    for (uint32_t i = 0; i < width; i++) {
        cursor_begin(w, &cursors[i], calls[i].key, i);
    }
    cursors_run(w, cursors, result, width);
    return batch_do_calls(map, calls, width, done);
}

static ga_status variant_do_batch(ga_lfht *map, ga_lfht_call *calls, size_t n, size_t *done)
{
    walk w;
    ga_status status = walk_begin(&w, map, 0, 0);
    if (status != GA_OK) {
        return status;
    }
    while (*done < n && status == GA_OK) {
        size_t left = n - *done;
        status = do_group(map, &w, calls + *done,
                          left < LFHT_BATCH_WIDTH ? (uint32_t)left : LFHT_BATCH_WIDTH, done);
    }
    cursors_end(&w);
    return status;
}

#define LFHT_VARIANT(variable, text, sequential)                                                   \
    const lfht_variant variable = {.put = variant_put,                                             \
                                   .remove = variant_remove,                                       \
                                   .lookup = variant_lookup,                                       \
                                   .lookup_batch = variant_lookup_batch,                           \
                                   .insert_batch = variant_insert_batch,                           \
                                   .do_batch = variant_do_batch,                                   \
                                   .each = variant_each,                                           \
                                   .make_root = ga_lfht_make_root,                                 \
                                   .clear_root = ga_lfht_clear_root,                               \
                                   .fill_root = ga_lfht_fill_root,                                 \
                                   .keys_per_bucket = LFHT_KEYS_PER_BUCKET,                        \
                                   .chunk = LFHT_CHUNK,                                            \
                                   .chain = LFHT_CHAIN,                                            \
                                   .chain_max = LFHT_CHAIN_MAX,                                    \
                                   .protection = LFHT_HAZARDS,                                     \
                                   .shrinks = LFHT_SHRINKS != LFHT_NEVER,                          \
                                   .seq_cst = (sequential),                                        \
                                   .name = (text)}

#endif
