/* SPDX-License-Identifier: MIT */
#ifndef GPUALLOC_TESTS_PRELOAD_NTH_CALLS_H
#define GPUALLOC_TESTS_PRELOAD_NTH_CALLS_H

enum {
    NTH_MMAP = 1,
    NTH_MUNMAP = 2,
    NTH_MPROTECT = 4,
    NTH_MADVISE = 8,
    NTH_MREMAP = 16,
    NTH_MALLOC_CALLS = 32
};

typedef void nth_arm_fn(unsigned kinds, long n, int all);
typedef long nth_disarm_fn(void);

/* Memory that was mapped, or allocated by the public names, and not freed. */
typedef struct nth_amounts {
    long mapped; /* bytes */
    long blocks;
} nth_amounts;

typedef nth_amounts nth_left_fn(void);

#endif
