/* SPDX-License-Identifier: MIT
 *
 * Measures the cost of one call of a driver function. The driver for tests counts and returns at
 * once, so that the rest is the cost of the preload; a real driver gets a call that it serves
 * quickly. Prints nanoseconds per call.
 *
 *   cuda-calls COUNT FUNCTION [THREADS]
 *
 * "first-block" in place of a function: the time of the process's first allocation, with the
 * context created before. Exit status 77 without a driver or a device.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef int function(uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d, uintptr_t e, uintptr_t f);

enum {
    THREADS_MAX = 64,
    WORDS = 6,
    RELEASE_THRESHOLD = 4, /* of a pool */
    MEMORY_TYPE = 2,       /* of a pointer */
    SKIP = 77
};

static function *called;
static long count;
static uintptr_t words[WORDS] = {11, 22, 33, 44, 55, 66}; /* what the driver for tests expects */

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static void *call(void *argument)
{
    for (long i = 0; i < count; i++) {
        called(words[0], words[1], words[2], words[3], words[4], words[5]);
    }
    return argument;
}

static double measure(int threads)
{
    pthread_t all[THREADS_MAX];
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

/* ---- a real driver ------------------------------------------------------------------------- */

static void *driver;

/* Exits if the function is missing. */
static function *find(const char *name)
{
    function *found = NULL;
    *(void **)&found = dlsym(driver, name);
    if (!found) {
        fprintf(stderr, "cuda-calls: no %s\n", name);
        exit(2);
    }
    return found;
}

static void need(const char *what, int result)
{
    if (result) {
        fprintf(stderr, "cuda-calls: %s: %d\n", what, result);
        exit(SKIP);
    }
}

static uintptr_t word(void *pointer)
{
    return (uintptr_t)pointer;
}

static void make_context(void)
{
    static uintptr_t context;
    need("cuInit", find("cuInit")(0, 0, 0, 0, 0, 0));
    need("cuDevicePrimaryCtxRetain",
         find("cuDevicePrimaryCtxRetain")(word(&context), 0, 0, 0, 0, 0));
    need("cuCtxSetCurrent", find("cuCtxPushCurrent_v2")(context, 0, 0, 0, 0, 0));
}

static uintptr_t make_block(void)
{
    static uintptr_t block;
    need("cuMemAlloc", find("cuMemAlloc_v2")(word(&block), 1 << 20, 0, 0, 0, 0));
    return block;
}

static double first_block(void)
{
    make_context();
    double start = now();
    make_block();
    return now() - start;
}

/* Arguments of a query that the driver can answer from its own records. */
static void set_words(const char *name)
{
    static uint64_t answer[2];
    static uintptr_t pool;
    make_context();
    memset(words, 0, sizeof words);
    if (strcmp(name, "cuMemPoolGetAttribute") == 0) {
        need("cuDeviceGetDefaultMemPool",
             find("cuDeviceGetDefaultMemPool")(word(&pool), 0, 0, 0, 0, 0));
        words[0] = pool;
        words[1] = RELEASE_THRESHOLD;
        words[2] = word(answer);
    } else if (strcmp(name, "cuPointerGetAttribute") == 0) {
        words[0] = word(answer);
        words[1] = MEMORY_TYPE;
        words[2] = make_block();
    } else if (strcmp(name, "cuMemGetAddressRange_v2") == 0) {
        words[0] = word(&answer[0]);
        words[1] = word(&answer[1]);
        words[2] = make_block();
    } else {
        fprintf(stderr, "cuda-calls: %s is not asked of a real driver\n", name);
        exit(2);
    }
    need(name, called(words[0], words[1], words[2], words[3], words[4], words[5]));
}

static double calls(const char *name, int threads)
{
    void (*echo)(bool on) = NULL;
    *(void **)&echo = dlsym(driver, "stand_in_echo");
    called = find(name);
    if (echo) {
        echo(true);
    } else {
        set_words(name);
    }
    return measure(threads);
}

int main(int argc, char **argv)
{
    int threads = argc > 3 ? atoi(argv[3]) : 1;
    if (argc < 3 || threads < 1 || threads > THREADS_MAX) {
        fprintf(stderr, "usage: cuda-calls COUNT FUNCTION [THREADS]\n");
        return 2;
    }
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) {
        fprintf(stderr, "cuda-calls: %s\n", dlerror());
        return SKIP;
    }
    count = atol(argv[1]);
    bool first = strcmp(argv[2], "first-block") == 0;
    printf("%.2f\n", first ? first_block() : calls(argv[2], threads));
    return 0;
}
