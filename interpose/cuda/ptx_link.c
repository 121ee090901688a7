/* SPDX-License-Identifier: MIT
 *
 * Calls of cuLinkCreate() and its kin, and of the cache of their results.
 */
#include "ptx_link.h"

#include "../../liballoc/platform/libc.h"
#include "../../liballoc/platform/log.h"
#include "next.h"
#include "ptx_cache.h"

#include <gpualloc/backend.h>

#include <stdbool.h>
#include <string.h>
#include <time.h>

enum {
    INFO_LOG_BUFFER = 3, /* CU_JIT_* */
    ERROR_LOG_BUFFER = 5,
    ERROR_LOG_BUFFER_SIZE_BYTES = 6,
    INPUT_PTX = 1, /* CU_JIT_INPUT_* */
    INPUT_FATBINARY = 2,
    LAUNCH_ERRORS = 700, /* CUDA_ERROR_ILLEGAL_ADDRESS to ..._LAUNCH_FAILURE */
    LAUNCH_ERRORS_END = 720,
    LOG_SIZE = 1024
};

typedef struct CUlinkState_st *link_state;
typedef CUresult create_fn(unsigned count, int *options, void **values, link_state *out);
typedef CUresult add_fn(link_state state, int type, void *data, size_t size, const char *name,
                        unsigned count, int *options, void **values);
typedef CUresult complete_fn(link_state state, void **cubin, size_t *size);
typedef CUresult destroy_fn(link_state state);

typedef struct linker {
    create_fn *create;
    add_fn *add;
    complete_fn *complete;
    destroy_fn *destroy;
} linker;

static bool find_linker(linker *out)
{
    *(void **)&out->create = ga_cuda_next_symbol("cuLinkCreate_v2");
    *(void **)&out->add = ga_cuda_next_symbol("cuLinkAddData_v2");
    *(void **)&out->complete = ga_cuda_next_symbol("cuLinkComplete");
    *(void **)&out->destroy = ga_cuda_next_symbol("cuLinkDestroy");
    return out->create && out->add && out->complete && out->destroy;
}

/* The cubin belongs to the linker's state, so copy it. */
static ga_status copy_cubin(ga_image *out, void **owned, const void *cubin, size_t size)
{
    *owned = ga_libc.malloc(size);
    if (!*owned) {
        return ga_fail(GA_ERR_MEMORY, "no memory for %zu bytes of code", size);
    }
    memcpy(*owned, cubin, size);
    *out = (ga_image){*owned, size};
    return GA_OK;
}

/* Kernels that the program ran before may have broken the context. */
static bool is_of_context(CUresult result)
{
    return result == CUDA_ERROR_NOT_INITIALIZED || result == CUDA_ERROR_DEINITIALIZED ||
           result == CUDA_ERROR_INVALID_CONTEXT ||
           (result >= LAUNCH_ERRORS && result < LAUNCH_ERRORS_END);
}

static ga_status status_of(CUresult result)
{
    return result == CUDA_ERROR_OUT_OF_MEMORY ? GA_ERR_MEMORY
           : is_of_context(result)            ? GA_ERR_DEVICE
                                              : GA_ERR_UNSUPPORTED;
}

static ga_status refused(CUresult result, char *log)
{
    log[strcspn(log, "\n")] = '\0';
    return ga_fail(status_of(result), "the driver's linker refuses the PTX: error %d%s%s", result,
                   *log ? ": " : "", log);
}

/* The program's options without those for its logs, because the driver stores results in the
 * values, and the program may give them to the driver once more. Returns their number. */
static unsigned copy_options(int *names, void **values, const ga_ptx_options *options)
{
    unsigned count = 0;
    for (unsigned i = 0; i < options->count; i++) {
        int name = options->options[i];
        if (name < INFO_LOG_BUFFER || name > ERROR_LOG_BUFFER_SIZE_BYTES) {
            names[count] = name;
            values[count++] = options->values[i];
        }
    }
    return count;
}

/* The driver reads the options of an entry only in a fat binary. Most have no CU_JIT_*, or one that
 * has no effect on PTX: for -fmad=false the driver ignores CU_JIT_FMA. */
