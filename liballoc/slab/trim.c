/* SPDX-License-Identifier: MIT
 *
 * STRUCTURE  a bit for each memory block of a slab: it is away. The slab itself has claimed all of
 *            its units then, as anybody claims units. On the host a block's pages are the system's.
 *            On a device a block goes only with its whole region (a super block, or with light
 *            addressing all of them), whose memory is the parent's again.
 * INVARIANT  while a block is away all bits of its row are set and its count is 0: no claim gets a
 *            unit of it or looks there. Its row stays, so that a claim that comes by an old hint
 *            finds a full word. On the host its addresses stay as well, and a look-up finds what it
 *            always finds. On a device the region leaves the map before its memory does, and
 *            comes back at other addresses. Nothing may remember addresses of free units there,
 *            so threads keep none (cache.h).
 * ORDER      the slab's claim acquires what the last owners of all 1024 units did (U1, U2 in
 *            slab_tile.h), so nobody reads or writes the pages when they go. Who claims a unit
 *            after the block has come back acquires that it has (U2, U1). G9 tells of room that
 *            has come.
 * PROGRESS   under the lock for growth, one thread at a time. Claims and frees that need no growth
 *            never wait for it; one that finds nothing while a block is being tried waits as
 *            growth does, and looks again.
 */
#include "trim.h"

#include "../platform/os_memory.h"
#include "give_back.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

static uint64_t block_bytes(const ga_slab_host *slab)
{
    return (uint64_t)slab->shape.unit << GA_SLAB_BLOCK_BITS;
}

static uint32_t blocks_of(const ga_slab_host *slab)
{
    return ga_slab_words(&slab->heap) / GA_SLAB_ROW_WORDS;
}

/* By its count, a guess. A block that is away has none free. */
static bool seems_empty(const ga_slab_host *slab, uint32_t block)
{
    uint32_t place = ga_slab_count_place(slab->shape.spread, block);
    uint32_t count = ga_load_relaxed(&slab->heap.free[place]);
    return GA_SLAB_MUTANT == 11 ? count >= GA_SLAB_BLOCK_UNITS / 2 : count == GA_SLAB_BLOCK_UNITS;
}

static uint32_t first_block(const ga_slab_region *region)
{
    return region->first >> GA_SLAB_BLOCK_BITS;
}

static uint32_t end_block(const ga_slab_region *region)
{
    return first_block(region) + (region->count >> GA_SLAB_BLOCK_BITS);
}

/* Whether the region has memory and no unit of it seems to be taken. */
static bool region_seems_empty(const ga_slab_host *slab, const ga_slab_region *region)
{
    bool empty = region->block != NULL;
    for (uint32_t block = first_block(region); empty && block < end_block(region); block++) {
        empty = seems_empty(slab, block);
    }
    return empty;
}

static uint64_t empty_regions(const ga_slab_host *slab)
{
    uint64_t empty = 0;
    for (const ga_slab_region *region = slab->regions; region; region = region->next) {
        empty += region_seems_empty(slab, region) ? region->bytes : 0;
    }
    return empty;
}

uint64_t ga_slab_host_empty(const ga_slab_host *slab)
{
    uint64_t empty = 0;
    if (slab->device) {
        return empty_regions(slab);
    }
    for (uint32_t block = 0, blocks = blocks_of(slab); block < blocks; block++) {
        empty += seems_empty(slab, block);
    }
    return empty * block_bytes(slab);
}

/* ---- taking blocks out of use --------------------------------------------------------------- */

static void give_words(ga_slab_view view, uint32_t first, uint32_t count)
{
    for (uint32_t word = first; word < first + count; word++) {
        ga_slab_give(view, word, GA_ALL_BITS);
    }
}

