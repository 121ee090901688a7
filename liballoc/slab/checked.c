/* SPDX-License-Identifier: MIT
 *
 * ORDER  who poisons a unit owns it still, and who looks at the poison owns it already: U1 and U2
 *        in slab_tile.h order the two. A unit's bit in `poisoned` is changed by its owner only,
 *        relaxed; its neighbours in the word are others', hence the atomics.
 */
#include "checked.h"

#include "../platform/log.h"

#include <string.h>

static const unsigned char POISON = 0xee;

static void count(ga_slab_host *slab, ga_slab_fault fault)
{
    __atomic_fetch_add(&slab->heap.faults[fault], 1, __ATOMIC_RELAXED); /* a count */
}

static ga_status found(ga_slab_host *slab, ga_slab_fault fault, const void *pointer,
                       const char *what)
{
    count(slab, fault);
    ga_log(GA_LOG_ERROR, "slab: free of %p: %s", pointer, what);
    return ga_fail(GA_ERR_POINTER, "slab: %p: expected a block to free, but %s", pointer, what);
}

ga_status ga_slab_checked_no_unit(ga_slab_host *slab, const void *pointer)
{
    return found(slab, GA_SLAB_NO_UNIT, pointer, "no block of the heap begins there");
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
    /* relaxed: the caller owns the unit, or is wrong */
    if (!(ga_load_relaxed(word) & bit) || ga_slab_host_is_away(slab, unit >> GA_SLAB_BLOCK_BITS)) {
        return found(slab, GA_SLAB_DOUBLE_FREE, block, "it is free already");
    }
    if (!slab->device) {
        memset(block, POISON, slab->shape.unit);
        ga_or_relaxed(poisoned_word(region, unit), bit);
    }
    /* U2: release, with an answer: of two that free it at once, one is wrong. Pairs with U1
     * (slab_tile.h). */
    if (!(ga_and_release(word, ~bit) & bit)) {
        return found(slab, GA_SLAB_DOUBLE_FREE, block, "it is free already");
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

void ga_slab_checked_log(int device, const char *const *faults, const ga_slab_report *reports,
                         uint64_t reported, uint64_t *told)
{
    for (; *told < reported && *told < GA_SLAB_REPORTS; ++*told) {
        const ga_slab_report *report = &reports[*told];
        /* F2: as it was when the heap was copied. Pairs with F1 (report.h). */
        if (!report->ready) {
            return; /* a kernel is at it */
        }
        ga_log(GA_LOG_ERROR, "slab: device %d: 0x%llx: %s", device,
               (unsigned long long)report->address, faults[report->fault]);
    }
    if (reported > GA_SLAB_REPORTS && *told < reported) {
        ga_log(
            GA_LOG_ERROR, "slab: device %d: %llu more faults, which had no room to be reported",
            device,
            (unsigned long long)(reported - (*told > GA_SLAB_REPORTS ? *told : GA_SLAB_REPORTS)));
        *told = reported;
    }
}
