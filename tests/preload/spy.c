/* SPDX-License-Identifier: MIT
 *
 * For test_privileged.py: an allocator that reports that it is loaded, as an attacker's library
 * would act when it is loaded.
 */
#include <stddef.h>
#include <unistd.h>

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *block, size_t size);
extern void *__libc_memalign(size_t align, size_t size);
extern void __libc_free(void *block);

void *malloc(size_t size);
void *calloc(size_t count, size_t size);
void *realloc(void *block, size_t size);
void *memalign(size_t align, size_t size);
void free(void *block);

__attribute__((constructor)) static void report(void)
{
    static const char line[] = "spy: loaded\n";
    ssize_t written = write(STDERR_FILENO, line, sizeof line - 1);
    (void)written;
}

void *malloc(size_t size)
{
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    return __libc_calloc(count, size);
}

void *realloc(void *block, size_t size)
{
    return __libc_realloc(block, size);
}

void *memalign(size_t align, size_t size)
{
    return __libc_memalign(align, size);
}

void free(void *block)
{
    __libc_free(block);
}
