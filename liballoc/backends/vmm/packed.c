/* SPDX-License-Identifier: MIT
 *
 * Sheets, their units, and units whose free is deferred.
 *
 * ga_vmm_packed_allocate
 *   find_deferred -> allocate_deferred    a unit that this stream has just freed
 *   allocate_from_sheet                   a free unit; else collect deferred units; else new sheet
 *   find_deferred -> allocate_deferred    out of memory: a unit that the stream must wait for
 */
#include "packed.h"

#include "../../platform/libc.h"
#include "steps.h"

#include <gpualloc/backend.h>

#include <string.h>

enum {
    SMALL_STEP_BITS = 3, /* 8 steps per doubling */
    LARGE_STEP_BITS = 5, /* 32 steps per doubling */
    SMALL_QUANTA = 256,
    UNIT_GRANULES_MAX = 2,   /* size of the largest unit */
    SHEET_GRANULES_MAX = 16, /* size of the largest sheet */
    COLLECT_BATCH = 4        /* deferred units that are checked per free */
};

struct ga_vmm_sheet {
    ga_vmm_link link; /* in the class's list while the sheet has free units */
    ga_vmm_run *run;
    ga_vmm_class *class;
    uint32_t count, free, words;
    uint32_t hint; /* no word below it has a free unit */
    /* Bitmap of the free units, then bitmap of the deferred ones, `words` each. */
    uint64_t bits[];
};

typedef struct deferred_unit {
    ga_vmm_link link;
    ga_vmm_sheet *sheet;
    uint32_t unit;
    ga_vmm_fence *fence;
} deferred_unit;

/* ---- classes ----------------------------------------------------------------------------- */

/* Units above small_max are multiples of this; small_max is its 32nd multiple. */
static uint64_t large_quantum(const ga_vmm_packed *p)
{
    return p->small_max >> LARGE_STEP_BITS;
}

static uint32_t small_classes(void)
{
    return ga_vmm_step(SMALL_QUANTA, SMALL_STEP_BITS) + 1;
}

static uint32_t class_of(const ga_vmm_packed *p, uint64_t size)
{
    if (size <= p->small_max) {
        return ga_vmm_step((size + p->quantum - 1) / p->quantum, SMALL_STEP_BITS);
    }
    uint64_t quantum = large_quantum(p);
    return small_classes() + ga_vmm_step((size + quantum - 1) / quantum, LARGE_STEP_BITS) -
           (1 << LARGE_STEP_BITS);
}

static uint64_t unit_of(const ga_vmm_packed *p, uint32_t class)
{
    if (class < small_classes()) {
        return ga_vmm_step_size(class, SMALL_STEP_BITS) * p->quantum;
    }
    uint32_t step = class - small_classes() + (1 << LARGE_STEP_BITS);
    return ga_vmm_step_size(step, LARGE_STEP_BITS) * large_quantum(p);
}

/* The smallest sheet that wastes at most 1/32, or else the one that wastes least. */
static uint64_t sheet_bytes_for(const ga_vmm_pool *pool, uint64_t unit)
{
    uint64_t granule = pool->space.granule;
    uint64_t best = ga_vmm_pool_round_up(pool, unit);
    for (uint64_t run = best; run <= SHEET_GRANULES_MAX * granule; run += granule) {
        if (run % unit * 32 <= run) {
            return run;
        }
        if (run % unit * best < best % unit * run) {
            best = run;
        }
    }
    return best;
}

ga_status ga_vmm_packed_open(ga_vmm_packed *p, ga_vmm_pool *pool, uint32_t quantum)
{
    *p = (ga_vmm_packed){.pool = pool,
                         .quantum = quantum,
                         .small_max = (uint64_t)quantum * SMALL_QUANTA,
                         .max = UNIT_GRANULES_MAX * pool->space.granule};
    p->class_count = class_of(p, p->max) + 1;
    p->classes = ga_libc.calloc(p->class_count, sizeof *p->classes);
    ga_vmm_list_init(&p->spare);
    if (!p->classes) {
        return ga_fail(GA_ERR_MEMORY, "no memory for the table of classes");
    }
    for (uint32_t i = 0; i < p->class_count; i++) {
        ga_vmm_class *class = &p->classes[i];
        class->unit = (uint32_t)unit_of(p, i);
        class->sheet_bytes = sheet_bytes_for(pool, class->unit);
        ga_vmm_list_init(&class->open);
        ga_vmm_list_init(&class->deferred);
    }
    return GA_OK;
}

