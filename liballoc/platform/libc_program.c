/* SPDX-License-Identifier: MIT
 *
 * The C library's allocator as every program sees it.
 */
#include "libc.h"

#include "mallinfo.h"

#include <dlfcn.h>
#include <stdlib.h>

#if __GLIBC_PREREQ(2, 33)
static struct mallinfo2 current(void)
{
    return mallinfo2();
}
#else
static struct mallinfo2 current(void)
{
    struct mallinfo2 (*newer)(void);
    *(void **)&newer = dlsym(RTLD_DEFAULT, "mallinfo2");
    if (newer) {
        return newer();
    }
    struct mallinfo info = mallinfo(); /* its numbers have 32 bits */
    return (struct mallinfo2){.arena = (unsigned)info.arena,
                              .uordblks = (unsigned)info.uordblks,
                              .hblkhd = (unsigned)info.hblkhd};
}
#endif

static void totals(size_t *live, size_t *held)
{
    struct mallinfo2 info = current();
    *live = info.uordblks + info.hblkhd;
    *held = info.arena + info.hblkhd;
}

ga_libc_table ga_libc = {
    .malloc = malloc,
    .free = free,
    .calloc = calloc,
    .realloc = realloc,
    .memalign = memalign,
    .usable_size = malloc_usable_size,
    .trim = malloc_trim,
    .totals = totals,
};
