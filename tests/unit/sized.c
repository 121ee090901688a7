/* SPDX-License-Identifier: MIT
 *
 * Heaps of all sizes for kernels as programs open them, over `vmm` and `cuda` and a driver of host memory
 * that runs the library's own kernels; programs' kernels are threads that claim with all lanes of a tile.
 * What the host asks and does beside them; each call of the driver fails in its turn.
 */
#include "device/kinds.h"
#include "slab/sized_words.h"

#include "support/expect.h"
#include "support/random.h"
#include "support/scene.h"
#include "support/sized_actor.h"
#include "support/vmm_driver.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    MIB = 1 << 20,
    LIMIT = 20 * MIB,
    REGION = 128 << 10, /* for that limit */
    WARPS = 3,
    MOST = LIMIT / 16 + 32, /* blocks of one of them */
    LARGE = 2048            /* where sizes are mixed */
};

static const char growing[] = "slab:unit=classes,capacity=4M,limit=20M/vmm";
static const char fixed[] = "slab:unit=classes,capacity=20M/cuda";

static void begin(vmm_driver_kernels kernels)
{
    vmm_driver_start(&(vmm_driver_options){.kernels = kernels});
}

static ga_heap *open_heap(const char *spec)
{
    ga_heap *heap = NULL;
    assert_ok(ga_heap_open(&heap, GA_PLACE_KERNEL, 0, spec));
    return heap;
}

static ga_kernel_heap view_of(ga_heap *heap)
{
    ga_kernel_heap view;
    assert_ok(ga_heap_kernel_view(heap, &view));
    cr_assert_eq(view.abi, GA_KERNEL_HEAP_ABI);
    cr_assert_eq(view.kind, GA_KERNEL_KIND_SIZED);
    return view;
}

/* And stop the driver. */
static void expect_nothing_left(const char *after, uint64_t n)
{
    vmm_driver_counts now = vmm_driver_count();
    cr_assert_eq(
        now.ranges + now.chunks + now.handles + now.mappings + now.blocks + now.pinned + now.events,
        0,
        "%s, call %" PRIu64 ": %" PRIu64 " ranges, %" PRIu64 " chunks, %" PRIu64
        " handles, %" PRIu64 " mappings, %" PRIu64 " blocks, %" PRIu64 " pinned",
        after, n, now.ranges, now.chunks, now.handles, now.mappings, now.blocks, now.pinned);
    vmm_driver_stop();
}

static void end(ga_heap *heap)
{
    assert_ok(ga_heap_close(heap));
    expect_nothing_left("all", 0);
}

static ga_stats stats_of(ga_heap *heap)
{
    ga_stats stats = {0};
    assert_ok(ga_heap_stats(heap, &stats));
    return stats;
}

static void expect_live(ga_heap *heap, uint64_t blocks, uint64_t bytes)
{
    ga_stats stats = stats_of(heap);
    cr_assert(stats.live_blocks == blocks && stats.live_bytes == bytes,
              "%" PRIu64 " blocks of %" PRIu64 " bytes", stats.live_blocks, stats.live_bytes);
}

/* ---- kernels ------------------------------------------------------------------------------- */

typedef struct warp {
    ga_sized_heap *heap;
    uint32_t number, size; /* size 0: mixed */
    uint32_t retries;
    uint32_t held;
    uint64_t bytes;
    char **blocks;
    uint32_t *classes;
} warp;

static uint64_t mark_of(const warp *w, uint32_t i)
{
    return (uint64_t)w->number << 32 | i;
}

/* Writes who has it to both ends. */
static void keep(warp *w, char *block, uint32_t class)
{
    uint64_t mark = mark_of(w, w->held);
    memcpy(block, &mark, sizeof mark);
    memcpy(block + ga_sized_unit(class) - sizeof mark, &mark, sizeof mark);
    w->blocks[w->held] = block;
    w->classes[w->held++] = class;
    w->bytes += ga_sized_unit(class);
}

