/* SPDX-License-Identifier: MIT
 *
 * Coalescing in kernels: from the view that a kernel was handed to the algorithms of
 * coalesce_tile.h and coalesce_static.h. gpualloc/device.cuh and gpualloc/coalesce.cuh have the
 * calls that programs use.
 */
#ifndef GPUALLOC_COALESCE_COALESCE_KERNEL_H
#define GPUALLOC_COALESCE_COALESCE_KERNEL_H

#include "coalesce_static.h"
#include "coalesce_words.h"

/* A program all of whose coalescing heaps are over slabs and without headers (`coalesce/slab`) may
 * define GA_COALESCE_ONLY_SIZED before it includes this: the rest is then not compiled, which saves
 * registers. */
GA_SIMT ga_coalesce_view ga_coalesce_view_of_kernel(ga_kernel_heap heap)
{
    ga_coalesce_view view;
    view.heap = (ga_coalesce_heap *)heap.words[GA_COALESCE_WORD_HEAP];
    view.form = GA_COALESCE_WORDS_BITS(heap.words, GA_COALESCE_AT_FORM);
    view.bare = GA_COALESCE_WORDS_BITS(heap.words, GA_COALESCE_AT_BARE);
    view.most = GA_COALESCE_WORDS_MOST(heap.words);
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

/* ---- heaps whose usual calls are slabs': for who has the rest as functions -------------------- */

/* Whether all of a heap's small blocks may be plain ones of slabs, seen at once. */
GA_SIMT bool ga_coalesce_kernel_is_plain(ga_kernel_heap heap)
{
    const uint32_t form = 15u << GA_COALESCE_AT_FORM;
    const uint32_t single = 15u << GA_COALESCE_AT_SINGLE;
    uint32_t bits = (uint32_t)(heap.words[GA_COALESCE_WORD_SHAPE] >> 32);
    return (bits & (form | single)) == GA_COALESCE_HEADERLESS << GA_COALESCE_AT_FORM;
}

/* The view of such a heap; what is always so there is constant. */
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

/* The view of the slabs below such a heap. */
GA_SIMT ga_sized_view ga_coalesce_kernel_below(ga_kernel_heap heap)
{
    ga_kernel_heap below = heap;
    for (uint32_t i = 0; i < GA_PARENT_WORDS; i++) {
        below.words[i] = heap.words[GA_COALESCE_WORD_PARENT + i];
    }
    return ga_sized_view_of_kernel(below);
}

/* Lanes that want several size classes in such a heap, or large blocks. */
GA_SIMT void *ga_coalesce_kernel_malloc_plain(ga_kernel_heap heap, size_t size)
{
    ga_tile tile = ga_tile_present();
    ga_wide payload = ga_coalesce_claim(ga_coalesce_view_of_plain(heap), tile,
                                        ga_tile_members(tile), ga_wide_all(size));
    return (void *)ga_wide_read(payload, 0);
}

/* Lanes that free what is no unit of its slabs. */
GA_SIMT void ga_coalesce_kernel_free_plain(ga_kernel_heap heap, void *payload)
{
    ga_tile tile = ga_tile_present();
    ga_coalesce_release(ga_coalesce_view_of_plain(heap), tile, ga_tile_members(tile),
                        ga_wide_all((uint64_t)payload));
}

/* ---- dynamic coalescing, further ------------------------------------------------------------- */

/* The same, in a heap without headers: what any address of the block frees, not its first alone.
 * For those who align further. Not so with check=full. */
GA_SIMT void *ga_coalesce_kernel_malloc_wide(ga_kernel_heap heap, size_t size)
{
    ga_tile tile = ga_tile_present();
    ga_coalesce_view view = ga_coalesce_view_of_kernel(heap);
    view.plain = false;
    ga_wide payload = ga_coalesce_claim(view, tile, ga_tile_members(tile), ga_wide_all(size));
    return (void *)ga_wide_read(payload, 0);
}

/* Whether the heap frees a payload by any address inside it. */
GA_SIMT bool ga_coalesce_kernel_frees_inside(ga_kernel_heap heap)
{
    return GA_COALESCE_WORDS_BITS(heap.words, GA_COALESCE_AT_FORM) == GA_COALESCE_HEADERLESS;
}

/* With check=full blocks are the parent's, and so are their alignments. */
GA_SIMT_SLOW void *ga_coalesce_single_aligned(ga_kernel_heap heap, size_t align, size_t size)
{
    ga_kernel_heap below = ga_parent_sized(ga_coalesce_view_of_kernel(heap).parent);
    void *block = ga_sized_kernel_aligned_alloc(below, align, size);
    if ((size_t)block % align) { /* the parent's memory begins at no multiple of it */
        ga_sized_kernel_free(below, block);
        block = NULL;
    }
    return block;
}

/* `size` bytes at a multiple of `align`, a power of two, in such a heap: in a payload that is
 * larger by as much. */
GA_SIMT void *ga_coalesce_kernel_malloc_aligned(ga_kernel_heap heap, size_t align, size_t size)
{
    if (GA_COALESCE_WORDS_BITS(heap.words, GA_COALESCE_AT_SINGLE)) {
        return ga_coalesce_single_aligned(heap, align, size);
    }
    size_t wide = size <= ~align ? size + align : ~(size_t)0; /* which gets nothing */
    char *payload = (char *)ga_coalesce_kernel_malloc_wide(heap, wide);
    return payload ? payload + (align - (size_t)payload % align) % align : NULL;
}

/* The same in a heap with headers: in a segment that is larger by as much, with the header right
 * before the payload. */
GA_SIMT void *ga_coalesce_kernel_malloc_headed(ga_kernel_heap heap, size_t align, size_t size)
{
    ga_tile tile = ga_tile_present();
    bool can = align <= GA_COALESCE_ALIGN_MOST;
    ga_wide payload = ga_coalesce_claim_aligned(
        ga_coalesce_view_of_kernel(heap), tile, ga_tile_members(tile),
        ga_wide_all(can ? size : ~(uint64_t)0), ga_lanes_all(can ? (uint32_t)align : 1u));
    return (void *)ga_wide_read(payload, 0);
}

/* What all payloads of a heap of that form are aligned to. */
GA_SIMT uint32_t ga_coalesce_kernel_natural(ga_kernel_heap heap)
{
    uint32_t form = GA_COALESCE_WORDS_BITS(heap.words, GA_COALESCE_AT_FORM);
    return form == GA_COALESCE_AUTO ? 2u : form == GA_COALESCE_EIGHT ? 8u : GA_COALESCE_ALIGN;
}

GA_SIMT void ga_coalesce_kernel_free(ga_kernel_heap heap, void *payload)
{
    ga_tile tile = ga_tile_present();
    ga_coalesce_release(ga_coalesce_view_of_kernel(heap), tile, ga_tile_members(tile),
                        ga_wide_all((uint64_t)payload));
}

/* The same as functions: for those who call several kinds of heaps, and may not pay for this one */
GA_SIMT_SLOW void *ga_coalesce_general_malloc(ga_kernel_heap heap, size_t size)
{
    return ga_coalesce_kernel_malloc(heap, size);
}

GA_SIMT_SLOW void *ga_coalesce_general_aligned(ga_kernel_heap heap, size_t align, size_t size)
{
    if (align <= ga_coalesce_kernel_natural(heap)) {
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

/* Bytes that may be used of the payload; 0 for what is seen to be none. */
GA_SIMT_SLOW size_t ga_coalesce_general_usable_size(ga_kernel_heap heap, const void *payload)
{
    return ga_coalesce_usable(ga_coalesce_view_of_kernel(heap), (const char *)payload);
}

/* Whether the payload of each lane that calls, of `usable` bytes, can stay where it is with `size`
 * bytes. Plain blocks do as slabs have it; a segment stays where it has the room, since it would
 * not go back alone. */
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

/* The caller's place among the threads of its block, and how many there are. */
GA_SIMT uint32_t ga_coalesce_rank(void)
{
    return (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
}

GA_SIMT uint32_t ga_coalesce_team(void)
{
    return blockDim.x * blockDim.y * blockDim.z;
}

/* The lanes of the caller's warp that its block has. */
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

/* The first thread begins the superblock, and shared memory tells the others. Who has no place of
 * it is served like any other. */
GA_SIMT void *ga_coalesce_kernel_block_malloc(ga_kernel_heap heap, bool bare, size_t size)
{
    static __shared__ char *block;
    ga_coalesce_view view = ga_coalesce_view_of_kernel(heap);
    ga_static_plan plan = ga_static_plan_of(view, bare, size);
    char *payload = NULL;
    __syncthreads(); /* all have read what the call before left there */
    if (ga_coalesce_rank() == 0) {
        block = ga_static_begin(view, ga_tile_among(1u), plan, ga_coalesce_team());
    }
    __syncthreads();
    if (block) {
        payload = ga_static_place(view, plan, block, ga_coalesce_rank());
    }
    return payload ? payload : ga_coalesce_kernel_malloc(heap, size);
}

/* The kind that the heap was opened for. */
GA_SIMT void *ga_coalesce_kernel_static_malloc(ga_kernel_heap heap, size_t size)
{
    uint32_t kind = GA_COALESCE_WORDS_BITS(heap.words, GA_COALESCE_AT_STATIC);
    bool bare = kind == GA_COALESCE_NB || kind == GA_COALESCE_NW;
    return kind <= GA_COALESCE_NB ? ga_coalesce_kernel_block_malloc(heap, bare, size)
                                  : ga_coalesce_kernel_warp_malloc(heap, bare, size);
}

/* ---- around a program ------------------------------------------------------------------------ */

/* A block of threads comes, or goes; the last that goes notes what is left in the map. */
GA_SIMT void ga_coalesce_kernel_enter(ga_kernel_heap heap)
{
    ga_coalesce_view view = ga_coalesce_view_of_kernel(heap);
    if (ga_coalesce_rank() == 0) {
        ga_post_add64_relaxed(&view.heap->inside, 1); /* relaxed: a figure */
    }
}

GA_SIMT void ga_coalesce_kernel_leave(ga_kernel_heap heap)
{
    ga_coalesce_view view = ga_coalesce_view_of_kernel(heap);
    __syncthreads(); /* all have freed what they will */
    if (ga_coalesce_rank() == 0 && ga_add64_relaxed(&view.heap->inside, ~(uint64_t)0) == 1) {
        ga_store64_relaxed(&view.heap->left, ga_load_relaxed(&view.heap->map.live));
    }
}

#endif
