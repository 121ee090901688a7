/* SPDX-License-Identifier: MIT
 *
 * Device memory, by the driver's virtual memory management. Each call makes the device's primary
 * context current while it runs.
 */
#include "space.h"

#include "../platform/cuda_refused.h"
#include "../platform/log.h"

#include <gpualloc/backend.h>

#include <stdint.h>
#include <string.h>

static const uint64_t ALIGN = (uint64_t)2 << 20;

typedef unsigned long long ull; /* the type of %llu */

/* ---- mappings that the driver refused to undo --------------------------------------------- */

/* Remember a mapping that has no owner and that the driver refused to undo. */
static void add_refused(ga_space *space, uintptr_t start, uint64_t size)
{
    if (space->refused_count < GA_SPACE_REFUSED_MAX) {
        space->refused[space->refused_count].start = start;
        space->refused[space->refused_count++].size = size;
        return;
    }
    ga_cuda_refused_add(space->device, GA_CUDA_REFUSED_MAPPING, start, size);
}

/* Called before addresses are used, and before they are released. */
static void retry_refused(ga_space *space)
{
    for (size_t i = space->refused_count; i--;) {
        if (ga_space_unmap(space, space->refused[i].start, space->refused[i].size) == GA_OK) {
            space->refused[i] = space->refused[--space->refused_count];
        }
    }
}

/* Something else has just been mapped there, so the old mappings are gone, despite the driver's
 * error. */
static void forget_refused(ga_space *space, uintptr_t start, uint64_t size)
{
    for (size_t i = space->refused_count; i--;) {
        if (space->refused[i].start < start + size &&
            start < space->refused[i].start + space->refused[i].size) {
            space->refused[i] = space->refused[--space->refused_count];
        }
    }
}

static void undo_map(ga_space *space, uintptr_t start, uint64_t size)
{
    if (ga_space_unmap(space, start, size) != GA_OK) {
        add_refused(space, start, size);
    }
}

static ga_status device_memory(const ga_space *space, uint64_t *bytes)
{
    ga_cuda_scope scope;
    CUdevice device;
    size_t total = 0;
    ga_status status = ga_cuda_enter(&scope, space->device);
    if (status != GA_OK) {
        return status;
    }
    status = GA_CUDA_CALL(scope.driver, cuDeviceGet, &device, space->device);
    if (status == GA_OK) {
        status = GA_CUDA_CALL(scope.driver, cuDeviceTotalMem, &total, device);
    }
    ga_cuda_leave(&scope);
    *bytes = total;
    return status;
}

/* ---- addresses --------------------------------------------------------------------------- */

static ga_status reserve_anywhere(const ga_cuda_driver *driver, const ga_space *space,
                                  uint64_t size, uintptr_t preferred, CUdeviceptr *base)
{
    ga_status status =
        GA_CUDA_CALL(driver, cuMemAddressReserve, base, size, preferred ? 0 : ALIGN, preferred, 0);
    return status == GA_OK ? GA_OK
                           : ga_fail(status, "no %llu bytes of addresses on device %d: %s",
                                     (ull)size, space->device, ga_error_text());
}

/* The driver treats `preferred` as a hint. */
static ga_status device_reserve(ga_space *space, uint64_t size, uintptr_t preferred,
                                uintptr_t *base)
{
    ga_cuda_scope scope;
    CUdeviceptr got = 0;
    ga_status status = ga_cuda_enter(&scope, space->device);
    if (status != GA_OK) {
        return status;
    }
    status = reserve_anywhere(scope.driver, space, size, preferred, &got);
    if (status == GA_OK) {
        ga_cuda_refused_forget(space->device, GA_CUDA_REFUSED_RANGE, got, size);
    }
    if (status == GA_OK && preferred && got != preferred) {
        ga_space_drop_range(space, got, size);
        status =
            ga_fail(GA_ERR_CANNOT_GROW, "the addresses from %p on, %llu bytes, are not all free",
                    (void *)preferred, (ull)size);
    }
    ga_cuda_leave(&scope);
    *base = got;
    return status;
}

