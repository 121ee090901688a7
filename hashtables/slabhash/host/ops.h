/* SPDX-License-Identifier: MIT
 *
 * The algorithm compiled for host threads. Included by ops.c and ops_avx2.c, which define OPS_NAME,
 * the table of function tables; all functions here are called through it.
 *
 *     ga_slabhash_search (single.c)      likewise insert, delete
 *       ops_search_fast       decides at the key's home slab, in unique and multi tables alike:
 *                               FOUND   the home has the key (map64: with a value)
 *                               ABSENT  the home does not have it, and the path ends there
 *                                       (ops_ends_at_home: end bit still set, or no chain)
 *         ops_search_slow     all other cases, from the home again: the path goes on, the key's
 *                             slot has no pair, or the caller has a hash of its own.
 *                             ga_slabhash_find()
 *           ga_slabhash_search_slow   invalid keys: the error (single.c)
 */
#include "table.h"

enum {
    OPS_PREFETCH_AHEAD = 12,   /* requests of a batch whose home slabs are prefetched */
    OPS_SEARCHES_PER_PIN = 512 /* searches of a batch for which one pin holds */
};

/* Each thread begins to claim slabs at another word. */
static uint32_t ops_thread_number(void)
{
    static uint32_t threads;
    static _Thread_local uint32_t own;
    if (!own) {
        own = __atomic_add_fetch(&threads, 1, __ATOMIC_RELAXED); /* relaxed: only must be unique */
    }
    return own * GA_SLAB_ROW_WORDS;
}

GA_SIMT void ops_release_units(const ga_slabhash *table, ga_slab_claimed *claimed)
{
    ga_slabhash_claim_end(table->view, SLABHASH_TILE, claimed);
}

/* ga_slabhash_do() of one kind, outlined because it is long. */
typedef ga_slabhash_answer ops_do(const ga_slabhash *table, ga_slab_claimed *claimed, uint64_t hash,
                                  const ga_slabhash_operation *operation);

GA_SIMT ga_slabhash_answer ops_run(ops_do *perform, const ga_slabhash *table,
                                   const ga_slabhash_operation *operation)
{
    ga_slab_claimed claimed = ga_slabhash_claim_begin(0);
    if (ga_slabhash_puts(operation->op)) {
        claimed.word = ops_thread_number();
    }
    ga_slabhash_answer answer =
        perform(table, &claimed, slabhash_hash_of(table, operation->key), operation);
    ops_release_units(table, &claimed);
    return answer;
}

/* ops_search_slow() of one kind, outlined so that the fast path needs only caller-saved
 * registers. */
typedef ga_status ops_slow_search(ga_slabhash *table, uint64_t key, ga_slabhash_found *found);

GA_SIMT ga_status ops_found(ga_slabhash_found *found, bool is, uint64_t value)
{
    found->found = is;
    found->value = value;
    return GA_OK;
}

GA_SIMT ga_status ops_search_slow(uint32_t kind, ga_slabhash *table, uint64_t key,
                                  ga_slabhash_found *found)
{
    if (!ga_slabhash_allowed(kind, GA_SLABHASH_SEARCH, key, 0)) {
        return ga_slabhash_search_slow(table, key, found);
    }
    ga_slabhash_walk walk = ga_slabhash_walk_path(table->view, slabhash_hash_of(table, key));
    ga_slabhash_answer answer = ga_slabhash_find(kind, table->view, SLABHASH_TILE, walk, key);
    return ops_found(found, answer.result == GA_SLABHASH_FOUND, answer.value);
}

/* True if the path of the hash ends at its loaded home. */
GA_SIMT bool ops_ends_at_home(ga_slabhash_view table, ga_row row, uint64_t hash)
{
    ga_slabhash_walk walk = ga_slabhash_walk_path(table, hash);
    return walk.buckets_left
               ? (ga_row_get(SLABHASH_TILE, row, GA_SLABHASH_END_BITS) & walk.class_bit) != 0
               : ga_row_get(SLABHASH_TILE, row, GA_SLABHASH_NEXT) == GA_SLABHASH_NO_SLAB;
}

/* A key's loaded home, for the fast paths. If the home does not decide, the slow path starts
 * again with the whole path. */
typedef struct ops_home {
    uint64_t key, hash;
    uint32_t *slab;
    ga_row row;
    uint32_t matches; /* slots whose key matched */
} ops_home;

