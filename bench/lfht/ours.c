/* SPDX-License-Identifier: MIT
 *
 * The variants of our map.
 */
#include "subject.h"

#include <gpualloc/backend.h>

#include <stdlib.h>

static void *open_ours(const ga_bench_subject *self, ga_heap *heap, const ga_bench_shape *shape,
                       uint64_t keys)
{
    ga_lfht *map;
    ga_lfht_options options = {.options_size = sizeof options,
                               .flags = shape->count ? GA_LFHT_COUNT : 0,
                               .variant = (ga_lfht_variant)self->argument,
                               .chain = shape->chain,
                               .chunk = shape->chunk,
                               .root = shape->root,
                               .batch = shape->batch,
                               .heap = heap,
                               .expected = keys};
    return ga_lfht_open(&map, &options) == GA_OK ? map : NULL;
}

static void close_ours(void *map)
{
    ga_lfht_close(map);
}

static bool insert_ours(void *map, uint64_t key)
{
    ga_lfht_found was;
    return ga_lfht_insert(map, key, key, &was) == GA_OK && !was.found;
}

static bool remove_ours(void *map, uint64_t key)
{
    ga_lfht_found was;
    return ga_lfht_remove(map, key, &was) == GA_OK && was.found;
}

static bool lookup_ours(void *map, uint64_t key)
{
    ga_lfht_found found;
    return ga_lfht_lookup(map, key, &found) == GA_OK && found.found && found.value == key;
}

static void drain_ours(void *map)
{
    ga_lfht_drain(map);
}

static void stats_ours(void *map, ga_lfht_stats *out)
{
    ga_lfht_get_stats(map, out);
}

const ga_bench_subject *ga_bench_lfht_variant(ga_lfht_variant variant)
{
    static ga_bench_subject all[GA_LFHT_VARIANT_COUNT];
    all[variant] = (ga_bench_subject){.name = ga_lfht_variant_text(variant),
                                      .on_heap = true,
                                      .open = open_ours,
                                      .close = close_ours,
                                      .insert = insert_ours,
                                      .remove = remove_ours,
                                      .lookup = lookup_ours,
                                      .drain = drain_ours,
                                      .stats = stats_ours,
                                      .argument = (int)variant};
    return &all[variant];
}
