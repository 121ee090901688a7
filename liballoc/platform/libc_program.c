/* SPDX-License-Identifier: MIT
 *
 * The C library's allocator as every program sees it.
 */
#include "libc.h"

#include <malloc.h>
#include <stdlib.h>

static void totals(size_t *live, size_t *held)
{
    struct mallinfo2 info = mallinfo2();
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
