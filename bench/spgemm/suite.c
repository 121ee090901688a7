/* SPDX-License-Identifier: MIT
 *
 * The loop over matrices, rounds and methods; tables and JSON lines.
 */
#include "suite.h"

#include "matrices.h"

#include "../runner/child.h"
#include "../runner/figures.h"
#include "../runner/machine.h"
#include "../runner/progress.h"
#include "../runner/result.h"

#include <gpualloc/backend.h>

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    SEED = 1,
    DEADLINE = 7200 /* seconds for a matrix: one thread takes minutes for a round */
};

static const ga_bench_metric time_metric = {"time", "ms", false, NULL};
static const ga_bench_metric failed_metric = {"failed", "rounds", false, NULL};

/* A method of a matrix. */
typedef struct row {
    const bench_square_method *method;
    bench_square_sample last; /* of the last round that succeeded */
    double *times;            /* of the rounds in ms; NAN: none */
    size_t failed;            /* rounds */
    char failure[160];
} row;

/* A matrix. */
typedef struct cell {
    const bench_spgemm_plan *plan;
    const bench_spgemm_source *source;
    FILE *out;
    bench_square_case square;
    row rows[BENCH_SQUARE_METHODS];
    size_t row_count;
    double *times; /* [row * rounds + round] */
    double *space; /* for one row's */
} cell;

/* ---- rounds ---------------------------------------------------------------------------------- */

/* A method that has failed is not called again. */
static void measure_once(cell *c, row *r, int round)
{
    bench_square_sample sample;
    bool checks = c->plan->checks && round == 0;
    if (*r->failure) {
        return;
    }
    if (bench_square(&c->square, r->method, checks, &sample) != GA_OK) {
        snprintf(r->failure, sizeof r->failure, "%s", ga_error_text());
    } else if (round >= 0) {
        r->last = sample;
        r->times[round] = sample.ms;
    }
}

/* Each round begins with another method. On a device a round that is not counted precedes them. */
static void measure(cell *c)
{
    ga_bench_progress progress;
    char text[128];
    int rounds = (int)c->plan->rounds, warm_ups = c->plan->place == GA_PLACE_DEVICE;
    ga_bench_progress_begin(&progress, c->row_count * (size_t)(rounds + warm_ups));
    for (int round = -warm_ups; round < rounds; round++) {
        for (size_t turn = 0; turn < c->row_count; turn++) {
            row *r = &c->rows[((size_t)(round + warm_ups) + turn) % c->row_count];
            measure_once(c, r, round);
            snprintf(text, sizeof text, "%s, %s", c->source->name, r->method->text);
            ga_bench_progress_step(&progress, text);
        }
    }
    ga_bench_progress_clear(&progress);
}

/* With `base` ratios to its times, round by round. */
static ga_bench_figures figures_of(const cell *c, const row *r, const row *base)
{
    size_t count = 0;
    for (unsigned round = 0; round < c->plan->rounds; round++) {
        double value = r->times[round] / (base ? base->times[round] : 1);
        if (isfinite(value)) {
            c->space[count++] = value;
        }
    }
    return ga_bench_figures_of(c->space, count);
}

/* ---- results --------------------------------------------------------------------------------- */

static double gflops_of(const cell *c, double ms)
{
    return 2 * (double)c->square.multiplications / ms / 1e6;
}

