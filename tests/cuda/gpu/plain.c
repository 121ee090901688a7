/* SPDX-License-Identifier: MIT
 *
 * A program of the CUDA runtime for a machine with a GPU, to be run without the preload and with
 * it: it prints its results, and both outputs must be equal. Built with the runtime linked
 * statically, shared, and with a default stream for each thread. Contents are written and read back
 * by copies.
 *
 *   plain [rate | brief]
 *
 * rate: prints allocations per second on standard error, and nothing else. brief: without misuse,
 * queries of free memory, and use of all memory: for tools that watch the process.
 */
#include "say.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    BLOCKS = 300,
    GIB_MAX = 1024,
    RATE_PAIRS = 2000
};

/* ---- blocks -------------------------------------------------------------------------------- */

static size_t size_of(int i)
{
    return (size_t)i * (size_t)i * 97 + 1;
}

static void blocks(void)
{
    void *at[BLOCKS];
    int good = 1;
    int aligned = 1;
    for (int i = 0; i < BLOCKS; i++) {
        good &= cudaMalloc(&at[i], size_of(i)) == cudaSuccess;
        good &= cudaMemset(at[i], i % 256, size_of(i)) == cudaSuccess;
        aligned &= (uintptr_t)at[i] % 256 == 0;
    }
    for (int i = 0; i < BLOCKS; i++) {
        good &= holds(at[i], size_of(i), i % 256);
    }
    for (int i = 0; i < BLOCKS; i++) {
        good &= cudaFree(at[i]) == cudaSuccess;
    }
    need("blocks keep what is written", good);
    need("blocks are aligned", aligned);
}

static void wrong(void)
{
    void *block = NULL;
    int mine = 0;
    say("cudaMalloc of nothing", cudaMalloc(&block, 0));
    say("cudaMalloc of too much", cudaMalloc(&block, SIZE_MAX / 4));
    say("cudaFree of NULL", cudaFree(NULL));
    say("cudaFree of a variable", cudaFree(&mine));
    say("cudaMalloc", cudaMalloc(&block, 5 << 20));
    say("cudaFree within a block", cudaFree((char *)block + 4096));
    say("cudaFree", cudaFree(block));
    say("cudaFree again", cudaFree(block));
}

static void padded(void)
{
    struct cudaPitchedPtr cube = {0};
    size_t pitch = 0;
    void *rows = NULL;
    say("cudaMallocPitch", cudaMallocPitch(&rows, &pitch, 1000, 100));
    printf("%-40s %zu\n", "pitch", pitch);
    say("cudaMemset2D", cudaMemset2D(rows, pitch, 7, 1000, 100));
    say("cudaFree", cudaFree(rows));
    say("cudaMalloc3D", cudaMalloc3D(&cube, (struct cudaExtent){300, 20, 10}));
    say("cudaFree", cudaFree(cube.ptr));
}

/* ---- questions ----------------------------------------------------------------------------- */

static void questions(void)
{
    struct cudaPointerAttributes attributes;
    size_t before = 0;
    size_t with = 0;
    size_t after = 0;
    size_t total = 0;
    void *block = NULL;
    cudaMemGetInfo(&before, &total);
    say("cudaMalloc of 1 GiB", cudaMalloc(&block, (size_t)1 << 30));
    cudaMemGetInfo(&with, &total);
    say("cudaPointerGetAttributes", cudaPointerGetAttributes(&attributes, block));
    printf("%-40s %d, device %d\n", "memory of kind", (int)attributes.type, attributes.device);
    need("a pointer of the device's", attributes.devicePointer == block);
    say("cudaFree", cudaFree(block));
    cudaMemGetInfo(&after, &total);
    need("memory is less meanwhile", with + ((size_t)1 << 30) <= before + (64 << 20));
    need("and back afterwards", after + (64 << 20) >= before);
}

static void exhausted(void)
{
    static void *at[GIB_MAX];
    int got = 0;
    cudaError_t result = cudaSuccess;
    while (got < GIB_MAX && (result = cudaMalloc(&at[got], (size_t)1 << 30)) == cudaSuccess) {
        got++;
    }
    say("cudaMalloc when all is used", result);
    for (int i = 0; i < got; i++) {
        cudaFree(at[i]);
    }
    void *large = NULL;
    say("as much in one block", cudaMalloc(&large, (size_t)(got - 1) << 30));
    say("cudaFree", cudaFree(large));
    say("managed memory as large", cudaMallocManaged(&large, (size_t)1 << 30, cudaMemAttachGlobal));
    say("cudaFree", cudaFree(large));
}

/* ---- streams ------------------------------------------------------------------------------- */

