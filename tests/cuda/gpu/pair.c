/* SPDX-License-Identifier: MIT
 *
 * A program of the CUDA runtime that uses two devices, for a machine that has them, to be run
 * without the preload and with it: both outputs must be equal. Built with the runtime linked
 * statically and shared.
 *
 *   pair [after]
 *
 * after: memory that one device accesses on the other is requested after peer access was enabled.
 */
#include "say.h"

#include <stdint.h>
#include <string.h>

enum {
    SKIP = 77,
    DEVICES = 2,
    SIZES = 4
};

#define MIB ((size_t)1 << 20)

static const size_t sizes[SIZES] = {1000, 700 << 10, 5 << 20, 100 << 20};

/* Writes 32-bit words: fill(at, word, count). By text, so that plain C makes the program. */
static const char fill_text[] = ".version 7.0\n"
                                ".target sm_75\n"
                                ".address_size 64\n"
                                ".visible .entry fill(.param .u64 at, .param .u64 count,\n"
                                "                     .param .u32 word) {\n"
                                "  .reg .pred p;\n"
                                "  .reg .b32 r<6>;\n"
                                "  .reg .b64 d<6>;\n"
                                "  ld.param.u64 d1, [at];\n"
                                "  ld.param.u64 d2, [count];\n"
                                "  ld.param.u32 r1, [word];\n"
                                "  mov.u32 r2, %ctaid.x;\n"
                                "  mov.u32 r3, %ntid.x;\n"
                                "  mov.u32 r4, %tid.x;\n"
                                "  mad.lo.u32 r4, r2, r3, r4;\n"
                                "  cvt.u64.u32 d3, r4;\n"
                                "  mov.u32 r5, %nctaid.x;\n"
                                "  mul.lo.u32 r5, r5, r3;\n"
                                "  cvt.u64.u32 d4, r5;\n"
                                "next:\n"
                                "  setp.ge.u64 p, d3, d2;\n"
                                "  @p bra done;\n"
                                "  shl.b64 d5, d3, 2;\n"
                                "  add.u64 d5, d5, d1;\n"
                                "  st.u32 [d5], r1;\n"
                                "  add.u64 d3, d3, d4;\n"
                                "  bra next;\n"
                                "done:\n"
                                "  ret;\n"
                                "}\n";

static cudaLibrary_t library;
static cudaKernel_t fill;

/* ---- blocks -------------------------------------------------------------------------------- */

static void *block_on(int device, size_t size, int value)
{
    void *block = NULL;
    cudaSetDevice(device);
    if (cudaMalloc(&block, size) != cudaSuccess || cudaMemset(block, value, size) != cudaSuccess ||
        cudaDeviceSynchronize() != cudaSuccess) {
        puts("no block");
    }
    return block;
}

static int holds_on(int device, const void *block, size_t size, int value)
{
    cudaSetDevice(device);
    return holds(block, size, value);
}

static size_t free_on(int device)
{
    size_t now = 0;
    size_t total = 0;
    cudaSetDevice(device);
    cudaMemGetInfo(&now, &total);
    return now;
}

/* Of the difference, 64 MiB may be the driver's own. */
static int is_less(size_t now, size_t before, size_t by)
{
    return now + by <= before + 64 * MIB && now + by + 64 * MIB >= before;
}

static void each_has_its_own(void)
{
    for (int device = 0; device < DEVICES; device++) {
        int other = !device;
        size_t here = free_on(device);
        size_t there = free_on(other);
        char *block = block_on(device, 1024 * MIB, 3);
        struct cudaPointerAttributes attributes;
        printf("device %d\n", device);
        need("less memory here", is_less(free_on(device), here, 1024 * MIB));
        need("as much there", is_less(free_on(other), there, 0));
        cudaSetDevice(device); /* another says NULL unless it reaches the block */
        say("cudaPointerGetAttributes", cudaPointerGetAttributes(&attributes, block + 5));
        need("of that device",
             attributes.device == device && attributes.devicePointer == block + 5);
        need("holds what was written", holds_on(device, block, 1024 * MIB, 3));
        need("as seen beside the other device", holds_on(other, block, 1024 * MIB, 3));
        say("cudaFree from the other device", cudaFree(block));
        need("as much here again", is_less(free_on(device), here, 0));
        cudaSetDevice(other);
        say("cudaFree again", cudaFree(block));
    }
}

