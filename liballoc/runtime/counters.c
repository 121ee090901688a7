/* SPDX-License-Identifier: MIT
 *
 * Counters of a heap, one slot per thread.
 *
 * slot_index            fast path: the thread has a slot
 *   claim_slot_slow     the thread's first count: claim one of SLOTS-1, or use the shared slot 0
 *
 * STRUCTURE  slot 0 is shared by threads that own none; slots 1 to SLOTS-1 have one owner each,
 *            which counts in its slot without an atomic read-modify-write
 * INVARIANT  a slot's sums only grow; the heap's figures are the sums over all slots
 * ORDER      UC1/UC2 hand a slot from a thread that ended to one that begins. All else is relaxed:
 *            the figures are independent counts, and a reader is promised no single moment.
 * PROGRESS   wait-free, except claiming a slot: lock-free
 *
 * `live` lags behind the slots by up to STRIDE bytes for each thread, so that the peak is found
 * without a shared write for each block.
 */
#include "counters.h"

#include "../platform/libc.h"
#include "../platform/thread.h"

#include <pthread.h>

enum {
    SLOTS = 256,
    STRIDE = 64 * 1024,
    LINE = 128 /* two cache lines: the prefetcher fetches them in pairs */
};

typedef struct slot {
    uint64_t allocs, frees, reallocs, failures;
    uint64_t requested, granted, returned;
    int64_t unpublished; /* granted - returned, in bytes, that `live` does not include yet */
} __attribute__((aligned(LINE))) slot;

struct ga_counters {
    slot slots[SLOTS];
    int64_t live;
    int64_t peak;
};

/* ---- which slot is this thread's ---------------------------------------------------------- */

static uint64_t slots_taken[SLOTS / 64] = {1}; /* a bit for each slot; slot 0 has no owner */
static _Thread_local unsigned my_slot;

