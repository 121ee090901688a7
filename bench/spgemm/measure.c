/* SPDX-License-Identifier: MIT
 *
 * The timed call, and the check of its result.
 */
#include "measure.h"

#include "../runner/clock.h"

#include <gpualloc/backend.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- methods --------------------------------------------------------------------------------- */

#define ROWS GA_SPGEMM_KERNEL_ROWS
#define DOT  GA_SPGEMM_KERNEL_DOT
#define TIME GA_SPGEMM_GOAL_TIME

static const struct {
    const char *name;
    ga_spgemm_method method;
    ga_spgemm_kernel kernel;
    ga_spgemm_goal goal;
    uint32_t flags;
    bool has_sizes; /* with pieces of each size */
    int algorithm;
} named[] = {
    {"precise", GA_SPGEMM_PRECISE, ROWS, TIME, 0, false, 0},
    {"upper", GA_SPGEMM_UPPER, ROWS, TIME, 0, false, 0},
    {"growing", GA_SPGEMM_GROWING, ROWS, TIME, 0, false, 0},
    {"dynamic", GA_SPGEMM_DYNAMIC, ROWS, TIME, 0, true, 0},
    {"dynamic-time", GA_SPGEMM_DYNAMIC, ROWS, TIME, 0, false, 0},
    {"dynamic-memory", GA_SPGEMM_DYNAMIC, ROWS, GA_SPGEMM_GOAL_MEMORY, 0, false, 0},
    {"cooperative", GA_SPGEMM_DYNAMIC, ROWS, TIME, GA_SPGEMM_COOPERATIVE, true, 0},
    {"dot-precise", GA_SPGEMM_PRECISE, DOT, TIME, 0, false, 0},
    {"dot-upper", GA_SPGEMM_UPPER, DOT, TIME, 0, false, 0},
    {"dot-dynamic", GA_SPGEMM_DYNAMIC, DOT, TIME, 0, true, 0},
    {"cusparse-ALG1", 0, ROWS, TIME, 0, false, 1},
    {"cusparse-ALG2", 0, ROWS, TIME, 0, false, 2},
    {"cusparse-ALG3", 0, ROWS, TIME, 0, false, 3},
};

const char *bench_square_method_names(void)
{
    return "precise, upper, growing, dynamic, dynamic-time, dynamic-memory, cooperative, "
           "dot-precise, dot-upper, dot-dynamic";
}

size_t bench_square_methods(const char *name, bench_square_method *list)
{
    static const uint32_t sizes[] = {8, 16, 32, 48, 64, 96, 128, 256}; /* the thesis's */
    size_t i = 0, count;
    while (strcmp(named[i].name, name) != 0) {
        if (++i == sizeof named / sizeof *named) {
            return 0;
        }
    }
    count = named[i].has_sizes ? sizeof sizes / sizeof *sizes : 1;
    for (size_t at = 0; at < count; at++) {
        bench_square_method *m = &list[at];
        *m = (bench_square_method){.name = named[i].name,
                                   .method = named[i].method,
                                   .kernel = named[i].kernel,
                                   .goal = named[i].goal,
                                   .flags = named[i].flags,
                                   .algorithm = named[i].algorithm};
        snprintf(m->text, sizeof m->text, "%s", name);
        if (named[i].has_sizes) {
            m->size_per_row = sizes[at];
            snprintf(m->text, sizeof m->text, "%s %u", name, sizes[at]);
        }
    }
    return count;
}

enum {
    HUGE_LEAST = 1 << 24 /* multiplications */
};

/* ---- vectors --------------------------------------------------------------------------------- */

/* Huge pages save the page faults of large products on the host. Small ones would take more memory.
 */
