/* SPDX-License-Identifier: MIT
 *
 * First among free chunks alone, then, where no window there is cheap enough, among chunks and
 * holes. What lies between two that may not be taken is a span; in each, a window is moved from
 * start to start, its end going along.
 */
#include "vmm_search.h"

#include "../platform/libc.h"

#include <string.h>

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
    PER_CHUNK = 2,  /* items, at the most: itself and the hole behind it */
    MIB_SHIFT = 20
};

/* A chunk or a wall, as the search wants to know it: all in a row, so that looking at each is
 * cheap. There may be a hundred thousand: one that comes or goes moves those behind it, but reads
 * none of their chunks. */
typedef struct slot {
    uintptr_t base, end; /* end: where the hole behind it begins */
    ga_vmm_chunk *chunk; /* NULL: it is gone, and the slot goes before the table is used again */
} slot;

enum {
    APART = 1, /* a hole is before it, or it is taken */
    FENCED = 2 /* somebody may be using it yet, as far as is known */
};

/* A free chunk or a hole. It ends where the next one begins. */
typedef struct item {
    uintptr_t base;
    uint64_t mapped; /* bytes of the chunks before it in the span */
    uint32_t holes;  /* before it */
    uint32_t below;  /* the slot before it */
    bool hole;
} item;

struct ga_vmm_table {
    uint64_t changes; /* to the ring of chunks that the slots show */
    size_t count, room;
    size_t gone;    /* of these slots */
    size_t hole;    /* behind no slot before this one is a hole */
    item *items;    /* room for a span of them all */
    bool *taken;    /* for each slot: a wall, or a part of a live run */
    uint8_t *marks; /* for each slot that is not: what keeps it from being one with the last */
    slot slots[];
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
    uint32_t below;  /* the slot */
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

/* Of what is not taken. A fence that is done is none from then on. */
static bool is_ready(ga_vmm_pool *pool, size_t at, const ga_vmm_want *w)
{
    ga_vmm_table *table = pool->table;
    const ga_vmm_chunk *chunk = table->slots[at].chunk;
    if (!(table->marks[at] & FENCED)) {
        return true;
    }
    if (!chunk->fence || chunk->fence->done) {
        table->marks[at] &= (uint8_t)~FENCED;
    }
    return ga_vmm_is_ready(pool, chunk->fence, w);
}

static bool is_free(ga_vmm_pool *pool, size_t at, const ga_vmm_want *w)
{
    return !pool->table->taken[at] && is_ready(pool, at, w);
}

/* The first slot behind `below` that may not be taken. */
static size_t end_of_span(ga_vmm_pool *pool, size_t below, const ga_vmm_want *w)
{
    do {
        below++;
    } while (is_free(pool, below, w));
    return below;
}

/* What stands between two slots. */
static span list_span(const ga_vmm_table *table, size_t below, size_t end)
{
    item *items = table->items;
    span s = {.items = items};
    uint32_t holes = 0;
    for (; below < end; below++) {
        const slot *next = &table->slots[below + 1];
        if (table->slots[below].end < next->base) {
            items[s.count++] =
                (item){table->slots[below].end, s.mapped, holes++, (uint32_t)below, true};
        }
        items[s.count] = (item){next->base, s.mapped, holes, (uint32_t)below, false};
        if (below + 1 < end) {
            s.count++;
            s.mapped += next->end - next->base;
        }
    }
    return s;
}

/* ---- free chunks alone -------------------------------------------------------------------- */

/* The next slot from `at` on that is free; `count`: none. */
static size_t next_free(ga_vmm_pool *pool, size_t at, const ga_vmm_want *w)
{
    const ga_vmm_table *table = pool->table;
    while (at < table->count) {
        const bool *found = memchr(&table->taken[at], false, table->count - at);
        at = found ? (size_t)(found - table->taken) : table->count;
        if (found && is_ready(pool, at, w)) {
            break;
        }
        at += found != NULL;
    }
    return at;
}

/* The slot behind a row of free ones that touch. */
static size_t end_of_row(ga_vmm_pool *pool, size_t first, const ga_vmm_want *w)
{
    const uint8_t *marks = pool->table->marks;
    size_t end = first + 1;
    while (!marks[end] || (marks[end] == FENCED && is_ready(pool, end, w))) {
        end++;
    }
    return end;
}

/* Windows in the row [first, end) of slots. */
static void search_row(const slot *slots, size_t first, size_t end, const ga_vmm_want *w,
                       choice *best)
{
    uintptr_t low = slots[first].base;
    uintptr_t high = slots[end - 1].end;
    size_t last = first;
    for (; first < end && high - slots[first].base >= w->size; first++) {
        uintptr_t base = slots[first].base;
        while (slots[last].end < base + w->size) {
            last++;
        }
        uint64_t excess = slots[last].end - base - w->size;
        if (excess > w->waste || base & (w->align - 1)) {
            continue;
        }
        bool at_end = slots[last].end == high;
        uint64_t edges = base == low && at_end ? 0 : base == low || at_end ? EDGE : BROKEN;
        uint64_t price = by_mib(excess, WASTE_MIB) + edges;
        if (price < best->price || (price == best->price && high - low < best->mapped)) {
            *best = (choice){base, slots[last].end, 0, (uint32_t)first - 1, price, high - low};
        }
    }
}

/* The last slot is a wall, and so is the first. */
static void search_rows(ga_vmm_pool *pool, const ga_vmm_want *w, choice *best)
{
    const ga_vmm_table *table = pool->table;
    size_t end;
    for (size_t at = next_free(pool, 0, w); at < table->count; at = next_free(pool, end, w)) {
        end = end_of_row(pool, at, w);
        search_row(table->slots, at, end, w, best);
    }
}

/* ---- the table --------------------------------------------------------------------------- */

static ga_vmm_table *make_table(ga_vmm_pool *pool)
{
    size_t room = 2 * pool->addresses.count;
    size_t slots = room * sizeof(slot);
    ga_vmm_table *table =
        ga_libc.malloc(sizeof *table + slots + (PER_CHUNK * room + 1) * sizeof(item) + 2 * room);
    if (table) {
        ga_libc.free(pool->table);
        pool->table = table;
        table->room = room;
        table->items = (item *)(void *)((char *)table->slots + slots);
        table->taken = (bool *)(table->items + PER_CHUNK * room + 1);
        table->marks = (uint8_t *)(table->taken + room);
    }
    return table;
}

static uintptr_t end_of(const ga_vmm_chunk *chunk)
{
    const ga_vmm_run *run = chunk->run;
    return run && run->live && run->last == chunk ? run->base + run->room : ga_vmm_chunk_end(chunk);
}

static bool has_hole(const ga_vmm_table *table, size_t at)
{
    return at + 1 < table->count && table->slots[at].end < table->slots[at + 1].base;
}

/* Once the slot before it is as it is to be. */
static void mark(ga_vmm_table *table, size_t at)
{
    const ga_vmm_chunk *chunk = table->slots[at].chunk;
    bool taken = ga_vmm_is_taken(chunk);
    bool apart = taken || has_hole(table, at - 1); /* the first is a wall */
    table->taken[at] = taken;
    table->marks[at] = (uint8_t)((apart ? APART : 0) | (chunk->fence ? FENCED : 0));
}

static void set(ga_vmm_table *table, size_t at, ga_vmm_chunk *chunk)
{
    chunk->slot = (uint32_t)at;
    table->slots[at] = (slot){chunk->base, end_of(chunk), chunk};
}

static void list_all(ga_vmm_pool *pool, ga_vmm_table *table)
{
    const ga_vmm_link *chunks = &pool->addresses.chunks;
    table->changes = pool->addresses.changes;
    table->count = table->gone = 0;
    table->hole = 0;
    for (const ga_vmm_link *l = chunks->after; l != chunks; l = l->after) {
        set(table, table->count++, ga_vmm_chunk_of(l));
        mark(table, table->count - 1);
    }
}

/* Those that are gone go; who stood behind one has a hole before it. */
static void close_up(ga_vmm_table *table)
{
    size_t to = 0;
    bool gap = false;
    for (size_t from = 0; table->gone && from < table->count; from++) {
        if (!table->slots[from].chunk) {
            gap = true;
            continue;
        }
        table->slots[to] = table->slots[from];
        table->taken[to] = table->taken[from];
        table->marks[to] = table->marks[from];
        if (gap) { /* never the first, which is a wall */
            mark(table, to);
            table->hole = to - 1 < table->hole ? to - 1 : table->hole;
        }
        gap = false;
        to++;
    }
    table->count = table->gone ? to : table->count;
    table->gone = 0;
}

/* Where it was last, unless others have moved it since. Several may begin at one address: walls of
 * no bytes. */
static size_t slot_of(const ga_vmm_table *table, const ga_vmm_chunk *chunk)
{
    size_t low = 0;
    size_t high = table->count;
    if (chunk->slot < high && table->slots[chunk->slot].chunk == chunk) {
        return chunk->slot;
    }
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        bool before = table->slots[middle].base < chunk->base;
        low = before ? middle + 1 : low;
        high = before ? high : middle;
    }
    while (table->slots[low].chunk != chunk) {
        low++;
    }
    return low;
}