/* Claims until it is refused. */
static void *run_warp(void *argument)
{
    warp *w = argument;
    ga_sized_view view = ga_sized_view_of(w->heap);
    uint64_t random = w->number + 1;
    while (w->held + 32 <= MOST) {
        uint32_t classes[32], got;
        char *blocks[32];
        for (uint32_t lane = 0; lane < 32; lane++) {
            size_t size = w->size ? w->size : 1 + random_below(&random, LARGE);
            classes[lane] = ga_sized_class_of(view, size);
        }
        got = sized_claim(w->heap, GA_ALL_BITS, classes, w->number, blocks);
        for (uint32_t lane = 0; lane < 32; lane++) {
            if (blocks[lane]) {
                keep(w, blocks[lane], classes[lane]);
            }
        }
        if (!got && !w->retries--) {
            break;
        }
        if (!got) {
            usleep(1000); /* a refusal is believed for a while */
        }
    }
    return NULL;
}

static void give_back(warp *w)
{
    for (uint32_t i = 0; i < w->held; i++) {
        uint64_t mark = mark_of(w, i);
        uint64_t *last = (uint64_t *)(w->blocks[i] + ga_sized_unit(w->classes[i])) - 1;
        cr_assert(*(uint64_t *)w->blocks[i] == mark && *last == mark, "a block of class %u",
                  w->classes[i]);
        cr_assert(sized_release(w->heap, 1, &w->blocks[i]));
    }
    free(w->blocks);
    free(w->classes);
}

/* Several warps take all that they get; answers how many bytes. With `heap` live blocks are looked at. And
 * give it back. */
static uint64_t run(ga_kernel_heap view, ga_heap *heap, uint32_t size, uint32_t retries)
{
    pthread_t threads[WARPS];
    warp warps[WARPS];
    uint64_t bytes = 0, held = 0;
    for (uint32_t i = 0; i < WARPS; i++) {
        warps[i] = (warp){.heap = (ga_sized_heap *)view.words[GA_SIZED_WORD_HEAP],
                          .number = i,
                          .size = size,
                          .retries = retries,
                          .blocks = malloc(MOST * sizeof(char *)),
                          .classes = malloc(MOST * sizeof(uint32_t))};
        pthread_create(&threads[i], NULL, run_warp, &warps[i]);
    }
    for (uint32_t i = 0; i < WARPS; i++) {
        pthread_join(threads[i], NULL);
        bytes += warps[i].bytes;
        held += warps[i].held;
    }
    if (heap) {
        expect_live(heap, held, bytes);
    }
    for (uint32_t i = 0; i < WARPS; i++) {
        give_back(&warps[i]);
    }
    if (heap) {
        expect_live(heap, 0, 0);
    }
    return bytes;
}

/* ---- all that there is ---------------------------------------------------------------------- */

/* Of each size all that the limit has room for, again and again: classes change hands. */
static void fill_again(vmm_driver_kernels kernels, const char *spec, uint64_t room)
{
    static const uint32_t sizes[] = {1024, 16, 256, 4096, 128, 1024, 2048};
    begin(kernels);
    ga_heap *heap = open_heap(spec);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        assert_ok(ga_trim(heap, 0));
        uint64_t bytes = run(view_of(heap), heap, sizes[i], 0);
        cr_assert_eq(bytes, room, "%u bytes each: %" PRIu64 " of %" PRIu64, sizes[i], bytes, room);
    }
    end(heap);
}

Test(sized, grows_to_its_limit_and_classes_change_hands)
{
    fill_again(VMM_KERNELS_GROW, growing, LIMIT);
}

Test(sized, takes_all_of_a_fixed_capacity)
{
    fill_again(VMM_KERNELS_GROW, fixed, LIMIT);
    fill_again(VMM_KERNELS_GROW, "slab:unit=classes,capacity=128K/cuda", 128 << 10);
}

/* The view is enough where kernels have been refused. */
Test(sized, a_view_takes_back_what_classes_do_not_use)
{
    begin(VMM_KERNELS_GROW);
    ga_heap *heap = open_heap(fixed);
    for (uint32_t size = 16; size <= 4096; size *= 4) {
        cr_assert_eq(run(view_of(heap), NULL, size, 0), LIMIT, "%u bytes", size);
    }
    end(heap);
}