/* Claim all units of the block, or none. */
static bool take_block(ga_slab_host *slab, ga_slab_view view, uint32_t block)
{
    uint32_t first = block * GA_SLAB_ROW_WORDS;
    for (uint32_t i = 0; i < GA_SLAB_ROW_WORDS; i++) {
        uint32_t taken = ga_slab_take(view, first + i, GA_ALL_BITS);
        if (taken && GA_SLAB_MUTANT != 11) {
            if (~taken) {
                ga_slab_give(view, first + i, ~taken);
            }
            give_words(view, first, i);
            ga_slab_host_tell_room(slab); /* somebody may have found nothing meanwhile */
            return false;
        }
    }
    return true;
}

/* Blocks side by side, all of them ours: [first, end). */
typedef struct run {
    uint32_t first;
    uint32_t end;
} run;

/* The system answers false where it does not want the pages, as of locked memory. */
static bool drop_pages(const ga_slab_host *slab, ga_slab_view view, run r)
{
    int error = errno; /* free() keeps it */
    char *units = ga_slab_pointer(view, r.first << GA_SLAB_BLOCK_BITS);
    size_t bytes = (r.end - r.first) * (size_t)block_bytes(slab);
    bool dropped = ga_os_memory_get()->madvise(units, bytes, MADV_DONTNEED) == 0;
    errno = error;
    return dropped;
}

/* Of the host's memory: that of a device has no poison (checked.c). */
static void forget_poison(const ga_slab_host *slab, ga_slab_view view, uint32_t block)
{
    ga_slab_region *region = ga_slab_region_at(ga_slab_pointer(view, block << GA_SLAB_BLOCK_BITS));
    uint32_t *words = region->poisoned;
    if (slab->check && words) {
        words += (block << GA_SLAB_BLOCK_BITS) / 32u - region->first / 32u;
        for (uint32_t i = 0; i < GA_SLAB_ROW_WORDS; i++) {
            ga_store_relaxed(&words[i],
                             0); /* relaxed: the units' owner changes it, see checked.c */
        }
    }
}

static void mark_away(ga_slab_host *slab, uint32_t block, bool away)
{
    uint32_t *word = &slab->away[block / 32u];
    uint32_t bit = 1u << block % 32u;
    /* relaxed: one thread at a time changes them, and others read them for figures */
    ga_store_relaxed(word, away ? *word | bit : *word & ~bit);
    slab->away_blocks += away ? 1u : -1u;
}

static void set_held(ga_slab_host *slab, uint64_t held)
{
    __atomic_store_n(&slab->held, held, __ATOMIC_RELAXED); /* relaxed: a figure */
}

/* A block of the host's memory. */
static void set_away(ga_slab_host *slab, uint32_t block, bool away)
{
    uint64_t bytes = block_bytes(slab);
    mark_away(slab, block, away);
    set_held(slab, away ? slab->held - bytes : slab->held + bytes);
}

/* Answers the bytes that went. Where the pages cannot go the blocks are put back into use, and
 * nothing is tried again. */
static uint64_t send_away(ga_slab_host *slab, ga_slab_view view, run r)
{
    if (r.first == r.end) {
        return 0;
    }
    if (!drop_pages(slab, view, r)) {
        give_words(view, r.first * GA_SLAB_ROW_WORDS, (r.end - r.first) * GA_SLAB_ROW_WORDS);
        ga_slab_host_tell_room(slab);
        slab->pages_stay = true;
        return 0;
    }
    for (uint32_t block = r.first; block < r.end; block++) {
        forget_poison(slab, view, block);
        set_away(slab, block, true);
    }
    return (r.end - r.first) * block_bytes(slab);
}

/* Whether pages can go: those of a block are its own alone. */
static bool can_go(const ga_slab_host *slab)
{
    long page = sysconf(_SC_PAGESIZE);
    return slab->device || (!slab->pages_stay && slab->heap.free && page > 0 &&
                            page <= (long)GA_SLAB_STEP && block_bytes(slab) % (uint64_t)page == 0);
}

