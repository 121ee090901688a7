/* SPDX-License-Identifier: MIT
 *
 * Matrices, vectors and comparisons for spgemm_tests.
 */
#include "spgemm_tests.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- failures -------------------------------------------------------------------------------- */

static _Thread_local char description[200];

void describe(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(description, sizeof description, format, arguments);
    va_end(arguments);
}

void fail_at(const char *file, int line, const char *format, ...)
{
    char text[700];
    int length = snprintf(text, sizeof text, "of %s: ", description);
    const char *name = strrchr(file, '/');
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text + length, sizeof text - (size_t)length, format, arguments);
    va_end(arguments);
    test_fail(name ? name + 1 : file, line, text);
}

static void *need(void *memory)
{
    if (!memory) {
        fprintf(stderr, "no host memory\n");
        exit(1);
    }
    return memory;
}

/* ---- matrices on the host -------------------------------------------------------------------- */

matrix matrix_begin(uint64_t rows, uint64_t columns)
{
    matrix m = {.view = {.rows = rows, .columns = columns}, .room = 64};
    m.offsets = need(calloc(rows + 1, sizeof *m.offsets));
    m.indices = need(calloc(m.room, sizeof *m.indices));
    m.view.offsets = m.offsets;
    m.view.indices = m.indices;
    return m;
}

void matrix_put(matrix *m, uint64_t column)
{
    uint64_t *end = &m->offsets[m->row + 1];
    *end = *end ? *end : m->offsets[m->row];
    if (*end == m->room) {
        m->room *= 2;
        m->indices = need(realloc(m->indices, m->room * sizeof *m->indices));
        m->view.indices = m->indices;
    }
    m->indices[(*end)++] = (uint32_t)column;
}

void matrix_end_row(matrix *m)
{
    uint64_t *end = &m->offsets[++m->row];
    *end = *end ? *end : m->offsets[m->row - 1];
}

void matrix_free(matrix *m)
{
    free(m->offsets);
    free(m->indices);
    free(m->values);
    *m = (matrix){0};
}

double value_at(const void *values, ga_value_type type, uint64_t at)
{
    return type == GA_FLOAT64 ? ((const double *)values)[at] : (double)((const float *)values)[at];
}

void set_value(void *values, ga_value_type type, uint64_t at, double value)
{
    if (type == GA_FLOAT64) {
        ((double *)values)[at] = value;
    } else {
        ((float *)values)[at] = (float)value;
    }
}

void matrix_fill(matrix *m, ga_value_type type, uint64_t seed)
{
    uint64_t count = m->offsets[m->view.rows];
    int range = type == GA_FLOAT64 ? 1 << 20 : 8;
    free(m->values);
    m->values = need(calloc(count + 1, ga_value_size(type)));
    m->view.values = m->values;
    m->view.type = type;
    for (uint64_t i = 0; i < count; i++) {
        int value = (int)random_below(&seed, 2 * (size_t)range + 1) - range;
        double zeroed = value % 19 ? value : 0; /* stored zeros */
        set_value(m->values, type, i, type == GA_FLOAT64 ? zeroed / 1024 : zeroed);
    }
}

/* One column in each of `count` equal parts of the range. */
void put_random_row(matrix *m, uint64_t low, uint64_t high, uint64_t count, uint64_t *random)
{
    uint64_t width = high - low;
    count = count < width ? count : width;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t from = low + width * i / count, to = low + width * (i + 1) / count;
        matrix_put(m, from + random_below(random, to - from));
    }
}

matrix random_matrix(uint64_t rows, uint64_t columns, uint64_t share, uint64_t seed)
{
    matrix m = matrix_begin(rows, columns);
    for (uint64_t row = 0; row < rows; row++) {
        for (uint64_t column = 0; column < columns; column++) {
            if (random_below(&seed, 1000000) < share) {
                matrix_put(&m, column);
            }
        }
        matrix_end_row(&m);
    }
    return m;
}

matrix band_matrix(uint64_t n, uint64_t width, uint64_t apart)
{
    matrix m = matrix_begin(n, n);
    for (uint64_t row = 0; row < n; row++) {
        for (uint64_t i = 0; i < width; i++) {
            uint64_t column = row + i * apart - width / 2 * apart; /* below 0: large */
            if (column < n) {
                matrix_put(&m, column);
            }
        }
        matrix_end_row(&m);
    }
    return m;
}

