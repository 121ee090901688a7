/* SPDX-License-Identifier: MIT
 *
 * For test_privileged.py: allocates. Linked with the archive, by malloc(); with GA_LIBRARY and
 * linked with libgpualloc, from the heap of the place that argv[1] names, as the environment says.
 */
#include <stdio.h>
#include <stdlib.h>

#ifdef GA_LIBRARY
#include <gpualloc/gpualloc.h>
#include <string.h>

int main(int argc, char **argv)
{
    const char *named = argc > 1 ? argv[1] : "host";
    ga_place place = strcmp(named, "device") == 0   ? GA_PLACE_DEVICE
                     : strcmp(named, "kernel") == 0 ? GA_PLACE_KERNEL
                                                    : GA_PLACE_HOST;
    ga_heap *heap;
    void *block;
    if (ga_heap_open(&heap, place, 0, NULL) != GA_OK) {
        puts(ga_error_text());
        return 1;
    }
    ga_alloc(heap, 100, 0, &block);
    ga_free(heap, block);
    ga_heap_close(heap);
    puts("done");
    return 0;
}
#else
int main(void)
{
    void *volatile block = malloc(100);
    free(block);
    puts("done");
    return 0;
}
#endif
