/* SPDX-License-Identifier: MIT
 *
 * Products of sparse matrices by the kernels for devices, emulated (cuda.h), against plain ones.
 */
#include "launch.h"

#include "multiply.h"

#include "arena/vector_state.h"
#include "support/random.h"

#include <gpualloc/gpualloc.h>
#include <gpualloc/spgemm.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- matrices -------------------------------------------------------------------------------- */

typedef struct matrix {
    ga_csr view;
    uint64_t *offsets;
    uint32_t *indices;
    void *values;
    uint64_t room;
} matrix;

static uint64_t state; /* of random numbers */

static uint64_t below(uint64_t n)
{
    return random_below(&state, n);
}

static void put(matrix *m, uint64_t at, uint32_t column)
{
    if (at == m->room) {
        m->room = 2 * m->room + 1000;
        m->indices = realloc(m->indices, m->room * sizeof *m->indices);
        m->values = realloc(m->values, m->room * sizeof(double));
    }
    m->indices[at] = column;
    double value = (double)below(2001) / 1000 - 1;
    if (m->view.type == GA_FLOAT64) {
        ((double *)m->values)[at] = value;
    } else {
        ((float *)m->values)[at] = (float)value;
    }
}

static int by_column(const void *a, const void *b)
{
    uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
    return left < right ? -1 : left > right;
}

/* The lengths of rows: `length`, but one row in `some` (0: none) has `many`; some have 0. */
typedef struct shape {
    uint64_t rows;
    uint32_t columns;
    uint32_t length, many, some;
    uint32_t band; /* columns of a row are within so many; 0: any */
    bool misses;   /* of A: long rows with even numbers take rows of B from the first half, others
                    * from the second; of B: the first half has only low columns */
} shape;

static matrix make(shape s, ga_value_type type)
{
    matrix m = {.view = {.rows = s.rows, .columns = s.columns, .type = type}};
    uint64_t count = 0;
    m.offsets = calloc(s.rows + 1, sizeof *m.offsets);
    uint32_t most = s.length > s.many ? s.length : s.many;
    uint32_t *columns = calloc((size_t)most * 2 + 2, sizeof *columns);
    for (uint64_t row = 0; row < s.rows; row++) {
        uint32_t n = (uint32_t)below(2 * (uint64_t)s.length + 1);
        n = s.some && below(s.some) == 0 ? s.many : n;
        uint32_t band = s.band && s.band < s.columns ? s.band : s.columns;
        n = n > band ? band : n;
        uint32_t first = band < s.columns ? (uint32_t)below(s.columns - band) : 0;
        if (s.misses && s.some) {
            n = row % s.some > 1 ? 1 : s.many;
            band = s.columns / 2;
            first = row % 2 ? band : 0;
        } else if (s.misses) {
            n = s.length;
            band = row < s.rows / 2 ? n + 1 : s.columns;
            first = 0;
        }
        if (n == band) {
            for (uint32_t i = 0; i < n; i++) {
                put(&m, count++, first + i);
            }
            m.offsets[row + 1] = count;
            continue;
        }
        for (uint32_t i = 0; i < n; i++) {
            columns[i] = first + (uint32_t)below(band);
        }
        qsort(columns, n, sizeof *columns, by_column);
        for (uint32_t i = 0; i < n; i++) {
            if (i == 0 || columns[i] != columns[i - 1]) {
                put(&m, count++, columns[i]);
            }
        }
        m.offsets[row + 1] = count;
    }
    free(columns);
    put(&m, count, 0); /* so that there are arrays */
    m.indices = realloc(m.indices, (count ? count : 1) * sizeof *m.indices);
    m.values = realloc(m.values, (count ? count : 1) * ga_value_size(type));
    m.view.offsets = m.offsets;
    m.view.indices = m.indices;
    m.view.values = m.values;
    return m;
}

static void matrix_end(matrix *m)
{
    free(m->offsets);
    free(m->indices);
    free(m->values);
}

static double value_of(const ga_csr *m, uint64_t at)
{
    return m->type == GA_FLOAT64 ? ((const double *)m->values)[at]
                                 : (double)((const float *)m->values)[at];
}

/* ---- products -------------------------------------------------------------------------------- */

static char scene_text[300];

static void fail(const char *why, uint64_t row)
{
    fprintf(stderr, "%s: row %" PRIu64 ": %s\n", scene_text, row, why);
    _exit(1);
}

