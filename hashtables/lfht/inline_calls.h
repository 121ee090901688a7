/* SPDX-License-Identifier: MIT
 *
 * The calls of INLINE that look for one key or take it out, and for all keys; inline_put.h has those that
 * put one in, inline.c the rules.
 */
#ifndef GPUALLOC_LFHT_INLINE_CALLS_H
#define GPUALLOC_LFHT_INLINE_CALLS_H

#include "glance.h"
#include "rebuild.h"

/* ---- deep nodes: arrays that do not change -------------------------------------------------- */

static uint64_t deep_find(const ga_lfht *map, const line_deep *deep, uint64_t key)
{
    uint64_t i = 0;
    while (i < deep->count && !lfht_same_key(map, deep->pairs[i].key, key)) {
        i++;
    }
    return i;
}

/* A copy without pair `at`, if there is one, and with `pair` in its place or at the end, unless it
 * is NULL. A link to nothing where nothing is left. */
static ga_status deep_copy(ga_lfht *map, const line_deep *deep, uint64_t at, const line_pair *pair,
                           lfht_word *out)
{
    uint64_t count = deep->count - (at < deep->count) + (pair != NULL), n = 0;
    *out = LINE_NOTHING;
    if (count == 0) {
        return GA_OK;
    }
    line_deep *copy = line_alloc(map, line_deep_size(count));
    if (!copy) {
        return GA_ERR_MEMORY;
    }
    copy->count = count;
    for (uint64_t i = 0; i < deep->count; i++) {
        if (i != at) {
            copy->pairs[n++] = deep->pairs[i];
        }
    }
    if (pair) {
        copy->pairs[n] = *pair;
    }
    *out = line_to(copy, LINE_DEEP);
    return GA_OK;
}

/* The copy for the deep node that the trail has come to. */
static ga_status deep_replace(trail *t, uint64_t at, const line_pair *pair, bool *done)
{
    lfht_word link;
    if (t->seen & LINE_FROZEN) {
        return help(t);
    }
    if (ga_hazard_reserve(t->mine, 1) != GA_OK ||
        deep_copy(t->map, line_at(t->seen), at, pair, &link) != GA_OK) {
        return GA_ERR_MEMORY;
    }
    *done = lfht_swap(t->place, t->seen, link);
    if (!*done) {
        ga_free(t->map->heap, line_at(link));
        return GA_OK;
    }
    count_nodes(t, line_at(link) != NULL, 1);
    ga_hazard_retire_to(t->mine, line_at(t->seen), line_node_size(t->seen), t->map->heap);
    return GA_OK;
}

/* ---- lookup --------------------------------------------------------------------------------- */

/* What the place of a trail says. False where it has to be looked at again. */
static inline bool see(const trail *t, ga_lfht_found *found)
{
    uint32_t lane;
    *found = (ga_lfht_found){false, 0};
    if (t->seen & LINE_LINK) {
        const line_deep *deep = line_at(t->seen);
        uint64_t at = deep ? deep_find(t->map, deep, t->key) : 0;
        if (deep && at < deep->count) {
            *found = (ga_lfht_found){true, deep->pairs[at].value};
        }
        return true;
    }
    line_sight sight = line_find(t->map, (const lfht_line *)t->place, t->seen, t->hash, t->key,
                                 &lane, &found->value);
    found->found = sight == LINE_SEEN;
    found->value = found->found ? found->value : 0;
    return sight != LINE_CHANGED;
}

static void count_lookup(const ga_lfht *map, uint32_t depth)
{
    lfht_lane *lane = ga_lfht_lane((ga_lfht *)map);
    lfht_add(&lane->lookups, 1);
    lfht_add(&lane->hops, depth + 1);
    lfht_count_depth(lane, depth);
}

static ga_status lookup_hashed(ga_lfht *map, uint64_t key, uint64_t hash, ga_lfht_found *found)
{
    trail t;
    ga_status status = trail_begin(&t, map, key, hash);
    if (status != GA_OK) {
        return status;
    }
    trail_find(&t);
    while (!see(&t, found)) {
        trail_follow(&t);
    }
    if (map->counting) {
        count_lookup(map, t.depth);
    }
    trail_end(&t);
    return GA_OK;
}

