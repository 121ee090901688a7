/* SPDX-License-Identifier: MIT
 *
 * What one call of a driver function costs, where it is passed on: the driver for tests counts and
 * answers at once, so that the rest is the preload's. Prints nanoseconds per call.
 *
 *   cuda-calls COUNT FUNCTION [THREADS]
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef int function(uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d, uintptr_t e, uintptr_t f);

enum {
    MOST_THREADS = 64
};

static function *called;
static long count;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static void *call(void *argument)
{
    for (long i = 0; i < count; i++) {
        called(11, 22, 33, 44, 55, 66);
    }
    return argument;
}

static double measure(int threads)
{
    pthread_t all[MOST_THREADS];
    double start = now();
    for (int i = 0; i < threads; i++) {
        if (pthread_create(&all[i], NULL, call, NULL)) {
            return -1;
        }
    }
    for (int i = 0; i < threads; i++) {
        pthread_join(all[i], NULL);
    }
    return (now() - start) / (double)count;
}

int main(int argc, char **argv)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    int threads = argc > 3 ? atoi(argv[3]) : 1;
    if (argc < 3 || !driver || threads < 1 || threads > MOST_THREADS) {
        fprintf(stderr, "usage: cuda-calls COUNT FUNCTION [THREADS], with the driver for tests\n");
        return 2;
    }
    count = atol(argv[1]);
    *(void **)&called = dlsym(driver, argv[2]);
    void (*echo)(bool on) = NULL;
    *(void **)&echo = dlsym(driver, "stand_in_echo");
    if (!called || !echo) {
        fprintf(stderr, "cuda-calls: no %s\n", argv[2]);
        return 2;
    }
    echo(true);
    printf("%.2f\n", measure(threads));
    return 0;
}
