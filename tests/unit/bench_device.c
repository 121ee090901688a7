/* SPDX-License-Identifier: MIT
 *
 * bench-arena-device over a driver made of host memory: its workloads on heaps with known results,
 * its limits on made-up figures, and one complete run.
 */
#include "support/vmm_driver.h"

#include "arena/device.h"

#include <gpualloc/backend.h>

#include <criterion/criterion.h>

#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define MIB ((size_t)1 << 20)

/* ---- a backend that knows its limits ----------------------------------------------------- */

/* Blocks are addresses that are never accessed. At most `room` bytes in all, and `largest` bytes in
 * a block. */
typedef struct bounded {
    uint64_t used;
} bounded;

static struct {
    uint64_t room, largest;
    double overhead;         /* held over used */
    uint64_t ordered, plain; /* calls so far */
} limits;

static ga_status bounded_open(const ga_open_args *args, void **state)
{
    (void)args;
    *state = calloc(1, sizeof(bounded));
    return GA_OK;
}

static ga_status get(void *state, size_t size, void **out)
{
    bounded *b = state;
    if (size > limits.largest || b->used + size > limits.room) {
        return ga_fail(GA_ERR_MEMORY, "bounded: no %zu bytes", size);
    }
    size_t *block = malloc(sizeof *block);
    *block = size;
    b->used += size;
    *out = block;
    return GA_OK;
}

static ga_status give(void *state, void *block)
{
    bounded *b = state;
    b->used -= *(size_t *)block;
    free(block);
    return GA_OK;
}

static ga_status bounded_alloc(void *state, size_t size, void **out)
{
    limits.plain++;
    return get(state, size, out);
}

static ga_status bounded_alloc_on(void *state, size_t size, size_t align, ga_stream stream,
                                  void **out)
{
    (void)align;
    cr_assert_not_null(stream);
    limits.ordered++;
    return get(state, size, out);
}

static ga_status bounded_free_on(void *state, void *block, ga_stream stream)
{
    cr_assert_not_null(stream);
    return give(state, block);
}

static bool bounded_owns(void *state, const void *pointer)
{
    (void)state;
    (void)pointer;
    return false;
}

static void bounded_stats(void *state, ga_backend_stats *out)
{
    const bounded *b = state;
    *out = (ga_backend_stats){.held_bytes = (uint64_t)(limits.overhead * (double)b->used)};
}

static ga_backend plain_backend = {
    .abi = GA_BACKEND_ABI,
    .size = sizeof(ga_backend),
    .name = "bounded",
    .help = "as much as it is told",
    .places = GA_PLACE_BIT(GA_PLACE_DEVICE),
    .open = bounded_open,
    .close = free,
    .alloc = bounded_alloc,
    .free = give,
    .owns = bounded_owns,
    .stats = bounded_stats,
};

static ga_backend ordered_backend;

static void set_up(void)
{
    ordered_backend = plain_backend;
    ordered_backend.name = "bounded_ordered";
    ordered_backend.alloc_on = bounded_alloc_on;
    ordered_backend.free_on = bounded_free_on;
    cr_assert_eq(ga_backend_register(&plain_backend), GA_OK);
    cr_assert_eq(ga_backend_register(&ordered_backend), GA_OK);
    arena_set = (arena_settings){.seed = 1, .budget = 256 * MIB};
    limits.room = limits.largest = UINT64_MAX / 2;
    limits.overhead = 1;
    vmm_driver_start(NULL);
}

static void tear_down(void)
{
    vmm_driver_stop();
}

static ga_bench_report run_on(const char *spec, const ga_bench_workload *workload, size_t size)
{
    ga_bench_report report = {0};
    ga_bench_case run = {.threads = 1, .size = size, .seed = 1};
    ga_stats stats;
    cr_assert_eq(ga_heap_open(&run.heap, GA_PLACE_DEVICE, 0, spec), GA_OK, "%s", ga_error_text());
    cr_assert_eq(workload->run(&run, &report), GA_OK, "%s", ga_error_text());
    cr_assert_eq(ga_heap_stats(run.heap, &stats), GA_OK);
    cr_assert_eq(stats.live_blocks, 0, "all is given back");
    ga_heap_close(run.heap);
    return report;
}

