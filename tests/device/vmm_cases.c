/* SPDX-License-Identifier: MIT
 *
 * The `vmm` backend over the real driver: blocks keep their contents while others are joined, cut,
 * unmapped and grown, and pass from stream to stream in order. bench-arena-device tests speed, and
 * the whole card.
 */
#include "cases.h"

#include <stdio.h>

static const size_t MIB = (size_t)1 << 20;

static ga_heap *open_heap(int device, const char *spec)
{
    ga_heap *heap = NULL;
    EXPECT(ga_heap_open(&heap, GA_PLACE_DEVICE, device, spec) == GA_OK);
    return heap;
}

static uint64_t held_by(const ga_heap *heap)
{
    ga_stats stats = {0};
    EXPECT(ga_heap_stats(heap, &stats) == GA_OK);
    return stats.held_bytes;
}

/* Fill the limit with blocks of the two sizes, free every second one, and request one block of the
 * freed size. */
static void fill_and_ask(int device, size_t first, size_t second)
{
    enum {
        BLOCKS_MAX = 512
    };
    static void *blocks[BLOCKS_MAX];
    ga_heap *heap = open_heap(device, "vmm:limit=1G");
    size_t count = 0;
    void *large = NULL;
    REQUIRE(heap);
    for (size_t used = 0; used + first + second <= 1024 * MIB && count < BLOCKS_MAX; count += 2) {
        REQUIRE(ga_alloc(heap, first, 0, &blocks[count]) == GA_OK);
        REQUIRE(ga_alloc(heap, second, 0, &blocks[count + 1]) == GA_OK);
        EXPECT(device_fill(device, blocks[count + 1], (unsigned char)count, second));
        used += first + second;
    }
    for (size_t i = 0; i < count; i += 2) {
        EXPECT(ga_free(heap, blocks[i]) == GA_OK);
    }
    REQUIRE(ga_alloc(heap, count / 2 * first, 0, &large) == GA_OK);
    EXPECT(device_fill(device, large, 0xee, count / 2 * first));
    for (size_t i = 0; i < count; i += 2) {
        EXPECT(device_holds(device, blocks[i + 1], (unsigned char)i, second));
        EXPECT(ga_free(heap, blocks[i + 1]) == GA_OK);
    }
    EXPECT(device_holds(device, large, 0xee, count / 2 * first));
    EXPECT(ga_free(heap, large) == GA_OK);
    EXPECT(ga_trim(heap, 0) == GA_OK && held_by(heap) == 0);
    ga_heap_close(heap);
}

static void no_fragmentation(int device)
{
    fill_and_ask(device, 8 * MIB, 8 * MIB);
    fill_and_ask(device, 8 * MIB, 24 * MIB);
    fill_and_ask(device, 24 * MIB, 72 * MIB);
}

/* Parts of one block, and one block of the parts, without more memory. */
static void cut_and_joined(int device)
{
    ga_heap *heap = open_heap(device, "vmm");
    void *parts[4] = {NULL};
    void *whole = NULL;
    REQUIRE(heap && ga_alloc(heap, 256 * MIB, 0, &whole) == GA_OK);
    EXPECT(ga_free(heap, whole) == GA_OK);
    for (int i = 0; i < 4; i++) {
        REQUIRE(ga_alloc(heap, 64 * MIB, 0, &parts[i]) == GA_OK);
        EXPECT(device_fill(device, parts[i], (unsigned char)i, 64 * MIB));
    }
    EXPECT(held_by(heap) == 256 * MIB);
    for (int i = 0; i < 4; i++) {
        EXPECT(device_holds(device, parts[i], (unsigned char)i, 64 * MIB));
        EXPECT(ga_free(heap, parts[i]) == GA_OK);
    }
    REQUIRE(ga_alloc(heap, 256 * MIB, 0, &whole) == GA_OK);
    EXPECT(held_by(heap) == 256 * MIB);
    EXPECT(device_fill(device, whole, 0x77, 256 * MIB));
    EXPECT(device_holds(device, whole, 0x77, 256 * MIB));
    EXPECT(ga_free(heap, whole) == GA_OK);
    EXPECT(ga_trim(heap, 100 * MIB) == GA_OK && held_by(heap) <= 100 * MIB);
    ga_heap_close(heap);
}

static void grown_in_place(int device)
{
    ga_heap *heap = open_heap(device, "vmm");
    void *block = NULL;
    REQUIRE(heap && ga_alloc(heap, 64 * MIB, 0, &block) == GA_OK);
    EXPECT(device_fill(device, block, 0x31, 64 * MIB));
    REQUIRE(ga_grow(heap, block, 300 * MIB) == GA_OK);
    EXPECT(ga_usable_size(heap, block) >= 300 * MIB);
    EXPECT(device_holds(device, block, 0x31, 64 * MIB));
    EXPECT(device_fill(device, block, 0x32, 300 * MIB));
    EXPECT(device_holds(device, block, 0x32, 300 * MIB));
    EXPECT(ga_free(heap, block) == GA_OK);
    ga_heap_close(heap);
}

/* One stream after the other fills the only memory there is, without waits: the last value stays,
 * which would fail if a fill of an earlier stream were still under way. */
static void pass_on(int device, const ga_cuda_scope *scope, ga_heap *heap, size_t size)
{
    enum {
        ROUNDS = 32
    };
    CUstream streams[2];
    void *block = NULL;
    for (int i = 0; i < 2; i++) {
        REQUIRE(scope->driver->cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    }
    for (int i = 0; i < ROUNDS; i++) {
        CUstream stream = streams[i % 2];
        REQUIRE(ga_alloc_on(heap, size, 0, stream, &block) == GA_OK);
        EXPECT(scope->driver->cuMemsetD8Async((CUdeviceptr)block, (unsigned char)i, size, stream) ==
               CUDA_SUCCESS);
        if (i < ROUNDS - 1) {
            EXPECT(ga_free_on(heap, block, stream) == GA_OK);
        }
    }
    EXPECT(scope->driver->cuCtxSynchronize() == CUDA_SUCCESS);
    EXPECT(device_holds(device, block, ROUNDS - 1, size));
    EXPECT(ga_free(heap, block) == GA_OK);
    for (int i = 0; i < 2; i++) {
        scope->driver->cuStreamDestroy(streams[i]);
    }
}

static void stream_order(int device)
{
    static const size_t sizes[] = {512 << 10, 256 << 20};
    ga_cuda_scope scope;
    REQUIRE(ga_cuda_enter(&scope, device) == GA_OK);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        ga_heap *heap = open_heap(device, "vmm:limit=256M");
        if (heap) {
            pass_on(device, &scope, heap, sizes[i]);
            ga_heap_close(heap);
        }
    }
    ga_cuda_leave(&scope);
}

case_list vmm_cases(void)
{
    static const test_case cases[] = {
        {"no fragmentation", no_fragmentation},
        {"blocks cut and joined", cut_and_joined},
        {"blocks that grow in place", grown_in_place},
        {"memory that passes from stream to stream", stream_order},
    };
    return (case_list){"vmm", cases, sizeof cases / sizeof *cases};
}