static void copies(void)
{
    int good = 1;
    for (int i = 0; i < SIZES; i++) {
        void *from = block_on(0, sizes[i], i + 1);
        void *to = block_on(1, sizes[i], 0);
        good &= cudaMemcpyPeer(to, 1, from, 0, sizes[i]) == cudaSuccess;
        good &= holds_on(1, to, sizes[i], i + 1);
        good &= cudaMemset(to, i + 50, sizes[i]) == cudaSuccess;
        good &= cudaMemcpyPeerAsync(from, 0, to, 1, sizes[i], NULL) == cudaSuccess;
        good &= cudaFree(to) == cudaSuccess; /* waits for the copy */
        good &= holds_on(0, from, sizes[i], i + 50);
        good &= cudaFree(from) == cudaSuccess;
    }
    need("cudaMemcpyPeer", good);
}

/* By addresses alone. */
static void plain_copies(void)
{
    for (int current = 0; current < DEVICES; current++) {
        void *from = block_on(0, sizes[2], 5);
        void *to = block_on(1, sizes[2], 0);
        cudaSetDevice(current);
        say("cudaMemcpy to the other device", cudaMemcpy(to, from, sizes[2], cudaMemcpyDefault));
        need("what it brought", holds_on(1, to, sizes[2], 5));
        say("cudaFree", cudaFree(to));
        say("cudaFree", cudaFree(from));
    }
}

static void in_stream_order(void)
{
    int good = 1;
    for (int i = 0; i < 200; i++) {
        void *block = NULL;
        unsigned char byte = 0;
        size_t size = sizes[i % SIZES];
        cudaStream_t stream;
        cudaSetDevice(i % DEVICES);
        cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
        cudaSetDevice(i / DEVICES % DEVICES); /* the stream's or the other */
        good &= cudaMallocAsync(&block, size, stream) == cudaSuccess;
        cudaSetDevice(i % DEVICES);
        good &= cudaMemsetAsync(block, i, size, stream) == cudaSuccess;
        good &= cudaMemcpyAsync(&byte, block, 1, cudaMemcpyDeviceToHost, stream) == cudaSuccess;
        good &= cudaFreeAsync(block, stream) == cudaSuccess;
        good &= cudaStreamSynchronize(stream) == cudaSuccess && byte == i % 256;
        cudaStreamDestroy(stream);
    }
    need("blocks in stream order", good);
}

static void *in_thread(void *number)
{
    intptr_t good = 1;
    void *last = NULL;
    for (int i = 0; i < 60; i++) {
        int device = (i + (int)(intptr_t)number) % DEVICES;
        void *block = NULL;
        size_t size = sizes[i % SIZES];
        cudaSetDevice(device);
        good &= cudaMalloc(&block, size) == cudaSuccess;
        good &= cudaMemsetAsync(block, i + 1, size, NULL) == cudaSuccess;
        good &= holds(block, size, i + 1);
        good &= cudaFree(last) == cudaSuccess; /* the other device's */
        last = block;
    }
    good &= cudaFree(last) == cudaSuccess;
    return (void *)good;
}

/* ---- one reaches the other's --------------------------------------------------------------- */

/* A kernel of `device` writes all of a block but for less than a word. */
static cudaError_t write_from(int device, void *block, size_t size, int value)
{
    uint64_t count = size / 4;
    uint32_t word = (uint32_t)value * 0x01010101u;
    void *arguments[] = {(void *)&block, &count, &word};
    cudaSetDevice(device);
    return cudaLaunchKernel((const void *)fill, (struct dim3){64, 1, 1}, (struct dim3){256, 1, 1},
                            arguments, 0, NULL);
}

static int reaches(int device, void *block, size_t size, int value)
{
    return write_from(device, block, size, value) == cudaSuccess &&
           cudaDeviceSynchronize() == cudaSuccess &&
           holds_on(!device, block, size & ~(size_t)3, value);
}

static void let_in(void)
{
    for (int device = 0; device < DEVICES; device++) {
        cudaSetDevice(device);
        say("cudaDeviceEnablePeerAccess", cudaDeviceEnablePeerAccess(!device, 0));
        say("cudaDeviceEnablePeerAccess again", cudaDeviceEnablePeerAccess(!device, 0));
    }
}

static void get_all(void *blocks[DEVICES][SIZES])
{
    for (int i = 0; i < DEVICES * SIZES; i++) {
        blocks[i / SIZES][i % SIZES] = block_on(i / SIZES, sizes[i % SIZES], 0);
    }
}