/* ---- on the device --------------------------------------------------------------------------- */

ga_arena_options options_for(ga_place place, int device, uint64_t limit)
{
    return (ga_arena_options){.options_size = sizeof(ga_arena_options),
                              .flags = GA_ARENA_EXACT,
                              .place = place,
                              .device = device,
                              .reserve = limit ? 0 : (uint64_t)1 << 36,
                              .limit = limit};
}

static ga_vector *open_vector(ga_place place, int device, ga_stream stream, size_t element,
                              uint64_t limit)
{
    ga_vector *vector = NULL;
    ga_arena_options options = options_for(place, device, limit);
    EXPECT(ga_vector_open(&vector, element, &options, stream) == GA_OK);
    return vector;
}

static ga_vector *upload_array(int device, const void *from, uint64_t n, size_t element)
{
    ga_vector *vector = open_vector(GA_PLACE_DEVICE, device, NULL, element, 0);
    EXPECT(vector && (!n || ga_vector_append(vector, n, from) == GA_OK));
    return vector;
}

device_matrix upload(int device, const ga_csr *m)
{
    device_matrix copy = {.view = *m};
    uint64_t entries = m->offsets[m->rows];
    copy.offsets = upload_array(device, m->offsets, m->rows + 1, sizeof *m->offsets);
    copy.indices = upload_array(device, m->indices, entries, sizeof *m->indices);
    copy.values = upload_array(device, m->values, entries, ga_value_size(m->type));
    copy.view.offsets = ga_vector_data(copy.offsets);
    copy.view.indices = ga_vector_data(copy.indices);
    copy.view.values = ga_vector_data(copy.values);
    return copy;
}

void device_matrix_close(device_matrix *m)
{
    ga_vector_close(m->offsets);
    ga_vector_close(m->indices);
    ga_vector_close(m->values);
    *m = (device_matrix){0};
}

ga_spgemm_product open_product(ga_place place, int device, ga_stream stream, ga_value_type type)
{
    return (ga_spgemm_product){.offsets = open_vector(place, device, stream, sizeof(uint64_t), 0),
                               .indices = open_vector(place, device, stream, sizeof(uint32_t), 0),
                               .values =
                                   open_vector(place, device, stream, ga_value_size(type), 0)};
}

ga_spgemm_product open_limited(int device, ga_value_type type, uint64_t indices, uint64_t values)
{
    return (ga_spgemm_product){
        .offsets = open_vector(GA_PLACE_DEVICE, device, NULL, sizeof(uint64_t), 0),
        .indices = open_vector(GA_PLACE_DEVICE, device, NULL, sizeof(uint32_t), indices),
        .values = open_vector(GA_PLACE_DEVICE, device, NULL, ga_value_size(type), values)};
}

void close_product(ga_spgemm_product *c)
{
    ga_vector_close(c->offsets);
    ga_vector_close(c->indices);
    ga_vector_close(c->values);
    *c = (ga_spgemm_product){0};
}

CUstream open_stream(int device)
{
    ga_cuda_scope scope;
    CUstream stream = NULL;
    if (ga_cuda_enter(&scope, device) == GA_OK) {
        scope.driver->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
        ga_cuda_leave(&scope);
    }
    EXPECT(stream);
    return stream;
}

void close_stream(int device, CUstream stream)
{
    ga_cuda_scope scope;
    if (stream && ga_cuda_enter(&scope, device) == GA_OK) {
        scope.driver->cuStreamDestroy(stream);
        ga_cuda_leave(&scope);
    }
}

uint64_t free_memory(int device)
{
    ga_cuda_scope scope;
    size_t available = 0, total;
    if (ga_cuda_enter(&scope, device) == GA_OK) {
        EXPECT(scope.driver->cuMemGetInfo(&available, &total) == CUDA_SUCCESS);
        ga_cuda_leave(&scope);
    }
    return available;
}

/* ---- comparison ------------------------------------------------------------------------------ */

typedef struct entry {
    uint32_t column;
    double value;
} entry;

static int compare_columns(const void *a, const void *b)
{
    uint32_t left = ((const entry *)a)->column, right = ((const entry *)b)->column;
    return (left > right) - (left < right);
}

