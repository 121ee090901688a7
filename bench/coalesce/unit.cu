/* SPDX-License-Identifier: MIT
 *
 * The unit benchmarks of warp-coalescing-gpumpi-2022, §4.1, and the anatomy of CUDA's malloc, §2:
 * each thread allocates an array of floats, fills it, works on it and frees it. Cycles of the three
 * parts, means over all threads, and the whole kernel's time.
 *
 *   bench-coalesce-unit [--runs N] [--only WORDS]
 *       the parts whose name contains the words: floats, small, shapes, anatomy
 *
 * The work: the paper's two, and three more.
 *     linear     the sum of all elements                      n additions
 *     quadratic  the sum of all products                      n * n multiplications and additions
 *     stencil    each element becomes the mean of three       n times 3
 *     reverse    elements change places, the first the last   none
 *     jump       the sum, in an order that jumps about        n additions
 */
#define PROGRAM "bench-coalesce-unit"
#include "ways.cuh"

/* ---- work ------------------------------------------------------------------------------------ */

enum work {
    LINEAR,
    QUADRATIC,
    STENCIL,
    REVERSE,
    JUMP,
    WORKS
};
static const char *const work_names[WORKS] = {"linear", "quadratic", "stencil", "reverse", "jump"};

static __device__ float sum_of(const float *data, uint32_t n)
{
    float sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        sum += data[i];
    }
    return sum;
}

static __device__ float sum_of_products(const float *data, uint32_t n)
{
    float sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t j = 0; j < n; j++) {
            sum += data[i] * data[j];
        }
    }
    return sum;
}

static __device__ float jumping_sum(const float *data, uint32_t n)
{
    float sum = 0;
    uint32_t place = 0;
    for (uint32_t i = 0; i < n; i++) {
        sum += data[place];
        place = (place + 7u) % n; /* all of them where 7 does not divide n */
    }
    return sum;
}

static __device__ void smooth(float *data, uint32_t n)
{
    float before = data[0];
    for (uint32_t i = 1; i + 1 < n; i++) {
        float here = data[i];
        data[i] = (before + here + data[i + 1]) * (1.0f / 3.0f);
        before = here;
    }
}

static __device__ void reverse(float *data, uint32_t n)
{
    for (uint32_t i = 0; i < n / 2; i++) {
        float other = data[n - 1 - i];
        data[n - 1 - i] = data[i];
        data[i] = other;
    }
}

static __device__ void do_work(work what, float *data, uint32_t n)
{
    if (what == LINEAR) {
        data[0] = sum_of(data, n);
    } else if (what == QUADRATIC) {
        data[0] = sum_of_products(data, n);
    } else if (what == STENCIL) {
        smooth(data, n);
    } else if (what == REVERSE) {
        reverse(data, n);
    } else {
        data[0] = jumping_sum(data, n);
    }
}

/* Whether data[0] is right afterwards; the values are 0 to n - 1. */
static __device__ bool is_right(work what, float first, uint32_t n)
{
    double sum = 0.5 * n * (n - 1.0);
    double expected = what == LINEAR      ? sum
                      : what == JUMP      ? (n % 7u ? sum : first)
                      : what == QUADRATIC ? sum * sum
                      : what == REVERSE   ? n - 1.0
                                          : 0;
    return fabs(first - expected) <= 1e-2 * (1 + expected); /* sums of floats */
}

/* ---- one run --------------------------------------------------------------------------------- */

typedef struct cycles {
    uint64_t malloc, work, free; /* sums over all threads */
    uint64_t failed;
} cycles;

/* Add up over the converged warp before the one atomic. */
static __device__ void add_all(uint64_t *sum, uint64_t value)
{
    for (int step = 16; step; step /= 2) {
        value += __shfl_down_sync(GA_ALL_BITS, value, step);
    }
    if (threadIdx.x % 32u == 0) {
        ga_post_add64_relaxed(sum, value); /* relaxed: read when the kernel has ended */
    }
}

template <call HOW, bool COALESCES>
__global__ void __launch_bounds__(1024)
    run_kernel(ga_kernel_heap heap, work what, uint32_t n, cycles *sums, float **got)
{
    uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
    int64_t t0 = clock64();
    float *data = (float *)bench_malloc<HOW, COALESCES>(heap, n * sizeof(float));
    int64_t t1 = clock64();
    for (uint32_t i = 0; data && i < n; i++) {
        data[i] = (float)i;
    }
    int64_t t2 = clock64();
    if (data) {
        do_work(what, data, n);
    }
    int64_t t3 = clock64();
    bool fine = data && is_right(what, data[0], n);
    if (got) {
        got[thread] = data;
    }
    int64_t t4 = clock64();
    bench_free<HOW, COALESCES>(heap, data);
    int64_t t5 = clock64();
    add_all(&sums->malloc, (uint64_t)(t1 - t0));
    add_all(&sums->work, (uint64_t)(t3 - t2));
    add_all(&sums->free, (uint64_t)(t5 - t4));
    add_all(&sums->failed, fine ? 0 : 1);
}

static cycles *sums;
static float **pointers;
static cudaEvent_t begin_event, end_event;

typedef struct one_run {
    double malloc, work, free, kernel;
    uint64_t failed;
} one_run;

