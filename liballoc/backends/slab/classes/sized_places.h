/* SPDX-License-Identifier: MIT
 *
 * Addresses of units: from a class word to the index of the word, from an index and a bit to the
 * unit, and from a pointer back to both.
 *
 * STRUCTURE  See sized_heap.h. A bitmap word has three numbers: `class_word` among the words of
 *            its class, from 0; `bitmap_word` within the bitmap of its region; `word_index` among
 *            the words of all regions. A unit is a word index and a bit index, 0 to 31. If the word
 *            is in the contiguous regions at the front of the class's table, its index is computed
 *            without a load from the table.
 *
 * INVARIANT  A stale class map leads to a region that the class has or had, or to none. In the
 *            first bitmap of a region that it no longer has all bits are set. In a second bitmap
 *            the caller checks the owner once it holds a bit (ga_sized_class_owns()); a region with
 *            a live unit keeps its owner, so the answer stays true. The bit is one of the owner's
 *            units, because words that a stale class map leads to, and the owner does not use, are
 *            full.
 *
 * ORDER      KS1 here is the partner of KS2 in sized_grow.h: a region's bitmap has been cleared
 *            before a class publishes the region.
 *
 * PROGRESS   Nothing waits.
 */
#ifndef GPUALLOC_SLAB_CLASSES_SIZED_PLACES_H
#define GPUALLOC_SLAB_CLASSES_SIZED_PLACES_H

#include "../../../simt/simt.h"
#include "sized_heap.h"

/* Units, one for each lane: a word index, GA_SIZED_NONE for none, and a bit index. */
typedef struct ga_sized_units {
    ga_lanes word_indices;
    ga_lanes bit_indices;
} ga_sized_units;

/* Load a word of the class map or table. On the GPU the value may come from the multiprocessor's L1
 * cache and be stale. Then it is 0, or leads to a region that the class had, and a search loads
 * again. New values were released at device scope, and the atomics that follow on the bitmaps are
 * performed in L2. On the CPU, KS1: acquire. Pairs with KS2 (sized_grow.h). */
GA_SIMT uint32_t ga_sized_load_map_word(const uint32_t *word)
{
#ifdef __CUDACC__
    return *word;
#elif GA_PLANTED(sized_class_map_relaxed)
    return ga_load_relaxed(word);
#else
    return ga_load_acquire(word); /* KS1. Pairs with KS2 (sized_grow.h). */
#endif
}

/* The class map, by two loads on the GPU. May be stale, as for ga_sized_load_map_word(). */
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

/* The index of the class word, which is below `total_words`. */
GA_SIMT uint32_t ga_sized_word_index(ga_sized_view heap, ga_sized_class_map map,
                                     uint32_t class_word)
{
    uint32_t region = (uint32_t)((uint64_t)class_word * map.factor >> GA_SIZED_SHIFT(map));
    uint32_t within = class_word - region * map.words;
    uint32_t stride = ga_sized_stride_bits(heap.region_bits);
    if (region < GA_SIZED_CONTIGUOUS(map)) { /* saves a load */
        return ((map.first + region) << stride) + within;
    }
    uint32_t entry = ga_sized_load_map_word(map.table + region);
    uint32_t second = entry & GA_SIZED_SPENT ? 1u << ga_sized_bitmap_bits(heap.region_bits) : 0;
    /* the shift drops GA_SIZED_SPENT */
    return entry ? ((entry - 1u) << stride) + second + within : GA_SIZED_NONE;
}

/* True if the word is in the first bitmap of its region. */
GA_SIMT bool ga_sized_in_first_bitmap(ga_sized_view heap, uint32_t word_index)
{
    return !(word_index >> ga_sized_bitmap_bits(heap.region_bits) & 1u);
}

