/* SPDX-License-Identifier: MIT
 *
 * The `slab` backend behind the interface.
 *
 *   slab_alloc                  fast: the thread cache's claimed word (cache.h)
 *    `- alloc_slow              in the place kernel: sized.h, kernel.h
 *        |- alloc_unit          the cache, or a single unit without one; if the slab is full, a
 *        |                      large block
 *        `- alloc_large         the parent (large.h)
 *   slab_free                   fast: the recent bin; then the map of regions and the class's bin
 *    `- free_slow
 *        |- free_single         the cache, checks, or device memory
 *        `- free_large          the parent
 *
 * STRUCTURE  a heap for the host or a device has a slab for each class, a cache for each thread,
 *            and the set of the blocks that are too large for a class and come from the parent.
 *            kernel.c or sized.c have all of a heap for kernels.
 * INVARIANT  a block is a unit of a region of the heap, or in the set
 * ORDER      stated in cache.c, host.c, regions.c and starts.c; this file has only relaxed figures
 * PROGRESS   as in those files; large requests as the parent serves them
 */
#include "slab.h"

#include "../../platform/cuda_driver.h"
#include "../../platform/libc.h"
#include "host/checked.h"
#include "settings.h"
#include "state.h"

#include <string.h>

enum {
    HOST_GRANULE = 16,
    DEVICE_GRANULE = 256
};

/* ---- opening ------------------------------------------------------------------------------- */

static ga_status no_record(void)
{
    return ga_fail(GA_ERR_MEMORY, "slab: no memory for the heap's record");
}

static ga_status open_kernel(const ga_open_args *args, const ga_slab_settings *settings,
                             void **state)
{
    ga_slab_kernel_spec spec = {.check = settings->check, .grows = settings->grows};
    ga_sized_spec sized = {settings->capacity, settings->limit, settings->grows, settings->check};
    ga_slab_state *s = ga_libc.calloc(1, sizeof *s);
    if (!s) {
        return no_record();
    }
    s->large.parent = args->parent;
    ga_status status = settings->classes
                           ? ga_sized_open(&s->sized, &sized, args->device, args->parent)
                           : ga_slab_settings_shape(settings, settings->unit, &spec.shape);
    if (status == GA_OK && !settings->classes) {
        spec.first = ga_slab_settings_first(settings, &spec.shape);
        status = ga_slab_kernel_open(&s->kernel, &spec, args->device, args->parent);
    }
    if (status != GA_OK) {
        ga_libc.free(s);
        return status;
    }
    *state = s;
    return GA_OK;
}

static ga_status begin_slabs(ga_slab_state *s, const ga_slab_settings *settings)
{
    for (uint32_t class = 0; class < s->classes.count; class ++) {
        ga_slab_shape shape;
        ga_status status = ga_slab_settings_shape(settings, s->classes.unit[class], &shape);
        if (status != GA_OK) {
            return status;
        }
        ga_slab_host_begin(&s->slabs[class], &shape, s->large.parent);
        s->slabs[class].device = s->on_device;
        s->slabs[class].check = s->check;
        s->slabs[class].keep = settings->keep;
    }
    s->store.keep = settings->keep;
    return ga_slab_store_begin(&s->store, s->slabs, s->classes.count);
}

/* Allocate the memory that the option `capacity` requests. */
static ga_status alloc_first(ga_slab_state *s, const ga_slab_settings *settings)
{
    ga_status status = GA_OK;
    uint32_t first = settings->light      ? 1
                     : settings->capacity ? ga_slab_settings_first(settings, &s->slabs[0].shape)
                                          : 0;
    for (uint32_t i = 0; status == GA_OK && i < first; i++) {
        status = ga_slab_host_grow(&s->slabs[0], i);
    }
    if (status != GA_OK) {
        return ga_fail(status, "slab: capacity: cannot take %llu bytes: %s",
                       (unsigned long long)settings->capacity, ga_error_text());
    }
    return GA_OK;
}

