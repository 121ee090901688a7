/* SPDX-License-Identifier: MIT
 *
 * The `hardened` backend: each kind of misuse ends the program and is named; blocks are zeroed,
 * kept in quarantine and placed at random; and the heap works on if the kernel refuses calls.
 */
#include "backends/hardened/bin.h"
#include "platform/os_memory.h"
#include "support/expect.h"
#include "support/sanitized.h"
#include "support/scene.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

static ga_heap *heap;

static void open_heap(void)
{
    assert_ok(ga_heap_open(&heap, GA_PLACE_HOST, 0, "hardened"));
}

static void close_heap(void)
{
    assert_ok(ga_heap_close(heap));
}

static unsigned char *take(size_t size, size_t align)
{
    void *block = NULL;
    assert_ok(ga_alloc(heap, size, align, &block));
    return block;
}

TestSuite(hardened, .init = open_heap, .fini = close_heap);

/* ---- size classes ---------------------------------------------------------------------------- */

Test(hardened_classes, every_size_fits_its_class_and_no_smaller_one)
{
    ga_hardened_classes_prepare();
    for (size_t size = 1; ga_hardened_is_small(size, 1); size++) {
        unsigned class = ga_hardened_class_of(size, 1);
        size_t room = size + GA_HARDENED_CANARY;
        cr_assert_leq(room, ga_hardened_classes[class].slot_bytes, "%zu bytes", size);
        cr_assert(class == 0 || room > ga_hardened_classes[class - 1].slot_bytes, "%zu", size);
    }
}

Test(hardened_classes, division_by_multiplication_is_exact)
{
    ga_hardened_classes_prepare();
    for (int i = 0; i < GA_HARDENED_CLASSES; i++) {
        const ga_hardened_class *class = &ga_hardened_classes[i];
        cr_assert_leq(class->slots * class->slot_bytes, class->run_bytes);
        for (uint64_t at = 1; at < UINT64_C(1) << 34; at = at * 3 / 2 + 1) {
            uint64_t run = at / class->stride * class->stride;
            cr_assert_eq(ga_hardened_divide(at, class->stride_inverse), at / class->stride);
            cr_assert_eq(ga_hardened_divide(run, class->stride_inverse), run / class->stride);
            cr_assert(!run || ga_hardened_divide(run - 1, class->stride_inverse) ==
                                  (run - 1) / class->stride);
        }
    }
}

/* ---- blocks ---------------------------------------------------------------------------------- */

Test(hardened, blocks_of_every_size_are_clear_and_apart)
{
    static unsigned char *blocks[600];
    size_t sizes[600];
    for (int i = 0; i < 600; i++) {
        sizes[i] = (size_t)1 << (i % 21) | (size_t)i;
        blocks[i] = take(sizes[i], 0);
        for (size_t at = 0; at < sizes[i]; at++) {
            cr_assert_eq(blocks[i][at], 0, "byte %zu of %zu", at, sizes[i]);
        }
        memset(blocks[i], i + 1, sizes[i]);
    }
    for (int i = 0; i < 600; i++) {
        cr_assert(blocks[i][0] == (unsigned char)(i + 1) &&
                  blocks[i][sizes[i] - 1] == (unsigned char)(i + 1));
        assert_ok(ga_free(heap, blocks[i]));
    }
}

Test(hardened, alignments_up_to_a_gigabyte)
{
    for (size_t align = 16; align <= (size_t)1 << 30; align *= 2) {
        for (size_t size = 1; size < 400000; size = size * 5 + 3) {
            unsigned char *block = take(size, align);
            cr_assert_eq((uintptr_t)block % align, 0, "%zu bytes at %zu", size, align);
            block[size - 1] = 1;
            assert_ok(ga_free(heap, block));
        }
    }
}

