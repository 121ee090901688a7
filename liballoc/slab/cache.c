/* SPDX-License-Identifier: MIT
 *
 * STRUCTURE  heap -> its threads' caches -> a bin for each class. A thread finds its own in a seat
 *            of its own by the heap's serial number.
 * INVARIANT  a unit in a bin is free, and its bit in the slab is set; no unit is in two places
 * ORDER      units pass from thread to thread through the slab's bitmaps (U1, U2 in slab_tile.h).
 *            The bins are their threads' own; others read them relaxed, for figures.
 * PROGRESS   wait-free while the bins serve; claiming a word is lock-free, growth takes the lock
 */
#include "cache.h"

#include "../platform/libc.h"
#include "../platform/thread.h"
#include "trim.h"

enum {
    APART = 36, /* words: another line of the bitmaps for each thread, and another row soon */
    SETTLE_BYTES = 256 << 10 /* of words that come back before anybody looks what is empty */
};

_Thread_local ga_slab_seat ga_slab_seats[GA_SLAB_SEATS];

/* In a thread that takes memory from the parent or gives it back: what the parent asks us for
 * meanwhile must not wait for the lock. */
static _Thread_local bool growing;

static ga_tile whole(void)
{
    return ga_tile_of(32);
}

/* ---- all of them --------------------------------------------------------------------------- */

ga_status ga_slab_store_begin(ga_slab_store *store, ga_slab_host *slabs, uint32_t count)
{
    static uint64_t serials;
    /* relaxed: each only needs a number of its own */
    store->serial = __atomic_add_fetch(&serials, 1, __ATOMIC_RELAXED);
    store->seat = 1 + (uint32_t)(store->serial % (GA_SLAB_SEATS - 1));
    store->slabs = slabs;
    store->count = count;
    for (uint32_t class = 0; class < count; class ++) {
        slabs[class].serial = store->serial;
        slabs[class].class = class;
    }
    return pthread_mutex_init(&store->lock, NULL) == 0
               ? GA_OK
               : ga_fail(GA_ERR_MEMORY, "slab: no memory for a lock");
}

void ga_slab_store_end(ga_slab_store *store)
{
    while (store->caches) {
        ga_slab_cache *cache = store->caches;
        store->caches = cache->next;
        ga_libc.free(cache);
    }
    for (uint32_t class = 0; class < store->count; class ++) {
        ga_slab_host_end(&store->slabs[class]);
    }
    pthread_mutex_destroy(&store->lock);
}

bool ga_slab_store_grow(ga_slab_store *store, uint32_t class, uint32_t seen)
{
    if (growing) {
        return false;
    }
    pthread_mutex_lock(&store->lock);
    growing = true;
    ga_status status = ga_slab_host_grow(&store->slabs[class], seen);
    growing = false;
    pthread_mutex_unlock(&store->lock);
    return status == GA_OK;
}

/* The lowest unit that is free in one of the words of the row, from `hint` on. */
static uint32_t claim_in_row(ga_slab_view view, uint32_t hint)
{
    uint32_t row = hint / GA_SLAB_ROW_WORDS * GA_SLAB_ROW_WORDS;
    for (uint32_t i = 0; i < GA_SLAB_ROW_WORDS; i++) {
        uint32_t word = row + (hint + i) % GA_SLAB_ROW_WORDS;
        /* relaxed: ga_slab_take() asks again */
        uint32_t free = ~ga_load_relaxed(ga_slab_word(view, word));
        while (free) {
            uint32_t taken = ga_slab_take(view, word, free & -free);
            if (!(taken & free & -free)) {
                return word * 32u + ga_bits_lowest(free);
            }
            free &= ~taken;
        }
    }
    return GA_SLAB_FULL;
}

/* Threads begin in different rows, so that their atomics do not contend. */
static uint32_t *hint_of_thread(ga_slab_host *slab, uint32_t words, uint32_t *start)
{
    uint32_t thread = ga_bits_mix((uint32_t)((uintptr_t)ga_slab_seats >> 8)) % GA_SLAB_HOST_HINTS;
    uint32_t hint = ga_load_relaxed(&slab->hints[thread]); /* a guess; 0: none */
    *start = hint ? hint : thread * APART % words;
    return &slab->hints[thread];
}

