/* SPDX-License-Identifier: MIT
 *
 * Hooks of the functions that load device code. Code that calls malloc or free in kernels is
 * replaced by a patched copy of the machine code that the driver would choose; all other code is
 * passed on untouched.
 *
 *   hook -> load -> replace            unless REPLACED: pass the code on
 *             find_code                the entry of a fat binary for this device
 *             serve
 *               compile                PTX becomes machine code by the driver's linker
 *               ga_cuda_kernel_open    our module in this context
 *               patch
 *
 * The decision to serve is made once for a program, because a block must be freed by the malloc
 * that it came from, and modules may exchange pointers. If the first module that allocates cannot
 * be served, no later one is. A module that cannot be served after others were is reported.
 *
 * STRUCTURE  the decision and three counters
 * ORDER      relaxed: single words, and each call of a hook is complete in itself
 * PROGRESS   no lock; see kernel_place.c
 */
#include "modules.h"

#include "../../liballoc/platform/cuda_driver.h"
#include "../../liballoc/platform/environment.h"
#include "../../liballoc/platform/libc.h"
#include "../../liballoc/platform/log.h"
#include "../images/fatbin.h"
#include "../images/ptx.h"
#include "contexts.h"
#include "entry.h"
#include "image_file.h"
#include "kernel_place.h"
#include "lookup.h"
#include "next.h"
#include "ptx_link.h"

#include <gpualloc/backend.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    WORDS = 8, /* arguments of the longest hook here */
    CODE = 1   /* the argument that is the code, or the name of its file */
};

/* One call of a hook. */
typedef struct loading {
    ga_cuda_hook_index row;
    ga_cuda_word words[WORDS];
    bool is_library;
    ga_ptx_options options; /* of the compiler */
} loading;

typedef CUresult any8(ga_cuda_word a, ga_cuda_word b, ga_cuda_word c, ga_cuda_word d,
                      ga_cuda_word e, ga_cuda_word f, ga_cuda_word g, ga_cuda_word h);

/* The device that the code is for. */
typedef struct target {
    int device;
    unsigned sm;
    bool is_primary; /* its primary context is current, or none is */
} target;

/* ---- figures and the decision ---------------------------------------------------------------- */

enum {
    UNDECIDED = 0,
    SERVING,
    REFUSING
};

static int decision;
static ga_cuda_module_counts counts;

static void add_one(uint64_t *counter)
{
    __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED); /* relaxed: a figure */
}

ga_cuda_module_counts ga_cuda_modules_counted(void)
{
    /* relaxed: figures */
    return (ga_cuda_module_counts){__atomic_load_n(&counts.served, __ATOMIC_RELAXED),
                                   __atomic_load_n(&counts.passed, __ATOMIC_RELAXED),
                                   __atomic_load_n(&counts.refused, __ATOMIC_RELAXED)};
}

void ga_cuda_modules_child(void)
{
    counts = (ga_cuda_module_counts){0};
    decision = UNDECIDED;
}

/* The decision, which is `wanted` if there was none. */
static int decide(int wanted)
{
    int before = UNDECIDED;
    /* relaxed: a single word; two threads agree on it, and nothing else depends on it */
    bool first = __atomic_compare_exchange_n(&decision, &before, wanted, false, __ATOMIC_RELAXED,
                                             __ATOMIC_RELAXED);
    return first ? wanted : before;
}

static void stop_if_strict(void)
{
    const char *strict = ga_environment("GPUALLOC_STRICT");
    if (strict && strcmp(strict, "1") == 0) {
        ga_log(GA_LOG_ERROR, "a module cannot have gpualloc's malloc in kernels: %s",
               ga_error_text());
        _exit(2);
    }
}

/* A warning the first time; some programs load thousands of modules. */
static int level_of(bool is_mixed)
{
    static int told[2];
    /* relaxed: a flag of its own */
    return __atomic_exchange_n(&told[is_mixed], 1, __ATOMIC_RELAXED) ? GA_LOG_INFO : GA_LOG_WARN;
}

/* Device code that the driver has loaded allocates and keeps CUDA's malloc, for the reason in
 * ga_error_text(). */