Test(sized, sizes_mixed)
{
    begin(VMM_KERNELS_GROW);
    ga_heap *heap = open_heap(growing);
    for (int round = 0; round < 3; round++) {
        uint64_t bytes = run(view_of(heap), heap, 0, 0);
        cr_assert(bytes <= LIMIT && bytes > LIMIT / 10 * 8, "%" PRIu64 " bytes", bytes);
        cr_assert_leq(stats_of(heap).held_bytes, LIMIT + 4 * MIB);
    }
    end(heap);
}

/* By doubling, at each view after kernels that found it full. */
Test(sized, grows_between_launches)
{
    begin(VMM_KERNELS_ALONE);
    ga_heap *heap = open_heap(growing);
    uint64_t held = 0;
    uint32_t rounds = 0;
    for (uint64_t before = 1; held != before; rounds++) {
        before = held;
        held = run(view_of(heap), heap, 1024, 0);
        cr_assert(held >= before);
    }
    cr_assert_eq(held, LIMIT, "%" PRIu64 " bytes", held);
    cr_assert(rounds > 2 && rounds < 9, "%u launches", rounds);
    end(heap);
}

/* Without a limit: what the device has. */
Test(sized, grows_to_what_the_device_has)
{
    vmm_driver_start(
        &(vmm_driver_options){.kernels = VMM_KERNELS_GROW, .memory = (size_t)32 * MIB});
    ga_heap *heap = open_heap("slab:unit=classes,capacity=4M/vmm");
    uint64_t bytes = run(view_of(heap), heap, 2048, 0);
    cr_assert(bytes >= LIMIT && bytes <= 32 * MIB, "%" PRIu64 " bytes", bytes);
    end(heap);
}

/* ---- the host ------------------------------------------------------------------------------- */

typedef struct seen {
    ga_heap *heap;
    void *blocks[64];
    size_t sizes[64];
    uint32_t count;
} seen;

static void note(void *context, void *block, size_t size)
{
    seen *s = context;
    cr_assert_lt(s->count, 64);
    cr_assert_eq(ga_usable_size(s->heap, block), size); /* the visitor may call the heap */
    s->blocks[s->count] = block;
    s->sizes[s->count++] = size;
}

static bool has(const seen *s, const void *block, size_t size)
{
    for (uint32_t i = 0; i < s->count; i++) {
        if (s->blocks[i] == block) {
            return s->sizes[i] == size;
        }
    }
    return false;
}

static const size_t host_sizes[] = {0,     1,     16,     17,     100,     128,          129,
                                    160,   161,   999,    1025,   4000,    8192,         10000,
                                    16384, 65536, 131072, 131073, 1 << 20, (3 << 20) + 1};
enum {
    HOST_SIZES = sizeof host_sizes / sizeof *host_sizes
};

static void blocks_for_the_host(const char *spec)
{
    void *blocks[HOST_SIZES];
    uint64_t bytes = 0;
    begin(VMM_KERNELS_GROW);
    ga_heap *heap = open_heap(spec);
    seen live = {.heap = heap};
    for (size_t i = 0; i < HOST_SIZES; i++) {
        assert_ok(ga_alloc(heap, host_sizes[i], 0, &blocks[i]));
        size_t usable = ga_usable_size(heap, blocks[i]);
        size_t most = host_sizes[i] <= REGION / 2 ? host_sizes[i] * 5 / 4 + 16
                                                  : (host_sizes[i] + REGION - 1) / REGION * REGION;
        cr_assert(usable >= host_sizes[i] && usable <= most, "%zu: %zu", host_sizes[i], usable);
        cr_assert_eq((uintptr_t)blocks[i] % 16, 0);
        memset(blocks[i], (int)i, usable);
        bytes += usable;
        expect_live(heap, i + 1, bytes);
    }
    assert_ok(ga_heap_each_live(heap, note, &live));
    cr_assert_eq(live.count, HOST_SIZES);
    for (size_t i = 0; i < HOST_SIZES; i++) {
        size_t usable = ga_usable_size(heap, blocks[i]);
        cr_assert(has(&live, blocks[i], usable));
        cr_assert(ga_owns(heap, blocks[i]) && ga_owns(heap, (char *)blocks[i] + usable - 1));
        cr_assert_eq(*((char *)blocks[i] + usable - 1), (char)i);
        assert_ok(ga_free(heap, blocks[i]));
    }
    expect_live(heap, 0, 0);
    end(heap);
}

