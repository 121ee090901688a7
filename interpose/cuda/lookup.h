/* SPDX-License-Identifier: MIT
 *
 * Look-ups that answer with a hook, and the counts of calls to each hook.
 */
#ifndef GPUALLOC_INTERPOSE_CUDA_LOOKUP_H
#define GPUALLOC_INTERPOSE_CUDA_LOOKUP_H

#include "hooks.h"

#include <stddef.h>
#include <stdint.h>

extern const ga_cuda_hook ga_cuda_hooks[GA_CUDA_HOOK_COUNT];

/* Calls of each hook, counted per group of threads: threads that count in one cache line slow each
 * other down. */
enum {
    GA_CUDA_COUNT_GROUPS = 32,
    GA_CUDA_COUNT_LINE = 64
};

typedef struct ga_cuda_counts {
    uint64_t calls[GA_CUDA_HOOK_COUNT];
} __attribute__((aligned(GA_CUDA_COUNT_LINE))) ga_cuda_counts;

extern ga_cuda_counts ga_cuda_count_groups[GA_CUDA_COUNT_GROUPS];
extern _Thread_local ga_cuda_counts *ga_cuda_my_counts; /* NULL before the thread's first call */

/* Assign the calling thread to a group, round robin. */
ga_cuda_counts *ga_cuda_assign_counts(void);

static inline void ga_cuda_count(ga_cuda_hook_index row)
{
    ga_cuda_counts *counts = ga_cuda_my_counts;
    counts = __builtin_expect(counts != NULL, 1) ? counts : ga_cuda_assign_counts();
    /* relaxed: a figure */
    __atomic_fetch_add(&counts->calls[row], 1, __ATOMIC_RELAXED);
}

/* The sum over all groups; calls that other threads count at the same time may be missing. */
uint64_t ga_cuda_calls_of(ga_cuda_hook_index row);

/* In a child of fork(): start at 0. */
void ga_cuda_calls_child(void);

/* Call when the driver was found: the calls are then reported when the process exits. */
void ga_cuda_report_at_exit(void);

/* Returned to dlsym() and dlvsym() in lookup.S: the function to jump to with the original
 * arguments, or if that is NULL, the answer. */
typedef struct ga_cuda_choice {
    void *answer;
    void *jump_to;
} ga_cuda_choice;

ga_cuda_choice ga_cuda_choose_dlsym(void *handle, const char *symbol);
ga_cuda_choice ga_cuda_choose_dlvsym(void *handle, const char *symbol, const char *version);

#endif
