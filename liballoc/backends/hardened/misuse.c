/* SPDX-License-Identifier: MIT */
#include "misuse.h"

#include "../../platform/log.h"

#include <stdlib.h>

static const char *describe(ga_hardened_misuse kind)
{
    static const char *const kinds[] = {
        [GA_HARDENED_FINE] = "no misuse",
        [GA_HARDENED_DOUBLE_FREE] = "the block is free already (double free or use after free)",
        [GA_HARDENED_INTERIOR] = "the pointer is inside a block, not at its beginning",
        [GA_HARDENED_NO_BLOCK] = "no block of the heap begins there",
        [GA_HARDENED_OVERFLOW] = "the program wrote past the end of the block",
        [GA_HARDENED_WRITE_AFTER_FREE] = "the program wrote to the block after it was freed",
    };
    return kinds[kind];
}

_Noreturn void ga_hardened_end(ga_hardened_misuse kind, const char *call, const void *address,
                               size_t bytes)
{
    if (bytes) {
        ga_log(GA_LOG_ERROR, "hardened: %s: %p, a block of up to %zu bytes: %s", call, address,
               bytes, describe(kind));
    } else {
        ga_log(GA_LOG_ERROR, "hardened: %s: %p: %s", call, address, describe(kind));
    }
    abort();
}
