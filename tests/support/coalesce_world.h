/* SPDX-License-Identifier: MIT
 *
 * A heap that coalesces over host memory, for the tests of the algorithm: a parent that hands out
 * slots of one size, fails on request, and knows its live slots. Its slots are allocated and freed
 * by one atomic each, so that it orders no more than a parent must. A header, so that each program
 * compiles the algorithm for itself, with or without planted bugs.
 */
#ifndef GPUALLOC_TESTS_SUPPORT_COALESCE_WORLD_H
#define GPUALLOC_TESTS_SUPPORT_COALESCE_WORLD_H

#include "backends/coalesce/coalesce_static.h"

#include "random.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    WORLD_FILLED = 4096, /* bytes of a freed slot that are overwritten */
    WORLD_FILL = 0xdd
};

typedef struct world_slot {
    uint32_t taken;
    uint32_t note[4];
    bool plain;
    uint64_t bytes;
} world_slot;

typedef struct coalesce_world {
    char *memory;
    size_t slot_bytes;
    uint32_t slot_count;
    world_slot *slots;
    uint32_t next;   /* relaxed: where the next search begins */
    uint64_t claims; /* relaxed: how many there were */
    uint64_t wrong;  /* relaxed: frees of invalid pointers */
    const void *last_wrong;
    uint64_t fails_at; /* the claim of that number fails, ... */
    uint64_t
        fails_to; /* ... and those up to this one, which does not; all: both 0 and UINT64_MAX */
    ga_parent_host host;
    ga_coalesce_heap heap;
    ga_coalesce_view view;
} coalesce_world;

/* Byte by byte: a compiler's memset would not be instrumented by sanitizers. */
static inline void world_fill(void *memory, int byte, uint64_t n)
{
    volatile char *bytes = memory;
    for (uint64_t i = 0; i < n; i++) {
        bytes[i] = (char)byte;
    }
}

static inline uint64_t world_place(const coalesce_world *world, const void *pointer)
{
    return (uint64_t)((const char *)pointer - world->memory) / world->slot_bytes;
}

static inline void *world_claim(void *own, uint64_t bytes)
{
    coalesce_world *world = own;
    uint64_t number = __atomic_fetch_add(&world->claims, 1, __ATOMIC_RELAXED);
    if ((number >= world->fails_at && number < world->fails_to) || bytes > world->slot_bytes) {
        return NULL;
    }
    uint32_t start = __atomic_fetch_add(&world->next, 7, __ATOMIC_RELAXED);
    for (uint32_t i = 0; i < world->slot_count; i++) {
        uint32_t place = (start + i) % world->slot_count;
        world_slot *slot = &world->slots[place];
        uint32_t free_one = 0;
        /* V1: acquire. Pairs with V2. */
        if (__atomic_compare_exchange_n(&slot->taken, &free_one, 1, false, __ATOMIC_ACQUIRE,
                                        __ATOMIC_RELAXED)) {
            slot->bytes = bytes;
            slot->plain = false;
            return world->memory + place * world->slot_bytes;
        }
    }
    return NULL;
}

static inline void world_release(void *own, void *block)
{
    coalesce_world *world = own;
    uint64_t place = world_place(world, block);
    if (place >= world->slot_count || !world->slots[place].taken ||
        block != world->memory + place * world->slot_bytes) {
        __atomic_fetch_add(&world->wrong, 1, __ATOMIC_RELAXED);
        __atomic_store_n(&world->last_wrong, block, __ATOMIC_RELAXED);
        return;
    }
    world_slot *slot = &world->slots[place];
    world_fill(block, WORLD_FILL, slot->bytes < WORLD_FILLED ? slot->bytes : WORLD_FILLED);
    /* V2: release. Pairs with V1. */
    __atomic_store_n(&slot->taken, 0, __ATOMIC_RELEASE);
}

static inline ga_parent_found world_find(void *own, const void *pointer)
{
    coalesce_world *world = own;
    uint64_t place = world_place(world, pointer);
    ga_parent_found found = {NULL, NULL};
    /* relaxed: an owner of a pointer into it keeps it taken. */
    if (place < world->slot_count &&
        __atomic_load_n(&world->slots[place].taken, __ATOMIC_RELAXED)) {
        found.start = world->memory + place * world->slot_bytes;
        found.note = world->slots[place].plain ? NULL : world->slots[place].note;
    }
    if (found.start && !found.note && found.start != pointer) {
        found.start = NULL;
    }
    return found;
}

static inline void world_make_plain(void *own, void *block)
{
    coalesce_world *world = own;
    world->slots[world_place(world, block)].plain = true;
}