static size_t find_slot(const ga_vmm_table *table, ga_vmm_chunk *chunk)
{
    size_t at = slot_of(table, chunk);
    chunk->slot = (uint32_t)at;
    return at;
}

/* As it is now. NULL: no memory. */
static ga_vmm_table *table_of(ga_vmm_pool *pool)
{
    ga_vmm_table *table = pool->table;
    if (!table || table->changes != pool->addresses.changes) {
        bool small = !table || table->room < pool->addresses.count;
        table = small ? make_table(pool) : table;
        if (table) {
            list_all(pool, table);
        }
    }
    if (table) {
        close_up(table);
    }
    while (table && table->hole < table->count && !has_hole(table, table->hole)) {
        table->hole++;
    }
    return table;
}

void ga_vmm_search_put(ga_vmm_pool *pool, ga_vmm_chunk *chunk)
{
    ga_vmm_table *table = pool->table;
    if (!table || table->changes + 1 != pool->addresses.changes || table->count == table->room) {
        return;
    }
    close_up(table);
    size_t at = find_slot(table, ga_vmm_chunk_after(chunk));
    size_t behind = table->count - at;
    memmove(&table->slots[at + 1], &table->slots[at], behind * sizeof *table->slots);
    memmove(&table->taken[at + 1], &table->taken[at], behind);
    memmove(&table->marks[at + 1], &table->marks[at], behind);
    table->count++;
    table->changes++;
    set(table, at, chunk);
    mark(table, at);
    mark(table, at + 1);
}

