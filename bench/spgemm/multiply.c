/* SPDX-License-Identifier: MIT
 *
 * Products A A on host threads, or on a device: the methods of gpualloc/spgemm.h in turn, for each
 * matrix, and cuSPARSE's.
 *
 *     bench-spgemm [--scale S] [--rounds N] [--threads N] [--unsorted] [--float]
 *                  [--device] [--cusparse LIBRARY] [--check] [NAME...]
 *
 * Prints for each method the median, least and most milliseconds of a call, millions of
 * multiplications a second, the share of entries in the memory that was mapped at most, and
 * megabytes: of the product at its peak, and scratch. --check compares the products with one of
 * host threads.
 */
#include "cusparse.h"
#include "matrices.h"

#include <gpualloc/spgemm.h>

#include <err.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    ROUNDS_MAX = 101
};

typedef struct settings {
    double scale;
    uint32_t rounds, threads, flags;
    bool on_device, checks;
    ga_value_type type;
    const char *library;
    bench_cusparse *cusparse;
} settings;

static const char usage[] =
    "usage: bench-spgemm [--scale S] [--rounds 1 to 101] [--threads N] [--unsorted] [--float] "
    "[--device] [--cusparse LIBRARY] [--check] [NAME...]";

static void must(ga_status status)
{
    if (status != GA_OK) {
        errx(1, "%s", ga_error_text());
    }
}

