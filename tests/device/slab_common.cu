/* SPDX-License-Identifier: MIT
 *
 * Heaps to test, their invariants, and kernels in which each thread has one unit.
 */
#include "slab_gpu.h"

#include <unistd.h>

/* ---- heaps ------------------------------------------------------------------------------ */

bool slab_open(slab_test_heap *heap, int device, const slab_options *options)
{
    ga_slab_kernel_spec spec = {};
    *heap = (slab_test_heap){};
    heap->options = *options;
    spec.shape.unit = options->unit;
    spec.shape.super_bits = options->super_bits;
    spec.shape.supers = options->supers;
    spec.shape.light = options->light;
    spec.first = options->first;
    spec.check = options->check;
    ga_status status = ga_heap_open(&heap->parent, GA_PLACE_DEVICE, device,
                                    options->parent ? options->parent : "cuda");
    if (status == GA_OK) {
        status = ga_slab_kernel_open(&heap->slab, &spec, device, heap->parent);
    }
    if (status != GA_OK) {
        FAIL("a heap of %u super blocks of 2^%u memory blocks of units of %u bytes, got \"%s\"",
             options->supers, options->super_bits, options->unit, ga_status_text(status));
        ga_heap_close(heap->parent);
        return false;
    }
    return slab_view(heap);
}

void slab_close(slab_test_heap *heap)
{
    ga_stats stats = {};
    ga_slab_kernel_close(heap->slab);
    EXPECT_STATUS(ga_heap_stats(heap->parent, &stats), GA_OK);
    EXPECT_EQUAL("the parent's blocks after the heap has been closed", stats.live_blocks, 0);
    EXPECT_STATUS(ga_heap_close(heap->parent), GA_OK);
}

bool slab_view(slab_test_heap *heap)
{
    ga_status status = ga_slab_kernel_view(heap->slab, &heap->view);
    if (status != GA_OK) {
        FAIL("a view of the heap, got \"%s\"", ga_status_text(status));
    }
    return status == GA_OK;
}

uint32_t slab_units(const slab_test_heap *heap)
{
    return GA_SLAB_WORDS_COUNT(heap->view.words) * 32u;
}

static bool fetch(void *to, const void *from, size_t size)
{
    return CUDA_DONE(cudaMemcpy(to, from, size, cudaMemcpyDeviceToHost));
}

bool slab_image(const slab_test_heap *heap, ga_slab_heap *image)
{
    return fetch(image, (const void *)heap->view.words[GA_SLAB_WORD_HEAP], sizeof *image);
}

typedef struct visited {
    uint64_t count;
    uint64_t strange; /* of another size, misaligned, or a repetition of the previous one */
    uint32_t unit;
    void *first, *last;
} visited;

/* Called while the heap is locked. */
static void visit_unit(void *context, void *block, size_t size)
{
    visited *seen = (visited *)context;
    seen->strange += size != seen->unit || (uintptr_t)block % 16 || block == seen->last;
    seen->first = seen->count++ ? seen->first : block;
    seen->last = block;
}

/* The rows of superblock `super`, or of all superblocks with light addressing. */
static const uint32_t *rows_of(const ga_slab_heap *image, uint32_t super)
{
    ga_slab_super entry = {};
    if (image->rows) {
        return image->rows;
    }
    return fetch(&entry, image->supers + super, sizeof entry) ? entry.rows : NULL;
}

/* Compare the counts of `blocks` memory blocks from `first` on with their rows; returns the number
 * of set bits. */
static uint64_t audit_rows(const char *file, int line, const ga_slab_heap *image,
                           const uint32_t *counts, const uint32_t *rows, uint32_t first,
                           uint32_t blocks)
{
    uint64_t live = 0;
    uint32_t off = 0;
    for (uint32_t block = 0; block < blocks; block++) {
        uint32_t taken = 0;
        for (uint32_t i = 0; i < GA_SLAB_ROW_WORDS; i++) {
            taken += (uint32_t)__builtin_popcount(rows[block * GA_SLAB_ROW_WORDS + i]);
        }
        uint32_t at = first + block;
        uint32_t low = at & ((1u << image->spread) - 1u);
        uint32_t high = at >> image->spread;
        uint32_t count = counts[((high >> 5) << (image->spread + 5u)) + (low << 5) + (high & 31u)];
        if (count != GA_SLAB_BLOCK_UNITS - taken && !off++) {
            suite_fail(file, line,
                       "memory block %u to count %u free units as its bitmap has, got %u", at,
                       GA_SLAB_BLOCK_UNITS - taken, count);
        }
        live += taken;
    }
    return live;
}

/* The number of set bits in the bitmaps. */
static uint64_t audit_bitmaps(const char *file, int line, const slab_test_heap *heap)
{
    ga_slab_heap image;
    if (!slab_image(heap, &image)) {
        return UINT64_MAX;
    }
    ga_slab_shape shape = {heap->options.unit, heap->options.super_bits, heap->options.supers,
                           image.spread, heap->options.light};
    uint32_t all = image.words / GA_SLAB_ROW_WORDS;
    uint32_t each = image.rows ? all : 1u << image.super_bits;
    size_t size = (size_t)each * GA_SLAB_ROW_WORDS * sizeof(uint32_t);
    size_t counts_size = ga_slab_counts_bytes(&shape);
    uint32_t *rows = (uint32_t *)malloc(size);
    uint32_t *counts = (uint32_t *)malloc(counts_size);
    uint64_t live = 0;
    bool fetched = rows && counts && fetch(counts, image.free, counts_size);
    for (uint32_t first = 0; fetched && first < all; first += each) {
        const uint32_t *from = rows_of(&image, first / each);
        fetched = from && fetch(rows, from, size);
        live += fetched ? audit_rows(file, line, &image, counts, rows, first, each) : 0;
    }
    free(counts);
    free(rows);
    return fetched ? live : UINT64_MAX;
}

