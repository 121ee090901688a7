/* SPDX-License-Identifier: MIT
 *
 * The primitives of memory behind reserved addresses: reserve addresses, create a physical chunk,
 * map it with access, unmap it, and release both (vmm-spgemm-2023, §2.2). Arenas and the vmm
 * backend are built on them.
 *
 * On a device a chunk is a driver allocation (cuMemCreate); mapped twice, it is the same memory. On
 * the host the kernel provides pages itself: a chunk is only a size, a new mapping reads as zeros,
 * and any part of a mapping may be unmapped. Shared memory of the host has chunks as a device has.
 *
 * All sizes and addresses are bytes and multiples of the granule. A chunk is mapped whole, within
 * one reservation. A call that fails changes nothing and sets an error text without a prefix. A
 * release that the driver refuses is tried twice.
 *
 * An open space owns nothing and never changes, except for added peers. Thread safe.
 */
#ifndef GPUALLOC_ARENA_SPACE_H
#define GPUALLOC_ARENA_SPACE_H

#include "../platform/cuda_driver.h"

#include <gpualloc/arena.h>

typedef struct ga_space ga_space;

/* One table per place, called through the functions below. */
typedef struct ga_space_ops {
    ga_status (*memory)(const ga_space *, uint64_t *bytes);
    ga_status (*reserve)(ga_space *, uint64_t size, uintptr_t preferred, uintptr_t *base);
    ga_status (*unreserve)(ga_space *, uintptr_t base, uint64_t size);
    ga_status (*create)(const ga_space *, uint64_t size, uint64_t *chunk);
    ga_status (*destroy)(const ga_space *, uint64_t chunk);
    ga_status (*map)(ga_space *, uintptr_t start, uint64_t size, uint64_t chunk);
    ga_status (*unmap)(const ga_space *, uintptr_t start, uint64_t size);
    ga_status (*move)(ga_space *, uintptr_t from, uintptr_t to, uint64_t size, uint64_t chunk);
    ga_status (*export_chunk)(const ga_space *, uint64_t chunk, ga_arena_share *out);
    ga_status (*import_chunk)(const ga_space *, const ga_arena_share *share, uint64_t *chunk);
} ga_space_ops;

enum {
    GA_SPACE_REFUSED_MAX = 16
};

struct ga_space {
    const ga_space_ops *ops;
    uint64_t granule;
    uint32_t flags; /* GA_ARENA_* */
    int device;     /* -1: the host */
    bool wants_rdma;
    bool read_only; /* mappings can be read only */
    /* Host: unmapping leaves addresses accessible, to save kernel mappings. */
    bool saves_mappings;
    CUmemAllocationProp prop;
    size_t access_count;
    CUmemAccessDesc access[GA_CUDA_DEVICES]; /* devices with access, the own device first */
    size_t refused_count;
    /* Mappings that the driver refused to undo; it is asked again. */
    struct {
        uintptr_t start;
        uint64_t size;
    } refused[GA_SPACE_REFUSED_MAX];
};

/* Open for the place, device, flags and peers of `options`; other options are not used here. Some
 * drivers refuse a flag only when memory is created, so one chunk is created and released as a
 * test.
 *
 * GA_ERR_ARGUMENT     neither host nor device, unknown flags, too many peers
 * GA_ERR_UNSUPPORTED  the device does not support a flag or a peer
 * GA_ERR_DEVICE       no such device or driver */
ga_status ga_space_open(ga_space *space, const ga_arena_options *options);

/* Open for a device, to import memory of other processes only (GA_ARENA_SHARE_FD): no test chunk is
 * created. Errors as above. */
ga_status ga_space_open_guest(ga_space *space, int device);

/* Open for memory of the host that can be shared (GA_ARENA_SHARE_FD): a chunk is a file in memory
 * (memfd_create), and its handle is a descriptor. Mapped twice, it is the same memory.
 * GA_ERR_UNSUPPORTED: peers, or flags for devices. GA_ERR_ARGUMENT: unknown flags. */
ga_status ga_space_open_files(ga_space *space, const ga_arena_options *options);

