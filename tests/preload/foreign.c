/* SPDX-License-Identifier: MIT
 *
 * Blocks that never came from the preload: from the C library by its own name, as for all blocks
 * that were allocated before, and from a second C library. They are passed on, never lost.
 *
 *   foreign [apart|unasked]
 *       `apart`: all blocks of the second C library are freed by its own free()
 *       `unasked`: as `apart`, and no call queries them. A malloc library that serves directly
 *       takes each block outside of the program break for its own.
 *
 * Without either, half of them are freed by the first one's free(), as programs do by mistake.
 * glibc puts a small block into a list of its size, regardless of its owner, and hands it out
 * again. That works until glibc joins its free blocks, which a request above 1 KiB makes it do: the
 * neighbours belong to the second one, and a later free ends the program. This happens in any
 * program, also without a preload; a preload whose records are blocks of the first C library, of
 * many sizes, makes it likely.
 */
#include "check.h"

#include <dlfcn.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

extern void *__libc_malloc(size_t size);
extern void *__libc_memalign(size_t align, size_t size);

static const size_t sizes[] = {0, 1, 24, 100, 5000, 200000, (size_t)3 << 20};

static void test_free(void)
{
    for (int round = 0; round < 700; round++) {
        size_t size = sizes[round % 7];
        void *block = round % 2 ? __libc_malloc(size) : __libc_memalign(256, size);
        void *own = malloc(size);
        CHECK(block && own);
        check_fill(block, size, 1);
        check_fill(own, size, 2);
        CHECK(malloc_usable_size(block) >= size && malloc_usable_size(own) >= size);
        check_filled(block, size, 1);
        free(block);
        check_filled(own, size, 2);
        free(own);
    }
    puts("free: passed on");
}

static void test_realloc(void)
{
    for (int round = 0; round < 210; round++) {
        size_t size = sizes[round % 7];
        unsigned char *block = __libc_malloc(size);
        CHECK(block);
        check_fill(block, size, 3);
        block = realloc(block, size * 2 + 1);
        CHECK(block);
        check_filled(block, size, 3);
        block = realloc(block, size / 2 + 1);
        CHECK(block);
        check_filled(block, size < size / 2 + 1 ? size : size / 2 + 1, 3);
        CHECK(round % 2 == 0 || !realloc(block, 0));
        if (round % 2 == 0) {
            free(block);
        }
    }
    unsigned char *block = __libc_malloc(100);
    CHECK(block);
    check_fill(block, 100, 4);
    errno = 0;
    CHECK(!realloc(block, PTRDIFF_MAX) && errno == ENOMEM);
    check_filled(block, 100, 4);
    free(block);
    puts("realloc: passed on");
}

/* The second C library's blocks are freed to it, beside the preload's. */
static void test_second_libc(bool apart, bool asked)
{
    void *second = dlmopen(LM_ID_NEWLM, "libc.so.6", RTLD_NOW);
    CHECK(second);
    char *(*duplicate)(const char *);
    void (*release)(void *);
    *(void **)&duplicate = dlsym(second, "strdup");
    *(void **)&release = dlsym(second, "free");
    CHECK(duplicate && release);
    for (int round = 0; round < 1000; round++) {
        char *text = duplicate("of the second library");
        char *own = strdup("of the first");
        CHECK(text && own && strcmp(text, "of the second library") == 0);
        CHECK(!asked || malloc_usable_size(text) >= strlen(text));
        free(own);
        if (apart || round % 2) {
            release(text);
        } else {
            free(text); /* small: a C library takes it for its own */
        }
    }
    dlclose(second);
    puts("second C library: passed on");
}

int main(int argc, char **argv)
{
    test_free();
    test_realloc();
    test_second_libc(argc > 1, argc == 1 || strcmp(argv[1], "apart") == 0);
    return 0;
}
