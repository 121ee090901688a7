/* SPDX-License-Identifier: MIT
 *
 * Hooks of calls that create contexts, unload code, instantiate graphs or launch kernels: see
 * kernel_contexts.c.
 */
#include "contexts.h"
#include "entry.h"
#include "kernel_graphs.h"
#include "kernel_list.h"
#include "lookup.h"
#include "next.h"

#include <string.h>

/* ---- contexts -------------------------------------------------------------------------------- */

static CUresult create(ga_cuda_hook_index row, ga_cuda_word out, ga_cuda_word b, ga_cuda_word c,
                       ga_cuda_word d, ga_cuda_word e, ga_cuda_word f)
{
    ga_cuda_any *next = ga_cuda_next_find(row);
    ga_cuda_count(row);
    CUresult result = next ? next(out, b, c, d, e, f) : ga_cuda_next_missing();
    if (result == CUDA_SUCCESS) {
        ga_cuda_contexts_changed();
        ga_cuda_references_end(*(CUcontext *)out); /* of one with this handle that ended unseen */
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

DEFINE_CREATE(cuCtxCreate)
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
        const ga_cuda_code *served = ga_cuda_kernel_unloading(code);                               \
        CUresult result = next ? next(code) : ga_cuda_next_missing();                              \
        ga_cuda_kernel_unloaded(served, result == CUDA_SUCCESS);                                   \
        return result;                                                                             \
    }

DEFINE_UNLOAD(cuModuleUnload)
DEFINE_UNLOAD(cuLibraryUnload)

/* ---- executable graphs ----------------------------------------------------------------------- */

static CUresult instantiate(ga_cuda_hook_index row, ga_cuda_word out, ga_cuda_word graph,
                            ga_cuda_word c, ga_cuda_word d, ga_cuda_word e, ga_cuda_word f)
{
    ga_cuda_any *next = ga_cuda_next_find(row);
    ga_cuda_count(row);
    CUresult result = next ? next(out, graph, c, d, e, f) : ga_cuda_next_missing();
    if (result == CUDA_SUCCESS) {
        ga_cuda_graph_instantiated(*(void **)out, (void *)graph);
    }
    return result;
}

#define DEFINE_INSTANTIATE(symbol)                                                                 \
    GA_CUDA_ENTRY(ga_cuda_any, symbol);                                                            \
    CUresult symbol(ga_cuda_word out, ga_cuda_word graph, ga_cuda_word c, ga_cuda_word d,          \
                    ga_cuda_word e, ga_cuda_word f)                                                \
    {                                                                                              \
        return instantiate(GA_HOOK_##symbol, out, graph, c, d, e, f);                              \
    }

DEFINE_INSTANTIATE(cuGraphInstantiate)
DEFINE_INSTANTIATE(cuGraphInstantiate_v2)
DEFINE_INSTANTIATE(cuGraphInstantiateWithFlags)
DEFINE_INSTANTIATE(cuGraphInstantiateWithParams)
DEFINE_INSTANTIATE(cuGraphInstantiateWithParams_ptsz)

GA_CUDA_ENTRY(unload_fn, cuGraphExecDestroy);

CUresult cuGraphExecDestroy(void *exec)
{
    unload_fn *next = GA_CUDA_NEXT(unload_fn, cuGraphExecDestroy);
    ga_cuda_count(GA_HOOK_cuGraphExecDestroy);
    ga_cuda_graph_destroying(exec);
    return next ? next(exec) : ga_cuda_next_missing();
}

/* ---- launches -------------------------------------------------------------------------------- */

/* These hooks do not count their calls. They cost a load and a jump if no context is behind; if
 * another one is, a call of the driver and some loads, but no lock unless a thread launches in
 * another context than before. */

enum {
    STREAM_THREAD = 2 /* CU_STREAM_PER_THREAD, the last handle of a default stream */
};

/* One that has gone since, whose handle another context has, is taken for listed. */
static bool is_listed(CUcontext context)
{
    static _Thread_local CUcontext last; /* that was in the list */
    if (context != last && ga_cuda_listed_device(context) >= 0) {
        last = context;
    }
    return context == last;
}

/* The context of the stream runs the kernel; for a default stream, the current context does. With a
 * green context the primary one does, but the driver names another, which is not listed, or
 * none. */
static void before_launch(CUstream stream)
{
    const ga_cuda_api *api = ga_cuda_next_api();
    CUcontext context = NULL;
    if (!api) {
        return;
    }
    CUresult result = (uintptr_t)stream <= STREAM_THREAD ? api->cuCtxGetCurrent(&context)
                                                         : api->cuStreamGetCtx(stream, &context);
    if (result == CUDA_ERROR_NOT_SUPPORTED ||
        (result == CUDA_SUCCESS && context && !is_listed(context))) {
        ga_cuda_kernel_launching_any();
    } else if (result == CUDA_SUCCESS && context && ga_cuda_listed_may_be_behind(context)) {
        ga_cuda_kernel_launching(context);
    }
}

static ga_cuda_any *next_launch(ga_cuda_hook_index row)
{
    /* relaxed: every thread stores the same word */
    void *function = __atomic_load_n(&ga_cuda_next[row], __ATOMIC_RELAXED);
    return __builtin_expect(function != NULL, 1) ? (ga_cuda_any *)(uintptr_t)function
                                                 : ga_cuda_next_find(row);
}

typedef CUresult launch_kernel_fn(ga_cuda_word f, ga_cuda_word gx, ga_cuda_word gy, ga_cuda_word gz,
                                  ga_cuda_word bx, ga_cuda_word by, ga_cuda_word bz,
                                  ga_cuda_word shared, CUstream stream, ga_cuda_word parameters,
                                  ga_cuda_word extra);

/* cuLaunchCooperativeKernel() has no `extra`, and ignores it. */
#define DEFINE_LAUNCH_KERNEL(symbol)                                                               \
    GA_CUDA_ENTRY(launch_kernel_fn, symbol);                                                       \
    CUresult symbol(ga_cuda_word f, ga_cuda_word gx, ga_cuda_word gy, ga_cuda_word gz,             \
                    ga_cuda_word bx, ga_cuda_word by, ga_cuda_word bz, ga_cuda_word shared,        \
                    CUstream stream, ga_cuda_word parameters, ga_cuda_word extra)                  \
    {                                                                                              \
        launch_kernel_fn *next = (launch_kernel_fn *)(uintptr_t)next_launch(GA_HOOK_##symbol);     \
        if (ga_cuda_listed_any_is_behind()) {                                                      \
            before_launch(stream);                                                                 \
        }                                                                                          \
        return next ? next(f, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra)           \
                    : ga_cuda_next_missing();                                                      \
    }

/* The configuration names the stream. */
static void before_config(ga_cuda_word config, ga_cuda_word b, ga_cuda_word c, ga_cuda_word d)
{
    struct CUlaunchConfig {
        unsigned sizes[7]; /* of grid, block and dynamic shared memory */
        CUstream stream;
    } launch;
    (void)b, (void)c, (void)d;
    if (config) { /* else the driver refuses the call */
        memcpy(&launch, (const void *)config, sizeof launch);
        before_launch(launch.stream);
    }
}

static void before_fourth(ga_cuda_word a, ga_cuda_word b, ga_cuda_word c, ga_cuda_word stream)
{
    (void)a, (void)b, (void)c;
    before_launch((CUstream)stream);
}

static void before_current(ga_cuda_word a, ga_cuda_word b, ga_cuda_word c, ga_cuda_word d)
{
    (void)a, (void)b, (void)c, (void)d;
    before_launch(NULL);
}

/* A launch on each of several devices, in the context of its stream. */
static void before_each(ga_cuda_word list, ga_cuda_word count, ga_cuda_word c, ga_cuda_word d)
{
    struct CUDA_LAUNCH_PARAMS {
        void *function;
        unsigned sizes[7]; /* of grid, block and dynamic shared memory */
        CUstream stream;
        void **parameters;
    } launch;
    (void)c, (void)d;
    for (unsigned i = 0; list && i < (unsigned)count; i++) { /* else the driver refuses the call */
        memcpy(&launch, (const char *)list + i * sizeof launch, sizeof launch);
        before_launch(launch.stream);
    }
}

/* Each kernel runs in its own context, whatever the stream. */
static void before_graph(ga_cuda_word exec, ga_cuda_word b, ga_cuda_word c, ga_cuda_word d)
{
    (void)b, (void)c, (void)d;
    ga_cuda_graph_launching((const void *)exec);
}

#define DEFINE_LAUNCH(symbol, before)                                                              \
    GA_CUDA_ENTRY(ga_cuda_any, symbol);                                                            \
    CUresult symbol(ga_cuda_word a, ga_cuda_word b, ga_cuda_word c, ga_cuda_word d,                \
                    ga_cuda_word e, ga_cuda_word f)                                                \
    {                                                                                              \
        ga_cuda_any *next = next_launch(GA_HOOK_##symbol);                                         \
        if (ga_cuda_listed_any_is_behind()) {                                                      \
            before(a, b, c, d);                                                                    \
        }                                                                                          \
        return next ? next(a, b, c, d, e, f) : ga_cuda_next_missing();                             \
    }

DEFINE_LAUNCH_KERNEL(cuLaunchKernel)
DEFINE_LAUNCH_KERNEL(cuLaunchKernel_ptsz)
DEFINE_LAUNCH_KERNEL(cuLaunchCooperativeKernel)
DEFINE_LAUNCH_KERNEL(cuLaunchCooperativeKernel_ptsz)
DEFINE_LAUNCH(cuLaunchKernelEx, before_config)
DEFINE_LAUNCH(cuLaunchKernelEx_ptsz, before_config)
DEFINE_LAUNCH(cuLaunch, before_current)
DEFINE_LAUNCH(cuLaunchGrid, before_current)
DEFINE_LAUNCH(cuLaunchGridAsync, before_fourth)
DEFINE_LAUNCH(cuLaunchCooperativeKernelMultiDevice, before_each)
DEFINE_LAUNCH(cuGraphLaunch, before_graph)
DEFINE_LAUNCH(cuGraphLaunch_ptsz, before_graph)
