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

/* The driver's function of the row `symbol`, in the type that the row's hook has. */
#define GA_CUDA_NEXT(type, symbol) ((type *)(uintptr_t)ga_cuda_next_find(GA_HOOK_##symbol))

/* What a call comes to that has no driver to go to. */
CUresult ga_cuda_next_missing(void);

/* What a failed call of a heap's comes to: that one says only that the driver refused, and the
 * driver says again what it is that it has. */
CUresult ga_cuda_next_trouble(void);

/* What else we ask the driver, by the driver's own symbols. */
/* clang-format off */
#define GA_CUDA_ASKED(X)                                                                           \
    X(cuCtxGetCurrent, (CUcontext *context))                                                       \
    X(cuCtxPushCurrent_v2, (CUcontext context))                                                    \
    X(cuCtxPopCurrent_v2, (CUcontext *context))                                                    \
    X(cuCtxGetDevice, (CUdevice *device))                                                          \
    X(cuCtxGetFlags, (unsigned *flags))                                                            \
    X(cuCtxSynchronize, (void))                                                                    \
    X(cuDevicePrimaryCtxGetState, (CUdevice device, unsigned *flags, int *active))                 \
    X(cuDevicePrimaryCtxRetain, (CUcontext *context, CUdevice device))                             \
    X(cuDevicePrimaryCtxRelease_v2, (CUdevice device))                                             \
    X(cuDeviceGetAttribute, (int *value, CUdevice_attribute attribute, CUdevice device))           \
    X(cuStreamIsCapturing, (CUstream stream, int *status))                                         \
    X(cuStreamGetCtx, (CUstream stream, CUcontext *context))                                       \
    X(cuDeviceGetDefaultMemPool, (CUmemoryPool *pool, CUdevice device))
/* clang-format on */

#define GA_CUDA_ASK(symbol, parameters) CUresult(*symbol) parameters;

typedef struct ga_cuda_asks {
    GA_CUDA_ASKED(GA_CUDA_ASK)
} ga_cuda_asks;

/* NULL: there is no driver, or one without all of these, and then nothing is served. */
const ga_cuda_asks *ga_cuda_next_asks(void);

/* dlsym() and dlvsym() as they are behind us. Lookups with RTLD_NEXT and RTLD_DEFAULT start from
 * this library. */
void *ga_cuda_next_dlsym(void *handle, const char *symbol);
void *ga_cuda_next_dlvsym(void *handle, const char *symbol, const char *version);

/* Their addresses; NULL: there are none. */
void *ga_cuda_next_dlsym_itself(void);
void *ga_cuda_next_dlvsym_itself(void);

#endif