static ga_status open_product(ga_spgemm_product *out, ga_place place, ga_value_type type,
                              uint64_t multiplications)
{
    bool huge = place == GA_PLACE_HOST && multiplications > HUGE_LEAST;
    ga_arena_options exact = {.options_size = sizeof exact,
                              .place = place,
                              .flags = GA_ARENA_EXACT | (huge ? GA_ARENA_HUGE_PAGES : 0)};
    *out = (ga_spgemm_product){.type = type};
    ga_status status = ga_vector_open(&out->offsets, sizeof(uint64_t), &exact, NULL);
    status = status ? status : ga_vector_open(&out->indices, sizeof(uint32_t), &exact, NULL);
    return status ? status : ga_vector_open(&out->values, ga_value_size(type), &exact, NULL);
}

ga_status bench_product_open(ga_spgemm_product *out, ga_place place, ga_value_type type)
{
    return open_product(out, place, type, 0);
}

void bench_product_close(const ga_spgemm_product *product)
{
    ga_vector_close(product->offsets);
    ga_vector_close(product->indices);
    ga_vector_close(product->values);
}

ga_status bench_product_copy(ga_spgemm_product *out, const ga_csr *a, ga_place place)
{
    uint64_t entries = a->offsets[a->rows];
    ga_status status = bench_product_open(out, place, a->type);
    out->rows = a->rows;
    out->columns = a->columns;
    status = status ? status : ga_vector_append(out->offsets, a->rows + 1, a->offsets);
    status = status ? status : ga_vector_append(out->indices, entries, a->indices);
    return status ? status : ga_vector_append(out->values, entries, a->values);
}

static double growth_of(const ga_vector *vector)
{
    ga_arena_stats stats;
    ga_arena_get_stats(ga_vector_arena(vector), &stats);
    return (double)stats.grow_ns_sum / 1e6;
}

static uint64_t peak_of(const ga_vector *vector)
{
    ga_arena_stats stats;
    ga_arena_get_stats(ga_vector_arena(vector), &stats);
    return stats.peak_backed;
}

/* ---- the check ------------------------------------------------------------------------------- */

static double value_at(const ga_csr *m, uint64_t entry)
{
    return m->type == GA_FLOAT64 ? ((const double *)m->values)[entry]
                                 : (double)((const float *)m->values)[entry];
}

static ga_status check_rows(const ga_csr *c, const ga_csr *expected)
{
    for (uint64_t row = 0; row < expected->rows; row++) {
        if (c->offsets[row + 1] != expected->offsets[row + 1]) {
            return ga_fail(GA_ERR_LIBRARY, "wrong product: row %llu ends at %llu: expected %llu",
                           (unsigned long long)row, (unsigned long long)c->offsets[row + 1],
                           (unsigned long long)expected->offsets[row + 1]);
        }
    }
    return GA_OK;
}

static ga_status check_entries(const ga_csr *c, const ga_csr *expected, bool sorted)
{
    uint64_t entries = expected->offsets[expected->rows];
    double tolerance = expected->type == GA_FLOAT64 ? 1e-12 : 1e-4, sum = 0, expected_sum = 0;
    for (uint64_t i = 0; i < entries; i++) {
        double value = value_at(c, i), right = value_at(expected, i);
        sum += fabs(value);
        expected_sum += fabs(right);
        if (sorted && (c->indices[i] != expected->indices[i] ||
                       !(fabs(value - right) <= tolerance * (1 + fabs(right))))) {
            return ga_fail(
                GA_ERR_LIBRARY, "wrong product: entry %llu is %g in column %u: expected %g in %u",
                (unsigned long long)i, value, c->indices[i], right, expected->indices[i]);
        }
    }
    return fabs(sum - expected_sum) <= 1e-3 * expected_sum
               ? GA_OK
               : ga_fail(GA_ERR_LIBRARY,
                         "wrong product: the absolute values sum to %g: expected %g", sum,
                         expected_sum);
}

static ga_status check(const ga_spgemm_product *c, const ga_csr *expected, bool sorted)
{
    ga_spgemm_product host;
    ga_status status = bench_product_open(&host, GA_PLACE_HOST, c->type);
    host.rows = c->rows;
    host.columns = c->columns;
    status = status ? status : ga_vector_copy(host.offsets, c->offsets);
    status = status ? status : ga_vector_copy(host.indices, c->indices);
    status = status ? status : ga_vector_copy(host.values, c->values);
    ga_csr view = ga_spgemm_view(&host);
    status = status ? status : check_rows(&view, expected);
    status = status ? status : check_entries(&view, expected, sorted);
    bench_product_close(&host);
    return status;
}

