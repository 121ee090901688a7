/* SPDX-License-Identifier: MIT
 *
 * STRUCTURE  a ring of chunks and walls in the order of addresses. Each reservation has a directory
 *            with one entry per 2048 granules: 0; the one chunk of all granules, with bit 0 set; or
 *            a page with one chunk pointer per granule.
 * INVARIANT  the addresses between two neighbours of the ring are one hole of one reservation
 * PROGRESS   under the heap's lock. Finding a chunk takes two loads. Inserting and removing one is
 *            linear in its granules, and happens only with a driver call, which takes far longer.
 */
#include "addresses.h"

#include "../../platform/libc.h"

#include <gpualloc/backend.h>

enum {
    PAGE_GRANULES = 2048 /* granules of one directory entry */
};

static const uint64_t RESERVE_BYTES_MIN = (uint64_t)16 << 20;
/* Doubling reservations start at FIRST and end at MAX bytes. */
static const uint64_t RESERVE_BYTES_FIRST = (uint64_t)64 << 20;
static const uint64_t RESERVE_BYTES_MAX = (uint64_t)1 << 40;

struct ga_vmm_range {
    uintptr_t base;
    uint64_t size;
    uintptr_t *directory;
};

typedef ga_vmm_chunk *chunk_page[PAGE_GRANULES];

static uint64_t page_bytes(const ga_vmm_addresses *a)
{
    return a->space->granule * PAGE_GRANULES;
}

/* ---- walls ------------------------------------------------------------------------------- */

static void insert(ga_vmm_addresses *a, ga_vmm_link *below, ga_vmm_chunk *chunk)
{
    ga_vmm_list_append(below->after, &chunk->link);
    a->count++;
}

static ga_vmm_chunk *new_wall(uintptr_t base, uintptr_t end)
{
    ga_vmm_chunk *wall = ga_libc.calloc(1, sizeof *wall);
    if (wall) {
        *wall = (ga_vmm_chunk){.base = base, .size = end - base, .wall = true};
        ga_vmm_list_init(&wall->link);
        ga_vmm_list_init(&wall->age);
    }
    return wall;
}

/* Insert a reservation into the wall around it: the wall ends at `base`, and `behind` begins where
 * the reservation ends. */
static void open_wall(ga_vmm_addresses *a, uintptr_t base, ga_vmm_chunk *behind)
{
    ga_vmm_chunk *wall = ga_vmm_chunk_of(a->chunks.after);
    while (!wall->wall || ga_vmm_chunk_end(wall) < behind->base) {
        wall = ga_vmm_chunk_after(wall);
    }
    behind->size = ga_vmm_chunk_end(wall) - behind->base;
    wall->size = base - wall->base;
    insert(a, &wall->link, behind);
}

/* ---- reservations ------------------------------------------------------------------------ */

static ga_status no_records(void)
{
    return ga_fail(GA_ERR_MEMORY, "no memory for the records of addresses");
}

