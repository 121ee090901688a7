/* SPDX-License-Identifier: MIT
 *
 * Requirements on every heap of device memory, for each backend that has any.
 */
#include "../../liballoc/device/device.h"
#include "../../liballoc/device/probe.h"
#include "cases.h"
#include "device/kinds.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const specs[] = {"cuda", "managed", "pinned", "async",
                                    "async:free=now,release=0"};

enum {
    SPECS = sizeof specs / sizeof *specs
};

static const size_t TOO_MUCH = (size_t)1 << 46; /* for any device, and for any host to pin */

static ga_heap *open_heap(int device, const char *spec)
{
    ga_heap *heap = NULL;
    EXPECT(ga_heap_open(&heap, GA_PLACE_DEVICE, device, spec) == GA_OK);
    return heap;
}

/* Run `body` on a heap of each backend. */
static void on_each(int device, void (*body)(ga_heap *heap, int device))
{
    for (int i = 0; i < SPECS; i++) {
        ga_heap *heap = open_heap(device, specs[i]);
        if (heap) {
            body(heap, device);
            ga_heap_close(heap);
        }
    }
}

/* ---- blocks ------------------------------------------------------------------------------- */

static void check_block(ga_heap *heap, int device, size_t size)
{
    void *block = NULL;
    REQUIRE(ga_alloc(heap, size, 0, &block) == GA_OK);
    EXPECT((uintptr_t)block % 256 == 0);
    EXPECT(ga_usable_size(heap, block) >= size);
    EXPECT(ga_owns(heap, block));
    bool passed_on = strncmp(ga_heap_spec(heap), "slab", 4) == 0 && size > 65536;
    EXPECT(!size || passed_on || ga_owns(heap, (char *)block + size - 1));
    EXPECT(device_fill(device, block, 0x5a, ga_usable_size(heap, block)));
    EXPECT(device_holds(device, block, 0x5a, size));
    EXPECT(ga_free(heap, block) == GA_OK);
}

static void blocks_body(ga_heap *heap, int device)
{
    static const size_t sizes[] = {
        0, 1, 255, 256, 257, 4096, ((size_t)1 << 20) + 1, (size_t)64 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        check_block(heap, device, sizes[i]);
    }
}

static void blocks(int device)
{
    on_each(device, blocks_body);
}

static void side_by_side_body(ga_heap *heap, int device)
{
    enum {
        COUNT = 50,
        SIZE = 1000
    };
    void *all[COUNT] = {NULL};
    for (int i = 0; i < COUNT; i++) {
        REQUIRE(ga_alloc(heap, SIZE, 0, &all[i]) == GA_OK);
        EXPECT(device_fill(device, all[i], (unsigned char)i, SIZE));
    }
    for (int i = 0; i < COUNT; i++) {
        EXPECT(device_holds(device, all[i], (unsigned char)i, SIZE));
        EXPECT(ga_free(heap, all[i]) == GA_OK);
    }
}

static void side_by_side(int device)
{
    on_each(device, side_by_side_body);
}

static void zeroed_body(ga_heap *heap, int device)
{
    void *block = NULL;
    for (int i = 0; i < 4; i++) { /* memory that was used before, too */
        REQUIRE(ga_alloc_zeroed(heap, 100000, 0, &block) == GA_OK);
        EXPECT(device_holds(device, block, 0, 100000));
        EXPECT(device_fill(device, block, 0xff, 100000));
        EXPECT(ga_free(heap, block) == GA_OK);
    }
}

static void zeroed(int device)
{
    on_each(device, zeroed_body);
}

static void resized_body(ga_heap *heap, int device)
{
    void *block = NULL;
    REQUIRE(ga_alloc(heap, 1000, 0, &block) == GA_OK);
    EXPECT(device_fill(device, block, 0x11, 1000));
    REQUIRE(ga_realloc(heap, block, 100000, 0, &block) == GA_OK);
    EXPECT(device_holds(device, block, 0x11, 1000));
    EXPECT(device_fill(device, block, 0x22, 100000));
    REQUIRE(ga_realloc(heap, block, 500, 0, &block) == GA_OK);
    EXPECT(device_holds(device, block, 0x22, 500));

    void *too_much = &block;
    EXPECT(ga_realloc(heap, block, TOO_MUCH, 0, &too_much) == GA_ERR_MEMORY);
    EXPECT(too_much == block);
    EXPECT(ga_owns(heap, block) && device_holds(device, block, 0x22, 500));
    EXPECT(ga_free(heap, block) == GA_OK);

    void *none = NULL;
    EXPECT(ga_realloc(heap, &none, 500, 0, &none) == GA_ERR_POINTER);
}

