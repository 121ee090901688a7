/* SPDX-License-Identifier: MIT
 *
 * In-kernel malloc when the heap is full, and when the size class changes. One heap of a fixed
 * capacity. One launch makes 5 % more requests than the heap can serve, then 2^20 requests all
 * fail, in several launches. Then everything is freed, and the whole heap is requested in blocks of
 * another size, and in the first size again. At last the heap is filled with blocks of 16 to 2048
 * bytes, a random half is freed, and the heap is filled again. The host makes no call to the heap
 * in between. With LINKED defined it measures malloc and free of libgpualloc-kernel.a, else
 * ga_kernel_malloc().
 *
 *   bench-slab-full [--gib N] [--size BYTES] [--other BYTES]
 *   bench-slab-full --used PERCENT [--gib N] [--size BYTES]
 *   bench-slab-full-linked ...
 *
 * With --used it measures only 2^20 requests from a new heap that is so full, whose free blocks are
 * the last ones, or random ones.
 */
#ifdef LINKED
#define PROGRAM "bench-slab-full-linked"
#else
#define PROGRAM        "bench-slab-full"
#define GA_KERNEL_ONLY GA_KERNEL_KIND_SIZED
#endif
#include <gpualloc/device.cuh>
#include <gpualloc/kernel.h>

#include "calls.cuh"
#include "mixed.cuh"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

enum {
    THREADS = 128, /* a block; sixteen of them fill a multiprocessor */
    ROUNDS = 11
};
#define KERNEL __global__ void __launch_bounds__(THREADS, 16)

typedef unsigned long long count;

static ga_kernel_heap view;
static void **pointers;
static count *served; /* on the device */

static void must(cudaError_t error, const char *what)
{
    if (error != cudaSuccess) {
        fprintf(stderr, PROGRAM ": %s: %s\n", what, cudaGetErrorString(error));
        exit(1);
    }
}
#define MUST(call) must((call), #call)

/* Microseconds on the device for the kernels that `run` launches. */
template <class RUN> static double time_of(RUN run)
{
    cudaEvent_t begin, end;
    float ms;
    MUST(cudaEventCreate(&begin));
    MUST(cudaEventCreate(&end));
    MUST(cudaEventRecord(begin));
    run();
    MUST(cudaEventRecord(end));
    MUST(cudaDeviceSynchronize());
    MUST(cudaEventElapsedTime(&ms, begin, end));
    MUST(cudaEventDestroy(begin));
    MUST(cudaEventDestroy(end));
    return ms * 1000.0;
}

KERNEL ask(ga_kernel_heap from, size_t size, count n, void **out, count *got)
{
    count i = (count)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) {
        return;
    }
    void *block = take(from, size);
    if (block) {
        *(uint4 *)block = make_uint4((uint32_t)i, 0, 0, 0);
    }
    if (out) {
        out[i] = block;
    }
    uint32_t given = __reduce_add_sync(__activemask(), block != NULL);
    if (given && threadIdx.x % 32 == __ffs(__activemask()) - 1) {
        atomicAdd(got, given);
    }
}

KERNEL give(ga_kernel_heap to, count n, void **blocks)
{
    count i = (count)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && blocks[i]) {
        give_back(to, blocks[i]);
    }
}

/* Blocks of 16 to 2048 bytes. `got[0]` adds up the bytes that were requested and served, `got[1]`
 * counts the requests that were not. */
KERNEL ask_mixed(ga_kernel_heap from, uint32_t first, void **out, count *got)
{
    uint32_t i = first + blockIdx.x * blockDim.x + threadIdx.x;
    uint32_t size = mixed_size(i);
    void *block = take(from, size);
    if (block) {
        *(uint4 *)block = make_uint4(i, 0, 0, 0);
    }
    out[i] = block;
    uint32_t bytes = __reduce_add_sync(GA_ALL_BITS, block ? size : 0u);
    uint32_t failed = __reduce_add_sync(GA_ALL_BITS, block == NULL);
    if (threadIdx.x % 32 == 0) {
        atomicAdd(got, bytes);
        atomicAdd(got + 1, failed);
    }
}

/* Free random blocks, `permille` of 1,000. */
KERNEL give_some(ga_kernel_heap to, count n, void **blocks, uint32_t permille)
{
    count i = (count)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && blocks[i] && mix((uint32_t)i * 7919u) % 1000u < permille) {
        give_back(to, blocks[i]);
        blocks[i] = NULL;
    }
}

/* Free a random half of the blocks. */
KERNEL give_half(ga_kernel_heap to, void **blocks, count *got)
{
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (blocks[i] && mix(i * 7919u) & 1u) {
        atomicAdd(got, (count)0 - mixed_size(i));
        give_back(to, blocks[i]);
        blocks[i] = NULL;
    }
}

