/* SPDX-License-Identifier: MIT
 *
 * Rows at and above the sizes of the kernels' tables, and matrices with many columns.
 */
#include "spgemm_tests.h"

#include <stdio.h>

/* ---- exact sizes ----------------------------------------------------------------------------- */

/* B for rows of C of any size: 8192 rows that have `length` columns each, which are in no other
 * row, and below those 32 rows with one. */
enum {
    LONG_ROWS = 8192,
    SHORT_ROWS = 32
};

static matrix pieces_of(uint64_t length)
{
    uint64_t column = 0;
    matrix m = matrix_begin(LONG_ROWS + SHORT_ROWS, LONG_ROWS * length + SHORT_ROWS);
    for (uint64_t row = 0; row < m.view.rows; row++) {
        for (uint64_t end = column + (row < LONG_ROWS ? length : 1); column < end; column++) {
            matrix_put(&m, column);
        }
        matrix_end_row(&m);
    }
    return m;
}

/* A row that makes a row of C with exactly that many entries. */
static void put_exact_row(matrix *m, uint64_t entries, uint64_t length, uint64_t *random)
{
    uint64_t whole = entries / length;
    put_random_row(m, 0, LONG_ROWS, whole, random);
    put_random_row(m, LONG_ROWS, LONG_ROWS + SHORT_ROWS, entries - whole * length, random);
    matrix_end_row(m);
}

/* Rows of one size, or of the tables' sizes among small ones. Tables have 32 to 512 slots, of which
 * five sixths may be taken, and blocks 2048 or 4096. */
static void exact_sizes(int device)
{
    static const uint64_t sizes[] = {20,  26,  27,  32,  33,   53,   54,   63,   64,   65,   106,
                                     107, 128, 129, 213, 214,  256,  257,  341,  342,  426,  427,
                                     512, 513, 682, 683, 1024, 1025, 1365, 1366, 2048, 2049, 4097};
    enum {
        SIZES = sizeof sizes / sizeof *sizes
    };
    for (uint64_t length = 1; length <= 32; length *= length == 1 ? 4 : 2) {
        uint64_t random = length, small = suite.quick ? 100 : 3000;
        char name[64];
        matrix b = pieces_of(length);
        for (int i = 0; !suite.quick && i < SIZES; i++) {
            matrix equal = matrix_begin(150, b.view.rows);
            for (int row = 0; row < 150; row++) {
                put_exact_row(&equal, sizes[i] + (row % 50 == 49), length, &random);
            }
            snprintf(name, sizeof name, "rows of %u entries by %u", (unsigned)sizes[i],
                     (unsigned)length);
            multiply_all(device, name, &equal, &b);
            matrix_free(&equal);
        }
        matrix mixed = matrix_begin(small + SIZES, b.view.rows);
        for (uint64_t row = 0; row < small + SIZES; row++) {
            uint64_t entries = row < small ? 1 + random_below(&random, 20) : sizes[row - small];
            put_exact_row(&mixed, entries, length, &random);
        }
        snprintf(name, sizeof name, "rows of all sizes by %u", (unsigned)length);
        multiply_all(device, name, &mixed, &b);
        matrix_free(&mixed);
        matrix_free(&b);
    }
}

/* 1024 rows are the sample, at equal distances. They take as many multiplications as
 * the others but have few entries; so the others do not fit where rows of that kind should. */
static void rows_that_the_sample_misses(int device)
{
    uint64_t n = suite.quick ? 2048 : 10240, stride = n / 1024, random = 1;
    for (uint64_t length = 4; length <= 32; length *= 2) {
        matrix a = matrix_begin(n, 2000), b = matrix_begin(2000, 1000 * length);
        for (uint64_t row = 0; row < 2000; row++) {
            uint64_t first = row < 1000 ? row * length : row % 2 * length;
            for (uint64_t i = 0; i < length; i++) {
                matrix_put(&b, first + i);
            }
            matrix_end_row(&b);
        }
        for (uint64_t row = 0; row < n; row++) {
            bool missed = row % 10 == 5 && row % stride != 0;
            put_random_row(&a, missed ? 0 : 1000, missed ? 1000 : 2000, 20 + 480 * (row % 30 < 10),
                           &random);
            matrix_end_row(&a);
        }
        multiply_pair(device, "rows that the sample misses", a, b);
    }
}

/* ---- large rows ------------------------------------------------------------------------------ */

static void long_rows(int device)
{
    uint64_t random = 1, n = suite.quick ? 8 : 60;
    matrix a = matrix_begin(n, 2000), b = matrix_begin(2000, 30000);
    for (uint64_t row = 0; row < n; row++) {
        put_random_row(&a, 0, 2000, 30 + row * 10, &random);
        matrix_end_row(&a);
    }
    for (uint64_t row = 0; row < 2000; row++) {
        put_random_row(&b, 0, 30000, 25, &random);
        matrix_end_row(&b);
    }
    multiply_pair(device, "rows of 600 to 15000 entries", a, b);
}

/* Rows of three entries, but for some of all. */
static matrix mostly_short(uint64_t n, uint64_t first, uint64_t apart, uint64_t seed)
{
    matrix m = matrix_begin(n, n);
    for (uint64_t row = 0; row < n; row++) {
        put_random_row(&m, 0, n, row >= first && (row - first) % apart == 0 ? n : 3, &seed);
        matrix_end_row(&m);
    }
    return m;
}

