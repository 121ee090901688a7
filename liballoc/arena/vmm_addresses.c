/* SPDX-License-Identifier: MIT
 *
 * STRUCTURE  a sorted array of free pieces; for each reservation a directory with an entry for each
 *            2048 granules: 0, the owner of all with bit 0 set, or a page with an owner for each
 * INVARIANT  free pieces neither touch nor cross from one reservation to another; there is room in
 *            the array for one between any two taken pieces, so that giving needs no memory
 * PROGRESS   under the heap's lock. Taking and giving are linear in the free pieces, and only done
 *            where the driver maps or unmaps, which takes far longer; owners are found in two loads
 */
#include "vmm_addresses.h"

#include "../platform/libc.h"

#include <gpualloc/backend.h>

#include <string.h>

enum {
    PAGE = 2048 /* granules */
};

static const uint64_t LEAST_RESERVE = (uint64_t)1 << 30;

struct ga_vmm_range {
    uintptr_t base;
    uint64_t size;
    uintptr_t *directory;
    uint64_t *marks; /* a bit for each granule: a chunk begins there */
};

typedef void *owner_page[PAGE];

static uint64_t span(const ga_vmm_addresses *a)
{
    return a->space->granule * PAGE;
}

static ga_status no_records(void)
{
    return ga_fail(GA_ERR_MEMORY, "no memory for the records of addresses");
}

/* ---- free pieces ------------------------------------------------------------------------- */

static bool make_room(ga_vmm_addresses *a, size_t pieces)
{
    if (pieces <= a->free_room) {
        return true;
    }
    size_t room = pieces + pieces / 2 + 16;
    ga_vmm_piece *moved = ga_libc.realloc(a->free, room * sizeof *moved);
    if (moved) {
        a->free = moved;
        a->free_room = room;
    }
    return moved != NULL;
}

