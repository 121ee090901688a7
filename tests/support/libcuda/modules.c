/* SPDX-License-Identifier: MIT
 *
 * Device code of the stand-in: images are kept as they arrive, and run nowhere. Variables are those
 * of cubins, by name: the one of stubs, and the one with which the preload's module says where its
 * functions are.
 *
 * The linker gives the content of the file that STAND_IN_MODULE names for the preload's own PTX,
 * and STAND_IN_CUBIN for any other. Without a file, it writes STAND_IN_LINK_ERROR to the log.
 */
#include "libcuda.h"

#include "../../../interpose/images/cubin.h"
#include "../../../interpose/kernel/module.h"

#include <elf.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    IMAGES = 256,
    VARIABLES = 2048,
    LINK_OPTIONS = 64,
    LINK_INPUT = 1 << 14,
    CUBIN_SIZE = 1 << 22,
    ERROR_LOG_BUFFER = 5,   /* CU_JIT_ERROR_LOG_BUFFER */
    LIBRARY_NOT_FOUND = 500 /* CUDA_ERROR_NOT_FOUND */
};

struct CUmod_st {
    const void *image; /* the address that the caller passed */
    void *copy;
    bool is_cubin;
    bool is_gone;
    CUcontext context; /* NULL: a library */
};

/* A variable's instance in a context. */
typedef struct variable {
    CUmodule code;
    CUcontext context;
    ga_cubin_variable value;
    uint64_t slots[GA_CALLS_COUNT]; /* those that are not in it */
} variable;

static struct CUmod_st modules[IMAGES];
static int module_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards modules and variables */
static variable variables[VARIABLES];
static int variable_count;
static int stale;
static int refused; /* look-ups of variables */
static CUresult refusal;

int stand_in_images(void)
{
    return module_count;
}

const void *stand_in_image(int number, const void **passed)
{
    *passed = modules[number].image;
    return modules[number].copy;
}

int stand_in_stale(void)
{
    return stale;
}

/* ---- loading --------------------------------------------------------------------------------- */

/* The tables of a cubin are trusted, apart from the names of sections. */
static Elf64_Shdr section_at(const uint8_t *image, size_t index)
{
    Elf64_Ehdr header;
    Elf64_Shdr section;
    memcpy(&header, image, sizeof header);
    memcpy(&section, image + header.e_shoff + index * sizeof section, sizeof section);
    return section;
}

static size_t section_count(const uint8_t *image)
{
    Elf64_Ehdr header;
    memcpy(&header, image, sizeof header);
    return header.e_shnum;
}

static size_t size_of_cubin(const uint8_t *image)
{
    Elf64_Ehdr header;
    memcpy(&header, image, sizeof header);
    size_t end = header.e_shoff + header.e_shnum * sizeof(Elf64_Shdr);
    for (size_t i = 1; i < header.e_shnum; i++) {
        Elf64_Shdr section = section_at(image, i);
        size_t behind = section.sh_offset + (section.sh_type == SHT_NOBITS ? 0 : section.sh_size);
        end = behind > end ? behind : end;
    }
    return end;
}

static void copy_image(CUmodule module, const void *image)
{
    module->is_cubin = memcmp(image, ELFMAG, SELFMAG) == 0;
    if (module->is_cubin) {
        size_t size = size_of_cubin(image);
        module->copy = malloc(size);
        memcpy(module->copy, image, size);
    }
}

