/* SPDX-License-Identifier: MIT
 *
 * INLINE's batches, and a map filled at once.
 *
 * A batch is looked up in groups. Of each the root's words are fetched, all of them, before the
 * first is read, then what these lead to, and so on. Three groups take turns: one begins, one makes
 * its second step, the third is answered, so that what a group waits for comes while others go on.
 * What is not a glance's (glance.h) has a call of its own.
 */
#ifndef GPUALLOC_LFHT_INLINE_BATCH_H
#define GPUALLOC_LFHT_INLINE_BATCH_H

#include "inline_put.h"

#include "mixed.h" /* behind the calls */

enum {
    GLANCE_GROUP = 12,
    GLANCE_GROUPS = 3,
    GLANCE_WIDTH = GLANCE_GROUPS * GLANCE_GROUP,
    BATCH_BYTES = 1 << 20 /* nodes are large: a thread keeps no more of them */
};

typedef struct group {
    glance glances[GLANCE_GROUP];
    uint32_t count;
} group;

/* Its slots serve another. */
static void drop_glance(group *at, uint32_t number)
{
    glance *g = &at->glances[number];
    uint32_t slot = g->slot;
    *g = at->glances[--at->count];
    at->glances[at->count].slot = slot;
}

/* Those that go on stay, in any order. */
static ga_status step(const batch *b, group *at)
{
    ga_status status = GA_OK;
    for (uint32_t i = 0; i < at->count && status == GA_OK;) {
        glance *g = &at->glances[i];
        glance_sight saw = glance_at(b, g, true);
        if (saw == UNSURE) {
            status = lookup_hashed(b->map, *g->key, g->hash, g->found);
        } else if (saw == ANSWERED && b->map->counting) {
            count_lookup(b->map, g->depth);
        }
        if (saw == GOES_ON) {
            i++;
        } else {
            drop_glance(at, i);
        }
    }
    return status;
}

/* As many keys as make a group, on their way to their first lines. */
static ga_status begin_group(const batch *b, group *at, const uint64_t *keys, size_t n,
                             ga_lfht_found *found)
{
    at->count = n < GLANCE_GROUP ? (uint32_t)n : GLANCE_GROUP;
    for (uint32_t i = 0; i < at->count; i++) {
        glance *g = &at->glances[i];
        uint64_t hash = lfht_hash_of(b->map, keys[i]);
        *g = (glance){.key = &keys[i],
                      .found = &found[i],
                      .hash = hash,
                      .place = root_place(b->map, hash),
                      .used = b->map->root_bits,
                      .slot = g->slot};
        __builtin_prefetch(g->place);
    }
    return step(b, at);
}

/* Slots of `group`, where nothing is protected. */
static void place_glances(group *at, uint32_t number)
{
    for (uint32_t i = 0; i < GLANCE_GROUP; i++) {
        at->glances[i].slot = BATCH_SLOT_FIRST + 2 * (number * GLANCE_GROUP + i);
    }
    at->count = 0;
}

/* A batch whose groups take turns: none has begun. */
static ga_status begin_turns(batch *b, group groups[GLANCE_GROUPS], ga_lfht *map)
{
    for (uint32_t i = 0; i < GLANCE_GROUPS; i++) {
        place_glances(&groups[i], i);
    }
    return begin_batch(b, map);
}

/* As many turns as the groups of n calls take until the last one is answered. */
static size_t turns_of(size_t n)
{
    return (n + GLANCE_GROUP - 1) / GLANCE_GROUP + GLANCE_GROUPS - 1;
}

static void end_glances(const batch *b, uint32_t groups)
{
    for (uint32_t slot = 0; slot < 2 * groups * GLANCE_GROUP; slot++) {
        ga_hazard_clear(b->mine, BATCH_SLOT_FIRST + slot);
    }
}

static ga_status lookup_batch(ga_lfht *map, const uint64_t *keys, size_t n, ga_lfht_found *found)
{
    batch b;
    group groups[GLANCE_GROUPS];
    size_t turns = turns_of(n);
    ga_status status = begin_turns(&b, groups, map);
    if (status != GA_OK) {
        return status;
    }
    for (size_t turn = 0; turn < turns && status == GA_OK; turn++) {
        size_t first = turn * GLANCE_GROUP;
        if (first < n) {
            status = begin_group(&b, &groups[turn % 3], keys + first, n - first, found + first);
        }
        status = status ? status : step(&b, &groups[(turn + 2) % 3]);
        while (status == GA_OK && groups[(turn + 1) % 3].count) {
            status = step(&b, &groups[(turn + 1) % 3]);
        }
    }
    end_glances(&b, GLANCE_GROUPS);
    return status;
}

/* As many keys as make a group are looked up, which brings their lines near; then those that were
 * not there go in, in their order. */
static ga_status insert_some(const batch *b, group *at, const uint64_t *keys,
                             const uint64_t *values, uint32_t width, ga_lfht_found *was,
                             size_t *done)
{
    ga_lfht_found found[GLANCE_GROUP];
    ga_status status = begin_group(b, at, keys, width, found);
    while (status == GA_OK && at->count) {
        status = step(b, at);
    }
    for (uint32_t i = 0; i < width && status == GA_OK; i++) {
        lfht_change change = {LFHT_INSERT, keys[i], values[i], 0};
        if (!found[i].found) {
            status = put_key(b->map, &change, &found[i]);
        }
        if (was && status == GA_OK) {
            was[i] = found[i];
        }
        *done += status == GA_OK;
    }
    return status;
}

