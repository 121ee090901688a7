/* SPDX-License-Identifier: MIT
 *
 *   CLOSED --first call--> OPENING --heap open, table set--> OPEN, forever
 *
 * STRUCTURE  one heap for the life of the process. It is never closed, so that destructors and
 *            threads that end late are served, too
 * INVARIANT  a block is the heap's or the C library's: allocated before OPEN, or without the
 *            preload
 * ORDER      MS1/MS2 publish the heap. The opening thread writes the table before OPEN. No second
 *            thread can exist before a call to malloc, which pthread_create makes, has returned.
 * PROGRESS   a call made while the heap is being opened is served by the C library and never waits
 */
#include "served.h"

#include "../../liballoc/platform/environment.h"
#include "../../liballoc/platform/forks.h"
#include "../../liballoc/platform/log.h"
#include "../../liballoc/platform/misuse.h"
#include "../../liballoc/runtime/report.h"
#include "counted.h"
#include "libc_next.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    CLOSED = 0,
    OPENING,
    OPEN
};

static int state;
static ga_heap *heap; /* set once, before OPEN */

/* ---- until the heap is open: open it, or go past it ---------------------------------------- */

static void *first_malloc(size_t size)
{
    return ga_served_start() ? ga_served.malloc(size) : ga_libc.malloc(size);
}

static void *first_calloc(size_t count, size_t size)
{
    return ga_served_start() ? ga_served.calloc(count, size) : ga_libc.calloc(count, size);
}

static void *first_realloc(void *block, size_t size)
{
    return ga_libc.realloc(block, size); /* every block so far is the C library's */
}

static void *first_memalign(size_t align, size_t size)
{
    return ga_served_start() ? ga_served.memalign(align, size) : ga_libc.memalign(align, size);
}

static void first_free(void *block)
{
    ga_libc.free(block);
}

static size_t first_usable_size(void *block)
{
    (void)block;
    return 0;
}

ga_malloc_table ga_served = {
    .malloc = first_malloc,
    .free = first_free,
    .calloc = first_calloc,
    .realloc = first_realloc,
    .memalign = first_memalign,
    .usable_size = first_usable_size,
};

/* ---- a heap that has no malloc-shaped table: through the interface -------------------------- */

static void *out_of_memory(void)
{
    errno = ENOMEM;
    return NULL;
}

static void report_refused(ga_status status, const char *call, const void *block)
{
    if (__builtin_expect(status == GA_ERR_POINTER, 0)) {
        ga_misuse_report(call, block, ga_error_text());
    }
}

static void *heap_malloc(size_t size)
{
    void *block;
    return ga_alloc(heap, size, 0, &block) == GA_OK ? block : out_of_memory();
}

static void *heap_calloc(size_t count, size_t size)
{
    void *block;
    size_t bytes;
    bool fits = !__builtin_mul_overflow(count, size, &bytes);
    return fits && ga_alloc_zeroed(heap, bytes, 0, &block) == GA_OK ? block : out_of_memory();
}

static void *heap_realloc(void *block, size_t size)
{
    void *moved;
    ga_status status = ga_realloc(heap, block, size, 0, &moved);
    report_refused(status, "realloc", block);
    return status == GA_OK ? moved : out_of_memory();
}

static void *heap_memalign(size_t align, size_t size)
{
    void *block;
    return ga_alloc(heap, size, align, &block) == GA_OK ? block : out_of_memory();
}

static void heap_free(void *block)
{
    int saved = errno;
    report_refused(ga_free(heap, block), "free", block);
    errno = saved;
}

static size_t heap_usable_size(void *block)
{
    return ga_usable_size(heap, block);
}

static const ga_malloc_table through_heap = {
    .malloc = heap_malloc,
    .free = heap_free,
    .calloc = heap_calloc,
    .realloc = heap_realloc,
    .memalign = heap_memalign,
    .usable_size = heap_usable_size,
};

/* ---- opening ------------------------------------------------------------------------------ */

/* On a bad setting, log one line; with GPUALLOC_STRICT=1, exit with status 2. */
static void open_heap(void)
{
    if (ga_heap_open(&heap, GA_PLACE_HOST, 0, NULL) == GA_OK) {
        return;
    }
    if (ga_is_strict()) {
        ga_log(GA_LOG_ERROR, "%s", ga_error_text());
        _exit(2);
    }
    ga_log(GA_LOG_ERROR, "%s; going on with the system allocator", ga_error_text());
    if (ga_heap_open(&heap, GA_PLACE_HOST, 0, "system") != GA_OK) {
        ga_log(GA_LOG_ERROR, "%s", ga_error_text());
        _exit(2);
    }
}

/* Use the backend's own table, with counting where statistics are requested; if it has none, go
 * through the heap interface. */
static void set_table(void)
{
    const ga_backend *backend = heap->backend;
    const ga_malloc_table *own = backend->malloc_table ? backend->malloc_table(heap->state) : NULL;
    heap->bypassed = own && !ga_report_wanted();
    ga_served = heap->bypassed ? *own : own ? ga_counted_table(heap, own) : through_heap;
}

bool ga_served_start(void)
{
    int expected = CLOSED;
    if (!environ) { /* linked from the archive: calls into libraries may not be bound yet */
        return false;
    }
    ga_forks_register(); /* before all else: see platform/forks.h */
    /* relaxed: only elects the thread that opens; MS1/MS2 publish what it did */
    if (!__atomic_compare_exchange_n(&state, &expected, OPENING, false, __ATOMIC_RELAXED,
                                     __ATOMIC_RELAXED)) {
        /* MS2: acquire. Pairs with MS1. */
        return __atomic_load_n(&state, __ATOMIC_ACQUIRE) == OPEN;
    }
    int saved = errno;
    ga_libc_find();
    open_heap();
    set_table();
    /* MS1: release. Pairs with MS2: the heap and the table are seen with OPEN. */
    __atomic_store_n(&state, OPEN, __ATOMIC_RELEASE);
    errno = saved;
    return true;
}

ga_heap *ga_served_heap(void)
{
    /* MS2: acquire. Pairs with MS1. */
    return __atomic_load_n(&state, __ATOMIC_ACQUIRE) == OPEN ? heap : NULL;
}

bool ga_served_owns(const void *block)
{
    ga_heap *open = ga_served_heap();
    return open && ga_owns(open, block);
}

/* A library that is loaded before the C library is initialised, as that of `dl`, initialises it
 * without the program's arguments. The C library then does not know the program's name. */
static void name_program(char **argv)
{
    if (argv && argv[0] && !*program_invocation_name) {
        char *slash = strrchr(argv[0], '/');
        program_invocation_name = argv[0];
        program_invocation_short_name = slash ? slash + 1 : argv[0];
    }
}

/* Runs even if the program never allocates, so that its setting is checked, and registers fork
 * handlers before any library does. The preload is linked with -z initfirst: this runs before all
 * other constructors, even the C library's, which sets `environ` to the same value. */
__attribute__((constructor)) static void start_at_load(int argc, char **argv, char **variables)
{
    (void)argc;
    if (!environ) {
        environ = variables;
    }
    ga_served_start();
    name_program(argv);
    const char *before = ga_malloc_before();
    if (before) {
        ga_log(GA_LOG_INFO, "malloc of \"%s\" comes before gpualloc's", before);
    }
}