static void fill_classes(const ga_slab_settings *settings, ga_slab_classes *classes)
{
    uint32_t granule = settings->place == GA_PLACE_DEVICE ? DEVICE_GRANULE : HOST_GRANULE;
    if (settings->classes) {
        ga_slab_classes_fill(classes, granule, settings->max);
    } else {
        ga_slab_classes_fill_one(classes, granule, settings->unit);
    }
}

static ga_status open_slabs(const ga_open_args *args, const ga_slab_settings *settings,
                            void **state)
{
    ga_slab_classes classes;
    fill_classes(settings, &classes);
    ga_slab_state *s = ga_libc.calloc(1, sizeof *s + classes.count * sizeof *s->slabs);
    if (!s) {
        return no_record();
    }
    s->classes = classes;
    s->large.parent = args->parent;
    s->large.lock = &s->store.lock;
    s->device = args->device;
    s->on_device = args->place == GA_PLACE_DEVICE;
    s->check = settings->check;
    s->fast_max = s->check || s->on_device ? 0 : classes.max;
    ga_status status = begin_slabs(s, settings);
    if (status != GA_OK) {
        ga_libc.free(s);
        return status;
    }
    status = alloc_first(s, settings);
    if (status != GA_OK) {
        ga_slab_store_end(&s->store);
        ga_libc.free(s);
        return status;
    }
    *state = s;
    return GA_OK;
}

static ga_status slab_open(const ga_open_args *args, void **state)
{
    ga_slab_settings settings;
    ga_status status = ga_slab_settings_read(args, &settings);
    if (status != GA_OK) {
        return status;
    }
    return args->place == GA_PLACE_KERNEL ? open_kernel(args, &settings, state)
                                          : open_slabs(args, &settings, state);
}

static void slab_close(void *state)
{
    ga_slab_state *s = state;
    if (s->sized) {
        ga_sized_close(s->sized);
    } else if (s->kernel) {
        ga_slab_kernel_close(s->kernel);
    } else {
        ga_slab_store_end(&s->store);
        ga_slab_starts_end(&s->large.starts);
    }
    ga_slab_state_unserve(s);
    ga_libc.free(s);
}

static ga_status unsupported(const char *feature)
{
    return ga_fail(GA_ERR_UNSUPPORTED, "slab: has no %s for the place kernel", feature);
}

/* ---- units ----------------------------------------------------------------------------------- */

/* Allocate a unit without a cache. */
static void *alloc_single(ga_slab_state *s, uint32_t class)
{
    ga_slab_host *slab = &s->slabs[class];
    uint32_t unit = ga_slab_store_claim(&s->store, class);
    if (unit == GA_SLAB_FULL) {
        return NULL;
    }
    void *block = ga_slab_host_pointer(slab, ga_slab_view_of(&slab->heap), unit);
    if (s->check) {
        ga_slab_checked_claim(slab, unit, block);
    }
    return block;
}

/* A unit of the class, or else a large block. */
static ga_status try_alloc_unit(ga_slab_state *s, uint32_t class, size_t size, size_t align,
                                void **out)
{
    ga_slab_cache *cache = ga_slab_state_cache(s);
    *out = cache ? ga_slab_cache_alloc(cache, class) : alloc_single(s, class);
    return *out ? GA_OK : ga_slab_large_alloc(&s->large, size, align, out);
}

/* True if the parent had no memory, but empty superblocks of a device could be freed to it, so
 * that a retry may succeed. On the host the parent cannot use purged pages. */
static bool made_room(ga_slab_state *s, ga_status status)
{
    return status == GA_ERR_MEMORY && s->on_device && ga_slab_store_trim(&s->store, 0).gone;
}

static ga_status alloc_unit(ga_slab_state *s, uint32_t class, size_t size, size_t align, void **out)
{
    ga_status status = try_alloc_unit(s, class, size, align, out);
    return made_room(s, status) ? try_alloc_unit(s, class, size, align, out) : status;
}

static ga_status alloc_large(ga_slab_state *s, size_t size, size_t align, void **out)
{
    ga_status status = ga_slab_large_alloc(&s->large, size, align, out);
    return made_room(s, status) ? ga_slab_large_alloc(&s->large, size, align, out) : status;
}

