/* SPDX-License-Identifier: MIT
 *
 * The calls of a CUDA program by many threads at once, as the preload serves them, over the driver
 * for tests: blocks with and without streams, queries, captures that begin and end, and a reset of
 * the device's context between rounds. Blocks are written to and read back. With ipc=handle some
 * are exported, and opened as another process would open them.
 */
#include "../../interpose/cuda/handover.h"
#include "../../interpose/cuda/lookup.h"
#include "../support/random.h"
#include "platform/cuda_types.h"
#include "stress.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Here dlsym() is the C library's. */
char ga_cuda_dlsym, ga_cuda_dlvsym;

enum {
    THREADS = 4,
    ROUNDS = 200,
    KEPT = 16, /* blocks of one thread */
    BLOCK_BYTES_MAX = 600 << 10
};

/* The preload's function, and the driver's. */
extern CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t size);
extern CUresult cuMemFree_v2(CUdeviceptr block);
extern CUresult cuMemAllocAsync(CUdeviceptr *out, size_t size, CUstream stream);
extern CUresult cuMemFreeAsync(CUdeviceptr block, CUstream stream);
extern CUresult cuMemAllocAsync_ptsz(CUdeviceptr *out, size_t size, CUstream stream);
extern CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr at);
extern CUresult cuMemGetInfo_v2(size_t *available, size_t *total);
extern CUresult cuStreamBeginCapture_v2(CUstream stream, uintptr_t mode, uintptr_t c, uintptr_t d,
                                        uintptr_t e, uintptr_t f);
extern CUresult cuStreamEndCapture(CUstream stream, void **graph, uintptr_t c, uintptr_t d,
                                   uintptr_t e, uintptr_t f);
extern CUresult cuDevicePrimaryCtxReset_v2(CUdevice device);
extern CUresult cuIpcGetMemHandle(void *handle, CUdeviceptr block);
extern CUresult cuMemHostAlloc(void **out, size_t size, unsigned flags);
extern CUresult cuMemFreeHost(void *block);

static struct {
    CUresult (*init)(unsigned flags);
    CUresult (*retain)(CUcontext *context, CUdevice device);
    CUresult (*push)(CUcontext context);
    CUresult (*pop)(CUcontext *context);
    CUresult (*stream)(CUstream *stream, unsigned flags);
} driver;

static CUcontext context;
static bool handles;    /* ipc=handle */
static unsigned shared; /* blocks, so far */

typedef struct held {
    CUdeviceptr start;
    size_t size;
    unsigned char value;
} held;

static void find(void *library, const char *symbol, void *function)
{
    void *found = dlsym(library, symbol);
    NEED(found != NULL);
    memcpy(function, &found, sizeof found);
}

static void start(void)
{
    void *library = dlopen(LIBCUDA, RTLD_NOW | RTLD_LOCAL);
    NEED(library != NULL);
    find(library, "cuInit", &driver.init);
    find(library, "cuDevicePrimaryCtxRetain", &driver.retain);
    find(library, "cuCtxPushCurrent_v2", &driver.push);
    find(library, "cuCtxPopCurrent_v2", &driver.pop);
    find(library, "cuStreamCreate", &driver.stream);
    NEED(driver.init(0) == CUDA_SUCCESS);
}

static void check_content(const held *h)
{
    const unsigned char *bytes = (const unsigned char *)h->start;
    NEED(bytes[0] == h->value && bytes[h->size - 1] == h->value);
}

static void take(held *h, uint64_t *seed, CUstream stream)
{
    CUresult result;
    h->size = 1 + random_below(seed, random_below(seed, 2) ? BLOCK_BYTES_MAX : 4096);
    switch (random_below(seed, 3)) {
    case 0:
        result = cuMemAlloc_v2(&h->start, h->size);
        break;
    case 1:
        result = cuMemAllocAsync(&h->start, h->size, stream);
        break;
    default:
        result = cuMemAllocAsync_ptsz(&h->start, h->size, NULL);
    }
    NEED(result == CUDA_SUCCESS);
    h->value = (unsigned char)random_below(seed, 256);
    memset((void *)h->start, h->value, h->size);
}

static void ask(const held *h)
{
    CUdeviceptr base = 0;
    size_t size = 0;
    size_t total = 0;
    CUresult result = cuMemGetAddressRange_v2(&base, &size, h->start + h->size / 2);
    NEED(result == CUDA_SUCCESS && base == h->start && size == h->size);
    NEED(cuMemGetInfo_v2(&size, &total) == CUDA_SUCCESS && size <= total);
}

