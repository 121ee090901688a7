/* SPDX-License-Identifier: MIT
 *
 * Hooks of the functions that load device code. Code that calls malloc or free in kernels is
 * replaced by a copy of the machine code that the driver would choose, in which these are stubs.
 * All other code is passed on untouched.
 *
 *   hook -> load -> replace            unless REPLACED: pass the code on
 *             find_code                the entry of a fat binary for this device
 *             serve
 *               ga_ptx_link            PTX becomes machine code by the driver's linker
 *               ga_cuda_kernel_serve   our module in this context, if there is one, and the copy
 *           finish -> ga_cuda_kernel_loaded    the address of our functions
 *
 * The decision to serve is made once for a program, because a block must be freed by the malloc
 * that it came from, and modules may exchange pointers. If the first module that allocates cannot
 * be served, no later one is, unless GPUALLOC_KERNEL_MIXED=allow. A module that cannot be served
 * after others were is reported. One that cannot be read may allocate, and counts as one that does.
 *
 * STRUCTURE  the decision and four counters
 * ORDER      relaxed: single words, and each call of a hook is complete in itself
 * PROGRESS   no lock; see kernel_contexts.c
 */
#include "modules.h"

#include "../../liballoc/platform/cuda_driver.h"
#include "../../liballoc/platform/environment.h"
#include "../../liballoc/platform/libc.h"
#include "../../liballoc/platform/log.h"
#include "../images/cubin.h"
#include "../images/fatbin.h"
#include "../images/ptx.h"
#include "contexts.h"
#include "entry.h"
#include "image_file.h"
#include "kernel_contexts.h"
#include "kernel_place.h"
#include "lookup.h"
#include "next.h"
#include "ptx_link.h"

#include <gpualloc/backend.h>

#include <stdio.h>
#include <string.h>

enum {
    WORDS = 8,              /* arguments of the longest hook here */
    HANDLE = 0,             /* the argument that gets the module or library */
    CODE = 1,               /* the one that is the code, or the name of its file */
    BINARY_IS_PRESERVED = 1 /* CU_LIBRARY_BINARY_IS_PRESERVED */
};

/* One call of a hook. */
typedef struct loading {
    ga_cuda_hook_index row;
    ga_cuda_word words[WORDS];
    bool is_library;
    bool is_kept;           /* the program keeps the code of a library until it unloads it */
    bool is_unread;         /* our reading of its file has failed */
    size_t size;            /* of the code; SIZE_MAX: not known */
    ga_ptx_options options; /* of the compiler */
} loading;

typedef CUresult any8(ga_cuda_word a, ga_cuda_word b, ga_cuda_word c, ga_cuda_word d,
                      ga_cuda_word e, ga_cuda_word f, ga_cuda_word g, ga_cuda_word h);

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
                                   __atomic_load_n(&counts.refused, __ATOMIC_RELAXED),
                                   __atomic_load_n(&counts.unread, __ATOMIC_RELAXED)};
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

enum {
    TOLD_REFUSED = 0,
    TOLD_MIXED,
    TOLD_UNREAD,
    TOLD_COUNT
};

/* A warning the first time; some programs load thousands of modules. */
static int level_of(int subject)
{
    static int told[TOLD_COUNT];
    /* relaxed: a flag of its own */
    return __atomic_exchange_n(&told[subject], 1, __ATOMIC_RELAXED) ? GA_LOG_INFO : GA_LOG_WARN;
}

static bool may_mix(void)
{
    const char *mixed = ga_environment("GPUALLOC_KERNEL_MIXED");
    bool allows = mixed && strcmp(mixed, "allow") == 0;
    static bool is_said;
    /* relaxed: one call alone logs the line */
    if (mixed && *mixed && !allows && !__atomic_exchange_n(&is_said, true, __ATOMIC_RELAXED)) {
        ga_log(GA_LOG_WARN, "GPUALLOC_KERNEL_MIXED: expected allow, or nothing, got \"%s\"", mixed);
    }
    return allows;
}

typedef enum verdict {
    PASSED,  /* the code does not allocate: it is loaded as it is */
    UNREAD,  /* so is code that cannot be read, and may allocate; ga_error_text() says why */
    REFUSED, /* it allocates and cannot be served; ga_error_text() says why */
    REPLACED
} verdict;

/* Device code that the driver has loaded on a device is REFUSED or UNREAD, for the reason in
 * ga_error_text(), and keeps CUDA's malloc. */
static void refuse(verdict found, int device)
{
    bool is_unread = found == UNREAD;
    ga_cuda_kernel_stop_if_strict();
    bool is_alone = !may_mix() && decide(REFUSING) == REFUSING;
    add_one(is_unread ? &counts.unread : &counts.refused);
    ga_log(
        level_of(is_unread  ? TOLD_UNREAD
                 : is_alone ? TOLD_REFUSED
                            : TOLD_MIXED),
        "%s: %s%s",
        is_unread ? "a module is passed to the driver unread, and keeps CUDA's malloc in kernels "
                    "if it allocates"
                  : "a module keeps CUDA's malloc in kernels",
        ga_error_text(),
        is_alone ? "" : "; other modules have gpualloc's: they must not free each other's blocks");
    if (is_alone) {
        ga_cuda_kernel_close_unused(device);
    }
}

