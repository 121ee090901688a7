/* SPDX-License-Identifier: MIT
 *
 * STRUCTURE  a bit for each memory block of a slab: the block is purged. The slab has claimed
 *            all units of a purged block, as a thread claims units. On the host the system has the
 *            block's pages. On a device blocks are purged by whole regions (a superblock, or with
 *            light addressing all of them), whose memory the parent has again.
 * INVARIANT  while a block is purged, all bits of its row are set and its count is 0, so no claim
 *            gets a unit of it or searches it. Its row stays, so that a claim that follows an old
 *            hint finds a full word. On the host its addresses stay as well, and look-ups do not
 *            change. On a device the region leaves the map before its memory is freed, and is
 *            restored at other addresses. So addresses of free units must not be stored there, and
 *            threads have no caches (cache.h).
 * ORDER      the slab's claim acquires the accesses of the last owners of all 1024 units (SU1, SU2
 *            in slab_tile.h), so no thread accesses the pages when they are returned. A thread that
 *            claims a unit of a restored block acquires the restoring (SU2, SU1). SG9 publishes the
 *            new room.
 * PROGRESS   under the lock for growth, one thread at a time. Claims and frees that need no growth
 *            never wait for it. A claim that finds nothing because a block is being tried waits as
 *            for growth, and searches again.
 */
#include "trim.h"

#include "../../../platform/os_memory.h"
#include "../units/give_back.h"

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

/* By the count, which is a guess. The count of a purged block is 0. */
static bool seems_empty(const ga_slab_host *slab, uint32_t block)
{
    uint32_t index = ga_slab_count_index(slab->shape.spread, block);
    uint32_t count = ga_load_relaxed(&slab->heap.free[index]);
    return GA_PLANTED(slab_live_block_purged) ? count >= GA_SLAB_BLOCK_UNITS / 2
                                              : count == GA_SLAB_BLOCK_UNITS;
}

static uint32_t first_block(const ga_slab_region *region)
{
    return region->first >> GA_SLAB_BLOCK_BITS;
}

static uint32_t end_block(const ga_slab_region *region)
{
    return first_block(region) + (region->count >> GA_SLAB_BLOCK_BITS);
}

/* True if the region has memory and its counts show no taken unit. */
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

/* ---- claiming empty blocks ----------------------------------------------------------------- */

static void release_words(ga_slab_view view, uint32_t first, uint32_t count)
{
    for (uint32_t word = first; word < first + count; word++) {
        ga_slab_release_bits(view, word, GA_ALL_BITS);
    }
}

/* Claim all units of the block, or none. */
static bool claim_block(ga_slab_host *slab, ga_slab_view view, uint32_t block)
{
    uint32_t first = block * GA_SLAB_ROW_WORDS;
    for (uint32_t i = 0; i < GA_SLAB_ROW_WORDS; i++) {
        uint32_t taken = ga_slab_claim_bits(view, first + i, GA_ALL_BITS);
        if (taken && !GA_PLANTED(slab_live_block_purged)) {
            if (~taken) {
                ga_slab_release_bits(view, first + i, ~taken);
            }
            release_words(view, first, i);
            ga_slab_host_publish_room(slab); /* a claim may have found nothing in between */
            return false;
        }
    }
    return true;
}

/* Adjacent blocks that the slab has claimed: [first, end). */
typedef struct run {
    uint32_t first;
    uint32_t end;
} run;

/* False if the system refuses the pages, as it does for locked memory. */
static bool drop_pages(const ga_slab_host *slab, ga_slab_view view, run r)
{
    int error = errno; /* free() must not change it */
    char *units = ga_slab_pointer(view, r.first << GA_SLAB_BLOCK_BITS);
    size_t bytes = (r.end - r.first) * (size_t)block_bytes(slab);
    bool dropped = ga_os_memory_get()->madvise(units, bytes, MADV_DONTNEED) == 0;
    errno = error;
    return dropped;
}

/* For host memory: units of a device have no poison (checked.c). */
static void clear_poisoned(const ga_slab_host *slab, ga_slab_view view, uint32_t block)
{
    ga_slab_region *region = ga_slab_region_at(ga_slab_pointer(view, block << GA_SLAB_BLOCK_BITS));
    uint32_t *words = region->poisoned;
    if (slab->check && words) {
        words += (block << GA_SLAB_BLOCK_BITS) / 32u - region->first / 32u;
        for (uint32_t i = 0; i < GA_SLAB_ROW_WORDS; i++) {
            /* relaxed: only the owner of the units changes it, see checked.c */
            ga_store_relaxed(&words[i], 0);
        }
    }
}

