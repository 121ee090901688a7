/* SPDX-License-Identifier: MIT
 *
 * Slab heaps for kernels as programs have them: opened from a spec, with nothing but the public
 * calls.
 */
#include "slab_gpu.h"

static ga_heap *open_heap(int device, const char *spec)
{
    ga_heap *heap = NULL;
    ga_status status = ga_heap_open(&heap, GA_PLACE_KERNEL, device, spec);
    if (status != GA_OK) {
        FAIL("the heap \"%s\" for kernels, got \"%s\"", spec, ga_status_text(status));
    }
    return heap;
}

static bool look(ga_heap *heap, ga_kernel_heap *view)
{
    ga_status status = ga_heap_kernel_view(heap, view);
    if (status != GA_OK) {
        FAIL("a view of \"%s\", got \"%s\"", ga_heap_spec(heap), ga_status_text(status));
    }
    return status == GA_OK;
}

static void count_block(void *context, void *block, size_t size)
{
    uint64_t *seen = (uint64_t *)context;
    (void)block;
    seen[0]++;
    seen[1] += size;
}

static void expect_live(ga_heap *heap, uint64_t blocks, uint64_t unit)
{
    ga_stats stats = {};
    uint64_t seen[2] = {};
    EXPECT_STATUS(ga_heap_stats(heap, &stats), GA_OK);
    EXPECT_STATUS(ga_heap_each_live(heap, count_block, seen), GA_OK);
    EXPECT_EQUAL("live_blocks", stats.live_blocks, blocks);
    EXPECT_EQUAL("live_bytes", stats.live_bytes, blocks * unit);
    EXPECT_EQUAL("the blocks that ga_heap_each_live visits", seen[0], blocks);
    EXPECT_EQUAL("their bytes", seen[1], blocks * unit);
}

/* ---- in kernels ---------------------------------------------------------------------------- */

/* Thread i of n allocates `size` bytes and writes to them; or checks and frees them. */
static __global__ void ask_kernel(ga_kernel_heap heap, char **blocks, uint32_t n, uint32_t size,
                                  slab_tally *tally)
{
    uint32_t i = slab_thread();
    if (i < n) {
        blocks[i] = (char *)ga_kernel_malloc(heap, size);
        slab_count(blocks[i] ? &tally->given : &tally->full, 1);
        if (blocks[i]) {
            slab_write(blocks[i], size, i);
        }
    }
}

static __global__ void free_kernel(ga_kernel_heap heap, char **blocks, uint32_t n, uint32_t size,
                                   slab_tally *tally)
{
    uint32_t i = slab_thread();
    if (i < n && blocks[n - 1u - i]) {
        slab_holds(blocks[n - 1u - i], size, n - 1u - i, tally);
        ga_kernel_free(heap, blocks[n - 1u - i]);
        blocks[n - 1u - i] = NULL;
    }
}

static uint64_t ask(ga_kernel_heap view, char **blocks, uint32_t n, uint32_t size,
                    slab_tally *tally)
{
    ask_kernel<<<slab_grid(n), SLAB_BLOCK>>>(view, blocks, n, size, tally);
    KERNELS_DONE();
    return READ_TALLY(tally).given;
}

static void give(ga_kernel_heap view, char **blocks, uint32_t n, uint32_t size, slab_tally *tally)
{
    free_kernel<<<slab_grid(n), SLAB_BLOCK>>>(view, blocks, n, size, tally);
    KERNELS_DONE();
    READ_TALLY(tally);
}

/* ---- specs --------------------------------------------------------------------------------- */

typedef struct subject {
    const char *spec;
    uint32_t unit;
    bool large; /* not for a sanitizer */
} subject;

static const subject subjects[] = {
    {"slab:unit=128,addressing=light,capacity=4M/cuda", 128, false},
    {"slab:unit=48,addressing=table,blocks=2,capacity=192K,limit=1536K/cuda", 48, false},
    {"slab:unit=16,check=full,blocks=1,capacity=64K/cuda", 16, false},
    {"slab:unit=128,check=full,addressing=table,blocks=1,capacity=512K,limit=8M/cuda", 128, false},
    {"slab:unit=4096,capacity=16M/async", 4096, false},
    {"slab", 128, true},
    {"slab:unit=64K,capacity=256M/cuda", 64 << 10, true},
    {"slab:preset=paper/cuda", 128, true},
};

/* The host's calls while kernels hold units. */
static void as_the_host(ga_heap *heap, uint32_t unit, uint64_t held)
{
    static char foreign[16];
    void *block = NULL;
    EXPECT_STATUS(ga_alloc(heap, unit, 0, &block), GA_OK);
    if (!block) {
        return;
    }
    expect_live(heap, held + 1, unit);
    EXPECT_EQUAL("ga_usable_size of a unit", ga_usable_size(heap, block), unit);
    EXPECT_EQUAL("ga_owns of a unit", ga_owns(heap, block), true);
    EXPECT_EQUAL("ga_owns of the host's memory", ga_owns(heap, foreign), false);
    EXPECT_STATUS(ga_free(heap, (char *)block + 1), GA_ERR_POINTER);
    EXPECT_STATUS(ga_free(heap, foreign), GA_ERR_POINTER);
    EXPECT_STATUS(ga_free(heap, block), GA_OK);
    EXPECT_STATUS(ga_free(heap, block), GA_ERR_POINTER);
    EXPECT_STATUS(ga_alloc(heap, unit + 1, 0, &block), GA_ERR_SIZE);
    EXPECT_STATUS(ga_free(heap, NULL), GA_OK);
    expect_live(heap, held, unit);
}

