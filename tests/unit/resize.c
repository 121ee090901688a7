/* SPDX-License-Identifier: MIT
 *
 * realloc, grow and the calls that few backends have: contents stay, failures change nothing.
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
static unsigned char *block;

static void open_spec(const char *spec)
{
    assert_ok(ga_heap_open(&heap, GA_PLACE_HOST, 0, spec));
}

/* A heap of `table`, and a block of 100 bytes in it that hold their own index. */
static void open_table(void)
{
    table.name = "bare";
    assert_ok(ga_backend_register(&table));
    open_spec("bare");
    assert_ok(ga_alloc(heap, 100, 0, (void **)&block));
    for (int i = 0; i < 100; i++) {
        block[i] = (unsigned char)i;
    }
}

static void open_probe(void)
{
    table = probe_backend;
    open_table();
}

static void expect_kept(size_t size)
{
    for (size_t i = 0; i < size; i++) {
        cr_assert_eq(block[i], i, "byte %zu is %d", i, block[i]);
    }
}

static void close_clean(void)
{
    assert_ok(ga_free(heap, block));
    assert_ok(ga_heap_close(heap));
    cr_assert_eq(probe.live_blocks, 0, "%ld blocks leaked", (long)probe.live_blocks);
}

static void resize(size_t size, size_t align)
{
    assert_ok(ga_realloc(heap, block, size, align, (void **)&block));
    cr_assert_geq(ga_usable_size(heap, block), size);
    cr_assert_eq((uintptr_t)block % (align ? align : 16), 0);
}

/* ---- realloc ------------------------------------------------------------------------------ */

static void expect_resizing(void)
{
    resize(5000, 0);
    expect_kept(100);
    resize(5000, 0);
    expect_kept(100);
    resize(50, 0);
    expect_kept(50);
    resize(1000, 4096);
    expect_kept(50);
    resize(0, 0);
    resize(1, 0);
}

Test(resize, up_and_down)
{
    open_probe();
    expect_resizing();
    cr_assert_eq(probe.realloc, 5);
    close_clean();
}

Test(resize, up_and_down_where_the_backend_cannot)
{
    table = probe_backend;
    table.realloc = NULL;
    open_table();
    expect_resizing();
    close_clean();
}

Test(resize, no_block_is_an_allocation)
{
    void *fresh = NULL;
    open_probe();
    assert_ok(ga_realloc(heap, NULL, 64, 0, &fresh));
    assert_ok(ga_free(heap, fresh));
    cr_assert_eq(probe.realloc, 0);
    close_clean();
}

/* Without sizes the length of the copy is unknown. */
Test(resize, neither_realloc_nor_sizes)
{
    table = probe_backend;
    table.realloc = NULL;
    table.usable_size = NULL;
    open_table();
    void *out = NULL;
    assert_fails(ga_realloc(heap, block, 200, 0, &out), GA_ERR_UNSUPPORTED,
                 "bare: has no reallocation");
    cr_assert_eq(out, block);
    cr_assert_eq(ga_usable_size(heap, block), 0);
    expect_kept(100);
    close_clean();
}

static void expect_refused(size_t size, size_t align, ga_status status)
{
    void *out = NULL;
    void *same = block;
    cr_assert_eq(ga_realloc(heap, block, size, align, &out), status, "%s", ga_error_text());
    cr_assert_eq(out, block, "*out is the block");
    cr_assert_eq(ga_realloc(heap, same, size, align, &same), status);
    cr_assert_eq(same, block, "&block may be passed");
    expect_kept(100);
}

Test(resize, a_failure_keeps_the_block)
{
    open_probe();
    expect_refused(SIZE_MAX, 0, GA_ERR_SIZE);
    expect_refused(PTRDIFF_MAX, 0, GA_ERR_MEMORY);
    expect_refused(PTRDIFF_MAX, 64, GA_ERR_MEMORY);
    expect_refused(100, 3, GA_ERR_ALIGN);
    cr_assert_eq(probe.live_blocks, 1);
    close_clean();
}

Test(resize, a_failure_keeps_the_block_where_the_backend_has_no_realloc)
{
    table = probe_backend;
    table.realloc = NULL;
    open_table();
    expect_refused(PTRDIFF_MAX, 0, GA_ERR_MEMORY);
    cr_assert_eq(probe.live_blocks, 1);
    close_clean();
}