static void streams(void)
{
    cudaStream_t stream[4];
    int good = 1;
    for (int i = 0; i < 4; i++) {
        cudaStreamCreateWithFlags(&stream[i], cudaStreamNonBlocking);
    }
    for (int i = 0; i < 1000; i++) {
        void *block = NULL;
        unsigned char byte = 0;
        cudaStream_t on = i % 5 == 4 ? NULL : stream[i % 5];
        good &= cudaMallocAsync(&block, size_of(i % BLOCKS), on) == cudaSuccess;
        good &= cudaMemsetAsync(block, i % 256, size_of(i % BLOCKS), on) == cudaSuccess;
        good &= cudaMemcpyAsync(&byte, block, 1, cudaMemcpyDeviceToHost, on) == cudaSuccess;
        good &= cudaFreeAsync(block, on) == cudaSuccess;
        cudaStreamSynchronize(on);
        good &= byte == i % 256;
    }
    for (int i = 0; i < 4; i++) {
        cudaStreamDestroy(stream[i]);
    }
    need("blocks in stream order", good);
}

static void captured(cudaStream_t stream, unsigned char *out)
{
    void *block = NULL;
    say("cudaMallocAsync in a capture", cudaMallocAsync(&block, 1 << 20, stream));
    cudaMemsetAsync(block, 42, 1 << 20, stream);
    cudaMemcpyAsync(out, block, 1, cudaMemcpyDeviceToHost, stream);
    say("cudaFreeAsync in a capture", cudaFreeAsync(block, stream));
}

static void graphs(void)
{
    cudaStream_t stream;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t ready = NULL;
    void *before = NULL;
    unsigned char *out = NULL;
    cudaMallocHost((void **)&out, 1);
    cudaMalloc(&before, 10 << 20);
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    say("cudaStreamBeginCapture", cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    captured(stream, out);
    say("cudaStreamEndCapture", cudaStreamEndCapture(stream, &graph));
    say("cudaGraphInstantiate", cudaGraphInstantiate(&ready, graph, 0));
    for (int i = 0; i < 3; i++) {
        *out = 0;
        say("cudaGraphLaunch", cudaGraphLaunch(ready, stream));
        cudaStreamSynchronize(stream);
        need("what it wrote", *out == 42);
    }
    say("cudaFree of a block from before", cudaFree(before));
    cudaGraphExecDestroy(ready);
    cudaGraphDestroy(graph);
    cudaStreamDestroy(stream);
    cudaFreeHost(out);
}

/* ---- pinned memory ------------------------------------------------------------------------- */

static int through_device(unsigned char *host, void *block, size_t size, int value)
{
    memset(host, value, size);
    int good = cudaMemcpyAsync(block, host, size, cudaMemcpyHostToDevice, NULL) == cudaSuccess;
    cudaDeviceSynchronize();
    memset(host, 0, size);
    good &= cudaMemcpyAsync(host, block, size, cudaMemcpyDeviceToHost, NULL) == cudaSuccess;
    cudaDeviceSynchronize();
    return good && host[0] == value && host[size - 1] == value;
}

static void pinned(void)
{
    void *block = NULL;
    int good = 1;
    int freed = 1;
    cudaMalloc(&block, size_of(BLOCKS));
    for (int i = 1; i < BLOCKS; i++) {
        void *host = NULL;
        unsigned flags = i % 2 ? cudaHostAllocDefault : cudaHostAllocPortable;
        good &= cudaHostAlloc(&host, size_of(i), flags) == cudaSuccess;
        good &= through_device(host, block, size_of(i), i % 256);
        /* The last copy into it may be under way when it is freed. */
        cudaMemcpyAsync(block, host, size_of(i), cudaMemcpyHostToDevice, NULL);
        freed &= cudaFreeHost(host) == cudaSuccess;
        good &= holds(block, size_of(i), i % 256);
    }
    cudaFree(block);
    need("pinned memory holds what is copied", good);
    need("pinned memory is freed", freed);
}

/* ---- threads, and the end ------------------------------------------------------------------ */

static void *in_thread(void *number)
{
    intptr_t good = 1;
    for (int i = 0; i < 100; i++) {
        void *block = NULL;
        size_t size = size_of((int)(intptr_t)number + i);
        good &= cudaMalloc(&block, size) == cudaSuccess;
        good &= cudaMemsetAsync(block, i, size, NULL) == cudaSuccess;
        good &= holds(block, size, i);
        good &= cudaFree(block) == cudaSuccess;
    }
    return (void *)good;
}

/* ---- pools --------------------------------------------------------------------------------- */

static unsigned mebibytes(cudaMemPool_t pool, enum cudaMemPoolAttr attribute)
{
    uint64_t bytes = 0;
    say("cudaMemPoolGetAttribute", cudaMemPoolGetAttribute(pool, attribute, &bytes));
    return (unsigned)(bytes >> 20);
}

static size_t available(void)
{
    size_t free_bytes = 0;
    size_t total = 0;
    cudaMemGetInfo(&free_bytes, &total);
    return free_bytes;
}

static void default_pool(void)
{
    cudaMemPool_t pool = NULL;
    void *large = NULL;
    void *small = NULL;
    uint64_t max = UINT64_MAX;
    uint64_t zero = 0;
    say("cudaDeviceGetDefaultMemPool", cudaDeviceGetDefaultMemPool(&pool, 0));
    cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &max);
    say("cudaMallocAsync", cudaMallocAsync(&large, 400 << 20, NULL));
    say("cudaMallocAsync", cudaMallocAsync(&small, 10 << 20, NULL));
    printf("used: %u MiB\n", mebibytes(pool, cudaMemPoolAttrUsedMemCurrent));
    need("reserved is no less", mebibytes(pool, cudaMemPoolAttrReservedMemCurrent) >= 410);
    cudaFreeAsync(large, NULL);
    cudaStreamSynchronize(NULL);
    printf("used: %u MiB\n", mebibytes(pool, cudaMemPoolAttrUsedMemCurrent));
    say("reset of the high mark", cudaMemPoolSetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &zero));
    printf("most used: %u MiB\n", mebibytes(pool, cudaMemPoolAttrUsedMemHigh));
    say("cudaMemPoolTrimTo", cudaMemPoolTrimTo(pool, 0));
    need("it is trimmed", mebibytes(pool, cudaMemPoolAttrReservedMemCurrent) < 300);
    cudaFreeAsync(small, NULL);
    cudaStreamSynchronize(NULL);
    cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &zero);
}