/* ---- regions of a device ---------------------------------------------------------------------- */

static void give_blocks(ga_slab_host *slab, uint32_t first, uint32_t end)
{
    give_words(ga_slab_view_of(&slab->heap), first * GA_SLAB_ROW_WORDS,
               (end - first) * GA_SLAB_ROW_WORDS);
    ga_slab_host_tell_room(slab);
}

/* Claim all units of the region, or none. */
static bool take_region(ga_slab_host *slab, const ga_slab_region *region)
{
    ga_slab_view view = ga_slab_view_of(&slab->heap);
    for (uint32_t block = first_block(region); block < end_block(region); block++) {
        if (!take_block(slab, view, block)) {
            give_blocks(slab, first_block(region), block);
            return false;
        }
    }
    return true;
}

/* Give the memory of a region, all of whose units are ours, to the parent. The map forgets it first,
 * since the parent may hand out its addresses at once. A parent that refuses, as a driver in trouble
 * does, has the region stay in use, for a later trim. */
static bool release_region(ga_slab_host *slab, ga_slab_region *region)
{
    ga_slab_region_remove(region);
    if (ga_free(slab->parent, region->block) != GA_OK) {
        ga_log(GA_LOG_INFO, "slab: %zu bytes at %p stay: %s", region->bytes, region->block,
               ga_error_text());
        ga_slab_region_enter(region); /* its leaves are there: never fails */
        give_blocks(slab, first_block(region), end_block(region));
        return false;
    }
    region->block = NULL;
    set_held(slab, slab->held - region->bytes);
    for (uint32_t block = first_block(region); block < end_block(region); block++) {
        mark_away(slab, block, true);
    }
    return true;
}

static uint64_t trim_regions(ga_slab_host *slab, uint64_t keep)
{
    uint64_t empty = empty_regions(slab);
    uint64_t gone = 0;
    bool released = true;
    for (ga_slab_region *region = slab->regions; region && released; region = region->next) {
        uint64_t bytes = region->bytes;
        if (empty >= keep + bytes && region_seems_empty(slab, region) &&
            take_region(slab, region)) {
            released = release_region(slab, region);
            gone += released ? bytes : 0;
            empty -= released ? bytes : 0;
        }
    }
    return gone;
}

/* The region with the lowest number whose memory is away. There is one. */
static ga_slab_region *lowest_region_away(const ga_slab_host *slab)
{
    ga_slab_region *lowest = NULL;
    for (ga_slab_region *region = slab->regions; region; region = region->next) {
        lowest = region->block ? lowest : region;
    }
    return lowest;
}

static ga_status fetch_region(ga_slab_host *slab)
{
    ga_slab_region *region = lowest_region_away(slab);
    ga_status status = ga_slab_host_take_units(slab, region);
    if (status != GA_OK) {
        return status;
    }
    if (!ga_slab_region_enter(region)) {
        ga_slab_give_back(slab->parent, region->block);
        region->block = NULL;
        return ga_fail(GA_ERR_MEMORY, "slab: no memory to note where units of %u bytes are",
                       slab->shape.unit);
    }
    if (!slab->shape.light) { /* else ga_slab_host_pointer() asks the region */
        slab->heap.supers[first_block(region) >> slab->shape.super_bits].units = region->units;
    }
    ga_slab_host_count_growth(slab, region);
    for (uint32_t block = first_block(region); block < end_block(region); block++) {
        mark_away(slab, block, false);
    }
    give_blocks(slab, first_block(region), end_block(region));
    return GA_OK;
}

/* ---- all of a slab, and of several ------------------------------------------------------------ */

