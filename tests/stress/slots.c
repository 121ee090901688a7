/* SPDX-License-Identifier: MIT
 *
 * Counter slots that threads reuse: waves of short threads, more in a wave than there are slots,
 * while a reader adds them up. Sums never decrease, and at the end no count is lost.
 */
#include "stress.h"

#include "runtime/counters.h"

#include <pthread.h>
#include <stdio.h>

enum {
    WAVE = 300, /* over the 256 slots of runtime/counters.c */
    ROUNDS = 2000,
    STRIDE = 64 * 1024
};

static ga_counters *counters;
static pthread_barrier_t together;
static bool over; /* relaxed: read until it is seen */

static void *watch(void *unused)
{
    ga_stats before = {0};
    ga_stats now;
    (void)unused;
    while (!__atomic_load_n(&over, __ATOMIC_RELAXED)) {
        ga_counters_read(counters, &now);
        stress_need(now.allocs >= before.allocs && now.frees >= before.frees, "sums went down");
        stress_need(now.peak_bytes >= before.peak_bytes - STRIDE * WAVE ||
                        before.peak_bytes < STRIDE * WAVE,
                    "the peak went down");
        before = now;
    }
    return NULL;
}

/* All threads have their own slot, or none, before any continues: some share a slot while they
 * count. */
static void count(size_t number)
{
    ga_counters_failure(counters);
    pthread_barrier_wait(&together);
    for (int i = 0; i < ROUNDS; i++) {
        ga_counters_alloc(counters, 10, 16);
        ga_counters_alloc(counters, 10, 1024 + number % 2);
        ga_counters_free(counters, 16);
        ga_counters_resize(counters, 10, 1024 + number % 2, 1024);
        ga_counters_failure(counters);
        ga_counters_free(counters, 1024);
    }
}

static void need_count(uint64_t got, uint64_t expected, const char *what)
{
    if (got != expected) {
        fprintf(stderr, "%s: %llu, expected %llu\n", what, (unsigned long long)got,
                (unsigned long long)expected);
        stress_need(false, "a count is wrong");
    }
}

int main(int argc, char **argv)
{
    pthread_t reader;
    ga_stats stats;
    uint64_t threads = 0;
    counters = ga_counters_new();
    pthread_barrier_init(&together, NULL, WAVE);
    stress_begin(argc, argv);
    stress_need(pthread_create(&reader, NULL, watch, NULL) == 0, "a thread");
    while (stress_goes_on()) {
        stress_threads(WAVE, count);
        threads += WAVE;
    }
    __atomic_store_n(&over, true, __ATOMIC_RELAXED);
    pthread_join(reader, NULL);
    ga_counters_read(counters, &stats);
    need_count(stats.allocs, threads * ROUNDS * 2, "allocs");
    need_count(stats.frees, threads * ROUNDS * 2, "frees");
    need_count(stats.reallocs, threads * ROUNDS, "reallocs");
    need_count(stats.failures, threads * (ROUNDS + 1), "failures");
    need_count(stats.requested_bytes, threads * ROUNDS * 30, "requested_bytes");
    need_count(stats.live_bytes, 0, "live_bytes");
    stress_need(stats.peak_bytes <= (uint64_t)WAVE * (1100 + STRIDE), "the peak is too high");
    ga_counters_delete(counters);
    return 0;
}
