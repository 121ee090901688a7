/* SPDX-License-Identifier: MIT
 *
 * The runner's own tests: figures that can be worked out by hand, text that must and must not
 * parse, children that crash, hang and refuse, and a suite in which one backend crashes.
 */
#include "host/team.h"
#include "runner/clock.h"
#include "runner/figures.h"
#include "runner/histogram.h"
#include "runner/suite.h"

#include <gpualloc/backend.h>

#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int failures;

#define CHECK(condition) check((condition), #condition, __LINE__)

static void check(bool good, const char *text, int line)
{
    if (!good) {
        fprintf(stderr, "runner.c:%d: not so: %s\n", line, text);
        failures++;
    }
}

/* ---- figures ----------------------------------------------------------------------------- */

static bool near(double value, double wanted)
{
    return fabs(value - wanted) < 1e-9;
}

static void test_figures(void)
{
    ga_bench_figures odd = ga_bench_figures_of((double[]){5, 1, 4, 2, 3}, 5);
    CHECK(near(odd.median, 3) && near(odd.low, 2) && near(odd.high, 4));
    ga_bench_figures even = ga_bench_figures_of((double[]){4, 1, 2, 3}, 4);
    CHECK(near(even.median, 2.5) && near(even.low, 1.75) && near(even.high, 3.25));
    ga_bench_figures one = ga_bench_figures_of((double[]){7}, 1);
    CHECK(near(one.median, 7) && near(one.low, 7) && near(one.high, 7));
    CHECK(isnan(ga_bench_figures_of(NULL, 0).median));
}

static void test_histogram(void)
{
    static ga_bench_histogram h;
    for (uint64_t ns = 1; ns < 1u << 20; ns++) {
        size_t step = ga_bench_histogram_cell(ns) - ga_bench_histogram_cell(ns - 1);
        if (step > 1) {
            check(false, "cells follow each other", __LINE__);
            break;
        }
    }
    CHECK(ga_bench_histogram_cell(UINT64_MAX) == GA_BENCH_HISTOGRAM_CELLS - 1);
    for (uint64_t ns = 1; ns <= 100000; ns++) {
        ga_bench_histogram_add(&h, ns);
    }
    CHECK(fabs(ga_bench_histogram_quantile(&h, 0.5, 1) - 50000) < 50000.0 / 128);
    CHECK(fabs(ga_bench_histogram_quantile(&h, 0.999, 1) - 99900) < 99900.0 / 128);
    CHECK(near(ga_bench_histogram_quantile(&h, 0.001, 1), 100));
}

/* A clock that counts in tens: a quarter took up to 10, a half to 20, a quarter to 30. */
static void test_histogram_step(void)
{
    static ga_bench_histogram h, twice;
    CHECK(near(ga_bench_histogram_quantile(&h, 0.5, 10), 0));
    for (int i = 0; i < 100; i++) {
        ga_bench_histogram_add(&h, i < 25 ? 10 : i < 75 ? 20 : 30);
    }
    CHECK(near(ga_bench_histogram_quantile(&h, 0.5, 10), 15));
    CHECK(near(ga_bench_histogram_quantile(&h, 0.25, 10), 10));
    CHECK(near(ga_bench_histogram_quantile(&h, 1, 10), 30));
    ga_bench_histogram_merge(&twice, &h);
    ga_bench_histogram_merge(&twice, &h);
    CHECK(twice.total == 200 && twice.cells[20] == 100);
}

static void test_clock(void)
{
    ga_bench_clock clock = ga_bench_clock_calibrate();
    CHECK(clock.cost > 0 && clock.cost < 100000);
    CHECK(clock.step >= 1);
}

/* ---- text -------------------------------------------------------------------------------- */

static void test_lists(void)
{
    static const char *const bad[] = {
        "",      ",",  "1,", ",1",  "0",
        "-1",    "+1", "1x", "1k",  "K",
        "1KK",   "1 ", " 1", "1;2", "18446744073709551616",
        "1024G",
    };
    ga_bench_list list;
    CHECK(ga_bench_list_parse("64,1K,2M,1G,64", true, (size_t)1 << 30, &list));
    CHECK(list.count == 4 && list.values[0] == 64 && list.values[1] == 1024);
    CHECK(list.values[2] == 2 << 20 && list.values[3] == 1 << 30);
    CHECK(!ga_bench_list_parse("1K", false, 4096, &list));
    CHECK(ga_bench_list_parse("4096", false, 4096, &list));
    CHECK(!ga_bench_list_parse("4097", false, 4096, &list));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        check(!ga_bench_list_parse(bad[i], true, (size_t)1 << 39, &list), bad[i], __LINE__);
    }
}

