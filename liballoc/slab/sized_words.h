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
    GA_SIZED_WORD_SHAPE     /* low half: log2 of a region's bytes; high half: how many classes */
};

#endif
