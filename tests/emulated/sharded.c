/* SPDX-License-Identifier: MIT
 *
 * The kernels of sharded tables (hashtables/sharded/sort_kernel.cuh, all_kernel.cuh), emulated:
 * requests are sorted into bins, messages are padded, and answers come back into order.
 *
 *   emulated-sharded SEED SECONDS
 */
#include "../../hashtables/sharded/all_team.h"

#include "launch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    REQUESTS = 40000,
    PAD = 32,
    ROOM = REQUESTS + GA_SHARDED_BINS * PAD,
    BLOCKS = 5
};

static uint64_t state;

static uint64_t draw(uint64_t below)
{
    state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = (state ^ state >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    return (z ^ z >> 31) % below;
}

static uint64_t keys[REQUESTS], values[REQUESTS], keys_to[ROOM], values_to[ROOM];
static uint64_t found_from[ROOM], found[REQUESTS];
static uint8_t results_from[ROOM], results[REQUESTS], ops[REQUESTS], ops_to[ROOM];
static uint16_t indices[REQUESTS];
static ga_sharded_extent extents[(REQUESTS / 1024 + 1) * (GA_SHARDED_BINS + 1)];
static uint32_t counts[GA_SHARDED_BINS], begins[GA_SHARDED_BINS], cursors[GA_SHARDED_BINS];
static uint64_t totals[GA_SHARDED_RESULTS];
static uint64_t numbers[ROOM], numbers_from[ROOM], ordered[REQUESTS];

static void fail(const char *what, uint64_t seed)
{
    printf("seed %llu: %s\n", (unsigned long long)seed, what);
    exit(1);
}

static void launch(const char *name, void *work)
{
    void *parameters[] = {work};
    if (!emulated_launch(name, BLOCKS, GA_SHARDED_THREADS, sizeof(ga_sharded_room), parameters)) {
        fail(name, 0);
    }
}

/* In `begins`, as run.c: bins one behind the other, at multiples of PAD. */
static uint32_t find_begins(uint32_t bins)
{
    uint32_t end = 0;
    for (uint32_t bin = 0; bin < bins; bin++) {
        begins[bin] = end;
        end += (counts[bin] + PAD - 1) / PAD * PAD;
    }
    return end;
}

/* Each bin has its requests, with their values, and pads the reserved key. */
static void check_sorted(const ga_sharded_sort *sort, uint64_t seed)
{
    uint32_t bins = ga_sharded_bins(&sort->division);
    uint32_t width = GA_SHARDED_WIDTH(sort->is_wide);
    uint64_t sum = 0;
    for (uint32_t bin = 0; bin < bins; bin++) {
        for (uint32_t i = begins[bin]; i < begins[bin] + counts[bin]; i++) {
            uint64_t key = ga_sharded_load(keys_to, i, width);
            uint64_t value = ga_sharded_load(values_to, i, width);
            if (ga_sharded_bin(&sort->division, key) != bin) {
                fail("a request is in another bin", seed);
            }
            if (sort->values && value != (sort->is_wide ? key * 3 : (uint32_t)(key * 3))) {
                fail("a value is not its key's", seed);
            }
            if (sort->ops && ops_to[i] != (uint8_t)(key * 7)) {
                fail("an operation is not its key's", seed);
            }
            sum += key * key + 1;
        }
        uint32_t end = begins[bin] + counts[bin];
        for (uint32_t i = end; i % PAD; i++) {
            uint64_t reserved = sort->is_wide ? UINT64_MAX : UINT32_MAX;
            if (ga_sharded_load(keys_to, i, width) != reserved) {
                fail("a pad is no reserved key", seed);
            }
        }
    }
    for (uint64_t i = 0; i < sort->count; i++) {
        uint64_t key = ga_sharded_load(keys, i, width);
        bool repeats = sort->combines && indices[i] & GA_SHARDED_REPEATS;
        sum -= repeats ? 0 : key * key + 1;
    }
    if (sum) {
        fail("requests were lost or doubled", seed);
    }
}

/* In each block one request for each key travels. */
static void check_combined(const ga_sharded_sort *sort, uint64_t seed)
{
    uint32_t width = GA_SHARDED_WIDTH(sort->is_wide);
    uint64_t most = GA_SHARDED_SORT_MOST(sort->is_wide);
    for (uint64_t i = 0; i < sort->count; i++) {
        uint64_t of = i / most * most + (indices[i] & ~(uint64_t)GA_SHARDED_REPEATS);
        bool repeats = indices[i] & GA_SHARDED_REPEATS;
        if (of >= sort->count || (indices[of] & GA_SHARDED_REPEATS) ||
            (repeats ? of == i : of != i) ||
            ga_sharded_load(keys, of, width) != ga_sharded_load(keys, i, width)) {
            fail("a request repeats no other one", seed);
        }
    }
}

static void check_gathered(const ga_sharded_sort *sort, ga_sharded_repeat repeat, uint64_t seed)
{
    uint32_t width = GA_SHARDED_WIDTH(sort->is_wide);
    uint64_t expected[GA_SHARDED_RESULTS] = {0};
    for (uint64_t i = 0; i < sort->count; i++) {
        uint64_t key = ga_sharded_load(keys, i, width);
        uint64_t answer = sort->is_wide ? key * 5 : (uint32_t)(key * 5);
        bool repeats = sort->combines && indices[i] & GA_SHARDED_REPEATS;
        uint32_t result = (uint32_t)(key % 4);
        if (repeats && repeat == GA_SHARDED_REPEAT_DELETES) {
            answer = 0;
            result = result == GA_SLABHASH_FOUND ? GA_SLABHASH_ABSENT : result;
        } else if (repeats && repeat == GA_SHARDED_REPEAT_INSERTS) {
            result = result == GA_SLABHASH_ABSENT ? GA_SLABHASH_FOUND : result;
        }
        if (ga_sharded_load(found, i, width) != answer || results[i] != result) {
            fail("an answer is another request's", seed);
        }
        expected[result]++;
    }
    if (memcmp(expected, totals, sizeof totals) != 0) {
        fail("results were not counted right", seed);
    }
}

static void gather(const ga_sharded_sort *sort, uint32_t end, uint64_t seed)
{
    uint32_t width = GA_SHARDED_WIDTH(sort->is_wide);
    ga_sharded_gather work = {.count = sort->count,
                              .indices = indices,
                              .extents = extents,
                              .results_from = results_from,
                              .found_from = found_from,
                              .results = results,
                              .found = found,
                              .totals = totals,
                              .bins = ga_sharded_bins(&sort->division),
                              .is_wide = sort->is_wide,
                              .repeat = (uint32_t)draw(3)};
    for (uint32_t i = 0; i < end; i++) {
        uint64_t key = ga_sharded_load(keys_to, i, width);
        ga_sharded_store(found_from, i, key * 5, width);
        results_from[i] = (uint8_t)(key % 4);
    }
    memset(totals, 0, sizeof totals);
    launch(sort->is_wide ? "ga_sharded_gather_wide_kernel" : "ga_sharded_gather_kernel", &work);
    check_gathered(sort, (ga_sharded_repeat)work.repeat, seed);
}

/* Numbers of requests are moved, which adds one to each of some of them, and then ordered. */
static void order(const ga_sharded_sort *sort, uint32_t end, uint64_t seed)
{
    uint32_t width = GA_SHARDED_WIDTH(sort->is_wide);
    ga_sharded_order work = {.count = sort->count,
                             .indices = indices,
                             .extents = extents,
                             .from = numbers,
                             .to = ordered,
                             .bins = ga_sharded_bins(&sort->division),
                             .is_wide = sort->is_wide};
    bool in_place = draw(2);
    ga_sharded_move move = {in_place ? numbers : numbers_from, numbers, draw(end + 1), 1};
    for (uint32_t i = 0; i < end; i++) {
        numbers_from[i] = numbers[i] = ga_sharded_load(keys_to, i, width) << 32 | i * 2;
    }
    launch("ga_sharded_move_kernel", &move);
    launch("ga_sharded_order_kernel", &work);
    for (uint64_t i = 0; i < sort->count; i++) {
        uint64_t at = (uint32_t)ordered[i] / 2;
        uint64_t key = ga_sharded_load(keys, i, width);
        if (ordered[i] >> 32 != (uint32_t)key || at >= end ||
            ga_sharded_load(keys_to, at, width) != key) {
            fail("a number is another request's", seed);
        }
        if ((ordered[i] & 1) != (at < move.count)) {
            fail("a number was not moved, or one behind the last", seed);
        }
    }
}

/* Bins of one size, for all requests or not for all, if there is room for such. */
static uint32_t find_begins_of_capacity(ga_sharded_sort *sort, uint32_t bins)
{
    uint64_t most = PAD;
    for (uint32_t bin = 0; bin < bins; bin++) {
        most = counts[bin] > most ? counts[bin] : most;
    }
    most = draw(3) ? (most + PAD - 1) / PAD * PAD : (1 + draw(most) / PAD) * PAD;
    if (sort->combines || bins * most + GA_SHARDED_SORT_MOST(sort->is_wide) > ROOM) {
        return find_begins(bins);
    }
    sort->capacity = (uint32_t)most;
    for (uint32_t bin = 0; bin < bins; bin++) {
        begins[bin] = bin * sort->capacity;
    }
    return bins * sort->capacity;
}

/* True: all requests had room. Otherwise pads are within their bins, all the same. */
static bool check_ends(const ga_sharded_sort *sort, uint32_t bins, uint64_t seed)
{
    uint32_t width = GA_SHARDED_WIDTH(sort->is_wide);
    uint64_t reserved = sort->is_wide ? UINT64_MAX : UINT32_MAX;
    bool fits = true;
    for (uint32_t bin = 0; bin < bins; bin++) {
        uint32_t until = begins[bin] + sort->capacity;
        if (cursors[bin] != begins[bin] + counts[bin]) {
            fail("a cursor does not count the requests of its bin", seed);
        }
        for (uint32_t i = cursors[bin]; i < until; i++) {
            if (ga_sharded_load(keys_to, i, width) != reserved) {
                fail("a bin is not padded up to its capacity", seed);
            }
        }
        fits = fits && cursors[bin] <= until;
    }
    return fits;
}

static void try_one(uint64_t seed)
{
    state = seed;
    emulated.seed = seed;
    emulated.order = (emulated_order)draw(EMULATED_ORDERS);
    emulated.seconds = 60;
    ga_sharded_sort sort = {.count = draw(REQUESTS),
                            .keys = keys,
                            .values = draw(2) ? values : NULL,
                            .ops = draw(2) ? ops : NULL,
                            .keys_to = keys_to,
                            .values_to = values_to,
                            .ops_to = ops_to,
                            .cursors = counts,
                            .indices = indices,
                            .extents = extents,
                            .is_wide = (uint32_t)draw(2)};
    sort.division = (ga_sharded_division){draw(UINT64_C(1) << 60), draw(UINT64_C(1) << 60),
                                          1 + (uint32_t)draw(8), (uint32_t)draw(7)};
    uint32_t bins = ga_sharded_bins(&sort.division);
    uint32_t width = GA_SHARDED_WIDTH(sort.is_wide);
    uint64_t different = 1 + draw(draw(2) ? 10 : UINT32_MAX);
    for (uint64_t i = 0; i < sort.count; i++) {
        uint64_t key = draw(different);
        ga_sharded_store(keys, i, key, width);
        ga_sharded_store(values, i, key * 3, width);
        ops[i] = (uint8_t)(key * 7);
    }
    memset(counts, 0, sizeof counts);
    sort.combines = (uint32_t)draw(2);
    launch(sort.combines ? "ga_sharded_combine_kernel" : "ga_sharded_count_kernel", &sort);
    if (sort.combines) {
        check_combined(&sort, seed);
    }
    uint32_t end = draw(2) ? find_begins(bins) : find_begins_of_capacity(&sort, bins);
    memcpy(cursors, begins, sizeof cursors);
    sort.cursors = cursors;
    ga_sharded_pad pad = {.cursors = cursors,
                          .counts = counts,
                          .keys_to = keys_to,
                          .bins = bins,
                          .to = PAD,
                          .capacity = sort.capacity,
                          .is_wide = sort.is_wide};
    memset(keys_to, 0, sizeof keys_to);
    if (!sort.capacity) {
        launch("ga_sharded_pad_kernel", &pad);
    }
    launch(sort.is_wide ? "ga_sharded_sort_wide_kernel" : "ga_sharded_sort_kernel", &sort);
    if (sort.capacity) {
        launch("ga_sharded_pad_kernel", &pad);
        if (!check_ends(&sort, bins, seed)) {
            return; /* the caller counts, and sorts again */
        }
    }
    check_sorted(&sort, seed);
    gather(&sort, end, seed);
    if (!sort.combines) { /* of such batches no numbers are ordered */
        order(&sort, end, seed);
    }
}

int main(int argc, char **argv)
{
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    time_t until = time(NULL) + (argc > 2 ? atoi(argv[2]) : 8);
    uint64_t done = 0;
    do {
        try_one(seed + done++);
    } while (time(NULL) < until);
    printf("%llu batches\n", (unsigned long long)done);
    return 0;
}
