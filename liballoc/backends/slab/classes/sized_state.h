/* SPDX-License-Identifier: MIT
 *
 * For sized.c and sized_blocks.c: the host's record of a kernel heap with size classes, and work on
 * the device. All of it runs on the library's own stream, and the caller waits for it.
 */
#ifndef GPUALLOC_SLAB_CLASSES_SIZED_STATE_H
#define GPUALLOC_SLAB_CLASSES_SIZED_STATE_H

#include "sized.h"

#include "../../../platform/cuda_driver.h"
#include "sized_heap.h"

#include <pthread.h>

enum {
    GA_SIZED_BLOCK_THREADS = 256, /* threads of a block of the service kernels */
    GA_SIZED_GRID_BLOCKS = 512    /* most blocks of a grid */
};

struct ga_sized {
    int device;
    ga_heap *parent;
    bool grows;
    ga_growing growing;
    uint32_t region_bits, regions; /* the most */
    char *bookkeeping;             /* in device memory */
    size_t bookkeeping_size;
    ga_sized_heap *heap; /* the beginning of `bookkeeping` */
    ga_growth *growth;
    void *fixed; /* all regions, if the parent does not grow */
    ga_sized_heap image;
    uint64_t refused;        /* refused requests at the time of the last view */
    uint32_t refusal;        /* reason of the last one that was logged */
    uint64_t reports_logged; /* number of kernels' reports in the log */
    uint64_t invalid_logged; /* number of invalid frees in the log, without checks */
    bool initialised;        /* the bookkeeping has been written */
    pthread_mutex_t lock;
};

static inline uint64_t ga_sized_region_size(const ga_sized *sized)
{
    return UINT64_C(1) << sized->region_bits;
}

/* Bytes of the two bitmaps of a region. */
static inline uint64_t ga_sized_bits_size(const ga_sized *sized)
{
    return sizeof(uint32_t) << ga_sized_stride_bits(sized->region_bits);
}

/* Enter the device's context and lock the heap. Leave undoes both; call it only after GA_OK. */
ga_status ga_sized_enter(ga_sized *sized, ga_cuda_scope *scope);
void ga_sized_leave(ga_sized *sized, const ga_cuda_scope *scope);

/* All of the following need the lock. Copy from the device. */
ga_status ga_sized_get(const ga_cuda_scope *scope, void *to, const void *from, size_t size);

/* Run a kernel of sized_service.cuh with `threads` threads, or as many as fit: it loops. */
ga_status ga_sized_launch(const ga_sized *sized, const ga_cuda_scope *scope, const char *name,
                          uint32_t threads, void **parameters);

/* Wait for all work of the device's context. */
ga_status ga_sized_wait(const ga_cuda_scope *scope);

/* Copy the heap as kernels have left it, and write their reports to the log. */
ga_status ga_sized_inspect(ga_sized *sized, const ga_cuda_scope *scope, ga_sized_heap *now);

/* The view for kernels. */
void ga_sized_fill_view(const ga_sized *sized, ga_kernel_heap *out);

#endif
