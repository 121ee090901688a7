/* SPDX-License-Identifier: MIT
 *
 * Where units of all sizes are: from the number of a class's word to its key, from a key and a bit to the
 * unit, and back from an address.
 *
 * STRUCTURE  sized_heap.h has it. A place in the bitmaps is a key, the number of a word among those of
 *            all regions, and a bit of it. Where the class's first regions follow on each other, the
 *            key is had without a look at the class's table.
 *
 * INVARIANT  An old answer about a class leads to a region that the class has or has had, or to none. In
 *            the first bitmap of a region that it no longer has all bits are set. In a second bitmap the
 *            caller looks at the owner after it has got a bit (ga_sized_is_of()); a region whose units are
 *            not all free does not change its owner, so that the answer holds.
 *
 * ORDER      S1 here is the partner of S2 in sized_grow.h: a region's bitmap has been cleared before a class
 *            shows it.
 *
 * PROGRESS   Nobody waits.
 */
#ifndef GPUALLOC_SLAB_SIZED_PLACES_H
#define GPUALLOC_SLAB_SIZED_PLACES_H

#include "../simt/simt.h"
#include "sized_heap.h"

/* Where units are: for each lane the key of a word, GA_SIZED_NONE for none, and a bit's number. */
typedef struct ga_sized_got {
    ga_lanes keys;
    ga_lanes places;
} ga_sized_got;

/* What stands at `word`. On the GPU it may come from the multiprocessor's own cache, and be old: then it
 * is 0, or leads to what the class had before, and a search asks again. What is new was released at device
 * scope; the atomics that come to use it are done where that went. On the CPU, S1:
 * acquire. Pairs with S2 (sized_grow.h). */
GA_SIMT uint32_t ga_sized_read(const uint32_t *word)
{
#ifdef __CUDACC__
    return *word;
#elif GA_SIZED_MUTANT == 1
    return ga_load_relaxed(word);
#else
    return ga_load_acquire(word); /* S1. Pairs with S2 (sized_grow.h). */
#endif
}

/* The class's way, in two loads on the GPU; old or new, as ga_sized_read() says. */
GA_SIMT ga_sized_way ga_sized_way_of(const ga_sized_class *class_)
{
    ga_sized_way way;
#ifdef __CUDACC__
    const uint4 *from = (const uint4 *)&class_->way;
    uint4 first = from[0];
    uint4 second = from[1];
    way.table = (uint32_t *)((uint64_t)first.y << 32 | first.x);
    way.all = first.z;
    way.words = first.w;
    way.factor = second.x;
    way.first = second.y;
    way.straight = second.z;
    way.unit = second.w;
#else
    const ga_sized_way *from = &class_->way;
    way = (ga_sized_way){.table = from->table,
                         .all = ga_sized_read(&from->all),
                         .words = from->words,
                         .factor = from->factor,
                         .first = ga_sized_read(&from->first),
                         .straight = ga_sized_read(&from->straight),
                         .unit = from->unit};
#endif
    return way;
}

/* The key of the class's word number `word`, which is below `all`. */
GA_SIMT uint32_t ga_sized_key(ga_sized_view heap, ga_sized_way way, uint32_t word)
{
    uint32_t region = (uint32_t)((uint64_t)word * way.factor >> GA_SIZED_SHIFT(way));
    uint32_t within = word - region * way.words;
    uint32_t stride = ga_sized_stride_bits(heap.region_bits);
    if (region < GA_SIZED_STRAIGHT(way)) { /* spares a load */
        return ((way.first + region) << stride) + within;
    }
    uint32_t entry = ga_sized_read(way.table + region);
    uint32_t second = entry & GA_SIZED_SPENT ? 1u << ga_sized_bitmap_bits(heap.region_bits) : 0;
    return entry ? ((entry - 1u) << stride) + second + within : GA_SIZED_NONE; /* bit 31 goes */
}

/* Whether a key is of the first bitmap of its region. */
GA_SIMT bool ga_sized_is_first(ga_sized_view heap, uint32_t key)
{
    return !(key >> ga_sized_bitmap_bits(heap.region_bits) & 1u);
}

/* Whether the class has the word `key`, of which the caller has taken bits. */
GA_SIMT bool ga_sized_is_of(ga_sized_view heap, uint32_t class_, uint32_t key)
{
    if (ga_sized_is_first(heap, key) || GA_SIZED_MUTANT == 23) {
        return true;
    }
    /* relaxed: U1 has acquired what the tile wrote that made these bits free for another class. */
    uint32_t owner = ga_load_relaxed(heap.owners + (key >> ga_sized_stride_bits(heap.region_bits)));
    return ga_sized_owner_class(owner) == class_ && owner & GA_SIZED_SECOND;
}

