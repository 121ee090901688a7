/* SPDX-License-Identifier: MIT
 *
 * Allocating, freeing, extending and shrinking runs.
 *
 * ga_vmm_pool_allocate
 *   allocate
 *     ga_vmm_replay_find(sequence) -> claim_replayed    the program repeats itself: one comparison
 *     find_intact -> reuse_intact                       a freed run of the same size
 *     ga_vmm_replay_find(any) -> claim_replayed         an earlier placement of the same size
 *     allocate_searched
 *       find_window                                     search; reserves addresses if needed
 *       claim_window                                    no hole in the window: no driver call
 *       claim_mapped                                    evict, map holes, claim; evict and retry
 */
#include "pool.h"

#include "../../platform/libc.h"
#include "chunks.h"
#include "purge.h"
#include "replay.h"
#include "search.h"
#include "steps.h"
#include "tree.h"

#include <gpualloc/backend.h>

#include <time.h>

typedef unsigned long long ull; /* the type of %llu */

enum {
    SPARE_DIV = 25, /* cache at most peak/25 beyond the peak, internal waste included */
    WASTE_DIV = 28, /* of that, at most peak/28 as internal waste */
    SPARE_GRANULES_MIN = 32,
    INTACT_PROBES_MAX = 32 /* intact runs of about the size that are tried */
};

/* Runs of this size and above reserve addresses behind them to grow into. */
static const uint64_t ROOMY_RUN_BYTES = (uint64_t)1 << 30;

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
    ga_vmm_list_init(&pool->detached);
    ga_vmm_list_init(&pool->live_runs);
    ga_vmm_list_init(&pool->free_by_age);
    ga_vmm_list_init(&pool->stale);
    for (size_t i = 0; i < GA_VMM_SIZE_BUCKETS; i++) {
        ga_vmm_list_init(&pool->buckets[i]);
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

/* Called after the run became live or was freed: the summaries of its chunks are out of date. */
static void mark_run_stale(ga_vmm_pool *pool, const ga_vmm_run *run)
{
    for (ga_vmm_chunk *c = run->first; c != run->last; c = ga_vmm_chunk_after(c)) {
        ga_vmm_tree_mark_stale(pool, c);
    }
    ga_vmm_tree_mark_stale(pool, run->last);
}

/* Fences first, because closing them waits for the streams. */
void ga_vmm_pool_close(ga_vmm_pool *pool)
{
    const ga_vmm_link *chunks = &pool->addresses.chunks;
    for (const ga_vmm_link *l = chunks->after; l != chunks; l = l->after) {
        drop_fence(pool, ga_vmm_chunk_of(l));
    }
    ga_vmm_fences_close(&pool->fences);
    ga_vmm_chunks_end(pool);
    ga_vmm_addresses_close(&pool->addresses);
    free_records(&pool->live_runs);
    for (size_t i = 0; i < GA_VMM_SIZE_BUCKETS; i++) {
        free_records(&pool->buckets[i]);
    }
    ga_libc.free(pool->items);
    ga_vmm_history_clear(&pool->history);
}

/* ---- bounds ------------------------------------------------------------------------------ */

static uint64_t peak_with(const ga_vmm_pool *pool, uint64_t more)
{
    return most(pool->peak, pool->live - pool->waste + more);
}

/* Bytes that were freed and are not usable yet for this request. A request with a stream can use
 * all of them, because its stream can be made to wait. */
static uint64_t bytes_in_flight(const ga_vmm_pool *pool, const ga_stream *stream)
{
    return stream ? 0 : pool->fences.bytes;
}

/* The most bytes that cache= allows to be held once `more` bytes are live in addition. The default
 * is the peak of live bytes and 1/25 of it. So a program that repeats itself finds its earlier
 * memory, and at most 1/20 is held unused, including the waste inside units. */
static uint64_t cache_bound(const ga_vmm_pool *pool, uint64_t more, uint64_t in_flight)
{
    uint64_t peak = peak_with(pool, more + in_flight);
    uint64_t usual = peak + most(peak / SPARE_DIV, SPARE_GRANULES_MIN * pool->space.granule);
    uint64_t wide = least(peak + peak / 2, pool->total / 16 * 15);
    uint64_t live = pool->live + more;
    uint64_t size = live + least(pool->cache, UINT64_MAX - live);
    return pool->cache == GA_VMM_CACHE_AUTO   ? usual
           : pool->cache == GA_VMM_CACHE_WIDE ? most(usual, wide)
                                              : size;
}

static uint64_t hold_bound(const ga_vmm_pool *pool, uint64_t more, const ga_stream *stream)
{
    uint64_t bound = cache_bound(pool, more, bytes_in_flight(pool, stream));
    return least(bound, least(pool->limit, pool->ceiling));
}

void ga_vmm_pool_read_clock(ga_vmm_pool *pool)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &time);
    pool->now = (uint64_t)time.tv_sec * 1000 + (uint64_t)time.tv_nsec / 1000000;
}

