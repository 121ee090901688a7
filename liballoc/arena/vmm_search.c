/* SPDX-License-Identifier: MIT
 *
 * First among free chunks alone, then, where no window there is cheap enough, among chunks and
 * holes. The tree (vmm_tree.h) finds the rows and spans that are large enough, from the lowest
 * address on; in each a window is moved from start to start, its end going along.
 *
 * A search looks at so many chunks at the most: on a device, where a call of the driver costs as
 * much as looking at hundreds, at more. With fewer chunks than that it finds the best window.
 */
#include "vmm_search.h"

#include "../platform/libc.h"
#include "vmm_tree.h"

/* What calls take on an H200 with driver 580, in nanoseconds, and what else is like it. Only their
 * proportions matter. */
enum {
    MAP = 39000, /* create, map and give access, for each chunk */
    MAP_MIB = 50,
    UNMAP = 30000,
    UNMAP_MIB = 150, /* 540 to give the memory back, but some of it is moved */
    WASTE_MIB = 500,
    EDGE = 2000,    /* a free chunk is left on one side only */
    BROKEN = 10000, /* on both */
    MIB_SHIFT = 20
};

/* The most chunks that a search looks at; a question to the tree counts as QUESTION of them. */
enum {
    LOOKS_HOST = 512,
    LOOKS_DEVICE = 32768,
    QUESTION = 8,
    ITEMS = 128 /* room for so many at first */
};

/* A free chunk or a hole. It ends where the next one begins. */
typedef struct item {
    uintptr_t base;
    uint64_t mapped; /* bytes of the chunks before it in the span */
    uint32_t holes;  /* before it */
    bool hole;
    ga_vmm_chunk *below; /* the chunk before it */
} item;

struct ga_vmm_items {
    size_t room;
    item items[];
};

typedef struct span {
    const item *items; /* `count`, and one where the span ends */
    size_t count;
    uint64_t mapped;
} span;

/* A window, and how good it is. */
typedef struct choice {
    uintptr_t base, end;
    uint64_t fill;
    ga_vmm_chunk *below;
    uint64_t price;  /* UINT64_MAX: it is none */
    uint64_t mapped; /* free bytes around and in it: the fewer, the better it fits */
} choice;

/* ---- one window -------------------------------------------------------------------------- */

static uint64_t by_mib(uint64_t bytes, uint64_t each)
{
    return (bytes >> MIB_SHIFT) * each;
}

static uint64_t price_of_driver(const ga_vmm_want *w, uint64_t fill, uint32_t holes)
{
    uint64_t over = fill > w->room ? fill - w->room : 0;
    uint64_t map = fill ? holes * (uint64_t)MAP + by_mib(fill, MAP_MIB) : 0;
    return map + (over ? UNMAP + by_mib(over, UNMAP_MIB) : 0);
}

/* Whether free chunks are left on both sides, on one or on none. */
static uint64_t price_of_edges(const span *s, uint64_t before, uint64_t behind)
{
    bool low = before == 0 || before == s->mapped;
    bool high = behind == 0 || behind == s->mapped;
    return low && high ? 0 : low || high ? EDGE : BROKEN;
}

/* The window that begins in item `first` and ends in `last`, with its end or its beginning cut off
 * where that is in a hole; if it is better than the best so far. */
static void choose(const span *s, size_t first, size_t last, uintptr_t base, const ga_vmm_want *w,
                   choice *best)
{
    const item *low = &s->items[first];
    const item *high = &s->items[last + 1];
    uintptr_t end = high->base;
    uint64_t excess = end - base - w->size;
    bool holes = high->holes != low->holes;
    if (holes ? best->price < MAP : excess > w->waste) {
        return; /* most end here */
    }
    if (high[-1].hole) {
        end -= excess;
        excess = 0;
    } else if (low->hole && base + excess < low[1].base && !(excess & (w->align - 1))) {
        base += excess;
        excess = 0;
    }
    if (excess > w->waste) {
        return;
    }
    uint64_t fill = end - base - (high->mapped - low->mapped);
    uint64_t price = by_mib(excess, WASTE_MIB) +
                     price_of_driver(w, fill, high->holes - low->holes) +
                     price_of_edges(s, low->mapped, s->mapped - high->mapped);
    if (price < best->price || (price == best->price && s->mapped < best->mapped)) {
        *best = (choice){base, end, fill, low->below, price, s->mapped};
    }
}

