/* SPDX-License-Identifier: MIT
 *
 * Two orders. A request that needs memory takes chunks by weight, so that few large ones go and
 * those that are wanted soon stay. Memory that is merely too much goes by age.
 */
#include "vmm_purge.h"

#include "../platform/libc.h"
#include "vmm_chunks.h"
#include "vmm_places.h"

enum {
    PIECES = 8,      /* a chunk moves to a hole if it fills at least this fraction of it, */
    FITTING = 4,     /* and then weighs as many times its size */
    BATCH = 1024,    /* chunks that are weighed at a time: on a device, */
    BATCH_HOST = 64, /* and on the host, where to unmap one costs less than to weigh many */
    BUSY = 8         /* chunks in use by streams that are passed over in search of idle ones */
};

static const uint64_t LEAST_MOVED = (uint64_t)64 << 20; /* to give back less costs less */

void ga_vmm_break_up(ga_vmm_run *run)
{
    for (ga_vmm_chunk *c = run->first; c != run->last; c = ga_vmm_chunk_after(c)) {
        c->run = NULL;
    }
    run->last->run = NULL;
    ga_vmm_list_remove(&run->link);
    ga_libc.free(run);
}

void ga_vmm_unmap(ga_vmm_pool *pool, ga_vmm_chunk *chunk, bool keep)
{
    if (chunk->run) {
        ga_vmm_break_up(chunk->run);
    }
    if (keep) {
        ga_vmm_chunks_detach(pool, chunk);
    } else {
        ga_vmm_chunks_unmap(pool, chunk);
    }
}

static ga_vmm_chunk *by_age(const ga_vmm_link *link)
{
    return GA_VMM_OF(link, ga_vmm_chunk, age);
}

/* ---- by age ------------------------------------------------------------------------------ */

/* At least `bytes`, if that many are idle and were free at `latest`; chunks in use by streams are
 * passed over, `busy` of them. After a chunk that the driver keeps, none is tried. */
static void release_oldest(ga_vmm_pool *pool, uint64_t bytes, uint64_t latest, size_t busy)
{
    uint64_t before = pool->held;
    ga_vmm_link *next;
    for (ga_vmm_link *l = pool->free_by_age.after; l != &pool->free_by_age && busy; l = next) {
        ga_vmm_chunk *chunk = by_age(l);
        uint64_t held = pool->held;
        next = l->after;
        if (chunk->idle_since > latest) {
            break;
        }
        if (!ga_vmm_is_idle(pool, chunk)) {
            busy--;
            continue;
        }
        ga_vmm_unmap(pool, chunk, false);
        if (pool->held == held || before - pool->held >= bytes) {
            break;
        }
    }
}

static void keep_to_cache(ga_vmm_pool *pool, size_t busy)
{
    ga_vmm_chunks_release_detached(pool);
    uint64_t excess = ga_vmm_pool_excess(pool);
    if (excess) {
        release_oldest(pool, excess, UINT64_MAX, busy);
    }
}

/* By default the bound grows with the peak, so that a free never exceeds it: there a request that
 * had to map more while streams were busy may, and ga_vmm_pool_decay() finds that. */
void ga_vmm_pool_bound(ga_vmm_pool *pool)
{
    if (pool->held - pool->live > pool->cache) {
        keep_to_cache(pool, BUSY);
    }
}

void ga_vmm_pool_decay(ga_vmm_pool *pool)
{
    keep_to_cache(pool, SIZE_MAX);
    if (pool->now >= pool->decay) {
        release_oldest(pool, UINT64_MAX, pool->now - pool->decay, SIZE_MAX);
    }
}

/* ---- by weight --------------------------------------------------------------------------- */

static bool is_of(const ga_vmm_window *window, const ga_vmm_chunk *chunk)
{
    return chunk->base >= window->base && chunk->base < window->end;
}

