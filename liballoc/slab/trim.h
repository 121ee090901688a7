/* SPDX-License-Identifier: MIT
 *
 * Memory blocks without a live unit give their pages back to the system, and come back into use
 * when the slab has no other room. Host memory only. Addresses stay the slab's: what the parent
 * gave goes back to it when the heap closes.
 */
#ifndef GPUALLOC_SLAB_TRIM_H
#define GPUALLOC_SLAB_TRIM_H

#include "host.h"

/* Give back the pages of blocks that are empty until about `keep` bytes of empty ones are left;
 * those with the highest numbers go first. A block with a unit that is live, or in a thread's
 * cache, stays. One thread at a time, the one that may grow; others claim and free beside it.
 * Answers how many bytes went. */
uint64_t ga_slab_host_trim(ga_slab_host *slab, uint64_t keep);

/* Trim a slab once more of it is empty than `slab->keep` and a quarter of the rest, down to half of
 * that. */
void ga_slab_host_settle(ga_slab_host *slab);

/* The same bound for `count` slabs together, each trimmed by its share of what is empty. */
void ga_slab_hosts_settle(ga_slab_host *slabs, uint32_t count, uint64_t keep);

/* Bring blocks that are away back into use: a super block's worth, or what there is. False where
 * none are away. As ga_slab_host_grow(). */
bool ga_slab_host_fetch(ga_slab_host *slab);

/* Bytes of blocks in which nothing is taken. A guess while others claim and free. */
uint64_t ga_slab_host_empty(const ga_slab_host *slab);

#endif
