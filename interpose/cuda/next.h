/* SPDX-License-Identifier: MIT
 *
 * What the preload stands in front of: the driver, and the C library's dlsym. Found on first need;
 * before, nothing happens. Thread safe.
 */
#ifndef GPUALLOC_INTERPOSE_CUDA_NEXT_H
#define GPUALLOC_INTERPOSE_CUDA_NEXT_H

#include "../../liballoc/platform/cuda_types.h"
#include "hooks.h"

#include <stdbool.h>
#include <stdint.h>

/* A driver function as the table promises: up to six arguments, in registers. */
typedef uintptr_t ga_cuda_word;
typedef CUresult ga_cuda_any(ga_cuda_word a, ga_cuda_word b, ga_cuda_word c, ga_cuda_word d,
                             ga_cuda_word e, ga_cuda_word f);

/* The driver's own function of each row; NULL until the driver is found, and where it has none. */
extern void *ga_cuda_next[GA_CUDA_HOOK_COUNT];

/* Find the driver, if the process has it loaded, or (`load`) load it. False: there is none. */
bool ga_cuda_next_start(bool load);

/* The driver's function of a row, found if need be; NULL: there is no driver, or it has none. */
ga_cuda_any *ga_cuda_next_find(ga_cuda_hook_index row);

/* What a call comes to that has no driver to go to. */
CUresult ga_cuda_next_missing(void);

/* One more driver function, by its symbol; NULL: none. */
void *ga_cuda_next_symbol(const char *symbol);

/* dlsym() and dlvsym() as they are behind us. Lookups with RTLD_NEXT and RTLD_DEFAULT start from
 * this library. */
void *ga_cuda_next_dlsym(void *handle, const char *symbol);
void *ga_cuda_next_dlvsym(void *handle, const char *symbol, const char *version);

/* Their addresses; NULL: there are none. */
void *ga_cuda_next_dlsym_itself(void);
void *ga_cuda_next_dlvsym_itself(void);

#endif
