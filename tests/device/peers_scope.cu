/* SPDX-License-Identifier: MIT
 *
 * For check_scope: kernels that work on memory of several devices, or with ONE_DEVICE of one.
 */
#ifdef ONE_DEVICE
#include <gpualloc/slabhash.cuh>
#define VIEW        ga_slabhash_view
#define BEGIN       ga_slabhash_session_begin
#define LANES(kind) ga_slabhash_lanes<kind>
#define END         ga_slabhash_session_end
#else
#include <gpualloc/slabhash_peers.cuh>
#define VIEW        ga_slabhash_peers_view
#define BEGIN       ga_slabhash_peers_begin
#define LANES(kind) ga_slabhash_peers_lanes<kind>
#define END         ga_slabhash_peers_end
#endif

template <uint32_t kind>
__global__ void any(const __grid_constant__ VIEW view, uint64_t key, uint32_t *result)
{
    auto session = BEGIN(view);
    for (uint32_t op = 0; op < GA_SLABHASH_OP_COUNT; op++) {
        *result += LANES(kind)(&session, true, op, key, key).result;
    }
    END(&session);
}

template __global__ void any<GA_SLABHASH_SET32>(VIEW, uint64_t, uint32_t *);
template __global__ void any<GA_SLABHASH_MAP32>(VIEW, uint64_t, uint32_t *);
template __global__ void any<GA_SLABHASH_MAP64>(VIEW, uint64_t, uint32_t *);
