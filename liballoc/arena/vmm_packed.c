/* SPDX-License-Identifier: MIT
 *
 * Sheets and their units.
 */
#include "vmm_packed.h"

#include "../platform/libc.h"
#include "vmm_steps.h"

#include <gpualloc/backend.h>

#include <string.h>

enum {
    SMALL_STEPS = 3, /* 8 to a doubling */
    LARGE_STEPS = 5, /* 32 */
    SMALL_QUANTA = 256,
    MAX_GRANULES = 2,  /* the largest unit */
    RUN_GRANULES = 16, /* the largest sheet */
    SETTLES = 4        /* resting units that are looked at for each free */
};

struct ga_vmm_sheet {
    ga_vmm_link link; /* in its class's list while it has free units */
    ga_vmm_run *run;
    ga_vmm_class *class;
    uint32_t count, free, words;
    uint32_t hint;   /* no word below it has a free unit */
    uint64_t bits[]; /* the free ones, then the resting ones, `words` each */
};

typedef struct rest {
    ga_vmm_link link;
    ga_vmm_sheet *sheet;
    uint32_t unit;
    ga_vmm_fence *fence;
} rest;

/* ---- classes ----------------------------------------------------------------------------- */

/* Units above small_max are multiples of this, of which it is the first to have 32. */
static uint64_t large_quantum(const ga_vmm_packed *p)
{
    return p->small_max >> LARGE_STEPS;
}

static uint32_t small_classes(void)
{
    return ga_vmm_step(SMALL_QUANTA, SMALL_STEPS) + 1;
}

static uint32_t class_of(const ga_vmm_packed *p, uint64_t size)
{
    if (size <= p->small_max) {
        return ga_vmm_step((size + p->quantum - 1) / p->quantum, SMALL_STEPS);
    }
    uint64_t quantum = large_quantum(p);
    return small_classes() + ga_vmm_step((size + quantum - 1) / quantum, LARGE_STEPS) -
           (1 << LARGE_STEPS);
}

static uint64_t unit_of(const ga_vmm_packed *p, uint32_t class)
{
    if (class < small_classes()) {
        return ga_vmm_step_size(class, SMALL_STEPS) * p->quantum;
    }
    uint32_t step = class - small_classes() + (1 << LARGE_STEPS);
    return ga_vmm_step_size(step, LARGE_STEPS) * large_quantum(p);
}

/* The smallest that wastes no more than 1/32, or else the one that wastes least. */
static uint64_t run_for(const ga_vmm_pool *pool, uint64_t unit)
{
    uint64_t granule = pool->space.granule;
    uint64_t best = ga_vmm_pool_round_up(pool, unit);
    for (uint64_t run = best; run <= RUN_GRANULES * granule; run += granule) {
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
                         .max = MAX_GRANULES * pool->space.granule};
    p->class_count = class_of(p, p->max) + 1;
    p->classes = ga_libc.calloc(p->class_count, sizeof *p->classes);
    ga_vmm_list_begin(&p->spare);
    if (!p->classes) {
        return ga_fail(GA_ERR_MEMORY, "no memory for the table of classes");
    }
    for (uint32_t i = 0; i < p->class_count; i++) {
        ga_vmm_class *class = &p->classes[i];
        class->unit = (uint32_t)unit_of(p, i);
        class->run = run_for(pool, class->unit);
        ga_vmm_list_begin(&class->open);
        ga_vmm_list_begin(&class->deferred);
    }
    return GA_OK;
}

/* The class whose units are large enough and lie as asked; units of the power of two above do. */
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

static uint64_t *resting_bits(ga_vmm_sheet *sheet)
{
    return sheet->bits + sheet->words;
}

static bool has_bit(const uint64_t *bits, uint32_t unit)
{
    return bits[unit / 64] >> unit % 64 & 1;
}

static void flip(uint64_t *bits, uint32_t unit)
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

/* The first of a class is small, since it may be the only one. */
static ga_status add_sheet(ga_vmm_packed *p, ga_vmm_class *class, ga_vmm_sheet **out)
{
    uint64_t small = ga_vmm_pool_round_up(p->pool, class->unit);
    ga_status status = open_sheet(p, class, class->sheets ? class->run : small, out);
    return status == GA_ERR_MEMORY && class->sheets && small < class->run
               ? open_sheet(p, class, small, out)
               : status;
}

/* Nothing of it is in use. */
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

/* From a sheet that has one. */
static void *take_unit(ga_vmm_sheet *sheet)
{
    uint64_t *bits = free_bits(sheet);
    while (!bits[sheet->hint]) {
        sheet->hint++;
    }
    uint32_t unit = sheet->hint * 64 + (uint32_t)__builtin_ctzll(bits[sheet->hint]);
    flip(bits, unit);
    if (--sheet->free == 0) {
        ga_vmm_list_remove(&sheet->link);
    }
    return address_of(sheet, unit);
}

static void free_unit(ga_vmm_packed *p, ga_vmm_sheet *sheet, uint32_t unit)
{
    flip(free_bits(sheet), unit);
    sheet->hint = unit / 64 < sheet->hint ? unit / 64 : sheet->hint;
    if (sheet->free++ == 0) {
        ga_vmm_list_append(&sheet->class->open, &sheet->link);
    }
    if (sheet->free == sheet->count) {
        end_sheet(p, sheet);
    }
}

