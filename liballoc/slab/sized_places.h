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
 *            caller looks at the owner after it has got a bit (ga_sized_class_owns()); a region whose units are
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
typedef struct ga_sized_units {
    ga_lanes word_indices;
    ga_lanes places;
} ga_sized_units;

/* What stands at `word`. On the GPU it may come from the multiprocessor's own cache, and be old: then it
 * is 0, or leads to what the class had before, and a search asks again. What is new was released at device
 * scope; the atomics that come to use it are done where that went. On the CPU, S1:
 * acquire. Pairs with S2 (sized_grow.h). */
GA_SIMT uint32_t ga_sized_load_map_word(const uint32_t *word)
{
#ifdef __CUDACC__
    return *word;
#elif GA_SIZED_MUTANT == 1
    return ga_load_relaxed(word);
#else
    return ga_load_acquire(word); /* S1. Pairs with S2 (sized_grow.h). */
#endif
}

/* The class's way, in two loads on the GPU; old or new, as ga_sized_load_map_word() says. */
GA_SIMT ga_sized_class_map ga_sized_load_class_map(const ga_sized_class *class_)
{
    ga_sized_class_map map;
#ifdef __CUDACC__
    const uint4 *from = (const uint4 *)&class_->map;
    uint4 first = from[0];
    uint4 second = from[1];
    map.table = (uint32_t *)((uint64_t)first.y << 32 | first.x);
    map.total_words = first.z;
    map.words = first.w;
    map.factor = second.x;
    map.first = second.y;
    map.contiguous = second.z;
    map.unit = second.w;
#else
    const ga_sized_class_map *from = &class_->map;
    map = (ga_sized_class_map){.table = from->table,
                               .total_words = ga_sized_load_map_word(&from->total_words),
                               .words = from->words,
                               .factor = from->factor,
                               .first = ga_sized_load_map_word(&from->first),
                               .contiguous = ga_sized_load_map_word(&from->contiguous),
                               .unit = from->unit};
#endif
    return map;
}

/* The key of the class's word number `word`, which is below `all`. */
GA_SIMT uint32_t ga_sized_word_index(ga_sized_view heap, ga_sized_class_map map, uint32_t word)
{
    uint32_t region = (uint32_t)((uint64_t)word * map.factor >> GA_SIZED_SHIFT(map));
    uint32_t within = word - region * map.words;
    uint32_t stride = ga_sized_stride_bits(heap.region_bits);
    if (region < GA_SIZED_CONTIGUOUS(map)) { /* spares a load */
        return ((map.first + region) << stride) + within;
    }
    uint32_t entry = ga_sized_load_map_word(map.table + region);
    uint32_t second = entry & GA_SIZED_SPENT ? 1u << ga_sized_bitmap_bits(heap.region_bits) : 0;
    return entry ? ((entry - 1u) << stride) + second + within : GA_SIZED_NONE; /* bit 31 goes */
}

/* Whether a key is of the first bitmap of its region. */
GA_SIMT bool ga_sized_in_first_bitmap(ga_sized_view heap, uint32_t word_index)
{
    return !(word_index >> ga_sized_bitmap_bits(heap.region_bits) & 1u);
}

/* Whether the class has the word `key`, of which the caller has taken bits. */
GA_SIMT bool ga_sized_class_owns(ga_sized_view heap, uint32_t class_, uint32_t word_index)
{
    if (ga_sized_in_first_bitmap(heap, word_index) || GA_SIZED_MUTANT == 23) {
        return true;
    }
    /* relaxed: U1 has acquired what the tile wrote that made these bits free for another class. */
    uint32_t owner =
        ga_load_relaxed(heap.owners + (word_index >> ga_sized_stride_bits(heap.region_bits)));
    return ga_sized_owner_class(owner) == class_ && owner & GA_SIZED_SECOND;
}

/* The same place as two numbers, which take fewer instructions to find and to turn into a
 * pointer. */