uint32_t ga_slab_store_claim(ga_slab_store *store, uint32_t class)
{
    ga_slab_host *slab = &store->slabs[class];
    uint32_t seen;
    do {
        seen = ga_slab_host_room(slab);
        if (ga_slab_host_supers(slab)) {
            ga_slab_view view = ga_slab_view_of(&slab->heap);
            uint32_t start;
            uint32_t *hint = hint_of_thread(slab, view.words, &start);
            uint32_t unit = claim_in_row(view, start);
            if (unit == GA_SLAB_FULL) {
                unit = ga_lanes_get(whole(), ga_slab_claim_lanes(view, whole(), 1, start), 0);
            }
            if (unit != GA_SLAB_FULL) {
                if (unit / 32u != start) {
                    ga_store_relaxed(hint, unit / 32u);
                }
                return unit;
            }
        }
    } while (ga_slab_store_grow(store, class, seen));
    return GA_SLAB_FULL;
}

/* ---- a thread's cache ------------------------------------------------------------------------ */

/* Small units come back to many words; few of large ones are kept from the other threads. */
static uint16_t slots_for(uint32_t unit)
{
    return unit <= 512 ? GA_SLAB_SLOTS : unit <= 4096 ? GA_SLAB_SLOTS / 4 : 1;
}

static ga_slab_cache *make_cache(ga_slab_store *store)
{
    size_t size = sizeof(ga_slab_cache) + store->count * sizeof(ga_slab_bin);
    ga_slab_cache *cache = ga_libc.memalign(64, size);
    if (!cache) {
        return NULL;
    }
    __builtin_memset(cache, 0, size);
    cache->owner = ga_slab_seats;
    cache->store = store;
    cache->number = store->numbers++;
    for (uint32_t class = 0; class < store->count; class ++) {
        ga_slab_bin *bin = &cache->bins[class];
        bin->unit = store->slabs[class].shape.unit;
        bin->span = 32u * bin->unit;
        bin->inverse = ((UINT64_C(1) << 32) + bin->unit - 1u) / bin->unit;
        bin->first = (char *)(UINTPTR_MAX - bin->span); /* no block, nor NULL, is within a span */
        bin->word = bin->hint = GA_SLAB_NO_WORD;
        bin->slot_mask = (uint16_t)(slots_for(bin->unit) - 1);
        for (uint32_t i = 0; i < GA_SLAB_SLOTS; i++) {
            bin->slots[i].word = GA_SLAB_NO_WORD;
        }
    }
    cache->recent = cache->bins;
    cache->next = store->caches;
    store->caches = cache;
    return cache;
}

/* The calling thread's place in the list. */
static ga_slab_cache **my_place(ga_slab_store *store)
{
    ga_slab_cache **place = &store->caches;
    while (*place && (*place)->owner != ga_slab_seats) {
        place = &(*place)->next;
    }
    return place;
}

__attribute__((noinline)) ga_slab_cache *ga_slab_cache_find(ga_slab_store *store)
{
    if (growing || !ga_thread_enroll()) {
        return NULL;
    }
    pthread_mutex_lock(&store->lock);
    ga_slab_cache *cache = *my_place(store);
    if (!cache) {
        cache = make_cache(store);
    }
    pthread_mutex_unlock(&store->lock);
    if (cache) {
        *ga_slab_seat_of(store) = (ga_slab_seat){store->serial, cache};
    }
    return cache;
}

/* Deal out of `word`, whose units of the mask belong to the thread. */
static void hold(ga_slab_bin *bin, char *first, uint32_t word, uint32_t units)
{
    bin->first = first;
    ga_store_relaxed(&bin->word, word);
    ga_store_relaxed(&bin->units, units);
}

static void empty_slot(ga_slab_bin *bin, uint32_t index)
{
    ga_store_relaxed(&bin->slots[index].units, 0);
    ga_store_relaxed(&bin->slots[index].word, GA_SLAB_NO_WORD);
    bin->filled = (uint16_t)(bin->filled & ~(1u << index));
}

static void hold_slot(ga_slab_bin *bin, ga_slab_view view)
{
    uint32_t index = ga_bits_lowest(bin->filled);
    ga_slab_slot slot = bin->slots[index];
    empty_slot(bin, index);
    hold(bin, ga_slab_pointer(view, slot.word * 32u), slot.word, slot.units);
}

/* Where to look once there is a new super block. */
static uint32_t first_hint(const ga_slab_cache *cache, const ga_slab_host *slab, uint32_t supers)
{
    uint32_t words = GA_SLAB_ROW_WORDS << slab->shape.super_bits;
    uint32_t last = slab->shape.light ? 0 : (supers - 1u) * words;
    uint32_t all = slab->shape.light ? ga_slab_words(&slab->heap) : words;
    return last + (uint32_t)((uint64_t)cache->number * APART % all);
}