uint64_t ga_vmm_pool_excess(const ga_vmm_pool *pool)
{
    uint64_t bound = cache_bound(pool, 0, pool->fences.bytes);
    return pool->held > bound ? pool->held - bound : 0;
}

/* Remember how much memory the driver had when it ran out. Beyond this ceiling it is asked only if
 * no free memory is left, because each failing call costs driver time. */
static void update_ceiling(ga_vmm_pool *pool, ga_status status)
{
    if (status == GA_ERR_MEMORY) {
        pool->ceiling = ga_vmm_attached_bytes(pool);
    } else if (status == GA_OK && pool->held > pool->ceiling) {
        pool->ceiling = UINT64_MAX;
    }
}

/* The most bytes by which a run may exceed `size`. */
static uint64_t waste_bound(const ga_vmm_pool *pool, uint64_t size)
{
    uint64_t bound = peak_with(pool, size) / WASTE_DIV;
    uint64_t left = bound > pool->waste ? bound - pool->waste : 0;
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

static void set_live(ga_vmm_pool *pool, ga_vmm_run *run, uint64_t requested)
{
    uint64_t hole = ga_vmm_chunk_after(run->last)->base - run->base - run->size;
    ga_vmm_list_remove(&run->link);
    ga_vmm_list_append(&pool->live_runs, &run->link);
    run->live = true;
    run->requested = requested;
    run->room = run->size + (run->size < ROOMY_RUN_BYTES ? 0 : least(hole, run->size));
    pool->live += run->size;
    pool->waste += run->size - requested;
    pool->peak = peak_with(pool, 0);
    mark_run_stale(pool, run);
}

void ga_vmm_pool_free(ga_vmm_pool *pool, ga_vmm_run *run, ga_vmm_fence *fence)
{
    pool->live -= run->size;
    pool->waste -= run->size - run->requested;
    run->live = false;
    run->sheet = NULL;
    pool->clock++;
    ga_vmm_fence_cover(&pool->fences, fence, run->size);
    for (ga_vmm_chunk *c = run->first;; c = ga_vmm_chunk_after(c)) {
        c->fence = c == run->first ? fence : ga_vmm_fence_share(fence);
        c->freed = pool->clock;
        c->idle_since = pool->now;
        ga_vmm_list_append(&pool->free_by_age, &c->age);
        if (c == run->last) {
            break;
        }
    }
    ga_vmm_list_remove(&run->link);
    ga_vmm_list_append(bucket_of(pool, run->requested), &run->link);
    mark_run_stale(pool, run);
}

/* Add the free chunks in [base of the run, end) to the run. */
static void claim_chunks(ga_vmm_pool *pool, ga_vmm_run *run, ga_vmm_chunk *below, uintptr_t end)
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
    return chunk && ga_vmm_is_occupied(chunk) ? chunk->run : NULL;
}

/* ---- room for new memory ------------------------------------------------------------------ */

static bool is_idle(ga_vmm_pool *pool, const ga_vmm_chunk *chunk)
{
    return !ga_vmm_is_occupied(chunk) && ga_vmm_is_idle(pool, chunk);
}

