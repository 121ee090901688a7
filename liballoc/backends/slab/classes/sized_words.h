/* SPDX-License-Identifier: MIT
 *
 * The words of a ga_kernel_heap of the kind GA_KERNEL_KIND_SIZED. A view of the kind
 * GA_KERNEL_KIND_COALESCE begins with those of its parent, so that the fast path of malloc is one
 * for both kinds.
 */
#ifndef GPUALLOC_SLAB_CLASSES_SIZED_WORDS_H
#define GPUALLOC_SLAB_CLASSES_SIZED_WORDS_H

enum {
    GA_SIZED_WORD_HEAP = 0, /* address of the ga_sized_heap, in device memory */
    GA_SIZED_WORD_UNITS,    /* address of its first region */
    GA_SIZED_WORD_BITS,     /* address of its bitmaps */
    /* low byte: log2 of the bytes of a region; then flags; from bit 11 on the most regions, below
     * 2^21; upper half: number of classes */
    GA_SIZED_WORD_SHAPE
};

#define GA_SIZED_FLAG_CHECK 0x100u
#define GA_SIZED_FLAG_PLAIN 0x200u /* a small block is a unit, without header or check */
#define GA_SIZED_AT_REGIONS 11u

#define GA_SIZED_WORDS_REGION_BITS(words) ((uint32_t)(words)[GA_SIZED_WORD_SHAPE] & 0xffu)
#define GA_SIZED_WORDS_REGIONS(words)                                                              \
    ((uint32_t)(words)[GA_SIZED_WORD_SHAPE] >> GA_SIZED_AT_REGIONS)
#define GA_SIZED_WORDS_CHECK(words)                                                                \
    (((uint32_t)(words)[GA_SIZED_WORD_SHAPE] & GA_SIZED_FLAG_CHECK) != 0)
#define GA_SIZED_WORDS_PLAIN(words)                                                                \
    (((uint32_t)(words)[GA_SIZED_WORD_SHAPE] & GA_SIZED_FLAG_PLAIN) != 0)

#endif
