/* SPDX-License-Identifier: MIT
 *
 * The kernel of the trial (growth_probe.h); part of device_code.cu.
 */
#ifndef GPUALLOC_GROWTH_GROWTH_SERVICE_CUH
#define GPUALLOC_GROWTH_GROWTH_SERVICE_CUH

#include "growth_probe_tile.h"

extern "C" __global__ void ga_growth_probe_kernel(ga_growth_probe *probe)
{
    ga_growth_probe_run(ga_tile_of(32), probe);
}

#endif