void ga_vmm_search_drop(ga_vmm_pool *pool, ga_vmm_chunk *chunk)
{
    ga_vmm_table *table = pool->table;
    if (table && table->changes + 1 == pool->addresses.changes) {
        table->slots[slot_of(table, chunk)].chunk = NULL;
        table->gone++;
        table->changes++;
    }
}

void ga_vmm_search_note(ga_vmm_pool *pool, ga_vmm_chunk *chunk, uintptr_t end)
{
    ga_vmm_table *table = pool->table;
    if (table && table->changes == pool->addresses.changes) {
        close_up(table);
        size_t at = find_slot(table, chunk);
        table->slots[at].end = end;
        mark(table, at);
        mark(table, at + 1); /* there is one: no wall is noted */
        if (at < table->hole && has_hole(table, at)) {
            table->hole = at;
        }
    }
}

ga_vmm_chunk *ga_vmm_search_free(ga_vmm_pool *pool, size_t *at)
{
    const ga_vmm_table *table = *at ? pool->table : table_of(pool);
    const bool *found = table ? memchr(&table->taken[*at], false, table->count - *at) : NULL;
    if (!found) {
        return NULL;
    }
    *at = (size_t)(found - table->taken) + 1;
    return table->slots[*at - 1].chunk;
}

/* ---- all of it --------------------------------------------------------------------------- */

static void search_spans(ga_vmm_pool *pool, const ga_vmm_want *w, choice *best)
{
    const ga_vmm_table *table = pool->table;
    size_t at = table->hole;
    while (at > 0 && at < table->count && !table->taken[at]) {
        at--;
    }
    for (size_t end; at + 1 < table->count; at = end) {
        end = end_of_span(pool, at, w);
        if (table->slots[end].base - table->slots[at].end >= w->size) {
            span s = list_span(table, at, end);
            search_span(&s, w, best);
        }
    }
}

bool ga_vmm_search(ga_vmm_pool *pool, const ga_vmm_want *w, ga_vmm_window *out)
{
    choice best = {.price = UINT64_MAX};
    const ga_vmm_table *table = table_of(pool);
    ga_vmm_fences_look(&pool->fences);
    if (table) {
        search_rows(pool, w, &best);
    }
    if (table && best.price >= MAP) {
        search_spans(pool, w, &best);
    }
    if (best.price == UINT64_MAX) {
        return false;
    }
    *out = (ga_vmm_window){table->slots[best.below].chunk, best.base, best.end, best.fill};
    return true;
}