/* The first piece at or above `base`. */
static size_t place_of(const ga_vmm_addresses *a, uintptr_t base)
{
    size_t low = 0;
    size_t high = a->free_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (a->free[middle].base < base) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static void insert(ga_vmm_addresses *a, size_t at, ga_vmm_piece piece)
{
    memmove(&a->free[at + 1], &a->free[at], (a->free_count - at) * sizeof piece);
    a->free[at] = piece;
    a->free_count++;
}

static void delete (ga_vmm_addresses *a, size_t at)
{
    a->free_count--;
    memmove(&a->free[at], &a->free[at + 1], (a->free_count - at) * sizeof *a->free);
}

static bool begins_a_range(const ga_vmm_addresses *a, uintptr_t base)
{
    for (size_t i = 0; i < a->range_count; i++) {
        if (a->ranges[i].base == base) {
            return true;
        }
    }
    return false;
}

static bool joins(const ga_vmm_addresses *a, ga_vmm_piece low, uintptr_t high)
{
    return low.base + low.size == high && !begins_a_range(a, high);
}

static void add_free(ga_vmm_addresses *a, ga_vmm_piece piece)
{
    size_t at = place_of(a, piece.base);
    bool below = at > 0 && joins(a, a->free[at - 1], piece.base);
    bool above = at < a->free_count && joins(a, piece, a->free[at].base);
    if (above) {
        piece.size += a->free[at].size;
        delete (a, at);
    }
    if (below) {
        a->free[at - 1].size += piece.size;
    } else {
        insert(a, at, piece);
    }
}

/* ---- reservations ------------------------------------------------------------------------ */

static ga_status reserve_within(const ga_vmm_addresses *a, uint64_t least, uint64_t *size,
                                uintptr_t *base)
{
    ga_status status = ga_space_reserve(a->space, *size, 0, base);
    while (status == GA_ERR_MEMORY && *size / 2 >= least && *size > LEAST_RESERVE) {
        *size = *size / 2 / a->space->granule * a->space->granule;
        status = ga_space_reserve(a->space, *size, 0, base);
    }
    return status;
}

static bool add_range(ga_vmm_addresses *a, uintptr_t base, uint64_t size)
{
    ga_vmm_range *ranges = ga_libc.realloc(a->ranges, (a->range_count + 1) * sizeof *ranges);
    if (!ranges) {
        return false;
    }
    a->ranges = ranges;
    uintptr_t *directory = ga_libc.calloc((size + span(a) - 1) / span(a), sizeof *directory);
    uint64_t *marks = ga_libc.calloc(size / a->space->granule / 64 + 1, sizeof *marks);
    if (!directory || !marks || !make_room(a, a->taken + a->range_count + 2)) {
        ga_libc.free(directory);
        ga_libc.free(marks);
        return false;
    }
    a->ranges[a->range_count++] = (ga_vmm_range){base, size, directory, marks};
    add_free(a, (ga_vmm_piece){base, size});
    return true;
}

/* Room for `least` bytes in one piece. */
static ga_status reserve_more(ga_vmm_addresses *a, uint64_t least)
{
    uintptr_t base;
    uint64_t size = a->reserve > least ? a->reserve : least;
    ga_status status = reserve_within(a, least, &size, &base);
    if (status == GA_OK && !add_range(a, base, size)) {
        ga_space_unreserve(a->space, base, size);
        return no_records();
    }
    return status;
}

ga_status ga_vmm_addresses_open(ga_vmm_addresses *a, const ga_space *space, uint64_t reserve)
{
    uint64_t granule = space->granule;
    *a = (ga_vmm_addresses){.space = space, .reserve = (reserve + granule - 1) / granule * granule};
    return reserve_more(a, granule);
}

static void end_range(const ga_vmm_addresses *a, const ga_vmm_range *range)
{
    for (uint64_t i = 0; i < (range->size + span(a) - 1) / span(a); i++) {
        if (!(range->directory[i] & 1)) {
            ga_libc.free((void *)range->directory[i]);
        }
    }
    ga_libc.free(range->directory);
    ga_libc.free(range->marks);
    ga_space_unreserve(a->space, range->base, range->size);
}

void ga_vmm_addresses_close(ga_vmm_addresses *a)
{
    for (size_t i = 0; i < a->range_count; i++) {
        end_range(a, &a->ranges[i]);
    }
    ga_libc.free(a->ranges);
    ga_libc.free(a->free);
    *a = (ga_vmm_addresses){.space = a->space};
}

/* ---- taking and giving ------------------------------------------------------------------- */

static uintptr_t aligned(uintptr_t base, uint64_t align)
{
    return (base + align - 1) & ~(align - 1);
}

static bool holds(ga_vmm_piece piece, uint64_t size, uint64_t align)
{
    uint64_t before = aligned(piece.base, align) - piece.base;
    return piece.size >= size && piece.size - size >= before;
}

/* The smallest that is large enough; free_count: none. */
static size_t best(const ga_vmm_addresses *a, uint64_t size, uint64_t align)
{
    size_t found = a->free_count;
    for (size_t i = 0; i < a->free_count; i++) {
        bool smaller = found == a->free_count || a->free[i].size < a->free[found].size;
        if (smaller && holds(a->free[i], size, align)) {
            found = i;
        }
    }
    return found;
}

/* Cut it out of the free piece `at`; what is left in front and behind stays free. */
static uintptr_t cut(ga_vmm_addresses *a, size_t at, uint64_t size, uint64_t align)
{
    ga_vmm_piece piece = a->free[at];
    uintptr_t base = aligned(piece.base, align);
    ga_vmm_piece behind = {base + size, piece.base + piece.size - base - size};
    a->free[at].size = base - piece.base;
    if (behind.size) {
        insert(a, at + 1, behind);
    }
    if (!a->free[at].size) {
        delete (a, at);
    }
    return base;
}

ga_status ga_vmm_addresses_take(ga_vmm_addresses *a, uint64_t size, uint64_t align, uintptr_t *base)
{
    size_t at = best(a, size, align);
    if (at == a->free_count) {
        ga_status status = reserve_more(a, align > a->space->granule ? size + align : size);
        if (status != GA_OK) {
            return status;
        }
        at = best(a, size, align);
    }
    if (!make_room(a, a->taken + a->range_count + 2)) {
        return no_records();
    }
    *base = cut(a, at, size, align);
    a->taken++;
    return GA_OK;
}

bool ga_vmm_addresses_take_behind(ga_vmm_addresses *a, uintptr_t base, uint64_t size)
{
    size_t at = place_of(a, base);
    bool free = at < a->free_count && a->free[at].base == base && a->free[at].size >= size &&
                !begins_a_range(a, base);
    if (free) {
        cut(a, at, size, 1);
    }
    return free;
}

void ga_vmm_addresses_give(ga_vmm_addresses *a, uintptr_t base, uint64_t size)
{
    add_free(a, (ga_vmm_piece){base, size});
    a->taken--;
}

/* ---- owners ------------------------------------------------------------------------------ */

static ga_vmm_range *range_of(const ga_vmm_addresses *a, uintptr_t address)
{
    for (size_t i = 0; i < a->range_count; i++) {
        if (address - a->ranges[i].base < a->ranges[i].size) {
            return &a->ranges[i];
        }
    }
    return NULL;
}

static void note_all(uintptr_t *entry, void *owner)
{
    if (!(*entry & 1)) {
        ga_libc.free((void *)*entry); /* those in there were parts of what is noted whole */
    }
    *entry = owner ? (uintptr_t)owner | 1 : 0;
}

/* A page for the entry, with what it says already. */
static bool open_page(uintptr_t *entry)
{
    if (*entry && !(*entry & 1)) {
        return true;
    }
    owner_page *page = ga_libc.calloc(1, sizeof *page);
    if (!page) {
        return false;
    }
    for (size_t i = 0; *entry && i < PAGE; i++) {
        (*page)[i] = (void *)(*entry - 1);
    }
    *entry = (uintptr_t)page;
    return true;
}

static bool note_some(uintptr_t *entry, uint64_t first, uint64_t count, void *owner)
{
    bool noted = (*entry & 1 ? (void *)(*entry - 1) : (void *)*entry) == owner;
    if (noted || !open_page(entry)) {
        return noted; /* all of them already, or none */
    }
    owner_page *page = (owner_page *)*entry;
    for (uint64_t i = first; i < first + count; i++) {
        (*page)[i] = owner;
    }
    return true;
}

bool ga_vmm_addresses_note(ga_vmm_addresses *a, uintptr_t base, uint64_t size, void *owner)
{
    const ga_vmm_range *range = range_of(a, base);
    uint64_t granule = a->space->granule;
    uint64_t first = (base - range->base) / granule;
    uint64_t end = first + size / granule;
    bool noted = true;
    for (uint64_t at = first; noted && at < end;) {
        uintptr_t *entry = &range->directory[at / PAGE];
        uint64_t count = PAGE - at % PAGE < end - at ? PAGE - at % PAGE : end - at;
        if (count == PAGE) {
            note_all(entry, owner);
        } else {
            noted = note_some(entry, at % PAGE, count, owner);
        }
        at += count;
    }
    if (!noted) {
        ga_vmm_addresses_note(a, base, size, NULL);
    }
    return noted;
}

bool ga_vmm_addresses_prepare(ga_vmm_addresses *a, uintptr_t base)
{
    const ga_vmm_range *range = range_of(a, base);
    return open_page(&range->directory[(base - range->base) / span(a)]);
}

void *ga_vmm_addresses_owner(const ga_vmm_addresses *a, const void *pointer)
{
    const ga_vmm_range *range = range_of(a, (uintptr_t)pointer);
    if (!range) {
        return NULL;
    }
    uint64_t granule = ((uintptr_t)pointer - range->base) / a->space->granule;
    uintptr_t entry = range->directory[granule / PAGE];
    if (entry & 1) {
        return (void *)(entry - 1);
    }
    return entry ? (*(owner_page *)entry)[granule % PAGE] : NULL;
}

/* ---- taken pieces, cut and joined ---------------------------------------------------------- */

bool ga_vmm_addresses_split(ga_vmm_addresses *a)
{
    bool room = make_room(a, a->taken + a->range_count + 2);
    a->taken += room;
    return room;
}

void ga_vmm_addresses_join(ga_vmm_addresses *a)
{
    a->taken--;
}

bool ga_vmm_addresses_may_join(const ga_vmm_addresses *a, uintptr_t base)
{
    return !begins_a_range(a, base);
}

void ga_vmm_addresses_mark(ga_vmm_addresses *a, uintptr_t base, uint64_t size)
{
    const ga_vmm_range *range = range_of(a, base);
    uint64_t first = (base - range->base) / a->space->granule;
    for (uint64_t i = first; i < first + size / a->space->granule; i++) {
        uint64_t bit = UINT64_C(1) << i % 64;
        range->marks[i / 64] =
            i == first ? range->marks[i / 64] | bit : range->marks[i / 64] & ~bit;
    }
}

bool ga_vmm_addresses_is_mark(const ga_vmm_addresses *a, uintptr_t base)
{
    const ga_vmm_range *range = range_of(a, base);
    uint64_t i = (base - range->base) / a->space->granule;
    return range->marks[i / 64] >> i % 64 & 1;
}
