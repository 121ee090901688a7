/* SPDX-License-Identifier: MIT
 *
 * bench-unmapping: how long the driver takes to have small chunks back, which is what a heap that
 * is full pays for large blocks in the place of small ones. In several ways; each for chunks whose
 * addresses touch, while others are mapped.
 *
 *     bench-unmapping [--chunks N] [--others N] [--rounds N]
 *
 * Prints microseconds for a chunk, the median over the rounds, the least and the most. Exit status
 * 1 where a call failed, 2 for usage, 77 where there is no device.
 */
#include "platform/cuda_driver.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    MOST_CHUNKS = 4096,
    MOST_OTHERS = 1 << 17,
    MOST_ROUNDS = 101,
    MOST_THREADS = 4,
    SKIP = 77
};

typedef struct stretch {
    CUdeviceptr base;
    size_t count;
    CUmemGenericAllocationHandle *handles; /* of its chunks, in order */
} stretch;

static const ga_cuda_driver *cuda;
static CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                   .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
static CUmemAccessDesc access_all = {{CU_MEM_LOCATION_TYPE_DEVICE, 0},
                                     CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
static size_t granule;

static void must(CUresult result, const char *call)
{
    if (ga_cuda_check(cuda, result, call) != GA_OK) {
        fprintf(stderr, "bench-unmapping: %s\n", ga_error_text());
        exit(1);
    }
}

#define MUST(name, ...) must(cuda->name(__VA_ARGS__), #name)

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1e3;
}

/* ---- chunks ------------------------------------------------------------------------------ */

static stretch reserve(size_t count)
{
    stretch s = {0, count, calloc(count ? count : 1, sizeof *s.handles)};
    MUST(cuMemAddressReserve, &s.base, (count + 1) * granule, 0, 0, 0);
    return s;
}

static CUdeviceptr at(const stretch *s, size_t i)
{
    return s->base + i * granule;
}

static void map(const stretch *s)
{
    for (size_t i = 0; i < s->count; i++) {
        MUST(cuMemCreate, &s->handles[i], granule, &prop, 0);
        MUST(cuMemMap, at(s, i), granule, 0, s->handles[i], 0);
        MUST(cuMemSetAccess, at(s, i), granule, &access_all, 1);
    }
}

static void unmap_each(const stretch *s)
{
    for (size_t i = 0; i < s->count; i++) {
        MUST(cuMemUnmap, at(s, i), granule);
    }
}

static void release_each(const stretch *s)
{
    for (size_t i = 0; i < s->count; i++) {
        MUST(cuMemRelease, s->handles[i]);
    }
}

/* ---- ways -------------------------------------------------------------------------------- */

static void one_by_one(const stretch *s)
{
    for (size_t i = 0; i < s->count; i++) {
        MUST(cuMemUnmap, at(s, i), granule);
        MUST(cuMemRelease, s->handles[i]);
    }
}

static void unmap_then_release(const stretch *s)
{
    unmap_each(s);
    release_each(s);
}

/* The memory goes with the last of its mappings. */
static void release_then_unmap(const stretch *s)
{
    release_each(s);
    unmap_each(s);
}

static void unmap_at_once(const stretch *s)
{
    MUST(cuMemUnmap, s->base, s->count * granule);
    release_each(s);
}

static void release_then_unmap_at_once(const stretch *s)
{
    release_each(s);
    MUST(cuMemUnmap, s->base, s->count * granule);
}

static void *in_thread(void *argument)
{
    ga_cuda_scope scope;
    if (ga_cuda_enter(&scope, 0) == GA_OK) {
        one_by_one(argument);
        ga_cuda_leave(&scope);
    }
    return NULL;
}

static void in_threads(const stretch *s, size_t threads)
{
    pthread_t all[MOST_THREADS];
    stretch parts[MOST_THREADS];
    size_t from = 0;
    for (size_t i = 0; i < threads; i++) {
        size_t to = s->count * (i + 1) / threads;
        parts[i] = (stretch){at(s, from), to - from, s->handles + from};
        from = to;
        must(pthread_create(&all[i], NULL, in_thread, &parts[i]) ? CUDA_ERROR_UNKNOWN
                                                                 : CUDA_SUCCESS,
             "pthread_create");
    }
    for (size_t i = 0; i < threads; i++) {
        pthread_join(all[i], NULL);
    }
}