/* Handles of the preload: a mark of eight bytes, the name, the number. */
static void share(const held *h)
{
    unsigned char handle[64] = {0};
    ga_cuda_socket_name name;
    uint64_t number;
    uint64_t bytes = 0;
    ga_vmm_pieces pieces;
    if (cuIpcGetMemHandle(handle, h->start) != CUDA_SUCCESS || memcmp(handle, "gpualloc", 8) != 0) {
        return; /* a block owned by the driver */
    }
    memcpy(&name, handle + 8, sizeof name);
    memcpy(&number, handle + 24, sizeof number);
    NEED(ga_cuda_handover_request(&name, number, &pieces) == GA_OK);
    for (size_t i = 0; i < pieces.count; i++) {
        bytes += pieces.list[i].size;
    }
    NEED(pieces.before + h->size <= bytes);
    ga_vmm_pieces_drop(&pieces);
    /* relaxed: a figure */
    __atomic_fetch_add(&shared, 1, __ATOMIC_RELAXED);
}

static void give(held *h, uint64_t *seed, CUstream stream)
{
    check_content(h);
    ask(h);
    CUresult result = random_below(seed, 2) ? cuMemFreeAsync(h->start, stream) : 1;
    if (result != CUDA_SUCCESS) { /* not a block of a pool */
        result = cuMemFree_v2(h->start);
    }
    NEED(result == CUDA_SUCCESS);
    h->start = 0;
}

/* Pin host memory, which the spec may cache. */
static void pin(uint64_t *seed)
{
    void *block = NULL;
    size_t size = 1 + random_below(seed, 100000);
    int value = (int)random_below(seed, 256);
    unsigned flags = (unsigned)random_below(seed, 2);
    NEED(cuMemHostAlloc(&block, size, flags) == CUDA_SUCCESS);
    memset(block, value, size);
    sched_yield();
    NEED(*((unsigned char *)block + size - 1) == value);
    NEED(cuMemFreeHost(block) == CUDA_SUCCESS);
}

static void capture(CUstream stream)
{
    void *graph;
    NEED(cuStreamBeginCapture_v2(stream, 2, 0, 0, 0, 0) == CUDA_SUCCESS);
    NEED(cuStreamEndCapture(stream, &graph, 0, 0, 0, 0) == CUDA_SUCCESS);
}

static void work(size_t number)
{
    uint64_t seed = number + 1;
    held all[KEPT] = {0};
    CUstream stream;
    CUcontext popped;
    NEED(driver.push(context) == CUDA_SUCCESS);
    NEED(driver.stream(&stream, 1) == CUDA_SUCCESS);
    for (int i = 0; i < ROUNDS; i++) {
        held *h = &all[random_below(&seed, KEPT)];
        if (h->start) {
            give(h, &seed, stream);
        } else {
            take(h, &seed, stream);
            if (handles && random_below(&seed, 8) == 0) {
                share(h);
            }
        }
        if (random_below(&seed, 4) == 0) {
            pin(&seed);
        }
        if (random_below(&seed, 50) == 0) {
            capture(stream);
        }
    }
    for (int i = 0; i < KEPT; i++) {
        if (all[i].start) {
            give(&all[i], &seed, stream);
        }
    }
    NEED(driver.pop(&popped) == CUDA_SUCCESS);
}

int main(int argc, char **argv)
{
    unsigned rounds = 0;
    const char *spec = getenv("GPUALLOC_DEVICE");
    handles = spec && strstr(spec, "ipc=handle");
    stress_begin(argc, argv);
    start();
    for (; rounds == 0 || stress_goes_on(); rounds++) {
        NEED(driver.retain(&context, 0) == CUDA_SUCCESS);
        stress_threads(THREADS, work);
        NEED(cuDevicePrimaryCtxReset_v2(0) == CUDA_SUCCESS);
    }
    NEED(!handles || shared);
    printf("%u rounds, %u blocks shared of %llu\n", rounds, shared,
           (unsigned long long)(ga_cuda_calls_of(GA_HOOK_cuMemAlloc_v2) +
                                ga_cuda_calls_of(GA_HOOK_cuMemAllocAsync) +
                                ga_cuda_calls_of(GA_HOOK_cuMemAllocAsync_ptsz)));
    return 0;
}
