/* SPDX-License-Identifier: MIT
 *
 * Heaps of all sizes over reserved pages.
 */
#include "sized_world.h"

#include <err.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    ALIGN = 256
};

static void *reserve(uint64_t size)
{
    void *pages = mmap(NULL, size, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED) {
        err(1, "sized_world: %llu bytes", (unsigned long long)size);
    }
    return pages;
}

static uint64_t units_size(const sized_world *world)
{
    return (uint64_t)world->regions << world->heap->region_bits;
}

/* Parts of one block, each with an offset of its own. */
static void *piece(sized_world *world, size_t size)
{
    char *at = (char *)world->book + world->book_size;
    world->book_size += (size + ALIGN - 1) / ALIGN * ALIGN;
    return at;
}

static sized_world *make(uint32_t region_bits, uint32_t regions)
{
    sized_world *world = calloc(1, sizeof *world);
    uint32_t classes = ga_sized_class_count(region_bits);
    size_t list = regions * sizeof(uint32_t);
    size_t bits = list << ga_sized_stride_bits(region_bits);
    if (!world || classes > GA_SIZED_CLASSES) {
        errx(1, "sized_world: no such heap");
    }
    world->regions = world->limit = regions;
    world->book = reserve(GA_SIZED_OWNERS_AT + bits + (classes + 6) * (list + ALIGN) + 4 * ALIGN);
    world->heap = piece(world, GA_SIZED_OWNERS_AT); /* and the recent words */
    *world->heap = (ga_sized_heap){
        .bits = piece(world, bits),
        .owners = piece(world, list),
        .pool = piece(world, list),
        .table_indices = piece(world, list),
        .watches = piece(world, list),
        .region_bits = region_bits,
        .classes = classes,
        .regions = regions,
        .fixed = regions,
    };
    world->heap->units = reserve(units_size(world));
    memset(world->heap->bits, 0xff, bits);
    for (uint32_t class = 0; class < classes; class ++) {
        ga_sized_class_begin(&world->heap->of[class], region_bits, class, piece(world, list));
    }
    return world;
}

sized_world *sized_world_new(uint32_t region_bits, uint32_t regions)
{
    return make(region_bits, regions);
}

/* ---- growing ------------------------------------------------------------------------------- */

/* Up to three regions ahead; one request may be refused. */
static ga_growth_reason back(void *context, uint32_t wanted, uint32_t *backed)
{
    sized_world *world = context;
    uint32_t reach = wanted + wanted % 4u;
    if (++world->requests == world->refuse) {
        return GA_GROWTH_MEMORY;
    }
    for (; *backed < reach && *backed < world->limit; ++*backed) {
        world->backed[*backed] = SIZED_WORLD_BACKED;
    }
    return *backed >= wanted ? GA_GROWTH_GRANTED : GA_GROWTH_LIMIT;
}

sized_world *sized_world_limited(uint32_t region_bits, uint32_t regions, uint32_t limit,
                                 uint32_t refuse)
{
    sized_world *world = make(region_bits, regions);
    world->limit = limit;
    world->refuse = refuse;
    world->backed = calloc(regions, sizeof *world->backed);
    world->growth = aligned_alloc(ALIGN, (sizeof *world->growth + ALIGN - 1) / ALIGN * ALIGN);
    if (!world->backed || !world->growth ||
        ga_pager_add(&world->client, GA_PAGER_HOST, 1, back, world) != GA_OK) {
        errx(1, "sized_world: no pager: %s", ga_error_text());
    }
    world->backed[0] = SIZED_WORLD_BACKED;
    *world->growth = ga_growth_first(ga_pager_mailbox(world->client), 1);
    world->growth->refusal_ns = 20000; /* ns */
    world->growth->poll_ns = 1;
    world->heap->growth = world->growth;
    world->heap->fixed = 0;
    return world;
}

sized_world *sized_world_growing(uint32_t region_bits, uint32_t regions)
{
    return sized_world_limited(region_bits, regions, regions, 0);
}

void sized_world_delete(sized_world *world)
{
    if (world->client) {
        ga_pager_remove(world->client);
    }
    free(world->backed);
    free(world->growth);
    munmap(world->heap->units, units_size(world));
    munmap(world->book, world->book_size);
    free(world);
}

/* ---- the truth ----------------------------------------------------------------------------- */

uint32_t sized_world_owner(const sized_world *world, uint32_t region)
{
    return ga_sized_owner_class(world->heap->owners[region]);
}

uint32_t sized_world_regions(const sized_world *world, uint32_t class)
{
    uint32_t count = 0;
    for (uint32_t region = 0; region < world->regions; region++) {
        count += sized_world_owner(world, region) == class;
    }
    return count;
}

/* Bit by bit, so that no code is shared with the tested functions. */
static uint64_t live_in(const sized_world *world, uint32_t region)
{
    uint32_t class = sized_world_owner(world, region);
    uint32_t units = (1u << world->heap->region_bits) / ga_sized_unit(class);
    const uint32_t *bits =
        world->heap->bits +
        ga_sized_bitmap_index(world->heap->region_bits, region, world->heap->owners[region]);
    uint64_t live = 0;
    for (uint32_t unit = 0; unit < units; unit++) {
        live += bits[unit / 32] >> unit % 32 & 1u;
    }
    for (uint32_t unit = units; unit % 32; unit++) {
        if (!(bits[unit / 32] >> unit % 32 & 1u)) {
            errx(1, "sized_world: region %u of class %u: a bit of the tail is clear", region,
                 class);
        }
    }
    return live;
}

static void check_table(const sized_world *world, uint32_t class)
{
    const ga_sized_class_map *map = &world->heap->of[class].map;
    uint32_t count = map->total_words / map->words;
    bool whole = map->total_words % map->words == 0 && count == sized_world_regions(world, class);
    for (uint32_t i = 0; whole && i < count; i++) {
        uint32_t region = (map->table[i] & ~GA_SIZED_SPENT) - 1u;
        whole = map->table[i] && sized_world_owner(world, region) == class &&
                (world->heap->table_indices[region] & ~GA_SIZED_SPENT) == i;
        for (uint32_t j = 0; j < i; j++) {
            whole = whole && map->table[j] != map->table[i];
        }
    }
    if (!whole) {
        errx(1, "sized_world: class %u: %u words, and owners and table that do not agree", class,
             map->total_words);
    }
}

uint64_t sized_world_live(const sized_world *world, uint32_t class)
{
    uint64_t live = 0;
    for (uint32_t c = 0; c < world->heap->classes; c++) {
        check_table(world, c);
    }
    for (uint32_t region = 0; region < world->regions; region++) {
        uint32_t owner = sized_world_owner(world, region);
        if (owner < world->heap->classes && (class == GA_SIZED_NONE || owner == class)) {
            live += live_in(world, region);
        }
    }
    return live;
}
