/* SPDX-License-Identifier: MIT
 *
 * Code that cannot be read or served, and what is left then; files that are hard to read; a driver
 * that keeps a context.
 *
 *   module_rules CASE served|passed
 */
#include "modules.h"

#include <errno.h>
#include <sys/syscall.h>

/* ---- files ----------------------------------------------------------------------------------- */

static int read_error; /* of each call; 0: none */
static bool is_interrupted;

/* In the C library's place, also for the preload. */
__attribute__((visibility("default"))) ssize_t read(int fd, void *to, size_t size)
{
    static bool was_interrupted;
    was_interrupted = is_interrupted && !was_interrupted;
    if (was_interrupted || read_error) {
        errno = was_interrupted ? EINTR : read_error;
        return -1;
    }
    return syscall(SYS_read, fd, to, size > 100 ? 100 : size);
}

static CUmodule load_named(const char *name)
{
    CUmodule module = NULL;
    CHECK_SAME(0, load.cuModuleLoad(&module, name));
    return module;
}

/* By a signal whose handler does not restart calls. */
static void interrupted(void)
{
    build(true);
    const char *name = file_of_scene();
    is_interrupted = true;
    expect_image(name, load_named(name));
}

static void expect_nothing_served(const char *name)
{
    expect_passed(name, load_named(name));
    build(true);
    expect_passed(scene.bytes, load_module(scene.bytes));
    CHECK_SAME(2, load.images()); /* and not ours */
}

static void unreadable(void)
{
    build(true);
    read_error = EIO;
    expect_nothing_served(file_of_scene());
}

/* More than the preload copies. */
static void large(void)
{
    build(true);
    const char *name = file_of_scene();
    CHECK_SAME(0, truncate(name, (1 << 30) + 1L));
    expect_nothing_served(name);
}

/* The driver does not find it either. */
static void missing(void)
{
    CUmodule module;
    build(true);
    cu.fail("cuModuleLoad", 1, CUDA_ERROR_UNKNOWN);
    CHECK_SAME(CUDA_ERROR_UNKNOWN, load.cuModuleLoad(&module, "/no/such/file"));
    expect_image(scene.bytes, load_module(scene.bytes));
}

/* ---- code ------------------------------------------------------------------------------------ */

static const uint8_t *unknown_code(void)
{
    static const uint8_t noise[CUBIN_SCENE_SIZE] = "BC\xc0\xde";
    return noise;
}

/* It may allocate. */
static void unread_first(void)
{
    build(true);
    expect_passed(unknown_code(), load_module(unknown_code()));
    expect_image(scene.bytes, load_module(scene.bytes));
}

static void unread_later(void)
{
    build(true);
    expect_image(scene.bytes, load_module(scene.bytes));
    expect_passed(unknown_code(), load_module(unknown_code()));
    expect_image(scene.bytes, load_module(scene.bytes));
}

/* Code for other devices alone, and code of a kind that only the driver reads. */
static void load_fatbin(uint16_t kind, uint32_t sm)
{
    static uint64_t room[2 * CUBIN_SCENE_SIZE / 8];
    size_t size = 0;
    build(true);
    memset(room, 0, sizeof room);
    fatbin_scene_add((uint8_t *)room, &size, (ga_fatbin_record){.kind = kind, .sm = sm},
                     scene.bytes, scene.size);
    expect_passed(room, load_module(room));
}

static void for_other_devices(void)
{
    load_fatbin(GA_FATBIN_ELF, 120);
    load_fatbin(GA_FATBIN_PTX, 100);
    expect_image(scene.bytes, load_module(scene.bytes));
}

static void of_another_kind(void)
{
    load_fatbin(GA_FATBIN_IR, 90);
    expect_image(scene.bytes, load_module(scene.bytes));
}

static void expect_as_before(vmm_driver_counts before)
{
    vmm_driver_counts now = cu.count();
    CHECK_SAME(before.chunk_bytes, now.chunk_bytes);
    CHECK_SAME(before.mapped_bytes, now.mapped_bytes);
    CHECK_SAME(0, load.functions());
}

/* Neither a heap nor our module are left if the first code cannot be served: by us, or since the
 * driver refuses the copy. */
static void nothing_is_left(void)
{
    build(true);
    vmm_driver_counts before = cu.count();
    scene.is_relocatable = true;
    cubin_scene_build(&scene);
    expect_passed(scene.bytes, load_module(scene.bytes));
    CHECK_SAME(1, load.images()); /* and not ours */
    expect_as_before(before);
}

