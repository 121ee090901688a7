/* SPDX-License-Identifier: MIT
 *
 * The public calls for the whole table: statistics, visits, retrieval of all pairs, compaction,
 * flush and clear.
 */
#include "table.h"

enum {
    ROW_BYTES = GA_SLABHASH_WORDS * sizeof(uint32_t)
};

static uint64_t bytes_held(const ga_slabhash *table)
{
    /* relaxed: statistics */
    uint64_t slabs = __atomic_load_n(&table->slabs.held, __ATOMIC_RELAXED);
    return slabs + (slabhash_grows(table) ? __atomic_load_n(&table->arrays, __ATOMIC_RELAXED)
                                          : (uint64_t)table->view.buckets * ROW_BYTES);
}

static bool count_one(void *context, uint64_t key, uint64_t value)
{
    (void)key;
    (void)value;
    ++*(uint64_t *)context;
    return true;
}

/* Finishes the current migration first if memory allows; else counts both versions and visits
 * the pairs. */
static void count_growing(ga_slabhash *table, ga_slabhash_census *census, uint64_t *buckets)
{
    bool ended = ga_slabhash_settle(table, false) == GA_OK;
    slabhash_pin pin = ga_slabhash_stay(table);
    table->ops->sample(pin.now, (slabhash_range){0, pin.now->view.buckets}, 1, census);
    *buckets = pin.now->view.buckets;
    if (pin.next) {
        table->ops->sample(pin.next, (slabhash_range){0, pin.next->view.buckets}, 1, census);
        *buckets += pin.next->view.buckets;
    }
    if (pin.next || !ended) {
        census->live = 0;
        table->ops->each(table, count_one, &census->live);
    }
    ga_slabhash_leave(&pin);
}

ga_status ga_slabhash_get_stats(ga_slabhash *table, ga_slabhash_stats *out)
{
    uint64_t buckets = 0;
    ga_slabhash_census census = {0};
    ga_status status = ga_slabhash_check(table);
    if (status == GA_OK && !out) {
        status = ga_fail(GA_ERR_ARGUMENT, "slabhash: no place for figures: expected a pointer");
    }
    status = status ? status : ga_slabhash_enter(table, NULL);
    if (status != GA_OK) {
        return status;
    }
    if (slabhash_grows(table)) {
        count_growing(table, &census, &buckets);
    } else {
        buckets = table->view.buckets;
        table->ops->count(table, &census);
    }
    ga_slabhash_exit(table, NULL);
    uint32_t width = ga_slabhash_slot_words(table->kind) * (uint32_t)sizeof(uint32_t);
    uint64_t slabs = buckets + census.chained;
    *out = (ga_slabhash_stats){
        .size = census.live,
        .deleted = census.deleted,
        .slabs = slabs,
        .chained = census.chained,
        .overflowed =
            slabhash_grows(table) ? 0 : census.overflowed, /* in tables that grow it says OPEN */
        .buckets = buckets,
        .bytes_held = bytes_held(table),
        .seed = table->seed,
        .utilisation = (double)(census.live * width) / (double)(slabs * ROW_BYTES),
    };
    return GA_OK;
}

ga_status ga_slabhash_size(ga_slabhash *table, uint64_t *size)
{
    ga_slabhash_stats stats;
    ga_status status = ga_slabhash_check(table);
    if (status == GA_OK && !size) {
        status = ga_fail(GA_ERR_ARGUMENT, "slabhash: no place for the size: expected a pointer");
    }
    status = status ? status : ga_slabhash_get_stats(table, &stats);
    if (status == GA_OK) {
        *size = stats.size;
    }
    return status;
}

ga_status ga_slabhash_each(ga_slabhash *table, ga_slabhash_visit *visit, void *context)
{
    ga_status status = ga_slabhash_check(table);
    if (status == GA_OK && !visit) {
        status = ga_fail(GA_ERR_ARGUMENT, "slabhash: no function to call: expected a pointer");
    }
    status = status ? status : ga_slabhash_enter(table, NULL);
    if (status == GA_OK) {
        table->ops->each(table, visit, context);
        ga_slabhash_exit(table, NULL);
    }
    return status;
}

/* Output arrays of a retrieval. */
typedef struct sink {
    const ga_slabhash *table;
    void *keys, *values;
    uint64_t room, count;
} sink;

static bool write_one(void *context, uint64_t key, uint64_t value)
{
    sink *to = context;
    if (to->count < to->room && to->keys) {
        ga_slabhash_store_element(to->table->kind, to->keys, to->count, key);
    }
    if (to->count < to->room && to->values) {
        ga_slabhash_store_element(to->table->kind, to->values, to->count, value);
    }
    to->count++;
    return true;
}

ga_status ga_slabhash_retrieve(ga_slabhash *table, void *keys, void *values, uint64_t room,
                               uint64_t *count)
{
    ga_status status = ga_slabhash_check(table);
    if (status == GA_OK && !count) {
        status =
            ga_fail(GA_ERR_ARGUMENT, "slabhash: no place for their number: expected a pointer");
    }
    status = status ? status : ga_slabhash_enter(table, NULL);
    if (status != GA_OK) {
        return status;
    }
    if (slabhash_grows(table)) {
        sink to = {.table = table, .keys = keys, .values = values, .room = room};
        status = ga_slabhash_each(table, write_one, &to);
        *count = to.count;
    } else {
        *count = 0;
        table->ops->copy(table, keys, values, room, count);
    }
    ga_slabhash_exit(table, NULL);
    return status;
}

ga_status ga_slabhash_compact(ga_slabhash *table)
{
    ga_status status = ga_slabhash_check(table);
    if (status == GA_OK && !slabhash_grows(table)) {
        status = ga_fail(GA_ERR_UNSUPPORTED,
                         "slabhash: compact in a table of %u buckets: expected one with "
                         "GA_SLABHASH_GROW, or ga_slabhash_flush()",
                         table->view.buckets);
    }
    status = status ? status : ga_slabhash_enter(table, NULL);
    if (status == GA_OK) {
        status = ga_slabhash_settle(table, true);
        ga_slabhash_exit(table, NULL);
    }
    return status;
}

ga_status ga_slabhash_flush(ga_slabhash *table)
{
    ga_status status = ga_slabhash_check(table);
    if (status == GA_OK && slabhash_grows(table)) {
        return ga_slabhash_compact(table);
    }
    status = status ? status : ga_slabhash_enter(table, "flush");
    if (status == GA_OK) {
        table->ops->flush(table);
        ga_slabhash_exit(table, "flush");
    }
    return status;
}

ga_status ga_slabhash_clear(ga_slabhash *table)
{
    ga_status status = ga_slabhash_check(table);
    status = status ? status : ga_slabhash_enter(table, "clear");
    if (status != GA_OK) {
        return status;
    }
    if (slabhash_grows(table)) {
        ga_slabhash_versions_clear(table);
    } else {
        for (uint32_t bucket = 0; bucket < table->view.buckets; bucket++) {
            ga_slabhash_clear_bucket(table->view, SLABHASH_TILE, bucket);
        }
    }
    ga_slabhash_exit(table, "clear");
    return GA_OK;
}
