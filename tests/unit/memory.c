/* SPDX-License-Identifier: MIT
 *
 * The calls on a heap, without a particular backend: bad requests, the runtime's replacements for
 * members that a backend does not have, and that a failed call changes nothing.
 */
#include <gpualloc/backend.h>

#include "runtime/registry.h"
#include "support/expect.h"
#include "support/probe.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

static ga_heap *heap;
static ga_backend table;

static void open_spec(const char *spec)
{
    assert_ok(ga_heap_open(&heap, GA_PLACE_HOST, 0, spec));
}

static void register_probe(void)
{
    assert_ok(ga_backend_register(&probe_backend));
}

static void open_probe(void)
{
    register_probe();
    open_spec("probe");
}

/* Open a heap of `table`, a probe with some members removed. */
static void open_table(void)
{
    table.name = "bare";
    assert_ok(ga_backend_register(&table));
    open_spec("bare");
}

static void close_clean(void)
{
    assert_ok(ga_heap_close(heap));
    cr_assert_eq(probe.live_blocks, 0, "%ld blocks leaked", (long)probe.live_blocks);
}

static bool all_bytes(const void *block, int value, size_t size)
{
    const unsigned char *bytes = block;
    for (size_t i = 0; i < size; i++) {
        if (bytes[i] != value) {
            return false;
        }
    }
    return true;
}

/* ---- bad requests ------------------------------------------------------------------------- */

#define TOO_LARGE(size) "probe: expected a size up to 9223372036854775807 bytes, got " #size

Test(memory, sizes_near_the_end)
{
    void *out = &out;
    open_probe();
    assert_fails(ga_alloc(heap, SIZE_MAX, 0, &out), GA_ERR_SIZE, TOO_LARGE(18446744073709551615));
    cr_assert_null(out);
    assert_fails(ga_alloc(heap, (size_t)PTRDIFF_MAX + 1, 0, &out), GA_ERR_SIZE,
                 TOO_LARGE(9223372036854775808));
    assert_fails(ga_alloc_zeroed(heap, SIZE_MAX, 0, &out), GA_ERR_SIZE,
                 TOO_LARGE(18446744073709551615));
    assert_fails(ga_alloc(heap, SIZE_MAX, 4096, &out), GA_ERR_SIZE,
                 TOO_LARGE(18446744073709551615));
    assert_fails(ga_alloc_on(heap, SIZE_MAX, 0, NULL, &out), GA_ERR_SIZE,
                 TOO_LARGE(18446744073709551615));
    assert_fails(ga_realloc(heap, NULL, SIZE_MAX, 0, &out), GA_ERR_SIZE,
                 TOO_LARGE(18446744073709551615));
    cr_assert_eq(probe.alloc + probe.zeroed + probe.aligned + probe.alloc_on, 0);
    assert_fails(ga_alloc(heap, PTRDIFF_MAX, 0, &out), GA_ERR_MEMORY,
                 "probe: no memory for 9223372036854775807 bytes");
    close_clean();
}

Test(memory, alignments_that_are_no_power_of_two)
{
    static const size_t bad[] = {3, 24, 48, 100, SIZE_MAX, ((size_t)1 << 63) + 1};
    void *out;
    open_probe();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char expected[128];
        snprintf(expected, sizeof expected,
                 "probe: expected an alignment that is a power of two, got %zu", bad[i]);
        out = &out;
        assert_fails(ga_alloc(heap, 8, bad[i], &out), GA_ERR_ALIGN, expected);
        cr_assert_null(out);
        assert_fails(ga_alloc_zeroed(heap, 8, bad[i], &out), GA_ERR_ALIGN, expected);
        assert_fails(ga_alloc_on(heap, 8, bad[i], NULL, &out), GA_ERR_ALIGN, expected);
        assert_fails(ga_realloc(heap, NULL, 8, bad[i], &out), GA_ERR_ALIGN, expected);
    }
    close_clean();
}

