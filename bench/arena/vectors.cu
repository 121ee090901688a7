/* SPDX-License-Identifier: MIT
 *
 * Growing a vector by doubling: gpualloc::device_vector beside Thrust's vectors with the three
 * allocators of *vmm-spgemm-2023* (section 2.4): cudaMalloc, managed and pinned memory. In each
 * round all take turns, and each round begins with another one. A time is the median over the
 * rounds. Peak memory is the largest decrease of cudaMemGetInfo's free bytes, which a second thread
 * polls in separate runs without timing; it does not show the host's memory.
 *
 *     bench-arena-vectors [--from SIZE] [--to SIZE] [--rounds N] [--chunk SIZE] [--json FILE]
 *
 * The bar: at most 1.05 of the final size, and a tenth of the time of all resizes together. Exit
 * status 1 if it is missed or something failed, 77 without a GPU. bench/README.md explains the
 * lines.
 */
#include <gpualloc/vector.hpp>

#include <thrust/device_vector.h>
#include <thrust/universal_vector.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "../runner/percentiles.cuh"
#include "commit.h"

static const double PEAK_MAX = 1.05;  /* of the final size */
static const double TIMES_LEAST = 10; /* as fast */

static std::uint64_t from_bytes = 1ull << 20;
static std::uint64_t to_bytes = 32ull << 30;
static std::uint64_t chunk_max; /* 0: the library's */
static unsigned rounds = 7;
static const char *json;
static bool failed;

static void must(cudaError_t error, const char *what)
{
    if (error != cudaSuccess) {
        fprintf(stderr, "bench-arena-vectors: %s: %s\n", what, cudaGetErrorString(error));
        exit(1);
    }
}
#define MUST(call) must((call), #call)

/* ---- contenders ----------------------------------------------------------------------------- */

typedef std::uint64_t element;

/* A vector that is created small and then grows step by step. */
struct contender {
    const char *name;
    const char *what;
    /* Resize to each of the sizes in elements; call `after` when the device has finished each. */
    void (*run)(const std::vector<std::size_t> &sizes,
                const std::function<void(const element *)> &);
};

template <class vector>
static void run_thrust(const std::vector<std::size_t> &sizes,
                       const std::function<void(const element *)> &after)
{
    vector v;
    for (std::size_t n : sizes) {
        v.resize(n);
        MUST(cudaDeviceSynchronize());
        after(thrust::raw_pointer_cast(v.data()));
    }
}

static gpualloc::where place()
{
    gpualloc::where at;
    at.chunk_max = chunk_max;
    return at;
}

static void run_ours(const std::vector<std::size_t> &sizes,
                     const std::function<void(const element *)> &after)
{
    gpualloc::device_vector<element> v(place());
    for (std::size_t n : sizes) {
        v.resize(n);
        MUST(cudaDeviceSynchronize());
        after(v.raw());
    }
}

static void run_ours_zeroed(const std::vector<std::size_t> &sizes,
                            const std::function<void(const element *)> &after)
{
    gpualloc::device_vector<element> v(place());
    for (std::size_t n : sizes) {
        v.resize(n, 0);
        MUST(cudaDeviceSynchronize());
        after(v.raw());
    }
}

enum {
    THRUST = 0, /* the baseline */
    OURS,       /* the bar is about */
    ZEROED,
    MANAGED,
    PINNED,
    CONTENDERS
};

static const contender contenders[CONTENDERS] = {
    {"thrust", "thrust::device_vector, resize(n): allocates, copies, zeroes what is new, frees",
     run_thrust<thrust::device_vector<element>>},
    {"gpualloc", "gpualloc::device_vector, resize(n): maps what is missing", run_ours},
    {"gpualloc-zeroed", "gpualloc::device_vector, resize(n, 0): and zeroes what is new",
     run_ours_zeroed},
    {"thrust-managed", "thrust::universal_vector, resize(n): in managed memory",
     run_thrust<thrust::universal_vector<element>>},
    {"thrust-pinned", "thrust::universal_host_pinned_vector, resize(n): in the host's memory",
     run_thrust<thrust::universal_host_pinned_vector<element>>}};

