/* SPDX-License-Identifier: MIT
 *
 * Arenas: a range of addresses that is reserved once and backed with physical memory chunk by chunk
 * as it grows (vmm-spgemm-2023, §3.1). Its base does not move, nothing is copied, and nothing is
 * allocated twice. On a device the chunks are the driver's (cuMemCreate), on the host pages.
 *
 *     base              size                       reserved
 *     | chunk | chunk   |  addresses, nothing behind |
 *
 * Fresh memory holds anything on a device, zeros on the host. Touching what is not backed is a
 * fault.
 *
 * Every call answers a status, as in gpualloc.h: one that fails changes nothing and leaves a
 * sentence in ga_error_text(). (Should a driver that has just refused a change refuse the way back
 * as well, the chunks that it then keeps unmapped are lost, and ga_arena_size() says what is left.)
 *
 * Thread safety: calls on different arenas never disturb each other; calls on one arena take a lock
 * of its own, but see ga_arena_close() and ga_arena_move(). Memory that another thread or a kernel
 * is using may grow meanwhile; it may not shrink under them. After fork() a child has a copy of a
 * host arena, and may close one on a device, which then leaves the parent's alone.
 *
 * Compiles alone as C11, C++17 and under nvcc.
 */
#ifndef GPUALLOC_ARENA_H
#define GPUALLOC_ARENA_H

#include <gpualloc/gpualloc.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ga_arena ga_arena;

/* What an arena is made with: fixed from then on. All zeros but `options_size` is a good choice.
 * All sizes are bytes, rounded up to whole granules: 2 MiB on a device and with huge pages, else a
 * page. */
typedef struct ga_arena_options {
    uint32_t options_size; /* sizeof(ga_arena_options) */
    uint32_t flags;        /* GA_ARENA_* */
    ga_place place;        /* GA_PLACE_HOST or GA_PLACE_DEVICE */
    int device;            /* as the CUDA driver counts; the host ignores it */
    uint64_t reserve;      /* addresses; 0: as many as `limit`, or without one 1 TiB */
    uint64_t limit;        /* the most that may be backed (rounded down); 0: no limit */
    uint64_t chunk;        /* the least to grow by; 0: one granule */
    uint64_t chunk_most;   /* the largest chunk, and the most to grow ahead; 0: 1 GiB */
    const int *peers;      /* devices that shall have access besides `device`; copied */
    uint32_t peer_count;
} ga_arena_options;

enum {
    GA_ARENA_SHARE_FD = 1,     /* ga_arena_export() gives POSIX file descriptors */
    GA_ARENA_SHARE_FABRIC = 2, /* ... or handles that go to other machines of the fabric */
    GA_ARENA_RDMA = 4,         /* network cards may read and write it (GPUDirect) */
    GA_ARENA_HUGE_PAGES = 8,   /* host: transparent huge pages where there are any */
    GA_ARENA_EXACT = 16        /* grow by what is missing and no more (see ga_arena_grow) */
};

/* Reserves; backs nothing yet. Where neither `reserve` nor `limit` is given and 1 TiB is refused,
 * half of it is asked for, and so on down to 1 GiB. The caller closes the arena.
 *
 * GA_ERR_ARGUMENT     an option that cannot be: another place, a chunk above chunk_most or limit, a
 *                     limit below one granule, ...
 * GA_ERR_DEVICE       no such device, or no driver
 * GA_ERR_UNSUPPORTED  a flag or peer that the device, the driver or the host refuse; the sentence
 *                     names it
 * GA_ERR_MEMORY       no addresses */
GA_API ga_status ga_arena_open(ga_arena **out, const ga_arena_options *options);

/* Unmap and give back everything. Nobody may be using the memory, nor call for this arena. NULL is
 * ignored. A device that went with its context or process counts as given back. */
GA_API void ga_arena_close(ga_arena *arena);

