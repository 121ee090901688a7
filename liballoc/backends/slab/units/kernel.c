/* SPDX-License-Identifier: MIT
 *
 * The host's side of slab heaps in device memory: setup, growth between launches, the view.
 *
 * The bookkeeping is one block of the parent: the ga_slab_heap, the counts, the table of
 * superblocks, and with light addressing all bitmap rows. With two-level addressing each superblock
 * is one block of the parent: its units, then its rows. `image` is the ga_slab_heap as the host
 * wrote it last.
 */
#include "kernel_state.h"

#include "../../../device/device.h"
#include "../../../device/kinds.h"
#include "../../../platform/libc.h"
#include "../../../platform/log.h"
#include "give_back.h"
#include "report_log.h"
#include "slab_words.h"

#include <string.h>

enum {
    BLOCK_THREADS = 256, /* threads in a block of the service kernels */
    GRID_BLOCKS = 512,   /* most blocks in their grid */
    ALIGN = 256,
    BLOCKS_PER_CHANGE = 64 /* grow at more than 1 resident change per N memory blocks */
};

static size_t round_up(size_t size)
{
    return (size + ALIGN - 1) / ALIGN * ALIGN;
}

/* ---- work on the device: on the library's stream, and waited for --------------------------- */

static ga_status wait_for_stream(const ga_cuda_scope *scope, ga_status status)
{
    return status == GA_OK ? GA_CUDA_CALL(scope->driver, cuStreamSynchronize, scope->stream)
                           : status;
}

ga_status ga_slab_kernel_copy_to(const ga_cuda_scope *scope, void *to, const void *from,
                                 size_t size)
{
    return wait_for_stream(scope, GA_CUDA_CALL(scope->driver, cuMemcpyHtoDAsync, (CUdeviceptr)to,
                                               from, size, scope->stream));
}

ga_status ga_slab_kernel_copy_from(const ga_cuda_scope *scope, void *to, const void *from,
                                   size_t size)
{
    return wait_for_stream(scope, GA_CUDA_CALL(scope->driver, cuMemcpyDtoHAsync, to,
                                               (CUdeviceptr)from, size, scope->stream));
}

ga_status ga_slab_kernel_launch(const ga_slab_kernel *slab, const ga_cuda_scope *scope,
                                const char *name, uint32_t threads, void **parameters)
{
    CUfunction function;
    uint32_t block = threads < BLOCK_THREADS ? threads : BLOCK_THREADS;
    uint32_t grid = (threads + block - 1) / block;
    ga_status status = ga_device_function(&function, slab->device, name);
    if (status == GA_OK) {
        status = GA_CUDA_CALL(scope->driver, cuLaunchKernel, function,
                              grid < GRID_BLOCKS ? grid : GRID_BLOCKS, 1, 1, block, 1, 1, 0,
                              scope->stream, parameters, NULL);
    }
    return wait_for_stream(scope, status);
}

ga_status ga_slab_kernel_recount(const ga_slab_kernel *slab, const ga_cuda_scope *scope,
                                 uint32_t first, uint32_t n)
{
    ga_slab_heap *heap = slab->heap;
    void *parameters[] = {&heap, &first, &n};
    return ga_slab_kernel_launch(slab, scope, "ga_slab_recount_kernel", n, parameters);
}

/* ---- superblocks -------------------------------------------------------------------------- */

static size_t super_size(const ga_slab_shape *shape)
{
    return (size_t)ga_slab_super_bytes(shape) + ga_slab_super_rows_bytes(shape);
}

static uint32_t super_blocks(const ga_slab_kernel *slab)
{
    return 1u << slab->shape.super_bits;
}

ga_status ga_slab_kernel_prepare(const ga_slab_kernel *slab, const ga_cuda_scope *scope,
                                 void *units, uint64_t size, void *rows, size_t rows_size)
{
    ga_status status = ga_cuda_clear(scope, rows, rows_size);
    if (status == GA_OK && slab->image.check) {
        status =
            wait_for_stream(scope, GA_CUDA_CALL(scope->driver, cuMemsetD32Async, (CUdeviceptr)units,
                                                GA_SLAB_POISON, (size_t)size / 4, scope->stream));
    }
    return status;
}