static std::vector<std::size_t> sizes; /* elements */

/* ---- times --------------------------------------------------------------------------------- */

typedef std::vector<double> times; /* us, of each resize */

/* Check that contents survive a resize: writes the last words of each half, and compares them
 * later. */
static void keep_faith(const element *data, std::size_t n, std::size_t before)
{
    element mark = n, seen = before;
    if (before) {
        MUST(cudaMemcpy(&seen, data + before - 1, sizeof seen, cudaMemcpyDeviceToHost));
    }
    if (seen != before) {
        fprintf(stderr, "bench-arena-vectors: element %zu is %llu after growing to %zu\n",
                before - 1, (unsigned long long)seen, n);
        failed = true;
    }
    MUST(cudaMemcpy(const_cast<element *>(data) + n - 1, &mark, sizeof mark,
                    cudaMemcpyHostToDevice));
}

/* Wait until the driver has cleared freed memory in the background, because the next allocation
 * waits for that: no contender shall pay for memory that another one freed. */
static void settle()
{
    MUST(cudaDeviceSynchronize());
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
}

static times time_of(const contender &who)
{
    times all;
    std::size_t before = 0;
    settle();
    auto begin = std::chrono::steady_clock::now();
    who.run(sizes, [&](const element *data) {
        std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
        keep_faith(data, sizes[all.size()], before);
        before = sizes[all.size()];
        all.push_back(took.count());
        MUST(cudaDeviceSynchronize());
        begin = std::chrono::steady_clock::now();
    });
    return all;
}

/* ---- memory -------------------------------------------------------------------------------- */

static std::uint64_t free_memory()
{
    std::size_t left = 0, all = 0;
    MUST(cudaMemGetInfo(&left, &all));
    return left;
}

/* Poll free memory in a separate thread during the run. */
static double peak_of(const contender &who)
{
    const std::uint64_t before = free_memory();
    std::uint64_t least = before;
    std::atomic<bool> done{false};
    std::thread watcher([&] {
        MUST(cudaSetDevice(0));
        while (!done.load(std::memory_order_relaxed)) { /* relaxed: joined afterwards */
            least = std::min(least, free_memory());
        }
    });
    who.run(sizes, [](const element *) {});
    done.store(true, std::memory_order_relaxed);
    watcher.join();
    MUST(cudaDeviceSynchronize());
    return (double)(before - least);
}

/* ---- results ------------------------------------------------------------------------------- */

struct figure {
    double low, median, high; /* the quartiles around */
};

static figure figure_of(std::vector<double> values)
{
    std::sort(values.begin(), values.end());
    const std::size_t n = values.size();
    return {values[n / 4], (values[(n - 1) / 2] + values[n / 2]) / 2, values[n - 1 - n / 4]};
}

static std::vector<times> measured[CONTENDERS]; /* by round */
static std::vector<double> peaks[CONTENDERS];   /* bytes */

static const std::size_t TOTAL = SIZE_MAX; /* in place of a step: the sum of all resizes */

/* The first size is the initial one and does not count. */
static double value_of(const times &t, std::size_t step)
{
    double sum = 0;
    for (std::size_t i = 1; i < t.size(); i++) {
        sum += t[i];
    }
    return step == TOTAL ? sum : t[step];
}

static figure time_figure(int who, std::size_t step)
{
    std::vector<double> values;
    for (const times &t : measured[who]) {
        values.push_back(value_of(t, step));
    }
    return figure_of(values);
}

/* The baseline's time divided by the contender's, round by round. */
static figure times_as_fast(int who, std::size_t step)
{
    std::vector<double> values;
    for (unsigned r = 0; r < rounds; r++) {
        values.push_back(value_of(measured[THRUST][r], step) / value_of(measured[who][r], step));
    }
    return figure_of(values);
}

static figure peak_figure(int who)
{
    std::vector<double> values;
    for (double peak : peaks[who]) {
        values.push_back(peak / (double)to_bytes);
    }
    return figure_of(values);
}

static std::string bytes_text(std::uint64_t bytes)
{
    const char *units = "BKMGT";
    while (bytes >= 1024 && units[1]) {
        bytes /= 1024;
        units++;
    }
    return std::to_string(bytes) + *units;
}

