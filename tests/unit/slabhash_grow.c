/* SPDX-License-Identifier: MIT
 *
 * Slab hashes that grow, in one thread: each mode is compared with an array of the expected
 * contents while the table grows, shrinks and is compacted; figures; lack of memory in the middle
 * of a migration; refused options.
 */
#include <gpualloc/slabhash.h>

#include "../../hashtables/slabhash/host/table.h"

#include "support/expect.h"
#include "support/random.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    KEYS = 6000
};

/* Keys with the ends of the range among them, and the value of each: 0 if it is absent. */
typedef struct subject {
    ga_slabhash *table;
    ga_slabhash_mode mode;
    uint64_t values[KEYS];
    uint64_t size;
} subject;

static ga_slabhash *open_table_of(ga_slabhash_options options, uint32_t flags)
{
    ga_slabhash *table = NULL;
    options.options_size = sizeof options;
    options.flags = GA_SLABHASH_GROW | flags;
    options.seed = 1;
    assert_ok(ga_slabhash_open(&table, &options));
    return table;
}

static ga_slabhash *open_table(ga_slabhash_options options)
{
    return open_table_of(options, 0);
}

static uint64_t key_of(ga_slabhash_mode mode, uint64_t number)
{
    static const uint64_t narrow[] = {0x7ffffffd, 0x7ffffffc, 0x40000000};
    static const uint64_t wide[] = {UINT64_MAX - 2, UINT64_C(1) << 63, UINT64_C(0xffffffff) << 32};
    if (number < 3) {
        return mode == GA_SLABHASH_MAP64 ? wide[number] : narrow[number];
    }
    return mode == GA_SLABHASH_MAP64 && number % 2 ? number << 32 : number * 7;
}

/* Never 0; the largest now and then. */
static uint64_t value_of(ga_slabhash_mode mode, uint64_t random)
{
    static const uint64_t value_max[] = {1, 0xffffffff, (UINT64_C(1) << 63) - 4};
    return mode == GA_SLABHASH_SET32 || random % 9 == 0 ? value_max[mode] : 1 + random % 1000;
}

static void expect_was(const subject *s, uint64_t number, ga_slabhash_found was)
{
    uint64_t there = s->mode == GA_SLABHASH_SET32 ? 0 : s->values[number];
    cr_assert_eq(was.found, s->values[number] != 0);
    cr_assert_eq(was.value, there, "key %" PRIu64 ": %" PRIu64 ", expected %" PRIu64, number,
                 was.value, there);
}

static void put(subject *s, uint64_t number, uint64_t value, bool replace)
{
    ga_slabhash_found was;
    uint64_t key = key_of(s->mode, number);
    assert_ok(replace ? ga_slabhash_replace(s->table, key, value, &was)
                      : ga_slabhash_insert(s->table, key, value, &was));
    expect_was(s, number, was);
    s->size += was.found ? 0 : 1;
    s->values[number] = replace || !was.found ? value : s->values[number];
}

static void take(subject *s, uint64_t number, bool all)
{
    ga_slabhash_found was = {false, 0};
    uint64_t count = 0;
    if (all) {
        assert_ok(ga_slabhash_delete_all(s->table, key_of(s->mode, number), &count));
        cr_assert_eq(count, s->values[number] ? 1 : 0);
    } else {
        assert_ok(ga_slabhash_delete(s->table, key_of(s->mode, number), &was));
        expect_was(s, number, was);
    }
    s->size -= s->values[number] ? 1 : 0;
    s->values[number] = 0;
}

static void expect_key(subject *s, uint64_t number)
{
    ga_slabhash_found found;
    uint64_t value = 0, count;
    assert_ok(ga_slabhash_search(s->table, key_of(s->mode, number), &found));
    expect_was(s, number, found);
    assert_ok(ga_slabhash_search_all(s->table, key_of(s->mode, number), &value, 1, &count));
    cr_assert_eq(count, s->values[number] ? 1 : 0);
    cr_assert_eq(value, found.value);
}

typedef struct round_seen {
    subject *s;
    uint8_t seen[KEYS];
    uint64_t count;
} round_seen;

static bool see(void *context, uint64_t key, uint64_t value)
{
    round_seen *round = context;
    uint64_t guess = key >> 32 ? key >> 32 : key / 7;
    for (uint64_t i = 0; i < KEYS; i++) {
        uint64_t number = (guess + i) % KEYS;
        if (key_of(round->s->mode, number) == key) {
            cr_assert(round->s->values[number] && !round->seen[number]++);
            cr_assert(round->s->mode == GA_SLABHASH_SET32 || value == round->s->values[number]);
            round->count++;
            return true;
        }
    }
    cr_assert_fail("a key 0x%" PRIx64 " that nobody put in", key);
    return false;
}