static double value_of(const ga_bench_report *report, const ga_bench_workload *workload,
                       const char *metric)
{
    for (size_t i = 0; i < workload->metric_count; i++) {
        if (strcmp(workload->metrics[i].name, metric) == 0) {
            return report->values[i];
        }
    }
    cr_assert(false, "no metric %s", metric);
    return 0;
}

/* ---- holes ------------------------------------------------------------------------------- */

TestSuite(bench_device, .init = set_up, .fini = tear_down);

static void assert_largest(size_t room, size_t largest, double expected, double within)
{
    limits.room = room;
    limits.largest = largest;
    ga_bench_report report = run_on("bounded", &arena_brim, 8 * MIB);
    double share = value_of(&report, &arena_brim, "largest");
    cr_assert_leq(fabs(share - expected), within, "%f, expected %f", share, expected);
}

Test(bench_device, finds_the_largest_block)
{
    assert_largest(128 * MIB, 1024 * MIB, 1, 0);
    assert_largest(128 * MIB, 64 * MIB, 1, 0);
    assert_largest(128 * MIB, 20 * MIB, 20.0 / 64, 2.0 / 64);
    assert_largest(128 * MIB, 8 * MIB, 8.0 / 64, 2.0 / 64);
}

Test(bench_device, knows_what_was_freed)
{
    limits.room = 7 * 8 * MIB; /* four of the seven are freed */
    ga_bench_report report = run_on("bounded", &arena_brim, 8 * MIB);
    cr_assert_eq(value_of(&report, &arena_brim, "freed"), 32.0 / 1024);
    cr_assert_eq(value_of(&report, &arena_brim, "filled"), 56.0 / 1024, "of the driver's GiB");
}

/* 8 and 24 MiB alternately up to 90 %: 57 blocks, the last one small. */
Test(bench_device, fills_nine_tenths)
{
    ga_bench_report report = run_on("bounded", &arena_holes, 8 * MIB);
    cr_assert_eq(value_of(&report, &arena_holes, "freed"), 29 * 8.0 / 1024);
    cr_assert_eq(value_of(&report, &arena_holes, "filled"), (28 * 32.0 + 8) / 1024);
    cr_assert_eq(value_of(&report, &arena_holes, "largest"), 1);
}

/* The driver's own allocator loses nothing, and the rest of the card is held back. */
Test(bench_device, holds_the_rest_of_the_card_back)
{
    arena_set.card = 256 * MIB;
    ga_bench_report report = run_on("cuda", &arena_brim, 8 * MIB);
    cr_assert_eq(value_of(&report, &arena_brim, "largest"), 1);
    cr_assert_eq(value_of(&report, &arena_brim, "filled"), 1);
    cr_assert_eq(value_of(&report, &arena_brim, "freed"), 128.0 / 1024);
    cr_assert_eq(vmm_driver_count().block_bytes, 0);
}

/* The limits on fragmentation need no GPU: if chunks are allocated whole, holes lose nothing. */
Test(bench_device, holds_its_bars_on_fragmentation)
{
    static const size_t sizes[] = {8 * MIB, 24 * MIB, MIB / 2};
    for (unsigned i = 0; i < 3; i++) {
        ga_bench_report report = run_on("vmm", &arena_holes, sizes[i]);
        cr_assert_eq(value_of(&report, &arena_holes, "largest"), 1, "%zu bytes", sizes[i]);
    }
    ga_bench_report report = run_on("vmm", &arena_brim, 8 * MIB);
    cr_assert_eq(value_of(&report, &arena_brim, "largest"), 1);
    cr_assert_eq(value_of(&report, &arena_brim, "filled"), 1);
}

/* ---- replays and the warm path ----------------------------------------------------------- */

Test(bench_device, replays_in_stream_order_where_there_is_one)
{
    run_on("bounded_ordered", &arena_replay_rmm, 0);
    cr_assert_eq(limits.plain, 0);
    cr_assert_gt(limits.ordered, 4000);
    run_on("bounded", &arena_replay_rmm, 0);
    cr_assert_gt(limits.plain, 4000);
}