/* The first class whose units are large enough and a multiple of `align`. The class of the next
 * power of two always is. */
static uint32_t aligned_class(const ga_vmm_packed *p, uint64_t size, uint64_t align)
{
    uint32_t class = class_of(p, size > align ? size : align);
    while (class < p->class_count && p->classes[class].unit % align) {
        class ++;
    }
    return class;
}

bool ga_vmm_packed_serves(const ga_vmm_packed *p, uint64_t size, uint64_t align)
{
    uint64_t granule = p->pool->space.granule;
    uint64_t run = ga_vmm_pool_round_up(p->pool, size);
    bool fits = size <= p->max && align <= granule && (run - size) * 32 > run;
    return fits && aligned_class(p, size, align) < p->class_count;
}

/* ---- sheets ------------------------------------------------------------------------------ */

static uint64_t *free_bits(ga_vmm_sheet *sheet)
{
    return sheet->bits;
}

static uint64_t *deferred_bits(ga_vmm_sheet *sheet)
{
    return sheet->bits + sheet->words;
}

static bool has_bit(const uint64_t *bits, uint32_t unit)
{
    return bits[unit / 64] >> unit % 64 & 1;
}

static void flip_bit(uint64_t *bits, uint32_t unit)
{
    bits[unit / 64] ^= UINT64_C(1) << unit % 64;
}

static ga_vmm_sheet *new_sheet(ga_vmm_class *class, ga_vmm_run *run)
{
    uint32_t count = (uint32_t)(run->size / class->unit);
    uint32_t words = (count + 63) / 64;
    ga_vmm_sheet *sheet = ga_libc.calloc(1, sizeof *sheet + 2 * words * sizeof(uint64_t));
    if (!sheet) {
        return NULL;
    }
    *sheet =
        (ga_vmm_sheet){.run = run, .class = class, .count = count, .free = count, .words = words};
    memset(sheet->bits, 0xff, words * sizeof(uint64_t));
    if (count % 64) {
        sheet->bits[words - 1] = (UINT64_C(1) << count % 64) - 1;
    }
    ga_vmm_list_append(&class->open, &sheet->link);
    class->sheets++;
    run->sheet = sheet;
    return sheet;
}

static ga_status open_sheet(ga_vmm_packed *p, ga_vmm_class *class, uint64_t size,
                            ga_vmm_sheet **out)
{
    ga_vmm_run *run;
    ga_status status = ga_vmm_pool_allocate(p->pool, size, p->pool->space.granule, NULL, &run);
    if (status != GA_OK) {
        return status;
    }
    *out = new_sheet(class, run);
    if (!*out) {
        ga_vmm_pool_free(p->pool, run, NULL);
        return ga_fail(GA_ERR_MEMORY, "no memory for the record of packed blocks");
    }
    return GA_OK;
}

/* The first sheet of a class is small, because it may stay the only one. */
static ga_status add_sheet(ga_vmm_packed *p, ga_vmm_class *class, ga_vmm_sheet **out)
{
    uint64_t small = ga_vmm_pool_round_up(p->pool, class->unit);
    ga_status status = open_sheet(p, class, class->sheets ? class->sheet_bytes : small, out);
    return status == GA_ERR_MEMORY && class->sheets && small < class->sheet_bytes
               ? open_sheet(p, class, small, out)
               : status;
}

/* Return the run of a sheet without live units. */
static void end_sheet(ga_vmm_packed *p, ga_vmm_sheet *sheet)
{
    sheet->class->sheets--;
    ga_vmm_list_remove(&sheet->link);
    ga_vmm_pool_free(p->pool, sheet->run, NULL);
    ga_libc.free(sheet);
}

/* ---- units ------------------------------------------------------------------------------- */

static void *address_of(const ga_vmm_sheet *sheet, uint32_t unit)
{
    return (void *)(sheet->run->base + (uint64_t)unit * sheet->class->unit);
}

/* Allocate from a sheet that has a free unit. */
static void *allocate_unit(ga_vmm_sheet *sheet)
{
    uint64_t *bits = free_bits(sheet);
    while (!bits[sheet->hint]) {
        sheet->hint++;
    }
    uint32_t unit = sheet->hint * 64 + (uint32_t)__builtin_ctzll(bits[sheet->hint]);
    flip_bit(bits, unit);
    if (--sheet->free == 0) {
        ga_vmm_list_remove(&sheet->link);
    }
    return address_of(sheet, unit);
}

