/* SPDX-License-Identifier: MIT
 *
 * Host memory that several processes may map: each chunk is a file in memory, whose descriptor is
 * its handle. The kernel frees the pages when no process maps the file or has it open.
 *
 * INVARIANT  the file is sealed against changes of its size, so that an access to a mapping never
 *            fails because another process has made the file smaller
 */
#include "space.h"

#include "../platform/os_memory.h"

#include <gpualloc/backend.h>

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

typedef unsigned long long ull; /* the type of %llu */

static const int SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

/* ---- chunks ------------------------------------------------------------------------- */

static ga_status files_create(const ga_space *space, uint64_t size, uint64_t *chunk)
{
    (void)space;
    int file = memfd_create("gpualloc", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (file < 0) {
        return ga_fail(GA_ERR_MEMORY, "no chunk of %llu bytes: %s", (ull)size, strerror(errno));
    }
    if (ftruncate(file, (off_t)size) != 0 || fcntl(file, F_ADD_SEALS, SEALS) != 0) {
        ga_status status = ga_space_host_refused("ftruncate", size);
        close(file);
        return status;
    }
    *chunk = (uint64_t)file;
    return GA_OK;
}

static ga_status files_destroy(const ga_space *space, uint64_t chunk)
{
    (void)space;
    close((int)chunk);
    return GA_OK;
}

/* ---- mappings ----------------------------------------------------------------------- */

static ga_status files_map(ga_space *space, uintptr_t start, uint64_t size, uint64_t chunk)
{
    const ga_os_memory *os = ga_os_memory_get();
    int access = space->read_only ? PROT_READ : PROT_READ | PROT_WRITE;
    if (os->mmap((void *)start, size, access, MAP_SHARED | MAP_FIXED, (int)chunk, 0) ==
        MAP_FAILED) {
        return ga_space_host_refused("mmap", size);
    }
    if (space->flags & GA_ARENA_HUGE_PAGES) {
        /* Kernels without huge pages refuse; that is harmless. */
        os->madvise((void *)start, size, MADV_HUGEPAGE);
    }
    return GA_OK;
}

/* The addresses stay reserved. */
static ga_status files_unmap(const ga_space *space, uintptr_t start, uint64_t size)
{
    (void)space;
    return ga_os_memory_get()->mmap((void *)start, size, PROT_NONE,
                                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED
               ? ga_space_host_refused("mmap", size)
               : GA_OK;
}

/* The chunk is mapped at both addresses for a moment. */
static ga_status files_move(ga_space *space, uintptr_t from, uintptr_t to, uint64_t size,
                            uint64_t chunk)
{
    ga_status status = files_map(space, to, size, chunk);
    if (status == GA_OK) {
        status = ga_space_unmap(space, from, size);
        if (status != GA_OK) {
            ga_space_unmap(space, to, size);
        }
    }
    return status;
}

/* ---- sharing ------------------------------------------------------------------------ */

static ga_status files_export(const ga_space *space, uint64_t chunk, ga_arena_share *out)
{
    (void)space;
    out->fd = fcntl((int)chunk, F_DUPFD_CLOEXEC, 0);
    return out->fd >= 0 ? GA_OK : ga_fail(GA_ERR_MEMORY, "no descriptor: %s", strerror(errno));
}

static ga_status files_import(const ga_space *space, const ga_arena_share *share, uint64_t *chunk)
{
    struct stat facts;
    (void)space;
    int seals = fcntl(share->fd, F_GET_SEALS);
    if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(share->fd, &facts) != 0 ||
        (uint64_t)facts.st_size != share->size) {
        return ga_fail(GA_ERR_ARGUMENT,
                       "descriptor %d: expected a sealed file in memory of %llu bytes", share->fd,
                       (ull)share->size);
    }
    int file = fcntl(share->fd, F_DUPFD_CLOEXEC, 0);
    *chunk = (uint64_t)file;
    return file >= 0 ? GA_OK : ga_fail(GA_ERR_MEMORY, "no descriptor: %s", strerror(errno));
}

/* ---- opening ------------------------------------------------------------------------ */

static const ga_space_ops files = {
    .memory = ga_space_host_memory,
    .reserve = ga_space_host_reserve,
    .unreserve = ga_space_host_unreserve,
    .create = files_create,
    .destroy = files_destroy,
    .map = files_map,
    .unmap = files_unmap,
    .move = files_move,
    .export_chunk = files_export,
    .import_chunk = files_import,
};

ga_status ga_space_open_files(ga_space *space, const ga_arena_options *options)
{
    const uint32_t allowed = GA_ARENA_SHARE_FD | GA_ARENA_HUGE_PAGES | GA_ARENA_EXACT;
    *space = (ga_space){.flags = options->flags, .device = -1};
    ga_status status = ga_space_check_flags(options->flags);
    if (status != GA_OK) {
        return status;
    }
    if (options->flags & ~allowed || options->peer_count) {
        return ga_fail(GA_ERR_UNSUPPORTED,
                       "memory of the host is shared by descriptors alone: flags 0x%x, %u peers; "
                       "expected neither GA_ARENA_SHARE_FABRIC nor GA_ARENA_RDMA, and no peers",
                       options->flags, options->peer_count);
    }
    space->ops = &files;
    space->granule = ga_space_host_granule(options->flags);
    return GA_OK;
}