static CUresult keep(CUmodule *out, const void *image, bool is_file, bool is_library)
{
    if (!image) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct CUmod_st module = {.image = image};
    if (!is_library) {
        cuCtxGetCurrent(&module.context);
    }
    if (!is_file) {
        copy_image(&module, image);
    }
    pthread_mutex_lock(&lock);
    bool fits = module_count < IMAGES;
    if (fits) {
        *out = &modules[module_count];
        modules[module_count++] = module;
    }
    pthread_mutex_unlock(&lock);
    return fits ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult load_module(stand_in_word out, stand_in_word image, stand_in_word c,
                            stand_in_word d, stand_in_word e, stand_in_word f)
{
    (void)c, (void)d, (void)e, (void)f;
    return keep((CUmodule *)out, (const void *)image, false, false);
}

static CUresult load_with_options(stand_in_word out, stand_in_word image, stand_in_word count,
                                  stand_in_word options, stand_in_word values, stand_in_word f)
{
    return (unsigned)count && (!options || !values)
               ? CUDA_ERROR_INVALID_VALUE
               : load_module(out, image, count, options, values, f);
}

static CUresult load_library(stand_in_word out, stand_in_word image, stand_in_word c,
                             stand_in_word d, stand_in_word e, stand_in_word f)
{
    (void)c, (void)d, (void)e, (void)f;
    return keep((CUmodule *)out, (const void *)image, false, true);
}

static CUresult load_file(stand_in_word out, stand_in_word name, stand_in_word c, stand_in_word d,
                          stand_in_word e, stand_in_word f)
{
    (void)c, (void)d, (void)e, (void)f;
    return keep((CUmodule *)out, (const void *)name, true, false);
}

/* `ends`: from now on it is gone. */
static CUresult use(CUmodule code, bool ends)
{
    pthread_mutex_lock(&lock);
    bool is_gone = code < modules || code >= modules + IMAGES || code->is_gone;
    stale += is_gone;
    if (!is_gone && ends) {
        code->is_gone = true;
    }
    pthread_mutex_unlock(&lock);
    return is_gone ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

static CUresult unload(stand_in_word code, stand_in_word b, stand_in_word c, stand_in_word d,
                       stand_in_word e, stand_in_word f)
{
    (void)b, (void)c, (void)d, (void)e, (void)f;
    return use((CUmodule)code, true);
}

void stand_in_modules_gone(CUcontext context)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < module_count && i < IMAGES; i++) {
        modules[i].is_gone = modules[i].is_gone || (context && modules[i].context == context);
    }
    for (int i = 0; i < variable_count; i++) {
        if (variables[i].context == context) {
            variables[i].code = NULL;
        }
    }
    pthread_mutex_unlock(&lock);
}

static CUresult launch(stand_in_word a, stand_in_word b, stand_in_word c, stand_in_word d,
                       stand_in_word e, stand_in_word f)
{
    (void)a, (void)b, (void)c, (void)d, (void)e, (void)f;
    return CUDA_SUCCESS;
}

stand_in_function *stand_in_own_module(const char *symbol)
{
    static const struct {
        const char *symbol;
        stand_in_function *function;
    } own[] = {
        {"cuModuleLoadData", load_module},
        {"cuModuleLoadDataEx", load_with_options},
        {"cuModuleLoadFatBinary", load_module},
        {"cuLibraryLoadData", load_library},
        {"cuModuleLoad", load_file},
        {"cuLibraryLoadFromFile", load_file},
        {"cuModuleUnload", unload},
        {"cuLibraryUnload", unload},
        {"cuLaunchKernel", launch},
        {"cuLaunchKernel_ptsz", launch},
        {"cuLaunchKernelEx", launch},
        {"cuLaunchKernelEx_ptsz", launch},
        {"cuLaunchCooperativeKernel", launch},
        {"cuLaunchCooperativeKernel_ptsz", launch},
        {"cuLaunchCooperativeKernelMultiDevice", launch},
        {"cuLaunch", launch},
        {"cuLaunchGrid", launch},
        {"cuLaunchGridAsync", launch},
        {"cuGraphLaunch", launch},
        {"cuGraphLaunch_ptsz", launch},
    };
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        if (strcmp(own[i].symbol, symbol) == 0) {
            return own[i].function;
        }
    }
    return NULL;
}

/* ---- variables ------------------------------------------------------------------------------- */

STAND_IN_API CUresult cuModuleGetGlobal_v2(CUdeviceptr *start, size_t *size, CUmodule module,
                                           const char *name);
STAND_IN_API CUresult cuLibraryGetGlobal(CUdeviceptr *start, size_t *size, CUmodule library,
                                         const char *name);

/* The symbol of a variable that the cubin defines; of size 0: there is none. */
static Elf64_Sym symbol_of(const struct CUmod_st *code, const char *wanted)
{
    const uint8_t *image = code->copy;
    size_t count = code->is_cubin ? section_count(image) : 0;
    for (size_t i = 1; i < count; i++) {
        Elf64_Shdr table = section_at(image, i);
        for (size_t at = 0; table.sh_type == SHT_SYMTAB && at < table.sh_size;) {
            Elf64_Sym symbol;
            memcpy(&symbol, image + table.sh_offset + at, sizeof symbol);
            const uint8_t *names = image + section_at(image, table.sh_link).sh_offset;
            if (symbol.st_shndx && strcmp((const char *)names + symbol.st_name, wanted) == 0) {
                return symbol;
            }
            at += sizeof symbol;
        }
    }
    return (Elf64_Sym){0};
}

static size_t size_of(const struct CUmod_st *code, const char *wanted)
{
    return symbol_of(code, wanted).st_size;
}

static const char *const slot_names[GA_CALLS_COUNT] = GA_CUBIN_SLOTS;