/* Let all mappings from now on be for reading only. A write is a fault. */
void ga_space_make_read_only(ga_space *space);

/* Let network cards access all chunks of a device that are created from now on (GA_ARENA_RDMA), if
 * the device supports it. A chunk that the driver refuses with this property is created without it.
 * Call before the first chunk is created. */
void ga_space_request_rdma(ga_space *space);

/* All memory of the place, free or not: the device's, or ga_machine_memory_total(). */
ga_status ga_space_memory(const ga_space *space, uint64_t *bytes);

/* Reserve addresses: at `preferred` or GA_ERR_CANNOT_GROW. With `preferred` 0: anywhere, at a
 * multiple of 2 MiB if `size` is at least that. GA_ERR_MEMORY if there are none. */
ga_status ga_space_reserve(ga_space *space, uint64_t size, uintptr_t preferred, uintptr_t *base);

/* Release a whole reservation in which nothing is mapped; on the host mappings in it are
 * dropped. */
ga_status ga_space_unreserve(ga_space *space, uintptr_t base, uint64_t size);

/* GA_ERR_MEMORY: out of memory. */
ga_status ga_space_create(const ga_space *space, uint64_t size, uint64_t *chunk);

/* The memory is free once no mapping of it is left. */
ga_status ga_space_destroy(const ga_space *space, uint64_t chunk);

/* For callers that cannot keep memory that the driver refuses to release: it is asked again later
 * (cuda_refused.h). The size of a chunk is for the log. */
void ga_space_drop_chunk(const ga_space *space, uint64_t chunk, uint64_t size);
void ga_space_drop_mapping(const ga_space *space, uintptr_t start, uint64_t size);
void ga_space_drop_range(ga_space *space, uintptr_t base, uint64_t size);

/* Map with access for all devices of the space. May fail with GA_ERR_MEMORY, too. */
ga_status ga_space_map(ga_space *space, uintptr_t start, uint64_t size, uint64_t chunk);

/* The memory must not be in use. */
ga_status ga_space_unmap(const ga_space *space, uintptr_t start, uint64_t size);

/* Move a mapped chunk with its contents from `from` to unmapped addresses `to`. The memory must not
 * be in use. */
ga_status ga_space_move(ga_space *space, uintptr_t from, uintptr_t to, uint64_t size,
                        uint64_t chunk);

/* Add a device: ga_space_add_peer() gives it access to future mappings, ga_space_renew_access() to
 * one existing mapping. No other call on the space may run. GA_ERR_UNSUPPORTED: it cannot access
 * this device. */
ga_status ga_space_add_peer(ga_space *space, int peer);
ga_status ga_space_renew_access(const ga_space *space, uintptr_t start, uint64_t size);
void ga_space_drop_peer(ga_space *space); /* the one added last */

/* Only if the flags allow it (GA_ARENA_SHARE_*). The caller sets offset and size.
 * GA_ERR_ARGUMENT: a host's file that another process can make smaller, or of another size. */
ga_status ga_space_export(const ga_space *space, uint64_t chunk, ga_arena_share *out);
ga_status ga_space_import(const ga_space *space, const ga_arena_share *share, uint64_t *chunk);

/* GA_ERR_ARGUMENT: unknown flags. */
ga_status ga_space_check_flags(uint32_t flags);

/* The two kinds, for space.c. */
ga_status ga_space_open_host(ga_space *space, const ga_arena_options *options);
ga_status ga_space_open_device(ga_space *space, const ga_arena_options *options);

/* The host's addresses, for space_files.c, which has other chunks. */
ga_status ga_space_host_memory(const ga_space *space, uint64_t *bytes);
ga_status ga_space_host_reserve(ga_space *space, uint64_t size, uintptr_t preferred,
                                uintptr_t *base);
ga_status ga_space_host_unreserve(ga_space *space, uintptr_t base, uint64_t size);
ga_status ga_space_host_refused(const char *call, uint64_t size); /* sets the error by errno */
uint64_t ga_space_host_granule(uint32_t flags);

#endif