static void resized(int device)
{
    on_each(device, resized_body);
}

static void alignment_body(ga_heap *heap, int device)
{
    void *block = NULL;
    (void)device;
    for (size_t align = 1; align <= 256; align *= 2) {
        REQUIRE(ga_alloc(heap, 100, align, &block) == GA_OK);
        EXPECT((uintptr_t)block % align == 0);
        EXPECT(ga_free(heap, block) == GA_OK);
    }
    EXPECT(ga_alloc(heap, 100, 512, &block) == GA_ERR_ALIGN && !block);
    EXPECT(ga_alloc(heap, 100, 3, &block) == GA_ERR_ALIGN && !block);
}

static void alignment(int device)
{
    on_each(device, alignment_body);
}

static void batch_body(ga_heap *heap, int device)
{
    static const size_t sizes[] = {100, 0, 70000, 256};
    size_t with_one_too_large[] = {100, 200, TOO_MUCH, 256};
    void *blocks_of[4] = {NULL};
    REQUIRE(ga_alloc_batch(heap, 4, sizes, blocks_of) == GA_OK);
    for (int i = 0; i < 4; i++) {
        EXPECT(blocks_of[i] && ga_usable_size(heap, blocks_of[i]) >= sizes[i]);
        EXPECT(!sizes[i] || device_fill(device, blocks_of[i], 1, sizes[i]));
        EXPECT(ga_free(heap, blocks_of[i]) == GA_OK);
    }
    EXPECT(ga_alloc_batch(heap, 4, with_one_too_large, blocks_of) == GA_ERR_MEMORY);
    EXPECT(test_error_has("70368744177664"));
    EXPECT(!blocks_of[0] && !blocks_of[1] && !blocks_of[2] && !blocks_of[3]);
}

static void batch(int device)
{
    on_each(device, batch_body);
}

/* ---- refusals ----------------------------------------------------------------------------- */

static void out_of_memory_body(ga_heap *heap, int device)
{
    void *block = &block;
    EXPECT(ga_alloc(heap, TOO_MUCH, 0, &block) == GA_ERR_MEMORY && !block);
    EXPECT(test_error_has("no block of 70368744177664 bytes on device"));
    EXPECT(test_error_has("CUDA_ERROR_OUT_OF_MEMORY (out of memory)") ||
           test_error_has("which are free"));
    EXPECT(ga_alloc_zeroed(heap, TOO_MUCH, 0, &block) == GA_ERR_MEMORY && !block);
    EXPECT(ga_alloc(heap, SIZE_MAX, 0, &block) == GA_ERR_SIZE && !block);
    EXPECT(ga_alloc(heap, PTRDIFF_MAX, 0, &block) == GA_ERR_MEMORY && !block);
    check_block(heap, device, 1 << 20);
}

static void out_of_memory(int device)
{
    on_each(device, out_of_memory_body);
}

static void foreign_pointers_body(ga_heap *heap, int device)
{
    ga_heap *other = open_heap(device, strncmp(ga_heap_spec(heap), "cuda", 4) ? "cuda" : "async");
    void *block = NULL;
    void *others = NULL;
    int local = 0;
    REQUIRE(ga_alloc(heap, 4096, 0, &block) == GA_OK);
    REQUIRE(ga_alloc(other, 4096, 0, &others) == GA_OK);
    EXPECT(!ga_owns(heap, others) && !ga_owns(other, block));
    EXPECT(!ga_owns(heap, &local) && !ga_owns(heap, NULL) && !ga_owns(heap, (void *)1));
    EXPECT(ga_usable_size(heap, &local) == 0);
    EXPECT(ga_free(heap, &local) == GA_ERR_POINTER);
    EXPECT(ga_free(heap, others) == GA_ERR_POINTER);
    EXPECT(ga_free(other, block) == GA_ERR_POINTER);
    EXPECT(ga_free(heap, (char *)block + 256) == GA_ERR_POINTER);
    EXPECT(ga_free(other, others) == GA_OK);
    EXPECT(ga_free(heap, block) == GA_OK);
    EXPECT(ga_free(heap, NULL) == GA_OK);
    ga_heap_close(other);
}