static void refuse(void)
{
    stop_if_strict();
    bool is_mixed = decide(REFUSING) == SERVING;
    add_one(&counts.refused);
    ga_log(level_of(is_mixed), "a module keeps CUDA's malloc in kernels: %s%s", ga_error_text(),
           is_mixed ? "; other modules have gpualloc's: they must not free each other's blocks"
                    : "");
}

/* ---- where the code will run ----------------------------------------------------------------- */

static bool find_sm(const ga_cuda_api *api, target *out)
{
    int major;
    int minor;
    if (api->cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                                  out->device) != CUDA_SUCCESS ||
        api->cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
                                  out->device) != CUDA_SUCCESS) {
        return false;
    }
    out->sm = (unsigned)(10 * major + minor);
    return true;
}

/* False: the driver will refuse the call, or cannot be asked. A library needs no context. */
static bool find_target(target *out)
{
    const ga_cuda_api *api = ga_cuda_next_api();
    CUcontext context = NULL;
    if (!api) {
        return false;
    }
    out->device = ga_cuda_context_device(api, &context);
    out->is_primary = out->device >= 0 || !context;
    if (!context) {
        out->device = 0;
    } else if (!out->is_primary && api->cuCtxGetDevice(&out->device) != CUDA_SUCCESS) {
        return false;
    }
    return out->device < GA_CUDA_DEVICES && find_sm(api, out);
}

/* A library is loaded once for all devices, but our functions have other addresses on each. */
static bool has_second_device(void)
{
    const ga_cuda_api *api = ga_cuda_next_api();
    unsigned flags;
    int active;
    return !api || api->cuDevicePrimaryCtxGetState(1, &flags, &active) == CUDA_SUCCESS;
}

static ga_status check_target(const target *t, bool is_library)
{
    if (!t->is_primary) {
        return ga_fail(GA_ERR_UNSUPPORTED, "device %d: expected its primary context, got another",
                       t->device);
    }
    if (is_library && has_second_device()) {
        return ga_fail(GA_ERR_UNSUPPORTED,
                       "a library (cuLibraryLoadData) may be used on each device: expected one "
                       "device, as by CUDA_VISIBLE_DEVICES=%d",
                       t->device);
    }
    return GA_OK;
}

/* ---- replacing ------------------------------------------------------------------------------- */

/* The code in `image`, or in the entry of it for this device. */
static ga_status find_code(ga_image *image, void **owned, unsigned sm)
{
    ga_fatbin_entry entry;
    *owned = NULL;
    if (ga_image_kind_of(*image) != GA_IMAGE_FATBIN) {
        return GA_OK;
    }
    ga_status status = ga_fatbin_choose(&entry, *image, sm);
    return status == GA_OK ? ga_fatbin_unpack(image, owned, &entry) : status;
}

static ga_status calls_of(unsigned *calls, ga_image image)
{
    ga_cubin cubin;
    *calls = 0;
    if (ga_image_kind_of(image) == GA_IMAGE_PTX) {
        *calls = ga_ptx_calls(image);
        return GA_OK;
    }
    ga_status status = ga_cubin_open(&cubin, image);
    if (status == GA_OK) {
        *calls = ga_cubin_calls(&cubin);
    }
    return status;
}

/* A patched copy of a cubin. `*out` is to be freed. */
static ga_status patch_copy(void **out, ga_image image, const ga_cubin_callee *callee)
{
    ga_cubin cubin;
    uint8_t *copy = ga_libc.malloc(image.size);
    if (!copy) {
        return ga_fail(GA_ERR_MEMORY, "no memory for a copy of %zu bytes of code", image.size);
    }
    memcpy(copy, image.bytes, image.size);
    ga_status status = ga_cubin_open(&cubin, (ga_image){copy, image.size});
    if (status == GA_OK) {
        status = ga_cubin_patch(&cubin, copy, callee);
    }
    if (status != GA_OK) {
        ga_libc.free(copy);
        copy = NULL;
    }
    *out = copy;
    return status;
}

