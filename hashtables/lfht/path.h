/* SPDX-License-Identifier: MIT
 *
 * A thread's path through a map of lines, and the protection of the nodes on it. The slow paths of
 * INLINE use it (inline.c).
 *
 * STRUCTURE  root: words -> index: words -> node: lines -> ... A location is a word of the root or
 *            of an index, or the word of a line. The path records every location, from the root on,
 *            whose link it has followed.
 *
 * INVARIANT  T: all nodes on the path are protected, each in the hazard slot of its depth, and each
 *            was reachable from the root at some moment of the call. So was the content of a line:
 *            a line that is not frozen belongs to a reachable node, and a frozen one is unchanged
 *            since its node was reachable.
 *            Before a node is detached, all links to it and below it are frozen, except the one
 *            link that is swapped. So a link that is not frozen shows that its node is reachable. A
 *            frozen link shows nothing: the path is then checked upwards, until a link is not
 *            frozen and leads to the recorded node.
 *
 * ORDER      LW (words.h), RP and RS (gpualloc/reclaim.h).
 *
 * PROGRESS   A thread goes on from the words that it reads. It returns to the root if a node on its
 *            path has been detached.
 */
#ifndef GPUALLOC_LFHT_PATH_H
#define GPUALLOC_LFHT_PATH_H

#include "lines.h"

enum {
    /* The most nodes on a path: all but the last use a bit of the hash each, and the root uses
     * one. */
    PATH_STEPS_MAX = 66
};

typedef struct path_step {
    lfht_word *location;
    lfht_word link;
    uint32_t used; /* bits of the hash used above the node */
} path_step;

typedef struct inline_path {
    ga_lfht *map;
    ga_hazards *hazards;
    uint64_t hash, key;
    lfht_word *location; /* the position: not a link to lines */
    lfht_word seen;
    uint32_t depth;      /* nodes entered */
    uint32_t used;       /* bits of the hash used above the location */
    uint32_t slots_used; /* hazard slots in use */
    bool needs_room;     /* a rebuild must leave room for a pair in the hash's line */
    path_step steps[PATH_STEPS_MAX];
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

/* Set the slot to the node; nothing is validated. */
static inline void path_set_slot(inline_path *path, uint32_t slot, const void *node)
{
    lfht_test_yield();
    ga_hazard_set(path->hazards, slot, node);
    path->slots_used = path->slots_used > slot ? path->slots_used : slot + 1;
}

/* Check the path upwards from the last step: all links lead to the recorded nodes, up to one that
 * is not frozen, which ends the check. `*top` is that step. False: a node is detached. */
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
    PATH_CHANGED, /* the location leads elsewhere */
    PATH_DETACHED /* the location itself is in a detached node */
} path_protection;

/* Protect the node that the link at the location leads to, and validate. */
static inline path_protection path_protect(inline_path *path, lfht_word link)
{
    uint32_t top;
    path_set_slot(path, path->depth, line_node(link));
    if (GA_PLANTED(lfht_not_validated)) {
        return PATH_PROTECTED;
    }
    if (ga_hazard_load(path->hazards, path->location) != link) {
        return PATH_CHANGED;
    }
    if (!(link & LINE_FROZEN) || GA_PLANTED(lfht_frozen_link_trusted)) {
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

/* Descend from the location to the hash's line, or to a null link, or to a deep node, which is
 * protected. */
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
            if (!line_is_index(word)) { /* a line is two cache lines */
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
