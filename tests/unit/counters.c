/* SPDX-License-Identifier: MIT
 *
 * The counters alone: sums are exact for any use by threads; the peak is within its documented
 * error.
 */
#include "runtime/counters.h"

#include "support/expect.h"

#include <inttypes.h>
#include <pthread.h>
#include <string.h>

enum {
    SLOTS = 256, /* as in runtime/counters.c */
    STRIDE = 64 * 1024
};

static ga_counters *counters;
static ga_stats stats;

static void begin(void)
{
    counters = ga_counters_new();
    cr_assert_not_null(counters);
}

static void read_stats(void)
{
    memset(&stats, 0xff, sizeof stats);
    ga_counters_read(counters, &stats);
}

static void expect_sums(uint64_t allocs, uint64_t frees, uint64_t requested, uint64_t granted,
                        uint64_t live_bytes)
{
    read_stats();
    cr_assert_eq(stats.allocs, allocs, "allocs %" PRIu64, stats.allocs);
    cr_assert_eq(stats.frees, frees, "frees %" PRIu64, stats.frees);
    cr_assert_eq(stats.live_blocks, allocs - frees, "live_blocks %" PRIu64, stats.live_blocks);
    cr_assert_eq(stats.requested_bytes, requested, "requested %" PRIu64, stats.requested_bytes);
    cr_assert_eq(stats.granted_bytes, granted, "granted %" PRIu64, stats.granted_bytes);
    cr_assert_eq(stats.live_bytes, live_bytes, "live_bytes %" PRIu64, stats.live_bytes);
}

/* ---- one thread --------------------------------------------------------------------------- */

Test(counters, begin_with_nothing)
{
    begin();
    expect_sums(0, 0, 0, 0, 0);
    cr_assert_eq(stats.reallocs + stats.failures + stats.peak_bytes, 0);
    cr_assert_eq(stats.held_bytes + stats.growths, 0);
    ga_counters_delete(counters);
}

Test(counters, are_exact_in_one_thread)
{
    begin();
    ga_counters_alloc(counters, 100, 112);
    ga_counters_alloc(counters, 10, 16);
    expect_sums(2, 0, 110, 128, 128);
    ga_counters_free(counters, 112);
    expect_sums(2, 1, 110, 128, 16);
    ga_counters_resize(counters, 30, 16, 32);
    expect_sums(2, 1, 140, 160, 32);
    ga_counters_resize(counters, 1, 32, 16);
    expect_sums(2, 1, 141, 176, 16);
    ga_counters_failure(counters);
    ga_counters_failure(counters);
    expect_sums(2, 1, 141, 176, 16);
    cr_assert_eq(stats.reallocs, 2);
    cr_assert_eq(stats.failures, 2);
    ga_counters_delete(counters);
}

static void expect_peak(uint64_t truth, uint64_t threads)
{
    read_stats();
    uint64_t slack = threads * STRIDE;
    cr_assert_geq(stats.peak_bytes + slack, truth, "peak %" PRIu64, stats.peak_bytes);
    cr_assert_leq(stats.peak_bytes, truth + slack, "peak %" PRIu64, stats.peak_bytes);
    cr_assert_geq(stats.peak_bytes, stats.live_bytes);
}

/* Small blocks, so that a slot reports the peak in strides; then down, and only half up again. */
Test(counters, the_peak_is_within_a_stride)
{
    begin();
    for (int i = 0; i < 10000; i++) {
        ga_counters_alloc(counters, 100, 100);
    }
    for (int i = 0; i < 10000; i++) {
        ga_counters_free(counters, 100);
    }
    for (int i = 0; i < 5000; i++) {
        ga_counters_alloc(counters, 100, 100);
    }
    expect_peak(1000000, 1);
    cr_assert_eq(stats.live_bytes, 500000);
    ga_counters_delete(counters);
}

Test(counters, large_blocks_are_in_the_peak_at_once)
{
    begin();
    ga_counters_alloc(counters, 1 << 30, 1 << 30);
    ga_counters_free(counters, 1 << 30);
    read_stats();
    cr_assert_eq(stats.peak_bytes, 1 << 30);
    ga_counters_delete(counters);
}

/* ---- many threads ------------------------------------------------------------------------- */

enum {
    THREADS = 8,
    ROUNDS = 20000
};

/* Each thread keeps every second of its blocks, and frees half of these at the end. */
static void *churn(void *unused)
{
    (void)unused;
    for (int i = 0; i < ROUNDS; i++) {
        ga_counters_alloc(counters, 50, 64);
        ga_counters_alloc(counters, 50, 64);
        ga_counters_free(counters, 64);
        if (i % 10 == 0) {
            ga_counters_failure(counters);
        }
    }
    for (int i = 0; i < ROUNDS / 2; i++) {
        ga_counters_free(counters, 64);
    }
    return NULL;
}