/* ---- the call -------------------------------------------------------------------------------- */

static void fill(bench_square_sample *out, const bench_square_case *c,
                 const ga_spgemm_product *product, const ga_spgemm_report *report)
{
    size_t entry = sizeof(uint32_t) + ga_value_size(product->type);
    out->allocation_ms = NAN;
    out->growth_ms = growth_of(product->indices) + growth_of(product->values);
    out->entries = report->entries;
    out->product_bytes = report->entries * entry + (product->rows + 1) * sizeof(uint64_t);
    uint64_t mapped = peak_of(product->indices) + peak_of(product->values);
    out->estimated = report->entries_estimated;
    out->rounds = report->rounds;
    out->size_per_row = report->size_per_row;
    out->peak_bytes =
        peak_of(product->offsets) + (report->bytes_peak > mapped ? report->bytes_peak : mapped);
    out->scratch_bytes = report->scratch_bytes;
    out->efficiency = (double)report->entries / (double)report->entries_peak;
    out->threads = c->place == GA_PLACE_HOST ? report->threads : 0;
    out->sorted = !(c->flags & GA_SPGEMM_UNSORTED);
}

static ga_status multiply(const bench_square_case *c, const bench_square_method *method,
                          bool checks, bench_square_sample *out)
{
    ga_spgemm_product product;
    ga_spgemm_report report;
    ga_spgemm_options options = {.options_size = sizeof options,
                                 .method = method->method,
                                 .kernel = method->kernel,
                                 .goal = method->goal,
                                 .size_per_row = method->size_per_row,
                                 .threads = c->threads,
                                 .flags = c->flags | method->flags};
    ga_status status = open_product(&product, c->place, c->a.type, c->multiplications);
    if (status == GA_OK) {
        uint64_t begin = ga_bench_now();
        status = ga_spgemm_multiply(&c->a, &c->a, &options, &product, &report);
        out->ms = (double)(ga_bench_now() - begin) / 1e6;
    }
    if (status == GA_OK) {
        fill(out, c, &product, &report);
        status = checks ? check(&product, c->expected, out->sorted) : GA_OK;
    }
    bench_product_close(&product);
    return status;
}

static ga_status multiply_by_cusparse(const bench_square_case *c, int algorithm, bool checks,
                                      bench_square_sample *out)
{
    bench_cusparse_result result;
    ga_status status = bench_cusparse_square(c->cusparse, &c->host, algorithm, &result);
    size_t entry = sizeof(uint32_t) + ga_value_size(c->host.type);
    out->ms = result.ms;
    out->allocation_ms = result.ms_allocations;
    out->growth_ms = NAN;
    out->entries = result.entries;
    out->product_bytes = result.entries * entry + (c->host.rows + 1) * sizeof(uint32_t);
    out->peak_bytes = result.peak_bytes;
    out->efficiency = NAN;
    out->sorted = result.sorted;
    if (status == GA_OK && checks && result.entries != c->expected->offsets[c->expected->rows]) {
        return ga_fail(GA_ERR_LIBRARY, "wrong product: %llu entries: expected %llu",
                       (unsigned long long)result.entries,
                       (unsigned long long)c->expected->offsets[c->expected->rows]);
    }
    return status;
}

ga_status bench_square(const bench_square_case *c, const bench_square_method *method, bool checks,
                       bench_square_sample *out)
{
    *out = (bench_square_sample){0};
    ga_status status = method->algorithm ? multiply_by_cusparse(c, method->algorithm, checks, out)
                                         : multiply(c, method, checks, out);
    out->mapped_efficiency = (double)out->product_bytes / (double)out->peak_bytes;
    return status;
}
