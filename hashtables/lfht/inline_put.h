/* SPDX-License-Identifier: MIT
 *
 * The calls of INLINE that put a key in or replace what it has; inline.c has the rules.
 */
#ifndef GPUALLOC_LFHT_INLINE_PUT_H
#define GPUALLOC_LFHT_INLINE_PUT_H

#include "inline_calls.h"

/* Whether the change is one, for a key that is there or not. */
static inline bool wants_to_write(const lfht_change *change, bool found, uint64_t value)
{
    if (!found) {
        return change->how == LFHT_INSERT || change->how == LFHT_UPSERT;
    }
    return change->how != LFHT_INSERT && (change->how != LFHT_COMPARE || value == change->expected);
}

static void count_put(ga_lfht *map, bool found)
{
    if (!found) {
        lfht_add(&ga_lfht_lane(map)->inserted, 1);
    }
}

/* The log2 of lines for those that are expected: without steps on the way there, and without the
 * memory of smaller nodes that nothing wants any more. */
static uint32_t lines_expected(const trail *t)
{
    uint32_t most = least_of(t->map->chunk, LINE_PAGE);
    return t->depth ? 0 : line_wanted(t->map, t->map->per_bucket, most);
}

/* A node for one pair. */
static ga_status put_at_nothing(trail *t, const lfht_change *change, bool *done)
{
    lfht_item item = {t->hash, change->key, change->value};
    maker m = {.map = t->map};
    if (t->seen & LINE_FROZEN) {
        return help(t);
    }
    lfht_word link = make_node(&m, (plan){&item, 1, t->used}, lines_expected(t));
    if (made(&m, link) != GA_OK) {
        return GA_ERR_MEMORY;
    }
    *done = lfht_swap(t->place, t->seen, link);
    if (!*done) {
        line_drop(t->map, link);
        return GA_OK;
    }
    count_nodes(t, m.nodes, 0);
    return GA_OK;
}

static ga_status put_at_link(trail *t, const lfht_change *change, ga_lfht_found *was, bool *done)
{
    const line_deep *deep = line_at(t->seen);
    uint64_t at = deep ? deep_find(t->map, deep, t->key) : 0;
    bool found = deep && at < deep->count;
    uint64_t value = found ? deep->pairs[at].value : 0;
    line_pair pair = {change->key, change->value};
    tell(was, found, value);
    if (!wants_to_write(change, found, value)) {
        *done = true;
        return GA_OK;
    }
    ga_status status = deep ? deep_replace(t, at, &pair, done) : put_at_nothing(t, change, done);
    if (*done) {
        count_put(t->map, found);
    }
    return status;
}

/* A thread's business with a line. */
typedef struct put_in {
    lfht_line *line;
    uint32_t claimed; /* its lane, or LINE_NONE */
    uint32_t lane;    /* the key's, */
    uint64_t value;   /* and its value, */
    bool found;       /* if it is there */
    bool over;        /* the node may be gone: the line is not to be touched */
} put_in;

/* Nothing is to be written: what was claimed is free again. False where the line has changed. */
static bool put_nothing(const trail *t, const put_in *p)
{
    if (p->claimed == LINE_NONE || t->seen & LINE_FROZEN || line_worn(t->seen)) {
        return true; /* it goes with the node */
    }
    lfht_word next = line_raised(line_set(t->seen, p->claimed, LINE_FREE));
    return lfht_swap(&p->line->word, t->seen, next);
}

/* For one more pair, or for another value. */
static inline bool put_has_room(const ga_lfht *map, lfht_word seen, bool adds)
{
    return line_free(seen) && !(adds && line_count(line_live(seen)) >= map->chain);
}

/* A lane, with the pair written. The line is what `seen` says then, too. */
static inline bool put_claim(put_in *p, lfht_word *seen, const lfht_change *change)
{
    uint32_t lane = line_lane(line_free(*seen));
    lfht_word next = line_raised(line_set(*seen, lane, LINE_CLAIMED));
    if (!lfht_swap(&p->line->word, *seen, next)) {
        return false;
    }
    p->claimed = lane;
    *seen = next;
    line_write(&p->line->pairs[lane], change->key, change->value);
    return true;
}

static inline bool put_publish(const put_in *p, lfht_word seen, uint64_t hash)
{
    lfht_word next = line_set(seen, p->claimed, line_code(hash));
    next = line_raised(p->found ? line_set(next, p->lane, LINE_FREE) : next);
    return lfht_swap(&p->line->word, seen, next);
}

