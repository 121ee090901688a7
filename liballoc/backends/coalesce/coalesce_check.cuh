/* SPDX-License-Identifier: MIT
 *
 * A check of static coalescing, for programs that define GA_COALESCE_CHECKED as a number of
 * seconds: do all threads of the block make this collective request, with equal sizes? A request
 * that some threads do not make in that time is reported with its file and line and served
 * dynamically. Without the check the block would wait for ever.
 *
 * STRUCTURE  A word for each block. In a round all threads of the block arrive, each by a
 *            compare-and-swap:
 *
 *                round | broken | differs | arrived | hash
 *
 *            The hash is that of the first thread's file, line and size. `differs` is set by a
 *            thread with another hash. The last thread begins the next round.
 * INVARIANT  A broken word never changes, except by ga_coalesce_check_begin(). So each thread of a
 *            round learns the same result, however late it looks.
 * ORDER      CK1 to CK3, below.
 * PROGRESS   A thread waits for the others, at most GA_COALESCE_CHECKED seconds.
 *
 * After the first fault of a block its requests are no longer collective, because it is not known
 * which of them belong together. So each thread then gets a block or NULL for itself: a branch on
 * NULL may part the threads, but none of their later requests waits for the others.
 */
#ifndef GPUALLOC_COALESCE_COALESCE_CHECK_CUH
#define GPUALLOC_COALESCE_COALESCE_CHECK_CUH

#include <stdio.h>

enum {
    GA_CHECK_BLOCKS = 4096, /* of a grid; requests of the others are not checked */
    GA_CHECK_WAIT_NS = 256,
    GA_CHECK_AT_ARRIVED = 32, /* bits of a word */
    GA_CHECK_AT_DIFFERS = 43,
    GA_CHECK_AT_BROKEN = 44,
    GA_CHECK_AT_ROUND = 45,
    GA_CHECK_ARRIVED_MASK = 0x7ff
};

/* All files of a program share the words if they are linked with -rdc=true. */
#ifdef __CUDACC_RDC__
inline
#else
static
#endif
    __device__ uint64_t ga_check_words[GA_CHECK_BLOCKS];

/* A program may define this before it includes this header: true if threads that have ended are the
 * reason that a request is not complete. Then nothing is reported. */
#ifndef GA_COALESCE_CHECK_CANCELLED
#define GA_COALESCE_CHECK_CANCELLED() false
#endif

typedef struct ga_check_site {
    const char *file;
    int line;
    size_t size;
} ga_check_site;

GA_SIMT uint32_t ga_check_block(void)
{
    return (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
}

GA_SIMT uint32_t ga_check_arrived(uint64_t word)
{
    return (uint32_t)(word >> GA_CHECK_AT_ARRIVED) & GA_CHECK_ARRIVED_MASK;
}

GA_SIMT bool ga_check_has(uint64_t word, int bit)
{
    return (word >> bit & 1u) != 0;
}

GA_SIMT uint32_t ga_check_hash(ga_check_site site)
{
    uint64_t mixed = (uint64_t)site.file ^ (uint64_t)site.line << 40;
    mixed = (mixed ^ site.size * 0x9e3779b97f4a7c15u) * 0xff51afd7ed558ccdu;
    return (uint32_t)(mixed >> 32);
}

/* The word after the arrival of a thread. */
GA_SIMT uint64_t ga_check_after(uint64_t word, uint32_t hash, uint32_t team)
{
    uint32_t arrived = ga_check_arrived(word);
    uint64_t one = (uint64_t)1;
    uint64_t after = word + (one << GA_CHECK_AT_ARRIVED);
    if (arrived == 0) {
        after |= hash;
    } else if ((uint32_t)word != hash) {
        after |= one << GA_CHECK_AT_DIFFERS;
    }
    if (arrived + 1 < team) {
        return after;
    }
    return ga_check_has(after, GA_CHECK_AT_DIFFERS)
               ? after | one << GA_CHECK_AT_BROKEN
               : ((after >> GA_CHECK_AT_ROUND) + 1) << GA_CHECK_AT_ROUND;
}

/* One printf() is one line, because threads print at the same time. */
GA_SIMT_SLOW void ga_check_report(ga_check_site site, const char *what, uint32_t arrived)
{
    printf("gpualloc: %s:%d: collective request for %llu bytes by thread %u of block %u, but %s "
           "(%u of %u came in time); the block's requests are no longer collective\n",
           site.file, site.line, (unsigned long long)site.size, ga_coalesce_rank(),
           ga_check_block(), what, arrived, ga_coalesce_team());
}

/* Wait for the end of a round. True if all threads came for the same. */
GA_SIMT bool ga_check_await(uint64_t *word, uint64_t round, ga_check_site site)
{
    uint64_t end = ga_clock_ns() + (uint64_t)(GA_COALESCE_CHECKED * 1e9);
    for (;;) {
        /* CK2: acquire. Pairs with CK1 and CK3. */
        uint64_t now = ga_load64_acquire(word);
        if (now >> GA_CHECK_AT_ROUND != round) {
            return true;
        }
        if (ga_check_has(now, GA_CHECK_AT_BROKEN) || GA_COALESCE_CHECK_CANCELLED()) {
            return false;
        }
        /* CK3: release and acquire. Pairs with CK1 and CK2. */
        if (ga_clock_ns() > end &&
            ga_cas64_acq_rel(word, now, now | (uint64_t)1 << GA_CHECK_AT_BROKEN) == now) {
            ga_check_report(site, "not by all", ga_check_arrived(now));
            return false;
        }
        ga_clock_sleep(GA_CHECK_WAIT_NS);
    }
}

/* True if the request may be collective: all threads of the block make it, in the same place and
 * for equally many bytes. All of them get the same answer. */
GA_SIMT_SLOW bool ga_coalesce_check(ga_check_site site)
{
    uint32_t block = ga_check_block();
    uint32_t hash = ga_check_hash(site), team = ga_coalesce_team();
    if (block >= GA_CHECK_BLOCKS) {
        return true;
    }
    uint64_t *word = ga_check_words + block;
    uint64_t before = ga_load64_relaxed(word), after; /* relaxed: a guess */
    for (;;) {
        if (ga_check_has(before, GA_CHECK_AT_BROKEN)) {
            return false;
        }
        after = ga_check_after(before, hash, team);
        /* CK1: release and acquire. Pairs with itself, CK2 and CK3. */
        uint64_t found = ga_cas64_acq_rel(word, before, after);
        if (found == before) {
            break;
        }
        before = found;
    }
    /* The first thread reports, and the first one that differs from it. */
    bool reports = ga_check_arrived(before) == 0 || (ga_check_has(after, GA_CHECK_AT_DIFFERS) &&
                                                     !ga_check_has(before, GA_CHECK_AT_DIFFERS));
    bool agrees = after >> GA_CHECK_AT_ROUND != before >> GA_CHECK_AT_ROUND ||
                  ga_check_await(word, before >> GA_CHECK_AT_ROUND, site);
    uint64_t last = ga_load64_relaxed(word); /* relaxed: a broken word does not change */
    if (!agrees && reports && ga_check_has(last, GA_CHECK_AT_DIFFERS)) {
        ga_check_report(site, "others made another one", team);
    }
    return agrees;
}

/* Begin again. All threads of the block call, before their first request. */
GA_SIMT void ga_coalesce_check_begin(void)
{
    uint32_t block = ga_check_block();
    if (ga_coalesce_rank() == 0 && block < GA_CHECK_BLOCKS) {
        ga_store64_relaxed(ga_check_words + block, 0); /* relaxed: the barrier orders it */
    }
    __syncthreads();
}

#endif
