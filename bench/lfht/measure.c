/* SPDX-License-Identifier: MIT
 *
 * Threads that fill a map, make their calls at the same time, and empty it. One call in 64 is timed
 * by itself for the percentiles, so the throughput contains two readings of the clock in 64 calls.
 */
#include "measure.h"

#include "../host/team.h"
#include "../runner/clock.h"
#include "../runner/histogram.h"
#include "../runner/machine.h"
#include "misses.h"

#include <gpualloc/backend.h>

#include <malloc.h>
#include <math.h>

enum {
    SAMPLE = 64
};

static const struct {
    const char *name, *help;
    bool filled, emptied; /* before the calls */
} loads[GA_BENCH_LFHT_LOADS] = {
    [GA_BENCH_LFHT_INSERT] = {"lfht-insert", "inserts into an empty map", false, false},
    [GA_BENCH_LFHT_REMOVE] = {"lfht-remove", "removals of all keys of a filled map", true, false},
    [GA_BENCH_LFHT_HIT] = {"lfht-hit", "lookups of keys that are there", true, false},
    [GA_BENCH_LFHT_MISS] = {"lfht-miss", "lookups of others, in a filled map", true, false},
    [GA_BENCH_LFHT_MIX] = {"lfht-mix", "25 % inserts, 25 % removals, 50 % lookups, in a filled map",
                           true, false},
    [GA_BENCH_LFHT_REINSERT] = {"lfht-reinsert", "inserts into a map that was filled and emptied",
                                true, true},
    [GA_BENCH_LFHT_EMPTIED] = {"lfht-emptied", "lookups in a map that was filled and emptied", true,
                               true},
};

const ga_bench_metric ga_bench_lfht_metrics[] = {
    {.name = "throughput", .unit = "M/s", .more_is_better = true},
    {.name = "p50", .unit = "ns"},
    {.name = "p99", .unit = "ns"},
    {.name = "p99.9", .unit = "ns"},
    {.name = "resident", .unit = "MiB"},
    {.name = "emptied", .unit = "MiB"},
    {.name = "held", .unit = "MiB"},
    {.name = "misses", .unit = "cache misses a call"},
    {.name = "path", .unit = "hash nodes"},
    {.name = "expansions", .unit = "hash nodes"},
};
const size_t ga_bench_lfht_metric_count =
    sizeof ga_bench_lfht_metrics / sizeof *ga_bench_lfht_metrics;

enum {
    THROUGHPUT = 0,
    P50,
    P99,
    P999,
    RESIDENT,
    EMPTIED,
    HELD,
    MISSES,
    PATH,
    EXPANSIONS,
    METRICS
};

_Static_assert((int)METRICS <= (int)GA_BENCH_METRICS_MAX, "a report has room for them");
_Static_assert(METRICS == sizeof ga_bench_lfht_metrics / sizeof *ga_bench_lfht_metrics,
               "a place for each");

const char *ga_bench_lfht_load_text(ga_bench_lfht_load load)
{
    return loads[load].name;
}

const char *ga_bench_lfht_load_help(ga_bench_lfht_load load)
{
    return loads[load].help;
}

/* ---- a thread ------------------------------------------------------------------------------- */

/* Times at which a thread's calls began and ended. Each thread reads its own clock, because the
 * main thread may wake late. */
typedef struct stretch {
    uint64_t begin, end;
} stretch;

typedef struct task {
    const ga_bench_lfht_case *run;
    void *map;
    ga_bench_histogram *times; /* one for each thread */
    stretch *stretches;        /* the same */
    uint64_t wrong;            /* relaxed: a sum */
} task;

/* Number i of the calls: whether its answer is right. */
static bool call(const task *t, uint64_t i)
{
    const ga_bench_subject *s = t->run->subject;
    uint64_t keys = t->run->keys;
    switch (t->run->load) {
    case GA_BENCH_LFHT_INSERT:
    case GA_BENCH_LFHT_REINSERT:
        return s->insert(t->map, ga_bench_key(i));
    case GA_BENCH_LFHT_REMOVE:
        return s->remove(t->map, ga_bench_key(i));
    case GA_BENCH_LFHT_HIT:
        return s->lookup(t->map, ga_bench_key(i));
    case GA_BENCH_LFHT_MISS:
        return !s->lookup(t->map, ga_bench_key(keys + i));
    case GA_BENCH_LFHT_EMPTIED:
        return !s->lookup(t->map, ga_bench_key(i));
    default:
        return i % 4 == 0   ? s->insert(t->map, ga_bench_key(keys + i))
               : i % 4 == 1 ? s->remove(t->map, ga_bench_key(i))
                            : s->lookup(t->map, ga_bench_key(i));
    }
}

