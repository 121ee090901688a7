/* SPDX-License-Identifier: MIT
 *
 * Limits on addresses, which must be set before the program starts: it sets them and executes
 * itself again, so it is a plain program. Its argument is one of these.
 *
 *   rlimit    ulimit -v: jemalloc serves up to the limit and knows its blocks
 *   none      GPUALLOC_RESERVE=0: as above, without a span of addresses
 *   short     GPUALLOC_RESERVE=64M: a span that soon runs out
 *   wrong     GPUALLOC_RESERVE=lots: one line, and a span like any other
 *   while     ulimit -v set during the run, with a jemalloc heap open: it still works
 */
#include <gpualloc/backend.h>

#include "runtime/registry.h"
#include "support/sanitized.h"

#include <err.h>
#include <platform/pages.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    SKIP = 77
};

static void need(bool holds, const char *what)
{
    if (!holds) {
        errx(1, "%s (last error: %s)", what, ga_error_text());
    }
}

static void limit_addresses(void)
{
    struct rlimit limit = {(size_t)4 << 30, (size_t)4 << 30};
    need(setrlimit(RLIMIT_AS, &limit) == 0, "setrlimit");
}

/* ---- jemalloc with any addresses ---------------------------------------------------------- */

static char *take(ga_heap *heap, size_t size)
{
    char *block;
    need(ga_alloc(heap, size, 0, (void **)&block) == GA_OK, "ga_alloc");
    memset(block, 1, size);
    need(ga_owns(heap, block), "owns the start of its block");
    need(ga_owns(heap, block + size - 1), "owns the end of its block");
    return block;
}

static void use_jemalloc(void)
{
    static const size_t sizes[] = {1, 100, 5000, 100000, 3 << 20, 100 << 20};
    enum {
        SIZES = sizeof sizes / sizeof *sizes
    };
    char *blocks[SIZES];
    ga_heap *heap;
    int local = 0;
    void *libc = malloc(100);
    need(ga_heap_open(&heap, GA_PLACE_HOST, 0, "jemalloc") == GA_OK, "ga_heap_open");
    for (size_t i = 0; i < SIZES; i++) {
        blocks[i] = take(heap, sizes[i]);
    }
    need(!ga_owns(heap, &local) && !ga_owns(heap, libc), "foreign pointers are foreign");
    need(ga_free(heap, libc) == GA_ERR_POINTER, "and are not taken");
    for (size_t i = 0; i < SIZES; i++) {
        need(ga_free(heap, blocks[i]) == GA_OK, "ga_free");
    }
    free(libc);
    need(ga_heap_close(heap) == GA_OK, "ga_heap_close");
}

static void use_up_limit(void)
{
    ga_heap *heap;
    void *out;
    need(ga_heap_open(&heap, GA_PLACE_HOST, 0, "jemalloc") == GA_OK, "ga_heap_open");
    need(ga_alloc(heap, (size_t)8 << 30, 0, &out) == GA_ERR_MEMORY, "8 GiB, over the limit");
    need(ga_free(heap, take(heap, 100)) == GA_OK, "goes on");
    need(ga_heap_close(heap) == GA_OK, "ga_heap_close");
}

static bool lies_in(const char *pointer, uintptr_t base, size_t span)
{
    return (uintptr_t)pointer - base < span;
}

/* Memory beyond the span comes from elsewhere, and its ownership is known page by page. */
static void go_past(uintptr_t base, size_t span)
{
    const int prot = PROT_READ | PROT_WRITE;
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    const size_t size = 2 * span;
    char *start = ga_pages_mmap(NULL, size, prot, flags, -1, 0);
    need(start != MAP_FAILED && !lies_in(start, base, span), "a mapping past the span");
    start[0] = start[size - 1] = 1;
    need(ga_pages_owns(start) && ga_pages_owns(start + size - 1), "is known from end to end");
    need(ga_pages_munmap(start, size) == 0, "munmap");
    char *page = ga_pages_mmap(NULL, 4096, prot, flags, -1, 0);
    need(lies_in(page, base, span), "what fits is still in the span");
    need(ga_pages_munmap(page, 4096) == 0, "munmap");
}

/* The second time around, with the limits in force. */
static void check(const char *what)
{
    uintptr_t base;
    size_t span;
    use_jemalloc();
    ga_pages_span(&base, &span);
    if (strcmp(what, "short") == 0) {
        need(span == (size_t)64 << 20, "a span as short as asked for");
        go_past(base, span);
    } else if (strcmp(what, "none") == 0) {
        need(span == 0, "no span");
    } else {
        need(span >= (size_t)16 << 30, "a span like any other");
    }
    if (strcmp(what, "rlimit") == 0) {
        use_up_limit();
    }
}

/* ---- the limits ---------------------------------------------------------------------------- */

static void *nothing(void *unused)
{
    return unused;
}

static void go_on(void)
{
    ga_heap *heap;
    pthread_t thread;
    need(ga_heap_open(&heap, GA_PLACE_HOST, 0, "jemalloc") == GA_OK, "ga_heap_open");
    char *before = take(heap, 100);
    limit_addresses();
    void *block = malloc(1 << 20);
    need(block != NULL, "malloc under a limit");
    free(block);
    need(pthread_create(&thread, NULL, nothing, NULL) == 0, "a thread under a limit");
    pthread_join(thread, NULL);
    char *after = take(heap, 64 << 20);
    need(ga_free(heap, before) == GA_OK && ga_free(heap, after) == GA_OK, "ga_free");
    need(ga_heap_close(heap) == GA_OK, "ga_heap_close");
}

static void start_anew(const char *program, const char *what)
{
    if (strcmp(what, "rlimit") == 0) {
        unsetenv("GPUALLOC_RESERVE");
        limit_addresses();
    } else {
        const char *size = strcmp(what, "none") == 0    ? "0"
                           : strcmp(what, "short") == 0 ? "64M"
                                                        : "lots";
        setenv("GPUALLOC_RESERVE", size, 1);
    }
    execl("/proc/self/exe", program, what, "again", (char *)NULL);
    err(1, "cannot start anew");
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "rlimit";
    if (UNDER_ASAN || UNDER_TSAN || !ga_registry_find("jemalloc")) {
        puts("skipped: needs jemalloc, and no sanitizer");
        return SKIP;
    }
    if (strcmp(what, "while") == 0) {
        go_on();
    } else if (argc < 3) {
        start_anew(argv[0], what);
    } else {
        check(what);
    }
    return 0;
}
