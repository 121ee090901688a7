/* SPDX-License-Identifier: MIT
 *
 * Random numbers from the kernel, a buffer at a time. Not thread safe: each owner has a lock.
 */
#ifndef GPUALLOC_HARDENED_RANDOM_H
#define GPUALLOC_HARDENED_RANDOM_H

#include <stdint.h>

enum {
    GA_HARDENED_RANDOM = 256 /* numbers of 16 bits in the buffer */
};

typedef struct ga_hardened_random {
    uint16_t number[GA_HARDENED_RANDOM];
    uint32_t left; /* numbers not yet used; 0: the buffer is empty */
} ga_hardened_random;

/* 64 random bits. Keeps errno. */
uint64_t ga_hardened_random_word(ga_hardened_random *random);

/* A number below `limit`, which is from 1 to 65536. Some numbers are more likely than others by at
 * most limit / 65536. Keeps errno. */
uint32_t ga_hardened_random_below(ga_hardened_random *random, uint32_t limit);

#endif
