/* SPDX-License-Identifier: MIT
 *
 * Pages from one span: their addresses, and the ownership that is reported.
 */
#include "platform/pages.h"

#include <gpualloc/backend.h>

#include "runtime/registry.h"
#include "support/expect.h"
#include "support/sanitized.h"
#include "support/scene.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const size_t PAGE = 4096;
static const size_t HUGE = (size_t)2 << 20;

static uintptr_t base;
static size_t span;

static void begin(void)
{
    ga_pages_span(&base, &span);
    if (!span) {
        cr_skip_test("no span of addresses on this machine");
    }
}

static void *map(size_t size, int prot)
{
    return ga_pages_mmap(NULL, size, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

static char *map_usable(size_t size)
{
    char *start = map(size, PROT_READ | PROT_WRITE);
    cr_assert_neq(start, MAP_FAILED, "%s", strerror(errno));
    return start;
}

static bool in_span(const void *pointer)
{
    return (uintptr_t)pointer - base < span;
}

/* ---- the span ----------------------------------------------------------------------------- */

Test(pages, the_span_stays_where_it_is)
{
    uintptr_t again;
    size_t size;
    begin();
    ga_pages_span(&again, &size);
    cr_assert_eq(again, base);
    cr_assert_eq(size, span);
    cr_assert_geq(span, (size_t)16 << 30);
}

Test(pages, pages_come_from_the_span)
{
    begin();
    char *one = map_usable(PAGE);
    char *two = map_usable(3 * PAGE);
    cr_assert(in_span(one) && in_span(two));
    memset(one, 1, PAGE);
    memset(two, 2, 3 * PAGE);
    cr_assert_eq(one[PAGE - 1], 1);
    cr_assert(ga_pages_owns(one) && ga_pages_owns(one + PAGE - 1) && ga_pages_owns(two));
    cr_assert_eq(ga_pages_munmap(two, 3 * PAGE), 0);
    cr_assert_eq(ga_pages_munmap(one, PAGE), 0);
}

Test(pages, large_ones_are_aligned)
{
    begin();
    map_usable(PAGE);
    cr_assert_eq((uintptr_t)map_usable(HUGE) % HUGE, 0);
    map_usable(PAGE);
    cr_assert_eq((uintptr_t)map_usable(5 * HUGE) % HUGE, 0);
}

Test(pages, the_topmost_goes_back_to_the_span)
{
    begin();
    char *first = map_usable(8 * PAGE);
    cr_assert_eq(ga_pages_munmap(first, 8 * PAGE), 0);
    cr_assert_eq(map_usable(8 * PAGE), first);
    cr_assert_eq(first[0], 0, "and comes back clean");
}

static int read_byte(void *address)
{
    return *(volatile char *)address;
}

Test(pages, what_was_unmapped_cannot_be_read)
{
    begin();
    char *gone = map_usable(PAGE);
    map_usable(PAGE);
    gone[0] = 7;
    cr_assert_eq(scene_in_child(read_byte, gone), 7);
    cr_assert_eq(ga_pages_munmap(gone, PAGE), 0);
    if (UNDER_ASAN) {
        cr_skip_test("the address sanitizer reports the read itself");
    }
    cr_assert_eq(scene_in_child(read_byte, gone), 128 + SIGSEGV);
}

Test(pages, fixed_mappings_stay_in_place)
{
    begin();
    char *start = map(4 * PAGE, PROT_NONE);
    cr_assert(in_span(start));
    void *again = ga_pages_mmap(start + PAGE, PAGE, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    cr_assert_eq(again, start + PAGE);
    start[PAGE] = 1;
}

/* ---- past the span ------------------------------------------------------------------------- */

/* More than any machine has is refused at once, not mapped and marked page by page. */
Test(pages, sizes_beyond_reason, .timeout = 20)
{
    begin();
    cr_assert_eq(map((size_t)20 << 40, PROT_READ | PROT_WRITE), MAP_FAILED);
    cr_assert_eq(errno, ENOMEM);
    cr_assert_eq(map((size_t)1 << 62, PROT_READ | PROT_WRITE), MAP_FAILED);
    cr_assert_eq(errno, ENOMEM);
    cr_assert(in_span(map_usable(PAGE)));
}

/* ---- owners ------------------------------------------------------------------------------- */

static int global;

static void expect_foreign(void)
{
    int local = 0;
    void *libc = malloc(100);
    void *mapped = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert_not(ga_pages_owns(&local), "stack");
    cr_assert_not(ga_pages_owns(&global), "data");
    cr_assert_not(ga_pages_owns((void *)(uintptr_t)expect_foreign), "code");
    cr_assert_not(ga_pages_owns(libc), "the C library's");
    cr_assert_not(ga_pages_owns(mapped), "mmap's");
    cr_assert_not(ga_pages_owns(NULL));
    cr_assert_not(ga_pages_owns((void *)UINTPTR_MAX));
    munmap(mapped, PAGE);
    free(libc);
}

Test(pages, foreign_pointers)
{
    begin();
    expect_foreign();
    cr_assert_not(ga_pages_owns((void *)(base - 1)));
    cr_assert(ga_pages_owns((void *)base));
    cr_assert(ga_pages_owns((void *)(base + span - 1)));
    cr_assert_not(ga_pages_owns((void *)(base + span)));
}

static const size_t sizes[] = {1, 100, 5000, 100000, 3 << 20, 100 << 20};

Test(pages, blocks_of_jemalloc_are_owned)
{
    if (!ga_registry_find("jemalloc")) {
        cr_skip_test("built without jemalloc");
    }
    ga_heap *heap;
    char *block;
    assert_ok(ga_heap_open(&heap, GA_PLACE_HOST, 0, "jemalloc"));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        assert_ok(ga_alloc(heap, sizes[i], 0, (void **)&block));
        cr_assert(ga_owns(heap, block) && ga_owns(heap, block + sizes[i] - 1));
        assert_ok(ga_free(heap, block));
    }
    expect_foreign();
    assert_ok(ga_heap_close(heap));
}
