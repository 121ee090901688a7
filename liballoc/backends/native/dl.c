/* SPDX-License-Identifier: MIT
 *
 * The `dl` backend: any malloc library, loaded at run time. The address range of its memory is not
 * known, so the ownership map records the page of each block that it hands out.
 *
 * Under the preload it is the reverse: the C library's blocks are confined to the program break
 * (ga_libc.hold_break), every other pointer belongs to the library, and calls go to it directly.
 *
 * dl_open
 *   load_beside_break      keep the library out of the program break
 *     load                 refuse unsuitable files, dlopen(), find_symbols
 * dl_malloc_table          the preload's entry; NULL if blocks cannot be told apart by address
 *   break_room_if_apart    allocate a small and a large block, see where they are
 */
#include "dl_aligned.h"
#include "dl_file.h"
#include "native.h"

#include "../../platform/libc.h"
#include "../../platform/mallinfo.h"
#include "../../platform/pagemap.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000 /* older kernels treat the address as a hint */
#endif

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
    /* NULL if the library does not define it. */
    void *(*memalign)(size_t align, size_t size);
    size_t (*usable_size)(void *block);
    int (*trim)(size_t keep);
    struct mallinfo2 (*totals)(void);
    struct mallinfo (*totals_32)(void);
    /* Address at which the C library's blocks in the program break begin; 0: they may be
     * anywhere. */
    uintptr_t break_first;
} dl_state;

static dl_state *served; /* the heap whose malloc table the preload uses */
static ga_malloc_table table;

static void find_symbols(dl_state *dl)
{
    *(void **)&dl->malloc = ga_dl_own_symbol(dl->library, "malloc");
    *(void **)&dl->free = ga_dl_own_symbol(dl->library, "free");
    *(void **)&dl->calloc = ga_dl_own_symbol(dl->library, "calloc");
    *(void **)&dl->realloc = ga_dl_own_symbol(dl->library, "realloc");
    *(void **)&dl->memalign = ga_dl_own_symbol(dl->library, "memalign");
    *(void **)&dl->usable_size = ga_dl_own_symbol(dl->library, "malloc_usable_size");
    *(void **)&dl->trim = ga_dl_own_symbol(dl->library, "malloc_trim");
    *(void **)&dl->totals = ga_dl_own_symbol(dl->library, "mallinfo2");
    *(void **)&dl->totals_32 = ga_dl_own_symbol(dl->library, "mallinfo");
    if (!dl->memalign) { /* it has the same parameters and accepts every alignment that we pass */
        *(void **)&dl->memalign = ga_dl_own_symbol(dl->library, "aligned_alloc");
    }
}

static const char *first_missing(const dl_state *dl)
{
    return !dl->malloc    ? "malloc"
           : !dl->free    ? "free"
           : !dl->calloc  ? "calloc"
           : !dl->realloc ? "realloc"
                          : NULL;
}

static ga_status not_loaded(const dl_state *dl)
{
    const char *why = dlerror();
    bool no_tls = why && strstr(why, "static TLS");
    return ga_fail(GA_ERR_LIBRARY, "dl: path: cannot load \"%s\": %s%s%s", dl->path,
                   why ? why : "unknown reason",
                   no_tls ? "; begin the command line with LD_PRELOAD=" : "",
                   no_tls ? dl->path : "");
}

static ga_status load(dl_state *dl)
{
    const char *refusal = ga_dl_file_refusal(dl->path);
    if (refusal) {
        return ga_fail(GA_ERR_LIBRARY, "dl: path: \"%s\" %s; expected another malloc library",
                       dl->path, refusal);
    }
    dl->library = dlopen(dl->path, RTLD_NOW | RTLD_LOCAL);
    if (!dl->library) {
        return not_loaded(dl);
    }
    find_symbols(dl);
    const char *missing = first_missing(dl);
    if (missing) {
        ga_status status =
            ga_fail(GA_ERR_LIBRARY, "dl: path: \"%s\" defines no %s; expected a malloc library",
                    dl->path, missing);
        dlclose(dl->library);
        return status;
    }
    return GA_OK;
}

/* ---- the program break ---------------------------------------------------------------------- */

typedef struct code_range {
    uintptr_t base; /* load address of the library */
    uintptr_t first, end;
} code_range;

static int find_code(struct dl_phdr_info *info, size_t size, void *context)
{
    code_range *code = context;
    (void)size;
    if (info->dlpi_addr != code->base) {
        return 0;
    }
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        if (segment->p_type == PT_LOAD && segment->p_flags & PF_X) {
            code->first = code->base + segment->p_vaddr;
            code->end = code->first + segment->p_memsz;
        }
    }
    return 1;
}