static CUresult add_input(const linker *l, link_state state, const ga_ptx_source *source)
{
    ga_image input = source->ptx;
    void *owned = NULL;
    int type = source->entry ? INPUT_FATBINARY : INPUT_PTX;
    if (source->entry && ga_fatbin_single(&input, &owned, source->entry) != GA_OK) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result =
        l->add(state, type, (void *)(uintptr_t)input.bytes, input.size, "module", 0, NULL, NULL);
    ga_libc.free(owned);
    return result;
}

static ga_status link_ptx(ga_image *out, void **owned, const linker *l, const ga_ptx_source *source)
{
    char log[LOG_SIZE] = "";
    int names[GA_PTX_OPTIONS_MOST + 2];
    void *values[GA_PTX_OPTIONS_MOST + 2];
    const ga_ptx_options *options = source->options;
    link_state state;
    void *cubin = NULL;
    size_t size = 0;
    if (options->count > GA_PTX_OPTIONS_MOST) {
        return ga_fail(GA_ERR_UNSUPPORTED, "%u options for the PTX: expected at most %d",
                       options->count, GA_PTX_OPTIONS_MOST);
    }
    unsigned count = copy_options(names, values, options);
    names[count] = ERROR_LOG_BUFFER;
    values[count++] = log;
    names[count] = ERROR_LOG_BUFFER_SIZE_BYTES;
    values[count++] = (void *)(uintptr_t)(sizeof log - 1);
    CUresult result = l->create(count, names, values, &state);
    if (result != CUDA_SUCCESS) {
        return refused(result, log);
    }
    result = add_input(l, state, source);
    if (result == CUDA_SUCCESS) {
        result = l->complete(state, &cubin, &size);
    }
    ga_status status =
        result == CUDA_SUCCESS ? copy_cubin(out, owned, cubin, size) : refused(result, log);
    l->destroy(state);
    return status;
}

/* Not the primary context: another thread may reset that one. */
static ga_status make_context(CUcontext *out, int device)
{
    ga_cuda_any *create = ga_cuda_next_find(GA_HOOK_cuCtxCreate_v2);
    const unsigned flags = 0;
    CUresult result = create ? create((ga_cuda_word)out, flags, (ga_cuda_word)device, 0, 0, 0)
                             : ga_cuda_next_missing();
    return result == CUDA_SUCCESS
               ? GA_OK
               : ga_fail(result == CUDA_ERROR_OUT_OF_MEMORY ? GA_ERR_MEMORY : GA_ERR_DEVICE,
                         "no context on device %d to compile PTX in: error %d", device, result);
}

static ga_status compile(ga_image *out, void **owned, int device, const ga_ptx_source *source)
{
    const ga_cuda_api *api = ga_cuda_next_api();
    linker l;
    CUcontext context = NULL;
    CUcontext made = NULL;
    if (!api || !find_linker(&l)) {
        return ga_fail(GA_ERR_UNSUPPORTED, "the driver has no cuLinkCreate(), to compile PTX with");
    }
    bool is_there = api->cuCtxGetCurrent(&context) == CUDA_SUCCESS && context;
    ga_status status = is_there ? GA_OK : make_context(&made, device);
    if (status == GA_OK) {
        status = link_ptx(out, owned, &l, source);
    }
    if (made) {
        ga_cuda_next_find(GA_HOOK_cuCtxDestroy_v2)((ga_cuda_word)made, 0, 0, 0, 0, 0);
    }
    return status;
}

static double milliseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

ga_status ga_ptx_link(ga_image *out, void **owned, int device, const ga_ptx_source *source)
{
    double begun = milliseconds();
    *owned = NULL;
    if (ga_ptx_cache_find(out, owned, source)) {
        ga_log(GA_LOG_INFO, "PTX of %zu bytes was compiled before: read in %.2f ms",
               source->ptx.size, milliseconds() - begun);
        return GA_OK;
    }
    ga_status status = compile(out, owned, device, source);
    if (status == GA_OK) {
        ga_log(GA_LOG_INFO, "PTX of %zu bytes compiled in %.1f ms", source->ptx.size,
               milliseconds() - begun);
        ga_ptx_cache_keep(source, *out);
    }
    return status;
}
