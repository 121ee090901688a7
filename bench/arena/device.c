/* SPDX-License-Identifier: MIT
 *
 * bench-arena-device: measures allocators of device memory that are called from the host. The warm
 * path, fragmentation and traces. Each measurement is a child process; all allocators take turns in
 * each round; results are medians over the rounds.
 *
 *     bench-arena-device [--spec S]... [--only NAME,NAME] [--size BYTES] [--rounds N] [--seed N]
 *                        [--trace FILE] [--fill] [--json FILE] [--print-trace torch|rmm]
 *
 * Exit status 1 if a measurement failed, 77 if no allocator can be opened, 2 for usage.
 * bench/README.md describes the figures.
 */
#include "device.h"
#include "client.h"

#include "../device/name.h"
#include "../runner/machine.h"

#include "platform/size.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    ROUNDS_MAX = 101,
    LEAST_CARD = 64 << 20,
    PATIENCE = 60 /* seconds to start a driver */
};

static const uint64_t budget_most = UINT64_C(48) << 30;

arena_settings arena_set;

/* The specs without --spec: ours, then the ones to compare with. */
static const char *const usual_specs[] = {
    "vmm",
    "slab/vmm",
    "async",
    "async:release=0",
    "cuda",
    "cudaMallocAsync",
    "cudaMallocAsync:release=1T",
};

typedef struct part {
    const ga_bench_workload *workload;
    const char *baseline;
    uint64_t room; /* the card must have at least this multiple of the size */
    bool slow;     /* and the result is equal in each round, so half of the rounds suffice */
} part;

static const part parts[] = {
    {&arena_warm, "cudaMallocAsync", 2, false},
    {&arena_brim, "cuda", 16, true},
    {&arena_holes, "cuda", 16, true},
    {&arena_replay_torch, "cudaMallocAsync", 0, false},
    {&arena_replay_rmm, "cudaMallocAsync", 0, false},
    {&arena_replay_file, "cudaMallocAsync", 0, false},
};

enum {
    PARTS = sizeof parts / sizeof *parts
};

typedef struct request {
    ga_bench_plan plan;
    const char *only, *json, *print;
    uint64_t size; /* bytes of the card to use; 0: all */
    bool named;    /* specs were given */
} request;

/* ---- the card ---------------------------------------------------------------------------- */

static ga_status look_at_card(void *context, ga_bench_report *report)
{
    ga_cuda_scope scope;
    size_t available = 0, total = 0;
    (void)context;
    ga_status status = ga_cuda_enter(&scope, 0);
    if (status == GA_OK) {
        status = GA_CUDA_CALL(scope.driver, cuMemGetInfo, &available, &total);
        ga_bench_name_device(0, report);
        ga_cuda_leave(&scope);
    }
    report->values[0] = (double)available;
    report->values[1] = (double)total;
    return status;
}

/* Returns the bytes of the card to use; 0 without a card. */
static uint64_t settle_card(const request *r)
{
    ga_bench_report report;
    ga_bench_child_run(look_at_card, NULL, PATIENCE, &report);
    if (!report.done) {
        printf("left out: all of it: %s\n", report.failure);
        return 0;
    }
    uint64_t available = (uint64_t)report.values[0];
    arena_set.card = r->size < available ? r->size : 0;
    uint64_t card = arena_set.card ? arena_set.card : available;
    arena_set.budget = card / 5 * 2 < budget_most ? card / 5 * 2 : budget_most;
    printf("%s, driver %s; %.2f of %.2f GiB used; traces of at most %.2f GiB, seed %llu%s\n",
           report.device, report.driver, (double)card / (1 << 30), report.values[1] / (1 << 30),
           (double)arena_set.budget / (1 << 30), (unsigned long long)arena_set.seed,
           arena_set.fill ? ", blocks written to" : "");
    return card;
}

/* ---- specs ------------------------------------------------------------------------------- */

