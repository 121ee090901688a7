/* SPDX-License-Identifier: MIT
 *
 * Returning memory that has no live unit, and restoring it when the slab has no other room.
 *
 * On the host the pages of memory blocks are returned to the system. The slab keeps the addresses;
 * the parent gets its memory when the heap closes. On a device a superblock (with light addressing
 * the whole array) is freed to the parent, and is allocated again when it is needed.
 */
#ifndef GPUALLOC_SLAB_HOST_TRIM_H
#define GPUALLOC_SLAB_HOST_TRIM_H

#include "host.h"

/* Return empty memory until about `keep` bytes of it are left, highest numbers first. Memory with a
 * live unit, or with one in a thread's cache, stays. The caller holds the lock for growth; other
 * threads claim and free at the same time. On a device this calls the parent's ga_free(), which may
 * wait for the device; memory that the parent refuses stays in use. Returns the number of bytes
 * returned. */
uint64_t ga_slab_host_trim(ga_slab_host *slab, uint64_t keep);

/* Trim a slab if more of it is empty than `slab->keep` and a quarter of the rest, to half of
 * that. */
void ga_slab_host_purge(ga_slab_host *slab);

/* Apply one such bound to `count` slabs together; each is trimmed by its share of the empty
 * bytes. */
void ga_slab_hosts_purge(ga_slab_host *slabs, uint32_t count, uint64_t keep);

/* Bring purged blocks back into use: as many as a superblock has, or all. There must be some.
 * Locking as for ga_slab_host_grow(). On a device GA_ERR_MEMORY if the parent refuses. */
ga_status ga_slab_host_restore(ga_slab_host *slab);

/* Bytes that are empty and can be returned. A guess while other threads claim and free. */
uint64_t ga_slab_host_empty(const ga_slab_host *slab);

#endif
