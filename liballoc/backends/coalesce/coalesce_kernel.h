/* SPDX-License-Identifier: MIT
 *
 * Coalescing in kernels: makes a view from the words that a kernel was passed, and calls the
 * algorithms of coalesce_tile.h and coalesce_static.h. Programs call gpualloc/device.cuh and
 * gpualloc/coalesce.cuh.
 *
 * ga_coalesce_kernel_malloc              any lanes of a warp
 * ga_coalesce_kernel_malloc_plain        lanes in a heap over slabs, without headers, that fell off
 *                                        the slabs' fast path
 * ga_coalesce_kernel_static_malloc       all threads of a warp or a block
 * ga_coalesce_kernel_free                frees any of these
 * ga_coalesce_general_...                out of line, for callers that serve several kinds of heaps
 */
#ifndef GPUALLOC_COALESCE_COALESCE_KERNEL_H
#define GPUALLOC_COALESCE_COALESCE_KERNEL_H

#include "coalesce_static.h"
#include "coalesce_words.h"

/* A program whose coalescing heaps are all over slabs and without headers (`coalesce/slab`) may
 * define GA_COALESCE_ONLY_SIZED before it includes this header: the other code is then not
 * compiled, which saves registers. */
GA_SIMT ga_coalesce_view ga_coalesce_view_of_kernel(ga_kernel_heap heap)
{
    ga_coalesce_view view;
    view.heap = (ga_coalesce_heap *)heap.words[GA_COALESCE_WORD_HEAP];
    view.form = GA_COALESCE_WORDS_BITS(heap.words, GA_COALESCE_AT_FORM);
    view.bare = GA_COALESCE_WORDS_BITS(heap.words, GA_COALESCE_AT_BARE);
    view.max = GA_COALESCE_WORDS_MAX(heap.words);
    view.parent.kind = GA_COALESCE_WORDS_BITS(heap.words, GA_COALESCE_AT_PARENT);
    view.parent.noted = (GA_COALESCE_WORDS_BITS(heap.words, GA_COALESCE_AT_NOTED) & 1u) != 0;
    for (uint32_t i = 0; i < GA_PARENT_WORDS; i++) {
        view.parent.words[i] = heap.words[GA_COALESCE_WORD_PARENT + i];
    }
    view.plain = view.form == GA_COALESCE_HEADERLESS;
    view.single = GA_COALESCE_WORDS_BITS(heap.words, GA_COALESCE_AT_SINGLE) != 0;
#ifdef GA_COALESCE_ONLY_SIZED
    view.form = GA_COALESCE_HEADERLESS;
    view.plain = true;
    view.bare = GA_COALESCE_NO_BARE;
    view.parent.kind = GA_BELOW_SIZED;
    view.parent.noted = true;
#endif
    return view;
}

/* ---- dynamic coalescing: any lanes ----------------------------------------------------------- */

GA_SIMT void *ga_coalesce_kernel_malloc(ga_kernel_heap heap, size_t size)
{
    ga_tile tile = ga_tile_present();
    ga_wide payload = ga_coalesce_claim(ga_coalesce_view_of_kernel(heap), tile,
                                        ga_tile_members(tile), ga_wide_all(size));
    return (void *)ga_wide_read(payload, 0);
}

/* ---- heaps over slabs without headers: the slabs serve the fast path ------------------------- */

/* The view of a heap whose words have GA_SIZED_FLAG_PLAIN: small blocks may be plain units of the
 * slabs below, which the caller can allocate and free without this header's code. The fields that
 * are always the same are constants for the compiler. */
GA_SIMT ga_coalesce_view ga_coalesce_view_of_plain(ga_kernel_heap heap)
{
    ga_coalesce_view view = ga_coalesce_view_of_kernel(heap);
    view.form = GA_COALESCE_HEADERLESS;
    view.plain = true;
    view.single = false;
    view.bare = GA_COALESCE_NO_BARE;
    view.parent.kind = GA_BELOW_SIZED;
    view.parent.noted = true;
    return view;
}

/* For lanes of such a heap that request several size classes, or large blocks. */
GA_SIMT void *ga_coalesce_kernel_malloc_plain(ga_kernel_heap heap, size_t size)
{
    ga_tile tile = ga_tile_present();
    ga_wide payload = ga_coalesce_claim(ga_coalesce_view_of_plain(heap), tile,
                                        ga_tile_members(tile), ga_wide_all(size));
    return (void *)ga_wide_read(payload, 0);
}

/* For lanes that free pointers which are no units of the slabs. */
GA_SIMT void ga_coalesce_kernel_free_plain(ga_kernel_heap heap, void *payload)
{
    ga_tile tile = ga_tile_present();
    ga_coalesce_free_lanes(ga_coalesce_view_of_plain(heap), tile, ga_tile_members(tile),
                           ga_wide_all((uint64_t)payload));
}

/* ---- dynamic coalescing: alignment, and calls out of line ------------------------------------ */

/* In a heap without headers: a payload that free accepts by any address inside it, not its first
 * alone, so that the caller can align further. Not with check=full. */