/* To the end of a glance. */
static inline glance_sight glance_on(const batch *b, glance *g, bool calls)
{
    glance_sight saw = glance_at(b, g, calls);
    while (saw == GOES_ON) {
        saw = glance_at(b, g, calls);
    }
    end_glance(b, g);
    return saw;
}

/* In maps that are not simple, and in a thread's first call. */
static __attribute__((noinline)) ga_status lookup_calling(ga_lfht *map, uint64_t key,
                                                          ga_lfht_found *found)
{
    batch b;
    glance g;
    ga_status status = begin_glance(&b, &g, map, &key);
    if (status != GA_OK) {
        return status;
    }
    g.found = found;
    if (glance_on(&b, &g, true) == UNSURE) {
        return lookup_hashed(map, key, g.hash, found);
    }
    if (map->counting) {
        count_lookup(map, g.depth);
    }
    return GA_OK;
}

/* A glance, most often: it writes nothing but a slot or two and calls nothing, so few instructions
 * are between what this lookup waits for and what the next does, and the processor waits for
 * several at once. */
static ga_status lookup(ga_lfht *map, uint64_t key, ga_lfht_found *found)
{
    ga_hazards *mine;
    if (!map->simple || !ga_member_join_fast(map->domain, &mine)) {
        return lookup_calling(map, key, found);
    }
    batch b = {map, mine};
    glance g = glance_of(map, &key, lfht_spread(key));
    g.found = found;
    return glance_on(&b, &g, false) == UNSURE ? lookup_hashed(map, key, g.hash, found) : GA_OK;
}

/* ---- removing ------------------------------------------------------------------------------- */

static void tell(ga_lfht_found *was, bool found, uint64_t value)
{
    if (was) {
        *was = (ga_lfht_found){found, found ? value : 0};
    }
}

/* Where the line is still one with pairs, and has changed or not. */
static ga_status remove_from_line(trail *t, ga_lfht_found *was, bool *done)
{
    lfht_line *line = (lfht_line *)t->place;
    uint32_t lane = 0;
    uint64_t value = 0;
    line_sight sight = line_find(t->map, line, t->seen, t->hash, t->key, &lane, &value);
    if (sight == LINE_CHANGED) {
        return GA_OK;
    }
    tell(was, sight == LINE_SEEN, value);
    if (sight == LINE_ABSENT) {
        *done = true;
        return GA_OK;
    }
    if (t->seen & LINE_FROZEN) {
        return help(t);
    }
    if (line_worn(t->seen)) {
        return rebuild(t, t->depth - 1);
    }
    lfht_word next = line_raised(line_set(t->seen, lane, LINE_FREE));
    *done = lfht_swap(&line->word, t->seen, next);
    if (*done) {
        lfht_add(&ga_lfht_lane(t->map)->removed, 1);
    }
    if (*done && !line_live(next)) {
        emptied(t);
    }
    return GA_OK;
}

static ga_status remove_from_deep(trail *t, ga_lfht_found *was, bool *done)
{
    const line_deep *deep = line_at(t->seen);
    uint64_t at = deep ? deep_find(t->map, deep, t->key) : 0;
    bool found = deep && at < deep->count, last = found && deep->count == 1;
    tell(was, found, found ? deep->pairs[at].value : 0);
    if (!found) {
        *done = true;
        return GA_OK;
    }
    ga_status status = deep_replace(t, at, NULL, done);
    if (*done) {
        lfht_add(&ga_lfht_lane(t->map)->removed, 1);
    }
    if (*done && last) {
        emptied(t);
    }
    return status;
}

static ga_status remove_hashed(ga_lfht *map, uint64_t key, uint64_t hash, ga_lfht_found *was)
{
    trail t;
    bool done = false;
    ga_status status = trail_begin(&t, map, key, hash);
    if (status != GA_OK) {
        return status;
    }
    while (status == GA_OK && !done) {
        trail_find(&t);
        status = t.seen & LINE_LINK ? remove_from_deep(&t, was, &done)
                                    : remove_from_line(&t, was, &done);
    }
    trail_end(&t);
    return status;
}

