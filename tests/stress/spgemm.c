/* SPDX-License-Identifier: MIT
 *
 * Products of sparse matrices on many threads: several callers at once share the matrices, each
 * with vectors of its own, by all methods. Each result is compared with that of one thread, and
 * vectors with a limit fail again and again, at any row.
 */
#include "stress.h"

#include "support/random.h"

#include <gpualloc/spgemm.h>

#include <stdlib.h>
#include <string.h>

enum {
    CALLERS = 4,
    ROUNDS = 8,
    ROWS = 3000,
    MOST = 24 /* entries of a row */
};

static uint64_t offsets[ROWS + 1];
static uint32_t indices[ROWS * MOST];
static double values[ROWS * MOST];
static ga_csr matrix = {ROWS, ROWS, offsets, indices, values, GA_FLOAT64};

/* Small integers, whose sums are exact in any order. Some rows are long, some empty. */
static void make_matrix(void)
{
    uint64_t random = 1, count = 0;
    for (uint64_t row = 0; row < ROWS; row++) {
        uint64_t n = row % 97 == 0 ? 0 : 1 + random_below(&random, row % 50 == 0 ? MOST : 6);
        uint32_t column = (uint32_t)random_below(&random, ROWS / 2);
        for (uint64_t i = 0; i < n; i++) {
            indices[count] = column;
            values[count++] = (double)random_below(&random, 9) - 4;
            column += 1 + (uint32_t)random_below(&random, ROWS / 2 / MOST);
        }
        offsets[row + 1] = count;
    }
}

static ga_spgemm_product open_vectors(uint64_t limit)
{
    ga_arena_options options = {.options_size = sizeof options,
                                .place = GA_PLACE_HOST,
                                .flags = GA_ARENA_EXACT,
                                .limit = limit};
    ga_spgemm_product c = {0};
    stress_need(ga_vector_open(&c.offsets, sizeof(uint64_t), &options, NULL) == GA_OK &&
                    ga_vector_open(&c.indices, sizeof(uint32_t), &options, NULL) == GA_OK &&
                    ga_vector_open(&c.values, sizeof(double), &options, NULL) == GA_OK,
                "vectors open");
    return c;
}

static void close_vectors(ga_spgemm_product *c)
{
    ga_vector_close(c->offsets);
    ga_vector_close(c->indices);
    ga_vector_close(c->values);
}

static ga_spgemm_product expected;

static void compare(const ga_spgemm_product *product)
{
    ga_csr want = ga_spgemm_view(&expected), got = ga_spgemm_view(product);
    uint64_t n = want.offsets[ROWS];
    stress_need(!memcmp(want.offsets, got.offsets, sizeof offsets), "offsets are equal");
    stress_need(!memcmp(want.indices, got.indices, n * sizeof(uint32_t)), "columns are equal");
    stress_need(!memcmp(want.values, got.values, n * sizeof(double)), "values are equal");
}

static void multiply(size_t caller)
{
    uint64_t random = caller + 1;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        bool limited = round % 4 == 3;
        ga_spgemm_product c =
            open_vectors(limited ? (64 << 10) + random_below(&random, 256 << 10) : 0);
        ga_spgemm_options options = {.options_size = sizeof options,
                                     .method = (round + (uint32_t)caller) % GA_SPGEMM_METHOD_COUNT,
                                     .threads = 1 + (uint32_t)random_below(&random, 5)};
        ga_status status = ga_spgemm_multiply(&matrix, &matrix, &options, &c, NULL);
        stress_need(status == GA_OK || (limited && status == GA_ERR_MEMORY), ga_error_text());
        if (status == GA_OK) {
            compare(&c);
        } else {
            stress_need(!ga_vector_size(c.values), "a refused product is empty");
        }
        close_vectors(&c);
    }
}

int main(int argc, char **argv)
{
    ga_spgemm_options one = {.options_size = sizeof one, .method = GA_SPGEMM_PRECISE, .threads = 1};
    stress_begin(argc, argv);
    make_matrix();
    expected = open_vectors(0);
    stress_need(ga_spgemm_multiply(&matrix, &matrix, &one, &expected, NULL) == GA_OK,
                "one thread multiplies");
    while (stress_goes_on()) {
        stress_threads(CALLERS, multiply);
    }
    close_vectors(&expected);
    return 0;
}
