/* SPDX-License-Identifier: MIT
 *
 * The host's side of heaps of all sizes: setting up, the view, questions.
 *
 * Beside the regions stands the bookkeeping, in one block of the parent's: the ga_sized_heap, the owners
 * of regions, the pool, a table of regions for each class, and where the parent does not grow the
 * bitmaps. `image` is the ga_sized_heap as the host wrote it.
 */
#include "sized.h"

#include "checked.h"

#include "../arena/pager.h"
#include "../device/device.h"
#include "../device/kinds.h"
#include "../platform/cuda_driver.h"
#include "../platform/libc.h"
#include "../platform/log.h"
#include "sized_heap.h"
#include "sized_words.h"

#include <pthread.h>
#include <stddef.h>
#include <string.h>

enum {
    ALIGN = 256,
    BLOCK = 256, /* threads of a block of the service kernels */
    GRID = 512,
    REGION_BITS_LEAST = 17,
    REGION_BITS_MOST = 21,
    REGIONS_USUAL = 512, /* no smaller region than makes so many */
    GROW_BY = 16         /* a 16th at a time, so that little is held ahead */
};

struct ga_sized {
    int device;
    ga_heap *parent;
    bool grows;
    ga_growing growing;
    uint32_t region_bits, regions; /* the most */
    char *book;                    /* the bookkeeping, on the device */
    size_t book_size;
    ga_sized_heap *heap; /* its beginning */
    ga_growth *growth;
    void *fixed; /* where the parent does not grow: all regions */
    ga_sized_heap image;
    uint64_t refused; /* requests that had got nothing when the view was made last */
    uint32_t refusal; /* the reason for the last one that was logged */
    uint64_t told;    /* reports of kernels that the log has had */
    bool ready;       /* the bookkeeping has been written */
    pthread_mutex_t lock;
};

/* ---- work on the device: on its own stream, and waited for --------------------------------------------- */

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

static ga_status launch(const ga_sized *sized, const ga_cuda_scope *scope, const char *name,
                        uint32_t threads, void **parameters)
{
    CUfunction function;
    uint32_t block = threads < BLOCK ? threads : BLOCK;
    uint32_t grid = (threads + block - 1) / block;
    ga_status status = ga_device_function(&function, sized->device, name);
    if (status == GA_OK) {
        status = GA_CUDA_CALL(scope->driver, cuLaunchKernel, function, grid < GRID ? grid : GRID, 1,
                              1, block, 1, 1, 0, scope->stream, parameters, NULL);
    }
    return settle(scope, status);
}

static ga_status enter(ga_sized *sized, ga_cuda_scope *scope)
{
    ga_status status = ga_cuda_enter(scope, sized->device);
    if (status == GA_OK) {
        pthread_mutex_lock(&sized->lock);
    }
    return status;
}

static void leave(ga_sized *sized, const ga_cuda_scope *scope)
{
    pthread_mutex_unlock(&sized->lock);
    ga_cuda_leave(scope);
}

static ga_status wait_for_all(const ga_cuda_scope *scope)
{
    return GA_CUDA_CALL(scope->driver, cuCtxSynchronize);
}

/* ---- the shape ------------------------------------------------------------------------------------------ */

static uint64_t region_size(const ga_sized *sized)
{
    return UINT64_C(1) << sized->region_bits;
}

static uint64_t bits_size(const ga_sized *sized)
{
    return sizeof(uint32_t) << ga_sized_stride_bits(sized->region_bits);
}

static ga_status shape_of(ga_sized *sized, uint64_t limit)
{
    sized->region_bits = REGION_BITS_MOST;
    while (sized->region_bits > REGION_BITS_LEAST && limit / REGIONS_USUAL < region_size(sized)) {
        sized->region_bits--;
    }
    uint64_t regions = limit >> sized->region_bits;
    uint64_t most = UINT64_C(1) << (32 - ga_sized_stride_bits(sized->region_bits));
    sized->regions = (uint32_t)(regions < most ? regions : most - 1);
    return regions ? GA_OK
                   : ga_fail(GA_ERR_SPEC,
                             "slab: limit: expected room for a region of %llu bytes, got %llu",
                             (unsigned long long)region_size(sized), (unsigned long long)limit);
}

