/* SPDX-License-Identifier: MIT
 *
 * Slab hashes that check their use: their results are those of unchecked tables; closed tables stay
 * closed; calls that overlap an exclusive one are refused.
 */
#include "../../hashtables/slabhash/host/table.h"

#include "support/slabhash_scene.h"

#include <stdint.h>
#include <unistd.h>

static ga_slabhash *open_checked(uint32_t flags)
{
    ga_slabhash *table = NULL;
    ga_slabhash_options options = {.options_size = sizeof options,
                                   .mode = GA_SLABHASH_MAP32,
                                   .flags = GA_SLABHASH_CHECK | flags,
                                   .seed = 1};
    assert_ok(ga_slabhash_open(&table, &options));
    return table;
}

/* Other tables have been opened since; only checked tables detect this. */
Test(slabhash_checked, a_checked_table_stays_closed)
{
    for (uint32_t flags = 0; flags < 4; flags++) {
        ga_slabhash *table = open_checked(flags), *other[20];
        ga_slabhash_found found;
        uint64_t count;
        assert_ok(ga_slabhash_insert(table, 1, 2, NULL));
        assert_ok(ga_slabhash_close(table));
        for (uint32_t i = 0; i < 20; i++) {
            other[i] = open_checked(flags);
            cr_assert_neq(other[i], table);
        }
        static const char *const sentence =
            "slabhash: a table that was closed: expected an open one";
        assert_fails(ga_slabhash_insert(table, 1, 1, NULL), GA_ERR_ARGUMENT, sentence);
        assert_fails(ga_slabhash_search(table, 1, &found), GA_ERR_ARGUMENT, sentence);
        assert_fails(ga_slabhash_delete(table, 1, NULL), GA_ERR_ARGUMENT, sentence);
        assert_fails(ga_slabhash_delete_all(table, 1, &count), GA_ERR_ARGUMENT, sentence);
        assert_fails(ga_slabhash_retrieve(table, NULL, NULL, 0, &count), GA_ERR_ARGUMENT, sentence);
        assert_fails(ga_slabhash_clear(table), GA_ERR_ARGUMENT, sentence);
        assert_fails(ga_slabhash_close(table), GA_ERR_ARGUMENT, sentence);
        for (uint32_t i = 0; i < 20; i++) {
            assert_ok(ga_slabhash_close(other[i]));
        }
    }
}

/* All calls return the results of unchecked tables. */
Test(slabhash_checked, a_checked_table_does_the_same)
{
    char path[64];
    make_path(path);
    for (uint32_t flags = 0; flags < 4; flags++) {
        ga_slabhash *table = open_checked(flags);
        ga_slabhash_found found;
        uint64_t count;
        for (uint64_t key = 0; key < 2000; key++) {
            assert_ok(ga_slabhash_insert(table, key, key, NULL));
        }
        assert_ok(ga_slabhash_save(table, path));
        assert_ok(ga_slabhash_clear(table));
        assert_ok(ga_slabhash_load(table, path));
        for (uint64_t key = 0; key < 1000; key++) {
            assert_ok(ga_slabhash_delete(table, key, &found));
            cr_assert(found.found && found.value == key);
        }
        assert_ok(ga_slabhash_flush(table));
        for (uint64_t key = 0; key < 2000; key++) {
            assert_ok(ga_slabhash_search(table, key, &found));
            cr_assert_eq(found.found, key >= 1000);
        }
        assert_ok(ga_slabhash_delete_all(table, 1000, &count));
        assert_ok(ga_slabhash_size(table, &count));
        cr_assert_eq(count, 999);
        cr_assert_eq(table->use, 0);
        assert_ok(ga_slabhash_close(table));
    }
    unlink(path);
}

/* During a round, which is a call: exclusive calls are refused, others are not. */
static bool want_exclusive_access(void *context, uint64_t key, uint64_t value)
{
    ga_slabhash *table = context;
    (void)value;
    assert_fails(ga_slabhash_clear(table), GA_ERR_ARGUMENT,
                 "slabhash: clear beside 1 other calls: expected exclusive access");
    assert_fails(ga_slabhash_close(table), GA_ERR_ARGUMENT,
                 "slabhash: close beside 1 other calls: expected exclusive access");
    assert_fails(ga_slabhash_load(table, "/dev/null"), GA_ERR_ARGUMENT,
                 "slabhash: load beside 1 other calls: expected exclusive access");
    if (!slabhash_grows(table)) {
        assert_fails(ga_slabhash_flush(table), GA_ERR_ARGUMENT,
                     "slabhash: flush beside 1 other calls: expected exclusive access");
    }
    assert_ok(ga_slabhash_delete(table, key, NULL));
    return true;
}

Test(slabhash_checked, overlapping_exclusive_calls_are_refused)
{
    for (uint32_t flags = 0; flags < 4; flags++) {
        ga_slabhash *table = open_checked(flags);
        uint64_t size;
        for (uint64_t key = 0; key < 100; key++) {
            assert_ok(ga_slabhash_insert(table, key, key, NULL));
        }
        assert_ok(ga_slabhash_each(table, want_exclusive_access, table));
        assert_ok(ga_slabhash_size(table, &size));
        cr_assert_eq(size, 0);
        assert_ok(ga_slabhash_clear(table));
        assert_ok(ga_slabhash_close(table));
    }
}

/* Another thread has exclusive access. */
Test(slabhash_checked, a_call_beside_an_exclusive_one_is_refused_in_a_checked_table)
{
    static const char *const sentence =
        "slabhash: a call beside one that needs exclusive access: expected one after the other";
    ga_slabhash *table = open_checked(0);
    uint64_t size;
    uint32_t key = 1;
    ga_slabhash_found found;
    ga_slabhash_batch batch = {.count = 1, .keys = &key, .values = &key, .op = GA_SLABHASH_INSERT};
    ga_slabhash_all all = {.count = 1, .keys = &key};
    assert_ok(ga_slabhash_insert(table, 1, 1, NULL));
    cr_assert_eq(ga_slabhash_use_begin(&table->use, true), 0);
    assert_fails(ga_slabhash_insert(table, 2, 2, NULL), GA_ERR_ARGUMENT, sentence);
    assert_fails(ga_slabhash_search(table, 1, &found), GA_ERR_ARGUMENT, sentence);
    assert_fails(ga_slabhash_run(table, &batch, NULL), GA_ERR_ARGUMENT, sentence);
    assert_fails(ga_slabhash_run_delete_all(table, &all, NULL), GA_ERR_ARGUMENT, sentence);
    assert_fails(ga_slabhash_size(table, &size), GA_ERR_ARGUMENT, sentence);
    assert_fails(ga_slabhash_flush(table), GA_ERR_ARGUMENT,
                 "slabhash: flush beside 1 other calls: expected exclusive access");
    ga_slabhash_use_end(&table->use, true);
    cr_assert_eq(table->use, 0);
    assert_ok(ga_slabhash_size(table, &size));
    cr_assert_eq(size, 1);
    assert_ok(ga_slabhash_close(table));
}
