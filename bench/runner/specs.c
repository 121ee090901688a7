/* SPDX-License-Identifier: MIT
 *
 * The specs that are measured if none are named.
 */
#include "suite.h"

#include <gpualloc/backend.h>

#include <stdio.h>
#include <string.h>

typedef struct attempt {
    ga_place place;
    const char *spec;
} attempt;

static ga_status use_once(void *context, ga_bench_report *report)
{
    const attempt *what = context;
    ga_heap *heap = NULL;
    void *block = NULL;
    (void)report;
    ga_status status = ga_heap_open(&heap, what->place, 0, what->spec);
    if (status == GA_OK) {
        status = ga_alloc(heap, 64, 0, &block);
    }
    if (status == GA_OK) {
        status = ga_free(heap, block);
    }
    return status == GA_OK ? ga_heap_close(heap) : status;
}

ga_status ga_bench_spec_try(ga_place place, const char *spec, ga_bench_report *report)
{
    attempt what = {place, spec};
    ga_bench_child_run(use_once, &what, 20, report);
    return report->done ? GA_OK : report->status != GA_OK ? report->status : GA_ERR_LIBRARY;
}

static bool is_double(const ga_backend *backend)
{
    static const char *const doubles[] = {"null", "fail", "trace"};
    for (size_t i = 0; i < sizeof doubles / sizeof *doubles; i++) {
        if (strcmp(backend->name, doubles[i]) == 0) {
            return true;
        }
    }
    return false;
}

static bool wants_option(const ga_backend *backend)
{
    for (size_t i = 0; i < backend->option_count; i++) {
        if (!backend->options[i].fallback) {
            return true;
        }
    }
    return false;
}

static bool add(ga_bench_plan *plan, const char *spec)
{
    ga_bench_report report;
    if (plan->spec_count == GA_BENCH_SPECS_MAX - 1) { /* the last is for the baseline */
        return false;
    }
    if (ga_bench_spec_try(plan->place, spec, &report) != GA_OK) {
        fprintf(stderr, "gpualloc bench: left out %s: %s\n", spec, report.failure);
        return false;
    }
    plan->specs[plan->spec_count++] = spec;
    return true;
}

/* Sonames of Debian's packages; of each row the first that loads. */
static void add_libraries(ga_bench_plan *plan)
{
    static const char *const rows[][2] = {
        {"dl:libmimalloc.so.3", "dl:libmimalloc.so.2"},
        {"dl:libtcmalloc_minimal.so.4", "dl:libtcmalloc.so.4"},
    };
    for (size_t row = 0; row < sizeof rows / sizeof *rows; row++) {
        ga_bench_report report;
        bool first = ga_bench_spec_try(plan->place, rows[row][0], &report) == GA_OK;
        add(plan, rows[row][first ? 0 : 1]);
    }
}

void ga_bench_specs_default(ga_bench_plan *plan)
{
    const ga_backend *backend;
    for (size_t i = 0; (backend = ga_backend_at(i)) != NULL; i++) {
        if ((backend->places & GA_PLACE_BIT(plan->place)) && !is_double(backend) &&
            !wants_option(backend)) {
            add(plan, backend->name);
        }
    }
    if (plan->place == GA_PLACE_HOST) {
        add_libraries(plan);
    }
}
