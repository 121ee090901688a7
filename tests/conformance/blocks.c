/* SPDX-License-Identifier: MIT
 *
 * One block at a time: sizes, alignments, contents.
 */
#include "subjects.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum {
    SIZES = 4096
};

static void fill(void *block, int value, size_t size)
{
    if (touchable) {
        memset(block, value, size);
    }
}

static bool holds(const void *block, int value, size_t size)
{
    const unsigned char *bytes = block;
    return !touchable || size == 0 ||
           (bytes[0] == (unsigned char)value && memcmp(bytes, bytes + 1, size - 1) == 0);
}

/* Device backends may refuse requests that the host cannot serve for them. */
static bool lacks(ga_status status)
{
    return status == GA_ERR_UNSUPPORTED && ga_heap_place(heap) != GA_PLACE_HOST;
}

/* ---- sizes -------------------------------------------------------------------------------- */

CASE(every_small_size)
{
    static void *blocks[SIZES + 1];
    for (size_t size = 1; !s->refuses && size <= SIZES; size++) {
        blocks[size] = take(s, size);
        cr_assert_eq((uintptr_t)blocks[size] % natural_align, 0, "%s: %zu bytes at %p", s->spec,
                     size, blocks[size]);
        fill(blocks[size], (int)size, size);
    }
    for (size_t size = 1; !s->refuses && size <= SIZES; size++) {
        cr_assert(holds(blocks[size], (int)size, size), "%s: %zu bytes", s->spec, size);
        assert_ok(ga_free(heap, blocks[size]));
    }
}

static void try_size(const subject *s, size_t size)
{
    char *block = take(s, size);
    cr_assert_eq((uintptr_t)block % natural_align, 0, "%s: %zu bytes", s->spec, size);
    fill(block, 0x5a, size);
    cr_assert(holds(block, 0x5a, size), "%s: %zu bytes", s->spec, size);
    assert_ok(ga_free(heap, block));
}

CASE(powers_of_two_and_their_neighbours)
{
    for (size_t power = 2; !s->refuses && power <= 64 << 20; power *= 2) {
        try_size(s, power - 1);
        try_size(s, power);
        try_size(s, power + 1);
    }
}

CASE(zero_bytes)
{
    if (!s->refuses) {
        void *a = take(s, 0);
        void *b = take(s, 0);
        cr_assert(a && b && a != b, "%s", s->spec);
        assert_ok(ga_free(heap, a));
        assert_ok(ga_free(heap, b));
    }
}

CASE(usable_size)
{
    static const size_t sizes[] = {1, 15, 100, 4095, 4097, 70000, 1 << 20};
    for (size_t i = 0; !s->refuses && i < sizeof sizes / sizeof *sizes; i++) {
        void *block = take(s, sizes[i]);
        size_t usable = ga_usable_size(heap, block);
        cr_assert(usable == 0 || usable >= sizes[i], "%s: %zu of %zu", s->spec, usable, sizes[i]);
        fill(block, 1, usable);
        cr_assert(holds(block, 1, usable));
        assert_ok(ga_free(heap, block));
    }
}

/* ---- alignment ---------------------------------------------------------------------------- */

/* Aligned, or refused with a sentence, and then for every size. */
static void try_align(const subject *s, size_t size, size_t align)
{
    void *block = &block;
    ga_status status = ga_alloc(heap, size, align, &block);
    if (status == GA_ERR_ALIGN) {
        cr_assert_null(block);
        cr_assert_gt(align, natural_align, "%s: %zu", s->spec, align);
        expect_sentence(s);
        return;
    }
    cr_assert_eq(status, GA_OK, "%s: %zu: %s", s->spec, align, ga_error_text());
    cr_assert_eq((uintptr_t)block % align, 0, "%s: %zu bytes at %p", s->spec, size, block);
    fill(block, 3, size);
    cr_assert(holds(block, 3, size));
    assert_ok(ga_free(heap, block));
}

CASE(alignments)
{
    static const size_t sizes[] = {0, 1, 8, 100, 5000, 1 << 20};
    for (size_t align = 1; !s->refuses && align <= 1 << 20; align *= 2) {
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            try_align(s, sizes[i], align);
        }
    }
}

/* The small blocks of many allocators are aligned to their size only: two hundred in a row show
 * it. */
CASE(small_blocks_are_aligned_as_asked)
{
    enum {
        MANY = 200
    };
    void *blocks[MANY];
    for (int i = 0; !s->refuses && i < MANY; i++) {
        assert_ok(ga_alloc(heap, 8, 16, &blocks[i]));
        cr_assert_eq((uintptr_t)blocks[i] % 16, 0, "%s: 8 bytes at %p", s->spec, blocks[i]);
    }
    for (int i = 0; !s->refuses && i < MANY; i++) {
        assert_ok(ga_free(heap, blocks[i]));
    }
}

/* ---- contents ----------------------------------------------------------------------------- */

CASE(zeroed_blocks_are_zero_after_use)
{
    static const size_t sizes[] = {1, 8, 100, 5000, 70000, 3 << 20};
    static const size_t aligns[] = {0, 64};
    for (size_t i = 0; !s->refuses && i < 12; i++) {
        size_t size = sizes[i / 2];
        void *dirty = take(s, size);
        void *block;
        fill(dirty, 0xff, size);
        assert_ok(ga_free(heap, dirty));
        ga_status status = ga_alloc_zeroed(heap, size, aligns[i % 2], &block);
        if (status == GA_ERR_ALIGN || lacks(status)) {
            expect_sentence(s);
            continue;
        }
        cr_assert_eq(status, GA_OK, "%s: %s", s->spec, ga_error_text());
        cr_assert(holds(block, 0, size), "%s: %zu bytes", s->spec, size);
        assert_ok(ga_free(heap, block));
    }
}