static bool timed_call(const task *t, uint64_t i, ga_bench_histogram *times)
{
    uint64_t begin = ga_bench_now();
    bool right = call(t, i);
    ga_bench_histogram_add(times, ga_bench_now() - begin);
    return right;
}

/* The part of the numbers below `keys` that is this thread's. */
static uint64_t first_of(const task *t, unsigned thread)
{
    return t->run->keys * thread / t->run->threads;
}

static uint64_t fill(const task *t, uint64_t first, uint64_t last)
{
    uint64_t wrong = 0;
    for (uint64_t i = first; i < last; i++) {
        wrong += !t->run->subject->insert(t->map, ga_bench_key(i));
    }
    return wrong;
}

static uint64_t empty(const task *t, uint64_t first, uint64_t last)
{
    uint64_t wrong = 0;
    for (uint64_t i = first; i < last; i++) {
        wrong += !t->run->subject->remove(t->map, ga_bench_key(i));
    }
    return wrong;
}

/* Remove the keys that the calls have left. */
static uint64_t empty_behind(const task *t, uint64_t first, uint64_t last)
{
    const ga_bench_subject *s = t->run->subject;
    ga_bench_lfht_load load = t->run->load;
    uint64_t wrong = 0;
    if (load == GA_BENCH_LFHT_REMOVE || load == GA_BENCH_LFHT_EMPTIED) {
        return 0;
    }
    if (load != GA_BENCH_LFHT_MIX) {
        return empty(t, first, last);
    }
    for (uint64_t i = first; i < last; i++) {
        wrong += i % 4 == 0 && !s->remove(t->map, ga_bench_key(t->run->keys + i));
        wrong += i % 4 != 1 && !s->remove(t->map, ga_bench_key(i));
    }
    return wrong;
}

/* Four parts with a barrier between them. */
static void duty(ga_bench_worker *worker)
{
    task *t = worker->shared;
    const ga_bench_subject *s = t->run->subject;
    uint64_t first = first_of(t, worker->index);
    uint64_t last = first_of(t, worker->index + 1);
    uint64_t wrong = 0;
    if (s->enter) {
        s->enter();
    }
    wrong += loads[t->run->load].filled ? fill(t, first, last) : 0;
    wrong += loads[t->run->load].emptied ? empty(t, first, last) : 0;
    pthread_barrier_wait(worker->meet);
    t->stretches[worker->index].begin = ga_bench_now();
    for (uint64_t i = first; i < last; i++) {
        bool right = i % SAMPLE ? call(t, i) : timed_call(t, i, &t->times[worker->index]);
        wrong += !right;
    }
    t->stretches[worker->index].end = ga_bench_now();
    pthread_barrier_wait(worker->meet);
    pthread_barrier_wait(worker->meet); /* memory has been measured */
    wrong += empty_behind(t, first, last);
    if (s->leave) {
        s->leave();
    }
    __atomic_fetch_add(&t->wrong, wrong, __ATOMIC_RELAXED); /* relaxed: a sum */
}

/* ---- figures -------------------------------------------------------------------------------- */

static double mebibytes(size_t bytes, size_t less)
{
    return bytes > less ? (double)(bytes - less) / (1 << 20) : 0;
}

static void read_percentiles(task *t, ga_bench_report *report)
{
    static const double quantiles[] = {0.5, 0.99, 0.999};
    ga_bench_clock clock = ga_bench_clock_calibrate();
    for (unsigned i = 1; i < t->run->threads; i++) {
        ga_bench_histogram_merge(&t->times[0], &t->times[i]);
    }
    for (size_t i = 0; i < 3; i++) {
        double ns = ga_bench_histogram_quantile(&t->times[0], quantiles[i], clock.step);
        report->values[P50 + i] = ns > clock.cost ? ns - clock.cost : 0;
    }
}