/* ---- one span ---------------------------------------------------------------------------- */

static void search_span(const span *s, const ga_vmm_want *w, choice *best)
{
    size_t last = 0;
    for (size_t first = 0; first < s->count; first++) {
        const item *at = &s->items[first];
        uintptr_t base = (at->base + w->align - 1) & ~(w->align - 1);
        if (base >= at[1].base || (base != at->base && !at->hole)) {
            continue;
        }
        while (last < s->count && s->items[last + 1].base < base + w->size) {
            last++;
        }
        if (last == s->count) {
            return;
        }
        choose(s, first, last, base, w, best);
    }
}

/* Free for this request: nobody has it, and no stream that would have to be waited for. */
static bool is_free(ga_vmm_pool *pool, const ga_vmm_chunk *chunk, const ga_vmm_want *w)
{
    return !ga_vmm_is_taken(chunk) && ga_vmm_is_ready(pool, chunk->fence, w);
}

/* Room for `count` items and one more. False: no memory. */
static bool make_items(ga_vmm_pool *pool, size_t count)
{
    ga_vmm_items *items = pool->items;
    if (items && items->room > count) {
        return true;
    }
    size_t room = items ? 2 * items->room : ITEMS;
    items = ga_libc.realloc(items, sizeof *items + room * sizeof *items->items);
    if (items) {
        items->room = room;
        pool->items = items;
    }
    return items;
}

/* List the chunks and holes behind `below`, up to a chunk that is not free for the request: *end. A span of very
 * many chunks is cut where it is twice as large as needed. False: no memory. */