CASE(realloc_keeps_contents)
{
    static const size_t sizes[] = {10, 100, 90, 5000, 200000, 3 << 20, 100000, 50, 0, 64};
    void *block = NULL;
    size_t size = 0;
    for (size_t i = 0; !s->refuses && i < sizeof sizes / sizeof *sizes; i++) {
        ga_status status = ga_realloc(heap, block, sizes[i], 0, &block);
        if (lacks(status)) {
            break;
        }
        cr_assert_eq(status, GA_OK, "%s: to %zu bytes: %s", s->spec, sizes[i], ga_error_text());
        cr_assert(holds(block, 7, size < sizes[i] ? size : sizes[i]), "%s: to %zu", s->spec,
                  sizes[i]);
        size = sizes[i];
        fill(block, 7, size);
    }
    assert_ok(ga_free(heap, block));
}

CASE(realloc_to_an_alignment)
{
    if (s->refuses) {
        return;
    }
    void *block = take(s, 100);
    void *before = block;
    fill(block, 9, 100);
    ga_status status = ga_realloc(heap, block, 300, 4096, &block);
    if (status == GA_OK) {
        cr_assert_eq((uintptr_t)block % 4096, 0, "%s: %p", s->spec, block);
    } else {
        cr_assert(status == GA_ERR_ALIGN || lacks(status), "%s: %s", s->spec, ga_error_text());
        cr_assert_eq(block, before);
    }
    cr_assert(holds(block, 9, 100), "%s", s->spec);
    assert_ok(ga_free(heap, block));
}

CASE(grow_never_moves)
{
    static const size_t sizes[] = {1, 100, 4096, 20000, 100000, 1 << 20, 5 << 20};
    for (size_t i = 0; !s->refuses && i < sizeof sizes / sizeof *sizes; i++) {
        size_t size = sizes[i];
        void *block = take(s, size);
        fill(block, 4, size);
        ga_status status = ga_grow(heap, block, size * 2);
        if (status == GA_OK) {
            size_t usable = ga_usable_size(heap, block);
            cr_assert(usable == 0 || usable >= size * 2, "%s: %zu", s->spec, usable);
            cr_assert(holds(block, 4, size), "%s: %zu bytes", s->spec, size);
            fill(block, 4, usable ? size * 2 : size);
        } else {
            cr_assert_eq(status, GA_ERR_CANNOT_GROW, "%s: %s", s->spec, ga_error_text());
        }
        cr_assert(holds(block, 4, size), "%s: %zu bytes", s->spec, size);
        assert_ok(ga_free(heap, block));
    }
}

/* ---- owners ------------------------------------------------------------------------------- */

static int global;

CASE(owns_its_blocks_and_no_others)
{
    static const size_t sizes[] = {1, 100, 5000, 70000, 4 << 20};
    int local = 0;
    for (size_t i = 0; !s->refuses && i < sizeof sizes / sizeof *sizes; i++) {
        char *block = take(s, sizes[i]);
        cr_assert(ga_owns(heap, block), "%s: %zu bytes", s->spec, sizes[i]);
        assert_ok(ga_free(heap, block));
    }
    cr_assert_not(ga_owns(heap, NULL), "%s", s->spec);
    if (s->can_tell) {
        void *libc = malloc(100);
        cr_assert_not(ga_owns(heap, &local), "%s: stack", s->spec);
        cr_assert_not(ga_owns(heap, &global), "%s: data", s->spec);
        cr_assert_not(ga_owns(heap, libc), "%s: the C library's", s->spec);
        cr_assert_not(ga_owns(heap, (void *)8), "%s: nobody's", s->spec);
        cr_assert_not(ga_owns(heap, (void *)UINTPTR_MAX), "%s: nobody's", s->spec);
        free(libc);
    }
}

static void expect_foreign(const subject *s, ga_status status)
{
    cr_assert_eq(status, GA_ERR_POINTER, "%s: status %d: %s", s->spec, (int)status,
                 ga_error_text());
    expect_sentence(s);
}

/* A backend that detects foreign pointers refuses them, and continues. */
CASE(foreign_pointers_are_refused)
{
    static _Alignas(16) char mine[64];
    void *out = mine;
    if (!s->can_tell || s->refuses) {
        return;
    }
    expect_foreign(s, ga_free(heap, mine));
    cr_assert_eq(ga_usable_size(heap, mine), 0, "%s", s->spec);
    if (touchable && s->place != GA_PLACE_KERNEL) { /* the host moves no blocks of kernels */
        expect_foreign(s, ga_realloc(heap, mine, 100, 0, &out));
        expect_foreign(s, ga_realloc(heap, mine, 100, 64, &out));
        cr_assert_eq(out, mine);
    }
    ga_status grown = ga_grow(heap, mine, 100);
    cr_assert(grown == GA_ERR_POINTER || grown == GA_ERR_CANNOT_GROW, "%s: status %d", s->spec,
              (int)grown);
    void *block = take(s, 100);
    fill(block, 1, 100);
    assert_ok(ga_free(heap, block));
}
