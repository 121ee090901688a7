/* SPDX-License-Identifier: MIT
 *
 * Products of sparse matrices on the host in rounds (GA_SPGEMM_DYNAMIC) and by dot products
 * (GA_SPGEMM_KERNEL_DOT), compared with a plain product.
 */
#include "spgemm_products.h"

static const uint32_t sizes[] = {0, 8, 9, 16, 48, 256};

static ga_spgemm_options dynamic(uint32_t size, uint32_t threads)
{
    return (ga_spgemm_options){.options_size = sizeof(ga_spgemm_options),
                               .method = GA_SPGEMM_DYNAMIC,
                               .size_per_row = size,
                               .threads = threads};
}

static uint64_t most_pieces(const ga_spgemm_product *c, uint32_t size)
{
    ga_csr view = ga_spgemm_view(c);
    uint64_t most = view.rows != 0;
    for (uint64_t row = 0; row < view.rows; row++) {
        uint64_t count = view.offsets[row + 1] - view.offsets[row];
        uint64_t pieces = (count + size - 1) / size;
        most = pieces > most ? pieces : most;
    }
    return most;
}

/* Each size of pieces and kernel, with one thread and several. */
static void multiply_rounds(const ga_csr *a, const ga_csr *b)
{
    ga_spgemm_product c = vectors(a->type, 0);
    for (size_t i = 0; i < 4 * sizeof sizes / sizeof *sizes; i++) {
        ga_spgemm_report report;
        ga_spgemm_options options = dynamic(sizes[i / 4], i & 1 ? 4 : 1);
        options.kernel = i & 2 ? GA_SPGEMM_KERNEL_DOT : GA_SPGEMM_KERNEL_ROWS;
        cr_assert_eq(ga_spgemm_multiply(a, b, &options, &c, &report), GA_OK, "%s", ga_error_text());
        expect_product(a, b, &c, true);
        cr_assert(report.size_per_row == options.size_per_row || !options.size_per_row);
        cr_assert(report.size_per_row >= 8 && report.size_per_row <= 256);
        cr_assert_eq(report.rounds, most_pieces(&c, report.size_per_row), "size %u: %llu rounds",
                     report.size_per_row, (unsigned long long)report.rounds);
        cr_assert_geq(report.bytes_peak,
                      report.entries * (2 * sizeof(uint32_t) + ga_value_size(a->type)));
    }
    vectors_end(&c);
}

static void multiply_dot(const ga_csr *a, const ga_csr *b)
{
    ga_spgemm_product c = vectors(a->type, 0);
    for (uint32_t threads = 1; threads < 6; threads += 4) {
        ga_spgemm_options options = dynamic(0, threads);
        ga_spgemm_report report;
        options.kernel = GA_SPGEMM_KERNEL_DOT;
        options.method = GA_SPGEMM_PRECISE;
        cr_assert_eq(ga_spgemm_multiply(a, b, &options, &c, &report), GA_OK, "%s", ga_error_text());
        expect_product(a, b, &c, true);
        options.method = GA_SPGEMM_UPPER;
        cr_assert_eq(ga_spgemm_multiply(a, b, &options, &c, &report), GA_OK, "%s", ga_error_text());
        expect_product(a, b, &c, true);
        cr_assert_geq(report.entries_peak, report.multiplications);
    }
    vectors_end(&c);
}

static void multiply_each(const ga_csr *a, const ga_csr *b)
{
    multiply_rounds(a, b);
    multiply_dot(a, b);
}

Test(spgemm_dynamic, shapes)
{
    multiply_random(multiply_each, 1, 1, 1, 1, 2, 1);
    multiply_random(multiply_each, 40, 50, 60, 0.1, 99, 2);
    multiply_random(multiply_each, 64, 64, 64, 1, 99, 4);         /* dense */
    multiply_random(multiply_each, 500, 500, 500, 0.001, 999, 5); /* mostly empty rows */
    multiply_random(multiply_each, 1, 400, 300, 0.3, 0, 6);
    multiply_random(multiply_each, 300, 400, 1, 0.1, 99, 7);
    multiply_random(multiply_each, 0, 5, 7, 0.5, 99, 1);
    multiply_random(multiply_each, 5, 0, 7, 0.5, 99, 1);
    multiply_random(multiply_each, 5, 7, 0, 0.5, 99, 1);
    multiply_random(multiply_each, 20, 20, 20, 0, 99, 1);
}

/* The row has entries in the first `count` columns. */
static void fill_row(matrix *m, uint64_t row, uint32_t count)
{
    uint64_t at = m->offsets[row];
    for (uint32_t i = 0; i < count; i++) {
        m->indices[at] = i;
        put_value(m, at++, (double)i - 3);
    }
    m->offsets[row + 1] = at;
}

/* Rows that end where their pieces end, one entry before, and one behind. */
Test(spgemm_dynamic, rows_that_fill_their_pieces)
{
    static const uint32_t counts[] = {8, 16, 9, 0, 7, 15, 17, 24, 1, 256, 255, 257, 512, 48, 49};
    enum {
        ROWS = sizeof counts / sizeof *counts
    };
    uint64_t random = 1;
    matrix b = make(ROWS, 600, 1, 0, GA_FLOAT64, &random); /* its rows are set below */
    matrix a = make(ROWS, ROWS, 0, 99, GA_FLOAT64, &random);
    for (uint32_t row = 0; row < ROWS; row++) { /* A is the identity */
        fill_row(&b, row, counts[row]);
        a.offsets[row + 1] = row + 1;
    }
    free(a.indices);
    a.indices = calloc(ROWS, sizeof *a.indices);
    for (uint32_t row = 0; row < ROWS; row++) {
        a.indices[row] = row;
        put_value(&a, row, 2);
    }
    a.view.indices = a.indices;
    multiply_each(&a.view, &b.view);
    matrix_end(&a);
    matrix_end(&b);
}