Test(sized, the_host_has_blocks_of_all_sizes)
{
    blocks_for_the_host(growing);
    blocks_for_the_host(fixed);
}

Test(sized, what_is_no_block_is_refused)
{
    static char foreign[64];
    char *block, *other, text[128];
    begin(VMM_KERNELS_GROW);
    ga_heap *heap = open_heap(growing);
    assert_ok(ga_alloc(heap, 100, 0, (void **)&block));
    assert_ok(ga_alloc(heap, 100, 0, (void **)&other));
    snprintf(text, sizeof text, "slab: no block of this heap begins at %p", (void *)(block + 16));
    assert_fails(ga_free(heap, block + 16), GA_ERR_POINTER, text);
    snprintf(text, sizeof text, "slab: no block of this heap begins at %p", (void *)foreign);
    assert_fails(ga_free(heap, foreign), GA_ERR_POINTER, text);
    cr_assert(!ga_owns(heap, foreign) && !ga_owns(heap, NULL));
    cr_assert_eq(ga_usable_size(heap, foreign), 0);
    cr_assert_eq(ga_usable_size(heap, block + 16), 0);
    assert_ok(ga_free(heap, NULL));
    assert_ok(ga_free(heap, block));
    snprintf(text, sizeof text, "slab: %p is free already", (void *)block);
    assert_fails(ga_free(heap, block), GA_ERR_POINTER, text);
    expect_live(heap, 1, ga_usable_size(heap, other));
    assert_ok(ga_free(heap, other));
    assert_ok(ga_trim(heap, 0)); /* its region is nobody's now */
    cr_assert_eq(ga_free(heap, other), GA_ERR_POINTER);
    end(heap);
}

/* Over vmm at multiples of whatever there are addresses for. */
Test(sized, the_host_has_blocks_at_multiples)
{
    void *block;
    begin(VMM_KERNELS_GROW);
    ga_heap *heap = open_heap(growing);
    for (size_t align = 16; align <= 2 * MIB; align *= 2) {
        for (size_t size = 1; size < 4 * MIB; size = size * 3 + 5) {
            assert_ok(ga_alloc(heap, size, align, &block));
            cr_assert_eq((uintptr_t)block % align, 0, "%zu at %zu", size, align);
            cr_assert_geq(ga_usable_size(heap, block), size);
            memset(block, 1, size);
            assert_ok(ga_free(heap, block));
        }
    }
    assert_fails_with(ga_alloc(heap, 1, (size_t)1 << 62, &block), GA_ERR_MEMORY, "slab: ");
    expect_live(heap, 0, 0);
    end(heap);
}

/* A run is all that there is, and again after others had the regions. */
Test(sized, the_host_has_all_of_it)
{
    static const char *const specs[] = {growing, fixed};
    for (size_t i = 0; i < 2; i++) {
        void *block, *other;
        char text[128];
        begin(VMM_KERNELS_GROW);
        ga_heap *heap = open_heap(specs[i]);
        for (int round = 0; round < 3; round++) {
            assert_ok(ga_alloc(heap, LIMIT, 0, &block));
            cr_assert_eq(ga_usable_size(heap, block), LIMIT);
            memset(block, 3, LIMIT);
            expect_live(heap, 1, LIMIT);
            assert_fails_with(ga_alloc(heap, 16, 0, &other), GA_ERR_MEMORY, "slab: ");
            cr_assert(ga_owns(heap, (char *)block + LIMIT - 1));
            cr_assert_eq(ga_usable_size(heap, (char *)block + REGION), 0);
            cr_assert_eq(ga_free(heap, (char *)block + REGION), GA_ERR_POINTER);
            assert_ok(ga_free(heap, block));
            snprintf(text, sizeof text, "slab: no block of this heap begins at %p", block);
            assert_fails(ga_free(heap, block), GA_ERR_POINTER, text);
            expect_live(heap, 0, 0);
            cr_assert_eq(run(view_of(heap), NULL, 1024, 0), LIMIT);
            assert_ok(ga_heap_reset(heap));
            cr_assert_eq(ga_alloc(heap, LIMIT, 0, &block), GA_ERR_MEMORY); /* classes have it */
            assert_ok(ga_trim(heap, 0));
        }
        assert_ok(ga_alloc(heap, LIMIT, 0, &block));
        assert_ok(ga_heap_reset(heap));
        expect_live(heap, 0, 0);
        assert_ok(ga_alloc(heap, LIMIT, 0, &other));
        cr_assert_eq(block, other);
        assert_ok(ga_free(heap, other));
        end(heap);
    }
}