/* The swap that takes the key out, if it is there. False where a trail is wanted. */
static inline bool remove_at_glance(const batch *b, glance *g, ga_lfht_found *was, bool *empties)
{
    lfht_word seen;
    uint32_t lane = 0;
    uint64_t value = 0;
    if (!glance_to_line(b, g, &seen)) {
        return false;
    }
    lfht_line *line = (lfht_line *)g->place;
    line_sight sight = line_find(b->map, line, seen, g->hash, *g->key, &lane, &value);
    if (sight == LINE_SEEN) {
        lfht_word next = line_raised(line_set(seen, lane, LINE_FREE));
        if (line_worn(seen) || !lfht_swap(&line->word, seen, next)) {
            return false;
        }
        lfht_add(&ga_lfht_lane(b->map)->removed, 1);
        *empties = !line_live(next);
    }
    tell(was, sight == LINE_SEEN, value);
    return sight != LINE_CHANGED;
}

/* The hash's line has become empty by a glance: a trail is looked for, with the nodes above it. */
static void emptied_hashed(ga_lfht *map, uint64_t key, uint64_t hash)
{
    trail t;
    if (trail_begin(&t, map, key, hash) == GA_OK) {
        trail_find(&t);
        emptied(&t);
        trail_end(&t);
    }
}

static ga_status remove_key(ga_lfht *map, uint64_t key, ga_lfht_found *was)
{
    batch b;
    glance g;
    bool empties = false;
    ga_status status = begin_glance(&b, &g, map, &key);
    if (status != GA_OK) {
        return status;
    }
    if (!remove_at_glance(&b, &g, was, &empties)) {
        status = remove_hashed(map, key, g.hash, was);
    } else if (empties) {
        emptied_hashed(map, key, g.hash);
    }
    end_glance(&b, &g);
    return status;
}

/* ---- all of them ---------------------------------------------------------------------------- */

/* What a place holds, copied: behind `few`, or, of a deep node, in a block of the heap. */
static ga_status copy_place(trail *t, line_pair *few, void **many, uint64_t *n)
{
    *n = 0;
    if (!(t->seen & LINE_LINK)) {
        while ((*n = line_copy((const lfht_line *)t->place, t->seen, few)) == LINE_NONE) {
            trail_follow(t);
            if (t->seen & LINE_LINK) {
                return copy_place(t, few, many, n);
            }
        }
        return GA_OK;
    }
    const line_deep *deep = line_at(t->seen);
    if (!deep) {
        return GA_OK;
    }
    if (ga_alloc(t->map->heap, deep->count * sizeof *few, 0, many) != GA_OK) {
        return GA_ERR_MEMORY;
    }
    *n = deep->count;
    for (uint64_t i = 0; i < *n; i++) {
        ((line_pair *)*many)[i] = deep->pairs[i];
    }
    return GA_OK;
}

/* Those at the place of `*hash` and not before it, which were seen when the node had more lines.
 * Then `*hash` is the first one behind the place; 0: there is none. */
static ga_status visit_place(ga_lfht *map, uint64_t *hash, ga_lfht_visit *visit, void *context,
                             bool *goes_on)
{
    trail t;
    line_pair few[LINE_PAIRS];
    void *many = NULL;
    uint64_t n, from = *hash;
    ga_status status = trail_begin(&t, map, 0, from);
    if (status != GA_OK) {
        return status;
    }
    trail_find(&t);
    status = copy_place(&t, few, &many, &n);
    *hash = t.used < 64 ? ((from >> (64 - t.used)) + 1) << (64 - t.used) : from + 1;
    trail_end(&t);
    const line_pair *pairs = many ? many : few;
    for (uint64_t i = 0; status == GA_OK && *goes_on && i < n; i++) {
        if (lfht_hash_of(map, pairs[i].key) >= from) {
            *goes_on = visit(context, pairs[i].key, pairs[i].value);
        }
    }
    ga_free(map->heap, many);
    return status;
}

/* Without `visit` nothing has to be done: what threads have left half done goes with the map. */
static ga_status each(ga_lfht *map, ga_lfht_visit *visit, void *context)
{
    uint64_t hash = 0;
    bool goes_on = visit != NULL;
    ga_status status = GA_OK;
    while (status == GA_OK && goes_on) {
        status = visit_place(map, &hash, visit, context, &goes_on);
        goes_on = goes_on && hash != 0;
    }
    return status;
}

#endif
