/* SPDX-License-Identifier: MIT
 *
 * The parallel hash map of static coalescing without headers (warp-coalescing-gpumpi-2022, §3.1):
 * from a payload to its superblock.
 *
 * STRUCTURE  Buckets of 8 entries, a row of 128 bytes each. A key is in its home bucket or, if that
 *            is full, in one of the 32 buckets after it. `spilled` of a bucket counts the keys that
 *            have their home there but are in later buckets.
 *
 * INVARIANT  A key is in the map once, because a payload is live once. While it is, no other lane
 *            changes its entry, and `spilled` of its home bucket is not 0 unless it is there. So a
 *            search that stops after a home bucket with `spilled` 0 misses no key, and there are no
 *            tombstones.
 *
 * ORDER      A payload is inserted before a lane gets it, so that the lane that frees it finds it,
 *            by the order that passed it on. CP1 with CP2: a value is read before the next one is
 *            written.
 *
 * PROGRESS   An insertion probes at most 33 buckets, then reports that the map is full. Each
 *            attempt at an entry fails only because another lane's has succeeded.
 */
#ifndef GPUALLOC_COALESCE_COALESCE_MAP_H
#define GPUALLOC_COALESCE_COALESCE_MAP_H

#include "../../simt/planted.h"
#include "coalesce_heap.h"

enum {
    GA_MAP_REACH = 32 /* buckets after the home bucket */
};

GA_SIMT uint32_t ga_map_home(const ga_map *map, uint64_t key)
{
    uint32_t hash = ga_bits_mix((uint32_t)(key >> 4) ^ (uint32_t)(key >> 36) * 0x9e3779b1u);
    return hash & (map->buckets - 1u);
}

GA_SIMT ga_map_entry *ga_map_at(const ga_map *map, uint32_t bucket, uint32_t index)
{
    uint32_t wrapped = bucket & (map->buckets - 1u);
    return map->entries + (uint64_t)wrapped * GA_MAP_BUCKET + index;
}

/* How many buckets after the home bucket are probed. */
GA_SIMT uint32_t ga_map_reach(const ga_map *map)
{
    return map->buckets <= GA_MAP_REACH ? map->buckets - 1u : GA_MAP_REACH;
}

/* Claim a free entry of the bucket for the key. False: there is none. */
GA_SIMT bool ga_map_insert_in(const ga_map *map, uint32_t bucket, uint64_t key, uint64_t value)
{
    for (uint32_t index = 0; index < GA_MAP_BUCKET; index++) {
        ga_map_entry *entry = ga_map_at(map, bucket, index);
        if (ga_load64_relaxed(&entry->key) == 0) { /* relaxed: a guess */
#if GA_PLANTED(coalesce_map_insert_relaxed)
            uint64_t found = ga_cas64_relaxed(&entry->key, 0, key);
#else
            /* CP2: acquire. Pairs with CP1. */
            uint64_t found = ga_cas64_acquire(&entry->key, 0, key);
#endif
            if (found == 0) {
                entry->value = value;
                return true;
            }
        }
    }
    return false;
}

/* By one lane. False: no free entry in reach, and nothing has changed. */
GA_SIMT bool ga_map_insert(ga_map *map, uint64_t key, uint64_t value)
{
    uint32_t home = ga_map_home(map, key);
    uint32_t reach = ga_map_reach(map);
    bool done = ga_map_insert_in(map, home, key, value);
    if (!done) {
        /* relaxed, and before the key is in a later bucket: a lane that looks for the key got it
         * later. */
        ga_post_add_relaxed(map->spilled + home, 1);
        for (uint32_t i = 1; i <= reach && !done; i++) {
            done = ga_map_insert_in(map, home + i, key, value);
        }
        if (!done) {
            ga_post_add_relaxed(map->spilled + home, 0u - 1u);
            return false;
        }
    }
    ga_post_add_relaxed(&map->live, 1); /* relaxed: a count */
    return true;
}

/* The key's entry in the bucket, or NULL. */
GA_SIMT ga_map_entry *ga_map_find_in(const ga_map *map, uint32_t bucket, uint64_t key)
{
    for (uint32_t index = 0; index < GA_MAP_BUCKET; index++) {
        ga_map_entry *entry = ga_map_at(map, bucket, index);
        if (ga_load64_relaxed(&entry->key) == key) { /* relaxed: see ORDER */
            return entry;
        }
    }
    return NULL;
}

/* The key's entry, or NULL; `*spilled`: it is not in its home bucket. By one lane. */
GA_SIMT ga_map_entry *ga_map_find(const ga_map *map, uint64_t key, bool *spilled)
{
    uint32_t home = ga_map_home(map, key);
    ga_map_entry *entry = ga_map_find_in(map, home, key);
    *spilled = !entry && ga_load_relaxed(map->spilled + home); /* relaxed: see ORDER */
    if (*spilled) {
        uint32_t reach = ga_map_reach(map);
        for (uint32_t i = 1; i <= reach && !entry; i++) {
            entry = ga_map_find_in(map, home + i, key);
        }
    }
    return entry;
}

/* The key's value, or 0 if it is not in the map. By one lane, which has the payload. */
GA_SIMT uint64_t ga_map_value(const ga_map *map, uint64_t key)
{
    bool spilled;
    const ga_map_entry *entry = ga_map_find(map, key, &spilled);
    return entry ? entry->value : 0;
}

/* Remove the key. Returns its value, or 0 if it is not in the map. By one lane. */
GA_SIMT uint64_t ga_map_remove(ga_map *map, uint64_t key)
{
    bool spilled;
    ga_map_entry *entry = ga_map_find(map, key, &spilled);
    if (!entry) {
        return 0;
    }
    uint64_t value = entry->value;
#if GA_PLANTED(coalesce_map_remove_relaxed)
    ga_store64_relaxed(&entry->key, 0);
#else
    /* CP1: release. Pairs with CP2: the value has been read. */
    ga_store64_release(&entry->key, 0);
#endif
    if (spilled) {
        ga_post_add_relaxed(map->spilled + ga_map_home(map, key), 0u - 1u);
    }
    ga_post_add_relaxed(&map->live, 0u - 1u);
    return value;
}

#endif
