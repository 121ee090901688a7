/* SPDX-License-Identifier: MIT
 *
 * What the words of a ga_kernel_heap of the kind GA_KERNEL_KIND_SIZED hold.
 */
#ifndef GPUALLOC_SLAB_SIZED_WORDS_H
#define GPUALLOC_SLAB_SIZED_WORDS_H

enum {
    GA_SIZED_WORD_HEAP = 0, /* the ga_sized_heap, in device memory */
    GA_SIZED_WORD_UNITS,    /* its first region */
    GA_SIZED_WORD_BITS,     /* its bitmaps */
    GA_SIZED_WORD_SHAPE /* low byte: log2 of a region's bytes; the flags below; from bit 11 on how many
                               regions there may be, below 2^21; high half: how many classes */
};

#define GA_SIZED_FLAG_CHECK 0x100u
#define GA_SIZED_AT_REGIONS 11u

#define GA_SIZED_WORDS_REGION_BITS(words) ((uint32_t)(words)[GA_SIZED_WORD_SHAPE] & 0xffu)
#define GA_SIZED_WORDS_REGIONS(words)                                                              \
    ((uint32_t)(words)[GA_SIZED_WORD_SHAPE] >> GA_SIZED_AT_REGIONS)
#define GA_SIZED_WORDS_CHECK(words)                                                                \
    (((uint32_t)(words)[GA_SIZED_WORD_SHAPE] & GA_SIZED_FLAG_CHECK) != 0)

#endif
