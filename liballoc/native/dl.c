/* SPDX-License-Identifier: MIT
 *
 * The `dl` backend: any malloc library, loaded at run time. Its memory has no address range that
 * we know, so the ownership map records the page of each block it hands out.
 */
#include "native.h"

#include "../platform/libc.h"
#include "../platform/pagemap.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>

enum {
    OPTION_PATH = 0
};

typedef struct dl_state {
    void *library;
    const char *path;
    void *(*malloc)(size_t size);
    void (*free)(void *block);
    void *(*calloc)(size_t count, size_t size);
    void *(*realloc)(void *block, size_t size);
    void *(*memalign)(size_t align, size_t size); /* NULL where it has none */
    size_t (*usable_size)(void *block);           /* the same */
} dl_state;

/* The library's own definition. dlsym() searches what the library depends on too, and would find
 * the C library's malloc in one that has none. NULL where it has none of its own. */
static void *own_symbol(void *library, const char *name)
{
    struct link_map *map = NULL;
    Dl_info info;
    void *symbol = dlsym(library, name);
    if (!symbol || dlinfo(library, RTLD_DI_LINKMAP, &map) != 0 || !dladdr(symbol, &info)) {
        return NULL;
    }
    return (uintptr_t)info.dli_fbase == (uintptr_t)map->l_addr ? symbol : NULL;
}

static void find_symbols(dl_state *dl)
{
    *(void **)&dl->malloc = own_symbol(dl->library, "malloc");
    *(void **)&dl->free = own_symbol(dl->library, "free");
    *(void **)&dl->calloc = own_symbol(dl->library, "calloc");
    *(void **)&dl->realloc = own_symbol(dl->library, "realloc");
    *(void **)&dl->memalign = own_symbol(dl->library, "memalign");
    *(void **)&dl->usable_size = own_symbol(dl->library, "malloc_usable_size");
    if (!dl->memalign) { /* the same shape, and every alignment we pass it is allowed there */
        *(void **)&dl->memalign = own_symbol(dl->library, "aligned_alloc");
    }
}

static const char *first_lacking(const dl_state *dl)
{
    return !dl->malloc    ? "malloc"
           : !dl->free    ? "free"
           : !dl->calloc  ? "calloc"
           : !dl->realloc ? "realloc"
                          : NULL;
}

static ga_status load(dl_state *dl)
{
    dl->library = dlopen(dl->path, RTLD_NOW | RTLD_LOCAL);
    if (!dl->library) {
        const char *why = dlerror();
        const char *hint =
            why && strstr(why, "static TLS") ? "; name it in LD_PRELOAD as well" : "";
        return ga_fail(GA_ERR_LIBRARY, "dl: path: cannot load \"%s\": %s%s", dl->path,
                       why ? why : "unknown reason", hint);
    }
    find_symbols(dl);
    const char *lacking = first_lacking(dl);
    if (lacking) {
        ga_status status =
            ga_fail(GA_ERR_LIBRARY, "dl: path: \"%s\" defines no %s; expected a malloc library",
                    dl->path, lacking);
        dlclose(dl->library);
        return status;
    }
    return GA_OK;
}

static ga_status dl_open(const ga_open_args *args, void **state)
{
    dl_state *dl = ga_libc.calloc(1, sizeof *dl);
    if (!dl) {
        return ga_fail(GA_ERR_MEMORY, "dl: no memory for the heap's record");
    }
    dl->path = args->values[OPTION_PATH].text;
    ga_status status = load(dl);
    if (status != GA_OK) {
        ga_libc.free(dl);
        return status;
    }
    *state = dl;
    return GA_OK;
}

/* The library stays loaded: threads that used it run its destructors when they end, and blocks
 * still held would lose their mapping. */
static void dl_close(void *state)
{
    ga_libc.free(state);
}

static ga_status handed_out(dl_state *dl, void *block, size_t size, void **out)
{
    if (block && !ga_pagemap_mark(block, 1)) {
        dl->free(block);
        block = NULL;
    }
    *out = block;
    return block ? GA_OK
                 : ga_fail(GA_ERR_MEMORY, "dl: \"%s\" has no memory for %zu bytes", dl->path, size);
}

/* Many libraries align blocks below 16 bytes to 8 only. */
static size_t least(size_t size)
{
    return size < 16 ? 16 : size;
}

static ga_status dl_alloc(void *state, size_t size, void **out)
{
    dl_state *dl = state;
    return handed_out(dl, dl->malloc(least(size)), size, out);
}

static ga_status dl_alloc_zeroed(void *state, size_t size, void **out)
{
    dl_state *dl = state;
    return handed_out(dl, dl->calloc(1, least(size)), size, out);
}

static ga_status dl_alloc_aligned(void *state, size_t size, size_t align, void **out)
{
    dl_state *dl = state;
    if (!dl->memalign) {
        return ga_fail(GA_ERR_ALIGN, "dl: \"%s\" has no aligned allocation; got alignment %zu",
                       dl->path, align);
    }
    void *block = dl->memalign(align, size);
    if ((uintptr_t)block % align != 0) { /* mimalloc 2.0.9: sizes of powers of two */
        dl->free(block);
        block = dl->memalign(align, size + 16);
    }
    if ((uintptr_t)block % align != 0) {
        dl->free(block);
        return ga_fail(GA_ERR_ALIGN, "dl: \"%s\" does not align to %zu", dl->path, align);
    }
    return handed_out(dl, block, size, out);
}

static ga_status dl_realloc(void *state, void *block, size_t size, void **out)
{
    dl_state *dl = state;
    void *moved = dl->realloc(block, least(size));
    if (!moved) {
        return handed_out(dl, NULL, size, out);
    }
    /* The old block is gone, so a mark that fails costs a leak at worst, not the contents. */
    ga_pagemap_mark(moved, 1);
    *out = moved;
    return GA_OK;
}

static ga_status dl_free(void *state, void *block)
{
    dl_state *dl = state;
    if (!ga_pagemap_test(block)) {
        return ga_fail(GA_ERR_POINTER, "dl: %p is no block of \"%s\"", block, dl->path);
    }
    dl->free(block);
    return GA_OK;
}

static bool dl_owns(void *state, const void *pointer)
{
    (void)state;
    return ga_pagemap_test(pointer);
}

static size_t dl_usable_size(void *state, const void *block)
{
    dl_state *dl = state;
    return dl->usable_size && ga_pagemap_test(block) ? dl->usable_size((void *)block) : 0;
}

static const ga_option options[] = {
    [OPTION_PATH] = {.name = "path",
                     .type = GA_OPTION_STRING,
                     .help = "the library: a file, or a name that the dynamic linker finds"},
};

const ga_backend ga_dl_backend = {
    .abi = GA_BACKEND_ABI,
    .size = sizeof(ga_backend),
    .name = "dl",
    .help = "any malloc library, loaded at run time: dl:PATH",
    .places = GA_PLACE_BIT(GA_PLACE_HOST),
    .parent_rule = GA_PARENT_NONE,
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .bare_option = "path",
    .open = dl_open,
    .close = dl_close,
    .alloc = dl_alloc,
    .free = dl_free,
    .owns = dl_owns,
    .usable_size = dl_usable_size,
    .realloc = dl_realloc,
    .alloc_zeroed = dl_alloc_zeroed,
    .alloc_aligned = dl_alloc_aligned,
};
