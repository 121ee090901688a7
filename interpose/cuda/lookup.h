/* SPDX-License-Identifier: MIT
 *
 * Which lookups answer with a function of ours.
 */
#ifndef GPUALLOC_INTERPOSE_CUDA_LOOKUP_H
#define GPUALLOC_INTERPOSE_CUDA_LOOKUP_H

#include "hooks.h"

#include <stddef.h>
#include <stdint.h>

extern const ga_cuda_hook ga_cuda_hooks[GA_CUDA_HOOK_COUNT];

/* How often each of our functions was called, in parts: threads that count in one line of memory
 * wait for each other. */
enum {
    GA_CUDA_COUNTS = 32,
    GA_CUDA_COUNT_LINE = 64
};

typedef struct ga_cuda_counts {
    uint64_t calls[GA_CUDA_HOOK_COUNT];
} __attribute__((aligned(GA_CUDA_COUNT_LINE))) ga_cuda_counts;

extern ga_cuda_counts ga_cuda_parts[GA_CUDA_COUNTS];
extern _Thread_local ga_cuda_counts *ga_cuda_my_part; /* NULL before the first call */

/* Parts in turn, for threads as they come. */
ga_cuda_counts *ga_cuda_take_part(void);

static inline void ga_cuda_count(ga_cuda_hook_index row)
{
    ga_cuda_counts *part = ga_cuda_my_part;
    part = __builtin_expect(part != NULL, 1) ? part : ga_cuda_take_part();
    /* relaxed: a figure */
    __atomic_fetch_add(&part->calls[row], 1, __ATOMIC_RELAXED);
}

/* All parts: what other threads count meanwhile may be missing. */
uint64_t ga_cuda_calls_of(ga_cuda_hook_index row);

/* In a child of fork(): none so far. */
void ga_cuda_calls_child(void);

/* The driver has been found: from now on there is something to report when the process ends. */
void ga_cuda_lookup_begun(void);

/* For lookup.S, whose dlsym() and dlvsym() begin with it: where to go on with the very same
 * arguments, or where that is NULL, what to answer. */
typedef struct ga_cuda_choice {
    void *answer;
    void *go_on;
} ga_cuda_choice;

ga_cuda_choice ga_cuda_choose_dlsym(void *handle, const char *symbol);
ga_cuda_choice ga_cuda_choose_dlvsym(void *handle, const char *symbol, const char *version);

#endif
