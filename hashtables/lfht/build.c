/* SPDX-License-Identifier: MIT
 *
 * Builds a whole map at once. The keys are sorted into the root's buckets, those of each bucket
 * into the buckets of the next node, and so on, until they fit a chain; two arrays alternate as
 * source and target. No other thread uses the map. The result is the map that insertions would
 * have left, without the steps in between. INLINE replaces fill_root (inline_batch.h).
 */
#include "map.h"

#include "../../liballoc/platform/libc.h"

#include <string.h>

enum {
    BUCKETS_MAX = 1 << LFHT_CHUNK_MAX
};

typedef struct build {
    ga_lfht *map;
    uint64_t leaves, nodes;
    bool failed;
} build;

/* The bits of a hash that select one of 2^bits buckets, behind the first `used` bits. */
typedef struct bucket_bits {
    uint32_t used, bits;
} bucket_bits;

static size_t bucket_of(bucket_bits b, uint64_t hash)
{
    return (size_t)(hash << b.used >> (64 - b.bits));
}

/* Counting sort by bucket, stable. `ends`, all 0 before, receives the end of each bucket. Returns
 * the number of buckets in use. */
static uint64_t sort_by_bucket(bucket_bits b, size_t *ends, const lfht_item *from, lfht_item *to,
                               size_t n)
{
    uint64_t used = 0;
    size_t start = 0;
    for (size_t i = 0; i < n; i++) {
        ends[bucket_of(b, from[i].hash)]++;
    }
    for (size_t i = 0; i < (size_t)1 << b.bits; i++) {
        size_t count = ends[i];
        used += count > 0;
        ends[i] = start;
        start += count;
    }
    for (size_t i = 0; i < n; i++) {
        to[ends[bucket_of(b, from[i].hash)]++] = from[i];
    }
    return used;
}

static bool items_equal(const ga_lfht *map, const lfht_item *a, const lfht_item *b)
{
    return a->hash == b->hash && lfht_same_key(map, a->key, b->key);
}

size_t ga_lfht_drop_duplicates(const ga_lfht *map, lfht_item *items, size_t n)
{
    size_t left = 0;
    for (size_t i = 0; i < n; i++) {
        size_t j = 0;
        while (j < left && !items_equal(map, &items[j], &items[i])) {
            j++;
        }
        if (j == left) {
            items[left++] = items[i];
        }
    }
    return left;
}

static bool share_one_hash(const lfht_item *items, size_t n)
{
    size_t i = 1;
    while (i < n && items[i].hash == items[0].hash) {
        i++;
    }
    return i >= n;
}

/* ---- one bucket ----------------------------------------------------------------------------- */

/* Make a chain in `node`. Out of memory: as much of it as possible, with `failed` set. */
static lfht_word make_chain(build *b, const lfht_hash_node *node, const lfht_item *items, size_t n)
{
    lfht_word level = lfht_level_bits(node->level), word = lfht_empty_bucket(node);
    for (size_t i = n; i-- > 0 && !b->failed;) {
        lfht_leaf *leaf = ga_lfht_alloc_node(b->map, sizeof *leaf);
        if (leaf) {
            *leaf = (lfht_leaf){word | level, items[i].hash, items[i].key, items[i].value};
            word = lfht_word_to(leaf, LFHT_LEAF);
            if (b->map->variant->protection == LFHT_HAZARD_PAIRS) {
                *lfht_garbage_link(word) = level; /* its birth level (hhl.c) */
            }
            b->leaves++;
        }
        b->failed = !leaf;
    }
    return word;
}

static void fill_node(build *b, lfht_hash_node *node, const size_t *ends, lfht_item *items,
                      lfht_item *scratch);

/* Make a hash node below `node`. `scratch` has the length of `items`. */
static lfht_word make_node(build *b, lfht_hash_node *node, lfht_item *items, lfht_item *scratch,
                           size_t n)
{
    size_t ends[BUCKETS_MAX] = {0};
    lfht_hash_node *child = ga_lfht_alloc_hash_node(b->map, node, node->level + 1,
                                                    node->used + node->bits, b->map->chunk);
    if (!child) {
        b->failed = true;
        return lfht_empty_bucket(node);
    }
    b->nodes++;
    child->count = sort_by_bucket((bucket_bits){child->used, child->bits}, ends, items, scratch, n);
    fill_node(b, child, ends, scratch, items);
    return lfht_word_to(child, LFHT_HASH);
}

static lfht_word make_bucket(build *b, lfht_hash_node *node, lfht_item *items, lfht_item *scratch,
                             size_t n)
{
    size_t left = n <= b->map->chain || share_one_hash(items, n)
                      ? ga_lfht_drop_duplicates(b->map, items, n)
                      : n;
    return left <= b->map->chain || lfht_is_last_level(node)
               ? make_chain(b, node, items, left)
               : make_node(b, node, items, scratch, left);
}

/* Fill the buckets of `node`; the items of each end where `ends` says. */
static void fill_node(build *b, lfht_hash_node *node, const size_t *ends, lfht_item *items,
                      lfht_item *scratch)
{
    size_t first = 0;
    for (size_t i = 0; i < (size_t)1 << node->bits && !b->failed; i++) {
        if (ends[i] > first) {
            node->buckets[i] =
                make_bucket(b, node, items + first, scratch + first, ends[i] - first);
        }
        first = ends[i];
    }
}

/* ---- the root ------------------------------------------------------------------------------- */

bool ga_lfht_fill_root(ga_lfht *map, const size_t *ends, lfht_item *items, lfht_item *scratch)
{
    build b = {.map = map};
    lfht_shard *shard = ga_lfht_own_shard(map);
    fill_node(&b, map->root, ends, items, scratch);
    if (!b.failed) {
        lfht_count(&shard->inserted, b.leaves);
        lfht_count(&shard->expansions, b.nodes);
    }
    return !b.failed;
}

static ga_status build_all(ga_lfht *map, lfht_item *items, size_t *ends, size_t n)
{
    sort_by_bucket((bucket_bits){0, map->root_bits}, ends, items, items + n, n);
    return map->variant->fill_root(map, ends, items + n, items) ? GA_OK : GA_ERR_MEMORY;
}

ga_status ga_lfht_build_root(ga_lfht *map, const uint64_t *keys, const uint64_t *values, size_t n)
{
    size_t count = (size_t)1 << map->root_bits;
    lfht_item *items =
        n <= SIZE_MAX / sizeof *items / 2 ? ga_libc.malloc(2 * n * sizeof *items) : NULL;
    size_t *ends = ga_libc.malloc(count * sizeof *ends);
    ga_status status = GA_ERR_MEMORY;
    if (items && ends) {
        memset(ends, 0, count * sizeof *ends);
        for (size_t i = 0; i < n; i++) {
            items[i] = (lfht_item){lfht_hash_of(map, keys[i]), keys[i], values[i]};
        }
        status = build_all(map, items, ends, n);
    } else {
        ga_fail(status, "lfht: no memory to sort %zu keys: expected %zu bytes for each", n,
                2 * sizeof *items);
    }
    ga_libc.free(ends);
    ga_libc.free(items);
    return status;
}
