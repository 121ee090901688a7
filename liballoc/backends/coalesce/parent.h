/* SPDX-License-Identifier: MIT
 *
 * The parent of a coalescing heap, in kernels: where superblocks come from. Blocks are aligned to
 * 16 bytes. Accesses to a block happen before those of its next owner, if they happen before the
 * release.
 *
 *     GA_BELOW_CUDA     CUDA's own malloc and free in kernels; cannot find blocks
 *     GA_BELOW_SIZED    slabs of all sizes (slab/classes/sized_kernel.h): finds blocks
 *     GA_BELOW_HOST     host memory, through a table of functions: the CPU compilation
 *
 * A parent that finds blocks returns the beginning of the live block that contains an address. If
 * `noted`, it also keeps a note, four words, for each block of the layer above it. If it finds no
 * block, the address is not in its memory. Beside blocks with notes it may have plain blocks,
 * which have none, and which it finds by their first byte alone.
 *
 * The code below includes the slab's: kernels have no ops table by which a backend could call
 * its parent.
 */
#ifndef GPUALLOC_COALESCE_PARENT_H
#define GPUALLOC_COALESCE_PARENT_H

#include "wide.h"

#ifdef __CUDACC__
#include "../../device/kinds.h"
#include "../slab/classes/sized_kernel.h"
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
    uint64_t words[GA_PARENT_WORDS]; /* of the parent's view, if GA_BELOW_SIZED */
} ga_parent;

typedef struct ga_parent_found {
    char *start;    /* NULL: not in a block of the parent */
    uint32_t *note; /* the block's note; NULL: a plain block */
} ga_parent_found;

#ifndef __CUDACC__
/* GA_BELOW_HOST: the first word points to this. Called from any thread. */
typedef struct ga_parent_host {
    void *(*claim)(void *own, uint64_t bytes);
    void (*release)(void *own, void *block);
    ga_parent_found (*find)(void *own, const void *pointer); /* NULL: cannot find blocks */
    void (*make_plain)(void *own, void *block);              /* NULL: has no plain blocks */
    uint64_t (*usable)(void *own, const void *block);        /* the block's bytes */
    void *own;
} ga_parent_host;
#endif

#ifdef __CUDACC__
/* The bytes of the note before each block of slabs. */
GA_SIMT uint32_t ga_parent_note_bytes(ga_parent parent)
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

/* One block by one lane. It begins at a random bit of the warp's home word, because the leaders of
 * warps that share the word would otherwise contend for one bit. */
GA_SIMT char *ga_parent_claim_sized(ga_parent parent, uint64_t bytes)
{
    ga_sized_view view = ga_sized_view_of_kernel(ga_parent_sized(parent));
    uint32_t class_ = ga_sized_class_of(view, bytes + ga_parent_note_bytes(parent));
    if (class_ == GA_SIZED_NONE) {
        char *run =
            (char *)ga_sized_kernel_claim_run(view.heap, bytes + ga_parent_note_bytes(parent), 1u);
        return run ? run + ga_parent_note_bytes(parent) : NULL;
    }
    uint32_t number = ga_slab_warp();
    uint32_t word_index =
        ga_sized_home_word(view, ga_sized_load_class_map(view.heap->of + class_), number);
    /* relaxed: a guess; the atomic decides */
    uint32_t free = word_index == GA_SIZED_NONE ? 0 : ~ga_load_relaxed(view.bits + word_index);
    uint32_t bit = ga_sized_pick(free, 1, ga_tile_noise() & 31u);
    bit = bit ? ga_sized_claim_bits(view, class_, word_index, bit) : 0;
    char *block =
        bit ? ga_sized_pointer(view, ga_sized_unit(class_), word_index, ga_bits_lowest(bit))
            : (char *)ga_sized_claim_lone_slow(view.heap, class_, ga_sized_rough_number(), number,
                                               ga_warp_lane());
    return block ? block + ga_parent_note_bytes(parent) : NULL;
}

GA_SIMT ga_parent_found ga_parent_find_sized(ga_parent parent, const void *pointer)
{
    ga_sized_view view = ga_sized_view_of_kernel(ga_parent_sized(parent));
    ga_sized_found found = ga_sized_find(view, pointer);
    ga_parent_found answer;
    char *start = found.class_ != GA_SIZED_NONE ? (char *)pointer - found.offset
                                                : ga_sized_run_start(view.heap, pointer);
    bool plain = pointer == start;
    bool is_block = start && (plain || (const char *)pointer - start >= GA_PARENT_NOTE);
    answer.start = !is_block ? NULL : plain ? start : start + GA_PARENT_NOTE;
    answer.note = is_block && !plain ? (uint32_t *)start : NULL;
    return answer;
}
#endif

