/* SPDX-License-Identifier: MIT
 *
 * Batches: arguments are checked, and slabs are added when a batch needs some.
 */
#include "table.h"

enum {
    PREFETCH_AHEAD = 12 /* keys whose home slabs are prefetched */
};

/* True if any operation of the batch inserts or changes a pair. */
static bool puts_any(const ga_slabhash_batch *batch)
{
    if (!batch->ops) {
        return ga_slabhash_puts(batch->op);
    }
    for (uint64_t i = 0; i < batch->count; i++) {
        if (ga_slabhash_puts(batch->ops[i])) {
            return true;
        }
    }
    return false;
}

static ga_status check(const ga_slabhash *table, const ga_slabhash_batch *batch)
{
    ga_status status = ga_slabhash_check(table);
    if (status != GA_OK) {
        return status;
    }
    if (!batch) {
        return ga_fail(GA_ERR_ARGUMENT, "slabhash: no batch: expected a pointer");
    }
    if (batch->count && !batch->keys) {
        return ga_fail(GA_ERR_ARGUMENT, "slabhash: a batch of %llu without keys: expected an array",
                       (unsigned long long)batch->count);
    }
    if ((unsigned)batch->op >= GA_SLABHASH_OP_COUNT) {
        return ga_fail(GA_ERR_ARGUMENT, "slabhash: op=%d: expected 0 to %d", (int)batch->op,
                       GA_SLABHASH_OP_COUNT - 1);
    }
    if ((unsigned)batch->how >= GA_SLABHASH_HOW_COUNT) {
        return ga_fail(GA_ERR_ARGUMENT, "slabhash: how=%d: expected 0 to %d", (int)batch->how,
                       GA_SLABHASH_HOW_COUNT - 1);
    }
    bool has_values = GA_SLABHASH_MODE(table->kind) != GA_SLABHASH_SET32;
    if (has_values && batch->count && !batch->values && puts_any(batch)) {
        return ga_fail(GA_ERR_ARGUMENT,
                       "slabhash: a batch of %llu that puts pairs in, without values: expected an "
                       "array",
                       (unsigned long long)batch->count);
    }
    return GA_OK;
}

/* Operation i found no slab and there is no memory for more. Returns the next operation. */
static uint64_t record_full(const ga_slabhash_batch *batch, uint64_t i)
{
    if (batch->results) {
        batch->results[i] = GA_SLABHASH_FULL;
    }
    return i + 1;
}

/* Errors of batches that were not carried out completely. */
static ga_status no_slabs(uint64_t full, uint64_t count)
{
    return ga_fail(GA_ERR_MEMORY,
                   "slabhash: no slabs for %llu of a batch of %llu: expected a larger limit, or "
                   "more memory",
                   (unsigned long long)full, (unsigned long long)count);
}

static ga_status some_refused(const ga_slabhash *table, uint64_t refused, uint64_t count)
{
    return ga_fail(GA_ERR_ARGUMENT,
                   "slabhash: %llu of a batch of %llu refused: expected keys and values that are "
                   "not reserved, and operations of a %s%s",
                   (unsigned long long)refused, (unsigned long long)count,
                   GA_SLABHASH_IS_MULTI(table->kind) ? "multi" : "",
                   ga_slabhash_mode_text((ga_slabhash_mode)GA_SLABHASH_MODE(table->kind)));
}

ga_status ga_slabhash_run(ga_slabhash *table, const ga_slabhash_batch *batch, uint64_t *done)
{
    uint64_t counts[GA_SLABHASH_REFUSED + 1] = {0};
    uint64_t full = 0;
    ga_status status = check(table, batch);
    if (done) {
        *done = 0;
    }
    if (status != GA_OK) {
        return status;
    }
    status = ga_slabhash_enter(table, NULL);
    if (status != GA_OK) {
        return status;
    }
    slabhash_range range = {0, batch->count};
    while (range.first < range.end) {
        uint32_t seen = slabhash_room(table);
        range.first = table->ops->batch(table, batch, range, counts);
        if (range.first < range.end && ga_slabhash_grow(table, seen) != GA_OK) {
            range.first = record_full(batch, range.first);
            full++;
        }
    }
    ga_slabhash_exit(table, NULL);
    full += counts[GA_SLABHASH_FULL]; /* those at the limit of a table that grows */
    if (done) {
        *done = counts[GA_SLABHASH_ABSENT] + counts[GA_SLABHASH_FOUND];
    }
    if (full) {
        return no_slabs(full, batch->count);
    }
    return counts[GA_SLABHASH_REFUSED]
               ? some_refused(table, counts[GA_SLABHASH_REFUSED], batch->count)
               : GA_OK;
}

