/* SPDX-License-Identifier: MIT
 *
 * The host's side of slab heaps for kernels: growth between launches, parents that refuse, reset,
 * the list of live units, and units that the host allocates and frees.
 */
#include "slab_gpu.h"

/* Units that kernels claim piece by piece, and keep. */
typedef struct store {
    slab_test_heap heap;
    char **units;
    uint32_t n;
    uint32_t used; /* the first of n that have been requested */
    slab_tally *tally;
} store;

static bool set_up(store *s, int device, const slab_options *options, uint32_t n)
{
    *s = (store){};
    if (!slab_open(&s->heap, device, options)) {
        return false;
    }
    s->n = n;
    s->units = (char **)suite_memory(n * sizeof *s->units);
    s->tally = slab_tally_new();
    return true;
}

static void tear_down(store *s)
{
    cudaFree(s->tally);
    cudaFree(s->units);
    slab_close(&s->heap);
}

/* Each of `n` more threads writes to its unit; returns the number of threads that got one. */
static uint64_t ask_for(store *s, uint32_t n)
{
    if (n > s->n - s->used) {
        FAIL("room to note %u more units, got %u", n, s->n - s->used);
        return 0;
    }
    slab_claim_all(s->heap.view, s->units + s->used, n, s->tally, 0);
    s->used += n;
    KERNELS_DONE();
    return READ_TALLY(s->tally).given;
}

/* The contents depend on the thread's number, so all pieces must have one size. */
static void look_at_pieces(store *s, uint32_t piece)
{
    uint32_t *seen = (uint32_t *)suite_memory(slab_units(&s->heap) / 8);
    for (uint32_t first = 0; seen && first + piece <= s->used; first += piece) {
        slab_check_all(s->heap.view, s->units + first, piece, seen, s->tally, 0);
    }
    KERNELS_DONE();
    READ_TALLY(s->tally);
    cudaFree(seen);
}

static void release_everything(store *s)
{
    slab_release_all(s->heap.view, s->units, s->n, 1, s->tally, 0);
    EXPECT_LIVE(&s->heap, 0);
    READ_TALLY(s->tally);
}

/* ---- growth ----------------------------------------------------------------------------- */

enum {
    SUPER = 2048, /* units of a superblock with super_bits 1 */
    PIECE = 3000
};

static uint64_t growths(store *s)
{
    ga_backend_stats stats = {};
    ga_slab_kernel_stats(s->heap.slab, &stats);
    return stats.growths;
}

static void growth(int device)
{
    static const slab_options options = {64, 1, 6, 1, false, false, NULL};
    uint32_t asked = 6 * SUPER + 500; /* each time more than there can be */
    store s;
    if (!set_up(&s, device, &options, 8 * asked)) {
        return;
    }
    uint32_t before = 0;
    for (uint32_t now = SUPER; now > before; now = slab_units(&s.heap)) {
        EXPECT_EQUAL("the units given", ask_for(&s, asked), now - before);
        EXPECT_LIVE(&s.heap, now);
        before = now;
        slab_view(&s.heap);
    }
    EXPECT_EQUAL("the units there can be", slab_units(&s.heap), options.supers * SUPER);
    EXPECT_EQUAL("the units given beyond", ask_for(&s, asked), 0);
    slab_view(&s.heap);
    EXPECT_EQUAL("the units there are at last", slab_units(&s.heap), options.supers * SUPER);
    EXPECT_EQUAL("stats.growths", growths(&s), options.supers);
    EXPECT_LIVE(&s.heap, options.supers * SUPER);
    look_at_pieces(&s, asked);
    release_everything(&s);
    tear_down(&s);
}

/* Filled to the last unit by claims that all succeeded, so that no claim has had to search: the
 * first ones that return NULL make the heap grow, for any number of requests and size of the
 * heap. */