static void mark_purged(ga_slab_host *slab, uint32_t block, bool purged)
{
    uint32_t *word = &slab->purged[block / 32u];
    uint32_t bit = 1u << block % 32u;
    /* relaxed: only the thread with the lock changes it; others read it for figures */
    ga_store_relaxed(word, purged ? *word | bit : *word & ~bit);
    slab->purged_blocks += purged ? 1u : -1u;
}

static void set_held(ga_slab_host *slab, uint64_t held)
{
    __atomic_store_n(&slab->held, held, __ATOMIC_RELAXED); /* relaxed: a figure */
}

/* For a block in host memory. */
static void set_purged(ga_slab_host *slab, uint32_t block, bool purged)
{
    uint64_t bytes = block_bytes(slab);
    mark_purged(slab, block, purged);
    set_held(slab, purged ? slab->held - bytes : slab->held + bytes);
}

/* Drop the pages of the run. Returns the bytes. If the system refuses, the blocks are put
 * back into use, and the slab does not try again. */
static uint64_t purge_run(ga_slab_host *slab, ga_slab_view view, run r)
{
    if (r.first == r.end) {
        return 0;
    }
    if (!drop_pages(slab, view, r)) {
        release_words(view, r.first * GA_SLAB_ROW_WORDS, (r.end - r.first) * GA_SLAB_ROW_WORDS);
        ga_slab_host_publish_room(slab);
        slab->pages_stay = true;
        return 0;
    }
    for (uint32_t block = r.first; block < r.end; block++) {
        clear_poisoned(slab, view, block);
        set_purged(slab, block, true);
    }
    return (r.end - r.first) * block_bytes(slab);
}

/* True if memory can be returned. On the host this needs blocks of whole pages. */
static bool can_purge(const ga_slab_host *slab)
{
    long page = sysconf(_SC_PAGESIZE);
    return slab->device || (!slab->pages_stay && slab->heap.free && page > 0 &&
                            page <= (long)GA_SLAB_STEP && block_bytes(slab) % (uint64_t)page == 0);
}

/* ---- device: regions ----------------------------------------------------------------------- */

static void release_blocks(ga_slab_host *slab, uint32_t first, uint32_t end)
{
    release_words(ga_slab_view_of(&slab->heap), first * GA_SLAB_ROW_WORDS,
                  (end - first) * GA_SLAB_ROW_WORDS);
    ga_slab_host_publish_room(slab);
}

/* Claim all units of the region, or none. */
static bool claim_region(ga_slab_host *slab, const ga_slab_region *region)
{
    ga_slab_view view = ga_slab_view_of(&slab->heap);
    for (uint32_t block = first_block(region); block < end_block(region); block++) {
        if (!claim_block(slab, view, block)) {
            release_blocks(slab, first_block(region), block);
            return false;
        }
    }
    return true;
}

/* Free the memory of a region to the parent; the slab has claimed all its units. The region leaves
 * the map first, because the parent may allocate its addresses at once. If the parent refuses, as a
 * driver in trouble does, the region stays in use for a later trim. */
static bool release_region(ga_slab_host *slab, ga_slab_region *region)
{
    ga_slab_region_remove(region);
    if (ga_free(slab->parent, region->block) != GA_OK) {
        ga_log(GA_LOG_INFO, "slab: %zu bytes at %p stay: %s", region->bytes, region->block,
               ga_error_text());
        ga_slab_region_enter(region); /* never fails: its leaves are there */
        release_blocks(slab, first_block(region), end_block(region));
        return false;
    }
    region->block = NULL;
    set_held(slab, slab->held - region->bytes);
    for (uint32_t block = first_block(region); block < end_block(region); block++) {
        mark_purged(slab, block, true);
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
            claim_region(slab, region)) {
            released = release_region(slab, region);
            gone += released ? bytes : 0;
            empty -= released ? bytes : 0;
        }
    }
    return gone;
}

/* The region with the lowest number whose memory has been freed. There is one. */
static ga_slab_region *lowest_purged_region(const ga_slab_host *slab)
{
    ga_slab_region *lowest = NULL;
    for (ga_slab_region *region = slab->regions; region; region = region->next) {
        lowest = region->block ? lowest : region;
    }
    return lowest;
}

