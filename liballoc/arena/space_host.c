/* SPDX-License-Identifier: MIT
 *
 * Host memory. A reservation is a private mapping without access: it costs no memory and does not
 * count against overcommit. Granting access makes it count, and the kernel refuses there if it
 * cannot provide the memory. Unmapping replaces the mapping by a new one without access, which
 * releases the pages and the commitment.
 */
#include "space.h"

#include "../platform/machine.h"
#include "../platform/os_memory.h"
#include "../platform/reservations.h"

#include <gpualloc/backend.h>

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000 /* older kernels take the address as a hint */
#endif
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

static const uint64_t HUGE = (uint64_t)2 << 20;

ga_status ga_space_host_refused(const char *call, uint64_t size)
{
    int error = errno;
    return ga_fail(error == ENOMEM ? GA_ERR_MEMORY : GA_ERR_UNSUPPORTED,
                   "the host refuses %llu bytes: %s: %s", (unsigned long long)size, call,
                   strerror(error));
}

ga_status ga_space_host_memory(const ga_space *space, uint64_t *bytes)
{
    (void)space;
    *bytes = ga_machine_memory_total();
    return GA_OK;
}

/* ---- addresses --------------------------------------------------------------------------- */

static void *map_nothing(uintptr_t at, uint64_t size, int flags)
{
    return ga_os_memory_get()->mmap((void *)at, size, PROT_NONE,
                                    MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
}

static ga_status reserve_at(uintptr_t preferred, uint64_t size)
{
    void *got = map_nothing(preferred, size, MAP_FIXED_NOREPLACE);
    if (got == MAP_FAILED && errno != EEXIST) {
        return ga_space_host_refused("mmap", size);
    }
    if (got != (void *)preferred) {
        if (got != MAP_FAILED) {
            ga_os_memory_unmap(got, size);
        }
        return ga_fail(GA_ERR_CANNOT_GROW, "the addresses from %p on, %llu bytes, are not all free",
                       (void *)preferred, (unsigned long long)size);
    }
    return GA_OK;
}

/* Trim [got, got + size + HUGE) to `size` bytes at a multiple of HUGE. */
static ga_status trim(uintptr_t got, uint64_t size, uintptr_t *base)
{
    const ga_os_memory *os = ga_os_memory_get();
    uint64_t before = -got & (HUGE - 1);
    uint64_t behind = HUGE - before;
    *base = got + before;
    bool done = !before || os->munmap((void *)got, before) == 0;
    if (done && os->munmap((void *)(*base + size), behind) == 0) {
        return GA_OK;
    }
    ga_status status = ga_space_host_refused("munmap", size);
    uintptr_t rest = done ? *base : got;
    ga_os_memory_unmap((void *)rest, size + HUGE - (rest - got));
    return status;
}

/* Valgrind reports EINVAL if it has no room for the size. */
static ga_status refused_addresses(uint64_t size)
{
    errno = errno == EINVAL ? ENOMEM : errno;
    return ga_space_host_refused("mmap", size);
}

static ga_status reserve(uint64_t size, uintptr_t preferred, uintptr_t *base)
{
    if (preferred) {
        *base = preferred;
        return reserve_at(preferred, size);
    }
    uint64_t more = size >= HUGE ? HUGE : 0;
    void *got = map_nothing(0, size + more, 0);
    if (got == MAP_FAILED) {
        return refused_addresses(size);
    }
    *base = (uintptr_t)got;
    return more ? trim((uintptr_t)got, size, base) : GA_OK;
}

ga_status ga_space_host_reserve(ga_space *space, uint64_t size, uintptr_t preferred,
                                uintptr_t *base)
{
    (void)space;
    ga_status status = reserve(size, preferred, base);
    if (status == GA_OK && !ga_reservations_add((void *)*base, size)) {
        ga_os_memory_unmap((void *)*base, size);
        return ga_fail(GA_ERR_MEMORY, "no memory to record a reservation of %llu bytes",
                       (unsigned long long)size);
    }
    return status;
}

/* Remove the record first: once the kernel has the addresses, another mapping may get them. */
ga_status ga_space_host_unreserve(ga_space *space, uintptr_t base, uint64_t size)
{
    (void)space;
    ga_reservations_remove((void *)base, size);
    if (ga_os_memory_get()->munmap((void *)base, size)) {
        ga_status status = ga_space_host_refused("munmap", size);
        ga_reservations_add((void *)base, size); /* cannot fail: the record's nodes exist */
        return status;
    }
    ga_os_memory_retry();
    return GA_OK;
}

/* ---- chunks, which need no memory on the host -------------------------------------------- */

static ga_status host_create(const ga_space *space, uint64_t size, uint64_t *chunk)
{
    (void)space, (void)size;
    *chunk = 0;
    return GA_OK;
}

static ga_status host_destroy(const ga_space *space, uint64_t chunk)
{
    (void)space, (void)chunk;
    return GA_OK;
}

/* ---- access ------------------------------------------------------------------------------ */

/* A hole between accessible ranges costs two kernel mappings, of which a process has 65,530 by
 * default. If there are many chunks, only the pages are released. The kernel refuses that for
 * locked pages. */
static ga_status host_unmap(const ga_space *space, uintptr_t start, uint64_t size)
{
    if (space->saves_mappings &&
        ga_os_memory_get()->madvise((void *)start, size, MADV_DONTNEED) == 0) {
        return GA_OK;
    }
    return map_nothing(start, size, MAP_FIXED) == MAP_FAILED ? ga_space_host_refused("mmap", size)
                                                             : GA_OK;
}

static ga_status host_map(ga_space *space, uintptr_t start, uint64_t size, uint64_t chunk)
{
    const ga_os_memory *os = ga_os_memory_get();
    (void)chunk;
    if (os->mprotect((void *)start, size, PROT_READ | PROT_WRITE)) {
        return ga_space_host_refused("mprotect", size);
    }
    if (space->flags & GA_ARENA_HUGE_PAGES) {
        /* Kernels without huge pages refuse; that is harmless. */
        os->madvise((void *)start, size, MADV_HUGEPAGE);
    }
    return GA_OK;
}

/* MREMAP_DONTUNMAP keeps the old range reserved, so that no other mapping gets in and the pages can
 * be moved back. The kernel moves ranges of one VMA only. If there are several, after a fork() for
 * example, move the halves. */
static ga_status move_pages(uintptr_t from, uintptr_t to, uint64_t size)
{
    uint64_t half = size / 2 & ~((uint64_t)sysconf(_SC_PAGESIZE) - 1);
    void *got = ga_os_memory_get()->mremap(
        (void *)from, size, size, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, (void *)to);
    if (got != MAP_FAILED) {
        return GA_OK;
    }
    if (errno != EFAULT || !half) {
        return ga_space_host_refused("mremap", size);
    }
    ga_status status = move_pages(from, to, half);
    if (status == GA_OK) {
        status = move_pages(from + half, to + half, size - half);
        if (status != GA_OK) {
            move_pages(to, from, half);
        }
    }
    return status;
}

/* The old range is empty afterwards. If the kernel refuses to remove its access, nothing is
 * lost. */
static ga_status host_move(ga_space *space, uintptr_t from, uintptr_t to, uint64_t size,
                           uint64_t chunk)
{
    (void)chunk;
    ga_status status = move_pages(from, to, size);
    if (status == GA_OK) {
        host_unmap(space, from, size);
    }
    return status;
}

/* ---- opening ----------------------------------------------------------------------------- */

static const ga_space_ops host = {
    .memory = ga_space_host_memory,
    .reserve = ga_space_host_reserve,
    .unreserve = ga_space_host_unreserve,
    .create = host_create,
    .destroy = host_destroy,
    .map = host_map,
    .unmap = host_unmap,
    .move = host_move,
};

uint64_t ga_space_host_granule(uint32_t flags)
{
    return flags & GA_ARENA_HUGE_PAGES ? HUGE : (uint64_t)sysconf(_SC_PAGESIZE);
}

ga_status ga_space_open_host(ga_space *space, const ga_arena_options *options)
{
    const uint32_t of_devices = GA_ARENA_SHARE_FD | GA_ARENA_SHARE_FABRIC | GA_ARENA_RDMA;
    if (options->flags & of_devices || options->peer_count) {
        return ga_fail(GA_ERR_UNSUPPORTED,
                       "memory of the host cannot be shared by handles, nor given to devices: "
                       "expected neither peers nor shared handles nor RDMA on the host, got %s",
                       options->peer_count              ? "peers"
                       : options->flags & GA_ARENA_RDMA ? "RDMA"
                                                        : "shared handles");
    }
    space->ops = &host;
    space->granule = ga_space_host_granule(options->flags);
    return GA_OK;
}
