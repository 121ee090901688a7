/* SPDX-License-Identifier: MIT
 *
 * The malloc-shaped table of one heap, which the preload calls past the interface.
 *
 *   served_malloc          fast: the claimed word of the thread's cache
 *    `- served_malloc_slow    ga_slab_state_alloc_slow (slab.c)
 *   served_free            fast: the recent bin, then the map of regions and the class's bin
 *    `- served_free_slow      blocks of the C library; ga_slab_state_free_slow (slab.c)
 */
#include "../../platform/error.h"
#include "../../platform/foreign.h"
#include "../../platform/misuse.h"
#include "state.h"

#include <errno.h>

static ga_slab_state *served; /* the first heap that requested its table */

static void *malloc_result(ga_status status, void *block)
{
    if (__builtin_expect(status != GA_OK, 0)) {
        errno = ENOMEM;
        return NULL;
    }
    return block;
}

static __attribute__((noinline)) void *served_malloc_slow(size_t size)
{
    void *block;
    ga_status status = ga_slab_state_alloc_slow(served, size + !size, &block);
    return malloc_result(status, block);
}

static void *served_malloc(size_t size)
{
    ga_slab_state *s = served;
    const ga_slab_tls_slot *tls_slot = ga_slab_tls_slots;
    if (__builtin_expect(size <= s->fast_max && tls_slot->serial == s->store.serial, 1)) {
        void *unit = ga_slab_cache_alloc_fast(tls_slot->cache, ga_slab_class_of(&s->classes, size));
        if (__builtin_expect(unit != NULL, 1)) {
            return unit;
        }
    }
    return served_malloc_slow(size);
}

/* True for blocks of the C library: NULL, and blocks that this heap has not allocated, such as
 * those older than the heap. */
static bool is_foreign(const void *block)
{
    return !ga_slab_state_region(served, block) && !ga_slab_large_owns(&served->large, block);
}

static void report_refused(ga_status status, const char *call, const void *block)
{
    if (status == GA_ERR_POINTER) {
        ga_misuse_report(call, block, ga_error_text());
    }
}

static __attribute__((noinline)) void served_free_slow(void *block)
{
    int saved = errno;
    if (is_foreign(block)) {
        ga_foreign_free(block);
    } else {
        report_refused(ga_slab_state_free_slow(served, block), "free", block);
    }
    errno = saved;
}

static void served_free(void *block)
{
    const ga_slab_state *s = served;
    const ga_slab_tls_slot *tls_slot =
        ga_slab_tls_slots; /* slot 0 is this heap's alone: see ga_slab_state_malloc_table() */
    if (__builtin_expect(tls_slot->serial == s->store.serial, 1)) {
        const ga_slab_region *region;
        uint32_t unit;
        if (ga_slab_cache_free_fast(tls_slot->cache, block)) {
            return;
        }
        region = ga_slab_state_region(s, block);
        if (__builtin_expect(region != NULL, 1) && ga_slab_region_unit(region, block, &unit)) {
            ga_status status = ga_slab_cache_free(tls_slot->cache, region->class, unit, block);
            if (__builtin_expect(status != GA_OK, 0)) {
                report_refused(status, "free", block);
            }
            return;
        }
    }
    served_free_slow(block);
}

static void *served_calloc(size_t count, size_t size)
{
    void *block;
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) {
        return malloc_result(GA_ERR_SIZE, NULL);
    }
    ga_status status = ga_slab_state_alloc_zeroed(served, bytes + !bytes, &block);
    return malloc_result(status, block);
}

static void *served_realloc(void *block, size_t size)
{
    void *moved;
    if (is_foreign(block)) {
        return ga_foreign_realloc(block, size);
    }
    ga_status status = ga_slab_state_realloc(served, block, size, &moved);
    report_refused(status, "realloc", block);
    return malloc_result(status, moved);
}

static void *served_memalign(size_t align, size_t size)
{
    void *block;
    ga_status status = ga_slab_state_alloc_aligned(served, size + !size, align, &block);
    return malloc_result(status, block);
}

static size_t served_usable_size(void *block)
{
    return is_foreign(block) ? ga_foreign_usable_size(block)
                             : ga_slab_state_usable_size(served, block);
}

const ga_malloc_table *ga_slab_state_malloc_table(void *state)
{
    static const ga_malloc_table table = {
        .malloc = served_malloc,
        .free = served_free,
        .calloc = served_calloc,
        .realloc = served_realloc,
        .memalign = served_memalign,
        .usable_size = served_usable_size,
        .range_size = GA_MALLOC_ANY_POINTER,
    };
    ga_slab_state *none = NULL;
    /* relaxed: only elects the heap; the caller that gets the table publishes it */
    __atomic_compare_exchange_n(&served, &none, (ga_slab_state *)state, false, __ATOMIC_RELAXED,
                                __ATOMIC_RELAXED);
    if (served != state) {
        return NULL;
    }
    served->store.tls_slot = 0; /* no other heap uses slot 0 */
    return &table;
}

void ga_slab_state_unserve(const ga_slab_state *s)
{
    if (s == served) {
        served = NULL;
    }
}
