/* SPDX-License-Identifier: MIT
 *
 * The next definition of each interposed function: the driver's, and the C library's dlsym(). They
 * are looked up on first use; the preload does nothing before that. Thread safe.
 */
#ifndef GPUALLOC_INTERPOSE_CUDA_NEXT_H
#define GPUALLOC_INTERPOSE_CUDA_NEXT_H

#include "../../liballoc/platform/cuda_types.h"
#include "hooks.h"

#include <stdbool.h>
#include <stdint.h>

/* A driver function as the hook table promises: at most six arguments, in registers. */
typedef uintptr_t ga_cuda_word;
typedef CUresult ga_cuda_any(ga_cuda_word a, ga_cuda_word b, ga_cuda_word c, ga_cuda_word d,
                             ga_cuda_word e, ga_cuda_word f);

/* The driver's own function for each row; NULL until the driver is found, and where it has none. */
extern void *ga_cuda_next[GA_CUDA_HOOK_COUNT];

/* Find the driver if it is loaded; with `load`, load it. False: there is none. */
bool ga_cuda_next_start(bool load);

/* The driver's function for a row, after ga_cuda_next_start(true). NULL: no driver, or the driver
 * has none. */
ga_cuda_any *ga_cuda_next_find(ga_cuda_hook_index row);

/* Another function of the driver, which is not looked up often. NULL: no driver, or the driver has
 * none. */
void *ga_cuda_next_symbol(const char *symbol);

/* The driver's function for the row `symbol`, with the type of the row's hook. */
#define GA_CUDA_NEXT(type, symbol) ((type *)(uintptr_t)ga_cuda_next_find(GA_HOOK_##symbol))

/* The result of a call for which there is no driver function. */
CUresult ga_cuda_next_missing(void);

/* The result of a failed heap call. The heap's status does not say which error the driver met, so
 * ask the driver again. */
CUresult ga_cuda_next_error(void);

/* Other driver functions that the preload calls, by the driver's own symbols. */
/* clang-format off */
#define GA_CUDA_API(X)                                                                           \
    X(cuCtxGetCurrent, (CUcontext *context))                                                       \
    X(cuCtxPushCurrent_v2, (CUcontext context))                                                    \
    X(cuCtxPopCurrent_v2, (CUcontext *context))                                                    \
    X(cuCtxGetDevice, (CUdevice *device))                                                          \
    X(cuCtxGetFlags, (unsigned *flags))                                                            \
    X(cuCtxSynchronize, (void))                                                                    \
    X(cuDeviceGetCount, (int *count))                                                              \
    X(cuDevicePrimaryCtxGetState, (CUdevice device, unsigned *flags, int *active))                 \
    X(cuDevicePrimaryCtxRetain, (CUcontext *context, CUdevice device))                             \
    X(cuDevicePrimaryCtxRelease_v2, (CUdevice device))                                             \
    X(cuDeviceGetAttribute, (int *value, CUdevice_attribute attribute, CUdevice device))           \
    X(cuStreamIsCapturing, (CUstream stream, int *status))                                         \
    X(cuStreamGetCtx, (CUstream stream, CUcontext *context))                                       \
    X(cuDeviceGetDefaultMemPool, (CUmemoryPool *pool, CUdevice device))
/* clang-format on */

#define GA_CUDA_API_MEMBER(symbol, parameters) CUresult(*symbol) parameters;

typedef struct ga_cuda_api {
    GA_CUDA_API(GA_CUDA_API_MEMBER)
} ga_cuda_api;

/* NULL: there is no driver, or it does not have all of these. Then nothing is served. */
const ga_cuda_api *ga_cuda_next_api(void);

/* The C library's dlsym() and dlvsym(). They see this library as their caller, so a lookup with
 * RTLD_NEXT or RTLD_DEFAULT starts here. */
void *ga_cuda_next_dlsym(void *handle, const char *symbol);
void *ga_cuda_next_dlvsym(void *handle, const char *symbol, const char *version);

/* The addresses of these two in the C library; NULL if there are none. */
void *ga_cuda_next_dlsym_address(void);
void *ga_cuda_next_dlvsym_address(void);

#endif
