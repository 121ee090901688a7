/* SPDX-License-Identifier: MIT
 *
 * What each thread keeps of a heap's slabs, so that it allocates and frees without an atomic.
 *
 *     bin      one for each class: a word of units that the thread has claimed and deals out, and
 *              some words of which it holds units that came back
 *     claimed  alloc takes the lowest unit; when it is used up, one of the others takes its place,
 *              else a word is claimed from the slab
 *     slots    a free of a unit of another word goes to that word's slot; whoever had the slot
 *              before goes back to the slab, one atomic for all of its units
 *
 * Units in a bin are taken as far as the slab knows: stats and lists of live units leave them out.
 *
 * Heaps for a device have no caches. A bin knows a word by the address of its first unit also when
 * it holds no unit of it, and there such an address may be another block's by then (trim.c).
 */
#ifndef GPUALLOC_SLAB_CACHE_H
#define GPUALLOC_SLAB_CACHE_H

#include "host.h"

#include <pthread.h>

enum {
    GA_SLAB_SLOTS = 16,
    GA_SLAB_SEATS = 8 /* heaps that a thread finds its cache of at once */
};

#define GA_SLAB_NO_WORD 0xffffffffu /* no word has that number */

/* All slabs of a heap, and the threads' caches. Set once, but for what the lock guards. */
typedef struct ga_slab_store {
    uint64_t serial; /* of the heap: never the same twice in a process */
    uint32_t seat; /* where threads look for their cache; the first is for a heap's malloc table */
    ga_slab_host *slabs;
    uint32_t count;
    pthread_mutex_t lock; /* for growth, and for the list of caches */
    struct ga_slab_cache *caches;
    uint32_t numbers;  /* caches made */
    uint64_t keep;     /* bytes that may be empty in all slabs; UINT64_MAX: all */
    uint64_t returned; /* bytes that came back since all slabs were looked over; about */
} ga_slab_store;

/* Some units of one word. No units, no word. */
typedef struct ga_slab_slot {
    uint32_t word;
    uint32_t units;
} ga_slab_slot;

/* Changed by its thread, read by others: relaxed. INVARIANT: no unit is in two of them. */
typedef struct ga_slab_bin {
    uint32_t units; /* the claimed word: the mask of its units that can be dealt out */
    uint32_t word;
    char *first;   /* its unit 0 */
    uint32_t unit; /* bytes */
    uint16_t slot_mask;
    uint16_t filled;  /* the mask of the slots that have a word */
    uint32_t hint;    /* where the last word was found */
    uint32_t span;    /* bytes of a word's units */
    uint64_t inverse; /* 2^32 / unit, rounded up: exact for what is below `span` */
    ga_slab_slot slots[GA_SLAB_SLOTS];
    uint32_t given; /* words that went back since somebody looked what is empty */
} ga_slab_bin;

typedef struct ga_slab_cache {
    const void *owner; /* something that the thread alone has; NULL: it did not survive a fork */
    ga_slab_store *store;
    struct ga_slab_cache *next;
    uint32_t number;
    ga_slab_bin *recent; /* that the thread allocated from last */
    ga_slab_bin bins[];
} ga_slab_cache;

typedef struct ga_slab_seat {
    uint64_t serial;
    ga_slab_cache *cache;
} ga_slab_seat;

extern _Thread_local ga_slab_seat ga_slab_seats[GA_SLAB_SEATS];

ga_status ga_slab_store_begin(ga_slab_store *store, ga_slab_host *slabs, uint32_t count);

/* Forget the caches and end the slabs. Nobody works on them any more. */
void ga_slab_store_end(ga_slab_store *store);

/* More room for a slab that the caller found full, having seen so much (host.h). False where there
 * is none, with a sentence, and for a request from inside the parent that is about to give one. */
bool ga_slab_store_grow(ga_slab_store *store, uint32_t class, uint32_t seen);

typedef struct ga_slab_trimmed {
    uint64_t gone; /* bytes that went */
    uint64_t kept; /* of `keep`, what is empty and stays */
} ga_slab_trimmed;

/* Give back what the calling thread holds, and all that is empty but for about `keep` bytes of it
 * (trim.h). What other threads hold stays. Waits for a thread that grows. */
