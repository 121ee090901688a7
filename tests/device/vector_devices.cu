/* SPDX-License-Identifier: MIT
 *
 * Two GPUs: arenas that another device accesses, also while they grow; kernels that append on
 * another device than the current one, and on two at once. Skipped if there is no other device.
 */
#include "vector_tests.h"

#include <thrust/equal.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/sort.h>

#include <cstdio>
#include <cstring>
#include <utility>

/* The next device; the same one if it is the only one. */
static int other_than(int device)
{
    int devices = 1;
    CUDA(cudaGetDeviceCount(&devices));
    return (device + 1) % devices;
}

static bool reaches(int device, int memory_of)
{
    int can = 0;
    if (device != memory_of) {
        CUDA(cudaDeviceCanAccessPeer(&can, device, memory_of));
    }
    return can;
}

/* ---- arenas that another device reaches --------------------------------------------------- */

/* Of `device`, with access for `peer`. */
static ga_arena *open_shared(int device, int peer)
{
    ga_arena *arena = nullptr;
    ga_arena_options options = {};
    options.options_size = sizeof options;
    options.place = GA_PLACE_DEVICE;
    options.device = device;
    options.peers = &peer;
    options.peer_count = 1;
    EXPECT(ga_arena_open(&arena, &options) == GA_OK);
    return arena;
}

static __global__ void write_words(word *to, std::size_t n, word mark)
{
    for (std::size_t i = blockIdx.x * (std::size_t)blockDim.x + threadIdx.x; i < n;
         i += (std::size_t)gridDim.x * blockDim.x) {
        to[i] = mark ^ i;
    }
}

static __global__ void count_wrong(const word *at, std::size_t n, word mark, unsigned *wrong)
{
    for (std::size_t i = blockIdx.x * (std::size_t)blockDim.x + threadIdx.x; i < n;
         i += (std::size_t)gridDim.x * blockDim.x) {
        if (at[i] != (mark ^ i)) {
            atomicAdd(wrong, 1u);
        }
    }
}

/* Pinned, which all devices reach. */
static unsigned *pinned_words(std::size_t n)
{
    unsigned *words_ = nullptr;
    CUDA(cudaHostAlloc(&words_, n * sizeof *words_, cudaHostAllocPortable | cudaHostAllocMapped));
    std::memset(words_, 0, n * sizeof *words_);
    return words_;
}

static void write_on(int device, word *to, std::size_t n, word mark)
{
    CUDA(cudaSetDevice(device));
    write_words<<<64, BLOCK>>>(to, n, mark);
    CUDA(cudaDeviceSynchronize());
}

static unsigned wrong_on(int device, const word *at, std::size_t n, word mark)
{
    CUDA(cudaSetDevice(device));
    unsigned *counter = nullptr, wrong = 0;
    CUDA(cudaMalloc(&counter, sizeof *counter));
    CUDA(cudaMemset(counter, 0, sizeof *counter));
    count_wrong<<<64, BLOCK>>>(at, n, mark, counter);
    CUDA(cudaMemcpy(&wrong, counter, sizeof wrong, cudaMemcpyDeviceToHost));
    CUDA(cudaFree(counter));
    return wrong;
}

/* Each device reads the data that kernels of the other wrote, in old and in new memory. */
static void kernels_of_both(int device)
{
    const int other = other_than(device);
    if (!reaches(other, device)) {
        SKIP("no other device reaches the memory of this one");
    }
    ga_arena *arena = open_shared(device, other);
    REQUIRE(arena);
    word *base = (word *)ga_arena_base(arena);
    int writer = device, reader = other;
    std::size_t had = 0;
    for (std::size_t mib = 2; mib <= 256; mib *= 2) {
        const std::size_t n = mib * MIB / sizeof(word);
        EXPECT(ga_arena_grow(arena, mib * MIB) == GA_OK);
        EXPECT(wrong_on(reader, base, had, mib / 2) == 0); /* the earlier memory */
        write_on(writer, base, n, mib);
        EXPECT(wrong_on(reader, base, n, mib) == 0);
        EXPECT(wrong_on(writer, base, n, mib) == 0);
        std::swap(writer, reader);
        had = n;
    }
    EXPECT(ga_arena_shrink(arena, 2 * MIB) == GA_OK); /* and anew */
    EXPECT(ga_arena_grow(arena, had * sizeof(word)) == GA_OK);
    write_on(other, base, had, 1234);
    EXPECT(wrong_on(device, base, had, 1234) == 0);
    CUDA(cudaSetDevice(device));
    ga_arena_close(arena);
}

