/* SPDX-License-Identifier: MIT
 *
 * The data structures of a map (lfht-reclamation-2022, §3): hash nodes, leaves and freeze nodes;
 * the map's own record; and the interface of a variant.
 */
#ifndef GPUALLOC_LFHT_MAP_H
#define GPUALLOC_LFHT_MAP_H

#include "words.h"

#include "../../liballoc/reclaim/state.h"

#include <gpualloc/backend.h>
#include <gpualloc/lfht.h>

enum {
    LFHT_SHARDS = 64,
    LFHT_CHUNK_MAX = 8,
    LFHT_CHUNK = 4, /* defaults for options that are 0 */
    LFHT_CHAIN = 4,
    LFHT_KEYS_PER_BUCKET = 36,
    LFHT_CHAIN_MAX = 16,
    LFHT_SHARD_ALIGN = 128, /* bytes: two cache lines, because processors fetch them in pairs */
    /* Hazard slots of a thread. Slots 0 to 2 hold the hash node, its parent and its child, in
     * changing roles. From LFHT_SLOT_LEAVES on there is one for each leaf of a chain and one more.
     * At the last level, where chains have no limit, these take turns. */
    LFHT_SLOT_FREEZE = 3,
    LFHT_SLOT_LEAVES = 4,
    /* For batches: keys that are on their way at once, and hazard slots of each, behind the slots
     * above. */
    LFHT_BATCH_WIDTH = 12,
    LFHT_CURSOR_SLOTS = 4
};

/* A leaf. Only `next` changes once the leaf is published. */
typedef struct lfht_leaf {
    lfht_word next;
    uint64_t hash, key, value;
} lfht_leaf;

/* A hash node. A hash selects its bucket by `bits` of its bits, behind the `used` highest ones. An
 * empty bucket leads back to the node itself. */
typedef struct lfht_hash_node {
    struct lfht_hash_node *parent; /* NULL at the root, and before a detach. Order: A */
    uint64_t count; /* CNF: buckets in use, +1 during the filling. 0: dead. Order: C */
    uint32_t level; /* 0 at the root */
    uint16_t used, bits;
    lfht_word buckets[];
} lfht_hash_node;

/* A freeze node. The parent's bucket leads to it, and it to the hash node whose buckets are
 * frozen. */
typedef struct lfht_freeze_node {
    lfht_hash_node *node;
    uint64_t padding; /* blocks of 8 bytes may have addresses without room for the tags */
} lfht_freeze_node;

/* A shard of the map's counters, and of its garbage list. Up to LFHT_SHARDS threads have one each;
 * further threads share. */
typedef struct lfht_shard {
    /* relaxed, all of them: no decision depends on these sums */
    uint64_t inserted, removed;
    uint64_t expansions, compressions, aborted, retries, lookups, hops;
    uint64_t depth;
    uint64_t retired, freed; /* HHL */
    uint64_t waiting, limit; /* HHL: retired leaves in the list; a scan is due at `limit` */
    /* Order: LG1 (lfht.c). Removed nodes, freed when the map is closed; in HHL once no hazard pair
     * protects them. */
    lfht_word garbage;
} __attribute__((aligned(LFHT_SHARD_ALIGN))) lfht_shard;

/* A key with its hash and value, on the way into a node. */
typedef struct lfht_item {
    uint64_t hash, key, value;
} lfht_item;

typedef enum lfht_change_kind {
    LFHT_INSERT = 0, /* only if the key is absent */
    LFHT_UPSERT,
    LFHT_REPLACE, /* only if the key is present */
    LFHT_COMPARE  /* ... and its value is `expected` */
} lfht_change_kind;

typedef struct lfht_change {
    lfht_change_kind kind;
    uint64_t key, value, expected;
} lfht_change;

/* How a variant protects nodes from being freed. */
enum {
    LFHT_NO_HAZARDS = 0,  /* nothing is freed before the map is closed */
    LFHT_HAZARD_POINTERS, /* hazard pointers protect leaves and hash nodes */
    LFHT_HAZARD_PAIRS     /* hazard pairs protect leaves; hash nodes are never freed */
};

