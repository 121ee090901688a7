/* SPDX-License-Identifier: MIT
 *
 * Baselines for the slab hash, all with a thread for each operation and without code of the
 * library:
 *
 *     open     open addressing, linear probing: a compare-and-swap fills a slot
 *     cuckoo   four slots for a key, exchanges that evict others; built as a whole, for one size
 *     list     sorted lists of preallocated nodes, with 32-bit links: a set
 *
 * Open addressing has all three modes, the others keys of 32 bits.
 */
#ifndef GPUALLOC_BENCH_SLABHASH_BASELINES_CUH
#define GPUALLOC_BENCH_SLABHASH_BASELINES_CUH

#include <gpualloc/slabhash.cuh>

/* A bijection: the finaliser of MurmurHash3 (Austin Appleby, public domain). */
static __device__ __forceinline__ uint64_t mix64(uint64_t x)
{
    x = (x ^ x >> 33) * UINT64_C(0xff51afd7ed558ccd);
    x = (x ^ x >> 33) * UINT64_C(0xc4ceb9fe1a85ec53);
    return x ^ x >> 33;
}

static __device__ __forceinline__ uint64_t own_number()
{
    return (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

/* ---- open addressing ------------------------------------------------------------------------ */

/* A slot is a key, a pair in one word of 64 bits, or two such words; empty: all bits set. A deleted
 * key's slot stays in use, so that unique keys stay unique. */
typedef struct open_table {
    void *places;
    uint64_t count;
} open_table;

template <uint32_t MODE>
static __device__ __forceinline__ uint64_t open_look(open_table t, uint64_t at, uint64_t *value)
{
    *value = 0;
    if (MODE == GA_SLABHASH_SET32) {
        return ga_load_relaxed((uint32_t *)t.places +
                               at); /* relaxed, all: the slot is the only shared data */
    }
    if (MODE == GA_SLABHASH_MAP32) {
        uint64_t pair = ga_load64_relaxed((uint64_t *)t.places + at);
        *value = pair >> 32;
        return (uint32_t)pair;
    }
    *value = ga_load64_relaxed((uint64_t *)t.places + 2 * at + 1);
    return ga_load64_relaxed((uint64_t *)t.places + 2 * at);
}

/* Claim an empty slot for the key; returns the key that was there. */
template <uint32_t MODE>
static __device__ __forceinline__ uint64_t open_claim(open_table t, uint64_t at, uint64_t key,
                                                      uint64_t value)
{
    if (MODE == GA_SLABHASH_SET32) {
        return ga_cas_relaxed((uint32_t *)t.places + at, UINT32_MAX, (uint32_t)key);
    }
    if (MODE == GA_SLABHASH_MAP32) {
        return (uint32_t)ga_cas64_relaxed((uint64_t *)t.places + at, UINT64_MAX, key | value << 32);
    }
    uint64_t there = ga_cas64_relaxed((uint64_t *)t.places + 2 * at, UINT64_MAX, key);
    if (there == UINT64_MAX) { /* a concurrent search may find the key without its value */
        ga_store64_relaxed((uint64_t *)t.places + 2 * at + 1, value);
    }
    return there;
}

/* The probe sequence of a key: `at` goes round once from its home slot. */
#define OPEN_EACH(t, key, at)                                                                      \
    for (uint64_t at = __umul64hi(mix64(key), (t).count);; at = at + 1 == (t).count ? 0 : at + 1)

template <uint32_t MODE>
static __device__ __forceinline__ uint32_t open_insert(open_table t, uint64_t key, uint64_t value)
{
    const uint64_t empty = MODE == GA_SLABHASH_MAP64 ? UINT64_MAX : UINT32_MAX;
    OPEN_EACH(t, key, at)
    {
        uint64_t was;
        uint64_t there = open_look<MODE>(t, at, &was);
        if (there == empty) {
            there = open_claim<MODE>(t, at, key, value);
            if (there == empty) {
                return GA_SLABHASH_ABSENT;
            }
        }
        if (there == key) {
            return GA_SLABHASH_FOUND;
        }
    }
}

template <uint32_t MODE>
static __device__ __forceinline__ uint32_t open_search(open_table t, uint64_t key, uint64_t *value)
{
    const uint64_t empty = MODE == GA_SLABHASH_MAP64 ? UINT64_MAX : UINT32_MAX;
    OPEN_EACH(t, key, at)
    {
        uint64_t there = open_look<MODE>(t, at, value);
        if (there == key) {
            return GA_SLABHASH_FOUND;
        }
        if (there == empty) {
            *value = 0;
            return GA_SLABHASH_ABSENT;
        }
    }
}

/* Of pairs of 32 bits. */
static __device__ __forceinline__ uint32_t open_delete(open_table t, uint32_t key, uint64_t *value)
{
    const uint64_t deleted = (uint64_t)UINT32_MAX << 32 | GA_SLABHASH_DELETED;
    OPEN_EACH(t, key, at)
    {
        uint64_t there = open_look<GA_SLABHASH_MAP32>(t, at, value);
        if (there == key) {
            uint64_t pair = key | *value << 32;
            if (ga_cas64_relaxed((uint64_t *)t.places + at, pair, deleted) == pair) {
                return GA_SLABHASH_FOUND;
            }
            there = GA_SLABHASH_DELETED; /* another thread has deleted it */
        }
        if (there == UINT32_MAX) {
            *value = 0;
            return GA_SLABHASH_ABSENT;
        }
    }
}

template <uint32_t MODE, class T>
__global__ void open_build(open_table t, const T *keys, const T *values, uint64_t n)
{
    uint64_t i = own_number();
    if (i < n) {
        (void)open_insert<MODE>(t, keys[i], MODE == GA_SLABHASH_SET32 ? 0 : values[i]);
    }
}

template <uint32_t MODE, class T>
__global__ void open_find(open_table t, const T *keys, uint64_t n, T *found, uint8_t *results)
{
    uint64_t i = own_number();
    if (i < n) {
        uint64_t value;
        uint32_t result = open_search<MODE>(t, keys[i], &value);
        if (MODE == GA_SLABHASH_SET32) {
            results[i] = (uint8_t)result;
        } else {
            found[i] = (T)value;
        }
    }
}

static __global__ void open_mix(open_table t, ga_slabhash_batch batch)
{
    uint64_t i = own_number();
    if (i < batch.count) {
        uint32_t key = ((const uint32_t *)batch.keys)[i];
        uint64_t value = 0;
        batch.results[i] = (uint8_t)(batch.ops[i] == GA_SLABHASH_INSERT
                                         ? open_insert<GA_SLABHASH_MAP32>(
                                               t, key, ((const uint32_t *)batch.values)[i])
                                     : batch.ops[i] == GA_SLABHASH_DELETE
                                         ? open_delete(t, key, &value)
                                         : open_search<GA_SLABHASH_MAP32>(t, key, &value));
        ((uint32_t *)batch.found)[i] = (uint32_t)value;
    }
}

/* ---- cuckoo --------------------------------------------------------------------------------- */

enum {
    CUCKOO_WAYS = 4,
    CUCKOO_STEPS = 400 /* exchanges for one key, before the build is given up */
};

typedef struct cuckoo_table {
    uint64_t *places; /* pairs, the key below; empty: all bits set */
    uint64_t count;
    uint64_t seed;
} cuckoo_table;

static __device__ __forceinline__ uint64_t cuckoo_place(cuckoo_table t, uint32_t key, uint32_t way)
{
    return __umul64hi(mix64(key ^ t.seed ^ (uint64_t)way << 32), t.count);
}

/* Alcantara et al. 2009: exchange the pair with the slot's contents, and move these to their next
 * slot. `failed` is incremented if that does not end. */
static __global__ void cuckoo_build(cuckoo_table t, const uint32_t *keys, const uint32_t *values,
                                    uint64_t n, uint32_t *failed)
{
    uint64_t i = own_number();
    if (i >= n) {
        return;
    }
    uint64_t pair = keys[i] | (uint64_t)values[i] << 32;
    uint64_t at = cuckoo_place(t, keys[i], 0);
    for (uint32_t step = 0; step < CUCKOO_STEPS; step++) {
        pair = ga_exchange64_relaxed(t.places + at, pair);
        if (pair == UINT64_MAX) {
            return;
        }
        uint32_t way = 0;
        while (way < CUCKOO_WAYS && cuckoo_place(t, (uint32_t)pair, way) != at) {
            way++;
        }
        at = cuckoo_place(t, (uint32_t)pair, (way + 1) % CUCKOO_WAYS);
    }
    ga_add_relaxed(failed, 1u);
}

static __global__ void cuckoo_find(cuckoo_table t, const uint32_t *keys, uint64_t n,
                                   uint32_t *found)
{
    uint64_t i = own_number();
    if (i < n) {
        uint32_t value = 0;
        for (uint32_t way = 0; way < CUCKOO_WAYS; way++) {
            uint64_t pair = t.places[cuckoo_place(t, keys[i], way)];
            if ((uint32_t)pair == keys[i]) {
                value = (uint32_t)(pair >> 32);
                break;
            }
        }
        found[i] = value;
    }
}

/* ---- lists ---------------------------------------------------------------------------------- */

#define LIST_END  0x7fffffffu
#define LIST_GONE 0x80000000u /* of a link: its own node is deleted */

/* Misra and Chaudhuri 2012: Michael's lists (2002), over an array of nodes that are never used
 * again, so that a link is a number. */
typedef struct list_table {
    uint32_t *heads; /* a link each; all LIST_END */
    uint32_t count;
    uint32_t *keys, *links; /* of the nodes */
} list_table;

typedef struct list_spot {
    uint32_t *link; /* which leads to `node` */
    uint32_t node;  /* the first whose key is not below, or LIST_END */
} list_spot;

/* Unlinks deleted nodes on its way; restarts if another thread has changed a link. */
static __device__ list_spot list_seek(list_table t, uint32_t key)
{
    uint32_t *head = t.heads + __umul64hi(mix64(key), t.count);
    list_spot spot = {head, ga_load_relaxed(head)};
    while (spot.node != LIST_END) {
        uint32_t next = ga_load_relaxed(t.links + spot.node);
        if (next & LIST_GONE) {
            uint32_t after = next & ~LIST_GONE;
            bool taken = ga_cas_relaxed(spot.link, spot.node, after) == spot.node;
            spot.link = taken ? spot.link : head;
            spot.node = taken ? after : ga_load_relaxed(head);
        } else if (ga_load_relaxed(t.keys + spot.node) >= key) {
            return spot;
        } else {
            spot.link = t.links + spot.node;
            spot.node = next;
        }
    }
    return spot;
}

static __global__ void set_words(uint32_t *words, uint32_t value, uint64_t n)
{
    uint64_t i = own_number();
    if (i < n) {
        words[i] = value;
    }
}

static __device__ bool list_has(list_table t, list_spot spot, uint32_t key)
{
    return spot.node != LIST_END && ga_load_relaxed(t.keys + spot.node) == key;
}

static __device__ uint32_t list_insert(list_table t, uint32_t node, uint32_t key)
{
    ga_store_relaxed(t.keys + node, key);
    for (;;) {
        list_spot spot = list_seek(t, key);
        if (list_has(t, spot, key)) {
            return GA_SLABHASH_FOUND;
        }
        ga_store_relaxed(t.links + node, spot.node);
        /* release: publishes the node before its link; readers follow the link by address
         * dependency */
        if (ga_cas_release(spot.link, spot.node, node) == spot.node) { /* Pairs with list_seek() */
            return GA_SLABHASH_ABSENT;
        }
    }
}

static __device__ uint32_t list_delete(list_table t, uint32_t key)
{
    for (;;) {
        list_spot spot = list_seek(t, key);
        if (!list_has(t, spot, key)) {
            return GA_SLABHASH_ABSENT;
        }
        uint32_t next = ga_load_relaxed(t.links + spot.node);
        if (!(next & LIST_GONE) &&
            ga_cas_relaxed(t.links + spot.node, next, next | LIST_GONE) == next) {
            (void)ga_cas_relaxed(spot.link, spot.node, next); /* on failure another thread unlinks
                                                               * it */
            return GA_SLABHASH_FOUND;
        }
    }
}

/* Operation i of the batch has node `first` + i. */
static __global__ void list_mix(list_table t, ga_slabhash_batch batch, uint32_t first)
{
    uint64_t i = own_number();
    if (i < batch.count) {
        uint32_t key = ((const uint32_t *)batch.keys)[i];
        uint32_t op = batch.ops ? batch.ops[i] : (uint32_t)batch.op;
        uint32_t result = op == GA_SLABHASH_INSERT   ? list_insert(t, first + (uint32_t)i, key)
                          : op == GA_SLABHASH_DELETE ? list_delete(t, key)
                          : list_has(t, list_seek(t, key), key) ? GA_SLABHASH_FOUND
                                                                : GA_SLABHASH_ABSENT;
        batch.results[i] = (uint8_t)result;
    }
}

#endif
