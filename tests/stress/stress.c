/* SPDX-License-Identifier: MIT
 *
 * The clock, the threads and the only way to fail.
 */
#include "stress.h"

#include <err.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
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

static struct timespec deadline; /* set before there are threads */

void stress_begin(int argc, char **argv)
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

void stress_threads(size_t count, void (*body)(size_t number))
{
    pthread_t threads[THREADS_MAX];
    job jobs[THREADS_MAX];
    stress_need(count <= THREADS_MAX, "fewer threads");
    for (size_t i = 0; i < count; i++) {
        jobs[i] = (job){body, i};
        stress_need(pthread_create(&threads[i], NULL, run_job, &jobs[i]) == 0, "a thread");
    }
    for (size_t i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
    }
}
