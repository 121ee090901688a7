/* SPDX-License-Identifier: MIT
 *
 * Size classes: the unit sizes of a heap, and which one serves a request.
 */
#ifndef GPUALLOC_SLAB_CLASSES_H
#define GPUALLOC_SLAB_CLASSES_H

#include "shape.h"

enum {
    GA_SLAB_CLASSES = 48, /* at most; 45 from 16 bytes to 64 KiB */
    GA_SLAB_NO_CLASS = GA_SLAB_CLASSES
};

/* Set once. */
typedef struct ga_slab_classes {
    size_t max;                     /* the largest request that a class serves */
    uint32_t granule;               /* all units are multiples of it */
    uint32_t count;                 /* of classes */
    uint32_t unit[GA_SLAB_CLASSES]; /* in rising order */
    uint8_t of[GA_SLAB_UNIT_MAX / GA_SLAB_UNIT_MIN + 1]; /* the class of a request, by 16 bytes */
} ga_slab_classes;

/* Units in steps of about a quarter of their size, multiples of `granule` (a power of
 * two), up to `max`. */
void ga_slab_classes_fill(ga_slab_classes *classes, uint32_t granule, uint32_t max);

/* One unit size. */
void ga_slab_classes_fill_one(ga_slab_classes *classes, uint32_t granule, uint32_t unit);

/* The class of a request of `size` bytes, which is at most `max`. */
static inline uint32_t ga_slab_class_of(const ga_slab_classes *classes, size_t size)
{
    return classes->of[(size + GA_SLAB_UNIT_MIN - 1) / GA_SLAB_UNIT_MIN];
}

/* The smallest class of which each unit is aligned so, since super blocks are, to 64 KiB; or
 * GA_SLAB_NO_CLASS. */
uint32_t ga_slab_class_aligned(const ga_slab_classes *classes, size_t size, size_t align);

#endif
