/* SPDX-License-Identifier: MIT
 *
 * The calls of INLINE that look up or remove one key, or visit all keys. inline_put.h has those
 * that insert or replace, inline.c the rules and the call tree.
 */
#ifndef GPUALLOC_LFHT_INLINE_CALLS_H
#define GPUALLOC_LFHT_INLINE_CALLS_H

#include "cursor.h"
#include "rebuild.h"

/* ---- deep nodes: arrays that never change --------------------------------------------------- */

static uint64_t deep_search(const ga_lfht *map, const line_deep *deep, uint64_t key)
{
    uint64_t i = 0;
    while (i < deep->count && !lfht_same_key(map, deep->pairs[i].key, key)) {
        i++;
    }
    return i;
}

/* Copy the deep node without pair `at`, if there is one, and with `pair` at the end, unless that is
 * NULL. A null link if no pair is left. */
static ga_status deep_copy(ga_lfht *map, const line_deep *deep, uint64_t at, const line_pair *pair,
                           lfht_word *out)
{
    uint64_t count = deep->count - (at < deep->count) + (pair != NULL), n = 0;
    *out = LINE_NULL_LINK;
    if (count == 0) {
        return GA_OK;
    }
    line_deep *copy = inline_alloc_node(map, line_deep_size(count));
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
    *out = line_link_to(copy, LINE_SIZE_DEEP);
    return GA_OK;
}

/* Replace the deep node at the path's location with a copy, as deep_copy() makes it. */
static ga_status deep_replace(inline_path *path, uint64_t at, const line_pair *pair, bool *done)
{
    lfht_word link;
    if (path->seen & LINE_FROZEN) {
        return rebuild_help(path);
    }
    if (ga_hazard_reserve(path->hazards, 1) != GA_OK ||
        deep_copy(path->map, line_node(path->seen), at, pair, &link) != GA_OK) {
        return GA_ERR_MEMORY;
    }
    *done = lfht_cas(path->location, path->seen, link);
    if (!*done) {
        ga_free(path->map->heap, line_node(link));
        return GA_OK;
    }
    count_nodes(path, line_node(link) != NULL, 1);
    ga_hazard_retire_to(path->hazards, line_node(path->seen), line_node_size(path->seen),
                        path->map->heap);
    return GA_OK;
}

/* ---- lookup --------------------------------------------------------------------------------- */

/* Look the key up at the path's location. False if the line has changed: descend again. */
static inline bool path_read(const inline_path *path, ga_lfht_found *found)
{
    uint32_t cell;
    *found = (ga_lfht_found){false, 0};
    if (path->seen & LINE_LINK) {
        const line_deep *deep = line_node(path->seen);
        uint64_t at = deep ? deep_search(path->map, deep, path->key) : 0;
        if (deep && at < deep->count) {
            *found = (ga_lfht_found){true, deep->pairs[at].value};
        }
        return true;
    }
    line_result result = line_search(path->map, (const lfht_line *)path->location, path->seen,
                                     path->hash, path->key, &cell, &found->value);
    found->found = result == LINE_FOUND;
    found->value = found->found ? found->value : 0;
    return result != LINE_CHANGED;
}

static void count_lookup(const ga_lfht *map, uint32_t depth)
{
    lfht_shard *shard = ga_lfht_own_shard((ga_lfht *)map);
    lfht_count(&shard->lookups, 1);
    lfht_count(&shard->hops, depth + 1);
    lfht_count_depth(shard, depth);
}

static ga_status lookup_slow(ga_lfht *map, uint64_t key, uint64_t hash, ga_lfht_found *found)
{
    inline_path path;
    ga_status status = path_begin(&path, map, key, hash);
    if (status != GA_OK) {
        return status;
    }
    path_search(&path);
    while (!path_read(&path, found)) {
        path_descend(&path);
    }
    if (map->counting) {
        count_lookup(map, path.depth);
    }
    path_end(&path);
    return GA_OK;
}

/* Run the cursor to its end. */
static inline cursor_result cursor_run(const inline_call *call, inline_cursor *c, bool callbacks)
{
    cursor_result result = cursor_step(call, c, callbacks);
    while (result == CURSOR_CONTINUES) {
        result = cursor_step(call, c, callbacks);
    }
    cursor_end(call, c);
    return result;
}