Test(memory, no_heap)
{
    void *out = &out;
    char block[16];
    size_t size = 1;
    assert_fails(ga_alloc(NULL, 8, 0, &out), GA_ERR_ARGUMENT, "expected a heap, got NULL");
    cr_assert_null(out);
    assert_fails(ga_alloc_zeroed(NULL, 8, 0, &out), GA_ERR_ARGUMENT, "expected a heap, got NULL");
    assert_fails(ga_alloc_on(NULL, 8, 0, NULL, &out), GA_ERR_ARGUMENT, "expected a heap, got NULL");
    out = &out;
    assert_fails(ga_alloc_batch(NULL, 1, &size, &out), GA_ERR_ARGUMENT,
                 "expected a heap, got NULL");
    cr_assert_null(out);
    assert_fails(ga_realloc(NULL, block, 8, 0, &out), GA_ERR_ARGUMENT, "expected a heap, got NULL");
    cr_assert_eq(out, block);
    assert_fails(ga_grow(NULL, block, 8), GA_ERR_ARGUMENT, "expected a heap, got NULL");
    assert_fails(ga_free(NULL, block), GA_ERR_ARGUMENT, "expected a heap, got NULL");
    assert_fails(ga_free_on(NULL, block, NULL), GA_ERR_ARGUMENT, "expected a heap, got NULL");
    assert_fails(ga_retire(NULL, block), GA_ERR_ARGUMENT, "expected a heap, got NULL");
    assert_fails(ga_trim(NULL, 0), GA_ERR_ARGUMENT, "expected a heap, got NULL");
    cr_assert_eq(ga_usable_size(NULL, block), 0);
    cr_assert_not(ga_owns(NULL, block));
}

Test(memory, no_room_for_the_answer)
{
    size_t size = 1;
    void *out;
    open_probe();
    cr_assert_eq(ga_alloc(heap, 8, 0, NULL), GA_ERR_ARGUMENT);
    cr_assert_eq(ga_alloc_zeroed(heap, 8, 0, NULL), GA_ERR_ARGUMENT);
    cr_assert_eq(ga_alloc_on(heap, 8, 0, NULL, NULL), GA_ERR_ARGUMENT);
    cr_assert_eq(ga_alloc_batch(heap, 1, &size, NULL), GA_ERR_ARGUMENT);
    cr_assert_eq(ga_alloc_batch(heap, 1, NULL, &out), GA_ERR_ARGUMENT);
    cr_assert_eq(ga_realloc(heap, NULL, 8, 0, NULL), GA_ERR_ARGUMENT);
    assert_ok(ga_alloc(heap, 8, 0, &out));
    cr_assert_eq(ga_realloc(heap, out, 8, 0, NULL), GA_ERR_ARGUMENT);
    cr_assert_eq(ga_heap_kernel_view(heap, NULL), GA_ERR_ARGUMENT);
    assert_ok(ga_free(heap, out));
    close_clean();
}

Test(memory, nothing_is_freed_without_fuss)
{
    open_probe();
    assert_ok(ga_free(heap, NULL));
    assert_ok(ga_free_on(heap, NULL, NULL));
    assert_ok(ga_free(NULL, NULL));
    cr_assert_eq(ga_usable_size(heap, NULL), 0);
    cr_assert_not(ga_owns(heap, NULL));
    cr_assert_eq(probe.free + probe.free_on, 0);
    close_clean();
}

/* ---- sizes and alignments ----------------------------------------------------------------- */

Test(memory, zero_bytes_are_a_block_like_any_other)
{
    void *a;
    void *b;
    open_probe();
    assert_ok(ga_alloc(heap, 0, 0, &a));
    assert_ok(ga_alloc_zeroed(heap, 0, 0, &b));
    cr_assert(a && b && a != b);
    assert_ok(ga_realloc(heap, a, 0, 0, &a));
    cr_assert_not_null(a);
    assert_ok(ga_free(heap, a));
    assert_ok(ga_free(heap, b));
    close_clean();
}

Test(memory, only_large_alignments_need_the_aligned_form)
{
    void *block;
    open_probe();
    for (size_t align = 1; align <= 1 << 16; align *= 2) {
        assert_ok(ga_alloc(heap, 40, align, &block));
        cr_assert_eq((uintptr_t)block % align, 0);
        cr_assert_eq(probe.aligned > 0, align > 16);
        assert_ok(ga_free(heap, block));
    }
    close_clean();
}

