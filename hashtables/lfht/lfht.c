/* SPDX-License-Identifier: MIT
 *
 * The public calls: argument checks, opening and closing, node allocation, statistics. The map's
 * variant (map.h) does the rest.
 */
#include "hhl.h"

#include "../../liballoc/platform/libc.h"

enum {
    ROOT_BITS = 14, /* default, log2 of buckets */
    ROOT_BITS_MAX = 24,
    RETIRE_BATCH = 4096
};

static const lfht_variant *const variants[GA_LFHT_VARIANT_COUNT] = {
    [GA_LFHT_FHPA] = &ga_lfht_fhpa,     [GA_LFHT_FHP] = &ga_lfht_fhp, [GA_LFHT_SNF] = &ga_lfht_snf,
    [GA_LFHT_FNF] = &ga_lfht_fnf,       [GA_LFHT_CNF] = &ga_lfht_cnf, [GA_LFHT_HHL] = &ga_lfht_hhl,
    [GA_LFHT_INLINE] = &ga_lfht_inline,
};

const char *ga_lfht_variant_text(ga_lfht_variant variant)
{
    return (unsigned)variant < GA_LFHT_VARIANT_COUNT ? variants[variant]->name : "?";
}

/* ---- nodes ---------------------------------------------------------------------------------- */

void *ga_lfht_alloc_node(ga_lfht *map, size_t size)
{
    void *node;
    bool linked = map->variant->protection != LFHT_HAZARD_POINTERS;
    if (ga_alloc(map->heap, size + (linked ? sizeof(lfht_word) : 0), 0, &node) != GA_OK) {
        return NULL;
    }
    if (((lfht_word)node & LFHT_ADDRESS) != (lfht_word)node) {
        ga_fail(GA_ERR_MEMORY,
                "lfht: the heap gave a node at %p: expected a multiple of 16 below 2^58", node);
        ga_free(map->heap, node);
        return NULL;
    }
    if (linked) {
        *(lfht_word *)((char *)node + size) = 0;
    }
    return node;
}

lfht_hash_node *ga_lfht_alloc_hash_node(ga_lfht *map, lfht_hash_node *parent, uint32_t level,
                                        uint32_t used, uint32_t bits)
{
    lfht_hash_node *node = ga_lfht_alloc_node(map, sizeof *node + ((size_t)8 << bits));
    if (node) {
        node->parent = parent;
        node->count = 1;
        node->level = level;
        node->used = (uint16_t)used;
        node->bits = (uint16_t)bits;
        for (uint32_t i = 0; i < 1u << bits; i++) {
            node->buckets[i] = lfht_empty_bucket(node) | LFHT_FRESH;
        }
    }
    return node;
}

void ga_lfht_add_garbage(lfht_shard *shard, lfht_word word)
{
    lfht_word *link = lfht_garbage_link(word), birth_level = *link & LFHT_LEVEL;
    /* relaxed: only the thread that takes over the list follows it */
    lfht_word first = __atomic_load_n(&shard->garbage, __ATOMIC_RELAXED);
    do {
        *link = first | birth_level;
        /* LG1: release. Pairs with LG2 (hhl.c), and with the caller's synchronisation before
         * ga_lfht_close(). */
    } while (!__atomic_compare_exchange_n(&shard->garbage, &first, word, true, __ATOMIC_RELEASE,
                                          __ATOMIC_RELAXED));
}

lfht_shard *ga_lfht_own_shard(ga_lfht *map)
{
    static uint32_t threads;
    static _Thread_local uint32_t own;
    if (!own) {
        own = __atomic_add_fetch(&threads, 1, __ATOMIC_RELAXED); /* relaxed: a unique number */
    }
    return &map->shards[own % LFHT_SHARDS];
}

/* ---- open ----------------------------------------------------------------------------------- */

static ga_status check_range(const char *option, uint32_t value, uint32_t max)
{
    return value <= max ? GA_OK
                        : ga_fail(GA_ERR_ARGUMENT, "lfht: %s=%u: expected 1 to %u, or 0", option,
                                  value, max);
}

static ga_status check_chain(uint32_t chain, const lfht_variant *variant)
{
    return chain <= variant->chain_max
               ? GA_OK
               : ga_fail(GA_ERR_ARGUMENT,
                         "lfht: chain=%u with %s: expected 1 to %u, or 0: a line has no more",
                         chain, variant->name, variant->chain_max);
}