Test(bench_device, compares_what_is_held_with_the_peak)
{
    static const ga_bench_workload *const replays[] = {&arena_replay_torch, &arena_replay_rmm};
    for (unsigned i = 0; i < 2; i++) {
        limits.overhead = 1;
        ga_bench_report report = run_on("bounded", replays[i], 0);
        cr_assert_eq(value_of(&report, replays[i], "held-by-stats"), 1);
        cr_assert_eq(value_of(&report, replays[i], "held"), 0, "none of it is the driver's");
        limits.overhead = 1.5;
        report = run_on("bounded", replays[i], 0);
        cr_assert_leq(fabs(value_of(&report, replays[i], "held-by-stats") - 1.5), 1e-6);
    }
}

/* Small and few, since the driver's memory is the host's and is written to. */
Test(bench_device, sees_the_driver_s_memory)
{
    arena_set.budget = 2 * MIB;
    arena_set.fill = true;
    ga_bench_report report = run_on("cuda", &arena_replay_rmm, 0);
    cr_assert_eq(value_of(&report, &arena_replay_rmm, "held"), 1);
    cr_assert_gt(value_of(&report, &arena_replay_rmm, "call"), 0);
    cr_assert_gt(value_of(&report, &arena_replay_rmm, "first-call"), 0);
    cr_assert_geq(value_of(&report, &arena_replay_rmm, "call-p99"),
                  value_of(&report, &arena_replay_rmm, "call-p50"));
}

Test(bench_device, measures_the_warm_path)
{
    ga_bench_report report = run_on("bounded_ordered", &arena_warm, 2 * MIB);
    cr_assert_gt(limits.ordered, 16);
    cr_assert_gt(limits.plain, 16, "plain calls have their turn, too");
    cr_assert_leq(value_of(&report, &arena_warm, "pair-low"),
                  value_of(&report, &arena_warm, "pair"));
    cr_assert_leq(value_of(&report, &arena_warm, "pair"),
                  value_of(&report, &arena_warm, "pair-high"));
    cr_assert_leq(value_of(&report, &arena_warm, "pair-high"),
                  value_of(&report, &arena_warm, "pair-p99"));
    cr_assert_gt(value_of(&report, &arena_warm, "first-alloc"), 0);
}

/* ---- bars -------------------------------------------------------------------------------- */

static ga_bench_result made_up(const char *spec, const ga_bench_workload *workload,
                               const char *metric, double value)
{
    ga_bench_result result = {.bench = workload->name, .spec = spec, .value = value};
    for (size_t i = 0; i < workload->metric_count; i++) {
        if (strcmp(workload->metrics[i].name, metric) == 0) {
            result.metric = &workload->metrics[i];
        }
    }
    cr_assert_not_null(result.metric);
    return result;
}

static char *print_bars(ga_bench_result *list, size_t count, unsigned *missed)
{
    char *text = NULL;
    size_t length;
    FILE *out = open_memstream(&text, &length);
    ga_bench_results results = {.list = list, .count = count};
    *missed = arena_bars_print(out, &results);
    fclose(out);
    return text;
}

static void assert_bar(const ga_bench_workload *workload, const char *metric, double value,
                       bool held)
{
    unsigned missed;
    ga_bench_result list[] = {made_up("vmm", workload, metric, value),
                              made_up("cuda", workload, metric, 50)};
    char *text = print_bars(list, 2, &missed);
    cr_assert_eq(missed, !held, "%s", text);
    cr_assert_not_null(strstr(text, held ? ": held; cuda 50.0000\n" : ": missed; cuda 50.0000\n"),
                       "%s", text);
    cr_assert_eq(strncmp(text, "bar: ", 5), 0);
    cr_assert_null(strstr(text + 1, "bar: "), "baselines have none");
    free(text);
}

Test(bench_device, bars_are_held_or_missed)
{
    assert_bar(&arena_warm, "pair", 2, true);
    assert_bar(&arena_warm, "pair", 2.01, false);
    assert_bar(&arena_warm, "pair", NAN, false);
    assert_bar(&arena_brim, "largest", 1, true);
    assert_bar(&arena_brim, "largest", 0.99, false);
    assert_bar(&arena_holes, "largest", NAN, false);
    assert_bar(&arena_replay_rmm, "held", 1.05, true);
    assert_bar(&arena_replay_torch, "held", 1.06, false);
}