/* Not for the caller's hash: a call would need callee-saved registers. */
GA_SIMT ops_home ops_load_home(uint32_t kind, const ga_slabhash *table, uint64_t key)
{
    ops_home home;
    /* in 32-bit modes the key is known to be narrow, and the hash of 32 bits is shorter */
    home.key = GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP64 ? key : (uint32_t)key;
    home.hash = ga_slabhash_seeded(table->view, home.key);
    home.slab = ga_slabhash_bucket_row(table->view, ga_slabhash_bucket(table->view, home.hash));
    home.row = ga_slabhash_load_slab(kind, SLABHASH_TILE, home.slab);
    home.matches = ga_slabhash_match_key(kind, SLABHASH_TILE, home.row, home.key);
    return home;
}

/* The key's slot and value; GA_NONE if the home has no pair of the key. */
GA_SIMT uint32_t ops_read_home(uint32_t kind, const ops_home *home, uint64_t *value)
{
    return !home->matches ? GA_NONE
                          : ga_slabhash_read_match(kind, SLABHASH_TILE, home->row, home->slab,
                                                   home->matches, home->key, value);
}

/* The fast path of SEARCH: most searches end at the home. */
GA_SIMT ga_status ops_search_fast(uint32_t kind, ops_slow_search *slow, ga_slabhash *table,
                                  uint64_t key, ga_slabhash_found *found)
{
    uint64_t value;
    if (key > ga_slabhash_key_max(kind) || table->hash) {
        return slow(table, key, found);
    }
    ops_home home = ops_load_home(kind, table, key);
    if (ops_read_home(kind, &home, &value) != GA_NONE) {
        return ops_found(found, true, value);
    }
    if (!home.matches && ops_ends_at_home(table->view, home.row, home.hash)) {
        return ops_found(found, false, 0);
    }
    return slow(table, key, found);
}

/* The fast path of INSERT: the first empty slot, if the path ends at the home. Same as
 * ga_slabhash_put() in tables that are not ordered. */
GA_SIMT bool ops_insert_fast(uint32_t kind, const ga_slabhash *table, uint64_t key, uint64_t value,
                             ga_slabhash_found *was)
{
    uint64_t there = 0;
    if (table->hash || table->view.ordered ||
        !ga_slabhash_allowed(kind, GA_SLABHASH_INSERT, key, value)) {
        return false;
    }
    ops_home home = ops_load_home(kind, table, key);
    bool found = ops_read_home(kind, &home, &there) != GA_NONE;
    if (!found) {
        uint32_t empty = ga_slabhash_match_key(kind, SLABHASH_TILE, home.row, GA_SLABHASH_EMPTY);
        if (home.matches || !empty || !ops_ends_at_home(table->view, home.row, home.hash) ||
            !ga_slabhash_fill(kind, SLABHASH_TILE, home.slab + ga_bits_lowest(empty), key, value)) {
            return false;
        }
    }
    if (was) {
        (void)ops_found(was, found, found ? there : 0);
    }
    return true;
}

GA_SIMT bool ops_erase_fast(uint32_t kind, const ga_slabhash *table, uint64_t key,
                            ga_slabhash_found *was)
{
    uint64_t there;
    if (key > ga_slabhash_key_max(kind) || table->hash) {
        return false;
    }
    ops_home home = ops_load_home(kind, table, key);
    uint32_t slot = ops_read_home(kind, &home, &there);
    bool found = slot != GA_NONE;
    if (found ? !ga_slabhash_erase(kind, SLABHASH_TILE, home.slab + slot, key, there)
              : home.matches || !ops_ends_at_home(table->view, home.row, home.hash)) {
        return false;
    }
    if (was) {
        (void)ops_found(was, found, found ? there : 0);
    }
    return true;
}

/* Fast path, else slow path. Multimaps have only the slow one. */
GA_SIMT ga_status ops_insert(uint32_t kind, ga_slabhash *table, uint64_t key, uint64_t value,
                             ga_slabhash_found *was)
{
    return !GA_SLABHASH_IS_MULTI(kind) && ops_insert_fast(kind, table, key, value, was)
               ? GA_OK
               : ga_slabhash_insert_slow(table, key, value, was);
}

GA_SIMT ga_status ops_erase(uint32_t kind, ga_slabhash *table, uint64_t key, ga_slabhash_found *was)
{
    return !GA_SLABHASH_IS_MULTI(kind) && ops_erase_fast(kind, table, key, was)
               ? GA_OK
               : ga_slabhash_delete_slow(table, key, was);
}

