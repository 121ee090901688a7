/* SPDX-License-Identifier: MIT
 *
 * Small blocks of a vmm heap: units of equal size in sheets.
 *
 * STRUCTURE  a sheet is a run cut into units of one size class. Sheets with free units are in the
 *            class's list. A sheet whose units are all free returns its run to the pool. A unit
 *            that was freed on a stream is deferred until the work on that stream is done; the same
 *            stream may get it back at once.
 * INVARIANT  a unit is live, deferred or free. The pool hands out runs for sheets only if no stream
 *            uses them, because units serve any stream.
 * PROGRESS   under the heap's lock
 *
 * Sizes are bytes. Units waste less than 1/8 up to 256 quanta (64 KiB on a device), and less than
 * 1/32 above.
 */
#ifndef GPUALLOC_VMM_PACKED_H
#define GPUALLOC_VMM_PACKED_H

#include "pool.h"

typedef struct ga_vmm_sheet ga_vmm_sheet;

typedef struct ga_vmm_class {
    uint32_t unit;
    uint64_t sheet_bytes; /* the first sheet of a class has room for one unit only */
    size_t sheets;        /* number of sheets */
    ga_vmm_link open, deferred;
} ga_vmm_class;

typedef struct ga_vmm_packed {
    ga_vmm_pool *pool;
    uint32_t quantum; /* all unit sizes are multiples of it */
    /* Largest unit of the classes in steps of 1/8; above, steps of 1/32. */
    uint64_t small_max;
    uint64_t max; /* largest unit */
    uint32_t class_count;
    ga_vmm_class *classes;
    ga_vmm_link spare;      /* unused records of deferred units */
    uint32_t batched_frees; /* frees behind batched fences so far */
    uint64_t deferred;      /* bytes of deferred units */
} ga_vmm_packed;

/* quantum: 16 on the host, 256 on a device. GA_ERR_MEMORY. */
ga_status ga_vmm_packed_open(ga_vmm_packed *packed, ga_vmm_pool *pool, uint32_t quantum);

/* Call before the pool is closed. Frees the sheets; their runs stay in the pool. */
void ga_vmm_packed_close(ga_vmm_packed *packed);

/* True if the request gets a unit: it is at most the largest unit, and a run of its own would waste
 * more than 1/32. */
bool ga_vmm_packed_serves(const ga_vmm_packed *packed, uint64_t size, uint64_t align);

/* Allocate a unit of at least `size` bytes; `align` is at most a granule. *stream as in
 * ga_vmm_pool_allocate(). *usable: bytes of the unit. */
ga_status ga_vmm_packed_allocate(ga_vmm_packed *packed, uint64_t size, uint64_t align,
                                 const ga_stream *stream, void **out, uint64_t *usable);

/* True if a live unit of the sheet begins at the address. */
bool ga_vmm_sheet_has(const ga_vmm_sheet *sheet, const void *pointer);

/* Free the live unit that begins at `block`. With a fence, GA_ERR_MEMORY if there is no memory for
 * the record of the deferral. */
ga_status ga_vmm_packed_free(ga_vmm_packed *packed, ga_vmm_sheet *sheet, const void *block,
                             ga_vmm_fence *fence);

/* Free the deferred units whose streams are done. In each class it stops at a batch without any. */
void ga_vmm_packed_collect_oldest(ga_vmm_packed *packed);

/* Free all deferred units whose streams are done. Returns true if there were any. */
bool ga_vmm_packed_collect(ga_vmm_packed *packed);

/* Free every unit. No unit may be in use. */
void ga_vmm_packed_reset(ga_vmm_packed *packed);

uint32_t ga_vmm_sheet_unit(const ga_vmm_sheet *sheet);

/* Call `visit` for the live units, in the order of addresses. */
void ga_vmm_sheet_each(const ga_vmm_sheet *sheet, ga_visit *visit, void *context);

#endif
