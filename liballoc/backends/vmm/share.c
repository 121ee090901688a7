/* SPDX-License-Identifier: MIT
 *
 * Exporting memory to other processes, and importing it from them.
 */
#include "share.h"

#include "../../platform/libc.h"

#include <gpualloc/backend.h>

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

typedef unsigned long long ull; /* the type of %llu */

/* ---- pieces ------------------------------------------------------------------------------ */

static ga_status make_list(ga_vmm_pieces *out, size_t count)
{
    *out = (ga_vmm_pieces){0};
    if (count > GA_VMM_PIECES) {
        return ga_fail(GA_ERR_MEMORY, "%zu pieces of memory: expected at most %d", count,
                       GA_VMM_PIECES);
    }
    out->list = ga_libc.calloc(count, sizeof *out->list);
    return out->list ? GA_OK : ga_fail(GA_ERR_MEMORY, "no memory to list %zu pieces", count);
}

/* The capacity of the list is the power of two at or above its count. */
ga_status ga_vmm_pieces_add(ga_vmm_pieces *pieces, uint64_t size, int fd)
{
    size_t count = pieces->count;
    bool full = (count & (count - 1)) == 0; /* also when it is empty */
    struct ga_vmm_piece *list = pieces->list;
    if (full && count < GA_VMM_PIECES) {
        list = ga_libc.realloc(list, (count ? 2 * count : 1) * sizeof *list);
    }
    if (!list || count >= GA_VMM_PIECES) {
        close(fd);
        return ga_fail(GA_ERR_MEMORY, "no memory to list %zu pieces", count + 1);
    }
    pieces->list = list;
    pieces->list[pieces->count++] = (struct ga_vmm_piece){size, fd};
    return GA_OK;
}

void ga_vmm_pieces_drop(ga_vmm_pieces *pieces)
{
    for (size_t i = 0; i < pieces->count; i++) {
        if (pieces->list[i].fd >= 0) {
            close(pieces->list[i].fd);
        }
    }
    ga_libc.free(pieces->list);
    *pieces = (ga_vmm_pieces){0};
}

static ga_status collect_piece(void *context, uint64_t before, uint64_t size, int fd)
{
    ga_vmm_pieces *pieces = context;
    pieces->before = pieces->count ? pieces->before : before;
    return ga_vmm_pieces_add(pieces, size, fd);
}

ga_status ga_vmm_pieces_collect(const ga_backend *backend, void *state, const void *start,
                                uint64_t size, ga_vmm_pieces *out)
{
    *out = (ga_vmm_pieces){0};
    ga_status status = backend->export_memory(state, start, size, collect_piece, out);
    if (status != GA_OK) {
        ga_vmm_pieces_drop(out);
    }
    return status;
}

/* ---- exporting ----------------------------------------------------------------------------- */

static ga_status export_chunk(const ga_vmm *vmm, const ga_vmm_chunk *chunk, ga_vmm_pieces *out)
{
    ga_arena_share share = {.fd = -1};
    ga_status status = ga_space_export(&vmm->pool.space, chunk->handle, &share);
    if (status == GA_OK) {
        fcntl(share.fd, F_SETFD, FD_CLOEXEC);
        out->list[out->count++] = (struct ga_vmm_piece){chunk->size, share.fd};
    }
    return status;
}

/* The chunks of one live run, from the one that contains `start`. */
static ga_status export_run(const ga_vmm *vmm, uintptr_t start, uint64_t size, ga_vmm_pieces *out)
{
    const ga_vmm_chunk *first = ga_vmm_addresses_find(&vmm->pool.addresses, (const void *)start);
    size_t count = 1;
    for (const ga_vmm_chunk *c = first; ga_vmm_chunk_end(c) < start + size; count++) {
        c = ga_vmm_chunk_after(c);
    }
    ga_status status = make_list(out, count);
    out->before = start - first->base;
    for (const ga_vmm_chunk *c = first; status == GA_OK && out->count < count;
         c = ga_vmm_chunk_after(c)) {
        status = export_chunk(vmm, c, out);
    }
    if (status != GA_OK) {
        ga_vmm_pieces_drop(out);
    }
    return status;
}

static ga_status export_block(ga_vmm *vmm, const void *start, uint64_t size, ga_vmm_pieces *out)
{
    if (!(vmm->pool.space.flags & GA_ARENA_SHARE_FD)) {
        return ga_fail(GA_ERR_UNSUPPORTED, "the heap was opened without share=fd");
    }
    const ga_vmm_run *run = ga_vmm_pool_find(&vmm->pool, start);
    uint64_t offset = run ? (uintptr_t)start - run->base : 0;
    if (!run || !size || offset > run->size || size > run->size - offset) {
        return ga_fail(GA_ERR_POINTER, "%llu bytes at %p are not of one live block", (ull)size,
                       start);
    }
    return export_run(vmm, (uintptr_t)start, size, out);
}

