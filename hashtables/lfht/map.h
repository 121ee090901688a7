/* SPDX-License-Identifier: MIT
 *
 * What a map is made of (lfht-reclamation-2022, §3): hash nodes, leaves, and nodes that freeze.
 */
#ifndef GPUALLOC_LFHT_MAP_H
#define GPUALLOC_LFHT_MAP_H

#include "words.h"

#include "../../liballoc/reclaim/state.h"

#include <gpualloc/backend.h>
#include <gpualloc/lfht.h>

enum {
    LFHT_LANES = 64,
    LFHT_CHUNK_MOST = 8,
    LFHT_CHUNK = 4, /* where the options say 0 */
    LFHT_CHAIN = 4,
    LFHT_ROOT_KEYS = 36,
    LFHT_CHAIN_MOST = 16,
    LFHT_LINE = 128, /* bytes: two lines, which are fetched together */
    /* Slots of a thread: the hash node, the one above it, the one below it, a freeze node, and from
     * LFHT_SLOT_LEAVES on one for each leaf of a chain, and one more: at the last level they take
     * turns. */
    LFHT_SLOT_FREEZE = 3,
    LFHT_SLOT_LEAVES = 4,
    /* Behind these, for batches: so many keys are on their way at once, each with its slots. */
    LFHT_WIDTH = 12,
    LFHT_GLANCE_SLOTS = 4
};

/* Written before it is published, and then never, but for `next`. */
typedef struct lfht_leaf {
    lfht_word next;
    uint64_t hash, key, value;
} lfht_leaf;

/* `index` of the bits from `used` on, the highest first, is the bucket of a hash. An empty bucket
 * leads back to the node. */
typedef struct lfht_hash {
    struct lfht_hash *above; /* A: the parent; NULL for the root, and before it is detached */
    uint64_t count;          /* C: CNF: buckets in use, and one while it is being filled; 0: dead */
    uint32_t level;          /* 0 for the root */
    uint16_t used, bits;
    lfht_word buckets[];
} lfht_hash;

/* Stands between a hash node and its parent while its buckets are frozen. */
typedef struct lfht_freeze {
    lfht_hash *node;
    uint64_t apart; /* smaller blocks may stand at multiples of 8, where tags would not fit */
} lfht_freeze;

/* What threads count; each has a lane of its own while there are no more than LFHT_LANES. */
typedef struct lfht_lane {
    /* relaxed, all of them: sums that nothing depends on */
    uint64_t inserted, removed;
    uint64_t expansions, compressions, aborted, retries, lookups, hops;
    uint64_t depth;
    uint64_t retired, freed; /* HHL */
    uint64_t waiting, limit; /* HHL: leaves that are kept, and with how many a scan is due */
    /* G: nodes that are kept until the map is closed, or no pair protects them. */
    lfht_word garbage;
} __attribute__((aligned(LFHT_LINE))) lfht_lane;

/* A key on its way into a node. */
typedef struct lfht_item {
    uint64_t hash, key, value;
} lfht_item;

typedef enum lfht_how {
    LFHT_INSERT = 0, /* only where the key is not there */
    LFHT_UPSERT,
    LFHT_REPLACE, /* only where it is */
    LFHT_COMPARE  /* and only where its value is `expected` */
} lfht_how;

typedef struct lfht_change {
    lfht_how how;
    uint64_t key, value, expected;
} lfht_change;

/* What keeps nodes from being freed. */
enum {
    LFHT_KEEPS = 0, /* they stay until the map is closed */
    LFHT_POINTERS,  /* hazard pointers */
    LFHT_PAIRS      /* leaves: hazard pairs; hash nodes stay */
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
    /* The root, with every bucket empty. */
    ga_status (*make_root)(ga_lfht *map, uint32_t bits);
    /* Of a map that nobody is using: what the root leads to is freed, and its buckets are empty. */
    void (*clear_root)(ga_lfht *map);
    /* The keys of bucket b end at ends[b]; `other` is as long as `items`, and both may be used up.
     * False where there is no memory: some buckets are filled. */
    bool (*fill_root)(ga_lfht *map, const size_t *ends, lfht_item *items, lfht_item *other);
    uint32_t hazards;            /* LFHT_KEEPS, ... */
    uint32_t slots;              /* of a thread; 0: as chains need */
    uint32_t chunk, chain, most; /* where the options say 0; and the longest chain there may be */
    uint32_t root_keys;          /* for a bucket of the root, fewer than these, where it can be */
    uint64_t batch_bytes;        /* of removed nodes that a thread collects; 0: as domains do */
    bool shrinks;
    bool seq_cst; /* the protection */
    const char *name;
} lfht_variant;

extern const lfht_variant ga_lfht_snf, ga_lfht_fnf, ga_lfht_cnf, ga_lfht_fhp, ga_lfht_fhpa,
    ga_lfht_hhl, ga_lfht_inline;

