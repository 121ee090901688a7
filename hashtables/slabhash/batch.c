/* SPDX-License-Identifier: MIT
 *
 * Batches: what is checked of them, and more slabs where they need some.
 */
#include "table.h"

/* Whether any operation of the batch puts something in. */
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

/* One that cannot be carried out for lack of a slab: say so, and look at the others. */
static uint64_t skip(const ga_slabhash_batch *batch, uint64_t i)
{
    if (batch->results) {
        batch->results[i] = GA_SLABHASH_FULL;
    }
    return i + 1;
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
    status = ga_slabhash_enroll(table);
    if (status != GA_OK) {
        return status;
    }
    slabhash_range range = {0, batch->count};
    while (range.first < range.end) {
        uint32_t seen = slabhash_room(table);
        range.first = table->ops->batch(table, batch, range, counts);
        if (range.first < range.end && ga_slabhash_grow(table, seen) != GA_OK) {
            range.first = skip(batch, range.first);
            full++;
        }
    }
    full += counts[GA_SLABHASH_FULL]; /* at the limit of a table that grows */
    if (done) {
        *done = counts[GA_SLABHASH_ABSENT] + counts[GA_SLABHASH_FOUND];
    }
    if (full) {
        return ga_fail(
            GA_ERR_MEMORY,
            "slabhash: no slabs for %llu of a batch of %llu: expected a larger limit, or "
            "more memory",
            (unsigned long long)full, (unsigned long long)batch->count);
    }
    if (counts[GA_SLABHASH_REFUSED]) {
        return ga_fail(
            GA_ERR_ARGUMENT,
            "slabhash: %llu of a batch of %llu refused: expected keys and values that are "
            "not reserved, and operations of a %s%s",
            (unsigned long long)counts[GA_SLABHASH_REFUSED], (unsigned long long)batch->count,
            GA_SLABHASH_IS_MULTI(table->kind) ? "multi" : "",
            ga_slabhash_mode_text((ga_slabhash_mode)GA_SLABHASH_MODE(table->kind)));
    }
    return GA_OK;
}