__attribute__((noinline)) ga_status ga_slab_state_alloc_slow(ga_slab_state *s, size_t size,
                                                             void **out)
{
    if (s->sized) {
        return ga_sized_alloc(s->sized, size, 0, out);
    }
    if (s->kernel) {
        return ga_slab_kernel_alloc(s->kernel, size, out);
    }
    return size <= s->classes.max ? alloc_unit(s, ga_slab_class_of(&s->classes, size), size, 0, out)
                                  : alloc_large(s, size, 0, out);
}

static ga_status slab_alloc(void *state, size_t size, void **out)
{
    ga_slab_state *s = state;
    const ga_slab_tls_slot *tls_slot = ga_slab_tls_slot_of(&s->store);
    if (__builtin_expect(size <= s->fast_max && tls_slot->serial == s->store.serial, 1)) {
        *out = ga_slab_cache_alloc_fast(tls_slot->cache, ga_slab_class_of(&s->classes, size));
        if (__builtin_expect(*out != NULL, 1)) {
            return GA_OK;
        }
    }
    return ga_slab_state_alloc_slow(s, size, out);
}

ga_status ga_slab_state_alloc_aligned(void *state, size_t size, size_t align, void **out)
{
    ga_slab_state *s = state;
    if (s->sized) {
        return ga_sized_alloc(s->sized, size, align, out);
    }
    if (ga_slab_state_in_kernels(s)) {
        return unsupported("alignment above 16");
    }
    uint32_t class = ga_slab_class_aligned(&s->classes, size, align);
    return class == GA_SLAB_NO_CLASS ? alloc_large(s, size, align, out)
                                     : alloc_unit(s, class, size, align, out);
}

static ga_status no_block(const void *pointer)
{
    return ga_fail(GA_ERR_POINTER, "slab: %p is no block of this heap", pointer);
}

static ga_status free_large(ga_slab_state *s, void *block)
{
    if (s->check && !ga_slab_large_owns(&s->large, block)) {
        return ga_slab_checked_no_unit(s->slabs, block);
    }
    ga_status status = ga_slab_large_free(&s->large, block);
    return status == GA_ERR_POINTER ? no_block(block) : status;
}

/* Count a freed unit of device memory. If its block seems empty now, a purge may be due. */
static void count_freed_on_device(ga_slab_state *s, const ga_slab_host *slab, uint32_t unit)
{
    uint32_t index = ga_slab_count_index(GA_SLAB_SPREAD_HOST, unit >> GA_SLAB_BLOCK_BITS);
    /* relaxed: counts only guide the search (slab_tile.h) */
    uint32_t free = ga_add_relaxed(&slab->heap.free[index], 1) + 1;
    if (free == GA_SLAB_BLOCK_UNITS && slab->keep != UINT64_MAX) {
        ga_slab_store_purge(&s->store, slab->class,
                            (uint64_t)slab->shape.unit << GA_SLAB_BLOCK_BITS);
    }
}

/* Free without a cache. The atomic's result shows whether the unit was free already. */
static ga_status free_on_device(ga_slab_state *s, ga_slab_host *slab, uint32_t unit, void *block)
{
    ga_slab_view view = ga_slab_view_of(&slab->heap);
    uint32_t bit = 1u << unit % 32u;
    /* SU2: release. Pairs with SU1 (slab_tile.h). */
    if (!(ga_and_release(ga_slab_word(view, unit / 32u), ~bit) & bit)) {
        return ga_slab_cache_double_free(block);
    }
    count_freed_on_device(s, slab, unit);
    return GA_OK;
}

static ga_status free_single(ga_slab_state *s, ga_slab_region *region, uint32_t unit, void *block)
{
    ga_slab_host *slab = &s->slabs[region->class];
    if (s->check) {
        return ga_slab_checked_free(slab, region, unit, block);
    }
    if (s->on_device) {
        return free_on_device(s, slab, unit, block);
    }
    ga_slab_cache *cache = ga_slab_cache_get(&s->store);
    if (cache) {
        return ga_slab_cache_free(cache, region->class, unit, block);
    }
    ga_slab_release_bits(ga_slab_view_of(&slab->heap), unit / 32u, 1u << unit % 32u);
    return GA_OK;
}

