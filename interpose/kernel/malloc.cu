/* SPDX-License-Identifier: MIT
 *
 * In-kernel malloc and free, under the names that device code calls. nvcc turns new and delete
 * (sized and array forms, too) into calls of these, and those for over-aligned types and
 * __nv_aligned_device_malloc() into __cuda_syscall_aligned_malloc(). CUDA's device code has no
 * nothrow forms. libcudadevrt's device-side cudaMalloc() and cudaFree() call malloc and free, too.
 *
 *   malloc   fast: ga_sized_claim_fast, if all calling lanes need the same size class;
 *                  ga_sized_claim_lone_fast, if one lane calls
 *            slow: malloc_lone_slow
 *                  malloc_claim_slow, if claim_fast had no bit for a lane, or tried no word
 *                  malloc_mixed, for mixed classes that are not coalesced: ga_sized_claim_each;
 *                  then malloc_mixed_slow for lanes without a unit
 *                  malloc_slow, for mixed classes that are, large blocks and size 0
 *                  malloc_other_kind, for heaps that have no plain blocks
 *   free     fast: ga_sized_free_fast; slow: free_slow, and free_other_kind
 *
 * This file is its own translation unit, because nvcc also emits host functions of these names,
 * which abort. The build makes those local, so that the program's host malloc is not one of them.
 */
#define GA_KERNEL_LINKED /* nothing in this file can reach CUDA's own malloc */
#include <gpualloc/device.cuh>

#include "linked.h"

#include <cuda_runtime.h>

/* module.cu defines other names for these functions, and another source of the view. */
#ifndef GA_KERNEL_MODULE
#define GA_KERNEL_MALLOC         malloc
#define GA_KERNEL_FREE           free
#define GA_KERNEL_MALLOC_ALIGNED __cuda_syscall_aligned_malloc
#define GA_KERNEL_VIEW           ga_kernel_linked

/* The host writes it before the first launch; until then it is all zeros, and every request gets
 * NULL. In constant memory, because all threads read the same words. */
__constant__ ga_kernel_heap ga_kernel_linked;
#endif

/* Used in place of ga_kernel_malloc() and ga_kernel_free(), which would pass the view on the
 * stack. */
static __device__ __forceinline__ bool coalesces()
{
    return GA_KERNEL_VIEW.abi == GA_KERNEL_HEAP_ABI &&
           GA_KERNEL_VIEW.kind == GA_KERNEL_KIND_COALESCE;
}

static __device__ __forceinline__ bool is_sized()
{
    return GA_KERNEL_VIEW.abi == GA_KERNEL_HEAP_ABI && GA_KERNEL_VIEW.kind == GA_KERNEL_KIND_SIZED;
}

/* True if small blocks are plain units of size classes, as in `slab/vmm` and `coalesce/slab/vmm`.
 * The fast path is that of the classes then. */
static __device__ __forceinline__ bool is_plain()
{
    return GA_KERNEL_VIEW.abi == GA_KERNEL_HEAP_ABI &&
           GA_KERNEL_VIEW.kind >= GA_KERNEL_KIND_SIZED &&
           GA_SIZED_WORDS_PLAIN(GA_KERNEL_VIEW.words);
}

/* The size classes. Their words are the first ones in the view of a coalescing heap, too. */
static __device__ __forceinline__ ga_sized_view slabs()
{
    return ga_sized_view_of_kernel(GA_KERNEL_VIEW);
}

/* Heaps without plain blocks. Not inlined, so that the others do not pay for them. */
static __device__ __noinline__ void *malloc_other_kind(size_t size)
{
    return coalesces() ? ga_coalesce_kernel_malloc(GA_KERNEL_VIEW, size)
                       : ga_kernel_malloc(GA_KERNEL_VIEW, size);
}

static __device__ __noinline__ void free_other_kind(void *block)
{
    if (coalesces()) {
        ga_coalesce_kernel_free(GA_KERNEL_VIEW, block);
    } else {
        ga_kernel_free(GA_KERNEL_VIEW, block);
    }
}

/* Slow paths of malloc() and free(), which save the registers that they use. Callers keep values in
 * R2 and in R16 and above, so malloc() and free() may use 14 registers freely, R0 and R3 to R15
 * (sm_90). They save the registers that a call needs: R20 and R21 for its return address, and R2
 * for a barrier. Reloading a saved register after an acquire goes to the L2 cache: each further
 * register makes malloc() of 16 bytes about 8 % slower. tests/kernel/test_linked.py checks the
 * registers. */
static __device__ __noinline__ void *malloc_slow(size_t size)
{
    if (!is_plain()) {
        return malloc_other_kind(size);
    }
    return coalesces() ? ga_coalesce_kernel_malloc_plain(GA_KERNEL_VIEW, size)
                       : ga_sized_kernel_malloc(GA_KERNEL_VIEW, size);
}

static __device__ __noinline__ void *malloc_claim_slow(uint32_t lanes, uint32_t unit,
                                                       uint32_t word_index, uint32_t taken)
{
    ga_sized_claim_miss missed = {unit, word_index, taken};
    return ga_sized_claim_slow(slabs(), lanes, ga_slab_warp(), missed);
}