/* Where things stand in the bookkeeping, and how large it is. */
typedef struct book_plan {
    size_t owners, growth, pool, tables, bits, size;
} book_plan;

static size_t up(size_t size)
{
    return (size + ALIGN - 1) / ALIGN * ALIGN;
}

static uint32_t class_count(const ga_sized *sized)
{
    return ga_sized_class_count(sized->region_bits);
}

static book_plan plan_book(const ga_sized *sized)
{
    size_t list = up(sized->regions * sizeof(uint32_t));
    book_plan plan = {.owners = GA_SIZED_OWNERS_AT};
    plan.growth = plan.owners + list;
    plan.pool = plan.growth + up(sizeof(ga_growth));
    plan.tables = plan.pool + up((sized->regions + 31) / 32 * sizeof(uint32_t));
    plan.bits = plan.tables + list * class_count(sized);
    plan.size = plan.bits + (sized->grows ? 0 : bits_size(sized) * sized->regions);
    return plan;
}

static void fill_image(ga_sized *sized, const book_plan *plan)
{
    ga_sized_heap *image = &sized->image;
    *image = (ga_sized_heap){
        .units = sized->grows ? sized->growing.base[0] : sized->fixed,
        .bits = sized->grows ? sized->growing.base[1] : (void *)(sized->book + plan->bits),
        .owners = (uint32_t *)(sized->book + plan->owners),
        .pool = (uint32_t *)(sized->book + plan->pool),
        .region_bits = sized->region_bits,
        .classes = class_count(sized),
        .regions = sized->regions,
        .growth = sized->growth,
        .check = sized->image.check,
        .fixed = sized->grows ? 0 : sized->regions,
    };
    size_t list = up(sized->regions * sizeof(uint32_t));
    for (uint32_t class = 0; class < image->classes; class ++) {
        ga_sized_class_begin(&image->of[class], sized->region_bits, class,
                             (uint32_t *)(sized->book + plan->tables + class * list));
    }
}

/* ---- opening and closing ---------------------------------------------------------------------------------- */

/* Best at a multiple of a region's size, as blocks that are to be aligned want it; not every parent knows
 * how, but most give so large a block at one anyway. */
static ga_status take_fixed(ga_sized *sized)
{
    uint64_t size = sized->regions * region_size(sized);
    ga_status status = ga_alloc(sized->parent, size, region_size(sized), &sized->fixed);
    if (status == GA_ERR_ALIGN) {
        status = ga_alloc(sized->parent, size, ALIGN, &sized->fixed);
    }
    return status == GA_OK ? GA_OK
                           : ga_fail(status, "slab: no %llu bytes: %s", (unsigned long long)size,
                                     ga_error_text());
}

static ga_status take_regions(ga_sized *sized, uint64_t capacity)
{
    if (!sized->grows) {
        return take_fixed(sized);
    }
    uint64_t first = (capacity + region_size(sized) - 1) >> sized->region_bits;
    sized->growing = (ga_growing){
        .step_bytes = {region_size(sized), bits_size(sized)},
        .steps_most = sized->regions,
        .ahead = GROW_BY,
        .steps = first < sized->regions ? (uint32_t)(first + !first) : sized->regions,
    };
    ga_status status = ga_growing_open(sized->parent, &sized->growing);
    return status == GA_OK
               ? GA_OK
               : ga_fail(status, "slab: no memory that grows under kernels: %s", ga_error_text());
}

static ga_status tell(ga_sized *sized, const ga_cuda_scope *scope)
{
    ga_status status = put(scope, sized->heap, &sized->image, sizeof sized->image);
    if (status == GA_OK && sized->growth) {
        ga_growth first = ga_growth_first(sized->growing.mailbox, sized->growing.steps);
        status = put(scope, sized->growth, &first, sizeof first);
    }
    return status;
}