struct ga_lfht {
    const lfht_variant *variant;
    lfht_hash *root;
    lfht_word *words; /* INLINE: its root, without a head; `root` is NULL */
    uint32_t root_bits;
    uint64_t per_bucket; /* keys that are expected in a bucket of the root; 0: not known */
    ga_heap *heap;
    ga_domain *domain;  /* NULL where nothing is reclaimed */
    ga_lfht_hash *hash; /* NULL: lfht_spread() */
    ga_lfht_equal *equal;
    void *context;
    uint32_t chunk, chain, leaf_slots, batch;
    bool counting;
    bool simple; /* no function of the caller's, and nothing is counted */
    bool own_heap;
    bool checked, closed; /* GA_LFHT_CHECK */
    ga_lfht *next;        /* of those that were checked and are closed */
    lfht_lane lanes[LFHT_LANES];
};

lfht_lane *ga_lfht_lane(ga_lfht *map);

/* A node of `size` bytes. NULL, with a sentence, where the heap has none; and where it gives an
 * address that leaves no room for the tags. */
void *ga_lfht_node(ga_lfht *map, size_t size);

/* A hash node with every bucket empty. */
lfht_hash *ga_lfht_hash_node(ga_lfht *map, lfht_hash *above, uint32_t level, uint32_t used,
                             uint32_t bits);

/* make_root, clear_root and fill_root of the variants with chains. */
ga_status ga_lfht_make_root(ga_lfht *map, uint32_t bits);
void ga_lfht_clear_root(ga_lfht *map);
bool ga_lfht_fill_root(ga_lfht *map, const size_t *ends, lfht_item *items, lfht_item *other);

/* How many are left, in their order, of n with one hash, when only the first of equal keys stays.
 */
size_t ga_lfht_drop_equals(const ga_lfht *map, lfht_item *items, size_t n);

/* Fill the root, whose buckets are empty. Where there is no memory some are filled. */
ga_status ga_lfht_build_root(ga_lfht *map, const uint64_t *keys, const uint64_t *values, size_t n);

/* What the word leads to goes to the lane's garbage. */
void ga_lfht_keep(lfht_lane *lane, lfht_word word);

static inline size_t lfht_hash_size(const lfht_hash *node)
{
    return sizeof *node + ((size_t)8 << node->bits);
}

/* Bytes of what the word leads to. */
static inline size_t lfht_size(lfht_word word)
{
    if (lfht_kind(word) == LFHT_LEAF) {
        return sizeof(lfht_leaf);
    }
    return lfht_kind(word) == LFHT_HASH ? lfht_hash_size(lfht_at(word)) : sizeof(lfht_freeze);
}

/* But with hazard pointers nodes have a word behind them: threads may still be reading what was
 * removed, so the list of these goes through there. Its level bits say where a leaf was born. */
static inline lfht_word *lfht_link(lfht_word word)
{
    return (lfht_word *)((char *)lfht_at(word) + lfht_size(word));
}

static inline lfht_word *lfht_bucket(lfht_hash *node, uint64_t hash)
{
    return &node->buckets[hash << node->used >> (64 - node->bits)];
}

static inline bool lfht_last(const lfht_hash *node)
{
    return node->used + node->bits >= 64;
}

static inline lfht_word lfht_empty(const lfht_hash *node)
{
    return lfht_to(node, LFHT_HASH);
}

static inline bool lfht_is_empty(const lfht_hash *node, lfht_word word)
{
    return lfht_target(word) == lfht_empty(node) && !(word & LFHT_GONE);
}

static inline bool lfht_leads_to(lfht_word word, const void *node, lfht_word kind)
{
    return lfht_target(word) == lfht_to(node, kind);
}

static inline void lfht_add(uint64_t *count, uint64_t n)
{
    __atomic_fetch_add(count, n, __ATOMIC_RELAXED); /* relaxed: a sum */
}

static inline void lfht_count_depth(lfht_lane *lane, uint32_t level)
{
    /* relaxed: a figure; one that another thread of this lane writes at once may be lost */
    if (__atomic_load_n(&lane->depth, __ATOMIC_RELAXED) < level) {
        __atomic_store_n(&lane->depth, level, __ATOMIC_RELAXED);
    }
}

/* Different for different keys: each step can be undone (splitmix64). */
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

/* The calling thread's slots: every call begins with it. */
static inline ga_status lfht_join(const ga_lfht *map, ga_hazards **out)
{
    return ga_member_join_fast(map->domain, out) ? GA_OK : ga_domain_join(map->domain, out);
}

static inline bool lfht_same_key(const ga_lfht *map, uint64_t a, uint64_t b)
{
    return a == b || (map->equal && map->equal(map->context, a, b));
}

#endif
