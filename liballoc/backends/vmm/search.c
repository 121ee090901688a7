/* SPDX-License-Identifier: MIT
 *
 * The search for the cheapest window.
 *
 * ga_vmm_search
 *   search_mapped_extents    adjacent free chunks: no driver call
 *   search_spans             if nothing there is cheaper than one mapping: chunks and holes
 *   search_single_hole       if nothing was found within the budget, or a run is a chunk of its
 *                            own: the first large hole
 *
 * The tree (tree.h) finds the extents and spans that are large enough, from the lowest address
 * on. Within each of them a window slides from start to start, and its end moves along.
 *
 * A search has a budget of chunks. It is larger on a device, where a driver call costs as much as
 * looking at hundreds of chunks. In a heap with fewer chunks than the budget the result is the best
 * window.
 */
#include "search.h"

#include "../../platform/libc.h"
#include "tree.h"

/* Costs in nanoseconds: driver calls measured on an H200 with driver 580, and estimates of other
 * costs on the same scale. Only the proportions matter. */
enum {
    MAP_NS = 39000, /* cuMemCreate, cuMemMap and cuMemSetAccess, per chunk */
    MAP_NS_PER_MIB = 50,
    UNMAP_NS = 30000,
    UNMAP_NS_PER_MIB = 150, /* 540 to release the memory, but some of it is moved instead */
    WASTE_NS_PER_MIB = 500,
    ONE_EDGE_NS = 2000,   /* free chunks remain on one side of the window only */
    TWO_EDGES_NS = 10000, /* on both sides */
    MIB_SHIFT = 20
};

/* Budget of a search, in chunks. A query of the tree counts as TREE_QUERY_COST chunks. */
enum {
    CHUNKS_SEEN_MAX_HOST = 512,
    CHUNKS_SEEN_MAX_DEVICE = 32768,
    TREE_QUERY_COST = 8,
    FIRST_ITEMS = 128 /* capacity of the first buffer */
};

/* A free chunk or a hole. It ends at the base of the next item. */
typedef struct item {
    uintptr_t base;
    uint64_t mapped; /* bytes of the span's chunks before this item */
    uint32_t holes;  /* holes of the span before this item */
    bool hole;
    ga_vmm_chunk *below; /* the chunk before this item */
} item;

struct ga_vmm_search_items {
    size_t room;
    item items[];
};

typedef struct span {
    const item *items; /* `count` items, and one more for the end of the span */
    size_t count;
    uint64_t mapped;
} span;

/* A window and its cost. */
typedef struct candidate {
    uintptr_t base, end;
    uint64_t fill;
    ga_vmm_chunk *below;
    uint64_t cost;   /* UINT64_MAX: no window */
    uint64_t mapped; /* free bytes of its extent or span: of equal costs, the fewest fit best */
} candidate;

/* ---- one window -------------------------------------------------------------------------- */

static uint64_t ns_for_bytes(uint64_t bytes, uint64_t ns_per_mib)
{
    return (bytes >> MIB_SHIFT) * ns_per_mib;
}

static uint64_t cost_of_driver(const ga_vmm_request *request, uint64_t fill, uint32_t holes)
{
    uint64_t over = fill > request->room ? fill - request->room : 0;
    uint64_t map = fill ? holes * (uint64_t)MAP_NS + ns_for_bytes(fill, MAP_NS_PER_MIB) : 0;
    return map + (over ? UNMAP_NS + ns_for_bytes(over, UNMAP_NS_PER_MIB) : 0);
}

/* The cost of fragmentation: free chunks remain on both sides of the window, on one, or on none. */
static uint64_t cost_of_edges(const span *s, uint64_t before, uint64_t behind)
{
    bool low = before == 0 || before == s->mapped;
    bool high = behind == 0 || behind == s->mapped;
    return low && high ? 0 : low || high ? ONE_EDGE_NS : TWO_EDGES_NS;
}

/* Consider the window from `base` in item `first` to the end of item `last`, and keep it if it is
 * better than *best. A window that ends or begins in a hole is cut there to the requested size. */
static void consider(const span *s, size_t first, size_t last, uintptr_t base,
                     const ga_vmm_request *request, candidate *best)
{
    const item *low = &s->items[first];
    const item *high = &s->items[last + 1];
    uintptr_t end = high->base;
    uint64_t excess = end - base - request->size;
    bool holes = high->holes != low->holes;
    if (holes ? best->cost < MAP_NS : excess > request->waste) {
        return; /* the common case */
    }
    if (high[-1].hole) {
        end -= excess;
        excess = 0;
    } else if (low->hole && base + excess < low[1].base && !(excess & (request->align - 1))) {
        base += excess;
        excess = 0;
    }
    if (excess > request->waste) {
        return;
    }
    uint64_t fill = end - base - (high->mapped - low->mapped);
    uint64_t cost = ns_for_bytes(excess, WASTE_NS_PER_MIB) +
                    cost_of_driver(request, fill, high->holes - low->holes) +
                    cost_of_edges(s, low->mapped, s->mapped - high->mapped);
    if (cost < best->cost || (cost == best->cost && s->mapped < best->mapped)) {
        *best = (candidate){base, end, fill, low->below, cost, s->mapped};
    }
}