/* ---- for one lane, inside GA_EACH_LANE ------------------------------------------------------- */

GA_SIMT char *ga_parent_claim_alone(ga_parent parent, uint64_t bytes)
{
#ifdef __CUDACC__
    if (parent.kind == GA_BELOW_SIZED) {
        uint32_t note_bytes = ga_parent_note_bytes(parent);
        char *block = (char *)ga_sized_kernel_malloc(ga_parent_sized(parent), bytes + note_bytes);
        return block ? block + note_bytes : NULL;
    }
#ifndef GA_KERNEL_LINKED /* where our malloc replaces CUDA's, CUDA's cannot be called */
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

GA_SIMT void ga_parent_release_lone(ga_parent parent, char *block)
{
#ifdef __CUDACC__
    if (parent.kind == GA_BELOW_SIZED) {
        ga_sized_kernel_free(ga_parent_sized(parent), block - ga_parent_note_bytes(parent));
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

/* The note of a block that the caller has just claimed, from a parent that keeps notes. */
GA_SIMT uint32_t *ga_parent_note(ga_parent parent, char *block)
{
#ifdef __CUDACC__
    if (parent.kind == GA_BELOW_SIZED) {
        return (uint32_t *)(block - GA_PARENT_NOTE);
    }
#endif
    return ga_parent_find(parent, block).note;
}

/* The bytes of a block that was found. */
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

/* One block for the whole tile, or NULL: equal in all lanes. */
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

/* A block for each lane of the mask, 0 for lanes that get none. */
GA_SIMT ga_wide ga_parent_claim_lanes(ga_parent parent, ga_tile tile, uint32_t requesting,
                                      ga_wide bytes)
{
    ga_wide blocks = ga_wide_all(0);
    GA_EACH_LANE(tile, requesting, own)
    {
        uint64_t size = ga_wide_read(bytes, own);
        ga_wide_write(&blocks, own, (uint64_t)ga_parent_claim_alone(parent, size));
    }
    return blocks;
}

/* True if all lanes of the mask request one size class. Then a plain block for each is as good:
 * slabs claim them all by one atomic, and each is freed by itself. */
GA_SIMT bool ga_parent_is_one_class(ga_parent parent, ga_tile tile, uint32_t requesting,
                                    ga_wide sizes)
{
    ga_lanes classes = ga_lanes_all(0);
    uint32_t first = ga_bits_lowest(requesting);
    GA_EACH_LANE(tile, requesting, own)
    {
#ifdef __CUDACC__
        ga_sized_view view = ga_sized_view_of_kernel(ga_parent_sized(parent));
        ga_lane_write(&classes, own, ga_sized_class_of(view, ga_wide_read(sizes, own)));
#else
        ga_lane_write(&classes, own, (uint32_t)(ga_wide_read(sizes, own) / 64u));
#endif
    }
    (void)parent;
    ga_lanes differing = classes ^ ga_lanes_all(ga_lanes_get(tile, classes, first));
    return !(ga_lanes_nonzero(tile, differing) & requesting);
}

/* A plain block for each lane of the mask, 0 for lanes that get none. */
GA_SIMT ga_wide ga_parent_claim_plain(ga_parent parent, ga_tile tile, uint32_t requesting,
                                      ga_wide sizes)
{
    ga_wide blocks = ga_wide_all(0);
    GA_EACH_LANE(tile, requesting, own)
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

GA_SIMT void ga_parent_release_plain(ga_parent parent, ga_tile tile, uint32_t freeing,
                                     ga_wide blocks)
{
    GA_EACH_LANE(tile, freeing, own)
    {
#ifdef __CUDACC__
        ga_sized_kernel_free(ga_parent_sized(parent), (void *)ga_wide_read(blocks, own));
#else
        ga_parent_release_lone(parent, (char *)ga_wide_read(blocks, own));
#endif
    }
}

/* Release the block of each lane of the mask. */
GA_SIMT void ga_parent_release_lanes(ga_parent parent, ga_tile tile, uint32_t freeing,
                                     ga_wide blocks)
{
    GA_EACH_LANE(tile, freeing, own)
    {
        ga_parent_release_lone(parent, (char *)ga_wide_read(blocks, own));
    }
}

#endif
