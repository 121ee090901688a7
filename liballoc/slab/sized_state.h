/* SPDX-License-Identifier: MIT
 *
 * What sized.c and sized_blocks.c share: the record of a heap of all sizes in device memory, and work on
 * the device, all of it on the library's own stream and waited for.
 */
#ifndef GPUALLOC_SLAB_SIZED_STATE_H
#define GPUALLOC_SLAB_SIZED_STATE_H

#include "sized.h"

#include "../platform/cuda_driver.h"
#include "sized_heap.h"

#include <pthread.h>

enum {
    GA_SIZED_BLOCK_THREADS = 256, /* threads of a block of the service kernels */
    GA_SIZED_GRID_BLOCKS = 512    /* blocks, at most */
};

struct ga_sized {
    int device;
    ga_heap *parent;
    bool grows;
    ga_growing growing;
    uint32_t region_bits, regions; /* the most */
    char *bookkeeping;             /* the bookkeeping, on the device */
    size_t bookkeeping_size;
    ga_sized_heap *heap; /* its beginning */
    ga_growth *growth;
    void *fixed; /* where the parent does not grow: all regions */
    ga_sized_heap image;
    uint64_t refused;        /* requests that had got nothing when the view was made last */
    uint32_t refusal;        /* the reason for the last one that was logged */
    uint64_t reports_logged; /* reports of kernels that the log has had */
    bool initialised;        /* the bookkeeping has been written */
    pthread_mutex_t lock;
};

static inline uint64_t ga_sized_region_size(const ga_sized *sized)
{
    return UINT64_C(1) << sized->region_bits;
}

/* Of the two bitmaps of a region. */
static inline uint64_t ga_sized_bits_size(const ga_sized *sized)
{
    return sizeof(uint32_t) << ga_sized_stride_bits(sized->region_bits);
}

/* Enter the device's context and the heap's lock; leave undoes both, after GA_OK only. */
ga_status ga_sized_enter(ga_sized *sized, ga_cuda_scope *scope);
void ga_sized_leave(ga_sized *sized, const ga_cuda_scope *scope);

/* The rest under the lock. Copy from the device. */
ga_status ga_sized_get(const ga_cuda_scope *scope, void *to, const void *from, size_t size);

/* Run a kernel of sized_service.cuh with that many threads, or as many as fit: it goes round. */
ga_status ga_sized_launch(const ga_sized *sized, const ga_cuda_scope *scope, const char *name,
                          uint32_t threads, void **parameters);

/* Wait for all that the device was given. */
ga_status ga_sized_wait(const ga_cuda_scope *scope);

/* The heap as kernels have left it; their reports go to the log. */
ga_status ga_sized_inspect(ga_sized *sized, const ga_cuda_scope *scope, ga_sized_heap *now);

/* What kernels get. */
void ga_sized_fill_view(const ga_sized *sized, ga_kernel_heap *out);

#endif