Test(sized, sizes_and_alignments_that_are_refused)
{
    void *block = NULL;
    begin(VMM_KERNELS_GROW);
    ga_heap *heap = open_heap(growing);
    cr_assert_eq(ga_alloc(heap, LIMIT + 1, 0, &block), GA_ERR_SIZE);
    cr_assert_eq(ga_alloc(heap, (size_t)1 << 31, 0, &block), GA_ERR_SIZE);
    cr_assert_eq(ga_alloc(heap, ((size_t)1 << 32) + 16, 0, &block), GA_ERR_SIZE);
    cr_assert_neq(ga_alloc(heap, SIZE_MAX, 0, &block), GA_OK);
    assert_ok(ga_alloc(heap, 100, 16, &block));
    assert_ok(ga_free(heap, block));
    expect_live(heap, 0, 0);
    end(heap);
}

/* What the host cannot have it is told; nothing is lost by it. */
Test(sized, the_host_takes_the_last_block)
{
    void *blocks[16];
    uint32_t count = 0;
    begin(VMM_KERNELS_GROW);
    ga_heap *heap = open_heap("slab:unit=classes,capacity=128K/cuda");
    while (count < 16 && ga_alloc(heap, 16384, 0, &blocks[count]) == GA_OK) {
        count++;
    }
    cr_assert_eq(count, 8);
    assert_fails(ga_alloc(heap, 16384, 0, &blocks[8]), GA_ERR_MEMORY,
                 "slab: no more memory for 16384 bytes");
    assert_fails(ga_alloc(heap, 16, 0, &blocks[8]), GA_ERR_MEMORY,
                 "slab: no more memory for 16 bytes");
    while (count) {
        assert_ok(ga_free(heap, blocks[--count]));
    }
    assert_ok(ga_trim(heap, 0));
    assert_ok(ga_alloc(heap, 16, 0, &blocks[0]));
    assert_ok(ga_free(heap, blocks[0]));
    end(heap);
}

/* Kernels and the host, beside; and reset. */
Test(sized, the_host_and_kernels_share)
{
    void *block, *other;
    begin(VMM_KERNELS_GROW);
    ga_heap *heap = open_heap(growing);
    assert_ok(ga_alloc(heap, 1000, 0, &block));
    cr_assert_eq(run(view_of(heap), NULL, 1024, 0), LIMIT - 1024);
    assert_ok(ga_alloc(heap, 1000, 0, &other));
    expect_live(heap, 2, 2048);
    assert_ok(ga_heap_reset(heap));
    expect_live(heap, 0, 0);
    cr_assert_eq(ga_free(heap, block), GA_ERR_POINTER);
    cr_assert_eq(run(view_of(heap), heap, 1024, 0), LIMIT);
    end(heap);
}

/* ---- specs ---------------------------------------------------------------------------------- */

Test(sized, specs_that_are_refused)
{
    static const struct {
        const char *spec;
        ga_status status;
    } bad[] = {
        {"slab:unit=classes,capacity=64K/cuda", GA_ERR_SPEC},
        {"slab:unit=classes,limit=64K/vmm", GA_ERR_SPEC},
        {"slab:unit=classes,capacity=0/vmm", GA_ERR_SPEC},
        {"slab:unit=classes,limit=0/vmm", GA_ERR_SPEC},
        {"slab:unit=classes,max=4K/vmm", GA_ERR_SPEC},
        {"slab:unit=classes,blocks=4/vmm", GA_ERR_SPEC},
        {"slab:unit=classes,check=some/vmm", GA_ERR_SPEC},
        {"slab:unit=classes,preset=paper/vmm", GA_ERR_SPEC},
        {"slab:unit=classes,addressing=table/vmm", GA_ERR_SPEC},
        {"slab:unit=classes,capacity=2G/cuda", GA_ERR_MEMORY},
        {"slab:unit=classes,capacity=2G/vmm", GA_ERR_MEMORY},
        {"slab:unit=classes,capacity=4M/fail:nth=1/cuda", GA_ERR_MEMORY},
        {"slab:unit=classes,capacity=4M/fail:nth=2/cuda", GA_ERR_MEMORY},
        {"slab:unit=classes/system", GA_ERR_PLACE},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ga_heap *heap = NULL;
        begin(VMM_KERNELS_GROW);
        ga_status status = ga_heap_open(&heap, GA_PLACE_KERNEL, 0, bad[i].spec);
        cr_assert_eq(status, bad[i].status, "%s: %s: %s", bad[i].spec, ga_status_text(status),
                     ga_error_text());
        cr_assert_null(heap);
        cr_assert(ga_error_text()[0]);
        expect_nothing_left(bad[i].spec, 0);
    }
}

