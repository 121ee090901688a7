/* SPDX-License-Identifier: MIT
 *
 * The public calls for one key: arguments are checked, then the table's slabhash_ops does the work.
 *
 *     search, insert, delete      ops->search, insert, erase: the fast paths (ops.h)
 *       ..._slow                  closed tables, invalid arguments, and calls that the home slab
 *       does
 *                                 not decide
 *     all                         run -> run_until_room -> ops->run
 *
 * PROGRESS  An operation that finds no free slab requests more under `grow`, and starts again.
 */
#include "table.h"

static bool is_wide(const ga_slabhash *table)
{
    return GA_SLABHASH_MODE(table->kind) == GA_SLABHASH_MAP64;
}

static ga_status refused(const ga_slabhash *table, const char *what, uint64_t number)
{
    if (slabhash_grows(table)) {
        bool key = *what == 'k';
        return ga_fail(GA_ERR_ARGUMENT,
                       "slabhash: %s 0x%llx in a %s that grows: expected 0 to 0x%llx", what,
                       (unsigned long long)number,
                       ga_slabhash_mode_text((ga_slabhash_mode)GA_SLABHASH_MODE(table->kind)),
                       (unsigned long long)(key ? ga_slabhash_key_max(table->kind)
                                                : ga_slabhash_value_max(table->kind)));
    }
    return ga_fail(GA_ERR_ARGUMENT, "slabhash: %s 0x%llx in a %s: expected %s", what,
                   (unsigned long long)number,
                   ga_slabhash_mode_text((ga_slabhash_mode)GA_SLABHASH_MODE(table->kind)),
                   is_wide(table) ? "anything but all bits set"
                   : *what == 'k' ? "0 to 0xfffffffd"
                                  : "32 bits");
}

static ga_status check_pair(const ga_slabhash *table, uint32_t op, uint64_t key, uint64_t value)
{
    ga_status status = ga_slabhash_check(table);
    if (status != GA_OK) {
        return status;
    }
    if (!ga_slabhash_allowed(table->kind, op, key, 0)) {
        return refused(table, "key", key);
    }
    return ga_slabhash_allowed(table->kind, op, key, value) ? GA_OK
                                                            : refused(table, "value", value);
}

static ga_status at_limit(const ga_slabhash *table)
{
    return ga_fail(GA_ERR_MEMORY,
                   "slabhash: all %u slabs of the limit are taken: expected a larger limit, or "
                   "fewer keys",
                   table->view.chained_max);
}

/* Repeats the operation, with more slabs each time, until the result is not FULL. */
static ga_status run_until_room(ga_slabhash *table, const ga_slabhash_operation *operation,
                                ga_slabhash_found *was)
{
    ga_slabhash_answer answer;
    for (;;) {
        uint32_t seen = slabhash_room(table);
        answer = table->ops->run(table, operation);
        if (answer.result != GA_SLABHASH_FULL) {
            break;
        }
        if (answer.value == GA_SLABHASH_AT_LIMIT) {
            return at_limit(table);
        }
        ga_status status = ga_slabhash_grow(table, seen);
        if (status != GA_OK) {
            return status;
        }
    }
    if (answer.result == GA_SLABHASH_REFUSED) { /* returned by the caller's function */
        return refused(table, "value", GA_SLABHASH_UNSET);
    }
    if (was) {
        was->found = answer.result == GA_SLABHASH_FOUND;
        was->value = was->found ? answer.value : 0;
    }
    return GA_OK;
}

static ga_status run(ga_slabhash *table, const ga_slabhash_operation *operation,
                     ga_slabhash_found *was)
{
    ga_status status = ga_slabhash_enter(table, NULL);
    if (status == GA_OK) {
        status = run_until_room(table, operation, was);
        ga_slabhash_exit(table, NULL);
    }
    return status;
}

static ga_status unsupported(const ga_slabhash *table, const char *op)
{
    return ga_fail(GA_ERR_UNSUPPORTED, "slabhash: %s in a %s%s: expected %s", op,
                   GA_SLABHASH_IS_MULTI(table->kind) ? "multi" : "",
                   ga_slabhash_mode_text((ga_slabhash_mode)GA_SLABHASH_MODE(table->kind)),
                   *op == 'r' ? "a table of unique keys" : "a map of unique keys");
}

static ga_status put(ga_slabhash *table, const char *name, const ga_slabhash_operation *operation,
                     ga_slabhash_found *was)
{
    ga_status status = check_pair(table, operation->op, operation->key, operation->value);
    if (status == GA_OK && !ga_slabhash_supports(table->kind, operation->op)) {
        status = unsupported(table, name);
    }
    return status ? status : run(table, operation, was);
}

/* True if the fast path may be used. relaxed: see ga_slabhash_check() */
static bool is_open(const ga_slabhash *table)
{
    return table && ga_load_relaxed(&table->open);
}