__attribute__((noinline)) ga_status ga_slab_state_free_slow(ga_slab_state *s, void *block)
{
    if (s->sized) {
        return ga_sized_free(s->sized, block);
    }
    if (s->kernel) {
        return ga_slab_kernel_free(s->kernel, block);
    }
    ga_slab_region *region = ga_slab_state_region(s, block);
    if (!region) {
        return free_large(s, block);
    }
    uint32_t unit;
    if (!ga_slab_region_unit(region, block, &unit)) {
        return s->check ? ga_slab_checked_no_unit(&s->slabs[region->class], block)
                        : ga_fail(GA_ERR_POINTER,
                                  "slab: %p: expected the first byte of a block of %u bytes", block,
                                  region->unit);
    }
    return free_single(s, region, unit, block);
}

static ga_status slab_free(void *state, void *block)
{
    ga_slab_state *s = state;
    const ga_slab_tls_slot *tls_slot = ga_slab_tls_slot_of(&s->store);
    if (__builtin_expect(tls_slot->serial == s->store.serial && tls_slot->cache, 1)) {
        const ga_slab_region *region;
        uint32_t unit;
        if (ga_slab_cache_free_fast(tls_slot->cache, block)) {
            return GA_OK;
        }
        region = ga_slab_state_region(s, block);
        if (__builtin_expect(region != NULL, 1) && ga_slab_region_unit(region, block, &unit)) {
            return ga_slab_cache_free(tls_slot->cache, region->class, unit, block);
        }
    }
    return ga_slab_state_free_slow(s, block);
}

/* ---- look-ups ------------------------------------------------------------------------------ */

static __attribute__((noinline)) size_t usable_size_slow(ga_slab_state *s, const void *block)
{
    if (s->sized) {
        return ga_sized_usable_size(s->sized, block);
    }
    if (s->kernel) {
        return ga_slab_kernel_usable_size(s->kernel, block);
    }
    return ga_slab_large_usable_size(&s->large, block);
}

size_t ga_slab_state_usable_size(void *state, const void *block)
{
    ga_slab_state *s = state;
    const ga_slab_region *region = ga_slab_state_region(s, block);
    return __builtin_expect(region != NULL, 1) ? region->unit : usable_size_slow(s, block);
}

static bool slab_owns(void *state, const void *pointer)
{
    ga_slab_state *s = state;
    if (s->sized) {
        return ga_sized_owns(s->sized, pointer);
    }
    if (s->kernel) {
        return ga_slab_kernel_owns(s->kernel, pointer);
    }
    return ga_slab_state_region(s, pointer) || ga_slab_large_owns(&s->large, pointer);
}

/* ---- contents -------------------------------------------------------------------------------- */

static ga_status clear(ga_slab_state *s, void *block, size_t size)
{
    ga_cuda_scope scope;
    if (!s->on_device) {
        memset(block, 0, size);
        return GA_OK;
    }
    ga_status status = ga_cuda_enter(&scope, s->device);
    if (status == GA_OK) {
        status = ga_cuda_clear(&scope, block, size);
        ga_cuda_leave(&scope);
    }
    return status;
}

static ga_status copy(ga_slab_state *s, void *to, const void *from, size_t size)
{
    ga_cuda_scope scope;
    if (!s->on_device) {
        memcpy(to, from, size);
        return GA_OK;
    }
    ga_status status = ga_cuda_enter(&scope, s->device);
    if (status == GA_OK) {
        status = ga_cuda_copy(&scope, to, from, size);
        ga_cuda_leave(&scope);
    }
    return status;
}

ga_status ga_slab_state_alloc_zeroed(void *state, size_t size, void **out)
{
    ga_slab_state *s = state;
    if (ga_slab_state_in_kernels(s)) {
        return unsupported("zeroed allocation");
    }
    if (size > s->classes.max) {
        ga_status large = ga_slab_large_alloc_zeroed(&s->large, size, out);
        return made_room(s, large) ? ga_slab_large_alloc_zeroed(&s->large, size, out) : large;
    }
    ga_status status = slab_alloc(s, size, out);
    if (status == GA_OK) {
        status = clear(s, *out, size);
        if (status != GA_OK) {
            slab_free(s, *out);
        }
    }
    return status;
}

