/* SPDX-License-Identifier: MIT
 *
 * Arenas: a range of addresses that is reserved once and backed with physical memory chunk by chunk
 * as it grows (vmm-spgemm-2023, §3.1: docs/sources.md). The base does not move, nothing is copied,
 * and nothing is allocated twice. Chunks are driver allocations (cuMemCreate) on a device, and
 * pages on the host.
 *
 *     base              size                       reserved
 *     | chunk | chunk   |  addresses, not backed    |
 *
 * New memory is uninitialised on a device and zero on the host. An access to addresses that are not
 * backed is a fault.
 *
 * Every call returns a status, as in gpualloc.h. A call that fails changes nothing and sets
 * ga_error_text(). (One exception: if the driver refuses a change and then also its undo, the
 * chunks that it keeps unmapped are lost. ga_arena_size() returns the rest.)
 *
 * Thread safety: calls on different arenas are independent. Calls on one arena take its lock,
 * except as stated at ga_arena_close() and ga_arena_move(). Memory in use by another thread or
 * kernel may grow during the use; it must not shrink. After fork() the child has a copy of a host
 * arena, with the parent's memory if it was opened with GA_ARENA_SHARE_FD. It may close a device
 * arena, which leaves the parent's alone.
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

/* The properties of an arena, fixed when it is opened. All zeros except `options_size` is a good
 * choice. All sizes are bytes, rounded up to granules: 2 MiB on a device and with huge pages,
 * otherwise a page. */
typedef struct ga_arena_options {
    uint32_t options_size; /* sizeof(ga_arena_options) */
    uint32_t flags;        /* GA_ARENA_* */
    ga_place place;        /* GA_PLACE_HOST or GA_PLACE_DEVICE */
    int device;            /* CUDA driver ordinal; ignored on the host */
    uint64_t reserve;      /* bytes of addresses; 0: `limit`, or without a limit 1 TiB, and under
                            * the thread sanitizer 16 GiB */
    uint64_t limit;        /* most bytes to back (rounded down); 0: no limit */
    uint64_t chunk;        /* least bytes to grow by; 0: one granule */
    /* Bytes of the largest chunk, and most bytes to grow ahead; 0: 1 GiB. */
    uint64_t chunk_max;
    const int *peers; /* devices with access besides `device`; copied */
    uint32_t peer_count;
} ga_arena_options;

enum {
    /* Other processes may map it: ga_arena_export() returns file descriptors. On the host a chunk
     * is then a file in memory, which takes one descriptor, and pages when they are written. */
    GA_ARENA_SHARE_FD = 1,
    GA_ARENA_SHARE_FABRIC = 2, /* ... or handles for other machines of the fabric */
    GA_ARENA_RDMA = 4,         /* network cards may read and write it (GPUDirect) */
    GA_ARENA_HUGE_PAGES = 8,   /* host: transparent huge pages if available */
    GA_ARENA_EXACT = 16        /* grow by the missing bytes only (see ga_arena_grow) */
};

/* Open an arena: reserves addresses, backs nothing yet. If neither `reserve` nor `limit` is set and
 * 1 TiB is refused, the reservation is halved, down to 1 GiB. The caller closes the arena.
 *
 * GA_ERR_ARGUMENT     an invalid option: another place, a chunk above chunk_max or limit, a limit
 *                     below one granule, ...
 * GA_ERR_DEVICE       no such device, or no driver
 * GA_ERR_UNSUPPORTED  the device, the driver or the host does not support a flag or peer; the error
 *                     text names it
 * GA_ERR_MEMORY       no addresses */
GA_API ga_status ga_arena_open(ga_arena **out, const ga_arena_options *options);

/* Unmap and release everything. No thread may use the memory or call a function on this arena. NULL
 * is ignored. If the device's context or process is gone, its memory counts as released. */
GA_API void ga_arena_close(ga_arena *arena);