static ga_status check_options(const ga_lfht_options *o)
{
    if (o->options_size != sizeof *o) {
        return ga_fail(GA_ERR_ARGUMENT, "lfht: options_size=%u: expected %zu", o->options_size,
                       sizeof *o);
    }
    if (o->flags & ~(uint32_t)(GA_LFHT_COUNT | GA_LFHT_SHRINK | GA_LFHT_CHECK)) {
        return ga_fail(GA_ERR_ARGUMENT,
                       "lfht: flags=0x%x: expected any of GA_LFHT_COUNT, _SHRINK, _CHECK, or none",
                       o->flags);
    }
    if ((unsigned)o->variant >= GA_LFHT_VARIANT_COUNT) {
        return ga_fail(GA_ERR_ARGUMENT, "lfht: variant=%d: expected 0 to %d", (int)o->variant,
                       GA_LFHT_VARIANT_COUNT - 1);
    }
    if (o->flags & GA_LFHT_SHRINK && !variants[o->variant]->shrinks) {
        return ga_fail(
            GA_ERR_ARGUMENT,
            "lfht: %s with GA_LFHT_SHRINK: its hash nodes stay; expected FHPA, FHP, FNF, "
            "CNF or INLINE",
            variants[o->variant]->name);
    }
    if (o->heap && ga_heap_place(o->heap) != GA_PLACE_HOST) {
        return ga_fail(GA_ERR_PLACE, "lfht: a heap for the %s: expected one for the host",
                       ga_place_text(ga_heap_place(o->heap)));
    }
    ga_status status = check_range("chunk", o->chunk, LFHT_CHUNK_MAX);
    status = status ? status : check_range("chain", o->chain, LFHT_CHAIN_MAX);
    status = status ? status : check_chain(o->chain, variants[o->variant]);
    status = status ? status : check_range("root", o->root, ROOT_BITS_MAX);
    return status ? status : check_range("batch", o->batch, GA_DOMAIN_BATCH_MAX);
}

static uint32_t root_bits_for(const lfht_variant *variant, uint64_t keys)
{
    uint32_t bits = ROOT_BITS;
    while (bits < ROOT_BITS_MAX && keys >> bits >= variant->keys_per_bucket) {
        bits++;
    }
    return bits;
}

/* Fill the record from the options. */
static void set_options(ga_lfht *map, const ga_lfht_options *o)
{
    map->variant = variants[o->variant];
    map->heap = o->heap;
    map->hash = o->hash;
    map->equal = o->equal;
    map->context = o->context;
    map->chunk = o->chunk ? o->chunk : map->variant->chunk;
    map->chain = o->chain ? o->chain : map->variant->chain;
    map->leaf_slots = map->chain + 1;
    map->root_bits = o->root ? o->root : root_bits_for(map->variant, o->expected);
    map->expected_per_bucket = o->expected >> map->root_bits;
    map->batch = o->batch ? o->batch : RETIRE_BATCH;
    map->counting = o->flags & GA_LFHT_COUNT;
    map->simple = !o->hash && !o->equal && !map->counting;
    map->checked = o->flags & GA_LFHT_CHECK;
}

/* Hazard slots of a thread. */
static uint32_t slots_per_thread(const ga_lfht *map)
{
    if (map->variant->slots) {
        return map->variant->slots;
    }
    return map->variant->protection == LFHT_HAZARD_PAIRS
               ? LFHT_PAIR_SLOTS * (1 + LFHT_BATCH_WIDTH)
               : LFHT_SLOT_LEAVES + map->leaf_slots + LFHT_BATCH_WIDTH * LFHT_CURSOR_SLOTS;
}

static ga_status open_domain(ga_lfht *map)
{
    ga_domain_options options = {.options_size = sizeof options,
                                 .flags = map->variant->seq_cst ? GA_DOMAIN_SEQ_CST : 0,
                                 .slots = slots_per_thread(map),
                                 .batch = map->batch,
                                 .batch_bytes = map->variant->batch_bytes};
    return map->variant->protection ? ga_domain_open(&map->domain, &options) : GA_OK;
}

