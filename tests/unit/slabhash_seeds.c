/* SPDX-License-Identifier: MIT
 *
 * Seeds of the slab hash: each table draws its own, a fixed one repeats the layout, and keys that
 * were computed to share a bucket under a known seed do not share one under a drawn one.
 */
#include "../../hashtables/slabhash/host/table.h"

#include "support/slabhash_scene.h"

#include <inttypes.h>

enum {
    FLOOD = 7000,   /* keys: 1000 slabs of MAP64, 467 of MAP32 */
    BUCKETS = 2048, /* room for two times the keys */
    ATTEMPTS = 20,  /* seeds that are drawn */
    CLASSES = 500   /* of keys of 64 bits that are equal modulo the prime */
};

/* a and b as ga_slabhash_open() makes them (splitmix64). With 0: those of each table that was
 * opened without a seed, while 0 was a seed. */
static ga_slabhash_view hash_of_seed(uint64_t seed)
{
    uint64_t drawn[2];
    for (int i = 0; i < 2; i++) {
        uint64_t z = (seed += UINT64_C(0x9e3779b97f4a7c15));
        z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
        z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
        drawn[i] = (z ^ (z >> 31)) % GA_SLABHASH_PRIME;
    }
    return (ga_slabhash_view){.a = drawn[0] << 3, .b = drawn[1]};
}

static uint64_t product(uint64_t x, uint64_t y)
{
    return (uint64_t)((__extension__(unsigned __int128) x * y) % GA_SLABHASH_PRIME);
}

/* By Fermat's theorem: x to the power of the prime - 2. */
static uint64_t inverse(uint64_t x)
{
    uint64_t result = 1;
    for (uint64_t power = GA_SLABHASH_PRIME - 2; power; power >>= 1, x = product(x, x)) {
        result = power & 1 ? product(result, x) : result;
    }
    return result;
}

/* The attack on a known hash: keys whose hashes are 1, 2, ... and so have no upper bits, for any
 * number of buckets up to 2^40. It inverts the last multiplication modulo 2^64 and the first modulo
 * the prime. */
static void flood_wide(ga_slabhash_view known, uint64_t *keys)
{
    uint64_t factor = UINT64_C(0xff51afd7ed558ccd), undone = factor,
             inverse_a = inverse(known.a >> 3);
    for (int i = 0; i < 5; i++) {
        undone *= 2 - factor * undone; /* Newton's, for the inverse of an odd number */
    }
    for (uint64_t hash = 1, n = 0; n < FLOOD; hash++) {
        uint64_t sum = hash * undone;
        sum ^= sum >> 32;
        if (sum < GA_SLABHASH_PRIME) {
            keys[n] = product((sum + GA_SLABHASH_PRIME - known.b) % GA_SLABHASH_PRIME, inverse_a);
            cr_assert_eq(ga_slabhash_seeded(known, keys[n]), hash);
            n++;
        }
    }
}

/* There are few keys of 32 bits: those of the first bucket are looked for. */
static void flood_narrow(ga_slabhash_view known, uint64_t *keys)
{
    for (uint64_t key = 0, n = 0; n < FLOOD; key++) {
        if (ga_bits_high(ga_slabhash_seeded(known, key), BUCKETS) == 0) {
            keys[n++] = key;
        }
    }
}

/* The number of slabs of the longest chain. */
static uint64_t longest_chain(const ga_slabhash *table)
{
    uint64_t longest = 0;
    for (uint32_t bucket = 0; bucket < table->view.buckets; bucket++) {
        ga_slabhash_census census = {0};
        ga_slabhash_count_bucket(table->kind, table->view, SLABHASH_TILE, bucket, &census);
        longest = census.chained + 1 > longest ? census.chained + 1 : longest;
    }
    return longest;
}

static ga_slabhash *flooded(ga_slabhash_options options, const uint64_t *keys)
{
    ga_slabhash *table = NULL;
    options.options_size = sizeof options;
    assert_ok(ga_slabhash_open(&table, &options));
    for (uint32_t i = 0; i < FLOOD; i++) {
        assert_ok(ga_slabhash_insert(table, keys[i], i, NULL));
    }
    return table;
}

