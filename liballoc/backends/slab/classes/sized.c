/* SPDX-License-Identifier: MIT
 *
 * Kernel heaps with size classes, host side: opening, closing and the view for kernels.
 * sized_blocks.c has blocks and statistics.
 *
 * Beside the regions the heap has its bookkeeping, in one block of the parent: the ga_sized_heap,
 * the records of recent words, the owners of regions, the pool, a table of regions for each class,
 * and the bitmaps unless the parent grows. `image` is the host's copy of the ga_sized_heap as it
 * was written first.
 */
#include "sized_state.h"

#include "../units/give_back.h"
#include "../units/report_log.h"

#include "../../../device/device.h"
#include "../../../device/kinds.h"
#include "../../../growth/pager.h"
#include "../../../platform/libc.h"
#include "../../../platform/log.h"
#include "sized_words.h"

enum {
    ALIGN = 256,
    REGION_BITS_MIN = 17,
    REGION_BITS_MAX = 21,
    REGIONS_TARGET = 512,  /* regions are made smaller until the heap has this number */
    HEAP_GROW_DIVISOR = 16 /* the heap backs 1/16 more regions at a time: little is unused */
};

/* ---- work on the device: on its own stream; the caller waits --------------------------- */

static ga_status wait_for_stream(const ga_cuda_scope *scope, ga_status status)
{
    return status == GA_OK ? GA_CUDA_CALL(scope->driver, cuStreamSynchronize, scope->stream)
                           : status;
}

static ga_status copy_to_device(const ga_cuda_scope *scope, void *to, const void *from, size_t size)
{
    return wait_for_stream(scope, GA_CUDA_CALL(scope->driver, cuMemcpyHtoDAsync, (CUdeviceptr)to,
                                               from, size, scope->stream));
}

ga_status ga_sized_get(const ga_cuda_scope *scope, void *to, const void *from, size_t size)
{
    return wait_for_stream(scope, GA_CUDA_CALL(scope->driver, cuMemcpyDtoHAsync, to,
                                               (CUdeviceptr)from, size, scope->stream));
}

ga_status ga_sized_launch(const ga_sized *sized, const ga_cuda_scope *scope, const char *name,
                          uint32_t threads, void **parameters)
{
    CUfunction function;
    uint32_t block = threads < GA_SIZED_BLOCK_THREADS ? threads : GA_SIZED_BLOCK_THREADS;
    uint32_t grid = (threads + block - 1) / block;
    ga_status status = ga_device_function(&function, sized->device, name);
    if (status == GA_OK) {
        status = GA_CUDA_CALL(scope->driver, cuLaunchKernel, function,
                              grid < GA_SIZED_GRID_BLOCKS ? grid : GA_SIZED_GRID_BLOCKS, 1, 1,
                              block, 1, 1, 0, scope->stream, parameters, NULL);
    }
    return wait_for_stream(scope, status);
}

ga_status ga_sized_enter(ga_sized *sized, ga_cuda_scope *scope)
{
    ga_status status = ga_cuda_enter(scope, sized->device);
    if (status == GA_OK) {
        pthread_mutex_lock(&sized->lock);
    }
    return status;
}

void ga_sized_leave(ga_sized *sized, const ga_cuda_scope *scope)
{
    pthread_mutex_unlock(&sized->lock);
    ga_cuda_leave(scope);
}

ga_status ga_sized_wait(const ga_cuda_scope *scope)
{
    return GA_CUDA_CALL(scope->driver, cuCtxSynchronize);
}

/* ---- shape ----------------------------------------------------------------------------- */

static ga_status choose_regions(ga_sized *sized, uint64_t limit)
{
    sized->region_bits = REGION_BITS_MAX;
    while (sized->region_bits > REGION_BITS_MIN &&
           limit / REGIONS_TARGET < ga_sized_region_size(sized)) {
        sized->region_bits--;
    }
    uint64_t regions = limit >> sized->region_bits;
    uint64_t max = UINT64_C(1) << (32 - ga_sized_stride_bits(sized->region_bits));
    sized->regions = (uint32_t)(regions < max ? regions : max - 1);
    return regions ? GA_OK
                   : ga_fail(GA_ERR_SPEC,
                             "slab: limit: expected room for a region of %llu bytes, got %llu",
                             (unsigned long long)ga_sized_region_size(sized),
                             (unsigned long long)limit);
}

/* Offsets into the bookkeeping, and its size. */
typedef struct bookkeeping_plan {
    size_t owners, growth, pool, table_indices, watches, tables, bits, size;
} bookkeeping_plan;