/* Enter the superblock into both tables, by its number and in the order of addresses. */
static void record_super(ga_slab_kernel *slab, uint32_t super, char *units)
{
    uint32_t at = super;
    slab->supers[super] =
        (ga_slab_super){units, (uint32_t *)(units + ga_slab_super_bytes(&slab->shape))};
    for (; at && (uintptr_t)slab->supers[slab->sorted[at - 1]].units > (uintptr_t)units; at--) {
        slab->sorted[at] = slab->sorted[at - 1];
    }
    slab->sorted[at] = super;
}

/* Remove the superblock that was recorded last. */
static void drop_super(ga_slab_kernel *slab, uint32_t super)
{
    uint32_t at = 0;
    while (slab->sorted[at] != super) {
        at++;
    }
    memmove(&slab->sorted[at], &slab->sorted[at + 1], (super - at) * sizeof *slab->sorted);
    slab->supers[super] = (ga_slab_super){0};
}

/* Copy the tables and numbers to the device. Kernels find the superblock by its counts, so these
 * come last. */
static ga_status publish(ga_slab_kernel *slab, const ga_cuda_scope *scope, uint32_t super)
{
    ga_slab_heap *heap = slab->heap;
    ga_status status = ga_slab_kernel_copy_to(scope, slab->image.supers + super,
                                              &slab->supers[super], sizeof *slab->supers);
    if (status == GA_OK) {
        status = ga_slab_kernel_copy_to(scope, slab->image.sorted, slab->sorted,
                                        (super + 1) * sizeof *slab->sorted);
    }
    if (status == GA_OK) {
        status = ga_slab_kernel_copy_to(scope, &heap->super_count, &slab->image.super_count,
                                        sizeof heap->super_count + sizeof heap->words);
    }
    return status == GA_OK ? ga_slab_kernel_recount(slab, scope, super << slab->shape.super_bits,
                                                    super_blocks(slab))
                           : status;
}

/* Add a superblock with two-level addressing. No kernel that uses the heap may be running. */
static ga_status add_super(ga_slab_kernel *slab, const ga_cuda_scope *scope)
{
    void *block;
    uint32_t super = slab->image.super_count;
    ga_status status = ga_alloc(slab->parent, super_size(&slab->shape), ALIGN, &block);
    if (status != GA_OK) {
        return ga_fail(status, "slab: no superblock of %zu bytes: %s", super_size(&slab->shape),
                       ga_error_text());
    }
    record_super(slab, super, block);
    slab->image.super_count++;
    slab->image.words += super_blocks(slab) * GA_SLAB_ROW_WORDS;
    status =
        ga_slab_kernel_prepare(slab, scope, block, ga_slab_super_bytes(&slab->shape),
                               slab->supers[super].rows, ga_slab_super_rows_bytes(&slab->shape));
    if (status == GA_OK) {
        status = publish(slab, scope, super);
    }
    if (status != GA_OK) {
        slab->image.super_count--;
        slab->image.words -= super_blocks(slab) * GA_SLAB_ROW_WORDS;
        drop_super(slab, super);
        ga_slab_kernel_copy_to(scope, &slab->heap->super_count, &slab->image.super_count,
                               sizeof slab->image.super_count + sizeof slab->image.words);
        ga_slab_free_to_parent(slab->parent, block);
        return status;
    }
    slab->growths++;
    return GA_OK;
}

/* ---- opening ------------------------------------------------------------------------------- */

/* Offsets in the bookkeeping, and its size. */
typedef struct book_plan {
    size_t counts, growth, supers, sorted, rows, size;
} book_plan;

