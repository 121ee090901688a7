/* SPDX-License-Identifier: MIT
 *
 * sbrk() of the process. It passes all requests on, except those of the library that serves `dl`:
 * tcmalloc and jemalloc allocate from the program break where they can, and fall back to mmap.
 */
#include "break.h"

#include "../version_note.h"
#include "libc_next.h"

#include <dlfcn.h>
#include <errno.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

extern void *__sbrk(intptr_t increment);
extern int __libc_mallopt(int parameter, int value);

/* A library that exports this name is the preload itself, or a copy of it. */
EXPORT const char gpualloc_malloc_preload[] = "gpualloc";

static bool held;                      /* refuse all callers; set before threads run */
static uintptr_t refused, refused_end; /* the code of the refused caller; set before threads run */

static bool is_refused(uintptr_t caller)
{
    return held || caller - refused < refused_end - refused;
}

EXPORT void *sbrk(intptr_t increment)
{
    if (increment > 0 && is_refused((uintptr_t)__builtin_return_address(0))) {
        errno = ENOMEM;
        return (void *)-1;
    }
    return __sbrk(increment);
}

/* True if other objects' calls reach the sbrk() above. They may not where it is linked from an
 * archive. */
static bool is_in_force(void)
{
    return dlsym(RTLD_DEFAULT, "sbrk") == (void *)(uintptr_t)sbrk;
}

/* Restrict glibc to one arena, the one at the program break, and no block in a mapping of its own.
 * glibc still maps memory where the break cannot grow, as its last resort. */
bool ga_break_hold(uintptr_t *first)
{
    struct mallinfo2 info = {0};
    if (!is_in_force() || __libc_mallopt(M_ARENA_MAX, 1) != 1 ||
        __libc_mallopt(M_MMAP_MAX, 0) != 1 || !ga_libc_info(&info)) {
        return false;
    }
    void *probe = ga_libc.malloc(1);
    bool known = ga_libc_info(&info);
    uintptr_t end = (uintptr_t)__sbrk(0);
    *first = end - info.arena;
    bool inside = (uintptr_t)probe - *first < info.arena;
    ga_libc.free(probe);
    held = known && inside && !info.hblkhd;
    return held;
}

void ga_break_share(uintptr_t first, uintptr_t end)
{
    refused = first;
    refused_end = end;
    held = false;
}