KERNEL swap(ga_kernel_heap heap, size_t size, void **block)
{
    give_back(heap, *block);
    *block = take(heap, size);
}

/* n requests in one launch. Returns the milliseconds that they took, and in `got` the number of
 * those that were served. */
static double ask_once(size_t size, count n, void **out, count *got)
{
    MUST(cudaMemset(served, 0, sizeof *served));
    double us = time_of([&] {
        ask<<<(unsigned)((n + THREADS - 1) / THREADS), THREADS>>>(view, size, n, out, served);
    });
    MUST(cudaMemcpy(got, served, sizeof *got, cudaMemcpyDeviceToHost));
    return us / 1000;
}

static void ask_all(const char *what, size_t size, count n, void **out)
{
    count got = 0;
    double ms = ask_once(size, n, out, &got);
    printf("%-34s %6zu B %12llu requests %10.3f ms, %6.2f %% served\n", what, size, n, ms,
           100.0 * (double)got / (double)n);
    fflush(stdout);
}

/* n requests that nothing can serve, in ROUNDS launches: prints how long each took, the median and
 * the longest. The heap is filled with blocks of `filled` bytes. With `changing`, one of them is
 * freed and requested again before each launch, so that the heap does not remember that it is
 * full. */
static void ask_full(const char *what, size_t size, count n, size_t filled, bool changing)
{
    double ms[ROUNDS];
    count got = 0;
    for (unsigned round = 0; round < ROUNDS; round++) {
        count more = 0;
        if (changing) {
            swap<<<1, 1>>>(view, filled, pointers + round * 4099u);
            MUST(cudaDeviceSynchronize());
        }
        ms[round] = ask_once(size, n, NULL, &more);
        got += more;
    }
    printf("%-34s %6zu B %12llu requests", what, size, n);
    for (double each : ms) {
        printf(" %.3f", each);
    }
    std::sort(ms, ms + ROUNDS);
    printf(" ms; median %.3f, longest %.3f; %llu served\n", ms[ROUNDS / 2], ms[ROUNDS - 1], got);
    fflush(stdout);
}

static void free_all(const char *what, count n)
{
    double us = time_of(
        [&] { give<<<(unsigned)((n + THREADS - 1) / THREADS), THREADS>>>(view, n, pointers); });
    printf("%-34s %10s %10llu blocks   %10.3f ms\n", what, "", n, us / 1000);
}

/* Launches of 2^20 requests from block number `*first` on, until one is refused or the numbers end.
 * Prints the share of the heap's bytes that is live then, and the rate of all launches but the last
 * one. */
static void fill_mixed(const char *what, double bytes, uint32_t *first, uint32_t end)
{
    const uint32_t n = 1u << 20;
    count got[2] = {0, 0};
    double us = 0, last = 0;
    uint32_t launches = 0;
    for (; !got[1] && *first + n <= end; *first += n, launches++) {
        us += last;
        last =
            time_of([&] { ask_mixed<<<n / THREADS, THREADS>>>(view, *first, pointers, served); });
        MUST(cudaMemcpy(got, served, sizeof got, cudaMemcpyDeviceToHost));
    }
    printf("%-34s live %.3f of the heap, %.2f G/s in %u launches, %.2f in the last, %llu refused\n",
           what, (double)got[0] / bytes, launches > 1 ? n * (launches - 1.0) / us / 1e3 : 0.0,
           launches - 1, n / last / 1e3, got[1]);
}

static void refill(double bytes, count n)
{
    uint32_t next = 0, end = (uint32_t)std::min<count>(n, UINT32_MAX) >> 20 << 20;
    count got[2];
    MUST(cudaMemset(pointers, 0, n * sizeof *pointers));
    MUST(cudaMemset(served, 0, sizeof got));
    fill_mixed("mixed sizes", bytes, &next, end);
    give_half<<<next / THREADS, THREADS>>>(view, pointers, served);
    MUST(cudaMemset(served + 1, 0, sizeof *served));
    MUST(cudaMemcpy(got, served, sizeof got, cudaMemcpyDeviceToHost));
    printf("%-34s live %.3f of the heap\n", "a random half freed", (double)got[0] / bytes);
    fill_mixed("mixed sizes again", bytes, &next, end);
    free_all("all freed", next);
}