static book_plan plan_book(const ga_slab_shape *shape, bool grows)
{
    book_plan plan = {.counts = round_up(sizeof(ga_slab_heap))};
    size_t entries = shape->light ? 0 : shape->supers;
    plan.growth = plan.counts + round_up(ga_slab_counts_bytes(shape));
    plan.supers = plan.growth + round_up(sizeof(ga_growth));
    plan.sorted = plan.supers + round_up(entries * sizeof(ga_slab_super));
    plan.rows = plan.sorted + round_up(entries * sizeof(uint32_t));
    plan.size = plan.rows;
    if (shape->light && !grows) {
        plan.size += ga_slab_super_rows_bytes(shape) * shape->supers;
    }
    return plan;
}

static void fill_image(ga_slab_kernel *slab, const ga_slab_kernel_spec *spec, const book_plan *plan)
{
    ga_slab_heap *image = &slab->image;
    ga_slab_heap_shape(image, &slab->shape);
    image->check = spec->check;
    image->free = (uint32_t *)(slab->book + plan->counts);
    if (slab->grows) {
        slab->growth = (ga_growth *)(slab->book + plan->growth);
        image->growth = slab->growth;
    } else if (slab->shape.light) {
        image->rows = (uint32_t *)(slab->book + plan->rows);
        image->super_count = slab->shape.supers;
        image->words = slab->shape.supers * super_blocks(slab) * GA_SLAB_ROW_WORDS;
    } else {
        image->supers = (ga_slab_super *)(slab->book + plan->supers);
        image->sorted = (uint32_t *)(slab->book + plan->sorted);
    }
}

/* Allocate all units of a heap with light addressing, as one array. */
static ga_status alloc_array(ga_slab_kernel *slab, const ga_cuda_scope *scope)
{
    uint64_t size = ga_slab_super_bytes(&slab->shape) * slab->shape.supers;
    void *units;
    ga_status status = ga_alloc(slab->parent, (size_t)size, ALIGN, &units);
    if (status != GA_OK) {
        return ga_fail(status, "slab: no array of %llu bytes: %s", (unsigned long long)size,
                       ga_error_text());
    }
    slab->image.units = units;
    slab->growths = 1;
    status = ga_slab_kernel_prepare(slab, scope, units, size, slab->image.rows,
                                    ga_slab_super_rows_bytes(&slab->shape) * slab->shape.supers);
    if (status == GA_OK) {
        status = ga_slab_kernel_copy_to(scope, slab->heap, &slab->image, sizeof slab->image);
    }
    return status == GA_OK
               ? ga_slab_kernel_recount(slab, scope, 0, slab->image.words / GA_SLAB_ROW_WORDS)
               : status;
}

static ga_status alloc_supers(ga_slab_kernel *slab, const ga_cuda_scope *scope, uint32_t n)
{
    ga_status status = ga_slab_kernel_copy_to(scope, slab->heap, &slab->image, sizeof slab->image);
    while (status == GA_OK && n--) {
        status = add_super(slab, scope);
    }
    return status;
}

static ga_status set_up(ga_slab_kernel *slab, const ga_slab_kernel_spec *spec)
{
    ga_cuda_scope scope;
    book_plan plan = plan_book(&slab->shape, slab->grows);
    void *book;
    ga_status status = ga_alloc(slab->parent, plan.size, ALIGN, &book);
    if (status != GA_OK) {
        return ga_fail(status, "slab: no %zu bytes for the bookkeeping: %s", plan.size,
                       ga_error_text());
    }
    slab->book = book;
    slab->heap = book;
    fill_image(slab, spec, &plan);
    status = ga_cuda_enter(&scope, slab->device);
    if (status != GA_OK) {
        return status;
    }
    status = ga_cuda_clear(&scope, slab->book, plan.rows);
    if (status == GA_OK) {
        uint32_t first = spec->first ? spec->first : 1;
        status = slab->grows         ? ga_slab_growing_alloc(slab, &scope, first)
                 : slab->shape.light ? alloc_array(slab, &scope)
                                     : alloc_supers(slab, &scope, first);
    }
    ga_cuda_leave(&scope);
    return status;
}