/* Allocate a new block, copy the contents, and free the old one. GA_ERR_POINTER if that was free
 * already; the new one is freed then. */
static ga_status move(ga_slab_state *s, void *block, size_t before, size_t size, void **out)
{
    ga_status status = slab_alloc(s, size, out);
    if (status != GA_OK) {
        return status;
    }
    status = copy(s, *out, block, before < size ? before : size);
    status = status == GA_OK ? slab_free(s, block) : status;
    if (status != GA_OK) {
        slab_free(s, *out);
    }
    return status;
}

static ga_status resize_large(ga_slab_state *s, void *block, size_t size, void **out)
{
    ga_status status = ga_slab_large_realloc(&s->large, block, size, out);
    return made_room(s, status) ? ga_slab_large_realloc(&s->large, block, size, out) : status;
}

/* Moves to a unit if the new size fits one and the host can copy. */
static ga_status realloc_large(ga_slab_state *s, void *block, size_t size, void **out)
{
    size_t before = ga_slab_large_usable_size(&s->large, block);
    if (!ga_slab_large_owns(&s->large, block)) {
        return no_block(block);
    }
    return before && !s->on_device && size <= s->classes.max ? move(s, block, before, size, out)
                                                             : resize_large(s, block, size, out);
}

/* False for a unit that is free, unless another thread's cache has it. */
static bool is_live(ga_slab_state *s, const ga_slab_region *region, uint32_t unit)
{
    ga_slab_host *slab = &s->slabs[region->class];
    const ga_slab_cache *cache = ga_slab_state_cache(s);
    if (cache && ga_slab_cache_holds(cache, region->class, unit)) {
        return false;
    }
    ga_slab_view view = ga_slab_view_of(&slab->heap);
    /* relaxed: the caller owns the unit, or the call is wrong */
    uint32_t taken = ga_load_relaxed(ga_slab_word(view, unit / 32u));
    return taken >> unit % 32u & 1u && !ga_slab_host_is_purged(slab, unit >> GA_SLAB_BLOCK_BITS);
}

ga_status ga_slab_state_realloc(void *state, void *block, size_t size, void **out)
{
    ga_slab_state *s = state;
    const ga_slab_region *region = ga_slab_state_region(s, block);
    if (ga_slab_state_in_kernels(s)) {
        return unsupported("reallocation");
    }
    if (!region) {
        return realloc_large(s, block, size, out);
    }
    uint32_t unit;
    if (!ga_slab_region_unit(region, block, &unit)) {
        return no_block(block);
    }
    if (!is_live(s, region, unit)) {
        return ga_fail(GA_ERR_POINTER, "slab: %p: expected a live block, but it is free already",
                       block);
    }
    bool fits = size <= region->unit;
    if (fits && size * 2 >= region->unit) {
        *out = block;
        return GA_OK;
    }
    ga_status status = move(s, block, region->unit, size, out);
    if (status != GA_OK && status != GA_ERR_POINTER && fits) {
        *out = block; /* no smaller unit is available: the block stays */
        return GA_OK;
    }
    return status;
}

static ga_status slab_grow(void *state, void *block, size_t size)
{
    ga_slab_state *s = state;
    if (!ga_slab_state_in_kernels(s) && !ga_slab_state_region(s, block) &&
        ga_slab_large_owns(&s->large, block)) {
        return ga_slab_large_grow(&s->large, block, size);
    }
    return ga_fail(GA_ERR_CANNOT_GROW, "slab: %p: a unit cannot grow to %zu bytes in place", block,
                   size);
}

static ga_status slab_alloc_batch(void *state, size_t n, const size_t *sizes, void **out)
{
    for (size_t i = 0; i < n; i++) {
        ga_status status = slab_alloc(state, sizes[i] + !sizes[i], &out[i]);
        if (status != GA_OK) {
            while (i--) {
                slab_free(state, out[i]);
            }
            return status;
        }
    }
    return GA_OK;
}

