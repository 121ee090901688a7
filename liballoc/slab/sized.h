/* SPDX-License-Identifier: MIT
 *
 * Heaps of all sizes for kernels, the host's side: `slab:unit=classes` in the place kernel. sized_tile.h
 * has what kernels do; docs/slab.md tells of it.
 *
 * Thread safe. What asks the device waits for it.
 */
#ifndef GPUALLOC_SLAB_SIZED_H
#define GPUALLOC_SLAB_SIZED_H

#include <gpualloc/backend.h>

typedef struct ga_sized_spec {
    uint64_t capacity; /* bytes of regions to begin with */
    uint64_t limit;    /* the most; 0: what the device has */
    bool grows;        /* the parent has memory that grows under kernels */
    bool check;        /* the hardened checks */
} ga_sized_spec;

typedef struct ga_sized ga_sized;

/* The parent is a heap for the device. GA_ERR_SPEC for less than a region, GA_ERR_MEMORY and
 * GA_ERR_DEVICE where the parent or the driver refuses. */
ga_status ga_sized_open(ga_sized **out, const ga_sized_spec *spec, int device, ga_heap *parent);

/* Gives everything back to the parent. No kernel may use the heap any more. */
void ga_sized_close(ga_sized *sized);

/* What kernels need. Where they were refused memory since the last time, it waits for the device, and
 * regions in which nothing is taken go back to the pool; where kernels cannot grow the heap, it grows. */
ga_status ga_sized_kernel_view(ga_sized *sized, ga_kernel_heap *out);

/* A block for the host to hand around, at a multiple of `align`, a power of two (0: 16), and back. They
 * launch a kernel and wait for it. */
ga_status ga_sized_alloc(ga_sized *sized, size_t size, size_t align, void **out);
ga_status ga_sized_free(ga_sized *sized, void *block);

bool ga_sized_owns(ga_sized *sized, const void *pointer);
size_t ga_sized_usable_size(ga_sized *sized, const void *block);

/* Wait for the device, then: every live block; exact counts; none live any more; regions in which nothing
 * is taken go back to the pool. */
ga_status ga_sized_each_live(ga_sized *sized, ga_visit *visit, void *context);
void ga_sized_stats(ga_sized *sized, ga_backend_stats *out);
ga_status ga_sized_reset(ga_sized *sized);
ga_status ga_sized_collect(ga_sized *sized);

/* Around a fork, as ga_slab_kernel_fork(). */
void ga_sized_fork(ga_sized *sized, bool before);

#endif