/* The pair has to be written. */
static ga_status put_pair(trail *t, put_in *p, const lfht_change *change, bool *done)
{
    bool adds = !p->found;
    t->room = adds || t->map->chain == LINE_PAIRS;
    p->over = true;
    if (t->seen & LINE_FROZEN) {
        return help(t);
    }
    if (line_worn(t->seen)) {
        return rebuild(t, t->depth - 1);
    }
    if (p->claimed == LINE_NONE) {
        if (!put_has_room(t->map, t->seen, adds)) {
            return expand(t);
        }
        p->over = false;
        if (!put_claim(p, &t->seen, change) || line_worn(t->seen)) {
            return GA_OK;
        }
    }
    p->over = false;
    *done = put_publish(p, t->seen, t->hash);
    return GA_OK;
}

/* One look at the line, which `seen` is the word of. */
static ga_status put_try(trail *t, put_in *p, const lfht_change *change, ga_lfht_found *was,
                         bool *done)
{
    line_sight sight = line_find(t->map, p->line, t->seen, t->hash, t->key, &p->lane, &p->value);
    if (GA_LFHT_MUTANT == 15 && p->claimed != LINE_NONE) {
        sight = p->found ? LINE_SEEN : LINE_ABSENT;
    }
    if (sight == LINE_CHANGED) {
        return GA_OK;
    }
    p->found = sight == LINE_SEEN;
    tell(was, p->found, p->value);
    if (!wants_to_write(change, p->found, p->value)) {
        *done = put_nothing(t, p);
        return GA_OK;
    }
    ga_status status = put_pair(t, p, change, done);
    if (*done) {
        count_put(t->map, p->found);
    }
    return status;
}

/* Until the line is one with pairs no more, or has been rebuilt. `glanced` has a lane, or none. */
static ga_status put_in_line(trail *t, const put_in *glanced, const lfht_change *change,
                             ga_lfht_found *was, bool *done)
{
    put_in p = {.line = (lfht_line *)t->place, .claimed = LINE_NONE};
    if (p.line == glanced->line || GA_LFHT_MUTANT == 19) {
        p.claimed = glanced->claimed;
    }
    ga_status status = GA_OK;
    while (status == GA_OK && !*done && !p.over) {
        status = put_try(t, &p, change, was, done);
        if (!*done && !p.over) {
            t->seen = lfht_read(&p.line->word);
            p.over = t->seen & LINE_LINK;
        }
    }
    return status;
}

/* Behind a glance, which has a line's node protected in a slot that no trail uses: so a place that
 * is that line is the line still, and its claim this thread's. */
static ga_status put_hashed(ga_lfht *map, const put_in *glanced, const lfht_change *change,
                            uint64_t hash, ga_lfht_found *was)
{
    trail t;
    bool done = false;
    ga_status status = trail_begin(&t, map, change->key, hash);
    if (status != GA_OK) {
        return status;
    }
    while (status == GA_OK && !done) {
        trail_find(&t);
        status = t.seen & LINE_LINK ? put_at_link(&t, change, was, &done)
                                    : put_in_line(&t, glanced, change, was, &done);
    }
    trail_end(&t);
    return status;
}

/* The swaps, where there is room for them. False: the line has changed, maybe with a claim. */
static inline bool write_at_glance(const batch *b, const glance *g, put_in *p, lfht_word seen,
                                   const lfht_change *change)
{
    return !line_worn(seen) && put_has_room(b->map, seen, !p->found) &&
           put_claim(p, &seen, change) && !line_worn(seen) && put_publish(p, seen, g->hash);
}

/* Most often a line is as one would have it: what is known then is the line, and no trail. False
 * where it is not, or not any more. */
static inline bool put_at_glance(const batch *b, glance *g, put_in *p, const lfht_change *change,
                                 ga_lfht_found *was)
{
    lfht_word seen;
    if (!glance_to_line(b, g, &seen)) {
        return false;
    }
    p->line = (lfht_line *)g->place;
    line_sight sight = line_find(b->map, p->line, seen, g->hash, change->key, &p->lane, &p->value);
    p->found = sight == LINE_SEEN;
    if (sight == LINE_CHANGED) {
        return false;
    }
    if (wants_to_write(change, p->found, p->value)) {
        if (!write_at_glance(b, g, p, seen, change)) {
            return false;
        }
        count_put(b->map, p->found);
    }
    tell(was, p->found, p->value);
    return true;
}

static ga_status put_key(ga_lfht *map, const lfht_change *change, ga_lfht_found *was)
{
    batch b;
    glance g;
    put_in p = {.claimed = LINE_NONE};
    ga_status status = begin_glance(&b, &g, map, &change->key);
    if (status != GA_OK) {
        return status;
    }
    if (!put_at_glance(&b, &g, &p, change, was)) {
        status = put_hashed(map, &p, change, g.hash, was);
    }
    end_glance(&b, &g);
    return status;
}

#endif
