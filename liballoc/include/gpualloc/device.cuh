/* SPDX-License-Identifier: MIT
 *
 * Allocate inside a kernel. The host opens a heap for GA_PLACE_KERNEL, asks ga_heap_kernel_view() for
 * what kernels need, and hands that to them by value:
 *
 *     __global__ void build(ga_kernel_heap heap, node **out)
 *     {
 *         node *n = (node *)ga_kernel_malloc(heap, sizeof *n);
 *         if (n) { ... }
 *     }
 *
 * Any lanes of a warp may call, in divergent code as well; those that call together are served together,
 * so call where as many as possible are. No call waits for another lane, warp or block. A kernel for blocks of
 * more than 512 threads says so, with __launch_bounds__: else it may have more registers than they can have.
 *
 * Lanes that call together bring the same heap. To take from one of two, branch on which it is, and call in
 * each branch:
 *
 *     if (small) { p = ga_kernel_malloc(a, n); } else { p = ga_kernel_malloc(b, n); }     and not (small ? a : b)
 *
 * A block belongs to the grid, not to the thread: it may be freed by any thread of this or a later
 * kernel, on any stream, once what its users did happens before the free. What the last owner did with
 * it happens before the next owner's claim returns.
 *
 * Header only; compile with nvcc 13.0 or later for sm_75 or later, as C++17.
 */
#ifndef GPUALLOC_DEVICE_CUH
#define GPUALLOC_DEVICE_CUH

#include <gpualloc/gpualloc.h>

#include "coalesce/coalesce_kernel.h"
#include "device/kinds.h"
#include "slab/block_kernel.h"
#include "slab/sized_kernel.h"
#include "slab/slab_kernel.h"

/* ---- any heap ---------------------------------------------------------------------------- */

/* Whether it is a heap of that kind, and of this header's version. A program that has kernel heaps of one kind
 * defines GA_KERNEL_ONLY as it before it includes this, say as GA_KERNEL_KIND_SIZED: the calls below are then
 * compiled for that alone, and take fewer registers; views of other kinds get NULL. */
static __device__ __forceinline__ bool ga_kernel_is(ga_kernel_heap heap, uint32_t kind)
{
#ifdef GA_KERNEL_ONLY
    if (kind != GA_KERNEL_ONLY) {
        return false;
    }
#endif
    return heap.abi == GA_KERNEL_HEAP_ABI && heap.kind == kind;
}

/* `size` bytes, aligned to 16, for each lane that calls; NULL where the heap has no more, or no blocks
 * of that size, or where the view is not one of this header's version. A size of 0 is one byte.
 * Heaps of all sizes (slab:unit=classes) have blocks of up to all their memory. */
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
#ifndef GA_KERNEL_LINKED /* where malloc is ours, there is no way to CUDA's */
    if (ga_kernel_is(heap, GA_KERNEL_KIND_CUDA)) {
        block = malloc(size);
    }
#endif
    return block;
}

/* Give a block back to the heap it came from. NULL is ignored. What else is no block of the heap's is
 * ignored, counted and, with check=full, reported to the host. */
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

/* Bytes that may be used of the block, for each lane for itself: at least what was asked for. 0 for NULL, for what
 * is seen to be no block of the heap's, and in heaps of CUDA's malloc alone, which does not know. Where coalesce
 * keeps headers, `block` is one of its blocks. */
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

/* n * size bytes, all of them 0; NULL where that is more than a size_t holds, too. */
static __device__ __forceinline__ void *ga_kernel_calloc(ga_kernel_heap heap, size_t n, size_t size)
{
    void *block = __umul64hi(n, size) ? NULL : ga_kernel_malloc(heap, n * size);
    if (block) {
        ga_block_fill(block, NULL, n * size);
    }
    return block;
}

/* The block with `size` bytes, which may be another one then: what is in both is copied, and the old one
 * freed. NULL where there is no memory: then the old one is as it was. A NULL `block` is a malloc; a `size`
 * of 0 frees and answers NULL. A block that shrinks stays where it is until half of it is enough, and where
 * there is no smaller one; a large one gives back what it does not need. One that shares a superblock of coalesce's
 * with others stays while it fits.
 * NULL, and nothing done, for what is no block, and in heaps of CUDA's malloc alone, which does not know sizes. */
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

