/* SPDX-License-Identifier: MIT
 *
 * Allocate inside a kernel. The host opens a heap for GA_PLACE_KERNEL, gets the kernels' view of it
 * from ga_heap_kernel_view(), and passes the view to kernels by value:
 *
 *     __global__ void __maxnreg__(32) build(ga_kernel_heap heap, node **out)
 *     {
 *         node *n = (node *)ga_kernel_malloc(heap, sizeof *n);
 *         if (n) { ... }
 *     }
 *
 * Any lanes of a warp may call, in divergent code too. Lanes that call together are served
 * together, mostly by one atomic, so call from converged code where you can. No call needs another
 * lane, warp or block to call as well. A call that finds no free memory may wait until more is
 * mapped, or for warps that are growing or searching the heap.
 *
 * Limit the registers of kernels that allocate, by __maxnreg__ or __launch_bounds__. Otherwise they
 * get more than 100, for code that rarely runs: a multiprocessor holds a quarter of the threads
 * then, and launches with more than 448 threads per block may fail.
 *
 * All lanes of one call must pass the same heap. To choose between heaps per lane, branch:
 *
 *     if (small) { p = ga_kernel_malloc(a, n); } else { p = ga_kernel_malloc(b, n); }
 *
 *     p = ga_kernel_malloc(small ? a : b, n);       WRONG
 *
 * A block belongs to the grid, not to the thread. Any thread of this or a later kernel may free it,
 * on any stream, provided that all accesses to the block happen before the free. They then happen
 * before the allocation that returns the same memory next.
 *
 * Header only; compile with nvcc 13.0 or later for sm_75 or later, as C++17.
 */
#ifndef GPUALLOC_DEVICE_CUH
#define GPUALLOC_DEVICE_CUH

#include <gpualloc/gpualloc.h>

/* In the source tree the folders of detail/ are links to the rooms of liballoc/. */
#include "detail/backends/coalesce/coalesce_kernel.h"
#include "detail/backends/slab/classes/sized_kernel.h"
#include "detail/backends/slab/units/block_kernel.h"
#include "detail/backends/slab/units/slab_kernel.h"
#include "detail/device/kinds.h"

/* ---- any heap -------------------------------------------------------------------------- */

/* True if the view is of that kind and of this header's version. A program with kernel heaps of one
 * kind only defines GA_KERNEL_ONLY before it includes this header, for example as
 * GA_KERNEL_KIND_SIZED. The calls below are then compiled for that kind alone, and need fewer
 * registers; with views of other kinds they return NULL. */
static __device__ __forceinline__ bool ga_kernel_is(ga_kernel_heap heap, uint32_t kind)
{
#ifdef GA_KERNEL_ONLY
    if (kind != GA_KERNEL_ONLY) {
        return false;
    }
#endif
    return heap.abi == GA_KERNEL_HEAP_ABI && heap.kind == kind;
}

/* Allocate `size` bytes, aligned to 16, for each lane that calls. NULL if the heap is out of memory
 * or has no blocks of that size, or if the view is not of this header's version. A size of 0 counts
 * as 1. Heaps with size classes (slab:unit=classes) have blocks of up to all their memory. */
static __device__ __forceinline__ void *ga_kernel_malloc(ga_kernel_heap heap, size_t size)
{
    void *block = NULL;
    if (ga_kernel_is(heap, GA_KERNEL_KIND_SIZED)) {
        block = ga_sized_kernel_malloc(heap, size);
    } else if (ga_kernel_is(heap, GA_KERNEL_KIND_SLAB)) {
        if (size <= GA_SLAB_WORDS_UNIT(heap.words)) {
            block = ga_slab_kernel_claim(heap);
        }
    } else if (ga_kernel_is(heap, GA_KERNEL_KIND_COALESCE)) {
        block = ga_coalesce_general_malloc(heap, size);
    }
#ifndef GA_KERNEL_LINKED /* linked malloc replaces CUDA's, which cannot be reached then */
    if (ga_kernel_is(heap, GA_KERNEL_KIND_CUDA)) {
        block = malloc(size);
    }
#endif
    return block;
}

/* Free a block of this heap. NULL is ignored. Other invalid pointers are ignored and counted, and
 * with check=full reported to the host. */
static __device__ __forceinline__ void ga_kernel_free(ga_kernel_heap heap, void *block)
{
    if (ga_kernel_is(heap, GA_KERNEL_KIND_SIZED)) {
        ga_sized_kernel_free(heap, block);
    } else if (ga_kernel_is(heap, GA_KERNEL_KIND_SLAB)) {
        ga_slab_kernel_release(heap, block);
    } else if (ga_kernel_is(heap, GA_KERNEL_KIND_COALESCE)) {
        ga_coalesce_general_free(heap, block);
    }
#ifndef GA_KERNEL_LINKED
    if (ga_kernel_is(heap, GA_KERNEL_KIND_CUDA)) {
        free(block);
    }
#endif
}

