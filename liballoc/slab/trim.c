/* SPDX-License-Identifier: MIT
 *
 * STRUCTURE  a bit for each memory block of a slab: it is away. The slab itself has claimed all of
 *            its units then, as anybody claims units, and its pages are the system's.
 * INVARIANT  while a block is away all bits of its row are set and its count is 0: no claim gets a
 *            unit of it or looks there. Its row and its addresses stay, so that a claim that comes
 *            by an old hint, and a look-up of an address, find what they always find.
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

uint64_t ga_slab_host_empty(const ga_slab_host *slab)
{
    uint64_t empty = 0;
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

static void set_away(ga_slab_host *slab, uint32_t block, bool away)
{
    uint32_t *word = &slab->away[block / 32u];
    uint32_t bit = 1u << block % 32u;
    uint64_t bytes = block_bytes(slab);
    /* relaxed: one thread at a time changes them, and others read them for figures */
    ga_store_relaxed(word, away ? *word | bit : *word & ~bit);
    slab->away_blocks += away ? 1u : -1u;
    __atomic_store_n(&slab->held, away ? slab->held - bytes : slab->held + bytes, __ATOMIC_RELAXED);
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
    return !slab->device && !slab->pages_stay && slab->heap.free && page > 0 &&
           page <= (long)GA_SLAB_STEP && block_bytes(slab) % (uint64_t)page == 0;
}

uint64_t ga_slab_host_trim(ga_slab_host *slab, uint64_t keep)
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

bool ga_slab_host_fetch(ga_slab_host *slab)
{
    if (!slab->away_blocks) {
        return false;
    }
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
    return true;
}