static ga_status set_up(ga_sized *sized, const ga_sized_spec *spec)
{
    ga_cuda_scope scope;
    book_plan plan = plan_book(sized);
    void *book = NULL;
    ga_status status = ga_alloc(sized->parent, plan.size, ALIGN, &book);
    if (status != GA_OK) {
        return ga_fail(status, "slab: no %zu bytes for the bookkeeping: %s", plan.size,
                       ga_error_text());
    }
    sized->book = book;
    sized->book_size = plan.size;
    sized->heap = book;
    sized->growth = sized->grows ? (ga_growth *)(sized->book + plan.growth) : NULL;
    status = take_regions(sized, spec->capacity);
    if (status == GA_OK) {
        status = ga_cuda_enter(&scope, sized->device);
    }
    if (status != GA_OK) {
        return status;
    }
    fill_image(sized, &plan);
    status = ga_cuda_clear(&scope, sized->book, plan.bits);
    if (status == GA_OK) {
        status = tell(sized, &scope);
    }
    ga_cuda_leave(&scope);
    sized->ready = status == GA_OK;
    return status;
}

/* The most that regions may take. */
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
        status = shape_of(sized, limit);
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

/* ---- what kernels found --------------------------------------------------------------------------------------- */

static const char *const faults[GA_SLAB_FAULTS] = {
    [GA_SLAB_DOUBLE_FREE] = "freed twice in a kernel",
    [GA_SLAB_NO_UNIT] = "freed in a kernel, but no block of this heap begins there",
};

/* The heap as kernels have left it; their reports go to the log. Under the lock. */
static ga_status look(ga_sized *sized, const ga_cuda_scope *scope, ga_sized_heap *now)
{
    ga_status status = get(scope, now, sized->heap, sizeof *now);
    if (status == GA_OK) {
        ga_slab_checked_log(sized->device, faults, now->reports, now->reported, &sized->told);
    }
    return status;
}

static void look_at_last(ga_sized *sized)
{
    ga_cuda_scope scope;
    ga_sized_heap now;
    if (sized->image.check && sized->ready && ga_cuda_enter(&scope, sized->device) == GA_OK) {
        look(sized, &scope, &now);
        ga_cuda_leave(&scope);
    }
}

void ga_sized_close(ga_sized *sized)
{
    look_at_last(sized);
    if (sized->growing.own) {
        ga_growing_close(sized->parent, &sized->growing);
    }
    ga_free(sized->parent, sized->fixed);
    ga_free(sized->parent, sized->book);
    pthread_mutex_destroy(&sized->lock);
    ga_libc.free(sized);
}

/* ---- the view --------------------------------------------------------------------------------------------- */

static void fill_view(const ga_sized *sized, ga_kernel_heap *out)
{
    *out = (ga_kernel_heap){.abi = GA_KERNEL_HEAP_ABI, .kind = GA_KERNEL_KIND_SIZED};
    out->words[GA_SIZED_WORD_HEAP] = (uint64_t)sized->heap;
    out->words[GA_SIZED_WORD_UNITS] = (uint64_t)sized->image.units;
    out->words[GA_SIZED_WORD_BITS] = (uint64_t)sized->image.bits;
    out->words[GA_SIZED_WORD_SHAPE] =
        sized->region_bits | (sized->image.check ? GA_SIZED_FLAG_CHECK : 0) |
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

/* Under the lock; no kernel uses the heap. */
static ga_status collect(ga_sized *sized, const ga_cuda_scope *scope)
{
    void *parameters[] = {&sized->heap};
    return launch(sized, scope, "ga_sized_collect_kernel", sized->image.classes * 32, parameters);
}

static const char *const reasons[GA_GROWTH_REASONS] = {
    [GA_GROWTH_LIMIT] = "the limit is reached",
    [GA_GROWTH_MEMORY] = "the device is out of memory",
    [GA_GROWTH_GONE] = "the pager did not answer",
    [GA_GROWTH_FIXED] = "it grows between launches only",
};

/* Why kernels got no more, once for each reason. */
static ga_status log_refusal(ga_sized *sized, const ga_cuda_scope *scope)
{
    ga_growth growth;
    ga_status status = get(scope, &growth, sized->growth, sizeof growth);
    uint32_t reason = status == GA_OK ? (uint32_t)growth.verdict & 7u : 0;
    if (reason && reason != sized->refusal && reason < GA_GROWTH_REASONS) {
        ga_log(GA_LOG_WARN, "slab: device %d: kernels got no more than %llu bytes: %s",
               sized->device, (unsigned long long)(growth.ready * region_size(sized)),
               reasons[reason]);
    }
    sized->refusal = reason;
    return status;
}

/* Where the device cannot do it under kernels: twice as many regions, or as many as can be had. Likewise. */
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
    return put(scope, sized->growth, &first, sizeof first);
}