static int all_are_reached(void *blocks[DEVICES][SIZES])
{
    int good = 1;
    for (int i = 0; i < DEVICES * SIZES; i++) {
        good &= reaches(!(i / SIZES), blocks[i / SIZES][i % SIZES], sizes[i % SIZES], i + 1);
    }
    return good;
}

static int free_all(void *blocks[DEVICES][SIZES])
{
    int good = 1;
    for (int i = 0; i < DEVICES * SIZES; i++) {
        good &= cudaFree(blocks[i / SIZES][i % SIZES]) == cudaSuccess;
    }
    return good;
}

/* Blocks of a device's default pool, once the other may reach that: those from before, too. */
static void pool_access(int device)
{
    cudaMemPool_t pool = NULL;
    struct cudaMemAccessDesc other = {
        .location = {.type = cudaMemLocationTypeDevice, .id = !device},
        .flags = cudaMemAccessFlagsProtReadWrite};
    void *before = NULL;
    void *after = NULL;
    cudaSetDevice(device);
    say("cudaDeviceGetDefaultMemPool", cudaDeviceGetDefaultMemPool(&pool, device));
    say("cudaMallocAsync", cudaMallocAsync(&before, MIB, NULL));
    cudaStreamSynchronize(NULL);
    say("cudaMemPoolSetAccess", cudaMemPoolSetAccess(pool, &other, 1));
    cudaSetDevice(device);
    say("cudaMallocAsync", cudaMallocAsync(&after, MIB, NULL));
    cudaStreamSynchronize(NULL);
    need("its blocks are reached",
         reaches(!device, before, MIB, 3) && reaches(!device, after, MIB, 4));
    cudaSetDevice(device);
    say("cudaFreeAsync", cudaFreeAsync(before, NULL));
    say("cudaFreeAsync", cudaFreeAsync(after, NULL));
    cudaStreamSynchronize(NULL);
}

static void peers(int before)
{
    void *old[DEVICES][SIZES];
    void *young[DEVICES][SIZES];
    if (before) {
        get_all(old);
    }
    let_in();
    get_all(young);
    say("cudaLibraryLoadData",
        cudaLibraryLoadData(&library, fill_text, NULL, NULL, 0, NULL, NULL, 0));
    say("cudaLibraryGetKernel", cudaLibraryGetKernel(&fill, library, "fill"));
    pool_access(0);
    pool_access(1);
    if (before) {
        need("blocks from before are reached", all_are_reached(old));
        need("and freed", free_all(old));
    }
    need("blocks of after are reached", all_are_reached(young));
    need("and freed", free_all(young));
    copies();
    plain_copies();
    say("cudaLibraryUnload", cudaLibraryUnload(library));
}

/* ---- the end of one ------------------------------------------------------------------------- */

static void reset(int device)
{
    void *lost = block_on(device, 5 * MIB, 1);
    void *kept = block_on(!device, 5 * MIB, 2);
    cudaSetDevice(device);
    say("cudaDeviceReset of one", cudaDeviceReset());
    say("cudaFree of what went with it", cudaFree(lost));
    cudaSetDevice(!device);
    need("the other's blocks are there", holds_on(!device, kept, 5 * MIB, 2));
    void *anew = block_on(device, 5 * MIB, 4);
    need("the one's are had again", holds_on(device, anew, 5 * MIB, 4));
    say("cudaFree", cudaFree(kept));
    say("cudaFree", cudaFree(anew));
}

int main(int argc, char **argv)
{
    int count = 0;
    int can[DEVICES] = {0, 0};
    if (cudaGetDeviceCount(&count) != cudaSuccess || count < DEVICES) {
        puts("no two GPUs here");
        return SKIP;
    }
    int before = argc < 2 || strcmp(argv[1], "after") != 0;
    each_has_its_own();
    copies();
    plain_copies();
    in_stream_order();
    need("threads on both", all_threads(in_thread));
    cudaDeviceCanAccessPeer(&can[0], 0, 1);
    cudaDeviceCanAccessPeer(&can[1], 1, 0);
    printf("%-40s %d %d\n", "reach each other", can[0], can[1]);
    for (int device = DEVICES - 1; device >= 0; device--) {
        if (can[0] && can[1]) {
            peers(before);
        }
        reset(device);
        each_has_its_own();
    }
    need("threads on both", all_threads(in_thread));
    return 0;
}