/* Waits for each step to be announced in flags[0], or for too long, which it says in flags[2];
 * writes there and says so in flags[1]. */
static __global__ void follow(volatile unsigned *flags, unsigned steps, word *to, std::size_t each)
{
    unsigned long long begin, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
    for (unsigned step = 1; step <= steps; step++) {
        while (flags[0] < step) {
            asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
            if (now - begin > 20ull * 1000 * 1000 * 1000) {
                flags[2] = 1;
                return;
            }
        }
        __threadfence_system();
        for (std::size_t i = each * (step - 1) + threadIdx.x; i < each * step; i += blockDim.x) {
            to[i] = i ^ 77u;
        }
        __threadfence_system();
        __syncthreads();
        if (threadIdx.x == 0) {
            flags[1] = step;
        }
    }
}

/* The other device's kernel continues to run, and uses memory that is mapped during it. */
static void grows_under_the_others_kernel(int device)
{
    SKIP_WHERE_NOTHING_GROWS
    enum {
        STEPS = 16
    };
    const int other = other_than(device);
    const std::size_t each = 32 * MIB / sizeof(word);
    if (!reaches(other, device)) {
        SKIP("no other device reaches the memory of this one");
    }
    ga_arena *arena = open_shared(device, other);
    volatile unsigned *flags = pinned_words(3);
    REQUIRE(arena && flags);
    cudaStream_t stream;
    CUDA(cudaSetDevice(other));
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    follow<<<1, BLOCK, 0, stream>>>(flags, STEPS, (word *)ga_arena_base(arena), each);
    CUDA(cudaGetLastError());
    for (unsigned step = 1; step <= STEPS; step++) {
        EXPECT(ga_arena_grow(arena, step * each * sizeof(word)) == GA_OK);
        /* Release. Pairs with the fence in follow(): the memory is mapped. */
        __atomic_store_n(flags, step, __ATOMIC_RELEASE);
        while (flags[1] < step && cudaStreamQuery(stream) == cudaErrorNotReady) {
        }
    }
    CUDA(cudaStreamSynchronize(stream));
    EXPECT(flags[1] == STEPS && flags[2] == 0);
    CUDA(cudaStreamDestroy(stream));
    EXPECT(wrong_on(device, (word *)ga_arena_base(arena), STEPS * each, 77) == 0);
    EXPECT(wrong_on(other, (word *)ga_arena_base(arena), STEPS * each, 77) == 0);
    CUDA(cudaSetDevice(device));
    ga_arena_close(arena);
    CUDA(cudaFreeHost((void *)flags));
}

/* ---- appending ------------------------------------------------------------------------------ */

static __global__ void append_numbers_across(ga_kernel_vector view, unsigned each,
                                             unsigned *refused)
{
    word first = (blockIdx.x * (word)blockDim.x + threadIdx.x) * each;
    word *at = (word *)ga_kernel_vector_append(view, each);
    for (unsigned i = 0; at && i < each; i++) {
        at[i] = first + i;
    }
    if (!at) {
        atomicAdd_system(refused, each);
    }
}

static gpualloc::where on(int device)
{
    gpualloc::where at;
    at.device = device;
    return at;
}