/* Claim a word, growing if need be. */
static bool claim_word(ga_slab_cache *cache, uint32_t class)
{
    ga_slab_bin *bin = &cache->bins[class];
    ga_slab_host *slab = &cache->store->slabs[class];
    uint32_t seen;
    do {
        seen = ga_slab_host_room(slab);
        uint32_t supers = ga_slab_host_supers(slab);
        if (supers) {
            ga_slab_view view = ga_slab_view_of(&slab->heap);
            bool begun = bin->hint != GA_SLAB_NO_WORD;
            ga_slab_claimed claimed = {begun ? bin->hint : first_hint(cache, slab, supers), 0};
            ga_slab_claim_word(view, whole(), &claimed);
            if (claimed.units) {
                bin->hint = claimed.word;
                hold(bin, ga_slab_pointer(view, claimed.word * 32u), claimed.word, claimed.units);
                return true;
            }
        }
        bin->hint = GA_SLAB_NO_WORD; /* the new super block's */
    } while (ga_slab_store_grow(cache->store, class, seen));
    return false;
}

__attribute__((noinline)) void *ga_slab_cache_refill(ga_slab_cache *cache, uint32_t class)
{
    ga_slab_bin *bin = &cache->bins[class];
    if (bin->filled) {
        hold_slot(bin, ga_slab_view_of(&cache->store->slabs[class].heap));
    } else if (!claim_word(cache, class)) {
        return NULL;
    }
    return ga_slab_cache_alloc(cache, class);
}

/* Words of `bytes` came back to the slab: blocks may have become empty. Each slab has its bound, and
 * all together have one, so that a heap that many sizes passed through does not keep some of each.
 * Looking all of them over costs a walk over their counts, so it waits until as many bytes came back
 * as may be kept. Under the lock. */
static void settle(ga_slab_store *store, uint32_t class, uint64_t bytes)
{
    ga_slab_host_settle(&store->slabs[class]);
    store->returned += bytes;
    if (store->returned > store->keep) {
        store->returned = 0;
        ga_slab_hosts_settle(store->slabs, store->count, store->keep);
    }
}

void ga_slab_store_settle(ga_slab_store *store, uint32_t class, uint64_t bytes)
{
    if (growing || pthread_mutex_trylock(&store->lock) != 0) {
        return;
    }
    growing = true;
    settle(store, class, bytes);
    growing = false;
    pthread_mutex_unlock(&store->lock);
}

/* Once for so many words that the walk over the counts is less than one count for each. A thread that
 * finds the lock taken leaves it to a later one. */
static void try_settle(ga_slab_cache *cache, uint32_t class)
{
    ga_slab_bin *bin = &cache->bins[class];
    uint64_t bytes = (uint64_t)bin->given * bin->span;
    bin->given = 0;
    if (pthread_mutex_trylock(&cache->store->lock) == 0) {
        settle(cache->store, class, bytes);
        pthread_mutex_unlock(&cache->store->lock);
    }
}

static void give(ga_slab_cache *cache, uint32_t class, ga_slab_slot slot)
{
    ga_slab_bin *bin = &cache->bins[class];
    ga_slab_view view = ga_slab_view_of(&cache->store->slabs[class].heap);
    ga_slab_give(view, slot.word, slot.units);
    bin->given++;
    if (bin->given > view.words / GA_SLAB_ROW_WORDS &&
        (uint64_t)bin->given * bin->span > SETTLE_BYTES) {
        try_settle(cache, class);
    }
}

/* A unit of a word that the bin does not hold: that becomes the claimed word if the old one is used
 * up, else it takes its slot. Never fails. */
__attribute__((noinline)) ga_status ga_slab_cache_turn(ga_slab_cache *cache, uint32_t class,
                                                       uint32_t unit, void *block)
{
    ga_slab_bin *bin = &cache->bins[class];
    uint32_t word = unit / 32u;
    uint32_t place = unit % 32u;
    uint32_t index = word & bin->slot_mask;
    if (!bin->units) {
        hold(bin, (char *)block - (size_t)place * bin->unit, word, 1u << place);
        return GA_OK;
    }
    ga_slab_slot before = bin->slots[index];
    ga_store_relaxed(&bin->slots[index].word, word);
    ga_store_relaxed(&bin->slots[index].units, 1u << place);
    bin->filled = (uint16_t)(bin->filled | 1u << index);
    if (before.units) {
        give(cache, class, before);
    }
    return GA_OK;
}

__attribute__((noinline, cold)) ga_status ga_slab_cache_doubled(const void *block)
{
    return ga_fail(GA_ERR_POINTER, "slab: %p: expected a block to free, but it is free already",
                   block);
}

