/* SPDX-License-Identifier: MIT */
#include "foreign.h"

#include "libc.h"
#include "misuse.h"
#include "reservations.h"

#include <errno.h>
#include <stdbool.h>

static bool is_misuse(const char *call, const void *block)
{
    bool ours = ga_reservations_contain(block);
    if (ours) {
        ga_misuse_report(call, block,
                         "no live block of the heap begins there (freed already, or not the "
                         "address that was handed out)");
    }
    return ours;
}

void ga_foreign_free(void *block)
{
    if (!is_misuse("free", block)) {
        ga_libc.free(block);
    }
}

void *ga_foreign_realloc(void *block, size_t size)
{
    if (is_misuse("realloc", block)) {
        errno = ENOMEM;
        return NULL;
    }
    return ga_libc.realloc(block, size);
}

size_t ga_foreign_usable_size(void *block)
{
    bool known = ga_libc.usable_size && !is_misuse("malloc_usable_size", block);
    return known ? ga_libc.usable_size(block) : 0;
}
