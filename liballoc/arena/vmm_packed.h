/* SPDX-License-Identifier: MIT
 *
 * STRUCTURE  blocks too small for a run of their own are units of a sheet: a run cut into units of
 *            one size. A sheet with free units is in its class's list; one that has nothing but
 *            free units goes back to the pool. What was freed on a stream rests beside its sheet
 *            until the stream has come that far, and serves the same stream at once.
 * INVARIANT  a unit is live, resting or free; sheets come from the pool with nothing to wait for,
 *            since their units go to anybody
 * PROGRESS   under the heap's lock
 *
 * Sizes are bytes. Units waste less than 1/8 up to 256 quanta (64 KiB on a device), less than 1/32
 * above.
 */
#ifndef GPUALLOC_ARENA_VMM_PACKED_H
#define GPUALLOC_ARENA_VMM_PACKED_H

#include "vmm_pool.h"

typedef struct ga_vmm_sheet ga_vmm_sheet;

typedef struct ga_vmm_class {
    uint32_t unit;
    uint64_t run;  /* bytes of a sheet; the class's first takes what one unit needs */
    size_t sheets; /* there are */
    ga_vmm_link open, deferred;
} ga_vmm_class;

typedef struct ga_vmm_packed {
    ga_vmm_pool *pool;
    uint32_t quantum;   /* what units are multiples of */
    uint64_t small_max; /* up to here steps of 1/8, above 1/32 */
    uint64_t max;       /* the largest unit */
    uint32_t class_count;
    ga_vmm_class *classes;
    ga_vmm_link spare;      /* records of resting units */
    uint32_t batched_frees; /* behind late fences so far */
    uint64_t deferred;      /* bytes of units that streams may still use */
} ga_vmm_packed;

/* quantum: 16 or 256, say. GA_ERR_MEMORY. */
ga_status ga_vmm_packed_open(ga_vmm_packed *packed, ga_vmm_pool *pool, uint32_t quantum);

/* Before the pool is closed. Sheets go, their runs stay. */
void ga_vmm_packed_close(ga_vmm_packed *packed);

/* Whether a unit serves such a request: up to the largest, and not about as large as a run. */
bool ga_vmm_packed_serves(const ga_vmm_packed *packed, uint64_t size, uint64_t align);

/* A unit of at least `size` bytes; `align` as asked, up to a granule. *stream as in
 * ga_vmm_pool_take(). *usable: the bytes it has. */
ga_status ga_vmm_packed_allocate(ga_vmm_packed *packed, uint64_t size, uint64_t align,
                                 const ga_stream *stream, void **out, uint64_t *usable);

/* Whether a live unit of the sheet begins there. */
bool ga_vmm_sheet_has(const ga_vmm_sheet *sheet, const void *pointer);

/* The live unit that begins there. With a fence, GA_ERR_MEMORY where there is no memory to note
 * it. */
ga_status ga_vmm_packed_free(ga_vmm_packed *packed, ga_vmm_sheet *sheet, const void *block,
                             ga_vmm_fence *fence);

/* Free resting units whose streams are done, in each class up to a few that are not. */
void ga_vmm_packed_collect_oldest(ga_vmm_packed *packed);

/* Free what rests and need not rest any longer. Answers whether anything did. */
bool ga_vmm_packed_collect(ga_vmm_packed *packed);

/* Every unit is free. Nobody is using any. */
void ga_vmm_packed_reset(ga_vmm_packed *packed);

uint32_t ga_vmm_sheet_unit(const ga_vmm_sheet *sheet);

/* The live units: call `visit`, in the order of addresses. */
void ga_vmm_sheet_each(const ga_vmm_sheet *sheet, ga_visit *visit, void *context);

#endif
