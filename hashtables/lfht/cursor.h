/* SPDX-License-Identifier: MIT
 *
 * Cursors: the fast path of INLINE. A cursor goes straight from the root to one key's line and
 * records no path. A lookup uses one, a batch many at once, and a change begins with one.
 *
 * A cursor follows only links that are neither frozen nor deep. It protects two nodes: the one of
 * its location, and the one above. T (path.h) holds without a path, because a link that is not
 * frozen, loaded after the hazard slot was set, shows that its node is reachable. Frozen, deep or
 * changed words are left to the slow path, which uses a path.
 */
#ifndef GPUALLOC_LFHT_CURSOR_H
#define GPUALLOC_LFHT_CURSOR_H

#include "path.h"

typedef struct inline_cursor {
    const uint64_t *key;
    ga_lfht_found *found;
    uint64_t hash;
    lfht_word *location;
    uint32_t used, slot, depth; /* hazard slots `slot` and `slot` + 1 take turns */
} inline_cursor;

typedef struct inline_call {
    ga_lfht *map;
    const ga_hazards *hazards;
} inline_call;

typedef enum cursor_result {
    CURSOR_CONTINUES = 0,
    CURSOR_ANSWERED,
    CURSOR_UNSURE
} cursor_result;

enum {
    /* Behind the slots of paths: a change keeps the nodes of its cursor protected while it descends
     * again with a path. */
    CURSOR_SLOT_FIRST = PATH_STEPS_MAX,
    /* Behind the slots of a single call's cursor, because a batch makes single calls while its own
     * cursors are on their way. */
    BATCH_SLOT_FIRST = CURSOR_SLOT_FIRST + 2
};

static inline lfht_word *root_location(const ga_lfht *map, uint64_t hash)
{
    return &map->root_words[hash >> (64 - map->root_bits)];
}

/* Follow the link, which is not deep. False if it has changed. */
static inline bool cursor_descend(const inline_call *call, inline_cursor *c, lfht_word link)
{
    uint32_t slot = c->slot + c->depth % 2;
    lfht_word *location = line_location_of(link, c->used, c->hash);
    __builtin_prefetch(location);
    if (!line_is_index(link)) { /* a line is two cache lines */
        __builtin_prefetch((const char *)location + LINE_BYTES / 2);
    }
    lfht_test_yield();
    ga_hazard_set(call->hazards, slot, line_node(link));
    c->depth++;
    if (!GA_PLANTED(lfht_not_validated) && ga_hazard_load(call->hazards, c->location) != link) {
        return false;
    }
    c->location = location;
    c->used += line_hash_bits(link);
    return true;
}

/* One step: search the line at the location, or follow its link. Without `callbacks` keys are
 * compared by their bits. */
static inline cursor_result cursor_step(const inline_call *call, inline_cursor *c, bool callbacks)
{
    uint32_t cell;
    uint64_t value;
    lfht_word word = lfht_load(c->location);
    if (word & LINE_LINK && line_node(word)) {
        bool plain = !(word & LINE_FROZEN) && !line_is_deep(word);
        return plain && cursor_descend(call, c, word) ? CURSOR_CONTINUES : CURSOR_UNSURE;
    }
    line_result result =
        word & LINE_LINK ? LINE_ABSENT
                         : line_search(callbacks ? call->map : NULL, (const lfht_line *)c->location,
                                       word, c->hash, *c->key, &cell, &value);
    *c->found = (ga_lfht_found){result == LINE_FOUND, result == LINE_FOUND ? value : 0};
    return result == LINE_CHANGED ? CURSOR_UNSURE : CURSOR_ANSWERED;
}

static inline ga_status call_begin(inline_call *call, ga_lfht *map)
{
    ga_hazards *hazards;
    ga_status status = lfht_get_hazards(map, &hazards);
    if (status == GA_OK) {
        *call = (inline_call){map, hazards};
    }
    return status;
}

/* ---- cursors of single calls ---------------------------------------------------------------- */

static inline inline_cursor cursor_at_root(const ga_lfht *map, const uint64_t *key, uint64_t hash)
{
    return (inline_cursor){.key = key,
                           .hash = hash,
                           .location = root_location(map, hash),
                           .used = map->root_bits,
                           .slot = CURSOR_SLOT_FIRST};
}

static inline ga_status cursor_begin(inline_call *call, inline_cursor *c, ga_lfht *map,
                                     const uint64_t *key)
{
    *c = cursor_at_root(map, key, lfht_hash_of(map, *key));
    return call_begin(call, map);
}

/* Clear the hazard slots that the cursor has set. */
static inline void cursor_end(const inline_call *call, const inline_cursor *c)
{
    if (c->depth > 0) {
        ga_hazard_clear(call->hazards, c->slot);
    }
    if (c->depth > 1) {
        ga_hazard_clear(call->hazards, c->slot + 1);
    }
}

/* Descend to the key's line, which is not frozen; `*seen` is its word. Its node is protected. A
 * swap from this word that succeeds shows that the line was in the map, because frozen words never
 * change. False: the slow path is needed. */
static inline bool cursor_to_line(const inline_call *call, inline_cursor *c, lfht_word *seen)
{
    for (;;) {
        lfht_word word = lfht_load(c->location);
        *seen = word;
        if (word & LINE_FROZEN && !GA_PLANTED(lfht_fast_lookup_in_frozen_line)) {
            return false;
        }
        if (!(word & LINE_LINK)) {
            return true;
        }
        if (!line_node(word) || line_is_deep(word) || !cursor_descend(call, c, word)) {
            return false;
        }
    }
}

#endif
