/* SPDX-License-Identifier: MIT
 *
 * GA_SPGEMM_DYNAMIC on a device, with pieces of each size, and GA_SPGEMM_KERNEL_DOT.
 */
#include "spgemm_tests.h"

#include <inttypes.h>
#include <stdio.h>

static const uint32_t sizes[] = {8, 9, 16, 32, 48, 64, 96, 128, 255, 256};

enum {
    SIZES = sizeof sizes / sizeof *sizes,
    DOT_MOST = 1 << 22 /* dot products of a case */
};

static ga_spgemm_options dynamic(uint32_t size)
{
    ga_spgemm_options options = options_of(GA_SPGEMM_DYNAMIC, true);
    options.size_per_row = size;
    return options;
}

/* Rounds that the longest row needs. */
static uint64_t rounds_of(const ga_spgemm_product *want, uint32_t size)
{
    ga_csr view = ga_spgemm_view(want);
    uint64_t most = view.rows != 0;
    for (uint64_t row = 0; row < view.rows; row++) {
        uint64_t pieces = (view.offsets[row + 1] - view.offsets[row] + size - 1) / size;
        most = pieces > most ? pieces : most;
    }
    return most;
}

static bool multiply_size(const ga_csr *a, const ga_csr *b, const ga_spgemm_options *options,
                          ga_spgemm_product *c, const ga_spgemm_product *want)
{
    ga_spgemm_report report = {0};
    uint64_t entries = ga_vector_size(want->indices);
    if (ga_spgemm_multiply(a, b, options, c, &report) != GA_OK) {
        FAIL("a product, got: %s", ga_error_text());
        return false;
    }
    EXPECT(report.method == options->method && report.entries == entries);
    EXPECT(report.entries_peak >= entries);
    if (options->method == GA_SPGEMM_DYNAMIC) {
        EXPECT(report.size_per_row == options->size_per_row || !options->size_per_row);
        EXPECT(report.rounds == rounds_of(want, report.size_per_row));
        EXPECT(report.bytes_peak >= entries * (2 * sizeof(uint32_t) + ga_value_size(a->type)));
    }
    return is_product(c, want, true);
}

/* All rounds in one launch, with pieces of some sizes. */
static void multiply_together(const ga_csr *a, const ga_csr *b, ga_spgemm_product *c,
                              const ga_spgemm_product *want)
{
    for (uint32_t i = 0; !suite.no_growing && i < SIZES; i += suite.quick ? 4 : 3) {
        ga_spgemm_options options = dynamic(sizes[i]);
        options.flags |= GA_SPGEMM_COOPERATIVE;
        describe("%s, one launch, size %u", ga_value_type_text(a->type), sizes[i]);
        ga_vector_resize(c->indices, 0); /* so that it grows again */
        ga_vector_resize(c->values, 0);
        ga_vector_shrink_to_fit(c->indices);
        ga_vector_shrink_to_fit(c->values);
        multiply_size(a, b, &options, c, want);
    }
}

/* By the kernel dot: with pieces of two sizes, and by the methods precise and upper. */
static void multiply_dot(const ga_csr *a, const ga_csr *b, ga_spgemm_product *c,
                         const ga_spgemm_product *want)
{
    for (uint32_t i = 0; i < 4; i++) {
        ga_spgemm_options options = dynamic(i == 0 ? 8 : 48);
        options.method = i < 2 ? GA_SPGEMM_DYNAMIC : i == 2 ? GA_SPGEMM_PRECISE : GA_SPGEMM_UPPER;
        options.kernel = GA_SPGEMM_KERNEL_DOT;
        describe("%s, dot, %s, size %u", ga_value_type_text(a->type),
                 ga_spgemm_method_text(options.method), options.size_per_row);
        multiply_size(a, b, &options, c, want);
    }
}

static void multiply_sizes(int device, const char *name, matrix *a, matrix *b)
{
    for (uint32_t type = 0; type < GA_VALUE_TYPE_COUNT; type++) {
        matrix_fill(a, type, 1);
        matrix_fill(b, type, 2);
        device_matrix on_a = upload(device, &a->view), on_b = upload(device, &b->view);
        ga_spgemm_product want = host_product(&a->view, &b->view);
        ga_spgemm_product c = open_product(GA_PLACE_DEVICE, device, NULL, type);
        bool good = true;
        for (uint32_t i = 0; good && i < SIZES; i += suite.quick ? 4 : 1) {
            ga_spgemm_options options = dynamic(sizes[i]);
            describe("%s, %s, size %u", name, ga_value_type_text(type), sizes[i]);
            good = multiply_size(&on_a.view, &on_b.view, &options, &c, &want);
        }
        multiply_together(&on_a.view, &on_b.view, &c, &want);
        if (a->view.rows * b->view.columns < DOT_MOST) {
            multiply_dot(&on_a.view, &on_b.view, &c, &want);
        }
        device_matrix_close(&on_a);
        device_matrix_close(&on_b);
        close_product(&want);
        close_product(&c);
    }
    matrix_free(a);
    matrix_free(b);
}

