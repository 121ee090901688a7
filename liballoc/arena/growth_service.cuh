/* SPDX-License-Identifier: MIT
 *
 * The kernel that tries out growth on a device; part of device_code.cu.
 */
#ifndef GPUALLOC_ARENA_GROWTH_SERVICE_CUH
#define GPUALLOC_ARENA_GROWTH_SERVICE_CUH

#include "growth_probe_tile.h"

extern "C" __global__ void ga_growth_probe_kernel(ga_growth_probe *probe)
{
    ga_growth_probe_run(ga_tile_of(32), probe);
}

#endif