/* Sets values[0] to whether the heap has stream order. */
static ga_status try_spec(void *context, ga_bench_report *report)
{
    const char *spec = context;
    ga_heap *heap;
    client c;
    void *block;
    ga_status status = ga_heap_open(&heap, GA_PLACE_DEVICE, 0, spec);
    status = status == GA_OK ? client_enter(&c, heap, 0) : status;
    status = status == GA_OK ? client_get(&c, 1 << 20, 0, &block) : status;
    status = status == GA_OK ? client_give(&c, block, 0) : status;
    report->values[0] = status == GA_OK && c.ordered;
    return status;
}

static void settle_specs(ga_bench_plan *plan)
{
    ga_bench_plan asked = *plan;
    plan->spec_count = 0;
    for (size_t i = 0; i < asked.spec_count; i++) {
        ga_bench_report report;
        const char *spec = asked.specs[i];
        ga_bench_child_run(try_spec, (void *)(uintptr_t)spec, PATIENCE, &report);
        if (!report.done) {
            printf("left out: %s: %s\n", spec, report.failure);
            continue;
        }
        plan->specs[plan->spec_count++] = spec;
        if (report.values[0] < 1) {
            printf("%s has no stream order: plain calls\n", spec);
        }
    }
}

/* The preferred baseline, or the last spec if it is not in the plan. */
static size_t find_baseline(const ga_bench_plan *plan, const char *spec)
{
    for (size_t i = 0; i < plan->spec_count; i++) {
        if (strcmp(plan->specs[i], spec) == 0) {
            return i;
        }
    }
    return plan->spec_count - 1;
}

/* ---- the run ----------------------------------------------------------------------------- */

static void settle_sizes(const part *p, uint64_t card, ga_bench_list *sizes)
{
    *sizes = (ga_bench_list){0};
    for (const size_t *size = p->workload->sizes; *size; size++) {
        if (card / p->room >= *size) {
            sizes->values[sizes->count++] = *size;
        } else {
            printf("left out: %s of %s: the card is too small\n", p->workload->name,
                   ga_bench_size_text_of(*size).text);
        }
    }
    if (!p->room) { /* the workload chooses */
        sizes->count = 1;
    }
}

/* Returns whether all measurements succeeded. */
static bool run_part(const request *r, const part *p, uint64_t card, unsigned *missed)
{
    ga_bench_plan plan = r->plan;
    ga_bench_results results = {0};
    plan.workload_count = 1;
    plan.workloads[0] = p->workload;
    plan.baseline = find_baseline(&plan, p->baseline);
    plan.rounds = p->slow ? (plan.rounds + 1) / 2 : plan.rounds;
    settle_sizes(p, card, &plan.sizes);
    if (!plan.sizes.count) {
        return true;
    }
    bool good = ga_bench_suite_run(&plan, stdout, &results) && !results.failed;
    printf("\n");
    *missed += arena_bars_print(stdout, &results);
    fflush(stdout);
    ga_bench_results_free(&results);
    return good;
}

/* Whether `name` is in a list of names with commas. */
static bool lists(const char *list, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = list; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, name, length) == 0 && (at[length] == ',' || !at[length])) {
            return true;
        }
    }
    return false;
}

static bool is_asked_for(const request *r, const part *p)
{
    return (p->workload != &arena_replay_file || arena_set.file) &&
           (!r->only || lists(r->only, p->workload->name));
}

static int run_parts(request *r)
{
    unsigned missed = 0;
    bool good = true;
    uint64_t card = settle_card(r);
    if (card) {
        settle_specs(&r->plan);
    }
    if (!r->plan.spec_count || !card) {
        return 77;
    }
    fflush(stdout);
    for (unsigned i = 0; i < PARTS; i++) {
        if (is_asked_for(r, &parts[i])) {
            good = run_part(r, &parts[i], card, &missed) && good;
        }
    }
    printf("\n%u bars missed%s\n", missed, good ? "" : "; some measurements failed");
    return good ? 0 : 1;
}

static int run_with_file(request *r)
{
    r->plan.json = r->json ? fopen(r->json, "we") : NULL;
    if (r->json && !r->plan.json) {
        fprintf(stderr, "bench-arena-device: %s: %s\n", r->json, strerror(errno));
        return 1;
    }
    int status = run_parts(r);
    return r->plan.json && fclose(r->plan.json) ? 1 : status;
}

