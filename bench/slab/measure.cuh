/* SPDX-License-Identifier: MIT
 *
 * Common parts of the benchmarks of kernels: time on the device, medians, lines. Each benchmark is
 * one translation unit that includes this file once.
 */
#ifndef GPUALLOC_BENCH_SLAB_MEASURE_CUH
#define GPUALLOC_BENCH_SLAB_MEASURE_CUH

#include <gpualloc/backend.h>
#include <gpualloc/device.cuh>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <vector>

#ifndef PROGRAM
#error "define PROGRAM: the benchmark's name"
#endif

static int rounds = 11;
static const char *only;
static unsigned failures; /* lines that could not be measured */

static void must(cudaError_t error, const char *what)
{
    if (error != cudaSuccess) {
        fprintf(stderr, PROGRAM ": %s: %s\n", what, cudaGetErrorString(error));
        exit(1);
    }
}
#define MUST(call) must((call), #call)

/* ---- kernels --------------------------------------------------------------------------------- */

enum {
    THREADS = 128 /* a block; sixteen of them fill a multiprocessor */
};

#ifndef RESIDENT
#define RESIDENT 16 /* blocks on a multiprocessor, at least: 32 registers a thread */
#endif
#define KERNEL __global__ void __launch_bounds__(THREADS, RESIDENT)

static __device__ uint32_t thread_number()
{
    return blockIdx.x * blockDim.x + threadIdx.x;
}

static inline __device__ void touch(void *unit, uint32_t value)
{
    *(uint4 *)unit = make_uint4(value, value, value, value);
}

__global__ void nothing()
{
}

/* ---- time ------------------------------------------------------------------------------------ */

typedef struct figure {
    double low, median, high; /* microseconds */
} figure;

static figure figure_of(std::vector<double> times)
{
    std::sort(times.begin(), times.end());
    return figure{times.front(), times[times.size() / 2], times.back()};
}

static cudaEvent_t begin_event, end_event;

/* Read more than the L2 cache holds, so that dirty lines of an earlier kernel are written back
 * before the next one is timed. */
__global__ void read_all(const uint4 *from, size_t n, uint32_t *sink)
{
    uint32_t sum = 0;
    for (size_t i = thread_number(); i < n; i += (size_t)gridDim.x * blockDim.x) {
        sum ^= from[i].x;
    }
    if (sum == 0x12345678u) {
        *sink = sum;
    }
}

static uint4 *ballast;
static uint32_t *sink;
static const size_t BALLAST = (size_t)256 << 20;

static void prepare_measuring()
{
    MUST(cudaEventCreate(&begin_event));
    MUST(cudaEventCreate(&end_event));
    MUST(cudaMalloc(&ballast, BALLAST));
    MUST(cudaMemset(ballast, 0, BALLAST));
    MUST(cudaMalloc(&sink, sizeof *sink));
}

static void write_back()
{
    read_all<<<1024, THREADS>>>(ballast, BALLAST / sizeof *ballast, sink);
}

/* Time of the work that `run` enqueues on the stream. */
template <class RUN> static double time_behind(RUN run)
{
    float ms;
    MUST(cudaEventRecord(begin_event));
    run();
    MUST(cudaEventRecord(end_event));
    MUST(cudaDeviceSynchronize());
    MUST(cudaEventElapsedTime(&ms, begin_event, end_event));
    return ms * 1000.0;
}

template <class RUN> static double time_of(RUN run)
{
    write_back();
    MUST(cudaDeviceSynchronize());
    return time_behind(run);
}

/* Both in turn, `rounds` times after one that does not count; `prepare` comes before ours. */
template <class LIMIT, class PREPARE, class OURS>
static void in_turn(LIMIT limit, PREPARE prepare, OURS ours, figure *a, figure *b)
{
    std::vector<double> limits, times;
    for (int i = 0; i <= rounds; i++) {
        double first = time_of(limit);
        prepare();
        double second = time_of(ours);
        if (i) {
            limits.push_back(first);
            times.push_back(second);
        }
    }
    *a = figure_of(limits);
    *b = figure_of(times);
}

/* ---- lines ----------------------------------------------------------------------------------- */

static inline bool wanted(const char *name)
{
    return !only || strstr(name, only);
}

static inline void line(const char *name, double n, figure limit, figure ours, uint32_t failed)
{
    printf("%-44s %8.2f G/s (%.2f to %.2f)", name, n / ours.median / 1e3, n / ours.high / 1e3,
           n / ours.low / 1e3);
    if (limit.median > 0) {
        printf("  limit %8.2f G/s  ratio %.3f", n / limit.median / 1e3, limit.median / ours.median);
    }
    printf("  %.1f us%s", ours.median, failed ? "  FAILED CLAIMS: " : "\n");
    if (failed) {
        printf("%u\n", failed);
    }
}

static inline void describe_gpu()
{
    cudaDeviceProp gpu;
    int driver, runtime;
    char date[32];
    time_t now = time(NULL);
    MUST(cudaGetDeviceProperties(&gpu, 0));
    MUST(cudaDriverGetVersion(&driver));
    MUST(cudaRuntimeGetVersion(&runtime));
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime(&now));
    printf("%s, %d multiprocessors, driver for CUDA %d.%d, runtime %d.%d, %s, gpualloc %s\n",
           gpu.name, gpu.multiProcessorCount, driver / 1000, driver % 1000 / 10, runtime / 1000,
           runtime % 1000 / 10, date, ga_version_text());
}

static inline void describe()
{
    describe_gpu();
    printf("medians of %d rounds after a warm-up (slowest to fastest); the limit is the same "
           "kernel on memory that was there already\n",
           rounds);
}

/* ---- the program ----------------------------------------------------------------------------- */

/* Reads --rounds and --only; 0, or the exit status. */
static inline int read_arguments(int argc, char **argv)
{
    int devices = 0;
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 < argc && strcmp(argv[i], "--rounds") == 0 && atoi(argv[i + 1]) > 0) {
            rounds = atoi(argv[i + 1]);
        } else if (i + 1 < argc && strcmp(argv[i], "--only") == 0) {
            only = argv[i + 1];
        } else {
            fprintf(stderr, "usage: " PROGRAM " [--rounds N] [--only WORDS]\n");
            return 2;
        }
    }
    if (cudaGetDeviceCount(&devices) != cudaSuccess || !devices) {
        printf("skipped, this machine has no GPU\n");
        return 77;
    }
    return 0;
}

#endif