/* Whether it is better moved to the hole than given back, which costs the driver time by size. */
static bool is_for(uint64_t hole, const ga_vmm_chunk *chunk)
{
    return chunk->size >= LEAST_MOVED && chunk->size <= hole && chunk->size >= hole / PIECES;
}

/* A chunk that may go. Its weight is its size times the requests that it rests for: unmapping
 * large chunks takes the fewest calls and hurts the fewest requests. */
typedef struct leaver {
    uint64_t weight;
    ga_vmm_chunk *chunk;
} leaver;

typedef struct leavers {
    size_t count, batch;
    leaver list[BATCH]; /* a binary heap, the heaviest first */
} leavers;

static bool goes_before(const leaver *a, const leaver *b)
{
    return a->weight > b->weight || (a->weight == b->weight && a->chunk->base > b->chunk->base);
}

/* Restore the heap at `at`. (qsort() may call malloc(), which on the host may be this heap.) */
static void sift(leavers *all, size_t at)
{
    leaver *list = all->list;
    leaver moved = list[at];
    for (size_t child = 2 * at + 1; child < all->count; child = 2 * at + 1) {
        child += child + 1 < all->count && goes_before(&list[child + 1], &list[child]);
        if (!goes_before(&list[child], &moved)) {
            break;
        }
        list[at] = list[child];
        at = child;
    }
    list[at] = moved;
}

/* The next batch of idle chunks from `from` on. Answers where the batch after it begins. */
static ga_vmm_link *weigh(ga_vmm_pool *pool, ga_vmm_link *from, const ga_vmm_window *spared,
                          uint64_t hole, leavers *all)
{
    all->count = 0;
    for (; from != &pool->free_by_age && all->count < all->batch; from = from->after) {
        ga_vmm_chunk *c = by_age(from);
        if (!(spared && is_of(spared, c)) && ga_vmm_is_idle(pool, c)) {
            uint64_t weight = c->size / pool->space.granule * ga_vmm_replay_idle_span(pool, c);
            all->list[all->count++] = (leaver){is_for(hole, c) ? FITTING * weight : weight, c};
        }
    }
    for (size_t i = all->count / 2; i-- > 0;) {
        sift(all, i);
    }
    return from;
}

static ga_vmm_chunk *remove_heaviest(leavers *all)
{
    ga_vmm_chunk *chunk = all->list[0].chunk;
    all->list[0] = all->list[--all->count];
    if (all->count) {
        sift(all, 0);
    }
    return chunk;
}

uint64_t ga_vmm_evict(ga_vmm_pool *pool, uint64_t bytes, const ga_vmm_window *spared, uint64_t hole)
{
    uint64_t before = ga_vmm_attached_bytes(pool);
    ga_vmm_link *next = pool->free_by_age.after;
    leavers *all = next == &pool->free_by_age ? NULL : ga_libc.malloc(sizeof *all);
    if (all) {
        all->batch = pool->space.device < 0 ? BATCH_HOST : BATCH;
    }
    while (all && next != &pool->free_by_age && before - ga_vmm_attached_bytes(pool) < bytes) {
        next = weigh(pool, next, spared, hole, all);
        while (all->count && before - ga_vmm_attached_bytes(pool) < bytes) {
            uint64_t loose = pool->detached_bytes;
            ga_vmm_chunk *chunk = remove_heaviest(all);
            ga_vmm_unmap(pool, chunk, is_for(hole, chunk));
            loose = pool->detached_bytes - loose;
            hole -= hole < loose ? hole : loose;
        }
    }
    ga_libc.free(all);
    return before - ga_vmm_attached_bytes(pool);
}

void ga_vmm_pool_trim(ga_vmm_pool *pool, uint64_t keep)
{
    ga_vmm_chunks_release_detached(pool);
    uint64_t in_vain = pool->held - pool->live;
    if (in_vain > keep) {
        ga_vmm_evict(pool, in_vain - keep, NULL, 0);
    }
}
