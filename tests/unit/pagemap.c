/* SPDX-License-Identifier: MIT
 *
 * The ownership map: marks cover whole pages, those pages and no others.
 */
#include "platform/pagemap.h"

#include "support/expect.h"
#include "support/random.h"
#include "support/refused_maps.h"

#include <pthread.h>
#include <stdint.h>

static const uintptr_t PAGE = 4096;
static const uintptr_t GIB = (uintptr_t)1 << 30;

static bool marked(uintptr_t address)
{
    return ga_pagemap_test((const void *)address);
}

static void mark(uintptr_t address, size_t size)
{
    cr_assert(ga_pagemap_mark((const void *)address, size), "%#lx", (unsigned long)address);
}

Test(pagemap, nothing_is_marked_at_first)
{
    int local = 0;
    cr_assert_not(ga_pagemap_test(&local));
    cr_assert_not(ga_pagemap_test(NULL));
    cr_assert_not(marked(UINTPTR_MAX));
}

Test(pagemap, a_mark_is_its_page)
{
    uintptr_t at = 5 * GIB + 10 * PAGE;
    mark(at + 100, 1);
    cr_assert(marked(at));
    cr_assert(marked(at + PAGE - 1));
    cr_assert_not(marked(at - 1));
    cr_assert_not(marked(at + PAGE));
    cr_assert_not(marked(at + GIB));
    cr_assert_not(marked(at - GIB));
}

Test(pagemap, sizes)
{
    mark(GIB, 0);
    cr_assert(marked(GIB));
    cr_assert_not(marked(GIB + PAGE));
    mark(2 * GIB + 1, PAGE);
    cr_assert(marked(2 * GIB + PAGE));
    cr_assert_not(marked(2 * GIB + 2 * PAGE));
    mark(3 * GIB, PAGE);
    cr_assert_not(marked(3 * GIB + PAGE));
    mark(4 * GIB, 1000 * PAGE);
    for (uintptr_t i = 0; i < 1000; i++) {
        cr_assert(marked(4 * GIB + i * PAGE));
    }
    cr_assert_not(marked(4 * GIB + 1000 * PAGE));
    cr_assert_not(marked(4 * GIB - 1));
}

Test(pagemap, a_mark_may_cross_leaves)
{
    mark(7 * GIB - PAGE, 2 * PAGE);
    cr_assert(marked(7 * GIB - PAGE));
    cr_assert(marked(7 * GIB));
    cr_assert_not(marked(7 * GIB - PAGE - 1));
    cr_assert_not(marked(7 * GIB + PAGE));
}

Test(pagemap, both_ends_of_the_map)
{
    uintptr_t end = (uintptr_t)1 << 48;
    mark(0, 1);
    cr_assert(marked(0));
    cr_assert_not(marked(PAGE));
    mark(end - 1, 1);
    cr_assert(marked(end - PAGE));
    cr_assert_not(marked(end - PAGE - 1));
}

Test(pagemap, what_lies_past_the_map_cannot_be_marked)
{
    uintptr_t end = (uintptr_t)1 << 48;
    cr_assert_not(ga_pagemap_mark((void *)end, 1));
    cr_assert_not(ga_pagemap_mark((void *)(end - PAGE), 2 * PAGE));
    cr_assert_not(marked(end));
    cr_assert_not(marked(UINTPTR_MAX));
}

Test(pagemap, marks_agree_with_a_plain_array)
{
    enum {
        PAGES = 4096
    };
    static bool expected[PAGES];
    uint64_t seed = 11;
    uintptr_t base = 9 * GIB - PAGES / 2 * PAGE;
    for (int round = 0; round < 200; round++) {
        size_t first = random_below(&seed, PAGES - 8);
        size_t count = 1 + random_below(&seed, 7);
        mark(base + first * PAGE, count * PAGE);
        for (size_t i = first; i < first + count; i++) {
            expected[i] = true;
        }
    }
    for (size_t i = 0; i < PAGES; i++) {
        cr_assert_eq(marked(base + i * PAGE), expected[i], "page %zu", i);
    }
}

/* ---- threads ------------------------------------------------------------------------------ */

enum {
    THREADS = 4,
    LEAVES = 64
};

/* Every thread marks its own bits of shared words, in leaves that all threads install. */
static void *mark_own(void *context)
{
    uintptr_t self = (uintptr_t)context;
    for (uintptr_t leaf = 0; leaf < LEAVES; leaf++) {
        for (uintptr_t page = self; page < 512; page += THREADS) {
            ga_pagemap_mark((void *)((100 + leaf) * GIB + page * PAGE), 1);
        }
    }
    return NULL;
}

Test(pagemap, marks_of_many_threads_are_all_there)
{
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++) {
        cr_assert_eq(pthread_create(&threads[i], NULL, mark_own, (void *)i), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    for (uintptr_t leaf = 0; leaf < LEAVES; leaf++) {
        for (uintptr_t page = 0; page < 512; page++) {
            cr_assert(marked((100 + leaf) * GIB + page * PAGE));
        }
        cr_assert_not(marked((100 + leaf) * GIB + 512 * PAGE));
    }
}

/* A reserved mark needs no memory; the rest of the reservation serves the next mark. */
Test(pagemap, a_reserved_mark)
{
    const char *page = (const char *)(UINT64_C(93) << 30);
    void *reserved = ga_pagemap_reserve();
    cr_assert_not_null(reserved);
    refuse_maps(true);
    ga_pagemap_mark_reserved(page, reserved);
    cr_assert(ga_pagemap_test(page + 4095) && !ga_pagemap_test(page + 4096));
    cr_assert_null(ga_pagemap_reserve(), "the leaf is in the map");
    cr_assert_not(ga_pagemap_mark((const char *)(UINT64_C(94) << 30), 1));
    refuse_maps(false);
    reserved = ga_pagemap_reserve();
    ga_pagemap_mark_reserved(page + 8192, reserved);
    refuse_maps(true);
    cr_assert_eq(ga_pagemap_reserve(), reserved, "the leaf is kept");
    refuse_maps(false);
    cr_assert(ga_pagemap_test(page + 8192));
}
