/* SPDX-License-Identifier: MIT
 *
 * Taking runs, and giving them back.
 */
#include "vmm_pool.h"

#include "../platform/libc.h"
#include "vmm_chunks.h"
#include "vmm_places.h"
#include "vmm_purge.h"
#include "vmm_search.h"
#include "vmm_steps.h"
#include "vmm_tree.h"

#include <gpualloc/backend.h>

#include <time.h>

typedef unsigned long long ull; /* what %llu takes */

enum {
    SPARE = 25, /* of the peak such a part may be held besides, free or wasted, */
    WASTE = 28, /* and such a part wasted */
    SPARE_GRANULES = 32,
    LOOKS = 32 /* at runs of about the size, at the most */
};

static const uint64_t ROOMY = (uint64_t)1 << 30; /* from there on runs have room to grow */

static uint64_t most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static ga_vmm_run *run_of(ga_vmm_link *link)
{
    return GA_VMM_OF(link, ga_vmm_run, link);
}

/* ---- opening ----------------------------------------------------------------------------- */

ga_status ga_vmm_pool_open(ga_vmm_pool *pool, uint64_t reserve)
{
    pool->ceiling = UINT64_MAX;
    ga_vmm_list_begin(&pool->loose);
    ga_vmm_list_begin(&pool->lives);
    ga_vmm_list_begin(&pool->ages);
    ga_vmm_list_begin(&pool->stale);
    for (size_t i = 0; i < GA_VMM_BUCKETS; i++) {
        ga_vmm_list_begin(&pool->buckets[i]);
    }
    ga_vmm_fences_open(&pool->fences, pool->space.device);
    return ga_vmm_addresses_open(&pool->addresses, &pool->space, reserve);
}

static void free_records(ga_vmm_link *runs)
{
    while (!ga_vmm_list_empty(runs)) {
        ga_vmm_run *run = run_of(runs->after);
        ga_vmm_list_remove(&run->link);
        ga_libc.free(run);
    }
}

static void drop_fence(ga_vmm_pool *pool, ga_vmm_chunk *chunk)
{
    ga_vmm_fence_drop(&pool->fences, chunk->fence, chunk->size);
    chunk->fence = NULL;
}

/* For the search, after the run has become live, or has been freed. */
static void note(ga_vmm_pool *pool, const ga_vmm_run *run)
{
    for (ga_vmm_chunk *c = run->first; c != run->last; c = ga_vmm_chunk_after(c)) {
        ga_vmm_tree_mark(pool, c);
    }
    ga_vmm_tree_mark(pool, run->last);
}

/* Fences first: they wait. */
void ga_vmm_pool_close(ga_vmm_pool *pool)
{
    const ga_vmm_link *chunks = &pool->addresses.chunks;
    for (const ga_vmm_link *l = chunks->after; l != chunks; l = l->after) {
        drop_fence(pool, ga_vmm_chunk_of(l));
    }
    ga_vmm_fences_close(&pool->fences);
    ga_vmm_chunks_end(pool);
    ga_vmm_addresses_close(&pool->addresses);
    free_records(&pool->lives);
    for (size_t i = 0; i < GA_VMM_BUCKETS; i++) {
        free_records(&pool->buckets[i]);
    }
    ga_libc.free(pool->items);
    ga_vmm_past_clear(&pool->past);
}

/* ---- what may be held -------------------------------------------------------------------- */

static uint64_t peak_with(const ga_vmm_pool *pool, uint64_t more)
{
    return most(pool->peak, pool->live - pool->waste + more);
}

/* Bytes that were freed and are in use to whoever asks now. With a stream they may be had. */
static uint64_t in_flight(const ga_vmm_pool *pool, const ga_stream *stream)
{
    return stream ? 0 : pool->fences.bytes;
}

/* The most that cache= allows to be held once `more` bytes are in use besides. By default that is
 * the peak of what was in use and 1/25 of it: a program that repeats itself finds the memory that
 * it had before, and with what is lost in units at most a twentieth is held in vain. */
static uint64_t may_cache(const ga_vmm_pool *pool, uint64_t more, uint64_t flying)
{
    uint64_t peak = peak_with(pool, more + flying);
    uint64_t usual = peak + most(peak / SPARE, SPARE_GRANULES * pool->space.granule);
    uint64_t wide = least(peak + peak / 2, pool->total / 16 * 15);
    uint64_t live = pool->live + more;
    uint64_t size = live + least(pool->cache, UINT64_MAX - live);
    return pool->cache == GA_VMM_CACHE_AUTO   ? usual
           : pool->cache == GA_VMM_CACHE_WIDE ? most(usual, wide)
                                              : size;
}

