/* SPDX-License-Identifier: MIT
 *
 * Shared by kernel.c, kernel_units.c and kernel_growing.c: the record of a slab heap in device
 * memory, and work on the device. All work runs on the library's own stream and is waited for.
 */
#ifndef GPUALLOC_SLAB_UNITS_KERNEL_STATE_H
#define GPUALLOC_SLAB_UNITS_KERNEL_STATE_H

#include "../../../platform/cuda_driver.h"
#include "kernel.h"

#include <pthread.h>

struct ga_slab_kernel {
    int device;
    ga_heap *parent;
    bool grows; /* under kernels: `growing` is its memory, `growth` is where kernels request more */
    ga_growing growing;
    ga_growth *growth;
    uint32_t refusal; /* the last reason that was logged */
    ga_slab_shape shape;
    char *book;         /* the bookkeeping, in device memory */
    ga_slab_heap *heap; /* the beginning of `book` */
    ga_slab_heap image; /* as the host wrote it last; the lock guards it and what follows */
    ga_slab_super *supers;
    uint32_t *sorted;
    uint32_t changes; /* the device's `changes` and `full` that have led to growth already */
    uint32_t full;
    uint64_t reported; /* number of reports that have been logged */
    uint64_t invalid;  /* number of invalid frees that have been logged, without checks */
    uint32_t growths;
    pthread_mutex_t lock;
};

/* Enter the device's context and take the heap's lock. Only after GA_OK must the caller call leave,
 * which undoes both. */
ga_status ga_slab_kernel_enter(ga_slab_kernel *slab, ga_cuda_scope *scope);
void ga_slab_kernel_leave(ga_slab_kernel *slab, const ga_cuda_scope *scope);

/* The caller of the functions below holds the lock. Copy from the device. */
ga_status ga_slab_kernel_copy_from(const ga_cuda_scope *scope, void *to, const void *from,
                                   size_t size);

/* Run a kernel of slab_service.cuh with `threads` threads, or fewer: its threads loop over the
 * work. */
ga_status ga_slab_kernel_launch(const ga_slab_kernel *slab, const ga_cuda_scope *scope,
                                const char *name, uint32_t threads, void **parameters);

/* Copy the heap from the device to `now`; log the reports in it. */
ga_status ga_slab_kernel_read_heap(ga_slab_kernel *slab, const ga_cuda_scope *scope,
                                   ga_slab_heap *now);

/* prepare: free all units of new memory and, under the checks, poison them. recount: set the counts
 * of `n` memory blocks from their bitmaps. */
ga_status ga_slab_kernel_prepare(const ga_slab_kernel *slab, const ga_cuda_scope *scope,
                                 void *units, uint64_t size, void *rows, size_t rows_size);
ga_status ga_slab_kernel_recount(const ga_slab_kernel *slab, const ga_cuda_scope *scope,
                                 uint32_t first, uint32_t n);

/* Bytes allocated from the parent. */
uint64_t ga_slab_kernel_held(const ga_slab_kernel *slab);

/* Copy to the device. */
ga_status ga_slab_kernel_copy_to(const ga_cuda_scope *scope, void *to, const void *from,
                                 size_t size);

/* ---- kernel_growing.c: heaps that grow under kernels --------------------------------------- */

/* Allocate the first superblocks and publish them to the device. */
ga_status ga_slab_growing_alloc(ga_slab_kernel *slab, const ga_cuda_scope *scope, uint32_t first);

/* Update `image` with the superblocks that kernels have added; log why growth was refused. */
ga_status ga_slab_growing_refresh(ga_slab_kernel *slab, const ga_cuda_scope *scope);

/* Before a launch: double the number of superblocks if kernels found no room and cannot grow the
 * heap themselves. */
ga_status ga_slab_growing_ahead(ga_slab_kernel *slab, const ga_cuda_scope *scope, bool crowded);

void ga_slab_growing_free(ga_slab_kernel *slab);

#endif