static ga_status restore_region(ga_slab_host *slab)
{
    ga_slab_region *region = lowest_purged_region(slab);
    ga_status status = ga_slab_host_alloc_units(slab, region);
    if (status != GA_OK) {
        return status;
    }
    if (!ga_slab_region_enter(region)) {
        ga_slab_free_to_parent(slab->parent, region->block);
        region->block = NULL;
        return ga_fail(GA_ERR_MEMORY, "slab: no memory to note where units of %u bytes are",
                       slab->shape.unit);
    }
    if (!slab->shape.light) { /* with light addressing ga_slab_host_pointer() reads the region */
        slab->heap.supers[first_block(region) >> slab->shape.super_bits].units = region->units;
    }
    ga_slab_host_count_growth(slab, region);
    for (uint32_t block = first_block(region); block < end_block(region); block++) {
        mark_purged(slab, block, false);
    }
    release_blocks(slab, first_block(region), end_block(region));
    return GA_OK;
}

/* ---- trimming one slab, and several -------------------------------------------------------- */

static uint64_t trim_pages(ga_slab_host *slab, uint64_t keep)
{
    uint64_t empty = can_purge(slab) ? ga_slab_host_empty(slab) : 0;
    if (empty <= keep) {
        return 0;
    }
    ga_slab_view view = ga_slab_view_of(&slab->heap);
    uint64_t bytes = block_bytes(slab);
    uint64_t gone = 0;
    uint32_t super = ga_bits_below(slab->shape.super_bits);
    run r = {blocks_of(slab), blocks_of(slab)};
    for (uint32_t block = r.end; block-- && empty >= keep + bytes && !slab->pages_stay;) {
        bool ours = seems_empty(slab, block) && claim_block(slab, view, block);
        if (ours) {
            r.first = block;
            empty -= bytes;
        }
        if (!ours || !(block & super)) { /* the block below is of another superblock */
            gone += purge_run(slab, view, r);
            r = (run){block, block};
        }
    }
    return gone + purge_run(slab, view, r);
}

uint64_t ga_slab_host_trim(ga_slab_host *slab, uint64_t keep)
{
    return slab->device ? trim_regions(slab, keep) : trim_pages(slab, keep);
}

void ga_slab_host_purge(ga_slab_host *slab)
{
    uint64_t empty = slab->keep == UINT64_MAX || !can_purge(slab) ? 0 : ga_slab_host_empty(slab);
    uint64_t used = slab->held > empty ? slab->held - empty : 0;
    if (empty > slab->keep + used / 4) {
        ga_slab_host_trim(slab, slab->keep / 2 + used / 8);
    }
}

/* Bytes that are empty and whose memory can be returned. */
static uint64_t trimmable(const ga_slab_host *slab)
{
    return can_purge(slab) ? ga_slab_host_empty(slab) : 0;
}

static void trim_one_by_one(ga_slab_host *slabs, uint32_t count, uint64_t keep)
{
    for (uint32_t i = 0; i < count; i++) {
        uint64_t empty = trimmable(&slabs[i]);
        uint64_t kept = empty < keep ? empty : keep;
        ga_slab_host_trim(&slabs[i], kept);
        keep -= kept;
    }
}

void ga_slab_hosts_purge(ga_slab_host *slabs, uint32_t count, uint64_t keep)
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
    if (slabs->device) { /* a share of each may be less than a superblock: none would go */
        trim_one_by_one(slabs, count, keep / 2 + used / 8);
        return;
    }
    double share = (double)(keep / 2 + used / 8) / (double)empty;
    for (uint32_t i = 0; i < count; i++) {
        ga_slab_host_trim(&slabs[i], (uint64_t)(share * (double)trimmable(&slabs[i])));
    }
}

/* ---- restoring ----------------------------------------------------------------------------- */

/* The purged block with the lowest number. There is one. */
static uint32_t lowest_purged(const ga_slab_host *slab)
{
    uint32_t word = 0;
    while (!slab->purged[word]) {
        word++;
    }
    return word * 32u + ga_bits_lowest(slab->purged[word]);
}

static void restore_pages(ga_slab_host *slab)
{
    ga_slab_view view = ga_slab_view_of(&slab->heap);
    uint32_t max = 1u << slab->shape.super_bits;
    for (uint32_t block = lowest_purged(slab); block < blocks_of(slab) && max; block++) {
        if (ga_slab_host_is_purged(slab, block)) {
            max--;
            if (!GA_PLANTED(slab_restored_block_stays_purged)) {
                set_purged(slab, block, false);
            }
            release_words(view, block * GA_SLAB_ROW_WORDS, GA_SLAB_ROW_WORDS);
        }
    }
    ga_slab_host_publish_room(slab);
}

ga_status ga_slab_host_restore(ga_slab_host *slab)
{
    if (slab->device) {
        return restore_region(slab);
    }
    restore_pages(slab);
    return GA_OK;
}
