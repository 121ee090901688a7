/* SPDX-License-Identifier: MIT
 *
 * Kernels that append to a vector which grows while they run: no element is lost or reserved twice,
 * and there are no holes, also at a limit. Prints the times of the growths.
 */
#include "vector_tests.h"

#include <thrust/count.h>
#include <thrust/equal.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/sort.h>
#include <thrust/unique.h>

#include <cstdio>
#include <cstring>
#include <vector>

/* Thread i appends i * each to i * each + each - 1, and counts its refusals. */
static __global__ void append_numbers(ga_kernel_vector view, unsigned each, unsigned *refused)
{
    word first = (blockIdx.x * (word)blockDim.x + threadIdx.x) * each;
    word *at = (word *)ga_kernel_vector_append(view, each);
    for (unsigned i = 0; at && i < each; i++) {
        at[i] = first + i;
    }
    if (!at) {
        atomicAdd(refused, each);
    }
}

/* The calling lanes differ from call to call, and so do their requests. */
static __global__ void append_divergently(ga_kernel_vector view)
{
    word i = blockIdx.x * (word)blockDim.x + threadIdx.x;
    if (i % 3 == 0) {
        ga_kernel_vector_push_back(view, i);
    } else if (i % 3 == 1) {
        word *at = (word *)ga_kernel_vector_append(view, (unsigned)(i % 7));
        for (unsigned k = 0; at && k < i % 7; k++) {
            at[k] = i;
        }
    }
}

static unsigned *new_counter()
{
    unsigned *counter = nullptr;
    CUDA(cudaMallocManaged(&counter, sizeof *counter));
    *counter = 0;
    return counter;
}

static void lend(words &v, ga_kernel_vector *view, std::size_t step = 0)
{
    gpualloc::check(ga_vector_lend(v.handle(), step, view));
}

static ga_vector_appended take_back(words &v)
{
    ga_vector_appended appended = {};
    CUDA(cudaGetLastError());
    CUDA(cudaDeviceSynchronize());
    gpualloc::check(ga_vector_end_loan(v.handle(), &appended));
    return appended;
}

static void print(const char *what, const ga_vector_appended &a)
{
    printf(
        "    %s: %llu elements in %llu growths, each in us: p50 %.1f, p99 %.1f, p99.9 %.1f, most "
        "%.1f; %llu refused%s%s\n",
        what, (word)a.appended, (word)a.growths, (double)a.grow_ns_p50 / 1e3,
        (double)a.grow_ns_p99 / 1e3, (double)a.grow_ns_p999 / 1e3, (double)a.grow_ns_max / 1e3,
        (word)a.refused, *a.reason ? ": " : "", a.reason);
}

/* Each number below the size once. */
static bool is_a_permutation(words &v)
{
    thrust::sort(v.begin(), v.end());
    return thrust::equal(v.begin(), v.end(), thrust::counting_iterator<word>(0));
}

/* ---- cases --------------------------------------------------------------------------------- */

static void loses_nothing(int)
{
    SKIP_WHERE_NOTHING_GROWS
    unsigned *refused = new_counter();
    for (unsigned each : {1u, 5u, 64u}) {
        words v;
        ga_kernel_vector view;
        const unsigned blocks = 4096;
        lend(v, &view, MIB);
        append_numbers<<<blocks, BLOCK>>>(view, each, refused);
        const ga_vector_appended appended = take_back(v);
        EXPECT(*refused == 0 && appended.refused == 0);
        EXPECT(appended.growths > 0 && v.size() == (std::size_t)blocks * BLOCK * each);
        EXPECT(is_a_permutation(v));
        print("from nothing", appended);
    }
    CUDA(cudaFree(refused));
}

