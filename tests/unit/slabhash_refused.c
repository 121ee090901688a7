/* SPDX-License-Identifier: MIT
 *
 * Refusals of slab hashes: reserved keys and values, by the host's calls and by those of kernels;
 * operations that a table does not have; no table, and closed ones; bad options.
 */
#include "../../hashtables/slabhash/host/table.h"

#include "platform/machine.h"
#include "support/scene.h"
#include "support/slabhash_scene.h"

#include <stdint.h>
#include <string.h>

Test(slabhash_refused, reserved_keys_and_values)
{
    ga_slabhash *map32 = open_table((ga_slabhash_options){.mode = GA_SLABHASH_MAP32});
    ga_slabhash *map64 = open_table((ga_slabhash_options){.mode = GA_SLABHASH_MAP64});
    ga_slabhash_found found;
    assert_fails(ga_slabhash_insert(map32, 0xffffffff, 1, NULL), GA_ERR_ARGUMENT,
                 "slabhash: key 0xffffffff in a map32: expected 0 to 0xfffffffd");
    assert_fails(ga_slabhash_search(map32, 0xfffffffe, &found), GA_ERR_ARGUMENT,
                 "slabhash: key 0xfffffffe in a map32: expected 0 to 0xfffffffd");
    assert_fails(ga_slabhash_delete(map32, UINT64_C(1) << 32, NULL), GA_ERR_ARGUMENT,
                 "slabhash: key 0x100000000 in a map32: expected 0 to 0xfffffffd");
    assert_fails(ga_slabhash_replace(map32, 1, UINT64_C(1) << 32, NULL), GA_ERR_ARGUMENT,
                 "slabhash: value 0x100000000 in a map32: expected 32 bits");
    assert_fails(ga_slabhash_insert(map64, UINT64_MAX, 1, NULL), GA_ERR_ARGUMENT,
                 "slabhash: key 0xffffffffffffffff in a map64: expected anything but all bits set");
    assert_fails(ga_slabhash_insert(map64, 1, UINT64_MAX, NULL), GA_ERR_ARGUMENT,
                 "slabhash: value 0xffffffffffffffff in a map64: expected anything but all bits "
                 "set");
    assert_ok(ga_slabhash_close(map32));
    assert_ok(ga_slabhash_close(map64));
}

static uint32_t done(const ga_slabhash *table, uint32_t op, uint64_t key, uint64_t value)
{
    ga_slab_claimed claimed = ga_slabhash_claim_begin(0);
    ga_slabhash_operation to = {.key = key, .value = value, .op = op};
    return ga_slabhash_do(table->kind, table->view, SLABHASH_TILE, &claimed,
                          slabhash_hash_of(table, key), to)
        .result;
}

/* The functions that kernels call refuse them by themselves, with empty slots and tombstones all
 * around. */
Test(slabhash_refused, reserved_and_wide_keys_in_kernels)
{
    static const uint64_t narrow[] = {0xffffffff, 0xfffffffe, UINT64_MAX, UINT64_C(7) << 32 | 3};
    for (uint32_t kind = 0; kind < 7; kind += kind == 2 ? 2 : 1) {
        bool wide = GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP64;
        ga_slabhash *table =
            open_table((ga_slabhash_options){.mode = (ga_slabhash_mode)GA_SLABHASH_MODE(kind),
                                             .flags = GA_SLABHASH_IS_MULTI(kind) ? 1 : 0,
                                             .buckets = 1});
        uint64_t values[4] = {5}, size;
        for (uint64_t key = 0; key < 5; key++) {
            assert_ok(ga_slabhash_insert(table, key, 9, NULL));
        }
        assert_ok(ga_slabhash_delete(table, 4, NULL));
        for (uint32_t i = 0; i < 4; i++) {
            uint64_t key = wide ? UINT64_MAX : narrow[i];
            ga_slabhash_walk walk = ga_slabhash_walk_path(table->view, 0);
            cr_assert_eq(
                ga_slabhash_find_all(table->kind, table->view, SLABHASH_TILE, walk, key, values, 4),
                0);
            cr_assert_eq(ga_slabhash_remove_all(table->kind, table->view, SLABHASH_TILE, walk, key),
                         0);
            for (uint32_t op = 0; op < GA_SLABHASH_OP_COUNT; op++) {
                cr_assert_eq(done(table, op, key, 1), GA_SLABHASH_REFUSED, "kind %u, operation %u",
                             kind, op);
            }
        }
        bool map32 = GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP32;
        cr_assert_eq(done(table, GA_SLABHASH_INSERT, 8, UINT64_C(1) << 32),
                     map32 ? GA_SLABHASH_REFUSED : GA_SLABHASH_ABSENT);
        assert_ok(ga_slabhash_size(table, &size));
        cr_assert(values[0] == 5 && size == (map32 ? 4 : 5));
        assert_ok(ga_slabhash_close(table));
    }
}

