/* SPDX-License-Identifier: MIT
 *
 * The host's side of slab heaps in device memory.
 *
 * Beside the units stands the bookkeeping, in one block of the parent's: the ga_slab_heap, the counts,
 * the table of super blocks, and with light addressing all bitmap rows. With two-level addressing each
 * super block is one block of the parent's: its units, then its rows. `image` is the ga_slab_heap as the
 * host wrote it last.
 */
#include "kernel.h"

#include "../device/device.h"
#include "../device/kinds.h"
#include "../platform/libc.h"
#include "../platform/log.h"
#include "slab_words.h"

#include <pthread.h>
#include <stddef.h>
#include <string.h>

enum {
    BLOCK = 256, /* threads of a block of the service kernels */
    GRID = 512,  /* blocks at most */
    ALIGN = 256,
    RESIDENT_CHANGES = 64 /* for each memory block there is: then a super block is added */
};

struct ga_slab_kernel {
    int device;
    ga_heap *parent;
    ga_slab_shape shape;
    char *book;         /* the bookkeeping, on the device */
    ga_slab_heap *heap; /* its beginning */
    ga_slab_heap image; /* guarded by lock, like what follows */
    ga_slab_super *supers;
    uint32_t *sorted;
    uint32_t changes; /* those that have led to a super block, and the same of `full` */
    uint32_t full;
    uint64_t reported; /* reports that have been logged */
    uint32_t growths;
    pthread_mutex_t lock;
};

static size_t up(size_t size)
{
    return (size + ALIGN - 1) / ALIGN * ALIGN;
}

/* ---- work on the device: all on its own stream, and waited for -------------------------------- */

static ga_status settle(const ga_cuda_scope *scope, ga_status status)
{
    return status == GA_OK ? GA_CUDA_CALL(scope->driver, cuStreamSynchronize, scope->stream)
                           : status;
}

static ga_status put(const ga_cuda_scope *scope, void *to, const void *from, size_t size)
{
    return settle(scope, GA_CUDA_CALL(scope->driver, cuMemcpyHtoDAsync, (CUdeviceptr)to, from, size,
                                      scope->stream));
}

static ga_status get(const ga_cuda_scope *scope, void *to, const void *from, size_t size)
{
    return settle(scope, GA_CUDA_CALL(scope->driver, cuMemcpyDtoHAsync, to, (CUdeviceptr)from, size,
                                      scope->stream));
}

static ga_status launch(const ga_slab_kernel *slab, const ga_cuda_scope *scope, const char *name,
                        uint32_t threads, void **parameters)
{
    CUfunction function;
    uint32_t block = threads < BLOCK ? threads : BLOCK;
    uint32_t grid = (threads + block - 1) / block;
    ga_status status = ga_device_function(&function, slab->device, name);
    if (status == GA_OK) {
        status = GA_CUDA_CALL(scope->driver, cuLaunchKernel, function, grid < GRID ? grid : GRID, 1,
                              1, block, 1, 1, 0, scope->stream, parameters, NULL);
    }
    return settle(scope, status);
}

static ga_status recount(const ga_slab_kernel *slab, const ga_cuda_scope *scope, uint32_t first,
                         uint32_t n)
{
    ga_slab_heap *heap = slab->heap;
    void *parameters[] = {&heap, &first, &n};
    return launch(slab, scope, "ga_slab_recount_kernel", n, parameters);
}

/* ---- super blocks ----------------------------------------------------------------------------- */

static size_t super_size(const ga_slab_shape *shape)
{
    return (size_t)ga_slab_super_bytes(shape) + ga_slab_super_rows_bytes(shape);
}

static uint32_t super_blocks(const ga_slab_kernel *slab)
{
    return 1u << slab->shape.super_bits;
}

/* New memory: no unit is taken, and under the checks all have been free for ever. */
static ga_status prepare_units(const ga_slab_kernel *slab, const ga_cuda_scope *scope, void *units,
                               uint64_t size, void *rows, size_t rows_size)
{
    ga_status status = ga_cuda_clear(scope, rows, rows_size);
    if (status == GA_OK && slab->image.check) {
        status = settle(scope, GA_CUDA_CALL(scope->driver, cuMemsetD32Async, (CUdeviceptr)units,
                                            GA_SLAB_POISON, (size_t)size / 4, scope->stream));
    }
    return status;
}