static bool list_span(ga_vmm_pool *pool, ga_vmm_chunk *below, const ga_vmm_want *w, span *s,
                      ga_vmm_chunk **end)
{
    uint32_t holes = 0;
    uintptr_t base = ga_vmm_tree_end(below);
    uint64_t enough = 2 * (w->size + w->align + w->waste);
    bool goes_on = true;
    *s = (span){0};
    while (goes_on) {
        ga_vmm_chunk *next = ga_vmm_chunk_after(below);
        uintptr_t hole = ga_vmm_tree_end(below);
        if (!make_items(pool, s->count + 2)) {
            return false;
        }
        item *items = pool->items->items;
        if (hole < next->base) {
            items[s->count++] = (item){hole, s->mapped, holes++, true, below};
        }
        items[s->count] = (item){next->base, s->mapped, holes, false, below};
        goes_on = is_free(pool, next, w) && (s->count < LOOKS_HOST || next->base - base < enough);
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

/* ---- free chunks alone -------------------------------------------------------------------- */

/* Windows in the row of chunks [first, end). */
static void search_row(ga_vmm_chunk *first, const ga_vmm_chunk *end, const ga_vmm_want *w,
                       choice *best)
{
    uintptr_t low = first->base;
    uintptr_t high = ga_vmm_chunk_end(ga_vmm_chunk_of(end->link.before));
    const ga_vmm_chunk *last = first;
    for (; first != end && high - first->base >= w->size; first = ga_vmm_chunk_after(first)) {
        uintptr_t base = first->base;
        while (ga_vmm_chunk_end(last) < base + w->size) {
            last = ga_vmm_chunk_after(last);
        }
        uint64_t excess = ga_vmm_chunk_end(last) - base - w->size;
        if (excess > w->waste || base & (w->align - 1)) {
            continue;
        }
        bool at_end = ga_vmm_chunk_end(last) == high;
        uint64_t edges = base == low && at_end ? 0 : base == low || at_end ? EDGE : BROKEN;
        uint64_t price = by_mib(excess, WASTE_MIB) + edges;
        if (price < best->price || (price == best->price && high - low < best->mapped)) {
            ga_vmm_chunk *below = ga_vmm_chunk_of(first->link.before);
            *best = (choice){base, ga_vmm_chunk_end(last), 0, below, price, high - low};
        }
    }
}

/* The chunk behind those from `first` on that touch and are free for the request. */
static ga_vmm_chunk *end_of_row(ga_vmm_pool *pool, ga_vmm_chunk *first, const ga_vmm_want *w,
                                long *looks)
{
    uintptr_t end = first->base;
    while (first->base == end && is_free(pool, first, w) && (*looks)-- > 0) {
        end = ga_vmm_chunk_end(first);
        first = ga_vmm_chunk_after(first);
    }
    return first;
}

static void search_rows(ga_vmm_pool *pool, const ga_vmm_want *w, choice *best)
{
    long looks = pool->space.device < 0 ? LOOKS_HOST : LOOKS_DEVICE;
    uint64_t bytes;
    ga_vmm_chunk *at = ga_vmm_chunk_of(pool->addresses.chunks.after);
    while (looks > 0 && (best->price || best->mapped != w->size) &&
           (at = ga_vmm_tree_reach(pool, at, GA_VMM_ROWS, w->size, &bytes)) != NULL) {
        ga_vmm_chunk *first =
            ga_vmm_addresses_find(&pool->addresses, (void *)(ga_vmm_chunk_end(at) - bytes));
        at = end_of_row(pool, first, w, &looks);
        if (at != first) {
            search_row(first, at, w, best);
        } else {
            at = ga_vmm_chunk_after(at); /* a stream still uses it */
        }
        looks -= QUESTION;
    }
}

/* ---- all of it --------------------------------------------------------------------------- */

/* Of the tree's span, the parts between chunks that streams still use. Answers its end; NULL: no
 * memory. */
static ga_vmm_chunk *search_parts(ga_vmm_pool *pool, ga_vmm_chunk *below, const ga_vmm_want *w,
                                  choice *best, long *looks)
{
    span s;
    ga_vmm_chunk *end;
    do {
        if (!list_span(pool, below, w, &s, &end)) {
            return NULL;
        }
        *looks -= (long)s.count + QUESTION;
        if (end->base - ga_vmm_tree_end(below) >= w->size) {
            search_span(&s, w, best);
        }
        below = end;
    } while (!ga_vmm_is_taken(end) && *looks > 0);
    return end;
}

static void search_spans(ga_vmm_pool *pool, const ga_vmm_want *w, choice *best)
{
    long looks = pool->space.device < 0 ? LOOKS_HOST : LOOKS_DEVICE;
    uint64_t bytes;
    ga_vmm_chunk *at = ga_vmm_chunk_of(pool->addresses.chunks.after);
    while (at && looks > 0 &&
           (at = ga_vmm_tree_reach(pool, at, GA_VMM_SPANS, w->size, &bytes)) != NULL) {
        at = search_parts(pool, ga_vmm_tree_taken_before(at), w, best, &looks);
    }
}

/* A hole alone, which the search above may not have come to. */
static void search_holes(const ga_vmm_pool *pool, const ga_vmm_want *w, choice *best)
{
    uint64_t more = w->align > pool->space.granule ? w->align - pool->space.granule : 0;
    ga_vmm_chunk *behind = ga_vmm_tree_hole(pool, w->size + more);
    if (behind) {
        ga_vmm_chunk *below = ga_vmm_chunk_of(behind->link.before);
        uintptr_t base = (ga_vmm_tree_end(below) + w->align - 1) & ~(w->align - 1);
        *best = (choice){base, base + w->size, w->size, below, 0, 0};
    }
}

bool ga_vmm_search(ga_vmm_pool *pool, const ga_vmm_want *w, ga_vmm_window *out)
{
    choice best = {.price = UINT64_MAX};
    ga_vmm_tree_refresh(pool);
    ga_vmm_fences_look(&pool->fences);
    search_rows(pool, w, &best);
    if (best.price >= MAP) {
        search_spans(pool, w, &best);
    }
    if (best.price == UINT64_MAX) {
        search_holes(pool, w, &best);
    }
    if (!best.below) {
        return false;
    }
    *out = (ga_vmm_window){best.below, best.base, best.end, best.fill};
    return true;
}
