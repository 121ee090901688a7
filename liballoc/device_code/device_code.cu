/* SPDX-License-Identifier: MIT
 *
 * All device code of the library, in one translation unit that becomes one module.
 */
#define GA_KERNEL_LINKED /* this module does not use CUDA's own malloc */
#include "../../hashtables/sharded/all_kernel.cuh"
#include "../../hashtables/sharded/sort_kernel.cuh"
#include "../../spgemm/device/spgemm_service.cuh"
#include "../backends/coalesce/coalesce_service.cuh"
#include "../backends/slab/classes/sized_service.cuh"
#include "../backends/slab/units/slab_service.cuh"
#include "../device/probe.h"
#include "../growth/growth_service.cuh"

/* One warp. Each lane below `count` combines its part with that of the lane beside it. So the
 * result checks the arithmetic and the warp's shuffles. */
extern "C" __global__ void ga_probe_kernel(const uint32_t *input, uint32_t *output, uint32_t count)
{
    uint32_t lane = threadIdx.x;
    uint32_t own = ga_probe_mix(lane < count ? input[lane] : 0, lane);
    uint32_t neighbour = __shfl_xor_sync(0xffffffffu, own, 1);
    if (lane < count) {
        output[lane] = ga_probe_join(own, neighbour);
    }
}
