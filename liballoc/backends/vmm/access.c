/* SPDX-License-Identifier: MIT
 *
 * ga_vmm_access_open
 *   open_sharing          the kinds of handles; falls back to fewer
 *   recommend_granule     register=on
 *   reach_from_peers      register=on
 */
#include "access.h"

#include "../../platform/log.h"

#include <gpualloc/backend.h>

/* ---- handles ----------------------------------------------------------------------------- */

static ga_status open_with(ga_space *space, ga_arena_options options, uint32_t flags)
{
    options.flags |= flags;
    return ga_space_open(space, &options);
}

/* A machine without a fabric has devices that support it, whose driver refuses it at the first
 * chunk. `asked`: the spec names the fabric, so that its absence is worth a line. */
static ga_status open_fabric(ga_space *space, const ga_arena_options *options, bool asked)
{
    ga_status status = open_with(space, *options, GA_ARENA_SHARE_FD | GA_ARENA_SHARE_FABRIC);
    if (status != GA_ERR_UNSUPPORTED) {
        return status;
    }
    ga_log(asked ? GA_LOG_WARN : GA_LOG_DEBUG,
           "vmm: no memory for a fabric, going on with file descriptors: %s", ga_error_text());
    return open_with(space, *options, GA_ARENA_SHARE_FD);
}

static ga_status open_sharing(ga_space *space, const ga_arena_options *options,
                              ga_vmm_access access)
{
    bool on_host = options->place == GA_PLACE_HOST;
    bool unnamed = access.share == GA_VMM_SHARE_NONE || access.share == GA_VMM_SHARE_AUTO;
    if (access.share == GA_VMM_SHARE_FABRIC || (access.registers && unnamed)) {
        return open_fabric(space, options, !unnamed);
    }
    if (access.share == GA_VMM_SHARE_FD) {
        return open_with(space, *options, GA_ARENA_SHARE_FD);
    }
    if (access.share == GA_VMM_SHARE_AUTO && !on_host) {
        ga_status status = open_with(space, *options, GA_ARENA_SHARE_FD);
        if (status != GA_ERR_UNSUPPORTED) {
            return status;
        }
    }
    return open_with(space, *options, 0);
}

/* ---- blocks that are registered ---------------------------------------------------------- */

static ga_status recommend_granule(ga_space *space)
{
    ga_cuda_scope scope;
    size_t granule = 0;
    ga_status status = ga_cuda_enter(&scope, space->device);
    if (status == GA_OK) {
        status = GA_CUDA_CALL(scope.driver, cuMemGetAllocationGranularity, &granule, &space->prop,
                              CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
        ga_cuda_leave(&scope);
    }
    if (status == GA_OK && granule > space->granule) {
        space->granule = granule;
    }
    return status;
}

/* Add the peers that the driver lets access the chunk mapped at `trial`. The context of a peer is
 * not asked for, because creating one takes memory of that device. A library that reaches this
 * memory from a peer has created it. */
static void add_peers(ga_space *space, const ga_cuda_driver *driver, uintptr_t trial)
{
    int count = 0;
    driver->cuDeviceGetCount(&count);
    for (int peer = 0; peer < count && peer < GA_CUDA_DEVICES; peer++) {
        int can = 0;
        if (peer == space->device ||
            driver->cuDeviceCanAccessPeer(&can, peer, space->device) != CUDA_SUCCESS || !can) {
            continue;
        }
        space->access[space->access_count++] =
            (CUmemAccessDesc){.location = {CU_MEM_LOCATION_TYPE_DEVICE, peer},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        if (ga_space_renew_access(space, trial, space->granule) != GA_OK) {
            ga_space_drop_peer(space);
        }
    }
}

static ga_status map_trial(ga_space *space, uintptr_t base)
{
    uint64_t chunk;
    ga_status status = ga_space_create(space, space->granule, &chunk);
    if (status == GA_OK) {
        status = ga_space_map(space, base, space->granule, chunk);
        ga_space_drop_chunk(space, chunk, space->granule); /* a mapping keeps the memory */
    }
    return status;
}

/* Without memory for the trial no peer is added: a heap on a full device still opens. */
static ga_status reach_from_peers(ga_space *space)
{
    const ga_cuda_driver *driver;
    uintptr_t base;
    ga_status status = ga_cuda_driver_get(&driver);
    if (status == GA_OK) {
        status = ga_space_reserve(space, space->granule, 0, &base);
    }
    if (status != GA_OK) {
        return status;
    }
    status = map_trial(space, base);
    if (status == GA_OK) {
        add_peers(space, driver, base);
        ga_space_drop_mapping(space, base, space->granule);
    }
    ga_space_drop_range(space, base, space->granule);
    return status == GA_ERR_MEMORY ? GA_OK : status;
}

ga_status ga_vmm_access_open(ga_space *space, ga_place place, int device, ga_vmm_access access)
{
    ga_arena_options options = {.options_size = sizeof options, .place = place, .device = device};
    bool on_device = place == GA_PLACE_DEVICE;
    bool asks_rdma =
        access.rdma == GA_VMM_RDMA_AUTO || (access.registers && access.rdma == GA_VMM_RDMA_OFF);
    options.flags = access.rdma == GA_VMM_RDMA_ON ? GA_ARENA_RDMA : 0;
    ga_status status = open_sharing(space, &options, access);
    if (status == GA_OK && on_device && asks_rdma) {
        ga_space_request_rdma(space);
    }
    if (status == GA_OK && access.registers) {
        status = recommend_granule(space);
    }
    return status == GA_OK && access.registers ? reach_from_peers(space) : status;
}