static void expect_all(subject *s)
{
    static round_seen round;
    uint64_t size, count;
    memset(&round, 0, sizeof round);
    round.s = s;
    assert_ok(ga_slabhash_each(s->table, see, &round)); /* perhaps in the middle of a migration */
    cr_assert_eq(round.count, s->size);
    assert_ok(ga_slabhash_retrieve(s->table, NULL, NULL, 0, &count));
    cr_assert_eq(count, s->size);
    for (uint64_t number = 0; number < KEYS; number += 7) {
        expect_key(s, number);
    }
    assert_ok(ga_slabhash_size(s->table, &size));
    cr_assert_eq(size, s->size);
}

/* Phases of mostly inserts, and then of mostly removals. */
static void up_and_down(ga_slabhash_mode mode, ga_slabhash_hash *hash, uint64_t keys)
{
    static subject s;
    uint64_t seed = mode + 1;
    memset(&s, 0, sizeof s);
    s.mode = mode;
    s.table = open_table((ga_slabhash_options){.mode = mode, .buckets = 1, .hash = hash});
    for (uint32_t step = 0; step < 8 * keys; step++) {
        bool up = step / keys % 4 < 2;
        uint64_t what = random_below(&seed, 10), number = random_below(&seed, keys);
        if (what < (up ? 8 : 2)) {
            put(&s, number, value_of(mode, random_next(&seed)), what % 2);
        } else {
            take(&s, number, what == 9);
        }
        if (step % 500 == 0) {
            assert_ok(step % 1000 ? ga_slabhash_compact(s.table) : GA_OK);
            expect_all(&s);
        }
    }
    assert_ok(ga_slabhash_clear(s.table));
    memset(s.values, 0, sizeof s.values);
    s.size = 0;
    expect_all(&s);
    put(&s, 7, 1, false);
    expect_all(&s);
    assert_ok(ga_slabhash_close(s.table));
}

static uint64_t same(void *context, uint64_t key)
{
    (void)context;
    (void)key;
    return UINT64_MAX;
}

static uint64_t few(void *context, uint64_t key)
{
    (void)context;
    return key << 61;
}

Test(slabhash_grow, set32)
{
    up_and_down(GA_SLABHASH_SET32, NULL, KEYS);
}

Test(slabhash_grow, map32)
{
    up_and_down(GA_SLABHASH_MAP32, NULL, KEYS);
}

Test(slabhash_grow, map64)
{
    up_and_down(GA_SLABHASH_MAP64, NULL, KEYS);
}

Test(slabhash_grow, hashes_that_do_not_spread)
{
    for (ga_slabhash_mode mode = GA_SLABHASH_SET32; mode < GA_SLABHASH_MODE_COUNT; mode++) {
        up_and_down(mode, same, 300);
        up_and_down(mode, few, 300);
    }
}

/* ---- how large it is ------------------------------------------------------------------------- */

static ga_slabhash_stats stats_of(ga_slabhash *table)
{
    ga_slabhash_stats stats;
    assert_ok(ga_slabhash_get_stats(table, &stats));
    return stats;
}

Test(slabhash_grow, as_many_buckets_as_keys_need)
{
    ga_slabhash *table = open_table((ga_slabhash_options){.mode = GA_SLABHASH_MAP32});
    cr_assert_eq(stats_of(table).buckets, 16);
    for (uint64_t key = 0; key < 100000; key++) {
        assert_ok(ga_slabhash_insert(table, key, key, NULL));
    }
    ga_slabhash_stats full = stats_of(table);
    cr_assert_eq(full.size, 100000);
    cr_assert(full.utilisation > 0.35 && full.utilisation < 0.8, "%f", full.utilisation);
    cr_assert_lt(full.chained, full.buckets / 4);
    for (uint64_t key = 100; key < 100000; key++) {
        assert_ok(ga_slabhash_delete(table, key, NULL));
    }
    assert_ok(ga_slabhash_compact(table));
    ga_slabhash_stats empty = stats_of(table);
    cr_assert_eq(empty.size, 100);
    cr_assert_eq(empty.deleted, 0);
    cr_assert_leq(empty.buckets, 128, "%" PRIu64 " buckets for 100 keys", empty.buckets);
    cr_assert_lt(empty.bytes_held, full.bytes_held / 2); /* a MiB of them for chained slabs */
    assert_ok(ga_slabhash_close(table));
}

/* A caller's hash promises good upper bits; the lower ones are equal for all keys here. */
static uint64_t upper_bits_only(void *context, uint64_t key)
{
    (void)context;
    return key * UINT64_C(0x9e3779b97f4a7c15) | 0xffff;
}

