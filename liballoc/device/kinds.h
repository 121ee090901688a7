/* SPDX-License-Identifier: MIT
 *
 * The values of ga_kernel_heap's members that host and device code agree on.
 */
#ifndef GPUALLOC_DEVICE_KINDS_H
#define GPUALLOC_DEVICE_KINDS_H

/* ga_kernel_heap.abi: raised when a kind or the words of one change their meaning. */
#define GA_KERNEL_HEAP_ABI 1u

/* ga_kernel_heap.kind: whose heap it is, and what its words hold. */
enum {
    GA_KERNEL_KIND_NONE = 0,    /* a cleared struct: every request gets NULL */
    GA_KERNEL_KIND_CUDA = 1,    /* CUDA's own malloc and free in kernels; no words */
    GA_KERNEL_KIND_SLAB = 2,    /* units of one size; slab/slab_words.h */
    GA_KERNEL_KIND_SIZED = 3,   /* blocks of all sizes; slab/sized_words.h */
    GA_KERNEL_KIND_COALESCE = 4 /* what lanes want together; coalesce/coalesce_words.h */
};

#endif
