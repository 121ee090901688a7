/* SPDX-License-Identifier: MIT
 *
 * Reservations, physical chunks, and mappings of these in those.
 */
#include "vmm_state.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    NO_ACCESS = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
    POISON = 0xa5 /* the first bytes of a new chunk */
};

static void *make(size_t size)
{
    void *made = calloc(1, size);
    VMM_REQUIRE(made != NULL);
    return made;
}

static bool is_granular(uint64_t value)
{
    return value % vmm.options.granularity == 0;
}

/* ---- addresses --------------------------------------------------------------------------- */

/* Sanitizers leave a process fewer addresses: then it uses all that are left. */
void vmm_memory_begin(void)
{
    size_t size = vmm.options.addresses;
    size_t granule = vmm.options.granularity;
    void *span = MAP_FAILED;
    while (size) {
        span = mmap(NULL, size + granule, PROT_NONE, NO_ACCESS, -1, 0);
        if (span != MAP_FAILED) {
            break;
        }
        size = size / 2 & ~(granule - 1);
    }
    VMM_REQUIRE(span != MAP_FAILED);
    vmm.span = ((uintptr_t)span + granule - 1) & ~(granule - 1);
    vmm.span_size = size; /* and less than a granule around it, which stays mapped */
}

/* The place in the list for a range at `base`: the link to the next range. NULL if [base, base +
 * size) is not free or not of this driver. */
static vmm_range **free_at(uintptr_t base, size_t size)
{
    vmm_range **link = &vmm.ranges;
    if (base < vmm.span || base - vmm.span > vmm.span_size ||
        size > vmm.span_size - (base - vmm.span)) {
        return NULL;
    }
    while (*link && (*link)->base + (*link)->size <= base) {
        link = &(*link)->next;
    }
    return !*link || (*link)->base - base >= size ? link : NULL;
}

/* The lowest place, at a multiple of `align`. */
static vmm_range **find_free(size_t size, size_t align, uintptr_t *base)
{
    *base = (vmm.span + align - 1) & ~(align - 1);
    vmm_range **link = free_at(*base, size);
    for (const vmm_range *r = vmm.ranges; !link && r; r = r->next) {
        *base = (r->base + r->size + align - 1) & ~(align - 1);
        link = free_at(*base, size);
    }
    return link;
}

static CUresult address_reserve(CUdeviceptr *base, size_t size, size_t align, CUdeviceptr wanted,
                                unsigned long long flags)
{
    VMM_CALL(cuMemAddressReserve)
    uintptr_t at = wanted;
    if (!size || !is_granular(size) || align & (align - 1) || flags) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    align = align > vmm.options.granularity ? align : vmm.options.granularity;
    vmm_range **link = wanted % align == 0 ? free_at(wanted, size) : NULL;
    link = link ? link : find_free(size, align, &at);
    if (!link) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    vmm_range *range = make(sizeof *range);
    *range = (vmm_range){.base = at, .size = size, .next = *link};
    *link = range;
    *base = at;
    return CUDA_SUCCESS;
}

static CUresult address_free(CUdeviceptr base, size_t size)
{
    VMM_CALL(cuMemAddressFree)
    vmm_range **link = &vmm.ranges;
    while (*link && (*link)->base != base) {
        link = &(*link)->next;
    }
    vmm_range *range = *link;
    if (!range || range->size != size || range->mappings) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *link = range->next;
    free(range);
    return CUDA_SUCCESS;
}

/* The reservation that [start, start + size) lies in. */
static vmm_range *range_of(uintptr_t start, size_t size)
{
    for (vmm_range *r = vmm.ranges; r; r = r->next) {
        if (start >= r->base && start - r->base < r->size && size <= r->size - (start - r->base)) {
            return r;
        }
    }
    return NULL;
}

/* ---- chunks ------------------------------------------------------------------------------ */

static vmm_chunk *chunk_of(CUmemGenericAllocationHandle handle)
{
    for (vmm_chunk *c = vmm.chunks; c; c = c->next) {
        if ((uintptr_t)c == handle && c->handles) {
            return c;
        }
    }
    return NULL;
}

static void add_chunk(vmm_chunk *chunk)
{
    chunk->next = vmm.chunks;
    vmm.chunks = chunk;
}

/* Free its memory once it is neither held nor mapped. */
static void drop_unused(vmm_chunk *chunk)
{
    vmm_chunk **link = &vmm.chunks;
    if (chunk->handles || chunk->mappings) {
        return;
    }
    while (*link != chunk) {
        link = &(*link)->next;
    }
    *link = chunk->next;
    if (chunk->types || chunk->foreign) {
        close(chunk->file);
    } else {
        fallocate(chunk->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, chunk->offset,
                  (off_t)chunk->size);
    }
    vmm.devices[chunk->device].used -= chunk->foreign ? 0 : chunk->size;
    free(chunk);
}