/* `image` calls malloc or free. */
static ga_status serve(void **out, const loading *c, const target *t, ga_image image,
                       unsigned calls)
{
    ga_cubin_callee callee;
    void *compiled = NULL;
    ga_status status = check_target(t, c->is_library);
    /* relaxed: see decide() */
    if (status == GA_OK && __atomic_load_n(&decision, __ATOMIC_RELAXED) == REFUSING) {
        status = ga_fail(GA_ERR_UNSUPPORTED, "an earlier module of the program keeps it");
    }
    if (status == GA_OK && ga_image_kind_of(image) == GA_IMAGE_PTX) {
        status = ga_ptx_link(&image, &compiled, t->device, image, &c->options);
    }
    if (status == GA_OK) {
        status = ga_cuda_kernel_open(&callee, t->device, t->sm, calls);
    }
    if (status == GA_OK) {
        status = patch_copy(out, image, &callee);
    }
    ga_libc.free(compiled);
    return status;
}

typedef enum verdict {
    PASSED,  /* the code does not allocate, or nobody can tell: it is loaded as it is */
    REFUSED, /* it allocates and cannot be served; ga_error_text() says why */
    REPLACED
} verdict;

/* REPLACED: `*out`, to be freed, is to be loaded instead, for `*device`. */
static verdict replace(void **out, const loading *c, const void *code, int *device)
{
    target t;
    ga_image image;
    void *owned = NULL;
    unsigned calls = 0;
    *out = NULL;
    if (!ga_cuda_kernel_wanted() || !code || !find_target(&t)) {
        return PASSED;
    }
    ga_status status = ga_image_measure(&image, code);
    if (status == GA_OK) {
        status = find_code(&image, &owned, t.sm);
    }
    if (status == GA_OK) {
        status = calls_of(&calls, image);
    }
    if (status != GA_OK) {
        ga_log(GA_LOG_INFO, "a module is passed to the driver unread: %s", ga_error_text());
    }
    verdict found = PASSED;
    if (calls) {
        found = serve(out, c, &t, image, calls) == GA_OK ? REPLACED : REFUSED;
    } else {
        add_one(&counts.passed);
    }
    ga_libc.free(owned);
    *device = t.device;
    return found;
}

/* ---- the hooks ------------------------------------------------------------------------------- */

static CUresult forward(const loading *c, ga_cuda_hook_index row, const void *code)
{
    any8 *next = (any8 *)(uintptr_t)ga_cuda_next_find(row);
    const ga_cuda_word *w = c->words;
    return next ? next(w[0], (ga_cuda_word)code, w[2], w[3], w[4], w[5], w[6], w[7])
                : ga_cuda_next_missing();
}

/* A program that gives a library options may promise that the code stays where it is, so the copy
 * stays, too. */
static void drop_copy(const loading *c, void *copy)
{
    bool stays = c->is_library && (unsigned)c->words[7];
    if (!stays) {
        ga_libc.free(copy);
    }
}

/* Load the program's code, which cannot be served for the reason in ga_error_text(). If the driver
 * refuses it, too, nothing was loaded, and other modules may still be served. */
static CUresult load_refused(const loading *c)
{
    char reason[256];
    snprintf(reason, sizeof reason, "%s", ga_error_text());
    CUresult result = forward(c, c->row, (const void *)c->words[CODE]);
    if (result == CUDA_SUCCESS) {
        ga_fail(GA_ERR_UNSUPPORTED, "%s", reason);
        refuse();
    }
    return result;
}

/* `data_row`: the function that loads `code`, which the call names by itself or by its file. */
static CUresult load(const loading *c, ga_cuda_hook_index data_row, const void *code)
{
    void *copy;
    ga_cuda_count(c->row);
    int device = 0;
    verdict found = replace(&copy, c, code, &device);
    if (found != REPLACED) {
        return found == REFUSED ? load_refused(c)
                                : forward(c, c->row, (const void *)c->words[CODE]);
    }
    CUresult result = forward(c, data_row, copy);
    if (result == CUDA_SUCCESS) {
        if (c->is_library) {
            ga_cuda_kernel_library(device);
        }
        decide(SERVING);
        add_one(&counts.served);
        drop_copy(c, copy);
        return result;
    }
    ga_libc.free(copy);
    ga_fail(GA_ERR_DEVICE, "the driver answers %d to the patched code", result);
    return load_refused(c);
}

