/* SPDX-License-Identifier: MIT
 *
 * Products of sparse matrices on the host, by each method, compared with a plain product: patterns
 * are equal, and values within rounding.
 */
#include "spgemm_products.h"

#include "platform/libc.h"

#include <string.h>

/* Multiplies by each method, sorted or not, with one thread and several. */
static void multiply_all(const ga_csr *a, const ga_csr *b)
{
    ga_spgemm_product c = vectors(a->type, 0);
    uint64_t entries = 0;
    for (uint32_t way = 0; way < 4 * GA_SPGEMM_METHOD_COUNT; way++) {
        ga_spgemm_report report;
        ga_spgemm_options options = {.options_size = sizeof options,
                                     .method = way / 4,
                                     .flags = way & 1 ? 0 : GA_SPGEMM_UNSORTED,
                                     .threads = way & 2 ? 5 : 1};
        cr_assert_eq(ga_spgemm_multiply(a, b, &options, &c, &report), GA_OK, "%s", ga_error_text());
        expect_product(a, b, &c, way & 1);
        cr_assert(way == 0 || report.entries == entries);
        cr_assert_geq(report.entries_peak, report.entries);
        cr_assert_geq(report.multiplications, report.entries);
        entries = report.entries;
    }
    vectors_end(&c);
}

Test(spgemm, products_of_all_shapes)
{
    multiply_random(multiply_all, 1, 1, 1, 1, 2, 1);
    multiply_random(multiply_all, 40, 50, 60, 0.1, 99, 2);
    multiply_random(multiply_all, 300, 200, 250, 0.02, 999, 3);
    multiply_random(multiply_all, 64, 64, 64, 1, 99, 4);         /* dense */
    multiply_random(multiply_all, 500, 500, 500, 0.001, 999, 5); /* mostly empty rows */
    multiply_random(multiply_all, 1, 400, 300, 0.3, 0, 6);
    multiply_random(multiply_all, 300, 400, 1, 0.1, 99, 7);
}

Test(spgemm, a_row_that_takes_more_than_a_piece)
{
    multiply_random(multiply_all, 60, 700, 700, 0.2, 3,
                    9); /* row 3 is full: 700 * 140 multiplications */
}

Test(spgemm, matrices_without_rows_columns_or_entries)
{
    multiply_random(multiply_all, 0, 5, 7, 0.5, 99, 1);
    multiply_random(multiply_all, 5, 0, 7, 0.5, 99, 1);
    multiply_random(multiply_all, 5, 7, 0, 0.5, 99, 1);
    multiply_random(multiply_all, 20, 20, 20, 0, 99, 1);
}

Test(spgemm, squares)
{
    uint64_t random = 11;
    matrix a = make(400, 400, 0.03, 999, GA_FLOAT64, &random);
    multiply_all(&a.view, &a.view);
    matrix_end(&a);
}

/* Multiplies the columns of a matrix by a number. */
static void scale_columns(matrix *m, uint32_t by)
{
    uint32_t *indices = (uint32_t *)m->view.indices;
    for (uint64_t i = 0; i < m->view.offsets[m->view.rows]; i++) {
        indices[i] *= by;
    }
    m->view.columns *= by;
}

/* Rows whose columns are far apart, of few columns and of more than a set of columns has: the
 * product is that of columns close together. */