static void free_unit(ga_vmm_packed *p, ga_vmm_sheet *sheet, uint32_t unit)
{
    flip_bit(free_bits(sheet), unit);
    sheet->hint = unit / 64 < sheet->hint ? unit / 64 : sheet->hint;
    if (sheet->free++ == 0) {
        ga_vmm_list_append(&sheet->class->open, &sheet->link);
    }
    if (sheet->free == sheet->count) {
        end_sheet(p, sheet);
    }
}

/* *unit: the unit's number. Returns false if no live unit begins at the address. */
static bool find_unit(const ga_vmm_sheet *sheet, const void *pointer, uint32_t *unit)
{
    uint64_t offset = (uintptr_t)pointer - sheet->run->base;
    uint64_t number = offset / sheet->class->unit;
    *unit = (uint32_t)number;
    return number < sheet->count && offset % sheet->class->unit == 0 &&
           !has_bit(sheet->bits, *unit) && !has_bit(sheet->bits + sheet->words, *unit);
}

bool ga_vmm_sheet_has(const ga_vmm_sheet *sheet, const void *pointer)
{
    uint32_t unit;
    return find_unit(sheet, pointer, &unit);
}

uint32_t ga_vmm_sheet_unit(const ga_vmm_sheet *sheet)
{
    return sheet->class->unit;
}

/* ---- units whose free is deferred -------------------------------------------------------- */

static deferred_unit *deferred_of(ga_vmm_link *link)
{
    return GA_VMM_OF(link, deferred_unit, link);
}

static void end_deferral(ga_vmm_packed *p, deferred_unit *r)
{
    flip_bit(deferred_bits(r->sheet), r->unit);
    p->deferred -= r->sheet->class->unit;
    ga_vmm_fence_drop(&p->pool->fences, r->fence, 0);
    ga_vmm_list_remove(&r->link);
    ga_vmm_list_append(&p->spare, &r->link);
}

/* Free up to `max_units` of the units deferred for longest, if their streams are done. Returns true
 * if any was freed. */
static bool collect(ga_vmm_packed *p, ga_vmm_class *class, size_t max_units)
{
    ga_vmm_link *next;
    bool freed = false;
    for (ga_vmm_link *l = class->deferred.after; l != &class->deferred && max_units--; l = next) {
        deferred_unit *r = deferred_of(l);
        next = l->after;
        if (ga_vmm_fence_done(&p->pool->fences, r->fence)) {
            end_deferral(p, r);
            free_unit(p, r->sheet, r->unit);
            freed = true;
        }
    }
    return freed;
}

void ga_vmm_packed_collect_oldest(ga_vmm_packed *p)
{
    for (uint32_t i = 0; i < p->class_count; i++) {
        ga_vmm_class *class = &p->classes[i];
        while (collect(p, class, COLLECT_BATCH)) {
        }
    }
}

bool ga_vmm_packed_collect(ga_vmm_packed *p)
{
    bool freed = false;
    for (uint32_t i = 0; i < p->class_count; i++) {
        freed |= collect(p, &p->classes[i], SIZE_MAX);
    }
    return freed;
}

static bool defer_unit(ga_vmm_packed *p, ga_vmm_sheet *sheet, uint32_t unit, ga_vmm_fence *fence)
{
    deferred_unit *r =
        ga_vmm_list_empty(&p->spare) ? ga_libc.calloc(1, sizeof *r) : deferred_of(p->spare.after);
    if (!r) {
        return false;
    }
    if (!ga_vmm_list_empty(&p->spare)) {
        ga_vmm_list_remove(&r->link);
    }
    r->sheet = sheet;
    r->unit = unit;
    r->fence = fence;
    flip_bit(deferred_bits(sheet), unit);
    p->deferred += sheet->class->unit;
    ga_vmm_list_append(&sheet->class->deferred, &r->link);
    return true;
}

/* A unit that was recently freed on the same stream; with `waiting`, on any stream. */
static deferred_unit *find_deferred(ga_vmm_class *class, const ga_stream *stream, bool waiting)
{
    size_t probes = COLLECT_BATCH;
    for (ga_vmm_link *l = class->deferred.before; l != &class->deferred && probes--;
         l = l->before) {
        if (waiting || deferred_of(l)->fence->stream == *stream) {
            return deferred_of(l);
        }
    }
    return NULL;
}

