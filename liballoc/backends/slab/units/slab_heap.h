/* SPDX-License-Identifier: MIT
 *
 * The memory layout of a slab heap, for the host, for kernels and for the tests: units of one size,
 * their bitmaps, and the number of free units in each memory block. Plain data, equal for both
 * compilers.
 *
 * Units are numbered: number = block * 1024 + index in the block. With light addressing all
 * superblocks are one array, and a unit's address is base + number * size. With two-level
 * addressing each superblock is anywhere in the parent's memory, and the upper bits of the number
 * select it. shape.h converts numbers to the paper's 32-bit addresses.
 */
#ifndef GPUALLOC_SLAB_UNITS_SLAB_HEAP_H
#define GPUALLOC_SLAB_UNITS_SLAB_HEAP_H

#include "../../../growth/mailbox.h"
#include "../../../simt/atomic.h"
#include "../../../simt/planted.h"
#include "report.h"

#define GA_SLAB_BLOCK_BITS   10u
#define GA_SLAB_BLOCK_UNITS  1024u /* units of a memory block; also the bits of a row */
#define GA_SLAB_ROW_WORDS    32u
#define GA_SLAB_SECTOR_WORDS 8u          /* 32 bytes, what the GPU reads from memory at least */
#define GA_SLAB_FULL         0xffffffffu /* no unit, no block; never a unit's number */

#define GA_SLAB_HINT_COPIES 1024u /* tiles read different copies of the hint */
#define GA_SLAB_WORD_COPIES 256u  /* and of the number of words, if the heap grows under kernels */
#define GA_SLAB_WORD_STRIDE 8u    /* each is in a sector of its own: 32 bytes */

typedef struct ga_slab_super {
    char *units;    /* super_bytes of units */
    uint32_t *rows; /* one row for each of its memory blocks */
} ga_slab_super;

typedef struct ga_slab_heap {
    /* Set once, before the first claim. */
    uint32_t *rows; /* light addressing: the first row; otherwise NULL */
    char *units;    /* light addressing: the first unit */
    uint32_t unit;  /* a unit's bytes: odd << shift */
    uint32_t shift;
    uint64_t inverse;      /* 2^64 / odd, rounded up; 0 if odd is 1 */
    uint32_t super_bits;   /* a superblock has 2^super_bits memory blocks */
    uint32_t address_bits; /* the low bits of a 32-bit address, below the superblock's number */
    uint64_t super_bytes;  /* bytes of a superblock's units */
    ga_slab_super *supers; /* two-level addressing; NULL if light */
    uint32_t *sorted;      /* two-level: the superblocks' numbers, ordered by address */
    uint32_t *free;    /* counts, in whole rows, for the most memory blocks that the shape allows */
    uint32_t spread;   /* order of the counts: ga_slab_count_index(); the claiming side's */
    uint32_t check;    /* the hardened checks are on */
    ga_growth *growth; /* set if the heap grows under kernels (slab_growing.h) */

    /* The host changes these while no claim runs, or under the heap's lock before the counts of the
     * new superblock show room. If the heap grows under kernels, the tile that has the growth's
     * turn changes `words`. */
    uint32_t super_count; /* number of superblocks */
    uint32_t words;       /* number of bitmap words, 32 units each */

    uint8_t padding[128]; /* keeps what all claims read off the cache lines below */

    /* Changed by all tiles and threads, relaxed. */
    uint32_t hints[GA_SLAB_HINT_COPIES]; /* copies of the hint: slab_hint.h */
    /* copies of `words` if `growth` is set; each may lag behind it */
    uint32_t word_copies[GA_SLAB_WORD_COPIES * GA_SLAB_WORD_STRIDE];

    uint32_t changes;                /* resident changes; wraps */
    uint32_t full;                   /* searches of the whole heap that found no room; wraps */
    uint64_t answer;                 /* result of the host's service kernels */
    uint64_t faults[GA_SLAB_FAULTS]; /* number found, reported or not */
    uint64_t reported;               /* number of reports requested, stored or not */
    ga_slab_report reports[GA_SLAB_REPORTS];
} ga_slab_heap;

/* What a claim needs, by value: on the GPU in the kernel's parameters. */
typedef struct ga_slab_view {
    ga_slab_heap *heap;
    uint32_t *free;
    uint32_t *rows; /* NULL with two-level addressing */
    char *units;
    uint32_t unit;
    uint32_t words;
    uint32_t shift;
    uint64_t inverse;
    bool light; /* rows != NULL; a constant once the caller has tested it */
} ga_slab_view;

/* The number of memory blocks. */
GA_SIMT uint32_t ga_slab_blocks(ga_slab_view slab)
{
    return slab.words / GA_SLAB_ROW_WORDS;
}

/* The spread of heaps for kernels, and of heaps whose bitmaps are in host memory. */
#define GA_SLAB_SPREAD_KERNEL 9u
#define GA_SLAB_SPREAD_HOST   0u
#ifndef GA_SLAB_SPREAD
#ifdef __CUDACC__
#define GA_SLAB_SPREAD GA_SLAB_SPREAD_KERNEL
#else
#define GA_SLAB_SPREAD GA_SLAB_SPREAD_HOST
#endif
#endif

/* The index of the count of `block`. Tiles work in neighbouring blocks, and atomics on one row of
 * counts are serialised; so a spread of s puts 2^s neighbours into 2^s rows. A row holds the counts
 * of b, b + 2^s, b + 2 * 2^s and so on; 2^(s + 5) blocks fill whole rows. */
GA_SIMT uint32_t ga_slab_count_index(uint32_t spread, uint32_t block)
{
    uint32_t low = block & ((1u << spread) - 1u);
    uint32_t high = block >> spread;
    return ((high >> 5) << (spread + 5u)) + (low << 5) + (high & 31u);
}

/* The block whose count has that index. */
GA_SIMT uint32_t ga_slab_block_of_count(uint32_t spread, uint32_t index)
{
    uint32_t low = (index >> 5) & ((1u << spread) - 1u);
    uint32_t high = ((index >> (spread + 5u)) << 5) + (index & 31u);
    return (high << spread) + low;
}

/* The number of bitmap words. Superblocks may be added at the same time: on the CPU always, in
 * kernels if `growth` is set. SG3: acquire. Pairs with SG4 (host.c, slab_growing.h): the rows of
 * these words can be reached. */
GA_SIMT uint32_t ga_slab_words(const ga_slab_heap *heap)
{
#if defined __CUDACC__
    return heap->growth ? ga_load_acquire(&heap->words) : heap->words; /* SG3. Pairs with SG4. */
#elif GA_PLANTED(slab_words_relaxed)
    return ga_load_relaxed(&heap->words);
#else
    return ga_load_acquire(&heap->words); /* SG3. Pairs with SG4. */
#endif
}

/* A view with `words` as ga_slab_words() has returned it. On the CPU only once there are words,
 * because the first growth writes what a view copies. */
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