Test(slabhash_grow, a_hash_with_good_upper_bits_alone_shrinks_as_well)
{
    ga_slabhash *table =
        open_table((ga_slabhash_options){.mode = GA_SLABHASH_MAP32, .hash = upper_bits_only});
    for (uint64_t key = 0; key < 20000; key++) {
        assert_ok(ga_slabhash_insert(table, key, key, NULL));
    }
    uint64_t buckets = stats_of(table).buckets;
    for (uint64_t key = 0; key < 20000; key++) {
        assert_ok(ga_slabhash_delete(table, key, NULL));
    }
    cr_assert_lt(stats_of(table).buckets, buckets, "%" PRIu64 " buckets", buckets);
    assert_ok(ga_slabhash_close(table));
}

/* Slots of deleted keys are reused without a flush, and the number of buckets does not grow because
 * of them. */
Test(slabhash_grow, deleted_keys_take_no_room_for_long)
{
    for (ga_slabhash_mode mode = GA_SLABHASH_SET32; mode < GA_SLABHASH_MODE_COUNT; mode++) {
        ga_slabhash *table = open_table((ga_slabhash_options){.mode = mode});
        for (uint64_t key = 0; key < 30000; key++) {
            assert_ok(ga_slabhash_insert(table, key, 1, NULL));
            assert_ok(key < 100 ? GA_OK : ga_slabhash_delete(table, key - 100, NULL));
        }
        ga_slabhash_stats stats = stats_of(table);
        cr_assert_eq(stats.size, 100);
        cr_assert_leq(stats.slabs, 256, "%s: %" PRIu64 " slabs for 100 keys",
                      ga_slabhash_mode_text(mode), stats.slabs);
        assert_ok(ga_slabhash_close(table));
    }
}

static uint32_t keys32[20000], values32[20000], found32[20000];

Test(slabhash_grow, batches)
{
    ga_slabhash *table = open_table((ga_slabhash_options){.mode = GA_SLABHASH_MAP32});
    uint64_t done = 0;
    ga_slabhash_batch batch = {.count = 20000,
                               .keys = keys32,
                               .values = values32,
                               .found = found32,
                               .op = GA_SLABHASH_INSERT};
    for (uint32_t i = 0; i < 20000; i++) {
        keys32[i] = i % 15000;
        values32[i] = i + 1;
    }
    assert_ok(ga_slabhash_run(table, &batch, &done));
    cr_assert_eq(done, 20000);
    for (uint32_t i = 0; i < 20000; i++) {
        cr_assert_eq(found32[i], i < 15000 ? 0 : i - 15000 + 1);
    }
    batch.op = GA_SLABHASH_SEARCH;
    assert_ok(ga_slabhash_run(table, &batch, &done));
    for (uint32_t i = 0; i < 20000; i++) {
        cr_assert_eq(found32[i], keys32[i] + 1);
    }
    keys32[7] = 0x7ffffffe;
    assert_fails(ga_slabhash_run(table, &batch, &done), GA_ERR_ARGUMENT,
                 "slabhash: 1 of a batch of 20000 refused: expected keys and values that are not "
                 "reserved, and operations of a map32");
    assert_ok(ga_slabhash_close(table));
}

/* ---- multimaps ------------------------------------------------------------------------------- */

enum {
    BAGS = 200,
    BAG_MAX = 40 /* pairs of a key */
};

/* The values of each key; in sets values are 0, and only their number counts. */
typedef struct bags {
    ga_slabhash *table;
    ga_slabhash_mode mode;
    uint64_t values[BAGS][BAG_MAX];
    uint32_t sizes[BAGS];
    uint64_t size;
} bags;

static void take_from_bag(bags *b, uint64_t number, uint64_t value)
{
    for (uint32_t i = 0; i < b->sizes[number]; i++) {
        if (b->values[number][i] == value) {
            b->values[number][i] = b->values[number][--b->sizes[number]];
            b->size--;
            return;
        }
    }
    cr_assert_fail("key %" PRIu64 " has no %" PRIu64, number, value);
}

static void put_in_bag(bags *b, uint64_t number, uint64_t value)
{
    if (b->sizes[number] == BAG_MAX) {
        return;
    }
    assert_ok(ga_slabhash_insert(b->table, key_of(b->mode, number), value, NULL));
    b->values[number][b->sizes[number]++] = b->mode == GA_SLABHASH_SET32 ? 0 : value;
    b->size++;
}

static void expect_bag(bags *b, uint64_t number)
{
    ga_slabhash_found found;
    uint64_t values[BAG_MAX + 1], count;
    bags copy = {.mode = b->mode};
    assert_ok(ga_slabhash_search(b->table, key_of(b->mode, number), &found));
    cr_assert_eq(found.found, b->sizes[number] != 0);
    assert_ok(ga_slabhash_search_all(b->table, key_of(b->mode, number), values, BAG_MAX, &count));
    cr_assert_eq(count, b->sizes[number], "key %" PRIu64 ": %" PRIu64 " pairs, expected %u", number,
                 count, b->sizes[number]);
    memcpy(copy.values[number], b->values[number], sizeof copy.values[number]);
    copy.sizes[number] = b->sizes[number];
    for (uint64_t i = 0; i < count; i++) {
        take_from_bag(&copy, number, values[i]);
    }
    cr_assert(!found.found || found.value == values[0]);
}