static CUmodule load_refused_copy(void)
{
    CUmodule module = NULL;
    build(true);
    cu.fail("cuLibraryLoadData", 1, CUDA_ERROR_UNKNOWN);
    CHECK_SAME(0, load.cuLibraryLoadData(&module, scene.bytes, NULL, NULL, 0, NULL, NULL, 0));
    expect_passed(scene.bytes, module);
    return module;
}

static void nothing_is_left_of_a_copy(void)
{
    vmm_driver_counts before = cu.count();
    load_refused_copy();
    expect_as_before(before);
}

/* Other code uses it. */
static void heap_in_use(void)
{
    build(true);
    CUmodule module = load_module(scene.bytes);
    load_refused_copy();
    expect_filled(module);
}

/* As the driver alone answers. */
static void null_options(void)
{
    static int name = 0; /* CU_JIT_MAX_REGISTERS */
    static void *value = (void *)(uintptr_t)32;
    static const char text[CUBIN_SCENE_SIZE] =
        "//\n.version 9.0\n.target sm_75\n.extern .func free\n(\n)\n;\n";
    CUmodule module;
    build(true);
    setenv("STAND_IN_CUBIN", file_of_scene(), 1);
    const CUresult invalid = CUDA_ERROR_INVALID_VALUE;
    CHECK_SAME(invalid, load.cuModuleLoadDataEx(&module, text, 1, NULL, NULL));
    CHECK_SAME(invalid, load.cuModuleLoadDataEx(&module, text, 1, &name, NULL));
    CHECK_SAME(invalid, load.cuModuleLoadDataEx(&module, text, 1, NULL, &value));
    CHECK_SAME(0, load.cuModuleLoadDataEx(&module, text, 1, &name, &value));
    expect_image(text, module);
}

/* The preload's own PTX; with GPUALLOC_KERNEL_MIXED=allow. */
static void no_memory_to_link(void)
{
    void (*fail_links)(int n, CUresult error);
    *(void **)&fail_links = dlsym(dlopen("libcuda.so.1", RTLD_LAZY), "stand_in_fail_links");
    build(true);
    fail_links(1, CUDA_ERROR_OUT_OF_MEMORY);
    expect_passed(scene.bytes, load_module(scene.bytes));
    expect_image(scene.bytes, load_module(scene.bytes));
}

/* ---- a driver that keeps a context ----------------------------------------------------------- */

static void kept_context(const char *symbol, CUresult (*end)(CUdevice device))
{
    build(true);
    CUmodule module = load_module(scene.bytes);
    CUmodule library = load_library(scene.bytes);
    cu.fail(symbol, 1, CUDA_ERROR_UNKNOWN);
    CHECK_SAME(CUDA_ERROR_UNKNOWN, end(0));
    expect_none(module);
    expect_filled_by_launch(module);
    expect_filled(library);
    CHECK_SAME(0, end(0));
    CHECK_SAME(0, load.stale());
}

static void refused_reset(void)
{
    kept_context("cuDevicePrimaryCtxReset_v2", cu.reset);
}

/* By the first version, because the preload calls the second one itself. */
static void refused_release(void)
{
    CUresult (*release)(CUdevice device);
    *(void **)&release = dlsym(dlopen("libcuda.so.1", RTLD_LAZY), "cuDevicePrimaryCtxRelease");
    kept_context("cuDevicePrimaryCtxRelease", release);
}

int main(int argc, char **argv)
{
    static const cu_case cases[] = {
        {"interrupted", interrupted},
        {"unreadable", unreadable},
        {"large", large},
        {"missing", missing},
        {"unread_first", unread_first},
        {"unread_later", unread_later},
        {"for_other_devices", for_other_devices},
        {"of_another_kind", of_another_kind},
        {"nothing_is_left", nothing_is_left},
        {"nothing_is_left_of_a_copy", nothing_is_left_of_a_copy},
        {"heap_in_use", heap_in_use},
        {"null_options", null_options},
        {"no_memory_to_link", no_memory_to_link},
        {"refused_reset", refused_reset},
        {"refused_release", refused_release},
    };
    served = argc > 2 && strcmp(argv[2], "served") == 0;
    cu_open(0);
    find_all();
    return RUN_CASE(argc, argv, cases);
}
