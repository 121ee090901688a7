/* SPDX-License-Identifier: MIT
 *
 * The options of the `slab` backend, and the shapes that follow from them.
 */
#ifndef GPUALLOC_SLAB_SETTINGS_H
#define GPUALLOC_SLAB_SETTINGS_H

#include "units/shape.h"

enum {
    GA_SLAB_OPTIONS = 9
};

extern const ga_option ga_slab_options[GA_SLAB_OPTIONS];

typedef struct ga_slab_settings {
    ga_place place;
    bool classes;  /* size classes up to `max`; otherwise one unit size */
    uint32_t unit; /* the one unit size */
    uint32_t max;
    bool light; /* one array for all units, allocated when the heap opens */
    bool grows; /* grows under kernels, as its parent can; then `light` too */
    bool check;
    int block_bits;    /* log2 of the memory blocks of a superblock; -1: automatic */
    uint64_t capacity; /* bytes of units to allocate when the heap opens */
    uint64_t limit;    /* most bytes of one unit size */
    uint64_t keep;     /* bytes that may be empty, in each slab and in all; UINT64_MAX: all */
} ga_slab_settings;

/* Read the options. GA_ERR_SPEC, with a message, for invalid combinations. */
ga_status ga_slab_settings_read(const ga_open_args *args, ga_slab_settings *settings);

/* The shape of the slab of this unit size. GA_ERR_SPEC if the addresses cannot express it. */
ga_status ga_slab_settings_shape(const ga_slab_settings *settings, uint32_t unit,
                                 ga_slab_shape *shape);

/* The number of superblocks of that shape to begin with. */
uint32_t ga_slab_settings_first(const ga_slab_settings *settings, const ga_slab_shape *shape);

#endif