static void by_two(const stretch *s)
{
    in_threads(s, 2);
}

static void by_four(const stretch *s)
{
    in_threads(s, MOST_THREADS);
}

static const struct {
    const char *name;
    void (*run)(const stretch *s);
} ways[] = {
    {"one by one", one_by_one},
    {"unmap all, then release", unmap_then_release},
    {"release all, then unmap", release_then_unmap},
    {"unmap at once, then release", unmap_at_once},
    {"release all, then unmap at once", release_then_unmap_at_once},
    {"one by one, by 2 threads", by_two},
    {"one by one, by 4 threads", by_four},
};

/* ---- measuring --------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void show(const char *name, double *times, size_t rounds)
{
    qsort(times, rounds, sizeof *times, compare);
    printf("%-34s %9.2f %9.2f %9.2f\n", name, times[rounds / 2], times[0], times[rounds - 1]);
}

/* One chunk of all the bytes in the place of these, as the heap does it. */
static double make_large(const stretch *s)
{
    CUmemGenericAllocationHandle large;
    size_t bytes = s->count * granule;
    double began = now();
    MUST(cuMemCreate, &large, bytes, &prop, 0);
    MUST(cuMemMap, s->base, bytes, 0, large, 0);
    MUST(cuMemSetAccess, s->base, bytes, &access_all, 1);
    double took = now() - began;
    MUST(cuMemUnmap, s->base, bytes);
    MUST(cuMemRelease, large);
    return took;
}

static void measure(size_t chunks, size_t others, size_t rounds)
{
    enum {
        WAYS = sizeof ways / sizeof *ways
    };
    static double times[WAYS + 2][MOST_ROUNDS];
    stretch beside = reserve(others);
    stretch s = reserve(chunks);
    map(&beside);
    for (size_t round = 0; round < rounds; round++) {
        for (size_t i = 0; i < WAYS; i++) {
            double began = now();
            map(&s);
            times[WAYS][round] = (now() - began) / (double)chunks;
            began = now();
            ways[i].run(&s);
            times[i][round] = (now() - began) / (double)chunks;
        }
        times[WAYS + 1][round] = make_large(&s) / (double)chunks;
    }
    printf("%-34s %9s %9s %9s\n", "us a chunk", "median", "least", "most");
    for (size_t i = 0; i < WAYS; i++) {
        show(ways[i].name, times[i], rounds);
    }
    show("to make and map them", times[WAYS], rounds);
    show("to make and map one of all bytes", times[WAYS + 1], rounds);
    one_by_one(&beside);
    MUST(cuMemAddressFree, beside.base, (others + 1) * granule);
    MUST(cuMemAddressFree, s.base, (chunks + 1) * granule);
    free(beside.handles);
    free(s.handles);
}

/* ---- the program ------------------------------------------------------------------------- */

static bool read_options(int argc, char **argv, size_t *const values[3])
{
    static const char *const names[] = {"--chunks", "--others", "--rounds"};
    static const size_t most[] = {MOST_CHUNKS, MOST_OTHERS, MOST_ROUNDS};
    for (int i = 1; i < argc; i += 2) {
        size_t which = 0;
        while (which < 3 && strcmp(argv[i], names[which]) != 0) {
            which++;
        }
        char *end = NULL;
        size_t value = which < 3 && i + 1 < argc ? strtoull(argv[i + 1], &end, 10) : 0;
        if (!end || *end || value > most[which] || (!value && which != 1)) {
            return false;
        }
        *values[which] = value;
    }
    return true;
}

int main(int argc, char **argv)
{
    size_t chunks = 64, others = 30000, rounds = 11;
    ga_cuda_scope scope;
    if (!read_options(argc, argv, (size_t *const[]){&chunks, &others, &rounds})) {
        fputs("usage: bench-unmapping [--chunks N] [--others N] [--rounds N]\n", stderr);
        return 2;
    }
    if (ga_cuda_driver_get(&cuda) != GA_OK || ga_cuda_enter(&scope, 0) != GA_OK) {
        printf("no device: %s\n", ga_error_text());
        return SKIP;
    }
    MUST(cuMemGetAllocationGranularity, &granule, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    printf("%zu chunks of %zu KiB, beside %zu others, %zu rounds\n", chunks, granule >> 10, others,
           rounds);
    measure(chunks, others, rounds);
    ga_cuda_leave(&scope);
    return 0;
}
