/* SPDX-License-Identifier: MIT
 *
 * Misses of the last-level cache, by the processor's counter, of a process and the threads that it
 * starts later. NAN if the kernel or the machine has no such counter.
 */
#ifndef BENCH_LFHT_MISSES_H
#define BENCH_LFHT_MISSES_H

typedef struct ga_bench_misses {
    int file; /* -1: there is no counter */
} ga_bench_misses;

/* Before the threads start. */
ga_bench_misses ga_bench_misses_begin(void);

/* Count from here on, in all of them. */
void ga_bench_misses_start(ga_bench_misses *misses);

/* Number of misses since ga_bench_misses_start(). */
double ga_bench_misses_end(ga_bench_misses *misses);

#endif