/* Bytes of the largest hole in the window. */
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

/* Evict free chunks so that the window's holes can be mapped; the request makes `more` bytes
 * live. Evicted memory that fits a hole is detached: the caller fills the holes with it, or
 * releases it. */
static void make_room(ga_vmm_pool *pool, uint64_t more, const ga_stream *stream,
                      ga_vmm_window *window)
{
    uint64_t bound = hold_bound(pool, more, stream);
    if (pool->held + window->fill > bound) {
        uint64_t hole = pool->whole ? 0 : largest_hole(window); /* 0: nothing is moved there */
        ga_vmm_evict(pool, pool->held + window->fill - bound, window, hole);
        window->below = ga_vmm_tree_below(pool, window->base);
    }
}

/* ---- an intact run ----------------------------------------------------------------------- */

static bool fits_request(ga_vmm_pool *pool, const ga_vmm_run *run, const ga_vmm_request *request)
{
    return run->requested == request->size && run->size - request->size <= request->waste &&
           !(run->base & (request->align - 1)) && ga_vmm_is_ready(pool, run->first->fence, request);
}

/* Prefer the run that is expected to stay idle for longest; without a prediction, the run freed
 * last. */
static ga_vmm_run *find_intact(ga_vmm_pool *pool, const ga_vmm_request *request)
{
    int probes = INTACT_PROBES_MAX;
    uint64_t longest = 0;
    ga_vmm_run *found = NULL;
    ga_vmm_link *bucket = bucket_of(pool, request->size);
    for (ga_vmm_link *l = bucket->before; l != bucket && probes--; l = l->before) {
        ga_vmm_run *run = run_of(l);
        if (!fits_request(pool, run, request)) {
            continue;
        }
        if (!pool->history.cursor) {
            return run;
        }
        uint64_t idle_span = ga_vmm_replay_idle_span(pool, run->first);
        found = idle_span > longest ? run : found;
        longest = most(idle_span, longest);
    }
    return found;
}

