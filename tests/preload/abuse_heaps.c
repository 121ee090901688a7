/* SPDX-License-Identifier: MIT
 *
 * Frees a block of another heap by ga_free(), and checks for harm:
 *
 *   abuse_heaps SPEC
 *
 * The output is as for abuse.c. If ga_free() refuses, standard error has its sentence.
 */
#include "check.h"

#include <gpualloc/gpualloc.h>

#include <stdint.h>

enum {
    BLOCKS = 64,
    SIZE = 64
};

static void *blocks[2 * BLOCKS];

static void open_heap(ga_heap **out, const char *spec)
{
    if (ga_heap_open(out, GA_PLACE_HOST, 0, spec) != GA_OK) {
        fprintf(stderr, "%s\n", ga_error_text());
        _exit(2);
    }
}

static void allocate(ga_heap *heap, int first)
{
    for (int i = first; i < first + BLOCKS; i++) {
        CHECK(ga_alloc(heap, SIZE, 0, &blocks[i]) == GA_OK);
    }
}

/* The freed block is live: neither heap may hand it out. */
static const char *find_two_owners(void *live)
{
    for (int i = 0; i < 2 * BLOCKS; i++) {
        if (blocks[i] == live) {
            return "two owners";
        }
        for (int j = 0; j < i; j++) {
            if (blocks[i] == blocks[j]) {
                return "two owners";
            }
        }
    }
    return "none";
}

int main(int argc, char **argv)
{
    ga_heap *heap, *other;
    void *block;
    CHECK(argc == 2);
    open_heap(&heap, argv[1]);
    open_heap(&other, "vmm");
    CHECK(ga_alloc(heap, SIZE, 0, &block) == GA_OK);
    CHECK(ga_alloc(other, SIZE, 0, &block) == GA_OK);
    if (ga_free(heap, block) != GA_OK) {
        fprintf(stderr, "gpualloc: %s\n", ga_error_text());
    }
    allocate(heap, 0);
    allocate(other, BLOCKS);
    puts(find_two_owners(block));
    return 0;
}
