/* SPDX-License-Identifier: MIT
 *
 * alloc:  partial run, else empty run, else purged run, else a new one -> random free slot
 * free:   check -> clear -> quarantine -> the slot that leaves the quarantine becomes free
 */
#include "bin.h"

#include "../../platform/os_memory.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    QUARANTINE_BYTES = 131072, /* of blocks, in each half of a bin's quarantine */
    EMPTY_BYTES = 131072,      /* of empty runs that a bin keeps */
    TABLE_STEP = 65536         /* the table is committed in steps of so many bytes */
};

/* ---- the bin's memory --------------------------------------------------------------------- */

static size_t page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

static uint32_t quarantine_places(const ga_hardened_class *class)
{
    return QUARANTINE_BYTES / class->slot_bytes ? QUARANTINE_BYTES / class->slot_bytes : 1;
}

static size_t quarantine_table(const ga_hardened_class *class)
{
    return 2 * sizeof(uint64_t) * quarantine_places(class);
}

/* An eighth of the addresses stays unused before the first run, at random. */
static uint32_t runs_in(const ga_hardened_class *class, size_t address_bytes)
{
    return (uint32_t)((address_bytes - address_bytes / 8) / class->stride);
}

size_t ga_hardened_bin_table(const ga_hardened_class *class, size_t address_bytes)
{
    size_t bytes =
        quarantine_table(class) + (size_t)runs_in(class, address_bytes) * sizeof(ga_hardened_run);
    return (bytes / TABLE_STEP + 2) * TABLE_STEP; /* one step stays reserved, as a guard */
}

void ga_hardened_bin_open(ga_hardened_bin *bin, const ga_hardened_class *class,
                          ga_hardened_limits *limits, uint8_t *addresses, size_t address_bytes,
                          uint8_t *table)
{
    *bin = (ga_hardened_bin){
        .class = class,
        .limits = limits,
        .table_base = table,
        .runs_max = runs_in(class, address_bytes),
        .partial = {GA_HARDENED_NO_RUN, GA_HARDENED_NO_RUN},
        .empty = {GA_HARDENED_NO_RUN, GA_HARDENED_NO_RUN},
        .purged = {GA_HARDENED_NO_RUN, GA_HARDENED_NO_RUN},
        .quarantine = quarantine_places(class),
    };
    pthread_mutex_init(&bin->lock, NULL);
    size_t skipped = ga_hardened_random_word(&bin->random) % (address_bytes / 8 / page_bytes());
    bin->base = addresses + (1 + skipped) * page_bytes();
    bin->runs_max -= bin->runs_max > 1; /* the page in front */
    bin->random_part = (uint64_t *)(void *)table;
    bin->queue = bin->random_part + bin->quarantine;
    bin->runs = (ga_hardened_run *)(void *)(table + quarantine_table(class));
}

static uint8_t *address_of_run(const ga_hardened_bin *bin, uint32_t index)
{
    return bin->base + (size_t)index * bin->class->stride;
}

static bool readable(void *start, size_t bytes)
{
    return ga_os_memory_get()->mprotect(start, bytes, PROT_READ | PROT_WRITE) == 0;
}

/* Make the table's entry `index` readable. */
static bool commit_table(ga_hardened_bin *bin, uint32_t index)
{
    size_t needed = quarantine_table(bin->class) + ((size_t)index + 1) * sizeof(ga_hardened_run);
    if (needed <= bin->table_committed) {
        return true;
    }
    size_t bytes = (needed + TABLE_STEP - 1) / TABLE_STEP * TABLE_STEP - bin->table_committed;
    if (!readable(bin->table_base + bin->table_committed, bytes)) {
        return false;
    }
    bin->table_committed += bytes;
    return true;
}

/* True if this run may have a guard behind it. The kernel limits a process's mappings, and a run
 * between guards is two of them. */
static bool may_guard(ga_hardened_bin *bin)
{
    /* relaxed: a count that orders nothing */
    if (__atomic_sub_fetch(&bin->limits->guards_left, 1, __ATOMIC_RELAXED) >= 0) {
        return true;
    }
    __atomic_add_fetch(&bin->limits->guards_left, 1, __ATOMIC_RELAXED);
    return false;
}

