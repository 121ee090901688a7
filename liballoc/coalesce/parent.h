/* SPDX-License-Identifier: MIT
 *
 * Where superblocks come from: what coalescing asks of the layer below it, in kernels. Blocks are
 * aligned to 16 bytes. What was done with a block happens before what its next owner does, if it
 * happens before the release.
 *
 *     GA_BELOW_CUDA     CUDA's own malloc and free in kernels; cannot find
 *     GA_BELOW_SIZED    slabs of all sizes (slab/sized_kernel.h): finds
 *     GA_BELOW_HOST     host memory, through a table of functions: the CPU compilation
 *
 * A parent that finds tells, from an address inside a live block, where that begins, and has a
 * note, four words, for each block that is the layer's above it: where `noted`, and else none.
 * Where it answers that there is none, the address is not its. Beside such blocks it may have
 * plain ones, without a note, which it finds by their first byte alone.
 */
#ifndef GPUALLOC_COALESCE_PARENT_H
#define GPUALLOC_COALESCE_PARENT_H

#include "wide.h"

#ifdef __CUDACC__
#include "../device/kinds.h"
#include "../slab/sized_kernel.h"
#endif

enum {
    GA_BELOW_NONE = 0,
    GA_BELOW_CUDA = 1,
    GA_BELOW_SIZED = 2,
    GA_BELOW_HOST = 3
};

enum {
    GA_PARENT_WORDS = 4,
    GA_PARENT_NOTE = 16 /* bytes before a block of slabs, where its note is */
};

typedef struct ga_parent {
    uint32_t kind;
    bool noted;
    uint64_t words[GA_PARENT_WORDS]; /* the parent's own; GA_BELOW_SIZED: of its view */
} ga_parent;

typedef struct ga_parent_found {
    char *start;    /* NULL: no block of the parent's */
    uint32_t *note; /* the words that are kept for it; NULL: it is a plain one */
} ga_parent_found;

#ifndef __CUDACC__
/* GA_BELOW_HOST: what the first word points to. From any thread. */
typedef struct ga_parent_host {
    void *(*claim)(void *own, uint64_t bytes);
    void (*release)(void *own, void *block);
    ga_parent_found (*find)(void *own, const void *pointer); /* NULL: cannot */
    void (*make_plain)(void *own, void *block);              /* NULL: has none such */
    uint64_t (*usable)(void *own, const void *block);        /* its bytes */
    void *own;
} ga_parent_host;
#endif

#ifdef __CUDACC__
/* The bytes before each block of slabs. */
GA_SIMT uint32_t ga_parent_before(ga_parent parent)
{
    return parent.noted ? GA_PARENT_NOTE : 0;
}

GA_SIMT ga_kernel_heap ga_parent_sized(ga_parent parent)
{
    ga_kernel_heap heap;
    heap.abi = GA_KERNEL_HEAP_ABI;
    heap.kind = GA_KERNEL_KIND_SIZED;
    for (uint32_t i = 0; i < GA_PARENT_WORDS; i++) {
        heap.words[i] = parent.words[i];
    }
    return heap;
}

/* One block by one lane, from any bit of its warp's word: else the leaders of all warps would want
 * the same ones. */
GA_SIMT char *ga_parent_claim_sized(ga_parent parent, uint64_t bytes)
{
    ga_sized_view view = ga_sized_view_of_kernel(ga_parent_sized(parent));
    uint32_t class_ = ga_sized_class_of(view, bytes + ga_parent_before(parent));
    if (class_ == GA_SIZED_NONE) {
        char *run =
            (char *)ga_sized_kernel_claim_run(view.heap, bytes + ga_parent_before(parent), 1u);
        return run ? run + ga_parent_before(parent) : NULL;
    }
    uint32_t key;
    uint32_t number = ga_slab_warp();
    uint32_t bits = ga_sized_claim_group(view, class_, 1, number, ga_tile_noise() & 31u, &key);
    char *block = bits ? ga_sized_pointer(view, ga_sized_unit(class_), key, ga_bits_lowest(bits))
                       : (char *)ga_sized_claim_slow_same(view.heap, 1u << ga_warp_lane(), class_,
                                                          number, key, 0);
    return block ? block + ga_parent_before(parent) : NULL;
}

GA_SIMT ga_parent_found ga_parent_find_sized(ga_parent parent, const void *pointer)
{
    ga_sized_view view = ga_sized_view_of_kernel(ga_parent_sized(parent));
    ga_sized_found found = ga_sized_find(view, pointer);
    ga_parent_found answer;
    char *start = found.class_ != GA_SIZED_NONE ? (char *)pointer - found.offset
                                                : ga_sized_run_start(view.heap, pointer);
    bool plain = pointer == start;
    bool is_one = start && (plain || (const char *)pointer - start >= GA_PARENT_NOTE);
    answer.start = !is_one ? NULL : plain ? start : start + GA_PARENT_NOTE;
    answer.note = is_one && !plain ? (uint32_t *)start : NULL;
    return answer;
}
#endif

/* ---- for one lane, inside GA_EACH_LANE ------------------------------------------------------- */

GA_SIMT char *ga_parent_claim_alone(ga_parent parent, uint64_t bytes)
{
#ifdef __CUDACC__
    if (parent.kind == GA_BELOW_SIZED) {
        uint32_t before = ga_parent_before(parent);
        char *block = (char *)ga_sized_kernel_malloc(ga_parent_sized(parent), bytes + before);
        return block ? block + before : NULL;
    }
#ifndef GA_KERNEL_LINKED /* where malloc is ours, there is no way to CUDA's */
    if (parent.kind == GA_BELOW_CUDA) {
        return (char *)malloc(bytes);
    }
#endif
#else
    if (parent.kind == GA_BELOW_HOST) {
        ga_parent_host *host = (ga_parent_host *)parent.words[0];
        return (char *)host->claim(host->own, bytes);
    }
#endif
    return NULL;
}

