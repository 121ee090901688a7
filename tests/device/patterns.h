/* SPDX-License-Identifier: MIT
 *
 * Code in which not all lanes of a warp call at once. Only for CUDA.
 */
#ifndef TESTS_DEVICE_PATTERNS_H
#define TESTS_DEVICE_PATTERNS_H

#include <stdint.h>

typedef enum pattern {
    ODD_LANES = 0,
    ONE_LANE,     /* another lane of each warp */
    BRANCHES,     /* each third of the lanes calls elsewhere */
    LOOPS,        /* lanes leave one after the other */
    EARLY_RETURN, /* some lanes are gone */
    LANE_BY_LANE, /* all lanes, each alone */
    PATTERNS
} pattern;

enum {
    CALLS_MAX = 4 /* times that a thread calls at most */
};

/* The number of calls of thread `i`. */
static inline __host__ __device__ uint32_t wants(uint32_t pattern, uint32_t i)
{
    switch (pattern) {
    case ODD_LANES:
        return i & 1u;
    case ONE_LANE:
        return i % 32u == i / 32u % 32u;
    case BRANCHES:
        return i % 3u ? 1 : 2;
    case LOOPS:
        return i % (CALLS_MAX + 1u);
    case EARLY_RETURN:
        return i % 4u ? 1 : 0;
    default:
        return 1;
    }
}

#endif
