/* SPDX-License-Identifier: MIT
 *
 * The calls of INLINE that insert a key or replace its value. inline.c has the rules and the call
 * tree.
 */
#ifndef GPUALLOC_LFHT_INLINE_PUT_H
#define GPUALLOC_LFHT_INLINE_PUT_H

#include "inline_calls.h"

/* True if the change has to write, given that the key is there (`found`, with `value`) or not. */
static inline bool change_writes(const lfht_change *change, bool found, uint64_t value)
{
    if (!found) {
        return change->kind == LFHT_INSERT || change->kind == LFHT_UPSERT;
    }
    return change->kind != LFHT_INSERT &&
           (change->kind != LFHT_COMPARE || value == change->expected);
}

static void count_put(ga_lfht *map, bool found)
{
    if (!found) {
        lfht_count(&ga_lfht_own_shard(map)->inserted, 1);
    }
}

/* Log2 of the lines for the keys that the options expect below one word of the root; 0 further
 * down. Growing there in steps would leave the memory of smaller nodes unused. */
static uint32_t lines_expected_log2(const inline_path *path)
{
    uint32_t max = least_of(path->map->chunk, LINE_NODE_LOG2);
    return path->depth ? 0 : lines_needed_log2(path->map, path->map->expected_per_bucket, max);
}

/* Replace the null link at the location with a new node that has the one pair. */
static ga_status put_at_null_link(inline_path *path, const lfht_change *change, bool *done)
{
    lfht_item item = {path->hash, change->key, change->value};
    node_maker maker = {.map = path->map};
    if (path->seen & LINE_FROZEN) {
        return rebuild_help(path);
    }
    lfht_word link =
        make_node_at_least(&maker, (node_plan){&item, 1, path->used}, lines_expected_log2(path));
    if (maker_finish(&maker, link) != GA_OK) {
        return GA_ERR_MEMORY;
    }
    *done = lfht_cas(path->location, path->seen, link);
    if (!*done) {
        inline_free_subtree(path->map, link);
        return GA_OK;
    }
    count_nodes(path, maker.nodes, 0);
    return GA_OK;
}

static ga_status put_at_link(inline_path *path, const lfht_change *change, ga_lfht_found *was,
                             bool *done)
{
    const line_deep *deep = line_node(path->seen);
    uint64_t at = deep ? deep_search(path->map, deep, path->key) : 0;
    bool found = deep && at < deep->count;
    uint64_t value = found ? deep->pairs[at].value : 0;
    line_pair pair = {change->key, change->value};
    set_result(was, found, value);
    if (!change_writes(change, found, value)) {
        *done = true;
        return GA_OK;
    }
    ga_status status =
        deep ? deep_replace(path, at, &pair, done) : put_at_null_link(path, change, done);
    if (*done) {
        count_put(path->map, found);
    }
    return status;
}

/* The state of a put in one line. */
typedef struct line_put {
    lfht_line *line;
    uint32_t claimed;  /* the cell that this call has claimed, or LINE_NONE */
    uint32_t cell;     /* the key's cell */
    uint64_t value;    /* ... and value, if `found` */
    bool found;        /* the key is in the line */
    bool must_restart; /* the node may be retired: do not touch the line, start again */
} line_put;

/* Nothing to write: free the claimed cell. False if the line has changed. */
static bool put_release_claim(const inline_path *path, const line_put *put)
{
    if (put->claimed == LINE_NONE || path->seen & LINE_FROZEN ||
        line_version_exhausted(path->seen)) {
        return true; /* a rebuild drops the claim */
    }
    lfht_word next = line_next_version(line_set_tag(path->seen, put->claimed, LINE_TAG_FREE));
    return lfht_cas(&put->line->word, path->seen, next);
}

/* True if the line has a free cell and, for a new key, fewer pairs than `chain`. */
static inline bool put_has_room(const ga_lfht *map, lfht_word seen, bool adds)
{
    return line_free_cells(seen) &&
           !(adds && line_count_cells(line_live_cells(seen)) >= map->chain);
}

/* Claim a cell and write the pair. `*seen` is the line's word then. False if the line has
 * changed. */
static inline bool put_claim_cell(line_put *put, lfht_word *seen, const lfht_change *change)
{
    uint32_t cell = line_first_cell(line_free_cells(*seen));
    lfht_word next = line_next_version(line_set_tag(*seen, cell, LINE_TAG_CLAIMED));
    if (!lfht_cas(&put->line->word, *seen, next)) {
        return false;
    }
    put->claimed = cell;
    *seen = next;
    line_write_pair(&put->line->pairs[cell], change->key, change->value);
    return true;
}

static inline bool put_publish(const line_put *put, lfht_word seen, uint64_t hash)
{
    lfht_word next = line_set_tag(seen, put->claimed, line_tag_of(hash));
    next = line_next_version(put->found ? line_set_tag(next, put->cell, LINE_TAG_FREE) : next);
    return lfht_cas(&put->line->word, seen, next);
}

