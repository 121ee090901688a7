/* SPDX-License-Identifier: MIT
 *
 * A heap of all sizes for kernels, as it stands in memory: size classes, and runs of whole regions, that
 * share one pool of regions. Plain data, the same for both compilers; sized_tile.h and sized_runs.h have
 * the algorithms.
 *
 *     units   | region 0  | region 1  | region 2  | region 3  | region 4  |   addresses only    |
 *     bits    | word word |           |           | word word |           |   addresses only    |    1 bit a unit
 *     owners  |  class 5  |  run of 2 | inside, 1 |  class 5  |     0     |  0         0        |
 *     pool    |     0     |     0     |     0     |     0     |     1     |  0         0        |    1 bit a region
 *                                                                         ^ next       ^ ready
 *
 *     class 5   table: region 0, region 3       words are numbered through: 0 .. count * words - 1
 *
 * All regions have 2^region_bits bytes. One that a class has taken is units of its size from its first
 * byte on, and stays that until all units are free and either the host takes it back between launches or
 * a kernel that finds the heap full does (sized_sweep.h). A run is one block: its regions go back to the
 * pool when it is freed. What stands inside of one stays there then, and counts only where the first
 * region agrees.
 *
 * Region r has two bitmaps, one behind the other from word r * 2^(region_bits - 8) on; at 16 bytes a unit
 * all words of one are used. The first belongs to the first class that has the region. When a kernel takes
 * the region from that class, all bits of the first bitmap are set and stay set until the host resets it
 * between launches: a fast claim that still believes the class to have the region finds nothing there.
 * Later classes have the second bitmap. Only claims off the fast path reach it, and they look whose the
 * region is once they have a bit of it.
 */
#ifndef GPUALLOC_SLAB_SIZED_HEAP_H
#define GPUALLOC_SLAB_SIZED_HEAP_H

#include "../arena/mailbox.h"
#include "../simt/atomic.h"
#include "report.h"

#include <stddef.h>

#define GA_SIZED_CLASSES 60u
#define GA_SIZED_NONE    0xffffffffu /* no class, no region, no word */
#define GA_SIZED_GRANULE 16u

/* What a region is, beside 0, nobody's, and 1 + its class. */
#define GA_SIZED_RUN    0x80000000u /* the first of a run, and how many it has */
#define GA_SIZED_INSIDE 0x40000000u /* one of a run, and how many are before it */

/* Flags beside a class. With any of them the fast path of a free takes the region for no class's and
 * leaves the block to the slow path: so they cost the fast path nothing. */
#define GA_SIZED_SECOND 0x80u /* its bitmap is the second one */
#define GA_SIZED_WATCH                                                                             \
    0x3fffff00u /* the number of the sweep that wants to hear of a free; 0: none */
#define GA_SIZED_WATCH_SHIFT 8u

/* In `places`, beside the region's place in its class's table. */
#define GA_SIZED_SPENT 0x80000000u /* its first bitmap cannot be used under kernels any more */

/* The stress tests weaken one thing at a time, to see that they notice (tests/stress/meson.build). */
#ifndef GA_SIZED_MUTANT
#define GA_SIZED_MUTANT 0
#endif

/* What every claim in a class needs to know; 32 bytes, which are read at once. What changes grows, while
 * kernels run. */
typedef struct ga_sized_class_map {
    uint32_t
        *table; /* its regions, + 1 each, and GA_SIZED_SPENT where the second bitmap is used; 0:
                      * none */
    uint32_t total_words; /* S: words of all its regions */
    uint32_t words;       /* of a region's bitmap */
    uint32_t factor;      /* word / words = word * factor >> shift, for words below 2^31 */
    uint32_t first;       /* the first of its regions */
    uint32_t
        contiguous; /* upper 26 bits: so many regions follow on each other from there; then shift */
    uint32_t unit;  /* bytes */
} ga_sized_class_map;

#define GA_SIZED_SHIFT(map)      ((map).contiguous & 63u)
#define GA_SIZED_CONTIGUOUS(map) ((map).contiguous >> 6)

typedef struct ga_sized_class {
    ga_sized_class_map map;
    uint32_t units; /* set once: in a region */
    uint32_t tail;  /* set once: the bits of a region's last word that are no units */
    uint8_t padding[88];

    uint32_t grow_lock;  /* T: odd while a tile gets regions for it; wraps */
    uint32_t hint;       /* relaxed: how far from where a search begins there has been room */
    uint32_t refused;    /* relaxed: requests that got nothing; wraps */
    uint32_t table_lock; /* E: 1 while a tile changes the table */
    uint32_t shrunk; /* guarded by `edit`: a region has left the part that follows on each other */
    uint32_t empty_sweep; /* the last sweep that found nothing for it */
    uint8_t padding_end[104];
} ga_sized_class;