Test(bench_device, pools_are_compared_with_one_by_one)
{
    unsigned missed;
    ga_bench_result list[] = {
        made_up("vmm", &arena_replay_rmm, "call", 1),
        made_up("cuda", &arena_replay_rmm, "call", 0.1),
        made_up("async", &arena_replay_rmm, "call", 2),
        made_up("cudaMallocAsync:release=1T", &arena_replay_rmm, "call", 0.5),
        made_up("async:release=0", &arena_replay_rmm, "call", NAN),
    };
    char *text = print_bars(list, 5, &missed);
    cr_assert_eq(missed, 2, "%s", text);
    cr_assert_not_null(strstr(text, "0.50 times async's 2.0000, at most 1: held\n"), "%s", text);
    cr_assert_not_null(
        strstr(text, "2.00 times cudaMallocAsync:release=1T's 0.5000, at most 1: missed\n"));
    cr_assert_null(strstr(text, "cuda's"));
    free(text);
}

/* ---- the whole of it --------------------------------------------------------------------- */

/* Each child opens a driver of its own, as with a real one. */
static void start_in_child(void)
{
    vmm_driver_start(NULL);
}

static double json_value(FILE *file, const char *bench, const char *metric, size_t *lines)
{
    char *line = NULL;
    size_t room = 0;
    double value = NAN;
    *lines = 0;
    rewind(file);
    while (getline(&line, &room, file) >= 0) {
        json_t *parsed = json_loads(line, 0, NULL);
        cr_assert_not_null(parsed, "%s", line);
        if (strcmp(json_string_value(json_object_get(parsed, "bench")), bench) == 0 &&
            strcmp(json_string_value(json_object_get(parsed, "metric")), metric) == 0) {
            value = json_number_value(json_object_get(parsed, "value"));
        }
        cr_assert_str_eq(json_string_value(json_object_get(parsed, "device")), "stand-in 0");
        json_decref(parsed);
        ++*lines;
    }
    free(line);
    return value;
}

Test(bench_device, runs_with_what_there_is)
{
    char name[] = "/tmp/bench-device-XXXXXX";
    int made = mkstemp(name);
    cr_assert_geq(made, 0);
    FILE *file = fdopen(made, "r");
    char *arguments[] = {
        "bench-arena-device", "--size", "512M",     "--rounds", "1",  "--spec", "cuda", "--spec",
        "cudaMallocAsync",    "--spec", "nonsense", "--json",   name, NULL};
    size_t lines;
    vmm_driver_stop();
    cr_assert_eq(pthread_atfork(NULL, NULL, start_in_child), 0);
    cr_assert_eq(arena_device_main(13, arguments), 0);
    cr_assert_eq(json_value(file, "brim", "largest", &lines), 1);
    cr_assert_eq(json_value(file, "replay-torch", "held", &lines), 1);
    cr_assert_gt(json_value(file, "warm", "pair", &lines), 0);
    cr_assert_eq(lines, 8 * 2 + 5 * (1 + 3) + 7 * 2, "512 MiB are too large for the warm path");
    fclose(file);
    remove(name);
}

Test(bench_device, wants_an_allocator)
{
    char *arguments[] = {"bench-arena-device", "--spec", "nonsense", NULL};
    vmm_driver_stop();
    cr_assert_eq(pthread_atfork(NULL, NULL, start_in_child), 0);
    cr_assert_eq(arena_device_main(3, arguments), 77);
}

Test(bench_device, refuses_what_it_does_not_know)
{
    static const char *const bad[][2] = {
        {"--size", "1M"},   {"--size", "x"},        {"--rounds", "0"},       {"--rounds", "102"},
        {"--only", "cold"}, {"--only", "warmer"},   {"--trace", "/nowhere"}, {"--seed", "-1"},
        {"--fil", "1"},     {"--print-trace", "x"}, {"--json", NULL},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char *arguments[] = {"bench-arena-device", (char *)(uintptr_t)bad[i][0],
                             (char *)(uintptr_t)bad[i][1], NULL};
        cr_assert_eq(arena_device_main(bad[i][1] ? 3 : 2, arguments), 2, "%s", bad[i][0]);
    }
}