/* True if the class has the word, of which the caller holds bits. */
GA_SIMT bool ga_sized_class_owns(ga_sized_view heap, uint32_t class_, uint32_t word_index)
{
    if (ga_sized_in_first_bitmap(heap, word_index) || GA_PLANTED(sized_owner_not_checked)) {
        return true;
    }
    /* relaxed: KU1 acquired the owner that was stored before these bits were cleared for another
     * class. */
    uint32_t owner =
        ga_load_relaxed(heap.owners + (word_index >> ga_sized_stride_bits(heap.region_bits)));
    return ga_sized_owner_class(owner) == class_ && owner & GA_SIZED_SECOND;
}

/* A word, as two numbers that need fewer instructions to find and to turn into a pointer. */
typedef struct ga_sized_position {
    uint32_t region;
    uint32_t bitmap_word;
} ga_sized_position;

/* The position of the class word, which may be any number. False if it is not in the contiguous
 * regions. These have at least two words each, so GA_SIZED_SHIFT() is at least 32, and the upper
 * half of the product is enough. */
GA_SIMT bool ga_sized_locate_contiguous(ga_sized_class_map map, uint32_t class_word,
                                        ga_sized_position *position)
{
    uint32_t nth = ga_bits_down(ga_bits_high32(class_word, map.factor), map.contiguous);
    position->region = map.first + nth;
    position->bitmap_word = class_word - nth * map.words;
    return nth < GA_SIZED_CONTIGUOUS(map);
}

GA_SIMT uint32_t ga_sized_position_index(ga_sized_view heap, ga_sized_position position)
{
    return (position.region << ga_sized_stride_bits(heap.region_bits)) + position.bitmap_word;
}

/* The home word of warp `number`: the word of that number. Numbers beyond the class's last word
 * wrap round, and if few blocks are live at a time that is most of them. False if the home word is
 * not in the contiguous regions, or the class has no region. */
GA_SIMT bool ga_sized_home_position(ga_sized_class_map map, uint32_t number,
                                    ga_sized_position *home)
{
    uint32_t class_word =
        number < map.total_words ? number : ga_bits_round(number, map.total_words);
    return ga_sized_locate_contiguous(map, class_word, home);
}

/* The unit of that bit of the word. */
GA_SIMT char *ga_sized_position_pointer(ga_sized_view heap, uint32_t unit,
                                        ga_sized_position position, uint32_t bit_index)
{
    char *region = ga_bits_element(heap.units, position.region, 1u << heap.region_bits);
    return region + (position.bitmap_word * 32u + bit_index) * unit; /* below 2^31 in a region */
}

/* The unit of that bit of the word. */
GA_SIMT char *ga_sized_pointer(ga_sized_view heap, uint32_t unit, uint32_t word_index,
                               uint32_t bit_index)
{
    uint64_t region = word_index >> ga_sized_stride_bits(heap.region_bits);
    uint32_t slot =
        (word_index & ga_bits_below(ga_sized_bitmap_bits(heap.region_bits))) * 32u + bit_index;
    return heap.units + (region << heap.region_bits) + slot * unit; /* below 2^31 in a region */
}

/* The owner of the region that `pointer` is in; any owner if it is in none. The value is not used
 * here, so that the load is in flight while the caller does something else. */
GA_SIMT uint32_t ga_sized_load_owner(ga_sized_view heap, const void *pointer)
{
    uint64_t region = (uint64_t)((const char *)pointer - heap.units) >> heap.region_bits;
    /* relaxed: a thread that has a unit of the region got it after the region got its class */
    return ga_load_relaxed(heap.owners + (region < heap.regions ? region : 0));
}

/* The unit that `pointer` is in, given the answer of ga_sized_load_owner(). None if the pointer is
 * in a run (sized_runs.h), or if the region has a flag beside its class. */
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
    found.bit_index = slot % 32u;
    found.offset = within - slot * unit;
    return found;
}

/* The unit that `pointer` is in, for any flags of the region. */
GA_SIMT ga_sized_found ga_sized_find(ga_sized_view heap, const void *pointer)
{
    uint32_t owner = ga_sized_load_owner(heap, pointer);
    ga_sized_found found =
        ga_sized_find_with_owner(heap, ga_sized_owner_class(owner) + 1u, pointer);
    found.word_index += ga_sized_bitmap_index(heap.region_bits, 0, owner);
    return found;
}

#endif