/* Claim, write and publish the pair; or first make a place for it and start again. */
static ga_status put_pair(inline_path *path, line_put *put, const lfht_change *change, bool *done)
{
    bool adds = !put->found;
    path->needs_room = adds || path->map->chain == LINE_PAIRS;
    put->must_restart = true;
    if (path->seen & LINE_FROZEN) {
        return rebuild_help(path);
    }
    if (line_version_exhausted(path->seen)) {
        return rebuild_subtree(path, path->depth - 1);
    }
    if (put->claimed == LINE_NONE) {
        if (!put_has_room(path->map, path->seen, adds)) {
            return make_room(path);
        }
        put->must_restart = false;
        if (!put_claim_cell(put, &path->seen, change) || line_version_exhausted(path->seen)) {
            return GA_OK;
        }
    }
    put->must_restart = false;
    *done = put_publish(put, path->seen, path->hash);
    return GA_OK;
}

/* One attempt at the line, whose word is `seen`. */
static ga_status put_once(inline_path *path, line_put *put, const lfht_change *change,
                          ga_lfht_found *was, bool *done)
{
    line_result result = line_search(path->map, put->line, path->seen, path->hash, path->key,
                                     &put->cell, &put->value);
    if (GA_PLANTED(lfht_put_with_old_snapshot) && put->claimed != LINE_NONE) {
        result = put->found ? LINE_FOUND : LINE_ABSENT;
    }
    if (result == LINE_CHANGED) {
        return GA_OK;
    }
    put->found = result == LINE_FOUND;
    set_result(was, put->found, put->value);
    if (!change_writes(change, put->found, put->value)) {
        *done = put_release_claim(path, put);
        return GA_OK;
    }
    ga_status status = put_pair(path, put, change, done);
    if (*done) {
        count_put(path->map, put->found);
    }
    return status;
}

/* Repeat put_once() until it is done or the path has to be searched again. `fast` is the state of
 * put_fast(), whose claim may be in this line. */
static ga_status put_in_line(inline_path *path, const line_put *fast, const lfht_change *change,
                             ga_lfht_found *was, bool *done)
{
    line_put put = {.line = (lfht_line *)path->location, .claimed = LINE_NONE};
    if (put.line == fast->line || GA_PLANTED(lfht_claim_of_other_line_used)) {
        put.claimed = fast->claimed;
    }
    ga_status status = GA_OK;
    while (status == GA_OK && !*done && !put.must_restart) {
        status = put_once(path, &put, change, was, done);
        if (!*done && !put.must_restart) {
            path->seen = lfht_load(&put.line->word);
            put.must_restart = path->seen & LINE_LINK;
        }
    }
    return status;
}

/* Slow path of a put, after put_fast(). The cursor's hazard slots, which no path uses, still
 * protect its line's node. So a line at the same address is the same line, and the claim in it
 * belongs to this call. */
static ga_status put_slow(ga_lfht *map, const line_put *fast, const lfht_change *change,
                          uint64_t hash, ga_lfht_found *was)
{
    inline_path path;
    bool done = false;
    ga_status status = path_begin(&path, map, change->key, hash);
    if (status != GA_OK) {
        return status;
    }
    while (status == GA_OK && !done) {
        path_search(&path);
        status = path.seen & LINE_LINK ? put_at_link(&path, change, was, &done)
                                       : put_in_line(&path, fast, change, was, &done);
    }
    path_end(&path);
    return status;
}

/* Claim, write and publish. False if there is no room, or if the line has changed; it may have a
 * claim then. */
static inline bool put_fast_write(const inline_call *call, const inline_cursor *c, line_put *put,
                                  lfht_word seen, const lfht_change *change)
{
    return !line_version_exhausted(seen) && put_has_room(call->map, seen, !put->found) &&
           put_claim_cell(put, &seen, change) && !line_version_exhausted(seen) &&
           put_publish(put, seen, c->hash);
}

/* Fast path of a put. False if the line has no room, is frozen or has changed: the slow path is
 * needed. */
static inline bool put_fast(const inline_call *call, inline_cursor *c, line_put *put,
                            const lfht_change *change, ga_lfht_found *was)
{
    lfht_word seen;
    if (!cursor_to_line(call, c, &seen)) {
        return false;
    }
    put->line = (lfht_line *)c->location;
    line_result result =
        line_search(call->map, put->line, seen, c->hash, change->key, &put->cell, &put->value);
    put->found = result == LINE_FOUND;
    if (result == LINE_CHANGED) {
        return false;
    }
    if (change_writes(change, put->found, put->value)) {
        if (!put_fast_write(call, c, put, seen, change)) {
            return false;
        }
        count_put(call->map, put->found);
    }
    set_result(was, put->found, put->value);
    return true;
}

static ga_status variant_put(ga_lfht *map, const lfht_change *change, ga_lfht_found *was)
{
    inline_call call;
    inline_cursor c;
    line_put put = {.claimed = LINE_NONE};
    ga_status status = cursor_begin(&call, &c, map, &change->key);
    if (status != GA_OK) {
        return status;
    }
    if (!put_fast(&call, &c, &put, change, was)) {
        status = put_slow(map, &put, change, c.hash, was);
    }
    cursor_end(&call, &c);
    return status;
}

#endif
