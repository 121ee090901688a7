/* SPDX-License-Identifier: MIT
 *
 * The mailbox between kernels that need memory and the pager, the host thread that backs more of it
 * while they run. Plain data, equal for both compilers. growth.h is the kernel's side and draws the
 * protocol; pager.h is the host's side.
 *
 * Memory grows in steps of equal size, numbered from 0: the superblocks of a slab heap, or a fixed
 * number of bytes of a vector. A step is backed (the host has mapped memory at its addresses), then
 * prepared (a tile has initialised it), then ready, and stays so. Each state holds for the first n
 * steps of some n.
 *
 * The mailbox is in pinned host memory: one word in each direction, each in a cache line of its own
 * writer. Kernels only load and store there, because not every bus supports atomics
 * (docs/internals/simt.md). A word consists of
 *
 *     steps    upper 32 bits   request: steps that shall be backed; answer: steps that are backed
 *     serial   next 24 bits    request: its number; answer: the number of the answered request
 *     reason   lowest 8 bits   answer: why there are fewer steps than requested
 */
#ifndef GPUALLOC_GROWTH_MAILBOX_H
#define GPUALLOC_GROWTH_MAILBOX_H

#include "../simt/bits.h"

typedef enum ga_growth_reason {
    GA_GROWTH_GRANTED = 0, /* no refusal */
    GA_GROWTH_LIMIT,       /* final: the heap's limit or its reservation is reached */
    GA_GROWTH_MEMORY,      /* the device is out of memory for now; requested again later */
    GA_GROWTH_GONE,        /* final if the pager has stopped; else it has not answered in time */
    GA_GROWTH_FIXED,       /* final: this heap grows between launches only */
    GA_GROWTH_REASONS
} ga_growth_reason;

typedef struct ga_mailbox {
    uint64_t request; /* stored by the tile that holds the lock */
    uint8_t padding[120];
    uint64_t answer; /* stored by the pager */
    uint8_t padding_2[120];
} ga_mailbox;

enum {
    GA_GROWTH_WAITS = 32
};

/* In device memory, beside the memory that grows. The host fills it with ga_growth_first()
 * (pager.h) before the first kernel. The letters are those of growth.h. */
typedef struct ga_growth {
    /* Set once, by the host. Times are in ns. */
    ga_mailbox *mailbox; /* the address for kernels */
    /* How long a request may stay unanswered before the pager counts as gone. */
    uint64_t timeout_ns;
    uint64_t refusal_ns; /* how long a refusal that is not final holds */
    uint64_t poll_ns;    /* least time between two polls of the mailbox, by any tile */
    uint8_t padding[96];

    /* Polled by all waiting tiles. */
    uint64_t refusal;   /* GV: refused until this time, 0: not; lowest 3 bits: the reason */
    uint64_t next_poll; /* relaxed: time of the next poll */
    uint32_t ready;     /* GR: steps that may be used */
    uint32_t lock;      /* GT: 1 while a tile holds the lock for polling the mailbox */
    uint64_t request;   /* guarded by the lock: the word posted last */
    uint64_t posted_at; /* guarded by the lock: when the oldest unanswered request was posted */
    uint8_t padding_2[88];

    /* relaxed: counts, which the host reads between launches. waits[i]: waits of 2^i ns and more,
     * up to twice as long. */
    uint32_t waits[GA_GROWTH_WAITS];
} ga_growth;

/* The time of a final refusal. */
#define GA_GROWTH_FOREVER (~(uint64_t)7)

GA_SIMT uint32_t ga_mail_steps(uint64_t word)
{
    return (uint32_t)(word >> 32);
}

GA_SIMT uint32_t ga_mail_serial(uint64_t word)
{
    return (uint32_t)word >> 8;
}

GA_SIMT uint32_t ga_mail_reason(uint64_t word)
{
    return (uint32_t)word & 0xffu;
}

/* The serial is taken modulo 2^24. */
GA_SIMT uint64_t ga_mail_word(uint32_t steps, uint32_t serial, uint32_t reason)
{
    return (uint64_t)steps << 32 | (uint32_t)(serial << 8) | reason;
}

#endif