/* Back at least `size` bytes from the base on. What is backed already stays; nothing moves. An
 * arena grows ahead: by what is missing, but at least by as much as it has, within `chunk` and
 * `chunk_most`. With GA_ARENA_EXACT, or where memory or the limit do not allow it, by what is
 * missing, in whole granules. May run while kernels use the arena.
 *
 * GA_ERR_NO_ROOM  `size` is above what is reserved: ga_arena_extend(), ga_arena_move()
 * GA_ERR_MEMORY   out of memory, above the limit, or more than the machine has in all (asked for
 *                 growths by 1 GiB or more); the sentence says which */
GA_API ga_status ga_arena_grow(ga_arena *arena, uint64_t size);

/* Give back the chunks that lie wholly at or above `size`; on the host, the granules. Nobody may be
 * using them: on a device, all work that does has ended. */
GA_API ga_status ga_arena_shrink(ga_arena *arena, uint64_t size);

/* Reserve more addresses directly behind, up to `reserve` bytes from the base on, so that the base
 * stays. Less than there is changes nothing.
 *
 * GA_ERR_NO_ROOM  others stand there
 * GA_ERR_MEMORY   no addresses
 * GA_ERR_SIZE     more than there can be */
GA_API ga_status ga_arena_extend(ga_arena *arena, uint64_t reserve);

/* The same at any price: where extend fails, a new range of `reserve` bytes gets the same physical
 * memory, and the old range is given back. MOVES THE BASE: every pointer into the arena is void
 * then, and nobody may be using it, no other thread and no kernel (§3.1.1).
 *
 * GA_ERR_MEMORY       no addresses
 * GA_ERR_UNSUPPORTED  host: a kernel before Linux 5.7 */
GA_API ga_status ga_arena_move(ga_arena *arena, uint64_t reserve);

/* The base, which ga_arena_move() alone changes; bytes backed now; bytes reserved. */
GA_API void *ga_arena_base(const ga_arena *arena);
GA_API uint64_t ga_arena_size(const ga_arena *arena);
GA_API uint64_t ga_arena_reserved(const ga_arena *arena);

typedef struct ga_arena_stats {
    uint64_t reserved, backed, peak_backed; /* bytes */
    uint64_t granule;                       /* bytes; every chunk is a multiple */
    uint64_t chunks;                        /* there are now; the host joins them to one */
    uint64_t growths, shrinks, moves;       /* calls that changed something */
    /* How long growths took, to within an eighth; 0 before the first. */
    uint64_t grow_ns_p50, grow_ns_p99, grow_ns_p999, grow_ns_most;
} ga_arena_stats;

/* All zeros for NULL. */
GA_API void ga_arena_get_stats(ga_arena *arena, ga_arena_stats *out);

/* ---- sharing with other processes -------------------------------------------------------- */

/* One chunk, to be sent to another process: `fd` belongs to the caller, who closes it. */
typedef struct ga_arena_share {
    uint64_t offset, size; /* bytes, from the base on */
    int fd;                /* GA_ARENA_SHARE_FD; else -1 */
    unsigned char fabric[64];
} ga_arena_share;

/* Chunk `index` of the arena, 0 to chunks - 1. It is shared for as long as either side keeps it.
 *
 * GA_ERR_UNSUPPORTED  the arena was not made to be shared
 * GA_ERR_ARGUMENT     no such chunk */
GA_API ga_status ga_arena_export(ga_arena *arena, uint64_t index, ga_arena_share *out);

/* Put another process's chunk behind what `arena` has, which grows by share->size. The options must
 * be those that it was exported with. `share->fd` stays the caller's, who may close it afterwards.
 *
 * GA_ERR_NO_ROOM  it does not fit behind, in one piece of what was reserved
 * GA_ERR_MEMORY   above the limit
 * GA_ERR_DEVICE   the driver does not know the handle */
GA_API ga_status ga_arena_import(ga_arena *arena, const ga_arena_share *share);

#ifdef __cplusplus
}
#endif
#endif
