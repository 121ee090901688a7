/* SPDX-License-Identifier: MIT
 *
 * Products of matrices of many shapes, by each method, in both types, sorted and not.
 */
#include "spgemm_tests.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- small ----------------------------------------------------------------------------------- */

static void nothing(int device)
{
    static const uint64_t sizes[][3] = {{0, 5, 7}, {5, 0, 7}, {5, 7, 0}, {0, 0, 0}, {20, 20, 20}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char name[64];
        const uint64_t *n = sizes[i];
        snprintf(name, sizeof name, "%u x %u x %u without entries", (unsigned)n[0], (unsigned)n[1],
                 (unsigned)n[2]);
        multiply_pair(device, name, random_matrix(n[0], n[1], 0, 1),
                      random_matrix(n[1], n[2], 0, 1));
    }
    multiply_pair(device, "entries of A that meet none of B", random_matrix(30, 40, 200000, 1),
                  random_matrix(40, 50, 0, 1));
}

static void one_of_each(int device)
{
    multiply_pair(device, "1 x 1 x 1", random_matrix(1, 1, 1000000, 1),
                  random_matrix(1, 1, 1000000, 2));
    multiply_pair(device, "one row", random_matrix(1, 400, 300000, 1),
                  random_matrix(400, 300, 100000, 2));
    multiply_pair(device, "one column", random_matrix(300, 400, 100000, 1),
                  random_matrix(400, 1, 300000, 2));
    multiply_pair(device, "a dense row times a dense column", random_matrix(1, 3000, 1000000, 1),
                  random_matrix(3000, 1, 1000000, 2));
    multiply_pair(device, "a dense column times a dense row", random_matrix(500, 1, 1000000, 1),
                  random_matrix(1, 700, 1000000, 2));
}

static void dense(int device)
{
    multiply_pair(device, "dense 64 x 64", random_matrix(64, 64, 1000000, 1),
                  random_matrix(64, 64, 1000000, 2));
    multiply_pair(device, "dense 33 x 65 x 17", random_matrix(33, 65, 1000000, 1),
                  random_matrix(65, 17, 1000000, 2));
    multiply_pair(device, "dense 10 x 20 x 3000", random_matrix(10, 20, 1000000, 1),
                  random_matrix(20, 3000, 1000000, 2));
}

static void empty_rows(int device)
{
    matrix ends = matrix_begin(1000, 1000);
    for (uint64_t row = 0; row < 1000; row++) {
        for (uint64_t column = 0; row % 999 == 0 && column < 1000; column += 3) {
            matrix_put(&ends, column);
        }
        matrix_end_row(&ends);
    }
    multiply_square(device, "only the first and the last row", ends);
    multiply_square(device, "mostly empty rows", random_matrix(1500, 1500, 500, 1));
    multiply_pair(device, "empty rows of B", random_matrix(500, 500, 20000, 1),
                  random_matrix(500, 500, 1000, 2));
}

static void not_square(int device)
{
    multiply_pair(device, "40 x 50 x 60", random_matrix(40, 50, 100000, 1),
                  random_matrix(50, 60, 100000, 2));
    multiply_pair(device, "2000 x 30 x 500", random_matrix(2000, 30, 100000, 1),
                  random_matrix(30, 500, 50000, 2));
    multiply_pair(device, "30 x 2000 x 10", random_matrix(30, 2000, 50000, 1),
                  random_matrix(2000, 10, 200000, 2));
}

static void identity(int device)
{
    matrix permutation = matrix_begin(700, 700);
    for (uint64_t row = 0; row < 700; row++) {
        matrix_put(&permutation, row * 331 % 700);
        matrix_end_row(&permutation);
    }
    multiply_pair(device, "identity times A", band_matrix(600, 1, 1),
                  random_matrix(600, 400, 20000, 1));
    multiply_pair(device, "A times identity", random_matrix(400, 600, 20000, 1),
                  band_matrix(600, 1, 1));
    multiply_square(device, "a permutation", permutation);
}

/* ---- regular --------------------------------------------------------------------------------- */