static void count_guard_off(ga_hardened_bin *bin)
{
    __atomic_add_fetch(&bin->limits->guards_left, 1, __ATOMIC_RELAXED); /* relaxed: see may_guard */
}

typedef enum ga_hardened_commit {
    REFUSED = 0,
    PLAIN, /* no guard: the run and its neighbours are one mapping */
    GUARDED
} ga_hardened_commit;

static ga_hardened_commit commit_pages(ga_hardened_bin *bin, uint32_t index)
{
    uint8_t *start = address_of_run(bin, index);
    if (may_guard(bin)) {
        if (readable(start, bin->class->run_bytes)) {
            return GUARDED;
        }
        count_guard_off(bin);
    }
    return readable(start, bin->class->stride) ? PLAIN : REFUSED;
}

/* ---- lists of runs ------------------------------------------------------------------------ */

static void append(ga_hardened_bin *bin, ga_hardened_runs *list, uint32_t index)
{
    ga_hardened_run *run = &bin->runs[index];
    run->previous = list->last;
    run->next = GA_HARDENED_NO_RUN;
    if (list->last == GA_HARDENED_NO_RUN) {
        list->first = index;
    } else {
        bin->runs[list->last].next = index;
    }
    list->last = index;
}

static void remove_run(ga_hardened_bin *bin, ga_hardened_runs *list, uint32_t index)
{
    ga_hardened_run *run = &bin->runs[index];
    if (run->previous == GA_HARDENED_NO_RUN) {
        list->first = run->next;
    } else {
        bin->runs[run->previous].next = run->next;
    }
    if (run->next == GA_HARDENED_NO_RUN) {
        list->last = run->previous;
    } else {
        bin->runs[run->next].previous = run->previous;
    }
}

/* ---- runs --------------------------------------------------------------------------------- */

static uint64_t new_canary(ga_hardened_bin *bin)
{
    /* The first byte is 0, so that no string runs past it. */
    return ga_hardened_random_word(&bin->random) & ~(uint64_t)0xff;
}

static void set_up_run(ga_hardened_bin *bin, uint32_t index, ga_hardened_commit how)
{
    ga_hardened_run *run = &bin->runs[index];
    memset(run, 0, sizeof *run);
    for (uint32_t i = bin->class->slots; i < GA_HARDENED_SLOTS; i++) {
        run->taken[i / 64] |= UINT64_C(1) << (i % 64);
    }
    run->canary = new_canary(bin);
    run->state = GA_HARDENED_COMMITTED;
    run->guarded = how == GUARDED;
    bin->committed++;
    bin->commits++;
}

static uint32_t reuse_purged(ga_hardened_bin *bin)
{
    uint32_t index = bin->purged.first;
    ga_hardened_commit how = index == GA_HARDENED_NO_RUN ? REFUSED : commit_pages(bin, index);
    if (how == REFUSED) {
        return GA_HARDENED_NO_RUN;
    }
    remove_run(bin, &bin->purged, index);
    set_up_run(bin, index, how);
    return index;
}

static uint32_t begin_run(ga_hardened_bin *bin)
{
    uint32_t index = bin->runs_used;
    if (index == bin->runs_max || !commit_table(bin, index)) {
        return GA_HARDENED_NO_RUN;
    }
    ga_hardened_commit how = commit_pages(bin, index);
    if (how == REFUSED) {
        return GA_HARDENED_NO_RUN;
    }
    bin->runs_used++;
    set_up_run(bin, index, how);
    return index;
}

/* A run with a free slot, on the list of partial runs. */
static uint32_t find_run(ga_hardened_bin *bin)
{
    uint32_t index = bin->partial.first;
    if (index != GA_HARDENED_NO_RUN) {
        return index;
    }
    index = bin->empty.first;
    if (index != GA_HARDENED_NO_RUN) {
        remove_run(bin, &bin->empty, index);
        bin->empty_count--;
    } else {
        index = reuse_purged(bin);
        index = index == GA_HARDENED_NO_RUN ? begin_run(bin) : index;
    }
    if (index != GA_HARDENED_NO_RUN) {
        append(bin, &bin->partial, index);
    }
    return index;
}