static void expect_bags(bags *b)
{
    uint64_t size, count;
    assert_ok(ga_slabhash_retrieve(b->table, NULL, NULL, 0, &count));
    assert_ok(ga_slabhash_size(b->table, &size));
    cr_assert(size == b->size && count == b->size, "%" PRIu64 " pairs, %" PRIu64 ", %" PRIu64, size,
              count, b->size);
    for (uint64_t number = 0; number < BAGS; number++) {
        expect_bag(b, number);
    }
}

static void one_of_bags(bags *b, uint64_t what, uint64_t number, uint64_t value)
{
    ga_slabhash_found was;
    uint64_t count;
    if (what < 3) {
        put_in_bag(b, number, value);
    } else if (what < 5) {
        assert_ok(ga_slabhash_delete(b->table, key_of(b->mode, number), &was));
        cr_assert_eq(was.found, b->sizes[number] != 0);
        if (was.found) {
            take_from_bag(b, number, was.value);
        }
    } else if (what == 5) {
        assert_ok(ga_slabhash_delete_all(b->table, key_of(b->mode, number), &count));
        cr_assert_eq(count, b->sizes[number]);
        b->size -= count;
        b->sizes[number] = 0;
    } else {
        expect_bag(b, number);
    }
}

/* Phases in which `random` inserts more than it removes, and then less. */
static void bags_up_and_down(ga_slabhash_mode mode, ga_slabhash_hash *hash)
{
    static bags b;
    uint64_t random = 1;
    memset(&b, 0, sizeof b);
    b.mode = mode;
    b.table = open_table_of((ga_slabhash_options){.mode = mode, .hash = hash, .buckets = 2},
                            GA_SLABHASH_MULTI);
    for (uint64_t step = 1; step <= 24000; step++) {
        bool grows = step / 4000 % 2 == 0;
        uint64_t what = random_below(&random, 40);
        what = what < 2 ? 5 + what : grows ? what % 4 : 2 + what % 3;
        one_of_bags(&b, what, random_below(&random, BAGS), step);
        if (step % 3000 == 0) {
            assert_ok(step % 2000 ? GA_OK : ga_slabhash_compact(b.table));
            expect_bags(&b);
        }
    }
    assert_ok(ga_slabhash_clear(b.table));
    memset(b.sizes, 0, sizeof b.sizes);
    b.size = 0;
    expect_bags(&b);
    assert_ok(ga_slabhash_close(b.table));
}

Test(slabhash_grow, multimaps)
{
    for (ga_slabhash_mode mode = GA_SLABHASH_SET32; mode < GA_SLABHASH_MODE_COUNT; mode++) {
        bags_up_and_down(mode, NULL);
        bags_up_and_down(mode, few);
    }
}

/* A thread that migrates a pair so late that the pair was already deleted from the new bucket does
 * not insert it a second time. */
Test(slabhash_grow, a_late_migration_inserts_no_pair_twice)
{
    for (ga_slabhash_mode mode = GA_SLABHASH_SET32; mode < GA_SLABHASH_MODE_COUNT; mode++) {
        uint32_t kind = GA_SLABHASH_KIND(mode, true) | GA_SLABHASH_GROWING;
        ga_slabhash *table =
            open_table_of((ga_slabhash_options){.mode = mode, .buckets = 64}, GA_SLABHASH_MULTI);
        ga_slab_claimed claimed = ga_slabhash_claim_begin(0);
        uint64_t keys = 0, count;
        while (!table->now->next) {
            assert_ok(ga_slabhash_insert(table, keys % 500, keys, NULL));
            keys++;
        }
        slabhash_pin pin = ga_slabhash_pin(table);
        uint32_t bucket = pin.next->view.buckets - 1;
        uint64_t key = 0;
        while (ga_slabhash_bucket(pin.shift.to, slabhash_hash_of(table, key)) != bucket) {
            key++;
        }
        cr_assert_lt(key, 500);
        assert_ok(ga_slabhash_delete_all(table, key, &count));
        cr_assert_gt(count, 0);
        ga_slabhash_goal goal = {.at = ga_slabhash_walk_chain(pin.shift.to, bucket),
                                 .bucket = bucket};
        cr_assert(ga_slabhash_migrate_bucket(kind, pin.shift, SLABHASH_TILE, &claimed,
                                             ga_slabhash_sources_of(pin.shift, bucket).first,
                                             &goal));
        assert_ok(ga_slabhash_search_all(table, key, NULL, 0, &count));
        cr_assert_eq(count, 0, "%s: %" PRIu64 " pairs are there again", ga_slabhash_mode_text(mode),
                     count);
        ga_slabhash_unpin(&pin);
        ga_slabhash_claim_end(table->view, SLABHASH_TILE, &claimed);
        assert_ok(ga_slabhash_close(table));
    }
}