Test(spgemm, columns_that_are_far_apart)
{
    static const uint32_t factors[] = {2, 67, 4099, 1u << 20, 14000000};
    for (size_t i = 0; i < sizeof factors / sizeof *factors; i++) {
        uint64_t random = 21 + i;
        matrix a = make(90, 80, 0.2, 5, GA_FLOAT64, &random);
        matrix b = make(80, 300, 0.1, 7, GA_FLOAT64, &random);
        ga_csr near = b.view;
        uint32_t *indices = malloc(near.offsets[near.rows] * sizeof *indices);
        memcpy(indices, near.indices, near.offsets[near.rows] * sizeof *indices);
        near.indices = indices;
        scale_columns(&b, factors[i]);
        for (uint32_t way = 0; way < 4 * GA_SPGEMM_METHOD_COUNT; way++) {
            ga_spgemm_product c = vectors(GA_FLOAT64, 0);
            ga_spgemm_options options = {.options_size = sizeof options,
                                         .method = way / 4,
                                         .flags = way & 1 ? 0 : GA_SPGEMM_UNSORTED,
                                         .threads = way & 2 ? 5 : 1};
            cr_assert_eq(ga_spgemm_multiply(&a.view, &b.view, &options, &c, NULL), GA_OK, "%s",
                         ga_error_text());
            uint32_t *columns = ga_vector_data(c.indices);
            for (uint64_t entry = 0; entry < ga_vector_size(c.indices); entry++) {
                cr_assert_eq(columns[entry] % factors[i], 0);
                columns[entry] /= factors[i];
            }
            c.columns = near.columns;
            expect_product(&a.view, &near, &c, way & 1);
            vectors_end(&c);
        }
        free(indices);
        matrix_end(&a);
        matrix_end(&b);
    }
}

/* Rows with a sum for each column of a span that exceeds a cache, wider from row to row. */
Test(spgemm, spans_that_exceed_a_cache)
{
    uint64_t random = 31;
    matrix a = make(6, 400, 0.9, 4, GA_FLOAT64, &random);
    matrix b = make(400, 500, 0.2, 7, GA_FLOAT64, &random);
    uint32_t *indices = (uint32_t *)b.view.indices;
    for (uint64_t i = 0; i < b.view.offsets[400]; i++) {
        indices[i] = indices[i] < 100 ? indices[i] : indices[i] * 499; /* of 500 * 499 columns */
    }
    b.view.columns *= 499;
    multiply_all(&a.view, &b.view);
    matrix_end(&a);
    matrix_end(&b);
}

