/* SPDX-License-Identifier: MIT
 *
 * Between kernels that run out of memory and the pager, the host's thread that backs more while
 * they run. Plain data, the same for both compilers; growth.h is the kernels' side, pager.h the
 * host's.
 *
 * What grows does so in steps of equal size, numbered from 0: a slab heap's step is a super block,
 * a vector's so many bytes. A step is backed (the host has put memory behind its addresses), then
 * prepared (a tile has written what must stand in it), then ready, and stays that. Each of these
 * states holds for steps 0 to n - 1.
 *
 * The mailbox is in pinned host memory, a line of its own for each writer, one word each way.
 * Kernels only ever load and store there: not every bus knows more (docs/simt.md). A word has
 *
 *     steps    upper 32 bits   a wish: so many shall be backed; an answer: so many are
 *     serial   next 24 bits    the wish's number; an answer's: which wish it answers
 *     reason   lowest 8 bits   an answer's: why there are fewer than wished for
 */
#ifndef GPUALLOC_ARENA_MAILBOX_H
#define GPUALLOC_ARENA_MAILBOX_H

#include "../simt/bits.h"

/* The stress tests weaken one thing at a time, to see that they notice
 * (tests/stress/meson.build). */
#ifndef GA_GROWTH_MUTANT
#define GA_GROWTH_MUTANT 0
#endif

typedef enum ga_growth_reason {
    GA_GROWTH_GRANTED = 0, /* none: it has grown */
    GA_GROWTH_LIMIT,       /* the heap's limit or its reservation is reached: final */
    GA_GROWTH_MEMORY,      /* the device is out of memory for now: asked again later */
    GA_GROWTH_GONE,        /* the pager does not answer, or has said goodbye, which is final */
    GA_GROWTH_FIXED,       /* this heap grows between launches only: final */
    GA_GROWTH_REASONS
} ga_growth_reason;

typedef struct ga_mailbox {
    uint64_t wish; /* stored by the tile that has the turn */
    uint8_t apart[120];
    uint64_t answer; /* stored by the pager */
    uint8_t apart_too[120];
} ga_mailbox;

enum {
    GA_GROWTH_WAITS = 32
};

/* In memory of the device, beside what grows. The host fills it in with ga_growth_first() (pager.h)
 * before the first kernel; the letters are those of growth.h. */
typedef struct ga_growth {
    /* Set once, by the host. Times are in ns. */
    ga_mailbox *mailbox; /* as kernels address it */
    uint64_t patience;   /* how long a wish may stay unanswered before the pager counts as gone */
    uint64_t hold;       /* how long a refusal that is not final is believed */
    uint64_t pace;       /* between two looks at the mailbox, by whomever */
    uint8_t apart[96];

    /* Asked by all who wait. */
    uint64_t verdict; /* V: until when who wants more is refused, 0 for not; lowest 3 bits: why */
    uint64_t look_at; /* relaxed: when the next look is due */
    uint32_t ready;   /* R: steps that may be used */
    uint32_t turn;    /* T: 1 while a tile has the turn to look at the mailbox */
    uint64_t wish;    /* of the tile that has the turn: the last word it posted */
    uint64_t asked;   /* likewise: since when that is unanswered */
    uint8_t apart_too[88];

    /* relaxed: counts, which the host reads between launches. waits[i]: how many waited for 2^i ns
     * up to twice as long. */
    uint32_t waits[GA_GROWTH_WAITS];
} ga_growth;

/* A verdict that holds for ever. */
#define GA_GROWTH_FOR_EVER (~(uint64_t)7)

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