/* More buckets do not help a key with very many pairs. Slots of deleted pairs are filled again:
 * such a table does not grow. */
Test(slabhash_grow, multimaps_are_as_large_as_they_must_be)
{
    for (ga_slabhash_mode mode = GA_SLABHASH_SET32; mode < GA_SLABHASH_MODE_COUNT; mode++) {
        ga_slabhash *table = open_table_of((ga_slabhash_options){.mode = mode}, GA_SLABHASH_MULTI);
        for (uint64_t i = 0; i < 3000; i++) {
            assert_ok(ga_slabhash_insert(table, 1, i, NULL));
        }
        cr_assert_leq(stats_of(table).buckets, 32);
        assert_ok(ga_slabhash_delete_all(table, 1, NULL));
        assert_ok(ga_slabhash_compact(table));
        for (uint64_t i = 0; i < 20000; i++) {
            assert_ok(ga_slabhash_insert(table, i % 50, i, NULL));
            assert_ok(i < 100 ? GA_OK : ga_slabhash_delete(table, (i - 100) % 50, NULL));
        }
        ga_slabhash_stats stats = stats_of(table);
        cr_assert_eq(stats.size, 100);
        cr_assert_leq(stats.slabs, 64, "%" PRIu64 " slabs for 100 pairs", stats.slabs);
        assert_ok(ga_slabhash_close(table));
    }
}

/* ---- rounds in which calls are made -----------------------------------------------------------
 * */

typedef struct nest {
    ga_slabhash *table;
    uint64_t seen, depth;
} nest;

static bool change_all(void *context, uint64_t key, uint64_t value)
{
    nest *n = context;
    uint64_t count;
    n->seen += value;
    assert_ok(ga_slabhash_insert(n->table, key + 1000 * (n->seen % 7 + 1), 0, NULL));
    if (n->seen == 50) {
        assert_ok(ga_slabhash_compact(n->table));
        assert_ok(ga_slabhash_retrieve(n->table, NULL, NULL, 0, &count));
        cr_assert_geq(count, 100);
    }
    return true;
}

/* Each key that stays is seen once, though the table moves several times below the round. */
Test(slabhash_grow, rounds_go_on_while_the_table_moves)
{
    ga_slabhash *table = open_table((ga_slabhash_options){.mode = GA_SLABHASH_MAP32, .buckets = 2});
    nest n = {.table = table};
    for (uint64_t key = 0; key < 100; key++) {
        assert_ok(ga_slabhash_insert(table, key, 1, NULL));
    }
    assert_ok(ga_slabhash_each(table, change_all, &n));
    cr_assert_eq(n.seen, 100);
    assert_ok(ga_slabhash_close(table));
}

/* ---- threads that are stopped in the middle of a move ------------------------------------------
 * */

/* One thread has frozen buckets and opened none; one has opened some, and has not counted them.
 * Every key is found, and another thread's calls complete the migration. */
Test(slabhash_grow, a_stopped_thread_stops_no_move)
{
    enum {
        KIND = GA_SLABHASH_MAP32 | GA_SLABHASH_GROWING
    };
    ga_slabhash *table =
        open_table((ga_slabhash_options){.mode = GA_SLABHASH_MAP32, .buckets = 64});
    ga_slab_claimed claimed = ga_slabhash_claim_begin(0);
    ga_slabhash_found found;
    uint64_t keys = 0, calls = 0;
    while (!table->now->next) {
        assert_ok(ga_slabhash_insert(table, keys, keys, NULL));
        keys++;
    }
    slabhash_pin pin = ga_slabhash_pin(table);
    for (uint32_t bucket = 1; bucket < 64; bucket += 2) {
        ga_slabhash_freeze_bucket(KIND, pin.shift.from, SLABHASH_TILE, bucket);
    }
    for (uint32_t bucket = 50; bucket < 60; bucket++) {
        cr_assert_eq(ga_slabhash_shift_bucket(KIND, pin.shift, SLABHASH_TILE, &claimed, bucket),
                     GA_SLABHASH_OPENED);
    }
    slabhash_version *next = pin.next;
    uint32_t buckets = next->view.buckets;
    ga_slabhash_unpin(&pin);
    ga_slabhash_claim_end(table->view, SLABHASH_TILE, &claimed);
    for (uint64_t key = 0; key < keys; key++) {
        assert_ok(ga_slabhash_search(table, key, &found));
        cr_assert(found.found && found.value == key);
    }
    for (; table->now != next; calls++) {
        assert_ok(ga_slabhash_replace(table, calls % keys, calls % keys, &found));
        cr_assert(found.found);
        cr_assert_lt(calls, 3 * buckets / 8 + 1);
    }
    for (uint64_t key = 0; key < keys; key++) {
        assert_ok(ga_slabhash_search(table, key, &found));
        cr_assert(found.found && found.value == key);
    }
    assert_ok(ga_slabhash_close(table));
}