static size_t round_up(size_t size)
{
    return (size + ALIGN - 1) / ALIGN * ALIGN;
}

static uint32_t class_count(const ga_sized *sized)
{
    return ga_sized_class_count(sized->region_bits);
}

static bookkeeping_plan plan_bookkeeping(const ga_sized *sized)
{
    size_t list = round_up(sized->regions * sizeof(uint32_t));
    bookkeeping_plan plan = {.owners = GA_SIZED_OWNERS_AT};
    plan.growth = plan.owners + list;
    plan.pool = plan.growth + round_up(sizeof(ga_growth));
    plan.table_indices = plan.pool + round_up((sized->regions + 31) / 32 * sizeof(uint32_t));
    plan.watches = plan.table_indices + list;
    plan.tables = plan.watches + list;
    plan.bits = plan.tables + list * class_count(sized);
    plan.size = plan.bits + (sized->grows ? 0 : ga_sized_bits_size(sized) * sized->regions);
    return plan;
}

static void fill_image(ga_sized *sized, const bookkeeping_plan *plan)
{
    ga_sized_heap *image = &sized->image;
    *image = (ga_sized_heap){
        .units = sized->grows ? sized->growing.base[0] : sized->fixed,
        .bits = sized->grows ? sized->growing.base[1] : (void *)(sized->bookkeeping + plan->bits),
        .owners = (uint32_t *)(sized->bookkeeping + plan->owners),
        .pool = (uint32_t *)(sized->bookkeeping + plan->pool),
        .table_indices = (uint32_t *)(sized->bookkeeping + plan->table_indices),
        .watches = (uint32_t *)(sized->bookkeeping + plan->watches),
        .region_bits = sized->region_bits,
        .classes = class_count(sized),
        .regions = sized->regions,
        .growth = sized->growth,
        .check = sized->image.check,
        .fixed = sized->grows ? 0 : sized->regions,
    };
    size_t list = round_up(sized->regions * sizeof(uint32_t));
    for (uint32_t class = 0; class < image->classes; class ++) {
        ga_sized_class_begin(&image->of[class], sized->region_bits, class,
                             (uint32_t *)(sized->bookkeeping + plan->tables + class * list));
    }
}

/* ---- open and close -------------------------------------------------------------------- */

/* Prefer a multiple of the region size, which aligned blocks need. Not every parent supports that
 * alignment, but most return so large a block at such a multiple anyway. */
static ga_status allocate_fixed(ga_sized *sized)
{
    uint64_t size = sized->regions * ga_sized_region_size(sized);
    ga_status status = ga_alloc(sized->parent, size, ga_sized_region_size(sized), &sized->fixed);
    if (status == GA_ERR_ALIGN) {
        status = ga_alloc(sized->parent, size, ALIGN, &sized->fixed);
    }
    return status == GA_OK ? GA_OK
                           : ga_fail(status, "slab: no %llu bytes: %s", (unsigned long long)size,
                                     ga_error_text());
}

static ga_status allocate_regions(ga_sized *sized, uint64_t capacity)
{
    if (!sized->grows) {
        return allocate_fixed(sized);
    }
    uint64_t first = (capacity + ga_sized_region_size(sized) - 1) >> sized->region_bits;
    sized->growing = (ga_growing){
        .step_bytes = {ga_sized_region_size(sized), ga_sized_bits_size(sized)},
        .steps_max = sized->regions,
        .ahead = HEAP_GROW_DIVISOR,
        .steps = first < sized->regions ? (uint32_t)(first + !first) : sized->regions,
    };
    ga_status status = ga_growing_open(sized->parent, &sized->growing);
    return status == GA_OK
               ? GA_OK
               : ga_fail(status, "slab: no memory that grows under kernels: %s", ga_error_text());
}

static ga_status write_heap(ga_sized *sized, const ga_cuda_scope *scope)
{
    ga_status status = copy_to_device(scope, sized->heap, &sized->image, sizeof sized->image);
    if (status == GA_OK && sized->growth) {
        ga_growth first = ga_growth_first(sized->growing.mailbox, sized->growing.steps);
        status = copy_to_device(scope, sized->growth, &first, sizeof first);
    }
    return status;
}

