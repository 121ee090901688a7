/* SPDX-License-Identifier: MIT
 *
 * Workloads `same-size` and `random-size`: each thread holds a window of up to 512 blocks, frees
 * one at random and allocates another in its place. One operation is one free and one malloc.
 */
#include "churn.h"
#include "workloads.h"

enum {
    SLOTS_MAX = 512,
    STEP = 64
};

static const size_t WINDOW_BYTES = (size_t)16 << 20;

/* Large blocks get a smaller window, so that the memory touched stays about the same. */
static size_t slots_for(size_t size)
{
    size_t slots = SLOTS_MAX;
    while (slots > 1 && slots > WINDOW_BYTES / size) {
        slots /= 2;
    }
    return slots;
}

ga_status ga_bench_window_begin(ga_bench_worker *worker, bool random)
{
    size_t most = worker->run->size;
    size_t slots = slots_for(most);
    ga_bench_window *window = ga_bench_space(sizeof *window + slots * sizeof *window->blocks);
    if (!window) {
        return GA_ERR_MEMORY;
    }
    worker->own = window;
    window->slots = slots;
    for (size_t i = 0; i < GA_BENCH_CHURN_SIZES; i++) {
        window->sizes[i] = random ? ga_bench_random_size(&worker->random, most) : most;
    }
    for (size_t i = 0; i < slots; i++) {
        size_t size = ga_bench_window_size(window);
        ga_status status = ga_alloc(worker->run->heap, size, 0, &window->blocks[i]);
        if (status != GA_OK) {
            return status;
        }
        ga_bench_touch(window->blocks[i], 0, size);
    }
    return GA_OK;
}

void ga_bench_window_end(ga_bench_worker *worker)
{
    ga_bench_window *window = worker->own;
    for (size_t i = 0; window && i < window->slots; i++) {
        ga_free(worker->run->heap, window->blocks[i]);
    }
}

static ga_status replace_one(ga_bench_worker *worker)
{
    void **slot = ga_bench_window_pick(worker);
    size_t size = ga_bench_window_size(worker->own);
    ga_status status = ga_free(worker->run->heap, *slot);
    if (status != GA_OK) {
        return status;
    }
    status = ga_alloc(worker->run->heap, size, 0, slot);
    if (status == GA_OK) {
        ga_bench_touch(*slot, 0, size);
    }
    return status;
}

static ga_status step(ga_bench_worker *worker)
{
    for (int i = 0; i < STEP; i++) {
        ga_status status = replace_one(worker);
        if (status != GA_OK) {
            return status;
        }
    }
    worker->done += STEP;
    return GA_OK;
}

static ga_status begin_same(ga_bench_worker *worker)
{
    return ga_bench_window_begin(worker, false);
}

static ga_status begin_random(ga_bench_worker *worker)
{
    return ga_bench_window_begin(worker, true);
}

static ga_status run_loop(const ga_bench_case *run, ga_bench_report *report,
                          ga_status (*begin)(ga_bench_worker *))
{
    ga_bench_loop loop = {.begin = begin, .step = step, .end = ga_bench_window_end};
    double per_second = 0;
    ga_status status = ga_bench_loop_run(&loop, run, NULL, &per_second);
    report->values[0] = per_second / 1e6;
    return status;
}

static ga_status run_same(const ga_bench_case *run, ga_bench_report *report)
{
    return run_loop(run, report, begin_same);
}

static ga_status run_random(const ga_bench_case *run, ga_bench_report *report)
{
    return run_loop(run, report, begin_random);
}

static const ga_bench_metric metrics[] = {GA_BENCH_THROUGHPUT};

const ga_bench_workload ga_bench_same_size = {
    .name = "same-size",
    .help = "free and malloc of one size, from a window of 512 blocks",
    .place = GA_PLACE_HOST,
    .sizes = (const size_t[]){64, 1 << 10, 16 << 10, 0},
    .metric_count = 1,
    .metrics = metrics,
    .run = run_same,
};

const ga_bench_workload ga_bench_random_size_workload = {
    .name = "random-size",
    .help = "free and malloc of sizes from 16 bytes up, from a window of 512 blocks",
    .place = GA_PLACE_HOST,
    .sizes = (const size_t[]){1 << 10, 32 << 10, 0},
    .metric_count = 1,
    .metrics = metrics,
    .run = run_random,
};