static void foreign_pointers(int device)
{
    on_each(device, foreign_pointers_body);
}

/* Each heap knows the blocks of its own device alone. */
static void two_devices(int device)
{
    int count = 0;
    void *here = NULL;
    void *there = NULL;
    REQUIRE(ga_cuda_device_count(&count) == GA_OK);
    if (count < 2) {
        SKIP("needs a second device");
    }
    for (int i = 0; i < SPECS; i++) {
        ga_heap *ours = open_heap(device, specs[i]);
        ga_heap *other = open_heap((device + 1) % count, specs[i]);
        REQUIRE(ga_alloc(ours, 4096, 0, &here) == GA_OK);
        REQUIRE(ga_alloc(other, 4096, 0, &there) == GA_OK);
        EXPECT(ga_owns(ours, here) && !ga_owns(ours, there));
        EXPECT(ga_owns(other, there) && !ga_owns(other, here));
        EXPECT(ga_free(ours, there) == GA_ERR_POINTER);
        EXPECT(ga_free(other, here) == GA_ERR_POINTER);
        EXPECT(ga_free(ours, here) == GA_OK && ga_free(other, there) == GA_OK);
        ga_heap_close(ours);
        ga_heap_close(other);
    }
}

static void freed_twice_body(ga_heap *heap, int device)
{
    void *block = NULL;
    (void)device;
    REQUIRE(ga_alloc(heap, (size_t)4 << 20, 0, &block) == GA_OK);
    EXPECT(ga_free(heap, block) == GA_OK);
    EXPECT(ga_free(heap, block) == GA_ERR_POINTER);
    EXPECT(!ga_owns(heap, block));
}

static void freed_twice(int device)
{
    on_each(device, freed_twice_body);
}

/* ---- many threads ------------------------------------------------------------------------- */

typedef struct worker {
    ga_heap *heap;
    int device;
    unsigned seed;
} worker;

static void *work(void *argument)
{
    const worker *w = argument;
    unsigned seed = w->seed;
    for (int i = 0; i < 100; i++) {
        void *block = NULL;
        size_t size = 1 + (size_t)rand_r(&seed) % 50000;
        unsigned char tag = (unsigned char)rand_r(&seed);
        if (ga_alloc(w->heap, size, 0, &block) != GA_OK) {
            test_fail(__FILE__, __LINE__, "a block");
            return NULL;
        }
        EXPECT(device_fill(w->device, block, tag, size));
        EXPECT(device_holds(w->device, block, tag, size));
        EXPECT(ga_free(w->heap, block) == GA_OK);
    }
    return NULL;
}

static void threads_body(ga_heap *heap, int device)
{
    enum {
        THREADS = 16
    };
    pthread_t threads[THREADS];
    worker workers[THREADS];
    ga_stats before, stats;
    EXPECT(ga_heap_stats(heap, &before) == GA_OK);
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (worker){heap, device, (unsigned)i};
        pthread_create(&threads[i], NULL, work, &workers[i]);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    EXPECT(ga_heap_stats(heap, &stats) == GA_OK);
    EXPECT(stats.allocs - before.allocs == 100 * THREADS && stats.live_blocks == 0);
}

static void many_threads(int device)
{
    on_each(device, threads_body);
}

/* ---- memory of host and device ------------------------------------------------------------ */