/* A call of another thread that stays under way until it is told to end. */
typedef struct visitor {
    ga_slabhash *table;
    pthread_barrier_t gate;
} visitor;

static void *stay_and_compact(void *argument)
{
    visitor *v = argument;
    assert_ok(ga_slabhash_enroll(v->table));
    slabhash_pin pin = ga_slabhash_pin(v->table);
    pthread_barrier_wait(&v->gate); /* it is in the table's array, */
    pthread_barrier_wait(&v->gate); /* which another thread has retired by now */
    ga_slabhash_unpin(&pin);
    assert_ok(ga_slabhash_compact(v->table));
    return NULL;
}

/* An array that one thread retired while another was using it is freed by the other's call. */
Test(slabhash_grow, what_one_thread_retired_another_frees)
{
    visitor v = {.table = open_table((ga_slabhash_options){.mode = GA_SLABHASH_MAP32})};
    pthread_t thread;
    for (uint64_t key = 0; key < 1000; key++) {
        assert_ok(ga_slabhash_insert(v.table, key, key, NULL));
    }
    pthread_barrier_init(&v.gate, NULL, 2);
    cr_assert_eq(pthread_create(&thread, NULL, stay_and_compact, &v), 0);
    pthread_barrier_wait(&v.gate);
    assert_ok(ga_slabhash_compact(v.table));
    cr_assert_gt(v.table->arrays, v.table->now->bytes); /* the visitor is still using it */
    pthread_barrier_wait(&v.gate);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    cr_assert_eq(v.table->arrays, v.table->now->bytes, "%" PRIu64 " bytes of arrays, %" PRIu64,
                 v.table->arrays, v.table->now->bytes);
    cr_assert_null(v.table->retired);
    pthread_barrier_destroy(&v.gate);
    assert_ok(ga_slabhash_close(v.table));
}

/* ---- files ----------------------------------------------------------------------------------- */

/* To a table of fixed buckets and back; but not to one that cannot hold it. */
Test(slabhash_grow, save_and_load)
{
    static const char *path = "/tmp/slabhash-grow-test";
    char sentence[160];
    uint64_t size;
    ga_slabhash *fixed = NULL;
    ga_slabhash_options options = {
        .options_size = sizeof options, .mode = GA_SLABHASH_MAP32, .seed = 2};
    ga_slabhash *table = open_table((ga_slabhash_options){.mode = GA_SLABHASH_MAP32});
    assert_ok(ga_slabhash_open(&fixed, &options));
    for (uint64_t key = 0; key < 5000; key++) {
        assert_ok(ga_slabhash_insert(table, key, key, NULL));
    }
    assert_ok(ga_slabhash_save(table, path));
    assert_ok(ga_slabhash_load(fixed, path));
    assert_ok(ga_slabhash_save(fixed, path));
    assert_ok(ga_slabhash_clear(table));
    assert_ok(ga_slabhash_load(table, path));
    assert_ok(ga_slabhash_size(table, &size));
    cr_assert_eq(size, 5000);
    assert_ok(ga_slabhash_insert(fixed, 0x90000000, 1, NULL));
    assert_ok(ga_slabhash_save(fixed, path));
    assert_ok(ga_slabhash_clear(table));
    snprintf(sentence, sizeof sentence,
             "slabhash: %s: a pair that a table that grows cannot have: expected keys to "
             "0x7ffffffd and values to 0xffffffff",
             path);
    assert_fails(ga_slabhash_load(table, path), GA_ERR_ARGUMENT, sentence);
    assert_ok(ga_slabhash_size(table, &size));
    cr_assert_eq(size, 0);
    unlink(path);
    assert_ok(ga_slabhash_close(fixed));
    assert_ok(ga_slabhash_close(table));
}

/* ---- memory that ends -------------------------------------------------------------------------
 * */