/* The same place as two numbers, which take fewer instructions to find and to turn into a
 * pointer. */
typedef struct ga_sized_spot {
    uint32_t region;
    uint32_t word; /* of its bitmap */
} ga_sized_spot;

/* Where the class's word number `word` is, which may be any number: false where that is not in one
 * of the regions that follow on each other. Those have two words at least, so that GA_SIZED_SHIFT()
 * is 32 or more, and the upper half of the product is enough. */
GA_SIMT bool ga_sized_straight(ga_sized_way way, uint32_t word, ga_sized_spot *spot)
{
    uint32_t nth = ga_bits_down(ga_bits_high32(word, way.factor), way.straight);
    spot->region = way.first + nth;
    spot->word = word - nth * way.words;
    return nth < GA_SIZED_STRAIGHT(way);
}

GA_SIMT uint32_t ga_sized_spot_key(ga_sized_view heap, ga_sized_spot spot)
{
    return (spot.region << ga_sized_stride_bits(heap.region_bits)) + spot.word;
}

/* Where a tile begins that wants units of one class: at the word of its number. Of the tiles beyond the class's
 * last word each goes round to one: where few blocks live at a time, those are most. False where that is not in
 * one of the regions that follow on each other, or the class has none. */
GA_SIMT bool ga_sized_home_of(ga_sized_way way, uint32_t number, ga_sized_spot *home)
{
    uint32_t word = number < way.all ? number : ga_bits_round(number, way.all);
    return ga_sized_straight(way, word, home);
}

/* The unit at that place of the word. */
GA_SIMT char *ga_sized_spot_pointer(ga_sized_view heap, uint32_t unit, ga_sized_spot spot,
                                    uint32_t place)
{
    char *region = ga_bits_element(heap.units, spot.region, 1u << heap.region_bits);
    return region + (spot.word * 32u + place) * unit; /* below 2^31 in a region */
}

/* The unit there. */
GA_SIMT char *ga_sized_pointer(ga_sized_view heap, uint32_t unit, uint32_t key, uint32_t place)
{
    uint64_t region = key >> ga_sized_stride_bits(heap.region_bits);
    uint32_t slot = (key & ga_bits_below(ga_sized_bitmap_bits(heap.region_bits))) * 32u + place;
    return heap.units + (region << heap.region_bits) + slot * unit; /* below 2^31 in a region */
}

/* Whose the region is that `pointer` is in; of one that is in none, anything. Nothing is done with
 * the answer here, so that the load may be under way while the caller does something else. */
GA_SIMT uint32_t ga_sized_owner(ga_sized_view heap, const void *pointer)
{
    uint64_t region = (uint64_t)((const char *)pointer - heap.units) >> heap.region_bits;
    /* relaxed: who has a unit of the region got it after the region got its class. */
    return ga_load_relaxed(heap.owners + (region < heap.regions ? region : 0));
}

/* Which unit `pointer` is in, where that is what ga_sized_owner() has said; none where it is in a
 * run (sized_runs.h), or the region has a flag beside its class. */
GA_SIMT ga_sized_found ga_sized_find_in(ga_sized_view heap, uint32_t owner, const void *pointer)
{
    ga_sized_found found;
    uint32_t class_ = owner - 1u;
    uint32_t size = 1u << heap.region_bits;
    uint64_t offset = (uint64_t)((const char *)pointer - heap.units);
    uint32_t within = (uint32_t)offset & (size - 1u);
    ga_sized_steps steps = ga_sized_steps_of(class_ & 63u);
    uint32_t slot = ga_sized_slot(steps, within);
    uint32_t unit = steps.times << steps.shift;
    uint64_t region = offset >> heap.region_bits;
    bool is_one = region < heap.regions && class_ < GA_SIZED_CLASSES && (slot + 1u) * unit <= size;
    found.class_ = is_one ? class_ : GA_SIZED_NONE;
    found.key = ((uint32_t)region << ga_sized_stride_bits(heap.region_bits)) + slot / 32u;
    found.place = slot % 32u;
    found.offset = within - slot * unit;
    return found;
}

/* Which unit `pointer` is in, whatever flags its region has. */
GA_SIMT ga_sized_found ga_sized_find(ga_sized_view heap, const void *pointer)
{
    uint32_t owner = ga_sized_owner(heap, pointer);
    ga_sized_found found = ga_sized_find_in(heap, ga_sized_owner_class(owner) + 1u, pointer);
    found.key += ga_sized_owner_key(heap.region_bits, 0, owner);
    return found;
}

#endif
