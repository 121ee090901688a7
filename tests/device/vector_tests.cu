/* SPDX-License-Identifier: MIT
 *
 * Vectors on GPUs: Thrust's algorithms on gpualloc::device_vector, its growth in place, also during
 * a kernel, moves of tails, streams, every kind of memory as a source; kernels that append
 * (vector_append.cu), beside other processes (vector_processes.cu) and on two GPUs
 * (vector_devices.cu); and heaps below thrust::device_vector and CCCL's resources. One line a case,
 * then `N passed, N failed, N skipped`. Exit status 0, 1 when a case failed, 77 without a GPU.
 *
 *   vector_tests [--only WORDS] [--quick] [--no-growing]
 *       the cases whose name contains the words; fewer rounds of each; no vectors that grow during
 *       their kernels, whose memory a sanitizer does not know. The other modes below are for cases
 *       that need a process of their own.
 */
#include <gpualloc/cccl.hpp> /* must be included first */

#include "vector_tests.h"

#include <gpualloc/thrust.hpp>
#include <gpualloc/vector.hpp>

#include <thrust/count.h>
#include <thrust/device_vector.h>
#include <thrust/equal.h>
#include <thrust/host_vector.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/reduce.h>
#include <thrust/sequence.h>
#include <thrust/sort.h>
#include <thrust/transform.h>
#include <thrust/unique.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <vector>

using gpualloc::device_vector;

/* The vector's contents. */
template <class T> static std::vector<T> contents(const device_vector<T> &v)
{
    std::vector<T> out(v.size());
    v.read(0, v.size(), out.data());
    v.wait();
    return out;
}

