/* SPDX-License-Identifier: MIT
 *
 * Blocks of stream captures: one record for each block that a graph uses.
 *
 *   block   BOUND --free--> FREED --request of the same capture--> BOUND
 *                           FREED --graph destroyed--> freed by its heap
 *           BOUND --graph destroyed--> an ordinary block, record removed
 *
 * ga_captures_alloc    reuse_freed, else serve_new from the heap
 * ga_captures_free     free_bound if a graph has the block, else bind it to the stream's capture
 * ga_captures_flush    remove_destroyed, remove_waiting, then free_entries without the lock
 *
 * STRUCTURE  a list of graphs, each with a list of its blocks; a hash table of all blocks by
 *            address. If only the legacy stream reports a capture, the graph is unknown: blocks
 *            that are freed then have no owner and stand in the list `waiting`
 * INVARIANT  a graph's record lives until the driver has reported the graph's destruction
 * ORDER      the lock guards all but the words that the driver's thread sets: UG1/UG2.
 *            `blocks_known` is a hint for calls without captures: a thread frees a block that it
 *            got from the thread that allocated it, and sees the count with the block
 * PROGRESS   blocks while another thread is in here
 */
#include "captures.h"

#include "../platform/cuda_captures.h"
#include "../platform/cuda_driver.h"
#include "../platform/forks.h"
#include "../platform/libc.h"
#include "../platform/log.h"

#include <pthread.h>
#include <stdint.h>

enum {
    BUCKETS = 1024,
    STREAM_THREAD = 2,    /* value of the handle CU_STREAM_PER_THREAD */
    WASTE_DIV = 4,        /* a freed block is reused for requests of at least its size - size / 4 -
                           * WASTE_MAX bytes */
    WASTE_MAX = 64 * 1024 /* bytes */
};

typedef struct entry entry;

typedef struct graph {
    uint64_t capture; /* the driver's number of the capture */
    unsigned destroyed;
    entry *blocks;
    struct graph *following;
} graph;

