/* SPDX-License-Identifier: MIT
 *
 * The blocks of a vmm heap under one lock: runs (pool.h) and units (packed.h), and waiting
 * when memory is short.
 *
 * Thread safe, except opening and closing. Error texts do not begin with the backend's name. If
 * only memory that streams still use is left, ga_vmm_allocate() waits for it without the lock.
 */
#ifndef GPUALLOC_VMM_BLOCKS_H
#define GPUALLOC_VMM_BLOCKS_H

#include "packed.h"

#include <gpualloc/backend.h>

#include <pthread.h>

enum {
    GA_VMM_GROWINGS = 8 /* open memories that grow under kernels, at most */
};

typedef struct ga_vmm {
    ga_vmm_pool pool;
    ga_vmm_packed packed;
    pthread_mutex_t lock; /* guards everything here */
    uint64_t total;       /* bytes of memory that the device has; on the host a bound of sizes */
    uint64_t live_bytes, live_blocks; /* usable bytes */
    /* Milliseconds between two checks for old memory, and the time of the last. */
    uint64_t decay_period, decayed_at;
    ga_growing growings[GA_VMM_GROWINGS]; /* growing.h */
    bool lost; /* child of fork(): the driver's memory belongs to the parent */
} ga_vmm;

static inline bool ga_vmm_on_device(const ga_vmm *vmm)
{
    return vmm->pool.space.device >= 0;
}

/* Allocate a block at a multiple of `align` (a power of two, at least the natural alignment), for
 * work on *stream, or for any use if `stream` is NULL. */
ga_status ga_vmm_allocate(ga_vmm *vmm, uint64_t size, uint64_t align, const ga_stream *stream,
                          void **out);

/* GA_ERR_POINTER if no live block begins there. */
ga_status ga_vmm_check(ga_vmm *vmm, const void *block);

/* Free the block at once, for any stream. GA_ERR_POINTER as above. */
ga_status ga_vmm_free(ga_vmm *vmm, const void *block);

/* Free the block: at once for work on `stream`, for other streams once the work that is on `stream`
 * now is done. */
ga_status ga_vmm_free_on(ga_vmm *vmm, const void *block, ga_stream stream);

/* Extend the block in place to at least `size` bytes. GA_ERR_CANNOT_GROW, GA_ERR_MEMORY,
 * GA_ERR_POINTER. */
ga_status ga_vmm_grow(ga_vmm *vmm, const void *block, uint64_t size);

/* Shrink the block in place to `size` bytes, rounded up to a chunk's end, on the host to a granule.
 * The rest is free for any stream at once. A block that shares a run with others stays as it is.
 * GA_ERR_POINTER. */
ga_status ga_vmm_shrink(ga_vmm *vmm, const void *block, uint64_t size);

/* Usable bytes; 0 if no live block begins there. */
uint64_t ga_vmm_usable(ga_vmm *vmm, const void *block);

/* True if the address lies in a live block. */
bool ga_vmm_owns(ga_vmm *vmm, const void *pointer);

/* True if the address lies in the heap's reservations. */
bool ga_vmm_reserves(ga_vmm *vmm, const void *pointer);

/* Wait for the streams that use freed memory; then cache at most `keep` bytes. */
ga_status ga_vmm_trim(ga_vmm *vmm, uint64_t keep);

/* Release memory that has been free for the time of decay=. Calls on blocks do this themselves when
 * it is due. */
void ga_vmm_decay(ga_vmm *vmm);

/* Let one more device access every block, present and future. */
ga_status ga_vmm_allow(ga_vmm *vmm, int peer);

/* Free every block. No block may be in use. */
void ga_vmm_reset(ga_vmm *vmm);

/* Visit the blocks that were live at one moment. `visit` is called without the lock.
 * GA_ERR_MEMORY. */
ga_status ga_vmm_each_live(ga_vmm *vmm, ga_visit *visit, void *context);

#endif