/* The addresses stay reserved and become unreadable. If the kernel refuses, only the pages go. */
static void purge_run(ga_hardened_bin *bin, uint32_t index)
{
    uint8_t *start = address_of_run(bin, index);
    const ga_os_memory *os = ga_os_memory_get();
    remove_run(bin, &bin->empty, index);
    bin->empty_count--;
    os->madvise(start, bin->class->run_bytes, MADV_DONTNEED);
    os->mprotect(start, bin->class->stride, PROT_NONE);
    bin->runs[index].state = GA_HARDENED_PURGED;
    if (bin->runs[index].guarded) {
        count_guard_off(bin);
    }
    bin->committed--;
    append(bin, &bin->purged, index);
}

static void purge_beyond(ga_hardened_bin *bin, size_t keep)
{
    int saved = errno;
    while (bin->empty_count && (size_t)bin->empty_count * bin->class->run_bytes > keep) {
        purge_run(bin, bin->empty.first);
    }
    errno = saved;
}

/* ---- allocation --------------------------------------------------------------------------- */

static uint32_t random_free_slot(ga_hardened_bin *bin, const ga_hardened_run *run)
{
    uint32_t start = ga_hardened_random_below(&bin->random, bin->class->slots);
    uint32_t word = start / 64;
    uint64_t free = ~run->taken[word] & (~UINT64_C(0) << (start % 64));
    while (!free) {
        word = (word + 1) % GA_HARDENED_WORDS;
        free = ~run->taken[word];
    }
    return word * 64 + (uint32_t)__builtin_ctzll(free);
}

static bool test_bit(const uint64_t *bits, uint64_t slot)
{
    return bits[slot / 64] >> (slot % 64) & 1;
}

static void set_bit(uint64_t *bits, uint64_t slot)
{
    bits[slot / 64] |= UINT64_C(1) << (slot % 64);
}

static void clear_bit(uint64_t *bits, uint64_t slot)
{
    bits[slot / 64] &= ~(UINT64_C(1) << (slot % 64));
}

static bool all_zeros(const uint64_t *words, size_t bytes)
{
    uint64_t any = 0;
    for (size_t i = 0; i < bytes / sizeof *words; i++) {
        any |= words[i];
    }
    return any == 0;
}

static uint64_t *canary_of(const ga_hardened_bin *bin, void *block)
{
    return (uint64_t *)(void *)((uint8_t *)block + bin->class->slot_bytes - GA_HARDENED_CANARY);
}

void *ga_hardened_bin_alloc(ga_hardened_bin *bin, const char *call)
{
    pthread_mutex_lock(&bin->lock);
    uint32_t index = find_run(bin);
    if (index == GA_HARDENED_NO_RUN) {
        pthread_mutex_unlock(&bin->lock);
        return NULL;
    }
    ga_hardened_run *run = &bin->runs[index];
    uint32_t slot = random_free_slot(bin, run);
    bool was_used = test_bit(run->used, slot);
    uint64_t canary = run->canary;
    set_bit(run->taken, slot);
    set_bit(run->used, slot);
    if (++run->taken_count == bin->class->slots) {
        remove_run(bin, &bin->partial, index);
    }
    bin->live++;
    pthread_mutex_unlock(&bin->lock);
    void *block = address_of_run(bin, index) + (size_t)slot * bin->class->slot_bytes;
    if (was_used && !all_zeros(block, bin->class->slot_bytes)) {
        ga_hardened_end(GA_HARDENED_WRITE_AFTER_FREE, call, block,
                        bin->class->slot_bytes - GA_HARDENED_CANARY);
    }
    *canary_of(bin, block) = canary;
    return block;
}

/* ---- freeing ------------------------------------------------------------------------------ */

typedef struct ga_hardened_place {
    uint64_t run, slot;
    uint64_t inside; /* bytes from the slot's beginning */
} ga_hardened_place;