/* variant_lookup() for maps with callbacks or counting, and for a thread's first call. */
static __attribute__((noinline)) ga_status lookup_general(ga_lfht *map, uint64_t key,
                                                          ga_lfht_found *found)
{
    inline_call call;
    inline_cursor c;
    ga_status status = cursor_begin(&call, &c, map, &key);
    if (status != GA_OK) {
        return status;
    }
    c.found = found;
    if (cursor_run(&call, &c, true) == CURSOR_UNSURE) {
        return lookup_slow(map, key, c.hash, found);
    }
    if (map->counting) {
        count_lookup(map, c.depth);
    }
    return GA_OK;
}

/* Fast path: a cursor, which writes only its hazard slots and calls no function. So few
 * instructions lie between the loads of this lookup and those of the next, and the processor waits
 * for several at once. */
static ga_status variant_lookup(ga_lfht *map, uint64_t key, ga_lfht_found *found)
{
    ga_hazards *hazards;
    if (!map->simple || !ga_member_join_fast(map->domain, &hazards)) {
        return lookup_general(map, key, found);
    }
    inline_call call = {map, hazards};
    inline_cursor c = cursor_at_root(map, &key, lfht_spread(key));
    c.found = found;
    return cursor_run(&call, &c, false) == CURSOR_UNSURE ? lookup_slow(map, key, c.hash, found)
                                                         : GA_OK;
}

/* ---- remove --------------------------------------------------------------------------------- */

static void set_result(ga_lfht_found *was, bool found, uint64_t value)
{
    if (was) {
        *was = (ga_lfht_found){found, found ? value : 0};
    }
}

/* Remove the key from the line at the path's location, if the line has not changed. `*done` is set
 * once the call has taken effect. */
static ga_status remove_from_line(inline_path *path, ga_lfht_found *was, bool *done)
{
    lfht_line *line = (lfht_line *)path->location;
    uint32_t cell = 0;
    uint64_t value = 0;
    line_result result =
        line_search(path->map, line, path->seen, path->hash, path->key, &cell, &value);
    if (result == LINE_CHANGED) {
        return GA_OK;
    }
    set_result(was, result == LINE_FOUND, value);
    if (result == LINE_ABSENT) {
        *done = true;
        return GA_OK;
    }
    if (path->seen & LINE_FROZEN) {
        return rebuild_help(path);
    }
    if (line_version_exhausted(path->seen)) {
        return rebuild_subtree(path, path->depth - 1);
    }
    lfht_word next = line_next_version(line_set_tag(path->seen, cell, LINE_TAG_FREE));
    *done = lfht_cas(&line->word, path->seen, next);
    if (*done) {
        lfht_count(&ga_lfht_own_shard(path->map)->removed, 1);
    }
    if (*done && !line_live_cells(next)) {
        compress_if_empty(path);
    }
    return GA_OK;
}

static ga_status remove_from_deep(inline_path *path, ga_lfht_found *was, bool *done)
{
    const line_deep *deep = line_node(path->seen);
    uint64_t at = deep ? deep_search(path->map, deep, path->key) : 0;
    bool found = deep && at < deep->count, last = found && deep->count == 1;
    set_result(was, found, found ? deep->pairs[at].value : 0);
    if (!found) {
        *done = true;
        return GA_OK;
    }
    ga_status status = deep_replace(path, at, NULL, done);
    if (*done) {
        lfht_count(&ga_lfht_own_shard(path->map)->removed, 1);
    }
    if (*done && last) {
        compress_if_empty(path);
    }
    return status;
}

static ga_status remove_slow(ga_lfht *map, uint64_t key, uint64_t hash, ga_lfht_found *was)
{
    inline_path path;
    bool done = false;
    ga_status status = path_begin(&path, map, key, hash);
    if (status != GA_OK) {
        return status;
    }
    while (status == GA_OK && !done) {
        path_search(&path);
        status = path.seen & LINE_LINK ? remove_from_deep(&path, was, &done)
                                       : remove_from_line(&path, was, &done);
    }
    path_end(&path);
    return status;
}

