/* SPDX-License-Identifier: MIT
 *
 * Searching among the cached runs, joining and cutting.
 */
#include "vmm_compose.h"

#include "../platform/libc.h"
#include "vmm_run.h"

enum {
    PARTS = 64 /* the most runs that are joined */
};

/* Cached runs one behind the other, from `first` to `last`. */
typedef struct chain {
    ga_vmm_run *first, *last;
    uint64_t size; /* of all */
    uint64_t cut;  /* where the wanted run ends, from the first's base on; 0: nowhere */
} chain;

/* ---- searching --------------------------------------------------------------------------- */

/* The run that stands right behind, if it may be joined. */
static ga_vmm_run *behind(ga_vmm_pool *pool, const ga_vmm_run *run, const ga_vmm_want *w)
{
    uintptr_t end = run->base + run->size;
    ga_vmm_run *next =
        run->room == run->size ? ga_vmm_addresses_owner(&pool->addresses, (const void *)end) : NULL;
    bool joins = next && next->base == end && !next->live &&
                 ga_vmm_addresses_may_join(&pool->addresses, end) && ga_vmm_is_ready(pool, next, w);
    return joins ? next : NULL;
}

static bool ends_there(const ga_vmm_pool *pool, const chain *c, uint64_t cut)
{
    return cut == c->size || pool->space.device < 0 ||
           ga_vmm_addresses_is_mark(&pool->addresses, c->first->base + cut);
}

static uint64_t most_for(const ga_vmm_pool *pool, uint64_t size)
{
    uint64_t may = pool->peak / 48;
    uint64_t left = may > pool->waste ? may - pool->waste : 0;
    uint64_t more = left < size / 8 ? left : size / 8;
    return size + (more > size / 32 ? more : size / 32);
}

/* The first end of a chunk that leaves enough and not too much. */
static uint64_t find_cut(const ga_vmm_pool *pool, const chain *c, const ga_vmm_want *w)
{
    uint64_t granule = pool->space.granule;
    uint64_t most = most_for(pool, w->size);
    for (uint64_t cut = w->size; cut <= most && cut <= c->size; cut += granule) {
        if (ends_there(pool, c, cut)) {
            return cut;
        }
    }
    return 0;
}

static chain chain_from(ga_vmm_pool *pool, ga_vmm_run *first, const ga_vmm_want *w)
{
    chain c = {first, first, first->size, 0};
    for (int parts = 1; c.size < w->size && parts < PARTS; parts++) {
        ga_vmm_run *next = behind(pool, c.last, w);
        if (!next) {
            return c;
        }
        c.last = next;
        c.size += next->size;
    }
    c.cut = c.size >= w->size ? find_cut(pool, &c, w) : 0;
    return c;
}

/* The one that leaves least over. */
static chain search(ga_vmm_pool *pool, const ga_vmm_want *w)
{
    chain best = {0};
    for (ga_vmm_link *l = pool->cached.after; l != &pool->cached; l = l->after) {
        ga_vmm_run *run = ga_vmm_run_of(l);
        if (run->base & (w->align - 1) || !ga_vmm_is_ready(pool, run, w)) {
            continue;
        }
        chain c = chain_from(pool, run, w);
        if (c.cut && (!best.cut || c.size - c.cut < best.size - best.cut)) {
            best = c;
        }
    }
    return best;
}

/* ---- cutting ------------------------------------------------------------------------------ */

static ga_vmm_run *after(const ga_vmm_pool *pool, const ga_vmm_run *run)
{
    return ga_vmm_addresses_owner(&pool->addresses, (const void *)(run->base + run->size));
}

/* So that a note of the run's ends cannot fail. */
static bool prepare(ga_vmm_pool *pool, const ga_vmm_run *run)
{
    return ga_vmm_addresses_prepare(&pool->addresses, run->base) &&
           ga_vmm_addresses_prepare(&pool->addresses, run->base + run->size - 1);
}

/* What is behind the first `size` bytes becomes a cached run of its own. False: no memory. */
static bool cut(ga_vmm_pool *pool, ga_vmm_run *run, uint64_t size)
{
    ga_vmm_run *rest = ga_libc.calloc(1, sizeof *rest);
    bool good = rest && prepare(pool, run) &&
                ga_vmm_addresses_prepare(&pool->addresses, run->base + size) &&
                ga_vmm_addresses_split(&pool->addresses);
    if (!good) {
        ga_libc.free(rest);
        return false;
    }
    *rest = (ga_vmm_run){.base = run->base + size,
                         .size = run->size - size,
                         .room = run->room - size,
                         .fence = ga_vmm_fence_share(run->fence)};
    ga_vmm_list_begin(&rest->link);
    ga_vmm_list_begin(&rest->bucket);
    ga_vmm_addresses_note(&pool->addresses, rest->base, rest->size, rest);
    run->size = run->room = size;
    ga_vmm_pool_cache(pool, run);
    ga_vmm_pool_cache(pool, rest);
    return true;
}

/* ---- joining ------------------------------------------------------------------------------ */

/* Whatever can fail, for all runs of the chain: their notes, and letting the stream wait for those
 * that its own work or that of others may still be using. */
static bool make_ready(ga_vmm_pool *pool, const chain *c, const ga_vmm_want *w)
{
    bool good = true;
    for (ga_vmm_run *run = c->first; good; run = after(pool, run)) {
        good = prepare(pool, run) &&
               (!run->fence || !w->stream ||
                ga_vmm_fence_order(&pool->fences, run->fence, *w->stream) == GA_OK);
        if (run == c->last) {
            break;
        }
    }
    return good;
}

/* The run behind becomes a part of it. */
static void absorb(ga_vmm_pool *pool, ga_vmm_run *run, ga_vmm_run *next)
{
    ga_vmm_addresses_note(&pool->addresses, next->base, next->size, run);
    ga_vmm_addresses_join(&pool->addresses);
    run->size += next->size;
    run->room += next->room;
    ga_vmm_list_remove(&next->link);
    ga_vmm_list_remove(&next->bucket);
    ga_vmm_fence_drop(&pool->fences, next->fence);
    ga_libc.free(next);
}

ga_vmm_run *ga_vmm_compose(ga_vmm_pool *pool, const ga_vmm_want *w)
{
    chain c = search(pool, w);
    if (!c.cut || !make_ready(pool, &c, w)) {
        return NULL;
    }
    uint64_t of_last = c.cut - (c.last->base - c.first->base);
    if (of_last < c.last->size && !cut(pool, c.last, of_last)) {
        return NULL;
    }
    while (c.first->size < c.cut) {
        absorb(pool, c.first, after(pool, c.first));
    }
    ga_vmm_fence_drop(&pool->fences, c.first->fence); /* the stream waits already */
    c.first->fence = NULL;
    ga_vmm_pool_cache(pool, c.first);
    return c.first;
}