/* ---- one span ---------------------------------------------------------------------------- */

static void search_span(const span *s, const ga_vmm_request *request, candidate *best)
{
    size_t last = 0;
    for (size_t first = 0; first < s->count; first++) {
        const item *at = &s->items[first];
        uintptr_t base = (at->base + request->align - 1) & ~(request->align - 1);
        if (base >= at[1].base || (base != at->base && !at->hole)) {
            continue;
        }
        while (last < s->count && s->items[last + 1].base < base + request->size) {
            last++;
        }
        if (last == s->count) {
            return;
        }
        consider(s, first, last, base, request, best);
    }
}

/* True if the chunk is not occupied and its fence admits the request. */
static bool is_free(ga_vmm_pool *pool, const ga_vmm_chunk *chunk, const ga_vmm_request *request)
{
    return !ga_vmm_is_occupied(chunk) && ga_vmm_is_ready(pool, chunk->fence, request);
}

/* Make the buffer hold more than `count` items. Returns false if out of memory. */
static bool reserve_items(ga_vmm_pool *pool, size_t count)
{
    ga_vmm_search_items *items = pool->items;
    if (items && items->room > count) {
        return true;
    }
    size_t room = items ? 2 * items->room : FIRST_ITEMS;
    items = ga_libc.realloc(items, sizeof *items + room * sizeof *items->items);
    if (items) {
        items->room = room;
        pool->items = items;
    }
    return items;
}

/* List the chunks and holes behind `below`, up to the first chunk that is not free for the request
 * (*end). A span of very many chunks is cut once it is twice as large as needed. Returns false if
 * out of memory. */
static bool list_span(ga_vmm_pool *pool, ga_vmm_chunk *below, const ga_vmm_request *request,
                      span *s, ga_vmm_chunk **end)
{
    uint32_t holes = 0;
    uintptr_t base = ga_vmm_tree_end(below);
    uint64_t enough = 2 * (request->size + request->align + request->waste);
    bool goes_on = true;
    *s = (span){0};
    while (goes_on) {
        ga_vmm_chunk *next = ga_vmm_chunk_after(below);
        uintptr_t hole = ga_vmm_tree_end(below);
        if (!reserve_items(pool, s->count + 2)) {
            return false;
        }
        item *items = pool->items->items;
        if (hole < next->base) {
            items[s->count++] = (item){hole, s->mapped, holes++, true, below};
        }
        items[s->count] = (item){next->base, s->mapped, holes, false, below};
        goes_on = is_free(pool, next, request) &&
                  (s->count < CHUNKS_SEEN_MAX_HOST || next->base - base < enough);
        if (goes_on) {
            s->count++;
            s->mapped += next->size;
        }
        below = next;
    }
    s->items = pool->items->items;
    *end = below;
    return true;
}

/* ---- adjacent free chunks ----------------------------------------------------------------- */

/* Windows in the adjacent chunks [first, end). */
static void search_mapped_extent(ga_vmm_chunk *first, const ga_vmm_chunk *end,
                                 const ga_vmm_request *request, candidate *best)
{
    uintptr_t low = first->base;
    uintptr_t high = ga_vmm_chunk_end(ga_vmm_chunk_of(end->link.before));
    const ga_vmm_chunk *last = first;
    for (; first != end && high - first->base >= request->size; first = ga_vmm_chunk_after(first)) {
        uintptr_t base = first->base;
        while (ga_vmm_chunk_end(last) < base + request->size) {
            last = ga_vmm_chunk_after(last);
        }
        uint64_t excess = ga_vmm_chunk_end(last) - base - request->size;
        if (excess > request->waste || base & (request->align - 1)) {
            continue;
        }
        bool at_end = ga_vmm_chunk_end(last) == high;
        uint64_t edges = base == low && at_end   ? 0
                         : base == low || at_end ? ONE_EDGE_NS
                                                 : TWO_EDGES_NS;
        uint64_t cost = ns_for_bytes(excess, WASTE_NS_PER_MIB) + edges;
        if (cost < best->cost || (cost == best->cost && high - low < best->mapped)) {
            ga_vmm_chunk *below = ga_vmm_chunk_of(first->link.before);
            *best = (candidate){base, ga_vmm_chunk_end(last), 0, below, cost, high - low};
        }
    }
}

