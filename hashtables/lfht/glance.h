/* SPDX-License-Identifier: MIT
 *
 * A glance: a look at one key on the straight way from the root to its line, without a trail. A
 * lookup is one; a batch has many at once; changes begin with one.
 *
 * It goes through links that are neither frozen nor deep, and protects two nodes: the one that the
 * place is in, and the one above. So T (trail.h) needs no trail: a link that is not frozen, seen
 * after the slot was set, says that its node is reachable. What is frozen, deep or has changed is
 * for a call with a trail.
 */
#ifndef GPUALLOC_LFHT_GLANCE_H
#define GPUALLOC_LFHT_GLANCE_H

#include "trail.h"

typedef struct glance {
    const uint64_t *key;
    ga_lfht_found *found;
    uint64_t hash;
    lfht_word *place;
    uint32_t used, slot, depth; /* this slot and the next, which take turns */
} glance;

typedef struct batch {
    ga_lfht *map;
    const ga_hazards *mine;
} batch;

typedef enum glance_sight {
    GOES_ON = 0,
    ANSWERED,
    UNSURE
} glance_sight;

enum {
    /* Behind those of trails: a change keeps what its glance has found while a trail goes there. */
    GLANCE_SLOT_FIRST = TRAIL_MOST,
    /* And behind those of a call's: others of its batch are on their way meanwhile. */
    BATCH_SLOT_FIRST = GLANCE_SLOT_FIRST + 2
};

static inline lfht_word *root_place(const ga_lfht *map, uint64_t hash)
{
    return &map->words[hash >> (64 - map->root_bits)];
}

/* Follow the link, which is no deep one's; false where it has changed. */
static inline bool glance_down(const batch *b, glance *g, lfht_word link)
{
    uint32_t slot = g->slot + g->depth % 2;
    lfht_word *place = line_place_of(link, g->used, g->hash);
    __builtin_prefetch(place);
    if (!line_is_index(link)) { /* a line is two of the processor's */
        __builtin_prefetch((const char *)place + LINE_BYTES / 2);
    }
    lfht_nap();
    ga_hazard_set(b->mine, slot, line_at(link));
    g->depth++;
    if (GA_LFHT_MUTANT != 1 && ga_hazard_load(b->mine, g->place) != link) {
        return false;
    }
    g->place = place;
    g->used += line_bits(link);
    return true;
}

/* What the place says; or to the line below. Not `calls`: keys are equal that are the same. */
static inline glance_sight glance_at(const batch *b, glance *g, bool calls)
{
    uint32_t lane;
    uint64_t value;
    lfht_word word = lfht_read(g->place);
    if (word & LINE_LINK && line_at(word)) {
        bool plain = !(word & LINE_FROZEN) && !line_is_deep(word);
        return plain && glance_down(b, g, word) ? GOES_ON : UNSURE;
    }
    line_sight saw = word & LINE_LINK
                         ? LINE_ABSENT
                         : line_find(calls ? b->map : NULL, (const lfht_line *)g->place, word,
                                     g->hash, *g->key, &lane, &value);
    *g->found = (ga_lfht_found){saw == LINE_SEEN, saw == LINE_SEEN ? value : 0};
    return saw == LINE_CHANGED ? UNSURE : ANSWERED;
}

static inline ga_status begin_batch(batch *b, ga_lfht *map)
{
    ga_hazards *mine;
    ga_status status = lfht_join(map, &mine);
    if (status == GA_OK) {
        *b = (batch){map, mine};
    }
    return status;
}

/* ---- of a single call ----------------------------------------------------------------------- */

static inline glance glance_of(const ga_lfht *map, const uint64_t *key, uint64_t hash)
{
    return (glance){.key = key,
                    .hash = hash,
                    .place = root_place(map, hash),
                    .used = map->root_bits,
                    .slot = GLANCE_SLOT_FIRST};
}

static inline ga_status begin_glance(batch *b, glance *g, ga_lfht *map, const uint64_t *key)
{
    *g = glance_of(map, key, lfht_hash_of(map, *key));
    return begin_batch(b, map);
}

/* What it has set. */
static inline void end_glance(const batch *b, const glance *g)
{
    if (g->depth > 0) {
        ga_hazard_clear(b->mine, g->slot);
    }
    if (g->depth > 1) {
        ga_hazard_clear(b->mine, g->slot + 1);
    }
}

/* To the key's line, which is not frozen. Its node stays, and a swap from the line's word says that
 * it was in the map: frozen words never change. False where a trail is wanted. */
static inline bool glance_to_line(const batch *b, glance *g, lfht_word *seen)
{
    for (;;) {
        lfht_word word = lfht_read(g->place);
        *seen = word;
        if (word & LINE_FROZEN && GA_LFHT_MUTANT != 18) {
            return false;
        }
        if (!(word & LINE_LINK)) {
            return true;
        }
        if (!line_at(word) || line_is_deep(word) || !glance_down(b, g, word)) {
            return false;
        }
    }
}

#endif