/* Back at least `size` bytes from the base on. Backed memory stays; nothing moves. An arena grows
 * ahead: by the missing bytes, or by its current size if that is more, within `chunk` and
 * `chunk_max`. With GA_ARENA_EXACT, or if memory or the limit do not allow more, it grows by the
 * missing bytes in whole granules. Kernels may use the arena during the call.
 *
 * GA_ERR_CANNOT_GROW  `size` is above the reserved bytes: see ga_arena_extend(), ga_arena_move()
 * GA_ERR_MEMORY       out of memory, above the limit, or more than the machine has in all (checked
 *                     for growths by 1 GiB or more); the error text says which */
GA_API ga_status ga_arena_grow(ga_arena *arena, uint64_t size);

/* Release the chunks that lie wholly at or above `size`; on the host, the granules. They must not
 * be in use: on a device, all work that uses them has ended.
 *
 * GA_ERR_UNSUPPORTED  the arena is open in another process: see ga_arena_publish() */
GA_API ga_status ga_arena_shrink(ga_arena *arena, uint64_t size);

/* Reserve more addresses directly behind the arena, up to `reserve` bytes from the base on. The
 * base stays. A size below the reserved bytes changes nothing.
 *
 * GA_ERR_CANNOT_GROW  the addresses behind it are in use
 * GA_ERR_MEMORY       no addresses
 * GA_ERR_SIZE         `reserve` is too large */
GA_API ga_status ga_arena_extend(ga_arena *arena, uint64_t reserve);

/* Like ga_arena_extend(), but if that fails, reserve a new range of `reserve` bytes, move the
 * physical memory there and release the old range. MOVES THE BASE: all pointers into the arena
 * become invalid, and no thread or kernel may be using it (§3.1.1).
 *
 * GA_ERR_MEMORY       no addresses
 * GA_ERR_UNSUPPORTED  host: a kernel before Linux 5.7 */
GA_API ga_status ga_arena_move(ga_arena *arena, uint64_t reserve);

/* The base, which only ga_arena_move() changes; bytes backed now; bytes reserved. */
GA_API void *ga_arena_base(const ga_arena *arena);
GA_API uint64_t ga_arena_size(const ga_arena *arena);
GA_API uint64_t ga_arena_reserved(const ga_arena *arena);

typedef struct ga_arena_stats {
    uint64_t reserved, backed, peak_backed; /* bytes */
    uint64_t granule;                       /* bytes; every chunk is a multiple */
    uint64_t chunks;                  /* number of chunks now; the host merges them into one */
    uint64_t growths, shrinks, moves; /* number of calls that changed something */
    /* Times of growths, to within an eighth; 0 before the first. */
    uint64_t grow_ns_p50, grow_ns_p99, grow_ns_p999, grow_ns_max;
    uint64_t grow_ns_sum; /* exact */
} ga_arena_stats;

/* Returns all zeros for NULL. */
GA_API void ga_arena_get_stats(ga_arena *arena, ga_arena_stats *out);

/* ---- sharing with other processes -------------------------------------------------------- */

/* One chunk, to be sent to another process. The caller owns `fd` and closes it. */
typedef struct ga_arena_share {
    uint64_t offset, size; /* bytes, from the base on */
    int fd;                /* GA_ARENA_SHARE_FD; else -1 */
    unsigned char fabric[64];
} ga_arena_share;

/* Export chunk `index` of the arena, 0 to chunks - 1. The memory lives as long as either process
 * keeps it.
 *
 * GA_ERR_UNSUPPORTED  the arena was opened without a GA_ARENA_SHARE_* flag
 * GA_ERR_ARGUMENT     no such chunk */
GA_API ga_status ga_arena_export(ga_arena *arena, uint64_t index, ga_arena_share *out);

/* Map another process's chunk at the end of the arena, which grows by share->size. The options of
 * both arenas must be equal. The caller keeps `share->fd` and may close it afterwards.
 *
 * GA_ERR_CANNOT_GROW  it does not fit behind the arena's memory within one reservation
 * GA_ERR_MEMORY       above the limit
 * GA_ERR_DEVICE       the driver does not know the handle */
