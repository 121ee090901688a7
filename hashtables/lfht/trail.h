/* SPDX-License-Identifier: MIT
 *
 * The way of a thread through a map of lines, and what it protects.
 *
 * STRUCTURE  root: words -> index: words -> node: lines -> ...     a place is a word of the root or
 *            of an index, or that of a line; the trail has all places from the root on whose links
 *            it has followed.
 *
 * INVARIANT  T: all nodes on the trail are protected, each in the slot of its depth, and each was
 *            reachable from the root at some moment of the call. So was what is found in a line: a
 *            line that is not frozen belongs to a node that is reachable, and a frozen one is what
 *            it was when its node was.
 *            Before a node is taken out all links to it and below it, but the one that is swapped,
 *            are frozen, and that one is not. So a link that is not frozen says that its node is
 *            reachable; one that is says nothing: the trail is looked at again, upwards, until one
 *            is not frozen and leads where it led.
 *
 * ORDER      W (words.h), P and S (gpualloc/reclaim.h).
 *
 * PROGRESS   A thread goes on from what it reads; it goes back to the root where a node on its
 *            trail has been taken out.
 */
#ifndef GPUALLOC_LFHT_TRAIL_H
#define GPUALLOC_LFHT_TRAIL_H

#include "lines.h"

enum {
    /* Nodes above one another: but for the last each takes a bit, and the root takes one. */
    PATH_STEPS_MOST = 66
};

typedef struct path_step {
    lfht_word *location;
    lfht_word link;
    uint32_t used; /* bits of the hash, before the node */
} path_step;

typedef struct inline_path {
    ga_lfht *map;
    ga_hazards *hazards;
    uint64_t hash, key;
    lfht_word *location; /* where it stands: no link to lines */
    lfht_word seen;
    uint32_t depth;      /* nodes it has gone into */
    uint32_t used;       /* bits of the hash, before the place */
    uint32_t slots_used; /* slots in use */
    bool needs_room;     /* the hash's line is wanted with room for a pair */
    path_step steps[PATH_STEPS_MOST];
} inline_path;

static inline ga_status path_begin(inline_path *path, ga_lfht *map, uint64_t key, uint64_t hash)
{
    path->map = map;
    path->hash = hash;
    path->key = key;
    path->slots_used = 0;
    path->needs_room = false;
    return lfht_get_hazards(map, &path->hazards);
}

static inline void path_end(const inline_path *path)
{
    for (uint32_t slot = 0; slot < path->slots_used; slot++) {
        ga_hazard_clear(path->hazards, slot);
    }
}

/* The node is in the slot; nothing is confirmed. */
static inline void path_set_slot(inline_path *path, uint32_t slot, const void *node)
{
    lfht_test_yield();
    ga_hazard_set(path->hazards, slot, node);
    path->slots_used = path->slots_used > slot ? path->slots_used : slot + 1;
}

/* The steps up from the last, of frozen links, end in one that is not, and all lead where they led.
 * `*top` is that one's. */
static bool path_is_attached(const inline_path *path, uint32_t *top)
{
    for (uint32_t i = path->depth; i-- > 0;) {
        lfht_word now = ga_hazard_load(path->hazards, path->steps[i].location);
        if (line_node(now) != line_node(path->steps[i].link)) {
            return false;
        }
        if (!(now & LINE_FROZEN)) {
            *top = i;
            return true;
        }
    }
    return false;
}

typedef enum path_protection {
    PATH_PROTECTED = 0,
    PATH_CHANGED, /* the place leads elsewhere */
    PATH_DETACHED /* the place itself is out of the map */
} path_protection;

/* What the place leads to stays, in the slot. */
static inline path_protection path_protect(inline_path *path, lfht_word link)
{
    uint32_t top;
    path_set_slot(path, path->depth, line_node(link));
    if (GA_LFHT_MUTANT == 1) {
        return PATH_PROTECTED;
    }
    if (ga_hazard_load(path->hazards, path->location) != link) {
        return PATH_CHANGED;
    }
    if (!(link & LINE_FROZEN) || GA_LFHT_MUTANT == 16) {
        return PATH_PROTECTED;
    }
    return path_is_attached(path, &top) ? PATH_PROTECTED : PATH_DETACHED;
}

static inline void path_go_to_root(inline_path *path)
{
    path->depth = 0;
    path->used = path->map->root_bits;
    path->location = &path->map->root_words[path->hash >> (64 - path->used)];
}

static void path_count_retry(const inline_path *path)
{
    if (path->map->counting) {
        lfht_count(&ga_lfht_own_shard(path->map)->retries, 1);
    }
}

/* From the place to the line of the hash, or a link to nothing or to a deep node, which is kept.
 */
static inline void path_descend(inline_path *path)
{
    for (;;) {
        lfht_word word = lfht_load(path->location);
        path->seen = word;
        if (!(word & LINE_LINK) || !line_node(word)) {
            return;
        }
        path_protection protection = path_protect(path, word);
        if (protection == PATH_DETACHED) {
            path_count_retry(path);
            path_go_to_root(path);
        } else if (protection == PATH_PROTECTED) {
            if (line_is_deep(word)) {
                return;
            }
            path->steps[path->depth++] = (path_step){path->location, word, path->used};
            path->location = line_location_of(word, path->used, path->hash);
            path->used += line_hash_bits(word);
            if (!line_is_index(word)) { /* a line is two of the processor's */
                __builtin_prefetch((const char *)path->location + LINE_BYTES / 2);
            }
        }
    }
}

static inline void path_search(inline_path *path)
{
    path_go_to_root(path);
    path_descend(path);
}

static inline lfht_word path_last_link(const inline_path *path)
{
    return path->steps[path->depth - 1].link;
}

#endif