/* Load the library so that it gets no memory from the program break, not even while its
 * constructors run. */
static ga_status load_beside_break(dl_state *dl)
{
    bool held = ga_libc.hold_break && ga_libc.hold_break(&dl->break_first);
    code_range code = {0};
    struct link_map *map = NULL;
    ga_status status = load(dl);
    if (status == GA_OK && dlinfo(dl->library, RTLD_DI_LINKMAP, &map) == 0) {
        code.base = map->l_addr;
        dl_iterate_phdr(find_code, &code);
    }
    if (held) {
        ga_libc.share_break(code.first, code.end);
    }
    dl->break_first = held && code.first ? dl->break_first : 0;
    return status;
}

static bool is_in_break(const dl_state *dl, const void *pointer)
{
    return dl->break_first &&
           (uintptr_t)pointer - dl->break_first < (uintptr_t)sbrk(0) - dl->break_first;
}

/* ---- opening -------------------------------------------------------------------------------- */

static ga_status dl_open(const ga_open_args *args, void **state)
{
    dl_state *dl = ga_libc.calloc(1, sizeof *dl);
    if (!dl) {
        return ga_fail(GA_ERR_MEMORY, "dl: no memory for the heap's record");
    }
    dl->path = args->values[OPTION_PATH].text;
    ga_status status = load_beside_break(dl);
    if (status != GA_OK) {
        ga_libc.free(dl);
        return status;
    }
    *state = dl;
    return GA_OK;
}

/* The library is not unloaded: threads that used it run its destructors when they end, and
 * unloading would unmap live blocks. */
static void dl_close(void *state)
{
    served = served == state ? NULL : served;
    ga_libc.free(state);
}

/* ---- whose a block is ----------------------------------------------------------------------- */

/* The heap that serves malloc owns every pointer except those of the C library. */
static bool dl_owns(void *state, const void *pointer)
{
    return state == served ? pointer && !is_in_break(state, pointer) : ga_pagemap_test(pointer);
}

static ga_status set_result(dl_state *dl, void *block, size_t size, void **out)
{
    if (block && dl != served && !ga_pagemap_mark(block, 1)) {
        dl->free(block);
        block = NULL;
    }
    *out = block;
    return block ? GA_OK
                 : ga_fail(GA_ERR_MEMORY, "dl: \"%s\" has no memory for %zu bytes", dl->path, size);
}

/* Many libraries align blocks below 16 bytes only to 8 bytes. */
static size_t size_at_least_16(size_t size)
{
    return size < 16 ? 16 : size;
}

static ga_status dl_alloc(void *state, size_t size, void **out)
{
    dl_state *dl = state;
    return set_result(dl, dl->malloc(size_at_least_16(size)), size, out);
}

static ga_status dl_alloc_zeroed(void *state, size_t size, void **out)
{
    dl_state *dl = state;
    return set_result(dl, dl->calloc(1, size_at_least_16(size)), size, out);
}

static void *alloc_aligned(const dl_state *dl, size_t align, size_t size)
{
    return ga_dl_aligned(dl->memalign, dl->free, align, size);
}

static ga_status dl_alloc_aligned(void *state, size_t size, size_t align, void **out)
{
    dl_state *dl = state;
    if (!dl->memalign) {
        return ga_fail(GA_ERR_ALIGN, "dl: \"%s\" has no aligned allocation; got alignment %zu",
                       dl->path, align);
    }
    return set_result(dl, alloc_aligned(dl, align, size), size, out);
}

/* Reserve the mark of the page that the block may move to before it moves: without its mark, the
 * moved block could not be freed. */
static ga_status dl_realloc(void *state, void *block, size_t size, void **out)
{
    dl_state *dl = state;
    void *mark = ga_pagemap_reserve();
    if (!mark) {
        return set_result(dl, NULL, size, out);
    }
    void *moved = dl->realloc(block, size_at_least_16(size));
    ga_pagemap_mark_reserved(moved ? moved : block, mark);
    return set_result(dl, moved, size, out);
}

static ga_status dl_free(void *state, void *block)
{
    dl_state *dl = state;
    if (!dl_owns(dl, block)) {
        return ga_fail(GA_ERR_POINTER, "dl: %p is no block of \"%s\"", block, dl->path);
    }
    dl->free(block);
    return GA_OK;
}