static void serves_any_lanes(int)
{
    SKIP_WHERE_NOTHING_GROWS
    words v;
    ga_kernel_vector view;
    const unsigned threads = 1000 * BLOCK;
    std::vector<word> expected;
    for (word i = 0; i < threads; i++) {
        expected.insert(expected.end(), i % 3 == 0 ? 1 : i % 3 == 1 ? i % 7 : 0, i);
    }
    lend(v, &view, MIB);
    append_divergently<<<threads / BLOCK, BLOCK>>>(view);
    const ga_vector_appended appended = take_back(v);
    EXPECT(appended.refused == 0 && v.size() == expected.size());
    thrust::sort(v.begin(), v.end());
    std::vector<word> seen(v.size());
    v.read(0, v.size(), seen.data());
    EXPECT(seen == expected);
}

/* The elements of the host stay, and kernels append behind them. */
static void goes_on_behind(int)
{
    SKIP_WHERE_NOTHING_GROWS
    words v(1000, 7ull);
    for (int round = 0; round < 5; round++) {
        ga_kernel_vector view;
        unsigned *refused = new_counter();
        const std::size_t before = v.size();
        lend(v, &view, MIB);
        append_numbers<<<512, BLOCK>>>(view, 2, refused);
        take_back(v);
        EXPECT(v.size() == before + 512 * BLOCK * 2);
        EXPECT(thrust::count(v.begin(), v.begin() + 1000, 7ull) == 1000);
        thrust::sort(v.begin() + (std::ptrdiff_t)before, v.end());
        EXPECT(thrust::equal(v.begin() + (std::ptrdiff_t)before, v.end(),
                             thrust::counting_iterator<word>(0)));
        CUDA(cudaFree(refused));
    }
}

static void ends_at_a_limit(int)
{
    SKIP_WHERE_NOTHING_GROWS
    gpualloc::where at;
    at.limit = 64 * MIB;
    words v(at);
    ga_kernel_vector view;
    unsigned *refused = new_counter();
    const unsigned blocks = 65536;
    lend(v, &view, 2 * MIB);
    append_numbers<<<blocks, BLOCK>>>(view, 1, refused);
    const ga_vector_appended appended = take_back(v);
    print("at a limit", appended);
    EXPECT(v.size() == 8 * MIB && appended.appended == 8 * MIB);
    EXPECT(*refused == (std::size_t)blocks * BLOCK - 8 * MIB && appended.refused == *refused);
    EXPECT(!strcmp(appended.reason, "limit or addresses reached"));
    thrust::sort(v.begin(), v.end()); /* no number twice, and every number was written */
    EXPECT(thrust::unique(v.begin(), v.end()) == v.end() && v.back() < (word)blocks * BLOCK);
    v.clear(); /* and again */
    lend(v, &view, 2 * MIB);
    append_numbers<<<1000, BLOCK>>>(view, 1, refused);
    EXPECT(take_back(v).refused == 0 && is_a_permutation(v));
    CUDA(cudaFree(refused));
}

/* All that there may be is there: nothing is tried out, and nothing grows. */
static void fills_what_is_there(int)
{
    gpualloc::where at;
    at.limit = 4 * MIB;
    words v(at);
    ga_kernel_vector view;
    unsigned *refused = new_counter();
    const unsigned threads = 640u * BLOCK;
    v.reserve(4 * MIB / sizeof(word));
    for (unsigned each : {1u, 3u, 4u}) {
        v.clear();
        *refused = 0;
        lend(v, &view, 2 * MIB);
        append_numbers<<<threads / BLOCK, BLOCK>>>(view, each, refused);
        const ga_vector_appended appended = take_back(v);
        EXPECT(appended.growths == 0 && appended.refused == *refused);
        EXPECT(v.size() + *refused == (std::size_t)threads * each);
        EXPECT(each == 4u ? v.size() == 4 * MIB / sizeof(word) : *refused == 0);
        EXPECT(!strcmp(appended.reason, each == 4u ? "limit or addresses reached" : ""));
        thrust::sort(v.begin(), v.end());
        EXPECT(thrust::unique(v.begin(), v.end()) == v.end());
        EXPECT(v.back() < (word)threads * each);
    }
    v.clear(); /* from any lanes: 640 x 256 / 3 threads of each kind request 1, and about 3 */
    lend(v, &view, 2 * MIB);
    append_divergently<<<threads / BLOCK, BLOCK>>>(view);
    EXPECT(take_back(v).refused == 0 && v.size() > threads);
    CUDA(cudaFree(refused));
}