static uint64_t may_hold(const ga_vmm_pool *pool, uint64_t more, const ga_stream *stream)
{
    uint64_t may = may_cache(pool, more, in_flight(pool, stream));
    return least(may, least(pool->limit, pool->ceiling));
}

void ga_vmm_pool_look_at_clock(ga_vmm_pool *pool)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &time);
    pool->now = (uint64_t)time.tv_sec * 1000 + (uint64_t)time.tv_nsec / 1000000;
}

uint64_t ga_vmm_pool_excess(const ga_vmm_pool *pool)
{
    uint64_t may = may_cache(pool, 0, pool->fences.bytes);
    return pool->held > may ? pool->held - may : 0;
}

/* What the driver has said of how much there is: more than that is asked for only where nothing
 * free is left. It costs the driver's time to say so, each time. */
static void note_ceiling(ga_vmm_pool *pool, ga_status status)
{
    if (status == GA_ERR_MEMORY) {
        pool->ceiling = ga_vmm_settled(pool);
    } else if (status == GA_OK && pool->held > pool->ceiling) {
        pool->ceiling = UINT64_MAX;
    }
}

/* How much larger than `size` a run may be. */
static uint64_t may_waste(const ga_vmm_pool *pool, uint64_t size)
{
    uint64_t may = peak_with(pool, size) / WASTE;
    uint64_t left = may > pool->waste ? may - pool->waste : 0;
    return most(least(left, size), size / 32);
}

static ga_status check_limit(const ga_vmm_pool *pool, uint64_t more)
{
    if (more <= pool->limit && pool->live <= pool->limit - more) {
        return GA_OK;
    }
    return ga_fail(GA_ERR_MEMORY, "the limit is %llu bytes, and %llu are in use", (ull)pool->limit,
                   (ull)pool->live);
}

/* ---- runs -------------------------------------------------------------------------------- */

static ga_vmm_link *bucket_of(ga_vmm_pool *pool, uint64_t size)
{
    return &pool->buckets[ga_vmm_step(size / pool->space.granule, 5)];
}

static void set_live(ga_vmm_pool *pool, ga_vmm_run *run, uint64_t wanted)
{
    uint64_t hole = ga_vmm_chunk_after(run->last)->base - run->base - run->size;
    ga_vmm_list_remove(&run->link);
    ga_vmm_list_append(&pool->lives, &run->link);
    run->live = true;
    run->wanted = wanted;
    run->room = run->size + (run->size < ROOMY ? 0 : least(hole, run->size));
    pool->live += run->size;
    pool->waste += run->size - wanted;
    pool->peak = peak_with(pool, 0);
    note(pool, run);
}

void ga_vmm_pool_give(ga_vmm_pool *pool, ga_vmm_run *run, ga_vmm_fence *fence)
{
    pool->live -= run->size;
    pool->waste -= run->size - run->wanted;
    run->live = false;
    run->sheet = NULL;
    pool->clock++;
    ga_vmm_fence_cover(&pool->fences, fence, run->size);
    for (ga_vmm_chunk *c = run->first;; c = ga_vmm_chunk_after(c)) {
        c->fence = c == run->first ? fence : ga_vmm_fence_share(fence);
        c->freed = pool->clock;
        c->idle_since = pool->now;
        ga_vmm_list_append(&pool->ages, &c->age);
        if (c == run->last) {
            break;
        }
    }
    ga_vmm_list_remove(&run->link);
    ga_vmm_list_append(bucket_of(pool, run->wanted), &run->link);
    note(pool, run);
}

/* The free chunks in [base, end) become parts of it. */
static void claim(ga_vmm_pool *pool, ga_vmm_run *run, ga_vmm_chunk *below, uintptr_t end)
{
    for (ga_vmm_chunk *c = ga_vmm_chunk_after(below); c->base < end; c = ga_vmm_chunk_after(c)) {
        if (c->run) {
            ga_vmm_break_up(c->run);
        }
        drop_fence(pool, c);
        ga_vmm_list_remove(&c->age);
        c->run = run;
        run->first = run->first ? run->first : c;
        run->last = c;
    }
    run->size = end - run->base;
}

ga_vmm_run *ga_vmm_pool_find(const ga_vmm_pool *pool, const void *pointer)
{
    const ga_vmm_chunk *chunk = ga_vmm_addresses_find(&pool->addresses, pointer);
    return chunk && ga_vmm_is_taken(chunk) ? chunk->run : NULL;
}