void slab_audit(const char *file, int line, slab_test_heap *heap, uint64_t live)
{
    ga_backend_stats stats = {};
    visited seen = {};
    seen.unit = heap->options.unit;
    if (!KERNELS_DONE()) {
        return;
    }
    ga_slab_kernel_stats(heap->slab, &stats);
    ga_status status = ga_slab_kernel_each_live(heap->slab, visit_unit, &seen);
    suite_equal(file, line, "the status of each_live", status, GA_OK);
    suite_equal(file, line, "stats.live_blocks", stats.live_blocks, live);
    suite_equal(file, line, "stats.live_bytes", stats.live_bytes, live * heap->options.unit);
    suite_equal(file, line, "the units that each_live visits", seen.count, live);
    suite_equal(file, line, "the strange blocks that each_live visits", seen.strange, 0);
    if (live) {
        bool owned = ga_slab_kernel_owns(heap->slab, seen.first) &&
                     ga_slab_kernel_owns(heap->slab, seen.last);
        suite_equal(file, line, "whether the heap owns what each_live visits", owned, true);
    }
    suite_equal(file, line, "the bits of the bitmaps", audit_bitmaps(file, line, heap), live);
}

/* ---- tallies ---------------------------------------------------------------------------- */

slab_tally *slab_tally_new(void)
{
    return (slab_tally *)suite_memory(sizeof(slab_tally));
}

slab_tally slab_tally_read(const char *file, int line, slab_tally *tally)
{
    static const char *const names[SLAB_WRONGS] = {
        "no unit given twice; unit, former and new owner", "units that stay their owner's; unit",
        "units to hold what was written; address", "a unit's address; address",
        "another answer; place"};
    slab_tally now = {};
    if (!CUDA_DONE(cudaMemcpy(&now, tally, sizeof now, cudaMemcpyDeviceToHost)) ||
        !CUDA_DONE(cudaMemset(tally, 0, sizeof now))) {
        return now;
    }
    if (now.wrong) {
        suite_fail(file, line, "%s 0x%llx, expected 0x%llx, got 0x%llx, the first of %llu",
                   now.what < SLAB_WRONGS ? names[now.what] : "?", (unsigned long long)now.at,
                   (unsigned long long)now.expected, (unsigned long long)now.got,
                   (unsigned long long)now.wrong);
    }
    return now;
}

/* ---- standard error --------------------------------------------------------------------- */

bool slab_capture_begin(slab_capture *c)
{
    fflush(stderr);
    c->file = tmpfile();
    c->saved = c->file ? dup(STDERR_FILENO) : -1;
    return c->saved >= 0 && dup2(fileno(c->file), STDERR_FILENO) >= 0;
}

void slab_capture_end(slab_capture *c, char *text, size_t size)
{
    fflush(stderr);
    dup2(c->saved, STDERR_FILENO);
    close(c->saved);
    rewind(c->file);
    text[fread(text, 1, size - 1, c->file)] = '\0';
    fclose(c->file);
}

/* ---- a unit for each thread ------------------------------------------------------------- */

static __global__ void claim_kernel(ga_kernel_heap heap, char **units, uint32_t n,
                                    slab_tally *tally)
{
    uint32_t i = slab_thread();
    if (i >= n) {
        return;
    }
    char *unit = (char *)ga_slab_claim(heap);
    units[i] = unit;
    if (unit) {
        slab_write(unit, slab_unit_bytes(heap), i);
    }
    slab_count(unit ? &tally->given : &tally->full, 1);
}

static __global__ void check_kernel(ga_kernel_heap heap, char **units, uint32_t n, uint32_t *seen,
                                    slab_tally *tally)
{
    uint32_t i = slab_thread();
    if (i >= n || !units[i]) {
        return;
    }
    uint32_t number = slab_number(heap, units[i], tally);
    slab_holds(units[i], slab_unit_bytes(heap), i, tally);
    if (number != GA_SLAB_FULL) {
        uint32_t before = ga_or_relaxed(seen + number / 32u, 1u << (number % 32u));
        if (before >> (number % 32u) & 1u) {
            slab_note_wrong(tally, SLAB_OVERLAP, number, i, 0);
        }
    }
}

static __global__ void release_kernel(ga_kernel_heap heap, char **units, uint32_t n,
                                      uint32_t stride, slab_tally *tally)
{
    uint32_t i = slab_thread();
    if (i >= n) {
        return;
    }
    uint32_t which = (uint32_t)(((uint64_t)i * stride + 1u) % n);
    char *unit = units[which];
    ga_slab_release(heap, unit); /* NULL is ignored */
    units[which] = NULL;
    slab_count(&tally->released, unit ? 1 : 0);
}

void slab_claim_all(ga_kernel_heap heap, char **units, uint32_t n, slab_tally *tally,
                    cudaStream_t stream)
{
    claim_kernel<<<slab_grid(n), SLAB_BLOCK, 0, stream>>>(heap, units, n, tally);
}

void slab_check_all(ga_kernel_heap heap, char **units, uint32_t n, uint32_t *seen,
                    slab_tally *tally, cudaStream_t stream)
{
    check_kernel<<<slab_grid(n), SLAB_BLOCK, 0, stream>>>(heap, units, n, seen, tally);
}

void slab_release_all(ga_kernel_heap heap, char **units, uint32_t n, uint32_t stride,
                      slab_tally *tally, cudaStream_t stream)
{
    release_kernel<<<slab_grid(n), SLAB_BLOCK, 0, stream>>>(heap, units, n, stride, tally);
}