/* Requests have been refused since the last time. */
static ga_status make_room(ga_sized *sized, const ga_cuda_scope *scope)
{
    ga_status status = wait_for_all(scope);
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
    ga_status status = enter(sized, &scope);
    if (status != GA_OK) {
        return status;
    }
    status = look(sized, &scope, &now);
    if (status == GA_OK && refused_of(&now) != sized->refused) {
        status = make_room(sized, &scope);
        if (status == GA_OK) {
            sized->refused = refused_of(&now); /* else the next view tries again */
        }
    }
    if (status == GA_OK && sized->growing.mailbox) {
        status = ga_growing_to(sized->parent, &sized->growing, 0); /* a kernel may come soon */
    }
    if (status == GA_OK) {
        fill_view(sized, out);
    }
    leave(sized, &scope);
    return status;
}

ga_status ga_sized_collect(ga_sized *sized)
{
    ga_cuda_scope scope;
    ga_status status = enter(sized, &scope);
    if (status != GA_OK) {
        return status;
    }
    status = wait_for_all(&scope);
    if (status == GA_OK) {
        status = collect(sized, &scope);
    }
    leave(sized, &scope);
    return status;
}

/* ---- blocks for the host ------------------------------------------------------------------------------------ */

ga_status ga_sized_alloc(ga_sized *sized, size_t size, size_t align, void **out)
{
    ga_cuda_scope scope;
    ga_kernel_heap view;
    uint64_t bytes = size, multiple = align ? align : GA_SIZED_GRANULE;
    if (size > sized->regions * region_size(sized)) {
        return ga_fail(GA_ERR_SIZE, "slab: expected at most limit (%llu) bytes, got %zu",
                       (unsigned long long)(sized->regions * region_size(sized)), size);
    }
    ga_status status = enter(sized, &scope);
    if (status != GA_OK) {
        return status;
    }
    fill_view(sized, &view);
    void **answer = (void **)((char *)sized->heap + offsetof(ga_sized_heap, answer));
    void *parameters[] = {&view, &bytes, &multiple, &answer};
    *out = NULL;
    status = launch(sized, &scope, "ga_sized_take_kernel", 1, parameters);
    if (status == GA_OK) {
        status = get(&scope, out, answer, sizeof *out);
    }
    leave(sized, &scope);
    return status == GA_OK && !*out
               ? ga_fail(GA_ERR_MEMORY, "slab: no more memory for %zu bytes", size)
               : status;
}

/* What an address is. */
typedef struct place {
    bool inside;         /* the heap's */
    ga_sized_found unit; /* that begins there; its class GA_SIZED_NONE: none */
    uint32_t regions;    /* of the run that begins there; 0: none */
} place;

/* A unit of the class begins at that offset. */
static void find_unit(const ga_sized *sized, uint64_t offset, uint32_t class, place *out)
{
    uint32_t unit = ga_sized_unit(class);
    uint32_t within = (uint32_t)(offset & (region_size(sized) - 1));
    uint32_t slot = within / unit;
    if (within % unit == 0 && slot < sized->image.of[class].units) {
        uint64_t first = offset >> sized->region_bits << ga_sized_stride_bits(sized->region_bits);
        out->unit.class_ = class;
        out->unit.key = (uint32_t)first + slot / 32;
        out->unit.place = slot % 32;
    }
}