static uint64_t longest_of(ga_slabhash_mode mode, uint64_t seed, const uint64_t *keys)
{
    ga_slabhash *table =
        flooded((ga_slabhash_options){.mode = mode, .buckets = BUCKETS, .seed = seed}, keys);
    uint64_t longest = longest_chain(table);
    assert_ok(ga_slabhash_close(table));
    return longest;
}

static ga_slabhash_stats figures(ga_slabhash *table)
{
    ga_slabhash_stats stats;
    assert_ok(ga_slabhash_get_stats(table, &stats));
    return stats;
}

static uint64_t keys[FLOOD];

/* ---- seeds -------------------------------------------------------------------------------- */

Test(slabhash_seeds, each_table_draws_its_own)
{
    uint64_t seeds[ATTEMPTS];
    for (uint32_t i = 0; i < ATTEMPTS; i++) {
        ga_slabhash_options options = {.options_size = sizeof options,
                                       .mode = GA_SLABHASH_MAP32,
                                       .flags = i % 2 ? GA_SLABHASH_GROW : 0};
        ga_slabhash *table;
        assert_ok(ga_slabhash_open(&table, i % 3 ? &options : NULL));
        seeds[i] = figures(table).seed;
        cr_assert_neq(seeds[i], 0);
        for (uint32_t k = 0; k < i; k++) {
            cr_assert_neq(seeds[i], seeds[k]);
        }
        assert_ok(ga_slabhash_close(table));
    }
}

Test(slabhash_seeds, each_plan_draws_its_own)
{
    ga_slabhash_options options = {.options_size = sizeof options};
    ga_slabhash_plan one, two, again;
    assert_ok(ga_slabhash_plan_of(&options, &one));
    assert_ok(ga_slabhash_plan_of(&options, &two));
    cr_assert(one.seed && two.seed && one.seed != two.seed);
    cr_assert(one.a != two.a && one.b != two.b);
    options.seed = one.seed;
    assert_ok(ga_slabhash_plan_of(&options, &again));
    cr_assert(again.seed == one.seed && again.a == one.a && again.b == one.b);
}

static void expect_same_layout(uint64_t seed_a, uint64_t seed_b, uint32_t flags, bool same)
{
    static uint64_t pairs[2][FLOOD];
    uint64_t seeds[2] = {seed_a, seed_b}, count;
    for (int i = 0; i < 2; i++) {
        ga_slabhash *table = flooded(
            (ga_slabhash_options){
                .mode = GA_SLABHASH_MAP64, .flags = flags, .buckets = 64, .seed = seeds[i]},
            keys);
        cr_assert(!seeds[i] || figures(table).seed == seeds[i]);
        assert_ok(ga_slabhash_retrieve(table, pairs[i], NULL, FLOOD, &count));
        cr_assert_eq(count, FLOOD);
        assert_ok(ga_slabhash_close(table));
    }
    cr_assert_eq(!memcmp(pairs[0], pairs[1], sizeof pairs[0]), same);
}

Test(slabhash_seeds, a_fixed_seed_repeats_the_layout)
{
    for (uint32_t i = 0; i < FLOOD; i++) {
        keys[i] = i;
    }
    for (uint32_t flags = 0; flags <= GA_SLABHASH_GROW; flags += GA_SLABHASH_GROW) {
        expect_same_layout(5, 5, flags, true);
        expect_same_layout(5, 6, flags, false);
        expect_same_layout(5, 0, flags, false);
        expect_same_layout(0, 0, flags, false);
    }
}

/* The seed that a table has drawn gives another table the same layout. */
Test(slabhash_seeds, a_drawn_seed_can_be_asked_for_again)
{
    static uint64_t pairs[2][FLOOD];
    uint64_t seed = 0, count;
    for (int i = 0; i < 2; i++) {
        for (uint32_t k = 0; k < FLOOD; k++) {
            keys[k] = k;
        }
        ga_slabhash *table =
            flooded((ga_slabhash_options){.mode = GA_SLABHASH_MAP64, .seed = seed}, keys);
        seed = figures(table).seed;
        assert_ok(ga_slabhash_retrieve(table, pairs[i], NULL, FLOOD, &count));
        assert_ok(ga_slabhash_close(table));
    }
    cr_assert_eq(memcmp(pairs[0], pairs[1], sizeof pairs[0]), 0);
}