GA_SIMT void *ga_coalesce_kernel_malloc_wide(ga_kernel_heap heap, size_t size)
{
    ga_tile tile = ga_tile_present();
    ga_coalesce_view view = ga_coalesce_view_of_kernel(heap);
    view.plain = false;
    ga_wide payload = ga_coalesce_claim(view, tile, ga_tile_members(tile), ga_wide_all(size));
    return (void *)ga_wide_read(payload, 0);
}

/* True if the heap frees a payload by any address inside it. */
GA_SIMT bool ga_coalesce_kernel_frees_inside(ga_kernel_heap heap)
{
    return GA_COALESCE_WORDS_BITS(heap.words, GA_COALESCE_AT_FORM) == GA_COALESCE_HEADERLESS;
}

/* check=full: blocks come from the parent one by one, with the parent's alignments. */
GA_SIMT_SLOW void *ga_coalesce_single_aligned(ga_kernel_heap heap, size_t align, size_t size)
{
    ga_kernel_heap below = ga_parent_sized(ga_coalesce_view_of_kernel(heap).parent);
    void *block = ga_sized_kernel_aligned_alloc(below, align, size);
    if ((size_t)block % align) { /* the parent's memory does not begin at a multiple of `align` */
        ga_sized_kernel_free(below, block);
        block = NULL;
    }
    return block;
}

/* `size` bytes at a multiple of `align`, a power of two, in a heap without headers: the payload is
 * larger by `align`, and the result points into it. */
GA_SIMT void *ga_coalesce_kernel_malloc_aligned(ga_kernel_heap heap, size_t align, size_t size)
{
    if (GA_COALESCE_WORDS_BITS(heap.words, GA_COALESCE_AT_SINGLE)) {
        return ga_coalesce_single_aligned(heap, align, size);
    }
    size_t padded_size = size <= ~align ? size + align : ~(size_t)0; /* that much fails */
    char *payload = (char *)ga_coalesce_kernel_malloc_wide(heap, padded_size);
    return payload ? payload + (align - (size_t)payload % align) % align : NULL;
}

/* In a heap with headers: the segment is larger by `align`, and its header is right before the
 * aligned payload. */
GA_SIMT void *ga_coalesce_kernel_malloc_headed(ga_kernel_heap heap, size_t align, size_t size)
{
    ga_tile tile = ga_tile_present();
    bool is_possible = align <= GA_COALESCE_ALIGN_MAX;
    ga_wide payload =
        ga_coalesce_claim_aligned(ga_coalesce_view_of_kernel(heap), tile, ga_tile_members(tile),
                                  ga_wide_all(is_possible ? size : ~(uint64_t)0),
                                  ga_lanes_all(is_possible ? (uint32_t)align : 1u));
    return (void *)ga_wide_read(payload, 0);
}

/* The alignment that all payloads of a heap of that form have. */
GA_SIMT uint32_t ga_coalesce_kernel_alignment(ga_kernel_heap heap)
{
    uint32_t form = GA_COALESCE_WORDS_BITS(heap.words, GA_COALESCE_AT_FORM);
    return form == GA_COALESCE_AUTO ? 2u : form == GA_COALESCE_EIGHT ? 8u : GA_COALESCE_ALIGN;
}

GA_SIMT void ga_coalesce_kernel_free(ga_kernel_heap heap, void *payload)
{
    ga_tile tile = ga_tile_present();
    ga_coalesce_free_lanes(ga_coalesce_view_of_kernel(heap), tile, ga_tile_members(tile),
                           ga_wide_all((uint64_t)payload));
}

/* The calls above as functions out of line, for callers that serve several kinds of heaps: so they
 * pay no registers for this one. */
GA_SIMT_SLOW void *ga_coalesce_general_malloc(ga_kernel_heap heap, size_t size)
{
    return ga_coalesce_kernel_malloc(heap, size);
}

GA_SIMT_SLOW void *ga_coalesce_general_aligned(ga_kernel_heap heap, size_t align, size_t size)
{
    if (align <= ga_coalesce_kernel_alignment(heap)) {
        return ga_coalesce_kernel_malloc(heap, size);
    }
    return ga_coalesce_kernel_frees_inside(heap)
               ? ga_coalesce_kernel_malloc_aligned(heap, align, size)
               : ga_coalesce_kernel_malloc_headed(heap, align, size);
}

GA_SIMT_SLOW void ga_coalesce_general_free(ga_kernel_heap heap, void *payload)
{
    ga_coalesce_kernel_free(heap, payload);
}

/* ---- sizes: each lane for itself ------------------------------------------------------------- */

/* Usable bytes of the payload; 0 for pointers that are seen to be invalid. */
GA_SIMT_SLOW size_t ga_coalesce_general_usable_size(ga_kernel_heap heap, const void *payload)
{
    return ga_coalesce_usable(ga_coalesce_view_of_kernel(heap), (const char *)payload);
}

/* True for each calling lane whose payload, of `usable` bytes, can stay where it is with `size`
 * bytes. The slabs decide for plain blocks. A segment stays as long as it has the room, because it
 * would not be freed alone. */