static ga_vector *open_vector(size_t element, uint64_t limit)
{
    ga_vector *v;
    ga_arena_options options = {.options_size = sizeof options,
                                .place = GA_PLACE_HOST,
                                .flags = GA_ARENA_EXACT,
                                .limit = limit,
                                .reserve = limit ? 0 : (uint64_t)1 << 32};
    if (ga_vector_open(&v, element, &options, NULL)) {
        fail(ga_error_text(), 0);
    }
    return v;
}

/* A row of the product, by columns. */
typedef struct plain {
    double *sums, *sizes; /* sizes: of the products that were added */
    uint8_t *marks;       /* 1: has an entry; 2: which was found */
} plain;

/* Adds up a row; returns the number of its entries. */
static uint64_t add_up(const ga_csr *a, const ga_csr *b, uint64_t row, plain *p)
{
    uint64_t count = 0;
    for (uint64_t i = a->offsets[row]; i < a->offsets[row + 1]; i++) {
        uint64_t k = a->indices[i];
        for (uint64_t j = b->offsets[k]; j < b->offsets[k + 1]; j++) {
            uint32_t column = b->indices[j];
            double product = value_of(a, i) * value_of(b, j);
            count += !p->marks[column];
            p->marks[column] = 1;
            p->sums[column] += product;
            p->sizes[column] += fabs(product);
        }
    }
    return count;
}

static void compare_row(const ga_csr *c, uint64_t row, plain *p, bool is_sorted)
{
    double allowed = c->type == GA_FLOAT64 ? 1e-10 : 1e-3;
    for (uint64_t i = c->offsets[row]; i < c->offsets[row + 1]; i++) {
        uint32_t column = c->indices[i];
        if (column >= c->columns || p->marks[column] != 1) {
            fail("a column that is not there, or twice", row);
        }
        p->marks[column] = 2;
        if (is_sorted && i > c->offsets[row] && c->indices[i - 1] >= column) {
            fail("not sorted", row);
        }
        if (!(fabs(value_of(c, i) - p->sums[column]) <= allowed * (p->sizes[column] + 1e-6))) {
            fail("a wrong value", row);
        }
    }
    for (uint64_t i = c->offsets[row]; i < c->offsets[row + 1]; i++) {
        uint32_t column = c->indices[i];
        p->marks[column] = 0;
        p->sums[column] = p->sizes[column] = 0;
    }
}

static void compare(const ga_csr *a, const ga_csr *b, const ga_csr *c, bool is_sorted)
{
    plain p = {calloc(b->columns, sizeof *p.sums), calloc(b->columns, sizeof *p.sizes),
               calloc(b->columns, sizeof *p.marks)};
    for (uint64_t row = 0; row < a->rows; row++) {
        uint64_t count = add_up(a, b, row, &p);
        if (c->offsets[row + 1] - c->offsets[row] != count) {
            fail("a wrong number of entries", row);
        }
        compare_row(c, row, &p, is_sorted);
    }
    free(p.sums);
    free(p.sizes);
    free(p.marks);
}

static uint64_t count_entries(const ga_csr *a, const ga_csr *b)
{
    plain p = {calloc(b->columns, sizeof *p.sums), calloc(b->columns, sizeof *p.sizes),
               calloc(b->columns, sizeof *p.marks)};
    uint64_t entries = 0;
    for (uint64_t row = 0; row < a->rows; row++) {
        entries += add_up(a, b, row, &p);
        for (uint64_t i = a->offsets[row]; i < a->offsets[row + 1]; i++) {
            uint64_t k = a->indices[i];
            for (uint64_t j = b->offsets[k]; j < b->offsets[k + 1]; j++) {
                p.marks[b->indices[j]] = 0;
            }
        }
    }
    free(p.sums);
    free(p.sizes);
    free(p.marks);
    return entries;
}

static void close_product(ga_spgemm_product *c)
{
    ga_vector_close(c->offsets);
    ga_vector_close(c->indices);
    ga_vector_close(c->values);
}

/* `has_room`: the vectors have memory for any product before. `is_limited`: they may be too small.
 */
