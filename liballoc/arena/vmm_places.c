/* SPDX-License-Identifier: MIT
 *
 * Each chunk knows the request that had it last, and which earlier one that was like. Who had the
 * memory after the earlier one is who is expected to want it next.
 */
#include "vmm_places.h"

enum {
    LOOKS = 16 /* at requests of the very size and stream, at the most */
};

/* ---- finding ----------------------------------------------------------------------------- */

static bool fits(const ga_vmm_event *event, const ga_vmm_want *w)
{
    return event->size >= w->size && event->size - w->size <= w->waste &&
           !(event->base & (w->align - 1));
}

/* The chunk is the first of a run that is whole yet, as it was; such a run has one fence. */
static bool is_whole(const ga_vmm_chunk *chunk, const ga_vmm_event *event)
{
    const ga_vmm_run *run = chunk->run;
    return run && !run->live && run->base == event->base && run->size == event->size;
}

/* Free chunks from its base to its end. */
static bool stands(ga_vmm_pool *pool, const ga_vmm_event *event, const ga_vmm_want *w,
                   ga_vmm_window *out)
{
    ga_vmm_chunk *c = ga_vmm_addresses_find(&pool->addresses, (void *)event->base);
    uintptr_t at = event->base;
    uintptr_t end = at + event->size;
    if (!c || c->base != at) {
        return false;
    }
    *out = (ga_vmm_window){ga_vmm_chunk_of(c->link.before), at, end, 0};
    if (is_whole(c, event)) {
        return ga_vmm_is_ready(pool, c->fence, w);
    }
    while (at < end && c->base == at && !ga_vmm_is_taken(c) && ga_vmm_is_ready(pool, c->fence, w)) {
        at = ga_vmm_chunk_end(c);
        c = ga_vmm_chunk_after(c);
    }
    return at == end;
}

static bool serves(ga_vmm_pool *pool, uint64_t at, const ga_vmm_want *w, ga_vmm_window *out)
{
    const ga_vmm_event *event = ga_vmm_past_at(&pool->past, at);
    return event && fits(event, w) && stands(pool, event, w, out);
}

bool ga_vmm_places_find(ga_vmm_pool *pool, const ga_vmm_want *w, ga_vmm_likeness likeness,
                        ga_vmm_window *out, uint64_t *like)
{
    const ga_vmm_past *past = &pool->past;
    bool next = likeness == GA_VMM_LIKE_NEXT;
    if (next && past->cursor) {
        *like = past->cursor;
        return serves(pool, *like, w, out);
    }
    uint64_t at = ga_vmm_past_look(past, 0);
    for (int looks = LOOKS; at && looks--; at = ga_vmm_past_look(past, at)) {
        if ((!next || ga_vmm_past_follows(past, at)) && serves(pool, at, w, out)) {
            *like = at;
            return true;
        }
    }
    return false;
}

/* ---- noting ------------------------------------------------------------------------------ */

static void note(ga_vmm_pool *pool, ga_vmm_chunk *chunk, uint64_t own, uint64_t like)
{
    ga_vmm_event *before = ga_vmm_past_at(&pool->past, chunk->used);
    if (before && !before->next) {
        before->next = own;
    }
    chunk->used = own;
    chunk->like = like;
}

void ga_vmm_places_note(ga_vmm_pool *pool, uint64_t like, const ga_vmm_run *run)
{
    uint64_t own = ga_vmm_past_note(&pool->past, like, run->base, run->size);
    for (ga_vmm_chunk *c = run->first; c != run->last; c = ga_vmm_chunk_after(c)) {
        note(pool, c, own, like);
    }
    note(pool, run->last, own, like);
}

uint64_t ga_vmm_places_rest(const ga_vmm_pool *pool, const ga_vmm_chunk *chunk)
{
    uint64_t now = pool->past.cursor;
    uint64_t age = pool->clock - chunk->freed + 1;
    if (!now) {
        return age;
    }
    const ga_vmm_event *like = ga_vmm_past_at(&pool->past, chunk->like);
    return age + (like && like->next > now ? like->next : pool->past.count + 1) - now;
}
