/* SPDX-License-Identifier: MIT
 *
 * Conversions between a unit's number, its word in the bitmaps and its address, for both
 * addressings.
 */
#ifndef GPUALLOC_SLAB_UNITS_SLAB_UNITS_H
#define GPUALLOC_SLAB_UNITS_SLAB_UNITS_H

#include "../../../simt/simt.h"
#include "slab_heap.h"

/* ---- rows and units ---------------------------------------------------------------------- */

/* The bitmap row of memory block `block`. */
GA_SIMT uint32_t *ga_slab_row(ga_slab_view slab, uint32_t block)
{
    if (slab.light) {
        return slab.rows + (size_t)block * GA_SLAB_ROW_WORDS;
    }
    const ga_slab_heap *heap = slab.heap;
    uint32_t within = block & ga_bits_below(heap->super_bits);
    return heap->supers[block >> heap->super_bits].rows + (size_t)within * GA_SLAB_ROW_WORDS;
}

GA_SIMT uint32_t *ga_slab_word(ga_slab_view slab, uint32_t word)
{
    if (slab.light) {
        return slab.rows + word;
    }
    return ga_slab_row(slab, word / GA_SLAB_ROW_WORDS) + word % GA_SLAB_ROW_WORDS;
}

/* The address of a unit. */
GA_SIMT void *ga_slab_pointer(ga_slab_view slab, uint32_t unit)
{
    if (slab.light) {
        return slab.units + (uint64_t)unit * slab.unit;
    }
    const ga_slab_heap *heap = slab.heap;
    uint32_t bits = heap->super_bits + GA_SLAB_BLOCK_BITS;
    return heap->supers[unit >> bits].units + (uint64_t)(unit & ga_bits_below(bits)) * slab.unit;
}

/* offset / unit if it is whole and below 2^32, else GA_SLAB_FULL. Multiplying by the inverse is
 * exact, because odd is below 2^12 and the factor below 2^44; for a larger offset the product below
 * differs from it. The rotation moves bits that a power of two does not divide to the top, which
 * makes the number too large. */
GA_SIMT uint32_t ga_slab_divide(ga_slab_view slab, uint64_t offset)
{
    uint64_t number = ga_bits_rotate(offset, slab.shift);
    if (slab.inverse) {
        number = ga_bits_high(offset >> slab.shift, slab.inverse);
        number = number * slab.unit == offset ? number : UINT64_MAX;
    }
    return number >> 32 ? GA_SLAB_FULL : (uint32_t)number;
}

/* Read `super_count` or a word of `sorted`, which on the CPU change when superblocks are added.
 * SG7: acquire. Pairs with SG5 (host.c), so that these superblocks can be reached, and for `sorted`
 * with SG8 there. */
GA_SIMT uint32_t ga_slab_load_shared(const uint32_t *word)
{
#ifdef __CUDACC__
    return *word;
#else
    return ga_load_acquire(word); /* SG7. Pairs with SG5 and SG8. */
#endif
}

/* The number of superblocks. */
GA_SIMT uint32_t ga_slab_super_count(const ga_slab_heap *heap)
{
#if GA_PLANTED(slab_super_count_relaxed)
    return ga_load_relaxed(&heap->super_count);
#else
    return ga_slab_load_shared(&heap->super_count);
#endif
}

/* The superblock that is number `at` in the order of addresses. */
GA_SIMT uint32_t ga_slab_super_sorted(const ga_slab_heap *heap, uint32_t at)
{
#if GA_PLANTED(slab_sorted_relaxed)
    return ga_load_relaxed(heap->sorted + at);
#else
    return ga_slab_load_shared(heap->sorted + at);
#endif
}

/* Search the superblocks one by one, after the binary search has found none. A superblock that is
 * added moves others in `sorted`, so that a binary search may miss one. On the GPU none is added
 * while kernels run. */
GA_SIMT uint32_t ga_slab_unit_scan(ga_slab_view slab, const void *pointer)
{
#ifndef __CUDACC__
    const ga_slab_heap *heap = slab.heap;
    uint32_t supers = ga_slab_super_count(heap);
    for (uint32_t super = 0; super < supers; super++) {
        uint64_t offset = (uint64_t)((const char *)pointer - heap->supers[super].units);
        if (offset < heap->super_bytes) {
            uint32_t unit = ga_slab_divide(slab, offset);
            return unit == GA_SLAB_FULL ? unit
                                        : (super << (heap->super_bits + GA_SLAB_BLOCK_BITS)) + unit;
        }
    }
#endif
    return GA_SLAB_FULL;
}

/* The number of the unit that begins at `pointer`, or GA_SLAB_FULL. With two-level addressing a
 * binary search over `sorted`. */
GA_SIMT uint32_t ga_slab_unit(ga_slab_view slab, const void *pointer)
{
    if (slab.light) {
        uint32_t unit = ga_slab_divide(slab, (uint64_t)((const char *)pointer - slab.units));
        return unit < slab.words * 32u ? unit : GA_SLAB_FULL;
    }
    const ga_slab_heap *heap = slab.heap;
    uint32_t low = 0;
    uint32_t high = ga_slab_super_count(heap); /* if any, it is one of low to high - 1 */
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        uint32_t super = ga_slab_super_sorted(heap, middle);
        const char *units = heap->supers[super].units;
        if ((uintptr_t)pointer < (uintptr_t)units) {
            high = middle;
        } else if ((uint64_t)((const char *)pointer - units) < heap->super_bytes) {
            uint32_t unit = ga_slab_divide(slab, (uint64_t)((const char *)pointer - units));
            return unit == GA_SLAB_FULL ? unit
                                        : (super << (heap->super_bits + GA_SLAB_BLOCK_BITS)) + unit;
        } else {
            low = middle + 1;
        }
    }
    return ga_slab_unit_scan(slab, pointer);
}

/* ---- 32-bit addresses (shape.h): with light addressing, the unit's number -------------------- */

GA_SIMT uint32_t ga_slab_address_of_unit(ga_slab_view slab, uint32_t unit)
{
    if (slab.light || unit == GA_SLAB_FULL) {
        return unit;
    }
    uint32_t bits = slab.heap->super_bits + GA_SLAB_BLOCK_BITS;
    return (unit >> bits) << slab.heap->address_bits | (unit & ga_bits_below(bits));
}

GA_SIMT uint32_t ga_slab_unit_of_address(ga_slab_view slab, uint32_t address)
{
    if (slab.light || address == GA_SLAB_FULL) {
        return address;
    }
    uint32_t bits = slab.heap->super_bits + GA_SLAB_BLOCK_BITS;
    return (address >> slab.heap->address_bits) << bits | (address & ga_bits_below(bits));
}

#endif
