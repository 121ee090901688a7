/* SPDX-License-Identifier: MIT
 *
 * The cost of growth while the kernel that uses the heap runs: one kernel on a heap that has all
 * its memory from the start, and on one that begins with little. Both are opened again for each
 * round and take turns. With GPUALLOC_LOG=info the library reports after each round how long its
 * pager was busy with the driver. Also measures the time that the driver alone takes to map as much
 * memory, in chunks of several sizes. That is not a lower bound, because all of it is created again
 * after the previous round freed it. Prints GPU, driver and date; bench/README.md explains the
 * lines.
 *
 *   bench-slab-growing [--rounds N] [--parent SPEC] [--gib N] [--unit BYTES]
 */
#include <gpualloc/device.cuh>

#include <cuda.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <thread>
#include <vector>

static int rounds = 7;
static const char *parent = "vmm";
static uint64_t gib = 32;
static uint64_t unit = 4096;
static const double BAR = 2.5;

enum {
    THREADS = 128, /* a block */
    BEGIN_MIB = 64
};

static void must(cudaError_t error, const char *what)
{
    if (error != cudaSuccess) {
        fprintf(stderr, "bench-slab-growing: %s: %s\n", what, cudaGetErrorString(error));
        exit(1);
    }
}
#define MUST(call) must((call), #call)

/* ---- the kernel ------------------------------------------------------------------------------ */

/* `bytes` of each unit are written, 16 by 16. */
__global__ void __launch_bounds__(THREADS, 16)
    claim(ga_kernel_heap heap, uint32_t bytes, uint32_t *failed)
{
    uint4 *block = (uint4 *)ga_slab_claim(heap);
    if (!block) {
        atomicAdd(failed, 1u);
        return;
    }
    for (uint32_t i = 0; i < bytes / 16u; i++) {
        block[i] = make_uint4(i, threadIdx.x, blockIdx.x, 0);
    }
}

/* ---- measuring ------------------------------------------------------------------------------- */

typedef struct run {
    double us;
    uint32_t failed;
    uint64_t begun, held; /* bytes before and after */
} run;

static cudaEvent_t begin_event, end_event;
static uint32_t *failed_claims;

static ga_heap *open_heap(const char *spec)
{
    ga_heap *heap;
    if (ga_heap_open(&heap, GA_PLACE_KERNEL, 0, spec) != GA_OK) {
        printf("%s: %s\n", spec, ga_error_text());
        return NULL;
    }
    return heap;
}

/* Wait until the driver has cleared freed memory in the background, because the next allocation
 * waits for that: no variant shall pay for memory that another one freed. */
static void settle(void)
{
    MUST(cudaDeviceSynchronize());
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
}

static bool measure(const char *spec, uint32_t n, uint32_t bytes, run *out)
{
    ga_kernel_heap view;
    ga_stats stats;
    float ms;
    settle();
    ga_heap *heap = open_heap(spec);
    if (!heap || ga_heap_kernel_view(heap, &view) != GA_OK ||
        ga_heap_stats(heap, &stats) != GA_OK) {
        ga_heap_close(heap);
        return false;
    }
    out->begun = stats.held_bytes;
    MUST(cudaMemset(failed_claims, 0, sizeof *failed_claims));
    MUST(cudaDeviceSynchronize());
    MUST(cudaEventRecord(begin_event));
    claim<<<n / THREADS, THREADS>>>(view, bytes, failed_claims);
    MUST(cudaEventRecord(end_event));
    MUST(cudaDeviceSynchronize());
    MUST(cudaEventElapsedTime(&ms, begin_event, end_event));
    MUST(cudaMemcpy(&out->failed, failed_claims, sizeof out->failed, cudaMemcpyDeviceToHost));
    out->us = ms * 1000.0;
    ga_heap_stats(heap, &stats);
    out->held = stats.held_bytes;
    ga_heap_reset(heap);
    ga_heap_close(heap);
    return true;
}

static double median(std::vector<double> times, double *low, double *high)
{
    std::sort(times.begin(), times.end());
    *low = times.front();
    *high = times.back();
    return times[times.size() / 2];
}