double bench_now_ms(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec * 1e3 + (double)at.tv_nsec / 1e6;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* ---- one product ----------------------------------------------------------------------------- */

static ga_vector *open_vector(ga_place place, size_t element)
{
    ga_vector *vector;
    ga_arena_options exact = {
        .options_size = sizeof exact, .place = place, .flags = GA_ARENA_EXACT};
    must(ga_vector_open(&vector, element, &exact, NULL));
    return vector;
}

static ga_spgemm_product open_product(ga_place place, ga_value_type type)
{
    return (ga_spgemm_product){.offsets = open_vector(place, sizeof(uint64_t)),
                               .indices = open_vector(place, sizeof(uint32_t)),
                               .values = open_vector(place, ga_value_size(type)),
                               .type = type};
}

static void close_product(const ga_spgemm_product *c)
{
    ga_vector_close(c->offsets);
    ga_vector_close(c->indices);
    ga_vector_close(c->values);
}

/* A copy of a matrix on the host, in vectors of a place. */
static ga_spgemm_product copy_matrix(const ga_csr *a, ga_place place)
{
    ga_spgemm_product copy = open_product(place, a->type);
    copy.rows = a->rows;
    copy.columns = a->columns;
    must(ga_vector_append(copy.offsets, a->rows + 1, a->offsets));
    must(ga_vector_append(copy.indices, a->offsets[a->rows], a->indices));
    must(ga_vector_append(copy.values, a->offsets[a->rows], a->values));
    return copy;
}

/* One call. */
typedef struct sample {
    double ms;
    ga_spgemm_report report;
    uint64_t peak_bytes;
} sample;

static double value_at(const ga_csr *m, uint64_t entry)
{
    return m->type == GA_FLOAT64 ? ((const double *)m->values)[entry]
                                 : (double)((const float *)m->values)[entry];
}

/* Ends the program unless the products have one pattern, and values that differ in the last digits
 * only. Unsorted columns are not compared. */
static void check_equal(const char *name, const char *method, const ga_csr *c, const ga_csr *right,
                        bool sorted)
{
    uint64_t entries = right->offsets[right->rows];
    double tolerance = right->type == GA_FLOAT64 ? 1e-12 : 1e-4, sum = 0, right_sum = 0;
    for (uint64_t row = 0; row < right->rows; row++) {
        if (c->offsets[row + 1] != right->offsets[row + 1]) {
            errx(1, "%s, %s: row %llu ends at %llu, not at %llu", name, method,
                 (unsigned long long)row, (unsigned long long)c->offsets[row + 1],
                 (unsigned long long)right->offsets[row + 1]);
        }
    }
    for (uint64_t i = 0; i < entries; i++) {
        double value = value_at(c, i), expected = value_at(right, i);
        sum += fabs(value);
        right_sum += fabs(expected);
        if (sorted && (c->indices[i] != right->indices[i] ||
                       fabs(value - expected) > tolerance * (1 + fabs(expected)))) {
            errx(1, "%s, %s: entry %llu: column %u, %g, not column %u, %g", name, method,
                 (unsigned long long)i, c->indices[i], value, right->indices[i], expected);
        }
    }
    if (fabs(sum - right_sum) > 1e-3 * right_sum) {
        errx(1, "%s, %s: the absolute values sum to %g, not %g", name, method, sum, right_sum);
    }
}

static void check_product(const settings *s, const char *name, const char *method,
                          const ga_spgemm_product *c, const ga_csr *right)
{
    ga_spgemm_product host = open_product(GA_PLACE_HOST, c->type);
    host.rows = c->rows;
    host.columns = c->columns;
    must(ga_vector_copy(host.offsets, c->offsets));
    must(ga_vector_copy(host.indices, c->indices));
    must(ga_vector_copy(host.values, c->values));
    ga_csr view = ga_spgemm_view(&host);
    check_equal(name, method, &view, right, !s->flags);
    close_product(&host);
}

/* Milliseconds of a call into new vectors, whose memory is part of its work. */
static sample multiply(const settings *s, const char *name, const ga_csr *a,
                       ga_spgemm_method method, const ga_csr *right)
{
    sample result = {0};
    ga_spgemm_options options = {
        .options_size = sizeof options, .method = method, .threads = s->threads, .flags = s->flags};
    ga_spgemm_product c = open_product(s->on_device ? GA_PLACE_DEVICE : GA_PLACE_HOST, a->type);
    double begin = bench_now_ms();
    must(ga_spgemm_multiply(a, a, &options, &c, &result.report));
    result.ms = bench_now_ms() - begin;
    result.peak_bytes = result.report.entries_peak * (4 + ga_value_size(a->type)) +
                        ga_vector_capacity(c.offsets) * 8;
    if (right) {
        check_product(s, name, ga_spgemm_method_text(method), &c, right);
    }
    close_product(&c);
    return result;
}

/* ---- a matrix -------------------------------------------------------------------------------- */

/* Sorts the times. */
static void print_line(const settings *s, const char *name, const char *method, double *times,
                       uint64_t multiplications)
{
    qsort(times, s->rounds, sizeof *times, compare);
    double median = times[s->rounds / 2];
    printf("%-16s %-9s %9.2f ms (%.2f to %.2f)  %8.1f M/s", name, method, median, times[0],
           times[s->rounds - 1], (double)multiplications / median / 1e3);
}

static void measure_cusparse(const settings *s, const char *name, const ga_csr *a,
                             uint64_t multiplications)
{
    static double times[ROUNDS_MAX];
    static const char *const names[] = {"", "cu-ALG1", "cu-ALG2", "cu-ALG3"};
    for (int algorithm = 1; algorithm <= BENCH_CUSPARSE_ALGORITHMS; algorithm++) {
        bench_cusparse_result result;
        const char *why = NULL;
        double allocations = 0;
        for (uint32_t round = 0; !why && round < s->rounds; round++) {
            if (bench_cusparse_square(s->cusparse, a, algorithm, &result, &why)) {
                times[round] = result.ms;
                allocations += result.ms_allocations / s->rounds;
            }
        }
        if (why) {
            printf("%-16s %-9s failed: %s\n", name, names[algorithm], why);
        } else {
            print_line(s, name, names[algorithm], times, multiplications);
            printf("  %8.1f MB peak, %.2f ms of cudaMalloc and cudaFree, %s, %llu entries\n",
                   (double)result.peak_bytes / 1e6, allocations,
                   result.sorted ? "sorted" : "unsorted", (unsigned long long)result.entries);
        }
        fflush(stdout);
    }
}

/* Rounds in which the methods take turns; before them one that is not counted, on a device. */
static void measure(const settings *s, const char *name)
{
    static double times[GA_SPGEMM_METHOD_COUNT][ROUNDS_MAX];
    sample last[GA_SPGEMM_METHOD_COUNT] = {0};
    bench_matrix matrix;
    ga_spgemm_product right = {0}, copy = {0};
    must(bench_matrix_make(&matrix, name, s->scale, 1, s->type));
    ga_csr a = matrix.csr, right_view;
    if (s->checks) {
        right = open_product(GA_PLACE_HOST, s->type);
        must(ga_spgemm_multiply(&a, &a, NULL, &right, NULL));
        right_view = ga_spgemm_view(&right);
    }
    if (s->on_device) {
        copy = copy_matrix(&a, GA_PLACE_DEVICE);
        a = ga_spgemm_view(&copy);
    }
    for (uint32_t round = 0; round < s->rounds + s->on_device; round++) {
        for (uint32_t method = GA_SPGEMM_PRECISE; method < GA_SPGEMM_METHOD_COUNT; method++) {
            last[method] = multiply(s, name, &a, method, s->checks && !round ? &right_view : NULL);
            times[method][round < s->on_device ? 0 : round - s->on_device] = last[method].ms;
        }
    }
    for (uint32_t method = GA_SPGEMM_PRECISE; method < GA_SPGEMM_METHOD_COUNT; method++) {
        const ga_spgemm_report *report = &last[method].report;
        print_line(s, name, ga_spgemm_method_text(method), times[method], report->multiplications);
        printf("  %8.1f MB peak, %.1f MB scratch, %5.3f of the memory at peak, %llu entries\n",
               (double)last[method].peak_bytes / 1e6, (double)report->scratch_bytes / 1e6,
               (double)report->entries / (double)report->entries_peak,
               (unsigned long long)report->entries);
        fflush(stdout);
    }
    if (s->on_device) {
        close_product(&copy);
    }
    if (s->cusparse) {
        measure_cusparse(s, name, &matrix.csr, last[GA_SPGEMM_PRECISE].report.multiplications);
    }
    if (s->checks) {
        close_product(&right);
    }
    bench_matrix_free(&matrix);
}

/* ---- arguments ------------------------------------------------------------------------------- */

/* Returns the number of arguments that it has read. */
static int read_options(settings *s, int argc, char **argv)
{
    int at = 1;
    for (; at < argc && strncmp(argv[at], "--", 2) == 0; at++) {
        if (strcmp(argv[at], "--unsorted") == 0) {
            s->flags = GA_SPGEMM_UNSORTED;
        } else if (strcmp(argv[at], "--float") == 0) {
            s->type = GA_FLOAT32;
        } else if (strcmp(argv[at], "--device") == 0) {
            s->on_device = true;
        } else if (strcmp(argv[at], "--check") == 0) {
            s->checks = true;
        } else if (strcmp(argv[at], "--cusparse") == 0 && at + 1 < argc) {
            s->library = argv[++at];
        } else if (strcmp(argv[at], "--scale") == 0 && at + 1 < argc) {
            s->scale = strtod(argv[++at], NULL);
        } else if (strcmp(argv[at], "--rounds") == 0 && at + 1 < argc) {
            s->rounds = (uint32_t)strtoul(argv[++at], NULL, 10);
        } else if (strcmp(argv[at], "--threads") == 0 && at + 1 < argc) {
            s->threads = (uint32_t)strtoul(argv[++at], NULL, 10);
        } else {
            errx(2, "%s", usage);
        }
    }
    if (s->rounds < 1 || s->rounds > ROUNDS_MAX) {
        errx(2, "%s", usage);
    }
    return at;
}

int main(int argc, char **argv)
{
    settings s = {.scale = 1, .rounds = 5};
    char **names = argv + read_options(&s, argc, argv);
    const bench_facts *facts;
    if (s.library && !(s.cusparse = bench_cusparse_open(s.library))) {
        return 1;
    }
    for (size_t i = 0; !*names && (facts = bench_facts_at(i)); i++) {
        measure(&s, facts->name);
    }
    for (; *names; names++) {
        if (!bench_facts_of(*names)) {
            errx(2, "no matrix \"%s\"", *names);
        }
        measure(&s, *names);
    }
    bench_cusparse_close(s.cusparse);
    return 0;
}
