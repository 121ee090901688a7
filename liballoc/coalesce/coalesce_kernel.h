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

/* The same, in a heap without headers: what any address of the block frees, not its first alone.
 * For those who align further. */
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

/* `size` bytes at a multiple of `align`, a power of two, in such a heap: in a payload that is larger
 * by as much. */
GA_SIMT void *ga_coalesce_kernel_malloc_aligned(ga_kernel_heap heap, size_t align, size_t size)
{
    size_t wide = size <= ~align ? size + align : ~(size_t)0; /* which gets nothing */
    char *payload = (char *)ga_coalesce_kernel_malloc_wide(heap, wide);
    return payload ? payload + (align - (size_t)payload % align) % align : NULL;
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

/* With headers it is as aligned as it comes: the caller looks. */
GA_SIMT_SLOW void *ga_coalesce_general_aligned(ga_kernel_heap heap, size_t align, size_t size)
{
    return align > GA_COALESCE_ALIGN && ga_coalesce_kernel_frees_inside(heap)
               ? ga_coalesce_kernel_malloc_aligned(heap, align, size)
               : ga_coalesce_kernel_malloc(heap, size);
}

GA_SIMT_SLOW void ga_coalesce_general_free(ga_kernel_heap heap, void *payload)
{
    ga_coalesce_kernel_free(heap, payload);
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
