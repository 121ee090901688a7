/* SPDX-License-Identifier: MIT
 *
 * The `jemalloc` backend: jemalloc 5.3 with renamed symbols (ga_je_*), so that the program's malloc
 * is not replaced. Its pages come from platform/pages.c, so that a block is recognised by its
 * address. All heaps are the same allocator; options hold for the process.
 */
#include "native.h"

#include "../../platform/pages.h"

#include <errno.h>
#include <inttypes.h>
#include <jemalloc.h>
#include <pthread.h>
#include <stdio.h>

enum {
    OPTION_DECAY = 0,
    OPTION_BACKGROUND
};

static ga_malloc_table table; /* set once, by the first open */

static ga_status set_failed(const char *name, int error)
{
    if (error == EAGAIN) { /* jemalloc's error for a failed allocation */
        return ga_fail(GA_ERR_MEMORY, "jemalloc: no memory to set %s", name);
    }
    return ga_fail(GA_ERR_SPEC, "jemalloc: %s: jemalloc refused the setting (error %d)", name,
                   error);
}

/* Set it for future arenas and for existing ones. */
static ga_status set_decay(int64_t milliseconds)
{
    ssize_t value = (ssize_t)milliseconds;
    int error = ga_je_mallctl("arenas.dirty_decay_ms", NULL, NULL, &value, sizeof value);
    unsigned arenas = 0;
    size_t length = sizeof arenas;
    if (!error) {
        error = ga_je_mallctl("arenas.narenas", &arenas, &length, NULL, 0);
    }
    for (unsigned i = 0; !error && i < arenas; i++) {
        char name[48];
        snprintf(name, sizeof name, "arena.%u.dirty_decay_ms", i);
        ga_je_mallctl(name, NULL, NULL, &value, sizeof value); /* refused for an arena that is not
                                                                * in use yet; ignored */
    }
    return error ? set_failed("decay", error) : GA_OK;
}

static ga_status set_background(bool on)
{
    int error = ga_je_mallctl("background_thread", NULL, NULL, &on, sizeof on);
    return error ? set_failed("background", error) : GA_OK;
}

static void fill_table(void)
{
    table = (ga_malloc_table){
        .malloc = ga_je_malloc,
        .free = ga_je_free,
        .calloc = ga_je_calloc,
        .realloc = ga_je_realloc,
        .memalign = ga_je_memalign,
        .usable_size = ga_je_malloc_usable_size,
    };
    ga_pages_span(&table.range_base, &table.range_size);
}

/* Initialise jemalloc. An initialisation that failed is not repeated: see
 * scripts/jemalloc.patch. */
static ga_status try_to_allocate(void)
{
    void *block = ga_je_malloc(1);
    if (!block) {
        return ga_fail(GA_ERR_MEMORY, "jemalloc: no memory for its first block");
    }
    ga_je_free(block);
    return GA_OK;
}

static ga_status jemalloc_open(const ga_open_args *args, void **state)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    *state = NULL;
    ga_status status = try_to_allocate();
    if (status != GA_OK) {
        return status;
    }
    pthread_once(&once, fill_table);
    status = set_decay(args->values[OPTION_DECAY].integer);
    if (status == GA_OK && args->values[OPTION_BACKGROUND].flag) {
        status = set_background(true);
    }
    return status;
}

static void jemalloc_close(void *state)
{
    (void)state;
}

static ga_status set_result(void *block, size_t size, void **out)
{
    *out = block;
    return block ? GA_OK : ga_fail(GA_ERR_MEMORY, "jemalloc: no memory for %zu bytes", size);
}

static ga_status jemalloc_alloc(void *state, size_t size, void **out)
{
    (void)state;
    return set_result(ga_je_malloc(size), size, out);
}

static ga_status jemalloc_alloc_zeroed(void *state, size_t size, void **out)
{
    (void)state;
    return set_result(ga_je_calloc(1, size), size, out);
}

