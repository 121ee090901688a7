/* SPDX-License-Identifier: MIT
 *
 * Every function of the malloc family, with the arguments that its documentation mentions. Prints
 * one line per call; every backend must print the C library's own output.
 *
 * usage: family [ALIGNMENT OF BLOCKS BELOW 16 BYTES]
 */
#include "check.h"

#include <malloc.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

/* Hidden from the compiler, which would warn about the tested misuse. */
static volatile size_t opaque;

static size_t hide(size_t value)
{
    opaque = value;
    return opaque;
}

static const char *error_name(int error)
{
    return error == 0 ? "0" : error == ENOMEM ? "ENOMEM" : error == EINVAL ? "EINVAL" : "another";
}

/* Of blocks below 16 bytes. Malloc libraries align them to 8, and `dl` leaves that to them. */
static size_t small_align = 16;

/* The outcome of a call that was made with errno 0: the block is used to its end, and freed. */
static void show(const char *call, void *block, size_t size, size_t align)
{
    int error = errno;
    if (!block) {
        printf("%s: NULL, errno %s\n", call, error_name(error));
        return;
    }
    CHECK((uintptr_t)block % (size < 16 && align == 16 ? small_align : align) == 0);
    CHECK(malloc_usable_size(block) >= size);
    check_fill(block, malloc_usable_size(block), 0x5a);
    check_filled(block, malloc_usable_size(block), 0x5a);
    free(block);
    printf("%s: a block\n", call);
}

