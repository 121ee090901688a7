/* SPDX-License-Identifier: MIT
 *
 * Kernel heaps with size classes, host side: `slab:unit=classes` in the place kernel.
 * sized_kernel.h is the kernels' side; docs/internals/size-classes.md describes the heap.
 *
 * Thread safe. A call that needs the device waits for it.
 */
#ifndef GPUALLOC_SLAB_CLASSES_SIZED_H
#define GPUALLOC_SLAB_CLASSES_SIZED_H

#include <gpualloc/backend.h>

typedef struct ga_sized_spec {
    uint64_t capacity; /* bytes of regions at first */
    uint64_t limit;    /* the most bytes; 0: the device's memory */
    bool grows;        /* the parent can grow under kernels */
    bool check;        /* hardened checks */
} ga_sized_spec;

typedef struct ga_sized ga_sized;

/* The parent is a heap for the device. GA_ERR_SPEC if the limit is less than a region,
 * GA_ERR_MEMORY and GA_ERR_DEVICE if the parent or the driver fails. */
ga_status ga_sized_open(ga_sized **out, const ga_sized_spec *spec, int device, ga_heap *parent);

/* Frees all memory to the parent. No kernel may use the heap any more. */
void ga_sized_close(ga_sized *sized);

/* The view for kernels. If kernels were refused memory since the last view, it waits for the device
 * and moves regions without live units to the pool. If kernels cannot grow the heap, it grows the
 * heap. */
ga_status ga_sized_kernel_view(ga_sized *sized, ga_kernel_heap *out);

/* A block for the host to pass to kernels, at a multiple of `align`, a power of two (0: 16), and
 * its free. Both launch a kernel and wait for it. */
ga_status ga_sized_alloc(ga_sized *sized, size_t size, size_t align, void **out);
ga_status ga_sized_free(ga_sized *sized, void *block);

bool ga_sized_owns(ga_sized *sized, const void *pointer);
size_t ga_sized_usable_size(ga_sized *sized, const void *block);

/* Each waits for the device. Visit every live block; exact counts; free all blocks; move regions
 * without live units to the pool. */
ga_status ga_sized_each_live(ga_sized *sized, ga_visit *visit, void *context);
void ga_sized_stats(ga_sized *sized, ga_backend_stats *out);
ga_status ga_sized_reset(ga_sized *sized);
ga_status ga_sized_collect(ga_sized *sized);

/* Around a fork, like ga_slab_kernel_fork(). */
void ga_sized_fork(ga_sized *sized, bool before);

#endif
