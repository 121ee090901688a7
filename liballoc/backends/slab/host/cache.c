/* SPDX-License-Identifier: MIT
 *
 * STRUCTURE  heap -> its threads' caches -> a bin for each class. A thread finds its cache in a
 *            thread-local slot that has the heap's serial number.
 * INVARIANT  a unit in a bin is free, and its bit in the slab is set; no unit is in two bins
 * ORDER      units pass from thread to thread through the slab's bitmaps (SU1, SU2 in slab_tile.h).
 *            Only its own thread changes a bin; other threads read it, relaxed, for figures.
 * PROGRESS   wait-free while the bins serve; claiming a word is lock-free, growth takes the lock
 */
#include "cache.h"

#include "../../../platform/libc.h"
#include "../../../platform/thread.h"
#include "trim.h"

enum {
    HINT_STRIDE = 36, /* words between threads: another line of the bitmaps, soon another row */
    PURGE_BYTES = 256 << 10 /* flushed by a thread before it tries a purge */
};

_Thread_local ga_slab_tls_slot ga_slab_tls_slots[GA_SLAB_TLS_SLOTS];

/* Set while this thread allocates from the parent or frees to it. If the parent calls this heap
 * from there, that call must not wait for the lock. */
static _Thread_local bool in_parent_call;

static ga_tile whole_warp(void)
{
    return ga_tile_of(32);
}

/* ---- the store ----------------------------------------------------------------------------- */

ga_status ga_slab_store_begin(ga_slab_store *store, ga_slab_host *slabs, uint32_t count)
{
    static uint64_t serials;
    /* relaxed: each store only needs a unique number */
    store->serial = __atomic_add_fetch(&serials, 1, __ATOMIC_RELAXED);
    store->tls_slot = 1 + (uint32_t)(store->serial % (GA_SLAB_TLS_SLOTS - 1));
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
    if (in_parent_call) {
        return false;
    }
    pthread_mutex_lock(&store->lock);
    in_parent_call = true;
    ga_status status = ga_slab_host_grow(&store->slabs[class], seen);
    in_parent_call = false;
    pthread_mutex_unlock(&store->lock);
    return status == GA_OK;
}

/* Claim the lowest free unit of a word of the row, beginning with word `hint`. */
static uint32_t claim_in_row(ga_slab_view view, uint32_t hint)
{
    uint32_t row = hint / GA_SLAB_ROW_WORDS * GA_SLAB_ROW_WORDS;
    for (uint32_t i = 0; i < GA_SLAB_ROW_WORDS; i++) {
        uint32_t word = row + (hint + i) % GA_SLAB_ROW_WORDS;
        /* relaxed: a guess; ga_slab_claim_bits() decides */
        uint32_t free = ~ga_load_relaxed(ga_slab_word(view, word));
        while (free) {
            uint32_t taken = ga_slab_claim_bits(view, word, free & -free);
            if (!(taken & free & -free)) {
                return word * 32u + ga_bits_lowest(free);
            }
            free &= ~taken;
        }
    }
    return GA_SLAB_FULL;
}

/* The hint of the calling thread, by a hash of the thread. Threads begin in different rows, so that
 * their atomics do not contend. */