static __device__ __noinline__ void *malloc_lone_slow(uint32_t class_)
{
    return ga_sized_claim_lone_slow(slabs().heap, class_, ga_sized_rough_number(), ga_slab_warp(),
                                    ga_warp_lane());
}

static __device__ __noinline__ void free_slow(void *block, uint32_t lanes, uint32_t freed)
{
    if (!is_plain()) {
        free_other_kind(block);
        return;
    }
    freed = ga_sized_free_slow_flagged(slabs(), lanes, freed, block);
    bool is_left = !(freed >> ga_warp_lane() & 1u);
    if (is_left && coalesces()) {
        ga_coalesce_kernel_free_plain(GA_KERNEL_VIEW, block);
    } else if (is_left && block) {
        ga_sized_free_slow_run(slabs().heap, block);
    }
}

/* The lanes whose `block` is NULL search for a unit. All of `lanes` help. */
static __device__ __noinline__ void *malloc_mixed_slow(uint32_t lanes, uint32_t class_, void *block)
{
    ga_tile tile = ga_tile_among(lanes);
    ga_sized_units got = {GA_SIZED_NONE, 0};
    uint32_t missing = ga_lanes_nonzero(tile, !block);
    ga_sized_claim_search_groups(slabs(), tile, missing, class_,
                                 ga_lanes_equal(tile, missing, class_), ga_slab_warp(), &got);
    return block ? block : ga_sized_pointer_or_null(slabs(), class_, got);
}

/* Lanes of different classes, which are not to be coalesced. */
static __device__ __noinline__ void *malloc_mixed(uint32_t lanes, uint32_t class_)
{
    ga_tile tile = ga_tile_among(lanes);
    ga_sized_units got = ga_sized_claim_each(slabs(), tile, lanes, class_, ga_slab_warp());
    void *block = ga_sized_pointer_or_null(slabs(), class_, got);
    return ga_lanes_any(tile, !block) ? malloc_mixed_slow(lanes, class_, block) : block;
}

extern "C" __device__ void *GA_KERNEL_MALLOC(size_t size) noexcept
{
    if (is_plain()) {
        ga_sized_claim_miss missed;
        uint32_t lanes = ga_warp_present();
        uint32_t class_ = ga_sized_class_of_last(slabs(), size - 1u);
        ga_tile tile = ga_tile_among(lanes);
        if (!(lanes & (lanes - 1u)) && class_ != GA_SIZED_NONE) {
            void *block =
                ga_sized_claim_lone_fast(slabs(), class_, ga_sized_rough_number(), ga_warp_lane());
            return block ? block : malloc_lone_slow(class_);
        }
        if (ga_lanes_same(tile, class_) && class_ != GA_SIZED_NONE) {
            void *block = ga_sized_claim_fast(slabs(), tile, class_, ga_slab_warp(), &missed);
            return block ? block
                         : malloc_claim_slow(lanes, missed.unit, missed.word_index, missed.taken);
        }
        if (!coalesces() && !ga_lanes_any(tile, class_ == GA_SIZED_NONE)) {
            return malloc_mixed(lanes, class_);
        }
    }
    return malloc_slow(size);
}

extern "C" __device__ void GA_KERNEL_FREE(void *block) noexcept
{
    uint32_t lanes = ga_warp_present();
    uint32_t freed = is_plain() ? ga_sized_free_fast(slabs(), ga_tile_among(lanes), block) : 0;
    if (freed != lanes) {
        free_slow(block, lanes, freed);
    }
}

/* The least power of two >= `size`; 0 if it overflows. */
static __device__ size_t round_to_power(size_t size)
{
    return size <= 1 ? 1 : (size_t)1 << (64 - __clzll((long long)(size - 1))) % 64;
}

/* `align` is a power of two above 16. In heaps of one unit size, a block of a power of two starts
 * at a multiple of its size if the heap's memory starts at one. A block that does not is freed, and
 * the caller gets NULL. */
static __device__ void *malloc_aligned(size_t size, size_t align)
{
    if (coalesces() && ga_coalesce_kernel_frees_inside(GA_KERNEL_VIEW)) {
        return ga_coalesce_kernel_malloc_aligned(GA_KERNEL_VIEW, align, size);
    }
    if (coalesces()) {
        return ga_coalesce_general_aligned(GA_KERNEL_VIEW, align, size);
    }
    size_t whole = round_to_power(size > align ? size : align);
    void *block = is_sized() ? ga_sized_kernel_aligned_alloc(GA_KERNEL_VIEW, align, size)
                  : whole    ? GA_KERNEL_MALLOC(whole)
                             : NULL;
    if ((size_t)block % align != 0) {
        GA_KERNEL_FREE(block);
        block = NULL;
    }
    return block;
}

extern "C" __device__ void *GA_KERNEL_MALLOC_ALIGNED(size_t size, size_t align) noexcept
{
    if (align & (align - 1)) {
        return NULL;
    }
    return align <= 16 ? GA_KERNEL_MALLOC(size) : malloc_aligned(size, align);
}

#ifndef GA_KERNEL_MODULE
/* Host code uses the variable, so that -dlto keeps it findable. */
int ga_kernel_linked_address(void **out)
{
    return cudaGetSymbolAddress(out, ga_kernel_linked);
}
#endif