static ga_status reserve_within(const ga_vmm_addresses *a, uint64_t least, uint64_t *size,
                                uintptr_t *base)
{
    ga_status status = ga_space_reserve(a->space, *size, 0, base);
    while (status == GA_ERR_MEMORY && *size / 2 >= least && *size > RESERVE_BYTES_MIN) {
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
    uintptr_t *directory =
        ga_libc.calloc((size + page_bytes(a) - 1) / page_bytes(a), sizeof *directory);
    ga_vmm_chunk *behind = new_wall(base + size, base + size);
    if (!directory || !behind) {
        ga_libc.free(directory);
        ga_libc.free(behind);
        return false;
    }
    a->ranges[a->range_count++] = (ga_vmm_range){base, size, directory};
    open_wall(a, base, behind);
    return true;
}

ga_status ga_vmm_addresses_reserve(ga_vmm_addresses *a, uint64_t least)
{
    uintptr_t base;
    uint64_t requested =
        a->grows && least < RESERVE_BYTES_MAX ? 2 * least : least; /* room to grow in place */
    uint64_t size = a->reserve > requested ? a->reserve : requested;
    ga_status status = reserve_within(a, least, &size, &base);
    if (status == GA_OK && !add_range(a, base, size)) {
        ga_space_drop_range(a->space, base, size);
        return no_records();
    }
    if (status == GA_OK && a->grows && a->reserve < RESERVE_BYTES_MAX) {
        a->reserve *= 2;
    }
    return status;
}

ga_status ga_vmm_addresses_open(ga_vmm_addresses *a, ga_space *space, uint64_t reserve)
{
    uint64_t granule = space->granule;
    bool grows = !reserve;
    reserve = grows ? RESERVE_BYTES_FIRST : reserve;
    *a = (ga_vmm_addresses){
        .space = space, .reserve = (reserve + granule - 1) / granule * granule, .grows = grows};
    ga_vmm_list_init(&a->chunks);
    ga_vmm_chunk *wall = new_wall(0, UINTPTR_MAX);
    if (!wall) {
        return no_records();
    }
    insert(a, &a->chunks, wall);
    ga_status status = ga_vmm_addresses_reserve(a, granule);
    if (status != GA_OK) {
        ga_vmm_addresses_close(a);
    }
    return status;
}

static void end_range(const ga_vmm_addresses *a, const ga_vmm_range *range)
{
    for (uint64_t i = 0; i < (range->size + page_bytes(a) - 1) / page_bytes(a); i++) {
        if (!(range->directory[i] & 1)) {
            ga_libc.free((void *)range->directory[i]);
        }
    }
    ga_libc.free(range->directory);
    ga_space_drop_range(a->space, range->base, range->size);
}

void ga_vmm_addresses_close(ga_vmm_addresses *a)
{
    for (size_t i = 0; i < a->range_count; i++) {
        end_range(a, &a->ranges[i]);
    }
    while (!ga_vmm_list_empty(&a->chunks)) {
        ga_vmm_chunk *wall = ga_vmm_chunk_of(a->chunks.after);
        ga_vmm_list_remove(&wall->link);
        ga_libc.free(wall);
    }
    ga_libc.free(a->ranges);
    *a = (ga_vmm_addresses){.space = a->space};
    ga_vmm_list_init(&a->chunks);
}

/* ---- the directory ------------------------------------------------------------------------ */

static ga_vmm_range *range_of(const ga_vmm_addresses *a, uintptr_t address)
{
    for (size_t i = a->range_count; i-- > 0;) { /* newest first: it is the largest if they double */
        if (address - a->ranges[i].base < a->ranges[i].size) {
            return &a->ranges[i];
        }
    }
    return NULL;
}

static void set_whole_entry(uintptr_t *entry, ga_vmm_chunk *chunk)
{
    if (!(*entry & 1)) {
        ga_libc.free((void *)*entry); /* the chunks of the page were parts of this chunk */
    }
    *entry = chunk ? (uintptr_t)chunk | 1 : 0;
}

/* Replace the entry by a page with the same meaning. */
static bool open_page(uintptr_t *entry)
{
    if (*entry && !(*entry & 1)) {
        return true;
    }
    chunk_page *page = ga_libc.calloc(1, sizeof *page);
    if (!page) {
        return false;
    }
    for (size_t i = 0; *entry && i < PAGE_GRANULES; i++) {
        (*page)[i] = (void *)(*entry - 1);
    }
    *entry = (uintptr_t)page;
    return true;
}

static bool set_part_of_entry(uintptr_t *entry, uint64_t first, uint64_t count, ga_vmm_chunk *chunk)
{
    bool stored = (*entry & 1 ? (void *)(*entry - 1) : (void *)*entry) == chunk;
    if (stored || !open_page(entry)) {
        return stored; /* the entry has this value already, or there is no memory */
    }
    chunk_page *page = (chunk_page *)*entry;
    for (uint64_t i = first; i < first + count; i++) {
        (*page)[i] = chunk;
    }
    return true;
}

static bool set_entries(const ga_vmm_addresses *a, uintptr_t base, uint64_t size,
                        ga_vmm_chunk *chunk)
{
    const ga_vmm_range *range = range_of(a, base);
    uint64_t granule = a->space->granule;
    uint64_t first = (base - range->base) / granule;
    uint64_t end = first + size / granule;
    bool stored = true;
    for (uint64_t at = first; stored && at < end;) {
        uintptr_t *entry = &range->directory[at / PAGE_GRANULES];
        uint64_t count = PAGE_GRANULES - at % PAGE_GRANULES < end - at
                             ? PAGE_GRANULES - at % PAGE_GRANULES
                             : end - at;
        if (count == PAGE_GRANULES) {
            set_whole_entry(entry, chunk);
        } else {
            stored = set_part_of_entry(entry, at % PAGE_GRANULES, count, chunk);
        }
        at += count;
    }
    if (!stored) {
        set_entries(a, base, size, NULL);
    }
    return stored;
}

/* ---- chunks ------------------------------------------------------------------------------ */

bool ga_vmm_addresses_insert(ga_vmm_addresses *a, ga_vmm_chunk *below, ga_vmm_chunk *chunk)
{
    if (!set_entries(a, chunk->base, chunk->size, chunk)) {
        return false;
    }
    insert(a, &below->link, chunk);
    return true;
}

/* Storing the old value again needs no memory: the failed call allocated no page. */
bool ga_vmm_addresses_split(ga_vmm_addresses *a, ga_vmm_chunk *chunk, ga_vmm_chunk *rest)
{
    if (!set_entries(a, rest->base, rest->size, rest)) {
        set_entries(a, rest->base, rest->size, chunk);
        return false;
    }
    chunk->size -= rest->size;
    insert(a, &chunk->link, rest);
    return true;
}

void ga_vmm_addresses_remove(ga_vmm_addresses *a, ga_vmm_chunk *chunk)
{
    set_entries(a, chunk->base, chunk->size, NULL);
    ga_vmm_list_remove(&chunk->link);
    a->count--;
}

bool ga_vmm_addresses_has(const ga_vmm_addresses *a, const void *pointer)
{
    return range_of(a, (uintptr_t)pointer) != NULL;
}

ga_vmm_chunk *ga_vmm_addresses_find(const ga_vmm_addresses *a, const void *pointer)
{
    const ga_vmm_range *range = range_of(a, (uintptr_t)pointer);
    if (!range) {
        return NULL;
    }
    uint64_t granule = ((uintptr_t)pointer - range->base) / a->space->granule;
    uintptr_t entry = range->directory[granule / PAGE_GRANULES];
    if (entry & 1) {
        return (ga_vmm_chunk *)(entry - 1);
    }
    return entry ? (*(chunk_page *)entry)[granule % PAGE_GRANULES] : NULL;
}