Test(hardened, freed_blocks_wait_before_they_are_used_again)
{
    for (size_t size = 8; size < 100000; size = size * 3) {
        unsigned char *freed = take(size, 0);
        size_t wait = 131072 / (2 * size + 64) / 4; /* well within the quarantine */
        assert_ok(ga_free(heap, freed));
        for (size_t i = 0; i < wait; i++) {
            unsigned char *block = take(size, 0);
            cr_assert_neq(block, freed, "%zu bytes, used again after %zu", size, i);
            assert_ok(ga_free(heap, block));
        }
    }
}

/* Blocks that were requested one after the other are seldom neighbours. */
Test(hardened, placement_is_random)
{
    int neighbours = 0;
    unsigned char *before = take(64, 0);
    for (int i = 0; i < 1000; i++) {
        unsigned char *block = take(64, 0);
        neighbours += block - before == 80;
        before = block;
    }
    cr_assert_lt(neighbours, 100);
}

Test(hardened, realloc_keeps_contents_small_and_large)
{
    static const size_t sizes[] = {10, 500, 100, 90000, 200000, 8000000, 8000001, 300000, 40, 5};
    unsigned char *block = take(1, 0);
    size_t kept = 1;
    *block = 200;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        void *moved;
        assert_ok(ga_realloc(heap, block, sizes[i], 0, &moved));
        block = moved;
        for (size_t at = 1; at < kept && at < sizes[i]; at++) {
            cr_assert_eq(block[at], (unsigned char)(at * 7), "byte %zu of %zu", at, sizes[i]);
        }
        cr_assert_eq(*block, 200);
        kept = sizes[i];
        for (size_t at = 1; at < kept; at++) {
            block[at] = (unsigned char)(at * 7);
        }
    }
    assert_ok(ga_free(heap, block));
}

Test(hardened, memory_goes_back)
{
    static unsigned char *blocks[20000];
    ga_stats stats;
    for (int i = 0; i < 20000; i++) {
        blocks[i] = take(1000, 0);
    }
    for (int i = 0; i < 20000; i++) {
        assert_ok(ga_free(heap, blocks[i]));
    }
    assert_ok(ga_trim(heap, 0));
    assert_ok(ga_heap_stats(heap, &stats));
    cr_assert_eq(stats.live_bytes, 0);
    cr_assert_lt(stats.held_bytes, 6 << 20, "%zu", (size_t)stats.held_bytes);
}

/* ---- misuse ---------------------------------------------------------------------------------- */

/* The child must be aborted; returns its standard error. */
static const char *said_at_the_end(int (*misuse)(void *), void *context)
{
    scene_capture_begin();
    int status = scene_in_child(misuse, context);
    const char *said = scene_capture_end();
    cr_assert_eq(status, 128 + SIGABRT, "status %d: %s", status, said);
    return said;
}

static const size_t kinds_of_size[] = {1, 64, 5000, 100000, 3000000};

static int free_twice(void *size)
{
    void *block = take(*(size_t *)size, 0);
    ga_free(heap, block);
    ga_free(heap, block);
    return 0;
}

static int free_inside(void *size)
{
    ga_free(heap, take(*(size_t *)size, 0) + 16);
    return 0;
}

static int write_behind(void *size)
{
    unsigned char *block = take(*(size_t *)size, 0);
    block[ga_usable_size(heap, block)] = 1;
    ga_free(heap, block);
    return 0;
}

static int write_freed(void *size)
{
    unsigned char *block = take(*(size_t *)size, 0);
    ga_free(heap, block);
    *block = 1;
    for (int i = 0; i < 200000; i++) {
        ga_free(heap, take(*(size_t *)size, 0));
    }
    return 0;
}

static int resize_freed(void *size)
{
    void *block = take(*(size_t *)size, 0);
    ga_free(heap, block);
    ga_realloc(heap, block, 10, 0, &block);
    return 0;
}

static int free_never_given(void *size)
{
    unsigned char *block = take(*(size_t *)size, 0);
    ga_free(heap, (void *)(((uintptr_t)block & ~(uintptr_t)0xffffff) + 0x1000000));
    return 0;
}

