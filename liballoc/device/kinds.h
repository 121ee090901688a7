/* SPDX-License-Identifier: MIT
 *
 * Values of ga_kernel_heap's members, shared by host and device code.
 */
#ifndef GPUALLOC_DEVICE_KINDS_H
#define GPUALLOC_DEVICE_KINDS_H

/* ga_kernel_heap.abi: incremented when a kind, the words of a kind, or the layout of a heap's
 * memory change, so that device code of another version gets NULL. */
#define GA_KERNEL_HEAP_ABI 3u

/* ga_kernel_heap.kind: the backend of the heap, which determines the content of its words. */
enum {
    GA_KERNEL_KIND_NONE = 0,    /* a zeroed struct: every request returns NULL */
    GA_KERNEL_KIND_CUDA = 1,    /* CUDA's own malloc and free in kernels; no words */
    GA_KERNEL_KIND_SLAB = 2,    /* units of one size; slab/slab_words.h */
    GA_KERNEL_KIND_SIZED = 3,   /* blocks of all sizes; slab/sized_words.h */
    GA_KERNEL_KIND_COALESCE = 4 /* joint requests of lanes; coalesce/coalesce_words.h */
};

#endif