/* ---- room for new memory ------------------------------------------------------------------ */

static bool is_idle(ga_vmm_pool *pool, const ga_vmm_chunk *chunk)
{
    return !ga_vmm_is_taken(chunk) && ga_vmm_is_idle(pool, chunk);
}

/* Bytes of the largest hole in it. */
static uint64_t largest_hole(const ga_vmm_window *window)
{
    uint64_t largest = 0;
    uintptr_t base = window->base;
    for (const ga_vmm_chunk *c = window->below; base < window->end;) {
        c = ga_vmm_chunk_after(c);
        uintptr_t end = least(c->base, window->end);
        largest = end > base ? most(largest, end - base) : largest;
        base = ga_vmm_chunk_end(c);
    }
    return largest;
}

/* For what the window has no memory for; `more` bytes are taken besides. What is loose then is to
 * be used at once, or dropped. */
static void make_way(ga_vmm_pool *pool, uint64_t more, const ga_stream *stream,
                     ga_vmm_window *window)
{
    uint64_t may = may_hold(pool, more, stream);
    if (pool->held + window->fill > may) {
        ga_vmm_evict(pool, pool->held + window->fill - may, window, largest_hole(window));
        window->below = ga_vmm_tree_below(pool, window->base);
    }
}

/* ---- a run that is whole yet ------------------------------------------------------------- */

static bool serves(ga_vmm_pool *pool, const ga_vmm_run *run, const ga_vmm_want *w)
{
    return run->wanted == w->size && run->size - w->size <= w->waste &&
           !(run->base & (w->align - 1)) && ga_vmm_is_ready(pool, run->first->fence, w);
}

/* The one that rests longest; where nothing is known of that, the one given last. */
static ga_vmm_run *find_whole(ga_vmm_pool *pool, const ga_vmm_want *w)
{
    int looks = LOOKS;
    uint64_t longest = 0;
    ga_vmm_run *found = NULL;
    ga_vmm_link *bucket = bucket_of(pool, w->size);
    for (ga_vmm_link *l = bucket->before; l != bucket && looks--; l = l->before) {
        ga_vmm_run *run = run_of(l);
        if (!serves(pool, run, w)) {
            continue;
        }
        if (!pool->past.cursor) {
            return run;
        }
        uint64_t rest = ga_vmm_places_rest(pool, run->first);
        found = rest > longest ? run : found;
        longest = most(rest, longest);
    }
    return found;
}

/* Its chunks have one fence. */
static ga_status take_whole(ga_vmm_pool *pool, ga_vmm_run *run, const ga_vmm_want *w,
                            ga_vmm_run **out)
{
    ga_vmm_fence *fence = run->first->fence;
    if (fence && w->stream) {
        ga_status status = ga_vmm_fence_order(&pool->fences, fence, *w->stream);
        if (status != GA_OK) {
            return status;
        }
    }
    for (ga_vmm_chunk *c = run->first;; c = ga_vmm_chunk_after(c)) {
        drop_fence(pool, c);
        ga_vmm_list_remove(&c->age);
        if (c == run->last) {
            break;
        }
    }
    set_live(pool, run, w->size);
    *out = run;
    return GA_OK;
}

/* ---- a run made of free chunks and holes -------------------------------------------------- */

/* Let the stream wait for whoever may still be using them. */
static ga_status order(ga_vmm_pool *pool, const ga_vmm_window *window, ga_stream stream)
{
    ga_status status = GA_OK;
    const ga_vmm_fence *done = NULL;
    for (ga_vmm_chunk *c = ga_vmm_chunk_after(window->below);
         status == GA_OK && c->base < window->end; c = ga_vmm_chunk_after(c)) {
        if (c->fence && c->fence != done) {
            status = ga_vmm_fence_order(&pool->fences, c->fence, stream);
            done = c->fence;
        }
    }
    return status;
}

static ga_status take_window(ga_vmm_pool *pool, const ga_vmm_window *window, const ga_vmm_want *w,
                             ga_vmm_run **out)
{
    ga_vmm_run *run = ga_libc.calloc(1, sizeof *run);
    if (!run) {
        return ga_fail(GA_ERR_MEMORY, "no memory for the record of a block");
    }
    ga_status status = w->stream ? order(pool, window, *w->stream) : GA_OK;
    if (status == GA_OK) {
        status = ga_vmm_chunks_fill(pool, window->below, window->base, window->end);
    }
    if (status != GA_OK) {
        ga_libc.free(run);
        return status;
    }
    ga_vmm_list_begin(&run->link);
    run->base = window->base;
    claim(pool, run, window->below, window->end);
    set_live(pool, run, w->size);
    *out = run;
    return GA_OK;
}

