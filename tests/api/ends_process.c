/* SPDX-License-Identifier: MIT
 *
 * A malloc library whose constructor ends the process, as a sanitizer's does.
 */
#include <stdlib.h>
#include <unistd.h>

__attribute__((visibility("default"))) void *malloc(size_t size)
{
    (void)size;
    return NULL;
}

__attribute__((visibility("default"))) void free(void *block)
{
    (void)block;
}

__attribute__((visibility("default"))) void *calloc(size_t count, size_t size)
{
    (void)count;
    (void)size;
    return NULL;
}

__attribute__((visibility("default"))) void *realloc(void *block, size_t size)
{
    (void)block;
    (void)size;
    return NULL;
}

__attribute__((constructor)) static void end_process(void)
{
    _exit(3);
}