/* ---- the end of a thread, forks -------------------------------------------------------------- */

static void give_bin(ga_slab_bin *bin, ga_slab_host *slab)
{
    bin->given = 0;
    if (!bin->units && !bin->filled) {
        return;
    }
    ga_slab_view view = ga_slab_view_of(&slab->heap);
    uint32_t units = bin->units;
    ga_store_relaxed(&bin->units, 0);
    if (units) {
        ga_slab_give(view, bin->word, units);
    }
    while (bin->filled) {
        uint32_t index = ga_bits_lowest(bin->filled);
        ga_slab_slot slot = bin->slots[index];
        empty_slot(bin, index);
        ga_slab_give(view, slot.word, slot.units);
    }
}

void ga_slab_cache_empty_all(ga_slab_store *store)
{
    for (ga_slab_cache *cache = store->caches; cache; cache = cache->next) {
        for (uint32_t class = 0; class < store->count; class ++) {
            give_bin(&cache->bins[class], &store->slabs[class]);
        }
    }
}

ga_slab_trimmed ga_slab_store_trim(ga_slab_store *store, uint64_t keep)
{
    ga_slab_trimmed trimmed = {0};
    if (growing) {
        return trimmed;
    }
    pthread_mutex_lock(&store->lock);
    growing = true;
    ga_slab_cache *cache = *my_place(store);
    for (uint32_t class = 0; class < store->count; class ++) {
        ga_slab_host *slab = &store->slabs[class];
        if (cache) {
            give_bin(&cache->bins[class], slab);
        }
        uint64_t empty = slab->heap.free ? ga_slab_host_empty(slab) : 0;
        uint64_t kept = empty < keep ? empty : keep;
        trimmed.gone += ga_slab_host_trim(slab, kept);
        trimmed.kept += kept;
        keep -= kept;
    }
    growing = false;
    pthread_mutex_unlock(&store->lock);
    return trimmed;
}

void ga_slab_cache_leave(ga_slab_store *store)
{
    ga_slab_seat *seat = ga_slab_seat_of(store);
    pthread_mutex_lock(&store->lock);
    ga_slab_cache **place = my_place(store);
    ga_slab_cache *cache = *place;
    if (cache) {
        for (uint32_t class = 0; class < store->count; class ++) {
            const ga_slab_bin *bin = &cache->bins[class];
            uint64_t words = (uint64_t)bin->given + (bin->units != 0) + ga_bits_count(bin->filled);
            give_bin(&cache->bins[class], &store->slabs[class]);
            if (words) {
                settle(store, class, words * bin->span);
            }
        }
        *place = cache->next;
        ga_libc.free(cache);
    }
    if (seat->serial == store->serial) {
        *seat = (ga_slab_seat){0};
    }
    pthread_mutex_unlock(&store->lock);
}

/* A thread may have been in the middle of anything, and memory was copied page after page: its
 * units cannot be given to anybody. A new thread may have its address, though. */
void ga_slab_cache_forget_others(ga_slab_store *store)
{
    for (ga_slab_cache *cache = store->caches; cache; cache = cache->next) {
        if (cache->owner != ga_slab_seats) {
            cache->owner = NULL;
        }
    }
}

/* ---- what they hold -------------------------------------------------------------------------- */

static uint64_t units_of_bin(const ga_slab_bin *bin)
{
    uint64_t units = ga_bits_count(ga_load_relaxed(&bin->units));
    for (uint32_t i = 0; i <= bin->slot_mask; i++) {
        units += ga_bits_count(ga_load_relaxed(&bin->slots[i].units));
    }
    return units;
}

uint64_t ga_slab_cache_units(const ga_slab_store *store, uint32_t class)
{
    uint64_t units = 0;
    for (const ga_slab_cache *cache = store->caches; cache; cache = cache->next) {
        units += units_of_bin(&cache->bins[class]);
    }
    return units;
}

uint32_t ga_slab_cache_of_word(const ga_slab_store *store, uint32_t class, uint32_t word)
{
    uint32_t units = 0;
    for (const ga_slab_cache *cache = store->caches; cache; cache = cache->next) {
        const ga_slab_bin *bin = &cache->bins[class];
        const ga_slab_slot *slot = &bin->slots[word & bin->slot_mask];
        units |= ga_load_relaxed(&bin->word) == word ? ga_load_relaxed(&bin->units) : 0;
        units |= ga_load_relaxed(&slot->word) == word ? ga_load_relaxed(&slot->units) : 0;
    }
    return units;
}
