/* SPDX-License-Identifier: MIT
 *
 * The words of a ga_kernel_heap of the kind GA_KERNEL_KIND_COALESCE, for the host that fills them
 * and the kernels that read them.
 */
#ifndef GPUALLOC_COALESCE_COALESCE_WORDS_H
#define GPUALLOC_COALESCE_COALESCE_WORDS_H

#include <gpualloc/gpualloc.h>

enum {
    GA_COALESCE_WORD_PARENT = 0, /* four words of the parent's view (sized_words.h) */
    GA_COALESCE_WORD_HEAP = 4,   /* the ga_coalesce_heap, in device memory */
    GA_COALESCE_WORD_SHAPE       /* low half: `max`; high half: the fields below */
};

/* First bit of each field in the high half, and how many bits it has. */
#define GA_COALESCE_AT_FORM   0u  /* 4 */
#define GA_COALESCE_AT_PARENT 4u  /* 4: GA_BELOW_CUDA ... */
#define GA_COALESCE_AT_BARE   8u  /* 4 */
#define GA_COALESCE_AT_NOTED  12u /* 1 */
#define GA_COALESCE_AT_STATIC                                                                      \
    16u /* 4: the static kind of ga_coalesce_malloc(), GA_COALESCE_HB ... */
#define GA_COALESCE_AT_SINGLE 20u /* 1 */

#define GA_COALESCE_WORDS_MAX(words) ((uint32_t)(words)[GA_COALESCE_WORD_SHAPE])
#define GA_COALESCE_WORDS_BITS(words, at)                                                          \
    ((uint32_t)((words)[GA_COALESCE_WORD_SHAPE] >> (32u + (at))) & 15u)

/* The paper's names: with Headers or Not, for a Block or a Warp. */
enum {
    GA_COALESCE_HB = 0,
    GA_COALESCE_NB,
    GA_COALESCE_HW, /* not in the paper, where HW is the dynamic allocator */
    GA_COALESCE_NW
};

#endif