/* Each request fails once, those in the middle of a growth, too. */
Test(slabhash_grow, each_request_fails_once)
{
    for (uint32_t nth = 1; nth <= 12; nth++) {
        char spec[64];
        ga_heap *heap;
        ga_slabhash *table = NULL;
        ga_stats stats;
        snprintf(spec, sizeof spec, "fail:nth=%u/system", nth);
        assert_ok(ga_heap_open(&heap, GA_PLACE_HOST, 0, spec));
        ga_slabhash_options options = {.options_size = sizeof options,
                                       .mode = GA_SLABHASH_MAP64,
                                       .flags = GA_SLABHASH_GROW,
                                       .buckets = 1,
                                       .seed = 1,
                                       .heap = heap};
        while (ga_slabhash_open(&table, &options) != GA_OK) {
            cr_assert_eq(nth, 1);
        }
        for (uint64_t key = 0; key < 3000; key++) {
            ga_slabhash_found found;
            if (ga_slabhash_insert(table, key, key, NULL) == GA_ERR_MEMORY) {
                assert_ok(ga_slabhash_search(table, key, &found));
                cr_assert(!found.found);
                assert_ok(ga_slabhash_insert(table, key, key, NULL));
            }
        }
        for (uint64_t key = 0; key < 3000; key++) {
            ga_slabhash_found found;
            assert_ok(ga_slabhash_search(table, key, &found));
            cr_assert(found.found && found.value == key);
        }
        assert_ok(ga_slabhash_close(table));
        assert_ok(ga_heap_stats(heap, &stats));
        cr_assert_eq(stats.live_blocks, 0);
        assert_ok(ga_heap_close(heap));
    }
}

/* One long chain, and no room for a second one: the pairs that have been migrated stay, every key
 * is found, and the migration is completed once there is room. */
Test(slabhash_grow, no_slab_in_the_middle_of_a_move)
{
    enum {
        WORDS = 8192 / 32 /* words of the bitmaps of 1 MiB of slabs */
    };
    ga_heap *heap; /* a MiB of slabs and two arrays, and no more */
    assert_ok(ga_heap_open(&heap, GA_PLACE_HOST, 0, "vmm:limit=1600K"));
    ga_slabhash *table = open_table(
        (ga_slabhash_options){.mode = GA_SLABHASH_MAP64, .buckets = 1, .hash = same, .heap = heap});
    ga_slab_claimed claimed[WORDS];
    uint64_t size, count;
    uint32_t words = 0;
    ga_slabhash_found found;
    table->now->wanted = UINT32_MAX; /* it does not move by itself */
    for (uint64_t key = 0; key < 1400; key++) {
        assert_ok(ga_slabhash_insert(table, key, key, NULL));
    }
    do { /* claim all other slabs */
        cr_assert_lt(words, WORDS);
        claimed[words] = ga_slabhash_claim_word(table->view.heap, SLABHASH_TILE, words);
    } while (claimed[words++].units);
    assert_fails_with(ga_slabhash_compact(table), GA_ERR_MEMORY, "vmm: no block");
    cr_assert(table->now->next);
    assert_fails_with(ga_slabhash_insert(table, 77777, 1, NULL), GA_ERR_MEMORY, "vmm: no block");
    assert_fails_with(ga_slabhash_delete(table, 5, NULL), GA_ERR_MEMORY, "vmm: no block");
    for (uint64_t key = 0; key < 1400; key += 13) {
        assert_ok(ga_slabhash_search(table, key, &found));
        cr_assert(found.found && found.value == key);
    }
    assert_ok(ga_slabhash_search(table, 77777, &found));
    cr_assert(!found.found);
    assert_ok(ga_slabhash_size(table, &size));
    cr_assert_eq(size, 1400);
    assert_ok(ga_slabhash_retrieve(table, NULL, NULL, 0, &count));
    cr_assert_eq(count, 1400);
    while (words--) {
        ga_slabhash_claim_end(table->view, SLABHASH_TILE, &claimed[words]);
    }
    assert_ok(ga_slabhash_delete(table, 5, &found));
    cr_assert(found.found);
    cr_assert_null(table->now->next);
    assert_ok(ga_slabhash_size(table, &size));
    cr_assert_eq(size, 1399);
    assert_ok(ga_slabhash_close(table));
    assert_ok(ga_heap_close(heap));
}

/* Few of the upper bits, so that chains are long. */
static uint64_t coarse(void *context, uint64_t key)
{
    (void)context;
    return (key & 63) << 58;
}