/* Each number below its size once. */
static bool is_a_permutation(int device, words &v)
{
    CUDA(cudaSetDevice(device));
    thrust::sort(v.begin(), v.end());
    return thrust::equal(v.begin(), v.end(), thrust::counting_iterator<word>(0));
}

static void launch_on(int device, ga_kernel_vector view, unsigned blocks, unsigned each,
                      unsigned *refused)
{
    CUDA(cudaSetDevice(device));
    append_numbers_across<<<blocks, BLOCK>>>(view, each, refused);
    CUDA(cudaGetLastError());
}

/* All calls but the launch are made while the other device is current. */
static void appends_elsewhere(int device)
{
    SKIP_WHERE_NOTHING_GROWS
    const int other = other_than(device);
    if (other == device) {
        SKIP("no other device");
    }
    unsigned *refused = pinned_words(1);
    words v(on(other));
    for (int round = 0; round < 3; round++) {
        ga_kernel_vector view;
        ga_vector_appended appended = {};
        const std::size_t before = v.size();
        CUDA(cudaSetDevice(device));
        gpualloc::check(ga_vector_lend(v.handle(), MIB, &view));
        launch_on(other, view, 4096, 8, refused);
        CUDA(cudaDeviceSynchronize());
        CUDA(cudaSetDevice(device));
        gpualloc::check(ga_vector_end_loan(v.handle(), &appended));
        EXPECT(appended.refused == 0 && *refused == 0 && (round || appended.growths > 0));
        EXPECT(v.size() == before + 4096 * BLOCK * 8);
        EXPECT(round || is_a_permutation(other, v));
    }
    CUDA(cudaSetDevice(device));
    v.clear();
    v.shrink_to_fit();
    CUDA(cudaFreeHost(refused));
}

/* A pager for each, both at work. */
static void appends_on_both(int device)
{
    SKIP_WHERE_NOTHING_GROWS
    const int other = other_than(device);
    if (other == device) {
        SKIP("no other device");
    }
    const unsigned blocks = 1u << 14, each = 32; /* 1 GiB each */
    const int devices[] = {device, other};
    unsigned *refused = pinned_words(1);
    for (int round = 0; round < 10; round++) {
        words a(on(device)), b(on(other));
        words *const vectors[] = {&a, &b};
        ga_kernel_vector views[2];
        for (int i = 0; i < 2; i++) {
            gpualloc::check(ga_vector_lend(vectors[i]->handle(), 2 * MIB, &views[i]));
        }
        for (int i = 0; i < 2; i++) {
            launch_on(devices[i], views[i], blocks, each, refused);
        }
        for (int i = 0; i < 2; i++) {
            ga_vector_appended appended = {};
            CUDA(cudaSetDevice(devices[i]));
            CUDA(cudaDeviceSynchronize());
            gpualloc::check(ga_vector_end_loan(vectors[i]->handle(), &appended));
            EXPECT(appended.refused == 0 && appended.growths > 0);
            EXPECT(vectors[i]->size() == (std::size_t)blocks * BLOCK * each);
            if (round == 0) {
                EXPECT(is_a_permutation(devices[i], *vectors[i]));
                printf("    on device %d: %llu growths, us: p50 %.1f, p99 %.1f, most %.1f\n",
                       devices[i], (word)appended.growths, (double)appended.grow_ns_p50 / 1e3,
                       (double)appended.grow_ns_p99 / 1e3, (double)appended.grow_ns_max / 1e3);
            }
        }
    }
    EXPECT(*refused == 0);
    CUDA(cudaSetDevice(device));
    CUDA(cudaFreeHost(refused));
}

const test_case vector_device_cases[] = {
    {"append on another device than the current", guarded<appends_elsewhere>},
    {"append on another device at the same time", guarded<appends_on_both>},
    {"an arena under kernels of another device", guarded<kernels_of_both>},
    {"an arena that grows under another device's kernel", guarded<grows_under_the_others_kernel>},
};
const size_t vector_device_case_count = sizeof vector_device_cases / sizeof *vector_device_cases;
