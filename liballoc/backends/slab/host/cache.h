/* SPDX-License-Identifier: MIT
 *
 * Thread caches: each thread holds some free units of a heap, so that it allocates and frees
 * without an atomic read-modify-write.
 *
 *   ga_slab_cache_alloc         fast: lowest unit of the bin's claimed word (alloc_fast)
 *    `- refill                  the claimed word is used up
 *        |- promote_slot        the word of a slot becomes the claimed word
 *        `- claim_word          claims all free units of a word of the slab, one atomic
 *            `- store_grow      the slab is full: restores purged blocks, or allocates a
 *                               superblock from the parent, under the lock
 *   ga_slab_cache_free_fast     fastest: the unit is of the claimed word of the recent bin
 *   ga_slab_cache_free          fast: the unit is of the claimed word, or of the word in its slot
 *    `- free_slow               the unit's word becomes the claimed word if that is used up;
 *        |                      otherwise it replaces the word in its slot
 *        `- flush_slot          the replaced word's units go to the slab, one atomic
 *            `- try_purge       after 256 KiB of them: returns the memory of empty blocks
 *                               (trim.h), if the lock is free
 *   ga_slab_cache_thread_exit   flush_bin for each class, then the purge
 *   ga_slab_store_trim          flush_bin for the caller's bins, then trims all slabs
 *
 *     bin      one for each class: the claimed word, whose units the thread deals out, and slots
 *     slot     a word of which the thread has freed some units; a word's number selects its slot
 *
 * The units in a bin are taken in the slab's bitmap. Statistics and lists of live units exclude
 * them.
 *
 * Heaps for a device have no caches. A bin identifies a word by the address of its first unit even
 * when it holds none of its units, and on a device another block may have that address by then
 * (trim.c).
 */
#ifndef GPUALLOC_SLAB_HOST_CACHE_H
#define GPUALLOC_SLAB_HOST_CACHE_H

#include "host.h"

#include <pthread.h>

enum {
    GA_SLAB_SLOTS = 16,
    GA_SLAB_TLS_SLOTS = 8 /* recent heaps that a thread finds fast; slot 0: the malloc table */
};

#define GA_SLAB_NO_WORD 0xffffffffu /* not a word's number */

/* The slabs of a heap and the threads' caches. Constant, but for the fields that the lock
 * guards. */
typedef struct ga_slab_store {
    uint64_t serial;   /* the heap's serial number, unique in the process */
    uint32_t tls_slot; /* index of the heap's thread-local slot; 0 only for the malloc table */
    ga_slab_host *slabs;
    uint32_t count;
    pthread_mutex_t lock; /* guards growth and the list of caches */
    struct ga_slab_cache *caches;
    uint32_t numbers;  /* number of caches ever made */
    uint64_t keep;     /* bytes that may stay empty in all slabs together; UINT64_MAX: all */
    uint64_t returned; /* about the bytes that came back since all slabs were purged together */
} ga_slab_store;

/* Free units of one word. No units: no word. */
typedef struct ga_slab_slot {
    uint32_t word;
    uint32_t units;
} ga_slab_slot;

/* Changed by its thread, read by others, relaxed. INVARIANT: a unit is in at most one bin or
 * slot. */
typedef struct ga_slab_bin {
    uint32_t units; /* mask of the free units of the claimed word */
    uint32_t word;
    char *first;   /* the address of the claimed word's unit 0 */
    uint32_t unit; /* bytes of a unit */
    uint16_t slot_mask;
    uint16_t filled;  /* mask of the slots that have a word */
    uint32_t hint;    /* the word claimed last, where the next search begins */
    uint32_t span;    /* bytes of the units of a word */
    uint64_t inverse; /* 2^32 / unit, rounded up: exact for offsets below `span` */
    ga_slab_slot slots[GA_SLAB_SLOTS];
    uint32_t flushed_words; /* words flushed since the last purge */
} ga_slab_bin;

typedef struct ga_slab_cache {
    const void *owner; /* an address of the thread's own; NULL: it did not survive a fork */
    ga_slab_store *store;
    struct ga_slab_cache *next;
    uint32_t number;
    ga_slab_bin *recent; /* the bin of the last allocation */
    ga_slab_bin bins[];
} ga_slab_cache;

typedef struct ga_slab_tls_slot {
    uint64_t serial;
    ga_slab_cache *cache;
} ga_slab_tls_slot;

extern _Thread_local ga_slab_tls_slot ga_slab_tls_slots[GA_SLAB_TLS_SLOTS];

ga_status ga_slab_store_begin(ga_slab_store *store, ga_slab_host *slabs, uint32_t count);

/* Free the caches, and the slabs to the parent. No thread may use them any more. */
void ga_slab_store_end(ga_slab_store *store);

/* Make room in a slab that the caller found full; `seen` is ga_slab_host_room() from before its
 * search. False, with a message, if there is no more memory, and if the parent, in a call from this
 * heap, has called the heap. */
bool ga_slab_store_grow(ga_slab_store *store, uint32_t class, uint32_t seen);

typedef struct ga_slab_trimmed {
    uint64_t gone; /* bytes freed */
    uint64_t kept; /* empty bytes that stay, part of `keep` */
} ga_slab_trimmed;

/* Flush the calling thread's cache and free the empty memory of all slabs (trim.h), but for about
 * `keep` bytes. Other threads' caches stay. Waits for the lock, as growth does. */
