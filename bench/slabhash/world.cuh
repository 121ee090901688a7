/* SPDX-License-Identifier: MIT
 *
 * Common parts of the sections of bench-slabhash-kernels: the command line, keys in device memory,
 * the check of results, and time.
 */
#ifndef GPUALLOC_BENCH_SLABHASH_WORLD_CUH
#define GPUALLOC_BENCH_SLABHASH_WORLD_CUH

#include "baselines.cuh"
#include "report.cuh"

#include <type_traits>
#include <vector>

/* ---- the command line ---------------------------------------------------------------------- */

static std::vector<double> asked_keys, asked_uses, asked_paths; /* empty: the section's own */
static const char *slabs_from;                                  /* NULL: the library's default */

static bool asks(const std::vector<double> &list, double value)
{
    bool found = list.empty();
    for (double one : list) {
        found |= fabs(one - value) < 1e-6;
    }
    return found;
}

/* Whether the section's name is in the list of --only. */
static bool asks_for(const char *section)
{
    std::string list = only ? std::string(",") + only + "," : "";
    return !only || list.find("," + std::string(section) + ",") != std::string::npos;
}

static void must_ga(ga_status status)
{
    if (status != GA_OK) {
        fprintf(stderr, PROGRAM ": %s\n", ga_error_text());
        exit(1);
    }
}

/* ---- keys ----------------------------------------------------------------------------------- */

template <uint32_t MODE>
using word_of = typename std::conditional<MODE == GA_SLABHASH_MAP64, uint64_t, uint32_t>::type;

/* Another key for each i below 2^28, none of them reserved; its value is the complement. */
template <class T> static __device__ __forceinline__ T key_of(uint32_t i)
{
    if (sizeof(T) == sizeof(uint64_t)) {
        return (T)mix64((uint64_t)i + 1u);
    }
    uint32_t key = ga_bits_mix(i);
    return (T)(key >= GA_SLABHASH_DELETED ? ga_bits_mix(key) : key);
}

/* Keys of 31 bits, for tables that grow in kernels. */
template <class T> static __device__ __forceinline__ T narrow_key_of(uint32_t i)
{
    return (T)(i * 2654435761u & 0x7fffffffu);
}

template <class T>
__global__ void make_keys(T *keys, T *values, uint32_t first, uint64_t n, bool narrow)
{
    uint64_t i = own_number();
    if (i < n) {
        uint32_t number = first + (uint32_t)i;
        keys[i] = narrow ? narrow_key_of<T>(number) : key_of<T>(number);
        values[i] = ~keys[i];
    }
}

/* In device memory, for the most keys there are: keys that go in and others, and answers. */
static struct {
    void *keys, *others, *values, *found;
    uint8_t *results, *ops, *expected;
    uint32_t *wrong; /* answers */
    bool narrow;     /* keys of 31 bits */
} world;

static const uint32_t LOG2_MAX = 27;

static unsigned blocks_for(uint64_t n)
{
    return (unsigned)((n + THREADS - 1) / THREADS);
}

static void prepare_world(uint32_t log2)
{
    uint64_t n = UINT64_C(1) << log2;
    for (void **array : {&world.keys, &world.others, &world.values, &world.found}) {
        MUST(cudaMalloc(array, n * sizeof(uint64_t)));
    }
    MUST(cudaMalloc(&world.results, n));
    MUST(cudaMalloc(&world.ops, n));
    MUST(cudaMalloc(&world.expected, n));
    MUST(cudaMalloc(&world.wrong, sizeof *world.wrong));
    MUST(cudaMemset(world.wrong, 0, sizeof *world.wrong));
}

/* n keys, and n others that are not put in. */
template <uint32_t MODE> static void fill_world(uint64_t n)
{
    typedef word_of<MODE> T;
    make_keys<<<blocks_for(n), THREADS>>>((T *)world.others, (T *)world.values, (uint32_t)n, n,
                                          world.narrow);
    make_keys<<<blocks_for(n), THREADS>>>((T *)world.keys, (T *)world.values, 0u, n, world.narrow);
}

template <class T>
__global__ void check_search(const T *keys, const T *found, const uint8_t *results, bool there,
                             uint64_t n, uint32_t *wrong)
{
    uint64_t i = own_number();
    if (i < n) {
        bool right = results ? results[i] == (there ? GA_SLABHASH_FOUND : GA_SLABHASH_ABSENT)
                             : found[i] == (there ? (T)~keys[i] : 0);
        if (!right) {
            ga_add_relaxed(wrong, 1u);
        }
    }
}

static void expect_none_wrong(const point &p)
{
    uint32_t n;
    MUST(cudaMemcpy(&n, world.wrong, sizeof n, cudaMemcpyDeviceToHost));
    MUST(cudaMemset(world.wrong, 0, sizeof n));
    if (n) {
        printf("WRONG: %u answers of %s %s, %s, 2^%u keys, %.5g\n", n, p.mode.c_str(),
               p.way.c_str(), p.section, p.log2, p.target);
        failures++;
    }
}

template <uint32_t MODE> static void poison(uint64_t n)
{
    MUST(cudaMemsetAsync(world.results, 0xee, n));
    MUST(cudaMemsetAsync(world.found, 0xee, n * sizeof(word_of<MODE>)));
}

template <uint32_t MODE> static void check(const point &p, const void *keys, bool there, uint64_t n)
{
    typedef word_of<MODE> T;
    check_search<<<blocks_for(n), THREADS>>>((const T *)keys, (const T *)world.found,
                                             MODE == GA_SLABHASH_SET32 ? world.results : NULL,
                                             there, n, world.wrong);
    expect_none_wrong(p);
}

/* ---- time ----------------------------------------------------------------------------------- */

/* Delays the device, so that the host enqueues ahead and launches are not part of the time. */
static __global__ void head_start()
{
    uint64_t begin = ga_clock_ns();
    while (ga_clock_ns() - begin < 40000) {
    }
}

template <class RUN> static double rate_of(double n, RUN run)
{
    head_start<<<1, 1>>>();
    double us = time_behind(run);
    MUST(cudaGetLastError());
    return n / us / 1e3;
}

#endif