/* Usable bytes of the lane's block, at least the size that was requested. 0 for NULL, for a pointer
 * that the heap finds invalid, and in heaps of CUDA's malloc, which does not know sizes. With
 * headers of coalesce, `block` must be a valid block. */
static __device__ __forceinline__ size_t ga_kernel_usable_size(ga_kernel_heap heap,
                                                               const void *block)
{
    if (ga_kernel_is(heap, GA_KERNEL_KIND_SIZED)) {
        return ga_sized_kernel_usable_size(heap, block);
    }
    if (ga_kernel_is(heap, GA_KERNEL_KIND_SLAB)) {
        return ga_slab_kernel_usable_size(heap, block);
    }
    if (ga_kernel_is(heap, GA_KERNEL_KIND_COALESCE)) {
        return ga_coalesce_general_usable_size(heap, block);
    }
    return 0;
}

/* Allocate n * size bytes, all 0. NULL also if the product overflows a size_t. */
static __device__ __forceinline__ void *ga_kernel_calloc(ga_kernel_heap heap, size_t n, size_t size)
{
    void *block = __umul64hi(n, size) ? NULL : ga_kernel_malloc(heap, n * size);
    if (block) {
        ga_block_fill(block, NULL, n * size);
    }
    return block;
}

/* Resize the block to `size` bytes. The block may move: then the bytes that both have are copied,
 * and the old block is freed. NULL if memory is short; the old block is unchanged then. If `block`
 * is NULL, this is a malloc. If `size` is 0, the block is freed and NULL returned.
 *
 * A block that shrinks stays in place until half of it is enough, or if there is no smaller block.
 * A run of whole regions frees those that it no longer needs. A block that shares a superblock of
 * coalesce with others stays as long as it fits.
 *
 * Returns NULL and does nothing for an invalid pointer, and in heaps of CUDA's malloc, which does
 * not know sizes.
 */
static __device__ __forceinline__ void *ga_kernel_realloc(ga_kernel_heap heap, void *block,
                                                          size_t size)
{
    size_t usable = block ? ga_kernel_usable_size(heap, block) : 0;
    void *other = NULL;
    bool stays = false;
    if (usable && size) {
        if (ga_kernel_is(heap, GA_KERNEL_KIND_SIZED)) {
            stays = ga_sized_kernel_resize(heap, block, usable, size);
        } else if (ga_kernel_is(heap, GA_KERNEL_KIND_COALESCE)) {
            stays = ga_coalesce_general_resize(heap, block, usable, size);
        } else {
            stays = size <= usable;
        }
    }
    if (!block || (usable && size && !stays)) {
        other = ga_kernel_malloc(heap, size);
    }
    if (block && other) {
        ga_block_fill(other, block, usable < size ? usable : size);
    }
    if (block && (other || !size)) {
        ga_kernel_free(heap, block);
    }
    return stays || (block && usable && !other && size && size <= usable) ? block : other;
}

/* Allocate `size` bytes at a multiple of `align`; free the block like any other. NULL if `align` is
 * not a power of two, or if the heap cannot align so:
 *
 *     size classes over vmm       any alignment
 *     size classes elsewhere      up to the alignment of the parent's memory, at least 256
 *     fixed units                 the largest power of two that divides the unit, but at most the
 *                                 alignment of the parent's memory
 *     coalesce                    any, with headers up to 256 MiB; allocates `align` bytes more
 *     CUDA's malloc               as __nv_aligned_device_malloc()
 */
static __device__ __forceinline__ void *ga_kernel_aligned_alloc(ga_kernel_heap heap, size_t align,
                                                                size_t size)
{
    void *block = NULL;
    if (!align || align & (align - 1)) {
        return NULL;
    }
    if (ga_kernel_is(heap, GA_KERNEL_KIND_SIZED)) {
        block = ga_sized_kernel_aligned_alloc(heap, align, size);
    } else if (ga_kernel_is(heap, GA_KERNEL_KIND_SLAB)) {
        if (size <= GA_SLAB_WORDS_UNIT(heap.words) && GA_SLAB_WORDS_UNIT(heap.words) % align == 0) {
            block = ga_slab_kernel_claim(heap);
        }
    } else if (ga_kernel_is(heap, GA_KERNEL_KIND_COALESCE)) {
        block = ga_coalesce_general_aligned(heap, align, size);
    }
#ifndef GA_KERNEL_LINKED
    if (ga_kernel_is(heap, GA_KERNEL_KIND_CUDA)) {
        block = align <= 16 ? malloc(size) : __nv_aligned_device_malloc(size, align);
    }
#endif
    if ((size_t)block & (align - 1)) {
        ga_kernel_free(heap, block);
        block = NULL;
    }
    return block;
}

