/* SPDX-License-Identifier: MIT
 *
 * The kinds of misuse, and the end of the program.
 */
#ifndef GPUALLOC_HARDENED_MISUSE_H
#define GPUALLOC_HARDENED_MISUSE_H

#include <stddef.h>

typedef enum ga_hardened_misuse {
    GA_HARDENED_FINE = 0,
    GA_HARDENED_DOUBLE_FREE,     /* the block is free */
    GA_HARDENED_INTERIOR,        /* the pointer is inside a block */
    GA_HARDENED_NO_BLOCK,        /* no block ever began at this address of the heap */
    GA_HARDENED_OVERFLOW,        /* the canary behind the block has changed */
    GA_HARDENED_WRITE_AFTER_FREE /* a free block is no longer all zeros */
} ga_hardened_misuse;

/* Write one line that names the call, the address and the kind, then abort(). To be called without
 * locks, since the program may catch SIGABRT and allocate. */
_Noreturn void ga_hardened_end(ga_hardened_misuse kind, const char *call, const void *address,
                               size_t bytes);

#endif
