/* SPDX-License-Identifier: MIT
 *
 * Large blocks: each is a mapping of its own between guards of random size, known by a hash table
 * that is elsewhere.
 *
 * INVARIANT  an entry is in the table before its block is handed out, and leaves it before the
 *            pages go. Between a block's last byte and the end of its last page all is zero.
 * PROGRESS   one mutex; no system call is made under it but those that grow the table.
 */
#ifndef GPUALLOC_HARDENED_LARGE_H
#define GPUALLOC_HARDENED_LARGE_H

#include "misuse.h"
#include "random.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    GA_HARDENED_FREED = 256 /* freed blocks whose addresses stay unreadable */
};

typedef struct ga_hardened_block {
    uintptr_t address; /* 0: no block */
    size_t size;       /* as requested */
    uintptr_t mapping; /* with guards */
    size_t mapping_bytes;
} ga_hardened_block;

typedef struct ga_hardened_large {
    pthread_mutex_t lock;
    ga_hardened_block *table; /* open addressing, linear probing; at most half full */
    size_t capacity;          /* a power of two, or 0 */
    size_t count;
    uint64_t live_bytes, held_bytes, mapped;
    ga_hardened_block freed[GA_HARDENED_FREED]; /* a queue: the oldest is replaced */
    uint32_t freed_next;
    ga_hardened_random random;
} ga_hardened_large;

void ga_hardened_large_open(ga_hardened_large *large);

/* Unmap everything, live blocks included. */
void ga_hardened_large_close(ga_hardened_large *large);

/* A block of zeros; `align` is a power of two. NULL where the kernel has no memory. */
void *ga_hardened_large_alloc(ga_hardened_large *large, size_t size, size_t align);

/* Give the pages back; the addresses stay unreadable until as many other blocks were freed as the
 * quarantine has places. Anything but GA_HARDENED_FINE: nothing was done. */
ga_hardened_misuse ga_hardened_large_free(ga_hardened_large *large, void *block);

/* The requested size of a live block, or why there is none. */
ga_hardened_misuse ga_hardened_large_size(ga_hardened_large *large, const void *block, size_t *out);

/* A block of `size` bytes with the contents of `block`, which is freed. NULL if the kernel has no
 * memory; then `block` is as it was. Moves pages rather than bytes where the kernel can. */
void *ga_hardened_large_resize(ga_hardened_large *large, void *block, size_t size);

/* Whether the address is in a large block, live or freed lately. */
bool ga_hardened_large_owns(ga_hardened_large *large, const void *pointer);

#endif