static void run_threads(int count, void *(*body)(void *))
{
    static pthread_t threads[SLOTS * 2];
    for (int i = 0; i < count; i++) {
        cr_assert_eq(pthread_create(&threads[i], NULL, body, NULL), 0);
    }
    for (int i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
    }
}

Test(counters, sums_are_exact_over_threads)
{
    begin();
    run_threads(THREADS, churn);
    uint64_t n = (uint64_t)THREADS * ROUNDS;
    expect_sums(2 * n, n + n / 2, 100 * n, 128 * n, n / 2 * 64);
    cr_assert_eq(stats.failures, n / 10);
    ga_counters_delete(counters);
}

static pthread_barrier_t barrier;

/* All threads are at their peak at once. */
static void *climb(void *unused)
{
    (void)unused;
    for (int i = 0; i < 1000; i++) {
        ga_counters_alloc(counters, 256, 256);
    }
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < 1000; i++) {
        ga_counters_free(counters, 256);
    }
    return NULL;
}

Test(counters, the_peak_is_within_a_stride_for_each_thread)
{
    begin();
    pthread_barrier_init(&barrier, NULL, THREADS);
    run_threads(THREADS, climb);
    expect_sums(THREADS * 1000, THREADS * 1000, THREADS * 256000, THREADS * 256000, 0);
    expect_peak(THREADS * 256000, THREADS);
    ga_counters_delete(counters);
}

static void *once(void *unused)
{
    (void)unused;
    ga_counters_alloc(counters, 1, 8);
    ga_counters_free(counters, 8);
    ga_counters_alloc(counters, 1, 8);
    return NULL;
}

/* Threads that ended leave their sums; their slots go to the next. */
Test(counters, more_threads_in_turn_than_slots)
{
    begin();
    for (int i = 0; i < SLOTS * 4; i++) {
        run_threads(1, once);
    }
    expect_sums(SLOTS * 8, SLOTS * 4, SLOTS * 8, SLOTS * 64, SLOTS * 32);
    ga_counters_delete(counters);
}

static void *alloc_and_free(void *unused)
{
    (void)unused;
    ga_counters_alloc(counters, 100, 100);
    ga_counters_free(counters, 100);
    return NULL;
}

/* A thread with a slot of its own reports the peak in strides, and one without reports it at once.
 * This shows that a thread that begins after many others has a slot. */
Test(counters, slots_are_given_back)
{
    begin();
    for (int i = 0; i < SLOTS * 2; i++) {
        run_threads(1, once);
    }
    ga_counters_delete(counters);
    begin();
    run_threads(1, alloc_and_free);
    expect_sums(1, 1, 100, 100, 0);
    cr_assert_eq(stats.peak_bytes, 0, "%" PRIu64, stats.peak_bytes);
    ga_counters_delete(counters);
}

static void *meet(void *unused)
{
    once(unused);
    pthread_barrier_wait(&barrier);
    return once(unused);
}

/* More threads alive at once than slots: the rest share one. */
Test(counters, more_threads_at_once_than_slots)
{
    enum {
        MANY = SLOTS + 44
    };
    begin();
    pthread_barrier_init(&barrier, NULL, MANY);
    run_threads(MANY, meet);
    expect_sums(MANY * 4, MANY * 2, MANY * 4, MANY * 32, MANY * 16);
    ga_counters_delete(counters);
}

/* Two heaps that one thread counts do not mix. */
Test(counters, sets_are_apart)
{
    begin();
    ga_counters *other = ga_counters_new();
    ga_counters_alloc(other, 5, 5);
    expect_sums(0, 0, 0, 0, 0);
    ga_counters_delete(other);
    ga_counters_delete(counters);
}

/* Another thread than the allocating one frees the blocks: its slot counts more frees than
 * allocations. */
static void *free_all(void *unused)
{
    (void)unused;
    for (int i = 0; i < 1000; i++) {
        ga_counters_free(counters, 1000);
    }
    return NULL;
}

Test(counters, blocks_move_between_threads)
{
    begin();
    for (int i = 0; i < 1000; i++) {
        ga_counters_alloc(counters, 1000, 1000);
    }
    run_threads(1, free_all);
    expect_sums(1000, 1000, 1000000, 1000000, 0);
    expect_peak(1000000, 2);
    ga_counters_delete(counters);
}
