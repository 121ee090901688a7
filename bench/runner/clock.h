/* SPDX-License-Identifier: MIT
 *
 * The clock, and the cost of reading it.
 */
#ifndef BENCH_RUNNER_CLOCK_H
#define BENCH_RUNNER_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t ga_bench_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

typedef struct ga_bench_clock {
    double cost; /* ns between two consecutive readings: the median */
    double step; /* ns that the clock moves at a time */
} ga_bench_clock;

/* Measures for a few milliseconds. */
ga_bench_clock ga_bench_clock_calibrate(void);

#endif
