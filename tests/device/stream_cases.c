/* SPDX-License-Identifier: MIT
 *
 * The `async` backend's streams and pool, and the waits of free().
 */
#include "cases.h"

#include <dlfcn.h>

static const size_t MIB = (size_t)1 << 20;

static ga_heap *open_heap(int device, const char *spec)
{
    ga_heap *heap = NULL;
    EXPECT(ga_heap_open(&heap, GA_PLACE_DEVICE, device, spec) == GA_OK);
    return heap;
}

/* Allocate, use and free on one stream, with nothing waited for until the end. */
static void stream_order(int device)
{
    enum {
        ROUNDS = 100,
        SIZE = 100000
    };
    ga_heap *heap = open_heap(device, "async");
    ga_cuda_scope scope;
    CUstream stream;
    static unsigned char bytes[ROUNDS];
    REQUIRE(heap && ga_cuda_enter(&scope, device) == GA_OK);
    REQUIRE(scope.driver->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    for (int i = 0; i < ROUNDS; i++) {
        void *block = NULL;
        REQUIRE(ga_alloc_on(heap, SIZE, 0, stream, &block) == GA_OK);
        EXPECT((uintptr_t)block % 256 == 0);
        CUdeviceptr at = (CUdeviceptr)block;
        EXPECT(scope.driver->cuMemsetD8Async(at, (unsigned char)i, SIZE, stream) == CUDA_SUCCESS);
        EXPECT(scope.driver->cuMemcpyDtoHAsync(&bytes[i], at + SIZE - 1, 1, stream) ==
               CUDA_SUCCESS);
        EXPECT(ga_free_on(heap, block, stream) == GA_OK);
    }
    EXPECT(scope.driver->cuStreamSynchronize(stream) == CUDA_SUCCESS);
    for (int i = 0; i < ROUNDS; i++) {
        EXPECT(bytes[i] == i);
    }
    scope.driver->cuStreamDestroy(stream);
    ga_cuda_leave(&scope);
    ga_heap_close(heap);
}

static void default_stream(int device)
{
    ga_heap *heap = open_heap(device, "async");
    void *block = NULL;
    REQUIRE(heap && ga_alloc_on(heap, 4096, 256, NULL, &block) == GA_OK);
    EXPECT(ga_owns(heap, block) && ga_usable_size(heap, block) >= 4096);
    EXPECT(ga_free_on(heap, block, NULL) == GA_OK);
    EXPECT(ga_alloc_on(heap, 4096, 512, NULL, &block) == GA_ERR_ALIGN && !block);
    EXPECT(ga_alloc_on(heap, (size_t)1 << 40, 0, NULL, &block) == GA_ERR_MEMORY && !block);
    EXPECT(test_error_has("async: no block of 1099511627776 bytes"));
    EXPECT(ga_free_on(heap, &block, NULL) == GA_ERR_POINTER);
    ga_heap_close(heap);
}

static void no_stream_order_in_cuda(int device)
{
    ga_heap *heap = open_heap(device, "cuda");
    void *block = NULL;
    REQUIRE(heap);
    EXPECT(ga_alloc_on(heap, 4096, 0, NULL, &block) == GA_ERR_UNSUPPORTED && !block);
    ga_heap_close(heap);
}

/* ---- waits of a free ---------------------------------------------------------------------- */

typedef struct busy {
    ga_cuda_scope scope;
    CUstream stream;
    CUdeviceptr memory;
    CUresult (*query)(CUstream stream);
} busy;

/* Put some 20 ms or more of work on a stream of its own. */
static bool make_busy(busy *b, int device)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    *(void **)&b->query = library ? dlsym(library, "cuStreamQuery") : NULL;
    if (!b->query || ga_cuda_enter(&b->scope, device) != GA_OK) {
        return false;
    }
    const ga_cuda_driver *driver = b->scope.driver;
    if (driver->cuMemAlloc(&b->memory, 512 * MIB) != CUDA_SUCCESS ||
        driver->cuStreamCreate(&b->stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) {
        return false;
    }
    for (int i = 0; i < 200; i++) {
        driver->cuMemsetD8Async(b->memory, (unsigned char)i, 512 * MIB, b->stream);
    }
    return true;
}

static void end_busy(const busy *b)
{
    b->scope.driver->cuStreamSynchronize(b->stream);
    b->scope.driver->cuStreamDestroy(b->stream);
    b->scope.driver->cuMemFree(b->memory);
    ga_cuda_leave(&b->scope);
}

/* Returns true if the device is still working after a block has been freed. */
static void free_while_busy(int device, const char *spec, CUresult expected)
{
    ga_heap *heap = open_heap(device, spec);
    void *block = NULL;
    busy b = {0};
    REQUIRE(heap && ga_alloc(heap, 4 * MIB, 0, &block) == GA_OK);
    REQUIRE(make_busy(&b, device));
    EXPECT(b.query(b.stream) == CUDA_ERROR_NOT_READY);
    EXPECT(ga_free(heap, block) == GA_OK);
    EXPECT(b.query(b.stream) == expected);
    end_busy(&b);
    ga_heap_close(heap);
}

static void free_waits(int device)
{
    free_while_busy(device, "cuda", CUDA_SUCCESS);
    free_while_busy(device, "managed", CUDA_SUCCESS);
    free_while_busy(device, "pinned", CUDA_SUCCESS);
    free_while_busy(device, "async", CUDA_SUCCESS);
}

static void free_now_does_not(int device)
{
    free_while_busy(device, "async:free=now", CUDA_ERROR_NOT_READY);
}

/* A block of alloc() is ready, and does not wait for other streams. */
static void alloc_does_not_wait(int device)
{
    ga_heap *heap = open_heap(device, "async");
    void *block = NULL;
    busy b = {0};
    REQUIRE(heap && make_busy(&b, device));
    EXPECT(ga_alloc_zeroed(heap, 4 * MIB, 0, &block) == GA_OK);
    EXPECT(device_holds(device, block, 0, 4 * MIB));
    EXPECT(b.query(b.stream) == CUDA_ERROR_NOT_READY);
    end_busy(&b);
    EXPECT(ga_free(heap, block) == GA_OK);
    ga_heap_close(heap);
}

/* ---- the pool ----------------------------------------------------------------------------- */

static uint64_t held(ga_heap *heap)
{
    ga_stats stats = {0};
    EXPECT(ga_heap_stats(heap, &stats) == GA_OK);
    return stats.held_bytes;
}

/* Allocate and free 64 MiB, and return the bytes that the pool then holds. */
static uint64_t held_after_use(ga_heap *heap)
{
    void *block = NULL;
    EXPECT(ga_alloc(heap, 64 * MIB, 0, &block) == GA_OK);
    EXPECT(held(heap) >= 64 * MIB);
    EXPECT(ga_free(heap, block) == GA_OK);
    EXPECT(ga_alloc(heap, 1, 0, &block) == GA_OK); /* waits for the stream, as the pool does */
    EXPECT(ga_free(heap, block) == GA_OK);
    return held(heap);
}

static void pool_keeps_and_trims(int device)
{
    ga_heap *heap = open_heap(device, "async");
    REQUIRE(heap);
    EXPECT(held_after_use(heap) >= 64 * MIB);
    EXPECT(ga_trim(heap, 0) == GA_OK);
    EXPECT(held(heap) == 0);
    ga_heap_close(heap);
}

static void release_option(int device)
{
    ga_heap *heap = open_heap(device, "async:release=0");
    REQUIRE(heap);
    EXPECT(held_after_use(heap) < 64 * MIB);
    ga_heap_close(heap);
    EXPECT(ga_heap_open(&heap, GA_PLACE_DEVICE, device, "async:free=maybe") == GA_ERR_SPEC);
    EXPECT(test_error_has("maybe"));
}

case_list stream_cases(void)
{
    static const test_case cases[] = {
        {"stream order", stream_order},
        {"the default stream", default_stream},
        {"cuda has no stream order", no_stream_order_in_cuda},
        {"free waits for the device", free_waits},
        {"free=now does not wait", free_now_does_not},
        {"alloc does not wait for other streams", alloc_does_not_wait},
        {"the pool keeps memory until trimmed", pool_keeps_and_trims},
        {"release=0 keeps none", release_option},
    };
    return (case_list){"streams", cases, sizeof cases / sizeof *cases};
}