ga_slab_trimmed ga_slab_store_trim(ga_slab_store *store, uint64_t keep);

/* `bytes` of a slab of device memory have become empty: give back what is more than may be. A thread
 * that finds the lock taken leaves it to a later one. */
void ga_slab_store_settle(ga_slab_store *store, uint32_t class, uint64_t bytes);

/* One unit past the caches, or GA_SLAB_FULL. */
uint32_t ga_slab_store_claim(ga_slab_store *store, uint32_t class);

ga_slab_cache *ga_slab_cache_find(ga_slab_store *store);
void *ga_slab_cache_refill(ga_slab_cache *cache, uint32_t class);
ga_status ga_slab_cache_turn(ga_slab_cache *cache, uint32_t class, uint32_t unit, void *block);
ga_status ga_slab_cache_doubled(const void *block);

/* Where the calling thread's cache is if the seat has the heap's serial number. */
static inline ga_slab_seat *ga_slab_seat_of(const ga_slab_store *store)
{
    return &ga_slab_seats[store->seat];
}

/* The calling thread's, or NULL where it can have none: while it begins, and once it has ended. */
static inline ga_slab_cache *ga_slab_cache_mine(ga_slab_store *store)
{
    ga_slab_seat *seat = ga_slab_seat_of(store);
    return __builtin_expect(seat->serial == store->serial, 1) ? seat->cache
                                                              : ga_slab_cache_find(store);
}

/* One unit of the claimed word, or NULL. */
static inline void *ga_slab_cache_take(ga_slab_cache *cache, uint32_t class)
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

/* Give back a unit of the word that the last one was of, the quickest way. False, and nothing done,
 * for all others and for what is wrong. */
static inline bool ga_slab_cache_give(ga_slab_cache *cache, const void *block)
{
    ga_slab_bin *bin = cache->recent;
    uint64_t offset = (uintptr_t)block - (uintptr_t)bin->first;
    uint64_t place = (uint32_t)offset * bin->inverse >> 32;
    if (offset >= bin->span || place * bin->unit != offset || (bin->units >> place & 1u)) {
        return false;
    }
    ga_store_relaxed(&bin->units, bin->units | 1u << place);
    return true;
}

/* One unit, or NULL where there is none and no super block to be had. */
static inline void *ga_slab_cache_alloc(ga_slab_cache *cache, uint32_t class)
{
    void *unit = ga_slab_cache_take(cache, class);
    return __builtin_expect(unit != NULL, 1) ? unit : ga_slab_cache_refill(cache, class);
}

/* Give back the unit of that number, which is at `block`. GA_ERR_POINTER where the thread holds it
 * already: it was free. */
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
            return ga_slab_cache_turn(cache, class, unit, block);
        }
        units = &slot->units;
    }
    uint32_t before = *units;
    if (__builtin_expect(before & bit, 0)) {
        return ga_slab_cache_doubled(block);
    }
    ga_store_relaxed(units, before | bit);
    return GA_OK;
}

/* Whether the calling thread holds the unit as free. */
static inline bool ga_slab_cache_holds(const ga_slab_cache *cache, uint32_t class, uint32_t unit)
{
    const ga_slab_bin *bin = &cache->bins[class];
    const ga_slab_slot *slot = &bin->slots[unit / 32u & bin->slot_mask];
    uint32_t units = unit / 32u == bin->word    ? bin->units
                     : unit / 32u == slot->word ? slot->units
                                                : 0;
    return units >> unit % 32u & 1u;
}

/* Give back everything that the calling thread holds: it is about to end. */
void ga_slab_cache_leave(ga_slab_store *store);

/* Give back what all threads hold. Under the lock, while none of them uses the heap. */
void ga_slab_cache_empty_all(ga_slab_store *store);

/* In the child of a fork: what the threads held that it has not stays lost. */
void ga_slab_cache_forget_others(ga_slab_store *store);

/* How many units of the class the caches hold, and which of one word. Under the lock. */
uint64_t ga_slab_cache_units(const ga_slab_store *store, uint32_t class);
uint32_t ga_slab_cache_of_word(const ga_slab_store *store, uint32_t class, uint32_t word);

#endif
