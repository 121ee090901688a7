/* SPDX-License-Identifier: MIT
 *
 * Patterns that are drawn: links near the diagonal, and two with skewed rows.
 */
#include "pattern.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    REACH = LOCAL_REACH_MAX,
    DIGIT_BITS = 16 /* of a pass of the radix sort */
};

/* ---- local ---------------------------------------------------------------------------------- */

/* The links ahead of the last REACH + 1 rows: links[i % (REACH + 1)][d] is true if row i has one to
 * row i + d. */
typedef bool recent_links[REACH + 1][REACH + 1];

/* Dense runs are spread evenly, so that their share is exact; the seed shifts them. */
static bool is_dense(const local *l, uint64_t row, uint64_t seed)
{
    double begin = bench_unit(bench_mix(seed));
    double number = l->run ? (double)(row / l->run) : 0;
    return l->run && floor(begin + (number + 1) * l->share) > floor(begin + number * l->share);
}

static void draw_links(const local *l, uint64_t row, uint64_t seed, bool links[REACH + 1])
{
    uint64_t random = bench_mix(row ^ bench_mix(seed ^ 2));
    double wanted = is_dense(l, row, seed) ? l->dense_links : l->links;
    double whole = floor(wanted);
    int count = (int)whole + (bench_unit(bench_random(&random)) < wanted - whole ? 1 : 0);
    memset(links, 0, (REACH + 1) * sizeof *links);
    for (int i = 0; i < count; i++) {
        links[1 + bench_random(&random) % l->reach] = true;
    }
}

static void add_local_row(pattern *p, const local *l, uint64_t row, const recent_links links)
{
    for (uint64_t d = row < l->reach ? row : l->reach; d > 0; d--) {
        if (links[(row - d) % (REACH + 1)][d]) {
            pattern_add(p, row - d);
        }
    }
    pattern_add(p, row);
    for (uint64_t d = 1; d <= l->reach && row + d < p->rows; d++) {
        if (links[row % (REACH + 1)][d]) {
            pattern_add(p, row + d);
        }
    }
    pattern_end_row(p);
}

void generate_local(pattern *p, uint64_t rows, const local *l, uint64_t seed)
{
    recent_links links = {{0}};
    pattern_begin(p, rows);
    for (uint64_t row = 0; row < rows; row++) {
        draw_links(l, row, seed, links[row % (REACH + 1)]);
        add_local_row(p, l, row, (const bool(*)[REACH + 1]) links);
    }
}

/* ---- entries in any order ------------------------------------------------------------------- */

/* Row in the upper half, column in the lower. */
static uint64_t entry_of(uint64_t row, uint64_t column)
{
    return row << 32 | column;
}

/* One pass of the radix sort, by the digit at `shift`. */
static void sort_by_digit(const uint64_t *from, uint64_t *to, uint64_t count, int shift,
                          uint64_t *places)
{
    uint64_t digits = UINT64_C(1) << DIGIT_BITS;
    memset(places, 0, digits * sizeof *places);
    for (uint64_t i = 0; i < count; i++) {
        places[from[i] >> shift & (digits - 1)]++;
    }
    uint64_t place = 0;
    for (uint64_t digit = 0; digit < digits; digit++) {
        uint64_t here = places[digit];
        places[digit] = place;
        place += here;
    }
    for (uint64_t i = 0; i < count; i++) {
        to[places[from[i] >> shift & (digits - 1)]++] = from[i];
    }
}

/* Sorts the entries; false if memory is exhausted. */
static bool sort_entries(uint64_t *entries, uint64_t count)
{
    uint64_t *other = malloc((count + 1) * sizeof *other);
    uint64_t *places = malloc((UINT64_C(1) << DIGIT_BITS) * sizeof *places);
    bool good = other && places;
    for (int shift = 0; good && shift < 64; shift += 2 * DIGIT_BITS) {
        sort_by_digit(entries, other, count, shift, places);
        sort_by_digit(other, entries, count, shift + DIGIT_BITS, places);
    }
    free(other);
    free(places);
    return good;
}

/* Appends all rows from sorted entries; equal entries become one. */
static void add_sorted(pattern *p, const uint64_t *entries, uint64_t count)
{
    uint64_t i = 0;
    for (uint64_t row = 0; row < p->rows; row++) {
        for (; i < count && entries[i] >> 32 == row; i++) {
            if (i == 0 || entries[i] != entries[i - 1]) {
                pattern_add(p, (uint32_t)entries[i]);
            }
        }
        pattern_end_row(p);
    }
}

/* Frees the entries, which may be NULL. */
static void generate_entries(pattern *p, uint64_t rows, uint64_t *entries, uint64_t count)
{
    p->failed = !entries || !sort_entries(entries, count);
    if (!p->failed) {
        pattern_begin(p, rows);
        add_sorted(p, entries, count);
    }
    free(entries);
}

/* ---- skewed rows ---------------------------------------------------------------------------- */

/* Chooses a quadrant of the matrix, then a quadrant of that, until one entry is left. */
static uint64_t draw_rmat(uint64_t rows, uint64_t *random)
{
    uint64_t row;
    uint64_t column;
    do {
        row = column = 0;
        for (uint64_t size = 1; size < rows; size *= 2) {
            double chance = bench_unit(bench_random(random));
            row = row * 2 + (chance >= 0.76);
            column = column * 2 + ((chance >= 0.57 && chance < 0.76) || chance >= 0.95);
        }
    } while (row >= rows || column >= rows);
    return entry_of(row, column);
}

void generate_rmat(pattern *p, uint64_t rows, uint32_t each, uint64_t seed)
{
    uint64_t count = rows * each;
    uint64_t random = bench_mix(seed ^ 3);
    uint64_t *entries = malloc((count + 1) * sizeof *entries);
    for (uint64_t i = 0; entries && i < count; i++) {
        entries[i] = draw_rmat(rows, &random);
    }
    generate_entries(p, rows, entries, count);
}

/* Lengths below 4 would make most rows trivial. */
static uint64_t draw_length(uint64_t rows, uint64_t seed, uint64_t row)
{
    double chance = 1 - bench_unit(bench_mix(row + bench_mix(seed ^ 4)));
    double length = 4 * (double)powl(chance, -1 / 1.2); /* the newest pow() is of glibc 2.29 */
    uint64_t longest = rows / 64 + 4;
    return length < (double)longest ? (uint64_t)length : longest;
}

static uint64_t sum_lengths(uint64_t rows, uint64_t seed)
{
    uint64_t sum = 0;
    for (uint64_t row = 0; row < rows; row++) {
        sum += draw_length(rows, seed, row);
    }
    return sum;
}

void generate_powerlaw(pattern *p, uint64_t rows, uint64_t seed)
{
    uint64_t count = sum_lengths(rows, seed);
    uint64_t random = bench_mix(seed ^ 5);
    uint64_t *entries = malloc((count + 1) * sizeof *entries);
    uint64_t at = 0;
    for (uint64_t row = 0; entries && row < rows; row++) {
        for (uint64_t left = draw_length(rows, seed, row); left > 0; left--) {
            entries[at++] = entry_of(row, bench_random(&random) % rows);
        }
    }
    generate_entries(p, rows, entries, count);
}
