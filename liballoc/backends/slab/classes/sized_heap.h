/* SPDX-License-Identifier: MIT
 *
 * The memory of a kernel heap with size classes. Classes, and runs of whole regions, share one pool
 * of regions. Plain data, the same for both compilers; sized_tile.h and sized_runs.h have the
 * algorithms, sized_kernel.h the calls.
 *
 *     units   | region 0  | region 1  | region 2  | region 3  | region 4  |   addresses only    |
 *     bits    | word word |           |           | word word |           |   addresses only    |
 *     owners  |  class 5  |  run of 2 | inside, 1 |  class 5  |     0     |  0         0        |
 *     pool    |     0     |     0     |     0     |     0     |     1     |  0         0        |
 *                                                                         ^ next       ^ ready
 *
 *     `bits` has 1 bit a unit, `pool` 1 bit a region.
 *     class 5   table: region 0, region 3    words: 0 to (regions of the class) * (words each) - 1
 *
 * All regions have 2^region_bits bytes. A region that belongs to a class is divided into units of
 * the class's size from its first byte on. It stays with the class until all its units are free,
 * and then either the host takes it back between launches, or a kernel that finds the heap full
 * does (sized_sweep.h). A run is one block: its regions return to the pool when it is freed. The
 * owners of the regions inside a run are not cleared then; they count only if the first region
 * agrees.
 *
 * Region r has two bitmaps, one behind the other, from word r * 2^(region_bits - 8) on. A class of
 * 16 bytes a unit uses all words of one. The first bitmap serves the first class that has the
 * region. When a kernel takes the region from that class, all bits of the first bitmap are set, and
 * they stay set until the host resets them between launches. So a fast path with a stale class map
 * finds nothing free there. Later classes use the second bitmap. Only slow paths use it, and they
 * check the owner of the region once they hold a bit of it.
 *
 * A letter before a field's comment, such as KW, names the orders by which kernels access it
 * (sized_grow.h, sized_pool.h, sized_search.h, sized_sweep.h).
 */
#ifndef GPUALLOC_SLAB_CLASSES_SIZED_HEAP_H
#define GPUALLOC_SLAB_CLASSES_SIZED_HEAP_H

#include "../../../growth/mailbox.h"
#include "../../../simt/atomic.h"
#include "../../../simt/planted.h"
#include "../units/report.h"

#include <stddef.h>

#define GA_SIZED_CLASSES 60u
#define GA_SIZED_NONE    0xffffffffu /* no class, no region, no word */
#define GA_SIZED_GRANULE 16u

/* The owner of a region: 0 for none, 1 + its class, or one of these. */
#define GA_SIZED_RUN    0x80000000u /* first region of a run, and the number of its regions */
#define GA_SIZED_INSIDE 0x40000000u /* other region of a run, and the number of regions before it */

/* Flags beside a class. A region with any of them looks to the fast path of free like one without a
 * class, and so is left to the slow path. So they cost the fast path nothing. */
#define GA_SIZED_SECOND      0x80u       /* the class uses the second bitmap */
#define GA_SIZED_WATCH       0x1fffff00u /* number of the sweep that set the watch; 0: none */
#define GA_SIZED_WATCH_SHIFT 8u
#define GA_SIZED_FREED       0x20000000u /* beside it: a unit was freed, so the watch is over */

/* In `watches`, beside the time, in us, at which the region came under watch: a sweep found no free
 * unit late enough after that. It counts only while the watch lasts. */
#define GA_SIZED_SETTLED 1u

/* In `table_indices`, beside the index of the region in its class's table. */
#define GA_SIZED_SPENT 0x80000000u /* its first bitmap stays full until no kernel runs */

/* The class map: all that an allocation needs to find a word of the class. 32 bytes, loaded at
 * once. Some fields change while kernels run. */
typedef struct ga_sized_class_map {
    /* the class's regions, each + 1, with GA_SIZED_SPENT if it uses the second bitmap; 0: none */
    uint32_t *table;
    uint32_t total_words; /* KS: number of words of all its regions */
    uint32_t words;       /* number of words of one region's bitmap */
    uint32_t factor;      /* word / words = word * factor >> shift, for words below 2^31 */
    uint32_t first;       /* the first of its regions */
    /* upper 26 bits: the number of contiguous regions from `first` on; lower 6: shift */
    uint32_t contiguous;
    uint32_t unit; /* bytes of a unit */
} ga_sized_class_map;