/* Note the super block `super` at `units`, in the order of the addresses too. */
static void note_super(ga_slab_kernel *slab, uint32_t super, char *units)
{
    uint32_t at = super;
    slab->supers[super] =
        (ga_slab_super){units, (uint32_t *)(units + ga_slab_super_bytes(&slab->shape))};
    for (; at && (uintptr_t)slab->supers[slab->sorted[at - 1]].units > (uintptr_t)units; at--) {
        slab->sorted[at] = slab->sorted[at - 1];
    }
    slab->sorted[at] = super;
}

/* Forget the super block that was noted last. */
static void drop_super(ga_slab_kernel *slab, uint32_t super)
{
    uint32_t at = 0;
    while (slab->sorted[at] != super) {
        at++;
    }
    memmove(&slab->sorted[at], &slab->sorted[at + 1], (super - at) * sizeof *slab->sorted);
    slab->supers[super] = (ga_slab_super){0};
}

/* Tell the device of `super_count` super blocks. What kernels read last comes last. */
static ga_status publish(ga_slab_kernel *slab, const ga_cuda_scope *scope, uint32_t super)
{
    ga_slab_heap *heap = slab->heap;
    ga_status status =
        put(scope, slab->image.supers + super, &slab->supers[super], sizeof *slab->supers);
    if (status == GA_OK) {
        status = put(scope, slab->image.sorted, slab->sorted, (super + 1) * sizeof *slab->sorted);
    }
    if (status == GA_OK) {
        status = put(scope, &heap->super_count, &slab->image.super_count,
                     sizeof heap->super_count + sizeof heap->words);
    }
    return status == GA_OK
               ? recount(slab, scope, super << slab->shape.super_bits, super_blocks(slab))
               : status;
}

/* One more super block with two-level addressing. No kernel that uses the heap may be running. */
static ga_status add_super(ga_slab_kernel *slab, const ga_cuda_scope *scope)
{
    void *block;
    uint32_t super = slab->image.super_count;
    ga_status status = ga_alloc(slab->parent, super_size(&slab->shape), ALIGN, &block);
    if (status != GA_OK) {
        return ga_fail(status, "slab: no super block of %zu bytes: %s", super_size(&slab->shape),
                       ga_error_text());
    }
    note_super(slab, super, block);
    slab->image.super_count++;
    slab->image.words += super_blocks(slab) * GA_SLAB_ROW_WORDS;
    status = prepare_units(slab, scope, block, ga_slab_super_bytes(&slab->shape),
                           slab->supers[super].rows, ga_slab_super_rows_bytes(&slab->shape));
    if (status == GA_OK) {
        status = publish(slab, scope, super);
    }
    if (status != GA_OK) {
        slab->image.super_count--;
        slab->image.words -= super_blocks(slab) * GA_SLAB_ROW_WORDS;
        drop_super(slab, super);
        ga_free(slab->parent, block);
        return status;
    }
    slab->growths++;
    return GA_OK;
}

/* ---- opening ------------------------------------------------------------------------------------ */

/* Where things stand in the bookkeeping, and how large it is. */
typedef struct book_plan {
    size_t counts, supers, sorted, rows, size;
} book_plan;

static book_plan plan_book(const ga_slab_shape *shape)
{
    book_plan plan = {.counts = up(sizeof(ga_slab_heap))};
    size_t entries = shape->light ? 0 : shape->supers;
    plan.supers = plan.counts + up(ga_slab_counts_bytes(shape));
    plan.sorted = plan.supers + up(entries * sizeof(ga_slab_super));
    plan.rows = plan.sorted + up(entries * sizeof(uint32_t));
    plan.size = plan.rows + (shape->light ? ga_slab_super_rows_bytes(shape) * shape->supers : 0);
    return plan;
}