Test(hardened, misuse_ends_the_program_with_its_kind_and_address)
{
    for (size_t i = 0; i < sizeof kinds_of_size / sizeof *kinds_of_size; i++) {
        size_t size = kinds_of_size[i];
        cr_assert(strstr(said_at_the_end(free_twice, &size), "free already (double free"));
        cr_assert(strstr(said_at_the_end(write_behind, &size), "wrote past the end"), "%zu", size);
        cr_assert(strstr(said_at_the_end(resize_freed, &size), ": 0x"), "%zu", size);
        if (size > 16) {
            cr_assert(strstr(said_at_the_end(free_inside, &size), "is inside a block"));
        }
        if (size < 100000) {
            cr_assert(strstr(said_at_the_end(write_freed, &size), "after it was freed"));
            cr_assert(strstr(said_at_the_end(free_never_given, &size), "hardened: ga_free: 0x"));
        }
    }
}

/* A sanitizer would report the fault that the test waits for. */
static void die_of_faults(void)
{
    signal(SIGSEGV, SIG_DFL);
}

static int run_past(void *context)
{
    die_of_faults();
    unsigned char *block = take(*(size_t *)context, 0);
    for (size_t i = 0;; i++) {
        ((volatile unsigned char *)block)[i] = 1;
    }
    return 0;
}

/* A linear overflow meets a guard page within one run, or right behind a large block. */
Test(hardened, linear_overflows_meet_a_guard)
{
    for (size_t i = 0; i < sizeof kinds_of_size / sizeof *kinds_of_size; i++) {
        cr_assert_eq(scene_in_child(run_past, (void *)&kinds_of_size[i]), 128 + SIGSEGV);
    }
}

static int read_freed_large(void *context)
{
    unsigned char *block = take(3000000, 0);
    (void)context;
    die_of_faults();
    ga_free(heap, block);
    return *(volatile unsigned char *)block;
}

Test(hardened, freed_large_blocks_cannot_be_read)
{
    cr_assert_eq(scene_in_child(read_freed_large, NULL), 128 + SIGSEGV);
}

Test(hardened, pointers_to_other_memory_are_refused)
{
    int mine;
    assert_fails_with(ga_free(heap, &mine), GA_ERR_POINTER, "hardened: 0x");
    cr_assert_eq(ga_usable_size(heap, &mine), 0);
}

/* ---- forks, and a kernel that refuses -------------------------------------------------------- */

static int take_64(void *context)
{
    unsigned char **out = context;
    *out = take(64, 0);
    return (int)((uintptr_t)*out >> 4 & 63);
}

/* Children do not repeat each other's random numbers. */
Test(hardened, forked_children_draw_numbers_of_their_own)
{
    unsigned char *block = take(64, 0);
    bool differ = false;
    int first = scene_in_child(take_64, &block);
    for (int i = 0; i < 10; i++) {
        differ |= scene_in_child(take_64, &block) != first;
    }
    cr_assert(differ);
}

static int calls_left;

static bool refuses(void)
{
    if (calls_left < 0) {
        return false;
    }
    errno = ENOMEM;
    return calls_left-- == 0 || calls_left == -1;
}

static void *failing_mmap(void *hint, size_t size, int prot, int flags, int fd, off_t offset)
{
    return refuses() ? MAP_FAILED : mmap(hint, size, prot, flags, fd, offset);
}

static int failing_mprotect(void *start, size_t size, int prot)
{
    return refuses() ? -1 : mprotect(start, size, prot);
}

static int failing_munmap(void *start, size_t size)
{
    return refuses() ? -1 : munmap(start, size);
}

static int failing_madvise(void *start, size_t size, int advice)
{
    return refuses() ? -1 : madvise(start, size, advice);
}

static void *failing_mremap(void *start, size_t size, size_t new_size, int flags, void *to)
{
    return refuses() ? MAP_FAILED : mremap(start, size, new_size, flags, to);
}

