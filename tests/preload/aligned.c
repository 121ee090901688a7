/* SPDX-License-Identifier: MIT
 *
 * The functions that return aligned blocks, over the malloc of another library.
 *
 * usage: aligned             prints the libraries that define malloc and memalign
 *        aligned exhausted   requests blocks until memory is exhausted, under a limit of its own
 *        aligned load FILE   loads a library and calls its function `forms_of_new`
 */
#include "check.h"

#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum {
    SMALLEST = 8,
    LARGEST = 1 << 16, /* alignment */
    BLOCKS = 8,
    THREADS = 16,
    PAGE = 4096
};

static volatile size_t opaque;

static size_t hide(size_t value)
{
    opaque = value;
    return opaque;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static void *by_posix_memalign(size_t align, size_t size)
{
    void *block = NULL;
    CHECK(posix_memalign(&block, align, size) == 0);
    return block;
}

static void *by_valloc(size_t align, size_t size)
{
    (void)align;
    return valloc(size);
}

static void *by_pvalloc(size_t align, size_t size)
{
    (void)align;
    void *block = pvalloc(size);
    CHECK(malloc_usable_size(block) >= (size + PAGE - 1) / PAGE * PAGE);
    return block;
}

static const struct {
    void *(*allocate)(size_t align, size_t size);
    size_t first, last;
} functions[] = {
    {memalign, SMALLEST, LARGEST},
    {aligned_alloc, SMALLEST, LARGEST},
    {by_posix_memalign, SMALLEST, LARGEST},
    {by_valloc, PAGE, PAGE},
    {by_pvalloc, PAGE, PAGE},
};

/* Several at a time: the first may be aligned by chance. One moves, all are freed. */
static void test_blocks(void *(*allocate)(size_t align, size_t size), size_t align, size_t size)
{
    char *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) {
        blocks[i] = allocate(align, size);
        CHECK(blocks[i] && (uintptr_t)blocks[i] % align == 0);
        CHECK(malloc_usable_size(blocks[i]) >= size);
        check_fill(blocks[i], size, i);
    }
    for (int i = 0; i < BLOCKS; i++) {
        check_filled(blocks[i], size, i);
    }
    blocks[0] = realloc(blocks[0], size * 3 + 1);
    CHECK(blocks[0]);
    check_filled(blocks[0], size, 0);
    for (int i = 0; i < BLOCKS; i++) {
        free(blocks[i]);
    }
}

static void test_functions(void)
{
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        for (size_t align = functions[i].first; align <= functions[i].last; align *= 2) {
            test_blocks(functions[i].allocate, align, 0);
            for (size_t size = 1; size <= (size_t)1 << 18; size *= 4) {
                test_blocks(functions[i].allocate, align, size);
                test_blocks(functions[i].allocate, align, size + 1);
                test_blocks(functions[i].allocate, align, 2 * size);
            }
        }
    }
}

static void *test_in_thread(void *unused)
{
    for (size_t align = 16; align <= PAGE; align *= 2) {
        test_blocks(memalign, align, align);
        test_blocks(by_posix_memalign, align, 2 * align);
    }
    return unused;
}

static void test_threads(void)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, test_in_thread, NULL) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
}

static void test_forked_child(void)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        test_in_thread(NULL);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* ---- errors ---------------------------------------------------------------------------------- */

static void test_refused(void *block, int error)
{
    CHECK(!block && errno == error);
    errno = 0;
}

static void test_bad_alignments(void)
{
    static const size_t bad[] = {0, 3, 24, 4097, SIZE_MAX};
    void *block = (void *)&opaque;
    errno = 0;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        test_refused(aligned_alloc(hide(bad[i]), 64), EINVAL);
        CHECK(posix_memalign(&block, hide(bad[i]), 64) == EINVAL);
    }
    CHECK(posix_memalign(&block, hide(4), 64) == EINVAL);
    CHECK(errno == 0 && block == (void *)&opaque);
    test_refused(memalign(hide(SIZE_MAX), 64), EINVAL);
    test_refused(memalign(hide(SIZE_MAX / 2 + 1), 64), ENOMEM);
    test_blocks(memalign, 4, 64); /* rounded up */
    block = memalign(hide(48), 64);
    CHECK(block && (uintptr_t)block % 64 == 0);
    free(block);
    block = memalign(hide(0), 64);
    CHECK(block);
    free(block);
}

static void test_huge_sizes(void)
{
    static const size_t huge[] = {SIZE_MAX, SIZE_MAX - 4094, SIZE_MAX / 2 + 1, SIZE_MAX / 2,
                                  SIZE_MAX / 2 - PAGE};
    void *block = (void *)&opaque;
    errno = 0;
    for (size_t i = 0; i < sizeof huge / sizeof *huge; i++) {
        test_refused(memalign(64, hide(huge[i])), ENOMEM);
        test_refused(aligned_alloc(64, hide(huge[i])), ENOMEM);
        test_refused(valloc(hide(huge[i])), ENOMEM);
        test_refused(pvalloc(hide(huge[i])), ENOMEM);
        errno = 55;
        CHECK(posix_memalign(&block, 64, hide(huge[i])) == ENOMEM);
        CHECK(errno == 55 && block == (void *)&opaque);
    }
}

/* ---- exhausted memory ------------------------------------------------------------------------ */

static size_t exhaust(void *(*allocate)(size_t align, size_t size), size_t size, void **last)
{
    size_t count = 0;
    for (;; count++) {
        void **block = allocate(64, size);
        if (!block) {
            return count;
        }
        CHECK((uintptr_t)block % 64 == 0);
        *block = *last;
        *last = block;
    }
}

/* Twice: the second time, the memory of the first is there again. */
static void test_exhausted(void)
{
    struct rlimit limit = {(rlim_t)3 << 30, (rlim_t)3 << 30};
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    for (int round = 0; round < 2; round++) {
        void *last = NULL;
        void *block = (void *)&opaque;
        errno = 0;
        CHECK(exhaust(memalign, (size_t)1 << 20, &last) >= 100 && errno == ENOMEM);
        exhaust(aligned_alloc, 1 << 16, &last);
        errno = 55;
        CHECK(posix_memalign(&block, 64, (size_t)1 << 30) == ENOMEM);
        CHECK(errno == 55 && block == (void *)&opaque);
        while (last) {
            block = last;
            last = *(void **)block;
            free(block);
        }
    }
}

/* ---- libraries ------------------------------------------------------------------------------- */

static void load(const char *file)
{
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    void (*forms_of_new)(void) = NULL;
    CHECK(library);
    *(void **)&forms_of_new = dlsym(library, "forms_of_new");
    CHECK(forms_of_new);
    forms_of_new();
}

static const char *library_of(void *function)
{
    Dl_info info;
    CHECK(dladdr(function, &info));
    return info.dli_fname;
}

int main(int argc, char **argv)
{
    if (argc == 3) {
        load(argv[2]);
        return 0;
    }
    if (argc == 2) {
        test_exhausted();
        puts("exhausted");
        return 0;
    }
    printf("malloc %s\nmemalign %s\n", library_of((void *)(size_t)malloc),
           library_of((void *)(size_t)memalign));
    test_functions();
    test_threads();
    test_forked_child();
    test_bad_alignments();
    test_huge_sizes();
    return 0;
}