GA_SIMT uint64_t ops_find_all(uint32_t kind, const ga_slabhash *table, uint64_t key,
                              uint64_t *values, uint64_t room)
{
    ga_slabhash_walk walk = ga_slabhash_walk_path(table->view, slabhash_hash_of(table, key));
    return ga_slabhash_find_all(kind, table->view, SLABHASH_TILE, walk, key, values, room);
}

GA_SIMT bool ops_remove_all(uint32_t kind, const ga_slabhash *table, uint64_t key, uint64_t *count)
{
    ga_slabhash_walk walk = ga_slabhash_walk_path(table->view, slabhash_hash_of(table, key));
    (void)ga_slabhash_remove_each(kind, table->view, SLABHASH_TILE, walk, key, count);
    return true;
}

/* ---- batches -------------------------------------------------------------------------------- */

GA_SIMT uint64_t ops_element(uint32_t kind, const void *array, uint64_t i)
{
    return GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP64 ? ((const uint64_t *)array)[i]
                                                       : ((const uint32_t *)array)[i];
}

GA_SIMT void ops_write_answer(uint32_t kind, const ga_slabhash_batch *batch, uint64_t i,
                              ga_slabhash_answer answer)
{
    if (batch->results) {
        batch->results[i] = (uint8_t)answer.result;
    }
    if (batch->found) {
        ga_slabhash_store_element(kind, batch->found, i, answer.value);
    }
}

/* Hashes requests and prefetches their home slabs, from `ahead` to `end`. Returns `end`. */
GA_SIMT uint64_t ops_prefetch(uint32_t kind, const ga_slabhash *table, ga_slabhash_view view,
                              const ga_slabhash_batch *batch, uint64_t ahead, uint64_t end,
                              uint64_t *hashes)
{
    for (; ahead < end; ahead++) {
        uint64_t hash = slabhash_hash_of(table, ops_element(kind, batch->keys, ahead));
        hashes[ahead % OPS_PREFETCH_AHEAD] = hash;
        ga_row_prefetch(SLABHASH_TILE, ga_slabhash_walk_path(view, hash).row);
    }
    return ahead;
}

GA_SIMT ga_slabhash_operation ops_operation(uint32_t kind, const ga_slabhash_batch *batch,
                                            uint64_t i)
{
    return (ga_slabhash_operation){.key = ops_element(kind, batch->keys, i),
                                   .value = batch->values ? ops_element(kind, batch->values, i) : 0,
                                   .op = batch->ops ? batch->ops[i] : (uint32_t)batch->op,
                                   .how = batch->how};
}

/* Stores and counts request i's answer. False if it must be repeated with more slabs; at the
 * limit of a table that grows more slabs would not help, so it counts as FULL. */
GA_SIMT bool ops_record_answer(uint32_t kind, const ga_slabhash_batch *batch, uint64_t i,
                               ga_slabhash_answer answer, uint64_t *counts)
{
    bool full = answer.result == GA_SLABHASH_FULL;
    if (GA_SLABHASH_IS_GROWING(kind) && full && answer.value == GA_SLABHASH_AT_LIMIT) {
        answer.value = 0;
        full = false;
    }
    ops_write_answer(kind, batch, i, answer);
    if (full) {
        return false;
    }
    counts[answer.result]++;
    return true;
}

GA_SIMT uint64_t ops_batch(uint32_t kind, ops_do *perform, const ga_slabhash *table,
                           const ga_slabhash_batch *batch, slabhash_range range, uint64_t *counts)
{
    uint64_t hashes[OPS_PREFETCH_AHEAD];
    ga_slab_claimed claimed = ga_slabhash_claim_begin(ops_thread_number());
    uint64_t i = range.first;
    for (uint64_t ahead = i; i < range.end; i++) {
        uint64_t end = range.end - i < OPS_PREFETCH_AHEAD ? range.end : i + OPS_PREFETCH_AHEAD;
        ahead = ops_prefetch(kind, table, table->view, batch, ahead, end, hashes);
        ga_slabhash_operation operation = ops_operation(kind, batch, i);
        ga_slabhash_answer answer =
            perform(table, &claimed, hashes[i % OPS_PREFETCH_AHEAD], &operation);
        if (!ops_record_answer(kind, batch, i, answer, counts)) {
            break;
        }
    }
    ops_release_units(table, &claimed);
    return i;
}

