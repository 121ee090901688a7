/* SPDX-License-Identifier: MIT
 *
 * The results of early.c for early_main.c.
 */
#ifndef GPUALLOC_TESTS_PRELOAD_EARLY_H
#define GPUALLOC_TESTS_PRELOAD_EARLY_H

#include <pthread.h>

#define EARLY_API __attribute__((visibility("default")))

enum {
    EARLY_BLOCKS = 64
};

/* Blocks of i * 100 + 1 bytes filled with i, from the constructor. */
EARLY_API extern unsigned char *early_blocks[EARLY_BLOCKS];

/* Made in the constructor, before anything was allocated. */
EARLY_API extern pthread_key_t early_key;

/* The number of runs of early_key's destructor. */
EARLY_API extern int early_destroyed;

#endif