/* As many as it was claimed with. */
static inline uint64_t world_usable(void *own, const void *block)
{
    coalesce_world *world = own;
    return world->slots[world_place(world, block)].bytes;
}

/* The number of live blocks. */
static inline uint32_t world_live(const coalesce_world *world)
{
    uint32_t live = 0;
    for (uint32_t i = 0; i < world->slot_count; i++) {
        /* Acquire. Pairs with the release store in world_release(). */
        live += __atomic_load_n(&world->slots[i].taken, __ATOMIC_ACQUIRE);
    }
    return live;
}

static inline void world_map_begin(coalesce_world *world, uint32_t buckets)
{
    ga_map *map = &world->heap.map;
    map->buckets = buckets;
    map->entries = aligned_alloc(128, (size_t)buckets * GA_MAP_BUCKET * sizeof *map->entries);
    map->spilled = calloc(buckets, sizeof *map->spilled);
    memset(map->entries, 0, (size_t)buckets * GA_MAP_BUCKET * sizeof *map->entries);
}

/* `buckets` of the map, for GA_COALESCE_BY_MAP. */
static inline coalesce_world *world_new(uint32_t form, uint32_t bare, uint32_t buckets,
                                        uint32_t slot_count, size_t slot_bytes)
{
    coalesce_world *world = calloc(1, sizeof *world);
    world->slot_bytes = slot_bytes;
    world->slot_count = slot_count;
    world->slots = calloc(slot_count, sizeof *world->slots);
    world->memory = mmap(NULL, slot_count * slot_bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    world->host = (ga_parent_host){.claim = world_claim,
                                   .release = world_release,
                                   .find = world_find,
                                   .make_plain = world_make_plain,
                                   .usable = world_usable,
                                   .own = world};
    world->view = (ga_coalesce_view){.heap = &world->heap,
                                     .parent = {GA_BELOW_HOST, true, {(uint64_t)&world->host}},
                                     .form = form,
                                     .bare = bare,
                                     .max = GA_COALESCE_MAX};
    if (bare == GA_COALESCE_BY_MAP) {
        world_map_begin(world, buckets);
    }
    return world;
}

static inline void world_delete(coalesce_world *world)
{
    munmap(world->memory, world->slot_count * world->slot_bytes);
    free(world->heap.map.entries);
    free(world->heap.map.spilled);
    free(world->slots);
    free(world);
}

static inline ga_tile world_tile(void)
{
    return ga_tile_of(32);
}

/* The lanes of the mask request sizes[lane] bytes; payloads[lane] is the result of each of the 32
 * lanes. */
static inline void world_malloc(coalesce_world *world, uint32_t wanting, const uint64_t *sizes,
                                char **payloads)
{
    ga_wide wide = ga_wide_all(0);
    for (uint32_t lane = 0; lane < 32; lane++) {
        ga_wide_write(&wide, lane, sizes[lane]);
    }
    wide = ga_coalesce_claim(world->view, world_tile(), wanting, wide);
    for (uint32_t lane = 0; lane < 32; lane++) {
        payloads[lane] = (char *)ga_wide_read(wide, lane);
    }
}

/* As above, at multiples of aligns[lane]; in a heap with headers. */
static inline void world_malloc_aligned(coalesce_world *world, uint32_t wanting,
                                        const uint64_t *sizes, const uint32_t *aligns,
                                        char **payloads)
{
    ga_wide wide = ga_wide_all(0);
    ga_lanes multiples = ga_lanes_all(0);
    for (uint32_t lane = 0; lane < 32; lane++) {
        ga_wide_write(&wide, lane, sizes[lane]);
        ga_lane_write(&multiples, lane, aligns[lane]);
    }
    wide = ga_coalesce_claim_aligned(world->view, world_tile(), wanting, wide, multiples);
    for (uint32_t lane = 0; lane < 32; lane++) {
        payloads[lane] = (char *)ga_wide_read(wide, lane);
    }
}

static inline uint64_t world_usable_of(const coalesce_world *world, const char *payload)
{
    return ga_coalesce_usable(world->view, payload);
}

/* The lanes of the mask free payloads[lane]. */
static inline void world_free(coalesce_world *world, uint32_t giving, char *const *payloads)
{
    ga_wide wide = ga_wide_all(0);
    for (uint32_t lane = 0; lane < 32; lane++) {
        ga_wide_write(&wide, lane, (uint64_t)payloads[lane]);
    }
    ga_coalesce_free_lanes(world->view, world_tile(), giving, wide);
}

/* Lane `lane` frees one payload. */
static inline void world_free_one(coalesce_world *world, uint32_t lane, char *payload)
{
    char *payloads[32] = {NULL};
    payloads[lane] = payload;
    world_free(world, 1u << lane, payloads);
}

#endif