static void stencils(int device)
{
    static const uint64_t widths[] = {3, 7, 27};
    for (int i = 0; i < 3; i++) {
        char name[64];
        uint64_t n = suite.quick ? 500 : 20000;
        for (uint64_t apart = 1; apart <= 31; apart += 30) {
            snprintf(name, sizeof name, "%u diagonals, %u apart", (unsigned)widths[i],
                     (unsigned)apart);
            multiply_square(device, name, band_matrix(n, widths[i], apart));
        }
    }
}

/* Dense blocks on the diagonal, of 1 to `most` rows. */
static matrix blocks_of(uint64_t n, uint64_t most)
{
    matrix m = matrix_begin(n, n);
    uint64_t size = 1;
    for (uint64_t first = 0; first < n; first += size, size = size % most + 1) {
        for (uint64_t row = first; row < first + size && row < n; row++) {
            for (uint64_t column = first; column < first + size && column < n; column++) {
                matrix_put(&m, column);
            }
            matrix_end_row(&m);
        }
    }
    return m;
}

static void blocks(int device)
{
    multiply_square(device, "blocks of 1 to 40 rows", blocks_of(suite.quick ? 300 : 3000, 40));
    multiply_square(device, "larger blocks", blocks_of(suite.quick ? 300 : 9000, 200));
}

/* ---- skewed ---------------------------------------------------------------------------------- */

