/* SPDX-License-Identifier: MIT
 *
 * Variants of a vector of 8-byte numbers on the host that grows by doubling, and the cost of
 * filling it.
 */
#ifndef BENCH_ARENA_WAYS_H
#define BENCH_ARENA_WAYS_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    GROWTH_FIRST = 512, /* elements at first: a page */
    GROWTH_WAYS = 4,
    GROWTH_FIRST_BASELINE = 2, /* variants from this index on are baselines */
    GROWTHS_MAX = 64           /* by doubling there are no more */
};

/* In seconds. */
typedef struct growth_cost {
    double all;               /* from the empty vector to the full one */
    double growing;           /* of that, in calls that grow */
    double worst;             /* the longest of these */
    double peak;              /* most resident bytes divided by the vector's final bytes */
    uint32_t count;           /* of calls that made room, */
    double each[GROWTHS_MAX]; /* seconds of each */
} growth_cost;

typedef struct growth_way {
    const char *name;
    bool (*fill)(uint64_t n, growth_cost *cost); /* 0, 1, 2, ... n - 1; false: refused, or wrong */
} growth_way;

extern const growth_way growth_ways[GROWTH_WAYS];

bool growth_fill_std_vector(uint64_t n, growth_cost *cost);

static inline double growth_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static inline void growth_note(growth_cost *cost, double seconds)
{
    cost->growing += seconds;
    cost->worst = seconds > cost->worst ? seconds : cost->worst;
    if (cost->count < GROWTHS_MAX) {
        cost->each[cost->count++] = seconds;
    }
}

/* Whether the numbers are there, one in each page. */
static inline bool growth_holds(const uint64_t *data, uint64_t n)
{
    for (uint64_t i = 0; i < n; i += GROWTH_FIRST) {
        if (data[i] != i) {
            return false;
        }
    }
    return n == 0 || data[n - 1] == n - 1;
}

#ifdef __cplusplus
}
#endif
#endif
