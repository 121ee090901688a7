/* SPDX-License-Identifier: MIT
 *
 * Common parts of the benchmarks of coalescing: the compared allocators, figures over the runs,
 * lines of JSON. Each benchmark is one translation unit that includes this file once. The
 * allocators take turns in each run, so that ratios are of the same run.
 */
#ifndef GPUALLOC_BENCH_COALESCE_WAYS_CUH
#define GPUALLOC_BENCH_COALESCE_WAYS_CUH

#include <gpualloc/coalesce.cuh>

#include "../runner/percentiles.cuh"
#include "commit.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <vector>

#ifndef PROGRAM
#error "define PROGRAM: the benchmark's name"
#endif

static void must(cudaError_t error, const char *what)
{
    if (error != cudaSuccess) {
        fprintf(stderr, PROGRAM ": %s: %s\n", what, cudaGetErrorString(error));
        exit(1);
    }
}
#define MUST(call) must((call), #call)

/* ---- the allocators: the paper's five, ours, and the same over slabs ------------------------- */

enum call {
    CALL_CUDA, /* CUDA's malloc and free */
    CALL_ANY,  /* malloc of the heap, dynamic coalescing if it has that */
    CALL_HB,
    CALL_NB,
    CALL_HW,
    CALL_NW
};

typedef struct way {
    const char *name, *spec;
    call how;
} way;

#define SLABS "slab:unit=classes,capacity=2G/cuda"
static const way ways[] = {
    {"cuda", "cuda", CALL_CUDA},
    {"HB", "coalesce:static=hb/cuda", CALL_HB},
    {"NB", "coalesce:header=auto,static=nb,map=65536/cuda", CALL_NB},
    {"HW", "coalesce:header=auto/cuda", CALL_ANY}, /* the paper's HW is the dynamic allocator */
    {"NW", "coalesce:header=auto,static=nw,map=65536/cuda", CALL_NW},
    {"HW static", "coalesce:static=hw/cuda", CALL_HW},
    {"HW 16", "coalesce:header=16/cuda", CALL_ANY},
    {"slabs", SLABS, CALL_ANY},
    {"slabs, coalesced", "coalesce/" SLABS, CALL_ANY},
    {"slabs, NB by address", "coalesce:static=nb/" SLABS, CALL_NB},
    {"slabs, NB by map", "coalesce:header=16,static=nb,map=65536/" SLABS, CALL_NB},
    {"slabs, NW by address", "coalesce:static=nw/" SLABS, CALL_NW},
    {"slabs, NW by map", "coalesce:header=16,static=nw,map=65536/" SLABS, CALL_NW},
};
enum {
    WAYS = sizeof ways / sizeof *ways
};

static ga_heap *heaps[WAYS];
static ga_kernel_heap views[WAYS]; /* of the first: a cleared one */

static void open_heap(int i)
{
    if (ways[i].how == CALL_CUDA) {
        return;
    }
    if (ga_heap_open(&heaps[i], GA_PLACE_KERNEL, 0, ways[i].spec) != GA_OK ||
        ga_heap_kernel_view(heaps[i], &views[i]) != GA_OK) {
        fprintf(stderr, PROGRAM ": %s: %s\n", ways[i].spec, ga_error_text());
        exit(1);
    }
}

static void open_heaps()
{
    for (int i = 0; i < WAYS; i++) {
        open_heap(i);
    }
}

static void close_heaps()
{
    for (int i = 0; i < WAYS; i++) {
        ga_heap_close(heaps[i]);
    }
}

/* `HOW` and the heap's kind are compile-time constants of a kernel. */
template <call HOW, bool COALESCES>
static __device__ void *bench_malloc(ga_kernel_heap heap, size_t size)
{
    if (HOW == CALL_CUDA) {
        return malloc(size);
    }
    if (HOW == CALL_ANY) {
        return COALESCES ? ga_coalesce_malloc(heap, size) : ga_kernel_malloc(heap, size);
    }
    return HOW == CALL_HB   ? ga_coalesce_block_malloc(heap, size)
           : HOW == CALL_NB ? ga_coalesce_block_malloc_bare(heap, size)
           : HOW == CALL_HW ? ga_coalesce_warp_malloc(heap, size)
                            : ga_coalesce_warp_malloc_bare(heap, size);
}

template <call HOW, bool COALESCES> static __device__ void bench_free(ga_kernel_heap heap, void *p)
{
    if (HOW == CALL_CUDA) {
        free(p);
    } else if (COALESCES) {
        ga_coalesce_free(heap, p);
    } else {
        ga_kernel_free(heap, p);
    }
}

static bool coalesces(int i)
{
    return strncmp(ways[i].spec, "coalesce", 8) == 0;
}