/* ---- shapes ---------------------------------------------------------------------------------- */

/* A row of A names one row of B, so a row of C has exactly as many entries as that. */
static void exact_rows(int device)
{
    static const uint32_t counts[] = {8, 16, 9, 0, 7, 15, 17, 24, 1, 256, 255, 257, 512, 48, 49};
    enum {
        COUNTS = sizeof counts / sizeof *counts,
        ROWS = 40 * COUNTS
    };
    matrix a = matrix_begin(ROWS, COUNTS), b = matrix_begin(COUNTS, 600);
    for (uint32_t row = 0; row < ROWS; row++) {
        matrix_put(&a, row % COUNTS);
        matrix_end_row(&a);
    }
    for (uint32_t row = 0; row < COUNTS; row++) {
        for (uint32_t i = 0; i < counts[row]; i++) {
            matrix_put(&b, i);
        }
        matrix_end_row(&b);
    }
    multiply_sizes(device, "rows that fill their pieces", &a, &b);
}

/* Rows of A of 1 to 200 entries, with tiles of 4 to 32 lanes: so of several groups of lanes. */
static void groups(int device)
{
    static const uint64_t usual[] = {2, 6, 12, 25, 60};
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) {
        uint64_t random = i + 1, n = suite.quick ? 200 : 2000;
        matrix a = matrix_begin(n, 300), b = random_matrix(300, 1000, 20000, 9);
        char name[64];
        for (uint64_t row = 0; row < n; row++) {
            put_random_row(&a, 0, 300, row % 61 == 7 ? 1 + row % 200 : usual[i], &random);
            matrix_end_row(&a);
        }
        snprintf(name, sizeof name, "rows of about %u entries", (unsigned)usual[i]);
        multiply_sizes(device, name, &a, &b);
    }
}

/* One row of A has an entry in each column, and its row of C as many columns. */
static void one_long_row(int device)
{
    uint64_t random = 3, n = suite.quick ? 500 : 1500;
    matrix a = matrix_begin(n, n), b = matrix_begin(n, n);
    for (uint64_t row = 0; row < n; row++) {
        put_random_row(&a, 0, n, row == n / 3 ? n : 3, &random);
        matrix_end_row(&a);
        put_random_row(&b, 0, n, 1 + row % 7, &random);
        matrix_end_row(&b);
    }
    multiply_sizes(device, "a long row", &a, &b);
}

static void many_rows(int device)
{
    uint64_t n = suite.quick ? 1000 : 100000;
    matrix a = band_matrix(n, 7, 300), b = band_matrix(n, 9, 1);
    multiply_sizes(device, "many rows", &a, &b);
}

static void no_entries(int device)
{
    matrix a = random_matrix(100, 50, 0, 1), b = random_matrix(50, 70, 300000, 2);
    multiply_sizes(device, "no entries", &a, &b);
    a = random_matrix(0, 50, 0, 1);
    b = random_matrix(50, 70, 300000, 2);
    multiply_sizes(device, "no rows", &a, &b);
    a = random_matrix(1, 50, 300000, 1);
    b = random_matrix(50, 1, 300000, 2);
    multiply_sizes(device, "one row and one column", &a, &b);
}

/* ---- choices and limits ---------------------------------------------------------------------- */

static void goals(int device)
{
    matrix a = band_matrix(20000, 20, 1); /* rows of 39 entries */
    matrix_fill(&a, GA_FLOAT64, 1);
    device_matrix on_a = upload(device, &a.view);
    ga_spgemm_product want = host_product(&a.view, &a.view);
    for (uint32_t goal = 0; goal < GA_SPGEMM_GOAL_COUNT; goal++) {
        ga_spgemm_product c = open_product(GA_PLACE_DEVICE, device, NULL, GA_FLOAT64);
        ga_spgemm_options options = dynamic(0);
        ga_spgemm_report report;
        options.goal = goal;
        describe("goal %u", goal);
        multiply_size(&on_a.view, &on_a.view, &options, &c, &want);
        EXPECT(ga_spgemm_multiply(&on_a.view, &on_a.view, &options, &c, &report) == GA_OK);
        EXPECT(report.size_per_row == (goal == GA_SPGEMM_GOAL_MEMORY ? 8u : 48u));
        double off = (double)report.entries_estimated / (double)report.entries;
        EXPECT(off > 0.95 && off < 1.05);
        options.method = GA_SPGEMM_AUTO;
        if (goal != GA_SPGEMM_GOAL_TIME || !suite.no_growing) {
            EXPECT(ga_spgemm_multiply(&on_a.view, &on_a.view, &options, &c, &report) == GA_OK);
            EXPECT(report.method == GA_SPGEMM_PRECISE || goal == GA_SPGEMM_GOAL_TIME);
            is_product(&c, &want, true);
        }
        close_product(&c);
    }
    close_product(&want);
    device_matrix_close(&on_a);
    matrix_free(&a);
}