GA_API ga_status ga_arena_import(ga_arena *arena, const ga_arena_share *share);

/* ---- one arena in several processes ------------------------------------------------------ */

/* Let other processes of this user open the arena by a name: "@text", an abstract socket name of
 * this network namespace, or a path in the file system. A name has at most 107 bytes. A path stays
 * if the process is killed; a later call takes it over. A thread of this process answers openers,
 * so the name ends with the process. The memory does not: it lives while a process maps it. On a
 * device the publisher keeps one descriptor for each of the first 64 chunks that it has sent.
 *
 * The arena was opened with GA_ARENA_SHARE_FD, for the host or a device. It may grow. While another
 * process has it open, it does not shrink. A child of fork() does not publish it, and may do so
 * under another name. Children of an opener count with it as one opening, until all have closed it,
 * ended or called exec.
 *
 * GA_ERR_UNSUPPORTED  the arena was opened without GA_ARENA_SHARE_FD, or by ga_arena_join()
 * A call for a path holds the lock of a file beside it, ".NAME.gpualloc-lock", for a moment.
 * GA_ERR_ARGUMENT     it is published already; the name is invalid or too long; its path belongs to
 *                     another user or is no socket, or the lock's file belongs to another user
 * GA_ERR_IO           another process uses the name, or the path cannot be made
 * GA_ERR_MEMORY       no descriptor or thread */
GA_API ga_status ga_arena_publish(ga_arena *arena, const char *name);

/* End the name. An opening that is being answered fails. The call waits for that, at most as long
 * as the driver exports a chunk, and at most 1 s for another process that holds the lock of a path.
 * Openers keep the memory. Ignored if the arena is not published. ga_arena_close() does it, too. */
GA_API void ga_arena_unpublish(ga_arena *arena);

typedef enum ga_arena_access {
    /* A write is a fault in this process alone: SIGSEGV, or in a kernel an illegal address. The
     * driver refuses copies and fills into the memory. */
    GA_ARENA_READ = 1,
    GA_ARENA_READ_WRITE = 2
} ga_arena_access;

/* Open the arena that a process of this user publishes under a name, with all that it has backed by
 * now. The base may differ from the publisher's. The device is the publisher's, whichever ordinal
 * it has here. The arena cannot be grown, shrunk or published. The caller closes it. Waits at most
 * 10 s for the publisher. Both sides may be one process.
 *
 * GA_ERR_IO        no process publishes the name: it has ended, has not begun, or does not answer
 * GA_ERR_ARGUMENT  an invalid name or access, or the name is another user's
 * GA_ERR_DEVICE    this process may not use the publisher's device, or the driver refuses
 * GA_ERR_MEMORY    no addresses, memory or descriptor */
GA_API ga_status ga_arena_join(ga_arena **out, const char *name, ga_arena_access access);

/* Map what the publisher has added since. Memory in use stays. Waits as ga_arena_join(), under the
 * lock of this arena.
 *
 * GA_ERR_ARGUMENT     the arena was not opened by ga_arena_join()
 * GA_ERR_IO           the publisher has ended, or does not publish the arena any more
 * GA_ERR_CANNOT_GROW  the addresses behind the arena are in use: close it and join again
 * otherwise           as ga_arena_join() */
GA_API ga_status ga_arena_update(ga_arena *arena);

/* Openings by ga_arena_join() that are not closed. The publisher and all openers may count, also
 * after the publisher's end. */
typedef struct ga_arena_openers {
    uint64_t readers, writers; /* by access; an opener counts itself, too */
    bool published;            /* the publisher lives, and publishes the arena */
} ga_arena_openers;

/* Count openings. A process that has ended, however it did, is not counted: the kernel has released
 * its entry (at most a moment after the signal). All zeros for an arena that is not shared. Takes
 * about 1 us, and as much for each opening. */
GA_API ga_status ga_arena_count_openers(ga_arena *arena, ga_arena_openers *out);

#ifdef __cplusplus
}
#endif
#endif