GA_SIMT void ga_parent_release_alone(ga_parent parent, char *block)
{
#ifdef __CUDACC__
    if (parent.kind == GA_BELOW_SIZED) {
        ga_sized_kernel_free(ga_parent_sized(parent), block - ga_parent_before(parent));
    }
#ifndef GA_KERNEL_LINKED
    if (parent.kind == GA_BELOW_CUDA) {
        free(block);
    }
#endif
#else
    if (parent.kind == GA_BELOW_HOST) {
        ga_parent_host *host = (ga_parent_host *)parent.words[0];
        host->release(host->own, block);
    }
#endif
}

GA_SIMT ga_parent_found ga_parent_find(ga_parent parent, const void *pointer)
{
    ga_parent_found none;
    none.start = NULL;
    none.note = NULL;
#ifdef __CUDACC__
    if (parent.kind == GA_BELOW_SIZED) {
        return ga_parent_find_sized(parent, pointer);
    }
#else
    if (parent.kind == GA_BELOW_HOST) {
        ga_parent_host *host = (ga_parent_host *)parent.words[0];
        return host->find ? host->find(host->own, pointer) : none;
    }
#endif
    (void)pointer;
    return none;
}

/* The note of a block that the caller has just claimed, from a parent that has notes. */
GA_SIMT uint32_t *ga_parent_note(ga_parent parent, char *block)
{
#ifdef __CUDACC__
    if (parent.kind == GA_BELOW_SIZED) {
        return (uint32_t *)(block - GA_PARENT_NOTE);
    }
#endif
    return ga_parent_find(parent, block).note;
}

/* The bytes of a block that has been found. */
GA_SIMT uint64_t ga_parent_usable(ga_parent parent, ga_parent_found found)
{
#ifdef __CUDACC__
    if (parent.kind == GA_BELOW_SIZED) {
        const char *start = found.note ? (const char *)found.note : found.start;
        uint64_t bytes = ga_sized_kernel_usable_size(ga_parent_sized(parent), start);
        return bytes - (uint64_t)(found.start - start);
    }
#else
    if (parent.kind == GA_BELOW_HOST) {
        ga_parent_host *host = (ga_parent_host *)parent.words[0];
        return host->usable(host->own, found.start);
    }
#endif
    (void)found;
    return 0;
}

/* ---- for a tile ------------------------------------------------------------------------------ */

/* One block for the whole tile, or NULL: the same in all lanes. */
GA_SIMT char *ga_parent_claim(ga_parent parent, ga_tile tile, uint64_t bytes)
{
    uint32_t leader = ga_tile_leader(tile);
    ga_wide block = ga_wide_all(0);
    GA_EACH_LANE(tile, 1u << leader, own)
    {
#ifdef __CUDACC__
        if (parent.kind == GA_BELOW_SIZED) {
            ga_wide_write(&block, own, (uint64_t)ga_parent_claim_sized(parent, bytes));
        } else
#endif
        {
            ga_wide_write(&block, own, (uint64_t)ga_parent_claim_alone(parent, bytes));
        }
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

/* Whether the lanes of the mask are served as well by a plain block each: slabs have one for each
 * lane by one atomic where all want the same class, and each goes back by itself. */
GA_SIMT bool ga_parent_serves_plainly(ga_parent parent, ga_tile tile, uint32_t wanting,
                                      ga_wide sizes)
{
    ga_lanes kinds = ga_lanes_all(0);
    uint32_t first = ga_bits_lowest(wanting);
    GA_EACH_LANE(tile, wanting, own)
    {
#ifdef __CUDACC__
        ga_sized_view view = ga_sized_view_of_kernel(ga_parent_sized(parent));
        ga_lane_write(&kinds, own, ga_sized_class_of(view, ga_wide_read(sizes, own)));
#else
        ga_lane_write(&kinds, own, (uint32_t)(ga_wide_read(sizes, own) / 64u));
#endif
    }
    (void)parent;
    ga_lanes others = kinds ^ ga_lanes_all(ga_lanes_get(tile, kinds, first));
    return !(ga_lanes_nonzero(tile, others) & wanting);
}

/* A plain block for each lane of the mask, 0 for those that get none. */
GA_SIMT ga_wide ga_parent_claim_plain(ga_parent parent, ga_tile tile, uint32_t wanting,
                                      ga_wide sizes)
{
    ga_wide blocks = ga_wide_all(0);
    GA_EACH_LANE(tile, wanting, own)
    {
        uint64_t size = ga_wide_read(sizes, own);
#ifdef __CUDACC__
        void *block = ga_sized_kernel_malloc(ga_parent_sized(parent), size);
#else
        ga_parent_host *host = (ga_parent_host *)parent.words[0];
        void *block = host->claim(host->own, size + (size ? 0 : 1u));
        if (block) {
            host->make_plain(host->own, block);
        }
#endif
        ga_wide_write(&blocks, own, (uint64_t)block);
    }
    return blocks;
}

GA_SIMT void ga_parent_release_plain(ga_parent parent, ga_tile tile, uint32_t giving,
                                     ga_wide blocks)
{
    GA_EACH_LANE(tile, giving, own)
    {
#ifdef __CUDACC__
        ga_sized_kernel_free(ga_parent_sized(parent), (void *)ga_wide_read(blocks, own));
#else
        ga_parent_release_alone(parent, (char *)ga_wide_read(blocks, own));
#endif
    }
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