ga_slab_trimmed ga_slab_store_trim(ga_slab_store *store, uint64_t keep);

/* `bytes` of a slab of device memory have become empty: free the excess to the parent. Does nothing
 * if the lock is taken, because a later caller will. */
void ga_slab_store_purge(ga_slab_store *store, uint32_t class, uint64_t bytes);

/* Claim one unit without a cache. GA_SLAB_FULL if there is none. */
uint32_t ga_slab_store_claim(ga_slab_store *store, uint32_t class);

ga_slab_cache *ga_slab_cache_get_slow(ga_slab_store *store);
void *ga_slab_cache_refill(ga_slab_cache *cache, uint32_t class);
ga_status ga_slab_cache_free_slow(ga_slab_cache *cache, uint32_t class, uint32_t unit, void *block);
ga_status ga_slab_cache_double_free(const void *block);

/* The calling thread's slot for this heap. It has the thread's cache if the serial numbers
 * agree. */
static inline ga_slab_tls_slot *ga_slab_tls_slot_of(const ga_slab_store *store)
{
    return &ga_slab_tls_slots[store->tls_slot];
}

/* The calling thread's cache. NULL if the thread cannot have one, because it is beginning or has
 * ended. */
static inline ga_slab_cache *ga_slab_cache_get(ga_slab_store *store)
{
    ga_slab_tls_slot *tls_slot = ga_slab_tls_slot_of(store);
    return __builtin_expect(tls_slot->serial == store->serial, 1) ? tls_slot->cache
                                                                  : ga_slab_cache_get_slow(store);
}

/* Allocate a unit of the claimed word, or return NULL. */
static inline void *ga_slab_cache_alloc_fast(ga_slab_cache *cache, uint32_t class)
{
    ga_slab_bin *bin = &cache->bins[class];
    uint32_t units = bin->units;
    if (__builtin_expect(units == 0, 0)) {
        return NULL;
    }
    cache->recent = bin;
    ga_store_relaxed(&bin->units, units & (units - 1u));
    return bin->first + (size_t)ga_bits_lowest(units) * bin->unit;
}

/* Free a unit of the claimed word of the recent bin. False, with nothing done, for all other blocks
 * and for invalid pointers. */
static inline bool ga_slab_cache_free_fast(ga_slab_cache *cache, const void *block)
{
    ga_slab_bin *bin = cache->recent;
    uint64_t offset = (uintptr_t)block - (uintptr_t)bin->first;
    uint64_t index = (uint32_t)offset * bin->inverse >> 32;
    if (offset >= bin->span || index * bin->unit != offset || (bin->units >> index & 1u)) {
        return false;
    }
    ga_store_relaxed(&bin->units, bin->units | 1u << index);
    return true;
}

/* Allocate one unit. NULL if there is none and no superblock is available. */
static inline void *ga_slab_cache_alloc(ga_slab_cache *cache, uint32_t class)
{
    void *unit = ga_slab_cache_alloc_fast(cache, class);
    return __builtin_expect(unit != NULL, 1) ? unit : ga_slab_cache_refill(cache, class);
}

/* Free the unit with that number and address. GA_ERR_POINTER if the thread's cache has it as free
 * already. */
static inline ga_status ga_slab_cache_free(ga_slab_cache *cache, uint32_t class, uint32_t unit,
                                           void *block)
{
    ga_slab_bin *bin = &cache->bins[class];
    uint32_t word = unit / 32u;
    uint32_t bit = 1u << unit % 32u;
    uint32_t *units = &bin->units;
    if (__builtin_expect(word != bin->word, 0)) {
        ga_slab_slot *slot = &bin->slots[word & bin->slot_mask];
        if (slot->word != word) {
            return ga_slab_cache_free_slow(cache, class, unit, block);
        }
        units = &slot->units;
    }
    uint32_t before = *units;
    if (__builtin_expect(before & bit, 0)) {
        return ga_slab_cache_double_free(block);
    }
    ga_store_relaxed(units, before | bit);
    return GA_OK;
}

/* True if the calling thread's cache has the unit as free. */
static inline bool ga_slab_cache_holds(const ga_slab_cache *cache, uint32_t class, uint32_t unit)
{
    const ga_slab_bin *bin = &cache->bins[class];
    const ga_slab_slot *slot = &bin->slots[unit / 32u & bin->slot_mask];
    uint32_t units = unit / 32u == bin->word    ? bin->units
                     : unit / 32u == slot->word ? slot->units
                                                : 0;
    return units >> unit % 32u & 1u;
}

/* Flush and delete the calling thread's cache, because the thread ends. */
void ga_slab_cache_thread_exit(ga_slab_store *store);

/* Flush all threads' caches. Under the lock, while no thread uses the heap. */
void ga_slab_cache_flush_all(ga_slab_store *store);

/* In the child of a fork: abandon the caches of threads that the child does not have. Their units
 * stay taken. */
void ga_slab_cache_abandon_others(ga_slab_store *store);

/* Units of the class in all caches: their number, and the mask of those of one word. Under the
 * lock. */
uint64_t ga_slab_cache_units(const ga_slab_store *store, uint32_t class);
uint32_t ga_slab_cache_of_word(const ga_slab_store *store, uint32_t class, uint32_t word);

#endif
