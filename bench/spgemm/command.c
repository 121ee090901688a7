/* SPDX-License-Identifier: MIT
 *
 * From arguments to a plan.
 */
#include "command.h"

#include "cusparse.h"
#include "matrices.h"
#include "suite.h"

#include "../device/name.h"
#include "../runner/lists.h"
#include "../runner/machine.h"

#include "platform/cuda_driver.h"

#include <gpualloc/spgemm.h>

#include <argp.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    FAILED = 1,
    USAGE = 2,
    THREADS_MAX = 1024,
    ROUNDS_MAX = 1000,
    ROUNDS = 5,
    ROUNDS_QUICK = 1,
    START_SECONDS = 120 /* for the driver and cuSPARSE to start */
};

static const double SCALE = 1;
static const double SCALE_QUICK = 0.01;

enum {
    KEY_FILE = 256,
    KEY_SCALE,
    KEY_ROUNDS,
    KEY_THREADS,
    KEY_METHODS,
    KEY_UNSORTED,
    KEY_FLOAT,
    KEY_DEVICE,
    KEY_CUSPARSE,
    KEY_CHECK,
    KEY_QUICK,
    KEY_JSON,
    KEY_LIST
};

static const struct argp_option options[] = {
    {"file", KEY_FILE, "FILE", 0, "the square matrix of this Matrix Market file; repeat for more",
     0},
    {"scale", KEY_SCALE, "X", 0,
     "rows of generated matrices, in those of the original (default: 1; 0.01 with --quick)", 0},
    {"rounds", KEY_ROUNDS, "N", 0, "measure all N times (default: 5; 1 with --quick)", 0},
    {"threads", KEY_THREADS, "N", 0, "threads on the host (default: one for each processor)", 0},
    {"methods", KEY_METHODS, "LIST", 0,
     "precise, upper, growing (default: these), dynamic, cooperative, with pieces of 8 to 256 "
     "entries, dynamic-time, dynamic-memory, and for small matrices dot-precise, dot-upper, "
     "dot-dynamic",
     0},
    {"unsorted", KEY_UNSORTED, NULL, 0, "the columns of a row in any order", 0},
    {"float", KEY_FLOAT, NULL, 0, "values of 4 bytes instead of 8", 0},
    {"device", KEY_DEVICE, NULL, 0, "on device 0 instead of the host", 0},
    {"cusparse", KEY_CUSPARSE, "FILE", 0,
     "with --device: the algorithms of this library, libcusparse.so, as well", 0},
    {"check", KEY_CHECK, NULL, 0, "compare the products of the first round with one of the host",
     0},
    {"quick", KEY_QUICK, NULL, 0, "small matrices, one round", 0},
    {"json", KEY_JSON, "FILE", 0, "write the results to FILE as JSON lines", 0},
    {"list", KEY_LIST, NULL, 0, "list the matrices and exit", 0},
    {0},
};

static const char doc[] =
    "Measure products A A of sparse matrices by each method of gpualloc/spgemm.h: each generated "
    "MATRIX (all, where neither one nor a file is named), in a process of its own."
    "\v"
    "  gpualloc bench spgemm --quick\n"
    "  gpualloc bench spgemm atmosmodl like-pwtk --scale 0.1 --threads 8\n"
    "  gpualloc bench spgemm like-pwtk --scale 0.1 --methods precise,upper,dynamic\n"
    "  gpualloc bench spgemm --device --cusparse libcusparse.so.12 --json FILE\n"
    "  gpualloc bench spgemm --file pwtk.mtx\n"
    "\n"
    "Ratios are to the first method of the table. bench/README.md describes the matrices and the "
    "figures.";

typedef struct request {
    bench_spgemm_plan plan;
    const char *json;
    bool quick;
} request;

/* ---- values ---------------------------------------------------------------------------------- */

static _Noreturn void refuse(const char *format, ...) __attribute__((format(printf, 1, 2)));