static void multiply(const ga_csr *a, const ga_csr *b, ga_spgemm_options options, bool has_room,
                     bool is_limited)
{
    size_t value = ga_value_size(a->type);
    uint64_t most = 0;
    for (uint64_t i = 0; i < a->offsets[a->rows]; i++) {
        most += b->offsets[a->indices[i] + 1] - b->offsets[a->indices[i]];
    }
    uint64_t limit = is_limited ? (1024 + below(most + 1)) / 1024 * 1024 : 0;
    ga_spgemm_report report = {.method = options.method == GA_SPGEMM_AUTO ? GA_SPGEMM_GROWING
                                                                          : options.method};
    ga_spgemm_product c = {.offsets = open_vector(sizeof(uint64_t), 0),
                           .indices = open_vector(sizeof(uint32_t), limit * sizeof(uint32_t)),
                           .values = open_vector(value, limit * value)};
    c.rows = 0;
    if (has_room && !limit &&
        (ga_vector_reserve(c.indices, most) || ga_vector_reserve(c.values, most))) {
        fail(ga_error_text(), 0);
    }
    ga_status status = ga_spgemm_on_device(a, b, &options, &c, &report);
    if (limit && status) {
        bool has_enough = options.method == GA_SPGEMM_PRECISE ? count_entries(a, b) <= limit
                          : options.method == GA_SPGEMM_UPPER ? most <= limit
                                                              : false; /* they may need more */
        if (status != GA_ERR_MEMORY || has_enough) {
            fail(ga_error_text(), 0);
        }
        close_product(&c);
        return;
    }
    if (status) {
        fail(ga_error_text(), 0);
    }
    ga_csr view = {.rows = a->rows,
                   .columns = b->columns,
                   .type = a->type,
                   .offsets = ga_vector_data(c.offsets),
                   .indices = ga_vector_data(c.indices),
                   .values = ga_vector_data(c.values)};
    if (ga_vector_size(c.indices) != report.entries || view.offsets[a->rows] != report.entries ||
        ga_vector_size(c.values) != report.entries || view.offsets[0]) {
        fail("a wrong number of entries", a->rows);
    }
    compare(a, b, &view, !(options.flags & GA_SPGEMM_UNSORTED));
    close_product(&c);
}

/* ---- scenes ---------------------------------------------------------------------------------- */

typedef struct scene {
    const char *name;
    shape a, b;
} scene;

static const scene scenes[] = {
    {"narrow rows", {600, 600, 3, 0, 0, 0, false}, {600, 600, 2, 0, 0, 0, false}},
    {"width 8", {500, 400, 4, 0, 0, 0, false}, {400, 500, 9, 0, 0, 0, false}},
    {"width 16", {300, 300, 4, 0, 0, 0, false}, {300, 900, 18, 0, 0, 0, false}},
    {"width 32", {200, 200, 4, 0, 0, 0, false}, {200, 3000, 45, 0, 0, 0, false}},
    {"many columns", {300, 300, 4, 0, 0, 0, false}, {300, 20000000, 5, 0, 0, 0, false}},
    {"some large rows", {400, 400, 3, 200, 40, 0, false}, {400, 5000, 6, 0, 0, 0, false}},
    {"large, spread", {200, 400, 3, 100, 20, 0, false}, {400, 140000000, 12, 0, 0, 0, false}},
    {"narrow bitmaps", {100, 400, 3, 150, 6, 0, false}, {400, 60000, 20, 0, 0, 0, false}},
    {"wide bitmaps", {60, 400, 3, 200, 6, 0, false}, {400, 340000, 30, 0, 0, 0, false}},
    {"long rows of B", {80, 200, 4, 100, 8, 0, false}, {200, 9000, 10, 1500, 10, 0, false}},
    {"overflow", {3000, 500, 1, 60, 97, 0, false}, {500, 100000, 8, 0, 0, 0, false}},
    {"empty", {200, 100, 0, 0, 0, 0, false}, {100, 100, 1, 0, 0, 0, false}},
    {"mostly empty", {2000, 400, 0, 120, 50, 0, false}, {400, 4000, 8, 0, 0, 0, false}},
    {"dense rows", {40, 300, 3, 300, 5, 0, false}, {300, 6000, 40, 0, 0, 0, false}},
    {"misses, tiles", {2048, 100, 0, 30, 64, 0, true}, {100, 100000, 8, 0, 0, 0, true}},
    {"misses, more", {2048, 100, 0, 49, 512, 0, true}, {100, 100000, 100, 0, 0, 0, true}},
    {"windows", {50, 400, 3, 300, 8, 0, false}, {400, 140000000, 20, 0, 0, 0, false}},
    {"all large", {30, 300, 100, 0, 0, 0, false}, {300, 40000, 100, 0, 0, 0, false}},
    {"wide chunks", {50, 400, 3, 300, 20, 0, false}, {400, 60000000, 20, 0, 0, 0, false}},
    {"one wide row", {2000, 400, 2, 380, 1999, 0, false}, {400, 340000, 30, 0, 0, 0, false}},
    {"many pieces", {4000, 400, 3, 380, 499, 0, false}, {400, 5000, 10, 0, 0, 0, false}},
    {"slow pieces", {2000, 300, 2, 280, 60, 0, false}, {300, 8000, 20, 0, 0, 0, false}},
    {"long rows, rounds", {40, 200, 2, 190, 39, 0, false}, {200, 300, 6, 0, 0, 0, false}},
    {"small", {60, 60, 4, 0, 0, 0, false}, {60, 80, 6, 0, 0, 0, false}},
    {"close columns", {300, 400, 4, 64, 9, 64, false}, {400, 3000, 8, 0, 0, 50, false}},
};