/* The search of all regions that the tiles which find nothing share (sized_sweep.h); 128 bytes. */
typedef struct ga_sized_sweep {
    uint64_t cursor;           /* W: upper half: its number; lower half: the next region */
    uint32_t begun;            /* W: the number of the last one that has begun */
    uint32_t ended;            /* W: the number of the last one that has ended */
    uint32_t end;              /* regions that it goes through */
    uint32_t regions_left;     /* of them those that have not been searched */
    uint32_t releases;         /* the heap's when it began */
    uint32_t regions_released; /* regions that it has given to the pool */
    uint32_t empty_sweep;      /* the last one that released nothing */
    uint32_t undisturbed;      /* the last one during which `given` did not change */
    uint32_t any_spent;        /* 1: some region is GA_SIZED_SPENT */
    uint64_t found_classes;    /* the mask of the classes for which it has found room */
    uint64_t began_at;         /* ns */
    uint64_t watched_at;       /* ns: when a region came under watch that was not */
    uint64_t
        valid_result; /* lower half: a sweep whose refusals hold, or 0; upper half: `given` then */
    uint64_t valid_until; /* ns */
    uint64_t words_read;  /* relaxed: bitmap words that sweeps have read */
    uint8_t padding_end[32];
} ga_sized_sweep;

typedef struct ga_sized_heap {
    /* Set once, before the first claim. */
    char *units;
    uint32_t *bits;
    uint32_t *owners;     /* what each region is */
    uint32_t *pool;       /* P: the bit of a region below `next` is set while it is nobody's */
    uint32_t *places;     /* of each region its place in its class's table, and GA_SIZED_SPENT */
    uint32_t region_bits; /* log2 of a region's bytes */
    uint32_t classes;     /* that there are: the largest unit is half a region */
    uint32_t regions;     /* addresses for so many */
    uint32_t fixed;
    ga_growth *growth; /* regions are its steps; NULL: `fixed` of them, and no more */
    uint32_t check;    /* the hardened checks are on: sized_checked.h */
    uint8_t padding[60];

    /* Changed by who takes regions and gives them back. */
    uint32_t next;      /* relaxed: regions below have been handed out once */
    uint32_t pooled;    /* relaxed: no fewer bits are set in the pool */
    uint32_t pool_hint; /* relaxed: a word of the pool where something was free */
    uint32_t pool_lock; /* Q: 1 while a tile looks for regions all over the pool */
    uint64_t
        known_full; /* relaxed: lower half: so many neighbours could not be had, or 0; upper half:
                           `given` then */
    uint32_t
        releases; /* H: how often something went to the pool or a class, or was freed that a sweep
                       * watches; wraps */
    uint32_t refused; /* relaxed: requests for runs that got nothing; wraps */
    uint8_t padding_too[96];

    ga_sized_sweep sweep;

    uint64_t faults;          /* relaxed: pointers freed at which no block began */
    uint64_t answer, live[2]; /* of the host's service kernels */
    uint8_t padding_end[96];

    ga_sized_class of[GA_SIZED_CLASSES];

    uint64_t reported; /* relaxed: places of reports that were asked for */
    ga_slab_report reports[GA_SLAB_REPORTS];
} ga_sized_heap;

/* Kernels read a class in two loads of 16 bytes. */
typedef char ga_sized_classes_are_aligned[offsetof(ga_sized_heap, of) % 128u ? -1 : 1];

/* On devices owners stand so many bytes behind the beginning of the heap: who has its address needs to
 * ask for nothing. */
#define GA_SIZED_OWNERS_AT ((sizeof(ga_sized_heap) + 255u) / 256u * 256u)

/* What a claim and a free need, by value: on the GPU among the kernel's parameters. */
typedef struct ga_sized_view {
    ga_sized_heap *heap;
    char *units;
    uint32_t *bits;
    uint32_t *owners;
    uint32_t region_bits;
    uint32_t classes;
    uint32_t regions;
} ga_sized_view;

GA_SIMT ga_sized_view ga_sized_view_of(ga_sized_heap *heap)
{
    ga_sized_view view;
    view.heap = heap;
    view.units = heap->units;
    view.bits = heap->bits;
    view.owners = heap->owners;
    view.region_bits = heap->region_bits;
    view.classes = heap->classes;
    view.regions = heap->regions;
    return view;
}

/* ---- size classes: steps of 16 bytes up to 128, then four to each power of two ------------------- */

/* The class of the units whose last byte may be number `last`, or GA_SIZED_NONE. */
GA_SIMT uint32_t ga_sized_class_of_last(ga_sized_view heap, uint64_t last)
{
    uint32_t bits = (uint32_t)last;
    uint32_t class_ = bits < 64u ? bits / GA_SIZED_GRANULE : ga_bits_quarters(bits) - 20u;
    return last >> 31 || class_ >= heap.classes ? GA_SIZED_NONE : class_;
}

/* The class for `size` bytes, or GA_SIZED_NONE. */
GA_SIMT uint32_t ga_sized_class_of(ga_sized_view heap, uint64_t size)
{
    return ga_sized_class_of_last(heap, size - (size ? 1u : 0));
}

