/* SPDX-License-Identifier: MIT
 *
 * A heap of the library with call stacks, in a file that the argument names: for test_stacks.py.
 */
#include <gpualloc/gpualloc.h>

#include <stdio.h>

static void *volatile kept;
static volatile int after;

__attribute__((noinline, noclone)) static void use_heap(ga_heap *heap)
{
    void *block = NULL;
    if (ga_alloc(heap, 640, 0, &block) == GA_OK) { /* line: use_heap */
        kept = block;
    }
    after = 1;
}

int main(int argc, char **argv)
{
    ga_heap *heap;
    char spec[4200];
    snprintf(spec, sizeof spec, "trace:file=\"%s\",stacks=8/system", argc > 1 ? argv[1] : "");
    if (ga_heap_open(&heap, GA_PLACE_HOST, 0, spec) != GA_OK) {
        fprintf(stderr, "%s\n", ga_error_text());
        return 1;
    }
    use_heap(heap);
    /* The block stays: the heap is closed by the process's end. */
    return 0;
}