static bool is_close(double got, double want, ga_value_type type)
{
    double tolerance = type == GA_FLOAT64 ? 1e-12 : 1e-5;
    return got == want || (isnan(got) && isnan(want)) ||
           fabs(got - want) <= tolerance * (1 + fabs(want));
}

static void *download(ga_vector *vector)
{
    uint64_t n = ga_vector_size(vector);
    void *copy = need(calloc(n + 1, ga_vector_element(vector)));
    EXPECT(ga_vector_read(vector, 0, n, copy) == GA_OK);
    EXPECT(ga_vector_wait(vector) == GA_OK);
    return copy;
}

/* `row` has room for the entries of any row. */
static bool is_row(const ga_csr *got, const ga_csr *want, uint64_t number, entry *row, bool sorted)
{
    uint64_t first = want->offsets[number], count = want->offsets[number + 1] - first;
    for (uint64_t i = 0; i < count; i++) {
        row[i] = (entry){got->indices[first + i], value_at(got->values, want->type, first + i)};
    }
    if (!sorted) {
        qsort(row, count, sizeof *row, compare_columns);
    }
    for (uint64_t i = 0; i < count; i++) {
        double value = value_at(want->values, want->type, first + i);
        if (row[i].column != want->indices[first + i] ||
            !is_close(row[i].value, value, want->type)) {
            FAIL("entry %llu of row %llu to be %.17g in column %u, got %.17g in column %u",
                 (unsigned long long)i, (unsigned long long)number, value, want->indices[first + i],
                 row[i].value, row[i].column);
            return false;
        }
    }
    return true;
}

static bool are_rows(const ga_csr *got, const ga_csr *want, bool sorted)
{
    uint64_t most = 0;
    for (uint64_t row = 0; row < want->rows; row++) {
        uint64_t count = want->offsets[row + 1] - want->offsets[row];
        most = count > most ? count : most;
        if (got->offsets[row + 1] != want->offsets[row + 1]) {
            FAIL("row %llu to end at %llu, got %llu", (unsigned long long)row,
                 (unsigned long long)want->offsets[row + 1],
                 (unsigned long long)got->offsets[row + 1]);
            return false;
        }
    }
    entry *row = need(calloc(most + 1, sizeof *row));
    bool equal = true;
    for (uint64_t i = 0; equal && i < want->rows; i++) {
        equal = is_row(got, want, i, row, sorted);
    }
    free(row);
    return equal;
}

bool is_product(const ga_spgemm_product *c, const ga_spgemm_product *want, bool sorted)
{
    uint64_t entries = ga_vector_size(want->indices);
    if (c->rows != want->rows || c->columns != want->columns || c->type != want->type ||
        ga_vector_size(c->offsets) != want->rows + 1 || ga_vector_size(c->indices) != entries ||
        ga_vector_size(c->values) != entries) {
        FAIL("%llu x %llu with %llu entries, got %llu x %llu with %llu offsets, %llu columns and "
             "%llu values",
             (unsigned long long)want->rows, (unsigned long long)want->columns,
             (unsigned long long)entries, (unsigned long long)c->rows,
             (unsigned long long)c->columns, (unsigned long long)ga_vector_size(c->offsets),
             (unsigned long long)ga_vector_size(c->indices),
             (unsigned long long)ga_vector_size(c->values));
        return false;
    }
    uint64_t *offsets = download(c->offsets);
    uint32_t *indices = download(c->indices);
    void *values = download(c->values);
    ga_csr view = ga_spgemm_view(want);
    ga_csr got = {c->rows, c->columns, offsets, indices, values, c->type};
    bool equal = offsets[0] == 0 && are_rows(&got, &view, sorted);
    if (offsets[0]) {
        FAIL("the first offset to be 0, got %llu", (unsigned long long)offsets[0]);
    }
    free(offsets);
    free(indices);
    free(values);
    return equal;
}

/* ---- products -------------------------------------------------------------------------------- */

ga_spgemm_options options_of(ga_spgemm_method method, bool sorted)
{
    return (ga_spgemm_options){.options_size = sizeof(ga_spgemm_options),
                               .flags = sorted ? 0 : GA_SPGEMM_UNSORTED,
                               .method = method};
}

