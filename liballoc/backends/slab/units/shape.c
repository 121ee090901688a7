/* SPDX-License-Identifier: MIT
 *
 * Arithmetic on shapes.
 */
#include "shape.h"

enum {
    PAPER_UNIT_BITS = 7,   /* 128 bytes */
    PAPER_BLOCK_BITS = 14, /* address bits for the memory block at that size */
    NUMBER_BITS = 32
};

/* The binary logarithm of `x` (at least 1), rounded up. */
static uint32_t log2_up(uint32_t x)
{
    return x == 1 ? 0 : 32u - (uint32_t)__builtin_clz(x - 1);
}

uint32_t ga_slab_block_bits(uint32_t unit)
{
    return PAPER_BLOCK_BITS + PAPER_UNIT_BITS - log2_up(unit);
}

uint64_t ga_slab_reach(uint32_t unit)
{
    return ((UINT64_C(1) << NUMBER_BITS) - GA_SLAB_BLOCK_UNITS) * unit;
}

/* Memory blocks of a superblock, and units of the heap; UINT64_MAX if that is out of range. */
static uint64_t block_count(const ga_slab_shape *shape)
{
    return shape->super_bits < 64 ? UINT64_C(1) << shape->super_bits : UINT64_MAX;
}

static uint64_t unit_count(const ga_slab_shape *shape)
{
    uint32_t bits = NUMBER_BITS - GA_SLAB_BLOCK_BITS;
    return shape->super_bits <= bits ? (shape->supers * block_count(shape)) << GA_SLAB_BLOCK_BITS
                                     : UINT64_MAX;
}

ga_status ga_slab_shape_check(const ga_slab_shape *shape)
{
    uint32_t unit = shape->unit;
    if (unit < GA_SLAB_UNIT_MIN || unit > GA_SLAB_UNIT_MAX || unit % GA_SLAB_UNIT_MIN) {
        return ga_fail(GA_ERR_SPEC, "slab: unit: expected a multiple of %d from %d to %d, got %u",
                       GA_SLAB_UNIT_MIN, GA_SLAB_UNIT_MIN, GA_SLAB_UNIT_MAX, unit);
    }
    if (!shape->light && shape->super_bits > ga_slab_block_bits(unit)) {
        return ga_fail(GA_ERR_SPEC,
                       "slab: blocks: expected at most %u memory blocks of units of %u bytes in a "
                       "superblock, got %llu",
                       1u << ga_slab_block_bits(unit), unit,
                       (unsigned long long)block_count(shape));
    }
    uint32_t super_bits = NUMBER_BITS - GA_SLAB_BLOCK_BITS - ga_slab_block_bits(unit);
    if (!shape->light && shape->supers > 1u << super_bits) {
        return ga_fail(GA_ERR_SPEC,
                       "slab: expected at most %u superblocks of units of %u bytes (32-bit "
                       "addresses), got %u",
                       1u << super_bits, unit, shape->supers);
    }
    if (!shape->supers || unit_count(shape) > (1ull << NUMBER_BITS) - GA_SLAB_BLOCK_UNITS) {
        return ga_fail(GA_ERR_SPEC,
                       "slab: expected 1 to %llu units of %u bytes (32-bit addresses), got %llu",
                       (1ull << NUMBER_BITS) - GA_SLAB_BLOCK_UNITS, unit,
                       (unsigned long long)unit_count(shape));
    }
    return GA_OK;
}

uint64_t ga_slab_super_bytes(const ga_slab_shape *shape)
{
    return (uint64_t)shape->unit << (shape->super_bits + GA_SLAB_BLOCK_BITS);
}

size_t ga_slab_super_rows_bytes(const ga_slab_shape *shape)
{
    return (size_t)GA_SLAB_ROW_WORDS * sizeof(uint32_t) << shape->super_bits;
}

size_t ga_slab_counts_bytes(const ga_slab_shape *shape)
{
    uint64_t blocks = (uint64_t)shape->supers << shape->super_bits;
    uint64_t group = 1ull << (shape->spread + 5);
    return (size_t)((blocks + group - 1) / group * group * sizeof(uint32_t));
}

void ga_slab_heap_shape(ga_slab_heap *heap, const ga_slab_shape *shape)
{
    uint32_t shift = (uint32_t)__builtin_ctz(shape->unit);
    heap->unit = shape->unit;
    heap->shift = shift;
    heap->inverse = shape->unit >> shift == 1 ? 0 : UINT64_MAX / (shape->unit >> shift) + 1;
    heap->spread = shape->spread;
    heap->super_bits = shape->super_bits;
    heap->super_bytes = ga_slab_super_bytes(shape);
    heap->address_bits = ga_slab_block_bits(shape->unit) + GA_SLAB_BLOCK_BITS;
}