/* A batch of searches. In tables that grow one pin holds for all of them: a search may miss keys
 * that were inserted since. */
GA_SIMT uint64_t ops_searches(uint32_t kind, const ga_slabhash *table,
                              const ga_slabhash_shift *shift, const ga_slabhash_batch *batch,
                              slabhash_range range, uint64_t *counts)
{
    uint64_t hashes[OPS_PREFETCH_AHEAD];
    ga_slabhash_view view = !shift ? table->view : shift->to.rows ? shift->to : shift->from;
    uint64_t i = range.first;
    for (uint64_t ahead = i; i < range.end; i++) {
        uint64_t end = range.end - i < OPS_PREFETCH_AHEAD ? range.end : i + OPS_PREFETCH_AHEAD;
        ahead = ops_prefetch(kind, table, view, batch, ahead, end, hashes);
        uint64_t key = ops_element(kind, batch->keys, i);
        uint64_t hash = hashes[i % OPS_PREFETCH_AHEAD];
        ga_slabhash_answer answer = ga_slabhash_answer_of(GA_SLABHASH_REFUSED, 0);
        if (ga_slabhash_allowed(kind, GA_SLABHASH_SEARCH, key, 0)) {
            answer = GA_SLABHASH_IS_GROWING(kind)
                         ? ga_slabhash_seek(kind, *shift, SLABHASH_TILE, hash, key)
                         : ga_slabhash_find(kind, view, SLABHASH_TILE,
                                            ga_slabhash_walk_path(view, hash), key);
        }
        ops_write_answer(kind, batch, i, answer);
        counts[answer.result]++;
    }
    return i;
}

/* ---- the whole table ------------------------------------------------------------------------ */

GA_SIMT void ops_count(uint32_t kind, const ga_slabhash *table, ga_slabhash_census *census)
{
    for (uint32_t bucket = 0; bucket < table->view.buckets; bucket++) {
        ga_slabhash_count_bucket(kind, table->view, SLABHASH_TILE, bucket, census);
    }
}

/* A visit. With `shift` it visits one pending bucket, `goal`, of the next version: only those
 * pairs of the older bucket that belong there. */
typedef struct ops_round {
    ga_slabhash_visit *visit;
    void *context;
    const ga_slabhash_shift *shift;
    uint32_t goal;
} ops_round;

GA_SIMT bool ops_each_bucket(uint32_t kind, ga_slabhash_view view, uint32_t bucket,
                             const ops_round *round)
{
    ga_slabhash_walk walk = ga_slabhash_walk_chain(view, bucket);
    ga_row row;
    do {
        row = ga_slabhash_load_slab(kind, SLABHASH_TILE, walk.row);
        uint32_t live = ga_slabhash_live_slots(kind, SLABHASH_TILE, row);
        for (; live; live &= live - 1u) {
            uint32_t slot = ga_bits_lowest(live);
            uint64_t key =
                ga_slabhash_unfrozen_key(kind, ga_slabhash_key_at(kind, SLABHASH_TILE, row, slot));
            uint64_t value = ga_slabhash_unfrozen_value(
                kind, ga_slabhash_value_at(kind, SLABHASH_TILE, row, slot));
            const ga_slabhash_shift *shift = round->shift;
            if (shift &&
                ga_slabhash_bucket(shift->to, ga_slabhash_rehash(*shift, key)) != round->goal) {
                continue;
            }
            ga_slabhash_acquire_slot(kind, walk.row + slot);
            if (!round->visit(round->context, key, value)) {
                return false;
            }
        }
    } while (ga_slabhash_walk_next(kind, view, SLABHASH_TILE, &walk, row, false));
    return true;
}

GA_SIMT bool ops_each(uint32_t kind, const ga_slabhash *table, ga_slabhash_visit *visit,
                      void *context)
{
    ops_round round = {.visit = visit, .context = context};
    for (uint32_t bucket = 0; bucket < table->view.buckets; bucket++) {
        if (!ops_each_bucket(kind, table->view, bucket, &round)) {
            return false;
        }
    }
    return true;
}

GA_SIMT void ops_copy(uint32_t kind, const ga_slabhash *table, void *keys, void *values,
                      uint64_t room, uint64_t *count)
{
    for (uint32_t bucket = 0; bucket < table->view.buckets; bucket++) {
        ga_slabhash_copy_bucket(kind, table->view, SLABHASH_TILE, bucket, keys, values, room,
                                count);
    }
}