/* ---- slab heaps: units of one size ----------------------------------------------------- */

/* For a view that is known to be of a slab heap; the kind is not checked. Allocate one unit for
 * each lane that calls, or return NULL if the heap is full. */
static __device__ __forceinline__ void *ga_slab_claim(ga_kernel_heap heap)
{
    return ga_slab_kernel_claim(heap);
}

static __device__ __forceinline__ void ga_slab_release(ga_kernel_heap heap, void *unit)
{
    ga_slab_kernel_release(heap, unit);
}

/* Free `n` units; `n` is equal in all lanes that call, best a constant. NULLs are ignored. Cheaper
 * than one free after the other: each free waits until the accesses to the unit are visible to its
 * next owner, and this call waits once. */
static __device__ __forceinline__ void ga_slab_release_several(ga_kernel_heap heap,
                                                               void *const *units, uint32_t n)
{
    ga_slab_kernel_release_several(heap, units, n);
}

/* Allocate and free by the unit's 32-bit address (docs/internals/slab.md has its layout), which is
 * cheaper to store and to send than a pointer. GA_SLAB_NO_ADDRESS if the heap is full. An address
 * is valid as long as its heap. */
#define GA_SLAB_NO_ADDRESS 0xffffffffu

static __device__ __forceinline__ uint32_t ga_slab_claim_address(ga_kernel_heap heap)
{
    return ga_slab_kernel_claim_address(heap);
}

static __device__ __forceinline__ void ga_slab_release_address(ga_kernel_heap heap,
                                                               uint32_t address)
{
    ga_slab_kernel_release_address(heap, address);
}

/* The pointer of an address of this heap. */
static __device__ __forceinline__ void *ga_slab_address_pointer(ga_kernel_heap heap,
                                                                uint32_t address)
{
    return ga_slab_kernel_pointer(heap, address);
}

/* For a tile that allocates one unit at a time for all its lanes: it claims a word of units by one
 * atomic and hands them out from registers. Keep the struct in registers, and call
 * ga_slab_tile_cache_end(), or its last units stay allocated.
 *
 *     ga_slab_tile_cache cache = ga_slab_tile_cache_begin(heap, 8);    every lane of a tile of 8
 *     row *r = (row *)ga_slab_tile_cache_claim(&cache);                the same pointer in each
 *     ga_slab_tile_cache_end(&cache);
 *
 * `width`: 4, 8, 16 or 32, a constant; the first tile of a warp is its lanes 0 to width - 1, and so
 * on. All lanes of a tile must be present and call together: blocks consist of whole tiles. The
 * members of the struct are no part of the interface.
 */
typedef struct ga_slab_tile_cache {
    ga_kernel_heap heap;
    ga_tile tile;
    ga_slab_claimed claimed;
    char *units; /* first unit of the word that is claimed */
} ga_slab_tile_cache;

static __device__ __forceinline__ ga_slab_tile_cache ga_slab_tile_cache_begin(ga_kernel_heap heap,
                                                                              uint32_t width)
{
    ga_slab_tile_cache cache;
    cache.heap = heap;
    cache.tile = ga_tile_of(width);
    cache.units = NULL;
    cache.claimed.word = ga_slab_tile_home_word(heap, cache.tile);
    cache.claimed.units = 0;
    return cache;
}

/* Allocate one unit for the tile; NULL if the heap is full. */
static __device__ __forceinline__ void *ga_slab_tile_cache_claim(ga_slab_tile_cache *cache)
{
    if (!cache->claimed.units) {
        ga_slab_view slab = ga_slab_view_of_kernel(cache->heap);
        uint32_t word = cache->claimed.word;
        if (!cache->units) { /* the home word; if it is full, its neighbour, and then the rest */
            cache->claimed.units = ga_slab_claim_word_fast(cache->heap, cache->tile, word);
            word ^= 1u;
        }
        if (!cache->claimed.units) {
            cache->claimed = ga_slab_claim_word_general(slab.heap, cache->tile.mask, word);
        }
        if (!cache->claimed.units) {
            return NULL;
        }
        cache->units = (char *)ga_slab_pointer(slab, cache->claimed.word * 32u);
    }
    uint32_t place = ga_bits_lowest(cache->claimed.units);
    cache->claimed.units &= cache->claimed.units - 1u;
    return cache->units + place * GA_SLAB_WORDS_UNIT(cache->heap.words);
}

/* Free the units that the tile claimed and did not use. */
static __device__ __forceinline__ void ga_slab_tile_cache_end(ga_slab_tile_cache *cache)
{
    ga_slab_release_word(ga_slab_view_of_kernel(cache->heap), cache->tile, &cache->claimed);
}

#endif
