/* SPDX-License-Identifier: MIT
 *
 * Arguments that are refused: then the product is unchanged, and the device can be used on.
 */
#include "spgemm_tests.h"

#include <stdio.h>

/* ---- a product that must not change ---------------------------------------------------------- */

typedef struct kept {
    matrix a;
    device_matrix on_a;
    ga_spgemm_product c, want;
} kept;

static kept open_kept(int device)
{
    kept k = {.a = random_matrix(5, 5, 600000, 1)};
    matrix_fill(&k.a, GA_FLOAT64, 1);
    k.on_a = upload(device, &k.a.view);
    k.want = host_product(&k.a.view, &k.a.view);
    k.c = open_product(GA_PLACE_DEVICE, device, NULL, GA_FLOAT64);
    EXPECT(multiply_device(&k.on_a.view, &k.on_a.view, GA_SPGEMM_PRECISE, true, &k.c, &k.want,
                           NULL) == GA_OK);
    return k;
}

static void close_kept(kept *k)
{
    matrix_free(&k->a);
    device_matrix_close(&k->on_a);
    close_product(&k->c);
    close_product(&k->want);
}

static void expect_refused(const char *name, const kept *k, const ga_csr *a, const ga_csr *b,
                           ga_spgemm_product *c, const char *words)
{
    for (uint32_t method = 0; method < GA_SPGEMM_METHOD_COUNT; method++) {
        ga_spgemm_options options = options_of(method, true);
        describe("%s, %s", name, ga_spgemm_method_text(method));
        ga_status status = ga_spgemm_multiply(a, b, &options, c, NULL);
        if (status != GA_ERR_ARGUMENT || !test_error_has(words)) {
            FAIL("the argument to be refused with \"%s\", got status %d", words, (int)status);
            return;
        }
        is_product(&k->c, &k->want, true);
    }
}

/* ---- matrices -------------------------------------------------------------------------------- */

/* 5 x 5 with up to 8 entries. */
typedef struct bad_matrix {
    const char *name;
    uint64_t offsets[6];
    uint32_t indices[8];
    const char *words;
} bad_matrix;

static const bad_matrix bad_matrices[] = {
    {"a first offset that is not 0", {1, 2, 4, 5, 6, 8}, {0, 1, 2, 3, 4, 0, 1, 2}, "row 0"},
    {"offsets that decrease", {0, 2, 5, 4, 6, 8}, {0, 1, 0, 1, 2, 3, 0, 1}, "row 2"},
    {"a row that ends behind the last", {0, 2, 9, 9, 9, 8}, {0, 1, 0, 1, 2, 3, 0, 1}, "row 1"},
    {"offsets that are far too large",
     {0, 2, (uint64_t)1 << 60, (uint64_t)1 << 61, 7, 8},
     {0, 1, 0, 1, 2, 3, 0, 1},
     "row 1"},
    {"a column that is too large", {0, 2, 4, 6, 7, 8}, {0, 1, 0, 1, 2, 5, 0, 1}, "row 2"},
    {"the largest column", {0, 2, 4, 6, 7, 8}, {0, 1, 0, 1, 2, 3, UINT32_MAX, 1}, "row 3"},
    {"a column that is there twice", {0, 2, 4, 6, 7, 8}, {0, 1, 3, 3, 2, 4, 0, 1}, "row 1"},
    {"columns that are not sorted", {0, 1, 1, 1, 5, 8}, {0, 1, 0, 2, 3, 0, 1, 2}, "row 3"},
    {"unsorted columns in the last row", {0, 1, 2, 3, 4, 8}, {0, 1, 2, 3, 0, 1, 4, 2}, "row 4"},
};

static void invalid_rows(int device)
{
    static const double values[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    kept k = open_kept(device);
    for (size_t i = 0; i < sizeof bad_matrices / sizeof *bad_matrices; i++) {
        const bad_matrix *bad = &bad_matrices[i];
        ga_csr view = {5, 5, bad->offsets, bad->indices, values, GA_FLOAT64};
        device_matrix on = upload(device, &view);
        expect_refused(bad->name, &k, &on.view, &k.on_a.view, &k.c, bad->words);
        expect_refused(bad->name, &k, &k.on_a.view, &on.view, &k.c, bad->words);
        expect_refused(bad->name, &k, &on.view, &on.view, &k.c, bad->words);
        device_matrix_close(&on);
    }
    close_kept(&k);
}

/* Unsorted columns among many rows, and in a long row. */
static void invalid_row_of_many(int device)
{
    static const uint64_t rows[] = {0, 1, 31337, 39999};
    kept k = open_kept(device);
    matrix m = band_matrix(40000, 40, 1);
    matrix_fill(&m, GA_FLOAT64, 1);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char words[40];
        uint32_t *last = &m.indices[m.offsets[rows[i] + 1] - 1], before = *last;
        *last = last[-1];
        device_matrix on = upload(device, &m.view);
        snprintf(words, sizeof words, "row %llu:", (unsigned long long)rows[i]);
        expect_refused("a column twice in a long row", &k, &on.view, &on.view, &k.c, words);
        *last = before;
        device_matrix_close(&on);
    }
    matrix_free(&m);
    close_kept(&k);
}

