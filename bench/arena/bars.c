/* SPDX-License-Identifier: MIT
 *
 * The bars: limits on the results of every allocator that is not a baseline.
 */
#include "device.h"

#include <math.h>
#include <string.h>

typedef enum kind {
    AT_MOST = 0,
    AT_LEAST,
    TIMES_POOL /* limit as a multiple of the value of each of the driver's pools in this run */
} kind;

typedef struct bar {
    const char *bench, *metric;
    kind kind;
    double limit;
} bar;

static const bar bars[] = {
    {"warm", "pair", AT_MOST, 2},
    {"brim", "largest", AT_LEAST, 1},
    {"holes", "largest", AT_LEAST, 1},
    {"replay-torch", "call", TIMES_POOL, 1},
    {"replay-torch", "first-call", TIMES_POOL, 1},
    {"replay-torch", "held", AT_MOST, 1.05},
    {"replay-rmm", "call", TIMES_POOL, 1},
    {"replay-rmm", "first-call", TIMES_POOL, 1},
    {"replay-rmm", "held", AT_MOST, 1.05},
    {"replay-file", "call", TIMES_POOL, 1},
    {"replay-file", "held", AT_MOST, 1.05},
};

static bool begins(const char *spec, const char *with)
{
    return strncmp(spec, with, strlen(with)) == 0;
}

/* `async` and `cudaMallocAsync`, with any options. */
static bool is_pool(const char *spec)
{
    return begins(spec, "async") || begins(spec, "cudaMallocAsync");
}

static bool is_baseline(const char *spec)
{
    return begins(spec, "cuda") || is_pool(spec);
}

static bool is_about(const bar *b, const ga_bench_result *result)
{
    return strcmp(b->bench, result->bench) == 0 && strcmp(b->metric, result->metric->name) == 0;
}

/* NAN, which means no figure, is never within the bar. */
static bool is_within(const bar *b, double value)
{
    return b->kind == AT_LEAST ? value >= b->limit : value <= b->limit;
}

static void print_head(FILE *out, const ga_bench_result *own)
{
    fprintf(out, "bar: %s", own->bench);
    if (own->size) {
        fprintf(out, " %s", ga_bench_size_text_of(own->size).text);
    }
    fprintf(out, ", %s: %s %.4f %s", own->spec, own->metric->name, own->value, own->metric->unit);
}

static unsigned print_verdict(FILE *out, const bar *b, double value)
{
    bool within = is_within(b, value);
    fprintf(out, ", at %s %g: %s", b->kind == AT_LEAST ? "least" : "most", b->limit,
            within ? "held" : "missed");
    return !within;
}

static bool same_case(const ga_bench_result *a, const ga_bench_result *b)
{
    return a->metric == b->metric && a->size == b->size;
}

/* Print the baselines' own figures, so that the line is complete by itself. */
static unsigned print_alone(FILE *out, const bar *b, const ga_bench_result *own,
                            const ga_bench_results *results)
{
    print_head(out, own);
    unsigned missed = print_verdict(out, b, own->value);
    for (size_t i = 0; i < results->count; i++) {
        const ga_bench_result *other = &results->list[i];
        if (same_case(own, other) && is_baseline(other->spec)) {
            fprintf(out, "; %s %.4f", other->spec, other->value);
        }
    }
    fputc('\n', out);
    return missed;
}

static unsigned print_beside_pools(FILE *out, const bar *b, const ga_bench_result *own,
                                   const ga_bench_results *results)
{
    unsigned missed = 0;
    for (size_t i = 0; i < results->count; i++) {
        const ga_bench_result *other = &results->list[i];
        if (same_case(own, other) && is_pool(other->spec)) {
            double times = other->value > 0 ? own->value / other->value : (double)NAN;
            print_head(out, own);
            fprintf(out, ", %.2f times %s's %.4f", times, other->spec, other->value);
            missed += print_verdict(out, b, times);
            fputc('\n', out);
        }
    }
    return missed;
}

unsigned arena_bars_print(FILE *out, const ga_bench_results *results)
{
    unsigned missed = 0;
    for (size_t i = 0; i < results->count; i++) {
        const ga_bench_result *own = &results->list[i];
        for (size_t b = 0; b < sizeof bars / sizeof *bars; b++) {
            if (is_about(&bars[b], own) && !is_baseline(own->spec)) {
                missed += bars[b].kind == TIMES_POOL
                              ? print_beside_pools(out, &bars[b], own, results)
                              : print_alone(out, &bars[b], own, results);
            }
        }
    }
    return missed;
}
