/* SPDX-License-Identifier: MIT
 *
 * Workload `warm`: allocate and free one block repeatedly, with no work on the stream; before that,
 * the first allocation of a fresh heap.
 */
#include "client.h"
#include "device.h"

#include "../device/name.h"
#include "../runner/clock.h"
#include "../runner/histogram.h"

enum {
    PAIRS = 2000,        /* unless they take longer than PATIENCE */
    PATIENCE = 400000000 /* ns */
};

typedef enum phase {
    PAIR = 0,
    ALLOC,
    FREE,
    PHASES
} phase;

typedef struct times {
    ga_bench_histogram of[PHASES];
} times;

/* In ns, including the cost of reading the clock. */
static ga_status take_pair(client *c, uint64_t size, uint64_t spent[PHASES])
{
    void *block;
    uint64_t start = ga_bench_now();
    ga_status status = client_get(c, size, 0, &block);
    uint64_t middle = ga_bench_now();
    if (status == GA_OK) {
        status = client_give(c, block, 0);
    }
    uint64_t end = ga_bench_now();
    spent[PAIR] = end - start;
    spent[ALLOC] = middle - start;
    spent[FREE] = end - middle;
    return status;
}

static ga_status take_pairs(client *c, uint64_t size, times *t)
{
    ga_status status = GA_OK;
    uint64_t begun = ga_bench_now();
    for (unsigned i = 0; i < PAIRS && status == GA_OK; i++) {
        uint64_t spent[PHASES];
        status = take_pair(c, size, spent);
        for (unsigned p = 0; p < PHASES && status == GA_OK; p++) {
            ga_bench_histogram_add(&t->of[p], spent[p]);
        }
        if (i >= PAIRS / 100 && ga_bench_now() - begun > PATIENCE) {
            break;
        }
    }
    return status;
}

/* In us, without the cost of reading the clock. */
static double quantile(const times *t, phase p, double q, const ga_bench_clock *clock)
{
    double cost = p == PAIR ? 2 * clock->cost : clock->cost;
    double ns = ga_bench_histogram_quantile(&t->of[p], q, clock->step) - cost;
    return ns > 0 ? ns / 1e3 : 0;
}

static ga_status measure(client *c, uint64_t size, double *values)
{
    static times warm, plain;
    ga_bench_clock clock = ga_bench_clock_calibrate();
    uint64_t first[PHASES];
    warm = plain = (times){0};
    ga_status status = take_pair(c, size, first);
    for (unsigned i = 0; i < 16 && status == GA_OK; i++) {
        uint64_t spent[PHASES];
        status = take_pair(c, size, spent);
    }
    status = status == GA_OK ? take_pairs(c, size, &warm) : status;
    status = status == GA_OK ? client_settle(c) : status;
    c->ordered = false;
    status = status == GA_OK ? take_pairs(c, size, &plain) : status;
    values[0] = quantile(&warm, PAIR, 0.5, &clock);
    values[1] = quantile(&warm, PAIR, 0.25, &clock);
    values[2] = quantile(&warm, PAIR, 0.75, &clock);
    values[3] = quantile(&warm, PAIR, 0.99, &clock);
    values[4] = quantile(&warm, ALLOC, 0.5, &clock);
    values[5] = quantile(&warm, FREE, 0.5, &clock);
    values[6] = quantile(&plain, PAIR, 0.5, &clock);
    values[7] = (double)first[ALLOC] / 1e3;
    return status;
}

static ga_status run(const ga_bench_case *run, ga_bench_report *report)
{
    client c;
    ga_status status = client_enter(&c, run->heap, arena_set.card);
    if (status == GA_OK) {
        ga_bench_name_device(ga_heap_device(run->heap), report);
        status = measure(&c, run->size, report->values);
        client_leave(&c);
    }
    return status;
}

static const ga_bench_metric metrics[] = {
    {.name = "pair", .unit = "us"},       {.name = "pair-low", .unit = "us"},
    {.name = "pair-high", .unit = "us"},  {.name = "pair-p99", .unit = "us"},
    {.name = "alloc", .unit = "us"},      {.name = "free", .unit = "us"},
    {.name = "plain-pair", .unit = "us"}, {.name = "first-alloc", .unit = "us"},
};

const ga_bench_workload arena_warm = {
    .name = "warm",
    .help =
        "alloc and free of one block over and over, in stream order where there is one: median, "
        "quartiles and p99; without a stream; and the heap's first block",
    .place = GA_PLACE_DEVICE,
    .one_thread = true,
    .sizes = (const size_t[]){2 << 20, 32 << 20, 512 << 20, 0},
    .metric_count = sizeof metrics / sizeof *metrics,
    .metrics = metrics,
    .run = run,
};