/* ---- every call of the driver -------------------------------------------------------------- */

static const CUresult errors[] = {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_NOT_PERMITTED};

static void each_call(bool (*fails)(uint64_t n, CUresult error), uint64_t least)
{
    uint64_t n = 1;
    while (fails(n, errors[n % 2])) {
        n++;
    }
    cr_assert_gt(n, least, "only %" PRIu64 " calls", n - 1);
}

/* Nothing stays of a heap that was not opened, and another can be. */
static bool fail_open(const char *spec, uint64_t n, CUresult error)
{
    ga_heap *heap = NULL;
    begin(VMM_KERNELS_GROW);
    vmm_driver_fail(NULL, n, error);
    ga_status status = ga_heap_open(&heap, GA_PLACE_KERNEL, 0, spec);
    bool failed = vmm_driver_has_failed();
    vmm_driver_fail(NULL, 0, error);
    cr_assert(status == GA_OK || (failed && !heap), "call %" PRIu64, n);
    cr_assert(status == GA_OK || status == GA_ERR_MEMORY || status == GA_ERR_DEVICE,
              "call %" PRIu64 ": %s: %s", n, ga_status_text(status), ga_error_text());
    if (status != GA_OK) {
        heap = open_heap(spec);
    }
    cr_assert_gt(run(view_of(heap), NULL, 1024, 0), 0);
    assert_ok(ga_heap_close(heap));
    expect_nothing_left("open", n);
    return failed;
}

static bool fail_open_growing(uint64_t n, CUresult error)
{
    return fail_open("slab:unit=classes,capacity=4M/vmm:limit=24M", n, error);
}

static bool fail_open_fixed(uint64_t n, CUresult error)
{
    return fail_open("slab:unit=classes,capacity=1M/cuda", n, error);
}

Test(sized, every_call_of_opening_in_turn)
{
    each_call(fail_open_growing, 30);
    each_call(fail_open_fixed, 10);
}

/* Nobody is refused for good by a call that failed once. */
static bool fail_under_kernels(uint64_t n, CUresult error)
{
    begin(VMM_KERNELS_GROW);
    ga_heap *heap = open_heap(growing);
    ga_kernel_heap view = view_of(heap);
    vmm_driver_fail(NULL, n, error);
    uint64_t held = run(view, NULL, 2048, 0);
    bool failed = vmm_driver_has_failed();
    vmm_driver_fail(NULL, 0, error);
    uint64_t all = run(view, heap, 2048, 100);
    cr_assert(held <= all && all == LIMIT, "%" PRIu64 ", then %" PRIu64, held, all);
    assert_ok(ga_heap_close(heap));
    expect_nothing_left("kernels", n);
    return failed;
}

Test(sized, every_call_under_kernels_in_turn)
{
    each_call(fail_under_kernels, 3);
}

/* A view, statistics, blocks of the host's, their frees, trimming: refused or done; and done the next
 * time. */