static ga_spgemm_options choose_options(const scene *s)
{
    static const ga_spgemm_method methods[] = {
        GA_SPGEMM_AUTO,    GA_SPGEMM_AUTO,    GA_SPGEMM_GROWING, GA_SPGEMM_GROWING,
        GA_SPGEMM_GROWING, GA_SPGEMM_PRECISE, GA_SPGEMM_PRECISE, GA_SPGEMM_UPPER,
        GA_SPGEMM_UPPER,   GA_SPGEMM_DYNAMIC};
    ga_spgemm_options options = {.options_size = sizeof options,
                                 .method = methods[below(sizeof methods / sizeof *methods)]};
    options.flags = below(2) ? GA_SPGEMM_UNSORTED : 0;
    if (options.method == GA_SPGEMM_DYNAMIC && s->a.some &&
        s->b.columns > 300) { /* it would take seconds */
        options.method = GA_SPGEMM_GROWING;
    }
    if (options.method == GA_SPGEMM_DYNAMIC && below(2)) {
        options.flags |= GA_SPGEMM_COOPERATIVE;
    }
    if (options.method != GA_SPGEMM_AUTO && options.method != GA_SPGEMM_GROWING &&
        !(options.flags & GA_SPGEMM_COOPERATIVE) && !s->a.some && s->b.columns < 1000 && below(2)) {
        options.kernel = GA_SPGEMM_KERNEL_DOT;
    }
    return options;
}

static void choose_emulation(uint64_t seed)
{
    emulated.seed = seed;
    emulated.order = (emulated_order)below(EMULATED_ORDERS);
    emulated.naps = below(2) ? 0 : (uint32_t)(1 + below(40));
    emulated_most.buffers = below(2) ? 0 : (uint32_t)(1 + below(4));
    emulated_most.deferred = below(3) ? (uint32_t)(1 + below(below(2) ? 300 : 4000)) : 0;
    emulated_most.span = below(2) ? 0 : 4096;
}

static void run(const scene *s, uint64_t seed)
{
    state = seed;
    ga_value_type type = below(2) ? GA_FLOAT64 : GA_FLOAT32;
    matrix a = make(s->a, type), b = make(s->b, type);
    ga_spgemm_options options = choose_options(s);
    bool has_room = below(2), is_limited = below(6) == 0;
    choose_emulation(seed);
    snprintf(scene_text, sizeof scene_text,
             "%s, seed %" PRIu64 " (method %d, kernel %d, flags %u, %s, order %d, naps %u, "
             "%u buffers, %u deferred, span %u)",
             s->name, seed, (int)options.method, (int)options.kernel, options.flags,
             ga_value_type_text(type), (int)emulated.order, emulated.naps, emulated_most.buffers,
             emulated_most.deferred, emulated_most.span);
    multiply(&a.view, &b.view, options, has_room, is_limited);
    matrix_end(&a);
    matrix_end(&b);
}

/* Threads of a block that do not all reach a barrier: the emulation must notice. */
static void diverge(void)
{
    emulated_launch("emulated_diverge", 1, 64, 0, NULL);
}

/* usage: [SEED [SECONDS]], or "diverge" */
int main(int count, char **words)
{
    uint64_t seed = count > 1 ? strtoull(words[1], NULL, 0) : 1, products = 0;
    time_t end = time(NULL) + (count > 2 ? atoi(words[2]) : 0);
    if (count > 1 && strcmp(words[1], "diverge") == 0) {
        diverge();
        return 0;
    }
    do {
        for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++) {
            run(&scenes[i], seed++);
            products++;
        }
    } while (time(NULL) < end);
    printf("%" PRIu64 " products\n", products);
    return 0;
}