Test(slabhash_refused, operations_that_a_table_has_not)
{
    ga_slabhash *set = open_table((ga_slabhash_options){.mode = GA_SLABHASH_SET32});
    ga_slabhash *multi =
        open_table((ga_slabhash_options){.mode = GA_SLABHASH_MAP32, .flags = GA_SLABHASH_MULTI});
    assert_fails(ga_slabhash_apply(set, 1, 1, GA_SLABHASH_ADD, NULL), GA_ERR_UNSUPPORTED,
                 "slabhash: apply in a set32: expected a map of unique keys");
    assert_fails(ga_slabhash_replace(multi, 1, 1, NULL), GA_ERR_UNSUPPORTED,
                 "slabhash: replace in a multimap32: expected a table of unique keys");
    assert_fails(ga_slabhash_apply(multi, 1, 1, (ga_slabhash_how)7, NULL), GA_ERR_ARGUMENT,
                 "slabhash: how=7: expected 0 to 2");
    assert_ok(ga_slabhash_close(set));
    assert_ok(ga_slabhash_close(multi));
}

Test(slabhash_refused, no_table_and_closed_ones)
{
    ga_slabhash *table = open_table((ga_slabhash_options){.mode = GA_SLABHASH_SET32});
    ga_slabhash_found found;
    assert_ok(ga_slabhash_close(NULL));
    assert_fails(ga_slabhash_insert(NULL, 1, 1, NULL), GA_ERR_ARGUMENT,
                 "slabhash: no table: expected one that is open");
    assert_fails(ga_slabhash_search(table, 1, NULL), GA_ERR_ARGUMENT,
                 "slabhash: no place for what is found: expected a pointer");
    assert_ok(ga_slabhash_close(table));
    assert_fails(ga_slabhash_search(table, 1, &found), GA_ERR_ARGUMENT,
                 "slabhash: a table that was closed: expected an open one");
    assert_fails(ga_slabhash_close(table), GA_ERR_ARGUMENT,
                 "slabhash: a table that was closed: expected an open one");
}

Test(slabhash_refused, bad_options)
{
    ga_slabhash *table;
    ga_slabhash_options good = {.options_size = sizeof good}, bad = good;
    bad.options_size = 8;
    assert_fails_with(ga_slabhash_open(&table, &bad), GA_ERR_ARGUMENT,
                      "slabhash: options_size=8: expected ");
    cr_assert_null(table);
    bad = good;
    bad.flags = 8;
    assert_fails(ga_slabhash_open(&table, &bad), GA_ERR_ARGUMENT,
                 "slabhash: flags=0x8: expected any of GA_SLABHASH_MULTI, _GROW, _CHECK, or none");
    bad = good;
    bad.mode = (ga_slabhash_mode)3;
    assert_fails(ga_slabhash_open(&table, &bad), GA_ERR_ARGUMENT,
                 "slabhash: mode=3: expected 0 to 2");
    bad = good;
    bad.buckets = 5;
    bad.path = 6;
    assert_fails(ga_slabhash_open(&table, &bad), GA_ERR_ARGUMENT,
                 "slabhash: path=6 with buckets=5: expected 1 to 5, or 0");
    bad = good;
    bad.path = 17;
    assert_fails(ga_slabhash_open(&table, &bad), GA_ERR_ARGUMENT,
                 "slabhash: path=17 with buckets=1024: expected 1 to 16, or 0");
    bad = good;
    bad.limit = (UINT64_C(64) << 30) + 1;
    assert_fails(ga_slabhash_open(&table, &bad), GA_ERR_ARGUMENT,
                 "slabhash: limit=68719476737: expected at most 68719476736 bytes, or 0");
    ga_slabhash_plan plan;
    bad.limit = UINT64_MAX; /* no affair of tables in other memory */
    assert_ok(ga_slabhash_plan_of(&bad, &plan));
    cr_assert(plan.buckets == 1024 && plan.bytes == 1024 * 128);
    assert_fails(ga_slabhash_open(NULL, &good), GA_ERR_ARGUMENT,
                 "slabhash: no place for the table: expected a pointer");
    assert_ok(ga_slabhash_open(&table, NULL));
    cr_assert_str_eq(ga_slabhash_mode_text(GA_SLABHASH_MAP32), "map32");
    cr_assert_str_eq(ga_slabhash_mode_text((ga_slabhash_mode)77), "?");
    assert_ok(ga_slabhash_close(table));
}

/* In a child, because a table that is not refused would end the process. */
static int open_a_huge_table(void *unused)
{
    ga_slabhash *table = NULL;
    ga_slabhash_options options = {.options_size = sizeof options, .buckets = UINT64_C(1) << 31};
    (void)unused;
    ga_status status = ga_slabhash_open(&table, &options);
    return status == GA_ERR_MEMORY && strstr(ga_error_text(), "MiB of buckets: expected at most")
               ? 0
               : 1;
}

/* 256 GiB of buckets. */
Test(slabhash_refused, tables_that_the_machine_cannot_have)
{
    ga_machine machine;
    ga_machine_read(&machine);
    if (machine.memory >= UINT64_C(200) << 30) {
        cr_skip_test("this machine may have memory for the table");
    }
    cr_assert_eq(scene_in_child(open_a_huge_table, NULL), 0);
}