static size_t dl_usable_size(void *state, const void *block)
{
    dl_state *dl = state;
    return dl->usable_size && dl_owns(dl, block) ? dl->usable_size((void *)block) : 0;
}

static ga_status dl_trim(void *state, size_t keep)
{
    dl_state *dl = state;
    if (!dl->trim) {
        return ga_fail(GA_ERR_UNSUPPORTED, "dl: \"%s\" has no malloc_trim", dl->path);
    }
    dl->trim(keep);
    return GA_OK;
}

static void dl_stats(void *state, ga_backend_stats *out)
{
    dl_state *dl = state;
    if (dl->totals) {
        struct mallinfo2 info = dl->totals();
        out->live_bytes = info.uordblks + info.hblkhd;
        out->held_bytes = info.arena + info.hblkhd;
    } else if (dl->totals_32) { /* its numbers have 32 bits */
        struct mallinfo info = dl->totals_32();
        out->live_bytes = (unsigned)info.uordblks + (unsigned)info.hblkhd;
        out->held_bytes = (unsigned)info.arena + (unsigned)info.hblkhd;
    }
}

/* ---- malloc-shaped -------------------------------------------------------------------------- */

/* tcmalloc does not set errno if count * size overflows. */
static void *served_calloc(size_t count, size_t size)
{
    void *block = served->calloc(count, size);
    if (__builtin_expect(!block, 0)) {
        errno = ENOMEM;
    }
    return block;
}

static void *served_memalign(size_t align, size_t size)
{
    void *block = alloc_aligned(served, align, size);
    if (!block) {
        errno = ENOMEM;
    }
    return block;
}

/* Bytes after the C library's first block that the program break may grow to. Pointers there take
 * the slow path. */
static const uintptr_t BREAK_ROOM = (uintptr_t)1 << 40;

/* Map a page at `stop`, so that the program break cannot grow past it. False if something else is
 * mapped there. */
static bool stop_break(uintptr_t stop, size_t page)
{
    void *mapped = mmap((void *)stop, page, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (mapped != MAP_FAILED && mapped != (void *)stop) {
        munmap(mapped, page);
    }
    return mapped == (void *)stop;
}

/* Bytes that the program break may grow to, counted from the C library's first block. BREAK_ROOM,
 * or less if the library's memory is nearer: then a page in between stops the break. */
static uintptr_t break_room(const dl_state *dl, const void *block)
{
    uintptr_t end = (uintptr_t)sbrk(0);
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t distance = (uintptr_t)block - end; /* unsigned: larger than BREAK_ROOM if the block is
                                               * below */
    for (uintptr_t room = distance / 2; distance < BREAK_ROOM && room > page; room /= 2) {
        uintptr_t stop = (end + room) & ~(page - 1);
        if (stop_break(stop, page)) {
            return stop - dl->break_first;
        }
    }
    return BREAK_ROOM;
}

/* As break_room(); 0 if the library's blocks lie in the program break. */
static uintptr_t break_room_if_apart(const dl_state *dl)
{
    void *small = dl->malloc(1);
    void *large = dl->malloc((size_t)1 << 20);
    bool distance = small && large && !is_in_break(dl, small) && !is_in_break(dl, large);
    uintptr_t room = distance ? break_room(dl, small < large ? small : large) : 0;
    dl->free(small);
    dl->free(large);
    return room;
}

/* Whether the library is also preloaded behind us, so that it defines the names that we take for
 * the C library's. Then all blocks are its own. */
static bool is_libc(const dl_state *dl)
{
    return dl->malloc == ga_libc.malloc && dl->free == ga_libc.free;
}

/* The library's functions, with two wrappers. Pointers in the range belong to the library, NULL
 * included: all addresses except those of the program break. */
static const ga_malloc_table *dl_malloc_table(void *state)
{
    dl_state *dl = state;
    bool all = is_libc(dl);
    bool able = !served && dl->memalign && dl->usable_size;
    uintptr_t room = able && dl->break_first && !all ? break_room_if_apart(dl) : 0;
    if (!able || (!room && !all)) {
        return NULL;
    }
    served = dl;
    table = (ga_malloc_table){
        .malloc = dl->malloc,
        .free = dl->free,
        .calloc = served_calloc,
        .realloc = dl->realloc,
        .memalign = served_memalign,
        .usable_size = dl->usable_size,
        .range_base = all ? 0 : dl->break_first + room,
        .range_size = all ? SIZE_MAX : -room,
    };
    return &table;
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
    .trim = dl_trim,
    .stats = dl_stats,
    .malloc_table = dl_malloc_table,
};
