/* SPDX-License-Identifier: MIT
 *
 * Heaps of all sizes whose regions are the smallest there are, for the tests of what one tile does at a
 * time.
 */
#ifndef GPUALLOC_TESTS_SUPPORT_SIZED_SHAPE_H
#define GPUALLOC_TESTS_SUPPORT_SIZED_SHAPE_H

#include "sized_actor.h"
#include "sized_world.h"

enum {
    LANES = 32,
    BITS = 17, /* of a region: the smallest there are */
    REGION = 1 << BITS
};

static inline ga_sized_view view_of(const sized_world *world)
{
    return ga_sized_view_of(world->heap);
}

#endif