/* Words at a symbol for which the cubin has a relocation are STAND_IN_NONE. */
static void relocate(const struct CUmod_st *code, const char *name, void *words)
{
    const uint8_t *image = code->copy;
    Elf64_Sym symbol = symbol_of(code, name);
    for (size_t i = 1; symbol.st_size && i < section_count(image); i++) {
        Elf64_Shdr section = section_at(image, i);
        bool is_its = (section.sh_type == SHT_REL || section.sh_type == SHT_RELA) &&
                      section.sh_info == symbol.st_shndx;
        for (uint64_t at = 0; is_its && at < section.sh_size; at += section.sh_entsize) {
            Elf64_Rel entry;
            memcpy(&entry, image + section.sh_offset + at, sizeof entry);
            uint64_t offset = entry.r_offset - symbol.st_value;
            if (ELF64_R_TYPE(entry.r_info) == GA_R_64 && offset < symbol.st_size) {
                memcpy((char *)words + offset, &(uint64_t){STAND_IN_NONE}, sizeof(uint64_t));
            }
        }
    }
}

/* The word of a slot, in the variable or beside it. */
static uint64_t *slot_of(variable *v, int i)
{
    uint64_t variable_at = symbol_of(v->code, GA_CUBIN_VARIABLE).st_value;
    uint64_t offset = symbol_of(v->code, slot_names[i]).st_value - variable_at;
    return offset < sizeof v->value.functions ? &v->value.functions[offset / sizeof(uint64_t)]
                                              : &v->slots[i];
}

static void *word_of(variable *v, const char *name)
{
    for (int i = 0; i < GA_CALLS_COUNT; i++) {
        if (strcmp(name, slot_names[i]) == 0) {
            return slot_of(v, i);
        }
    }
    return &v->value;
}

/* The variable's instance in the current context. */
static variable *instance_of(CUmodule code)
{
    CUcontext context = NULL;
    variable *found = NULL;
    cuCtxGetCurrent(&context);
    pthread_mutex_lock(&lock);
    for (int i = 0; i < variable_count; i++) {
        if (variables[i].code == code && variables[i].context == context) {
            found = &variables[i];
        }
    }
    if (!found && variable_count < VARIABLES) {
        found = &variables[variable_count++];
        *found = (variable){code, context, {{0}, 0}, {0}};
        relocate(code, GA_CUBIN_VARIABLE, &found->value);
        for (int i = 0; i < GA_CALLS_COUNT; i++) {
            relocate(code, slot_names[i], &found->slots[i]);
        }
    }
    pthread_mutex_unlock(&lock);
    return found;
}

static uint64_t functions_of(CUmodule module)
{
    return STAND_IN_FUNCTIONS + ((uint64_t)(module - modules) << 20);
}

int stand_in_refuse_variables(int n, CUresult result)
{
    int left = refused;
    refused = n;
    refusal = result;
    return left;
}

/* Device pointers are host pointers here. */
static CUresult get_global(CUdeviceptr *start, size_t *size, CUmodule code, const char *name)
{
    CUcontext context = NULL;
    CUresult result = use(code, false);
    if (result == CUDA_SUCCESS && (cuCtxGetCurrent(&context) != CUDA_SUCCESS || !context)) {
        result = CUDA_ERROR_INVALID_CONTEXT;
    }
    if (result == CUDA_SUCCESS && refused) {
        refused--;
        result = refusal;
    }
    *size = result == CUDA_SUCCESS ? size_of(code, name) : 0;
    variable *v = *size && *size <= sizeof v->value ? instance_of(code) : NULL;
    if (!v) {
        return result == CUDA_SUCCESS ? LIBRARY_NOT_FOUND : result;
    }
    if (strcmp(name, GA_KERNEL_MODULE_FUNCTIONS) == 0) {
        for (int i = 0; i < GA_CALLS_COUNT; i++) {
            v->value.functions[i] = functions_of(code) + (uint64_t)i * STAND_IN_STEP;
        }
    }
    *start = (CUdeviceptr)(uintptr_t)word_of(v, name);
    return CUDA_SUCCESS;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *start, size_t *size, CUmodule module, const char *name)
{
    return get_global(start, size, module, name);
}

CUresult cuLibraryGetGlobal(CUdeviceptr *start, size_t *size, CUmodule library, const char *name)
{
    stand_in_during("cuLibraryGetGlobal");
    return get_global(start, size, library, name);
}

const uint64_t *stand_in_calls_of(CUmodule code)
{
    return size_of(code, GA_CUBIN_VARIABLE) ? instance_of(code)->value.functions : NULL;
}

uint64_t stand_in_slot_of(CUmodule code, int i)
{
    return *slot_of(instance_of(code), i);
}

