/* SPDX-License-Identifier: MIT
 *
 * The smallest program there is to install for: C and C++ alike. Prints the version that runs, and
 * what it was compiled against.
 *
 * usage: tiny SPEC
 */
#include <gpualloc/backend.h>
#include <gpualloc/gpualloc.h>

#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    ga_heap *heap;
    void *block;
    if (argc != 2 || ga_heap_open(&heap, GA_PLACE_HOST, 0, argv[1]) != GA_OK ||
        ga_alloc(heap, 1000, 0, &block) != GA_OK) {
        fprintf(stderr, "tiny: %s\n", ga_error_text());
        return 1;
    }
    memset(block, 1, 1000);
    if (ga_free(heap, block) != GA_OK || ga_heap_close(heap) != GA_OK || !ga_backend_at(0)) {
        fprintf(stderr, "tiny: %s\n", ga_error_text());
        return 1;
    }
    printf("%s %d.%d.%d\n", ga_version_text(), GA_VERSION_MAJOR, GA_VERSION_MINOR,
           GA_VERSION_PATCH);
    return 0;
}
