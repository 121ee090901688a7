/* SPDX-License-Identifier: MIT
 *
 * STRUCTURE  a table of superblocks, each a region: units in memory of the parent, and bitmap rows
 *            in host memory. Only the rows are accessed.
 * INVARIANT  a superblock is never removed before the end, though its memory may be (trim.c); a
 *            word below heap.words can be reached
 * ORDER      a new superblock is first written to the table, then published: in the map of regions
 *            (SR3), in `super_count` (SG5), in the counts of free units (SG2), and last in `words`
 *            (SG4). Claims find it by the last two.
 * PROGRESS   one thread grows at a time; threads that claim or free do not wait for it
 */
#include "host.h"

#include "../../../platform/libc.h"
#include "../../../platform/os_memory.h"
#include "../units/give_back.h"
#include "trim.h"

#include <errno.h>
#include <sys/mman.h>

enum {
    ROW_BYTES = GA_SLAB_ROW_WORDS * sizeof(uint32_t),
    HUGE_BYTES = 2 << 20
};

void ga_slab_host_begin(ga_slab_host *slab, const ga_slab_shape *shape, ga_heap *parent)
{
    slab->shape = *shape;
    slab->parent = parent;
    ga_slab_heap_shape(&slab->heap, shape);
}

/* ---- tables -------------------------------------------------------------------------------- */

static uintptr_t round_up(uintptr_t n, uintptr_t align)
{
    return (n + align - 1) & ~(align - 1);
}

/* Zeroed memory, aligned to rows; `*block` is the pointer to free. Pages that are never touched
 * stay unbacked. */
static void *alloc_zeroed(size_t size, void **block)
{
    *block = ga_libc.calloc(1, size + ROW_BYTES);
    return *block ? (void *)round_up((uintptr_t)*block, ROW_BYTES) : NULL;
}

static ga_status fail_no_tables(const ga_slab_host *slab)
{
    return ga_fail(GA_ERR_MEMORY, "slab: no memory for the bookkeeping of units of %u bytes",
                   slab->shape.unit);
}

/* Allocate the counts, the bitmap of purged blocks, the table of superblocks and their order. */
static ga_status make_tables(ga_slab_host *slab)
{
    size_t supers = slab->shape.supers;
    size_t counts = ga_slab_counts_bytes(&slab->shape);
    size_t table = slab->shape.light ? 0 : supers * sizeof(ga_slab_super);
    size_t order = slab->shape.light ? 0 : supers * sizeof(uint32_t);
    size_t purged = counts / 32;
    char *tables = alloc_zeroed(counts + purged + table + order, &slab->tables);
    if (!tables) {
        return fail_no_tables(slab);
    }
    slab->heap.free = (uint32_t *)tables;
    slab->purged = (uint32_t *)(tables + counts + table + order);
    if (!slab->shape.light) {
        slab->heap.supers = (ga_slab_super *)(tables + counts);
        slab->heap.sorted = (uint32_t *)(tables + counts + table);
    }
    return GA_OK;
}

/* ---- memory of the parent ------------------------------------------------------------------ */

/* A slab that has filled its first superblock is expected to fill others. These get huge pages if
 * the system has them, because units in random order cost page-table walks otherwise. */
static bool should_use_huge(const ga_slab_host *slab, size_t size)
{
    return !slab->device && slab->heap.super_count && size >= HUGE_BYTES;
}

static void advise_huge(const ga_slab_region *region)
{
    int error = errno; /* malloc() must not change it; kernels without huge pages refuse */
    ga_os_memory_get()->madvise(region->units, region->bytes, MADV_HUGEPAGE);
    errno = error;
}

ga_status ga_slab_host_alloc_units(ga_slab_host *slab, ga_slab_region *region)
{
    size_t size = (size_t)region->count * region->unit;
    size = round_up(size, GA_SLAB_STEP);
    bool huge = should_use_huge(slab, size);
    ga_status status =
        ga_alloc(slab->parent, size, huge ? HUGE_BYTES : GA_SLAB_STEP, &region->block);
    if (huge && status != GA_OK) {
        status = ga_alloc(slab->parent, size, GA_SLAB_STEP, &region->block);
    }
    if (status == GA_ERR_ALIGN) {
        size += GA_SLAB_STEP;
        status = ga_alloc(slab->parent, size, 0, &region->block);
    }
    if (status != GA_OK) {
        region->block = NULL;
        return status;
    }
    region->units = (char *)round_up((uintptr_t)region->block, GA_SLAB_STEP);
    region->bytes = size;
    if (huge) {
        advise_huge(region);
    }
    return GA_OK;
}

static void free_region(ga_slab_host *slab, ga_slab_region *region)
{
    ga_slab_free_to_parent(slab->parent, region->block);
    ga_libc.free(region->rows);
    ga_slab_region_delete(region);
}

/* A region of `supers` adjacent superblocks. NULL, with a message, if there is no memory. */
static ga_slab_region *new_region(ga_slab_host *slab, uint32_t first, uint32_t supers,
                                  uint32_t **rows)
{
    uint32_t bits = slab->shape.super_bits + GA_SLAB_BLOCK_BITS;
    ga_slab_region *region = ga_slab_region_new();
    if (!region) {
        fail_no_tables(slab);
        return NULL;
    }
    region->units = NULL;
    region->inverse = UINT64_MAX / slab->shape.unit + 1;
    region->unit = slab->shape.unit;
    region->first = first << bits;
    region->count = supers << bits;
    region->class = slab->class;
    region->block = NULL;
    /* relaxed: a thread may still read the record of the heap that had it before */
    __atomic_store_n(&region->heap, slab->serial, __ATOMIC_RELAXED);
    size_t row_bytes = supers * ga_slab_super_rows_bytes(&slab->shape);
    *rows = alloc_zeroed(slab->check ? 2 * row_bytes : row_bytes, &region->rows);
    region->poisoned = slab->check && *rows ? *rows + row_bytes / sizeof **rows : NULL;
    ga_status status = *rows ? ga_slab_host_alloc_units(slab, region) : fail_no_tables(slab);
    if (status == GA_OK && !ga_slab_region_enter(region)) {
        status = fail_no_tables(slab);
    }
    if (status != GA_OK) {
        free_region(slab, region);
        return NULL;
    }
    return region;
}