uint64_t stand_in_functions(void)
{
    CUcontext context = NULL;
    uint64_t functions = 0;
    cuCtxGetCurrent(&context);
    pthread_mutex_lock(&lock);
    for (int i = module_count - 1; i >= 0 && !functions; i--) {
        if (!modules[i].is_gone && modules[i].context == context &&
            size_of(&modules[i], GA_KERNEL_MODULE_FUNCTIONS)) {
            functions = functions_of(&modules[i]);
        }
    }
    pthread_mutex_unlock(&lock);
    return functions;
}

/* ---- the linker ------------------------------------------------------------------------------ */

typedef struct CUlinkState_st {
    bool is_own; /* the PTX is the preload's */
    void *cubin;
} linker;

static uint64_t link_count;
static CUcontext link_context;
static unsigned link_option_count;
static int link_options[LINK_OPTIONS];
static void *link_values[LINK_OPTIONS];
static uint8_t link_input[LINK_INPUT];
static size_t link_input_size;

const void *stand_in_link_input(size_t *size)
{
    *size = link_input_size;
    return link_input;
}

CUcontext stand_in_link_context(void)
{
    return link_context;
}

uint64_t stand_in_links(void)
{
    return __atomic_load_n(&link_count, __ATOMIC_RELAXED); /* a figure */
}

bool stand_in_link_option(int option, uint32_t *value)
{
    for (unsigned i = 0; i < link_option_count; i++) {
        if (link_options[i] == option) {
            *value = (uint32_t)(uintptr_t)link_values[i];
            return true;
        }
    }
    return false;
}

STAND_IN_API CUresult cuLinkCreate_v2(unsigned count, int *options, void **values, linker **out);
STAND_IN_API CUresult cuLinkAddData_v2(linker *state, int type, void *data, size_t size,
                                       const char *name, unsigned count, int *options,
                                       void **values);
STAND_IN_API CUresult cuLinkComplete(linker *state, void **cubin, size_t *size);
STAND_IN_API CUresult cuLinkDestroy(linker *state);

static int link_failures;
static CUresult link_error;

void stand_in_fail_links(int n, CUresult error)
{
    link_failures = n;
    link_error = error;
}

CUresult cuLinkCreate_v2(unsigned count, int *options, void **values, linker **out)
{
    if (link_failures) {
        link_failures--;
        return link_error;
    }
    if (count > LINK_OPTIONS) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    cuCtxGetCurrent(&link_context);
    if (!link_context) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    link_option_count = count;
    memcpy(link_options, options, count * sizeof *options);
    memcpy(link_values, values, count * sizeof *values);
    *out = calloc(1, sizeof **out);
    return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Type 1 is PTX, type 2 a fat binary, which is the preload's if it is large. */
CUresult cuLinkAddData_v2(linker *state, int type, void *data, size_t size, const char *name,
                          unsigned count, int *options, void **values)
{
    (void)name, (void)count, (void)options, (void)values;
    bool is_text = type == 1 && size && ((char *)data)[size - 1] == '\0';
    bool is_fatbin = type == 2 && size >= 4 && memcmp(data, "\x50\xed\x55\xba", 4) == 0;
    state->is_own = is_fatbin && size > LINK_INPUT;
    link_input_size = size < LINK_INPUT ? size : LINK_INPUT;
    memcpy(link_input, data, link_input_size);
    return is_text || is_fatbin ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static void write_log(void)
{
    for (unsigned i = 0; i < link_option_count; i++) {
        if (link_options[i] == ERROR_LOG_BUFFER) {
            memcpy(link_values[i], STAND_IN_LINK_ERROR, sizeof STAND_IN_LINK_ERROR);
        }
    }
}

CUresult cuLinkComplete(linker *state, void **cubin, size_t *size)
{
    __atomic_fetch_add(&link_count, 1, __ATOMIC_RELAXED); /* a figure */
    stand_in_during("cuLinkComplete");
    const char *path = getenv(state->is_own ? "STAND_IN_MODULE" : "STAND_IN_CUBIN");
    FILE *file = path ? fopen(path, "rbe") : NULL;
    if (!file) {
        write_log();
        return CUDA_ERROR_UNKNOWN;
    }
    state->cubin = malloc(CUBIN_SIZE);
    *size = fread(state->cubin, 1, CUBIN_SIZE, file);
    *cubin = state->cubin;
    fclose(file);
    return CUDA_SUCCESS;
}

CUresult cuLinkDestroy(linker *state)
{
    free(state->cubin);
    free(state);
    return CUDA_SUCCESS;
}