/* ---- SEARCHALL and DELETEALL ----------------------------------------------------------------- */

static ga_status check_all(const ga_slabhash *table, const ga_slabhash_all *all)
{
    ga_status status = ga_slabhash_check(table);
    if (status != GA_OK) {
        return status;
    }
    if (!all) {
        return ga_fail(GA_ERR_ARGUMENT, "slabhash: no batch: expected a pointer");
    }
    if (all->count && !all->keys) {
        return ga_fail(GA_ERR_ARGUMENT, "slabhash: a batch of %llu without keys: expected an array",
                       (unsigned long long)all->count);
    }
    return all->room && !all->values
               ? ga_fail(GA_ERR_ARGUMENT,
                         "slabhash: room for %llu values without an array: expected one, or 0",
                         (unsigned long long)all->room)
               : GA_OK;
}

static uint64_t key_of(const ga_slabhash *table, const ga_slabhash_all *all, uint64_t i)
{
    return GA_SLABHASH_MODE(table->kind) == GA_SLABHASH_MAP64 ? ((const uint64_t *)all->keys)[i]
                                                              : ((const uint32_t *)all->keys)[i];
}

/* Prefetches the home slab of key i. In a table that grows it is not known yet which array has
 * it. */
static void prefetch(const ga_slabhash *table, const ga_slabhash_all *all, uint64_t i)
{
    if (i < all->count && !slabhash_grows(table)) {
        uint64_t hash = slabhash_hash_of(table, key_of(table, all, i));
        ga_row_prefetch(SLABHASH_TILE, ga_slabhash_walk_path(table->view, hash).row);
    }
}

/* One key: stores its values behind the `total` values of the keys before, or deletes its pairs.
 * False if a delete found no slab and there is no memory for one. */
static bool run_one_key(ga_slabhash *table, const ga_slabhash_all *all, bool removes, uint64_t key,
                        uint64_t total, uint64_t *count)
{
    if (!removes) {
        uint64_t room = total < all->room ? all->room - total : 0;
        *count = table->ops->find_all(table, key, room ? all->values + total : NULL, room);
        return true;
    }
    for (;;) {
        uint32_t seen = slabhash_room(table);
        if (table->ops->remove_all(table, key, count)) {
            return true;
        }
        if (ga_slabhash_grow(table, seen) != GA_OK) {
            return false;
        }
    }
}

static ga_status run_all(ga_slabhash *table, const ga_slabhash_all *all, bool removes,
                         uint64_t *total)
{
    uint32_t op = removes ? GA_SLABHASH_DELETE : GA_SLABHASH_SEARCH;
    uint64_t sum = 0, refused = 0, full = 0;
    ga_status status = check_all(table, all);
    status = status ? status : ga_slabhash_enter(table, NULL);
    if (status != GA_OK) {
        return status;
    }
    for (uint64_t i = 0; i < PREFETCH_AHEAD; i++) {
        prefetch(table, all, i);
    }
    for (uint64_t i = 0; i < all->count; i++) {
        uint64_t key = key_of(table, all, i), count = 0;
        prefetch(table, all, i + PREFETCH_AHEAD);
        bool allowed = ga_slabhash_allowed(table->kind, op, key, 0);
        refused += allowed ? 0 : 1;
        full += allowed && !run_one_key(table, all, removes, key, sum, &count) ? 1 : 0;
        if (all->counts) {
            all->counts[i] = count;
        }
        if (all->firsts && !removes) {
            all->firsts[i] = sum;
        }
        sum += count;
    }
    ga_slabhash_exit(table, NULL);
    if (total) {
        *total = sum;
    }
    return full      ? no_slabs(full, all->count)
           : refused ? some_refused(table, refused, all->count)
                     : GA_OK;
}

ga_status ga_slabhash_run_search_all(ga_slabhash *table, const ga_slabhash_all *all,
                                     uint64_t *total)
{
    return run_all(table, all, false, total);
}

ga_status ga_slabhash_run_delete_all(ga_slabhash *table, const ga_slabhash_all *all,
                                     uint64_t *total)
{
    return run_all(table, all, true, total);
}
