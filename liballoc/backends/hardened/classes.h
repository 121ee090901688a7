/* SPDX-License-Identifier: MIT
 *
 * Size classes, and the geometry of the runs that hold their slots. A run is a range of whole pages
 * that is divided into slots of one size; a guard page follows each run. Constant after the first
 * call of ga_hardened_classes_prepare().
 */
#ifndef GPUALLOC_HARDENED_CLASSES_H
#define GPUALLOC_HARDENED_CLASSES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    GA_HARDENED_PAGE = 4096, /* the guard's size; a multiple of it where pages are larger */
    GA_HARDENED_CLASSES = 48,
    GA_HARDENED_SLOTS = 256,   /* most slots of a run */
    GA_HARDENED_CANARY = 8,    /* bytes at the end of each slot */
    GA_HARDENED_SMALL = 131072 /* the largest slot, in bytes */
};

typedef struct ga_hardened_class {
    uint32_t slot_bytes;
    uint32_t run_bytes;
    uint32_t stride; /* run and guard */
    uint32_t slots;
    uint64_t stride_inverse; /* 2^64 / stride, rounded up: divides by multiplication */
    uint64_t slot_inverse;
} ga_hardened_class;

extern ga_hardened_class ga_hardened_classes[GA_HARDENED_CLASSES];

/* Fill the table. Thread safe; may be called more than once. */
void ga_hardened_classes_prepare(void);

/* True if blocks of `size` bytes with alignment `align` live in slots; else they are large. */
bool ga_hardened_is_small(size_t size, size_t align);

/* The class of a small block. `align` is a power of two. */
unsigned ga_hardened_class_of(size_t size, size_t align);

/* `value` / divisor, given its inverse. Exact because value * divisor < 2^64 for every offset. */
static inline uint64_t ga_hardened_divide(uint64_t value, uint64_t inverse)
{
    __extension__ typedef unsigned __int128 wide;
    return (uint64_t)(((wide)value * inverse) >> 64);
}

#endif
