/* SPDX-License-Identifier: MIT
 *
 * Says which library malloc and free come from, and how the block for 100 bytes is rounded: enough
 * to tell whether the preload serves, and with which allocator.
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