static void grow_when_full(int device, uint32_t super_bits)
{
    slab_options options = {16, super_bits, 2, 1, false, false, NULL};
    uint32_t super = GA_SLAB_BLOCK_UNITS << super_bits;
    store s;
    if (!set_up(&s, device, &options, super + 3 * 32)) {
        return;
    }
    EXPECT_EQUAL("the units given", ask_for(&s, super), super);
    slab_view(&s.heap);
    if (slab_units(&s.heap) == super) {
        EXPECT_EQUAL("the units given by a full heap", ask_for(&s, 32), 0);
        slab_view(&s.heap);
    }
    EXPECT_EQUAL("the units after NULL was answered", slab_units(&s.heap), 2 * super);
    EXPECT_EQUAL("the units given then", ask_for(&s, 32), 32);
    release_everything(&s);
    tear_down(&s);
}

static void growth_when_full(int device)
{
    static const uint32_t sizes[] = {0, 1, 6, 8};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        grow_when_full(device, sizes[i]);
    }
}

/* An empty heap and one with room do not grow. */
static void no_growth(int device)
{
    static const slab_options options = {64, 1, 4, 1, false, false, NULL};
    store s;
    if (!set_up(&s, device, &options, 4 * SUPER)) {
        return;
    }
    for (uint32_t i = 0; i < 4; i++) {
        EXPECT_EQUAL("the units given", ask_for(&s, SUPER / 8), SUPER / 8);
        slab_view(&s.heap);
        EXPECT_EQUAL("the units of a heap with room", slab_units(&s.heap), SUPER);
    }
    release_everything(&s);
    tear_down(&s);
}

/* ---- parents that refuse ---------------------------------------------------------------- */

/* The parent's first block is the bookkeeping, and each further one a superblock: the fourth is the
 * third superblock, which succeeds at the second try. */
static void refused_growth(int device)
{
    static const slab_options options = {64, 1, 8, 1, false, false, "fail:nth=4/cuda"};
    store s;
    if (!set_up(&s, device, &options, 5 * PIECE)) {
        return;
    }
    EXPECT_EQUAL("the units given", ask_for(&s, PIECE), SUPER);
    slab_view(&s.heap);
    EXPECT_EQUAL("the units given", ask_for(&s, PIECE), SUPER);
    slab_view(&s.heap);
    EXPECT_EQUAL("the units when the parent has refused", slab_units(&s.heap), 2 * SUPER);
    EXPECT_EQUAL("the units given then", ask_for(&s, PIECE), 0);
    EXPECT_LIVE(&s.heap, 2 * SUPER);
    look_at_pieces(&s, PIECE);
    slab_view(&s.heap);
    EXPECT_EQUAL("the super blocks when it has given", slab_units(&s.heap) / SUPER, 4);
    EXPECT_EQUAL("the units given then", ask_for(&s, PIECE), PIECE);
    EXPECT_LIVE(&s.heap, 2 * SUPER + PIECE);
    look_at_pieces(&s, PIECE);
    release_everything(&s);
    tear_down(&s);
}

static void refused_opening(int device)
{
    for (uint32_t i = 0; i < 6; i++) {
        char spec[32];
        ga_heap *parent = NULL;
        ga_slab_kernel *slab = NULL;
        ga_slab_kernel_spec options = {};
        options.shape.unit = 64;
        options.shape.supers = 4;
        options.shape.light = i % 2;
        options.first = 2;
        snprintf(spec, sizeof spec, "fail:nth=%u/cuda", 1 + i / 2);
        EXPECT_STATUS(ga_heap_open(&parent, GA_PLACE_DEVICE, device, spec), GA_OK);
        ga_status expected = options.shape.light && i / 2 == 2 ? GA_OK : GA_ERR_MEMORY;
        ga_status status = ga_slab_kernel_open(&slab, &options, device, parent);
        if (status != expected) {
            FAIL("opening over %s, %s, to answer \"%s\", got \"%s\"", spec,
                 options.shape.light ? "light" : "two-level", ga_status_text(expected),
                 ga_status_text(status));
        }
        if (status == GA_OK) {
            ga_slab_kernel_close(slab);
        }
        ga_stats stats = {};
        EXPECT_STATUS(ga_heap_stats(parent, &stats), GA_OK);
        EXPECT_EQUAL("the parent's blocks in the end", stats.live_blocks, 0);
        EXPECT_STATUS(ga_heap_close(parent), GA_OK);
    }
}

/* ---- reset ------------------------------------------------------------------------------ */