/* From the first call of all threads to the last. */
static double throughput(const task *t)
{
    stretch whole = t->stretches[0];
    for (unsigned i = 1; i < t->run->threads; i++) {
        const stretch *one = &t->stretches[i];
        whole.begin = one->begin < whole.begin ? one->begin : whole.begin;
        whole.end = one->end > whole.end ? one->end : whole.end;
    }
    return (double)t->run->keys * 1e3 / (double)(whole.end - whole.begin + 1);
}

static void read_counters(const task *t, ga_bench_report *report)
{
    ga_lfht_stats stats = {0};
    bool counted = t->run->subject->stats && t->run->shape.count;
    if (counted) {
        t->run->subject->stats(t->map, &stats);
    }
    report->values[PATH] = stats.lookups ? (double)stats.hops / (double)stats.lookups : NAN;
    report->values[EXPANSIONS] = counted ? (double)stats.expansions : NAN;
}

/* Give all free memory back to the system, if the allocator has a call for that. */
static void give_back(const task *t, ga_heap *heap)
{
    if (t->run->subject->drain) {
        t->run->subject->drain(t->map);
    }
    if (heap) {
        ga_trim(heap, 0);
    }
    malloc_trim(0);
}

/* Held bytes by the heap's own count; NAN without one. */
static double held_by(const ga_heap *heap)
{
    ga_stats stats;
    bool known = heap && ga_heap_stats(heap, &stats) == GA_OK && stats.held_bytes;
    return known ? mebibytes(stats.held_bytes, 0) : NAN;
}

static ga_status run_team(task *t, ga_heap *heap, size_t resident, ga_bench_report *report)
{
    ga_bench_team team;
    ga_bench_case run = {.heap = heap, .threads = t->run->threads, .seed = 1};
    ga_bench_misses misses = ga_bench_misses_begin(); /* the threads inherit it */
    ga_status status = ga_bench_team_start(&team, &run, duty, t);
    if (status != GA_OK) {
        return status;
    }
    ga_bench_team_meet(&team);
    ga_bench_misses_start(&misses);
    ga_bench_team_meet(&team);
    report->values[MISSES] = ga_bench_misses_end(&misses) / (double)t->run->keys;
    report->values[THROUGHPUT] = throughput(t);
    report->values[RESIDENT] = mebibytes(ga_bench_resident(), resident);
    read_counters(t, report);
    ga_bench_team_meet(&team);
    return ga_bench_team_join(&team);
}

static ga_status measure_map(task *t, ga_heap *heap, size_t resident, ga_bench_report *report)
{
    const ga_bench_subject *s = t->run->subject;
    t->map = s->open(s, heap, &t->run->shape, t->run->keys);
    if (!t->map) {
        return GA_ERR_MEMORY;
    }
    ga_status status = run_team(t, heap, resident, report);
    if (status != GA_OK) {
        return status;
    }
    give_back(t, heap);
    report->values[EMPTIED] = mebibytes(ga_bench_resident(), resident);
    report->values[HELD] = held_by(heap);
    s->close(t->map);
    return t->wrong ? ga_fail(GA_ERR_LIBRARY, "%s, %s: %llu wrong answers", s->name,
                              loads[t->run->load].name, (unsigned long long)t->wrong)
                    : GA_OK;
}

ga_status ga_bench_lfht_measure(void *context, ga_bench_report *report)
{
    task t = {.run = context};
    ga_heap *heap = NULL;
    t.times = ga_bench_space(t.run->threads * sizeof *t.times);
    t.stretches = ga_bench_space(t.run->threads * sizeof *t.stretches);
    if (!t.times || !t.stretches) {
        return GA_ERR_MEMORY;
    }
    size_t resident = ga_bench_resident();
    ga_status status =
        t.run->subject->on_heap ? ga_heap_open(&heap, GA_PLACE_HOST, 0, t.run->heap) : GA_OK;
    if (status == GA_OK) {
        status = measure_map(&t, heap, resident, report);
    }
    if (status == GA_OK) {
        read_percentiles(&t, report);
        status = ga_heap_close(heap);
    }
    return status;
}
