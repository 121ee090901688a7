/* SPDX-License-Identifier: MIT
 *
 * The clock, the threads and the only way to fail.
 */
#include "stress.h"

#include "support/random.h"

#include <err.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifndef STRESS_SECONDS
#define STRESS_SECONDS 2
#endif

enum {
    HANG_SECONDS =
        100, /* added to the time; sanitizers and emulators are slow, but not that slow */
    THREADS_MAX = 512
};

/* Set before there are threads. */
static struct timespec deadline;
static bool interrupting;

/* True from the signal to a thread until the thread has slept. A thread gets no other signal in
 * that time: on a busy machine it would do nothing but sleep. */
static bool interrupted[THREADS_MAX];

/* Lets other threads run. To yield is not enough: on one CPU the scheduler often runs the yielding
 * thread again. */
static void sleep_shortly(int number, siginfo_t *info, void *context)
{
    int error = errno;
    (void)number;
    (void)context;
    nanosleep(&(struct timespec){0, 1000}, NULL); /* 1 us */
    errno = error;
    /* relaxed: publishes nothing */
    __atomic_store_n((bool *)info->si_value.sival_ptr, false, __ATOMIC_RELAXED);
}

void stress_start(int argc, char **argv, bool interrupts)
{
    double seconds = argc > 1 ? strtod(argv[1], NULL) : STRESS_SECONDS;
    if (argc > 2 || !(seconds > 0 && seconds < 1e6)) {
        errx(2, "usage: %s [SECONDS]", argv[0]);
    }
    alarm((unsigned)seconds + HANG_SECONDS);
    clock_gettime(CLOCK_MONOTONIC, &deadline);
    deadline.tv_sec += (time_t)seconds;
    deadline.tv_nsec += (long)((seconds - (double)(time_t)seconds) * 1e9);
    if (deadline.tv_nsec >= 1000000000) {
        deadline.tv_nsec -= 1000000000;
        deadline.tv_sec++;
    }
    interrupting = interrupts;
    struct sigaction action = {.sa_sigaction = sleep_shortly, .sa_flags = SA_RESTART | SA_SIGINFO};
    stress_need(!interrupts || sigaction(SIGURG, &action, NULL) == 0, "a signal handler");
}

bool stress_goes_on(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec < deadline.tv_sec ||
           (now.tv_sec == deadline.tv_sec && now.tv_nsec < deadline.tv_nsec);
}

void stress_need(bool holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "%s (last error: %s)\n", what, ga_error_text());
        _Exit(1);
    }
}

ga_heap *stress_open(const char *spec)
{
    ga_heap *heap = NULL;
    stress_need(ga_heap_open(&heap, GA_PLACE_HOST, 0, spec) == GA_OK, spec);
    return heap;
}

/* ---- threads ------------------------------------------------------------------------------ */

typedef struct job {
    void (*body)(size_t number);
    size_t number;
} job;

static void *run_job(void *context)
{
    job *j = context;
    j->body(j->number);
    return NULL;
}

/* Interrupt threads at random moments until all have ended. So a race of a few instructions is lost
 * even if the machine has one CPU to spare, on which threads are rarely interrupted otherwise. */
static void interrupt(const pthread_t *threads, size_t count)
{
    bool ended[THREADS_MAX] = {false};
    uint64_t random = 1;
    memset(interrupted, 0, sizeof interrupted);
    for (size_t running = count; running > 0;) {
        size_t i = random_below(&random, count);
        while (ended[i]) {
            i = (i + 1) % count;
        }
        if (pthread_tryjoin_np(threads[i], NULL) == 0) {
            ended[i] = true;
            running--;
            continue;
        }
        if (!__atomic_load_n(&interrupted[i], __ATOMIC_RELAXED)) {
            __atomic_store_n(&interrupted[i], true, __ATOMIC_RELAXED);
            pthread_sigqueue(threads[i], SIGURG, (union sigval){.sival_ptr = &interrupted[i]});
        }
        nanosleep(&(struct timespec){0, (long)random_below(&random, 100000)}, NULL); /* ns */
    }
}

void stress_threads(size_t count, void (*body)(size_t number))
{
    pthread_t threads[THREADS_MAX];
    job jobs[THREADS_MAX];
    stress_need(count <= THREADS_MAX, "fewer threads");
    for (size_t i = 0; i < count; i++) {
        jobs[i] = (job){body, i};
        stress_need(pthread_create(&threads[i], NULL, run_job, &jobs[i]) == 0, "a thread");
    }
    if (interrupting) {
        interrupt(threads, count);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
    }
}