ga_spgemm_product host_product(const ga_csr *a, const ga_csr *b)
{
    ga_spgemm_product c = open_product(GA_PLACE_HOST, 0, NULL, a->type);
    ga_spgemm_options options = options_of(GA_SPGEMM_PRECISE, true);
    EXPECT(ga_spgemm_multiply(a, b, &options, &c, NULL) == GA_OK);
    return c;
}

ga_status multiply_device(const ga_csr *a, const ga_csr *b, ga_spgemm_method method, bool sorted,
                          ga_spgemm_product *c, const ga_spgemm_product *want,
                          ga_spgemm_report *report)
{
    enum {
        AHEAD = 1 << 24 /* entries: at least the multiplications, so that no vector is lent */
    };
    ga_spgemm_options options = options_of(method, sorted);
    if (suite.no_growing) {
        EXPECT(ga_vector_reserve(c->indices, ga_vector_size(want->indices) + AHEAD) == GA_OK);
        EXPECT(ga_vector_reserve(c->values, ga_vector_size(want->indices) + AHEAD) == GA_OK);
    }
    return ga_spgemm_multiply(a, b, &options, c, report);
}

static void check_report(const ga_spgemm_report *report, ga_spgemm_method method, uint64_t entries)
{
    EXPECT(method ? report->method == method
                  : report->method == GA_SPGEMM_GROWING || report->method == GA_SPGEMM_PRECISE);
    EXPECT(report->entries == entries);
    EXPECT(report->entries_peak >= entries);
    EXPECT(report->multiplications >= entries);
}

static uint64_t longest_row(const ga_csr *m)
{
    uint64_t longest = 0;
    for (uint64_t row = 0; row < m->rows; row++) {
        uint64_t length = m->offsets[row + 1] - m->offsets[row];
        longest = length > longest ? length : longest;
    }
    return longest;
}

/* Each round of GA_SPGEMM_DYNAMIC looks at all entries of a row of A: that would take minutes. */
static bool takes_too_long(const ga_csr *a, const ga_spgemm_product *want, ga_spgemm_method method)
{
    ga_csr view = ga_spgemm_view(want);
    return method == GA_SPGEMM_DYNAMIC && longest_row(a) * longest_row(&view) > 1 << 24;
}

void multiply_each(int device, const ga_csr *a, const ga_csr *b)
{
    char name[sizeof description];
    memcpy(name, description, sizeof name);
    ga_spgemm_product want = host_product(a, b), c;
    device_matrix on_a = upload(device, a), on_b = {0};
    if (a != b) {
        on_b = upload(device, b);
    }
    c = open_product(GA_PLACE_DEVICE, device, NULL, a->type);
    bool good = true;
    for (uint32_t way = 0; good && way < 2 * GA_SPGEMM_METHOD_COUNT; way++) {
        ga_spgemm_method method = way / 2;
        ga_spgemm_report report = {0};
        bool sorted = way % 2 == 0;
        if (takes_too_long(a, &want, method) ||
            (suite.quick && (!method || (!sorted && method != GA_SPGEMM_GROWING)))) {
            continue;
        }
        describe("%.120s, %s, %s, %s", name, ga_value_type_text(a->type),
                 ga_spgemm_method_text(method), sorted ? "sorted" : "unsorted");
        ga_status status = multiply_device(&on_a.view, a == b ? &on_a.view : &on_b.view, method,
                                           sorted, &c, &want, &report);
        if (status != GA_OK) {
            FAIL("a product, got status %d", (int)status);
        }
        good = status == GA_OK && is_product(&c, &want, sorted);
        if (good) {
            check_report(&report, method, ga_vector_size(want.indices));
        }
    }
    close_product(&c);
    close_product(&want);
    device_matrix_close(&on_a);
    device_matrix_close(&on_b);
}

void multiply_all(int device, const char *name, matrix *a, matrix *b)
{
    for (uint32_t type = 0; type < GA_VALUE_TYPE_COUNT; type++) {
        matrix_fill(a, type, 1);
        if (a != b) {
            matrix_fill(b, type, 2);
        }
        describe("%s", name);
        multiply_each(device, &a->view, &b->view);
    }
}

void multiply_pair(int device, const char *name, matrix a, matrix b)
{
    multiply_all(device, name, &a, &b);
    matrix_free(&a);
    matrix_free(&b);
}

void multiply_square(int device, const char *name, matrix a)
{
    multiply_all(device, name, &a, &a);
    matrix_free(&a);
}