/* The chunk behind the adjacent chunks from `first` on that are free for the request. */
static ga_vmm_chunk *end_of_mapped_extent(ga_vmm_pool *pool, ga_vmm_chunk *first,
                                          const ga_vmm_request *request, long *budget)
{
    uintptr_t end = first->base;
    while (first->base == end && is_free(pool, first, request) && (*budget)-- > 0) {
        end = ga_vmm_chunk_end(first);
        first = ga_vmm_chunk_after(first);
    }
    return first;
}

static void search_mapped_extents(ga_vmm_pool *pool, const ga_vmm_request *request, candidate *best)
{
    long budget = pool->space.device < 0 ? CHUNKS_SEEN_MAX_HOST : CHUNKS_SEEN_MAX_DEVICE;
    uint64_t bytes;
    ga_vmm_chunk *at = ga_vmm_chunk_of(pool->addresses.chunks.after);
    while (budget > 0 && (best->cost || best->mapped != request->size) &&
           (at = ga_vmm_tree_find(pool, at, GA_VMM_MAPPED_EXTENTS, request->size, &bytes)) !=
               NULL) {
        ga_vmm_chunk *first =
            ga_vmm_addresses_find(&pool->addresses, (void *)(ga_vmm_chunk_end(at) - bytes));
        at = end_of_mapped_extent(pool, first, request, &budget);
        if (at != first) {
            search_mapped_extent(first, at, request, best);
        } else {
            at = ga_vmm_chunk_after(at); /* a stream still uses it */
        }
        budget -= TREE_QUERY_COST;
    }
}

/* ---- chunks and holes -------------------------------------------------------------------- */

/* Search the parts of a span of the tree that lie between chunks in use by streams. Returns the
 * span's end, or NULL if out of memory. */
static ga_vmm_chunk *search_span_parts(ga_vmm_pool *pool, ga_vmm_chunk *below,
                                       const ga_vmm_request *request, candidate *best, long *budget)
{
    span s;
    ga_vmm_chunk *end;
    do {
        if (!list_span(pool, below, request, &s, &end)) {
            return NULL;
        }
        *budget -= (long)s.count + TREE_QUERY_COST;
        if (end->base - ga_vmm_tree_end(below) >= request->size) {
            search_span(&s, request, best);
        }
        below = end;
    } while (!ga_vmm_is_occupied(end) && *budget > 0);
    return end;
}

static void search_spans(ga_vmm_pool *pool, const ga_vmm_request *request, candidate *best)
{
    long budget = pool->space.device < 0 ? CHUNKS_SEEN_MAX_HOST : CHUNKS_SEEN_MAX_DEVICE;
    uint64_t bytes;
    ga_vmm_chunk *at = ga_vmm_chunk_of(pool->addresses.chunks.after);
    while (at && budget > 0 &&
           (at = ga_vmm_tree_find(pool, at, GA_VMM_SPANS, request->size, &bytes)) != NULL) {
        at = search_span_parts(pool, ga_vmm_tree_occupied_before(at), request, best, &budget);
    }
}

/* A hole alone. The search above may have spent its budget before it got there. */
static void search_single_hole(const ga_vmm_pool *pool, const ga_vmm_request *request,
                               candidate *best)
{
    uint64_t more = request->align > pool->space.granule ? request->align - pool->space.granule : 0;
    ga_vmm_chunk *behind = ga_vmm_tree_hole(pool, request->size + more);
    if (behind) {
        ga_vmm_chunk *below = ga_vmm_chunk_of(behind->link.before);
        uintptr_t base = (ga_vmm_tree_end(below) + request->align - 1) & ~(request->align - 1);
        *best = (candidate){base, base + request->size, request->size, below, 0, 0};
    }
}

bool ga_vmm_search(ga_vmm_pool *pool, const ga_vmm_request *request, ga_vmm_window *out)
{
    candidate best = {.cost = UINT64_MAX};
    ga_vmm_tree_refresh(pool);
    ga_vmm_fences_poll(&pool->fences);
    if (!pool->whole) {
        search_mapped_extents(pool, request, &best);
    }
    if (!pool->whole && best.cost >= MAP_NS) {
        search_spans(pool, request, &best);
    }
    if (best.cost == UINT64_MAX) {
        search_single_hole(pool, request, &best);
    }
    if (!best.below) {
        return false;
    }
    *out = (ga_vmm_window){best.below, best.base, best.end, best.fill};
    return true;
}
