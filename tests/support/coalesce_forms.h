/* SPDX-License-Identifier: MIT
 *
 * Shared by tests of coalescing in all forms of headers: a world for each, and the checks after all
 * payloads are freed.
 */
#ifndef GPUALLOC_TESTS_SUPPORT_COALESCE_FORMS_H
#define GPUALLOC_TESTS_SUPPORT_COALESCE_FORMS_H

#include "coalesce_world.h"
#include "expect.h"

enum {
    LANES = 32,
    SLOTS = 64,
    SLOT = 1 << 18
};

static const char *const forms[] = {"auto", "8", "16", "none"};

#define EACH_FORM(form) for (uint32_t form = GA_COALESCE_AUTO; form < GA_COALESCE_FORMS; form++)

static inline coalesce_world *world_of(uint32_t form)
{
    return world_new(form, GA_COALESCE_NO_BARE, 0, SLOTS, SLOT);
}

static inline void assert_clean(const coalesce_world *world, const char *what)
{
    cr_assert_eq(world_live(world), 0, "%s: %u superblocks are left", what, world_live(world));
    cr_assert_eq(world->wrong, 0, "%s: %llu releases of what was no superblock", what,
                 (unsigned long long)world->wrong);
    cr_assert_eq(world->heap.faults[0] + world->heap.faults[1], 0, "%s: %llu and %llu faults", what,
                 (unsigned long long)world->heap.faults[0],
                 (unsigned long long)world->heap.faults[1]);
}

static inline uint32_t alignment_of(uint32_t form, uint64_t size)
{
    if (form == GA_COALESCE_AUTO) {
        return size < 4 ? 2 : size % 8 ? 4 : 8;
    }
    return form == GA_COALESCE_EIGHT ? 8 : 16;
}

static inline void assert_aligned(uint32_t form, uint64_t size, const char *payload)
{
    uint32_t align = alignment_of(form, size);
    cr_assert_eq((uintptr_t)payload % align, 0, "%s: %llu bytes at %p, not aligned to %u",
                 forms[form], (unsigned long long)size, (const void *)payload, align);
}

#endif