static ino_t identity_of(int file, size_t *size)
{
    struct stat facts;
    VMM_REQUIRE(fstat(file, &facts) == 0);
    *size = (size_t)facts.st_size;
    return facts.st_ino;
}

/* An offset in the device's file; an exportable chunk has a file of its own. */
static void place_chunk(vmm_chunk *chunk)
{
    char page[4096];
    vmm_device *device = &vmm.devices[chunk->device];
    chunk->file = chunk->types ? memfd_create("vmm_driver chunk", MFD_CLOEXEC) : device->file;
    chunk->offset = chunk->types ? 0 : device->end;
    VMM_REQUIRE(chunk->file >= 0);
    VMM_REQUIRE(ftruncate(chunk->file, chunk->offset + (off_t)chunk->size) == 0);
    device->end += chunk->types ? 0 : (off_t)chunk->size;
    memset(page, POISON, sizeof page);
    VMM_REQUIRE(pwrite(chunk->file, page, sizeof page, chunk->offset) == sizeof page);
}

static int supported_types(void)
{
    return (vmm.options.no_fd ? 0 : CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) |
           (vmm.options.fabric ? CU_MEM_HANDLE_TYPE_FABRIC : 0);
}

static CUresult check_prop(const CUmemAllocationProp *prop)
{
    if (prop->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
        prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE || prop->win32HandleMetaData) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (prop->location.id < 0 || prop->location.id >= vmm.options.devices) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    if (prop->requestedHandleTypes & ~supported_types()) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (prop->allocFlags.gpuDirectRDMACapable && !vmm.options.rdma) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return vmm.options.no_vmm ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

static CUresult granularity(size_t *bytes, const CUmemAllocationProp *prop,
                            CUmemAllocationGranularity_flags which)
{
    VMM_CALL(cuMemGetAllocationGranularity)
    size_t recommended = vmm.options.recommended;
    bool asks = which == CU_MEM_ALLOC_GRANULARITY_RECOMMENDED && recommended;
    *bytes = asks ? recommended : vmm.options.granularity;
    return check_prop(prop);
}

static CUresult create(CUmemGenericAllocationHandle *handle, size_t size,
                       const CUmemAllocationProp *prop, unsigned long long flags)
{
    VMM_CALL(cuMemCreate)
    CUresult wrong = check_prop(prop);
    if (wrong != CUDA_SUCCESS) {
        return wrong;
    }
    if (!size || !is_granular(size) || flags) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (prop->requestedHandleTypes & CU_MEM_HANDLE_TYPE_FABRIC && vmm.options.no_fabric_daemon) {
        return CUDA_ERROR_NOT_PERMITTED;
    }
    if (!vmm_use(prop->location.id, size)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    vmm_chunk *chunk = make(sizeof *chunk);
    chunk->device = prop->location.id;
    chunk->size = size;
    chunk->handles = 1;
    chunk->types = prop->requestedHandleTypes;
    chunk->rdma = prop->allocFlags.gpuDirectRDMACapable;
    chunk->id = ++vmm.last_id;
    place_chunk(chunk);
    chunk->identity = chunk->types ? identity_of(chunk->file, &size) : 0;
    add_chunk(chunk);
    *handle = (uintptr_t)chunk;
    return CUDA_SUCCESS;
}

static CUresult release(CUmemGenericAllocationHandle handle)
{
    VMM_CALL(cuMemRelease)
    vmm_chunk *chunk = chunk_of(handle);
    if (!chunk) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    chunk->handles--;
    drop_unused(chunk);
    return CUDA_SUCCESS;
}

/* ---- sharing ----------------------------------------------------------------------------- */

/* A fabric handle of ours is the chunk's number in the file system: of use in this process. */
static CUresult export_chunk(void *shared, CUmemGenericAllocationHandle handle,
                             CUmemAllocationHandleType type, unsigned long long flags)
{
    VMM_CALL(cuMemExportToShareableHandle)
    const vmm_chunk *chunk = chunk_of(handle);
    if (!chunk || !(chunk->types & type) || flags) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (type == CU_MEM_HANDLE_TYPE_FABRIC) {
        memset(shared, 0, sizeof(CUmemFabricHandle));
        memcpy(shared, &chunk->identity, sizeof chunk->identity);
        return CUDA_SUCCESS;
    }
    int file = fcntl(chunk->file, F_DUPFD_CLOEXEC, 0);
    memcpy(shared, &file, sizeof file);
    return file >= 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static vmm_chunk *chunk_by_identity(ino_t identity)
{
    for (vmm_chunk *c = vmm.chunks; c; c = c->next) {
        if (identity && c->identity == identity) {
            return c;
        }
    }
    return NULL;
}

static vmm_chunk *foreign_chunk(int file, ino_t identity, size_t size)
{
    vmm_chunk *chunk = make(sizeof *chunk);
    chunk->size = size;
    chunk->file = fcntl(file, F_DUPFD_CLOEXEC, 0);
    chunk->identity = identity;
    chunk->id = ++vmm.last_id;
    chunk->foreign = true;
    add_chunk(chunk);
    return chunk;
}

static CUresult import_chunk(CUmemGenericAllocationHandle *handle, void *shared,
                             CUmemAllocationHandleType type)
{
    VMM_CALL(cuMemImportFromShareableHandle)
    bool is_file = type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    int file = (int)(intptr_t)shared;
    size_t size = 0;
    ino_t identity = 0;
    if (!(type & supported_types()) || (is_file && fcntl(file, F_GETFD) < 0)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (is_file) {
        identity = identity_of(file, &size);
    } else {
        memcpy(&identity, shared, sizeof identity);
    }
    vmm_chunk *chunk = chunk_by_identity(identity);
    if (!chunk && is_file && size && is_granular(size)) {
        chunk = foreign_chunk(file, identity, size);
    }
    if (!chunk) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    chunk->handles++;
    *handle = (uintptr_t)chunk;
    return CUDA_SUCCESS;
}

/* ---- mappings ---------------------------------------------------------------------------- */

static void no_access(uintptr_t start, size_t size)
{
    void *at = mmap((void *)start, size, PROT_NONE, NO_ACCESS | MAP_FIXED, -1, 0);
    VMM_REQUIRE(at == (void *)start);
}

/* The link to the first mapping at or behind `start`. */
static vmm_mapping **mapping_link(vmm_range *range, uintptr_t start)
{
    vmm_mapping **link = &range->mappings;
    while (*link && (*link)->start + (*link)->size <= start) {
        link = &(*link)->next;
    }
    return link;
}

static CUresult map(CUdeviceptr start, size_t size, size_t offset,
                    CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    vmm_kernels_wait();
    VMM_CALL(cuMemMap)
    vmm_chunk *chunk = chunk_of(handle);
    vmm_range *range = range_of(start, size);
    if (!chunk || !range || offset || flags || size != chunk->size || !is_granular(start)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    vmm_mapping **link = mapping_link(range, start);
    if (*link && (*link)->start < start + size) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    void *at = mmap((void *)(uintptr_t)start, size, PROT_NONE, MAP_SHARED | MAP_FIXED, chunk->file,
                    chunk->offset);
    VMM_REQUIRE(at == (void *)(uintptr_t)start);
    vmm_mapping *mapping = make(sizeof *mapping);
    *mapping = (vmm_mapping){.start = start, .size = size, .chunk = chunk, .next = *link};
    *link = mapping;
    chunk->mappings++;
    return CUDA_SUCCESS;
}

/* The link to the first of the whole mappings that make up [start, start + size); NULL: none do. */
static vmm_mapping **whole_mappings(uintptr_t start, size_t size)
{
    vmm_range *range = range_of(start, size);
    vmm_mapping **link = range ? mapping_link(range, start) : NULL;
    uintptr_t end = start;
    for (const vmm_mapping *m = link ? *link : NULL; m && m->start == end && end < start + size;
         m = m->next) {
        end += m->size;
    }
    return size && end == start + size ? link : NULL;
}

static CUresult unmap(CUdeviceptr start, size_t size)
{
    VMM_CALL(cuMemUnmap)
    vmm_mapping **link = whole_mappings(start, size);
    if (!link) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    no_access(start, size);
    while (*link && (*link)->start < start + size) {
        vmm_mapping *gone = *link;
        *link = gone->next;
        gone->chunk->mappings--;
        drop_unused(gone->chunk);
        free(gone);
    }
    return CUDA_SUCCESS;
}

static unsigned access_with(unsigned access, const CUmemAccessDesc *desc, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        unsigned bit = 1u << desc[i].location.id;
        access = desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE ? access & ~bit : access | bit;
    }
    return access;
}

static bool access_can_be(const vmm_chunk *chunk, const CUmemAccessDesc *desc, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        int id = desc[i].location.id;
        if (desc[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || id < 0 ||
            id >= vmm.options.devices || (id != chunk->device && vmm.options.no_peers)) {
            return false;
        }
    }
    return count > 0;
}

static CUresult set_access(CUdeviceptr start, size_t size, const CUmemAccessDesc *desc,
                           size_t count)
{
    VMM_CALL(cuMemSetAccess)
    vmm_mapping **link = whole_mappings(start, size);
    if (!link || !access_can_be((*link)->chunk, desc, count)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (vmm_mapping *m = *link; m && m->start < start + size; m = m->next) {
        m->access = access_with(m->access, desc, count);
        m->read_only = desc[count - 1].flags == CU_MEM_ACCESS_FLAGS_PROT_READ;
        int prot = !m->access ? PROT_NONE : m->read_only ? PROT_READ : PROT_READ | PROT_WRITE;
        VMM_REQUIRE(mprotect((void *)m->start, m->size, prot) == 0);
    }
    return CUDA_SUCCESS;
}

/* ---- questions --------------------------------------------------------------------------- */

const vmm_mapping *vmm_mapping_at(uintptr_t address)
{
    vmm_range *range = range_of(address, 1);
    const vmm_mapping *m = range ? *mapping_link(range, address) : NULL;
    return m && m->start <= address ? m : NULL;
}

vmm_driver_memory vmm_driver_memory_at(const void *address)
{
    vmm_lock();
    const vmm_mapping *m = vmm_mapping_at((uintptr_t)address);
    vmm_driver_memory memory = {0};
    if (m) {
        memory = (vmm_driver_memory){m->start, m->size, m->chunk->types, m->chunk->rdma};
    }
    vmm_unlock(NULL);
    return memory;
}

bool vmm_driver_accessible(const void *start, size_t size, unsigned access)
{
    uintptr_t at = (uintptr_t)start;
    uintptr_t end = at + size;
    vmm_lock();
    while (at < end) {
        const vmm_mapping *m = vmm_mapping_at(at);
        if (!m || (m->access & access) != access) {
            break;
        }
        at = m->start + m->size;
    }
    vmm_unlock(NULL);
    return at >= end;
}

CUresult vmm_driver_retain(CUmemGenericAllocationHandle *handle, CUdeviceptr pointer)
{
    vmm_lock();
    const vmm_mapping *m = vmm_mapping_at(pointer);
    if (m) {
        m->chunk->handles++;
        *handle = (uintptr_t)m->chunk;
    }
    vmm_unlock(NULL);
    return m ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult vmm_driver_get_access(unsigned long long *flags, const CUmemLocation *location,
                               CUdeviceptr pointer)
{
    vmm_lock();
    const vmm_mapping *m = vmm_mapping_at(pointer);
    bool may = m && m->access >> location->id & 1;
    vmm_unlock(NULL);
    if (m) {
        *flags = !may           ? CU_MEM_ACCESS_FLAGS_PROT_NONE
                 : m->read_only ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                : CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    }
    return m ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Mapped without a gap, with equal properties, on one device. */
static bool is_uniform(uintptr_t start, size_t size)
{
    const vmm_mapping *first = vmm_mapping_at(start);
    const vmm_mapping *m = first;
    uintptr_t end = start + size;
    while (m && m->chunk->rdma && m->chunk->device == first->chunk->device &&
           m->start + m->size < end) {
        m = vmm_mapping_at(m->start + m->size);
    }
    return m && m->chunk->rdma && m->chunk->device == first->chunk->device;
}

CUresult vmm_driver_dma_buf(int *file, CUdeviceptr start, size_t size)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    vmm_lock();
    const vmm_block *block = vmm_block_at(start);
    bool whole =
        block ? size <= block->size - (start - (uintptr_t)block->start) : is_uniform(start, size);
    bool can = vmm.options.rdma;
    vmm_unlock(NULL);
    if (!size || start % page || size % page || !whole) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!can) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    *file = memfd_create("vmm_driver dma-buf", MFD_CLOEXEC);
    return *file >= 0 && ftruncate(*file, (off_t)size) == 0 ? CUDA_SUCCESS
                                                            : CUDA_ERROR_OUT_OF_MEMORY;
}

/* ---- begin and end ----------------------------------------------------------------------- */

void vmm_memory_fill(ga_cuda_driver *table)
{
    table->cuMemAddressReserve = address_reserve;
    table->cuMemAddressFree = address_free;
    table->cuMemGetAllocationGranularity = granularity;
    table->cuMemCreate = create;
    table->cuMemRelease = release;
    table->cuMemExportToShareableHandle = export_chunk;
    table->cuMemImportFromShareableHandle = import_chunk;
    table->cuMemMap = map;
    table->cuMemUnmap = unmap;
    table->cuMemSetAccess = set_access;
}

static void clear_range(vmm_range *range)
{
    while (range->mappings) {
        vmm_mapping *mapping = range->mappings;
        range->mappings = mapping->next;
        mapping->chunk->mappings--;
        drop_unused(mapping->chunk);
        free(mapping);
    }
    free(range);
}

void vmm_memory_clear(void)
{
    while (vmm.ranges) {
        vmm_range *range = vmm.ranges;
        vmm.ranges = range->next;
        clear_range(range);
    }
    while (vmm.chunks) {
        vmm.chunks->handles = 0;
        drop_unused(vmm.chunks);
    }
    if (vmm.span) {
        munmap((void *)vmm.span, vmm.span_size);
    }
}