/* ---- where the code will run ----------------------------------------------------------------- */

static bool find_sm(const ga_cuda_api *api, int device, unsigned *sm)
{
    int major;
    int minor;
    if (api->cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device) !=
            CUDA_SUCCESS ||
        api->cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device) !=
            CUDA_SUCCESS) {
        return false;
    }
    *sm = (unsigned)(10 * major + minor);
    return true;
}

/* False: the driver will refuse the call, or cannot be asked. A library needs no context. */
static bool find_target(ga_cuda_target *out)
{
    const ga_cuda_api *api = ga_cuda_next_api();
    *out = (ga_cuda_target){0};
    if (!api) {
        return false;
    }
    out->device = ga_cuda_context_device(api, &out->context);
    out->is_primary = out->device >= 0;
    if (!out->context) {
        out->device = 0;
    } else if (!out->is_primary && api->cuCtxGetDevice(&out->device) != CUDA_SUCCESS) {
        return false;
    }
    return out->device < GA_CUDA_DEVICES && find_sm(api, out->device, &out->sm);
}

/* A library is loaded once for all devices, from one image. */
static ga_status check_devices(const ga_cuda_target *t)
{
    const ga_cuda_api *api = ga_cuda_next_api();
    for (int i = 0; i < ga_cuda_devices(); i++) {
        unsigned sm = 0;
        if (!find_sm(api, i, &sm) || sm != t->sm) {
            return ga_fail(GA_ERR_UNSUPPORTED,
                           "a library (cuLibraryLoadData) may be used on each device: expected "
                           "sm_%u of all, got sm_%u of device %d; see CUDA_VISIBLE_DEVICES",
                           t->sm, sm, i);
        }
    }
    return GA_OK;
}

/* ---- replacing ------------------------------------------------------------------------------- */

/* The code in `image`, or in the entry of it for this device, which goes to `entry`. Of size 0:
 * nothing in it runs here. */