static const ga_os_memory failing = {
    .mmap = failing_mmap,
    .munmap = failing_munmap,
    .mprotect = failing_mprotect,
    .madvise = failing_madvise,
    .mremap = failing_mremap,
};

static int use_many_blocks(void *unused)
{
    static unsigned char *blocks[100000];
    struct rlimit limit = {(rlim_t)2 << 30, (rlim_t)2 << 30};
    ga_heap *on;
    (void)unused;
    setrlimit(RLIMIT_AS, &limit);
    if (ga_heap_open(&on, GA_PLACE_HOST, 0, "hardened") != GA_OK) {
        return 1;
    }
    for (int i = 0; i < 100000; i++) {
        void *block;
        if (ga_alloc(on, 200, 0, &block) != GA_OK) {
            return 2;
        }
        blocks[i] = memset(block, i, 200);
    }
    for (int i = 0; i < 100000; i++) {
        if (blocks[i][199] != (unsigned char)i || ga_free(on, blocks[i]) != GA_OK) {
            return 3;
        }
    }
    return ga_heap_close(on) == GA_OK ? 0 : 4;
}

/* A size class has room for 8 MiB in 2 GiB of addresses; the rest goes to larger classes. */
Test(hardened_faults, addresses_are_limited)
{
    if (UNDER_ASAN || UNDER_TSAN) {
        cr_skip_test("a sanitizer needs more addresses than the limit leaves");
    }
    cr_assert_eq(scene_in_child(use_many_blocks, NULL), 0);
}

/* The kernel's limit of mappings: past it, runs are neighbours without a guard between them. */
Test(hardened_faults, runs_without_guards)
{
    enum {
        ADDRESSES = 1 << 24
    };
    ga_hardened_bin bin;
    ga_hardened_limits limits = {.guards_left = 2};
    ga_hardened_classes_prepare();
    const ga_hardened_class *class = &ga_hardened_classes[ga_hardened_class_of(1000, 1)];
    size_t table = ga_hardened_bin_table(class, ADDRESSES);
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void *addresses = mmap(NULL, ADDRESSES, PROT_NONE, flags, -1, 0);
    ga_hardened_bin_open(&bin, class, &limits, addresses, ADDRESSES,
                         mmap(NULL, table, PROT_NONE, flags, -1, 0));
    static void *blocks[20000];
    int count = 0;
    while ((blocks[count] = ga_hardened_bin_alloc(&bin, "test"))) {
        memset(blocks[count++], 7, 1000);
    }
    cr_assert_gt(count, 10000);
    cr_assert_eq(limits.guards_left, 0);
    while (count--) {
        cr_assert_eq(ga_hardened_bin_free(&bin, blocks[count]), GA_HARDENED_FINE);
    }
    ga_hardened_bin_purge(&bin);
    cr_assert_leq(limits.guards_left, 2);
}

/* Blocks of all kinds, resized and freed. Requests that fail for lack of memory are skipped. */
static void churn(ga_heap *on)
{
    static const size_t sizes[] = {1, 100, 5000, 120000, 200000, 2000000};
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            void *block = NULL;
            if (ga_alloc(on, sizes[i], 0, &block) != GA_OK) {
                continue;
            }
            memset(block, 7, sizes[i]);
            ga_realloc(on, block, sizes[(i + 3) % 6], 0, &block);
            cr_assert_eq(*(unsigned char *)block, 7);
            assert_ok(ga_free(on, block));
        }
        ga_trim(on, 0);
    }
}

Test(hardened_faults, the_nth_call_of_the_kernel_fails)
{
    int n = 0;
    for (bool reached = true; reached; n++) {
        ga_heap *on;
        calls_left = n;
        ga_os_memory_set(&failing);
        if (ga_heap_open(&on, GA_PLACE_HOST, 0, "hardened") == GA_OK) {
            churn(on);
            reached = calls_left < 0;
            calls_left = -1;
            assert_ok(ga_heap_close(on));
        }
        ga_os_memory_set(NULL);
    }
    cr_assert_gt(n, 50);
}
