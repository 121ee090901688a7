/* SPDX-License-Identifier: MIT
 *
 * INLINE's batches, and a map built at once.
 *
 * A batch is looked up in groups of keys. For a whole group the root's words are prefetched before
 * the first is read, then their targets, and so on. Three groups overlap: one begins, one takes
 * its second step, one is finished; so the memory accesses of each overlap with the work on the
 * others. A key whose cursor gives up (cursor.h) gets a call of its own.
 */
#ifndef GPUALLOC_LFHT_INLINE_BATCH_H
#define GPUALLOC_LFHT_INLINE_BATCH_H

#include "inline_put.h"

#include "mixed.h" /* after the functions that it calls */

enum {
    GROUP_CURSORS = 12,
    BATCH_GROUPS = 3,
    BATCH_CURSORS = BATCH_GROUPS * GROUP_CURSORS,
    RETIRE_BATCH_BYTES = 1 << 20 /* bytes: nodes are large, so limit the retired ones of a thread */
};

typedef struct cursor_group {
    inline_cursor cursors[GROUP_CURSORS];
    uint32_t count;
} cursor_group;

/* Drop a cursor; the last one takes its place, with the slots swapped. */
static void group_drop(cursor_group *group, uint32_t number)
{
    inline_cursor *c = &group->cursors[number];
    uint32_t slot = c->slot;
    *c = group->cursors[--group->count];
    group->cursors[group->count].slot = slot;
}

/* Let every cursor of the group take one step. Those that have ended are dropped; the order may
 * change. */
static ga_status group_step(const inline_call *call, cursor_group *group)
{
    ga_status status = GA_OK;
    for (uint32_t i = 0; i < group->count && status == GA_OK;) {
        inline_cursor *c = &group->cursors[i];
        cursor_result result = cursor_step(call, c, true);
        if (result == CURSOR_UNSURE) {
            status = lookup_slow(call->map, *c->key, c->hash, c->found);
        } else if (result == CURSOR_ANSWERED && call->map->counting) {
            count_lookup(call->map, c->depth);
        }
        if (result == CURSOR_CONTINUES) {
            i++;
        } else {
            group_drop(group, i);
        }
    }
    return status;
}

/* Begin a group: up to GROUP_CURSORS keys, and their first steps. */
static ga_status group_begin(const inline_call *call, cursor_group *group, const uint64_t *keys,
                             size_t n, ga_lfht_found *found)
{
    group->count = n < GROUP_CURSORS ? (uint32_t)n : GROUP_CURSORS;
    for (uint32_t i = 0; i < group->count; i++) {
        inline_cursor *c = &group->cursors[i];
        uint64_t hash = lfht_hash_of(call->map, keys[i]);
        *c = (inline_cursor){.key = &keys[i],
                             .found = &found[i],
                             .hash = hash,
                             .location = root_location(call->map, hash),
                             .used = call->map->root_bits,
                             .slot = c->slot};
        __builtin_prefetch(c->location);
    }
    return group_step(call, group);
}

/* Assign the hazard slots of group `number`, which is empty. */
static void group_assign_slots(cursor_group *group, uint32_t number)
{
    for (uint32_t i = 0; i < GROUP_CURSORS; i++) {
        group->cursors[i].slot = BATCH_SLOT_FIRST + 2 * (number * GROUP_CURSORS + i);
    }
    group->count = 0;
}

/* Begin a batch with all groups empty. */
static ga_status groups_begin(inline_call *call, cursor_group groups[BATCH_GROUPS], ga_lfht *map)
{
    for (uint32_t i = 0; i < BATCH_GROUPS; i++) {
        group_assign_slots(&groups[i], i);
    }
    return call_begin(call, map);
}

/* Rounds until the last group of n calls is finished. */
static size_t rounds_for(size_t n)
{
    return (n + GROUP_CURSORS - 1) / GROUP_CURSORS + BATCH_GROUPS - 1;
}

static void groups_end(const inline_call *call, uint32_t groups)
{
    for (uint32_t slot = 0; slot < 2 * groups * GROUP_CURSORS; slot++) {
        ga_hazard_clear(call->hazards, BATCH_SLOT_FIRST + slot);
    }
}