static ga_status open_parts(ga_lfht *map)
{
    ga_status status = GA_OK;
    if (!map->heap) {
        map->own_heap = true;
        status = ga_heap_open(&map->heap, GA_PLACE_HOST, 0, NULL);
    }
    status = status ? status : open_domain(map);
    return status ? status : map->variant->make_root(map, map->root_bits);
}

static void free_map(ga_lfht *map)
{
    if (map->own_heap) {
        ga_heap_close(map->heap);
    }
    ga_libc.free(map);
}

/* Keep the record of a map with GA_LFHT_CHECK, so that later calls can detect that the map is
 * closed. */
static void keep_closed_record(ga_lfht *map)
{
    static ga_lfht *closed; /* a list, so that leak checkers find the records */
    if (map->own_heap) {
        ga_heap_close(map->heap);
    }
    /* relaxed: no thread follows the list */
    map->next_closed = __atomic_load_n(&closed, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(&closed, &map->next_closed, map, true, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED)) {
    }
    __atomic_store_n(&map->closed, true, __ATOMIC_RELAXED); /* relaxed: no thread is in a call */
}

ga_status ga_lfht_make_root(ga_lfht *map, uint32_t bits)
{
    map->root = ga_lfht_alloc_hash_node(map, NULL, 0, 0, bits);
    return map->root ? GA_OK : GA_ERR_MEMORY;
}

ga_status ga_lfht_open(ga_lfht **out, const ga_lfht_options *options)
{
    static const ga_lfht_options defaults = {.options_size = sizeof defaults};
    if (!out) {
        return ga_fail(GA_ERR_ARGUMENT, "lfht: no place for the map: expected a pointer");
    }
    *out = NULL;
    options = options ? options : &defaults;
    ga_status status = check_options(options);
    if (status != GA_OK) {
        return status;
    }
    ga_lfht *map = ga_libc.memalign(LFHT_SHARD_ALIGN, sizeof *map);
    if (!map) {
        return ga_fail(GA_ERR_MEMORY, "lfht: no memory for the map's record");
    }
    *map = (ga_lfht){0};
    set_options(map, options);
    status = open_parts(map);
    if (status != GA_OK) {
        ga_domain_close(map->domain);
        free_map(map);
        return status;
    }
    *out = map;
    return GA_OK;
}

/* relaxed: a thread that uses a closed map has no order to rely on */
static bool is_closed(const ga_lfht *map)
{
    return __atomic_load_n(&map->closed, __ATOMIC_RELAXED);
}

static __attribute__((noinline, cold)) ga_status refuse_map(const ga_lfht *map)
{
    return ga_fail(GA_ERR_ARGUMENT, "lfht: %s: expected one that is open",
                   map ? "the map is closed" : "no map");
}

static inline ga_status check_map(const ga_lfht *map)
{
    return map && !is_closed(map) ? GA_OK : refuse_map(map);
}

/* ---- close ---------------------------------------------------------------------------------- */

static void free_hash_node(ga_lfht *map, lfht_hash_node *node);

/* Free everything that a bucket leads to. No expansion is in progress. */
static void free_bucket(ga_lfht *map, lfht_hash_node *node, lfht_word word)
{
    while (lfht_kind(word) == LFHT_LEAF) {
        lfht_leaf *leaf = lfht_pointer(word);
        word = leaf->next;
        ga_free(map->heap, leaf);
    }
    if (lfht_pointer(word) == node || lfht_is_frozen(word)) {
        return;
    }
    if (lfht_kind(word) != LFHT_HASH) { /* a thread ended inside a compression */
        lfht_freeze_node *freeze = lfht_pointer(word);
        word = lfht_word_to(freeze->node, LFHT_HASH);
        ga_free(map->heap, freeze);
    }
    free_hash_node(map, lfht_pointer(word));
}

static void free_hash_node(ga_lfht *map, lfht_hash_node *node)
{
    for (uint32_t i = 0; i < 1u << node->bits; i++) {
        free_bucket(map, node, node->buckets[i]);
    }
    ga_free(map->heap, node);
}

void ga_lfht_clear_root(ga_lfht *map)
{
    for (uint32_t i = 0; i < 1u << map->root->bits; i++) {
        free_bucket(map, map->root, map->root->buckets[i]);
        map->root->buckets[i] = lfht_empty_bucket(map->root);
    }
}