/* The operations of one variant. */
typedef struct lfht_variant {
    ga_status (*put)(ga_lfht *map, const lfht_change *change, ga_lfht_found *was);
    ga_status (*remove)(ga_lfht *map, uint64_t key, ga_lfht_found *was);
    ga_status (*lookup)(ga_lfht *map, uint64_t key, ga_lfht_found *was);
    ga_status (*lookup_batch)(ga_lfht *map, const uint64_t *keys, size_t n, ga_lfht_found *found);
    ga_status (*insert_batch)(ga_lfht *map, const uint64_t *keys, const uint64_t *values, size_t n,
                              ga_lfht_found *was, size_t *done);
    ga_status (*do_batch)(ga_lfht *map, ga_lfht_call *calls, size_t n, size_t *done);
    ga_status (*each)(ga_lfht *map, ga_lfht_visit *visit, void *context);
    /* Allocate the root, with every bucket empty. */
    ga_status (*make_root)(ga_lfht *map, uint32_t bits);
    /* Free everything below the root and empty its buckets. No thread may be using the map. */
    void (*clear_root)(ga_lfht *map);
    /* Fill the root. The items of bucket b end at items[ends[b]]. `scratch` has the length of
     * `items`; both are overwritten. False if out of memory: then only some buckets are filled. */
    bool (*fill_root)(ga_lfht *map, const size_t *ends, lfht_item *items, lfht_item *scratch);
    uint32_t protection;              /* LFHT_NO_HAZARDS, ... */
    uint32_t slots;                   /* hazard slots of a thread; 0: computed from `chain` */
    uint32_t chunk, chain, chain_max; /* defaults; the longest chain allowed */
    uint32_t keys_per_bucket;         /* target: fewer expected keys for each bucket of the root */
    uint64_t batch_bytes; /* bytes of retired nodes before a scan; 0: the domain's default */
    bool shrinks;
    bool seq_cst; /* hazard pointers by seq_cst fences, not membarriers */
    const char *name;
} lfht_variant;

extern const lfht_variant ga_lfht_snf, ga_lfht_fnf, ga_lfht_cnf, ga_lfht_fhp, ga_lfht_fhpa,
    ga_lfht_hhl, ga_lfht_inline;

struct ga_lfht {
    const lfht_variant *variant;
    lfht_hash_node *root;
    lfht_word *root_words; /* INLINE: the root, an array of links; `root` is NULL then */
    uint32_t root_bits;
    uint64_t expected_per_bucket; /* expected keys for each bucket of the root; 0: unknown */
    ga_heap *heap;
    ga_domain *domain;  /* NULL if the variant reclaims nothing */
    ga_lfht_hash *hash; /* NULL: lfht_spread() */
    ga_lfht_equal *equal;
    void *context;
    uint32_t chunk, chain, leaf_slots, batch;
    bool counting;
    bool simple; /* no callbacks of the caller's, and no counting */
    bool own_heap;
    bool checked, closed; /* GA_LFHT_CHECK */
    ga_lfht *next_closed; /* list of closed records, with GA_LFHT_CHECK */
    lfht_shard shards[LFHT_SHARDS];
};

lfht_shard *ga_lfht_own_shard(ga_lfht *map);

/* Allocate a node of `size` bytes. NULL, with an error message, if the heap is out of memory or
 * returns an address without room for the tags. */
void *ga_lfht_alloc_node(ga_lfht *map, size_t size);

/* Allocate a hash node with every bucket empty. */
lfht_hash_node *ga_lfht_alloc_hash_node(ga_lfht *map, lfht_hash_node *parent, uint32_t level,
                                        uint32_t used, uint32_t bits);