static ga_status variant_lookup_batch(ga_lfht *map, const uint64_t *keys, size_t n,
                                      ga_lfht_found *found)
{
    inline_call call;
    cursor_group groups[BATCH_GROUPS];
    size_t rounds = rounds_for(n);
    ga_status status = groups_begin(&call, groups, map);
    if (status != GA_OK) {
        return status;
    }
    for (size_t round = 0; round < rounds && status == GA_OK; round++) {
        size_t first = round * GROUP_CURSORS;
        if (first < n) {
            status = group_begin(&call, &groups[round % 3], keys + first, n - first, found + first);
        }
        status = status ? status : group_step(&call, &groups[(round + 2) % 3]);
        while (status == GA_OK && groups[(round + 1) % 3].count) {
            status = group_step(&call, &groups[(round + 1) % 3]);
        }
    }
    groups_end(&call, BATCH_GROUPS);
    return status;
}

/* Look up a group of keys, which brings their lines into the caches; then insert those that were
 * absent, in their order. */
static ga_status insert_group(const inline_call *call, cursor_group *group, const uint64_t *keys,
                              const uint64_t *values, uint32_t width, ga_lfht_found *was,
                              size_t *done)
{
    ga_lfht_found found[GROUP_CURSORS];
    ga_status status = group_begin(call, group, keys, width, found);
    while (status == GA_OK && group->count) {
        status = group_step(call, group);
    }
    for (uint32_t i = 0; i < width && status == GA_OK; i++) {
        lfht_change change = {LFHT_INSERT, keys[i], values[i], 0};
        if (!found[i].found) {
            status = variant_put(call->map, &change, &found[i]);
        }
        if (was && status == GA_OK) {
            was[i] = found[i];
        }
        *done += status == GA_OK;
    }
    return status;
}

static ga_status variant_insert_batch(ga_lfht *map, const uint64_t *keys, const uint64_t *values,
                                      size_t n, ga_lfht_found *was, size_t *done)
{
    inline_call call;
    cursor_group group;
    ga_status status = call_begin(&call, map);
    if (status != GA_OK) {
        return status;
    }
    group_assign_slots(&group, 0);
    while (status == GA_OK && *done < n) {
        size_t first = *done, left = n - first;
        status = insert_group(&call, &group, keys + first, values + first,
                              left < GROUP_CURSORS ? (uint32_t)left : GROUP_CURSORS,
                              was ? was + first : NULL, done);
    }
    groups_end(&call, 1);
    return status;
}

/* ---- mixed calls ---------------------------------------------------------------------------- */

/* Follow one link and prefetch its target. True if that is a link again. Lines and frozen or deep
 * nodes are left to the call itself. */
static inline bool cursor_approach(const inline_call *call, inline_cursor *c)
{
    lfht_word link = lfht_load(c->location);
    bool plain =
        link & LINE_LINK && line_node(link) && !(link & LINE_FROZEN) && !line_is_deep(link);
    return plain && cursor_descend(call, c, link) && line_is_index(link);
}

static void group_approach(const inline_call *call, cursor_group *group)
{
    for (uint32_t i = 0; i < group->count;) {
        if (cursor_approach(call, &group->cursors[i])) {
            i++;
        } else {
            group_drop(group, i);
        }
    }
}

/* Begin a group of calls: prefetch the root's words. */
static void group_begin_calls(const inline_call *call, cursor_group *group,
                              const ga_lfht_call *calls, size_t n)
{
    group->count = n < GROUP_CURSORS ? (uint32_t)n : GROUP_CURSORS;
    for (uint32_t i = 0; i < group->count; i++) {
        uint32_t slot = group->cursors[i].slot;
        group->cursors[i] =
            cursor_at_root(call->map, &calls[i].key, lfht_hash_of(call->map, calls[i].key));
        group->cursors[i].slot = slot;
        __builtin_prefetch(group->cursors[i].location);
    }
}

/* Groups overlap as in a batch of lookups: while the calls of one group are made, in their order,
 * the lines of the next are on their way. */