static ga_status insert_batch(ga_lfht *map, const uint64_t *keys, const uint64_t *values, size_t n,
                              ga_lfht_found *was, size_t *done)
{
    batch b;
    group at;
    ga_status status = begin_batch(&b, map);
    if (status != GA_OK) {
        return status;
    }
    place_glances(&at, 0);
    while (status == GA_OK && *done < n) {
        size_t first = *done, left = n - first;
        status = insert_some(&b, &at, keys + first, values + first,
                             left < GLANCE_GROUP ? (uint32_t)left : GLANCE_GROUP,
                             was ? was + first : NULL, done);
    }
    end_glances(&b, 1);
    return status;
}

/* ---- any calls ------------------------------------------------------------------------------ */

/* One link further, with what that leads to on its way here. Whether it leads to another link:
 * what a line says is the call's to see, and what is frozen or deep. */
static inline bool approach(const batch *b, glance *g)
{
    lfht_word link = lfht_read(g->place);
    bool plain = link & LINE_LINK && line_at(link) && !(link & LINE_FROZEN) && !line_is_deep(link);
    return plain && glance_down(b, g, link) && line_is_index(link);
}

static void approach_all(const batch *b, group *at)
{
    for (uint32_t i = 0; i < at->count;) {
        if (approach(b, &at->glances[i])) {
            i++;
        } else {
            drop_glance(at, i);
        }
    }
}

/* The root's words for as many calls as make a group. */
static void begin_calls(const batch *b, group *at, const ga_lfht_call *calls, size_t n)
{
    at->count = n < GLANCE_GROUP ? (uint32_t)n : GLANCE_GROUP;
    for (uint32_t i = 0; i < at->count; i++) {
        uint32_t slot = at->glances[i].slot;
        at->glances[i] = glance_of(b->map, &calls[i].key, lfht_hash_of(b->map, calls[i].key));
        at->glances[i].slot = slot;
        __builtin_prefetch(at->glances[i].place);
    }
}

/* Groups take turns as in a lookup's batch: while the calls of one are made, in their order, the
 * lines of the next are on their way. */
static ga_status do_batch(ga_lfht *map, ga_lfht_call *calls, size_t n, size_t *done)
{
    batch b;
    group groups[GLANCE_GROUPS];
    size_t turns = turns_of(n);
    ga_status status = begin_turns(&b, groups, map);
    if (status != GA_OK) {
        return status;
    }
    for (size_t turn = 0; turn < turns && status == GA_OK; turn++) {
        size_t first = turn * GLANCE_GROUP, left = n - *done;
        if (first < n) {
            begin_calls(&b, &groups[turn % 3], calls + first, n - first);
        }
        approach_all(&b, &groups[(turn + 2) % 3]);
        while (groups[(turn + 1) % 3].count) {
            approach_all(&b, &groups[(turn + 1) % 3]);
        }
        if (turn > 1) {
            status = do_calls(map, calls + *done, left < GLANCE_GROUP ? left : GLANCE_GROUP, done);
        }
    }
    end_glances(&b, GLANCE_GROUPS);
    return status;
}

/* ---- the root ------------------------------------------------------------------------------- */

static ga_status make_root(ga_lfht *map, uint32_t bits)
{
    map->words = line_alloc(map, (size_t)8 << bits);
    for (size_t i = 0; map->words && i < (size_t)1 << bits; i++) {
        map->words[i] = LINE_NOTHING;
    }
    return map->words ? GA_OK : GA_ERR_MEMORY;
}

static void clear_root(ga_lfht *map)
{
    for (size_t i = 0; i < (size_t)1 << map->root_bits; i++) {
        line_drop(map, map->words[i]);
        map->words[i] = LINE_NOTHING;
    }
}

/* Runs of `width` items are in order; two and two are merged. Equal ones stay in their order. */
static void merge(const lfht_item *from, lfht_item *to, size_t n, size_t width)
{
    for (size_t i = 0; i < n; i += 2 * width) {
        size_t a = i, middle = n - i < width ? n : i + width, b = middle;
        size_t end = n - i < 2 * width ? n : i + 2 * width;
        for (size_t k = i; k < end; k++) {
            bool left = a < middle && (b == end || from[a].hash <= from[b].hash);
            to[k] = left ? from[a++] : from[b++];
        }
    }
}

/* By hash, in one of the two arrays. */
static lfht_item *in_order(lfht_item *items, lfht_item *other, size_t n)
{
    for (size_t width = 1; width < n; width *= 2) {
        merge(items, other, n, width);
        lfht_item *swap = items;
        items = other;
        other = swap;
    }
    return items;
}

/* How many are left, of items in order, when only the first of equal keys stays. */
static size_t drop_equals(const ga_lfht *map, lfht_item *items, size_t n)
{
    size_t left = 0;
    for (size_t first = 0, end = 0; first < n; first = end) {
        while (end < n && items[end].hash == items[first].hash) {
            end++;
        }
        size_t stay = ga_lfht_drop_equals(map, items + first, end - first);
        for (size_t i = 0; i < stay; i++) {
            items[left++] = items[first + i];
        }
    }
    return left;
}

static bool fill_root(ga_lfht *map, const size_t *ends, lfht_item *items, lfht_item *other)
{
    lfht_lane *lane = ga_lfht_lane(map);
    maker m = {.map = map};
    uint64_t pairs = 0;
    for (size_t i = 0, first = 0; i < (size_t)1 << map->root_bits && !m.failed; i++) {
        lfht_item *sorted = in_order(items + first, other + first, ends[i] - first);
        size_t left = drop_equals(map, sorted, ends[i] - first);
        map->words[i] = make_node(&m, (plan){sorted, left, map->root_bits}, 0);
        pairs += left;
        first = ends[i];
    }
    if (!m.failed) {
        lfht_add(&lane->inserted, pairs);
        lfht_add(&lane->expansions, m.nodes);
    }
    return !m.failed;
}

#endif