static unsigned claim_in_word(unsigned word)
{
    /* relaxed: a guess; UC1 decides */
    uint64_t bits = __atomic_load_n(&slots_taken[word], __ATOMIC_RELAXED);
    while (~bits) {
        unsigned bit = (unsigned)__builtin_ctzll(~bits);
        /* UC1: acquire. Pairs with UC2: the sums of the last owner are seen before we add. */
        if (__atomic_compare_exchange_n(&slots_taken[word], &bits, bits | UINT64_C(1) << bit, true,
                                        __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
            return word * 64 + bit;
        }
    }
    return 0;
}

static void release_slot(void)
{
    if (my_slot) {
        /* UC2: release. Pairs with UC1. */
        __atomic_fetch_and(&slots_taken[my_slot / 64], ~(UINT64_C(1) << my_slot % 64),
                           __ATOMIC_RELEASE);
        my_slot = 0;
    }
}

static void hook_thread_exit(void)
{
    ga_thread_on_exit(release_slot);
}

static __attribute__((noinline)) unsigned claim_slot_slow(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (ga_thread_enroll()) {
        pthread_once(&once, hook_thread_exit);
        for (unsigned word = 0; !my_slot && word < SLOTS / 64; word++) {
            my_slot = claim_in_word(word);
        }
    }
    return my_slot;
}

static inline unsigned slot_index(void)
{
    unsigned index = my_slot;
    return __builtin_expect(index != 0, 1) ? index : claim_slot_slow();
}

/* ---- counting ----------------------------------------------------------------------------- */

/* relaxed throughout, see ORDER; the shared slot needs the read-modify-write */
static void add(uint64_t *sum, uint64_t amount, bool shared)
{
    if (shared) {
        __atomic_fetch_add(sum, amount, __ATOMIC_RELAXED);
    } else {
        __atomic_store_n(sum, *sum + amount, __ATOMIC_RELAXED);
    }
}

static void raise_peak(ga_counters *c, int64_t live)
{
    int64_t peak = __atomic_load_n(&c->peak, __ATOMIC_RELAXED); /* relaxed, see ORDER */
    while (live > peak && !__atomic_compare_exchange_n(&c->peak, &peak, live, true,
                                                       __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
}

static void publish_live(ga_counters *c, int64_t change)
{
    /* relaxed, see ORDER */
    raise_peak(c, __atomic_add_fetch(&c->live, change, __ATOMIC_RELAXED));
}

static void change_live(ga_counters *c, slot *s, int64_t change, bool shared)
{
    if (shared) {
        publish_live(c, change);
        return;
    }
    int64_t unpublished = s->unpublished + change;
    if (unpublished >= STRIDE || unpublished <= -STRIDE) {
        publish_live(c, unpublished);
        unpublished = 0;
    }
    __atomic_store_n(&s->unpublished, unpublished, __ATOMIC_RELAXED); /* relaxed, see ORDER */
}

void ga_counters_alloc(ga_counters *c, size_t requested, size_t usable)
{
    if (!c) {
        return;
    }
    unsigned index = slot_index();
    slot *s = &c->slots[index];
    add(&s->allocs, 1, index == 0);
    add(&s->requested, requested, index == 0);
    add(&s->granted, usable, index == 0);
    change_live(c, s, (int64_t)usable, index == 0);
}

void ga_counters_free(ga_counters *c, size_t usable)
{
    if (!c) {
        return;
    }
    unsigned index = slot_index();
    slot *s = &c->slots[index];
    add(&s->frees, 1, index == 0);
    add(&s->returned, usable, index == 0);
    change_live(c, s, -(int64_t)usable, index == 0);
}

void ga_counters_resize(ga_counters *c, size_t requested, size_t before, size_t after)
{
    if (!c) {
        return;
    }
    unsigned index = slot_index();
    slot *s = &c->slots[index];
    add(&s->reallocs, 1, index == 0);
    add(&s->requested, requested, index == 0);
    add(&s->granted, after, index == 0);
    add(&s->returned, before, index == 0);
    change_live(c, s, (int64_t)after - (int64_t)before, index == 0);
}

void ga_counters_failure(ga_counters *c)
{
    if (!c) {
        return;
    }
    unsigned index = slot_index();
    add(&c->slots[index].failures, 1, index == 0);
}

/* ---- reading ------------------------------------------------------------------------------ */

static uint64_t load(const uint64_t *sum)
{
    return __atomic_load_n(sum, __ATOMIC_RELAXED); /* relaxed, see ORDER */
}

void ga_counters_read(const ga_counters *c, ga_stats *out)
{
    uint64_t returned = 0;
    *out = (ga_stats){0};
    for (const slot *s = c->slots; s < c->slots + SLOTS; s++) {
        out->allocs += load(&s->allocs);
        out->frees += load(&s->frees);
        out->reallocs += load(&s->reallocs);
        out->failures += load(&s->failures);
        out->requested_bytes += load(&s->requested);
        out->granted_bytes += load(&s->granted);
        returned += load(&s->returned);
    }
    /* A reader may see a free without its allocation, so clamp at 0. */
    out->live_blocks = out->allocs > out->frees ? out->allocs - out->frees : 0;
    out->live_bytes = out->granted_bytes > returned ? out->granted_bytes - returned : 0;
    uint64_t peak = (uint64_t)__atomic_load_n(&c->peak, __ATOMIC_RELAXED); /* relaxed, see ORDER */
    out->peak_bytes = peak > out->live_bytes ? peak : out->live_bytes;
}

void ga_counters_free_all(ga_counters *c)
{
    ga_stats now;
    if (!c) {
        return;
    }
    ga_counters_read(c, &now);
    unsigned index = slot_index();
    slot *s = &c->slots[index];
    add(&s->frees, now.live_blocks, index == 0);
    add(&s->returned, now.live_bytes, index == 0);
    change_live(c, s, -(int64_t)now.live_bytes, index == 0);
}

/* ---- lifetime ----------------------------------------------------------------------------- */

ga_counters *ga_counters_new(void)
{
    ga_counters *c = ga_libc.memalign(LINE, sizeof *c);
    if (c) {
        __builtin_memset(c, 0, sizeof *c);
    }
    return c;
}

void ga_counters_delete(ga_counters *c)
{
    ga_libc.free(c);
}