static void reset_heap(int device, const slab_options *options)
{
    store s;
    if (!set_up(&s, device, options, 2 * PIECE)) {
        return;
    }
    uint32_t asked = PIECE;
    uint32_t units = slab_units(&s.heap);
    for (uint32_t round = 0; round < 3; round++) {
        s.used = 0;
        EXPECT_EQUAL("the units given", ask_for(&s, asked), units < asked ? units : asked);
        EXPECT_STATUS(ga_slab_kernel_reset(s.heap.slab), GA_OK);
        EXPECT_LIVE(&s.heap, 0);
    }
    tear_down(&s);
}

static void reset(int device)
{
    static const slab_options all_options[] = {{64, 1, 1, 1, true, false, NULL},
                                               {64, 0, 2, 2, false, false, NULL},
                                               {48, 0, 5, 4, false, true, NULL}};
    for (size_t i = 0; i < sizeof all_options / sizeof *all_options; i++) {
        reset_heap(device, &all_options[i]);
    }
}

/* ---- the live units --------------------------------------------------------------------- */

typedef struct list {
    char *units[PIECE];
    uint32_t n;
} list;

static void note_unit(void *context, void *block, size_t size)
{
    list *live = (list *)context;
    (void)size;
    if (live->n < PIECE) {
        live->units[live->n] = (char *)block;
    }
    live->n++;
}

static int by_address(const void *a, const void *b)
{
    const char *left = *(char *const *)a;
    const char *right = *(char *const *)b;
    return left < right ? -1 : left > right;
}

/* Of PIECE units every third is freed; each_live has exactly the others. */
static void compare_live(store *s, list *held, list *live)
{
    if (!CUDA_DONE(cudaMemcpy(held->units, s->units, sizeof held->units, cudaMemcpyDefault))) {
        return;
    }
    for (uint32_t i = 0; i < PIECE; i++) {
        if (i % 3 == 0) {
            EXPECT_STATUS(ga_slab_kernel_free(s->heap.slab, held->units[i]), GA_OK);
        } else {
            held->units[held->n++] = held->units[i];
        }
    }
    EXPECT_STATUS(ga_slab_kernel_each_live(s->heap.slab, note_unit, live), GA_OK);
    if (!EXPECT_EQUAL("the units that each_live visits", live->n, held->n)) {
        return;
    }
    qsort(held->units, held->n, sizeof *held->units, by_address);
    qsort(live->units, live->n, sizeof *live->units, by_address);
    for (uint32_t i = 0; i < held->n; i++) {
        if (!EXPECT_EQUAL("a unit of each_live", live->units[i], held->units[i])) {
            return;
        }
    }
}

static void live_units(int device)
{
    static const slab_options all_options[] = {{48, 0, 4, 4, true, false, NULL},
                                               {128, 1, 3, 2, false, false, NULL}};
    for (size_t i = 0; i < sizeof all_options / sizeof *all_options; i++) {
        store s;
        list *lists = (list *)calloc(2, sizeof *lists);
        if (lists && set_up(&s, device, &all_options[i], PIECE)) {
            EXPECT_EQUAL("the units given", ask_for(&s, PIECE), PIECE);
            compare_live(&s, &lists[0], &lists[1]);
            EXPECT_LIVE(&s.heap, PIECE - PIECE / 3);
            tear_down(&s);
        }
        free(lists);
    }
}

/* ---- units for the host ----------------------------------------------------------------- */

enum {
    HELD = 100
};