static uint32_t *hint_of_thread(ga_slab_host *slab, uint32_t words, uint32_t *start)
{
    uint32_t thread =
        ga_bits_mix((uint32_t)((uintptr_t)ga_slab_tls_slots >> 8)) % GA_SLAB_HOST_HINTS;
    uint32_t hint = ga_load_relaxed(&slab->hints[thread]); /* relaxed: a guess; 0: none */
    *start = hint ? hint : thread * HINT_STRIDE % words;
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
                unit = ga_lanes_get(whole_warp(), ga_slab_claim_lanes(view, whole_warp(), 1, start),
                                    0);
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

/* ---- a thread's cache ---------------------------------------------------------------------- */

/* Freed small units are of many words, so they get many slots. Of large units a thread should keep
 * few from the others. */
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
    cache->owner = ga_slab_tls_slots;
    cache->store = store;
    cache->number = store->numbers++;
    for (uint32_t class = 0; class < store->count; class ++) {
        ga_slab_bin *bin = &cache->bins[class];
        bin->unit = store->slabs[class].shape.unit;
        bin->span = 32u * bin->unit;
        bin->inverse = ((UINT64_C(1) << 32) + bin->unit - 1u) / bin->unit;
        bin->first = (char *)(UINTPTR_MAX - bin->span); /* no block there, and not NULL */
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

/* The link to the calling thread's cache; it points to NULL if there is none. */
static ga_slab_cache **own_link(ga_slab_store *store)
{
    ga_slab_cache **link = &store->caches;
    while (*link && (*link)->owner != ga_slab_tls_slots) {
        link = &(*link)->next;
    }
    return link;
}

__attribute__((noinline)) ga_slab_cache *ga_slab_cache_get_slow(ga_slab_store *store)
{
    if (in_parent_call || !ga_thread_enroll()) {
        return NULL;
    }
    pthread_mutex_lock(&store->lock);
    ga_slab_cache *cache = *own_link(store);
    if (!cache) {
        cache = make_cache(store);
    }
    pthread_mutex_unlock(&store->lock);
    if (cache) {
        *ga_slab_tls_slot_of(store) = (ga_slab_tls_slot){store->serial, cache};
    }
    return cache;
}

/* Make `word` the claimed word; the thread owns its units of the mask `units`. */
static void set_claimed_word(ga_slab_bin *bin, char *first, uint32_t word, uint32_t units)
{
    bin->first = first;
    ga_store_relaxed(&bin->word, word);
    ga_store_relaxed(&bin->units, units);
}

static void clear_slot(ga_slab_bin *bin, uint32_t index)
{
    ga_store_relaxed(&bin->slots[index].units, 0);
    ga_store_relaxed(&bin->slots[index].word, GA_SLAB_NO_WORD);
    bin->filled = (uint16_t)(bin->filled & ~(1u << index));
}

static void promote_slot(ga_slab_bin *bin, ga_slab_view view)
{
    uint32_t index = ga_bits_lowest(bin->filled);
    ga_slab_slot slot = bin->slots[index];
    clear_slot(bin, index);
    set_claimed_word(bin, ga_slab_pointer(view, slot.word * 32u), slot.word, slot.units);
}

/* The word where a thread begins: in the newest superblock, or in any with light addressing. */
static uint32_t first_hint(const ga_slab_cache *cache, const ga_slab_host *slab, uint32_t supers)
{
    uint32_t words = GA_SLAB_ROW_WORDS << slab->shape.super_bits;
    uint32_t last = slab->shape.light ? 0 : (supers - 1u) * words;
    uint32_t all = slab->shape.light ? ga_slab_words(&slab->heap) : words;
    return last + (uint32_t)((uint64_t)cache->number * HINT_STRIDE % all);
}

/* Claim a word of units, with growth if the slab is full. */
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
            ga_slab_claim_word(view, whole_warp(), &claimed);
            if (claimed.units) {
                bin->hint = claimed.word;
                set_claimed_word(bin, ga_slab_pointer(view, claimed.word * 32u), claimed.word,
                                 claimed.units);
                return true;
            }
        }
        bin->hint = GA_SLAB_NO_WORD; /* begin in the new superblock */
    } while (ga_slab_store_grow(cache->store, class, seen));
    return false;
}

__attribute__((noinline)) void *ga_slab_cache_refill(ga_slab_cache *cache, uint32_t class)
{
    ga_slab_bin *bin = &cache->bins[class];
    if (bin->filled) {
        promote_slot(bin, ga_slab_view_of(&cache->store->slabs[class].heap));
    } else if (!claim_word(cache, class)) {
        return NULL;
    }
    return ga_slab_cache_alloc(cache, class);
}

/* Purge after words of `bytes` have come back, which may have emptied blocks. Each slab has a bound
 * for empty bytes. All slabs together have one too, because a heap that many sizes have passed
 * through would otherwise keep some of each. Checking all slabs walks over their counts, so it
 * waits until as many bytes have come back as may be kept. Under the lock. */
static void purge(ga_slab_store *store, uint32_t class, uint64_t bytes)
{
    ga_slab_host_purge(&store->slabs[class]);
    store->returned += bytes;
    if (store->returned > store->keep) {
        store->returned = 0;
        ga_slab_hosts_purge(store->slabs, store->count, store->keep);
    }
}

void ga_slab_store_purge(ga_slab_store *store, uint32_t class, uint64_t bytes)
{
    if (in_parent_call || pthread_mutex_trylock(&store->lock) != 0) {
        return;
    }
    in_parent_call = true;
    purge(store, class, bytes);
    in_parent_call = false;
    pthread_mutex_unlock(&store->lock);
}

/* Called once for more flushed words than there are counts, so that the walk over the counts costs
 * less than one count a word. If the lock is taken, a later call does it. */
static void try_purge(ga_slab_cache *cache, uint32_t class)
{
    ga_slab_bin *bin = &cache->bins[class];
    uint64_t bytes = (uint64_t)bin->flushed_words * bin->span;
    bin->flushed_words = 0;
    if (pthread_mutex_trylock(&cache->store->lock) == 0) {
        purge(cache->store, class, bytes);
        pthread_mutex_unlock(&cache->store->lock);
    }
}

static void flush_slot(ga_slab_cache *cache, uint32_t class, ga_slab_slot slot)
{
    ga_slab_bin *bin = &cache->bins[class];
    ga_slab_view view = ga_slab_view_of(&cache->store->slabs[class].heap);
    ga_slab_release_bits(view, slot.word, slot.units);
    bin->flushed_words++;
    if (bin->flushed_words > view.words / GA_SLAB_ROW_WORDS &&
        (uint64_t)bin->flushed_words * bin->span > PURGE_BYTES) {
        try_purge(cache, class);
    }
}

