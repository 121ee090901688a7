/* SPDX-License-Identifier: MIT
 *
 * The table of size classes.
 */
#include "classes.h"

/* Fill the map from requests to classes; the units have been set. */
static void fill_table(ga_slab_classes *classes)
{
    uint32_t class = 0;
    classes->max = classes->unit[classes->count - 1];
    for (size_t i = 0; i <= classes->max / GA_SLAB_UNIT_MIN; i++) {
        class += i * GA_SLAB_UNIT_MIN > classes->unit[class];
        classes->of[i] = (uint8_t) class;
    }
}

/* The step after `unit`: a quarter of the power of two at or below it, but at least a granule. */
static uint32_t step_after(uint32_t unit, uint32_t granule)
{
    uint32_t quarter = 1u << (31u - (uint32_t)__builtin_clz(unit)) >> 2;
    return quarter > granule ? quarter : granule;
}

void ga_slab_classes_fill(ga_slab_classes *classes, uint32_t granule, uint32_t max)
{
    uint32_t unit = granule;
    uint32_t last = (max + granule - 1u) / granule * granule;
    classes->granule = granule;
    classes->count = 0;
    for (; unit < last; unit += step_after(unit, granule)) {
        classes->unit[classes->count++] = unit;
    }
    classes->unit[classes->count++] = last;
    fill_table(classes);
}

void ga_slab_classes_fill_one(ga_slab_classes *classes, uint32_t granule, uint32_t unit)
{
    classes->granule = granule;
    classes->count = 1;
    classes->unit[0] = unit;
    fill_table(classes);
}

uint32_t ga_slab_class_aligned(const ga_slab_classes *classes, size_t size, size_t align)
{
    if (size > classes->max || align > GA_SLAB_UNIT_MAX) {
        return GA_SLAB_NO_CLASS;
    }
    uint32_t class = ga_slab_class_of(classes, size);
    while (class < classes->count && classes->unit[class] % align) {
        class ++;
    }
    return class < classes->count ? class : GA_SLAB_NO_CLASS;
}