/* Where a pointer into the bin's addresses points; in front of run 0 that is past every run. */
static ga_hardened_place place_of(const ga_hardened_bin *bin, const void *block)
{
    const ga_hardened_class *class = bin->class;
    uint64_t offset = (uintptr_t)block - (uintptr_t)bin->base;
    uint64_t run = ga_hardened_divide(offset, class->stride_inverse);
    uint64_t rest = offset - run * class->stride;
    uint64_t slot = ga_hardened_divide(rest, class->slot_inverse);
    return (ga_hardened_place){run, slot, rest - slot * class->slot_bytes};
}

static ga_hardened_misuse check_live(const ga_hardened_bin *bin, const void *block)
{
    ga_hardened_place at = place_of(bin, block);
    if (at.run >= bin->runs_used || at.slot >= bin->class->slots) {
        return GA_HARDENED_NO_BLOCK;
    }
    const ga_hardened_run *run = &bin->runs[at.run];
    if (run->state != GA_HARDENED_COMMITTED) {
        return GA_HARDENED_DOUBLE_FREE;
    }
    if (at.inside) {
        return GA_HARDENED_INTERIOR;
    }
    if (test_bit(run->quarantined, at.slot) || !test_bit(run->taken, at.slot)) {
        return test_bit(run->used, at.slot) ? GA_HARDENED_DOUBLE_FREE : GA_HARDENED_NO_BLOCK;
    }
    bool whole = *canary_of(bin, (void *)block) == run->canary;
    return whole ? GA_HARDENED_FINE : GA_HARDENED_OVERFLOW;
}

/* The slot may be handed out again. */
static void release_slot(ga_hardened_bin *bin, const void *block)
{
    ga_hardened_place at = place_of(bin, block);
    uint32_t index = (uint32_t)at.run;
    ga_hardened_run *run = &bin->runs[index];
    clear_bit(run->taken, at.slot);
    clear_bit(run->quarantined, at.slot);
    if (run->taken_count-- == bin->class->slots) {
        append(bin, &bin->partial, index);
    }
    if (run->taken_count == 0) {
        remove_run(bin, &bin->partial, index);
        append(bin, &bin->empty, index);
        bin->empty_count++;
        purge_beyond(bin, EMPTY_BYTES);
    }
}

/* Store `block` at a place of the quarantine, and return the block that was there. */
static uint64_t exchange(uint64_t *place, uint64_t block)
{
    uint64_t before = *place;
    *place = block;
    return before;
}

static void quarantine(ga_hardened_bin *bin, void *block)
{
    uint32_t at = ga_hardened_random_below(&bin->random, bin->quarantine);
    uint64_t pushed = exchange(&bin->random_part[at], (uintptr_t)block);
    if (!pushed) {
        return;
    }
    pushed = exchange(&bin->queue[bin->queue_next], pushed);
    bin->queue_next = bin->queue_next + 1 == bin->quarantine ? 0 : bin->queue_next + 1;
    if (pushed) {
        release_slot(bin, (void *)(uintptr_t)pushed);
    }
}

ga_hardened_misuse ga_hardened_bin_free(ga_hardened_bin *bin, void *block)
{
    pthread_mutex_lock(&bin->lock);
    ga_hardened_misuse found = check_live(bin, block);
    if (found == GA_HARDENED_FINE) {
        ga_hardened_place at = place_of(bin, block);
        set_bit(bin->runs[at.run].quarantined, at.slot);
        memset(block, 0, bin->class->slot_bytes);
        bin->live--;
        quarantine(bin, block);
    }
    pthread_mutex_unlock(&bin->lock);
    return found;
}

ga_hardened_misuse ga_hardened_bin_check(ga_hardened_bin *bin, const void *block)
{
    pthread_mutex_lock(&bin->lock);
    ga_hardened_misuse found = check_live(bin, block);
    pthread_mutex_unlock(&bin->lock);
    return found;
}

void ga_hardened_bin_purge(ga_hardened_bin *bin)
{
    pthread_mutex_lock(&bin->lock);
    purge_beyond(bin, 0);
    pthread_mutex_unlock(&bin->lock);
}
