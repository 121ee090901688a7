/* SPDX-License-Identifier: MIT
 *
 * Programs that load device code with calls of malloc: the driver's functions, the code, and what
 * the driver must have got.
 */
#ifndef GPUALLOC_TESTS_CUDA_MODULES_H
#define GPUALLOC_TESTS_CUDA_MODULES_H

#include "../support/cubin_scene.h"

#include "cases.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

/* clang-format off */
#define FUNCTIONS(X)                                                                               \
    X(cuModuleLoad, (CUmodule *out, const char *file))                                             \
    X(cuModuleLoadData, (CUmodule *out, const void *code))                                         \
    X(cuModuleLoadDataEx,                                                                          \
      (CUmodule *out, const void *code, unsigned count, int *options, void **values))              \
    X(cuModuleLoadFatBinary, (CUmodule *out, const void *code))                                    \
    X(cuLibraryLoadData,                                                                           \
      (CUmodule *out, const void *code, int *jit, void **jit_values, unsigned jit_count,           \
       int *options, void **values, unsigned count))                                               \
    X(cuLibraryLoadFromFile,                                                                       \
      (CUmodule *out, const char *file, int *jit, void **jit_values, unsigned jit_count,           \
       int *options, void **values, unsigned count))                                               \
    X(cuModuleUnload, (CUmodule module))                                                           \
    X(cuLibraryUnload, (CUmodule library))                                                         \
    X(cuLaunchKernel,                                                                              \
      (void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,      \
       unsigned shared, CUstream stream, void **parameters, void **extra))
/* clang-format on */

#define MEMBER(name, parameters) CUresult(*name) parameters;
static struct {
    FUNCTIONS(MEMBER)
    int (*images)(void);
    const void *(*image)(int number, const void **passed);
    const uint64_t *(*calls_of)(CUmodule code);
    uint64_t (*slot_of)(CUmodule code, int i);
    uint64_t (*functions)(void);
    int (*stale)(void);
    int (*bad_devices)(void);
    int (*refuse_variables)(int n, CUresult result);
    void (*meanwhile)(const char *symbol, void (*run)(void));
    CUcontext (*link_context)(void);
    uint64_t (*links)(void);
    CUresult (*retain)(CUcontext *context, CUdevice device);
} load;

static bool served;
static cubin_scene scene;

#define FIND(name, parameters) *(void **)&load.name = cu_find(get, #name, 0);

static inline void find_all(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    cu_get *get;
    *(void **)&get = dlsym(driver, "cuGetProcAddress_v2");
    FUNCTIONS(FIND)
    *(void **)&load.images = dlsym(driver, "stand_in_images");
    *(void **)&load.image = dlsym(driver, "stand_in_image");
    *(void **)&load.calls_of = dlsym(driver, "stand_in_calls_of");
    *(void **)&load.slot_of = dlsym(driver, "stand_in_slot_of");
    *(void **)&load.functions = dlsym(driver, "stand_in_functions");
    *(void **)&load.bad_devices = dlsym(driver, "stand_in_bad_devices");
    *(void **)&load.stale = dlsym(driver, "stand_in_stale");
    *(void **)&load.refuse_variables = dlsym(driver, "stand_in_refuse_variables");
    *(void **)&load.meanwhile = dlsym(driver, "stand_in_meanwhile");
    *(void **)&load.link_context = dlsym(driver, "stand_in_link_context");
    *(void **)&load.links = dlsym(driver, "stand_in_links");
    *(void **)&load.retain = dlsym(driver, "stand_in_retain");
}

static inline void build(bool calls_cuda)
{
    scene = (cubin_scene){
        .sm = 90, .calls_cuda = calls_cuda, .has_addends = true, .call_type = GA_R_ABS55_16_34};
    cubin_scene_build(&scene);
}

/* ---- the code that the driver got last ------------------------------------------------------- */

/* The stubs of `code` in the current context lead to the preload's module there. */
static inline void expect_filled(CUmodule code)
{
    const uint64_t *calls = load.calls_of(code);
    uint64_t functions = load.functions();
    CHECK(calls, "no variable");
    CHECK(functions, "no module of the preload in this context");
    for (unsigned i = 0; calls && i < 3; i++) {
        CHECK(calls[i] == functions + i * STAND_IN_STEP, "function %u: %#llx, expected %#llx", i,
              (unsigned long long)calls[i], (unsigned long long)functions + i * STAND_IN_STEP);
        CHECK(load.slot_of(code, (int)i) == calls[i], "slot %u", i);
    }
}

/* In the current context. */
static inline void launch(void)
{
    CHECK_SAME(0, load.cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
}

/* The first launch does it. */
static inline void expect_filled_by_launch(CUmodule code)
{
    launch();
    expect_filled(code);
}

/* They give NULL. */
static inline void expect_none(CUmodule code)
{
    const uint64_t *calls = load.calls_of(code);
    CHECK(calls, "no variable");
    for (unsigned i = 0; calls && i < 3; i++) {
        CHECK(calls[i] == STAND_IN_NONE, "function %u: %#llx", i, (unsigned long long)calls[i]);
        CHECK(load.slot_of(code, (int)i) == calls[i], "slot %u", i);
    }
}

static inline void expect_served(const void *given, CUmodule code)
{
    static cubin_scene again;
    const void *passed;
    load.image(load.images() - 1, &passed);
    CHECK(passed != given, "the driver got the program's image");
    expect_filled(code);
    again = scene;
    cubin_scene_build(&again);
    CHECK(memcmp(again.bytes, scene.bytes, scene.size) == 0, "the program's own has changed");
}

static inline void expect_passed(const void *given, CUmodule code)
{
    const void *passed;
    load.image(load.images() - 1, &passed);
    CHECK(passed == given, "the driver got another image");
    CHECK(!load.calls_of(code), "it has stubs");
}

static inline void expect_image(const void *given, CUmodule code)
{
    (served ? expect_served : expect_passed)(given, code);
}

static inline CUmodule load_library(const void *code)
{
    CUmodule library = NULL;
    CHECK_SAME(0, load.cuLibraryLoadData(&library, code, NULL, NULL, 0, NULL, NULL, 0));
    return library;
}

static inline CUmodule load_module(const void *code)
{
    CUmodule module = NULL;
    CHECK_SAME(0, load.cuModuleLoadData(&module, code));
    return module;
}

/* The name of a file with the scene in it; valid until the next call. */
static inline const char *file_of_scene(void)
{
    static char name[64];
    int fd = memfd_create("cubin", 0);
    CHECK(fd >= 0 && write(fd, scene.bytes, scene.size) == (ssize_t)scene.size, "%d", fd);
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    return name;
}

#endif
