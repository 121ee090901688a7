/* SPDX-License-Identifier: MIT
 *
 * Each chunk stores the position of its last placement and of the earlier placement that this one
 * repeated. The successor of the earlier placement predicts which request needs the chunk next.
 */
#include "replay.h"

enum {
    MATCHES_TRIED_MAX = 16 /* placements of the same size and stream that are tried */
};

/* ---- finding ----------------------------------------------------------------------------- */

static bool fits(const ga_vmm_placement *placement, const ga_vmm_request *request)
{
    return placement->size >= request->size && placement->size - request->size <= request->waste &&
           !(placement->base & (request->align - 1));
}

/* True if the chunk is the first of an intact run at the recorded addresses. All chunks of such a
 * run have one fence. */
static bool is_intact_run(const ga_vmm_chunk *chunk, const ga_vmm_placement *placement)
{
    const ga_vmm_run *run = chunk->run;
    return run && !run->live && run->base == placement->base && run->size == placement->size;
}

/* Set `out` to the placement's addresses. Returns false unless all of them are mapped and free. */
static bool find_free_window(ga_vmm_pool *pool, const ga_vmm_placement *placement,
                             const ga_vmm_request *request, ga_vmm_window *out)
{
    ga_vmm_chunk *c = ga_vmm_addresses_find(&pool->addresses, (void *)placement->base);
    uintptr_t at = placement->base;
    uintptr_t end = at + placement->size;
    if (!c || c->base != at) {
        return false;
    }
    *out = (ga_vmm_window){ga_vmm_chunk_of(c->link.before), at, end, 0};
    if (is_intact_run(c, placement)) {
        return ga_vmm_is_ready(pool, c->fence, request);
    }
    while (at < end && c->base == at && !ga_vmm_is_occupied(c) &&
           ga_vmm_is_ready(pool, c->fence, request)) {
        at = ga_vmm_chunk_end(c);
        c = ga_vmm_chunk_after(c);
    }
    return at == end;
}

static bool can_replay(ga_vmm_pool *pool, uint64_t at, const ga_vmm_request *request,
                       ga_vmm_window *out)
{
    const ga_vmm_placement *placement = ga_vmm_history_at(&pool->history, at);
    return placement && fits(placement, request) && find_free_window(pool, placement, request, out);
}

bool ga_vmm_replay_find(ga_vmm_pool *pool, const ga_vmm_request *request, ga_vmm_replay_mode mode,
                        ga_vmm_window *out, uint64_t *matched)
{
    const ga_vmm_history *history = &pool->history;
    bool in_sequence = mode == GA_VMM_REPLAY_SEQUENCE;
    if (in_sequence && history->cursor) {
        *matched = history->cursor;
        return can_replay(pool, *matched, request, out);
    }
    uint64_t at = ga_vmm_history_find(history, 0);
    for (int probes = MATCHES_TRIED_MAX; at && probes--; at = ga_vmm_history_find(history, at)) {
        if ((!in_sequence || ga_vmm_history_context_matches(history, at)) &&
            can_replay(pool, at, request, out)) {
            *matched = at;
            return true;
        }
    }
    return false;
}

/* ---- recording --------------------------------------------------------------------------- */

static void record_chunk(ga_vmm_pool *pool, ga_vmm_chunk *chunk, uint64_t own, uint64_t matched)
{
    ga_vmm_placement *before = ga_vmm_history_at(&pool->history, chunk->position);
    if (before && !before->successor) {
        before->successor = own;
    }
    chunk->position = own;
    chunk->matched = matched;
}

void ga_vmm_replay_record(ga_vmm_pool *pool, uint64_t matched, const ga_vmm_run *run)
{
    uint64_t own = ga_vmm_history_append(&pool->history, matched, run->base, run->size);
    for (ga_vmm_chunk *c = run->first; c != run->last; c = ga_vmm_chunk_after(c)) {
        record_chunk(pool, c, own, matched);
    }
    record_chunk(pool, run->last, own, matched);
}

uint64_t ga_vmm_replay_idle_span(const ga_vmm_pool *pool, const ga_vmm_chunk *chunk)
{
    uint64_t now = pool->history.cursor;
    uint64_t age = pool->clock - chunk->freed + 1;
    if (!now) {
        return age;
    }
    const ga_vmm_placement *matched = ga_vmm_history_at(&pool->history, chunk->matched);
    return age +
           (matched && matched->successor > now ? matched->successor : pool->history.count + 1) -
           now;
}