static void use(ga_heap *heap, uint32_t unit)
{
    ga_kernel_heap view;
    uint32_t n = 1000;
    char **blocks = (char **)suite_memory(n * sizeof *blocks);
    slab_tally *tally = slab_tally_new();
    if (blocks && tally && look(heap, &view)) {
        EXPECT_EQUAL("the kind of the view", view.kind, GA_KERNEL_KIND_SLAB);
        expect_live(heap, 0, unit);
        for (uint32_t round = 0; round < 2; round++) {
            EXPECT_EQUAL("the blocks given", ask(view, blocks, n, unit, tally), n);
            as_the_host(heap, unit, n);
            give(view, blocks, n, unit, tally);
            expect_live(heap, 0, unit);
            look(heap, &view);
        }
    }
    cudaFree(tally);
    cudaFree(blocks);
}

static void specs(int device)
{
    for (size_t i = 0; i < sizeof subjects / sizeof *subjects; i++) {
        ga_heap *heap = NULL;
        if (subjects[i].large && suite.quick) {
            continue;
        }
        heap = open_heap(device, subjects[i].spec);
        if (heap) {
            printf("    %s\n", ga_heap_spec(heap));
            use(heap, subjects[i].unit);
            EXPECT_STATUS(ga_heap_close(heap), GA_OK);
        }
    }
}

/* ---- growth, leaks, refusals --------------------------------------------------------------- */

/* Two memory blocks to begin with, eight at most. */
static void growth(int device)
{
    enum {
        LIMIT = 8 * 1024,
        ASKED = LIMIT + 100,
        PIECES = 8
    };
    ga_heap *heap =
        open_heap(device, "slab:unit=64,addressing=table,blocks=2,capacity=128K,limit=512K/cuda");
    char **blocks = (char **)suite_memory((size_t)PIECES * ASKED * sizeof *blocks);
    slab_tally *tally = slab_tally_new();
    ga_kernel_heap view;
    uint64_t given = 0;
    uint64_t more = 1;
    uint32_t pieces = 0;
    while (heap && blocks && tally && more && pieces < PIECES && look(heap, &view)) {
        more = ask(view, blocks + (size_t)pieces++ * ASKED, ASKED, 64, tally);
        given += more;
        expect_live(heap, given, 64);
    }
    EXPECT_EQUAL("the blocks given up to the limit", given, LIMIT);
    if (pieces < 3) {
        FAIL("the heap to grow between launches, got %u pieces", pieces);
    }
    for (uint32_t i = 0; i < pieces; i++) {
        give(view, blocks + (size_t)i * ASKED, ASKED, 64, tally);
    }
    if (heap) {
        expect_live(heap, 0, 64);
        EXPECT_STATUS(ga_heap_close(heap), GA_OK);
    }
    cudaFree(tally);
    cudaFree(blocks);
}

static void leak(int device)
{
    static char log[4096];
    slab_capture c = {};
    ga_kernel_heap view;
    ga_heap *heap = open_heap(device, "slab:unit=64,blocks=1,capacity=64K/cuda");
    char **blocks = (char **)suite_memory(7 * sizeof *blocks);
    slab_tally *tally = slab_tally_new();
    if (heap && blocks && tally && look(heap, &view)) {
        EXPECT_EQUAL("the blocks given", ask(view, blocks, 7, 64, tally), 7);
    }
    if (slab_capture_begin(&c)) {
        ga_status status = ga_heap_close(heap);
        slab_capture_end(&c, log, sizeof log);
        EXPECT_EQUAL("the status of closing a heap with live blocks", status, GA_OK);
    }
    if (!strstr(log, "7 blocks") || !strstr(log, "448 bytes")) {
        FAIL("the log to tell of 7 blocks of 448 bytes, got \"%s\"", log);
    }
    cudaFree(tally);
    cudaFree(blocks);
}

static void refusals(int device)
{
    static const struct {
        const char *spec;
        ga_status status;
    } bad[] = {
        {"slab:unit=0/cuda", GA_ERR_SPEC},
        {"slab:unit=24/cuda", GA_ERR_SPEC},
        {"slab:unit=128K/cuda", GA_ERR_SPEC},
        {"slab:unit=classes,check=some/cuda", GA_ERR_SPEC},
        {"slab:unit=16,addressing=light,capacity=1T/cuda", GA_ERR_SPEC},
        {"slab:unit=64/system", GA_ERR_PLACE},
        {"slab:unit=64,capacity=64K/fail:nth=1/cuda", GA_ERR_MEMORY},
        {"slab:unit=64,capacity=64K/fail:nth=2/cuda", GA_ERR_MEMORY},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ga_heap *heap = NULL;
        ga_status status = ga_heap_open(&heap, GA_PLACE_KERNEL, device, bad[i].spec);
        if (status != bad[i].status || heap) {
            FAIL("opening \"%s\" to answer \"%s\", got \"%s\"", bad[i].spec,
                 ga_status_text(bad[i].status), ga_status_text(status));
            ga_heap_close(heap);
        }
    }
}

extern const test_case slab_public_cases[] = {
    {"heaps from specs", specs},
    {"public: super blocks come between launches", growth},
    {"public: live blocks are reported at the end", leak},
    {"public: specs that are refused", refusals},
};
extern const size_t slab_public_case_count = sizeof slab_public_cases / sizeof *slab_public_cases;