static std::uint32_t next_random(std::uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static std::vector<int> numbers(std::size_t n, std::uint32_t seed)
{
    std::vector<int> out(n);
    for (int &x : out) {
        x = (int)next_random(&seed);
    }
    return out;
}

/* ---- Thrust -------------------------------------------------------------------------------- */

struct twice {
    __host__ __device__ int operator()(int x) const
    {
        return 2 * x;
    }
};

static void thrust_algorithms(int)
{
    std::vector<int> expected = numbers(300000, 1);
    device_vector<int> v(expected.begin(), expected.end());
    thrust::sort(v.begin(), v.end());
    std::sort(expected.begin(), expected.end());
    EXPECT(contents(v) == expected);
    thrust::transform(v.begin(), v.end(), v.begin(), twice());
    std::transform(expected.begin(), expected.end(), expected.begin(), twice());
    EXPECT(contents(v) == expected);
    const device_vector<int> &seen = v;
    const long long sum = thrust::reduce(seen.begin(), seen.end(), 0ll);
    EXPECT(sum == std::accumulate(expected.begin(), expected.end(), 0ll));
    v.erase(thrust::unique(v.begin(), v.end()), v.end());
    expected.erase(std::unique(expected.begin(), expected.end()), expected.end());
    EXPECT(contents(v) == expected);
    EXPECT(v[7] == expected[7] && v.front() == expected.front() && seen.back() == expected.back());
    v[7] = 42;
    EXPECT(v[7] == 42);
}

static void thrust_ranges(int)
{
    device_vector<int> v(thrust::counting_iterator<int>(0), thrust::counting_iterator<int>(1000));
    const thrust::host_vector<int> host(10, -1);
    const thrust::device_vector<int> device(10, -2);
    const std::vector<short> other(10, -3); /* of another type */
    v.insert(v.begin() + 5, host.begin(), host.end());
    v.insert(v.begin() + 5, device.begin(), device.end());
    v.append(other.begin(), other.end());
    std::vector<int> expected(1000);
    std::iota(expected.begin(), expected.end(), 0);
    expected.insert(expected.begin() + 5, host.begin(), host.end());
    expected.insert(expected.begin() + 5, 10, -2);
    expected.insert(expected.end(), 10, -3);
    EXPECT(contents(v) == expected);
    thrust::device_vector<int> back(v.begin(), v.end());
    EXPECT(thrust::equal(back.begin(), back.end(), v.begin()));
    device_vector<int> copy = v;
    copy.insert(copy.begin() + 3, v.begin(), v.end());
    expected.insert(expected.begin() + 3, back.begin(), back.end());
    EXPECT(contents(copy) == expected);
}

/* ---- growth -------------------------------------------------------------------------------- */

static void grows_in_place(int)
{
    device_vector<unsigned long long> v;
    const unsigned long long *data = v.raw();
    const std::size_t max = suite.quick ? 64 * MIB : 1024 * MIB;
    for (std::size_t n = MIB / 8; n <= max / 8; n *= 2) {
        const std::size_t before = v.size();
        v.resize(n);
        thrust::sequence(v.begin() + (std::ptrdiff_t)before, v.end(), (unsigned long long)before);
    }
    const unsigned long long n = v.size();
    EXPECT(v.raw() == data);
    EXPECT(thrust::reduce(v.begin(), v.end(), 0ull) == n * (n - 1) / 2);
    v.resize(1000);
    v.shrink_to_fit();
    EXPECT(v.raw() == data && v.capacity() * 8 <= max);
    EXPECT(thrust::reduce(v.begin(), v.end(), 0ull) == 499500ull);
    v.clear();
    v.shrink_to_fit();
    EXPECT(v.capacity() == 0);
}

/* Impossible with copies: a vector of more than half of the card grows (§A.2.1). */
static void grows_on_a_full_card(int)
{
    std::size_t left = 0, all = 0;
    if (suite.quick) {
        SKIP("it fills the card");
    }
    CUDA(cudaMemGetInfo(&left, &all));
    const std::size_t max = left / MIB / 10 * 6, more = left / MIB / 10 * 3;
    device_vector<char> v(max * MIB);
    v.fill(0, MIB, 7);
    v.resize((max + more) *
             MIB); /* the growth rule requests twice as much, which is not available */
    EXPECT(v.size() == (max + more) * MIB);
    EXPECT(v[0] == 7 && v[MIB - 1] == 7);
    bool thrown = false;
    try {
        v.append(left);
    } catch (const std::bad_alloc &) {
        thrown = true;
    }
    EXPECT(thrown);
    EXPECT(v.size() == (max + more) * MIB && v[MIB - 1] == 7);
}

/* Runs until *stop is set, or for too long, which it says in *late. */
static __global__ void spin(volatile unsigned *stop, volatile unsigned *running, unsigned *late,
                            unsigned long long *data)
{
    unsigned long long begin, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
    *running = 1;
    do {
        data[0]++;
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
        if (now - begin > 20ull * 1000 * 1000 * 1000) {
            *late = 1;
            return;
        }
    } while (!*stop);
    data[1] = data[0];
}

/* Growing waits for no kernel: this one ends only on request, after all growths. */
static void grows_beside_a_kernel(int)
{
    unsigned *words = nullptr;
    SKIP_WHERE_NOTHING_GROWS
    CUDA(cudaHostAlloc(&words, 3 * sizeof *words, cudaHostAllocMapped));
    std::memset(words, 0, 3 * sizeof *words);
    cudaStream_t stream;
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    {
        device_vector<unsigned long long> v(2, 0ull);
        spin<<<1, 1, 0, stream>>>(&words[0], &words[1], &words[2], v.raw());
        CUDA(cudaGetLastError());
        while (!*(volatile unsigned *)&words[1] && cudaStreamQuery(stream) == cudaErrorNotReady) {
        }
        for (std::size_t mib = 4; mib <= 4096; mib *= 2) {
            v.reserve(mib * MIB / 8);
        }
        *(volatile unsigned *)&words[0] = 1;
        CUDA(cudaStreamSynchronize(stream));
        EXPECT(words[2] == 0); /* no call waited for its end */
        EXPECT(v[0] == v[1] && v[0] > 0);
    }
    CUDA(cudaStreamDestroy(stream));
    CUDA(cudaFreeHost(words));
}

/* ---- elements ------------------------------------------------------------------------------ */

/* Tails that move by every method, up and down, compared with std::vector. */
static void moves_tails(int)
{
    const std::size_t ways[] = {1, 1000, MIB / 4 - 1, MIB / 4, MIB, 2 * MIB};
    for (std::size_t way : ways) {
        std::vector<int> expected = numbers(5 * MIB, 3), more = numbers(way, 4);
        device_vector<int> v(expected.begin(), expected.end());
        v.insert(v.begin() + 9, more.begin(), more.end());
        expected.insert(expected.begin() + 9, more.begin(), more.end());
        EXPECT(contents(v) == expected);
        v.erase(v.begin() + 5, v.begin() + 5 + (std::ptrdiff_t)way);
        expected.erase(expected.begin() + 5, expected.begin() + 5 + (std::ptrdiff_t)way);
        EXPECT(contents(v) == expected);
    }
}

struct three {
    unsigned char bytes[3];
};

static void fills(int)
{
    device_vector<three> odd(100001, three{{1, 2, 3}});
    device_vector<double> doubles(100001, 0.1);
    device_vector<int> words(100001, 0x01020304), bytes(100001, -1);
    EXPECT(thrust::count(doubles.begin(), doubles.end(), 0.1) == 100001);
    EXPECT(thrust::count(words.begin(), words.end(), 0x01020304) == 100001);
    EXPECT(thrust::count(bytes.begin(), bytes.end(), -1) == 100001);
    bool good = true;
    for (const three &x : contents(odd)) {
        good &= x.bytes[0] == 1 && x.bytes[1] == 2 && x.bytes[2] == 3;
    }
    EXPECT(good);
    words.fill(10, 5, 7);
    EXPECT(words[9] == 0x01020304 && words[10] == 7 && words[14] == 7 && words[15] == 0x01020304);
}

/* Append the same ints from each kind of memory. */
static void takes_from_any_memory(int)
{
    const std::vector<int> expected = numbers(MIB, 5);
    const std::size_t size = expected.size() * sizeof(int);
    int *pinned = nullptr, *device = nullptr, *managed = nullptr, *pooled = nullptr;
    CUDA(cudaMallocHost(&pinned, size));
    CUDA(cudaMalloc(&device, size));
    CUDA(cudaMallocManaged(&managed, size));
    CUDA(cudaMallocAsync(&pooled, size, 0));
    CUDA(cudaStreamSynchronize(0));
    for (int *memory : {pinned, device, managed, pooled}) {
        CUDA(cudaMemcpy(memory, expected.data(), size, cudaMemcpyDefault));
    }
    const device_vector<int> other(expected.begin(), expected.end());
    for (const int *memory :
         {expected.data(), (const int *)pinned, (const int *)device, (const int *)managed,
          (const int *)pooled, (const int *)other.raw()}) {
        device_vector<int> v;
        v.append(memory, memory + expected.size());
        EXPECT(contents(v) == expected);
        int *back = memory == pinned ? device : pinned; /* and out into memory of both sides */
        v.fill(0, 1, 1);
        v.read(0, v.size(), back);
        std::vector<int> seen(expected.size());
        CUDA(cudaMemcpy(seen.data(), back, size, cudaMemcpyDefault));
        EXPECT(seen[0] == 1 && !std::memcmp(&seen[1], &expected[1], size - sizeof(int)));
        CUDA(cudaMemcpy(back, expected.data(), size, cudaMemcpyDefault));
    }
    CUDA(cudaFreeHost(pinned));
    CUDA(cudaFree(device));
    CUDA(cudaFree(managed));
    CUDA(cudaFree(pooled));
}

static __global__ void count_up(int *data, std::size_t n, int add)
{
    for (std::size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (std::size_t)gridDim.x * blockDim.x) {
        data[i] += add;
    }
}

/* Kernels and the vector's work on one stream are ordered, without a wait between. */
static void keeps_stream_order(int)
{
    cudaStream_t stream;
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    {
        gpualloc::where at;
        at.stream = stream;
        std::vector<int> expected(4 * MIB, 1), more(100, 5);
        device_vector<int> v(expected.begin(), expected.end(), at);
        for (int i = 0; i < 20; i++) {
            count_up<<<64, 256, 0, stream>>>(v.raw(), v.size(), 1);
            CUDA(cudaGetLastError());
            for (int &x : expected) {
                x++;
            }
            v.insert(v.begin() + 1000 * i, more.data(), more.data() + more.size());
            expected.insert(expected.begin() + 1000 * i, more.begin(), more.end());
        }
        EXPECT(contents(v) == expected);
        device_vector<int> other; /* on the default stream */
        count_up<<<64, 256, 0, stream>>>(v.raw(), v.size(), 1);
        EXPECT(ga_vector_copy(other.handle(), v.handle()) == GA_OK);
        for (int &x : expected) {
            x++;
        }
        EXPECT(contents(other) == expected);
    }
    CUDA(cudaStreamDestroy(stream));
}

static void takes_from_another_device(int device)
{
    int devices = 0, reaches = 0;
    CUDA(cudaGetDeviceCount(&devices));
    const int other = (device + 1) % devices;
    if (other != device) {
        CUDA(cudaDeviceCanAccessPeer(&reaches, device, other));
    }
    if (!reaches) {
        SKIP("no second device that this one can reach");
    }
    const std::vector<int> expected = numbers(MIB, 6);
    ga_vector *far = nullptr;
    ga_arena_options options = {};
    options.options_size = sizeof options;
    options.place = GA_PLACE_DEVICE;
    options.device = other;
    options.peers = &device;
    options.peer_count = 1;
    REQUIRE(ga_vector_open(&far, sizeof(int), &options, nullptr) == GA_OK);
    EXPECT(ga_vector_append(far, expected.size(), expected.data()) == GA_OK);
    device_vector<int> near;
    EXPECT(ga_vector_copy(near.handle(), far) == GA_OK);
    EXPECT(contents(near) == expected);
    const int *data = (const int *)ga_vector_data(far);
    near.append(data, data + expected.size());
    EXPECT(near.size() == 2 * expected.size() && near[expected.size() + 5] == expected[5]);
    ga_vector_close(far);
}

/* ---- heaps below others' containers -------------------------------------------------------- */

static ga_stats stats_of(ga_heap *heap)
{
    ga_stats stats = {};
    EXPECT(ga_heap_stats(heap, &stats) == GA_OK);
    return stats;
}

static void allocates_for_thrust(int device)
{
    for (const char *spec : {"cuda", "managed", "pinned", "async"}) {
        ga_heap *heap = nullptr;
        REQUIRE(ga_heap_open(&heap, GA_PLACE_DEVICE, device, spec) == GA_OK);
        gpualloc::heap_resource resource(heap);
        {
            thrust::device_vector<int, gpualloc::heap_allocator<int>> v(&resource);
            v.resize(1000, 3);
            v.resize(100000, 4);
            EXPECT(thrust::reduce(v.begin(), v.end()) == 3 * 1000 + 4 * 99000);
            EXPECT(stats_of(heap).live_blocks == 1 && stats_of(heap).allocs >= 2);
        }
        EXPECT(stats_of(heap).live_blocks == 0);
        EXPECT(ga_heap_close(heap) == GA_OK);
    }
    ga_heap *process = gpualloc::detail::process_heaps::get().of(device);
    {
        thrust::device_vector<int, gpualloc::device_allocator<int>> v(1000, 7), w;
        w = v;
        EXPECT(thrust::reduce(w.begin(), w.end()) == 7000);
        EXPECT(stats_of(process).live_blocks == 2);
    }
    EXPECT(stats_of(process).live_blocks == 0);
}

static void is_a_resource_of_cccl(int device)
{
    cudaStream_t stream;
    CUDA(cudaStreamCreate(&stream));
    for (const char *spec : {"cuda", "async"}) { /* without stream order, and with it */
        ga_heap *heap = nullptr;
        REQUIRE(ga_heap_open(&heap, GA_PLACE_DEVICE, device, spec) == GA_OK);
        gpualloc::memory_resource resource(heap), same(heap);
        EXPECT(resource == same);
        cuda::mr::async_resource_ref<cuda::mr::device_accessible> ref(resource);
        void *block = ref.allocate(MIB, 256);
        void *later = ref.allocate_async(MIB, 256, stream);
        CUDA(cudaMemsetAsync(block, 1, MIB, stream));
        CUDA(cudaMemsetAsync(later, 2, MIB, stream));
        EXPECT(stats_of(heap).live_blocks == 2);
        ref.deallocate_async(later, MIB, 256, stream);
        CUDA(cudaStreamSynchronize(stream));
        ref.deallocate(block, MIB, 256);
        EXPECT(stats_of(heap).live_blocks == 0);
        EXPECT(ga_heap_close(heap) == GA_OK);
    }
    CUDA(cudaStreamDestroy(stream));
}

/* ---- the program --------------------------------------------------------------------------- */

static const test_case cases[] = {
    {"Thrust's algorithms", guarded<thrust_algorithms>},
    {"ranges of every kind", guarded<thrust_ranges>},
    {"growth in place", guarded<grows_in_place>},
    {"growth on a full card", guarded<grows_on_a_full_card>},
    {"growth beside a running kernel", guarded<grows_beside_a_kernel>},
    {"tails that move", guarded<moves_tails>},
    {"fills", guarded<fills>},
    {"sources in any memory", guarded<takes_from_any_memory>},
    {"stream order", guarded<keeps_stream_order>},
    {"another device's memory", guarded<takes_from_another_device>},
    {"heaps for thrust::device_vector", guarded<allocates_for_thrust>},
    {"heaps as resources of CCCL", guarded<is_a_resource_of_cccl>},
};

static void run_on(int device)
{
    test_run("vector", cases, sizeof cases / sizeof *cases, device, suite.only);
    test_run("vector", vector_append_cases, vector_append_case_count, device, suite.only);
    test_run("vector", vector_process_cases, vector_process_case_count, device, suite.only);
    test_run("vector", vector_device_cases, vector_device_case_count, device, suite.only);
}

int main(int argc, char **argv)
{
    if (argc == 2 && !std::strcmp(argv[1], "--append-beside")) {
        return vector_append_beside();
    }
    if (argc == 2 && !std::strcmp(argv[1], "--append-for-ever")) {
        return vector_append_for_ever();
    }
    return suite_main(argc, argv, run_on);
}