#define SHOW(call, size, align)                                                                    \
    do {                                                                                           \
        errno = 0;                                                                                 \
        void *block_of_call = (call);                                                              \
        show(#call, block_of_call, size, align);                                                   \
    } while (0)

/* ---- asking ------------------------------------------------------------------------------- */

static void test_malloc(void)
{
    SHOW(malloc(hide(0)), 0, 16);
    SHOW(malloc(hide(1)), 1, 16);
    SHOW(malloc(hide(100000)), 100000, 16);
    SHOW(malloc(hide((size_t)64 << 20)), (size_t)64 << 20, 16);
    SHOW(malloc(hide(PTRDIFF_MAX)), 0, 1);
    SHOW(malloc(hide((size_t)PTRDIFF_MAX + 1)), 0, 1);
    SHOW(malloc(hide(SIZE_MAX)), 0, 1);
    SHOW(malloc(hide(SIZE_MAX - 4095)), 0, 1);
    void *nothing = malloc(hide(0));
    void *other = malloc(hide(0));
    CHECK(nothing != other);
    free(nothing);
    free(other);
}

static void zeroed(size_t count, size_t size)
{
    unsigned char *dirty = malloc(count * size);
    CHECK(dirty);
    check_fill(dirty, count * size, 0xff);
    free(dirty);
    void *block = calloc(count, size);
    CHECK(block);
    check_filled(block, count * size, 0);
    free(block);
}

static void test_calloc(void)
{
    for (size_t size = 1; size <= (size_t)1 << 22; size *= 2) {
        zeroed(1, size);
        zeroed(3, size + 5);
    }
    SHOW(calloc(hide(0), hide(8)), 0, 16);
    SHOW(calloc(hide(8), hide(0)), 0, 16);
    SHOW(calloc(hide(SIZE_MAX / 2 + 1), hide(2)), 0, 1);
    SHOW(calloc(hide(SIZE_MAX), hide(SIZE_MAX)), 0, 1);
    SHOW(calloc(hide(1), hide((size_t)PTRDIFF_MAX + 1)), 0, 1);
    SHOW(calloc(hide((size_t)1 << 32), hide((size_t)1 << 32)), 0, 1);
}

static void aligned(size_t align, size_t size)
{
    size_t least = align < 16 ? 16 : align;
    void *blocks[3] = {memalign(align, size), memalign(align, size), NULL};
    CHECK(blocks[0] && blocks[1]);
    if (align >= sizeof(void *)) {
        CHECK(posix_memalign(&blocks[2], align, size) == 0 && blocks[2]);
    }
    for (int i = 0; i < 3; i++) {
        CHECK((uintptr_t)blocks[i] % least == 0);
        check_fill(blocks[i], blocks[i] ? size : 0, i);
    }
    for (int i = 0; i < 3; i++) {
        check_filled(blocks[i], blocks[i] ? size : 0, i);
        free(blocks[i]);
    }
}

/* Also sizes that are multiples of the alignment: an allocator may have a fast path there. */
static void test_alignments(void)
{
    for (size_t align = 1; align <= (size_t)8 << 20; align *= 2) {
        for (size_t size = 0; size < 3000; size = size * 3 + 1) {
            aligned(align, size);
        }
        for (size_t times = 1; times <= 4 && align <= 65536; times++) {
            aligned(align, align * times);
        }
    }
    puts("alignments: kept");
}

static void test_memalign(void)
{
    SHOW(memalign(hide(0), hide(8)), 8, 16);
    SHOW(memalign(hide(3), hide(8)), 8, 16);
    SHOW(memalign(hide(24), hide(8)), 8, 32);
    SHOW(memalign(hide(4097), hide(8)), 8, 8192);
    SHOW(memalign(hide((size_t)1 << 21), hide((size_t)1 << 21)), (size_t)1 << 21, (size_t)1 << 21);
    SHOW(memalign(hide(SIZE_MAX / 2 + 2), hide(1)), 0, 1);
    SHOW(memalign(hide(SIZE_MAX), hide(1)), 0, 1);
    SHOW(memalign(hide(SIZE_MAX / 2 + 1), hide(1)), 0, 1);
    SHOW(memalign(hide(64), hide(SIZE_MAX)), 0, 1);
    SHOW(memalign(hide(64), hide(PTRDIFF_MAX)), 0, 1);
    SHOW(memalign(hide(64), hide((size_t)1 << 60)), 0, 1);
    SHOW(memalign(hide(64), hide(PTRDIFF_MAX - 8192)), 0, 1);
    SHOW(aligned_alloc(hide(64), hide((size_t)1 << 60)), 0, 1);
    SHOW(aligned_alloc(hide(64), hide(64)), 64, 64);
    SHOW(aligned_alloc(hide(64), hide(1)), 1, 64);
    SHOW(aligned_alloc(hide(4096), hide(0)), 0, 4096);
    SHOW(aligned_alloc(hide(16), hide(SIZE_MAX)), 0, 1);
}

static void show_posix(const char *call, int result, void *block, size_t align)
{
    printf("%s: %s, %s\n", call, error_name(result),
           block == (void *)&opaque ? "out untouched" : "a block");
    if (result == 0) {
        CHECK((uintptr_t)block % align == 0);
        free(block);
    }
}

#define SHOW_POSIX(align, size)                                                                    \
    do {                                                                                           \
        void *block_of_call = (void *)&opaque;                                                     \
        int result_of_call = posix_memalign(&block_of_call, hide(align), hide(size));              \
        show_posix("posix_memalign(" #align ", " #size ")", result_of_call, block_of_call, align); \
    } while (0)

static void test_posix_memalign(void)
{
    SHOW_POSIX(8, 1);
    SHOW_POSIX(64, 0);
    SHOW_POSIX(4096, 100);
    SHOW_POSIX(0, 1);
    SHOW_POSIX(1, 1);
    SHOW_POSIX(4, 1);
    SHOW_POSIX(12, 1);
    SHOW_POSIX(24, 1);
    SHOW_POSIX(SIZE_MAX, 1);
    SHOW_POSIX(16, SIZE_MAX);
    SHOW_POSIX(16, PTRDIFF_MAX);
}

static void test_pages(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    SHOW(valloc(hide(0)), 0, page);
    SHOW(valloc(hide(1)), 1, page);
    SHOW(valloc(hide(3 * page + 1)), 3 * page + 1, page);
    SHOW(valloc(hide(SIZE_MAX)), 0, 1);
    SHOW(pvalloc(hide(0)), 0, page);
    SHOW(pvalloc(hide(1)), page, page);
    SHOW(pvalloc(hide(page + 1)), 2 * page, page);
    SHOW(valloc(hide((size_t)1 << 60)), 0, 1);
    SHOW(valloc(hide(PTRDIFF_MAX - 8192)), 0, 1);
    SHOW(pvalloc(hide((size_t)1 << 60)), 0, 1);
    SHOW(pvalloc(hide(SIZE_MAX)), 0, 1);
    SHOW(pvalloc(hide(SIZE_MAX - page)), 0, 1);
}

/* ---- resizing ----------------------------------------------------------------------------- */

static void test_realloc(void)
{
    SHOW(realloc(NULL, hide(0)), 0, 16);
    SHOW(realloc(NULL, hide(10)), 10, 16);
    SHOW(realloc(NULL, hide(SIZE_MAX)), 0, 1);
    SHOW(realloc(malloc(10), hide(100000)), 100000, 16);
    errno = 99;
    printf("realloc(block, 0): %s\n", realloc(malloc(10), hide(0)) ? "a block" : "NULL");
    CHECK(errno == 99);
}

/* The old block must survive. */
static void test_realloc_failing(void)
{
    char *block = malloc(1000);
    CHECK(block);
    check_fill(block, 1000, 7);
    errno = 0;
    CHECK(!realloc(block, hide(SIZE_MAX)) && errno == ENOMEM);
    errno = 0;
    CHECK(!realloc(block, hide(PTRDIFF_MAX)) && errno == ENOMEM);
    errno = 0;
    CHECK(!reallocarray(block, hide(SIZE_MAX / 2), hide(3)) && errno == ENOMEM);
    check_filled(block, 1000, 7);
    free(block);
    puts("realloc that fails: the block is kept");
}

static void test_realloc_contents(void)
{
    size_t size = 1;
    unsigned char *block = malloc(size);
    CHECK(block);
    block[0] = 3;
    for (int step = 0; step < 400; step++) {
        size_t next = step % 7 == 6 ? size / 3 + 1 : size + size / 8 + 1;
        block = realloc(block, next);
        CHECK(block && (uintptr_t)block % (next < 16 ? small_align : 16) == 0);
        check_filled(block, next < size ? next : size, 3);
        check_fill(block, next, 3);
        size = next;
    }
    free(block);
    block = memalign(4096, 100);
    CHECK(block);
    check_fill(block, 100, 9);
    block = realloc(block, 1 << 20);
    CHECK(block);
    check_filled(block, 100, 9);
    free(block);
    puts("realloc: contents kept");
}

static void test_reallocarray(void)
{
    SHOW(reallocarray(NULL, hide(10), hide(10)), 100, 16);
    SHOW(reallocarray(malloc(10), hide(1000), hide(10)), 10000, 16);
    SHOW(reallocarray(NULL, hide(SIZE_MAX / 4), hide(5)), 0, 1);
    SHOW(reallocarray(NULL, hide(0), hide(5)), 0, 16);
    printf("reallocarray(block, 0, 5): %s\n",
           reallocarray(malloc(10), hide(0), 5) ? "a block" : "NULL");
}

/* ---- giving back, and questions ------------------------------------------------------------ */

static void test_free(void)
{
    static const size_t sizes[] = {1, 100, 5000, 200000, (size_t)5 << 20, (size_t)64 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        void *block = malloc(sizes[i]);
        void *aligned = memalign(8192, sizes[i]);
        CHECK(block && aligned);
        errno = 77;
        free(block);
        free(aligned);
        CHECK(errno == 77);
    }
    free(NULL);
    CHECK(errno == 77);
    puts("free: errno kept");
}

static void test_questions(void)
{
    CHECK(malloc_usable_size(NULL) == 0);
    int trimmed = malloc_trim(0);
    CHECK(trimmed == 0 || trimmed == 1);
    void *block = malloc((size_t)8 << 20);
    CHECK(block);
    check_fill(block, (size_t)8 << 20, 1);
    struct mallinfo2 info = mallinfo2();
    bool has_figures = info.arena || small_align == 16; /* mimalloc has none */
    CHECK(!has_figures || info.uordblks + info.hblkhd >= (size_t)8 << 20);
    CHECK(info.uordblks + info.hblkhd <= (size_t)1 << 40);
    free(block);
    puts("questions: answered");
    malloc_stats();
}

int main(int argc, char **argv)
{
    small_align = argc > 1 ? strtoul(argv[1], NULL, 10) : small_align;
    test_malloc();
    test_calloc();
    test_alignments();
    test_memalign();
    test_posix_memalign();
    test_pages();
    test_realloc();
    test_realloc_failing();
    test_realloc_contents();
    test_reallocarray();
    test_free();
    test_questions();
    return 0;
}
