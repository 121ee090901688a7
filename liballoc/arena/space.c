/* SPDX-License-Identifier: MIT
 *
 * Dispatches the primitives to the host or the device.
 */
#include "space.h"

#include "../platform/cuda_refused.h"
#include "../platform/os_memory.h"
#include "../platform/reservations.h"

#include <gpualloc/backend.h>

static const uint32_t ALL_FLAGS = GA_ARENA_SHARE_FD | GA_ARENA_SHARE_FABRIC | GA_ARENA_RDMA |
                                  GA_ARENA_HUGE_PAGES | GA_ARENA_EXACT;

ga_status ga_space_check_flags(uint32_t flags)
{
    return flags & ~ALL_FLAGS
               ? ga_fail(GA_ERR_ARGUMENT, "flags: 0x%x are none of GA_ARENA_*", flags & ~ALL_FLAGS)
               : GA_OK;
}

ga_status ga_space_open(ga_space *space, const ga_arena_options *options)
{
    *space = (ga_space){.flags = options->flags, .device = -1};
    ga_status status = ga_space_check_flags(options->flags);
    if (status != GA_OK) {
        return status;
    }
    switch (options->place) {
    case GA_PLACE_HOST:
        return ga_space_open_host(space, options);
    case GA_PLACE_DEVICE:
        return ga_space_open_device(space, options);
    default:
        return ga_fail(GA_ERR_ARGUMENT, "place: expected host or device, got %s",
                       ga_place_text(options->place));
    }
}

ga_status ga_space_memory(const ga_space *space, uint64_t *bytes)
{
    return space->ops->memory(space, bytes);
}

ga_status ga_space_reserve(ga_space *space, uint64_t size, uintptr_t preferred, uintptr_t *base)
{
    return space->ops->reserve(space, size, preferred, base);
}

ga_status ga_space_create(const ga_space *space, uint64_t size, uint64_t *chunk)
{
    return space->ops->create(space, size, chunk);
}

ga_status ga_space_map(ga_space *space, uintptr_t start, uint64_t size, uint64_t chunk)
{
    return space->ops->map(space, start, size, chunk);
}

ga_status ga_space_move(ga_space *space, uintptr_t from, uintptr_t to, uint64_t size,
                        uint64_t chunk)
{
    return space->ops->move(space, from, to, size, chunk);
}

ga_status ga_space_export(const ga_space *space, uint64_t chunk, ga_arena_share *out)
{
    return space->ops->export_chunk(space, chunk, out);
}

ga_status ga_space_import(const ga_space *space, const ga_arena_share *share, uint64_t *chunk)
{
    return space->ops->import_chunk(space, share, chunk);
}

void ga_space_make_read_only(ga_space *space)
{
    space->read_only = true;
    for (size_t i = 0; i < space->access_count; i++) {
        space->access[i].flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
    }
}

/* ---- releasing, tried twice --------------------------------------------------------------- */

ga_status ga_space_unreserve(ga_space *space, uintptr_t base, uint64_t size)
{
    ga_status status = space->ops->unreserve(space, base, size);
    return status == GA_OK ? GA_OK : space->ops->unreserve(space, base, size);
}

ga_status ga_space_destroy(const ga_space *space, uint64_t chunk)
{
    ga_status status = space->ops->destroy(space, chunk);
    return status == GA_OK ? GA_OK : space->ops->destroy(space, chunk);
}

ga_status ga_space_unmap(const ga_space *space, uintptr_t start, uint64_t size)
{
    ga_status status = space->ops->unmap(space, start, size);
    return status == GA_OK ? GA_OK : space->ops->unmap(space, start, size);
}

/* ---- dropping ----------------------------------------------------------------------------- */

static bool on_device(const ga_space *space)
{
    return space->device >= 0;
}

/* On the host a chunk has no memory of its own, and a mapping is dropped with its range. */
void ga_space_drop_chunk(const ga_space *space, uint64_t chunk, uint64_t size)
{
    if (ga_space_destroy(space, chunk) != GA_OK && on_device(space)) {
        ga_cuda_refused_add(space->device, GA_CUDA_REFUSED_CHUNK, chunk, size);
    }
}

void ga_space_drop_mapping(const ga_space *space, uintptr_t start, uint64_t size)
{
    if (ga_space_unmap(space, start, size) != GA_OK && on_device(space)) {
        ga_cuda_refused_add(space->device, GA_CUDA_REFUSED_MAPPING, start, size);
    }
}

/* The space may be closed soon, so its refused mappings in the range are handed over. */
static void hand_over_refused(ga_space *space, uintptr_t base, uint64_t size)
{
    for (size_t i = space->refused_count; i--;) {
        if (space->refused[i].start - base < size) {
            ga_cuda_refused_add(space->device, GA_CUDA_REFUSED_MAPPING, space->refused[i].start,
                                space->refused[i].size);
            space->refused[i] = space->refused[--space->refused_count];
        }
    }
}

void ga_space_drop_range(ga_space *space, uintptr_t base, uint64_t size)
{
    if (ga_space_unreserve(space, base, size) == GA_OK) {
        return;
    }
    if (on_device(space)) {
        hand_over_refused(space, base, size);
        ga_cuda_refused_add(space->device, GA_CUDA_REFUSED_RANGE, base, size);
    } else {
        ga_reservations_remove((void *)base, size);
        ga_os_memory_unmap((void *)base, size);
    }
}
