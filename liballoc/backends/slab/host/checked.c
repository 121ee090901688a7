/* SPDX-License-Identifier: MIT
 *
 * ORDER  a thread poisons a unit while it still owns it, and checks the poison once it owns it: SU1
 *        and SU2 in slab_tile.h order the two. Only the owner of a unit changes its bit in
 *        `poisoned`, relaxed; the bits beside it in the word belong to other threads, hence the
 *        atomics.
 */
#include "checked.h"

#include "../../../platform/log.h"

#include <string.h>

static const unsigned char POISON = 0xee;

static void count(ga_slab_host *slab, ga_slab_fault fault)
{
    __atomic_fetch_add(&slab->heap.faults[fault], 1, __ATOMIC_RELAXED); /* relaxed: a count */
}

static ga_status report_fault(ga_slab_host *slab, ga_slab_fault fault, const void *pointer,
                              const char *text)
{
    count(slab, fault);
    ga_log(GA_LOG_ERROR, "slab: free of %p: %s", pointer, text);
    return ga_fail(GA_ERR_POINTER, "slab: %p: expected a block to free, but %s", pointer, text);
}

ga_status ga_slab_checked_no_unit(ga_slab_host *slab, const void *pointer)
{
    return report_fault(slab, GA_SLAB_NO_UNIT, pointer, "no block of the heap begins there");
}

static uint32_t *poisoned_word(const ga_slab_region *region, uint32_t unit)
{
    return &region->poisoned[(unit - region->first) / 32u];
}

ga_status ga_slab_checked_free(ga_slab_host *slab, ga_slab_region *region, uint32_t unit,
                               void *block)
{
    ga_slab_view view = ga_slab_view_of(&slab->heap);
    uint32_t *word = ga_slab_word(view, unit / 32u);
    uint32_t bit = 1u << unit % 32u;
    /* relaxed: the caller owns the unit, or the free is wrong */
    if (!(ga_load_relaxed(word) & bit) ||
        ga_slab_host_is_purged(slab, unit >> GA_SLAB_BLOCK_BITS)) {
        return report_fault(slab, GA_SLAB_DOUBLE_FREE, block, "it is free already");
    }
    if (!slab->device) {
        memset(block, POISON, slab->shape.unit);
        ga_or_relaxed(poisoned_word(region, unit), bit);
    }
    /* SU2: release, with a result: of two threads that free the unit at once, one fails. Pairs with
     * SU1 (slab_tile.h). */
    if (!(ga_and_release(word, ~bit) & bit)) {
        return report_fault(slab, GA_SLAB_DOUBLE_FREE, block, "it is free already");
    }
    ga_slab_count_released(view, unit / 32u, 1);
    return GA_OK;
}

void ga_slab_checked_claim(ga_slab_host *slab, uint32_t unit, void *block)
{
    const ga_slab_region *region = ga_slab_region_at(block);
    const unsigned char *bytes = block;
    uint32_t bit = 1u << unit % 32u;
    if (slab->device || !(ga_and_relaxed(poisoned_word(region, unit), ~bit) & bit)) {
        return;
    }
    uint32_t size = slab->shape.unit;
    if (bytes[0] == POISON && memcmp(bytes, bytes + 1, size - 1) == 0) {
        return;
    }
    uint32_t at = 0;
    while (bytes[at] == POISON) {
        at++;
    }
    count(slab, GA_SLAB_WRITTEN_FREE);
    ga_log(GA_LOG_ERROR, "slab: %p, a unit of %u bytes, was written to after it was freed: at %p",
           block, size, (const void *)(bytes + at));
}