/* A kernel reads what the host wrote, and the host what the kernel wrote, by the same addresses. */
static void used_by_both(int device)
{
    static const char *const both[] = {"managed", "pinned"};
    uint32_t count = GA_PROBE_LANES;
    CUfunction kernel;
    REQUIRE(ga_device_function(&kernel, device, "ga_probe_kernel") == GA_OK);
    for (size_t i = 0; i < sizeof both / sizeof *both; i++) {
        ga_heap *heap = open_heap(device, both[i]);
        uint32_t *input = NULL;
        ga_cuda_scope scope;
        REQUIRE(heap &&
                ga_alloc(heap, 2 * sizeof(uint32_t[GA_PROBE_LANES]), 0, (void **)&input) == GA_OK);
        uint32_t *output = input + GA_PROBE_LANES;
        void *parameters[] = {&input, &output, &count};
        for (uint32_t lane = 0; lane < count; lane++) {
            input[lane] = lane * lane;
        }
        REQUIRE(ga_cuda_enter(&scope, device) == GA_OK);
        EXPECT(scope.driver->cuLaunchKernel(kernel, 1, 1, 1, count, 1, 1, 0, scope.stream,
                                            parameters, NULL) == CUDA_SUCCESS);
        EXPECT(scope.driver->cuStreamSynchronize(scope.stream) == CUDA_SUCCESS);
        ga_cuda_leave(&scope);
        for (uint32_t lane = 0; lane < count; lane++) {
            uint32_t other = lane ^ 1;
            EXPECT(output[lane] == ga_probe_join(ga_probe_mix(lane * lane, lane),
                                                 ga_probe_mix(other * other, other)));
        }
        EXPECT(ga_free(heap, input) == GA_OK);
        ga_heap_close(heap);
    }
}

/* ---- slab ----------------------------------------------------------------------------------- */

/* Its blocks lie in the parent's memory, so the parent owns them too. */
static void slab_over_cuda(int device)
{
    static const char *const slabs[] = {"slab/cuda", "slab:unit=1K/async"};
    for (size_t i = 0; i < sizeof slabs / sizeof *slabs; i++) {
        ga_heap *heap = open_heap(device, slabs[i]);
        REQUIRE(heap);
        if (i == 0) { /* any size */
            blocks_body(heap, device);
            zeroed_body(heap, device);
            resized_body(heap, device);
            threads_body(heap, device);
        }
        side_by_side_body(heap, device);
        int local = 0;
        EXPECT(!ga_owns(heap, &local) && ga_free(heap, &local) == GA_ERR_POINTER);
        ga_heap_close(heap);
    }
}

/* ---- vmm ------------------------------------------------------------------------------------ */

static void vmm_heaps(int device)
{
    static const char *const heaps[] = {"vmm", "vmm:free=now,chunk=2M,limit=1G"};
    for (size_t i = 0; i < sizeof heaps / sizeof *heaps; i++) {
        ga_heap *heap = open_heap(device, heaps[i]);
        REQUIRE(heap);
        blocks_body(heap, device);
        side_by_side_body(heap, device);
        zeroed_body(heap, device);
        resized_body(heap, device);
        batch_body(heap, device);
        freed_twice_body(heap, device);
        threads_body(heap, device);
        ga_heap_close(heap);
    }
}

/* ---- in kernels --------------------------------------------------------------------------- */

static void kernel_heap(int device)
{
    ga_heap *heap;
    ga_kernel_heap view;
    void *block = NULL;
    REQUIRE(ga_heap_open(&heap, GA_PLACE_KERNEL, device, "cuda:heap=64M") == GA_OK);
    EXPECT(ga_heap_kernel_view(heap, &view) == GA_OK);
    EXPECT(view.abi == GA_KERNEL_HEAP_ABI && view.kind == 1 && view.words[0] == 0);
    EXPECT(ga_alloc(heap, 4096, 0, &block) == GA_OK);
    EXPECT(ga_free(heap, block) == GA_OK);
    ga_heap_close(heap);
    EXPECT(ga_heap_open(&heap, GA_PLACE_DEVICE, device, "cuda:heap=64M") == GA_ERR_SPEC && !heap);
    EXPECT(test_error_has("cuda: heap: expected for the place kernel only"));
    EXPECT(ga_heap_open(&heap, GA_PLACE_KERNEL, device, "async") == GA_ERR_PLACE && !heap);
}

case_list heap_cases(void)
{
    static const test_case cases[] = {
        {"blocks of all sizes", blocks},
        {"blocks do not overlap", side_by_side},
        {"zeroed blocks", zeroed},
        {"resized blocks", resized},
        {"alignment", alignment},
        {"batches", batch},
        {"out of memory, then on", out_of_memory},
        {"foreign pointers", foreign_pointers},
        {"blocks of another device", two_devices},
        {"a block freed twice", freed_twice},
        {"many threads", many_threads},
        {"memory that host and device use", used_by_both},
        {"slab over the others", slab_over_cuda},
        {"vmm", vmm_heaps},
        {"CUDA's own heap in kernels", kernel_heap},
    };
    return (case_list){"heaps", cases, sizeof cases / sizeof *cases};
}
