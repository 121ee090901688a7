/* SPDX-License-Identifier: MIT
 *
 * The blocks of a vmm heap: which are runs and which units, under one lock, and what is done when
 * memory is short.
 *
 * Thread safe but for opening and closing. Errors have their sentence without the backend's name in
 * front. Where memory that streams still use is all there is, ga_vmm_take() waits for it, without
 * the lock.
 */
#ifndef GPUALLOC_ARENA_VMM_BLOCKS_H
#define GPUALLOC_ARENA_VMM_BLOCKS_H

#include "vmm_packed.h"

#include <gpualloc/backend.h>

#include <pthread.h>

enum {
    GA_VMM_GROWINGS = 8 /* memories that grow under kernels, open at once */
};

typedef struct ga_vmm {
    ga_vmm_pool pool;
    ga_vmm_packed packed;
    pthread_mutex_t lock;                 /* all of this */
    uint64_t total;                       /* bytes that there are at all */
    uint64_t live_bytes, live_blocks;     /* usable bytes */
    uint64_t decay_period, decayed_at;    /* milliseconds from one look for old memory to the next,
                                             and when the last one was */
    ga_growing growings[GA_VMM_GROWINGS]; /* vmm_growing.h */
    bool lost; /* in a child of fork(): the driver's memory is the parent's */
} ga_vmm;

static inline bool ga_vmm_on_device(const ga_vmm *vmm)
{
    return vmm->pool.space.device >= 0;
}

/* A block at a multiple of `align` (a power of two, at least the natural one), for work on *stream,
 * or, where that is NULL, for anybody. */
ga_status ga_vmm_allocate(ga_vmm *vmm, uint64_t size, uint64_t align, const ga_stream *stream,
                          void **out);

/* GA_ERR_POINTER where no live block begins there. */
ga_status ga_vmm_check(ga_vmm *vmm, const void *block);

/* For anybody, at once. GA_ERR_POINTER as above. */
ga_status ga_vmm_free(ga_vmm *vmm, const void *block);

/* For anybody once the work that is now on `stream` is done; for that stream's work at once. */
ga_status ga_vmm_free_on(ga_vmm *vmm, const void *block, ga_stream stream);

/* At least `size` bytes, where it stands. GA_ERR_NO_ROOM, GA_ERR_MEMORY, GA_ERR_POINTER. */
ga_status ga_vmm_grow(ga_vmm *vmm, const void *block, uint64_t size);

/* Cut the block off at `size` bytes, or at the end of the chunk that these end in; on the host at a
 * granule. It stays where it stands. Memory that is cut off is free for anybody at once. A block that shares a run with
 * others stays as it is. GA_ERR_POINTER. */
ga_status ga_vmm_shrink(ga_vmm *vmm, const void *block, uint64_t size);

/* Its bytes; 0 where no live block begins there. */
uint64_t ga_vmm_usable(ga_vmm *vmm, const void *block);

/* Whether it lies in a live block. */
bool ga_vmm_owns(ga_vmm *vmm, const void *pointer);

/* Whether it lies in addresses that the heap has reserved. */
bool ga_vmm_reserves(ga_vmm *vmm, const void *pointer);

/* Wait for what streams still do with freed memory; then cache no more than `keep` bytes. */
ga_status ga_vmm_trim(ga_vmm *vmm, uint64_t keep);

/* Give back memory that has been free for the time of decay=. Calls on blocks do so themselves, when the
 * time for it has come. */
void ga_vmm_decay(ga_vmm *vmm);

/* Let one more device reach every block that there is and will be. */
ga_status ga_vmm_allow(ga_vmm *vmm, int peer);

/* Every block is free; nobody is using any. */
void ga_vmm_reset(ga_vmm *vmm);

/* Those that were live at one moment, called without the lock. GA_ERR_MEMORY. */
ga_status ga_vmm_each_live(ga_vmm *vmm, ga_visit *visit, void *context);

#endif