#define GA_SIZED_SHIFT(map)      ((map).contiguous & 63u)
#define GA_SIZED_CONTIGUOUS(map) ((map).contiguous >> 6)

typedef struct ga_sized_class {
    ga_sized_class_map map;
    uint32_t units; /* set once: number of units in a region */
    uint32_t tail;  /* set once: the bits of a region's last word without a unit */
    uint8_t padding[88];

    uint32_t grow_lock;   /* KT: odd while a tile gets regions for the class; wraps */
    uint32_t hint;        /* relaxed: distance of free units from where a search begins */
    uint32_t refused;     /* relaxed: number of refused requests; wraps */
    uint32_t table_lock;  /* KE: 1 while a tile changes the table */
    uint32_t shrunk;      /* guarded by table_lock: a region has left the contiguous part */
    uint32_t empty_sweep; /* the last sweep that found nothing for the class */
    uint32_t waiting;     /* relaxed: lanes that came to wait for regions since the last growth */
    uint8_t padding_end[100];
} ga_sized_class;

/* The sweep of all regions, shared by the tiles that find nothing (sized_sweep.h); 128 bytes. */
typedef struct ga_sized_sweep {
    uint64_t cursor;           /* KW: upper half: number of the sweep; lower half: next region */
    uint32_t begun;            /* KW: the last sweep that has begun */
    uint32_t ended;            /* KW: the last sweep that has ended */
    uint32_t end;              /* number of regions that it goes through */
    uint32_t regions_left;     /* of these, the number that are not done */
    uint32_t releases;         /* the heap's `releases` when it began */
    uint32_t regions_released; /* number of regions that it moved to the pool */
    uint32_t empty_sweep;      /* the last sweep that released no region */
    uint32_t undisturbed;      /* the last sweep during which `releases` did not change */
    uint32_t any_spent;        /* 1: at least one region is GA_SIZED_SPENT */
    uint32_t wanted;           /* relaxed: the last sweep that a request waits for */
    uint64_t found_classes;    /* mask of the classes for which it has found free units */
    uint64_t began_at;         /* ns */
    uint64_t watched_at;       /* ns: the last time that a region came under watch anew */
    /* lower half: a sweep whose result is valid, or 0; upper half: `releases` when it began */
    uint64_t valid_result;
    uint64_t valid_until; /* ns */
    uint64_t words_read;  /* relaxed: number of bitmap words that sweeps have read */
    uint8_t padding_end[32];
} ga_sized_sweep;

typedef struct ga_sized_heap {
    /* Set once, before the first allocation. */
    char *units;
    uint32_t *bits;
    uint32_t *owners;        /* the owner of each region */
    uint32_t *pool;          /* KP: for each region below `next` a bit, set while it is free */
    uint32_t *table_indices; /* of each region its index in its class's table, and GA_SIZED_SPENT */
    uint32_t *watches;       /* of each region the time of its watch, and GA_SIZED_SETTLED */
    uint32_t region_bits;    /* log2 of the bytes of a region */
    uint32_t classes;        /* their number; the largest unit is half a region */
    uint32_t regions;        /* number of regions that there are addresses for */
    uint32_t fixed;
    ga_growth *growth; /* its steps are regions; NULL: `fixed` regions and no more */
    uint32_t check;    /* 1: hardened checks (sized_checked.h) */
    uint8_t padding[52];

    /* Changed by tiles that allocate and free regions. */
    uint32_t next;      /* relaxed: regions below have been in use */
    uint32_t pooled;    /* relaxed: at least the number of bits set in the pool */
    uint32_t pool_hint; /* relaxed: a word of the pool that had free regions */
    uint32_t pool_lock; /* KQ: 1 while a tile searches the pool across words */
    /* relaxed: lower half: the number of contiguous regions that a search did not find, or 0; upper
     * half: `releases` then */
    uint64_t known_full;
    /* KH: counts additions to the pool and to classes, and frees in watched regions; wraps */
    uint32_t releases;
    uint32_t refused; /* relaxed: number of refused requests for runs; wraps */
    uint8_t padding_too[96];

    ga_sized_sweep sweep;

    uint64_t faults;          /* relaxed: number of frees of invalid pointers */
    uint64_t answer, live[2]; /* for the host's service kernels */
    uint8_t padding_end[96];

    ga_sized_class of[GA_SIZED_CLASSES];

    uint64_t reported; /* relaxed: number of report slots requested */
    ga_slab_report reports[GA_SLAB_REPORTS];
} ga_sized_heap;

