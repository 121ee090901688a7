/* SPDX-License-Identifier: MIT
 *
 * The names of hooks.cuh for programs without tables that grow while kernels run: no state, and
 * functions that do nothing. No such table can be opened, so that those which would have to do
 * something are not reached. Included first by gpualloc/slabhash.cuh, unless
 * GA_SLABHASH_GROWING_KINDS is defined.
 */
#ifndef GPUALLOC_SLABHASH_KERNEL_GROWTH_NO_HOOKS_CUH
#define GPUALLOC_SLABHASH_KERNEL_GROWTH_NO_HOOKS_CUH

#define GA_SLABHASH_GROWTH_VIEW_FIELDS
#define GA_SLABHASH_EACH_GROWING_KIND(of, CALL)

#include "../table/list_tile.h"

typedef struct ga_slabhash_growth_state {
} ga_slabhash_growth_state;

/* ---- sessions -------------------------------------------------------------------------------- */

static __device__ __forceinline__ ga_slabhash_view
ga_slabhash_growth_in_kernel(uint32_t, ga_slabhash_view table)
{
    return table;
}

static __device__ __forceinline__ void
ga_slabhash_growth_begin(ga_slabhash_view, ga_tile, ga_slabhash_growth_state *, uint32_t)
{
}

static __device__ __forceinline__ void
ga_slabhash_growth_end(ga_slabhash_view, ga_tile, const ga_slabhash_growth_state *, uint32_t)
{
}

/* ---- operations ------------------------------------------------------------------------------ */

static __device__ __forceinline__ ga_slabhash_answer
ga_slabhash_growth_do(uint32_t, ga_slabhash_view, ga_tile, ga_slab_claimed *,
                      ga_slabhash_growth_state *, uint64_t, ga_slabhash_operation)
{
    return ga_slabhash_answer_of(GA_SLABHASH_REFUSED, 0);
}

static __device__ __forceinline__ uint64_t ga_slabhash_growth_remove_all(uint32_t, ga_slabhash_view,
                                                                         ga_tile, ga_slab_claimed *,
                                                                         ga_slabhash_growth_state *,
                                                                         uint64_t, uint64_t)
{
    return 0;
}

static __device__ __forceinline__ uint64_t ga_slabhash_growth_find_all(uint32_t, ga_slabhash_view,
                                                                       ga_tile,
                                                                       ga_slabhash_growth_state *,
                                                                       uint64_t, uint64_t,
                                                                       uint64_t *, uint64_t)
{
    return 0;
}

template <uint32_t, uint32_t>
static __device__ __forceinline__ void
ga_slabhash_growth_tend(ga_slabhash_view, ga_tile, ga_slab_claimed *, ga_slabhash_growth_state *,
                        bool, uint32_t, uint64_t)
{
}

static __device__ __forceinline__ ga_slabhash_view ga_slabhash_growth_array_for_lane(
    uint32_t, ga_slabhash_view table, const ga_slabhash_growth_state *, uint32_t, uint64_t)
{
    return table;
}

/* ---- the host's calls ------------------------------------------------------------------------ */

struct ga_slabhash_device;

static inline ga_status ga_slabhash_growth_open(ga_slabhash_device *, const ga_slabhash_plan *plan)
{
    return ga_fail(GA_ERR_UNSUPPORTED,
                   "slabhash: GA_SLABHASH_GROW_IN_KERNELS, with path=%u: expected a program that "
                   "defines GA_SLABHASH_GROWING_KINDS before it includes gpualloc/slabhash.cuh",
                   plan->path);
}

static inline ga_status ga_slabhash_growth_close(ga_slabhash_device *)
{
    return GA_ERR_UNSUPPORTED;
}

static inline ga_status ga_slabhash_growth_set_array(ga_slabhash_device *, ga_slabhash_view,
                                                     cudaStream_t)
{
    return GA_ERR_UNSUPPORTED;
}

static inline ga_status ga_slabhash_growth_replace(ga_slabhash_device *, ga_slabhash_view,
                                                   cudaStream_t)
{
    return GA_ERR_UNSUPPORTED;
}

static inline ga_status ga_slabhash_growth_clear(ga_slabhash_device *, cudaStream_t)
{
    return GA_ERR_UNSUPPORTED;
}

static inline ga_status ga_slabhash_growth_catch_up(ga_slabhash_device *, cudaStream_t)
{
    return GA_OK;
}

static inline ga_status ga_slabhash_growth_load(const ga_slabhash_device *)
{
    return GA_OK;
}

static inline ga_status ga_slabhash_growth_before_batch(ga_slabhash_device *)
{
    return GA_OK;
}

static inline ga_status ga_slabhash_growth_after_batch(ga_slabhash_device *,
                                                       const ga_slabhash_batch *, cudaStream_t)
{
    return GA_OK;
}

#endif