GA_SIMT void ops_flush(uint32_t kind, const ga_slabhash *table)
{
    for (uint32_t bucket = 0; bucket < table->view.buckets; bucket++) {
        ga_slabhash_flush_bucket(kind, table->view, SLABHASH_TILE, bucket);
    }
}

/* ---- tables that grow ------------------------------------------------------------------------ */

/* ga_slabhash_do_growing() of one kind, outlined because it is long. */
typedef ga_slabhash_answer ops_do_growing(const ga_slabhash_shift *shift, ga_slab_claimed *claimed,
                                          uint64_t hash, const ga_slabhash_operation *operation,
                                          bool *opened);

/* One operation on the current versions; repeated if these change during the operation. */
GA_SIMT ga_slabhash_answer ops_run_pinned(ops_do_growing *perform, const ga_slabhash *table,
                                          ga_slab_claimed *claimed, uint64_t hash,
                                          const ga_slabhash_operation *operation)
{
    ga_slabhash_answer answer;
    do {
        slabhash_pin pin = ga_slabhash_pin(table);
        ga_slab_claimed before = *claimed;
        bool opened = false;
        answer = perform(&pin.shift, claimed, hash, operation, &opened);
        if (operation->op != GA_SLABHASH_SEARCH) {
            bool chained = !opened && answer.result == GA_SLABHASH_ABSENT &&
                           (before.word != claimed->word || before.units != claimed->units);
            ga_slabhash_tend(&pin, hash, opened, chained,
                             operation->op == GA_SLABHASH_DELETE &&
                                 answer.result == GA_SLABHASH_FOUND);
        }
        ga_slabhash_unpin(&pin);
    } while (answer.result == GA_SLABHASH_MOVES);
    return answer;
}

GA_SIMT ga_slabhash_answer ops_run_growing(ops_do_growing *perform, const ga_slabhash *table,
                                           const ga_slabhash_operation *operation)
{
    ga_slab_claimed claimed =
        ga_slabhash_claim_begin(operation->op == GA_SLABHASH_SEARCH ? 0 : ops_thread_number());
    uint64_t hash = slabhash_hash_of(table, operation->key);
    ga_slabhash_answer answer = ops_run_pinned(perform, table, &claimed, hash, operation);
    ops_release_units(table, &claimed);
    return answer;
}

GA_SIMT uint64_t ops_find_all_growing(uint32_t kind, const ga_slabhash *table, uint64_t key,
                                      uint64_t *values, uint64_t room)
{
    slabhash_pin pin = ga_slabhash_pin(table);
    uint64_t count = ga_slabhash_seek_all(kind, pin.shift, SLABHASH_TILE,
                                          slabhash_hash_of(table, key), key, values, room);
    ga_slabhash_unpin(&pin);
    return count;
}

GA_SIMT bool ops_remove_all_growing(uint32_t kind, const ga_slabhash *table, uint64_t key,
                                    uint64_t *count)
{
    ga_slab_claimed claimed = ga_slabhash_claim_begin(ops_thread_number());
    uint64_t hash = slabhash_hash_of(table, key);
    uint32_t result;
    do {
        slabhash_pin pin = ga_slabhash_pin(table);
        bool opened = false;
        result = ga_slabhash_remove_growing(kind, pin.shift, SLABHASH_TILE, &claimed, hash, key,
                                            count, &opened);
        ga_slabhash_tend(&pin, hash, opened, false, result == GA_SLABHASH_FOUND);
        ga_slabhash_unpin(&pin);
    } while (result == GA_SLABHASH_MOVES);
    ops_release_units(table, &claimed);
    return result != GA_SLABHASH_FULL;
}

/* Prefetches the home slabs of the range's requests, in the version in which they will be
 * searched. */
GA_SIMT void ops_prefetch_growing(uint32_t kind, const ga_slabhash *table,
                                  const ga_slabhash_batch *batch, slabhash_range range,
                                  uint64_t *hashes)
{
    slabhash_pin pin = ga_slabhash_pin(table);
    (void)ops_prefetch(kind, table, pin.next ? pin.shift.to : pin.shift.from, batch, range.first,
                       range.end, hashes);
    ga_slabhash_unpin(&pin);
}