static void print_row(const char *title, std::size_t step)
{
    printf("%8s", title);
    for (int who = 0; who < CONTENDERS; who++) {
        const figure f = time_figure(who, step);
        printf("  %10.1f (%9.1f to %9.1f)", f.median, f.low, f.high);
    }
    printf("  %8.1f  %8.1f\n", times_as_fast(OURS, step).median,
           times_as_fast(ZEROED, step).median);
}

/* Quantiles over all resizes of all rounds except the initial ones. */
static void print_tail(int who)
{
    std::vector<double> all;
    for (const times &t : measured[who]) {
        all.insert(all.end(), t.begin() + 1, t.end());
    }
    if (!all.empty()) {
        all = sorted_of(all);
        printf("%-16s %zu growths, us: p50 %.1f, p99 %.1f, p99.9 %.1f, longest %.1f\n",
               contenders[who].name, all.size(), at(all, 0.5), at(all, 0.99), at(all, 0.999),
               all.back());
    }
}

static void print_times()
{
    printf("\nresize to, in us: median (quartiles); thrust's time over the own\n%8s", "");
    for (const contender &who : contenders) {
        printf("  %-35s", who.name);
    }
    printf("  %8s  %8s\n", "gpualloc", "zeroed");
    for (std::size_t step = 0; step < sizes.size(); step++) {
        print_row(bytes_text(sizes[step] * sizeof(element)).c_str(), step);
    }
    print_row("growth", TOTAL);
    for (int who = 0; who < CONTENDERS; who++) {
        print_tail(who);
    }
}

static const char *verdict(bool held)
{
    failed |= !held;
    return held ? "held" : "MISSED";
}

static void print_bar()
{
    printf("\npeak memory over %s, the final size\n", bytes_text(to_bytes).c_str());
    for (int who = 0; who < CONTENDERS; who++) {
        const figure f = peak_figure(who);
        printf("%-16s %.3f (%.3f to %.3f)\n", contenders[who].name, f.median, f.low, f.high);
    }
    const double peak = peak_figure(OURS).median, fast = times_as_fast(OURS, TOTAL).median;
    printf("\nbar: peak %.3f of at most %.2f: %s\n", peak, PEAK_MAX, verdict(peak <= PEAK_MAX));
    printf("bar: growth %.1f times as fast, of at least %.0f: %s\n", fast, TIMES_LEAST,
           verdict(fast >= TIMES_LEAST));
}

/* ---- the file ------------------------------------------------------------------------------ */

struct machine {
    cudaDeviceProp gpu;
    int driver;
    char date[32];
};

static machine describe()
{
    machine m = {};
    int runtime = 0;
    const time_t now = time(NULL);
    MUST(cudaGetDeviceProperties(&m.gpu, 0));
    MUST(cudaDriverGetVersion(&m.driver));
    MUST(cudaRuntimeGetVersion(&runtime));
    strftime(m.date, sizeof m.date, "%Y-%m-%dT%H:%M:%SZ", gmtime(&now));
    printf("%s; driver for CUDA %d.%d, runtime %d.%d; %s; gpualloc %s, %s\n", m.gpu.name,
           m.driver / 1000, m.driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10, m.date,
           ga_version_text(), GA_BENCH_COMMIT);
    return m;
}

static void write_line(FILE *file, const machine &m, int who, const char *metric,
                       std::uint64_t size, const char *unit, figure value, double ratio)
{
    fprintf(
        file,
        "{\"bench\": \"vector-growth\", \"place\": \"device\", \"spec\": \"%s\", \"device\": "
        "\"%s\", \"driver\": \"CUDA %d.%d\", \"threads\": 1, \"size\": %llu, \"metric\": \"%s\", "
        "\"unit\": \"%s\", \"value\": %.4f, \"spread\": %.4f, \"baseline\": \"thrust\", "
        "\"ratio\": %.4f, \"failed\": 0, \"date\": \"%s\", \"commit\": \"%s\"}\n",
        contenders[who].name, m.gpu.name, m.driver / 1000, m.driver % 1000 / 10,
        (unsigned long long)size, metric, unit, value.median, value.high - value.low, ratio, m.date,
        GA_BENCH_COMMIT);
}