static ga_status find_code(ga_image *image, void **owned, ga_fatbin_entry *entry, unsigned sm)
{
    *owned = NULL;
    if (ga_image_kind_of(*image) != GA_IMAGE_FATBIN) {
        return GA_OK;
    }
    if (!ga_fatbin_may_run(*image, sm)) {
        image->size = 0;
        return GA_OK;
    }
    ga_status status = ga_fatbin_choose(entry, *image, sm);
    return status == GA_OK ? ga_fatbin_unpack(image, owned, entry) : status;
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

/* `image` calls malloc or free; a fat binary had it in `entry`. */
static ga_status serve(void **out, const loading *c, const ga_cuda_target *t, ga_image image,
                       const ga_fatbin_entry *entry, unsigned calls)
{
    ga_image copy;
    void *compiled = NULL;
    ga_status status = c->is_library ? check_devices(t) : GA_OK;
    /* relaxed: see decide() */
    if (status == GA_OK && __atomic_load_n(&decision, __ATOMIC_RELAXED) == REFUSING) {
        status = ga_fail(GA_ERR_UNSUPPORTED, "an earlier module of the program keeps it");
    }
    if (status == GA_OK && ga_image_kind_of(image) == GA_IMAGE_PTX) {
        ga_ptx_source source = {image, entry->payload.bytes ? entry : NULL, t->sm, &c->options};
        status = ga_ptx_link(&image, &compiled, t->device, &source);
    }
    if (status == GA_OK) {
        status = ga_cuda_kernel_serve(&copy, out, t, image, calls);
    }
    ga_libc.free(compiled);
    return status;
}

static bool are_readable(const ga_ptx_options *options)
{
    return !options->count || (options->options && options->values);
}

/* A call that the driver will refuse. */
static ga_status check_options(const ga_ptx_options *options)
{
    return are_readable(options)
               ? GA_OK
               : ga_fail(GA_ERR_ARGUMENT, "expected names and values of %u options, got NULL",
                         options->count);
}

/* REPLACED: `*out`, to be freed, is to be loaded instead. */
static verdict replace(void **out, const loading *c, const void *code, ga_cuda_target *t)
{
    ga_image image;
    ga_fatbin_entry entry = {0};
    void *owned = NULL;
    unsigned calls = 0;
    *out = NULL;
    if (c->is_unread) {
        find_target(t);
        return UNREAD;
    }
    if (!ga_cuda_kernel_wanted() || !code || !find_target(t) || (!c->is_library && !t->context)) {
        return PASSED; /* without a context, the driver refuses a module */
    }
    ga_status status = check_options(&c->options);
    if (status == GA_OK) {
        status = ga_image_measure(&image, code, c->size);
    }
    if (status == GA_OK) {
        status = find_code(&image, &owned, &entry, t->sm);
    }
    if (status == GA_OK && image.size) {
        status = calls_of(&calls, image);
    }
    verdict found = status == GA_OK ? PASSED : UNREAD;
    if (calls) {
        found = serve(out, c, t, image, &entry, calls) == GA_OK ? REPLACED : REFUSED;
    } else if (found == PASSED) {
        add_one(&counts.passed);
    }
    ga_libc.free(owned);
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

/* Load the program's code as it is. For the reason in ga_error_text(), it cannot be served or read.
 * If the driver refuses it, too, nothing was loaded, and other modules may still be served. */
static CUresult load_own(const loading *c, verdict found, const ga_cuda_target *t)
{
    char reason[256];
    snprintf(reason, sizeof reason, "%s", ga_error_text());
    CUresult result = forward(c, c->row, (const void *)c->words[CODE]);
    if (result == CUDA_SUCCESS && found != PASSED) {
        ga_fail(GA_ERR_UNSUPPORTED, "%s", reason);
        refuse(found, t->device);
    }
    return result;
}

static void unload(const loading *c, void *handle)
{
    ga_cuda_any *next =
        ga_cuda_next_find(c->is_library ? GA_HOOK_cuLibraryUnload : GA_HOOK_cuModuleUnload);
    if (next) {
        next((ga_cuda_word)handle, 0, 0, 0, 0, 0);
    }
}

/* The driver has loaded `copy`. */
static CUresult finish(const loading *c, void *copy, const ga_cuda_target *t)
{
    void *handle = *(void **)c->words[HANDLE];
    void *kept = c->is_kept ? copy : NULL;
    ga_status status = ga_cuda_kernel_loaded(handle, c->is_library, kept, t);
    if (status != GA_OK) {
        unload(c, handle);
    }
    if (status != GA_OK || !kept) {
        ga_libc.free(copy);
    }
    if (status != GA_OK) {
        return load_own(c, REFUSED, t);
    }
    if (decide(SERVING) == REFUSING && !may_mix()) { /* another thread's module was the first */
        ga_log(GA_LOG_WARN, "a module has gpualloc's malloc in kernels, and an earlier one CUDA's: "
                            "they must not free each other's blocks");
    }
    add_one(&counts.served);
    return CUDA_SUCCESS;
}

/* `data_row`: the function that loads `code`, which the call names by itself or by its file. */
static CUresult load(const loading *c, ga_cuda_hook_index data_row, const void *code)
{
    void *copy;
    ga_cuda_target target;
    ga_cuda_count(c->row);
    verdict found = replace(&copy, c, code, &target);
    if (found != REPLACED) {
        return load_own(c, found, &target);
    }
    CUresult result = forward(c, data_row, copy);
    if (result == CUDA_SUCCESS) {
        return finish(c, copy, &target);
    }
    ga_libc.free(copy);
    ga_fail(GA_ERR_DEVICE, "the driver answers %d to the code with stubs", result);
    return load_own(c, REFUSED, &target);
}

/* With is_kept the call is invalid, which the driver will say. */
static CUresult load_file(loading *c, ga_cuda_hook_index data_row)
{
    void *code = NULL;
    if (ga_cuda_kernel_wanted() && !c->is_kept) {
        c->is_unread = ga_image_file_read(&code, &c->size, (const char *)c->words[CODE]) != GA_OK;
    }
    c->size += code ? 1 : 0; /* the NUL behind a text */
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
    loading call = {
        .row = GA_HOOK_cuModuleLoadData, .size = SIZE_MAX, .words = {module, code, c, d, e, f}};
    return load(&call, call.row, (const void *)code);
}

CUresult cuModuleLoadDataEx(ga_cuda_word module, ga_cuda_word code, ga_cuda_word count,
                            ga_cuda_word options, ga_cuda_word values, ga_cuda_word f)
{
    loading call = {.row = GA_HOOK_cuModuleLoadDataEx,
                    .size = SIZE_MAX,
                    .words = {module, code, count, options, values, f},
                    .options = {(unsigned)count, (int *)options, (void **)values}};
    return load(&call, call.row, (const void *)code);
}

CUresult cuModuleLoadFatBinary(ga_cuda_word module, ga_cuda_word code, ga_cuda_word c,
                               ga_cuda_word d, ga_cuda_word e, ga_cuda_word f)
{
    loading call = {.row = GA_HOOK_cuModuleLoadFatBinary,
                    .size = SIZE_MAX,
                    .words = {module, code, c, d, e, f}};
    return load(&call, GA_HOOK_cuModuleLoadData,
                (const void *)code); /* a copy with stubs is a cubin */
}

static loading library_loading(ga_cuda_hook_index row, const ga_cuda_word words[WORDS])
{
    const int *options = (const int *)words[5];
    loading c = {.row = row,
                 .is_library = true,
                 .size = SIZE_MAX,
                 .options = {(unsigned)words[4], (int *)words[2], (void **)words[3]}};
    for (unsigned i = 0; options && i < (unsigned)words[7]; i++) {
        c.is_kept = c.is_kept || options[i] == BINARY_IS_PRESERVED;
    }
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
