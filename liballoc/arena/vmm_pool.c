/* SPDX-License-Identifier: MIT
 *
 * Taking runs, and giving them back.
 */
#include "vmm_pool.h"

#include "vmm_compose.h"
#include "vmm_run.h"
#include "vmm_steps.h"

#include <gpualloc/backend.h>

typedef unsigned long long ull; /* what %llu takes */

static uint64_t most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* ---- opening ----------------------------------------------------------------------------- */

ga_status ga_vmm_pool_open(ga_vmm_pool *pool, uint64_t reserve)
{
    ga_vmm_list_begin(&pool->lives);
    ga_vmm_list_begin(&pool->cached);
    for (size_t i = 0; i < GA_VMM_BUCKETS; i++) {
        ga_vmm_list_begin(&pool->buckets[i]);
    }
    ga_vmm_fences_open(&pool->fences, pool->space.device);
    return ga_vmm_addresses_open(&pool->addresses, &pool->space, reserve);
}

/* Fences first: they wait. */
void ga_vmm_pool_close(ga_vmm_pool *pool)
{
    for (ga_vmm_link *l = pool->cached.after; l != &pool->cached; l = l->after) {
        ga_vmm_run *run = ga_vmm_run_of(l);
        ga_vmm_fence_drop(&pool->fences, run->fence);
        run->fence = NULL;
    }
    ga_vmm_fences_close(&pool->fences);
    ga_vmm_run_end_all(pool, &pool->cached);
    ga_vmm_run_end_all(pool, &pool->lives);
    ga_vmm_addresses_close(&pool->addresses);
}

/* ---- live and cached --------------------------------------------------------------------- */

static ga_vmm_link *bucket_of(ga_vmm_pool *pool, uint64_t size)
{
    return &pool->buckets[ga_vmm_step(size / pool->space.granule, 5)];
}

static void set_live(ga_vmm_pool *pool, ga_vmm_run *run)
{
    ga_vmm_list_remove(&run->link);
    ga_vmm_list_remove(&run->bucket);
    ga_vmm_list_append(&pool->lives, &run->link);
    run->live = true;
    pool->live += run->size;
    pool->peak = most(pool->peak, pool->live);
}

void ga_vmm_pool_cache(ga_vmm_pool *pool, ga_vmm_run *run)
{
    ga_vmm_list_remove(&run->link);
    ga_vmm_list_remove(&run->bucket);
    ga_vmm_list_append(&pool->cached, &run->link);
    ga_vmm_list_append(bucket_of(pool, run->size), &run->bucket);
    run->live = false;
}

void ga_vmm_pool_give(ga_vmm_pool *pool, ga_vmm_run *run, ga_vmm_fence *fence)
{
    pool->live -= run->size;
    pool->waste -= run->waste;
    run->fence = fence;
    run->sheet = NULL;
    ga_vmm_pool_cache(pool, run);
}

ga_vmm_run *ga_vmm_pool_find(const ga_vmm_pool *pool, const void *pointer)
{
    ga_vmm_run *run = ga_vmm_addresses_owner(&pool->addresses, pointer);
    return run && run->live && (uintptr_t)pointer - run->base < run->size ? run : NULL;
}

/* ---- cached runs that serve -------------------------------------------------------------- */

enum {
    LOOKS = 32 /* at cached runs of about the size, at the most */
};

static bool serves(ga_vmm_pool *pool, const ga_vmm_run *run, const ga_vmm_want *w)
{
    return run->size >= w->size && run->size - w->size <= w->size / 32 &&
           !(run->base & (w->align - 1)) && ga_vmm_is_ready(pool, run, w);
}

/* The one given last. */
static ga_vmm_run *search(ga_vmm_pool *pool, ga_vmm_link *bucket, const ga_vmm_want *w)
{
    int looks = LOOKS;
    for (ga_vmm_link *l = bucket->before; l != bucket && looks--; l = l->before) {
        ga_vmm_run *run = GA_VMM_OF(l, ga_vmm_run, bucket);
        if (serves(pool, run, w)) {
            return run;
        }
    }
    return NULL;
}

/* Of about the size, or made so. */
static ga_vmm_run *find(ga_vmm_pool *pool, const ga_vmm_want *w)
{
    ga_vmm_link *bucket = bucket_of(pool, w->size);
    ga_vmm_run *run = search(pool, bucket, w);
    run = run ? run : search(pool, bucket + 1, w);
    return run ? run : ga_vmm_compose(pool, w);
}

static ga_status hand_out(ga_vmm_pool *pool, ga_vmm_run *run, const ga_vmm_want *w,
                          ga_vmm_run **out)
{
    if (run->fence && w->stream) {
        ga_status status = ga_vmm_fence_order(&pool->fences, run->fence, *w->stream);
        if (status != GA_OK) {
            return status;
        }
    }
    ga_vmm_fence_drop(&pool->fences, run->fence);
    run->fence = NULL;
    run->waste = run->size - w->size;
    pool->waste += run->waste;
    set_live(pool, run);
    *out = run;
    return GA_OK;
}

/* ---- giving to the driver ---------------------------------------------------------------- */

static bool is_idle(ga_vmm_pool *pool, const ga_vmm_run *run)
{
    return !run->live && (!run->fence || ga_vmm_fence_done(&pool->fences, run->fence));
}