static ga_status variant_do_batch(ga_lfht *map, ga_lfht_call *calls, size_t n, size_t *done)
{
    inline_call call;
    cursor_group groups[BATCH_GROUPS];
    size_t rounds = rounds_for(n);
    ga_status status = groups_begin(&call, groups, map);
    if (status != GA_OK) {
        return status;
    }
    for (size_t round = 0; round < rounds && status == GA_OK; round++) {
        size_t first = round * GROUP_CURSORS, left = n - *done;
        if (first < n) {
            group_begin_calls(&call, &groups[round % 3], calls + first, n - first);
        }
        group_approach(&call, &groups[(round + 2) % 3]);
        while (groups[(round + 1) % 3].count) {
            group_approach(&call, &groups[(round + 1) % 3]);
        }
        if (round > 1) {
            status = batch_do_calls(map, calls + *done, left < GROUP_CURSORS ? left : GROUP_CURSORS,
                                    done);
        }
    }
    groups_end(&call, BATCH_GROUPS);
    return status;
}

/* ---- the root ------------------------------------------------------------------------------- */

static ga_status inline_make_root(ga_lfht *map, uint32_t bits)
{
    map->root_words = inline_alloc_node(map, (size_t)8 << bits);
    for (size_t i = 0; map->root_words && i < (size_t)1 << bits; i++) {
        map->root_words[i] = LINE_NULL_LINK;
    }
    return map->root_words ? GA_OK : GA_ERR_MEMORY;
}

static void inline_clear_root(ga_lfht *map)
{
    for (size_t i = 0; i < (size_t)1 << map->root_bits; i++) {
        inline_free_subtree(map, map->root_words[i]);
        map->root_words[i] = LINE_NULL_LINK;
    }
}

/* Merge pairs of sorted runs of `width` items. Stable. */
static void merge_runs(const lfht_item *from, lfht_item *to, size_t n, size_t width)
{
    for (size_t i = 0; i < n; i += 2 * width) {
        size_t left = i, middle = n - i < width ? n : i + width, right = middle;
        size_t end = n - i < 2 * width ? n : i + 2 * width;
        for (size_t k = i; k < end; k++) {
            bool from_left = left < middle && (right == end || from[left].hash <= from[right].hash);
            to[k] = from_left ? from[left++] : from[right++];
        }
    }
}

/* Sort by hash, stable. Returns the one of the two arrays that holds the result. */
static lfht_item *sort_by_hash(lfht_item *items, lfht_item *scratch, size_t n)
{
    for (size_t width = 1; width < n; width *= 2) {
        merge_runs(items, scratch, n, width);
        lfht_item *swap = items;
        items = scratch;
        scratch = swap;
    }
    return items;
}

/* Keep only the first of equal keys, in sorted items. Returns the number left. */
static size_t drop_duplicates(const ga_lfht *map, lfht_item *items, size_t n)
{
    size_t left = 0;
    for (size_t first = 0, end = 0; first < n; first = end) {
        while (end < n && items[end].hash == items[first].hash) {
            end++;
        }
        size_t stay = ga_lfht_drop_duplicates(map, items + first, end - first);
        for (size_t i = 0; i < stay; i++) {
            items[left++] = items[first + i];
        }
    }
    return left;
}

static bool inline_fill_root(ga_lfht *map, const size_t *ends, lfht_item *items, lfht_item *scratch)
{
    lfht_shard *shard = ga_lfht_own_shard(map);
    node_maker maker = {.map = map};
    uint64_t pairs = 0;
    for (size_t i = 0, first = 0; i < (size_t)1 << map->root_bits && !maker.failed; i++) {
        lfht_item *sorted = sort_by_hash(items + first, scratch + first, ends[i] - first);
        size_t left = drop_duplicates(map, sorted, ends[i] - first);
        map->root_words[i] =
            make_node_at_least(&maker, (node_plan){sorted, left, map->root_bits}, 0);
        pairs += left;
        first = ends[i];
    }
    if (!maker.failed) {
        lfht_count(&shard->inserted, pairs);
        lfht_count(&shard->expansions, maker.nodes);
    }
    return !maker.failed;
}

#endif
