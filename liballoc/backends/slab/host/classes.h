/* SPDX-License-Identifier: MIT
 *
 * Size classes on the host: the unit sizes of a heap, and the class that serves a request.
 */
#ifndef GPUALLOC_SLAB_HOST_CLASSES_H
#define GPUALLOC_SLAB_HOST_CLASSES_H

#include "../units/shape.h"

enum {
    GA_SLAB_CLASSES = 48, /* at most; 45 are used from 16 bytes to 64 KiB */
    GA_SLAB_NO_CLASS = GA_SLAB_CLASSES
};

/* Set once. */
typedef struct ga_slab_classes {
    size_t max;                     /* bytes of the largest request that a class serves */
    uint32_t granule;               /* bytes; all units are multiples of it */
    uint32_t count;                 /* number of classes */
    uint32_t unit[GA_SLAB_CLASSES]; /* bytes, ascending */
    /* class of a request, by units of 16 bytes */
    uint8_t of[GA_SLAB_UNIT_MAX / GA_SLAB_UNIT_MIN + 1];
} ga_slab_classes;

/* Units in steps of about a quarter of their size, multiples of `granule` (a power of two), up to
 * `max` bytes. */
void ga_slab_classes_fill(ga_slab_classes *classes, uint32_t granule, uint32_t max);

/* A single unit size. */
void ga_slab_classes_fill_one(ga_slab_classes *classes, uint32_t granule, uint32_t unit);

/* The class for `size` bytes, at most `max`. */
static inline uint32_t ga_slab_class_of(const ga_slab_classes *classes, size_t size)
{
    return classes->of[(size + GA_SLAB_UNIT_MIN - 1) / GA_SLAB_UNIT_MIN];
}

/* The smallest class for `size` bytes with all units at multiples of `align`, or GA_SLAB_NO_CLASS.
 * Superblocks are aligned to 64 KiB. */
uint32_t ga_slab_class_aligned(const ga_slab_classes *classes, size_t size, size_t align);

#endif