static void bad_frees(slab_test_heap *heap, char *unit)
{
    static char foreign[64];
    ga_slab_kernel *slab = heap->slab;
    EXPECT_STATUS(ga_slab_kernel_free(slab, unit + 1), GA_ERR_POINTER);
    EXPECT_STATUS(ga_slab_kernel_free(slab, unit + heap->options.unit / 2), GA_ERR_POINTER);
    EXPECT_STATUS(ga_slab_kernel_free(slab, foreign), GA_ERR_POINTER);
    EXPECT_STATUS(ga_slab_kernel_free(slab, unit + ((size_t)1 << 40)), GA_ERR_POINTER);
    EXPECT_STATUS(ga_slab_kernel_free(slab, unit), GA_OK);
    EXPECT_STATUS(ga_slab_kernel_free(slab, unit), GA_ERR_POINTER);
    EXPECT_EQUAL("whether the heap owns a foreign pointer", ga_slab_kernel_owns(slab, foreign), 0);
    EXPECT_EQUAL("whether the heap owns the inside of a unit",
                 ga_slab_kernel_owns(slab, unit + heap->options.unit - 1), 1);
    EXPECT_EQUAL("the usable size of a unit", ga_slab_kernel_usable_size(slab, unit),
                 heap->options.unit);
    EXPECT_EQUAL("the usable size of a foreign block", ga_slab_kernel_usable_size(slab, foreign),
                 0);
}

static void take_and_give(slab_test_heap *heap)
{
    char *units[HELD] = {};
    void *none = units;
    for (uint32_t i = 0; i < HELD; i++) {
        void *unit = NULL;
        EXPECT_STATUS(ga_slab_kernel_alloc(heap->slab, i % (heap->options.unit + 1), &unit), GA_OK);
        units[i] = (char *)unit;
        CUDA_DONE(cudaMemset(unit, (int)i, heap->options.unit));
    }
    EXPECT_STATUS(ga_slab_kernel_alloc(heap->slab, heap->options.unit + 1, &none), GA_ERR_SIZE);
    EXPECT_LIVE(heap, HELD);
    qsort(units, HELD, sizeof *units, by_address);
    for (uint32_t i = 1; i < HELD; i++) {
        if (units[i] - units[i - 1] < (ptrdiff_t)heap->options.unit) {
            FAIL("units %u bytes apart at least, got %p and %p", heap->options.unit, units[i - 1],
                 units[i]);
        }
    }
    bad_frees(heap, units[HELD - 1]);
    EXPECT_LIVE(heap, HELD - 1);
    for (uint32_t i = 0; i < HELD - 1; i++) {
        EXPECT_STATUS(ga_slab_kernel_free(heap->slab, units[i]), GA_OK);
    }
    EXPECT_LIVE(heap, 0);
}

/* The host frees units that kernels claimed, and the reverse; and the host detects a full heap. */
static void across(store *s)
{
    uint32_t units = slab_units(&s->heap);
    char *unit = NULL;
    void *one = NULL;
    EXPECT_EQUAL("the units given", ask_for(s, units), units);
    EXPECT_STATUS(ga_slab_kernel_alloc(s->heap.slab, 1, &one), GA_ERR_MEMORY);
    EXPECT_EQUAL("what a full heap gives the host", one, NULL);
    if (!CUDA_DONE(cudaMemcpy(&unit, s->units + 7, sizeof unit, cudaMemcpyDefault))) {
        return;
    }
    EXPECT_STATUS(ga_slab_kernel_free(s->heap.slab, unit), GA_OK);
    EXPECT_LIVE(&s->heap, units - 1);
    EXPECT_STATUS(ga_slab_kernel_alloc(s->heap.slab, 1, &one), GA_OK);
    EXPECT_EQUAL("the only unit that was free", one, unit);
    release_everything(s);
}

static void host_units(int device)
{
    static const slab_options all_options[] = {{48, 0, 2, 2, true, false, NULL},
                                               {128, 0, 2, 1, false, false, NULL},
                                               {128, 0, 2, 2, false, true, NULL}};
    for (size_t i = 0; i < sizeof all_options / sizeof *all_options; i++) {
        store s;
        if (set_up(&s, device, &all_options[i], PIECE)) {
            take_and_give(&s.heap);
            across(&s);
            tear_down(&s);
        }
    }
}

extern const test_case slab_host_cases[] = {
    {"super blocks come between launches", growth},
    {"a full heap grows, however it was filled", growth_when_full},
    {"a heap with room does not grow", no_growth},
    {"a parent that refuses a super block", refused_growth},
    {"a parent that refuses an opening", refused_opening},
    {"reset", reset},
    {"each_live has what is held", live_units},
    {"units for the host, and bad frees", host_units},
};
extern const size_t slab_host_case_count = sizeof slab_host_cases / sizeof *slab_host_cases;
