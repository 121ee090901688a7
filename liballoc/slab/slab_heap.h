/* SPDX-License-Identifier: MIT
 *
 * A slab heap as it stands in memory, for the host, for kernels and for the tests: units of one
 * size, their bitmaps, how many are free in each memory block. Plain data, the same for both
 * compilers.
 *
 * Units are numbered through: number = block * 1024 + place. With light addressing all super blocks
 * are one array, and a unit's address is base + number * size. With two-level addressing each super
 * block stands where the parent put it, and the number's upper bits choose it. shape.h turns
 * numbers into the paper's 32-bit addresses.
 */
#ifndef GPUALLOC_SLAB_SLAB_HEAP_H
#define GPUALLOC_SLAB_SLAB_HEAP_H

#include "../arena/mailbox.h"
#include "../simt/atomic.h"
#include "report.h"

#define GA_SLAB_BLOCK_BITS  10u
#define GA_SLAB_BLOCK_UNITS 1024u /* a memory block's units, and the bits of a row */
#define GA_SLAB_ROW_WORDS   32u
#define GA_SLAB_FULL        0xffffffffu /* no unit, no block; that unit is never used */

#define GA_SLAB_HINTS 1024u /* places that the hint stands in */

/* The stress tests weaken one thing at a time, to see that they notice
 * (tests/stress/meson.build). */
#ifndef GA_SLAB_MUTANT
#define GA_SLAB_MUTANT 0
#endif
#define GA_SLAB_WEAKEN(mutant, order) (GA_SLAB_MUTANT == (mutant) ? __ATOMIC_RELAXED : (order))

typedef struct ga_slab_super {
    char *units;    /* super_bytes of them */
    uint32_t *rows; /* one for each of its memory blocks */
} ga_slab_super;

typedef struct ga_slab_heap {
    /* Set once, before the first claim. */
    uint32_t *rows; /* light addressing: the first row; else NULL */
    char *units;    /* light addressing: the first unit */
    uint32_t unit;  /* bytes: odd << shift */
    uint32_t shift;
    uint64_t inverse;      /* 2^64 / odd, rounded up; 0 where odd is 1 */
    uint32_t super_bits;   /* a super block has 2^super_bits memory blocks */
    uint32_t address_bits; /* of a 32-bit address, those below the super block's */
    uint64_t super_bytes;  /* the units of one */
    ga_slab_super *supers; /* two-level addressing; NULL for light */
    uint32_t *sorted;      /* two-level: numbers of super blocks in the order of their addresses */
    uint32_t *free;        /* a count for each memory block that there may ever be, whole rows */
    uint32_t spread;   /* how they stand there: ga_slab_count_place(); GA_SLAB_SPREAD of the side
                            * that claims */
    uint32_t check;    /* the hardened checks are on */
    ga_growth *growth; /* where kernels get super blocks while they run (slab_growing.h), or NULL */

    /* Changed by the host while no claim runs, or under the heap's lock before the new super
     * block's counts say that there is room; `words`, where there is `growth`, by the tile that has
     * its turn. */
    uint32_t super_count; /* super blocks there are */
    uint32_t words;       /* bitmap words there are, 32 units each */

    uint8_t apart[128]; /* what all claims read shares no line with what follows */

    /* Changed by anybody, relaxed. */
    uint32_t hints[GA_SLAB_HINTS]; /* where there is room: slab_hint.h */

    uint32_t taken;   /* units that are taken, about, where there is `growth`; may be below 0 */
    uint32_t changes; /* resident changes; wraps */
    uint32_t full;    /* searches all over the heap that found no room; wraps */
    uint64_t answer;  /* of the host's service kernels */
    uint64_t faults[GA_SLAB_FAULTS]; /* found, reported or not */
    uint64_t reported;               /* places of reports that were asked for */
    ga_slab_report reports[GA_SLAB_REPORTS];
} ga_slab_heap;

/* What a claim needs, by value: on the GPU it stands among the kernel's parameters. */
typedef struct ga_slab_view {
    ga_slab_heap *heap;
    uint32_t *free;
    uint32_t *rows; /* NULL: two-level addressing */
    char *units;
    uint32_t unit;
    uint32_t words;
    uint32_t shift;
    uint64_t inverse;
    bool light; /* rows != NULL: where that is tested once, the rest need not ask */
} ga_slab_view;

/* How many memory blocks there are. */
GA_SIMT uint32_t ga_slab_blocks(ga_slab_view slab)
{
    return slab.words / GA_SLAB_ROW_WORDS;
}

/* The spread of heaps for kernels, and of those whose bitmaps the host works on. */
#define GA_SLAB_SPREAD_KERNEL 9u
#define GA_SLAB_SPREAD_HOST   0u
#ifndef GA_SLAB_SPREAD
#ifdef __CUDACC__
#define GA_SLAB_SPREAD GA_SLAB_SPREAD_KERNEL
#else
#define GA_SLAB_SPREAD GA_SLAB_SPREAD_HOST
#endif
#endif

/* Where the count of `block` stands. Tiles work in neighbouring blocks, and atomics on one row wait
 * for each other: with a spread of s, 2^s neighbours stand in 2^s rows. A row has the blocks b, b +
 * 2^s, b + 2 * 2^s and so on, and 2^(s + 5) blocks fill whole rows. */
GA_SIMT uint32_t ga_slab_count_place(uint32_t spread, uint32_t block)
{
    uint32_t low = block & ((1u << spread) - 1u);
    uint32_t high = block >> spread;
    return ((high >> 5) << (spread + 5u)) + (low << 5) + (high & 31u);
}

/* The block whose count stands there. */
GA_SIMT uint32_t ga_slab_count_block(uint32_t spread, uint32_t place)
{
    uint32_t low = (place >> 5) & ((1u << spread) - 1u);
    uint32_t high = ((place >> (spread + 5u)) << 5) + (place & 31u);
    return (high << spread) + low;
}

/* How many bitmap words there are. Super blocks may come meanwhile: on the CPU always, in kernels
 * where there is `growth`; G3: acquire. Pairs with G4 (host.c, slab_growing.h): the words that are
 * counted can be reached. */
GA_SIMT uint32_t ga_slab_words(const ga_slab_heap *heap)
{
#if defined __CUDACC__
    return heap->growth ? ga_load_acquire(&heap->words) : heap->words; /* G3. Pairs with G4. */
#elif GA_SLAB_MUTANT == 8
    return ga_load_relaxed(&heap->words);
#else
    return ga_load_acquire(&heap->words);
#endif
}

/* With as many words as ga_slab_words() has answered. */
GA_SIMT ga_slab_view ga_slab_view_with(ga_slab_heap *heap, uint32_t words)
{
    ga_slab_view view;
    view.heap = heap;
    view.free = heap->free;
    view.rows = heap->rows;
    view.units = heap->units;
    view.words = words;
    view.unit = heap->unit;
    view.shift = heap->shift;
    view.inverse = heap->inverse;
    view.light = heap->rows != NULL;
    return view;
}

GA_SIMT ga_slab_view ga_slab_view_of(ga_slab_heap *heap)
{
    return ga_slab_view_with(heap, ga_slab_words(heap));
}

#endif
