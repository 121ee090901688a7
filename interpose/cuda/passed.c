/* SPDX-License-Identifier: MIT
 *
 * The PASSES and RETRIES rows of the hook table: counted and passed to the driver unchanged.
 */
#include "entry.h"
#include "lookup.h"
#include "next.h"
#include "served.h"

static inline ga_cuda_any *next_of(ga_cuda_hook_index row)
{
    /* relaxed: every thread stores the same word */
    void *function = __atomic_load_n(&ga_cuda_next[row], __ATOMIC_RELAXED);
    return __builtin_expect(function != NULL, 1) ? (ga_cuda_any *)(uintptr_t)function
                                                 : ga_cuda_next_find(row);
}

static inline CUresult pass(ga_cuda_hook_index row, ga_cuda_word a, ga_cuda_word b, ga_cuda_word c,
                            ga_cuda_word d, ga_cuda_word e, ga_cuda_word f)
{
    ga_cuda_any *next = next_of(row);
    ga_cuda_count(row);
    return __builtin_expect(next != NULL, 1) ? next(a, b, c, d, e, f) : ga_cuda_next_missing();
}

/* The heap's caches may hold the memory that the driver needs. */
static CUresult pass_retry(ga_cuda_hook_index row, ga_cuda_word a, ga_cuda_word b, ga_cuda_word c,
                           ga_cuda_word d, ga_cuda_word e, ga_cuda_word f)
{
    CUresult result = pass(row, a, b, c, d, e, f);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && ga_cuda_served_trim()) {
        result = next_of(row)(a, b, c, d, e, f);
    }
    return result;
}

#define DEFINE(symbol, function)                                                                   \
    GA_CUDA_ENTRY(ga_cuda_any, symbol);                                                            \
    CUresult symbol(ga_cuda_word a, ga_cuda_word b, ga_cuda_word c, ga_cuda_word d,                \
                    ga_cuda_word e, ga_cuda_word f)                                                \
    {                                                                                              \
        return function(GA_HOOK_##symbol, a, b, c, d, e, f);                                       \
    }

#define DEFINE_FINDS(symbol)
#define DEFINE_SERVES(symbol)
#define DEFINE_ANSWERS(symbol)
#define DEFINE_WATCHES(symbol)
#define DEFINE_LIMITS(symbol)
#define DEFINE_PATCHES(symbol)
#define DEFINE_RETRIES(symbol)                                      DEFINE(symbol, pass_retry)
#define DEFINE_PASSES(symbol)                                       DEFINE(symbol, pass)
#define DEFINE_ROW(kind, name, since, symbol, streams, description) DEFINE_##kind(symbol)

GA_CUDA_HOOKS(DEFINE_ROW)