GA_SIMT uint64_t ops_batch_growing(uint32_t kind, ops_do_growing *perform, const ga_slabhash *table,
                                   const ga_slabhash_batch *batch, slabhash_range range,
                                   uint64_t *counts)
{
    uint64_t hashes[OPS_PREFETCH_AHEAD];
    ga_slab_claimed claimed = ga_slabhash_claim_begin(ops_thread_number());
    uint64_t i = range.first;
    for (uint64_t ahead = i; i < range.end; i++) {
        if (i == ahead) {
            ahead = range.end - i < OPS_PREFETCH_AHEAD ? range.end : i + OPS_PREFETCH_AHEAD;
            ops_prefetch_growing(kind, table, batch, (slabhash_range){i, ahead}, hashes);
        }
        ga_slabhash_operation operation = ops_operation(kind, batch, i);
        ga_slabhash_answer answer =
            ops_run_pinned(perform, table, &claimed, hashes[i % OPS_PREFETCH_AHEAD], &operation);
        if (!ops_record_answer(kind, batch, i, answer, counts)) {
            break;
        }
    }
    ops_release_units(table, &claimed);
    return i;
}

/* A batch of searches, OPS_SEARCHES_PER_PIN with one pin. */
GA_SIMT uint64_t ops_searches_growing(uint32_t kind, const ga_slabhash *table,
                                      const ga_slabhash_batch *batch, slabhash_range range,
                                      uint64_t *counts)
{
    while (range.first < range.end) {
        slabhash_range some = range;
        slabhash_pin pin = ga_slabhash_pin(table);
        some.end = range.end - range.first < OPS_SEARCHES_PER_PIN
                       ? range.end
                       : range.first + OPS_SEARCHES_PER_PIN;
        range.first = ops_searches(kind, table, &pin.shift, batch, some, counts);
        ga_slabhash_unpin(&pin);
    }
    return range.first;
}

GA_SIMT bool ops_open(uint32_t kind, const slabhash_pin *pin, slabhash_range range)
{
    ga_slab_claimed claimed = ga_slabhash_claim_begin(ops_thread_number());
    uint32_t opened = 0;
    bool all = true;
    for (uint64_t bucket = range.first; bucket < range.end; bucket++) {
        uint32_t opening =
            ga_slabhash_shift_bucket(kind, pin->shift, SLABHASH_TILE, &claimed, (uint32_t)bucket);
        opened += opening == GA_SLABHASH_OPENED ? 1 : 0;
        all = all && opening != GA_SLABHASH_PENDING;
    }
    ops_release_units(pin->now->table, &claimed);
    slabhash_note_opened(pin, opened);
    return all;
}

GA_SIMT void ops_sample(uint32_t kind, const slabhash_version *version, slabhash_range range,
                        uint32_t step, ga_slabhash_census *census)
{
    for (uint64_t bucket = range.first; bucket < range.end; bucket += step) {
        ga_slabhash_count_bucket(kind, version->view, SLABHASH_TILE, (uint32_t)bucket, census);
    }
}

/* Pairs of a pending bucket of the next version are still in the older version. */
GA_SIMT bool ops_each_growing(uint32_t kind, const ga_slabhash *table, ga_slabhash_visit *visit,
                              void *context)
{
    slabhash_pin pin = ga_slabhash_stay(table);
    ga_slabhash_view newer = pin.next ? pin.shift.to : pin.shift.from;
    ops_round all = {.visit = visit, .context = context};
    ops_round some = {.visit = visit, .context = context, .shift = &pin.shift};
    bool goes_on = true;
    for (uint32_t bucket = 0; goes_on && bucket < newer.buckets; bucket++) {
        if (!pin.next ||
            ga_slabhash_is_open(kind, SLABHASH_TILE, ga_slabhash_bucket_row(newer, bucket))) {
            goes_on = ops_each_bucket(kind, newer, bucket, &all);
            continue;
        }
        ga_slabhash_sources sources = ga_slabhash_sources_of(pin.shift, bucket);
        some.goal = bucket;
        for (uint32_t i = sources.first; goes_on && i < sources.end; i++) {
            goes_on = ops_each_bucket(kind, pin.shift.from, i, &some);
        }
    }
    ga_slabhash_leave(&pin);
    return goes_on;
}

/* ---- instances for each kind ----------------------------------------------------------------- */