static ga_status set_up(ga_sized *sized, const ga_sized_spec *spec)
{
    ga_cuda_scope scope;
    bookkeeping_plan plan = plan_bookkeeping(sized);
    void *bookkeeping = NULL;
    ga_status status = ga_alloc(sized->parent, plan.size, ALIGN, &bookkeeping);
    if (status != GA_OK) {
        return ga_fail(status, "slab: no %zu bytes for the bookkeeping: %s", plan.size,
                       ga_error_text());
    }
    sized->bookkeeping = bookkeeping;
    sized->bookkeeping_size = plan.size;
    sized->heap = bookkeeping;
    sized->growth = sized->grows ? (ga_growth *)(sized->bookkeeping + plan.growth) : NULL;
    status = allocate_regions(sized, spec->capacity);
    if (status == GA_OK) {
        status = ga_cuda_enter(&scope, sized->device);
    }
    if (status != GA_OK) {
        return status;
    }
    fill_image(sized, &plan);
    status = ga_cuda_clear(&scope, sized->bookkeeping, plan.bits);
    if (status == GA_OK) {
        status = write_heap(sized, &scope);
    }
    ga_cuda_leave(&scope);
    sized->initialised = status == GA_OK;
    return status;
}

/* The most bytes for regions. */
static ga_status limit_of(const ga_sized_spec *spec, int device, uint64_t *limit)
{
    ga_cuda_scope scope;
    size_t free = 0, total = 0;
    *limit = spec->limit ? spec->limit : spec->capacity;
    if (spec->limit || !spec->grows) {
        return GA_OK;
    }
    ga_status status = ga_cuda_enter(&scope, device);
    if (status == GA_OK) {
        status = GA_CUDA_CALL(scope.driver, cuMemGetInfo, &free, &total);
        ga_cuda_leave(&scope);
    }
    *limit = total;
    return status;
}

ga_status ga_sized_open(ga_sized **out, const ga_sized_spec *spec, int device, ga_heap *parent)
{
    uint64_t limit;
    ga_sized *sized = ga_libc.calloc(1, sizeof *sized);
    if (!sized) {
        return ga_fail(GA_ERR_MEMORY, "slab: no memory for the heap's record");
    }
    sized->device = device;
    sized->parent = parent;
    sized->grows = spec->grows;
    sized->image.check = spec->check;
    pthread_mutex_init(&sized->lock, NULL);
    ga_status status = limit_of(spec, device, &limit);
    if (status == GA_OK) {
        status = choose_regions(sized, limit);
    }
    if (status == GA_OK) {
        status = set_up(sized, spec);
    }
    if (status != GA_OK) {
        ga_sized_close(sized);
        return status;
    }
    *out = sized;
    return GA_OK;
}

/* ---- reports of kernels ---------------------------------------------------------------- */

static const char *const faults[GA_SLAB_FAULTS] = {
    [GA_SLAB_DOUBLE_FREE] = "freed twice in a kernel",
    [GA_SLAB_NO_UNIT] = "freed in a kernel, but no block of this heap begins there",
};

/* With the lock held. */
ga_status ga_sized_inspect(ga_sized *sized, const ga_cuda_scope *scope, ga_sized_heap *now)
{
    ga_status status = ga_sized_get(scope, now, sized->heap, sizeof *now);
    if (status == GA_OK) {
        ga_slab_report_log(sized->device, faults, now->reports, now->reported,
                           &sized->reports_logged);
    }
    if (status == GA_OK && !sized->image.check) {
        ga_slab_report_invalid(sized->device, now->faults, &sized->invalid_logged);
    }
    return status;
}

static void log_last_reports(ga_sized *sized)
{
    ga_cuda_scope scope;
    ga_sized_heap now;
    if (sized->initialised && ga_cuda_enter(&scope, sized->device) == GA_OK) {
        ga_sized_inspect(sized, &scope, &now);
        ga_cuda_leave(&scope);
    }
}

void ga_sized_close(ga_sized *sized)
{
    log_last_reports(sized);
    if (sized->growing.own) {
        ga_growing_close(sized->parent, &sized->growing);
    }
    ga_slab_free_to_parent(sized->parent, sized->fixed);
    ga_slab_free_to_parent(sized->parent, sized->bookkeeping);
    pthread_mutex_destroy(&sized->lock);
    ga_libc.free(sized);
}

/* ---- the view -------------------------------------------------------------------------- */

void ga_sized_fill_view(const ga_sized *sized, ga_kernel_heap *out)
{
    *out = (ga_kernel_heap){.abi = GA_KERNEL_HEAP_ABI, .kind = GA_KERNEL_KIND_SIZED};
    out->words[GA_SIZED_WORD_HEAP] = (uint64_t)sized->heap;
    out->words[GA_SIZED_WORD_UNITS] = (uint64_t)sized->image.units;
    out->words[GA_SIZED_WORD_BITS] = (uint64_t)sized->image.bits;
    out->words[GA_SIZED_WORD_SHAPE] =
        sized->region_bits | (sized->image.check ? GA_SIZED_FLAG_CHECK : GA_SIZED_FLAG_PLAIN) |
        sized->regions << GA_SIZED_AT_REGIONS | (uint64_t)sized->image.classes << 32;
}