/* make_root, clear_root and fill_root of the variants with chains. */
ga_status ga_lfht_make_root(ga_lfht *map, uint32_t bits);
void ga_lfht_clear_root(ga_lfht *map);
bool ga_lfht_fill_root(ga_lfht *map, const size_t *ends, lfht_item *items, lfht_item *scratch);

/* Drop duplicate keys from n items with equal hashes, and keep the first of each. Returns the
 * number left, in their order. */
size_t ga_lfht_drop_duplicates(const ga_lfht *map, lfht_item *items, size_t n);

/* Fill the root, whose buckets are empty. After GA_ERR_MEMORY some buckets are filled. */
ga_status ga_lfht_build_root(ga_lfht *map, const uint64_t *keys, const uint64_t *values, size_t n);

/* Add the node to the shard's garbage list. */
void ga_lfht_add_garbage(lfht_shard *shard, lfht_word word);

static inline size_t lfht_hash_node_bytes(const lfht_hash_node *node)
{
    return sizeof *node + ((size_t)8 << node->bits);
}

/* Bytes of the node that the word leads to. */
static inline size_t lfht_node_bytes(lfht_word word)
{
    if (lfht_kind(word) == LFHT_LEAF) {
        return sizeof(lfht_leaf);
    }
    return lfht_kind(word) == LFHT_HASH ? lfht_hash_node_bytes(lfht_pointer(word))
                                        : sizeof(lfht_freeze_node);
}

/* The link of the garbage list: a word behind the node, because other threads may still be reading
 * the removed node's own fields. Variants with hazard pointers have none. Its level bits hold the
 * level at which a leaf was inserted (HHL). */
static inline lfht_word *lfht_garbage_link(lfht_word word)
{
    return (lfht_word *)((char *)lfht_pointer(word) + lfht_node_bytes(word));
}

static inline lfht_word *lfht_bucket(lfht_hash_node *node, uint64_t hash)
{
    return &node->buckets[hash << node->used >> (64 - node->bits)];
}

static inline bool lfht_is_last_level(const lfht_hash_node *node)
{
    return node->used + node->bits >= 64;
}

static inline lfht_word lfht_empty_bucket(const lfht_hash_node *node)
{
    return lfht_word_to(node, LFHT_HASH);
}

static inline bool lfht_is_empty_bucket(const lfht_hash_node *node, lfht_word word)
{
    return lfht_target(word) == lfht_empty_bucket(node) && !(word & LFHT_GONE);
}

static inline bool lfht_leads_to(lfht_word word, const void *node, lfht_word kind)
{
    return lfht_target(word) == lfht_word_to(node, kind);
}

static inline void lfht_count(uint64_t *count, uint64_t n)
{
    __atomic_fetch_add(count, n, __ATOMIC_RELAXED); /* relaxed: only a sum */
}

static inline void lfht_count_depth(lfht_shard *shard, uint32_t level)
{
    /* relaxed: statistics. A concurrent update by another thread of this shard may be lost. */
    if (__atomic_load_n(&shard->depth, __ATOMIC_RELAXED) < level) {
        __atomic_store_n(&shard->depth, level, __ATOMIC_RELAXED);
    }
}

/* The finaliser of splitmix64. A bijection, so different keys have different hashes. */
static inline uint64_t lfht_spread(uint64_t key)
{
    key = (key ^ (key >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    key = (key ^ (key >> 27)) * UINT64_C(0x94d049bb133111eb);
    return key ^ (key >> 31);
}

static inline uint64_t lfht_hash_of(const ga_lfht *map, uint64_t key)
{
    return map->hash ? map->hash(map->context, key) : lfht_spread(key);
}

/* The hazard slots of the calling thread. The first call of a thread joins the domain. */
static inline ga_status lfht_get_hazards(const ga_lfht *map, ga_hazards **out)
{
    return ga_member_join_fast(map->domain, out) ? GA_OK : ga_domain_join(map->domain, out);
}

static inline bool lfht_same_key(const ga_lfht *map, uint64_t a, uint64_t b)
{
    return a == b || (map->equal && map->equal(map->context, a, b));
}

#endif