/* At least so many bytes of cached runs that nobody uses, if there are: those given first. */
static uint64_t evict(ga_vmm_pool *pool, uint64_t bytes)
{
    uint64_t before = pool->held;
    ga_vmm_link *next;
    for (ga_vmm_link *l = pool->cached.after; l != &pool->cached && before - pool->held < bytes;
         l = next) {
        ga_vmm_run *run = ga_vmm_run_of(l);
        next = l->after;
        if (is_idle(pool, run)) {
            ga_vmm_run_end(pool, run);
        }
    }
    return before - pool->held;
}

void ga_vmm_pool_trim(ga_vmm_pool *pool, uint64_t keep)
{
    uint64_t cached = pool->held - pool->live;
    if (cached > keep) {
        evict(pool, cached - keep);
    }
}

/* ---- taking ------------------------------------------------------------------------------ */

/* The most that may be held once `more` bytes are live besides. By itself that is the most that was
 * live at once and a 64th of it: what a program does again finds the memory that it had before, and
 * with what else is lost (ga_vmm_compose(), units) no more than a twentieth is held in vain. */
static uint64_t may_hold(const ga_vmm_pool *pool, uint64_t more)
{
    uint64_t live = pool->live + more;
    uint64_t peak = most(pool->peak, live);
    uint64_t usual = peak + most(peak / 64, 32 * pool->space.granule);
    return least(pool->cache == UINT64_MAX ? usual : live + pool->cache, pool->limit);
}

static void make_way(ga_vmm_pool *pool, uint64_t more)
{
    uint64_t may = may_hold(pool, more);
    if (pool->held + more > may) {
        evict(pool, pool->held + more - may);
    }
}

static ga_status check_limit(const ga_vmm_pool *pool, uint64_t more)
{
    if (more <= pool->limit && pool->live <= pool->limit - more) {
        return GA_OK;
    }
    return ga_fail(GA_ERR_MEMORY, "the limit is %llu bytes, and %llu are in use", (ull)pool->limit,
                   (ull)pool->live);
}

/* New memory, from the driver; what nobody uses goes back to it if it has no other. */
static ga_status take_new(ga_vmm_pool *pool, const ga_vmm_want *w, ga_vmm_run **out)
{
    ga_vmm_run *run;
    ga_status status;
    do {
        status = ga_vmm_run_make(pool, w->size, w->align, &run);
        if (run) {
            ga_vmm_pool_cache(pool, run); /* a failure too leaves one, if it could not be undone */
        }
    } while (status == GA_ERR_MEMORY && evict(pool, w->size));
    return status == GA_OK ? hand_out(pool, run, w, out) : status;
}

ga_status ga_vmm_pool_take(ga_vmm_pool *pool, uint64_t size, uint64_t align,
                           const ga_stream *stream, ga_vmm_run **out)
{
    ga_vmm_want w = {size, align, stream, false};
    ga_vmm_run *run = find(pool, &w);
    *out = NULL;
    if (run) {
        return hand_out(pool, run, &w, out);
    }
    ga_status status = check_limit(pool, size);
    if (status != GA_OK) {
        return status;
    }
    make_way(pool, size);
    w.waiting = true;
    run = stream && pool->held + size > may_hold(pool, size) ? find(pool, &w) : NULL;
    if (!run) {
        status = take_new(pool, &w, out);
        run = stream && status == GA_ERR_MEMORY ? find(pool, &w) : NULL;
    }
    return run ? hand_out(pool, run, &w, out) : status;
}

/* ---- growing where it stands -------------------------------------------------------------- */

/* The first run from there on, up to `end`; NULL: none. */
static ga_vmm_run *first_run(const ga_vmm_pool *pool, uintptr_t from, uintptr_t end)
{
    ga_vmm_run *run = NULL;
    for (uintptr_t at = from; at < end && !run; at += pool->space.granule) {
        run = ga_vmm_addresses_owner(&pool->addresses, (const void *)at);
    }
    return run;
}

/* Give cached runs that stand in the way to the driver, if nothing else does. */
static void clear_behind(ga_vmm_pool *pool, const ga_vmm_run *run, uint64_t size)
{
    uintptr_t from = run->base + run->room;
    uintptr_t end = run->base + size;
    ga_vmm_run *next = first_run(pool, from, end);
    for (ga_vmm_run *r = next; r; r = first_run(pool, r->base + r->room, end)) {
        if (!is_idle(pool, r)) {
            return;
        }
    }
    for (uint64_t before = 0; next && pool->held != before; next = first_run(pool, from, end)) {
        before = pool->held;
        ga_vmm_run_end(pool, next);
    }
}

ga_status ga_vmm_pool_extend(ga_vmm_pool *pool, ga_vmm_run *run, uint64_t size)
{
    uint64_t before = run->size;
    uint64_t more = size - before;
    ga_status status = check_limit(pool, more);
    if (status != GA_OK) {
        return status;
    }
    clear_behind(pool, run, size);
    make_way(pool, more);
    do {
        status = ga_vmm_run_extend(pool, run, size);
    } while (status == GA_ERR_MEMORY && evict(pool, more));
    pool->live += run->size - before;
    pool->waste -= run->waste;
    run->waste = 0; /* it is what was taken that grows */
    pool->peak = most(pool->peak, pool->live);
    return status;
}