/* Kernels load a class map by two loads of 16 bytes. */
typedef char ga_sized_classes_are_aligned[offsetof(ga_sized_heap, of) % 128u ? -1 : 1];

/* The records of recent words (sized_lone.h) are behind the heap, at this offset. */
#define GA_SIZED_RECENT    32768u /* their number: enough for some classes of all warps of a GPU */
#define GA_SIZED_RECENT_AT ((sizeof(ga_sized_heap) + 255u) / 256u * 256u)

/* On devices, the offset of `owners` from the heap, so that no load is needed to find them. */
#define GA_SIZED_OWNERS_AT (GA_SIZED_RECENT_AT + GA_SIZED_RECENT * sizeof(uint64_t))

/* The values that allocation and free need; on the GPU they are among the kernel's parameters. */
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

/* ---- size classes: steps of 16 bytes up to 128 bytes, then four classes to a doubling -- */

/* The smallest class whose units have a byte number `last` (from 0), or GA_SIZED_NONE. */
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

/* The bytes of a unit of the class. */
GA_SIMT uint32_t ga_sized_unit(uint32_t class_)
{
    if (class_ < 8u) {
        return (class_ + 1u) * GA_SIZED_GRANULE;
    }
    uint32_t power = 7u + (class_ - 8u) / 4u;
    return (5u + (class_ - 8u) % 4u) << (power - 2u);
}

/* The bytes of a unit as `times` << `shift`, with `times` from 5 to 8. */
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

/* The number of the unit that byte `within` of a region is in, without a division. 840 is 5 * 168,
 * 6 * 140, 7 * 120 and 8 * 105, and these four factors are the bytes of the constant. 5113057 /
 * 2^32 stands for 1 / 840 and is too large by less than 2^-22 of it, so the result is exact for
 * 2^22 bytes. */
GA_SIMT uint32_t ga_sized_slot(ga_sized_steps steps, uint32_t within)
{
    uint32_t parts = 0x69788ca8u >> (steps.times - 5u) * 8u & 255u;
    return ga_bits_high32(within >> steps.shift, parts * 5113057u);
}

/* The smallest class for `size` bytes with all units at multiples of `align`, a power of two, or
 * GA_SIZED_NONE. Regions are aligned to their size. */
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

/* The unit that a pointer is in. */
typedef struct ga_sized_found {
    uint32_t class_; /* GA_SIZED_NONE: in none */
    uint32_t word_index, bit_index;
    uint32_t offset; /* from the first byte of the unit */
} ga_sized_found;

/* ---- bitmaps --------------------------------------------------------------------------- */

/* log2 of the number of words of one bitmap of a region. */
GA_SIMT uint32_t ga_sized_bitmap_bits(uint32_t region_bits)
{
    return region_bits - 9u; /* 16 bytes a unit, 32 units a word */
}

/* log2 of the distance, in words, between the bitmaps of two regions. */
GA_SIMT uint32_t ga_sized_stride_bits(uint32_t region_bits)
{
    return region_bits - 8u; /* two bitmaps */
}

/* ---- owners of regions ----------------------------------------------------------------- */

/* The class that has the region, or GA_SIZED_NONE. */
GA_SIMT uint32_t ga_sized_owner_class(uint32_t owner)
{
    return owner & (GA_SIZED_RUN | GA_SIZED_INSIDE) ? GA_SIZED_NONE : (owner & 63u) - 1u;
}

/* True if a sweep watches the region, and no unit has been freed since. */
GA_SIMT bool ga_sized_is_watched(uint32_t owner)
{
    return (owner & (GA_SIZED_WATCH | GA_SIZED_FREED)) - 1u < GA_SIZED_WATCH;
}

/* The index of the first word of the bitmap that the region's class uses. */
GA_SIMT uint32_t ga_sized_bitmap_index(uint32_t region_bits, uint32_t region, uint32_t owner)
{
    uint32_t second = owner & GA_SIZED_SECOND ? 1u << ga_sized_bitmap_bits(region_bits) : 0;
    return (region << ga_sized_stride_bits(region_bits)) + second;
}

/* ---- set once, by the host ------------------------------------------------------------- */

/* The number of classes, with units up to half a region. */
GA_SIMT uint32_t ga_sized_class_count(uint32_t region_bits)
{
    return 8u + (region_bits - 1u - 7u) * 4u;
}

/* Initialise a class without regions, in zeroed memory. `table` has an entry for each region of the
 * heap. The factor is too large by less than `words` / 2^shift, and `words` is at most 2^(shift -
 * 31), so it is exact for words below 2^31. */
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
