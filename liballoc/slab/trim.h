/* SPDX-License-Identifier: MIT
 *
 * Memory without a live unit goes back, and comes back into use when the slab has no other room.
 *
 * On the host memory blocks give their pages to the system. Addresses stay the slab's: what the
 * parent gave goes back to it when the heap closes. On a device a super block (with light addressing
 * the whole array) goes back to the parent and is another block of the parent's when it is
 * needed again.
 */
#ifndef GPUALLOC_SLAB_TRIM_H
#define GPUALLOC_SLAB_TRIM_H

#include "host.h"

/* Give back what is empty until about `keep` bytes of it are left; the highest numbers go first. What
 * has a unit that is live, or in a thread's cache, stays. One thread at a time, the one that may
 * grow; others claim and free beside it. On a device the parent is asked to free, and waits for the
 * device if it does so in ga_free(); what it refuses stays in use. Answers how many bytes went. */
uint64_t ga_slab_host_trim(ga_slab_host *slab, uint64_t keep);

/* Trim a slab once more of it is empty than `slab->keep` and a quarter of the rest, down to half of
 * that. */
void ga_slab_host_settle(ga_slab_host *slab);

/* The same bound for `count` slabs together, each trimmed by its share of what is empty. */
void ga_slab_hosts_settle(ga_slab_host *slabs, uint32_t count, uint64_t keep);

/* Bring blocks that are away, of which there are some, back into use: a super block's worth, or what
 * there is. As ga_slab_host_grow(). On a device GA_ERR_MEMORY: the parent's answer. */
ga_status ga_slab_host_fetch(ga_slab_host *slab);

/* Bytes in which nothing is taken and which could go. A guess while others claim and free. */
uint64_t ga_slab_host_empty(const ga_slab_host *slab);

#endif
