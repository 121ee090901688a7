/* SPDX-License-Identifier: MIT
 *
 * Hooks of calls that create contexts or unload code: see kernel_contexts.c.
 */
#include "../../liballoc/platform/libc.h"
#include "contexts.h"
#include "entry.h"
#include "kernel_contexts.h"
#include "lookup.h"
#include "next.h"

/* ---- contexts -------------------------------------------------------------------------------- */

static CUresult create(ga_cuda_hook_index row, ga_cuda_word out, ga_cuda_word b, ga_cuda_word c,
                       ga_cuda_word d, ga_cuda_word e, ga_cuda_word f)
{
    ga_cuda_any *next = ga_cuda_next_find(row);
    ga_cuda_count(row);
    CUresult result = next ? next(out, b, c, d, e, f) : ga_cuda_next_missing();
    if (result == CUDA_SUCCESS) {
        ga_cuda_contexts_changed();
        ga_cuda_kernel_created(*(CUcontext *)out);
    }
    return result;
}

#define DEFINE_CREATE(symbol)                                                                      \
    GA_CUDA_ENTRY(ga_cuda_any, symbol);                                                            \
    CUresult symbol(ga_cuda_word out, ga_cuda_word b, ga_cuda_word c, ga_cuda_word d,              \
                    ga_cuda_word e, ga_cuda_word f)                                                \
    {                                                                                              \
        return create(GA_HOOK_##symbol, out, b, c, d, e, f);                                       \
    }

DEFINE_CREATE(cuCtxCreate_v2)
DEFINE_CREATE(cuCtxCreate_v3)
DEFINE_CREATE(cuCtxCreate_v4)

/* ---- code ------------------------------------------------------------------------------------ */

typedef CUresult unload_fn(void *code);

#define DEFINE_UNLOAD(symbol)                                                                      \
    GA_CUDA_ENTRY(unload_fn, symbol);                                                              \
    CUresult symbol(void *code)                                                                    \
    {                                                                                              \
        unload_fn *next = GA_CUDA_NEXT(unload_fn, symbol);                                         \
        ga_cuda_count(GA_HOOK_##symbol);                                                           \
        void *copy = ga_cuda_kernel_unloading(code);                                               \
        CUresult result = next ? next(code) : ga_cuda_next_missing();                              \
        if (result == CUDA_SUCCESS) { /* else the driver may still read it */                      \
            ga_libc.free(copy);                                                                    \
        }                                                                                          \
        return result;                                                                             \
    }

DEFINE_UNLOAD(cuModuleUnload)
DEFINE_UNLOAD(cuLibraryUnload)
