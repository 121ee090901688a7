/* SPDX-License-Identifier: MIT
 *
 * In-kernel malloc and free, under the names that device code has for them. nvcc turns new and
 * delete, sized and of arrays, into calls of these two as well, and those for over-aligned types and
 * __nv_aligned_device_malloc() into __cuda_syscall_aligned_malloc(); CUDA's device code has no nothrow
 * forms. Device-side cudaMalloc() and cudaFree() of libcudadevrt call malloc and free, too.
 *
 * A translation unit of its own: nvcc makes host functions of these names, too, which end the
 * program. The build makes them local, or the program's malloc would be one of them.
 */
#define GA_KERNEL_LINKED /* nothing in here can reach CUDA's own malloc */
#include <gpualloc/device.cuh>

#include "linked.h"

#include <cuda_runtime.h>

/* Written by the host before the first launch, and all zeros until then: every request gets NULL.
 * Constant memory, since all threads read the same words of it. */
__constant__ ga_kernel_heap ga_kernel_linked;

/* The same as ga_kernel_malloc() and ga_kernel_free(), which would pass the view on the stack. */
static __device__ __forceinline__ bool coalesces()
{
    return ga_kernel_linked.abi == GA_KERNEL_HEAP_ABI &&
           ga_kernel_linked.kind == GA_KERNEL_KIND_COALESCE;
}

/* Whether the heap is of the default's kind, whose usual calls are slabs'. */
static __device__ __forceinline__ bool is_plain()
{
    return coalesces() && ga_coalesce_kernel_is_plain(ga_kernel_linked);
}

static __device__ __forceinline__ ga_sized_view slabs()
{
    return ga_coalesce_kernel_below(ga_kernel_linked);
}

/* Heaps of other kinds, functions of their own, so that they cost the default's nothing. */
static __device__ __noinline__ void *malloc_elsewhere(size_t size)
{
    return coalesces() ? ga_coalesce_kernel_malloc(ga_kernel_linked, size)
                       : ga_kernel_malloc(ga_kernel_linked, size);
}

static __device__ __noinline__ void free_elsewhere(void *block)
{
    if (coalesces()) {
        ga_coalesce_kernel_free(ga_kernel_linked, block);
    } else {
        ga_kernel_free(ga_kernel_linked, block);
    }
}

/* What malloc() and free() leave: they save by themselves the registers that they take. Callers have values in all
 * from R16 on and in R2, so that malloc() and free() have 14 for themselves, R0 and R3 to R15 (sm_90), and save what
 * a call takes, R20 and R21 for the address that it returns to and R2 for a barrier. All that was saved comes from
 * the second-level cache again, behind an acquire: with each register more malloc() of 16 bytes is some 8 % slower.
 * tests/kernel/test_linked.py sees to it. */
static __device__ __noinline__ void *malloc_general(size_t size)
{
    return is_plain() ? ga_coalesce_kernel_malloc_plain(ga_kernel_linked, size)
                      : malloc_elsewhere(size);
}

static __device__ __noinline__ void *malloc_missed(uint32_t lanes, uint32_t unit, uint32_t key,
                                                   uint32_t taken)
{
    ga_sized_claim_miss missed = {unit, key, taken};
    return ga_sized_claim_slow(slabs(), lanes, ga_slab_warp(), missed);
}

static __device__ __noinline__ void free_general(void *block, uint32_t lanes, uint32_t key,
                                                 uint32_t place)
{
    if (!is_plain()) {
        free_elsewhere(block);
        return;
    }
    ga_sized_units got = {key, place};
    ga_sized_free_slow_units(slabs(), lanes, got);
    ga_sized_free_slow_flagged(slabs(), lanes, block, &got);
    if (got.word_indices == GA_SIZED_NONE) {
        ga_coalesce_kernel_free_plain(ga_kernel_linked, block);
    }
}

extern "C" __device__ void *malloc(size_t size) noexcept
{
    if (is_plain()) {
        ga_sized_claim_miss missed;
        uint32_t lanes = ga_warp_present();
        uint32_t class_ = ga_sized_class_of_last(slabs(), size - 1u);
        ga_tile tile = ga_tile_among(lanes);
        if (ga_lanes_same(tile, class_) && class_ != GA_SIZED_NONE) {
            void *block = ga_sized_claim_fast(slabs(), tile, class_, ga_slab_warp(), &missed);
            return block ? block
                         : malloc_missed(lanes, missed.unit, missed.word_index, missed.taken);
        }
    }
    return malloc_general(size);
}

extern "C" __device__ void free(void *block) noexcept
{
    ga_sized_units got = {GA_SIZED_NONE, 0};
    uint32_t lanes = ga_warp_present();
    if (!is_plain() || !ga_sized_free_fast(slabs(), ga_tile_among(lanes), block, &got)) {
        free_general(block, lanes, got.word_indices, got.places);
    }
}

/* The least power of two that is at least `size`; 0 where there is none. */
static __device__ size_t round_to_power(size_t size)
{
    return size <= 1 ? 1 : (size_t)1 << (64 - __clzll((long long)(size - 1))) % 64;
}

/* `align` is a power of two over 16. Elsewhere than above, blocks of a power of two stand at multiples of
 * their size, if the heap's memory begins at one. One that does not is given back: NULL, never a wrong
 * alignment. */
static __device__ void *claim_aligned(size_t size, size_t align)
{
    if (coalesces() && ga_coalesce_kernel_frees_inside(ga_kernel_linked)) {
        return ga_coalesce_kernel_malloc_aligned(ga_kernel_linked, align, size);
    }
    if (coalesces()) {
        return ga_coalesce_general_aligned(ga_kernel_linked, align, size);
    }
    size_t whole = round_to_power(size > align ? size : align);
    void *block = whole ? malloc(whole) : NULL;
    if ((size_t)block % align != 0) {
        free(block);
        block = NULL;
    }
    return block;
}

extern "C" __device__ void *__cuda_syscall_aligned_malloc(size_t size, size_t align) noexcept
{
    if (align & (align - 1)) {
        return NULL;
    }
    return align <= 16 ? malloc(size) : claim_aligned(size, align);
}

/* A use by host code, which keeps the variable findable in programs linked with -dlto. */
int ga_kernel_linked_address(void **out)
{
    return cudaGetSymbolAddress(out, ga_kernel_linked);
}