static void write_json(const machine &m)
{
    FILE *file = fopen(json, "w");
    if (!file) {
        fprintf(stderr, "bench-arena-vectors: %s: cannot be written\n", json);
        failed = true;
        return;
    }
    for (int who = 0; who < CONTENDERS; who++) {
        for (std::size_t step = 0; step < sizes.size(); step++) {
            write_line(file, m, who, "resize", sizes[step] * sizeof(element), "us",
                       time_figure(who, step), times_as_fast(who, step).median);
        }
        write_line(file, m, who, "growth", to_bytes, "us", time_figure(who, TOTAL),
                   times_as_fast(who, TOTAL).median);
        write_line(file, m, who, "peak", to_bytes, "of the final size", peak_figure(who),
                   peak_figure(THRUST).median / peak_figure(who).median);
    }
    if (fclose(file)) {
        fprintf(stderr, "bench-arena-vectors: %s: cannot be written\n", json);
        failed = true;
    }
}

/* ---- the command line ---------------------------------------------------------------------- */

static bool read_size(const char *text, std::uint64_t *bytes)
{
    char *end = nullptr;
    const std::uint64_t number = strtoull(text, &end, 10);
    const char *units = "KMGT";
    const char *unit = *end ? strchr(units, *end) : nullptr;
    *bytes = number << (unit ? 10 * (unit - units + 1) : 0);
    return number && end != text && (!*end || (unit && !end[1]));
}

static bool read_option(const char *name, const char *value)
{
    if (!strcmp(name, "--rounds")) {
        rounds = (unsigned)atoi(value);
        return rounds >= 1 && rounds <= 1000;
    }
    if (!strcmp(name, "--json")) {
        json = value;
        return true;
    }
    return (!strcmp(name, "--from") && read_size(value, &from_bytes)) ||
           (!strcmp(name, "--to") && read_size(value, &to_bytes)) ||
           (!strcmp(name, "--chunk") && read_size(value, &chunk_max));
}

/* Reduce the size to fit: the baseline holds 1.5 times the final size at its peak. */
static void fit_into_memory()
{
    while (to_bytes / 10 * 16 > free_memory() && to_bytes > from_bytes) {
        to_bytes /= 2;
        printf("this card has room for %s only\n", bytes_text(to_bytes).c_str());
    }
    for (std::uint64_t bytes = from_bytes; bytes < to_bytes; bytes *= 2) {
        sizes.push_back(bytes / sizeof(element));
    }
    sizes.push_back(to_bytes / sizeof(element));
}

static void measure()
{
    for (int who = 0; who < CONTENDERS; who++) {
        time_of(contenders[who]); /* loads the kernels; not counted */
    }
    for (unsigned r = 0; r < rounds; r++) {
        for (int i = 0; i < CONTENDERS; i++) {
            const int who = (i + (int)r) % CONTENDERS;
            measured[who].push_back(time_of(contenders[who]));
        }
    }
    for (unsigned r = 0; r < std::min(rounds, 3u); r++) {
        for (int who = 0; who < CONTENDERS; who++) {
            peaks[who].push_back(peak_of(contenders[who]));
        }
    }
}

int main(int argc, char **argv)
{
    int devices = 0;
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 == argc || !read_option(argv[i], argv[i + 1])) {
            fprintf(stderr, "usage: bench-arena-vectors [--from SIZE] [--to SIZE] [--rounds N] "
                            "[--chunk SIZE] [--json FILE]\n");
            return 2;
        }
    }
    if (cudaGetDeviceCount(&devices) != cudaSuccess || !devices) {
        printf("skipped, this machine has no GPU\n");
        return 77;
    }
    const machine m = describe();
    for (const contender &who : contenders) {
        printf("%-16s %s\n", who.name, who.what);
    }
    try {
        fit_into_memory();
        measure();
    } catch (const std::exception &error) {
        fprintf(stderr, "bench-arena-vectors: %s\n", error.what());
        return 1;
    }
    print_times();
    print_bar();
    if (json) {
        write_json(m);
    }
    return failed;
}