static void test_list_too_long(void)
{
    char text[512] = "1";
    for (size_t i = 2; i <= GA_BENCH_LIST_MAX + 1; i++) {
        ga_bench_list list;
        CHECK(ga_bench_list_parse(text, false, 4096, &list));
        snprintf(text + strlen(text), sizeof text - strlen(text), ",%zu", i);
        CHECK(ga_bench_list_parse(text, false, 4096, &list) == (i <= GA_BENCH_LIST_MAX));
    }
}

static void test_size_text(void)
{
    CHECK(strcmp(ga_bench_size_text_of(64).text, "64") == 0);
    CHECK(strcmp(ga_bench_size_text_of(1023).text, "1023") == 0);
    CHECK(strcmp(ga_bench_size_text_of(1536).text, "1.5K") == 0);
    CHECK(strcmp(ga_bench_size_text_of((size_t)1 << 30).text, "1G") == 0);
}

static void test_result_line(void)
{
    static const char *const keys[] = {"bench",   "place",    "spec",   "device", "driver",
                                       "threads", "size",     "metric", "unit",   "value",
                                       "spread",  "baseline", "ratio",  "date",   "commit"};
    ga_bench_metric metric = {"throughput", "Mop/s", true, NULL};
    ga_bench_result result = {.bench = "b\"\n",
                              .place = "host",
                              .spec = "s",
                              .device = "d",
                              .threads = 2,
                              .size = 64,
                              .metric = &metric,
                              .value = 1.5,
                              .spread = 0,
                              .baseline = "s",
                              .ratio = NAN};
    char *text = NULL;
    size_t length;
    FILE *stream = open_memstream(&text, &length);
    CHECK(ga_bench_result_write(stream, &result, "2026-11-21T09:30:00Z"));
    fclose(stream);
    json_t *line = json_loads(text, 0, NULL);
    CHECK(json_object_size(line) == sizeof keys / sizeof *keys);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        check(json_object_get(line, keys[i]) != NULL, keys[i], __LINE__);
    }
    CHECK(json_is_null(json_object_get(line, "ratio")) &&
          json_is_null(json_object_get(line, "driver")));
    CHECK(near(json_real_value(json_object_get(line, "value")), 1.5));
    CHECK(strchr(text, '\n') == text + length - 1);
    json_decref(line);
    free(text);
}

static void test_random_sizes(void)
{
    static const size_t mosts[] = {1, 16, 17, 31, 32, 33, 1000, 4096};
    uint64_t state = 42;
    for (size_t i = 0; i < sizeof mosts / sizeof *mosts; i++) {
        size_t low = SIZE_MAX;
        size_t high = 0;
        for (int n = 0; n < 100000; n++) {
            size_t size = ga_bench_random_size(&state, mosts[i]);
            low = size < low ? size : low;
            high = size > high ? size : high;
        }
        CHECK(high == mosts[i] && low == (mosts[i] < 16 ? mosts[i] : 16));
    }
}

/* ---- children ---------------------------------------------------------------------------- */

static ga_status succeed(void *context, ga_bench_report *report)
{
    report->values[0] = *(double *)context;
    return GA_OK;
}

static ga_status refuse(void *context, ga_bench_report *report)
{
    (void)context;
    (void)report;
    return ga_fail(GA_ERR_MEMORY, "no more of it");
}

static ga_status crash(void *context, ga_bench_report *report)
{
    (void)context;
    report->values[0] = 1;
    raise(SIGKILL);
    return GA_OK;
}

static ga_status leave(void *context, ga_bench_report *report)
{
    (void)context;
    (void)report;
    _exit(3);
    return GA_OK;
}

static ga_status hang(void *context, ga_bench_report *report)
{
    (void)context;
    (void)report;
    pause(); /* the alarm ends it */
    return GA_OK;
}

static void test_children(void)
{
    ga_bench_report report;
    double value = 2.5;
    ga_bench_child_run(succeed, &value, 10, &report);
    CHECK(report.done && near(report.values[0], 2.5) && !report.failure[0]);
    ga_bench_child_run(refuse, NULL, 10, &report);
    CHECK(!report.done && report.status == GA_ERR_MEMORY);
    CHECK(strcmp(report.failure, "no more of it") == 0);
    ga_bench_child_run(crash, NULL, 10, &report);
    CHECK(!report.done && strcmp(report.failure, "died of signal 9 (Killed)") == 0);
    ga_bench_child_run(leave, NULL, 10, &report);
    CHECK(!report.done && strcmp(report.failure, "exited with status 3") == 0);
    ga_bench_child_run(hang, NULL, 1, &report);
    CHECK(!report.done && strcmp(report.failure, "ran past 1 s") == 0);
}