#define OPS_DEFINE(name, kind)                                                                     \
    static __attribute__((noinline))                                                               \
    ga_status name##_search_slow(ga_slabhash *table, uint64_t key, ga_slabhash_found *found)       \
    {                                                                                              \
        return ops_search_slow(kind, table, key, found);                                           \
    }                                                                                              \
    static ga_status name##_search(ga_slabhash *table, uint64_t key, ga_slabhash_found *found)     \
    {                                                                                              \
        return ops_search_fast(kind, name##_search_slow, table, key, found);                       \
    }                                                                                              \
    static __attribute__((noinline))                                                               \
    ga_slabhash_answer name##_do(const ga_slabhash *table, ga_slab_claimed *claimed,               \
                                 uint64_t hash, const ga_slabhash_operation *operation)            \
    {                                                                                              \
        return ga_slabhash_do(kind, table->view, SLABHASH_TILE, claimed, hash, *operation);        \
    }                                                                                              \
    static ga_status name##_insert(ga_slabhash *table, uint64_t key, uint64_t value,               \
                                   ga_slabhash_found *was)                                         \
    {                                                                                              \
        return ops_insert(kind, table, key, value, was);                                           \
    }                                                                                              \
    static ga_status name##_erase(ga_slabhash *table, uint64_t key, ga_slabhash_found *was)        \
    {                                                                                              \
        return ops_erase(kind, table, key, was);                                                   \
    }                                                                                              \
    static ga_slabhash_answer name##_run(const ga_slabhash *table,                                 \
                                         const ga_slabhash_operation *operation)                   \
    {                                                                                              \
        return ops_run(name##_do, table, operation);                                               \
    }                                                                                              \
    static uint64_t name##_find_all(const ga_slabhash *table, uint64_t key, uint64_t *values,      \
                                    uint64_t room)                                                 \
    {                                                                                              \
        return ops_find_all(kind, table, key, values, room);                                       \
    }                                                                                              \
    static bool name##_remove_all(const ga_slabhash *table, uint64_t key, uint64_t *count)         \
    {                                                                                              \
        return ops_remove_all(kind, table, key, count);                                            \
    }                                                                                              \
    static uint64_t name##_batch(const ga_slabhash *table, const ga_slabhash_batch *batch,         \
                                 slabhash_range range, uint64_t *counts)                           \
    {                                                                                              \
        return !batch->ops && batch->op == GA_SLABHASH_SEARCH                                      \
                   ? ops_searches(kind, table, NULL, batch, range, counts)                         \
                   : ops_batch(kind, name##_do, table, batch, range, counts);                      \
    }                                                                                              \
    static void name##_count(const ga_slabhash *table, ga_slabhash_census *census)                 \
    {                                                                                              \
        ops_count(kind, table, census);                                                            \
    }                                                                                              \
    static bool name##_each(const ga_slabhash *table, ga_slabhash_visit *visit, void *context)     \
    {                                                                                              \
        return ops_each(kind, table, visit, context);                                              \
    }                                                                                              \
    static void name##_copy(const ga_slabhash *table, void *keys, void *values, uint64_t room,     \
                            uint64_t *count)                                                       \
    {                                                                                              \
        ops_copy(kind, table, keys, values, room, count);                                          \
    }                                                                                              \
    static void name##_flush(const ga_slabhash *table)                                             \
    {                                                                                              \
        ops_flush(kind, table);                                                                    \
    }                                                                                              \
    static const slabhash_ops name = {.search = name##_search,                                     \
                                      .insert = name##_insert,                                     \
                                      .erase = name##_erase,                                       \
                                      .run = name##_run,                                           \
                                      .find_all = name##_find_all,                                 \
                                      .remove_all = name##_remove_all,                             \
                                      .batch = name##_batch,                                       \
                                      .count = name##_count,                                       \
                                      .each = name##_each,                                         \
                                      .copy = name##_copy,                                         \
                                      .flush = name##_flush};

#define OPS_DEFINE_GROWING(name, kind)                                                             \
    static __attribute__((noinline)) ga_slabhash_answer name##_do(                                 \
        const ga_slabhash_shift *shift, ga_slab_claimed *claimed, uint64_t hash,                   \
        const ga_slabhash_operation *operation, bool *opened)                                      \
    {                                                                                              \
        return ga_slabhash_do_growing(kind, *shift, SLABHASH_TILE, claimed, hash, *operation,      \
                                      opened);                                                     \
    }                                                                                              \
    static ga_slabhash_answer name##_run(const ga_slabhash *table,                                 \
                                         const ga_slabhash_operation *operation)                   \
    {                                                                                              \
        return ops_run_growing(name##_do, table, operation);                                       \
    }                                                                                              \
    static uint64_t name##_find_all(const ga_slabhash *table, uint64_t key, uint64_t *values,      \
                                    uint64_t room)                                                 \
    {                                                                                              \
        return ops_find_all_growing(kind, table, key, values, room);                               \
    }                                                                                              \
    static bool name##_remove_all(const ga_slabhash *table, uint64_t key, uint64_t *count)         \
    {                                                                                              \
        return ops_remove_all_growing(kind, table, key, count);                                    \
    }                                                                                              \
    static uint64_t name##_batch(const ga_slabhash *table, const ga_slabhash_batch *batch,         \
                                 slabhash_range range, uint64_t *counts)                           \
    {                                                                                              \
        return !batch->ops && batch->op == GA_SLABHASH_SEARCH                                      \
                   ? ops_searches_growing(kind, table, batch, range, counts)                       \
                   : ops_batch_growing(kind, name##_do, table, batch, range, counts);              \
    }                                                                                              \
    static bool name##_each(const ga_slabhash *table, ga_slabhash_visit *visit, void *context)     \
    {                                                                                              \
        return ops_each_growing(kind, table, visit, context);                                      \
    }                                                                                              \
    static bool name##_open(const slabhash_pin *pin, slabhash_range range)                         \
    {                                                                                              \
        return ops_open(kind, pin, range);                                                         \
    }                                                                                              \
    static void name##_sample(const slabhash_version *version, slabhash_range range,               \
                              uint32_t step, ga_slabhash_census *census)                           \
    {                                                                                              \
        ops_sample(kind, version, range, step, census);                                            \
    }                                                                                              \
    static const slabhash_ops name = {.search = ga_slabhash_search_slow,                           \
                                      .insert = ga_slabhash_insert_slow,                           \
                                      .erase = ga_slabhash_delete_slow,                            \
                                      .run = name##_run,                                           \
                                      .find_all = name##_find_all,                                 \
                                      .remove_all = name##_remove_all,                             \
                                      .batch = name##_batch,                                       \
                                      .each = name##_each,                                         \
                                      .open = name##_open,                                         \
                                      .sample = name##_sample};

OPS_DEFINE(set32, GA_SLABHASH_KIND(GA_SLABHASH_SET32, false))
OPS_DEFINE(map32, GA_SLABHASH_KIND(GA_SLABHASH_MAP32, false))
OPS_DEFINE(map64, GA_SLABHASH_KIND(GA_SLABHASH_MAP64, false))
OPS_DEFINE(multiset32, GA_SLABHASH_KIND(GA_SLABHASH_SET32, true))
OPS_DEFINE(multimap32, GA_SLABHASH_KIND(GA_SLABHASH_MAP32, true))
OPS_DEFINE(multimap64, GA_SLABHASH_KIND(GA_SLABHASH_MAP64, true))
OPS_DEFINE_GROWING(growing_set32, GA_SLABHASH_SET32 | GA_SLABHASH_GROWING)
OPS_DEFINE_GROWING(growing_map32, GA_SLABHASH_MAP32 | GA_SLABHASH_GROWING)
OPS_DEFINE_GROWING(growing_map64, GA_SLABHASH_MAP64 | GA_SLABHASH_GROWING)
OPS_DEFINE_GROWING(growing_multiset32,
                   GA_SLABHASH_KIND(GA_SLABHASH_SET32, true) | GA_SLABHASH_GROWING)
OPS_DEFINE_GROWING(growing_multimap32,
                   GA_SLABHASH_KIND(GA_SLABHASH_MAP32, true) | GA_SLABHASH_GROWING)
OPS_DEFINE_GROWING(growing_multimap64,
                   GA_SLABHASH_KIND(GA_SLABHASH_MAP64, true) | GA_SLABHASH_GROWING)

const slabhash_ops *const OPS_NAME[GA_SLABHASH_KINDS] = {
    &set32,
    &map32,
    &map64,
    NULL,
    &multiset32,
    &multimap32,
    &multimap64,
    NULL,
    &growing_set32,
    &growing_map32,
    &growing_map64,
    NULL,
    &growing_multiset32,
    &growing_multimap32,
    &growing_multimap64,
    NULL,
};