static ga_status device_unreserve(ga_space *space, uintptr_t base, uint64_t size)
{
    ga_cuda_scope scope;
    retry_refused(space);
    ga_status status = ga_cuda_enter(&scope, space->device);
    if (status == GA_OK) {
        status = GA_CUDA_CALL(scope.driver, cuMemAddressFree, base, size);
        ga_cuda_leave(&scope);
    }
    if (status == GA_OK) {
        ga_cuda_refused_forget(space->device, GA_CUDA_REFUSED_MAPPING, base, size);
    }
    return status;
}

/* ---- chunks ------------------------------------------------------------------------------ */

static ga_status create_chunk(const ga_cuda_driver *driver, const ga_space *space, uint64_t size,
                              CUmemGenericAllocationHandle *handle)
{
    ga_status status = GA_CUDA_CALL(driver, cuMemCreate, handle, size, &space->prop, 0);
    if (status == GA_OK || status == GA_ERR_MEMORY || !space->wants_rdma) {
        return status;
    }
    CUmemAllocationProp plain = space->prop;
    plain.allocFlags.gpuDirectRDMACapable = 0;
    return GA_CUDA_CALL(driver, cuMemCreate, handle, size, &plain, 0);
}

static ga_status device_create(const ga_space *space, uint64_t size, uint64_t *chunk)
{
    ga_cuda_scope scope;
    CUmemGenericAllocationHandle handle = 0;
    ga_status status = ga_cuda_enter(&scope, space->device);
    if (status != GA_OK) {
        return status;
    }
    status = create_chunk(scope.driver, space, size, &handle);
    ga_cuda_leave(&scope);
    if (status == GA_OK) {
        ga_cuda_refused_forget(space->device, GA_CUDA_REFUSED_CHUNK, handle, size);
    }
    *chunk = handle;
    return status == GA_OK ? GA_OK
                           : ga_fail(status, "no chunk of %llu bytes on device %d: %s", (ull)size,
                                     space->device, ga_error_text());
}

static ga_status device_destroy(const ga_space *space, uint64_t chunk)
{
    ga_cuda_scope scope;
    ga_status status = ga_cuda_enter(&scope, space->device);
    if (status == GA_OK) {
        status = GA_CUDA_CALL(scope.driver, cuMemRelease, chunk);
        ga_cuda_leave(&scope);
    }
    return status;
}

/* ---- mappings ---------------------------------------------------------------------------- */

static ga_status map_with_access(const ga_cuda_driver *driver, ga_space *space, uintptr_t start,
                                 uint64_t size, uint64_t chunk)
{
    ga_status status = GA_CUDA_CALL(driver, cuMemMap, start, size, 0, chunk, 0);
    if (status != GA_OK) {
        return status;
    }
    forget_refused(space, start, size);
    ga_cuda_refused_forget(space->device, GA_CUDA_REFUSED_MAPPING, start, size);
    status = GA_CUDA_CALL(driver, cuMemSetAccess, start, size, space->access, space->access_count);
    if (status != GA_OK) {
        undo_map(space, start, size);
    }
    return status;
}

static ga_status device_map(ga_space *space, uintptr_t start, uint64_t size, uint64_t chunk)
{
    ga_cuda_scope scope;
    retry_refused(space);
    ga_status status = ga_cuda_enter(&scope, space->device);
    if (status != GA_OK) {
        return status;
    }
    status = map_with_access(scope.driver, space, start, size, chunk);
    ga_cuda_leave(&scope);
    return status == GA_OK ? GA_OK
                           : ga_fail(status, "cannot map %llu bytes at %p on device %d: %s",
                                     (ull)size, (void *)start, space->device, ga_error_text());
}