static uint64_t trim_pages(ga_slab_host *slab, uint64_t keep)
{
    uint64_t empty = can_go(slab) ? ga_slab_host_empty(slab) : 0;
    if (empty <= keep) {
        return 0;
    }
    ga_slab_view view = ga_slab_view_of(&slab->heap);
    uint64_t bytes = block_bytes(slab);
    uint64_t gone = 0;
    uint32_t super = ga_bits_below(slab->shape.super_bits);
    run r = {blocks_of(slab), blocks_of(slab)};
    for (uint32_t block = r.end; block-- && empty >= keep + bytes && !slab->pages_stay;) {
        bool ours = seems_empty(slab, block) && take_block(slab, view, block);
        if (ours) {
            r.first = block;
            empty -= bytes;
        }
        if (!ours || !(block & super)) { /* what is below stands elsewhere */
            gone += send_away(slab, view, r);
            r = (run){block, block};
        }
    }
    return gone + send_away(slab, view, r);
}

uint64_t ga_slab_host_trim(ga_slab_host *slab, uint64_t keep)
{
    return slab->device ? trim_regions(slab, keep) : trim_pages(slab, keep);
}

void ga_slab_host_settle(ga_slab_host *slab)
{
    uint64_t empty = slab->keep == UINT64_MAX || !can_go(slab) ? 0 : ga_slab_host_empty(slab);
    uint64_t used = slab->held > empty ? slab->held - empty : 0;
    if (empty > slab->keep + used / 4) {
        ga_slab_host_trim(slab, slab->keep / 2 + used / 8);
    }
}

/* Empty bytes whose pages can go. */
static uint64_t trimmable(const ga_slab_host *slab)
{
    return can_go(slab) ? ga_slab_host_empty(slab) : 0;
}

static void trim_in_turn(ga_slab_host *slabs, uint32_t count, uint64_t keep)
{
    for (uint32_t i = 0; i < count; i++) {
        uint64_t empty = trimmable(&slabs[i]);
        uint64_t kept = empty < keep ? empty : keep;
        ga_slab_host_trim(&slabs[i], kept);
        keep -= kept;
    }
}

void ga_slab_hosts_settle(ga_slab_host *slabs, uint32_t count, uint64_t keep)
{
    uint64_t empty = 0;
    uint64_t held = 0;
    for (uint32_t i = 0; keep != UINT64_MAX && i < count; i++) {
        empty += trimmable(&slabs[i]);
        held += slabs[i].held;
    }
    uint64_t used = held > empty ? held - empty : 0;
    if (empty <= keep || empty - keep <= used / 4) {
        return;
    }
    if (slabs->device) { /* a share of each would be less than a super block, and none would go */
        trim_in_turn(slabs, count, keep / 2 + used / 8);
        return;
    }
    double share = (double)(keep / 2 + used / 8) / (double)empty;
    for (uint32_t i = 0; i < count; i++) {
        ga_slab_host_trim(&slabs[i], (uint64_t)(share * (double)trimmable(&slabs[i])));
    }
}

/* ---- and back -------------------------------------------------------------------------------- */

/* The lowest block that is away. There is one. */
static uint32_t lowest_away(const ga_slab_host *slab)
{
    uint32_t word = 0;
    while (!slab->away[word]) {
        word++;
    }
    return word * 32u + ga_bits_lowest(slab->away[word]);
}

static void fetch_pages(ga_slab_host *slab)
{
    ga_slab_view view = ga_slab_view_of(&slab->heap);
    uint32_t most = 1u << slab->shape.super_bits;
    for (uint32_t block = lowest_away(slab); block < blocks_of(slab) && most; block++) {
        if (ga_slab_host_is_away(slab, block)) {
            most--;
            if (GA_SLAB_MUTANT != 12) {
                set_away(slab, block, false);
            }
            give_words(view, block * GA_SLAB_ROW_WORDS, GA_SLAB_ROW_WORDS);
        }
    }
    ga_slab_host_tell_room(slab);
}

ga_status ga_slab_host_fetch(ga_slab_host *slab)
{
    if (slab->device) {
        return fetch_region(slab);
    }
    fetch_pages(slab);
    return GA_OK;
}