void ga_slab_host_count_growth(ga_slab_host *slab, const ga_slab_region *region)
{
    /* relaxed: figures */
    __atomic_store_n(&slab->held, slab->held + region->bytes, __ATOMIC_RELAXED);
    __atomic_store_n(&slab->growths, slab->growths + 1, __ATOMIC_RELAXED);
}

/* ---- growth ---------------------------------------------------------------------------------- */

/* Insert the superblock into `sorted`, which ga_slab_unit() uses. On a device ga_slab_unit() is
 * not called, because units get other addresses there (trim.c). */
static void insert_sorted(ga_slab_heap *heap, uint32_t super)
{
    uint32_t at = super;
    uintptr_t units = (uintptr_t)heap->supers[super].units;
    /* SG8: release. Pairs with SG7 (slab_units.h): threads look up units at the same time. */
    for (; at && (uintptr_t)heap->supers[heap->sorted[at - 1]].units > units; at--) {
        __atomic_store_n(&heap->sorted[at], heap->sorted[at - 1], __ATOMIC_RELEASE);
    }
    __atomic_store_n(&heap->sorted[at], super, __ATOMIC_RELEASE); /* SG8. Pairs with SG7. */
}

/* Publish `supers` more superblocks. */
static void publish(ga_slab_host *slab, uint32_t supers)
{
    ga_slab_heap *heap = &slab->heap;
    uint32_t first = heap->super_count << slab->shape.super_bits;
    uint32_t last = (heap->super_count + supers) << slab->shape.super_bits;
    /* SG5: release. Pairs with SG7 (slab_units.h). */
    __atomic_store_n(&heap->super_count, heap->super_count + supers, __ATOMIC_RELEASE);
    for (uint32_t block = first; block < last; block++) {
        /* SG2: release. Pairs with SG1 (slab_tile.h). */
        ga_store_release(&heap->free[ga_slab_count_index(slab->shape.spread, block)],
                         GA_SLAB_BLOCK_UNITS);
    }
    /* SG4: release. Pairs with SG3 (slab_heap.h). After the counts, because a thread that claims
     * from one of the words changes its count. */
    __atomic_store_n(&heap->words, last * GA_SLAB_ROW_WORDS, __ATOMIC_RELEASE);
}

ga_status ga_slab_host_grow(ga_slab_host *slab, uint32_t seen)
{
    ga_slab_heap *heap = &slab->heap;
    bool light = slab->shape.light;
    uint32_t *rows;
    if (slab->room != seen) {
        return GA_OK;
    }
    if (slab->purged_blocks) {
        return ga_slab_host_restore(slab);
    }
    uint32_t super = heap->super_count;
    if (super == slab->shape.supers) {
        return ga_fail(GA_ERR_MEMORY, "slab: all %llu units of %u bytes are taken",
                       (unsigned long long)heap->words * 32u, slab->shape.unit);
    }
    ga_status status = heap->free ? GA_OK : make_tables(slab);
    if (status != GA_OK) {
        return status;
    }
    ga_slab_region *region = new_region(slab, super, light ? slab->shape.supers : 1, &rows);
    if (!region) {
        return GA_ERR_MEMORY;
    }
    region->next = slab->regions;
    slab->regions = region;
    if (light) {
        heap->rows = rows;
        heap->units = region->units;
    } else {
        heap->supers[super] = (ga_slab_super){region->units, rows};
        insert_sorted(heap, super);
    }
    ga_slab_host_count_growth(slab, region);
    publish(slab, light ? slab->shape.supers : 1);
    ga_slab_host_publish_room(slab);
    return GA_OK;
}

void ga_slab_host_end(ga_slab_host *slab)
{
    while (slab->regions) {
        ga_slab_region *region = slab->regions;
        slab->regions = region->next;
        ga_slab_region_remove(region);
        free_region(slab, region);
    }
    ga_libc.free(slab->tables);
}

/* ---- figures ------------------------------------------------------------------------------- */

void ga_slab_host_each_word(ga_slab_host *slab,
                            void (*visit)(void *context, uint32_t word, uint32_t bits),
                            void *context)
{
    uint32_t words = ga_slab_words(&slab->heap);
    ga_slab_view view = words ? ga_slab_view_of(&slab->heap) : (ga_slab_view){0};
    for (uint32_t word = 0; word < words; word++) {
        uint32_t bits = ga_load_relaxed(ga_slab_word(view, word)); /* relaxed: a figure */
        if (bits && !ga_slab_host_is_purged(slab, word / GA_SLAB_ROW_WORDS)) {
            visit(context, word, bits);
        }
    }
}

static void add_bits(void *context, uint32_t word, uint32_t bits)
{
    (void)word;
    *(uint64_t *)context += ga_bits_count(bits);
}

uint64_t ga_slab_host_taken(const ga_slab_host *slab)
{
    uint64_t taken = 0;
    ga_slab_host_each_word((ga_slab_host *)slab, add_bits, &taken);
    return taken;
}