/* Its number; false where no live unit begins there. */
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

/* ---- units that rest --------------------------------------------------------------------- */

static rest *rest_of(ga_vmm_link *link)
{
    return GA_VMM_OF(link, rest, link);
}

static void wake(ga_vmm_packed *p, rest *r)
{
    flip(resting_bits(r->sheet), r->unit);
    p->deferred -= r->sheet->class->unit;
    ga_vmm_fence_drop(&p->pool->fences, r->fence, 0);
    ga_vmm_list_remove(&r->link);
    ga_vmm_list_append(&p->spare, &r->link);
}

/* Up to `most` of those that have rested longest. Answers whether that set any free. */
static bool settle(ga_vmm_packed *p, ga_vmm_class *class, size_t most)
{
    ga_vmm_link *next;
    bool freed = false;
    for (ga_vmm_link *l = class->deferred.after; l != &class->deferred && most--; l = next) {
        rest *r = rest_of(l);
        next = l->after;
        if (ga_vmm_fence_done(&p->pool->fences, r->fence)) {
            wake(p, r);
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
        while (settle(p, class, SETTLES)) {
        }
    }
}

bool ga_vmm_packed_collect(ga_vmm_packed *p)
{
    bool freed = false;
    for (uint32_t i = 0; i < p->class_count; i++) {
        freed |= settle(p, &p->classes[i], SIZE_MAX);
    }
    return freed;
}

static bool lay_down(ga_vmm_packed *p, ga_vmm_sheet *sheet, uint32_t unit, ga_vmm_fence *fence)
{
    rest *r = ga_vmm_list_empty(&p->spare) ? ga_libc.calloc(1, sizeof *r) : rest_of(p->spare.after);
    if (!r) {
        return false;
    }
    if (!ga_vmm_list_empty(&p->spare)) {
        ga_vmm_list_remove(&r->link);
    }
    r->sheet = sheet;
    r->unit = unit;
    r->fence = fence;
    flip(resting_bits(sheet), unit);
    p->deferred += sheet->class->unit;
    ga_vmm_list_append(&sheet->class->deferred, &r->link);
    return true;
}

/* One that was freed on the very stream, not long ago; with `waiting`, on any. */
static rest *find_rest(ga_vmm_class *class, const ga_stream *stream, bool waiting)
{
    size_t looks = SETTLES;
    for (ga_vmm_link *l = class->deferred.before; l != &class->deferred && looks--; l = l->before) {
        if (waiting || rest_of(l)->fence->stream == *stream) {
            return rest_of(l);
        }
    }
    return NULL;
}

static ga_status take_resting(ga_vmm_packed *p, rest *r, ga_stream stream, void **out)
{
    ga_status status = ga_vmm_fence_order(&p->pool->fences, r->fence, stream);
    if (status == GA_OK) {
        *out = address_of(r->sheet, r->unit);
        wake(p, r);
    }
    return status;
}

/* ---- taking and giving ------------------------------------------------------------------- */

static ga_status take_from_sheet(ga_vmm_packed *p, ga_vmm_class *class, void **out)
{
    ga_status status = GA_OK;
    ga_vmm_sheet *sheet;
    if (ga_vmm_list_empty(&class->open)) {
        settle(p, class, SIZE_MAX);
    }
    if (ga_vmm_list_empty(&class->open)) {
        status = add_sheet(p, class, &sheet);
    }
    if (status == GA_OK) {
        *out = take_unit(GA_VMM_OF(class->open.after, ga_vmm_sheet, link));
    }
    return status;
}

ga_status ga_vmm_packed_allocate(ga_vmm_packed *p, uint64_t size, uint64_t align,
                                 const ga_stream *stream, void **out, uint64_t *usable)
{
    ga_vmm_class *class = &p->classes[aligned_class(p, size, align)];
    rest *r = stream ? find_rest(class, stream, false) : NULL;
    *usable = class->unit;
    if (r) {
        return take_resting(p, r, *stream, out);
    }
    ga_status status = take_from_sheet(p, class, out);
    r = stream && status == GA_ERR_MEMORY ? find_rest(class, stream, true) : NULL;
    return r ? take_resting(p, r, *stream, out) : status;
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
    if (!lay_down(p, sheet, unit, fence)) {
        return ga_fail(GA_ERR_MEMORY, "no memory to note a block that a stream still uses");
    }
    if (!ga_vmm_is_batched(fence->stream)) {
        settle(p, sheet->class, SETTLES);
    } else if (++p->batched_frees % GA_VMM_FENCE_BATCH == 0) {
        settle(p, sheet->class, (size_t)SETTLES * GA_VMM_FENCE_BATCH); /* the same, seldom */
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

static void wake_all(ga_vmm_packed *p)
{
    for (uint32_t i = 0; i < p->class_count; i++) {
        while (!ga_vmm_list_empty(&p->classes[i].deferred)) {
            wake(p, rest_of(p->classes[i].deferred.after));
        }
    }
}

void ga_vmm_packed_reset(ga_vmm_packed *p)
{
    ga_vmm_link *live_runs = &p->pool->live_runs;
    ga_vmm_link *next;
    wake_all(p);
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
        rest *r = rest_of(p->spare.after);
        ga_vmm_list_remove(&r->link);
        ga_libc.free(r);
    }
    ga_libc.free(p->classes);
}