static json_t *real_or_null(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

/* The keys that other benchmarks do not have. */
static json_t *extra_of(const cell *c, const row *r, double ms)
{
    const bench_facts *facts = bench_facts_of(c->source->name);
    const bench_square_sample *s = &r->last;
    json_t *extra = json_pack(
        "{s:s, s:s, s:b, s:f, s:s, s:i, s:b, s:I, s:I, s:o}", "method", r->method->name, "matrix",
        c->source->name, "exact", c->source->path || (facts && facts->exact && c->plan->scale == 1),
        "scale", c->source->path ? 1 : c->plan->scale, "type",
        ga_value_type_text(c->square.host.type), "rounds", (int)c->plan->rounds, "sorted",
        s->sorted, "rows", (json_int_t)c->square.host.rows, "multiplications",
        (json_int_t)c->square.multiplications, "gflops", real_or_null(gflops_of(c, ms)));
    json_t *memory = json_pack(
        "{s:I, s:I, s:I, s:o, s:o, s:o, s:o}", "entries", (json_int_t)s->entries, "peak_bytes",
        (json_int_t)s->peak_bytes, "scratch_bytes", (json_int_t)s->scratch_bytes, "efficiency",
        real_or_null(s->efficiency), "mapped_efficiency", real_or_null(s->mapped_efficiency),
        "allocation_ms", real_or_null(s->allocation_ms), "growth_ms", real_or_null(s->growth_ms));
    if (isfinite(ms)) {
        json_object_update(extra, memory);
    }
    uint32_t size = s->size_per_row ? s->size_per_row : r->method->size_per_row;
    if (size) {
        json_object_set_new(extra, "size_per_row", json_integer(size));
        json_object_set_new(extra, "growth_rounds", json_integer((json_int_t)s->rounds));
    }
    if (s->estimated) {
        json_object_set_new(extra, "entries_estimated", json_integer((json_int_t)s->estimated));
    }
    if (*r->failure) {
        json_object_set_new(extra, "reason", json_string(r->failure));
    }
    json_decref(memory);
    return extra;
}

static bool record(const cell *c, const row *r, const ga_bench_metric *metric)
{
    ga_bench_figures figures = figures_of(c, r, NULL);
    bool is_time = metric == &time_metric;
    ga_bench_result result = {
        .bench = "spgemm",
        .place = ga_place_text(c->plan->place),
        .spec = r->method->text,
        .device = c->plan->device,
        .driver = c->plan->driver,
        .threads = r->last.threads,
        .size = c->square.host.offsets[c->square.host.rows],
        .metric = metric,
        .value = is_time ? figures.median : (double)r->failed,
        .spread = is_time ? figures.high - figures.low : NAN,
        .baseline = c->rows[0].method->text,
        .ratio = is_time ? figures_of(c, r, &c->rows[0]).median : NAN,
        .extra = extra_of(c, r, figures.median),
    };
    bool written =
        result.extra && ga_bench_result_write(c->plan->json, &result, ga_bench_today().text);
    json_decref(result.extra);
    return written;
}

static bool record_row(const cell *c, const row *r)
{
    return !c->plan->json || ((!r->failed || record(c, r, &failed_metric)) &&
                              (r->failed == c->plan->rounds || record(c, r, &time_metric)));
}

static void print_head(const cell *c)
{
    const ga_csr *a = &c->square.host;
    fprintf(c->out, "\n%s: %llu rows, %llu entries, %llu multiplications\n%-15s %10s %5s %6s",
            c->source->name, (unsigned long long)a->rows, (unsigned long long)a->offsets[a->rows],
            (unsigned long long)c->square.multiplications, "", "ms", "+-", "times");
    fprintf(c->out, " %8s %11s %11s %9s %10s %10s %6s\n", "Gflop/s", "entries", "estimated",
            "peak MB", "scratch MB", "efficiency", "mapped");
}

static void print_ratio(const cell *c, int width, int digits, double value)
{
    if (isfinite(value)) {
        fprintf(c->out, " %*.*f", width, digits, value);
    } else {
        fprintf(c->out, " %*s", width, "-");
    }
}

static void print_row(const cell *c, const row *r)
{
    const bench_square_sample *s = &r->last;
    ga_bench_figures figures = figures_of(c, r, NULL);
    const char *name = r->method->text;
    if (r->failed == c->plan->rounds) {
        fprintf(c->out, "%-15s failed\n", name);
        return;
    }
    fprintf(c->out, "%-15s %10.2f %4.0f%%", name, figures.median,
            50 * (figures.high - figures.low) / figures.median);
    print_ratio(c, 6, 2, figures_of(c, r, &c->rows[0]).median);
    fprintf(c->out, " %8.2f %11llu", gflops_of(c, figures.median), (unsigned long long)s->entries);
    print_ratio(c, 11, 0, s->estimated ? (double)s->estimated : NAN);
    fprintf(c->out, " %9.1f %10.1f", (double)s->peak_bytes / 1e6, (double)s->scratch_bytes / 1e6);
    print_ratio(c, 10, 3, s->efficiency);
    print_ratio(c, 6, 3, s->mapped_efficiency);
    fprintf(c->out, "%s%s\n", s->sorted ? "" : " unsorted", r->failed ? " !" : "");
}

/* Returns the failed measurements. */
static ga_status report(cell *c, double *failed)
{
    ga_status status = GA_OK;
    print_head(c);
    for (row *r = c->rows; r < c->rows + c->row_count; r++) {
        for (unsigned round = 0; round < c->plan->rounds; round++) {
            r->failed += isfinite(r->times[round]) ? 0 : 1;
        }
        if (*r->failure) {
            fprintf(stderr, "gpualloc bench spgemm: %s, %s: %s\n", c->source->name, r->method->text,
                    r->failure);
        }
        *failed += r->failed != 0;
        print_row(c, r);
        if (!record_row(c, r)) {
            status = ga_fail(GA_ERR_IO, "the JSON file cannot be written");
        }
    }
    fflush(c->out);
    return status;
}

/* ---- a matrix -------------------------------------------------------------------------------- */

static ga_status prepare_rows(cell *c)
{
    c->row_count = c->plan->method_count;
    c->times = calloc((c->row_count + 1) * c->plan->rounds, sizeof *c->times);
    if (!c->times) {
        return ga_fail(GA_ERR_MEMORY, "no memory for %u rounds", c->plan->rounds);
    }
    c->space = c->times + c->row_count * c->plan->rounds;
    for (size_t i = 0; i < c->row_count; i++) {
        c->rows[i].method = &c->plan->methods[i];
        c->rows[i].times = c->times + i * c->plan->rounds;
        for (unsigned round = 0; round < c->plan->rounds; round++) {
            c->rows[i].times[round] = NAN;
        }
    }
    return GA_OK;
}

/* Prepares the copy on the device, the product to compare with, and cuSPARSE, as the plan requires,
 * and measures. */
static ga_status measure_matrix(cell *c, double *failed)
{
    static ga_spgemm_product copy, expected;
    static ga_csr expected_view;
    bench_square_case *s = &c->square;
    ga_status status = prepare_rows(c);
    s->multiplications = bench_multiplications(&s->host);
    s->a = s->host;
    if (status == GA_OK && c->plan->checks) {
        status = bench_product_open(&expected, GA_PLACE_HOST, s->host.type);
        status = status ? status : ga_spgemm_multiply(&s->host, &s->host, NULL, &expected, NULL);
        expected_view = ga_spgemm_view(&expected);
        s->expected = &expected_view;
    }
    if (status == GA_OK && s->place == GA_PLACE_DEVICE) {
        status = bench_product_copy(&copy, &s->host, GA_PLACE_DEVICE);
        s->a = ga_spgemm_view(&copy);
    }
    if (status == GA_OK && c->plan->library) {
        status = bench_cusparse_open(&s->cusparse, c->plan->library);
    }
    if (status == GA_OK) {
        measure(c);
        status = report(c, failed);
    }
    free(c->times);
    bench_cusparse_close(s->cusparse);
    bench_product_close(&copy);
    bench_product_close(&expected);
    return status;
}

static ga_status measure_file(cell *c, double *failed)
{
    ga_matrix *matrix;
    ga_matrix_options options = {.options_size = sizeof options, .type = c->plan->type};
    ga_status status = ga_matrix_read(&matrix, c->source->path, &options);
    if (status != GA_OK) {
        return status;
    }
    c->square.host = ga_matrix_view(matrix);
    status = c->square.host.rows == c->square.host.columns
                 ? measure_matrix(c, failed)
                 : ga_fail(GA_ERR_ARGUMENT,
                           "\"%s\" is %llu x %llu: expected as many columns as rows, for A A",
                           c->source->path, (unsigned long long)c->square.host.rows,
                           (unsigned long long)c->square.host.columns);
    ga_matrix_free(matrix);
    return status;
}

/* In a child. The report's value 0 becomes the number of failed measurements. */
static ga_status run_matrix(void *context, ga_bench_report *report)
{
    cell *c = context;
    bench_matrix matrix;
    if (c->source->path) {
        return measure_file(c, &report->values[0]);
    }
    ga_status status =
        bench_matrix_make(&matrix, c->source->name, c->plan->scale, SEED, c->plan->type);
    if (status == GA_OK) {
        c->square.host = matrix.csr;
        status = measure_matrix(c, &report->values[0]);
        bench_matrix_free(&matrix);
    }
    return status;
}

size_t bench_spgemm_run(const bench_spgemm_plan *plan, FILE *out)
{
    static cell c;
    size_t failed = 0;
    for (size_t i = 0; i < plan->matrix_count; i++) {
        ga_bench_report report;
        c = (cell){.plan = plan, .source = &plan->matrices[i], .out = out};
        c.square.place = plan->place;
        c.square.threads = plan->threads;
        c.square.flags = plan->flags;
        fflush(out); /* the child would write it again */
        ga_bench_child_run(run_matrix, &c, DEADLINE, &report);
        failed += (size_t)report.values[0];
        if (!report.done) {
            fprintf(stderr, "gpualloc bench spgemm: %s: %s\n", c.source->name, report.failure);
            failed++;
        }
    }
    return failed;
}