static void fill_image(ga_slab_kernel *slab, const ga_slab_kernel_spec *spec, const book_plan *plan)
{
    ga_slab_heap *image = &slab->image;
    ga_slab_heap_shape(image, &slab->shape);
    image->check = spec->check;
    image->free = (uint32_t *)(slab->book + plan->counts);
    if (slab->shape.light) {
        image->rows = (uint32_t *)(slab->book + plan->rows);
        image->super_count = slab->shape.supers;
        image->words = slab->shape.supers * super_blocks(slab) * GA_SLAB_ROW_WORDS;
    } else {
        image->supers = (ga_slab_super *)(slab->book + plan->supers);
        image->sorted = (uint32_t *)(slab->book + plan->sorted);
    }
}

/* All units of a heap with light addressing, in one array. */
static ga_status take_array(ga_slab_kernel *slab, const ga_cuda_scope *scope)
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
    status = prepare_units(slab, scope, units, size, slab->image.rows,
                           ga_slab_super_rows_bytes(&slab->shape) * slab->shape.supers);
    if (status == GA_OK) {
        status = put(scope, slab->heap, &slab->image, sizeof slab->image);
    }
    return status == GA_OK ? recount(slab, scope, 0, slab->image.words / GA_SLAB_ROW_WORDS)
                           : status;
}

static ga_status take_supers(ga_slab_kernel *slab, const ga_cuda_scope *scope, uint32_t n)
{
    ga_status status = put(scope, slab->heap, &slab->image, sizeof slab->image);
    while (status == GA_OK && n--) {
        status = add_super(slab, scope);
    }
    return status;
}

