/* SPDX-License-Identifier: MIT
 *
 * The `slab` backend for the place kernel. The heap is in device memory. Kernels claim and free;
 * the host sets up, adds superblocks between launches, counts and reports. docs/internals/slab.md.
 */
#ifndef GPUALLOC_SLAB_UNITS_KERNEL_H
#define GPUALLOC_SLAB_UNITS_KERNEL_H

#include "shape.h"

typedef struct ga_slab_kernel_spec {
    ga_slab_shape shape; /* `spread` is ignored */
    uint32_t first; /* superblocks to begin with, at least 1; light addressing has all of them */
    bool check;     /* the hardened checks */
    bool grows;     /* under kernels, by ga_growing_open(); needs light addressing */
} ga_slab_kernel_spec;

typedef struct ga_slab_kernel ga_slab_kernel;

/* The parent is a heap for the device. GA_ERR_SPEC: invalid shape. GA_ERR_MEMORY, GA_ERR_DEVICE:
 * refused by the parent or the driver. */
ga_status ga_slab_kernel_open(ga_slab_kernel **out, const ga_slab_kernel_spec *spec, int device,
                              ga_heap *parent);

/* Free all memory to the parent. No kernel may use the heap any more. */
void ga_slab_kernel_close(ga_slab_kernel *slab);

/* Fill the view for a launch. If kernels found room scarce and the limit allows it, the number of
 * superblocks is doubled first, which waits for the device. Faults that kernels reported go to the
 * log. */
ga_status ga_slab_kernel_view(ga_slab_kernel *slab, ga_kernel_heap *out);

/* Allocate and free one unit for the host. Each launches a kernel and waits for it. */
ga_status ga_slab_kernel_alloc(ga_slab_kernel *slab, size_t size, void **out);
ga_status ga_slab_kernel_free(ga_slab_kernel *slab, void *block);

bool ga_slab_kernel_owns(ga_slab_kernel *slab, const void *pointer);
size_t ga_slab_kernel_usable_size(ga_slab_kernel *slab, const void *block);

/* Wait for the device, then: visit each live unit; count exactly; free all units. */
ga_status ga_slab_kernel_each_live(ga_slab_kernel *slab, ga_visit *visit, void *context);
void ga_slab_kernel_stats(ga_slab_kernel *slab, ga_backend_stats *out);
ga_status ga_slab_kernel_reset(ga_slab_kernel *slab);

/* Before a fork (`before`), and after it in parent and child: holds the lock over the fork, so that
 * the child does not inherit a lock held by another thread. */
void ga_slab_kernel_fork(ga_slab_kernel *slab, bool before);

#endif