static one_run run_once(int way, work what, uint32_t blocks, uint32_t threads, uint32_t n,
                        bool keep)
{
    cycles now;
    float ms;
    float **got = keep ? pointers : NULL;
    MUST(cudaMemset(sums, 0, sizeof *sums));
    MUST(cudaDeviceSynchronize());
    MUST(cudaEventRecord(begin_event));
#define RUN(how, coalesces)                                                                        \
    run_kernel<how, coalesces><<<blocks, threads>>>(views[way], what, n, sums, got)
    WITH_WAY(way, RUN);
#undef RUN
    MUST(cudaEventRecord(end_event));
    MUST(cudaDeviceSynchronize());
    MUST(cudaEventElapsedTime(&ms, begin_event, end_event));
    MUST(cudaMemcpy(&now, sums, sizeof now, cudaMemcpyDeviceToHost));
    double all = (double)blocks * threads;
    return one_run{now.malloc / all, now.work / all, now.free / all, ms * 1000.0, now.failed};
}

/* All ways in turn, `runs` times after the warm-ups. */
static void compare(work what, const char *part, uint32_t blocks, uint32_t threads, uint32_t n)
{
    std::vector<double> parts[WAYS][4];
    uint64_t failed[WAYS] = {};
    char bench[64];
    snprintf(bench, sizeof bench, "coalesce-%s-%s", part, work_names[what]);
    for (int run = -warmups; run < runs; run++) {
        for (int i = 0; i < WAYS; i++) {
            one_run one = run_once(i, what, blocks, threads, n, false);
            failed[i] += one.failed;
            if (run >= 0) {
                double values[4] = {one.malloc, one.work, one.free, one.kernel};
                for (int p = 0; p < 4; p++) {
                    parts[i][p].push_back(values[p]);
                }
            }
        }
    }
    static const char *const metrics[4] = {"malloc", "work", "free", "kernel"};
    for (int i = 0; i < WAYS; i++) {
        for (int p = 0; p < 4; p++) {
            measured measure = {
                bench, blocks, threads, n * sizeof(float), metrics[p], p < 3 ? "cycles" : "us"};
            line(measure, i, parts[i][p], parts[0][p], failed[i]);
        }
    }
}

/* ---- the parts ------------------------------------------------------------------------------- */

/* Figures 1 to 4: 12 blocks of 1024 threads, 25 to 400 floats. */
static void floats()
{
    for (uint32_t n = 25; n <= 400; n += 25) {
        compare(LINEAR, "floats", 12, 1024, n);
        compare(QUADRATIC, "floats", 12, 1024, n);
        compare(STENCIL, "floats", 12, 1024, n);
        compare(REVERSE, "floats", 12, 1024, n);
        compare(JUMP, "floats", 12, 1024, n);
    }
}

static void small_sizes()
{
    static const uint32_t sizes[] = {1, 2, 3, 4, 6, 8, 12, 16, 20, 24};
    for (uint32_t n : sizes) {
        compare(LINEAR, "small", 12, 1024, n);
        compare(QUADRATIC, "small", 12, 1024, n);
    }
}

/* As many threads, in blocks of any size. */
static void shapes()
{
    for (uint32_t threads = 32; threads <= 1024; threads *= 2) {
        compare(LINEAR, "shapes", 12 * 1024 / threads, threads, 100);
    }
}

/* The distance of CUDA's blocks: the smallest between any two addresses. */
static void anatomy()
{
    uint32_t n = 12 * 1024;
    std::vector<uint64_t> got(n);
    for (uint32_t count = 1; count <= 100; count++) {
        std::vector<double> times, least;
        uint64_t failed = 0;
        for (int run = -warmups; run < runs; run++) {
            one_run one = run_once(0, LINEAR, 12, 1024, count, true);
            MUST(cudaMemcpy(got.data(), pointers, n * sizeof got[0], cudaMemcpyDeviceToHost));
            std::sort(got.begin(), got.end());
            uint64_t apart = UINT64_MAX;
            for (uint32_t i = 1; i < n; i++) { /* reused memory has equal addresses */
                apart = got[i] > got[i - 1] ? std::min(apart, got[i] - got[i - 1]) : apart;
            }
            failed += one.failed;
            if (run >= 0) {
                times.push_back(one.malloc);
                least.push_back((double)apart);
            }
        }
        measured cycles_of = {"coalesce-anatomy",    12,       1024,
                              count * sizeof(float), "malloc", "cycles"};
        measured apart_of = {"coalesce-anatomy", 12, 1024, count * sizeof(float), "apart", "bytes"};
        line(cycles_of, 0, times, times, failed);
        line(apart_of, 0, least, least, failed);
    }
}

int main(int argc, char **argv)
{
    int status = begin(argc, argv);
    if (status) {
        return status;
    }
    MUST(cudaEventCreate(&begin_event));
    MUST(cudaEventCreate(&end_event));
    MUST(cudaMalloc(&sums, sizeof *sums));
    MUST(cudaMalloc(&pointers, 12 * 1024 * sizeof *pointers));
    if (wanted("anatomy")) {
        anatomy();
    }
    if (wanted("floats")) {
        floats();
    }
    if (wanted("small")) {
        small_sizes();
    }
    if (wanted("shapes")) {
        shapes();
    }
    close_heaps();
    return 0;
}