static bool make_tables(ga_slab_kernel *slab)
{
    if (slab->shape.light) {
        return true;
    }
    slab->supers = ga_libc.calloc(slab->shape.supers, sizeof *slab->supers);
    slab->sorted = ga_libc.calloc(slab->shape.supers, sizeof *slab->sorted);
    return slab->supers && slab->sorted;
}

ga_status ga_slab_kernel_open(ga_slab_kernel **out, const ga_slab_kernel_spec *spec, int device,
                              ga_heap *parent)
{
    ga_status status = ga_slab_shape_check(&spec->shape);
    if (status != GA_OK) {
        return status;
    }
    ga_slab_kernel *slab = ga_libc.calloc(1, sizeof *slab);
    if (!slab) {
        return ga_fail(GA_ERR_MEMORY, "slab: no memory for the heap's record");
    }
    slab->device = device;
    slab->parent = parent;
    slab->grows = spec->grows;
    slab->shape = spec->shape;
    slab->shape.spread = GA_SLAB_SPREAD_KERNEL;
    pthread_mutex_init(&slab->lock, NULL);
    status = make_tables(slab) ? set_up(slab, spec)
                               : ga_fail(GA_ERR_MEMORY, "slab: no memory for the heap's tables");
    if (status != GA_OK) {
        ga_slab_kernel_close(slab);
        return status;
    }
    *out = slab;
    return GA_OK;
}

/* ---- faults that kernels found ------------------------------------------------------------- */

static const char *const faults[GA_SLAB_FAULTS] = {
    [GA_SLAB_DOUBLE_FREE] = "freed twice in a kernel",
    [GA_SLAB_NO_UNIT] = "freed in a kernel, but no unit of this heap begins there",
    [GA_SLAB_WRITTEN_FREE] = "written to while its unit was free",
};

ga_status ga_slab_kernel_read_heap(ga_slab_kernel *slab, const ga_cuda_scope *scope,
                                   ga_slab_heap *now)
{
    ga_status status = ga_slab_kernel_copy_from(scope, now, slab->heap, sizeof *now);
    if (status == GA_OK) {
        ga_slab_report_log(slab->device, faults, now->reports, now->reported, &slab->reported);
    }
    if (status == GA_OK && !slab->image.check) {
        ga_slab_report_invalid(slab->device, now->faults[GA_SLAB_NO_UNIT], &slab->invalid);
    }
    return status;
}

void ga_slab_kernel_close(ga_slab_kernel *slab)
{
    ga_cuda_scope scope;
    ga_slab_heap now;
    if (slab->book && ga_cuda_enter(&scope, slab->device) == GA_OK) {
        ga_slab_kernel_read_heap(slab, &scope, &now);
        if (slab->growing.own) {
            ga_slab_growing_refresh(slab, &scope);
        }
        ga_cuda_leave(&scope);
    }
    for (uint32_t i = 0; slab->supers && i < slab->image.super_count; i++) {
        ga_slab_free_to_parent(slab->parent, slab->supers[i].units);
    }
    if (slab->grows) {
        ga_slab_growing_free(slab);
    } else {
        ga_slab_free_to_parent(slab->parent, slab->image.units);
    }
    ga_slab_free_to_parent(slab->parent, slab->book);
    pthread_mutex_destroy(&slab->lock);
    ga_libc.free(slab->supers);
    ga_libc.free(slab->sorted);
    ga_libc.free(slab);
}

/* ---- the view ------------------------------------------------------------------------------ */

/* True if a kernel found no room, or resident changes were so many that the heap must be nearly
 * full. */
static bool is_crowded(const ga_slab_kernel *slab, const ga_slab_heap *now)
{
    uint32_t blocks = now->words / GA_SLAB_ROW_WORDS;
    return now->full != slab->full || now->changes - slab->changes > blocks / BLOCKS_PER_CHANGE;
}