/* Prints two lines; false if nothing could be measured. Stores us in *all_there. */
static bool compare(uint32_t bytes, double *all_there)
{
    char fixed_spec[128], growing_spec[192];
    std::vector<double> fixed, growing, ratios;
    uint64_t size = gib << 30, begun = 0, held = 0;
    uint32_t n = (uint32_t)(size / unit / THREADS * THREADS), failed = 0;
    snprintf(fixed_spec, sizeof fixed_spec, "slab:unit=%llu,capacity=%lluG/cuda",
             (unsigned long long)unit, (unsigned long long)gib + 1);
    snprintf(growing_spec, sizeof growing_spec, "slab:unit=%llu,capacity=%dM,limit=%lluG/%s",
             (unsigned long long)unit, BEGIN_MIB, (unsigned long long)gib + 1, parent);
    for (int i = 0; i <= rounds; i++) {
        run a, b;
        if (!measure(fixed_spec, n, bytes, &a) || !measure(growing_spec, n, bytes, &b)) {
            return false;
        }
        printf("round %d, %u B written: all there %.0f us, growing %.0f us\n", i, bytes, a.us,
               b.us);
        failed += a.failed + b.failed;
        begun = b.begun;
        held = b.held;
        if (i) { /* the first does not count */
            fixed.push_back(a.us);
            growing.push_back(b.us);
            ratios.push_back(b.us / a.us);
        }
    }
    double low[3], high[3], fixed_us = median(fixed, &low[0], &high[0]),
                            growing_us = median(growing, &low[1], &high[1]),
                            ratio = median(ratios, &low[2], &high[2]);
    printf("%llu GiB in units of %llu B, %u B written: all there %.0f us (%.0f to %.0f), growing "
           "%.0f us (%.0f to %.0f), %.2f times (%.2f to %.2f); held %llu MiB, then %llu MiB; "
           "failed claims: %u\n",
           (unsigned long long)gib, (unsigned long long)unit, bytes, fixed_us, low[0], high[0],
           growing_us, low[1], high[1], ratio, low[2], high[2], (unsigned long long)begun >> 20,
           (unsigned long long)held >> 20, failed);
    printf("bar: %.2f times, of at most %.1f: %s\n", ratio, BAR,
           ratio <= BAR && !failed ? "held" : "missed");
    *all_there = fixed_us;
    return true;
}

/* ---- the driver alone ----------------------------------------------------------------------- */

/* Functions of libcuda, which is not linked. */
static struct {
    decltype(&cuMemAddressReserve) reserve;
    decltype(&cuMemAddressFree) free;
    decltype(&cuMemCreate) create;
    decltype(&cuMemRelease) release;
    decltype(&cuMemMap) map;
    decltype(&cuMemUnmap) unmap;
    decltype(&cuMemSetAccess) access;
} driver;

template <class Function> static void find(Function *out, const char *name)
{
    void *found = NULL;
    cudaDriverEntryPointQueryResult result;
    MUST(cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result));
    *out = (Function)found;
}

static void find_driver(void)
{
    find(&driver.reserve, "cuMemAddressReserve");
    find(&driver.free, "cuMemAddressFree");
    find(&driver.create, "cuMemCreate");
    find(&driver.release, "cuMemRelease");
    find(&driver.map, "cuMemMap");
    find(&driver.unmap, "cuMemUnmap");
    find(&driver.access, "cuMemSetAccess");
}

static void must_drive(CUresult result, const char *what)
{
    if (result != CUDA_SUCCESS) {
        fprintf(stderr, "bench-slab-growing: %s: error %d\n", what, (int)result);
        exit(1);
    }
}
#define DRIVE(call) must_drive((call), #call)

static double now_us(void)
{
    std::chrono::duration<double, std::micro> since =
        std::chrono::steady_clock::now().time_since_epoch();
    return since.count();
}

/* us of each kind of call, added up over all threads, and from the first to the last */
typedef struct mapping {
    double create, map, access, all;
} mapping;

typedef struct chunk {
    CUmemGenericAllocationHandle handle;
    CUdeviceptr start;
    uint64_t size;
} chunk;

/* Map a chunk as an arena does. */
static void map_chunk(chunk *c, mapping *took)
{
    CUmemAllocationProp what = {};
    CUmemAccessDesc access = {};
    what.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    what.location.type = access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    double begin = now_us();
    DRIVE(driver.create(&c->handle, c->size, &what, 0));
    double created = now_us();
    DRIVE(driver.map(c->start, c->size, 0, c->handle, 0));
    double mapped = now_us();
    DRIVE(driver.access(c->start, c->size, &access, 1));
    took->create += created - begin;
    took->map += mapped - created;
    took->access += now_us() - mapped;
}

/* Each thread maps every n-th chunk, for n threads. */
static mapping map_chunks(std::vector<chunk> *chunks, size_t threads)
{
    std::vector<mapping> took(threads);
    std::vector<std::thread> others;
    std::atomic<size_t> ready{0};
    double begin = 0;
    for (size_t t = 0; t < threads; t++) {
        others.emplace_back([&, t] {
            MUST(cudaSetDevice(0));
            ready++;
            while (ready <= threads) { /* until all threads are ready */
            }
            for (size_t i = t; i < chunks->size(); i += threads) {
                map_chunk(&(*chunks)[i], &took[t]);
            }
        });
    }
    while (ready < threads) {
    }
    begin = now_us();
    ready++;
    for (std::thread &other : others) {
        other.join();
    }
    mapping sum = {};
    sum.all = now_us() - begin;
    for (const mapping &one : took) {
        sum.create += one.create;
        sum.map += one.map;
        sum.access += one.access;
    }
    return sum;
}