static void pool_of_the_program(void)
{
    struct cudaMemPoolProps props = {.allocType = cudaMemAllocationTypePinned,
                                     .location = {.type = cudaMemLocationTypeDevice},
                                     .maxSize = 64 << 20};
    cudaMemPool_t pool = NULL;
    cudaMemPool_t usual = NULL;
    void *block = NULL;
    cudaDeviceGetDefaultMemPool(&usual, 0);
    say("cudaMemPoolCreate", cudaMemPoolCreate(&pool, &props));
    say("cudaDeviceSetMemPool", cudaDeviceSetMemPool(0, pool));
    say("more than it may have", cudaMallocAsync(&block, 256 << 20, NULL));
    say("cudaMallocAsync", cudaMallocAsync(&block, 32 << 20, NULL));
    printf("used of it: %u MiB\n", mebibytes(pool, cudaMemPoolAttrUsedMemCurrent));
    say("cudaFreeAsync", cudaFreeAsync(block, NULL));
    say("cudaDeviceSetMemPool", cudaDeviceSetMemPool(0, usual));
    say("more than the other might have", cudaMallocAsync(&block, 256 << 20, NULL));
    say("cudaFreeAsync", cudaFreeAsync(block, NULL));
    cudaStreamSynchronize(NULL);
    say("cudaMemPoolDestroy", cudaMemPoolDestroy(pool));
}

/* Memory that is free after a free and a trim is free to other processes, too. */
static void given_back(void)
{
    cudaMemPool_t pool = NULL;
    void *block = NULL;
    cudaDeviceGetDefaultMemPool(&pool, 0);
    size_t before = available();
    cudaMallocAsync(&block, 400 << 20, NULL);
    cudaFreeAsync(block, NULL);
    cudaStreamSynchronize(NULL);
    cudaMemPoolTrimTo(pool, 0);
    need("memory is given back", available() + (64 << 20) >= before);
}

static void reset(void)
{
    void *lost = NULL;
    cudaMalloc(&lost, 1 << 20);
    say("cudaDeviceReset", cudaDeviceReset());
    say("cudaFree of what went with it", cudaFree(lost));
    blocks();
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static int rate(void)
{
    void *block = NULL;
    cudaFree(0);
    for (int round = 0; round < 5; round++) {
        double start = seconds();
        for (int i = 0; i < RATE_PAIRS; i++) {
            if (cudaMalloc(&block, (size_t)((i % 64) + 1) << 20) != cudaSuccess) {
                return 1;
            }
            cudaFree(block);
        }
        fprintf(stderr, "%.0f pairs of cudaMalloc and cudaFree a second\n",
                RATE_PAIRS / (seconds() - start));
    }
    return 0;
}

int main(int argc, char **argv)
{
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || !count) {
        puts("no GPU here");
        return 77;
    }
    if (argc > 1 && strcmp(argv[1], "rate") == 0) {
        return rate();
    }
    int brief = argc > 1 && strcmp(argv[1], "brief") == 0;
    blocks();
    padded();
    streams();
    graphs();
    pinned();
    need("threads have blocks of their own", all_threads(in_thread));
    if (!brief) {
        wrong();
        questions();
        exhausted();
        default_pool();
        pool_of_the_program();
        given_back();
        reset();
    }
    return 0;
}
