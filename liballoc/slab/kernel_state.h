/* SPDX-License-Identifier: MIT
 *
 * What kernel.c and kernel_units.c share: the record of a slab heap in device memory, and work on
 * the device, all of it on the library's own stream and waited for.
 */
#ifndef GPUALLOC_SLAB_KERNEL_STATE_H
#define GPUALLOC_SLAB_KERNEL_STATE_H

#include "../platform/cuda_driver.h"
#include "kernel.h"

#include <pthread.h>

struct ga_slab_kernel {
    int device;
    ga_heap *parent;
    bool grows; /* under kernels: then this is its memory, and where kernels ask for more */
    ga_growing growing;
    ga_growth *growth;
    uint32_t refusal; /* the reason for the last one that was logged */
    ga_slab_shape shape;
    char *book;         /* the bookkeeping, on the device */
    ga_slab_heap *heap; /* its beginning */
    ga_slab_heap image; /* guarded by lock, like what follows */
    ga_slab_super *supers;
    uint32_t *sorted;
    uint32_t changes; /* those that have led to a super block, and the same of `full` */
    uint32_t full;
    uint64_t reported; /* reports that have been logged */
    uint32_t growths;
    pthread_mutex_t lock;
};

/* Enter the device's context and the heap's lock; leave undoes both, after GA_OK only. */
ga_status ga_slab_kernel_enter(ga_slab_kernel *slab, ga_cuda_scope *scope);
void ga_slab_kernel_leave(ga_slab_kernel *slab, const ga_cuda_scope *scope);

/* The rest under the lock. Copy from the device. */
ga_status ga_slab_kernel_copy_from(const ga_cuda_scope *scope, void *to, const void *from,
                                   size_t size);

/* Run a kernel of slab_service.cuh with that many threads, or as many as fit: it goes round. */
ga_status ga_slab_kernel_launch(const ga_slab_kernel *slab, const ga_cuda_scope *scope,
                                const char *name, uint32_t threads, void **parameters);

/* The heap as kernels have left it; its reports go to the log. */
ga_status ga_slab_kernel_read_heap(ga_slab_kernel *slab, const ga_cuda_scope *scope,
                                   ga_slab_heap *now);

/* No unit is taken, and under the checks all have been free for ever. The counts are made anew by
 * the second: those of `n` memory blocks. */
ga_status ga_slab_kernel_prepare(const ga_slab_kernel *slab, const ga_cuda_scope *scope,
                                 void *units, uint64_t size, void *rows, size_t rows_size);
ga_status ga_slab_kernel_recount(const ga_slab_kernel *slab, const ga_cuda_scope *scope,
                                 uint32_t first, uint32_t n);

/* Bytes taken from the parent. */
uint64_t ga_slab_kernel_held(const ga_slab_kernel *slab);

/* Copy to the device. */
ga_status ga_slab_kernel_copy_to(const ga_cuda_scope *scope, void *to, const void *from,
                                 size_t size);

/* ---- kernel_growing.c: heaps that grow under kernels --------------------------------------- */

/* The first super blocks, and the device told of them. */
ga_status ga_slab_growing_alloc(ga_slab_kernel *slab, const ga_cuda_scope *scope, uint32_t first);

/* What kernels have grown since becomes part of `image`; why they were refused more goes to the
 * log. */
ga_status ga_slab_growing_refresh(ga_slab_kernel *slab, const ga_cuda_scope *scope);

/* Before a launch: where kernels cannot grow it and found no room, twice as much. */
ga_status ga_slab_growing_ahead(ga_slab_kernel *slab, const ga_cuda_scope *scope, bool crowded);

void ga_slab_growing_free(ga_slab_kernel *slab);

#endif