/* With more addresses where there are none for it. */
static ga_status find_window(ga_vmm_pool *pool, ga_vmm_want *w, ga_vmm_window *window)
{
    ga_vmm_fences_look(&pool->fences);
    ga_vmm_pool_look_at_clock(pool);
    uint64_t may = may_hold(pool, w->size, w->stream);
    w->room = may > pool->held ? may - pool->held : 0;
    if (ga_vmm_search(pool, w, window)) {
        return GA_OK;
    }
    uint64_t addresses = w->align > pool->space.granule ? w->size + w->align : w->size;
    ga_status status = ga_vmm_addresses_reserve(&pool->addresses, addresses);
    if (status == GA_OK && !ga_vmm_search(pool, w, window)) {
        return ga_fail(GA_ERR_MEMORY, "no memory to search for one");
    }
    return status;
}

/* Of what is mapped, whoever may still be using it. */
static bool find_used(ga_vmm_pool *pool, ga_vmm_want w, ga_vmm_window *window)
{
    w.waiting = true;
    return w.stream && ga_vmm_search(pool, &w, window) && !window->fill;
}

/* New memory for a window; what nobody uses goes to the driver if it has no other. */
static ga_status take_new(ga_vmm_pool *pool, ga_vmm_window *window, ga_vmm_want *w,
                          ga_vmm_run **out)
{
    ga_vmm_window used;
    uint64_t flying = in_flight(pool, w->stream);
    make_way(pool, w->size, w->stream, window);
    bool full = ga_vmm_settled(pool) + window->fill > may_hold(pool, w->size, w->stream);
    bool waits = full && find_used(pool, *w, &used);
    ga_status status = take_window(pool, waits ? &used : window, w, out);
    ga_vmm_chunks_drop_loose(pool);
    note_ceiling(pool, waits ? GA_OK : status);
    if (waits) {
        return status;
    }
    if (status == GA_OK) {
        pool->peak = peak_with(pool, flying);
    }
    while (status == GA_ERR_MEMORY && ga_vmm_evict(pool, w->size, NULL, 0)) {
        status = find_window(pool, w, window);
        status = status == GA_OK ? take_window(pool, window, w, out) : status;
    }
    return status == GA_ERR_MEMORY && find_used(pool, *w, &used) ? take_window(pool, &used, w, out)
                                                                 : status;
}

static ga_status take_searched(ga_vmm_pool *pool, ga_vmm_want *w, ga_vmm_run **out)
{
    ga_vmm_window window;
    ga_status status = find_window(pool, w, &window);
    if (status == GA_OK && !window.fill) {
        return take_window(pool, &window, w, out);
    }
    ga_status limited = check_limit(pool, w->size);
    status = limited == GA_OK ? status : limited;
    return status == GA_OK ? take_new(pool, &window, w, out) : status;
}

/* ---- any run ------------------------------------------------------------------------------ */

/* The run that the window is, whole yet, or a new one of its chunks. */
static ga_status take_place(ga_vmm_pool *pool, const ga_vmm_window *window, const ga_vmm_want *w,
                            ga_vmm_run **out)
{
    ga_vmm_run *run = ga_vmm_chunk_after(window->below)->run;
    bool whole = run && run->base == window->base && run->base + run->size == window->end;
    return whole && run->wanted == w->size ? take_whole(pool, run, w, out)
                                           : take_window(pool, window, w, out);
}

/* Where the one that it is like stood, or else what costs least. */
static ga_status take(ga_vmm_pool *pool, ga_vmm_want *w, uint64_t *like, ga_vmm_run **out)
{
    ga_vmm_window window;
    uint64_t other;
    if (ga_vmm_places_find(pool, w, GA_VMM_LIKE_NEXT, &window, like)) {
        return take_place(pool, &window, w, out);
    }
    ga_vmm_run *whole = find_whole(pool, w);
    if (whole) {
        return take_whole(pool, whole, w, out);
    }
    if (ga_vmm_places_find(pool, w, GA_VMM_LIKE_ANY, &window, &other)) {
        *like = *like ? *like : other;
        return take_place(pool, &window, w, out);
    }
    return take_searched(pool, w, out);
}