/* The bytes of its units. */
GA_SIMT uint32_t ga_sized_unit(uint32_t class_)
{
    if (class_ < 8u) {
        return (class_ + 1u) * GA_SIZED_GRANULE;
    }
    uint32_t power = 7u + (class_ - 8u) / 4u;
    return (5u + (class_ - 8u) % 4u) << (power - 2u);
}

/* The same, as so many times a power of two: 5 to 8 times. */
typedef struct ga_sized_steps {
    uint32_t times, shift;
} ga_sized_steps;

GA_SIMT ga_sized_steps ga_sized_steps_of(uint32_t class_)
{
    bool small = class_ < 3u; /* 8 << 1, 8 << 2, 6 << 3 */
    ga_sized_steps steps;
    steps.times = 5u + (small ? 3u - (class_ & 2u) : class_ & 3u);
    steps.shift = small ? class_ + 1u : 3u + class_ / 4u;
    return steps;
}

/* How many units of the class end at or before byte number `within` of a region, without a division: 840
 * is 5 * 168, 6 * 140, 7 * 120, 8 * 105, a byte each of the constant. What stands
 * for 1 / 840 is too large by less than 2^-22 of it, so that the answer is exact for 2^22 bytes. */
GA_SIMT uint32_t ga_sized_slot(ga_sized_steps steps, uint32_t within)
{
    uint32_t parts = 0x69788ca8u >> (steps.times - 5u) * 8u & 255u;
    return ga_bits_high32(within >> steps.shift, parts * 5113057u);
}

/* The class for `size` bytes whose units all stand at multiples of `align`, a power of two, or GA_SIZED_NONE.
 * Regions stand at multiples of their size. */
GA_SIMT uint32_t ga_sized_class_aligned(ga_sized_view heap, uint64_t size, uint64_t align)
{
    if (align <= GA_SIZED_GRANULE) {
        return ga_sized_class_of(heap, size);
    }
    if ((size | align) >> 31) {
        return GA_SIZED_NONE;
    }
    uint64_t whole = ((size ? size : 1u) + align - 1u) & ~(align - 1u);
    uint32_t class_ = ga_sized_class_of(heap, whole);
    while (class_ < heap.classes && ga_sized_unit(class_) & (align - 1u)) {
        class_++;
    }
    return class_ < heap.classes ? class_ : GA_SIZED_NONE;
}

/* A unit, and where something is in it. */
typedef struct ga_sized_found {
    uint32_t class_; /* GA_SIZED_NONE: in none */
    uint32_t word_index, place;
    uint32_t offset; /* from its first byte */
} ga_sized_found;

/* ---- bitmaps ---------------------------------------------------------------------------------------- */

/* log2 of the words that one bitmap of a region has room for. */
GA_SIMT uint32_t ga_sized_bitmap_bits(uint32_t region_bits)
{
    return region_bits - 9u; /* 16 bytes a unit, 32 units a word */
}

/* log2 of the words between the bitmaps of two regions. */
GA_SIMT uint32_t ga_sized_stride_bits(uint32_t region_bits)
{
    return region_bits - 8u; /* two bitmaps */
}

/* ---- what a region is ------------------------------------------------------------------------------- */

/* The class that has the region, or GA_SIZED_NONE. */
GA_SIMT uint32_t ga_sized_owner_class(uint32_t owner)
{
    return owner & (GA_SIZED_RUN | GA_SIZED_INSIDE) ? GA_SIZED_NONE : (owner & 63u) - 1u;
}

/* The key of the first word of the class's bitmap of the region. */
GA_SIMT uint32_t ga_sized_bitmap_index(uint32_t region_bits, uint32_t region, uint32_t owner)
{
    uint32_t second = owner & GA_SIZED_SECOND ? 1u << ga_sized_bitmap_bits(region_bits) : 0;
    return (region << ga_sized_stride_bits(region_bits)) + second;
}

/* ---- set once, by the host ---------------------------------------------------------------------- */

/* How many classes there are: units up to half a region. */
GA_SIMT uint32_t ga_sized_class_count(uint32_t region_bits)
{
    return 8u + (region_bits - 1u - 7u) * 4u;
}

/* A class that has no regions yet, into what is all 0; `table` has room for as many as there may be. Its
 * factor is too large by less than `words` in 2^shift, and words are at most 2^(shift - 31): exact below
 * 2^31. */
GA_SIMT void ga_sized_class_begin(ga_sized_class *c, uint32_t region_bits, uint32_t class_,
                                  uint32_t *table)
{
    uint32_t unit = ga_sized_unit(class_);
    uint32_t units = (1u << region_bits) / unit;
    uint32_t words = (units + 31u) / 32u;
    uint32_t shift = 31u + (words > 1u ? 32u - ga_bits_leading(words - 1u) : 0);
    c->map.table = table;
    c->map.words = words;
    c->map.factor = (uint32_t)((((uint64_t)1 << shift) + words - 1u) / words);
    c->map.contiguous = shift;
    c->map.unit = unit;
    c->units = units;
    c->tail = units % 32u ? ~ga_bits_below(units % 32u) : 0;
}

#endif
