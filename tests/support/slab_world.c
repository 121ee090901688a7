/* SPDX-License-Identifier: MIT
 *
 * Slab heaps over reserved pages.
 */
#include "slab_world.h"

#include <err.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    PATTERN = 2 << 20
};

/* No mapping is there: for units that are never accessed. */
static const uintptr_t NOWHERE = (uintptr_t)1 << 40;

static void *reserve(uint64_t size)
{
    void *pages = mmap(NULL, size, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED) {
        err(1, "slab_world: %llu bytes", (unsigned long long)size);
    }
    return pages;
}

/* Set all bits, in pages that share one physical page until they are written to. */
static void set_all(void *pages, uint64_t size)
{
    int file = memfd_create("slab_world", 0);
    void *ones = reserve(PATTERN);
    memset(ones, 0xff, PATTERN);
    if (file < 0 || write(file, ones, PATTERN) != PATTERN) {
        err(1, "slab_world: a page of ones");
    }
    for (uint64_t done = 0; done < size; done += PATTERN) {
        size_t part = size - done < PATTERN ? (size_t)(size - done) : PATTERN;
        if (mmap((char *)pages + done, part, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_NORESERVE | MAP_FIXED, file, 0) == MAP_FAILED) {
            err(1, "slab_world: pages of ones");
        }
    }
    munmap(ones, PATTERN);
    close(file);
}

static uint64_t rows_size(const slab_world *world)
{
    return world->shape.supers * (uint64_t)ga_slab_super_rows_bytes(&world->shape);
}

static uint64_t units_size(const slab_world *world)
{
    uint64_t gaps = world->shape.light ? 0 : (uint64_t)world->shape.supers * SLAB_WORLD_GAP;
    return world->shape.supers * ga_slab_super_bytes(&world->shape) + gaps;
}

/* The position of superblock `super` among the others: first, last, second, last but one, ... */
static uint32_t slot_of(const slab_world *world, uint32_t super)
{
    return super % 2 ? world->shape.supers - 1 - super / 2 : super / 2;
}

slab_world *slab_world_new(ga_slab_shape shape, uint32_t supers, slab_world_kind kind)
{
    slab_world *world = calloc(1, sizeof *world);
    if (!world || ga_slab_shape_check(&shape) != GA_OK || supers > shape.supers) {
        errx(1, "slab_world: no such heap: %s", ga_error_text());
    }
    world->shape = shape;
    world->kind = kind;
    world->rows = reserve(rows_size(world));
    if (kind == SLAB_WORLD_TAKEN) {
        set_all(world->rows, rows_size(world));
    }
    world->units = kind == SLAB_WORLD_FREE ? reserve(units_size(world)) : (char *)NOWHERE;
    world->heap.free = reserve(ga_slab_counts_bytes(&shape));
    ga_slab_heap_shape(&world->heap, &shape);
    if (shape.light) {
        world->heap.rows = world->rows;
        world->heap.units = world->units;
    } else {
        world->heap.supers = reserve(shape.supers * sizeof *world->heap.supers);
        world->heap.sorted = reserve(shape.supers * sizeof *world->heap.sorted);
    }
    for (uint32_t i = 0; i < supers; i++) {
        slab_world_grow(world);
    }
    return world;
}

void slab_world_delete(slab_world *world)
{
    munmap(world->rows, rows_size(world));
    munmap(world->heap.free, ga_slab_counts_bytes(&world->shape));
    if (world->kind == SLAB_WORLD_FREE) {
        munmap(world->units, units_size(world));
    }
    if (!world->shape.light) {
        munmap(world->heap.supers, world->shape.supers * sizeof *world->heap.supers);
        munmap(world->heap.sorted, world->shape.supers * sizeof *world->heap.sorted);
    }
    free(world);
}

/* ---- superblocks -------------------------------------------------------------------------- */