static ga_status device_unmap(const ga_space *space, uintptr_t start, uint64_t size)
{
    ga_cuda_scope scope;
    ga_status status = ga_cuda_enter(&scope, space->device);
    if (status == GA_OK) {
        status = GA_CUDA_CALL(scope.driver, cuMemUnmap, start, size);
        ga_cuda_leave(&scope);
    }
    return status;
}

/* The chunk is mapped at both addresses for a moment. */
static ga_status device_move(ga_space *space, uintptr_t from, uintptr_t to, uint64_t size,
                             uint64_t chunk)
{
    ga_status status = device_map(space, to, size, chunk);
    if (status != GA_OK) {
        return status;
    }
    status = ga_space_unmap(space, from, size);
    if (status != GA_OK) {
        undo_map(space, to, size);
    }
    return status;
}

/* ---- sharing ----------------------------------------------------------------------------- */

static ga_status export_by(const ga_cuda_driver *driver, const ga_space *space, uint64_t chunk,
                           ga_arena_share *out)
{
    ga_status status = GA_OK;
    if (space->flags & GA_ARENA_SHARE_FABRIC) {
        status = GA_CUDA_CALL(driver, cuMemExportToShareableHandle, out->fabric, chunk,
                              CU_MEM_HANDLE_TYPE_FABRIC, 0);
    }
    if (status == GA_OK &&
        space->flags & GA_ARENA_SHARE_FD) { /* last, because the descriptor must be closed */
        status = GA_CUDA_CALL(driver, cuMemExportToShareableHandle, &out->fd, chunk,
                              CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    }
    return status;
}

static ga_status device_export(const ga_space *space, uint64_t chunk, ga_arena_share *out)
{
    ga_cuda_scope scope;
    ga_status status = ga_cuda_enter(&scope, space->device);
    out->fd = -1;
    if (status == GA_OK) {
        status = export_by(scope.driver, space, chunk, out);
        ga_cuda_leave(&scope);
    }
    return status;
}

static ga_status device_import(const ga_space *space, const ga_arena_share *share, uint64_t *chunk)
{
    ga_cuda_scope scope;
    bool by_fd = space->flags & GA_ARENA_SHARE_FD && share->fd >= 0;
    CUmemFabricHandle fabric;
    void *handle = by_fd ? (void *)(intptr_t)share->fd : (void *)&fabric;
    CUmemGenericAllocationHandle got = 0;
    memcpy(fabric.data, share->fabric, sizeof fabric.data);
    ga_status status = ga_cuda_enter(&scope, space->device);
    if (status == GA_OK) {
        status = GA_CUDA_CALL(scope.driver, cuMemImportFromShareableHandle, &got, handle,
                              by_fd ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
                                    : CU_MEM_HANDLE_TYPE_FABRIC);
        ga_cuda_leave(&scope);
    }
    *chunk = got;
    return status;
}

/* ---- opening ----------------------------------------------------------------------------- */

static const ga_space_ops device_ops = {
    .memory = device_memory,
    .reserve = device_reserve,
    .unreserve = device_unreserve,
    .create = device_create,
    .destroy = device_destroy,
    .map = device_map,
    .unmap = device_unmap,
    .move = device_move,
    .export_chunk = device_export,
    .import_chunk = device_import,
};

static const struct {
    uint32_t flag; /* 0: always required */
    CUdevice_attribute attribute;
    const char *text;
} abilities[] = {
    {0, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, "map memory piece by piece"},
    {GA_ARENA_SHARE_FD, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
     "share memory by file descriptors (GA_ARENA_SHARE_FD)"},
    {GA_ARENA_SHARE_FABRIC, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED,
     "share memory over a fabric (GA_ARENA_SHARE_FABRIC)"},
    {GA_ARENA_RDMA, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
     "let network cards at mapped memory (GA_ARENA_RDMA)"},
};

static ga_status check_abilities(const ga_cuda_driver *driver, CUdevice device, uint32_t flags)
{
    for (size_t i = 0; i < sizeof abilities / sizeof *abilities; i++) {
        int can = 0;
        if (abilities[i].flag && !(flags & abilities[i].flag)) {
            continue;
        }
        ga_status status =
            GA_CUDA_CALL(driver, cuDeviceGetAttribute, &can, abilities[i].attribute, device);
        if (status != GA_OK) {
            return status;
        }
        if (!can) {
            return ga_fail(GA_ERR_UNSUPPORTED, "device %d cannot %s", (int)device,
                           abilities[i].text);
        }
    }
    return GA_OK;
}

/* Access can only be granted to a device with a context. */
static ga_status check_peer(const ga_cuda_driver *driver, int device, int peer)
{
    ga_cuda_scope scope;
    int can = 0;
    ga_status status = ga_cuda_enter(&scope, peer);
    if (status != GA_OK) {
        return status;
    }
    ga_cuda_leave(&scope);
    status = GA_CUDA_CALL(driver, cuDeviceCanAccessPeer, &can, peer, device);
    if (status == GA_OK && !can) {
        return ga_fail(GA_ERR_UNSUPPORTED, "device %d cannot reach the memory of device %d", peer,
                       device);
    }
    return status;
}

static void grant_access(ga_space *space, int device)
{
    CUmemAccessDesc *access = &space->access[space->access_count++];
    access->location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access->location.id = device;
    access->flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

static bool has_access(const ga_space *space, int device)
{
    for (size_t i = 0; i < space->access_count; i++) {
        if (space->access[i].location.id == device) {
            return true;
        }
    }
    return false;
}

static ga_status add_peers(ga_space *space, const ga_cuda_driver *driver,
                           const ga_arena_options *options)
{
    ga_status status = GA_OK;
    grant_access(space, options->device);
    for (uint32_t i = 0; status == GA_OK && i < options->peer_count; i++) {
        int peer = options->peers[i];
        if (!has_access(space, peer)) {
            status = check_peer(driver, options->device, peer);
            if (status == GA_OK) {
                grant_access(space, peer);
            }
        }
    }
    return status;
}

ga_status ga_space_add_peer(ga_space *space, int peer)
{
    const ga_cuda_driver *driver;
    if (has_access(space, peer)) {
        return GA_OK;
    }
    ga_status status = ga_cuda_driver_get(&driver);
    if (status == GA_OK) {
        status = check_peer(driver, space->device, peer);
    }
    if (status == GA_OK) {
        grant_access(space, peer);
    }
    return status;
}

void ga_space_drop_peer(ga_space *space)
{
    space->access_count -= space->access_count > 1;
}

ga_status ga_space_renew_access(const ga_space *space, uintptr_t start, uint64_t size)
{
    ga_cuda_scope scope;
    ga_status status = ga_cuda_enter(&scope, space->device);
    if (status == GA_OK) {
        status = GA_CUDA_CALL(scope.driver, cuMemSetAccess, start, size, space->access,
                              space->access_count);
        ga_cuda_leave(&scope);
    }
    return status;
}

static void describe_chunks(ga_space *space)
{
    uint32_t flags = space->flags;
    int types =
        (flags & GA_ARENA_SHARE_FD ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
                                   : CU_MEM_HANDLE_TYPE_NONE) |
        (flags & GA_ARENA_SHARE_FABRIC ? CU_MEM_HANDLE_TYPE_FABRIC : CU_MEM_HANDLE_TYPE_NONE);
    space->prop = (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = types,
        .location = {CU_MEM_LOCATION_TYPE_DEVICE, space->device},
        .allocFlags = {.gpuDirectRDMACapable = flags & GA_ARENA_RDMA ? 1 : 0},
    };
}

static bool can_use_rdma(const ga_cuda_driver *driver, const ga_space *space)
{
    CUdevice device;
    size_t granule = 0;
    return GA_CUDA_CALL(driver, cuDeviceGet, &device, space->device) == GA_OK &&
           check_abilities(driver, device, GA_ARENA_RDMA) == GA_OK &&
           GA_CUDA_CALL(driver, cuMemGetAllocationGranularity, &granule, &space->prop,
                        CU_MEM_ALLOC_GRANULARITY_MINIMUM) == GA_OK &&
           space->granule % granule == 0;
}

void ga_space_request_rdma(ga_space *space)
{
    ga_cuda_scope scope;
    if (ga_cuda_enter(&scope, space->device) != GA_OK) {
        return;
    }
    space->prop.allocFlags.gpuDirectRDMACapable = 1;
    space->wants_rdma = can_use_rdma(scope.driver, space);
    if (!space->wants_rdma) {
        space->prop.allocFlags.gpuDirectRDMACapable = 0;
        ga_log(GA_LOG_DEBUG, "device %d: no memory for network cards: %s", space->device,
               ga_error_text());
    }
    ga_cuda_leave(&scope);
}

/* Some drivers support sharing in principle, but refuse it in their configuration. */
static ga_status check_chunk(const ga_space *space)
{
    uint64_t chunk;
    if (!(space->flags & (GA_ARENA_SHARE_FD | GA_ARENA_SHARE_FABRIC | GA_ARENA_RDMA))) {
        return GA_OK;
    }
    ga_status status = device_create(space, space->granule, &chunk);
    if (status == GA_OK) {
        ga_space_drop_chunk(space, chunk, space->granule);
        return GA_OK;
    }
    return status == GA_ERR_MEMORY
               ? GA_OK
               : ga_fail(GA_ERR_UNSUPPORTED,
                         "the driver refuses memory that is shared as the flags (0x%x) want: %s",
                         space->flags, ga_error_text());
}

static ga_status init_space(ga_space *space, const ga_cuda_driver *driver,
                            const ga_arena_options *options)
{
    CUdevice device;
    size_t granule = 0;
    ga_status status = GA_CUDA_CALL(driver, cuDeviceGet, &device, options->device);
    if (status == GA_OK) {
        status = check_abilities(driver, device, options->flags);
    }
    if (status == GA_OK) {
        status = add_peers(space, driver, options);
    }
    if (status == GA_OK) {
        describe_chunks(space);
        status = GA_CUDA_CALL(driver, cuMemGetAllocationGranularity, &granule, &space->prop,
                              CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    }
    space->granule = granule;
    return status;
}

static ga_status open_space(ga_space *space, const ga_arena_options *options)
{
    ga_cuda_scope scope;
    ga_status status = ga_cuda_enter(&scope, options->device);
    if (status != GA_OK) {
        return status;
    }
    space->ops = &device_ops;
    space->device = options->device;
    status = init_space(space, scope.driver, options);
    ga_cuda_leave(&scope);
    return status;
}

ga_status ga_space_open_guest(ga_space *space, int device)
{
    ga_arena_options options = {.options_size = sizeof options,
                                .place = GA_PLACE_DEVICE,
                                .device = device,
                                .flags = GA_ARENA_SHARE_FD};
    *space = (ga_space){.flags = options.flags};
    return open_space(space, &options);
}

ga_status ga_space_open_device(ga_space *space, const ga_arena_options *options)
{
    if (options->flags & GA_ARENA_HUGE_PAGES) {
        return ga_fail(GA_ERR_UNSUPPORTED, "GA_ARENA_HUGE_PAGES is for the host");
    }
    if (options->peer_count >= GA_CUDA_DEVICES || (options->peer_count && !options->peers)) {
        return ga_fail(GA_ERR_ARGUMENT, "peers: expected up to %d, got %u at %p",
                       GA_CUDA_DEVICES - 1, options->peer_count, (const void *)options->peers);
    }
    ga_status status = open_space(space, options);
    return status == GA_OK ? check_chunk(space) : status;
}