static CUresult load_file(const loading *c, ga_cuda_hook_index data_row)
{
    void *code = ga_cuda_kernel_wanted() ? ga_image_file_read((const char *)c->words[CODE]) : NULL;
    CUresult result = load(c, data_row, code);
    ga_libc.free(code);
    return result;
}

GA_CUDA_ENTRY(ga_cuda_any, cuModuleLoad);
GA_CUDA_ENTRY(ga_cuda_any, cuModuleLoadData);
GA_CUDA_ENTRY(ga_cuda_any, cuModuleLoadDataEx);
GA_CUDA_ENTRY(ga_cuda_any, cuModuleLoadFatBinary);
GA_CUDA_ENTRY(any8, cuLibraryLoadData);
GA_CUDA_ENTRY(any8, cuLibraryLoadFromFile);

CUresult cuModuleLoad(ga_cuda_word module, ga_cuda_word file, ga_cuda_word c, ga_cuda_word d,
                      ga_cuda_word e, ga_cuda_word f)
{
    loading call = {.row = GA_HOOK_cuModuleLoad, .words = {module, file, c, d, e, f}};
    return load_file(&call, GA_HOOK_cuModuleLoadData);
}

CUresult cuModuleLoadData(ga_cuda_word module, ga_cuda_word code, ga_cuda_word c, ga_cuda_word d,
                          ga_cuda_word e, ga_cuda_word f)
{
    loading call = {.row = GA_HOOK_cuModuleLoadData, .words = {module, code, c, d, e, f}};
    return load(&call, call.row, (const void *)code);
}

CUresult cuModuleLoadDataEx(ga_cuda_word module, ga_cuda_word code, ga_cuda_word count,
                            ga_cuda_word options, ga_cuda_word values, ga_cuda_word f)
{
    loading call = {.row = GA_HOOK_cuModuleLoadDataEx,
                    .words = {module, code, count, options, values, f},
                    .options = {(unsigned)count, (int *)options, (void **)values}};
    return load(&call, call.row, (const void *)code);
}

CUresult cuModuleLoadFatBinary(ga_cuda_word module, ga_cuda_word code, ga_cuda_word c,
                               ga_cuda_word d, ga_cuda_word e, ga_cuda_word f)
{
    loading call = {.row = GA_HOOK_cuModuleLoadFatBinary, .words = {module, code, c, d, e, f}};
    return load(&call, GA_HOOK_cuModuleLoadData,
                (const void *)code); /* a patched copy is a cubin */
}

static loading library_loading(ga_cuda_hook_index row, const ga_cuda_word words[WORDS])
{
    loading c = {.row = row,
                 .is_library = true,
                 .options = {(unsigned)words[4], (int *)words[2], (void **)words[3]}};
    memcpy(c.words, words, sizeof c.words);
    return c;
}

CUresult cuLibraryLoadData(ga_cuda_word library, ga_cuda_word code, ga_cuda_word jit_options,
                           ga_cuda_word jit_values, ga_cuda_word jit_count, ga_cuda_word options,
                           ga_cuda_word values, ga_cuda_word count)
{
    ga_cuda_word words[WORDS] = {library,   code,    jit_options, jit_values,
                                 jit_count, options, values,      count};
    loading c = library_loading(GA_HOOK_cuLibraryLoadData, words);
    return load(&c, c.row, (const void *)code);
}

CUresult cuLibraryLoadFromFile(ga_cuda_word library, ga_cuda_word file, ga_cuda_word jit_options,
                               ga_cuda_word jit_values, ga_cuda_word jit_count,
                               ga_cuda_word options, ga_cuda_word values, ga_cuda_word count)
{
    ga_cuda_word words[WORDS] = {library,   file,    jit_options, jit_values,
                                 jit_count, options, values,      count};
    loading c = library_loading(GA_HOOK_cuLibraryLoadFromFile, words);
    return load_file(&c, GA_HOOK_cuLibraryLoadData);
}