/* Free a unit whose word the bin does not have. The word becomes the claimed word if the old one is
 * used up; otherwise it takes its slot. Never fails. */
__attribute__((noinline)) ga_status ga_slab_cache_free_slow(ga_slab_cache *cache, uint32_t class,
                                                            uint32_t unit, void *block)
{
    ga_slab_bin *bin = &cache->bins[class];
    uint32_t word = unit / 32u;
    uint32_t bit = unit % 32u;
    uint32_t index = word & bin->slot_mask;
    if (!bin->units) {
        set_claimed_word(bin, (char *)block - (size_t)bit * bin->unit, word, 1u << bit);
        return GA_OK;
    }
    ga_slab_slot before = bin->slots[index];
    ga_store_relaxed(&bin->slots[index].word, word);
    ga_store_relaxed(&bin->slots[index].units, 1u << bit);
    bin->filled = (uint16_t)(bin->filled | 1u << index);
    if (before.units) {
        flush_slot(cache, class, before);
    }
    return GA_OK;
}

__attribute__((noinline, cold)) ga_status ga_slab_cache_double_free(const void *block)
{
    return ga_fail(GA_ERR_POINTER, "slab: %p: expected a block to free, but it is free already",
                   block);
}

/* ---- thread exit, forks -------------------------------------------------------------------- */

static void flush_bin(ga_slab_bin *bin, ga_slab_host *slab)
{
    bin->flushed_words = 0;
    if (!bin->units && !bin->filled) {
        return;
    }
    ga_slab_view view = ga_slab_view_of(&slab->heap);
    uint32_t units = bin->units;
    ga_store_relaxed(&bin->units, 0);
    if (units) {
        ga_slab_release_bits(view, bin->word, units);
    }
    while (bin->filled) {
        uint32_t index = ga_bits_lowest(bin->filled);
        ga_slab_slot slot = bin->slots[index];
        clear_slot(bin, index);
        ga_slab_release_bits(view, slot.word, slot.units);
    }
}

void ga_slab_cache_flush_all(ga_slab_store *store)
{
    for (ga_slab_cache *cache = store->caches; cache; cache = cache->next) {
        for (uint32_t class = 0; class < store->count; class ++) {
            flush_bin(&cache->bins[class], &store->slabs[class]);
        }
    }
}

ga_slab_trimmed ga_slab_store_trim(ga_slab_store *store, uint64_t keep)
{
    ga_slab_trimmed trimmed = {0};
    if (in_parent_call) {
        return trimmed;
    }
    pthread_mutex_lock(&store->lock);
    in_parent_call = true;
    ga_slab_cache *cache = *own_link(store);
    for (uint32_t class = 0; class < store->count; class ++) {
        ga_slab_host *slab = &store->slabs[class];
        if (cache) {
            flush_bin(&cache->bins[class], slab);
        }
        uint64_t empty = slab->heap.free ? ga_slab_host_empty(slab) : 0;
        uint64_t kept = empty < keep ? empty : keep;
        trimmed.gone += ga_slab_host_trim(slab, kept);
        trimmed.kept += kept;
        keep -= kept;
    }
    in_parent_call = false;
    pthread_mutex_unlock(&store->lock);
    return trimmed;
}

void ga_slab_cache_thread_exit(ga_slab_store *store)
{
    ga_slab_tls_slot *tls_slot = ga_slab_tls_slot_of(store);
    pthread_mutex_lock(&store->lock);
    ga_slab_cache **link = own_link(store);
    ga_slab_cache *cache = *link;
    if (cache) {
        for (uint32_t class = 0; class < store->count; class ++) {
            const ga_slab_bin *bin = &cache->bins[class];
            uint64_t words =
                (uint64_t)bin->flushed_words + (bin->units != 0) + ga_bits_count(bin->filled);
            flush_bin(&cache->bins[class], &store->slabs[class]);
            if (words) {
                purge(store, class, words * bin->span);
            }
        }
        *link = cache->next;
        ga_libc.free(cache);
    }
    if (tls_slot->serial == store->serial) {
        *tls_slot = (ga_slab_tls_slot){0};
    }
    pthread_mutex_unlock(&store->lock);
}

/* A thread may have been in the middle of any call, and its memory was copied page by page, so its
 * units cannot be used again. A new thread may get its address as `owner`, so that is cleared. */
void ga_slab_cache_abandon_others(ga_slab_store *store)
{
    for (ga_slab_cache *cache = store->caches; cache; cache = cache->next) {
        if (cache->owner != ga_slab_tls_slots) {
            cache->owner = NULL;
        }
    }
}

/* ---- figures ------------------------------------------------------------------------------- */

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