/* ---- forks and threads ----------------------------------------------------------------------- */

/* Lock the heap before a fork (`before`), so that no thread changes it while it is copied; unlock
 * it afterwards in parent and child. */
static void hold_for_fork(ga_slab_state *s, bool before)
{
    if (s->sized) {
        ga_sized_fork(s->sized, before);
    } else if (s->kernel) {
        ga_slab_kernel_fork(s->kernel, before);
    } else if (before) {
        pthread_mutex_lock(&s->store.lock);
    } else {
        pthread_mutex_unlock(&s->store.lock);
    }
}

static void slab_fork_prepare(void *state)
{
    hold_for_fork(state, true);
}

static void slab_fork_parent(void *state)
{
    hold_for_fork(state, false);
}

static void slab_fork_child(void *state)
{
    ga_slab_state *s = state;
    if (!ga_slab_state_in_kernels(s)) {
        ga_slab_cache_abandon_others(&s->store);
    }
    hold_for_fork(s, false);
}

static void slab_thread_exit(void *state)
{
    ga_slab_state *s = state;
    if (!ga_slab_state_in_kernels(s)) {
        ga_slab_cache_thread_exit(&s->store);
    }
}

static ga_status slab_kernel_view(void *state, ga_kernel_heap *out)
{
    ga_slab_state *s = state;
    return s->sized ? ga_sized_kernel_view(s->sized, out) : ga_slab_kernel_view(s->kernel, out);
}

/* Kernels: empty regions. Host: pages of empty memory blocks. Device: empty superblocks. `*keep`
 * becomes the number of bytes that the parent may keep. */
static ga_status trim_units(ga_slab_state *s, size_t *keep)
{
    if (s->sized) {
        return ga_sized_collect(s->sized);
    }
    if (!s->kernel) {
        *keep -= ga_slab_store_trim(&s->store, *keep).kept;
    }
    return GA_OK;
}

/* The parent keeps memory of freed large blocks and of superblocks, so it is trimmed too. */
static ga_status slab_trim(void *state, size_t keep)
{
    ga_slab_state *s = state;
    ga_status status = trim_units(s, &keep);
    ga_status parent = ga_trim(s->large.parent, keep);
    return status == GA_OK && parent != GA_ERR_UNSUPPORTED ? parent : status;
}

static ga_place slab_parent_place(ga_place place)
{
    return place == GA_PLACE_KERNEL ? GA_PLACE_DEVICE : place;
}

const ga_backend ga_slab_backend = {
    .abi = GA_BACKEND_ABI,
    .size = sizeof(ga_backend),
    .name = "slab",
    .help = "units of one size, or of size classes, managed by bitmaps",
    .places =
        GA_PLACE_BIT(GA_PLACE_HOST) | GA_PLACE_BIT(GA_PLACE_DEVICE) | GA_PLACE_BIT(GA_PLACE_KERNEL),
    .parent_rule = GA_PARENT_REQUIRED,
    .options = ga_slab_options,
    .option_count = GA_SLAB_OPTIONS,
    .open = slab_open,
    .close = slab_close,
    .alloc = slab_alloc,
    .free = slab_free,
    .owns = slab_owns,
    .usable_size = ga_slab_state_usable_size,
    .realloc = ga_slab_state_realloc,
    .alloc_zeroed = ga_slab_state_alloc_zeroed,
    .alloc_aligned = ga_slab_state_alloc_aligned,
    .alloc_batch = slab_alloc_batch,
    .grow = slab_grow,
    .trim = slab_trim,
    .each_live = ga_slab_state_each_live,
    .kernel_view = slab_kernel_view,
    .stats = ga_slab_state_stats,
    .malloc_table = ga_slab_state_malloc_table,
    .parent_place = slab_parent_place,
    .fork_prepare = slab_fork_prepare,
    .fork_parent = slab_fork_parent,
    .fork_child = slab_fork_child,
    .thread_exit = slab_thread_exit,
    .reset = ga_slab_state_reset,
};