/* The estimate of a growing product whose rows have most of the columns: `each` entries in each row
 * of A and of B. */
static void estimate_rows(int device, uint64_t rows, uint64_t columns, uint64_t each)
{
    uint64_t random = each;
    matrix a = matrix_begin(rows, 1000), b = matrix_begin(1000, columns);
    for (uint64_t row = 0; row < rows; row++) {
        put_random_row(&a, 0, 1000, each, &random);
        matrix_end_row(&a);
    }
    for (uint64_t row = 0; row < 1000; row++) {
        put_random_row(&b, 0, columns, each, &random);
        matrix_end_row(&b);
    }
    matrix_fill(&a, GA_FLOAT64, 1);
    matrix_fill(&b, GA_FLOAT64, 2);
    device_matrix on_a = upload(device, &a.view), on_b = upload(device, &b.view);
    ga_spgemm_product c = open_product(GA_PLACE_DEVICE, device, NULL, GA_FLOAT64);
    ga_spgemm_options options = dynamic(0);
    ga_spgemm_report report;
    options.method = GA_SPGEMM_GROWING;
    describe("%" PRIu64 " columns, rows of %" PRIu64 " entries", columns, each);
    EXPECT(ga_spgemm_multiply(&on_a.view, &on_b.view, &options, &c, &report) == GA_OK);
    double off = (double)report.entries_estimated / (double)report.entries;
    EXPECT(off > 0.9 && off < 1.1);
    EXPECT(report.entries_peak < report.entries + report.entries / 10 + (1u << 21));
    close_product(&c);
    device_matrix_close(&on_a);
    device_matrix_close(&on_b);
    matrix_free(&a);
    matrix_free(&b);
}

static void estimates(int device)
{
    if (suite.no_growing) {
        SKIP("it grows under a kernel");
    }
    estimate_rows(device, 3000, 2000, 100);   /* 10,000 multiplications of a row: in the sample */
    estimate_rows(device, 3000, 4000, 141);   /* 20,000: beyond it */
    estimate_rows(device, 3000, 512, 180);    /* 32,400 */
    estimate_rows(device, 3000, 100000, 250); /* 62,500 */
}

/* Memory ends in the second round. */
static void a_limit(int device)
{
    matrix a = band_matrix(100000, 20, 1);
    matrix_fill(&a, GA_FLOAT64, 1);
    device_matrix on_a = upload(device, &a.view);
    ga_spgemm_options options = dynamic(16);
    ga_spgemm_product c = open_limited(device, GA_FLOAT64, 0, 20ull * 100000 * sizeof(double));
    describe("a limit in the second round");
    EXPECT(ga_spgemm_multiply(&on_a.view, &on_a.view, &options, &c, NULL) == GA_ERR_MEMORY);
    EXPECT(test_error_has("limit"));
    EXPECT(ga_vector_size(c.offsets) + ga_vector_size(c.indices) + ga_vector_size(c.values) == 0);
    if (!suite.no_growing) {
        describe("a limit in the second round of one launch");
        options.flags |= GA_SPGEMM_COOPERATIVE;
        EXPECT(ga_spgemm_multiply(&on_a.view, &on_a.view, &options, &c, NULL) == GA_ERR_MEMORY);
        EXPECT(test_error_has("the vector of values has no room"));
        EXPECT(ga_vector_size(c.offsets) + ga_vector_size(c.values) == 0);
    }
    close_product(&c);
    device_matrix_close(&on_a);
    matrix_free(&a);
}

case_list dynamic_cases(void)
{
    static const test_case cases[] = {
        {"rows that fill their pieces", exact_rows},
        {"rows of several groups of lanes", groups},
        {"one long row", one_long_row},
        {"many rows", many_rows},
        {"no entries", no_entries},
        {"sizes that are chosen", goals},
        {"estimates of large rows", estimates},
        {"a limit in a later round", a_limit},
    };
    return (case_list){"rounds", cases, sizeof cases / sizeof *cases};
}