/* Rows of A of one entry more than groups of lanes have: up to several groups, an odd and an even
 * number of them. */
Test(spgemm_dynamic, long_rows)
{
    for (uint64_t n = 31; n <= 161; n += n % 32 == 31 ? 1 : n % 32 == 0 ? 1 : 30) {
        uint64_t random = n;
        matrix a = make(3, (uint32_t)n, 1, 99, GA_FLOAT64, &random);
        matrix b = make(n, 700, 0.02, 99, GA_FLOAT64, &random);
        multiply_each(&a.view, &b.view);
        matrix_end(&a);
        matrix_end(&b);
    }
    multiply_random(multiply_each, 4, 3000, 3000, 0.01, 2, 3); /* row 2 is full */
}

/* A zero that is stored makes entries. */
Test(spgemm_dynamic, zeros)
{
    uint64_t random = 5;
    matrix a = make(40, 40, 0.2, 3, GA_FLOAT64, &random);
    for (uint64_t i = 0; i < a.offsets[40]; i++) {
        put_value(&a, i, i % 3 ? 0 : 1);
    }
    multiply_each(&a.view, &a.view);
    matrix_end(&a);
}

/* The vectors have their exact size afterwards; the peaks are as the rounds need. */
Test(spgemm_dynamic, memory)
{
    enum {
        PAGE = 4096
    };
    matrix a = band(20000, 20); /* 39 entries in most rows */
    ga_spgemm_product c = vectors(GA_FLOAT64, 0);
    ga_spgemm_options options = dynamic(16, 2);
    ga_spgemm_report report;
    cr_assert_eq(ga_spgemm_multiply(&a.view, &a.view, &options, &c, &report), GA_OK);
    cr_assert_eq(report.rounds, 3);
    cr_assert_leq(report.entries_peak, 3 * 16 * a.view.rows + PAGE);
    cr_assert_geq(report.entries_peak, 3 * 16 * (a.view.rows - 40));
    cr_assert_leq(ga_vector_capacity(c.indices), report.entries + PAGE);
    cr_assert_leq(ga_vector_capacity(c.values), report.entries + PAGE);
    cr_assert_geq(report.bytes_peak, report.entries_peak * 12 + report.entries * 4);
    cr_assert_leq(report.bytes_peak, report.entries_peak * 12 + report.entries * 8 + 8 * PAGE);
    cr_assert_geq(report.scratch_bytes, a.view.rows * 3 * sizeof(uint32_t)); /* cursors, rows */
    cr_assert_leq(report.scratch_bytes, a.view.rows * 4 * sizeof(uint32_t) + 4 * PAGE);
    vectors_end(&c);
    matrix_end(&a);
}

/* It ends in the second round, or in the third. */
Test(spgemm_dynamic, memory_that_ends)
{
    for (uint64_t pieces = 1; pieces < 3; pieces++) {
        matrix a = band(20000, 20);
        ga_spgemm_product c = vectors(GA_FLOAT64, (pieces * 16 + 1) * a.view.rows * 8);
        ga_spgemm_options options = dynamic(16, 3);
        cr_assert_eq(ga_spgemm_multiply(&a.view, &a.view, &options, &c, NULL), GA_ERR_MEMORY);
        cr_assert(strstr(ga_error_text(), "limit"), "%s", ga_error_text());
        cr_assert_eq(c.rows + c.columns, 0);
        cr_assert_eq(ga_vector_size(c.offsets), 0);
        cr_assert_eq(ga_vector_size(c.indices), 0);
        cr_assert_eq(ga_vector_size(c.values), 0);
        cr_assert_eq(ga_csr_check(&a.view), GA_OK);
        matrix small = band(200, 20);
        cr_assert_eq(ga_spgemm_multiply(&small.view, &small.view, &options, &c, NULL), GA_OK);
        expect_product(&small.view, &small.view, &c, true);
        vectors_end(&c);
        matrix_end(&a);
        matrix_end(&small);
    }
}

/* The choice by goals: rows of 39 entries, and of about 190 to 200. */
static void choose(uint64_t n, uint32_t width, uint32_t for_time, uint32_t for_memory)
{
    matrix a = band(n, width);
    ga_spgemm_product c = vectors(GA_FLOAT64, 0);
    ga_spgemm_options options = dynamic(0, 2);
    ga_spgemm_report report;
    cr_assert_eq(ga_spgemm_multiply(&a.view, &a.view, &options, &c, &report), GA_OK);
    cr_assert_eq(report.size_per_row, for_time, "%u", report.size_per_row);
    double off = (double)report.entries_estimated / (double)report.entries;
    cr_assert(off > 0.95 && off < 1.05, "%g", off);
    options.goal = GA_SPGEMM_GOAL_MEMORY;
    cr_assert_eq(ga_spgemm_multiply(&a.view, &a.view, &options, &c, &report), GA_OK);
    cr_assert_eq(report.size_per_row, for_memory, "%u", report.size_per_row);
    options.method = GA_SPGEMM_AUTO;
    cr_assert_eq(ga_spgemm_multiply(&a.view, &a.view, &options, &c, &report), GA_OK);
    cr_assert_eq(report.method, GA_SPGEMM_PRECISE);
    cr_assert_eq(report.rounds + report.size_per_row, 0);
    vectors_end(&c);
    matrix_end(&a);
}

Test(spgemm_dynamic, goals)
{
    choose(4000, 4, 8, 8);
    choose(4000, 20, 48, 8);
    choose(2000, 90, 256, 16);
}
