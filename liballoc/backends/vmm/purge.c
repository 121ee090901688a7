/* SPDX-License-Identifier: MIT
 *
 * Two orders. Eviction for a request is by weight (size times idle span), so that few large chunks
 * go and those that are needed soon stay. All other purging is by age.
 */
#include "purge.h"

#include "../../platform/libc.h"
#include "chunks.h"
#include "replay.h"

enum {
    HOLE_SHARE_DIV = 8, /* a chunk moves to a hole if it fills at least 1/8 of it */
    FITTING_BONUS = 4,  /* weight factor of a victim that fits the hole */
    BATCH = 1024,       /* chunks weighed at a time on a device */
    BATCH_HOST = 64,    /* on the host, where unmapping one costs less than weighing many */
    /* Chunks in use by streams that are skipped in search of idle ones */
    BUSY_SKIPPED_MAX = 8
};

/* Below this size, releasing costs less than moving. */
static const uint64_t MOVED_BYTES_MIN = (uint64_t)64 << 20;

void ga_vmm_break_up(ga_vmm_run *run)
{
    for (ga_vmm_chunk *c = run->first; c != run->last; c = ga_vmm_chunk_after(c)) {
        c->run = NULL;
    }
    run->last->run = NULL;
    ga_vmm_list_remove(&run->link);
    ga_libc.free(run);
}

void ga_vmm_unmap(ga_vmm_pool *pool, ga_vmm_chunk *chunk, bool detach)
{
    if (chunk->run) {
        ga_vmm_break_up(chunk->run);
    }
    if (detach) {
        ga_vmm_chunks_detach(pool, chunk);
    } else {
        ga_vmm_chunks_unmap(pool, chunk);
    }
}

static ga_vmm_chunk *chunk_of_age(const ga_vmm_link *link)
{
    return GA_VMM_OF(link, ga_vmm_chunk, age);
}

/* ---- by age ------------------------------------------------------------------------------ */

/* Unmap idle chunks that were free at time `latest`, oldest first, until `bytes` bytes are
 * released. Skips at most `busy` chunks that streams still use. Stops at a chunk that the driver
 * refuses to unmap. */
static void release_oldest(ga_vmm_pool *pool, uint64_t bytes, uint64_t latest, size_t busy)
{
    uint64_t before = pool->held;
    ga_vmm_link *next;
    for (ga_vmm_link *l = pool->free_by_age.after; l != &pool->free_by_age && busy; l = next) {
        ga_vmm_chunk *chunk = chunk_of_age(l);
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

static void enforce_cache_bound(ga_vmm_pool *pool, size_t busy)
{
    ga_vmm_chunks_release_detached(pool);
    uint64_t excess = ga_vmm_pool_excess(pool);
    if (excess) {
        release_oldest(pool, excess, UINT64_MAX, busy);
    }
}

/* With cache=auto the bound grows with the peak, so that a free never exceeds it. Only a request
 * that mapped more because streams were busy can; ga_vmm_pool_decay() corrects that. */
void ga_vmm_pool_bound(ga_vmm_pool *pool)
{
    if (pool->held - pool->live > pool->cache) {
        enforce_cache_bound(pool, BUSY_SKIPPED_MAX);
    }
}

void ga_vmm_pool_decay(ga_vmm_pool *pool)
{
    enforce_cache_bound(pool, SIZE_MAX);
    if (pool->now >= pool->decay) {
        release_oldest(pool, UINT64_MAX, pool->now - pool->decay, SIZE_MAX);
    }
}

/* ---- by weight --------------------------------------------------------------------------- */

static bool is_in_window(const ga_vmm_window *window, const ga_vmm_chunk *chunk)
{
    return chunk->base >= window->base && chunk->base < window->end;
}

/* True if moving the chunk into the hole is cheaper than releasing it, which costs driver time in
 * proportion to its size. */
static bool is_worth_moving(uint64_t hole, const ga_vmm_chunk *chunk)
{
    return chunk->size >= MOVED_BYTES_MIN && chunk->size <= hole &&
           chunk->size >= hole / HOLE_SHARE_DIV;
}

/* A chunk that may be evicted. Weight: size times idle span in requests. Evicting the heaviest
 * takes the fewest driver calls and affects the fewest requests. */
typedef struct victim {
    uint64_t weight;
    ga_vmm_chunk *chunk;
} victim;

typedef struct victims {
    size_t count, batch;
    victim list[BATCH]; /* binary heap, heaviest first */
} victims;

static bool is_heavier(const victim *a, const victim *b)
{
    return a->weight > b->weight || (a->weight == b->weight && a->chunk->base > b->chunk->base);
}

/* Restore the heap property at `at`. (qsort() may call malloc(), which may be this heap.) */
static void sift(victims *all, size_t at)
{
    victim *list = all->list;
    victim moved = list[at];
    for (size_t child = 2 * at + 1; child < all->count; child = 2 * at + 1) {
        child += child + 1 < all->count && is_heavier(&list[child + 1], &list[child]);
        if (!is_heavier(&list[child], &moved)) {
            break;
        }
        list[at] = list[child];
        at = child;
    }
    list[at] = moved;
}

/* Collect the next batch of idle chunks, from `from` on. Returns where the next batch begins. */
static ga_vmm_link *collect_victims(ga_vmm_pool *pool, ga_vmm_link *from,
                                    const ga_vmm_window *spared, uint64_t hole, victims *all)
{
    all->count = 0;
    for (; from != &pool->free_by_age && all->count < all->batch; from = from->after) {
        ga_vmm_chunk *c = chunk_of_age(from);
        if (!(spared && is_in_window(spared, c)) && ga_vmm_is_idle(pool, c)) {
            uint64_t weight = c->size / pool->space.granule * ga_vmm_replay_idle_span(pool, c);
            all->list[all->count++] =
                (victim){is_worth_moving(hole, c) ? FITTING_BONUS * weight : weight, c};
        }
    }
    for (size_t i = all->count / 2; i-- > 0;) {
        sift(all, i);
    }
    return from;
}

static ga_vmm_chunk *remove_heaviest(victims *all)
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
    victims *all = next == &pool->free_by_age ? NULL : ga_libc.malloc(sizeof *all);
    if (all) {
        all->batch = pool->space.device < 0 ? BATCH_HOST : BATCH;
    }
    while (all && next != &pool->free_by_age && before - ga_vmm_attached_bytes(pool) < bytes) {
        next = collect_victims(pool, next, spared, hole, all);
        while (all->count && before - ga_vmm_attached_bytes(pool) < bytes) {
            uint64_t detached = pool->detached_bytes;
            ga_vmm_chunk *chunk = remove_heaviest(all);
            ga_vmm_unmap(pool, chunk, is_worth_moving(hole, chunk));
            detached = pool->detached_bytes - detached;
            hole -= hole < detached ? hole : detached;
        }
    }
    ga_libc.free(all);
    return before - ga_vmm_attached_bytes(pool);
}

void ga_vmm_pool_trim(ga_vmm_pool *pool, uint64_t keep)
{
    ga_vmm_chunks_release_detached(pool);
    uint64_t unused = pool->held - pool->live;
    if (unused > keep) {
        ga_vmm_evict(pool, unused - keep, NULL, 0);
    }
}