/* The second request is the realloc. */
Test(resize, a_refusal_on_the_way_keeps_the_block)
{
    ga_heap *failing;
    void *kept;
    open_probe();
    assert_ok(ga_heap_open(&failing, GA_PLACE_HOST, 0, "fail:nth=2/bare"));
    assert_ok(ga_alloc(failing, 8, 0, &kept));
    memset(kept, 7, 8);
    void *out = NULL;
    assert_fails(ga_realloc(failing, kept, 800, 0, &out), GA_ERR_MEMORY,
                 "fail: refused as nth=2 says; requested 800 bytes");
    cr_assert_eq(out, kept);
    cr_assert_arr_eq(kept, "\7\7\7\7\7\7\7\7", 8);
    assert_ok(ga_realloc(failing, kept, 800, 0, &out));
    cr_assert_arr_eq(out, "\7\7\7\7\7\7\7\7", 8);
    assert_ok(ga_free(failing, out));
    assert_ok(ga_heap_close(failing));
    close_clean();
}

/* ---- grow --------------------------------------------------------------------------------- */

Test(resize, growing_stays_in_place)
{
    open_probe();
    assert_ok(ga_grow(heap, block, 150));
    cr_assert_geq(ga_usable_size(heap, block), 150);
    memset(block + 100, 0, 50);
    expect_kept(100);
    assert_fails(ga_grow(heap, block, 1 << 20), GA_ERR_CANNOT_GROW,
                 "probe: no room for 1048576 bytes");
    cr_assert_eq(ga_usable_size(heap, block), 150);
    expect_kept(100);
    close_clean();
}

/* A size that the block already has needs no call of the backend. */
Test(resize, growing_to_less_is_nothing)
{
    open_probe();
    assert_ok(ga_grow(heap, block, 100));
    assert_ok(ga_grow(heap, block, 0));
    cr_assert_eq(probe.grow, 0);
    cr_assert_eq(ga_usable_size(heap, block), 100);
    close_clean();
}

Test(resize, growing_where_the_backend_cannot)
{
    table = probe_backend;
    table.grow = NULL;
    open_table();
    assert_fails(ga_grow(heap, block, 101), GA_ERR_CANNOT_GROW,
                 "bare: cannot grow a block in place");
    close_clean();
}

Test(resize, growing_badly)
{
    open_probe();
    assert_fails(ga_grow(heap, NULL, 8), GA_ERR_ARGUMENT, "ga_grow: expected a block, got NULL");
    assert_fails(ga_grow(heap, block, SIZE_MAX), GA_ERR_SIZE,
                 "bare: expected a size up to 9223372036854775807 bytes, got "
                 "18446744073709551615");
    close_clean();
}

/* ---- calls that few backends have --------------------------------------------------------- */

Test(resize, streams)
{
    void *on;
    open_probe();
    assert_ok(ga_alloc_on(heap, 100, 64, NULL, &on));
    cr_assert_eq((uintptr_t)on % 64, 0);
    assert_ok(ga_free_on(heap, on, NULL));
    cr_assert_eq(probe.alloc_on, 1);
    cr_assert_eq(probe.free_on, 1);
    close_clean();
}

static void count_visit(void *context, void *visited, size_t size)
{
    (void)context;
    (void)visited;
    (void)size;
}

Test(resize, missing_members_are_reported)
{
    void *out = &out;
    ga_kernel_heap view;
    table = probe_backend;
    table.alloc_on = NULL;
    table.free_on = NULL;
    table.trim = NULL;
    open_table();
    assert_fails(ga_alloc_on(heap, 8, 0, NULL, &out), GA_ERR_UNSUPPORTED,
                 "bare: has no stream-ordered allocation");
    cr_assert_null(out);
    assert_fails(ga_free_on(heap, block, NULL), GA_ERR_UNSUPPORTED,
                 "bare: has no stream-ordered free");
    assert_fails(ga_trim(heap, 0), GA_ERR_UNSUPPORTED, "bare: has no trim");
    assert_fails(ga_retire(heap, block), GA_ERR_UNSUPPORTED,
                 "bare: has no retire; open it as hazard/...");
    assert_fails(ga_heap_each_live(heap, count_visit, NULL), GA_ERR_UNSUPPORTED,
                 "bare: has no list of its live blocks");
    assert_fails(ga_heap_each_live(heap, NULL, NULL), GA_ERR_ARGUMENT,
                 "expected a visitor, got NULL");
    assert_fails(ga_heap_kernel_view(heap, &view), GA_ERR_UNSUPPORTED,
                 "bare: has no view for kernels; open it for the place kernel");
    close_clean();
}

Test(resize, trim)
{
    open_probe();
    assert_ok(ga_trim(heap, 0));
    cr_assert_eq(probe.trim, 1);
    close_clean();
}
