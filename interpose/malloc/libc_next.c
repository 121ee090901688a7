/* SPDX-License-Identifier: MIT
 *
 * The C library's allocator, for the library that replaces it. glibc's __libc_ names need no
 * look-up, so they work from the first instruction on. The other functions are looked up in its
 * symbol table.
 */
#include "libc_next.h"

#include "../../liballoc/platform/object_symbols.h"
#include "break.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>

extern ElfW(Dyn) _DYNAMIC[] __attribute__((visibility("hidden"))); /* this object's */

extern void *__libc_malloc(size_t size);
extern void __libc_free(void *block);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *block, size_t size);
extern void *__libc_memalign(size_t align, size_t size);

ga_libc_table ga_libc = {
    .malloc = __libc_malloc,
    .free = __libc_free,
    .calloc = __libc_calloc,
    .realloc = __libc_realloc,
    .memalign = __libc_memalign,
    .hold_break = ga_break_hold,
    .share_break = ga_break_share,
};

/* Set once, before the first heap is opened. */
static struct mallinfo2 (*next_mallinfo2)(void);
static void (*next_malloc_stats)(void);
static int (*next_malloc_info)(int options, FILE *out);

static void totals(size_t *live, size_t *held)
{
    struct mallinfo2 info = next_mallinfo2();
    *live = info.uordblks + info.hblkhd;
    *held = info.arena + info.hblkhd;
}

/* The object that defines this process's __libc_malloc: the C library, or an allocator linked into
 * the program that replaces those names as well. NULL: unknown. */
static const struct link_map *library_behind(void)
{
    Dl_info info;
    void *object = NULL;
    bool known = dladdr1((void *)(uintptr_t)ga_libc.malloc, &info, &object, RTLD_DL_LINKMAP) != 0;
    return known ? object : NULL;
}

/* Take all functions from one library, because another's would not know its blocks. Calls
 * neither dlopen() nor dlsym(), because a tool that wraps them and allocates under its lock
 * would deadlock. */
void ga_libc_find(void)
{
    const struct link_map *libc = library_behind();
    if (!libc) {
        return;
    }
    *(void **)&ga_libc.usable_size = ga_object_symbol(libc, "malloc_usable_size");
    *(void **)&ga_libc.trim = ga_object_symbol(libc, "malloc_trim");
    *(void **)&next_mallinfo2 = ga_object_symbol(libc, "mallinfo2");
    *(void **)&next_malloc_stats = ga_object_symbol(libc, "malloc_stats");
    *(void **)&next_malloc_info = ga_object_symbol(libc, "malloc_info");
    if (next_mallinfo2) {
        ga_libc.totals = totals;
    }
}

const char *ga_malloc_before(void)
{
    const struct link_map *object = _r_debug.r_map;
    while (object && object->l_ld != _DYNAMIC && !ga_object_symbol(object, "malloc")) {
        object = object->l_next;
    }
    return !object || object->l_ld == _DYNAMIC ? NULL
           : *object->l_name                   ? object->l_name
                                               : "the program";
}

void ga_libc_print_stats(void)
{
    if (next_malloc_stats) {
        next_malloc_stats();
    }
}

bool ga_libc_info(struct mallinfo2 *out)
{
    if (next_mallinfo2) {
        *out = next_mallinfo2();
    }
    return next_mallinfo2 != NULL;
}

bool ga_libc_write_info(FILE *out, int *result)
{
    if (next_malloc_info) {
        *result = next_malloc_info(0, out);
    }
    return next_malloc_info != NULL;
}
