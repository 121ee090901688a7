/* SPDX-License-Identifier: MIT
 *
 * The record of a coalescing heap in device memory, and the view of it that kernels get by value.
 */
#ifndef GPUALLOC_COALESCE_COALESCE_HEAP_H
#define GPUALLOC_COALESCE_COALESCE_HEAP_H

#include "parent.h"

/* The form: headers before payloads, and the payloads' alignment. */
enum {
    GA_COALESCE_AUTO = 0,   /* headers of 8, 4 or 2 bytes: payloads are aligned to 8, 4 or 2 */
    GA_COALESCE_EIGHT,      /* of 8 bytes: aligned to 8 */
    GA_COALESCE_SIXTEEN,    /* of 8 bytes, placed so that payloads are aligned to 16 */
    GA_COALESCE_HEADERLESS, /* none, the parent finds superblocks: aligned to 16 */
    GA_COALESCE_FORMS
};

/* How free finds a superblock without headers ("bare") in a heap whose other superblocks have
 * them. */
enum {
    GA_COALESCE_NO_BARE = 0, /* there are no bare ones */
    GA_COALESCE_BY_NOTE,     /* by the parent; the note of a superblock with headers is 0 */
    GA_COALESCE_BY_MAP       /* by the map, which has each payload */
};

enum {
    GA_COALESCE_ALIGN = 16,      /* of superblocks; also the bytes before static payloads */
    GA_COALESCE_MAX = 1 << 26,   /* bytes: the largest request in a common superblock */
    GA_COALESCE_FAULTS = 2,      /* how many kinds */
    GA_COALESCE_FREED_TWICE = 0, /* a free segment, in a live superblock */
    GA_COALESCE_NO_SEGMENT = 1   /* a pointer that is no payload of the heap */
};

#define GA_COALESCE_HUGE ((uint64_t)1 << 46) /* larger requests fail */

/* With headers, the largest alignment of a payload, since a header must hold the distance to its
 * superblock. */
#define GA_COALESCE_ALIGN_MAX ((uint64_t)1 << 28)

/* ---- the map of payloads (coalesce_map.h) ---------------------------------------------------- */

enum {
    GA_MAP_BUCKET = 8 /* entries: 128 bytes, a row */
};

typedef struct ga_map_entry {
    uint64_t key;   /* a payload; 0: free */
    uint64_t value; /* its superblock */
} ga_map_entry;

typedef struct ga_map {
    /* Set once. */
    ga_map_entry *entries;
    uint32_t *spilled; /* for each bucket: how many of its keys are in later buckets */
    uint32_t buckets;  /* a power of two; 0: there is no map */

    uint32_t live; /* relaxed: number of entries in use */
} ga_map;

/* ---- the heap -------------------------------------------------------------------------------- */

typedef struct ga_coalesce_heap {
    /* Set once. */
    ga_map map;

    /* relaxed: counts, which the host reads between launches. */
    uint64_t faults[GA_COALESCE_FAULTS];
    uint64_t
        lone; /* lanes that were served one by one, since the parent had no common superblock */
    uint64_t inside; /* threads between ga_coalesce_init() and ga_coalesce_clean() */
    uint64_t left;   /* entries in the map when the last of them had cleaned up */
    uint64_t answer; /* result of the host's service kernels */
} ga_coalesce_heap;

typedef struct ga_coalesce_view {
    ga_coalesce_heap *heap;
    ga_parent parent;
    uint32_t form; /* GA_COALESCE_AUTO ... */
    uint32_t bare; /* GA_COALESCE_NO_BARE ... */
    uint32_t max;  /* bytes; larger requests are served alone. At most GA_COALESCE_MAX */
    bool
        plain; /* without headers: lanes may get plain blocks of their own, which are not counted */
    bool single; /* check=full: lanes get plain blocks only, so that the parent checks each free */
} ga_coalesce_view;

/* True if static coalescing without headers is possible. */
GA_SIMT bool ga_coalesce_can_be_bare(ga_coalesce_view view)
{
    return view.form == GA_COALESCE_HEADERLESS || view.bare != GA_COALESCE_NO_BARE;
}

GA_SIMT void ga_coalesce_fault(ga_coalesce_view view, uint32_t fault)
{
    ga_post_add64_relaxed(&view.heap->faults[fault], 1); /* relaxed: a count */
}

#endif