static void free_garbage(ga_lfht *map, lfht_word garbage)
{
    while (garbage) {
        void *node = lfht_pointer(garbage);
        garbage = *lfht_garbage_link(garbage) & ~LFHT_LEVEL;
        ga_free(map->heap, node);
    }
}

ga_status ga_lfht_close(ga_lfht *map)
{
    if (!map) {
        return GA_OK;
    }
    ga_status status = check_map(map);
    status = status ? status : map->variant->each(map, NULL, NULL);
    if (status != GA_OK) {
        return status;
    }
    status = ga_domain_close(map->domain);
    if (status != GA_OK) {
        return status;
    }
    map->variant->clear_root(map);
    ga_free(map->heap, map->root);
    ga_free(map->heap, map->root_words);
    for (uint32_t i = 0; i < LFHT_SHARDS; i++) {
        free_garbage(map, map->shards[i].garbage);
    }
    map->checked ? keep_closed_record(map) : free_map(map);
    return GA_OK;
}

/* ---- calls ---------------------------------------------------------------------------------- */

static ga_status put(ga_lfht *map, lfht_change_kind kind, uint64_t key, uint64_t value,
                     uint64_t expected, ga_lfht_found *was)
{
    lfht_change change = {kind, key, value, expected};
    ga_status status = check_map(map);
    return status ? status : map->variant->put(map, &change, was);
}

ga_status ga_lfht_insert(ga_lfht *map, uint64_t key, uint64_t value, ga_lfht_found *was)
{
    return put(map, LFHT_INSERT, key, value, 0, was);
}

ga_status ga_lfht_upsert(ga_lfht *map, uint64_t key, uint64_t value, ga_lfht_found *was)
{
    return put(map, LFHT_UPSERT, key, value, 0, was);
}

ga_status ga_lfht_replace(ga_lfht *map, uint64_t key, uint64_t value, ga_lfht_found *was)
{
    return put(map, LFHT_REPLACE, key, value, 0, was);
}

ga_status ga_lfht_compare_replace(ga_lfht *map, uint64_t key, uint64_t expected, uint64_t value,
                                  ga_lfht_found *was)
{
    return put(map, LFHT_COMPARE, key, value, expected, was);
}

ga_status ga_lfht_remove(ga_lfht *map, uint64_t key, ga_lfht_found *was)
{
    ga_status status = check_map(map);
    return status ? status : map->variant->remove(map, key, was);
}

static __attribute__((noinline, cold)) ga_status refuse_no_result(void)
{
    return ga_fail(GA_ERR_ARGUMENT, "lfht: no place for what is found: expected a pointer");
}

ga_status ga_lfht_lookup(ga_lfht *map, uint64_t key, ga_lfht_found *found)
{
    ga_status status = check_map(map);
    if (status != GA_OK) {
        return status;
    }
    return found ? map->variant->lookup(map, key, found) : refuse_no_result();
}

static ga_status check_array(const char *content, const void *array, size_t n)
{
    return array || n == 0
               ? GA_OK
               : ga_fail(GA_ERR_ARGUMENT, "lfht: no array of %s for %zu keys: expected a pointer",
                         content, n);
}

ga_status ga_lfht_lookup_batch(ga_lfht *map, const uint64_t *keys, size_t n, ga_lfht_found *found)
{
    ga_status status = check_map(map);
    status = status ? status : check_array("keys", keys, n);
    status = status ? status : check_array("answers", found, n);
    return status ? status : map->variant->lookup_batch(map, keys, n, found);
}

ga_status ga_lfht_insert_batch(ga_lfht *map, const uint64_t *keys, const uint64_t *values, size_t n,
                               ga_lfht_found *was, size_t *done)
{
    size_t own = 0;
    ga_status status = check_map(map);
    done = done ? done : &own;
    *done = 0;
    status = status ? status : check_array("keys", keys, n);
    status = status ? status : check_array("values", values, n);
    return status ? status : map->variant->insert_batch(map, keys, values, n, was, done);
}

static ga_status check_ops(const ga_lfht_call *calls, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (calls[i].op > GA_LFHT_REMOVE) {
            return ga_fail(GA_ERR_ARGUMENT, "lfht: call %zu has op=%u: expected 0 to %d", i,
                           calls[i].op, (int)GA_LFHT_REMOVE);
        }
    }
    return GA_OK;
}