/* 8 GiB from one kernel, compared with a vector that had the room reserved. */
static void grows_far(int)
{
    SKIP_WHERE_NOTHING_GROWS
    unsigned *refused = new_counter();
    cudaEvent_t begin, end;
    CUDA(cudaEventCreate(&begin));
    CUDA(cudaEventCreate(&end));
    float ms[2] = {};
    for (int reserved = 0; reserved < 2; reserved++) {
        words v;
        ga_kernel_vector view;
        const unsigned blocks = 1u << 16, each = 64;
        const std::size_t all = (std::size_t)blocks * BLOCK * each;
        v.reserve(reserved ? all : 8 * MIB);
        lend(v, &view);
        CUDA(cudaEventRecord(begin));
        append_numbers<<<blocks, BLOCK>>>(view, each, refused);
        CUDA(cudaEventRecord(end));
        const ga_vector_appended appended = take_back(v);
        CUDA(cudaEventElapsedTime(&ms[reserved], begin, end));
        EXPECT(v.size() == all && *refused == 0);
        print(reserved ? "8 GiB reserved" : "8 GiB from 64 MiB", appended);
    }
    printf("    %.2f ms growing, %.2f ms reserved, %.2f times\n", ms[0], ms[1], ms[0] / ms[1]);
    CUDA(cudaEventDestroy(begin));
    CUDA(cudaEventDestroy(end));
    CUDA(cudaFree(refused));
}

/* Repeatedly, beside allocations, copies and other kernels. */
static void grows_beside_other_work(int)
{
    SKIP_WHERE_NOTHING_GROWS
    cudaStream_t streams[2];
    unsigned *refused = new_counter();
    std::vector<char> host(MIB);
    for (cudaStream_t &stream : streams) {
        CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    }
    for (int round = 0; round < (suite.quick ? 10 : 100); round++) {
        words v;
        ga_kernel_vector view;
        void *block = nullptr, *pooled = nullptr;
        lend(v, &view, 2 * MIB);
        append_numbers<<<1024, BLOCK, 0, streams[0]>>>(view, 16, refused);
        CUDA(cudaMalloc(&block, MIB));
        CUDA(cudaMallocAsync(&pooled, 32 * MIB, streams[1]));
        CUDA(cudaMemcpyAsync(block, host.data(), MIB, cudaMemcpyHostToDevice, streams[1]));
        CUDA(cudaMemsetAsync(pooled, round, 32 * MIB, streams[1]));
        CUDA(cudaFreeAsync(pooled, streams[1]));
        EXPECT(take_back(v).refused == 0);
        EXPECT(v.size() == 1024 * BLOCK * 16);
        CUDA(cudaFree(block));
    }
    EXPECT(*refused == 0);
    for (cudaStream_t stream : streams) {
        CUDA(cudaStreamDestroy(stream));
    }
    CUDA(cudaFree(refused));
}

const test_case vector_append_cases[] = {
    {"append: nothing is lost", guarded<loses_nothing>},
    {"append: any lanes", guarded<serves_any_lanes>},
    {"append: behind what is there", guarded<goes_on_behind>},
    {"append: a limit", guarded<ends_at_a_limit>},
    {"append: room that is there", guarded<fills_what_is_there>},
    {"append: 8 GiB", guarded<grows_far>},
    {"append: beside other work", guarded<grows_beside_other_work>},
};
const size_t vector_append_case_count = sizeof vector_append_cases / sizeof *vector_append_cases;