static bool fail_between(vmm_driver_kernels kernels, uint64_t n, CUresult error)
{
    ga_stats stats;
    seen live = {0};
    void *block = NULL;
    ga_kernel_heap view;
    begin(kernels);
    ga_heap *heap = live.heap = open_heap(growing);
    uint64_t held = run(view_of(heap), NULL, 2048, 0);
    vmm_driver_fail(NULL, n, error);
    bool done = ga_heap_kernel_view(heap, &view) == GA_OK && ga_trim(heap, 0) == GA_OK &&
                ga_heap_stats(heap, &stats) == GA_OK && ga_alloc(heap, 1000, 0, &block) == GA_OK;
    bool freed = block && ga_free(heap, block) == GA_OK;
    done = done && ga_heap_reset(heap) == GA_OK;
    bool failed = vmm_driver_has_failed();
    vmm_driver_fail(NULL, 0, error);
    cr_assert(failed || (done && freed), "%s", ga_error_text());
    if (block && !freed) {
        ga_free(heap, block); /* it may have been free already: then that is said */
    }
    assert_ok(ga_heap_reset(heap)); /* a block may have been lost with the answer that held it */
    expect_live(heap, 0, 0);
    assert_ok(ga_trim(heap, 0));
    uint64_t again = run(view_of(heap), heap, 1024, 0);
    cr_assert(again >= held, "%" PRIu64 " bytes, then %" PRIu64, held, again);
    assert_ok(ga_heap_close(heap));
    expect_nothing_left("between", n);
    return failed;
}

static bool fail_between_launches(uint64_t n, CUresult error)
{
    return fail_between(VMM_KERNELS_GROW, n, error);
}

/* Where the view is what grows the heap. */
static bool fail_growth_between_launches(uint64_t n, CUresult error)
{
    return fail_between(VMM_KERNELS_ALONE, n, error);
}

Test(sized, every_call_between_launches_in_turn)
{
    each_call(fail_between_launches, 30);
    each_call(fail_growth_between_launches, 30);
}

static bool fail_close(uint64_t n, CUresult error)
{
    begin(VMM_KERNELS_GROW);
    ga_heap *heap = open_heap(growing);
    run(view_of(heap), NULL, 2048, 0);
    vmm_driver_fail(NULL, n, error);
    ga_heap_close(heap);
    bool failed = vmm_driver_has_failed();
    vmm_driver_fail(NULL, 0, error);
    expect_nothing_left("close", n);
    return failed;
}

Test(sized, every_call_of_closing_in_turn)
{
    each_call(fail_close, 10);
}

/* ---- what goes first, and children ---------------------------------------------------------- */

Test(sized, a_context_that_is_destroyed_first)
{
    ga_kernel_heap view;
    void *block;
    begin(VMM_KERNELS_GROW);
    ga_heap *heap = open_heap(growing);
    view = view_of(heap);
    vmm_driver_destroy_context(0);
    cr_assert_lt(run(view, NULL, 2048, 0), LIMIT); /* what there was, and no more */
    cr_assert_eq(ga_heap_kernel_view(heap, &view), GA_ERR_DEVICE);
    cr_assert_eq(ga_alloc(heap, 100, 0, &block), GA_ERR_DEVICE);
    cr_assert_eq(ga_heap_reset(heap), GA_ERR_DEVICE);
    cr_assert_eq(ga_trim(heap, 0), GA_ERR_DEVICE);
    ga_heap_close(heap);
    vmm_driver_stop();
}

static int close_in_child(void *context)
{
    ga_kernel_heap view;
    ga_heap *heap = context;
    bool refused = ga_heap_kernel_view(heap, &view) != GA_OK;
    ga_heap_close(heap);
    return refused ? 0 : 1;
}

Test(sized, a_fork_with_a_live_pager)
{
    begin(VMM_KERNELS_GROW);
    ga_heap *heap = open_heap(growing);
    ga_kernel_heap view = view_of(heap);
    cr_assert_eq(scene_in_child(close_in_child, heap), 0);
    cr_assert_eq(run(view, heap, 1024, 0), LIMIT);
    end(heap);
}

Test(sized, live_blocks_are_told_of_at_the_end)
{
    void *block;
    begin(VMM_KERNELS_GROW);
    ga_heap *heap = open_heap(fixed);
    assert_ok(ga_alloc(heap, 1000, 0, &block));
    scene_capture_begin();
    assert_ok(ga_heap_close(heap));
    const char *text = scene_capture_end();
    cr_assert(strstr(text, "1 block") && strstr(text, "1024 bytes"), "%s", text);
    expect_nothing_left("a leak", 0);
}
