/* SPDX-License-Identifier: MIT
 *
 * Hashes that let keys collide.
 */
#ifndef GPUALLOC_TESTS_SUPPORT_HASHES_H
#define GPUALLOC_TESTS_SUPPORT_HASHES_H

#include <stdint.h>

/* All keys share a path, of any length. */
static inline uint64_t hash_same(void *context, uint64_t key)
{
    (void)context;
    (void)key;
    return 0;
}

/* Two home buckets, whose probe sequences cross. */
static inline uint64_t hash_two(void *context, uint64_t key)
{
    (void)context;
    return key << 63;
}

#endif