/* All chunks of an intact run have the same fence. */
static ga_status reuse_intact(ga_vmm_pool *pool, ga_vmm_run *run, const ga_vmm_request *request,
                              ga_vmm_run **out)
{
    ga_vmm_fence *fence = run->first->fence;
    if (fence && request->stream) {
        ga_status status = ga_vmm_fence_order(&pool->fences, fence, *request->stream);
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
    set_live(pool, run, request->size);
    *out = run;
    return GA_OK;
}

/* ---- a run made of free chunks and holes -------------------------------------------------- */

/* Make the stream wait for the work that may still use the window's chunks. */
static ga_status order_stream(ga_vmm_pool *pool, const ga_vmm_window *window, ga_stream stream)
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

static ga_status claim_window(ga_vmm_pool *pool, const ga_vmm_window *window,
                              const ga_vmm_request *request, ga_vmm_run **out)
{
    ga_vmm_run *run = ga_libc.calloc(1, sizeof *run);
    if (!run) {
        return ga_fail(GA_ERR_MEMORY, "no memory for the record of a block");
    }
    ga_status status = request->stream ? order_stream(pool, window, *request->stream) : GA_OK;
    if (status == GA_OK) {
        status = ga_vmm_chunks_fill(pool, window->below, window->base, window->end);
    }
    if (status != GA_OK) {
        ga_libc.free(run);
        return status;
    }
    ga_vmm_list_init(&run->link);
    run->base = window->base;
    claim_chunks(pool, run, window->below, window->end);
    set_live(pool, run, request->size);
    *out = run;
    return GA_OK;
}

/* Find a window, and reserve more addresses if there is none. */
static ga_status find_window(ga_vmm_pool *pool, ga_vmm_request *request, ga_vmm_window *window)
{
    ga_vmm_fences_poll(&pool->fences);
    ga_vmm_pool_read_clock(pool);
    uint64_t bound = hold_bound(pool, request->size, request->stream);
    request->room = bound > pool->held ? bound - pool->held : 0;
    if (ga_vmm_search(pool, request, window)) {
        return GA_OK;
    }
    uint64_t addresses =
        request->align > pool->space.granule ? request->size + request->align : request->size;
    ga_status status = ga_vmm_addresses_reserve(&pool->addresses, addresses);
    if (status == GA_OK && !ga_vmm_search(pool, request, window)) {
        return ga_fail(GA_ERR_MEMORY, "no memory to search for one");
    }
    return status;
}

/* Find a window of mapped chunks only, including chunks that other streams still use. */
static bool find_busy_window(ga_vmm_pool *pool, ga_vmm_request request, ga_vmm_window *window)
{
    request.waiting = true;
    return request.stream && ga_vmm_search(pool, &request, window) && !window->fill;
}

/* Map the window's holes and claim it. If the bound is reached, a window that other streams still
 * use is preferred. If the driver is out of memory, evict idle chunks and retry. */
static ga_status claim_mapped(ga_vmm_pool *pool, ga_vmm_window *window, ga_vmm_request *request,
                              ga_vmm_run **out)
{
    ga_vmm_window busy;
    uint64_t in_flight = bytes_in_flight(pool, request->stream);
    make_room(pool, request->size, request->stream, window);
    bool full = ga_vmm_attached_bytes(pool) + window->fill >
                hold_bound(pool, request->size, request->stream);
    bool waits = full && find_busy_window(pool, *request, &busy);
    ga_status status = claim_window(pool, waits ? &busy : window, request, out);
    ga_vmm_chunks_release_detached(pool);
    update_ceiling(pool, waits ? GA_OK : status);
    if (waits) {
        return status;
    }
    if (status == GA_OK) {
        pool->peak = peak_with(pool, in_flight);
    }
    while (status == GA_ERR_MEMORY && ga_vmm_evict(pool, request->size, NULL, 0)) {
        status = find_window(pool, request, window);
        status = status == GA_OK ? claim_window(pool, window, request, out) : status;
    }
    return status == GA_ERR_MEMORY && find_busy_window(pool, *request, &busy)
               ? claim_window(pool, &busy, request, out)
               : status;
}

static ga_status allocate_searched(ga_vmm_pool *pool, ga_vmm_request *request, ga_vmm_run **out)
{
    ga_vmm_window window;
    ga_status status = find_window(pool, request, &window);
    if (status == GA_OK && !window.fill) {
        return claim_window(pool, &window, request, out);
    }
    ga_status limited = check_limit(pool, request->size);
    status = limited == GA_OK ? status : limited;
    return status == GA_OK ? claim_mapped(pool, &window, request, out) : status;
}

/* ---- any run ------------------------------------------------------------------------------ */

/* The window is an intact run of the requested size, or its chunks become a new run. */
static ga_status claim_replayed(ga_vmm_pool *pool, const ga_vmm_window *window,
                                const ga_vmm_request *request, ga_vmm_run **out)
{
    ga_vmm_run *run = ga_vmm_chunk_after(window->below)->run;
    bool intact = run && run->base == window->base && run->base + run->size == window->end;
    return intact && run->requested == request->size ? reuse_intact(pool, run, request, out)
                                                     : claim_window(pool, window, request, out);
}

/* The order of pool.h. *matched: the placement that the request repeats; 0: none. */
static ga_status allocate(ga_vmm_pool *pool, ga_vmm_request *request, uint64_t *matched,
                          ga_vmm_run **out)
{
    ga_vmm_window window;
    uint64_t matched_any;
    if (pool->whole) { /* an earlier placement may consist of several chunks by now */
        ga_vmm_run *whole = find_intact(pool, request);
        return whole ? reuse_intact(pool, whole, request, out)
                     : allocate_searched(pool, request, out);
    }
    if (ga_vmm_replay_find(pool, request, GA_VMM_REPLAY_SEQUENCE, &window, matched)) {
        return claim_replayed(pool, &window, request, out);
    }
    ga_vmm_run *intact = find_intact(pool, request);
    if (intact) {
        return reuse_intact(pool, intact, request, out);
    }
    if (ga_vmm_replay_find(pool, request, GA_VMM_REPLAY_ANY, &window, &matched_any)) {
        *matched = *matched ? *matched : matched_any;
        return claim_replayed(pool, &window, request, out);
    }
    return allocate_searched(pool, request, out);
}

ga_status ga_vmm_pool_allocate(ga_vmm_pool *pool, uint64_t size, uint64_t align,
                               const ga_stream *stream, ga_vmm_run **out)
{
    ga_vmm_request request = {
        .size = size, .align = most(align, pool->space.granule), .stream = stream};
    uint64_t matched = 0;
    request.waste = waste_bound(pool, size);
    *out = NULL;
    ga_vmm_history_begin_request(&pool->history, size, stream ? (uintptr_t)*stream + 1 : 0);
    ga_status status = allocate(pool, &request, &matched, out);
    if (status == GA_OK) {
        ga_vmm_replay_record(pool, matched, *out);
    }
    return status;
}

/* ---- extending in place ------------------------------------------------------------------- */

/* True if no live run and no stream uses the addresses behind the run, up to `end`. */
static bool is_free_behind(ga_vmm_pool *pool, const ga_vmm_run *run, uintptr_t end)
{
    const ga_vmm_chunk *c = ga_vmm_chunk_after(run->last);
    while (c->base < end && is_idle(pool, c)) {
        c = ga_vmm_chunk_after(c);
    }
    return c->base >= end;
}

/* Unmap the free chunk that extends across `end`, if there is one. Returns false if the driver
 * refuses. */
static bool unmap_across(ga_vmm_pool *pool, const ga_vmm_run *run, uintptr_t end)
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
        pool->waste -= run->size - run->requested;
        claim_chunks(pool, run, last, end);
        run->requested = size; /* the caller asked for all of the new size */
        run->room = most(run->room, size);
        pool->peak = peak_with(pool, 0);
        mark_run_stale(pool, run);
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
    if (pool->whole) {
        return ga_fail(GA_ERR_CANNOT_GROW, "with register=on its %llu bytes are one chunk",
                       (ull)run->size);
    }
    if (!is_free_behind(pool, run, behind.end) || !unmap_across(pool, run, behind.end)) {
        return ga_fail(GA_ERR_CANNOT_GROW, "the addresses behind its %llu bytes are not free",
                       (ull)run->room);
    }
    make_room(pool, more, NULL, &behind);
    do {
        status = extend(pool, run, size);
        ga_vmm_chunks_release_detached(pool);
    } while (status == GA_ERR_MEMORY && ga_vmm_evict(pool, more, NULL, 0));
    return status;
}