/* 2^20 requests, again and again, with the blocks freed in between. */
static void ask_again(const char *what, size_t size, void **out)
{
    const count n = 1u << 20;
    double ms[ROUNDS], freed[ROUNDS];
    count got = 0;
    for (unsigned round = 0; round < ROUNDS; round++) {
        count more = 0;
        ms[round] = ask_once(size, n, out, &more);
        got += more;
        freed[round] =
            time_of([&] { give<<<(unsigned)(n / THREADS), THREADS>>>(view, n, out); }) / 1000;
    }
    std::sort(ms, ms + ROUNDS);
    std::sort(freed, freed + ROUNDS);
    printf("%-34s %6zu B %8.2f G/s (%.2f to %.2f), frees %.2f, %llu refused\n", what, size,
           (double)n / ms[ROUNDS / 2] / 1e6, (double)n / ms[ROUNDS - 1] / 1e6,
           (double)n / ms[0] / 1e6, (double)n / freed[ROUNDS / 2] / 1e6, n * ROUNDS - got);
    fflush(stdout);
}

static void nearly_full(size_t size, count units, unsigned percent)
{
    char what[64];
    count used = units / 100 * percent, got = 0;
    void **more = pointers + units;
    ask_again("an empty heap", size, more);
    ask_once(size, used, pointers, &got);
    snprintf(what, sizeof what, "%u %% used, in order", percent);
    ask_again(what, size, more);
    ask_once(size, units - used, pointers + used, &got);
    give_some<<<(unsigned)((units + THREADS - 1) / THREADS), THREADS>>>(view, units, pointers,
                                                                        1000 - 10 * percent);
    snprintf(what, sizeof what, "%u %% used, holes at random", percent);
    ask_again(what, size, more);
}

static void open_heap(unsigned gib)
{
    char spec[128];
#ifdef LINKED
    snprintf(spec, sizeof spec, "slab:limit=%uG,capacity=%uG/vmm", gib, gib);
    if (ga_kernel_use(spec) != GA_OK || ga_kernel_init() != GA_OK) {
        fprintf(stderr, PROGRAM ": %s: %s\n", spec, ga_error_text());
        exit(1);
    }
#else
    ga_heap *heap;
    snprintf(spec, sizeof spec, "slab:unit=classes,limit=%uG,capacity=%uG/vmm", gib, gib);
    if (ga_heap_open(&heap, GA_PLACE_KERNEL, 0, spec) != GA_OK ||
        ga_heap_kernel_view(heap, &view) != GA_OK) {
        fprintf(stderr, PROGRAM ": %s: %s\n", spec, ga_error_text());
        exit(1);
    }
#endif
    printf("%s\n", spec);
}

int main(int argc, char **argv)
{
    unsigned gib = 1, used = 0;
    size_t size = 16, other = 1024;
    for (int i = 1; i + 1 < argc; i += 2) {
        unsigned long value = strtoul(argv[i + 1], NULL, 10);
        if (!strcmp(argv[i], "--gib")) {
            gib = (unsigned)value;
        } else if (!strcmp(argv[i], "--size")) {
            size = value;
        } else if (!strcmp(argv[i], "--other")) {
            other = value;
        } else if (!strcmp(argv[i], "--used")) {
            used = (unsigned)value;
        }
    }
    if (used > 99) {
        fprintf(stderr, PROGRAM ": --used: expected 1 to 99 percent, not %u\n", used);
        return 2;
    }
    const count bytes = (count)gib << 30, failing = 1u << 20;
    count n = bytes / size + bytes / size / 20;
    n = (n > bytes / other ? n : bytes / other) + 1;
    n = std::max(n, bytes / size + failing);
    MUST(cudaFree(NULL));
    MUST(cudaMalloc(&pointers, n * sizeof *pointers));
    MUST(cudaMalloc(&served, 2 * sizeof *served));
    open_heap(gib);
    if (used) {
        nearly_full(size, bytes / size, used);
        return 0;
    }
    count over = bytes / size + bytes / size / 20;
    ask_all("5 % more than the heap holds", size, over, pointers);
    ask_full("a full heap", size, failing, size, false);
    ask_full("a full heap, another size", other, failing, size, false);
    ask_full("full, blocks change", size, failing, size, true);
    ask_full("full, another size, blocks change", other, failing, size, true);
    ask_full("full, one warp, blocks change", size, 32, size, true);
    free_all("all freed", over);
    count blocks = bytes / other;
    ask_all("the whole heap in another size", other, blocks, pointers);
    ask_full("a full heap", other, failing, other, false);
    ask_full("full, blocks change", other, failing, other, true);
    free_all("all freed", blocks);
    ask_all("the whole heap in that size again", other, blocks, pointers);
    free_all("all freed", blocks);
    ask_all("the whole heap in the first size", size, bytes / size, pointers);
    ask_full("a full heap", size, failing, size, false);
    free_all("all freed", bytes / size);
    refill((double)bytes, n);
    return 0;
}