typedef struct ga_sized_position {
    uint32_t region;
    uint32_t word; /* of its bitmap */
} ga_sized_position;

/* Where the class's word number `word` is, which may be any number: false where that is not in one
 * of the regions that follow on each other. Those have two words at least, so that GA_SIZED_SHIFT()
 * is 32 or more, and the upper half of the product is enough. */
GA_SIMT bool ga_sized_locate_contiguous(ga_sized_class_map map, uint32_t word,
                                        ga_sized_position *spot)
{
    uint32_t nth = ga_bits_down(ga_bits_high32(word, map.factor), map.contiguous);
    spot->region = map.first + nth;
    spot->word = word - nth * map.words;
    return nth < GA_SIZED_CONTIGUOUS(map);
}

GA_SIMT uint32_t ga_sized_position_index(ga_sized_view heap, ga_sized_position spot)
{
    return (spot.region << ga_sized_stride_bits(heap.region_bits)) + spot.word;
}

/* Where a tile begins that wants units of one class: at the word of its number. Of the tiles beyond the class's
 * last word each goes round to one: where few blocks live at a time, those are most. False where that is not in
 * one of the regions that follow on each other, or the class has none. */
GA_SIMT bool ga_sized_home_position(ga_sized_class_map map, uint32_t number,
                                    ga_sized_position *home)
{
    uint32_t word = number < map.total_words ? number : ga_bits_round(number, map.total_words);
    return ga_sized_locate_contiguous(map, word, home);
}

/* The unit at that place of the word. */
GA_SIMT char *ga_sized_position_pointer(ga_sized_view heap, uint32_t unit, ga_sized_position spot,
                                        uint32_t place)
{
    char *region = ga_bits_element(heap.units, spot.region, 1u << heap.region_bits);
    return region + (spot.word * 32u + place) * unit; /* below 2^31 in a region */
}

/* The unit there. */
GA_SIMT char *ga_sized_pointer(ga_sized_view heap, uint32_t unit, uint32_t word_index,
                               uint32_t place)
{
    uint64_t region = word_index >> ga_sized_stride_bits(heap.region_bits);
    uint32_t slot =
        (word_index & ga_bits_below(ga_sized_bitmap_bits(heap.region_bits))) * 32u + place;
    return heap.units + (region << heap.region_bits) + slot * unit; /* below 2^31 in a region */
}

/* Whose the region is that `pointer` is in; of one that is in none, anything. Nothing is done with
 * the answer here, so that the load may be under way while the caller does something else. */
GA_SIMT uint32_t ga_sized_load_owner(ga_sized_view heap, const void *pointer)
{
    uint64_t region = (uint64_t)((const char *)pointer - heap.units) >> heap.region_bits;
    /* relaxed: who has a unit of the region got it after the region got its class. */
    return ga_load_relaxed(heap.owners + (region < heap.regions ? region : 0));
}

/* Which unit `pointer` is in, where that is what ga_sized_load_owner() has said; none where it is in a
 * run (sized_runs.h), or the region has a flag beside its class. */
GA_SIMT ga_sized_found ga_sized_find_with_owner(ga_sized_view heap, uint32_t owner,
                                                const void *pointer)
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
    found.word_index = ((uint32_t)region << ga_sized_stride_bits(heap.region_bits)) + slot / 32u;
    found.place = slot % 32u;
    found.offset = within - slot * unit;
    return found;
}

/* Which unit `pointer` is in, whatever flags its region has. */
GA_SIMT ga_sized_found ga_sized_find(ga_sized_view heap, const void *pointer)
{
    uint32_t owner = ga_sized_load_owner(heap, pointer);
    ga_sized_found found =
        ga_sized_find_with_owner(heap, ga_sized_owner_class(owner) + 1u, pointer);
    found.word_index += ga_sized_bitmap_index(heap.region_bits, 0, owner);
    return found;
}

#endif