/* A table with another seed reads the file, keeps its seed, and finds every pair. */
Test(slabhash_seeds, files_serve_tables_of_any_seed)
{
    char path[64];
    make_path(path);
    for (uint32_t i = 0; i < FLOOD; i++) {
        keys[i] = i;
    }
    ga_slabhash *saved = flooded((ga_slabhash_options){.mode = GA_SLABHASH_MAP64}, keys);
    ga_slabhash *loaded = open_table((ga_slabhash_options){.mode = GA_SLABHASH_MAP64, .seed = 3});
    assert_ok(ga_slabhash_save(saved, path));
    assert_ok(ga_slabhash_load(loaded, path));
    cr_assert_eq(figures(loaded).seed, 3);
    cr_assert_neq(figures(saved).seed, 3);
    for (uint32_t i = 0; i < FLOOD; i++) {
        ga_slabhash_found found;
        assert_ok(ga_slabhash_search(loaded, i, &found));
        cr_assert(found.found && found.value == i);
    }
    assert_ok(ga_slabhash_clear(saved));
    cr_assert_neq(figures(saved).seed, 0);
    assert_ok(ga_slabhash_close(saved));
    assert_ok(ga_slabhash_close(loaded));
    unlink(path);
}

/* ---- chosen keys ---------------------------------------------------------------------------- */

/* The attack works on a seed that it knows: else the tests below would prove nothing. */
Test(slabhash_seeds, keys_chosen_for_a_known_seed_share_a_bucket)
{
    flood_wide(hash_of_seed(77), keys);
    cr_assert_eq(longest_of(GA_SLABHASH_MAP64, 77, keys), FLOOD / 7);
    flood_narrow(hash_of_seed(77), keys);
    cr_assert_eq(longest_of(GA_SLABHASH_MAP32, 77, keys), (FLOOD + 14) / 15);
}

/* A bucket has 3.4 keys on average; more than 28 in one bucket, or 45, has a probability of 1 in
 * 10^13. */
static void expect_spread(uint64_t known)
{
    flood_wide(hash_of_seed(known), keys);
    for (uint32_t i = 0; i < ATTEMPTS; i++) {
        cr_assert_leq(longest_of(GA_SLABHASH_MAP64, 0, keys), 4);
    }
    flood_narrow(hash_of_seed(known), keys);
    for (uint32_t i = 0; i < ATTEMPTS; i++) {
        cr_assert_leq(longest_of(GA_SLABHASH_MAP32, 0, keys), 3);
    }
}

Test(slabhash_seeds, keys_chosen_for_the_former_default_are_spread)
{
    expect_spread(0);
}

Test(slabhash_seeds, keys_chosen_for_another_table_are_spread)
{
    expect_spread(77);
}

/* The table has the buckets of one without the attack, and few slabs behind them. */
Test(slabhash_seeds, chosen_keys_are_spread_in_a_table_that_grows)
{
    flood_wide(hash_of_seed(0), keys);
    ga_slabhash *table =
        flooded((ga_slabhash_options){.mode = GA_SLABHASH_MAP64, .flags = GA_SLABHASH_GROW}, keys);
    ga_slabhash_stats stats = figures(table);
    cr_assert_geq(stats.buckets, 512);
    cr_assert_lt(stats.chained, stats.buckets);
    assert_ok(ga_slabhash_close(table));
}

/* No seed spreads these keys: at most nine keys of 64 bits share a hash, so a bucket has at most
 * nine times the keys of the fullest bucket otherwise. */
Test(slabhash_seeds, keys_that_are_equal_modulo_the_prime)
{
    uint32_t n = 0;
    for (uint64_t i = 0; i < CLASSES; i++) {
        for (uint64_t k = 0; k < 8; k++) {
            keys[n++] = i + k * GA_SLABHASH_PRIME;
        }
    }
    for (; n < FLOOD; n++) {
        keys[n] = UINT64_C(1) << 40 | n;
    }
    cr_assert_leq(longest_of(GA_SLABHASH_MAP64, 0, keys), 16);
}