static _Noreturn void refuse(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("gpualloc bench spgemm: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(USAGE);
}

static unsigned parse_number(const char *option, const char *text, size_t most)
{
    ga_bench_list one;
    if (!ga_bench_list_parse(text, false, most, &one) || one.count != 1) {
        refuse("--%s: bad number \"%s\"; expected 1 to %zu", option, text, most);
    }
    return (unsigned)one.values[0];
}

static double parse_scale(const char *text)
{
    char *end;
    double scale = strtod(text, &end);
    if (end == text || *end || !(scale >= BENCH_SCALE_MIN && scale <= BENCH_SCALE_MAX)) {
        refuse("--scale: bad number \"%s\"; expected %g to %g", text, BENCH_SCALE_MIN,
               BENCH_SCALE_MAX);
    }
    return scale;
}

static bench_spgemm_source *add_source(request *r)
{
    if (r->plan.matrix_count == BENCH_SPGEMM_MATRICES) {
        refuse("more than %d matrices", BENCH_SPGEMM_MATRICES);
    }
    return &r->plan.matrices[r->plan.matrix_count++];
}

static void add_name(const char *name, request *r)
{
    bench_spgemm_source *source = add_source(r);
    if (!bench_facts_of(name)) {
        refuse("unknown matrix \"%s\"; expected %s, %s, ...: --list shows all", name,
               bench_facts_at(0)->name, bench_facts_at(1)->name);
    }
    snprintf(source->name, sizeof source->name, "%s", name);
}

static void add_file(const char *path, request *r)
{
    bench_spgemm_source *source = add_source(r);
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    size_t length = strlen(name), suffix = strlen(".mtx");
    if (length > suffix && strcmp(name + length - suffix, ".mtx") == 0) {
        length -= suffix;
    }
    snprintf(source->name, sizeof source->name, "%.*s", (int)length, name);
    source->path = path;
}

static void add_method(request *r, const char *name)
{
    bench_spgemm_plan *plan = &r->plan;
    bench_square_method found[BENCH_SQUARE_METHODS];
    size_t count = bench_square_methods(name, found);
    if (!count || found[0].algorithm) {
        refuse("--methods: unknown method \"%s\"; expected %s", name, bench_square_method_names());
    }
    for (size_t i = 0; i < plan->method_count; i++) {
        if (strcmp(plan->methods[i].name, name) == 0) {
            refuse("--methods: \"%s\" twice; expected each method once", name);
        }
    }
    memcpy(plan->methods + plan->method_count, found, count * sizeof *found);
    plan->method_count += count;
}

static void add_methods(request *r, const char *list)
{
    char name[32];
    for (const char *at = list;; at++) {
        size_t length = strcspn(at, ",");
        snprintf(name, sizeof name, "%.*s", (int)length, at);
        add_method(r, name);
        at += length;
        if (!*at) {
            return;
        }
    }
}

static _Noreturn void list_matrices(void)
{
    const bench_facts *facts;
    printf("%-16s %10s\n", "matrix", "rows");
    for (size_t i = 0; (facts = bench_facts_at(i)); i++) {
        printf("%-16s %10llu  %s\n", facts->name, (unsigned long long)facts->rows,
               facts->exact                            ? "the original's pattern"
               : strncmp(facts->name, "like-", 5) == 0 ? "close to the original's size"
                                                       : "skewed");
    }
    exit(0);
}

static error_t parse(int key, char *value, struct argp_state *state)
{
    request *r = state->input;
    switch (key) {
    case KEY_FILE:
        add_file(value, r);
        return 0;
    case KEY_SCALE:
        r->plan.scale = parse_scale(value);
        return 0;
    case KEY_ROUNDS:
        r->plan.rounds = parse_number("rounds", value, ROUNDS_MAX);
        return 0;
    case KEY_THREADS:
        r->plan.threads = parse_number("threads", value, THREADS_MAX);
        return 0;
    case KEY_METHODS:
        add_methods(r, value);
        return 0;
    case KEY_UNSORTED:
        r->plan.flags = GA_SPGEMM_UNSORTED;
        return 0;
    case KEY_FLOAT:
        r->plan.type = GA_FLOAT32;
        return 0;
    case KEY_DEVICE:
        r->plan.place = GA_PLACE_DEVICE;
        return 0;
    case KEY_CUSPARSE:
        r->plan.library = value;
        return 0;
    case KEY_CHECK:
        r->plan.checks = true;
        return 0;
    case KEY_QUICK:
        r->quick = true;
        return 0;
    case KEY_JSON:
        r->json = value;
        return 0;
    case KEY_LIST:
        list_matrices();
    case ARGP_KEY_ARG:
        add_name(value, r);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* ---- the plan -------------------------------------------------------------------------------- */

static void settle_methods(request *r)
{
    bench_spgemm_plan *plan = &r->plan;
    if (!plan->method_count) {
        add_methods(r, "precise,upper,growing");
    }
    for (size_t i = 0; i < plan->method_count; i++) {
        if (plan->methods[i].flags & GA_SPGEMM_COOPERATIVE && plan->place == GA_PLACE_HOST) {
            refuse("--methods %s: expected --device as well", plan->methods[i].name);
        }
    }
    for (int i = 1; plan->library && i <= BENCH_CUSPARSE_ALGORITHMS; i++) {
        char name[32];
        snprintf(name, sizeof name, "cusparse-ALG%d", i);
        plan->method_count += bench_square_methods(name, plan->methods + plan->method_count);
    }
}

static void settle(request *r)
{
    bench_spgemm_plan *plan = &r->plan;
    const bench_facts *facts;
    if (plan->place == GA_PLACE_HOST && plan->library) {
        refuse("--cusparse \"%s\": expected --device as well", plan->library);
    }
    if (plan->place == GA_PLACE_DEVICE && plan->threads) {
        refuse("--threads %u: expected no --device", plan->threads);
    }
    settle_methods(r);
    plan->rounds = plan->rounds ? plan->rounds : r->quick ? ROUNDS_QUICK : ROUNDS;
    plan->scale = plan->scale > 0 ? plan->scale : r->quick ? SCALE_QUICK : SCALE;
    bool all = !plan->matrix_count;
    for (size_t i = 0; all && (facts = bench_facts_at(i)); i++) {
        add_name(facts->name, r);
    }
}

static int complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

static int complain(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("gpualloc bench spgemm: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    return FAILED;
}

/* Before measuring, because a run takes minutes. */
static int open_files(request *r)
{
    for (size_t i = 0; i < r->plan.matrix_count; i++) {
        const char *path = r->plan.matrices[i].path;
        if (path && access(path, R_OK) != 0) {
            return complain("--file: \"%s\": %s", path, strerror(errno));
        }
    }
    r->plan.json = r->json ? fopen(r->json, "we") : NULL;
    return r->json && !r->plan.json ? complain("--json: \"%s\": %s", r->json, strerror(errno)) : 0;
}

/* In a child. The report's value 0 becomes the version of cuSPARSE. */
static ga_status try_device(void *context, ga_bench_report *report)
{
    const bench_spgemm_plan *plan = context;
    bench_cusparse *library = NULL;
    ga_cuda_scope scope;
    ga_status status = ga_cuda_enter(&scope, 0);
    if (status != GA_OK) {
        return status;
    }
    ga_bench_name_device(0, report);
    status = plan->library ? bench_cusparse_open(&library, plan->library) : GA_OK;
    report->values[0] = library ? bench_cusparse_version(library) : 0;
    bench_cusparse_close(library);
    ga_cuda_leave(&scope);
    return status;
}

static int settle_machine(bench_spgemm_plan *plan, ga_bench_report *report)
{
    plan->device = ga_bench_processor();
    if (plan->place == GA_PLACE_HOST) {
        return 0;
    }
    ga_bench_child_run(try_device, plan, START_SECONDS, report);
    plan->device = report->device;
    plan->driver = report->driver;
    return report->done ? 0 : complain("%s", report->failure);
}

static void print_preface(const bench_spgemm_plan *plan, int cusparse)
{
    printf("gpualloc %s, commit %s, %s\n", ga_version_text(), ga_bench_commit(),
           ga_bench_today().text);
    if (plan->place == GA_PLACE_HOST) {
        printf("%u cores of %s\n", ga_bench_cores(), plan->device);
    } else {
        printf("%s, driver %s", plan->device, plan->driver);
        if (cusparse) {
            printf(", cuSPARSE %d.%d.%d", cusparse / 1000, cusparse / 100 % 10, cusparse % 100);
        }
        putchar('\n');
    }
    printf("%u round%s at scale %g, %s%s, methods alternating; a time is the median +- half the\n"
           "interquartile range, times the ratio to %s, round by round; efficiency: entries over\n"
           "those that had memory at most, before they were gathered; mapped: bytes of the product "
           "over\nthose mapped at most\n",
           plan->rounds, plan->rounds == 1 ? "" : "s", plan->scale, ga_value_type_text(plan->type),
           plan->flags & GA_SPGEMM_UNSORTED ? ", unsorted" : "", plan->methods[0].text);
}

int ga_bench_spgemm_command(int argc, char **argv)
{
    static const struct argp parser = {options, parse, "[MATRIX...]", doc, NULL, NULL, NULL};
    static request r;
    ga_bench_report report = {0};
    argp_err_exit_status = USAGE;
    argp_parse(&parser, argc, argv, 0, NULL, &r);
    settle(&r);
    int status = settle_machine(&r.plan, &report);
    status = status ? status : open_files(&r);
    if (status) {
        return status;
    }
    print_preface(&r.plan, (int)report.values[0]);
    status = bench_spgemm_run(&r.plan, stdout) ? FAILED : 0;
    if (r.plan.json && fclose(r.plan.json) != 0) {
        status = complain("--json: \"%s\": %s", r.json, strerror(errno));
    }
    return status;
}