static void one_large_row(int device)
{
    uint64_t n = suite.quick ? 3000 : 100000;
    multiply_pair(device, "one large row", mostly_short(n, n / 2, n, 1), band_matrix(n, 7, 5));
    multiply_pair(device, "a large row first and last", mostly_short(n, 0, n - 1, 2),
                  band_matrix(n, 3, 1));
    multiply_pair(device, "a large row beside another", mostly_short(n / 10, n / 20, n / 10, 3),
                  mostly_short(n / 10, 7, n / 30, 4));
}

/* Rows are cut by their multiplications, too, into more windows than there are columns. */
static void more_windows_than_columns(int device)
{
    uint64_t n = suite.quick ? 100000 : 600000, random = 1;
    matrix a = matrix_begin(3, n), b = matrix_begin(n, 3);
    for (uint64_t row = 0; row < 3; row++) {
        put_random_row(&a, 0, n, row == 2 ? 5 : n, &random);
        matrix_end_row(&a);
    }
    for (uint64_t row = 0; row < n; row++) {
        put_random_row(&b, 0, 3, 3, &random);
        matrix_end_row(&b);
    }
    multiply_pair(device, "more windows than columns", a, b);
}

/* Windows have equally many columns: here all entries are in the first one, or in some. */
static void large_rows_of_close_columns(int device)
{
    uint64_t n = suite.quick ? 1500 : 8000, columns = (uint64_t)1 << 20, random = 1;
    matrix b = matrix_begin(n, columns);
    for (uint64_t row = 0; row < n; row++) {
        put_random_row(&b, 0, n, 3, &random);
        put_random_row(&b, columns / 3, columns / 3 + 3 * n, 3, &random);
        put_random_row(&b, columns - 2000, columns, 1, &random);
        matrix_end_row(&b);
    }
    multiply_pair(device, "large rows of columns that are close", mostly_short(n, 3, n / 3, 2), b);
}

/* ---- many columns ---------------------------------------------------------------------------- */

/* Each tenth row of B is long; so A's rows are of all sizes, and some are large. The last column is
 * in many rows. */
static void multiply_wide(int device, uint64_t columns, bool large)
{
    uint64_t random = columns, n = large ? 20 : 300;
    char name[80];
    matrix a = matrix_begin(n, 200), b = matrix_begin(200, columns);
    for (uint64_t row = 0; row < n; row++) {
        put_random_row(&a, 0, 200, row % 10 == 0 ? 200 : 1 + row % 20, &random);
        matrix_end_row(&a);
    }
    for (uint64_t row = 0; row < 200; row++) {
        put_random_row(&b, 0, columns - 1, large ? 1 + row : 2, &random);
        if (row % 3 == 0) {
            matrix_put(&b, columns - 1);
        }
        matrix_end_row(&b);
    }
    snprintf(name, sizeof name, "%llu columns%s", (unsigned long long)columns,
             large ? ", large rows" : "");
    multiply_pair(device, name, a, b);
}

static void columns_up_to_2_23(int device)
{
    for (uint64_t columns = (1 << 23) - 1; columns <= (1 << 23) + 1; columns++) {
        multiply_wide(device, columns, false);
        multiply_wide(device, columns, true);
    }
}

static void columns_up_to_2_32(int device)
{
    static const uint64_t all[] = {(uint64_t)1 << 31, ((uint64_t)1 << 31) + 1,
                                   ((uint64_t)1 << 32) - 2};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        multiply_wide(device, all[i], false);
        multiply_wide(device, all[i], true);
    }
}

/* The largest number, by which sums of columns overflow: in a case of its own. */
static void columns_2_32_less_one(int device)
{
    multiply_wide(device, UINT32_MAX, false);
    multiply_wide(device, UINT32_MAX, true);
}

/* A has more than 2^23 columns, and B as many rows, most of which are empty. */
static void many_rows_of_b(int device)
{
    uint64_t k = (1 << 23) + 5, random = 1;
    if (suite.quick) {
        SKIP("it takes long");
    }
    matrix a = matrix_begin(2000, k), b = matrix_begin(k, 5000);
    for (uint64_t row = 0; row < 2000; row++) {
        put_random_row(&a, 0, k, 500, &random);
        matrix_end_row(&a);
    }
    for (uint64_t row = 0; row < k; row++) {
        put_random_row(&b, 0, 5000, row % 7 == 0 ? 2 : 0, &random);
        matrix_end_row(&b);
    }
    multiply_pair(device, "more than 2^23 rows of B", a, b);
}

/* Rows without entries, by which most blocks have nothing to do. */
static void many_rows_of_a(int device)
{
    uint64_t n = suite.quick ? 20000 : 3000000, random = 1;
    matrix a = matrix_begin(n, 1000);
    for (uint64_t row = 0; row < n; row++) {
        if (row % 1000 == 999) {
            put_random_row(&a, 0, 1000, 1 + row % 7, &random);
        }
        matrix_end_row(&a);
    }
    multiply_pair(device, "many rows of A", a, band_matrix(1000, 7, 3));
}

case_list large_cases(void)
{
    static const test_case cases[] = {
        {"rows that just fit a table, or do not", exact_sizes},
        {"rows that the sample misses", rows_that_the_sample_misses},
        {"rows of more than 512 entries", long_rows},
        {"one row far larger than all others", one_large_row},
        {"more windows than columns", more_windows_than_columns},
        {"large rows of close columns", large_rows_of_close_columns},
        {"about 2^23 columns", columns_up_to_2_23},
        {"up to 2^32 - 2 columns", columns_up_to_2_32},
        {"2^32 - 1 columns", columns_2_32_less_one},
        {"more than 2^23 rows of B", many_rows_of_b},
        {"millions of rows of A", many_rows_of_a},
    };
    return (case_list){"large", cases, sizeof cases / sizeof *cases};
}