/* `size` bytes at a multiple of `align`, a power of two, else NULL; to be freed like all others.
 * Heaps of all sizes know every alignment over vmm, and over other parents those that their memory begins at, which is
 * 256 at least. Slab heaps of one unit size have the largest power of two in it, but no more than their memory
 * begins at; CUDA's malloc what __nv_aligned_device_malloc() has; coalesce every one, with headers up to 256 MiB, by a
 * block that is larger by `align`. NULL for what cannot be had. */
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

/* ---- slab heaps: units of one size ---------------------------------------------------------- */

/* The same for a view that is known to be a slab heap's, without asking what it is: one unit for each
 * lane that calls, or NULL where the heap is full. */
static __device__ __forceinline__ void *ga_slab_claim(ga_kernel_heap heap)
{
    return ga_slab_kernel_claim(heap);
}

static __device__ __forceinline__ void ga_slab_release(ga_kernel_heap heap, void *unit)
{
    ga_slab_kernel_release(heap, unit);
}

/* `n` units at once, the same number for each lane that calls, best a constant; NULLs are ignored. Cheaper
 * than one after the other: each free has to wait until what was done with the unit can be seen by its
 * next owner, and this waits once. */
static __device__ __forceinline__ void ga_slab_release_several(ga_kernel_heap heap,
                                                               void *const *units, uint32_t n)
{
    ga_slab_kernel_release_several(heap, units, n);
}

/* The same with the unit's 32-bit address (docs/slab.md has its layout), cheaper to store and to send;
 * GA_SLAB_NO_ADDRESS where the heap is full. An address serves as long as its heap. */
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

/* Where the unit of that address begins; the address is one of this heap's. */
static __device__ __forceinline__ void *ga_slab_address_pointer(ga_kernel_heap heap,
                                                                uint32_t address)
{
    return ga_slab_kernel_pointer(heap, address);
}

/* A tile that takes units one at a time, for all its lanes: it claims a word of units by one atomic and
 * hands them out from registers. Keep it in registers, and end it, or its last units stay taken.
 *
 *     ga_slab_turn turn = ga_slab_turn_begin(heap, 8);    every lane of a tile of 8
 *     row *r = (row *)ga_slab_turn_claim(&turn);          the same pointer in each
 *     ga_slab_turn_end(&turn);
 *
 * `width`: 4, 8, 16 or 32, a constant; the tiles of a warp are its lanes 0 to width - 1, and so on.
 * All lanes of a tile are there, and call together: blocks are whole tiles. */
typedef struct ga_slab_turn {
    ga_slab_heap *heap;
    ga_tile tile;
    ga_slab_claimed claimed;
    char *units; /* the first unit of the word that is claimed */
    uint32_t unit;
} ga_slab_turn;

static __device__ __forceinline__ ga_slab_turn ga_slab_turn_begin(ga_kernel_heap heap,
                                                                  uint32_t width)
{
    ga_slab_turn turn;
    ga_slab_view slab = ga_slab_view_of_kernel(heap);
    turn.heap = slab.heap;
    turn.tile = ga_tile_of(width);
    turn.unit = slab.unit;
    turn.units = NULL;
    uint32_t word = ga_slab_home_word(slab) * (32u / width) + turn.tile.base / width;
    turn.claimed.word = word < slab.words ? word : word % slab.words;
    turn.claimed.units = 0;
    return turn;
}

/* One unit for the tile, or NULL where the heap is full. */
static __device__ __forceinline__ void *ga_slab_turn_claim(ga_slab_turn *turn)
{
    if (!turn->claimed.units) {
        turn->claimed = ga_slab_claim_word_general(turn->heap, turn->tile.mask, turn->claimed.word);
        turn->units =
            (char *)ga_slab_pointer(ga_slab_view_of(turn->heap), turn->claimed.word * 32u);
        if (!turn->claimed.units) {
            return NULL;
        }
    }
    uint32_t place = ga_bits_lowest(turn->claimed.units);
    turn->claimed.units &= turn->claimed.units - 1u;
    return turn->units + place * turn->unit;
}

/* Give back what the tile claimed ahead. */
static __device__ __forceinline__ void ga_slab_turn_end(ga_slab_turn *turn)
{
    if (turn->claimed.units && turn->heap->growth) { /* its estimate has them for taken */
        ga_slab_adjust_taken(turn->heap, turn->tile, 0u - ga_bits_count(turn->claimed.units));
    }
    ga_slab_release_word(ga_slab_view_of(turn->heap), turn->tile, &turn->claimed);
}

#endif