/* A zero that is stored makes entries, and infinity times zero is no number. */
Test(spgemm, zeros_and_infinities)
{
    const uint64_t offsets[] = {0, 2, 3};
    const uint32_t indices[] = {0, 1, 1};
    const double values[] = {0, INFINITY, 2};
    const double others[] = {1, 0, -0.0};
    ga_csr a = {2, 2, offsets, indices, values, GA_FLOAT64};
    ga_csr b = {2, 2, offsets, indices, others, GA_FLOAT64};
    ga_spgemm_product c = vectors(GA_FLOAT64, 0);
    for (uint32_t method = 0; method < GA_SPGEMM_METHOD_COUNT; method++) {
        ga_spgemm_options options = {.options_size = sizeof options, .method = method, .flags = 0};
        cr_assert_eq(ga_spgemm_multiply(&a, &b, &options, &c, NULL), GA_OK);
        ga_csr view = ga_spgemm_view(&c);
        cr_assert_eq(view.offsets[1], 2);
        cr_assert_eq(view.offsets[2], 3);
        cr_assert_eq(value_of(&view, 0), 0);  /* 0 * 1 */
        cr_assert(isnan(value_of(&view, 1))); /* 0 * 0 + inf * -0 */
        cr_assert_eq(value_of(&view, 2), 0);
    }
    vectors_end(&c);
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* The growing result takes little more memory than it has entries; the upper bound several times as
 * much. */
Test(spgemm, memory_at_peak)
{
    matrix a = band(60000, 20);
    ga_spgemm_product c = vectors(GA_FLOAT64, 0);
    double efficiency[GA_SPGEMM_METHOD_COUNT];
    for (uint32_t method = GA_SPGEMM_PRECISE; method < GA_SPGEMM_METHOD_COUNT; method++) {
        ga_spgemm_report report;
        ga_spgemm_options options = {.options_size = sizeof options, .method = method};
        cr_assert_eq(ga_spgemm_multiply(&a.view, &a.view, &options, &c, &report), GA_OK);
        cr_assert_eq(report.method, method);
        efficiency[method] = (double)report.entries / (double)report.entries_peak;
        ga_vector_resize(c.indices, 0);
        ga_vector_resize(c.values, 0);
        ga_vector_shrink_to_fit(c.indices);
        ga_vector_shrink_to_fit(c.values);
    }
    cr_assert_geq(efficiency[GA_SPGEMM_PRECISE], 0.95, "%g", efficiency[GA_SPGEMM_PRECISE]);
    cr_assert_geq(efficiency[GA_SPGEMM_GROWING], 0.95, "%g", efficiency[GA_SPGEMM_GROWING]);
    cr_assert_leq(efficiency[GA_SPGEMM_UPPER], 0.2, "%g", efficiency[GA_SPGEMM_UPPER]);
    vectors_end(&c);
    matrix_end(&a);
}

Test(spgemm, a_limit_that_the_result_exceeds)
{
    matrix a = band(20000, 20);
    ga_spgemm_product c = vectors(GA_FLOAT64, 1 << 20);
    for (uint32_t method = 0; method < GA_SPGEMM_METHOD_COUNT; method++) {
        ga_spgemm_options options = {
            .options_size = sizeof options, .method = method, .threads = 3};
        cr_assert_eq(ga_spgemm_multiply(&a.view, &a.view, &options, &c, NULL), GA_ERR_MEMORY);
        cr_assert_eq(ga_vector_size(c.indices), 0);
        cr_assert_eq(ga_vector_size(c.values), 0);
        cr_assert_eq(ga_vector_size(c.offsets), 0);
        cr_assert_eq(ga_csr_check(&a.view), GA_OK);
    }
    vectors_end(&c);
    matrix_end(&a);
}

static ga_libc_table whole; /* the C library's */
static uint32_t requests, refuse_at;

static bool refuses(void)
{
    /* relaxed: a counter */
    return __atomic_add_fetch(&requests, 1, __ATOMIC_RELAXED) == refuse_at;
}

static void *short_malloc(size_t size)
{
    return refuses() ? NULL : whole.malloc(size);
}

static void *short_calloc(size_t count, size_t size)
{
    return refuses() ? NULL : whole.calloc(count, size);
}

static void *short_memalign(size_t align, size_t size)
{
    return refuses() ? NULL : whole.memalign(align, size);
}

/* Each request for memory fails once, in any thread: the call fails, at least `least` times, or
 * does without. */
static void run_short(const ga_csr *a, const ga_csr *b, uint32_t threads, uint32_t least)
{
    ga_spgemm_product c = vectors(GA_FLOAT64, 0);
    for (uint32_t method = GA_SPGEMM_PRECISE; method < GA_SPGEMM_METHOD_COUNT; method++) {
        ga_spgemm_options options = {
            .options_size = sizeof options, .method = method, .threads = threads};
        uint32_t refused = 0;
        for (refuse_at = 1, requests = 1; requests >= refuse_at - 1; refuse_at++) {
            whole = whole.malloc ? whole : ga_libc;
            requests = 0;
            ga_libc.malloc = short_malloc;
            ga_libc.calloc = short_calloc;
            ga_libc.memalign = short_memalign;
            ga_status status = ga_spgemm_multiply(a, b, &options, &c, NULL);
            ga_libc = whole;
            cr_assert(status == GA_OK || status == GA_ERR_MEMORY, "%s", ga_error_text());
            cr_assert(status == GA_OK || !ga_vector_size(c.offsets));
            if (status == GA_OK) {
                expect_product(a, b, &c, true);
            }
            refused += status != GA_OK;
        }
        cr_assert_geq(refused, least);
        cr_assert_eq(ga_spgemm_multiply(a, b, &options, &c, NULL), GA_OK);
    }
    vectors_end(&c);
}

Test(spgemm, memory_that_is_short)
{
    matrix a = band(4000, 20);
    uint64_t random = 12;
    matrix wide = band(200, 20), b = make(200, 100, 0.2, 999, GA_FLOAT64, &random);
    scale_columns(&b, 1499); /* rows get hash tables, and fail without */
    for (uint32_t threads = 1; threads <= 4; threads += 3) {
        run_short(&a.view, &a.view, threads, 2);
        run_short(&wide.view, &b.view, threads, 5);
    }
    matrix_end(&a);
    matrix_end(&wide);
    matrix_end(&b);
}

/* A limit that is just enough, for each method that needs no more than the result. */
Test(spgemm, a_limit_that_is_just_enough)
{
    for (uint64_t n = 10; n <= 100000; n *= 10) {
        matrix a = band(n, 6);
        ga_spgemm_product c = vectors(GA_FLOAT64, 0);
        ga_spgemm_report report;
        ga_spgemm_options options = {.options_size = sizeof options};
        cr_assert_eq(ga_spgemm_multiply(&a.view, &a.view, NULL, &c, &report), GA_OK);
        vectors_end(&c);
        c = vectors(GA_FLOAT64, (report.entries * 8 + 4095) / 4096 * 4096);
        for (uint32_t method = GA_SPGEMM_PRECISE; method < GA_SPGEMM_METHOD_COUNT; method++) {
            options.method = method;
            if (method != GA_SPGEMM_UPPER && method != GA_SPGEMM_DYNAMIC) {
                cr_assert_eq(ga_spgemm_multiply(&a.view, &a.view, &options, &c, NULL), GA_OK,
                             "%llu rows: %s", (unsigned long long)n, ga_error_text());
            }
        }
        vectors_end(&c);
        matrix_end(&a);
    }
}

/* A product is a matrix: it can be multiplied again, but not into its own vectors. */
Test(spgemm, products_of_products)
{
    matrix a = band(300, 5);
    ga_spgemm_product c = vectors(GA_FLOAT64, 0), d = vectors(GA_FLOAT64, 0);
    cr_assert_eq(ga_spgemm_multiply(&a.view, &a.view, NULL, &c, NULL), GA_OK);
    ga_csr square = ga_spgemm_view(&c);
    cr_assert_eq(ga_csr_check(&square), GA_OK, "%s", ga_error_text());
    cr_assert_eq(ga_spgemm_multiply(&square, &a.view, NULL, &d, NULL), GA_OK);
    expect_product(&square, &a.view, &d, true);
    cr_assert_eq(ga_spgemm_multiply(&square, &a.view, NULL, &c, NULL), GA_ERR_ARGUMENT);
    cr_assert(strstr(ga_error_text(), "matrix A is in a vector"));
    square.values = (const double *)square.values + 1; /* also where it does not begin there */
    cr_assert_eq(ga_spgemm_multiply(&a.view, &square, NULL, &c, NULL), GA_ERR_ARGUMENT);
    cr_assert(strstr(ga_error_text(), "matrix B is in a vector"));
    ga_kernel_vector view;
    uint64_t entries = ga_vector_size(c.indices);
    cr_assert_eq(ga_vector_lend(c.values, 0, &view), GA_OK);
    cr_assert_eq(ga_spgemm_multiply(&a.view, &a.view, NULL, &c, NULL), GA_ERR_ARGUMENT);
    cr_assert(strstr(ga_error_text(), "the vector of values is lent"));
    cr_assert_eq(ga_vector_size(c.indices), entries);
    cr_assert_eq(ga_vector_end_loan(c.values, NULL), GA_OK);
    vectors_end(&c);
    vectors_end(&d);
    matrix_end(&a);
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void expect_refused(const ga_csr *a, const ga_csr *b, const ga_spgemm_options *options,
                           ga_spgemm_product *c, const char *text)
{
    cr_assert_eq(ga_spgemm_multiply(a, b, options, c, NULL), GA_ERR_ARGUMENT);
    cr_assert(strstr(ga_error_text(), text), "\"%s\" in \"%s\"", text, ga_error_text());
}

Test(spgemm, refusals)
{
    uint64_t random = 3;
    matrix a = make(5, 6, 0.5, 99, GA_FLOAT64, &random);
    matrix b = make(6, 7, 0.5, 99, GA_FLOAT64, &random);
    matrix f = make(6, 7, 0.5, 99, GA_FLOAT32, &random);
    ga_spgemm_product c = vectors(GA_FLOAT64, 0), g = vectors(GA_FLOAT32, 0);
    ga_spgemm_options options = {.options_size = sizeof options};
    ga_csr bad = a.view;
    const uint32_t unsorted[] = {5, 4, 3};
    const uint64_t three[] = {0, 3};
    expect_refused(NULL, &b.view, NULL, &c, "matrix A");
    expect_refused(&a.view, NULL, NULL, &c, "matrix B");
    expect_refused(&a.view, &b.view, NULL, NULL, "product");
    expect_refused(&a.view, &a.view, NULL, &c, "6 columns: expected 5");
    expect_refused(&a.view, &f.view, NULL, &c, "float64: expected float32");
    expect_refused(&a.view, &b.view, NULL, &g, "values of 4 bytes: expected 8");
    bad = (ga_csr){1, 6, three, unsorted, a.values, GA_FLOAT64};
    expect_refused(&bad, &b.view, NULL, &c, "row 0");
    options.method = GA_SPGEMM_METHOD_COUNT;
    expect_refused(&a.view, &b.view, &options, &c, "method=5: expected 0 to 4");
    options = (ga_spgemm_options){.options_size = sizeof options, .flags = 6};
    expect_refused(&a.view, &b.view, &options, &c, "flags=0x6: expected GA_SPGEMM_UNSORTED");
    options = (ga_spgemm_options){.options_size = sizeof options, .threads = 1025};
    expect_refused(&a.view, &b.view, &options, &c, "threads=1025: expected 0 to 1024");
    options = (ga_spgemm_options){.options_size = sizeof options, .size_per_row = 7};
    expect_refused(&a.view, &b.view, &options, &c, "size_per_row=7: expected 0, or 8 to 256");
    options.size_per_row = 257;
    expect_refused(&a.view, &b.view, &options, &c, "size_per_row=257: expected 0, or 8 to 256");
    options = (ga_spgemm_options){.options_size = sizeof options, .goal = GA_SPGEMM_GOAL_COUNT};
    expect_refused(&a.view, &b.view, &options, &c, "goal=2: expected 0 to 1");
    options = (ga_spgemm_options){.options_size = sizeof options, .kernel = GA_SPGEMM_KERNEL_COUNT};
    expect_refused(&a.view, &b.view, &options, &c, "kernel=2: expected 0 to 1");
    options.kernel = GA_SPGEMM_KERNEL_DOT;
    expect_refused(&a.view, &b.view, &options, &c,
                   "method auto with the kernel dot: expected precise, upper or dynamic");
    options = (ga_spgemm_options){.options_size = sizeof options,
                                  .method = GA_SPGEMM_DYNAMIC,
                                  .flags = GA_SPGEMM_COOPERATIVE};
    expect_refused(&a.view, &b.view, &options, &c, "place host: expected dynamic, 0 and device");
    options = (ga_spgemm_options){.options_size = sizeof options,
                                  .method = GA_SPGEMM_GROWING,
                                  .kernel = GA_SPGEMM_KERNEL_DOT};
    expect_refused(&a.view, &b.view, &options, &c,
                   "method growing with the kernel dot: expected precise, upper or dynamic");
    options = (ga_spgemm_options){.options_size = 3};
    expect_refused(&a.view, &b.view, &options, &c, "options_size=3");
    ga_vector *kept = c.values;
    c.values = NULL;
    expect_refused(&a.view, &b.view, NULL, &c, "no vector of values");
    c.values = c.offsets;
    expect_refused(&a.view, &b.view, NULL, &c, "one vector twice");
    c.values = kept;
    cr_assert_str_eq(ga_spgemm_method_text(GA_SPGEMM_GROWING), "growing");
    cr_assert_str_eq(ga_spgemm_method_text(GA_SPGEMM_DYNAMIC), "dynamic");
    cr_assert_str_eq(ga_spgemm_method_text(99), "?");
    vectors_end(&c);
    vectors_end(&g);
    matrix_end(&a);
    matrix_end(&b);
    matrix_end(&f);
}