ga_status ga_lfht_batch(ga_lfht *map, ga_lfht_call *calls, size_t n, size_t *done)
{
    size_t own = 0;
    ga_status status = check_map(map);
    done = done ? done : &own;
    *done = 0;
    status = status ? status : check_array("calls", calls, n);
    status = status ? status : check_ops(calls, n);
    return status ? status : map->variant->do_batch(map, calls, n, done);
}

/* Build into an empty map. First finishes the operations of threads that ended inside a call, and
 * frees the hash nodes that are left. */
static ga_status build_empty_map(ga_lfht *map, const uint64_t *keys, const uint64_t *values,
                                 size_t n)
{
    if (ga_lfht_size(map) > 0) {
        return ga_fail(GA_ERR_ARGUMENT, "lfht: build: %llu keys in the map: expected none",
                       (unsigned long long)ga_lfht_size(map));
    }
    ga_status status = map->variant->each(map, NULL, NULL);
    if (status != GA_OK) {
        return status;
    }
    map->variant->clear_root(map);
    status = ga_lfht_build_root(map, keys, values, n);
    if (status != GA_OK) {
        map->variant->clear_root(map);
    }
    return status;
}

ga_status ga_lfht_build(ga_lfht *map, const uint64_t *keys, const uint64_t *values, size_t n)
{
    ga_status status = check_map(map);
    status = status ? status : check_array("keys", keys, n);
    status = status ? status : check_array("values", values, n);
    return status || n == 0 ? status : build_empty_map(map, keys, values, n);
}

ga_status ga_lfht_each(ga_lfht *map, ga_lfht_visit *visit, void *context)
{
    ga_status status = check_map(map);
    if (status == GA_OK && !visit) {
        status = ga_fail(GA_ERR_ARGUMENT, "lfht: no function to call: expected a pointer");
    }
    return status ? status : map->variant->each(map, visit, context);
}

ga_status ga_lfht_drain(ga_lfht *map)
{
    ga_status status = check_map(map);
    if (status != GA_OK || map->variant->protection != LFHT_HAZARD_PAIRS) {
        return status || !map->domain ? status : ga_domain_drain(map->domain);
    }
    return ga_lfht_hhl_drain(map)
               ? GA_OK
               : ga_fail(GA_ERR_UNSUPPORTED, "lfht: the kernel refused a membarrier; expected what "
                                             "it had granted before");
}

/* ---- statistics ----------------------------------------------------------------------------- */

static uint64_t read_count(const uint64_t *count)
{
    return __atomic_load_n(count, __ATOMIC_RELAXED); /* relaxed: only a sum */
}

uint64_t ga_lfht_size(const ga_lfht *map)
{
    uint64_t inserted = 0, removed = 0;
    map = map && is_closed(map) ? NULL : map;
    for (uint32_t i = 0; map && i < LFHT_SHARDS; i++) {
        removed += read_count(&map->shards[i].removed);
    }
    for (uint32_t i = 0; map && i < LFHT_SHARDS; i++) {
        inserted += read_count(&map->shards[i].inserted);
    }
    return inserted > removed ? inserted - removed : 0;
}

static void add_shard(ga_lfht_stats *out, const lfht_shard *shard)
{
    uint64_t depth = read_count(&shard->depth);
    out->expansions += read_count(&shard->expansions);
    out->compressions += read_count(&shard->compressions);
    out->aborted += read_count(&shard->aborted);
    out->retries += read_count(&shard->retries);
    out->lookups += read_count(&shard->lookups);
    out->hops += read_count(&shard->hops);
    out->freed += read_count(&shard->freed);
    out->retired += read_count(&shard->retired);
    out->depth = out->depth > depth ? out->depth : depth;
}

void ga_lfht_get_stats(const ga_lfht *map, ga_lfht_stats *out)
{
    ga_domain_stats domain = {0};
    if (!out) {
        return;
    }
    *out = (ga_lfht_stats){0};
    if (!map || is_closed(map)) {
        return;
    }
    for (uint32_t i = 0; i < LFHT_SHARDS; i++) {
        add_shard(out, &map->shards[i]);
    }
    ga_domain_get_stats(map->domain, &domain);
    out->size = ga_lfht_size(map);
    if (map->variant->protection == LFHT_HAZARD_POINTERS) {
        out->retired = domain.retired;
        out->freed = domain.freed;
        out->bound = domain.bound;
    }
}
