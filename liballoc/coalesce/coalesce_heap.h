/* SPDX-License-Identifier: MIT
 *
 * A heap that coalesces, as it stands in memory, and the view of it that kernels get by value.
 */
#ifndef GPUALLOC_COALESCE_COALESCE_HEAP_H
#define GPUALLOC_COALESCE_COALESCE_HEAP_H

#include "parent.h"

/* What stands before payloads. */
enum {
    GA_COALESCE_AUTO = 0,   /* headers of 8, 4 or 2 bytes: payloads are aligned to 8, 4 or 2 */
    GA_COALESCE_EIGHT,      /* of 8 bytes: aligned to 8 */
    GA_COALESCE_SIXTEEN,    /* of 8 bytes, with so much before it that payloads are aligned to 16 */
    GA_COALESCE_HEADERLESS, /* nothing, the parent finds superblocks: aligned to 16 */
    GA_COALESCE_FORMS
};

/* How a superblock without headers is found by free, in a heap whose other superblocks
 * have them. */
enum {
    GA_COALESCE_NO_BARE = 0, /* there are none */
    GA_COALESCE_BY_NOTE,     /* the parent finds it; the note of one with headers is 0 */
    GA_COALESCE_BY_MAP       /* the map has each of its payloads */
};

enum {
    GA_COALESCE_ALIGN = 16,      /* of superblocks, and what static ones begin with */
    GA_COALESCE_MOST = 1 << 26,  /* bytes that a lane may want of a common superblock */
    GA_COALESCE_FAULTS = 2,      /* kinds of them */
    GA_COALESCE_FREED_TWICE = 0, /* a segment that was free, in a superblock that is not */
    GA_COALESCE_NO_SEGMENT = 1   /* a pointer that is no payload of the heap's */
};

#define GA_COALESCE_HUGE ((uint64_t)1 << 46) /* more than this is not asked for */

/* With headers, no payload is aligned to more: the distance to its superblock has to fit. */
#define GA_COALESCE_ALIGN_MOST ((uint64_t)1 << 28)

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
    uint32_t *spilled; /* for each bucket: how many of its entries stand in later ones */
    uint32_t buckets;  /* a power of two; 0: there is no map */

    uint32_t live; /* relaxed: entries that there are */
} ga_map;

/* ---- the heap -------------------------------------------------------------------------------- */

typedef struct ga_coalesce_heap {
    /* Set once. */
    ga_map map;

    /* Relaxed: figures, which the host reads between launches. */
    uint64_t faults[GA_COALESCE_FAULTS];
    uint64_t
        lone; /* lanes that were served one by one, since no superblock for all was to be had */
    uint64_t inside; /* blocks of threads between ga_coalesce_init() and ga_coalesce_clean() */
    uint64_t left;   /* entries of the map when the last of them had cleaned up */
    uint64_t answer; /* of the host's service kernels */
} ga_coalesce_heap;

typedef struct ga_coalesce_view {
    ga_coalesce_heap *heap;
    ga_parent parent;
    uint32_t form; /* GA_COALESCE_AUTO ... */
    uint32_t bare; /* GA_COALESCE_NO_BARE ... */
    uint32_t most; /* bytes; who wants more is served alone. At most GA_COALESCE_MOST */
    bool plain;    /* without headers: lanes may get blocks of their own, which are not counted */
    bool single;   /* and get no others, so that the parent sees each free and can check it */
} ga_coalesce_view;

/* Static coalescing without headers is possible. */
GA_SIMT bool ga_coalesce_can_be_bare(ga_coalesce_view view)
{
    return view.form == GA_COALESCE_HEADERLESS || view.bare != GA_COALESCE_NO_BARE;
}

GA_SIMT void ga_coalesce_fault(ga_coalesce_view view, uint32_t fault)
{
    ga_post_add64_relaxed(&view.heap->faults[fault], 1); /* relaxed: a figure */
}

#endif