static int compare_words(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

/* 2^scale rows, and `edges` entries, of which some meet: each bit of a position is drawn with the
 * probabilities of R-MAT. */
static matrix skewed(uint32_t scale, uint64_t edges, uint64_t random)
{
    matrix m = matrix_begin((uint64_t)1 << scale, (uint64_t)1 << scale);
    uint64_t *all = calloc(edges, sizeof *all);
    for (uint64_t i = 0; all && i < edges; i++) {
        uint64_t row = 0, column = 0;
        for (uint32_t bit = 0; bit < scale; bit++) {
            uint64_t draw = random_below(&random, 100);
            row = row * 2 + (draw >= 76);
            column = column * 2 + ((draw >= 57 && draw < 76) || draw >= 95);
        }
        all[i] = row << 32 | column;
    }
    qsort(all, all ? edges : 0, sizeof *all, compare_words);
    for (uint64_t row = 0, i = 0; row < m.view.rows; row++) {
        for (; all && i < edges && all[i] >> 32 == row; i++) {
            if (!i || all[i] != all[i - 1]) {
                matrix_put(&m, all[i] & UINT32_MAX);
            }
        }
        matrix_end_row(&m);
    }
    free(all);
    return m;
}

/* Row i has about n / (i + 1) entries, in shuffled rows. */
static matrix power_law(uint64_t n, uint64_t random)
{
    matrix m = matrix_begin(n, n);
    for (uint64_t row = 0; row < n; row++) {
        uint64_t rank = row * 7919 % n + 1, count = n / 4 / rank + 1;
        put_random_row(&m, 0, n, count, &random);
        matrix_end_row(&m);
    }
    return m;
}

static void skew(int device)
{
    multiply_square(device, "R-MAT", suite.quick ? skewed(8, 2000, 1) : skewed(13, 100000, 1));
    multiply_square(device, "R-MAT, sparse",
                    suite.quick ? skewed(9, 600, 2) : skewed(15, 60000, 2));
    multiply_square(device, "power law", power_law(suite.quick ? 300 : 6000, 3));
}

/* ---- special values -------------------------------------------------------------------------- */

static void put_special_values(matrix *m, uint64_t random)
{
    static const double special[] = {NAN, INFINITY, -INFINITY, 0, -0.0};
    uint64_t entries = m->offsets[m->view.rows];
    for (uint64_t i = 0; i < entries; i++) {
        if (random_below(&random, 6) == 0) {
            set_value(m->values, m->view.type, i, special[random_below(&random, 5)]);
        }
    }
}

static void special_values(int device)
{
    matrix a = random_matrix(300, 200, 20000, 1), b = random_matrix(200, 250, 30000, 2);
    for (uint32_t type = 0; type < GA_VALUE_TYPE_COUNT; type++) {
        matrix_fill(&a, type, 3);
        matrix_fill(&b, type, 4);
        put_special_values(&a, 5);
        put_special_values(&b, 6);
        describe("NaN, infinities and zeros");
        multiply_each(device, &a.view, &b.view);
    }
    matrix_free(&a);
    matrix_free(&b);
}

/* ---- random shapes --------------------------------------------------------------------------- */

/* Rows of different kinds: empty, short, long, close together, dense. */
static matrix random_kinds(uint64_t rows, uint64_t columns, uint64_t *random)
{
    matrix m = matrix_begin(rows, columns);
    uint64_t kinds = 1 + random_below(random, 5), most = 1 + random_below(random, 40);
    for (uint64_t row = 0; row < rows; row++) {
        uint64_t kind = random_below(random, kinds), low = random_below(random, columns + 1);
        uint64_t count = 1 + random_below(random, most);
        if (kind == 0) {
            put_random_row(&m, 0, columns, count, random);
        } else if (kind == 1) {
            put_random_row(&m, low, low + count < columns ? low + count : columns, count, random);
        } else if (kind == 2) {
            put_random_row(&m, low, columns, columns / 4, random);
        } else if (kind == 3 && random_below(random, 20) == 0) {
            put_random_row(&m, 0, columns, columns, random);
        }
        matrix_end_row(&m);
    }
    return m;
}

/* One product of the seed's shape, by a method that the seed chooses; false if the case failed. */
static bool multiply_seed(int device, uint64_t seed, ga_spgemm_product *c)
{
    uint64_t random = seed, scale = 1 + random_below(&random, 9);
    uint64_t n = random_below(&random, (size_t)2 << scale), k = random_below(&random, 300);
    uint64_t columns = random_below(&random, (size_t)2 << scale);
    ga_spgemm_method method = random_below(&random, GA_SPGEMM_METHOD_COUNT);
    bool sorted = random_below(&random, 2);
    ga_value_type type = ga_vector_element(c->values) == sizeof(double) ? GA_FLOAT64 : GA_FLOAT32;
    matrix a = random_kinds(n, k, &random), b = random_kinds(k, columns, &random);
    matrix_fill(&a, type, seed);
    matrix_fill(&b, type, seed + 1);
    describe("seed %llu: %llu x %llu x %llu, %s, %s, %s", (unsigned long long)seed,
             (unsigned long long)n, (unsigned long long)k, (unsigned long long)columns,
             ga_value_type_text(type), ga_spgemm_method_text(method),
             sorted ? "sorted" : "unsorted");
    ga_spgemm_product want = host_product(&a.view, &b.view);
    device_matrix on_a = upload(device, &a.view), on_b = upload(device, &b.view);
    ga_status status = multiply_device(&on_a.view, &on_b.view, method, sorted, c, &want, NULL);
    if (status != GA_OK) {
        FAIL("a product, got status %d", (int)status);
    }
    bool good = status == GA_OK && is_product(c, &want, sorted);
    close_product(&want);
    device_matrix_close(&on_a);
    device_matrix_close(&on_b);
    matrix_free(&a);
    matrix_free(&b);
    return good;
}

static void random_shapes(int device)
{
    for (uint32_t type = 0; type < GA_VALUE_TYPE_COUNT; type++) {
        ga_spgemm_product c = open_product(GA_PLACE_DEVICE, device, NULL, type);
        uint64_t seeds = suite.quick ? 20 : 300;
        for (uint64_t seed = 1; seed <= seeds && multiply_seed(device, seed, &c); seed++) {
        }
        close_product(&c);
    }
}

case_list shape_cases(void)
{
    static const test_case cases[] = {
        {"no rows, no columns, no entries", nothing},
        {"one row, one column", one_of_each},
        {"dense matrices", dense},
        {"empty rows", empty_rows},
        {"matrices that are not square", not_square},
        {"identity and permutation", identity},
        {"stencils", stencils},
        {"blocks", blocks},
        {"skewed matrices", skew},
        {"NaN, infinities and zeros", special_values},
        {"random shapes", random_shapes},
    };
    return (case_list){"products", cases, sizeof cases / sizeof *cases};
}