/* Under the lock. */
static ga_status find(ga_sized *sized, const ga_cuda_scope *scope, const void *pointer, place *out)
{
    uint64_t offset = (uint64_t)((uintptr_t)pointer - (uintptr_t)sized->image.units);
    uint64_t region = offset >> sized->region_bits;
    uint32_t owner = 0;
    *out = (place){.inside = region < sized->regions, .unit.class_ = GA_SIZED_NONE};
    if (!out->inside) {
        return GA_OK;
    }
    ga_status status = get(scope, &owner, sized->image.owners + region, sizeof owner);
    if (status == GA_OK && owner - 1 < GA_SIZED_CLASSES) {
        find_unit(sized, offset, owner - 1, out);
    }
    if (status == GA_OK && owner & GA_SIZED_RUN && offset == region << sized->region_bits) {
        out->regions = owner & ~GA_SIZED_RUN;
    }
    return status;
}

static ga_status check_taken(ga_sized *sized, const ga_cuda_scope *scope, const place *at,
                             const void *block)
{
    uint32_t word = 0;
    if (at->regions) {
        return GA_OK;
    }
    if (at->unit.class_ == GA_SIZED_NONE) {
        return ga_fail(GA_ERR_POINTER, "slab: no block of this heap begins at %p", block);
    }
    ga_status status = get(scope, &word, sized->image.bits + at->unit.key, sizeof word);
    return status == GA_OK && !(word >> at->unit.place & 1)
               ? ga_fail(GA_ERR_POINTER, "slab: %p is free already", block)
               : status;
}

ga_status ga_sized_free(ga_sized *sized, void *block)
{
    ga_cuda_scope scope;
    ga_kernel_heap view;
    place at;
    ga_status status = enter(sized, &scope);
    if (status != GA_OK) {
        return ga_cuda_is_gone() ? GA_OK : status;
    }
    fill_view(sized, &view);
    status = find(sized, &scope, block, &at);
    if (status == GA_OK) {
        status = check_taken(sized, &scope, &at, block);
    }
    if (status == GA_OK) {
        void *parameters[] = {&view, &block};
        status = launch(sized, &scope, "ga_sized_give_kernel", 1, parameters);
    }
    leave(sized, &scope);
    return status;
}

static place place_of(ga_sized *sized, const void *pointer)
{
    ga_cuda_scope scope;
    place none = {.unit.class_ = GA_SIZED_NONE}, at = none;
    if (enter(sized, &scope) == GA_OK) {
        if (find(sized, &scope, pointer, &at) != GA_OK) {
            at = none;
        }
        leave(sized, &scope);
    }
    return at;
}

bool ga_sized_owns(ga_sized *sized, const void *pointer)
{
    return place_of(sized, pointer).inside;
}

size_t ga_sized_usable_size(ga_sized *sized, const void *block)
{
    place at = place_of(sized, block);
    return at.unit.class_ == GA_SIZED_NONE ? (size_t)(at.regions * region_size(sized))
                                           : ga_sized_unit(at.unit.class_);
}

/* ---- all blocks ------------------------------------------------------------------------------------------------ */

static void visit_region(const ga_sized *sized, uint32_t region, uint32_t class,
                         const uint32_t *bits, ga_visit *visit, void *context)
{
    const ga_sized_class *c = &sized->image.of[class];
    char *units = sized->image.units + ((uint64_t)region << sized->region_bits);
    for (uint32_t word = 0; word < c->way.words; word++) {
        uint32_t rest = bits[word] & ~(word + 1 == c->way.words ? c->tail : 0);
        for (; rest; rest &= rest - 1) {
            uint32_t slot = word * 32 + ga_bits_lowest(rest);
            visit(context, units + (uint64_t)slot * c->way.unit, c->way.unit);
        }
    }
}