static uint64_t refused_of(const ga_sized_heap *now)
{
    uint64_t sum = now->refused;
    for (uint32_t class = 0; class < now->classes; class ++) {
        sum += now->of[class].refused;
    }
    return sum;
}

/* With the lock held, while no kernel uses the heap. */
static ga_status collect(ga_sized *sized, const ga_cuda_scope *scope)
{
    void *parameters[] = {&sized->heap};
    return ga_sized_launch(sized, scope, "ga_sized_collect_kernel", sized->image.classes * 32,
                           parameters);
}

static const char *const reasons[GA_GROWTH_REASONS] = {
    [GA_GROWTH_LIMIT] = "the limit is reached",
    [GA_GROWTH_MEMORY] = "the device is out of memory",
    [GA_GROWTH_GONE] = "the pager did not answer",
    [GA_GROWTH_FIXED] = "it grows between launches only",
};

/* Log why kernels got no more memory, once for each reason. */
static ga_status log_refusal(ga_sized *sized, const ga_cuda_scope *scope)
{
    ga_growth growth;
    ga_status status = ga_sized_get(scope, &growth, sized->growth, sizeof growth);
    uint32_t reason = status == GA_OK ? (uint32_t)growth.refusal & 7u : 0;
    if (reason && reason != sized->refusal && reason < GA_GROWTH_REASONS) {
        ga_log(GA_LOG_WARN, "slab: device %d: kernels got no more than %llu bytes: %s",
               sized->device, (unsigned long long)(growth.ready * ga_sized_region_size(sized)),
               reasons[reason]);
    }
    sized->refusal = reason;
    return status;
}

/* Double the number of regions, or get as many as possible, for devices that cannot grow the heap
 * under kernels. With the lock held, while no kernel uses the heap. */
static ga_status grow_between_launches(ga_sized *sized, const ga_cuda_scope *scope)
{
    uint32_t had = sized->growing.steps;
    uint32_t want = had < sized->regions - had ? 2 * had : sized->regions;
    if (ga_growing_to(sized->parent, &sized->growing, want) != GA_OK) {
        ga_log(GA_LOG_INFO, "%s", ga_error_text());
    }
    if (sized->growing.steps <= had) {
        return GA_OK;
    }
    ga_growth first = ga_growth_first(NULL, sized->growing.steps);
    return copy_to_device(scope, sized->growth, &first, sizeof first);
}

/* Requests have been refused since the last view. */
static ga_status make_room(ga_sized *sized, const ga_cuda_scope *scope)
{
    ga_status status = ga_sized_wait(scope);
    if (status == GA_OK) {
        status = collect(sized, scope);
    }
    if (status == GA_OK && sized->grows) {
        status = log_refusal(sized, scope);
    }
    return status == GA_OK && sized->grows && !sized->growing.mailbox
               ? grow_between_launches(sized, scope)
               : status;
}

ga_status ga_sized_kernel_view(ga_sized *sized, ga_kernel_heap *out)
{
    ga_cuda_scope scope;
    ga_sized_heap now;
    ga_status status = ga_sized_enter(sized, &scope);
    if (status != GA_OK) {
        return status;
    }
    status = ga_sized_inspect(sized, &scope, &now);
    if (status == GA_OK && refused_of(&now) != sized->refused) {
        status = make_room(sized, &scope);
        if (status == GA_OK) {
            sized->refused = refused_of(&now); /* if this failed, the next view tries again */
        }
    }
    if (status == GA_OK && sized->growing.mailbox) {
        /* a kernel may be launched soon */
        status = ga_growing_to(sized->parent, &sized->growing, 0);
    }
    if (status == GA_OK) {
        ga_sized_fill_view(sized, out);
    }
    ga_sized_leave(sized, &scope);
    return status;
}

ga_status ga_sized_collect(ga_sized *sized)
{
    ga_cuda_scope scope;
    ga_status status = ga_sized_enter(sized, &scope);
    if (status != GA_OK) {
        return status;
    }
    status = ga_sized_wait(&scope);
    if (status == GA_OK) {
        status = collect(sized, &scope);
    }
    ga_sized_leave(sized, &scope);
    return status;
}

void ga_sized_fork(ga_sized *sized, bool before)
{
    if (before) {
        pthread_mutex_lock(&sized->lock);
    } else {
        pthread_mutex_unlock(&sized->lock);
    }
}