static ga_status allocate_deferred(ga_vmm_packed *p, deferred_unit *r, ga_stream stream, void **out)
{
    ga_status status = ga_vmm_fence_order(&p->pool->fences, r->fence, stream);
    if (status == GA_OK) {
        *out = address_of(r->sheet, r->unit);
        end_deferral(p, r);
    }
    return status;
}

/* ---- allocating and freeing -------------------------------------------------------------- */

static ga_status allocate_from_sheet(ga_vmm_packed *p, ga_vmm_class *class, void **out)
{
    ga_status status = GA_OK;
    ga_vmm_sheet *sheet;
    if (ga_vmm_list_empty(&class->open)) {
        collect(p, class, SIZE_MAX);
    }
    if (ga_vmm_list_empty(&class->open)) {
        status = add_sheet(p, class, &sheet);
    }
    if (status == GA_OK) {
        *out = allocate_unit(GA_VMM_OF(class->open.after, ga_vmm_sheet, link));
    }
    return status;
}

ga_status ga_vmm_packed_allocate(ga_vmm_packed *p, uint64_t size, uint64_t align,
                                 const ga_stream *stream, void **out, uint64_t *usable)
{
    ga_vmm_class *class = &p->classes[aligned_class(p, size, align)];
    deferred_unit *r = stream ? find_deferred(class, stream, false) : NULL;
    *usable = class->unit;
    if (r) {
        return allocate_deferred(p, r, *stream, out);
    }
    ga_status status = allocate_from_sheet(p, class, out);
    r = stream && status == GA_ERR_MEMORY ? find_deferred(class, stream, true) : NULL;
    return r ? allocate_deferred(p, r, *stream, out) : status;
}

ga_status ga_vmm_packed_free(ga_vmm_packed *p, ga_vmm_sheet *sheet, const void *block,
                             ga_vmm_fence *fence)
{
    uint32_t unit;
    find_unit(sheet, block, &unit);
    if (!fence) {
        free_unit(p, sheet, unit);
        return GA_OK;
    }
    if (!defer_unit(p, sheet, unit, fence)) {
        return ga_fail(GA_ERR_MEMORY, "no memory to note a block that a stream still uses");
    }
    if (!ga_vmm_is_batched(fence->stream)) {
        collect(p, sheet->class, COLLECT_BATCH);
    } else if (++p->batched_frees % GA_VMM_FENCE_BATCH == 0) {
        /* As above, once per batch. */
        collect(p, sheet->class, (size_t)COLLECT_BATCH * GA_VMM_FENCE_BATCH);
    }
    return GA_OK;
}

/* ---- all of them ------------------------------------------------------------------------- */

void ga_vmm_sheet_each(const ga_vmm_sheet *sheet, ga_visit *visit, void *context)
{
    for (uint32_t unit = 0; unit < sheet->count; unit++) {
        if (!has_bit(sheet->bits, unit) && !has_bit(sheet->bits + sheet->words, unit)) {
            visit(context, address_of(sheet, unit), sheet->class->unit);
        }
    }
}

static void end_all_deferrals(ga_vmm_packed *p)
{
    for (uint32_t i = 0; i < p->class_count; i++) {
        while (!ga_vmm_list_empty(&p->classes[i].deferred)) {
            end_deferral(p, deferred_of(p->classes[i].deferred.after));
        }
    }
}

void ga_vmm_packed_reset(ga_vmm_packed *p)
{
    ga_vmm_link *live_runs = &p->pool->live_runs;
    ga_vmm_link *next;
    end_all_deferrals(p);
    for (ga_vmm_link *l = live_runs->after; l != live_runs; l = next) {
        ga_vmm_run *run = GA_VMM_OF(l, ga_vmm_run, link);
        next = l->after;
        if (run->sheet) {
            end_sheet(p, run->sheet);
        }
    }
}

void ga_vmm_packed_close(ga_vmm_packed *p)
{
    ga_vmm_packed_reset(p);
    while (!ga_vmm_list_empty(&p->spare)) {
        deferred_unit *r = deferred_of(p->spare.after);
        ga_vmm_list_remove(&r->link);
        ga_libc.free(r);
    }
    ga_libc.free(p->classes);
}