/* What the region is, and its bitmap where it is a class's. GA_ERR_NO_ROOM: there are no more. */
static ga_status copy_region(ga_sized *sized, uint32_t region, uint32_t *owner, uint32_t *bits)
{
    ga_cuda_scope scope;
    uint32_t next = 0;
    ga_status status = enter(sized, &scope);
    *owner = 0;
    if (status != GA_OK) {
        return status;
    }
    status = wait_for_all(&scope);
    if (status == GA_OK) {
        status = get(&scope, &next, &sized->heap->next, sizeof next);
    }
    if (status == GA_OK && region < next) {
        status = get(&scope, owner, sized->image.owners + region, sizeof *owner);
    }
    if (status == GA_OK && *owner - 1 < GA_SIZED_CLASSES) {
        const uint32_t *from =
            sized->image.bits + ((size_t)region << ga_sized_stride_bits(sized->region_bits));
        status = get(&scope, bits, from, sized->image.of[*owner - 1].way.words * sizeof *bits);
    }
    leave(sized, &scope);
    return status == GA_OK && region >= next ? GA_ERR_NO_ROOM : status;
}

/* No lock is held while `visit` runs: it may call the heap. */
ga_status ga_sized_each_live(ga_sized *sized, ga_visit *visit, void *context)
{
    uint32_t *bits = ga_libc.malloc((size_t)bits_size(sized));
    uint32_t owner;
    ga_status status = GA_OK;
    if (!bits) {
        return ga_fail(GA_ERR_MEMORY, "slab: no %llu bytes to copy the bitmaps to",
                       (unsigned long long)bits_size(sized));
    }
    for (uint32_t region = 0; (status = copy_region(sized, region, &owner, bits)) == GA_OK;
         region++) {
        if (owner - 1 < GA_SIZED_CLASSES) {
            visit_region(sized, region, owner - 1, bits, visit, context);
        } else if (owner & GA_SIZED_RUN) {
            visit(context, sized->image.units + region * region_size(sized),
                  (size_t)((owner & ~GA_SIZED_RUN) * region_size(sized)));
        }
    }
    ga_libc.free(bits);
    return status == GA_ERR_NO_ROOM ? GA_OK : status;
}

static uint64_t held(const ga_sized *sized, uint32_t ready)
{
    uint64_t regions = sized->grows ? ready : sized->regions;
    uint64_t each = region_size(sized) + (sized->grows ? bits_size(sized) : 0);
    return sized->book_size + regions * each;
}

void ga_sized_stats(ga_sized *sized, ga_backend_stats *out)
{
    ga_cuda_scope scope;
    uint64_t total[2] = {0};
    ga_growth growth = {.ready = 0};
    if (enter(sized, &scope) != GA_OK) {
        return;
    }
    uint64_t *answer = (uint64_t *)((char *)sized->heap + offsetof(ga_sized_heap, live));
    void *parameters[] = {&sized->heap, &answer};
    ga_status status = wait_for_all(&scope);
    if (status == GA_OK) {
        status = ga_cuda_clear(&scope, answer, sizeof total);
    }
    if (status == GA_OK) {
        status = launch(sized, &scope, "ga_sized_live_kernel", BLOCK * GRID, parameters);
    }
    if (status == GA_OK) {
        status = get(&scope, total, answer, sizeof total);
    }
    if (status == GA_OK && sized->growth) {
        status = get(&scope, &growth, sized->growth, sizeof growth);
    }
    if (status == GA_OK && sized->image.check) {
        ga_sized_heap now;
        status = look(sized, &scope, &now);
    }
    if (status == GA_OK) {
        out->live_blocks = total[0];
        out->live_bytes = total[1];
        out->held_bytes = held(sized, growth.ready);
        out->growths = sized->grows ? growth.ready : 1;
    }
    leave(sized, &scope);
}

ga_status ga_sized_reset(ga_sized *sized)
{
    ga_cuda_scope scope;
    ga_status status = enter(sized, &scope);
    if (status != GA_OK) {
        return status;
    }
    void *parameters[] = {&sized->heap};
    status = wait_for_all(&scope);
    if (status == GA_OK) {
        status = launch(sized, &scope, "ga_sized_reset_kernel", BLOCK * GRID, parameters);
    }
    leave(sized, &scope);
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