/* A table that has chained all the slabs of its limit can move still, and another time, too. */
Test(slabhash_grow, at_its_limit_a_table_moves)
{
    ga_slabhash *table = open_table((ga_slabhash_options){
        .mode = GA_SLABHASH_MAP64, .buckets = 64, .hash = coarse, .limit = 1 << 20});
    uint64_t size = 0, key = 0;
    ga_slabhash_found found;
    table->now->wanted = UINT32_MAX; /* it does not move by itself */
    while (ga_slabhash_insert(table, key, key, NULL) == GA_OK) {
        key++;
    }
    assert_fails_with(ga_slabhash_insert(table, key, key, NULL), GA_ERR_MEMORY,
                      "slabhash: all 8192 slabs of the limit are taken");
    cr_assert_geq(key, 8192 * 7);
    uint8_t result = GA_SLABHASH_REFUSED;
    ga_slabhash_batch batch = {
        .count = 1, .keys = &key, .values = &key, .results = &result, .op = GA_SLABHASH_INSERT};
    assert_fails_with(ga_slabhash_run(table, &batch, &size), GA_ERR_MEMORY,
                      "slabhash: no slabs for 1 of a batch of 1");
    cr_assert(result == GA_SLABHASH_FULL && size == 0);
    for (uint32_t time = 0; time < 2; time++) {
        assert_ok(ga_slabhash_compact(table));
        cr_assert_null(table->now->next);
        table->now->wanted = UINT32_MAX;
    }
    assert_ok(ga_slabhash_size(table, &size));
    cr_assert_eq(size, key);
    for (uint64_t i = 0; i < key; i += 111) {
        assert_ok(ga_slabhash_search(table, i, &found));
        cr_assert(found.found && found.value == i);
    }
    assert_ok(ga_slabhash_delete(table, 5, &found));
    cr_assert(found.found);
    assert_ok(ga_slabhash_close(table));
}

/* ---- refused options ---------------------------------------------------------------------- */

static void expect_no_table(ga_slabhash_options options, ga_status status, const char *sentence)
{
    ga_slabhash *table = NULL;
    options.options_size = sizeof options;
    assert_fails(ga_slabhash_open(&table, &options), status, sentence);
    cr_assert_null(table);
}

Test(slabhash_grow, refused)
{
    ga_slabhash_plan plan;
    ga_slabhash_options options = {.options_size = sizeof options, .flags = GA_SLABHASH_GROW};
    expect_no_table((ga_slabhash_options){.flags = GA_SLABHASH_GROW, .path = 2, .buckets = 4},
                    GA_ERR_UNSUPPORTED, "slabhash: path=2 of a table that grows: expected 1, or 0");
    expect_no_table(
        (ga_slabhash_options){.flags = GA_SLABHASH_GROW_IN_KERNELS}, GA_ERR_ARGUMENT,
        "slabhash: flags=0x8: expected any of GA_SLABHASH_MULTI, _GROW, _CHECK, or none");
    assert_fails(ga_slabhash_plan_of(&options, &plan), GA_ERR_UNSUPPORTED,
                 "slabhash: flags=0x2 in other memory than the host's: expected no "
                 "GA_SLABHASH_GROW");
    ga_slabhash *table = open_table((ga_slabhash_options){.mode = GA_SLABHASH_MAP32});
    assert_fails(ga_slabhash_insert(table, 0x7ffffffe, 1, NULL), GA_ERR_ARGUMENT,
                 "slabhash: key 0x7ffffffe in a map32 that grows: expected 0 to 0x7ffffffd");
    assert_fails(ga_slabhash_search(table, 0x80000000, &(ga_slabhash_found){0}), GA_ERR_ARGUMENT,
                 "slabhash: key 0x80000000 in a map32 that grows: expected 0 to 0x7ffffffd");
    assert_ok(ga_slabhash_close(table));
    table = open_table((ga_slabhash_options){.mode = GA_SLABHASH_MAP64});
    assert_fails(ga_slabhash_insert(table, UINT64_MAX - 1, 1, NULL), GA_ERR_ARGUMENT,
                 "slabhash: key 0xfffffffffffffffe in a map64 that grows: expected 0 to "
                 "0xfffffffffffffffd");
    assert_fails(ga_slabhash_insert(table, 1, (UINT64_C(1) << 63) - 3, NULL), GA_ERR_ARGUMENT,
                 "slabhash: value 0x7ffffffffffffffd in a map64 that grows: expected 0 to "
                 "0x7ffffffffffffffc");
    assert_ok(ga_slabhash_insert(table, 1, (UINT64_C(1) << 63) - 4, NULL));
    assert_fails_with(ga_slabhash_apply(table, 1, 1, GA_SLABHASH_ADD, NULL), GA_ERR_ARGUMENT,
                      "slabhash: value");
    assert_ok(ga_slabhash_close(table));
    options.flags = 0;
    assert_ok(ga_slabhash_open(&table, &options));
    assert_fails(ga_slabhash_compact(table), GA_ERR_UNSUPPORTED,
                 "slabhash: compact in a table of 1024 buckets: expected one with "
                 "GA_SLABHASH_GROW, or ga_slabhash_flush()");
    assert_ok(ga_slabhash_close(table));
    assert_fails(ga_slabhash_compact(table), GA_ERR_ARGUMENT,
                 "slabhash: a table that was closed: expected an open one");
}