GA_SIMT_SLOW bool ga_coalesce_general_resize(ga_kernel_heap heap, void *payload, size_t usable,
                                             size_t size)
{
    ga_coalesce_view view = ga_coalesce_view_of_kernel(heap);
    if (view.plain) {
        ga_parent_found found = ga_parent_find(view.parent, payload);
        if (found.start && !found.note) {
            return ga_sized_kernel_resize(ga_parent_sized(view.parent), payload, usable, size);
        }
    }
    return size <= usable;
}

/* ---- static coalescing: all threads of a warp or a block ------------------------------------- */

/* The caller's rank among the threads of its block, and their number. */
GA_SIMT uint32_t ga_coalesce_rank(void)
{
    return (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
}

GA_SIMT uint32_t ga_coalesce_team(void)
{
    return blockDim.x * blockDim.y * blockDim.z;
}

/* The lanes of the caller's warp that belong to its block. */
GA_SIMT ga_tile ga_coalesce_warp(void)
{
    uint32_t left = ga_coalesce_team() - (ga_coalesce_rank() & ~31u);
    return left >= 32u ? ga_tile_of(32) : ga_tile_among(ga_bits_below(left));
}

GA_SIMT void *ga_coalesce_kernel_warp_malloc(ga_kernel_heap heap, bool bare, size_t size)
{
    ga_coalesce_view view = ga_coalesce_view_of_kernel(heap);
    ga_wide payload = ga_static_claim(view, ga_coalesce_warp(), bare, size);
    return (void *)ga_wide_read(payload, 0);
}

/* All threads of a block for which there is no superblock, or of which some have no room in the
 * map: those without a payload make dynamic requests. If one of these fails, all free theirs, and
 * all get NULL. */
GA_SIMT_SLOW void *ga_coalesce_block_malloc_slow(ga_kernel_heap heap, void *payload, size_t size)
{
    void *block = payload ? payload : ga_coalesce_kernel_malloc(heap, size);
    if (__syncthreads_or(block == NULL)) {
        ga_coalesce_kernel_free(heap, block);
        block = NULL;
    }
    return block;
}

/* The first thread claims the superblock, and shared memory passes its address to the others. Only
 * a map may have no room for some of the payloads, so only with a map the threads meet again. */
GA_SIMT void *ga_coalesce_kernel_block_malloc(ga_kernel_heap heap, bool bare, size_t size)
{
    static __shared__ char *block;
    ga_coalesce_view view = ga_coalesce_view_of_kernel(heap);
    ga_static_plan plan = ga_static_plan_of(view, bare, size);
    char *payload = NULL;
    __syncthreads(); /* all have read the previous call's address */
    if (ga_coalesce_rank() == 0) {
        block = ga_static_begin(view, ga_tile_among(1u), plan, ga_coalesce_team());
    }
    __syncthreads();
    if (block) {
        payload = ga_static_place(view, plan, block, ga_coalesce_rank());
        if (plan.kind != GA_STATIC_MAPPED || !__syncthreads_or(payload == NULL)) {
            return payload;
        }
    }
    return ga_coalesce_block_malloc_slow(heap, payload, size);
}

/* The kind of static coalescing that the heap was opened with. */
GA_SIMT void *ga_coalesce_kernel_static_malloc(ga_kernel_heap heap, size_t size)
{
    uint32_t kind = GA_COALESCE_WORDS_BITS(heap.words, GA_COALESCE_AT_STATIC);
    bool bare = kind == GA_COALESCE_NB || kind == GA_COALESCE_NW;
    return kind <= GA_COALESCE_NB ? ga_coalesce_kernel_block_malloc(heap, bare, size)
                                  : ga_coalesce_kernel_warp_malloc(heap, bare, size);
}

/* ---- begin and end of a program -------------------------------------------------------------- */

/* The threads of a block enter or leave, which one of them counts; when the last of the grid has
 * left, the number of entries left in the map is stored. */
GA_SIMT void ga_coalesce_kernel_enter(ga_kernel_heap heap)
{
    ga_coalesce_view view = ga_coalesce_view_of_kernel(heap);
    if (ga_coalesce_rank() == 0) {
        ga_post_add64_relaxed(&view.heap->inside, ga_coalesce_team()); /* relaxed: a count */
    }
}

/* `threads` leave, after all their frees. By one of them. */
GA_SIMT void ga_coalesce_kernel_leave_some(ga_kernel_heap heap, uint32_t threads)
{
    ga_coalesce_view view = ga_coalesce_view_of_kernel(heap);
    /* CL1: release and acquire. Pairs with itself: the others have made their frees. */
    if (ga_add64_acq_rel(&view.heap->inside, 0 - (uint64_t)threads) == threads) {
        ga_store64_relaxed(&view.heap->left, ga_load_relaxed(&view.heap->map.live));
    }
}

GA_SIMT void ga_coalesce_kernel_leave(ga_kernel_heap heap)
{
    __syncthreads(); /* all have made their frees */
    if (ga_coalesce_rank() == 0) {
        ga_coalesce_kernel_leave_some(heap, ga_coalesce_team());
    }
}

#endif
