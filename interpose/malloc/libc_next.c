/* SPDX-License-Identifier: MIT
 *
 * The C library's allocator for the library that replaces it: glibc's own names, which need no
 * search and so work from the first instruction on. What has no such name is found by dlsym.
 */
#include "libc_next.h"

#include "break.h"

#include <dlfcn.h>
#include <malloc.h>
#include <stdint.h>

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

static void totals(size_t *live, size_t *held)
{
    struct mallinfo2 info = next_mallinfo2();
    *live = info.uordblks + info.hblkhd;
    *held = info.arena + info.hblkhd;
}

/* Whose __libc_malloc we were given: the C library, or an allocator that the program is linked with
 * and that replaces those names as well. */
static void *library_behind(void)
{
    Dl_info info;
    bool known = dladdr((void *)(uintptr_t)ga_libc.malloc, &info) != 0;
    return known ? dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD) : NULL;
}

/* All from one library: another's would know nothing of its blocks. */
void ga_libc_find(void)
{
    void *libc = library_behind();
    if (!libc) {
        return;
    }
    *(void **)&ga_libc.usable_size = dlsym(libc, "malloc_usable_size");
    *(void **)&ga_libc.trim = dlsym(libc, "malloc_trim");
    *(void **)&next_mallinfo2 = dlsym(libc, "mallinfo2");
    *(void **)&next_malloc_stats = dlsym(libc, "malloc_stats");
    if (next_mallinfo2) {
        ga_libc.totals = totals;
    }
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
