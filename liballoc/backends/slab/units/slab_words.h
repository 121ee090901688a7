/* SPDX-License-Identifier: MIT
 *
 * The words of a ga_kernel_heap of the kind GA_KERNEL_KIND_SLAB: the host fills them, kernels read
 * them.
 */
#ifndef GPUALLOC_SLAB_UNITS_SLAB_WORDS_H
#define GPUALLOC_SLAB_UNITS_SLAB_WORDS_H

#include <gpualloc/gpualloc.h>

enum {
    GA_SLAB_WORD_HEAP = 0, /* the ga_slab_heap, in device memory */
    GA_SLAB_WORD_FREE,     /* its counts of free units */
    GA_SLAB_WORD_ROWS,     /* light addressing: its bitmaps; otherwise 0 */
    GA_SLAB_WORD_UNITS,    /* light addressing: its units */
    GA_SLAB_WORD_COUNT,    /* number of bitmap words when the view was made */
    GA_SLAB_WORD_UNIT      /* low half: a unit's bytes; high half: flags */
};

#define GA_SLAB_FLAG_SHIFT   31u  /* mask: log2 of the power of two in a unit's bytes */
#define GA_SLAB_FLAG_ODD     32u  /* a unit's bytes are not a power of two */
#define GA_SLAB_FLAG_CHECK   64u  /* the hardened checks are on */
#define GA_SLAB_FLAG_GENERAL 128u /* checks or two-level addressing: no call is fast */
#define GA_SLAB_FLAG_GROWS   256u /* grows under kernels, so the number of words is a past one */

/* A free with one of these has to divide to get from an address to a unit. */
#define GA_SLAB_FLAGS_DIVIDE (GA_SLAB_FLAG_GENERAL | GA_SLAB_FLAG_ODD)

#define GA_SLAB_WORDS_COUNT(words) ((uint32_t)(words)[GA_SLAB_WORD_COUNT])
#define GA_SLAB_WORDS_UNIT(words)  ((uint32_t)(words)[GA_SLAB_WORD_UNIT])
#define GA_SLAB_WORDS_FLAGS(words) ((uint32_t)((words)[GA_SLAB_WORD_UNIT] >> 32))

/* Free units are filled with this word under the hardened checks. */
#define GA_SLAB_POISON 0xf4eef4eeu

#endif
