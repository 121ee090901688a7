/* SPDX-License-Identifier: MIT
 *
 * Which lookups answer with a function of ours.
 */
#ifndef GPUALLOC_INTERPOSE_CUDA_LOOKUP_H
#define GPUALLOC_INTERPOSE_CUDA_LOOKUP_H

#include "hooks.h"

#include <stdint.h>

extern const ga_cuda_hook ga_cuda_hooks[GA_CUDA_HOOK_COUNT];

/* How often each of our functions was called. */
extern uint64_t ga_cuda_calls[GA_CUDA_HOOK_COUNT];

static inline void ga_cuda_count(ga_cuda_hook_index row)
{
    /* relaxed: a figure */
    __atomic_fetch_add(&ga_cuda_calls[row], 1, __ATOMIC_RELAXED);
}

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