/* Fast path of a removal. False: the slow path is needed. */
static inline bool remove_fast(const inline_call *call, inline_cursor *c, ga_lfht_found *was,
                               bool *empties)
{
    lfht_word seen;
    uint32_t cell = 0;
    uint64_t value = 0;
    if (!cursor_to_line(call, c, &seen)) {
        return false;
    }
    lfht_line *line = (lfht_line *)c->location;
    line_result result = line_search(call->map, line, seen, c->hash, *c->key, &cell, &value);
    if (result == LINE_FOUND) {
        lfht_word next = line_next_version(line_set_tag(seen, cell, LINE_TAG_FREE));
        if (line_version_exhausted(seen) || !lfht_cas(&line->word, seen, next)) {
            return false;
        }
        lfht_count(&ga_lfht_own_shard(call->map)->removed, 1);
        *empties = !line_live_cells(next);
    }
    set_result(was, result == LINE_FOUND, value);
    return result != LINE_CHANGED;
}

/* remove_fast() has emptied the hash's line: descend with a path, which has the nodes above it. */
static void compress_after_remove(ga_lfht *map, uint64_t key, uint64_t hash)
{
    inline_path path;
    if (path_begin(&path, map, key, hash) == GA_OK) {
        path_search(&path);
        compress_if_empty(&path);
        path_end(&path);
    }
}

static ga_status variant_remove(ga_lfht *map, uint64_t key, ga_lfht_found *was)
{
    inline_call call;
    inline_cursor c;
    bool empties = false;
    ga_status status = cursor_begin(&call, &c, map, &key);
    if (status != GA_OK) {
        return status;
    }
    if (!remove_fast(&call, &c, was, &empties)) {
        status = remove_slow(map, key, c.hash, was);
    } else if (empties) {
        compress_after_remove(map, key, c.hash);
    }
    cursor_end(&call, &c);
    return status;
}

/* ---- visit all keys ------------------------------------------------------------------------- */

/* Copy the pairs at the path's location: a line's to `on_stack`, a deep node's to a block of the
 * heap. */
static ga_status copy_location(inline_path *path, line_pair *on_stack, void **on_heap, uint64_t *n)
{
    *n = 0;
    if (!(path->seen & LINE_LINK)) {
        while ((*n = line_copy_pairs((const lfht_line *)path->location, path->seen, on_stack)) ==
               LINE_NONE) {
            path_descend(path);
            if (path->seen & LINE_LINK) {
                return copy_location(path, on_stack, on_heap, n);
            }
        }
        return GA_OK;
    }
    const line_deep *deep = line_node(path->seen);
    if (!deep) {
        return GA_OK;
    }
    if (ga_alloc(path->map->heap, deep->count * sizeof *on_stack, 0, on_heap) != GA_OK) {
        return GA_ERR_MEMORY;
    }
    *n = deep->count;
    for (uint64_t i = 0; i < *n; i++) {
        ((line_pair *)*on_heap)[i] = deep->pairs[i];
    }
    return GA_OK;
}

/* Visit the pairs at the location of `*hash`, except hashes below `*hash`, which were visited when
 * the node had more lines. Then `*hash` is the first hash behind the location, or 0 after the last
 * one. */
static ga_status visit_location(ga_lfht *map, uint64_t *hash, ga_lfht_visit *visit, void *context,
                                bool *goes_on)
{
    inline_path path;
    line_pair on_stack[LINE_PAIRS];
    void *on_heap = NULL;
    uint64_t n, from = *hash;
    ga_status status = path_begin(&path, map, 0, from);
    if (status != GA_OK) {
        return status;
    }
    path_search(&path);
    status = copy_location(&path, on_stack, &on_heap, &n);
    *hash = path.used < 64 ? ((from >> (64 - path.used)) + 1) << (64 - path.used) : from + 1;
    path_end(&path);
    const line_pair *pairs = on_heap ? on_heap : on_stack;
    for (uint64_t i = 0; status == GA_OK && *goes_on && i < n; i++) {
        if (lfht_hash_of(map, pairs[i].key) >= from) {
            *goes_on = visit(context, pairs[i].key, pairs[i].value);
        }
    }
    ga_free(map->heap, on_heap);
    return status;
}

/* Without `visit` there is nothing to do: unfinished operations of other threads are freed with the
 * map. */
static ga_status variant_each(ga_lfht *map, ga_lfht_visit *visit, void *context)
{
    uint64_t hash = 0;
    bool goes_on = visit != NULL;
    ga_status status = GA_OK;
    while (status == GA_OK && goes_on) {
        status = visit_location(map, &hash, visit, context, &goes_on);
        goes_on = goes_on && hash != 0;
    }
    return status;
}

#endif