static void place_super(slab_world *world, uint32_t super)
{
    ga_slab_heap *heap = &world->heap;
    uint32_t slot = slot_of(world, super);
    uint32_t at = super;
    heap->supers[super].units = world->units + slot * (heap->super_bytes + SLAB_WORLD_GAP);
    heap->supers[super].rows =
        world->rows + slot * (ga_slab_super_rows_bytes(&world->shape) / sizeof(uint32_t));
    /* Release, as SG5: units are looked up at the same time. Pairs with SG7 (slab_units.h). */
    for (; at && heap->supers[heap->sorted[at - 1]].units > heap->supers[super].units; at--) {
        __atomic_store_n(&heap->sorted[at], heap->sorted[at - 1], __ATOMIC_RELEASE);
    }
    __atomic_store_n(&heap->sorted[at], super, __ATOMIC_RELEASE);
}

void slab_world_grow(slab_world *world)
{
    ga_slab_heap *heap = &world->heap;
    uint32_t super = heap->super_count;
    uint32_t blocks = 1u << world->shape.super_bits;
    uint32_t room = world->kind == SLAB_WORLD_TAKEN ? 0 : GA_SLAB_BLOCK_UNITS;
    if (super == world->shape.supers) {
        errx(1, "slab_world: no super block after %u", super);
    }
    if (!world->shape.light) {
        place_super(world, super);
    }
    /* SG5: release. Pairs with SG7 (slab_units.h). */
    __atomic_store_n(&heap->super_count, super + 1, __ATOMIC_RELEASE);
    for (uint32_t block = super * blocks; room && block < (super + 1) * blocks; block++) {
        /* SG2: release. Pairs with SG1 (slab_tile.h). */
        __atomic_store_n(heap->free + ga_slab_count_index(heap->spread, block), room,
                         __ATOMIC_RELEASE);
    }
    /* SG4: release. Pairs with SG3 (slab_heap.h). After the counts: a tile that claims from a word
     * it knows changes a count that is set. */
    __atomic_store_n(&heap->words, (super + 1) * blocks * GA_SLAB_ROW_WORDS, __ATOMIC_RELEASE);
}

/* ---- the truth ----------------------------------------------------------------------------- */

static uint32_t blocks_of(const slab_world *world)
{
    return world->heap.words / GA_SLAB_ROW_WORDS;
}

static uint32_t *row_of(const slab_world *world, uint32_t block)
{
    const ga_slab_heap *heap = &world->heap;
    uint32_t within = block % (1u << world->shape.super_bits);
    if (world->shape.light) {
        return world->rows + (size_t)block * GA_SLAB_ROW_WORDS;
    }
    return heap->supers[block >> world->shape.super_bits].rows + within * GA_SLAB_ROW_WORDS;
}

void slab_world_reset(slab_world *world)
{
    for (uint32_t block = 0; block < blocks_of(world); block++) {
        memset(row_of(world, block), 0, GA_SLAB_ROW_WORDS * sizeof(uint32_t));
        world->heap.free[ga_slab_count_index(world->heap.spread, block)] = GA_SLAB_BLOCK_UNITS;
    }
    memset(world->heap.hints, 0, sizeof world->heap.hints);
    world->heap.changes = 0;
}

uint64_t slab_world_units(const slab_world *world)
{
    return world->heap.words * UINT64_C(32);
}

uint64_t slab_world_live(const slab_world *world)
{
    uint64_t live = 0;
    for (uint32_t block = 0; block < blocks_of(world); block++) {
        live += GA_SLAB_BLOCK_UNITS - slab_world_room(world, block);
    }
    return live;
}

bool slab_world_taken(const slab_world *world, uint32_t unit)
{
    uint32_t *row = row_of(world, unit / GA_SLAB_BLOCK_UNITS);
    uint32_t place = unit % GA_SLAB_BLOCK_UNITS;
    return row[place / 32] >> place % 32 & 1u;
}

uint32_t slab_world_count(const slab_world *world, uint32_t block)
{
    return world->heap.free[ga_slab_count_index(world->heap.spread, block)];
}

uint32_t slab_world_room(const slab_world *world, uint32_t block)
{
    const uint32_t *row = row_of(world, block);
    int room = 0;
    for (uint32_t i = 0; i < GA_SLAB_ROW_WORDS; i++) {
        room += __builtin_popcount(~row[i]);
    }
    return (uint32_t)room;
}

uint32_t slab_world_wrong(const slab_world *world)
{
    for (uint32_t block = 0; block < blocks_of(world); block++) {
        if (slab_world_count(world, block) != slab_world_room(world, block)) {
            return block;
        }
    }
    return GA_SLAB_FULL;
}