/* Double the number of superblocks if kernels found room scarce and the limit allows it. If the
 * parent is out of memory, that is no failure: the heap stays as it is. */
static ga_status grow_between_launches(ga_slab_kernel *slab, const ga_cuda_scope *scope)
{
    ga_slab_heap now;
    ga_status status = ga_slab_kernel_read_heap(slab, scope, &now);
    if (status == GA_OK && slab->grows) {
        bool crowded = is_crowded(slab, &now);
        slab->changes = now.changes;
        slab->full = now.full;
        return ga_slab_growing_ahead(slab, scope, crowded);
    }
    if (status != GA_OK || slab->shape.light || !is_crowded(slab, &now)) {
        return status;
    }
    status = ga_cuda_check(scope->driver, scope->driver->cuCtxSynchronize(), "cuCtxSynchronize");
    slab->changes = now.changes;
    slab->full = now.full;
    for (uint32_t n = now.super_count; status == GA_OK && n; n--) {
        status = slab->image.super_count < slab->shape.supers ? add_super(slab, scope) : GA_OK;
    }
    if (status == GA_ERR_MEMORY) {
        ga_log(GA_LOG_INFO, "%s", ga_error_text());
        return GA_OK;
    }
    return status;
}

static void fill_view(const ga_slab_kernel *slab, ga_kernel_heap *out)
{
    const ga_slab_heap *image = &slab->image;
    uint64_t flags = image->shift | (image->inverse ? GA_SLAB_FLAG_ODD : 0) |
                     (image->check ? GA_SLAB_FLAG_CHECK : 0) |
                     (slab->grows ? GA_SLAB_FLAG_GROWS : 0) |
                     (image->check || !image->rows ? GA_SLAB_FLAG_GENERAL : 0);
    *out = (ga_kernel_heap){.abi = GA_KERNEL_HEAP_ABI, .kind = GA_KERNEL_KIND_SLAB};
    out->words[GA_SLAB_WORD_HEAP] = (uint64_t)slab->heap;
    out->words[GA_SLAB_WORD_FREE] = (uint64_t)image->free;
    out->words[GA_SLAB_WORD_ROWS] = (uint64_t)image->rows;
    out->words[GA_SLAB_WORD_UNITS] = (uint64_t)image->units;
    out->words[GA_SLAB_WORD_COUNT] = image->words;
    out->words[GA_SLAB_WORD_UNIT] = image->unit | flags << 32;
}

ga_status ga_slab_kernel_enter(ga_slab_kernel *slab, ga_cuda_scope *scope)
{
    ga_status status = ga_cuda_enter(scope, slab->device);
    if (status != GA_OK) {
        return status;
    }
    pthread_mutex_lock(&slab->lock);
    status = slab->grows ? ga_slab_growing_refresh(slab, scope) : GA_OK;
    if (status != GA_OK) {
        ga_slab_kernel_leave(slab, scope);
    }
    return status;
}

void ga_slab_kernel_leave(ga_slab_kernel *slab, const ga_cuda_scope *scope)
{
    pthread_mutex_unlock(&slab->lock);
    ga_cuda_leave(scope);
}

ga_status ga_slab_kernel_view(ga_slab_kernel *slab, ga_kernel_heap *out)
{
    ga_cuda_scope scope;
    ga_status status = ga_slab_kernel_enter(slab, &scope);
    if (status != GA_OK) {
        return status;
    }
    status = grow_between_launches(slab, &scope);
    if (status == GA_OK) {
        fill_view(slab, out);
    }
    ga_slab_kernel_leave(slab, &scope);
    return status;
}

uint64_t ga_slab_kernel_held(const ga_slab_kernel *slab)
{
    uint64_t each =
        slab->shape.light ? ga_slab_super_bytes(&slab->shape) : super_size(&slab->shape);
    each += slab->grows ? ga_slab_super_rows_bytes(&slab->shape) : 0;
    return plan_book(&slab->shape, slab->grows).size + each * slab->image.super_count;
}
