/* SPDX-License-Identifier: MIT
 *
 * A heap from a spec: open it, use it, read its errors, and print its statistics.
 *
 *   cc heap.c $(pkg-config --cflags --libs gpualloc) -o heap
 *   ./heap jemalloc                   a spec of one's own choice
 *   GPUALLOC_HOST=jemalloc ./heap     or none, and the environment decides
 */
#include <gpualloc/gpualloc.h>
#include <stdio.h>
#include <string.h>

static int complain(const char *what, ga_status status)
{
    fprintf(stderr, "heap: %s: %s: %s\n", what, ga_status_text(status), ga_error_text());
    return 1;
}

/* Fills a block with lines, and makes it larger when it is full; ga_realloc() may move it. */
static ga_status fill(ga_heap *heap, char **text)
{
    size_t used = 0;
    ga_status status = ga_alloc(heap, 16, 0, (void **)text);
    for (int line = 1; status == GA_OK && line <= 1000; line++) {
        if (used + 16 > ga_usable_size(heap, *text)) {
            status = ga_realloc(heap, *text, 2 * used + 16, 0, (void **)text);
        }
        if (status == GA_OK) {
            used += (size_t)sprintf(*text + used, "line %d\n", line);
        }
    }
    return status;
}

/* A request that cannot be served changes nothing; the status and the error text say why. */
static void ask_for_too_much(ga_heap *heap)
{
    void *block;
    ga_status status = ga_alloc(heap, SIZE_MAX, 0, &block);
    printf("asked for too much: %s\n", ga_status_text(status));
    status = ga_alloc(heap, 100, 24, &block);
    printf("asked for a bad alignment: %s\n", ga_error_text());
}

static int work(ga_heap *heap)
{
    char *text = NULL;
    void *table[3] = {NULL};
    const size_t sizes[3] = {64, 4096, 1 << 20};
    ga_status status = fill(heap, &text);
    if (status != GA_OK) {
        return complain("filling", status);
    }
    printf("wrote %zu bytes\n", strlen(text));
    status = ga_alloc_batch(heap, 3, sizes, table); /* all three or none */
    if (status != GA_OK) {
        return complain("a batch", status);
    }
    for (int i = 0; i < 3; i++) {
        memset(table[i], i, sizes[i]);
        ga_free(heap, table[i]);
    }
    ask_for_too_much(heap);
    ga_free(heap, text);
    return 0;
}

int main(int argc, char **argv)
{
    ga_heap *heap;
    char report[4096];
    ga_status status = ga_heap_open(&heap, GA_PLACE_HOST, 0, argc > 1 ? argv[1] : NULL);
    if (status != GA_OK) {
        return complain("opening", status);
    }
    int result = work(heap);
    ga_heap_stats_text(heap, report, sizeof report);
    fputs(report, stdout);
    ga_heap_close(heap);
    return result;
}