static void matrices_that_do_not_match(int device)
{
    kept k = open_kept(device);
    matrix other = random_matrix(6, 5, 500000, 1);
    matrix_fill(&other, GA_FLOAT64, 1);
    device_matrix on_other = upload(device, &other.view);
    expect_refused("sizes that differ", &k, &k.on_a.view, &on_other.view, &k.c,
                   "5 columns: expected 6");
    matrix_fill(&other, GA_FLOAT32, 1);
    ga_csr narrow = k.on_a.view;
    narrow.type = GA_FLOAT32;
    expect_refused("types that differ", &k, &narrow, &k.on_a.view, &k.c, "float32");
    expect_refused("values of another size", &k, &narrow, &narrow, &k.c, "8 bytes: expected 4");
    ga_csr c = ga_spgemm_view(&k.c);
    expect_refused("A in the product", &k, &c, &k.on_a.view, &k.c, "matrix A is in a vector");
    expect_refused("B in the product", &k, &k.on_a.view, &c, &k.c, "matrix B is in a vector");
    matrix_free(&other);
    device_matrix_close(&on_other);
    close_kept(&k);
}

/* ---- places ---------------------------------------------------------------------------------- */

/* Each array of each matrix is in pageable host memory once. */
static void host_pointers(int device)
{
    static const char *const words[] = {"offsets", "columns", "values"};
    kept k = open_kept(device);
    device_matrix on_b = upload(device, &k.a.view);
    for (int array = 0; array < 3; array++) {
        ga_csr mixed = k.on_a.view;
        mixed.offsets = array == 0 ? k.a.view.offsets : mixed.offsets;
        mixed.indices = array == 1 ? k.a.view.indices : mixed.indices;
        mixed.values = array == 2 ? k.a.view.values : mixed.values;
        expect_refused("A in part on the host", &k, &mixed, &on_b.view, &k.c, words[array]);
        expect_refused("B in part on the host", &k, &on_b.view, &mixed, &k.c, words[array]);
    }
    expect_refused("A on the host", &k, &k.a.view, &k.on_a.view, &k.c, "can access");
    expect_refused("A and B on the host", &k, &k.a.view, &k.a.view, &k.c, "can access");
    ga_csr none = k.on_a.view;
    none.indices = NULL;
    expect_refused("no columns", &k, &none, &k.on_a.view, &k.c, "no columns");
    none = k.on_a.view;
    none.values = NULL;
    expect_refused("no values", &k, &on_b.view, &none, &k.c, "no values");
    device_matrix_close(&on_b);
    close_kept(&k);
}

/* Values of B alone, since the pattern is A's. */
static void host_values_of_one_pattern(int device)
{
    kept k = open_kept(device);
    ga_csr b = k.on_a.view;
    b.values = k.a.view.values;
    expect_refused("B of A's pattern", &k, &k.on_a.view, &b, &k.c, "values");
    b.values = NULL;
    expect_refused("B of A's pattern", &k, &k.on_a.view, &b, &k.c, "no values");
    close_kept(&k);
}

/* `other` replaces one vector after the other. */
static void expect_apart(const char *name, const kept *k, ga_spgemm_product other)
{
    ga_spgemm_product mixed = k->c;
    mixed.offsets = other.offsets;
    expect_refused(name, k, &k->on_a.view, &k->on_a.view, &mixed, "different places");
    mixed = k->c;
    mixed.indices = other.indices;
    expect_refused(name, k, &k->on_a.view, &k->on_a.view, &mixed, "different places");
    mixed = k->c;
    mixed.values = other.values;
    expect_refused(name, k, &k->on_a.view, &k->on_a.view, &mixed, "different places");
}

static void vectors_apart(int device)
{
    kept k = open_kept(device);
    CUstream stream = open_stream(device);
    ga_spgemm_product host = open_product(GA_PLACE_HOST, 0, NULL, GA_FLOAT64);
    ga_spgemm_product queued = open_product(GA_PLACE_DEVICE, device, stream, GA_FLOAT64);
    expect_apart("a vector on the host", &k, host);
    expect_apart("a vector of another stream", &k, queued);
    close_product(&host);
    close_product(&queued);
    close_stream(device, stream);
    close_kept(&k);
}

static void vectors_of_another_device(int device)
{
    int devices = 0;
    EXPECT(ga_cuda_device_count(&devices) == GA_OK);
    if (devices < 2) {
        SKIP("no other device");
    }
    kept k = open_kept(device);
    ga_spgemm_product far = open_product(GA_PLACE_DEVICE, (device + 1) % devices, NULL, GA_FLOAT64);
    expect_apart("a vector of another device", &k, far);
    close_product(&far);
    close_kept(&k);
}

/* Its memory cannot be accessed, since its arena has no peers. */
static void matrix_of_another_device(int device)
{
    int devices = 0;
    EXPECT(ga_cuda_device_count(&devices) == GA_OK);
    if (devices < 2) {
        SKIP("no other device");
    }
    kept k = open_kept(device);
    device_matrix far = upload((device + 1) % devices, &k.a.view);
    expect_refused("A on another device", &k, &far.view, &k.on_a.view, &k.c, "can access");
    expect_refused("B on another device", &k, &k.on_a.view, &far.view, &k.c, "can access");
    device_matrix_close(&far);
    close_kept(&k);
}

case_list refusal_cases(void)
{
    static const test_case cases[] = {
        {"rows that are not valid", invalid_rows},
        {"a row of many that is not valid", invalid_row_of_many},
        {"matrices that do not match", matrices_that_do_not_match},
        {"host pointers with vectors on the device", host_pointers},
        {"values on the host, of one pattern", host_values_of_one_pattern},
        {"vectors of different places", vectors_apart},
        {"vectors of another device", vectors_of_another_device},
        {"a matrix of another device", matrix_of_another_device},
    };
    return (case_list){"refusals", cases, sizeof cases / sizeof *cases};
}