/* Call `run` with the two constants of way i: run(call, coalesces). */
#define WITH_WAY(i, run)                                                                           \
    do {                                                                                           \
        switch (ways[i].how) {                                                                     \
        case CALL_CUDA:                                                                            \
            run(CALL_CUDA, false);                                                                 \
            break;                                                                                 \
        case CALL_ANY:                                                                             \
            if (coalesces(i)) {                                                                    \
                run(CALL_ANY, true);                                                               \
            } else {                                                                               \
                run(CALL_ANY, false);                                                              \
            }                                                                                      \
            break;                                                                                 \
        case CALL_HB:                                                                              \
            run(CALL_HB, true);                                                                    \
            break;                                                                                 \
        case CALL_NB:                                                                              \
            run(CALL_NB, true);                                                                    \
            break;                                                                                 \
        case CALL_HW:                                                                              \
            run(CALL_HW, true);                                                                    \
            break;                                                                                 \
        case CALL_NW:                                                                              \
            run(CALL_NW, true);                                                                    \
            break;                                                                                 \
        }                                                                                          \
    } while (0)

/* ---- lines of JSON: as bench/runner writes them, and the 5th and 95th percentile ------------- */

static int runs = 20;
static const int warmups = 2;
static const char *only;
static char device_name[256], driver_name[32], date[32];

static void describe()
{
    cudaDeviceProp gpu;
    int driver;
    time_t now = time(NULL);
    MUST(cudaGetDeviceProperties(&gpu, 0));
    MUST(cudaDriverGetVersion(&driver));
    snprintf(device_name, sizeof device_name, "%s", gpu.name);
    snprintf(driver_name, sizeof driver_name, "CUDA %d.%d", driver / 1000, driver % 1000 / 10);
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime(&now));
}

typedef struct measured {
    const char *bench;
    uint32_t blocks, threads; /* of a block */
    size_t size;              /* bytes of a request */
    const char *metric, *unit;
} measured;

/* Values of each run, and those of the baseline in the same runs. */
static void line(const measured &what, int way, const std::vector<double> &values,
                 const std::vector<double> &baseline, uint64_t failed)
{
    std::vector<double> sorted = sorted_of(values);
    std::vector<double> ratios;
    for (size_t i = 0; i < values.size(); i++) {
        ratios.push_back(baseline[i] > 0 ? values[i] / baseline[i] : NAN);
    }
    double ratio = median_of(ratios);
    char text[32] = "null";
    if (std::isfinite(ratio)) {
        snprintf(text, sizeof text, "%.6g", ratio);
    }
    printf(
        "{\"bench\": \"%s\", \"place\": \"kernel\", \"spec\": \"%s\", \"way\": \"%s\", "
        "\"device\": \"%s\", \"driver\": \"%s\", \"blocks\": %u, \"threads\": %u, \"size\": %zu, "
        "\"metric\": \"%s\", \"unit\": \"%s\", \"value\": %.6g, \"p5\": %.6g, \"p95\": %.6g, "
        "\"spread\": %.6g, \"baseline\": \"cuda\", \"ratio\": %s, \"failed\": %llu, "
        "\"date\": \"%s\", \"commit\": \"%s\"}\n",
        what.bench, ways[way].spec, ways[way].name, device_name, driver_name, what.blocks,
        what.threads, what.size, what.metric, what.unit, at(sorted, 0.5), at(sorted, 0.05),
        at(sorted, 0.95), at(sorted, 0.75) - at(sorted, 0.25), text, (unsigned long long)failed,
        date, GA_BENCH_COMMIT);
    fflush(stdout);
}

/* ---- the program ----------------------------------------------------------------------------- */

static bool wanted(const char *name)
{
    return !only || strstr(name, only);
}

/* Read --runs and --only, and prepare the device: CUDA's malloc gets 1 GB, as in the paper. Returns
 * 0 or the exit status. */
static int begin(int argc, char **argv)
{
    int devices = 0;
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 < argc && strcmp(argv[i], "--runs") == 0 && atoi(argv[i + 1]) > 0) {
            runs = atoi(argv[i + 1]);
        } else if (i + 1 < argc && strcmp(argv[i], "--only") == 0) {
            only = argv[i + 1];
        } else {
            fprintf(stderr, "usage: " PROGRAM " [--runs N] [--only WORDS]\n");
            return 2;
        }
    }
    if (cudaGetDeviceCount(&devices) != cudaSuccess || !devices) {
        printf("skipped, this machine has no GPU\n");
        return 77;
    }
    MUST(cudaSetDevice(0));
    MUST(cudaDeviceSetLimit(cudaLimitMallocHeapSize, (size_t)1 << 30));
    describe();
    open_heaps();
    return 0;
}

#endif
