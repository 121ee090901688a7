/* SPDX-License-Identifier: MIT
 *
 * The `system` backend: the C library's malloc. It keeps no state; all heaps are the same
 * allocator. It cannot recognise blocks, so it owns every pointer, except those into memory that
 * other backends have reserved: these are never passed to the C library.
 */
#include "native.h"

#include "../../platform/libc.h"
#include "../../platform/reservations.h"

#include <pthread.h>

static ga_malloc_table table; /* set once, by the first open */

/* Used if the C library's function was not found: the search happens at the start, when memory may
 * be missing. */
static size_t unknown_size(void *block)
{
    (void)block;
    return 0;
}

static void fill_table(void)
{
    table = (ga_malloc_table){
        .malloc = ga_libc.malloc,
        .free = ga_libc.free,
        .calloc = ga_libc.calloc,
        .realloc = ga_libc.realloc,
        .memalign = ga_libc.memalign,
        .usable_size = ga_libc.usable_size ? ga_libc.usable_size : unknown_size,
        .range_base = 0,
        .range_size = SIZE_MAX,
    };
}

static ga_status system_open(const ga_open_args *args, void **state)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)args;
    pthread_once(&once, fill_table);
    *state = NULL;
    return GA_OK;
}

static void system_close(void *state)
{
    (void)state;
}

static ga_status set_result(void *block, size_t size, void **out)
{
    *out = block;
    return block ? GA_OK : ga_fail(GA_ERR_MEMORY, "system: no memory for %zu bytes", size);
}

static ga_status system_alloc(void *state, size_t size, void **out)
{
    (void)state;
    return set_result(ga_libc.malloc(size), size, out);
}

static ga_status system_alloc_zeroed(void *state, size_t size, void **out)
{
    (void)state;
    return set_result(ga_libc.calloc(1, size), size, out);
}

static ga_status system_alloc_aligned(void *state, size_t size, size_t align, void **out)
{
    (void)state;
    return set_result(ga_libc.memalign(align, size), size, out);
}

static bool system_owns(void *state, const void *pointer)
{
    (void)state;
    return pointer && !ga_reservations_contain(pointer);
}

static ga_status not_own(const void *block)
{
    return ga_fail(GA_ERR_POINTER, "system: %p lies in memory of another backend", block);
}

static ga_status system_realloc(void *state, void *block, size_t size, void **out)
{
    if (!system_owns(state, block)) {
        return not_own(block);
    }
    return set_result(ga_libc.realloc(block, size), size, out);
}

static ga_status system_free(void *state, void *block)
{
    if (!system_owns(state, block)) {
        return not_own(block);
    }
    ga_libc.free(block);
    return GA_OK;
}

static size_t system_usable_size(void *state, const void *block)
{
    bool known = ga_libc.usable_size && system_owns(state, block);
    return known ? ga_libc.usable_size((void *)block) : 0;
}

static ga_status system_trim(void *state, size_t keep)
{
    (void)state;
    if (!ga_libc.trim) {
        return ga_fail(GA_ERR_UNSUPPORTED, "system: this C library has no malloc_trim");
    }
    ga_libc.trim(keep);
    return GA_OK;
}

static void system_stats(void *state, ga_backend_stats *out)
{
    (void)state;
    size_t live = 0;
    size_t held = 0;
    if (ga_libc.totals) {
        ga_libc.totals(&live, &held);
    }
    *out = (ga_backend_stats){.live_bytes = live, .held_bytes = held};
}

static const ga_malloc_table *system_malloc_table(void *state)
{
    (void)state;
    return &table;
}

const ga_backend ga_system_backend = {
    .abi = GA_BACKEND_ABI,
    .size = sizeof(ga_backend),
    .name = "system",
    .help = "the C library's malloc",
    .places = GA_PLACE_BIT(GA_PLACE_HOST),
    .parent_rule = GA_PARENT_NONE,
    .open = system_open,
    .close = system_close,
    .alloc = system_alloc,
    .free = system_free,
    .owns = system_owns,
    .usable_size = system_usable_size,
    .realloc = system_realloc,
    .alloc_zeroed = system_alloc_zeroed,
    .alloc_aligned = system_alloc_aligned,
    .trim = system_trim,
    .stats = system_stats,
    .malloc_table = system_malloc_table,
};