/* Map chunks of these sizes one after another; then unmap them, untimed. */
static mapping map_once(const std::vector<uint64_t> &sizes, size_t threads)
{
    std::vector<chunk> chunks;
    CUdeviceptr base = 0;
    uint64_t all = 0;
    for (uint64_t size : sizes) {
        chunks.push_back({0, all, size});
        all += size;
    }
    settle();
    DRIVE(driver.reserve(&base, all, 0, 0, 0));
    for (chunk &c : chunks) {
        c.start += base;
    }
    mapping took = map_chunks(&chunks, threads);
    for (chunk &c : chunks) {
        DRIVE(driver.unmap(c.start, c.size));
        DRIVE(driver.release(c.handle));
    }
    DRIVE(driver.free(base, all));
    return took;
}

static void map_alone(const char *how, const std::vector<uint64_t> &sizes, size_t threads,
                      double all_there)
{
    std::vector<double> create, map, access, all;
    for (int i = 0; i <= rounds; i++) {
        mapping took = map_once(sizes, threads);
        if (i) { /* the first does not count */
            create.push_back(took.create);
            map.push_back(took.map);
            access.push_back(took.access);
            all.push_back(took.all);
        }
    }
    double low, high, us = median(all, &low, &high), ignored[2];
    printf("the driver alone, no kernel: %llu GiB %s: %.0f us (%.0f to %.0f); create %.0f, map "
           "%.0f, access %.0f; %.2f times the kernel where all is there\n",
           (unsigned long long)gib, how, us, low, high, median(create, &ignored[0], &ignored[1]),
           median(map, &ignored[0], &ignored[1]), median(access, &ignored[0], &ignored[1]),
           us / all_there);
}

/* Sizes of the chunks for growth from `there` bytes to all: as large as the memory that is mapped
 * already, but between `least` and `most`. */
static std::vector<uint64_t> chunks_of(uint64_t there, uint64_t least, uint64_t most)
{
    std::vector<uint64_t> chunks;
    const uint64_t all = gib << 30;
    while (there < all) {
        chunks.push_back(std::min(std::min(std::max(there, least), most), all - there));
        there += chunks.back();
    }
    return chunks;
}

/* By chunks of one size each, then as a heap grows, then by several threads. */
static void map_all_ways(double all_there)
{
    const uint64_t one = (uint64_t)1 << 30, most = 4 * one;
    char how[64];
    for (uint64_t each : {1, 4, 8, 16, 32}) {
        snprintf(how, sizeof how, "in chunks of %llu GiB", (unsigned long long)each);
        map_alone(how, chunks_of(0, each * one, each * one), 1, all_there);
    }
    map_alone("by doubling, chunks of 64 MiB to 4 GiB",
              chunks_of((uint64_t)BEGIN_MIB << 20, 0, most), 1, all_there);
    for (size_t threads : {2, 4}) { /* shows whether the driver maps in parallel */
        snprintf(how, sizeof how, "in chunks of 4 GiB by %zu threads", threads);
        map_alone(how, chunks_of(0, most, most), threads, all_there);
    }
}

/* ---- the program ----------------------------------------------------------------------------- */

static void describe(void)
{
    cudaDeviceProp gpu;
    int driver = 0;
    char date[32];
    time_t now = time(NULL);
    MUST(cudaGetDeviceProperties(&gpu, 0));
    MUST(cudaDriverGetVersion(&driver));
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime(&now));
    printf(
        "%s; driver for CUDA %d.%d; %s; gpualloc %s; medians of %d rounds (fastest to slowest)\n",
        gpu.name, driver / 1000, driver % 1000 / 10, date, ga_version_text(), rounds);
}

static bool read_arguments(int argc, char **argv)
{
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 < argc && strcmp(argv[i], "--rounds") == 0 && atoi(argv[i + 1]) > 0) {
            rounds = atoi(argv[i + 1]);
        } else if (i + 1 < argc && strcmp(argv[i], "--parent") == 0) {
            parent = argv[i + 1];
        } else if (i + 1 < argc && strcmp(argv[i], "--gib") == 0 && atoi(argv[i + 1]) > 0) {
            gib = (uint64_t)atoi(argv[i + 1]);
        } else if (i + 1 < argc && strcmp(argv[i], "--unit") == 0 && atoi(argv[i + 1]) >= 16) {
            unit = (uint64_t)atoi(argv[i + 1]);
        } else {
            fprintf(stderr, "usage: bench-slab-growing [--rounds N] [--parent SPEC] [--gib N] "
                            "[--unit BYTES]\n");
            return false;
        }
    }
    return true;
}

int main(int argc, char **argv)
{
    int devices = 0;
    if (!read_arguments(argc, argv)) {
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0); /* keeps our lines in order with the library's */
    if (cudaGetDeviceCount(&devices) != cudaSuccess || !devices) {
        printf("skipped, this machine has no GPU\n");
        return 77;
    }
    describe();
    MUST(cudaEventCreate(&begin_event));
    MUST(cudaEventCreate(&end_event));
    MUST(cudaMalloc(&failed_claims, sizeof *failed_claims));
    find_driver();
    double all_there, all_written;
    if (!compare(16, &all_there)) {
        return 1;
    }
    map_all_ways(all_there);
    return compare((uint32_t)unit, &all_written) ? 0 : 1;
}
