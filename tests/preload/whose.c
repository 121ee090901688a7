/* SPDX-License-Identifier: MIT
 *
 * Prints the library that malloc and free come from, and the usable size of a block for 100 bytes:
 * this shows whether the preload serves, and with which allocator.
 */
#include "check.h"

#include <dlfcn.h>
#include <malloc.h>
#include <stdlib.h>

int main(void)
{
    Dl_info info;
    void *block = malloc(100);
    CHECK(block && dladdr((void *)(size_t)malloc, &info));
    printf("malloc %s\n", info.dli_fname);
    CHECK(dladdr((void *)(size_t)free, &info));
    printf("free %s\n", info.dli_fname);
    printf("usable %zu\n", malloc_usable_size(block));
    free(block);
    return 0;
}
