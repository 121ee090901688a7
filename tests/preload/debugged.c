/* SPDX-License-Identifier: MIT
 *
 * Every entry point of the malloc family, correctly used: for valgrind, which replaces some of them
 * and must see each allocation and free.
 */
#include "check.h"

#include <malloc.h>
#include <stdlib.h>

void free_sized(void *block, size_t size) __attribute__((weak));
void free_aligned_sized(void *block, size_t align, size_t size) __attribute__((weak));

static void use(void *block, size_t size)
{
    CHECK(block);
    memset(block, 1, size);
}

static void resize(void *block)
{
    use(block, 100);
    block = realloc(block, 5000);
    use(block, 5000);
    block = reallocarray(block, 10, 70);
    use(block, 700);
    free(block);
}

int main(void)
{
    void *block = NULL;
    resize(malloc(100));
    resize(calloc(10, 10));
    resize(realloc(NULL, 100));
    resize(reallocarray(NULL, 10, 10));
    resize(memalign(64, 100));
    resize(aligned_alloc(64, 128));
    resize(valloc(100));
    resize(pvalloc(100));
    CHECK(posix_memalign(&block, 64, 100) == 0);
    resize(block);
    CHECK(!realloc(malloc(10), 0));
    if (free_sized && free_aligned_sized) {
        free_sized(malloc(100), 100);
        free_aligned_sized(aligned_alloc(64, 128), 64, 128);
    }
    puts("debugged: used");
    return 0;
}