ga_status ga_vmm_pool_take(ga_vmm_pool *pool, uint64_t size, uint64_t align,
                           const ga_stream *stream, ga_vmm_run **out)
{
    ga_vmm_want w = {.size = size, .align = most(align, pool->space.granule), .stream = stream};
    uint64_t like = 0;
    w.waste = may_waste(pool, size);
    *out = NULL;
    ga_vmm_past_ask(&pool->past, size, stream ? (uintptr_t)*stream + 1 : 0);
    ga_status status = take(pool, &w, &like, out);
    if (status == GA_OK) {
        ga_vmm_places_note(pool, like, *out);
    }
    return status;
}

/* ---- growing where it stands -------------------------------------------------------------- */

/* Whether nobody uses what is behind it, up to `end`. */
static bool is_clear(ga_vmm_pool *pool, const ga_vmm_run *run, uintptr_t end)
{
    const ga_vmm_chunk *c = ga_vmm_chunk_after(run->last);
    while (c->base < end && is_idle(pool, c)) {
        c = ga_vmm_chunk_after(c);
    }
    return c->base >= end;
}

/* No chunk stands across `end`. False: the driver will not have it. */
static bool cut_at(ga_vmm_pool *pool, const ga_vmm_run *run, uintptr_t end)
{
    uint64_t held = pool->held;
    ga_vmm_chunk *c = ga_vmm_chunk_after(run->last);
    while (ga_vmm_chunk_end(c) <= end) {
        c = ga_vmm_chunk_after(c);
    }
    if (c->base >= end) {
        return true;
    }
    ga_vmm_unmap(pool, c, false);
    return pool->held != held;
}

static ga_status extend(ga_vmm_pool *pool, ga_vmm_run *run, uint64_t size)
{
    ga_vmm_chunk *last = run->last;
    uintptr_t end = run->base + size;
    ga_status status = ga_vmm_chunks_fill(pool, last, run->base + run->size, end);
    if (status == GA_OK) {
        pool->live += size - run->size;
        pool->waste -= run->size - run->wanted;
        claim(pool, run, last, end);
        run->wanted = size; /* it is what was taken that grows */
        run->room = most(run->room, size);
        pool->peak = peak_with(pool, 0);
        note(pool, run);
    }
    return status;
}

ga_status ga_vmm_pool_extend(ga_vmm_pool *pool, ga_vmm_run *run, uint64_t size)
{
    uint64_t more = size - run->size;
    ga_vmm_window behind = {run->last, run->base + run->size, run->base + size, more};
    ga_status status = check_limit(pool, more);
    if (status != GA_OK) {
        return status;
    }
    if (!is_clear(pool, run, behind.end) || !cut_at(pool, run, behind.end)) {
        return ga_fail(GA_ERR_NO_ROOM, "the addresses behind its %llu bytes are not free",
                       (ull)run->room);
    }
    make_way(pool, more, NULL, &behind);
    do {
        status = extend(pool, run, size);
        ga_vmm_chunks_drop_loose(pool);
    } while (status == GA_ERR_MEMORY && ga_vmm_evict(pool, more, NULL, 0));
    return status;
}

/* ---- shrinking where it stands ------------------------------------------------------------ */

static void free_chunk(ga_vmm_pool *pool, ga_vmm_chunk *chunk)
{
    chunk->run = NULL;
    chunk->freed = pool->clock;
    chunk->idle_since = pool->now;
    ga_vmm_list_append(&pool->ages, &chunk->age);
    ga_vmm_tree_mark(pool, chunk);
}

/* The chunk that holds the run's last byte once it has `size` bytes. */
static ga_vmm_chunk *last_for(ga_vmm_pool *pool, const ga_vmm_run *run, uint64_t size)
{
    ga_vmm_chunk *last = run->first;
    while (ga_vmm_chunk_end(last) < run->base + size) {
        last = ga_vmm_chunk_after(last);
    }
    ga_vmm_chunks_split(pool, last, run->base + size);
    return last;
}

uint64_t ga_vmm_pool_shrink(ga_vmm_pool *pool, ga_vmm_run *run, uint64_t size)
{
    ga_vmm_chunk *end = ga_vmm_chunk_after(run->last);
    ga_vmm_chunk *last = last_for(pool, run, size);
    uint64_t left = ga_vmm_chunk_end(last) - run->base;
    uint64_t cut = run->size - left;
    if (!cut) {
        return 0;
    }
    pool->live -= cut;
    pool->waste -= run->size - run->wanted;
    pool->waste += left - size;
    pool->clock++;
    run->last = last;
    run->size = run->room = left;
    run->wanted = size;
    for (ga_vmm_chunk *c = ga_vmm_chunk_after(last); c != end; c = ga_vmm_chunk_after(c)) {
        free_chunk(pool, c);
    }
    ga_vmm_tree_mark(pool, last);
    return cut;
}