ga_status ga_slabhash_insert_slow(ga_slabhash *table, uint64_t key, uint64_t value,
                                  ga_slabhash_found *was)
{
    ga_slabhash_operation operation = {.key = key, .value = value, .op = GA_SLABHASH_INSERT};
    return put(table, "insert", &operation, was);
}

ga_status ga_slabhash_insert(ga_slabhash *table, uint64_t key, uint64_t value,
                             ga_slabhash_found *was)
{
    return is_open(table) ? table->ops->insert(table, key, value, was)
                          : ga_slabhash_insert_slow(table, key, value, was);
}

ga_status ga_slabhash_replace(ga_slabhash *table, uint64_t key, uint64_t value,
                              ga_slabhash_found *was)
{
    ga_slabhash_operation operation = {.key = key, .value = value, .op = GA_SLABHASH_REPLACE};
    return put(table, "replace", &operation, was);
}

ga_status ga_slabhash_apply(ga_slabhash *table, uint64_t key, uint64_t value, ga_slabhash_how how,
                            ga_slabhash_found *was)
{
    ga_slabhash_operation operation = {
        .key = key, .value = value, .op = GA_SLABHASH_APPLY, .how = how};
    if ((unsigned)how >= GA_SLABHASH_HOW_COUNT) {
        return ga_fail(GA_ERR_ARGUMENT, "slabhash: how=%d: expected 0 to %d", (int)how,
                       GA_SLABHASH_HOW_COUNT - 1);
    }
    return put(table, "apply", &operation, was);
}

ga_status ga_slabhash_apply_by(ga_slabhash *table, uint64_t key, uint64_t value,
                               ga_slabhash_function *function, void *context,
                               ga_slabhash_found *was)
{
    ga_slabhash_operation operation = {.key = key,
                                       .value = value,
                                       .op = GA_SLABHASH_APPLY,
                                       .how = GA_SLABHASH_HOW_COUNT,
                                       .function = function,
                                       .context = context};
    if (!function) {
        return ga_fail(GA_ERR_ARGUMENT, "slabhash: no function to apply: expected a pointer");
    }
    return put(table, "apply", &operation, was);
}

static ga_status search_or_delete(ga_slabhash *table, uint32_t op, uint64_t key,
                                  ga_slabhash_found *was)
{
    ga_slabhash_operation operation = {.key = key, .op = op};
    ga_status status = check_pair(table, op, key, 0);
    return status ? status : run(table, &operation, was);
}

ga_status ga_slabhash_delete_slow(ga_slabhash *table, uint64_t key, ga_slabhash_found *was)
{
    return search_or_delete(table, GA_SLABHASH_DELETE, key, was);
}

ga_status ga_slabhash_delete(ga_slabhash *table, uint64_t key, ga_slabhash_found *was)
{
    return is_open(table) ? table->ops->erase(table, key, was)
                          : ga_slabhash_delete_slow(table, key, was);
}

ga_status ga_slabhash_search_slow(ga_slabhash *table, uint64_t key, ga_slabhash_found *found)
{
    if (!found) {
        return ga_fail(GA_ERR_ARGUMENT, "slabhash: no place for what is found: expected a pointer");
    }
    return search_or_delete(table, GA_SLABHASH_SEARCH, key, found);
}

ga_status ga_slabhash_search(ga_slabhash *table, uint64_t key, ga_slabhash_found *found)
{
    return found && is_open(table) ? table->ops->search(table, key, found)
                                   : ga_slabhash_search_slow(table, key, found);
}

ga_status ga_slabhash_delete_all(ga_slabhash *table, uint64_t key, uint64_t *count)
{
    uint64_t deleted = 0;
    ga_status status = check_pair(table, GA_SLABHASH_DELETE, key, 0);
    status = status ? status : ga_slabhash_enter(table, NULL);
    if (status != GA_OK) {
        return status;
    }
    for (uint32_t seen = slabhash_room(table);
         status == GA_OK && !table->ops->remove_all(table, key, &deleted);
         seen = slabhash_room(table)) {
        status = ga_slabhash_grow(table, seen);
    }
    ga_slabhash_exit(table, NULL);
    if (count) {
        *count = deleted;
    }
    return status;
}

ga_status ga_slabhash_search_all(ga_slabhash *table, uint64_t key, uint64_t *values, uint64_t room,
                                 uint64_t *count)
{
    ga_status status = check_pair(table, GA_SLABHASH_SEARCH, key, 0);
    if (status == GA_OK && (!count || (room && !values))) {
        status = ga_fail(GA_ERR_ARGUMENT, "slabhash: no place for %s: expected a pointer",
                         count ? "the values" : "their number");
    }
    status = status ? status : ga_slabhash_enter(table, NULL);
    if (status == GA_OK) {
        *count = table->ops->find_all(table, key, values, room);
        ga_slabhash_exit(table, NULL);
    }
    return status;
}