Test(memory, alignment_where_the_backend_has_none)
{
    void *block;
    table = probe_backend;
    table.alloc_aligned = NULL;
    open_table();
    assert_ok(ga_alloc(heap, 8, 16, &block));
    assert_ok(ga_free(heap, block));
    assert_fails(ga_alloc(heap, 8, 32, &block), GA_ERR_ALIGN,
                 "bare: expected an alignment up to 16, got 32");
    close_clean();
}

Test(memory, zeroed_blocks)
{
    void *block;
    open_probe();
    assert_ok(ga_alloc_zeroed(heap, 1000, 0, &block));
    cr_assert(all_bytes(block, 0, 1000));
    assert_ok(ga_free(heap, block));
    assert_ok(ga_alloc_zeroed(heap, 1000, 256, &block));
    cr_assert(all_bytes(block, 0, 1000));
    cr_assert_eq((uintptr_t)block % 256, 0);
    assert_ok(ga_free(heap, block));
    cr_assert_eq(probe.zeroed, 1);
    cr_assert_eq(probe.aligned, 1);
    close_clean();
}

Test(memory, zeroed_blocks_where_the_backend_has_none)
{
    void *block;
    table = probe_backend;
    table.alloc_zeroed = NULL;
    open_table();
    assert_ok(ga_alloc_zeroed(heap, 1000, 0, &block));
    cr_assert(all_bytes(block, 0, 1000));
    assert_ok(ga_free(heap, block));
    close_clean();
}

/* ---- batches ------------------------------------------------------------------------------ */

enum {
    BATCH = 8
};

static const size_t batch_sizes[BATCH] = {1, 100, 0, 4096, 16, 17, 100000, 8};

static void free_batch(void **out)
{
    for (int i = 0; i < BATCH; i++) {
        assert_ok(ga_free(heap, out[i]));
    }
}

static void expect_batch(void)
{
    void *out[BATCH];
    assert_ok(ga_alloc_batch(heap, BATCH, batch_sizes, out));
    for (int i = 0; i < BATCH; i++) {
        memset(out[i], i, batch_sizes[i]);
    }
    for (int i = 0; i < BATCH; i++) {
        cr_assert(all_bytes(out[i], i, batch_sizes[i]));
    }
    free_batch(out);
}

Test(memory, a_batch)
{
    open_probe();
    expect_batch();
    cr_assert_eq(probe.batch, 1);
    assert_ok(ga_alloc_batch(heap, 0, NULL, NULL));
    close_clean();
}

Test(memory, a_batch_where_the_backend_has_none)
{
    table = probe_backend;
    table.alloc_batch = NULL;
    open_table();
    expect_batch();
    cr_assert_eq(probe.alloc, BATCH);
    close_clean();
}

static void expect_no_batch(ga_status status)
{
    void *out[BATCH];
    memset(out, 1, sizeof out);
    cr_assert_eq(ga_alloc_batch(heap, BATCH, batch_sizes, out), status, "%s", ga_error_text());
    cr_assert(all_bytes(out, 0, sizeof out));
}

/* Wherever a batch is refused, it returns no block and keeps none. */
Test(memory, a_batch_is_all_or_none)
{
    register_probe();
    for (int n = 1; n <= BATCH; n++) {
        char spec[64];
        snprintf(spec, sizeof spec, "fail:nth=%d/probe", n);
        open_spec(spec);
        expect_no_batch(GA_ERR_MEMORY);
        cr_assert_eq(probe.live_blocks, 0, "nth=%d", n);
        expect_batch();
        close_clean();
    }
}

Test(memory, a_batch_with_a_bad_size)
{
    size_t sizes[3] = {1, SIZE_MAX, 1};
    void *out[3] = {&out, &out, &out};
    open_probe();
    assert_fails(ga_alloc_batch(heap, 3, sizes, out), GA_ERR_SIZE, TOO_LARGE(18446744073709551615));
    cr_assert(!out[0] && !out[1] && !out[2]);
    cr_assert_eq(probe.batch, 0);
    sizes[1] = PTRDIFF_MAX;
    cr_assert_eq(ga_alloc_batch(heap, 3, sizes, out), GA_ERR_MEMORY);
    cr_assert(!out[0] && !out[1] && !out[2]);
    close_clean();
}