static int print_trace(const char *name)
{
    trace t = {0};
    char why[TRACE_WHY];
    arena_set.budget = budget_most;
    bool good = arena_trace_make(&t, name, why);
    if (good) {
        printf("# %s, seed %llu: at most %llu bytes live\n", name,
               (unsigned long long)arena_set.seed, (unsigned long long)t.peak);
        good = trace_write(&t, stdout);
    }
    trace_clear(&t);
    return good ? 0 : 1;
}

/* ---- the command line -------------------------------------------------------------------- */

static int refuse(const char *option, const char *value)
{
    fprintf(stderr,
            "bench-arena-device: %s %s: expected --spec S (at most %d), --only NAMES (warm, brim, "
            "holes, replay-torch, replay-rmm, replay-file), --size BYTES (%d or more; K, M, G), "
            "--rounds N (1 to %d), --seed N, --trace FILE (of which every line is good), --fill, "
            "--json FILE or --print-trace torch|rmm\n",
            option, value ? value : "without a value", GA_BENCH_SPECS_MAX - 1, LEAST_CARD,
            ROUNDS_MAX);
    return 2;
}

static bool read_number(const char *text, uint64_t most, uint64_t *out)
{
    char *end;
    errno = 0;
    *out = strtoull(text, &end, 10);
    return !errno && end != text && !*end && *text != '-' && *out >= 1 && *out <= most;
}

static bool read_only(request *r, const char *names)
{
    r->only = names;
    for (unsigned i = 0; i < PARTS; i++) {
        if (lists(names, parts[i].workload->name)) {
            return true;
        }
    }
    return false;
}

static bool read_trace(const char *file)
{
    trace t = {0};
    char why[TRACE_WHY];
    arena_set.file = file;
    bool good = arena_trace_make(&t, "file", why);
    if (!good) {
        fprintf(stderr, "bench-arena-device: %s: %s\n", file, why);
    }
    trace_clear(&t);
    return good;
}

static bool add_spec(request *r, const char *spec)
{
    if (r->plan.spec_count == GA_BENCH_SPECS_MAX - 1) {
        return false;
    }
    r->plan.specs[r->plan.spec_count++] = spec;
    return true;
}

static bool read_option(request *r, const char *name, const char *value)
{
    uint64_t rounds;
    if (!strcmp(name, "--spec")) {
        r->named = true;
        return add_spec(r, value);
    }
    if (!strcmp(name, "--only")) {
        return read_only(r, value);
    }
    if (!strcmp(name, "--size")) {
        return ga_size_parse(value, &r->size) && r->size >= LEAST_CARD;
    }
    if (!strcmp(name, "--rounds")) {
        bool good = read_number(value, ROUNDS_MAX, &rounds);
        r->plan.rounds = (unsigned)rounds;
        return good;
    }
    if (!strcmp(name, "--seed")) {
        return read_number(value, UINT64_MAX, &arena_set.seed);
    }
    if (!strcmp(name, "--trace")) {
        return read_trace(value);
    }
    if (!strcmp(name, "--print-trace")) {
        r->print = value;
        return !strcmp(value, "torch") || !strcmp(value, "rmm");
    }
    r->json = value;
    return !strcmp(name, "--json");
}

int arena_device_main(int argc, char **argv)
{
    request r = {.plan = {.place = GA_PLACE_DEVICE, .rounds = 5, .threads = {1, {1}}}};
    arena_set = (arena_settings){.seed = 1};
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--fill")) {
            arena_set.fill = true;
        } else if (i + 1 == argc || !read_option(&r, argv[i], argv[i + 1])) {
            return refuse(argv[i], argv[i + 1]);
        } else {
            i++;
        }
    }
    if (r.print) {
        return print_trace(r.print);
    }
    for (size_t i = 0; i < sizeof usual_specs / sizeof *usual_specs && !r.named; i++) {
        add_spec(&r, usual_specs[i]);
    }
    printf("bench-arena-device, commit %s, %s, on %s\n", ga_bench_commit(), ga_bench_today().text,
           ga_bench_processor());
    return arena_driver_pool_register() == GA_OK ? run_with_file(&r) : 1;
}