/* ---- a suite ----------------------------------------------------------------------------- */

static ga_status faulty_open(const ga_open_args *args, void **state)
{
    (void)args;
    *state = NULL;
    return GA_OK;
}

static void faulty_close(void *state)
{
    (void)state;
}

static ga_status faulty_alloc(void *state, size_t size, void **out)
{
    (void)state;
    (void)size;
    (void)out;
    abort();
}

static ga_status faulty_free(void *state, void *block)
{
    (void)state;
    (void)block;
    return GA_OK;
}

static bool faulty_owns(void *state, const void *pointer)
{
    (void)state;
    (void)pointer;
    return false;
}

static const ga_backend faulty = {
    .abi = GA_BACKEND_ABI,
    .size = sizeof(ga_backend),
    .name = "faulty",
    .help = "aborts at its first block",
    .places = GA_PLACE_BIT(GA_PLACE_HOST),
    .open = faulty_open,
    .close = faulty_close,
    .alloc = faulty_alloc,
    .free = faulty_free,
    .owns = faulty_owns,
};

static void check_suite(const ga_bench_plan *plan, const ga_bench_results *results)
{
    CHECK(results->count == 6); /* three specs, two numbers of threads, one metric */
    for (size_t i = 0; i < results->count; i++) {
        const ga_bench_result *result = &results->list[i];
        bool crashes = strcmp(result->spec, "faulty") == 0;
        CHECK(isfinite(result->value) == !crashes);
        CHECK(isfinite(result->ratio) == !crashes);
        CHECK(result->failed == (crashes ? plan->rounds : 0));
    }
    CHECK(results->failed == (size_t)2 * plan->rounds);
}

static size_t lines_in(const char *text)
{
    size_t lines = 0;
    for (; *text; text++) {
        lines += *text == '\n';
    }
    return lines;
}

/* A spec that is given twice is compared with itself, and neither is lost. */
static void test_suite(void)
{
    ga_bench_plan plan = {
        .place = GA_PLACE_HOST,
        .workload_count = 1,
        .workloads = {ga_bench_workload_find("same-size")},
        .spec_count = 3,
        .specs = {"system", "faulty", "system"},
        .threads = {2, {1, 3}},
        .sizes = {1, {64}},
        .rounds = 3,
        .milliseconds = 4,
    };
    char *table = NULL, *json = NULL;
    size_t table_length, json_length;
    FILE *out = open_memstream(&table, &table_length);
    plan.json = open_memstream(&json, &json_length);
    ga_bench_results results;
    CHECK(ga_backend_register(&faulty) == GA_OK);
    CHECK(ga_bench_suite_run(&plan, out, &results));
    fclose(out);
    fclose(plan.json);
    check_suite(&plan, &results);
    CHECK(lines_in(json) == 8); /* and a line for each case that failed */
    CHECK(strstr(table, "failed") && strstr(table, "same-size"));
    ga_bench_results_free(&results);
    free(table);
    free(json);
}

/* Every workload runs, frees all it took, and gives a figure for each of its metrics. */
static void test_workloads(void)
{
    const ga_bench_workload *workload;
    for (size_t i = 0; (workload = ga_bench_workload_at(i)) != NULL; i++) {
        ga_bench_report report = {0};
        ga_stats stats;
        ga_bench_case run = {.threads = 2, .size = 1024, .milliseconds = 40, .seed = 1};
        if (workload->place != GA_PLACE_HOST) {
            continue;
        }
        CHECK(ga_bench_workload_find(workload->name) == workload);
        CHECK(ga_heap_open(&run.heap, GA_PLACE_HOST, 0, "system") == GA_OK);
        check(workload->run(&run, &report) == GA_OK, workload->name, __LINE__);
        CHECK(ga_heap_stats(run.heap, &stats) == GA_OK);
        check(stats.live_blocks == 0 && stats.allocs > 0, workload->name, __LINE__);
        for (size_t m = 0; m < workload->metric_count; m++) {
            check(report.values[m] > 0, workload->metrics[m].name, __LINE__);
        }
        ga_heap_close(run.heap);
    }
}

int main(void)
{
    test_figures();
    test_histogram();
    test_histogram_step();
    test_clock();
    test_lists();
    test_list_too_long();
    test_size_text();
    test_result_line();
    test_random_sizes();
    test_children();
    test_suite();
    test_workloads();
    if (failures == 0) {
        puts("bench runner: all well");
    }
    return failures != 0;
}