ga_status ga_vmm_export(ga_vmm *vmm, const void *start, uint64_t size, ga_vmm_pieces *out)
{
    *out = (ga_vmm_pieces){0};
    pthread_mutex_lock(&vmm->lock);
    ga_status status = export_block(vmm, start, size, out);
    pthread_mutex_unlock(&vmm->lock);
    return status;
}

/* ---- importing ------------------------------------------------------------------------------- */

static ga_status check_sizes(const ga_vmm_guest *guest, const ga_vmm_pieces *pieces,
                             uint64_t *bytes)
{
    uint64_t max = (uint64_t)1 << 47;
    for (size_t i = 0; i < pieces->count; i++) {
        uint64_t size = pieces->list[i].size;
        if (!size || size % guest->space.granule || size > max - *bytes) {
            return ga_fail(GA_ERR_ARGUMENT, "a piece of %llu bytes: expected a multiple of %llu",
                           (ull)size, (ull)guest->space.granule);
        }
        *bytes += size;
    }
    return *bytes ? GA_OK : ga_fail(GA_ERR_ARGUMENT, "expected pieces, got none");
}

/* Afterwards the mapping alone keeps the memory. */
static ga_status map_piece(ga_vmm_guest *guest, const struct ga_vmm_piece *piece)
{
    ga_arena_share share = {.size = piece->size, .fd = piece->fd};
    uint64_t handle;
    ga_status status = ga_space_import(&guest->space, &share, &handle);
    if (status != GA_OK) {
        return status;
    }
    status = ga_space_map(&guest->space, guest->base + guest->mapped, piece->size, handle);
    guest->mapped += status == GA_OK ? piece->size : 0;
    if (ga_space_destroy(&guest->space, handle) != GA_OK) {
        guest->handles[guest->handle_count++] = handle;
    }
    return status;
}

static ga_status reserve(ga_vmm_guest *guest, const ga_vmm_pieces *pieces)
{
    uint64_t bytes = 0;
    ga_status status = check_sizes(guest, pieces, &bytes);
    if (status != GA_OK) {
        return status;
    }
    guest->handles = ga_libc.calloc(pieces->count, sizeof *guest->handles);
    if (!guest->handles) {
        return ga_fail(GA_ERR_MEMORY, "no memory to list %zu pieces", pieces->count);
    }
    status = ga_space_reserve(&guest->space, bytes, 0, &guest->base);
    guest->reserved = status == GA_OK ? bytes : 0;
    return status;
}

static ga_status map_all(ga_vmm_guest *guest, const ga_vmm_pieces *pieces)
{
    ga_status status = GA_OK;
    for (size_t i = 0; status == GA_OK && i < pieces->count; i++) {
        status = map_piece(guest, &pieces->list[i]);
    }
    return status;
}

ga_status ga_vmm_guest_open(ga_vmm_guest *guest, int device, const ga_vmm_pieces *pieces)
{
    *guest = (ga_vmm_guest){0};
    ga_status status = ga_space_open_guest(&guest->space, device);
    if (status == GA_OK) {
        status = reserve(guest, pieces);
    }
    if (status == GA_OK) {
        status = map_all(guest, pieces);
    }
    if (status != GA_OK) {
        char why[512]; /* closing may set another error text */
        snprintf(why, sizeof why, "%s", ga_error_text());
        ga_vmm_guest_close(guest);
        ga_fail(status, "%s", why);
    }
    return status;
}

/* Closes as much as the driver accepts. */
bool ga_vmm_guest_close(ga_vmm_guest *guest)
{
    const ga_space *space = &guest->space;
    while (guest->handle_count &&
           ga_space_destroy(space, guest->handles[guest->handle_count - 1]) == GA_OK) {
        guest->handle_count--;
    }
    if (guest->mapped && ga_space_unmap(space, guest->base, guest->mapped) == GA_OK) {
        guest->mapped = 0;
    }
    if (guest->reserved && !guest->mapped &&
        ga_space_unreserve(&guest->space, guest->base, guest->reserved) == GA_OK) {
        guest->reserved = 0;
    }
    if (guest->handle_count || guest->reserved) {
        return false;
    }
    ga_libc.free(guest->handles);
    guest->handles = NULL;
    return true;
}
