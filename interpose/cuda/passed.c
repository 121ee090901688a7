/* SPDX-License-Identifier: MIT
 *
 * The rows that stay the driver's: counted, and passed on as they came.
 */
#include "entry.h"
#include "lookup.h"
#include "next.h"
#include "served.h"

static inline ga_cuda_any *next_of(ga_cuda_hook_index row)
{
    /* relaxed: a word that is the same whoever wrote it */
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

/* What we cache may be just what the driver lacks. */
static CUresult pass_twice(ga_cuda_hook_index row, ga_cuda_word a, ga_cuda_word b, ga_cuda_word c,
                           ga_cuda_word d, ga_cuda_word e, ga_cuda_word f)
{
    CUresult result = pass(row, a, b, c, d, e, f);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && ga_cuda_served_trim()) {
        result = next_of(row)(a, b, c, d, e, f);
    }
    return result;
}

#define DEFINE(symbol, how)                                                                        \
    GA_CUDA_ENTRY(ga_cuda_any, symbol);                                                            \
    CUresult symbol(ga_cuda_word a, ga_cuda_word b, ga_cuda_word c, ga_cuda_word d,                \
                    ga_cuda_word e, ga_cuda_word f)                                                \
    {                                                                                              \
        return how(GA_HOOK_##symbol, a, b, c, d, e, f);                                            \
    }

#define DEFINE_FINDS(symbol)
#define DEFINE_SERVES(symbol)
#define DEFINE_ANSWERS(symbol)
#define DEFINE_WATCHES(symbol)
#define DEFINE_LIMITS(symbol)
#define DEFINE_RETRIES(symbol)                               DEFINE(symbol, pass_twice)
#define DEFINE_PASSES(symbol)                                DEFINE(symbol, pass)
#define DEFINE_ROW(kind, name, since, symbol, streams, what) DEFINE_##kind(symbol)

GA_CUDA_HOOKS(DEFINE_ROW)
