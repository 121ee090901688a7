/* SPDX-License-Identifier: MIT
 *
 * All device code of the library is this one translation unit, which becomes one module.
 */
#define GA_KERNEL_LINKED /* this module has nothing to do with CUDA's own malloc */
#include "../arena/growth_service.cuh"
#include "../coalesce/coalesce_service.cuh"
#include "../slab/sized_service.cuh"
#include "../slab/slab_service.cuh"
#include "probe.h"

/* One warp. Each lane below `count` joins its part with that of the lane beside it, so that both
 * the arithmetic and the warp's exchange are seen to work. */
extern "C" __global__ void ga_probe_kernel(const uint32_t *input, uint32_t *output, uint32_t count)
{
    uint32_t lane = threadIdx.x;
    uint32_t own = ga_probe_mix(lane < count ? input[lane] : 0, lane);
    uint32_t neighbour = __shfl_xor_sync(0xffffffffu, own, 1);
    if (lane < count) {
        output[lane] = ga_probe_join(own, neighbour);
    }
}