struct entry {
    ga_heap *heap;
    void *block;
    size_t size;      /* usable bytes */
    ga_stream stream; /* on which it may be reused, if `reusable` */
    bool freed, reusable;
    graph *owner;    /* NULL: the capture is unknown */
    graph *freed_in; /* the capture in which it was freed, if that is not the owner; else NULL */
    entry *following, *chained;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static graph *graphs;
static entry *waiting; /* blocks of unknown captures, all of them freed */
static entry *buckets[BUCKETS];
static unsigned blocks_known; /* relaxed: see ORDER */
static unsigned any_waiting;  /* relaxed: a hint for the next call */
static unsigned any_destroyed;

static void fork_child(void)
{
    pthread_mutex_init(&lock, NULL); /* the thread that held it is not in the child */
}

__attribute__((constructor)) static void watch_forks(void)
{
    static bool watched;
    ga_forks_watch(&watched, NULL, NULL, fork_child);
}

/* ---- the table of blocks, with the lock held ------------------------------------------------ */

static entry **bucket_of(const void *block)
{
    uint64_t mixed = ((uint64_t)(uintptr_t)block >> 8) * UINT64_C(0x9e3779b97f4a7c15);
    return &buckets[mixed >> 54];
}

static entry *find_block(const ga_heap *heap, const void *block)
{
    entry *e = *bucket_of(block);
    while (e && (e->block != block || e->heap != heap)) {
        e = e->chained;
    }
    return e;
}

static void insert_block(entry *e, entry **list)
{
    entry **bucket = bucket_of(e->block);
    e->chained = *bucket;
    *bucket = e;
    e->following = *list;
    *list = e;
    __atomic_fetch_add(&blocks_known, 1, __ATOMIC_RELAXED); /* relaxed: see ORDER */
}

/* Remove a block from the table. The caller unlinks it from its list. */
static void remove_block(entry *e)
{
    entry **at = bucket_of(e->block);
    while (*at != e) {
        at = &(*at)->chained;
    }
    *at = e->chained;
    __atomic_fetch_sub(&blocks_known, 1, __ATOMIC_RELAXED); /* relaxed: see ORDER */
}

/* ---- graphs, with the lock held ------------------------------------------------------------- */

/* Called by a thread of the driver when the graph has been destroyed. */
static void set_destroyed(void *context)
{
    graph *g = context;
    /* UG1: release. Pairs with UG2. Another thread may free the record as soon as its word is set,
     * so the last store is to a static word. */
    __atomic_store_n(&g->destroyed, 1, __ATOMIC_RELEASE);
    __atomic_store_n(&any_destroyed, 1, __ATOMIC_RELEASE);
}

static graph *find_graph(ga_stream stream)
{
    uint64_t number = 0;
    graph *g = graphs;
    if (!ga_cuda_capture_number(stream, &number)) {
        return NULL;
    }
    while (g && g->capture != number) {
        g = g->following;
    }
    return g;
}

/* The record of the stream's graph, made if need be; NULL without memory. If the driver refuses to
 * report the destruction of a graph, its blocks stay until their heap is closed. */
static graph *graph_of(ga_stream stream)
{
    graph *g = find_graph(stream);
    if (g) {
        return g;
    }
    g = ga_libc.calloc(1, sizeof *g);
    if (!g) {
        return NULL;
    }
    ga_cuda_capture_number(stream, &g->capture);
    g->following = graphs;
    graphs = g;
    if (!ga_cuda_capture_watch(stream, set_destroyed, g)) {
        ga_log(GA_LOG_WARN, "a capture cannot be watched: blocks that are freed in it stay until "
                            "their heap is closed");
    }
    return g;
}

/* ---- whether a stream captures -------------------------------------------------------------- */

static bool is_default(ga_stream stream)
{
    return (uintptr_t)stream <= STREAM_THREAD;
}

/* Handles of default streams mean a context's streams, so make the heap's context current first. */
static ga_cuda_capture_state query_in_context(const ga_heap *heap, ga_stream stream)
{
    ga_cuda_scope scope;
    ga_cuda_capture_state capturing = GA_CUDA_CAPTURE_NONE;
    if (ga_cuda_enter(&scope, heap->device) == GA_OK) {
        capturing = ga_cuda_is_capturing(stream);
        ga_cuda_leave(&scope);
    }
    return capturing;
}

/* Only the root is queried, so that the layers below it do not repeat the query. */
static ga_cuda_capture_state is_capturing(const ga_heap *heap, ga_stream stream)
{
    if (!heap->root || heap->place != GA_PLACE_DEVICE || !ga_cuda_captures_watched()) {
        return GA_CUDA_CAPTURE_NONE;
    }
    return is_default(stream) ? query_in_context(heap, stream) : ga_cuda_is_capturing(stream);
}

/* ---- requests ------------------------------------------------------------------------------ */

static bool serves(const entry *e, const ga_heap *heap, size_t size, size_t align, ga_stream stream)
{
    bool fits = e->size >= size && e->size - size <= e->size / WASTE_DIV + WASTE_MAX;
    bool aligned = !align || (uintptr_t)e->block % align == 0;
    return e->freed && e->reusable && e->heap == heap && e->stream == stream && fits && aligned;
}

/* The smallest fitting block that was freed on the stream in this capture. With the lock held. */
static entry *find_freed(const graph *g, const ga_heap *heap, size_t size, size_t align,
                         ga_stream stream)
{
    entry *best = NULL;
    for (entry *e = g ? g->blocks : NULL; e; e = e->following) {
        if (serves(e, heap, size, align, stream) && (!best || e->size < best->size)) {
            best = e;
        }
    }
    return best;
}

static bool reuse_freed(const ga_heap *heap, size_t size, size_t align, ga_stream stream,
                        void **out)
{
    pthread_mutex_lock(&lock);
    entry *e = find_freed(find_graph(stream), heap, size, align, stream);
    if (e) {
        e->freed = e->reusable = false;
        *out = e->block;
    }
    pthread_mutex_unlock(&lock);
    return e != NULL;
}

/* Record that the stream's capture uses the block. `known`: the capture is the stream's own. False:
 * no memory for the record. */
static bool bind(ga_heap *heap, void *block, ga_stream stream, bool freed, bool reusable,
                 bool known)
{
    entry *e = ga_libc.malloc(sizeof *e);
    if (!e) {
        return false;
    }
    *e = (entry){.heap = heap,
                 .block = block,
                 .size = ga_usable_size(heap, block),
                 .stream = stream,
                 .freed = freed,
                 .reusable = reusable && known};
    pthread_mutex_lock(&lock);
    e->owner = known ? graph_of(stream) : NULL;
    bool bound = e->owner || !known;
    if (bound) {
        insert_block(e, e->owner ? &e->owner->blocks : &waiting);
        if (!e->owner) {
            __atomic_store_n(&any_waiting, 1, __ATOMIC_RELAXED); /* relaxed: a hint */
        }
    }
    pthread_mutex_unlock(&lock);
    if (!bound) {
        ga_libc.free(e);
    }
    return bound;
}

/* Allocate without stream order from the heap: a capturing stream cannot be ordered after work
 * outside its graph. */
static ga_status serve_new(ga_heap *heap, size_t size, size_t align, ga_stream stream, bool known,
                           void **out)
{
    ga_status status = ga_memory_serve(heap, size, align, out);
    if (status == GA_OK && known && !bind(heap, *out, stream, false, false, true)) {
        heap->backend->free(heap->state, *out);
        status = ga_fail(GA_ERR_MEMORY, "%s: no memory for the note of a captured block",
                         heap->backend->name);
    }
    if (status == GA_OK) {
        ga_counters_alloc(heap->counters, size, ga_usable_size(heap, *out));
    } else {
        *out = NULL;
        ga_counters_failure(heap->counters);
    }
    return status;
}

/* A reused block changes no counters: it counts as one that was never freed. */
bool ga_captures_alloc(ga_heap *heap, size_t size, size_t align, ga_stream stream, void **out,
                       ga_status *status)
{
    ga_cuda_capture_state capturing = is_capturing(heap, stream);
    if (capturing == GA_CUDA_CAPTURE_NONE) {
        return false;
    }
    bool known = capturing == GA_CUDA_CAPTURE_OWN;
    bool served = known && reuse_freed(heap, size, align, stream, out);
    *status = served ? GA_OK : serve_new(heap, size, align, stream, known, out);
    return true;
}

/* ---- frees --------------------------------------------------------------------------------- */

static void mark_freed(entry *e, const ga_stream *stream, bool reusable)
{
    graph *in = stream && !e->freed && ga_cuda_is_capturing(*stream) == GA_CUDA_CAPTURE_OWN
                    ? graph_of(*stream)
                    : NULL;
    if (in) {
        e->stream = *stream;
        e->reusable = reusable && in == e->owner;
        e->freed_in = in == e->owner ? NULL : in;
    }
    e->freed = true;
}

/* If a graph has the block, mark it freed and return true. A second free is GA_ERR_POINTER. */
static bool free_bound(const ga_heap *heap, const void *block, const ga_stream *stream,
                       bool reusable, ga_status *status)
{
    bool bound = false;
    if (!__atomic_load_n(&blocks_known, __ATOMIC_RELAXED)) { /* relaxed: see ORDER */
        return false;
    }
    pthread_mutex_lock(&lock);
    entry *e = find_block(heap, block);
    /* UG2: acquire. Pairs with UG1. */
    bound =
        e && !(e->owner && __atomic_load_n(&e->owner->destroyed, __ATOMIC_ACQUIRE) && !e->freed);
    if (bound) {
        *status =
            e->freed ? ga_fail(GA_ERR_POINTER, "%s: %p is free already", heap->backend->name, block)
                     : GA_OK;
        mark_freed(e, stream, reusable);
    }
    pthread_mutex_unlock(&lock);
    return bound;
}

bool ga_captures_free(ga_heap *heap, void *block, const ga_stream *stream, bool reusable,
                      ga_status *status)
{
    if (free_bound(heap, block, stream, reusable, status)) {
        return true;
    }
    ga_cuda_capture_state capturing = is_capturing(heap, stream ? *stream : NULL);
    if (capturing == GA_CUDA_CAPTURE_NONE || !ga_usable_size(heap, block)) {
        return false; /* the backend will report an invalid pointer */
    }
    bool known = capturing == GA_CUDA_CAPTURE_OWN;
    *status = bind(heap, block, stream ? *stream : NULL, true, reusable, known)
                  ? GA_OK
                  : ga_fail(GA_ERR_MEMORY, "%s: no memory to free a block in a capture",
                            heap->backend->name);
    return true;
}

bool ga_captures_pin(const ga_heap *heap, const void *block)
{
    bool bound = false;
    if (__atomic_load_n(&blocks_known, __ATOMIC_RELAXED)) { /* relaxed: see ORDER */
        pthread_mutex_lock(&lock);
        bound = find_block(heap, block) != NULL;
        pthread_mutex_unlock(&lock);
    }
    return bound || is_capturing(heap, NULL) != GA_CUDA_CAPTURE_NONE;
}

/* ---- giving blocks back -------------------------------------------------------------------- */

/* Free a block whose graph has been destroyed. If the graph was known its work is done, so a
 * stream-ordered free on an idle stream avoids a wait for the device. False: the driver failed, so
 * retry later. */
static bool free_now(const entry *e)
{
    ga_cuda_scope scope;
    ga_status status = ga_cuda_enter(&scope, e->heap->device);
    ga_stream own = status == GA_OK ? scope.stream : NULL;
    if (status == GA_OK) {
        ga_cuda_leave(&scope);
        status =
            ga_memory_free(e->heap, e->block, e->owner && e->heap->backend->free_on ? &own : NULL);
    }
    if (status != GA_OK) {
        ga_log(GA_LOG_ERROR, "a block of a captured graph cannot be freed: %s", ga_error_text());
    }
    return status == GA_OK || status == GA_ERR_POINTER;
}

/* The next flush tries the free again. */
static void retry_later(entry *e)
{
    pthread_mutex_lock(&lock);
    e->owner = e->freed_in = NULL;
    insert_block(e, &waiting);
    __atomic_store_n(&any_waiting, 1, __ATOMIC_RELAXED); /* relaxed: a hint */
    pthread_mutex_unlock(&lock);
}

/* Free entries that have been removed from the table. `last`: their heap is closed next, so that
 * failed frees are not retried. */
static void free_entries(entry *list, bool last)
{
    while (list) {
        entry *e = list;
        list = e->following;
        if (e->freed && !free_now(e) && !last) {
            retry_later(e);
        } else {
            ga_libc.free(e);
        }
    }
}

/* Clear `freed_in` in all blocks that were freed in a graph that has been destroyed. */
static void forget_graph(const graph *g)
{
    for (size_t i = 0; i < BUCKETS; i++) {
        for (entry *e = buckets[i]; e; e = e->chained) {
            e->freed_in = e->freed_in == g ? NULL : e->freed_in;
        }
    }
}

/* Move the blocks of a destroyed graph to the graph that they were freed in, or to `out`. */
static void move_blocks(graph *g, entry **out)
{
    while (g->blocks) {
        entry *e = g->blocks;
        g->blocks = e->following;
        if (e->freed_in) {
            e->owner = e->freed_in;
            e->freed_in = NULL;
        } else {
            remove_block(e);
        }
        entry **to = e->owner == g ? out : &e->owner->blocks;
        e->following = *to;
        *to = e;
    }
}

static void remove_destroyed(entry **out)
{
    pthread_mutex_lock(&lock);
    __atomic_store_n(&any_destroyed, 0, __ATOMIC_RELAXED); /* relaxed: a hint; UG1 sets it after the
                                                            * graph's word */
    for (graph **at = &graphs; *at;) {
        graph *g = *at;
        /* UG2: acquire. Pairs with UG1. */
        if (!__atomic_load_n(&g->destroyed, __ATOMIC_ACQUIRE)) {
            at = &g->following;
            continue;
        }
        *at = g->following;
        forget_graph(g);
        move_blocks(g, out);
        ga_libc.free(g);
    }
    pthread_mutex_unlock(&lock);
}

/* Move blocks of unknown captures to `out` once the legacy stream of their device reports no
 * capture. */
static void remove_waiting(entry **out)
{
    entry *left = NULL;
    pthread_mutex_lock(&lock);
    while (waiting) {
        entry *e = waiting;
        bool done = query_in_context(e->heap, NULL) == GA_CUDA_CAPTURE_NONE;
        waiting = e->following;
        if (done) {
            remove_block(e);
        }
        e->following = done ? *out : left;
        *(done ? out : &left) = e;
    }
    waiting = left;
    __atomic_store_n(&any_waiting, left != NULL, __ATOMIC_RELAXED); /* relaxed: a hint */
    pthread_mutex_unlock(&lock);
}

void ga_captures_flush(void)
{
    entry *list = NULL;
    /* UG2: acquire. Pairs with UG1. */
    if (__atomic_load_n(&any_destroyed, __ATOMIC_ACQUIRE)) {
        remove_destroyed(&list);
    }
    if (__atomic_load_n(&any_waiting, __ATOMIC_RELAXED)) { /* relaxed: a hint */
        remove_waiting(&list);
    }
    free_entries(list, false);
}

static void remove_of_heap(entry **list, const ga_heap *heap, entry **out)
{
    while (*list) {
        entry *e = *list;
        if (e->heap != heap) {
            list = &e->following;
            continue;
        }
        *list = e->following;
        remove_block(e);
        e->following = *out;
        *out = e;
    }
}

void ga_captures_forget(ga_heap *heap, bool freeing)
{
    entry *list = NULL;
    if (!__atomic_load_n(&blocks_known, __ATOMIC_RELAXED)) { /* relaxed: see ORDER */
        return;
    }
    pthread_mutex_lock(&lock);
    for (graph *g = graphs; g; g = g->following) {
        remove_of_heap(&g->blocks, heap, &list);
    }
    remove_of_heap(&waiting, heap, &list);
    pthread_mutex_unlock(&lock);
    for (entry *e = list; e && !freeing; e = e->following) {
        e->freed = false; /* the reset has freed it already */
    }
    free_entries(list, true);
}
