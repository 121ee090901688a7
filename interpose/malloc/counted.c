/* SPDX-License-Identifier: MIT
 *
 * Counts calls of a backend's malloc table directly, without the heap interface, so that statistics
 * cost little enough to leave on. Each function calls the backend's and then counts.
 */
#include "counted.h"

#include "../../liballoc/runtime/heap.h"

static ga_counters *counters; /* both set once, before the table is used */
static ga_malloc_table own;

static size_t usable(void *block)
{
    return own.usable_size ? own.usable_size(block) : 0;
}

static void *count_new(void *block, size_t size)
{
    if (block) {
        ga_counters_alloc(counters, size, usable(block));
    } else {
        ga_counters_failure(counters);
    }
    return block;
}

static void *counted_malloc(size_t size)
{
    return count_new(own.malloc(size), size);
}

static void *counted_calloc(size_t count, size_t size)
{
    return count_new(own.calloc(count, size), count * size);
}

static void *counted_memalign(size_t align, size_t size)
{
    return count_new(own.memalign(align, size), size);
}

static void counted_free(void *block)
{
    if (block) {
        ga_counters_free(counters, usable(block));
        own.free(block);
    }
}

static void *counted_realloc(void *block, size_t size)
{
    size_t before = usable(block);
    void *moved = own.realloc(block, size);
    if (moved) {
        ga_counters_resize(counters, size, before, usable(moved));
    } else {
        ga_counters_failure(counters);
    }
    return moved;
}

ga_malloc_table ga_counted_table(ga_heap *heap, const ga_malloc_table *table)
{
    counters = heap->counters;
    own = *table;
    bool takes_any = own.range_size == GA_MALLOC_ANY_POINTER; /* foreign blocks are not counted */
    return (ga_malloc_table){
        .malloc = counted_malloc,
        .free = counted_free,
        .calloc = counted_calloc,
        .realloc = counted_realloc,
        .memalign = counted_memalign,
        .usable_size = usable,
        .range_base = own.range_base,
        .range_size = takes_any ? 0 : own.range_size,
    };
}
