/* SPDX-License-Identifier: MIT
 *
 * Where superblocks come from: what coalescing asks of the layer below it, in kernels. Blocks are
 * aligned to 16 bytes. What was done with a block happens before what its next owner does, if it
 * happens before the release.
 *
 *     GA_PARENT_CUDA     CUDA's own malloc and free in kernels
 *     GA_PARENT_HOST     host memory, through a table of functions: the CPU compilation
 *
 * A parent that finds tells, from an address inside a live block, where that begins, and has a word
 * for each block that is the layer's above it. Where it answers that there is none, the address is
 * not its.
 */
#ifndef GPUALLOC_COALESCE_PARENT_H
#define GPUALLOC_COALESCE_PARENT_H

#include "wide.h"

enum {
    GA_PARENT_NONE = 0,
    GA_PARENT_CUDA = 1,
    GA_PARENT_HOST = 2
};

typedef struct ga_parent {
    void *heap; /* the parent's own */
    uint32_t kind;
} ga_parent;

typedef struct ga_parent_found {
    char *start;    /* NULL: no block of the parent's */
    uint32_t *note; /* the word that is kept for it */
} ga_parent_found;

#ifndef __CUDACC__
/* GA_PARENT_HOST: what `heap` points to. From any thread. */
typedef struct ga_parent_host {
    void *(*claim)(void *own, uint64_t bytes);
    void (*release)(void *own, void *block);
    ga_parent_found (*find)(void *own, const void *pointer); /* NULL: cannot */
    void *own;
} ga_parent_host;
#endif

/* ---- for one lane, inside GA_EACH_LANE ------------------------------------------------------- */

GA_SIMT char *ga_parent_claim_alone(ga_parent parent, uint64_t bytes)
{
#ifndef __CUDACC__
    if (parent.kind == GA_PARENT_HOST) {
        ga_parent_host *host = (ga_parent_host *)parent.heap;
        return (char *)host->claim(host->own, bytes);
    }
#elif !defined GA_COALESCE_WITHOUT_CUDA
    if (parent.kind == GA_PARENT_CUDA) {
        return (char *)malloc(bytes);
    }
#endif
    return NULL;
}

GA_SIMT void ga_parent_release_alone(ga_parent parent, char *block)
{
#ifndef __CUDACC__
    if (parent.kind == GA_PARENT_HOST) {
        ga_parent_host *host = (ga_parent_host *)parent.heap;
        host->release(host->own, block);
    }
#elif !defined GA_COALESCE_WITHOUT_CUDA
    if (parent.kind == GA_PARENT_CUDA) {
        free(block);
    }
#endif
}

GA_SIMT ga_parent_found ga_parent_find(ga_parent parent, const void *pointer)
{
    ga_parent_found none;
    none.start = NULL;
    none.note = NULL;
#ifndef __CUDACC__
    if (parent.kind == GA_PARENT_HOST) {
        ga_parent_host *host = (ga_parent_host *)parent.heap;
        return host->find ? host->find(host->own, pointer) : none;
    }
#endif
    (void)pointer;
    return none;
}

/* ---- for a tile ------------------------------------------------------------------------------ */

/* One block for the whole tile, or NULL: the same in all lanes. */
GA_SIMT char *ga_parent_claim(ga_parent parent, ga_tile tile, uint64_t bytes)
{
    uint32_t leader = ga_tile_leader(tile);
    ga_wide block = ga_wide_all(0);
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        ga_wide_write(&block, own, (uint64_t)ga_parent_claim_alone(parent, bytes));
    }
    ga_tile_sync(tile);
    return (char *)ga_wide_get(tile, block, leader);
}

/* A block for each lane of the mask, 0 for those that get none. */
GA_SIMT ga_wide ga_parent_claim_lanes(ga_parent parent, ga_tile tile, uint32_t wanting,
                                      ga_wide bytes)
{
    ga_wide blocks = ga_wide_all(0);
    GA_EACH_LANE(tile, wanting, own)
    {
        uint64_t size = ga_wide_read(bytes, own);
        ga_wide_write(&blocks, own, (uint64_t)ga_parent_claim_alone(parent, size));
    }
    return blocks;
}

/* A block of each lane of the mask goes back. */
GA_SIMT void ga_parent_release_lanes(ga_parent parent, ga_tile tile, uint32_t giving,
                                     ga_wide blocks)
{
    GA_EACH_LANE(tile, giving, own)
    {
        ga_parent_release_alone(parent, (char *)ga_wide_read(blocks, own));
    }
}

#endif