/* ---- shrinking in place ------------------------------------------------------------------- */

static void free_chunk(ga_vmm_pool *pool, ga_vmm_chunk *chunk)
{
    chunk->run = NULL;
    chunk->freed = pool->clock;
    chunk->idle_since = pool->now;
    ga_vmm_list_append(&pool->free_by_age, &chunk->age);
    ga_vmm_tree_mark_stale(pool, chunk);
}

/* The chunk that contains the run's last byte once the run has `size` bytes. */
static ga_vmm_chunk *last_chunk_for(ga_vmm_pool *pool, const ga_vmm_run *run, uint64_t size)
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
    ga_vmm_chunk *last = last_chunk_for(pool, run, size);
    uint64_t left = ga_vmm_chunk_end(last) - run->base;
    uint64_t cut = run->size - left;
    if (!cut) {
        return 0;
    }
    pool->live -= cut;
    pool->waste -= run->size - run->requested;
    pool->waste += left - size;
    pool->clock++;
    run->last = last;
    run->size = run->room = left;
    run->requested = size;
    for (ga_vmm_chunk *c = ga_vmm_chunk_after(last); c != end; c = ga_vmm_chunk_after(c)) {
        free_chunk(pool, c);
    }
    ga_vmm_tree_mark_stale(pool, last);
    return cut;
}
