/* SPDX-License-Identifier: MIT
 *
 * STRUCTURE  root[address >> 32] -> a leaf of 2^16 entries, one for each 64 KiB of those 4 GiB
 * INVARIANT  a leaf never leaves the root. The memory of a record is never used for anything else:
 *            a record that its heap has freed is used again by another heap.
 * ORDER      SR1/SR2 publish a leaf, SR3/SR4 a region, SR5/SR6 pass a record to its next owner.
 * PROGRESS   look-ups are wait-free; entering and the list of free records are lock-free
 */
#include "regions.h"

#include "../../../platform/libc.h"
#include "../../../platform/os_memory.h"

#include <sys/mman.h>

ga_slab_region_leaf *ga_slab_region_root[1 << GA_SLAB_LEAF_BITS];

static ga_slab_region *free_records; /* free records */

/* ---- records ------------------------------------------------------------------------------ */

static void push_free(ga_slab_region *first, ga_slab_region *last)
{
    ga_slab_region *before =
        __atomic_load_n(&free_records, __ATOMIC_RELAXED); /* relaxed: a guess; SR5 decides */
    do {
        last->next = before;
        /* SR5: release. Pairs with SR6. */
    } while (!__atomic_compare_exchange_n(&free_records, &before, first, true, __ATOMIC_RELEASE,
                                          __ATOMIC_RELAXED));
}

/* The thread takes the whole list and puts the rest back, so that no record leaves the list and
 * returns to it during the exchange (ABA). */
ga_slab_region *ga_slab_region_new(void)
{
    /* SR6: acquire. Pairs with SR5: the last owner has finished with it. */
    ga_slab_region *region = __atomic_exchange_n(
        &free_records, NULL, GA_PLANTED_ORDER(slab_region_record_relaxed, __ATOMIC_ACQUIRE));
    if (!region) {
        region = ga_libc.memalign(64, sizeof *region);
    } else if (region->next) {
        ga_slab_region *last = region->next;
        while (last->next) {
            last = last->next;
        }
        push_free(region->next, last);
    }
    return region;
}

void ga_slab_region_delete(ga_slab_region *region)
{
    /* relaxed: a look-up beside the close may give either answer */
    __atomic_store_n(&region->heap, 0, __ATOMIC_RELAXED);
    push_free(region, region);
}

/* ---- the map ------------------------------------------------------------------------------ */

static ga_slab_region_leaf *leaf_of(uintptr_t step)
{
    ga_slab_region_leaf **slot = &ga_slab_region_root[step >> GA_SLAB_LEAF_BITS];
    /* SR2: acquire. Pairs with SR1. */
    ga_slab_region_leaf *leaf = __atomic_load_n(slot, __ATOMIC_ACQUIRE);
    if (leaf) {
        return leaf;
    }
    const ga_os_memory *os = ga_os_memory_get();
    void *fresh = os->mmap(NULL, sizeof *leaf, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (fresh == MAP_FAILED) {
        return NULL;
    }
    /* SR1: release. Pairs with SR2. */
    if (__atomic_compare_exchange_n(slot, &leaf, (ga_slab_region_leaf *)fresh, false,
                                    __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
        return fresh;
    }
    ga_os_memory_unmap(fresh, sizeof *leaf);
    return leaf;
}

static uintptr_t first_step(const ga_slab_region *region)
{
    return (uintptr_t)region->units >> GA_SLAB_STEP_BITS;
}

static uintptr_t last_step(const ga_slab_region *region)
{
    uintptr_t bytes = (uintptr_t)region->count * region->unit;
    return ((uintptr_t)region->units + bytes - 1u) >> GA_SLAB_STEP_BITS;
}

static void set_entry(uintptr_t step, ga_slab_region *region)
{
    ga_slab_region_leaf *leaf = leaf_of(step);
    /* SR3: release. Pairs with SR4. */
    __atomic_store_n(&(*leaf)[step & ((1u << GA_SLAB_LEAF_BITS) - 1u)], region, __ATOMIC_RELEASE);
}

bool ga_slab_region_enter(ga_slab_region *region)
{
    if (last_step(region) >> (2 * GA_SLAB_LEAF_BITS)) {
        return false;
    }
    for (uintptr_t step = first_step(region); step <= last_step(region); step++) {
        if (!leaf_of(step)) {
            return false;
        }
    }
    for (uintptr_t step = first_step(region); step <= last_step(region); step++) {
        set_entry(step, region);
    }
    return true;
}

void ga_slab_region_remove(ga_slab_region *region)
{
    if (ga_slab_region_at(region->units) != region) {
        return;
    }
    for (uintptr_t step = first_step(region); step <= last_step(region); step++) {
        set_entry(step, NULL);
    }
}
