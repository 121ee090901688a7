/* SPDX-License-Identifier: MIT
 *
 * Device code of the stand-in: images are kept as they arrive, and run nowhere. The preload's own
 * module is told by its kernel that says its addresses: that kernel does run.
 *
 * A library is a module here. The linker gives the content of the file that STAND_IN_CUBIN names,
 * whatever it gets.
 */
#include "libcuda.h"

#include "../../../interpose/kernel/module.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    IMAGES = 64,
    LIBRARY_NOT_FOUND = 500 /* CUDA_ERROR_NOT_FOUND */
};

struct CUmod_st {
    const void *image; /* the address that the caller passed */
    void *copy;        /* of stand_in_image_size bytes */
    bool is_file;
};

struct CUfunc_st {
    int unused;
};

static struct CUmod_st modules[IMAGES];
static int module_count;
static size_t image_size;
static struct CUfunc_st addresses_kernel;

void stand_in_image_size(size_t size)
{
    image_size = size;
}

int stand_in_images(void)
{
    return module_count;
}

const void *stand_in_image(int number, const void **passed)
{
    *passed = modules[number].image;
    return modules[number].copy;
}

static CUresult keep(CUmodule *out, const void *image, bool is_file)
{
    if (!image) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    int number = __atomic_fetch_add(&module_count, 1, __ATOMIC_RELAXED); /* a figure */
    CUmodule module = &modules[number % IMAGES];
    module->image = image;
    module->is_file = is_file;
    module->copy = malloc(image_size + 1);
    if (!is_file && image_size) {
        memcpy(module->copy, image, image_size);
    }
    *out = module;
    return CUDA_SUCCESS;
}

static CUresult load_code(stand_in_word out, stand_in_word image, stand_in_word c, stand_in_word d,
                          stand_in_word e, stand_in_word f)
{
    (void)c, (void)d, (void)e, (void)f;
    return keep((CUmodule *)out, (const void *)image, false);
}

static CUresult load_file(stand_in_word out, stand_in_word name, stand_in_word c, stand_in_word d,
                          stand_in_word e, stand_in_word f)
{
    (void)c, (void)d, (void)e, (void)f;
    return keep((CUmodule *)out, (const void *)name, true);
}

stand_in_function *stand_in_own_module(const char *symbol)
{
    static const char *const code[] = {"cuModuleLoadData", "cuModuleLoadDataEx",
                                       "cuModuleLoadFatBinary", "cuLibraryLoadData"};
    for (size_t i = 0; i < sizeof code / sizeof *code; i++) {
        if (strcmp(code[i], symbol) == 0) {
            return load_code;
        }
    }
    bool is_file =
        strcmp("cuModuleLoad", symbol) == 0 || strcmp("cuLibraryLoadFromFile", symbol) == 0;
    return is_file ? load_file : NULL;
}

/* ---- kernels --------------------------------------------------------------------------------- */

STAND_IN_API CUresult cuModuleGetFunction(CUfunction *out, CUmodule module, const char *name);
STAND_IN_API CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y,
                                     unsigned grid_z, unsigned block_x, unsigned block_y,
                                     unsigned block_z, unsigned shared, CUstream stream,
                                     void **parameters, void **extra);

CUresult cuModuleGetFunction(CUfunction *out, CUmodule module, const char *name)
{
    (void)module;
    *out = &addresses_kernel;
    return strcmp(name, GA_KERNEL_MODULE_ADDRESSES) == 0 ? CUDA_SUCCESS : LIBRARY_NOT_FOUND;
}

/* Device pointers are host pointers here. */
CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                        CUstream stream, void **parameters, void **extra)
{
    static const uint64_t answers[] = {STAND_IN_MALLOC, STAND_IN_FREE, STAND_IN_ALIGNED};
    (void)grid_x, (void)grid_y, (void)grid_z, (void)block_x, (void)block_y, (void)block_z;
    (void)shared, (void)stream, (void)extra;
    if (function != &addresses_kernel) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    memcpy(*(void **)parameters[0], answers, sizeof answers);
    return CUDA_SUCCESS;
}

/* ---- the linker ------------------------------------------------------------------------------ */

typedef struct CUlinkState_st {
    void *cubin;
} linker;

STAND_IN_API CUresult cuLinkCreate_v2(unsigned count, int *options, void **values, linker **out);
STAND_IN_API CUresult cuLinkAddData_v2(linker *state, int type, void *data, size_t size,
                                       const char *name, unsigned count, int *options,
                                       void **values);
STAND_IN_API CUresult cuLinkComplete(linker *state, void **cubin, size_t *size);
STAND_IN_API CUresult cuLinkDestroy(linker *state);

CUresult cuLinkCreate_v2(unsigned count, int *options, void **values, linker **out)
{
    (void)count, (void)options, (void)values;
    *out = calloc(1, sizeof **out);
    return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Type 1 is PTX. */
CUresult cuLinkAddData_v2(linker *state, int type, void *data, size_t size, const char *name,
                          unsigned count, int *options, void **values)
{
    (void)state, (void)name, (void)count, (void)options, (void)values;
    bool is_text = type == 1 && size && ((char *)data)[size - 1] == '\0';
    return is_text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuLinkComplete(linker *state, void **cubin, size_t *size)
{
    const char *path = getenv("STAND_IN_CUBIN");
    FILE *file = path ? fopen(path, "rbe") : NULL;
    if (!file) {
        return CUDA_ERROR_UNKNOWN;
    }
    state->cubin = malloc(1 << 16);
    *size = fread(state->cubin, 1, 1 << 16, file);
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
