/* SPDX-License-Identifier: MIT
 *
 * A program that uses libgpualloc itself and runs under the preload: two copies of the runtime,
 * each with its own jemalloc, and every block is freed to its own one.
 */
#include "check.h"

#include <gpualloc/gpualloc.h>
#include <malloc.h>
#include <stdlib.h>

enum {
    BLOCKS = 2000
};

static ga_heap *open_heap(const char *spec)
{
    ga_heap *heap;
    CHECK(ga_heap_open(&heap, GA_PLACE_HOST, 0, spec) == GA_OK);
    return heap;
}

/* The program's heap and the process's malloc alternately, in one list. */
static void test_side_by_side(ga_heap *heap)
{
    static void *mine[BLOCKS], *theirs[BLOCKS];
    for (size_t i = 0; i < BLOCKS; i++) {
        theirs[i] = malloc(i * 7 + 1);
        CHECK(theirs[i] && ga_alloc(heap, i * 7 + 1, 0, &mine[i]) == GA_OK);
        check_fill(theirs[i], i * 7 + 1, 1);
        check_fill(mine[i], i * 7 + 1, 2);
        CHECK(ga_owns(heap, mine[i]));
        CHECK(ga_usable_size(heap, mine[i]) > i * 7);
        CHECK(malloc_usable_size(theirs[i]) > i * 7);
    }
    for (size_t i = 0; i < BLOCKS; i++) {
        check_filled(theirs[i], i * 7 + 1, 1);
        check_filled(mine[i], i * 7 + 1, 2);
        free(theirs[i]);
        CHECK(ga_free(heap, mine[i]) == GA_OK);
    }
}

static void test_told_apart(ga_heap *heap)
{
    for (size_t size = 1; size < (size_t)16 << 20; size = size * 3 + 1) {
        void *theirs = malloc(size);
        CHECK(theirs && !ga_owns(heap, theirs) && ga_usable_size(heap, theirs) == 0);
        void *same = theirs;
        CHECK(ga_realloc(heap, theirs, 2 * size, 0, &same) == GA_ERR_POINTER && same == theirs);
        CHECK(ga_free(heap, theirs) == GA_ERR_POINTER && *ga_error_text());
        free(theirs);
    }
}

/* The program's `system` heap is the process's malloc, with any server of that. */
static void test_system(void)
{
    ga_heap *heap = open_heap("system");
    void *block, *other = malloc(100);
    CHECK(ga_alloc(heap, 100, 0, &block) == GA_OK && other);
    CHECK(malloc_usable_size(block) == malloc_usable_size(other));
    free(block);
    CHECK(ga_free(heap, other) == GA_OK);
    CHECK(ga_heap_close(heap) == GA_OK);
}

int main(void)
{
    ga_heap *heap = open_heap("jemalloc");
    test_side_by_side(heap);
    test_told_apart(heap);
    test_system();
    ga_stats stats;
    CHECK(ga_heap_stats(heap, &stats) == GA_OK);
    CHECK(stats.allocs == BLOCKS && stats.frees == BLOCKS && stats.live_bytes == 0);
    CHECK(ga_heap_close(heap) == GA_OK);
    puts("beside: told apart");
    return 0;
}
