/* SPDX-License-Identifier: MIT
 *
 * Size-class heaps with the smallest possible regions, for the tests of one tile at a time.
 */
#ifndef GPUALLOC_TESTS_SUPPORT_SIZED_SHAPE_H
#define GPUALLOC_TESTS_SUPPORT_SIZED_SHAPE_H

#include "sized_actor.h"
#include "sized_world.h"

enum {
    LANES = 32,
    BITS = 17, /* of a region: the smallest possible */
    REGION = 1 << BITS
};

static inline ga_sized_view view_of(const sized_world *world)
{
    return ga_sized_view_of(world->heap);
}

#endif
