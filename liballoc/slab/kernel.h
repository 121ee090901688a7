/* SPDX-License-Identifier: MIT
 *
 * The `slab` backend for the place kernel: the heap stands in device memory, kernels claim and
 * free, and the host sets up, adds super blocks between launches, counts and reports. docs/slab.md.
 */
#ifndef GPUALLOC_SLAB_KERNEL_H
#define GPUALLOC_SLAB_KERNEL_H

#include "shape.h"

typedef struct ga_slab_kernel_spec {
    ga_slab_shape shape; /* spread is set here */
    uint32_t first; /* super blocks to begin with, at least 1; all of them with light addressing */
    bool check;     /* the hardened checks */
    bool grows;     /* under kernels, by ga_growing_open(); with light addressing */
} ga_slab_kernel_spec;

typedef struct ga_slab_kernel ga_slab_kernel;

/* The parent is a heap for the device. GA_ERR_SPEC for a shape that cannot be, GA_ERR_MEMORY and
 * GA_ERR_DEVICE where the parent or the driver refuses. */
ga_status ga_slab_kernel_open(ga_slab_kernel **out, const ga_slab_kernel_spec *spec, int device,
                              ga_heap *parent);

/* Gives everything back to the parent. No kernel may use the heap any more. */
void ga_slab_kernel_close(ga_slab_kernel *slab);

/* Adds as many super blocks as there are first, if there may be more and kernels found it hard to
 * find room; waits for the device then. Faults that kernels reported are written to the log. */
ga_status ga_slab_kernel_view(ga_slab_kernel *slab, ga_kernel_heap *out);

/* One unit for the host to hand around, and back. They launch a kernel and wait for it. */
ga_status ga_slab_kernel_alloc(ga_slab_kernel *slab, size_t size, void **out);
ga_status ga_slab_kernel_free(ga_slab_kernel *slab, void *block);

bool ga_slab_kernel_owns(ga_slab_kernel *slab, const void *pointer);
size_t ga_slab_kernel_usable_size(ga_slab_kernel *slab, const void *block);

/* Wait for the device, then: every live unit; exact counts; no unit live any more. */
ga_status ga_slab_kernel_each_live(ga_slab_kernel *slab, ga_visit *visit, void *context);
void ga_slab_kernel_stats(ga_slab_kernel *slab, ga_backend_stats *out);
ga_status ga_slab_kernel_reset(ga_slab_kernel *slab);

/* Around a fork, so that the child finds no lock of a thread that it has not: before it, and after
 * it in parent and child. */
void ga_slab_kernel_fork(ga_slab_kernel *slab, bool before);

#endif