static ga_status set_up(ga_slab_kernel *slab, const ga_slab_kernel_spec *spec)
{
    ga_cuda_scope scope;
    book_plan plan = plan_book(&slab->shape);
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
        status = slab->shape.light ? take_array(slab, &scope)
                                   : take_supers(slab, &scope, spec->first ? spec->first : 1);
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

/* ---- what kernels found --------------------------------------------------------------------------- */

static const char *const faults[GA_SLAB_FAULTS] = {
    [GA_SLAB_DOUBLE_FREE] = "freed twice in a kernel",
    [GA_SLAB_NO_UNIT] = "freed in a kernel, but no unit of this heap begins there",
    [GA_SLAB_WRITTEN_FREE] = "written to while its unit was free",
};

static void log_reports(ga_slab_kernel *slab, const ga_slab_heap *now)
{
    for (; slab->reported < now->reported && slab->reported < GA_SLAB_REPORTS; slab->reported++) {
        const ga_slab_report *report = &now->reports[slab->reported];
        if (!report->ready) {
            return; /* a kernel is at it */
        }
        ga_log(GA_LOG_ERROR, "slab: device %d: 0x%llx: %s", slab->device,
               (unsigned long long)report->address, faults[report->fault]);
    }
    if (now->reported > GA_SLAB_REPORTS && slab->reported < now->reported) {
        ga_log(GA_LOG_ERROR, "slab: device %d: %llu more faults, which had no room to be reported",
               slab->device,
               (unsigned long long)(now->reported - (slab->reported > GA_SLAB_REPORTS
                                                         ? slab->reported
                                                         : GA_SLAB_REPORTS)));
        slab->reported = now->reported;
    }
}

/* The heap as kernels have left it; its reports go to the log. Under the lock. */
static ga_status look(ga_slab_kernel *slab, const ga_cuda_scope *scope, ga_slab_heap *now)
{
    ga_status status = get(scope, now, slab->heap, sizeof *now);
    if (status == GA_OK) {
        log_reports(slab, now);
    }
    return status;
}

void ga_slab_kernel_close(ga_slab_kernel *slab)
{
    ga_cuda_scope scope;
    ga_slab_heap now;
    if (slab->book && ga_cuda_enter(&scope, slab->device) == GA_OK) {
        look(slab, &scope, &now);
        ga_cuda_leave(&scope);
    }
    for (uint32_t i = 0; slab->supers && i < slab->image.super_count; i++) {
        ga_free(slab->parent, slab->supers[i].units);
    }
    ga_free(slab->parent, slab->image.units);
    ga_free(slab->parent, slab->book);
    pthread_mutex_destroy(&slab->lock);
    ga_libc.free(slab->supers);
    ga_libc.free(slab->sorted);
    ga_libc.free(slab);
}

/* ---- the view ----------------------------------------------------------------------------------------- */

/* Whether kernels found no room, or had to change their resident blocks so often that the heap is about
 * full. */
static bool is_crowded(const ga_slab_kernel *slab, const ga_slab_heap *now)
{
    uint32_t blocks = now->words / GA_SLAB_ROW_WORDS;
    return now->full != slab->full || now->changes - slab->changes > blocks / RESIDENT_CHANGES;
}

/* As many super blocks again as there are, where there may be more and kernels asked for them. A parent
 * that has none left is no failure: the heap is as large as it can be. */
static ga_status grow_between_launches(ga_slab_kernel *slab, const ga_cuda_scope *scope)
{
    ga_slab_heap now;
    ga_status status = look(slab, scope, &now);
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
                     (image->check || !image->rows ? GA_SLAB_FLAG_GENERAL : 0);
    *out = (ga_kernel_heap){.abi = GA_KERNEL_HEAP_ABI, .kind = GA_KERNEL_KIND_SLAB};
    out->words[GA_SLAB_WORD_HEAP] = (uint64_t)slab->heap;
    out->words[GA_SLAB_WORD_FREE] = (uint64_t)image->free;
    out->words[GA_SLAB_WORD_ROWS] = (uint64_t)image->rows;
    out->words[GA_SLAB_WORD_UNITS] = (uint64_t)image->units;
    out->words[GA_SLAB_WORD_COUNT] = image->words;
    out->words[GA_SLAB_WORD_UNIT] = image->unit | flags << 32;
}

/* Enter the device's context and the heap's lock; undone by leave(). */
static ga_status enter(ga_slab_kernel *slab, ga_cuda_scope *scope)
{
    ga_status status = ga_cuda_enter(scope, slab->device);
    if (status == GA_OK) {
        pthread_mutex_lock(&slab->lock);
    }
    return status;
}

static void leave(ga_slab_kernel *slab, const ga_cuda_scope *scope)
{
    pthread_mutex_unlock(&slab->lock);
    ga_cuda_leave(scope);
}

ga_status ga_slab_kernel_view(ga_slab_kernel *slab, ga_kernel_heap *out)
{
    ga_cuda_scope scope;
    ga_status status = enter(slab, &scope);
    if (status != GA_OK) {
        return status;
    }
    status = grow_between_launches(slab, &scope);
    if (status == GA_OK) {
        fill_view(slab, out);
    }
    leave(slab, &scope);
    return status;
}

/* ---- units for the host ----------------------------------------------------------------------------------- */

/* Which unit begins there; GA_SLAB_FULL for other pointers. */
static uint32_t unit_at(const ga_slab_kernel *slab, const void *pointer, bool *inside)
{
    uint64_t size = ga_slab_super_bytes(&slab->shape);
    uint64_t per_super = size / slab->shape.unit;
    uint32_t count = slab->image.super_count;
    *inside = false;
    for (uint32_t i = 0; i < (slab->shape.light ? 1 : count); i++) {
        uint64_t all = slab->shape.light ? size * count : size;
        const char *units = slab->shape.light ? slab->image.units : slab->supers[i].units;
        uint64_t offset = (uint64_t)((uintptr_t)pointer - (uintptr_t)units);
        if (offset < all) {
            *inside = true;
            return offset % slab->shape.unit
                       ? GA_SLAB_FULL
                       : (uint32_t)(i * per_super + offset / slab->shape.unit);
        }
    }
    return GA_SLAB_FULL;
}

ga_status ga_slab_kernel_alloc(ga_slab_kernel *slab, size_t size, void **out)
{
    ga_cuda_scope scope;
    if (size > slab->shape.unit) {
        return ga_fail(GA_ERR_SIZE, "slab: expected at most the unit's %u bytes, got %zu",
                       slab->shape.unit, size);
    }
    ga_status status = enter(slab, &scope);
    if (status != GA_OK) {
        return status;
    }
    void **answer = (void **)((char *)slab->heap + offsetof(ga_slab_heap, answer));
    void *parameters[] = {&slab->heap, &answer};
    *out = NULL;
    status = launch(slab, &scope, "ga_slab_take_kernel", 1, parameters);
    if (status == GA_OK) {
        status = get(&scope, out, answer, sizeof *out);
    }
    leave(slab, &scope);
    return status == GA_OK && !*out
               ? ga_fail(GA_ERR_MEMORY, "slab: all %llu units of %u bytes are taken",
                         (unsigned long long)slab->image.words * 32, slab->shape.unit)
               : status;
}

/* Whether the unit is taken, for a host that frees it. */
static ga_status check_taken(const ga_slab_kernel *slab, const ga_cuda_scope *scope, uint32_t unit,
                             const void *block)
{
    uint32_t word;
    uint32_t bits = slab->shape.super_bits + GA_SLAB_BLOCK_BITS;
    const uint32_t *rows = slab->shape.light
                               ? slab->image.rows + unit / 32
                               : slab->supers[unit >> bits].rows + (unit & ((1u << bits) - 1)) / 32;
    ga_status status = get(scope, &word, rows, sizeof word);
    return status == GA_OK && !(word >> unit % 32 & 1)
               ? ga_fail(GA_ERR_POINTER, "slab: %p is free already", block)
               : status;
}

ga_status ga_slab_kernel_free(ga_slab_kernel *slab, void *block)
{
    ga_cuda_scope scope;
    bool inside;
    ga_status status = enter(slab, &scope);
    if (status != GA_OK) {
        return ga_cuda_is_gone() ? GA_OK : status;
    }
    uint32_t unit = unit_at(slab, block, &inside);
    if (unit == GA_SLAB_FULL) {
        status = ga_fail(GA_ERR_POINTER, "slab: no unit of this heap begins at %p", block);
    } else {
        status = check_taken(slab, &scope, unit, block);
    }
    if (status == GA_OK) {
        void *parameters[] = {&slab->heap, &block};
        status = launch(slab, &scope, "ga_slab_give_kernel", 1, parameters);
    }
    leave(slab, &scope);
    return status;
}

bool ga_slab_kernel_owns(ga_slab_kernel *slab, const void *pointer)
{
    bool inside;
    pthread_mutex_lock(&slab->lock);
    unit_at(slab, pointer, &inside);
    pthread_mutex_unlock(&slab->lock);
    return inside;
}

size_t ga_slab_kernel_usable_size(ga_slab_kernel *slab, const void *block)
{
    bool inside;
    pthread_mutex_lock(&slab->lock);
    uint32_t unit = unit_at(slab, block, &inside);
    pthread_mutex_unlock(&slab->lock);
    return unit == GA_SLAB_FULL ? 0 : slab->shape.unit;
}

/* ---- all units ------------------------------------------------------------------------------------------------ */

static void visit_rows(const ga_slab_kernel *slab, const uint32_t *rows, size_t words, char *units,
                       ga_visit *visit, void *context)
{
    for (size_t word = 0; word < words; word++) {
        for (uint32_t rest = rows[word]; rest; rest &= rest - 1) {
            size_t unit = word * 32 + (size_t)__builtin_ctz(rest);
            visit(context, units + unit * slab->shape.unit, slab->shape.unit);
        }
    }
}

/* The bitmaps of super block `super`, and where its units are; GA_OK and NULL behind the last. */
static ga_status copy_rows(ga_slab_kernel *slab, uint32_t super, uint32_t *rows, char **units)
{
    ga_cuda_scope scope;
    size_t size = ga_slab_super_rows_bytes(&slab->shape);
    ga_status status = enter(slab, &scope);
    *units = NULL;
    if (status != GA_OK) {
        return status;
    }
    status = ga_cuda_check(scope.driver, scope.driver->cuCtxSynchronize(), "cuCtxSynchronize");
    if (status == GA_OK && super < slab->image.super_count) {
        bool light = slab->shape.light;
        *units = light ? slab->image.units + super * ga_slab_super_bytes(&slab->shape)
                       : slab->supers[super].units;
        status =
            get(&scope, rows,
                light ? slab->image.rows + super * (size / sizeof *rows) : slab->supers[super].rows,
                size);
    }
    leave(slab, &scope);
    return status;
}

/* No lock is held while `visit` runs: it may call the heap. */
ga_status ga_slab_kernel_each_live(ga_slab_kernel *slab, ga_visit *visit, void *context)
{
    size_t size = ga_slab_super_rows_bytes(&slab->shape);
    uint32_t *rows = ga_libc.malloc(size);
    char *units;
    if (!rows) {
        return ga_fail(GA_ERR_MEMORY, "slab: no %zu bytes to copy the bitmaps to", size);
    }
    ga_status status = copy_rows(slab, 0, rows, &units);
    for (uint32_t super = 1; status == GA_OK && units; super++) {
        visit_rows(slab, rows, size / sizeof *rows, units, visit, context);
        status = copy_rows(slab, super, rows, &units);
    }
    ga_libc.free(rows);
    return status;
}

static ga_status count_live(ga_slab_kernel *slab, const ga_cuda_scope *scope, uint64_t *live)
{
    uint64_t *answer = (uint64_t *)((char *)slab->heap + offsetof(ga_slab_heap, answer));
    void *parameters[] = {&slab->heap, &answer};
    ga_status status =
        ga_cuda_check(scope->driver, scope->driver->cuCtxSynchronize(), "cuCtxSynchronize");
    if (status == GA_OK) {
        status = ga_cuda_clear(scope, answer, sizeof *answer);
    }
    if (status == GA_OK) {
        status = launch(slab, scope, "ga_slab_live_kernel",
                        (slab->image.words + BLOCK - 1) / BLOCK * BLOCK, parameters);
    }
    return status == GA_OK ? get(scope, live, answer, sizeof *live) : status;
}

void ga_slab_kernel_stats(ga_slab_kernel *slab, ga_backend_stats *out)
{
    ga_cuda_scope scope;
    ga_slab_heap now;
    uint64_t live = 0;
    out->growths = slab->growths;
    out->held_bytes =
        plan_book(&slab->shape).size +
        (slab->shape.light ? ga_slab_super_bytes(&slab->shape) * slab->image.super_count
                           : (uint64_t)super_size(&slab->shape) * slab->image.super_count);
    if (enter(slab, &scope) == GA_OK) {
        if (count_live(slab, &scope, &live) == GA_OK && look(slab, &scope, &now) == GA_OK) {
            out->live_blocks = live;
            out->live_bytes = live * slab->shape.unit;
        }
        leave(slab, &scope);
    }
}

ga_status ga_slab_kernel_reset(ga_slab_kernel *slab)
{
    ga_cuda_scope scope;
    size_t size = ga_slab_super_rows_bytes(&slab->shape);
    ga_status status = enter(slab, &scope);
    if (status != GA_OK) {
        return status;
    }
    status = ga_cuda_check(scope.driver, scope.driver->cuCtxSynchronize(), "cuCtxSynchronize");
    for (uint32_t i = 0; status == GA_OK && i < slab->image.super_count; i++) {
        bool light = slab->shape.light;
        char *units = light ? slab->image.units + i * ga_slab_super_bytes(&slab->shape)
                            : slab->supers[i].units;
        uint32_t *rows =
            light ? slab->image.rows + i * (size / sizeof *rows) : slab->supers[i].rows;
        status = prepare_units(slab, &scope, units, ga_slab_super_bytes(&slab->shape), rows, size);
    }
    if (status == GA_OK) {
        status = recount(slab, &scope, 0, slab->image.words / GA_SLAB_ROW_WORDS);
    }
    leave(slab, &scope);
    return status;
}
