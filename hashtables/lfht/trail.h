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
    TRAIL_MOST = 66
};

typedef struct trail_step {
    lfht_word *place;
    lfht_word link;
    uint32_t used; /* bits of the hash, before the node */
} trail_step;

typedef struct trail {
    ga_lfht *map;
    ga_hazards *mine;
    uint64_t hash, key;
    lfht_word *place; /* where it stands: no link to lines */
    lfht_word seen;
    uint32_t depth; /* nodes it has gone into */
    uint32_t used;  /* bits of the hash, before the place */
    uint32_t most;  /* slots in use */
    bool room;      /* the hash's line is wanted with room for a pair */
    trail_step steps[TRAIL_MOST];
} trail;

static inline ga_status trail_begin(trail *t, ga_lfht *map, uint64_t key, uint64_t hash)
{
    t->map = map;
    t->hash = hash;
    t->key = key;
    t->most = 0;
    t->room = false;
    return lfht_join(map, &t->mine);
}

static inline void trail_end(const trail *t)
{
    for (uint32_t slot = 0; slot < t->most; slot++) {
        ga_hazard_clear(t->mine, slot);
    }
}

/* The node is in the slot; nothing is confirmed. */
static inline void trail_hold(trail *t, uint32_t slot, const void *node)
{
    lfht_nap();
    ga_hazard_set(t->mine, slot, node);
    t->most = t->most > slot ? t->most : slot + 1;
}

/* The steps up from the last, of frozen links, end in one that is not, and all lead where they led.
 * `*top` is that one's. */
static bool trail_holds(const trail *t, uint32_t *top)
{
    for (uint32_t i = t->depth; i-- > 0;) {
        lfht_word now = ga_hazard_load(t->mine, t->steps[i].place);
        if (line_at(now) != line_at(t->steps[i].link)) {
            return false;
        }
        if (!(now & LINE_FROZEN)) {
            *top = i;
            return true;
        }
    }
    return false;
}

typedef enum trail_kept {
    TRAIL_KEPT = 0,
    TRAIL_CHANGED, /* the place leads elsewhere */
    TRAIL_LOST     /* the place itself is out of the map */
} trail_kept;

/* What the place leads to stays, in the slot. */
static inline trail_kept trail_keep(trail *t, lfht_word link)
{
    uint32_t top;
    trail_hold(t, t->depth, line_at(link));
    if (GA_LFHT_MUTANT == 1) {
        return TRAIL_KEPT;
    }
    if (ga_hazard_load(t->mine, t->place) != link) {
        return TRAIL_CHANGED;
    }
    if (!(link & LINE_FROZEN) || GA_LFHT_MUTANT == 16) {
        return TRAIL_KEPT;
    }
    return trail_holds(t, &top) ? TRAIL_KEPT : TRAIL_LOST;
}

static inline void trail_go_to_root(trail *t)
{
    t->depth = 0;
    t->used = t->map->root_bits;
    t->place = &t->map->words[t->hash >> (64 - t->used)];
}

static void trail_count_retry(const trail *t)
{
    if (t->map->counting) {
        lfht_add(&ga_lfht_lane(t->map)->retries, 1);
    }
}

/* From the place to the line of the hash, or a link to nothing or to a deep node, which is kept.
 */
static inline void trail_follow(trail *t)
{
    for (;;) {
        lfht_word word = lfht_read(t->place);
        t->seen = word;
        if (!(word & LINE_LINK) || !line_at(word)) {
            return;
        }
        trail_kept kept = trail_keep(t, word);
        if (kept == TRAIL_LOST) {
            trail_count_retry(t);
            trail_go_to_root(t);
        } else if (kept == TRAIL_KEPT) {
            if (line_is_deep(word)) {
                return;
            }
            t->steps[t->depth++] = (trail_step){t->place, word, t->used};
            t->place = line_place_of(word, t->used, t->hash);
            t->used += line_bits(word);
            if (!line_is_index(word)) { /* a line is two of the processor's */
                __builtin_prefetch((const char *)t->place + LINE_BYTES / 2);
            }
        }
    }
}

static inline void trail_find(trail *t)
{
    trail_go_to_root(t);
    trail_follow(t);
}

static inline lfht_word trail_node(const trail *t)
{
    return t->steps[t->depth - 1].link;
}

#endif