static ga_status jemalloc_alloc_aligned(void *state, size_t size, size_t align, void **out)
{
    (void)state;
    return set_result(ga_je_memalign(align, size), size, out);
}

static ga_status jemalloc_realloc(void *state, void *block, size_t size, void **out)
{
    (void)state;
    return set_result(ga_je_realloc(block, size), size, out);
}

static ga_status jemalloc_grow(void *state, void *block, size_t size)
{
    (void)state;
    if (ga_je_xallocx(block, size, 0, 0) >= size) {
        return GA_OK;
    }
    return ga_fail(GA_ERR_CANNOT_GROW, "jemalloc: %p cannot grow to %zu bytes in place", block,
                   size);
}

static ga_status jemalloc_free(void *state, void *block)
{
    (void)state;
    if (!ga_pages_owns(block)) {
        return ga_fail(GA_ERR_POINTER, "jemalloc: %p is no block of jemalloc's", block);
    }
    ga_je_free(block);
    return GA_OK;
}

static bool jemalloc_owns(void *state, const void *pointer)
{
    (void)state;
    return ga_pages_owns(pointer);
}

static size_t jemalloc_usable_size(void *state, const void *block)
{
    (void)state;
    return ga_pages_owns(block) ? ga_je_malloc_usable_size((void *)block) : 0;
}

/* A purge frees all unused pages, so `keep` is ignored. */
static ga_status jemalloc_trim(void *state, size_t keep)
{
    (void)state;
    (void)keep;
    char name[48];
    snprintf(name, sizeof name, "arena.%d.purge", MALLCTL_ARENAS_ALL);
    ga_je_mallctl("thread.tcache.flush", NULL, NULL, NULL, 0);
    int error = ga_je_mallctl(name, NULL, NULL, NULL, 0);
    return error ? ga_fail(GA_ERR_UNSUPPORTED, "jemalloc: purge refused (error %d)", error) : GA_OK;
}

static uint64_t read_stat(const char *name)
{
    size_t value = 0;
    size_t length = sizeof value;
    return ga_je_mallctl(name, &value, &length, NULL, 0) == 0 ? value : 0;
}

static void jemalloc_stats(void *state, ga_backend_stats *out)
{
    (void)state;
    uint64_t epoch = 1;
    ga_je_mallctl("epoch", NULL, NULL, &epoch, sizeof epoch);
    *out = (ga_backend_stats){.live_bytes = read_stat("stats.allocated"),
                              .held_bytes = read_stat("stats.resident")};
}

static const ga_malloc_table *jemalloc_malloc_table(void *state)
{
    (void)state;
    return &table;
}

static const ga_option options[] = {
    [OPTION_DECAY] = {.name = "decay",
                      .type = GA_OPTION_INTEGER,
                      .fallback = "10000",
                      .help =
                          "milliseconds until unused pages are returned to the system; -1: never",
                      .min = -1,
                      .max = INT64_C(1) << 40},
    [OPTION_BACKGROUND] = {.name = "background",
                           .type = GA_OPTION_BOOL,
                           .fallback = "no",
                           .help = "return pages in a background thread of jemalloc"},
};

const ga_backend ga_jemalloc_backend = {
    .abi = GA_BACKEND_ABI,
    .size = sizeof(ga_backend),
    .name = "jemalloc",
    .help = "jemalloc 5.3, under names of its own",
    .places = GA_PLACE_BIT(GA_PLACE_HOST),
    .parent_rule = GA_PARENT_NONE,
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .open = jemalloc_open,
    .close = jemalloc_close,
    .alloc = jemalloc_alloc,
    .free = jemalloc_free,
    .owns = jemalloc_owns,
    .usable_size = jemalloc_usable_size,
    .realloc = jemalloc_realloc,
    .alloc_zeroed = jemalloc_alloc_zeroed,
    .alloc_aligned = jemalloc_alloc_aligned,
    .grow = jemalloc_grow,
    .trim = jemalloc_trim,
    .stats = jemalloc_stats,
    .malloc_table = jemalloc_malloc_table,
};
