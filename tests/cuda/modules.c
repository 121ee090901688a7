/* SPDX-License-Identifier: MIT
 *
 * Device code that allocates, by each function that loads it.
 *
 *   modules CASE served|passed
 *
 * `served`: GPUALLOC_KERNEL is set.
 */
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
       int *options, void **values, unsigned count))
/* clang-format on */

#define MEMBER(name, parameters) CUresult(*name) parameters;
static struct {
    FUNCTIONS(MEMBER)
    void (*image_size)(size_t size);
    int (*images)(void);
    const void *(*image)(int number, const void **passed);
} load;

static bool served;
static cubin_scene scene;

#define FIND(name, parameters) *(void **)&load.name = cu_find(get, #name, 0);

static void find_all(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    cu_get *get;
    *(void **)&get = dlsym(driver, "cuGetProcAddress_v2");
    FUNCTIONS(FIND)
    *(void **)&load.image_size = dlsym(driver, "stand_in_image_size");
    *(void **)&load.images = dlsym(driver, "stand_in_images");
    *(void **)&load.image = dlsym(driver, "stand_in_image");
}

static void build(bool calls_cuda)
{
    scene = (cubin_scene){
        .sm = 90, .calls_cuda = calls_cuda, .has_addends = true, .call_type = GA_R_ABS55_16_34};
    cubin_scene_build(&scene);
    load.image_size(scene.size);
}

static uint64_t constant_at(const uint8_t *image, unsigned index)
{
    uint64_t word;
    memcpy(&word, image + scene.offsets[CUBIN_CONSTANT] + index * sizeof word, sizeof word);
    return word;
}

/* ---- the image that the driver got last ------------------------------------------------------ */

static void expect_patched(const void *given)
{
    const void *passed;
    const uint8_t *image = load.image(load.images() - 1, &passed);
    CHECK(passed != given, "the driver got the program's image");
    CHECK(constant_at(image, 0) == STAND_IN_MALLOC, "%#llx",
          (unsigned long long)constant_at(image, 0));
    CHECK(constant_at(image, 1) == 0, "vprintf's");
    CHECK(constant_at(image, 2) == STAND_IN_FREE, "%#llx",
          (unsigned long long)constant_at(image, 2));
    CHECK_SAME(0, constant_at(scene.bytes, 0)); /* the program's own is as it was */
}

static void expect_passed(const void *given)
{
    const void *passed;
    load.image(load.images() - 1, &passed);
    CHECK(passed == given, "the driver got another image");
}

static void expect_image(const void *given)
{
    (served ? expect_patched : expect_passed)(given);
}

/* ---- cases ----------------------------------------------------------------------------------- */

/* The name of a file with the scene in it; valid until the next call. */
static const char *file_of_scene(void)
{
    static char name[64];
    int fd = memfd_create("cubin", 0);
    CHECK(fd >= 0 && write(fd, scene.bytes, scene.size) == (ssize_t)scene.size, "%d", fd);
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    return name;
}

static void load_each_way(const void *code, void (*expect)(const void *given))
{
    CUmodule module;
    CHECK_SAME(0, load.cuModuleLoadData(&module, code));
    expect(code);
    CHECK_SAME(0, load.cuModuleLoadDataEx(&module, code, 0, NULL, NULL));
    expect(code);
    CHECK_SAME(0, load.cuModuleLoadFatBinary(&module, code));
    expect(code);
    CHECK_SAME(0, load.cuLibraryLoadData(&module, code, NULL, NULL, 0, NULL, NULL, 0));
    expect(code);
}

static void each_way(void)
{
    CUmodule module;
    build(true);
    load_each_way(scene.bytes, expect_image);
    const char *name = file_of_scene();
    CHECK_SAME(0, load.cuModuleLoad(&module, name));
    expect_image(name);
    CHECK_SAME(0, load.cuLibraryLoadFromFile(&module, name, NULL, NULL, 0, NULL, NULL, 0));
    expect_image(name);
    CHECK(served ? load.images() > 6 : load.images() == 6, "%d images", load.images()); /* ours */
}

static void without_malloc(void)
{
    CUmodule module;
    build(false);
    load_each_way(scene.bytes, expect_passed);
    const char *name = file_of_scene();
    CHECK_SAME(0, load.cuModuleLoad(&module, name));
    expect_passed(name);
    CHECK_SAME(0, load.cuModuleLoad(&module, "/no/such/file"));
    CHECK_SAME(CUDA_ERROR_INVALID_VALUE, load.cuModuleLoadData(&module, NULL));
    CHECK_SAME(6, load.images()); /* nobody allocates: our module is not loaded */
}

static void containers(void)
{
    static uint64_t room[2 * CUBIN_SCENE_SIZE / 8];
    size_t size = 0;
    build(true);
    fatbin_scene_add((uint8_t *)room, &size, (ga_fatbin_record){.kind = GA_FATBIN_PTX, .sm = 50},
                     "//", 3);
    fatbin_scene_add((uint8_t *)room, &size, (ga_fatbin_record){.kind = GA_FATBIN_ELF, .sm = 90},
                     scene.bytes, scene.size);
    load_each_way(room, expect_image);
    ga_wrapper wrapper[3] = {{GA_WRAPPER_MAGIC, 1, (uintptr_t)room, 0}};
    load_each_way(wrapper, expect_image);
}

static void text(void)
{
    static const char ptx[] = "//\n.version 9.0\n.target sm_75\n.extern .func free\n(\n)\n;\n";
    static const char pure[] = "//\n.version 9.0\n.target sm_75\n"; /* not a whole image_size */
    char room[CUBIN_SCENE_SIZE] = "";
    build(true);
    memcpy(room, ptx, sizeof ptx);
    setenv("STAND_IN_CUBIN", file_of_scene(), 1);
    load_each_way(room, expect_image);
    memcpy(room, pure, sizeof pure);
    load_each_way(room, expect_passed);
}

static void damaged(void)
{
    build(true);
    scene.bytes[offsetof(Elf64_Ehdr, e_shstrndx)] = 0xee;
    load_each_way(scene.bytes, expect_passed);
    static const char noise[CUBIN_SCENE_SIZE] = "BC\xc0\xde";
    load_each_way(noise, expect_passed);
}

/* After a module that cannot be served, none is. */
static void refused(void)
{
    build(true);
    scene.is_relocatable = true;
    cubin_scene_build(&scene);
    load_each_way(scene.bytes, expect_passed);
    build(true);
    load_each_way(scene.bytes, expect_passed);
}

/* The driver refuses the patched image, and gets the program's. */
static void unloadable(void)
{
    CUmodule module;
    build(true);
    CHECK_SAME(0, load.cuModuleLoadData(&module, scene.bytes)); /* the heap and our module */
    expect_image(scene.bytes);
    cu.fail("cuModuleLoadData", 1, CUDA_ERROR_UNKNOWN);
    CHECK_SAME(served ? 0 : CUDA_ERROR_UNKNOWN, load.cuModuleLoadData(&module, scene.bytes));
    if (served) {
        expect_passed(scene.bytes);
    }
}

/* In a context that is not the device's primary one. */
static void elsewhere(void)
{
    CUcontext other;
    CUmodule module;
    build(true);
    CHECK_SAME(0, cu.create(&other, 0, 0));
    CHECK_SAME(0, load.cuModuleLoadData(&module, scene.bytes));
    expect_passed(scene.bytes);
}

/* With a second device, libraries are not served. */
static void devices(void)
{
    CUmodule module;
    build(true);
    CHECK_SAME(0, load.cuModuleLoadData(&module, scene.bytes));
    expect_image(scene.bytes);
    CHECK_SAME(0, load.cuLibraryLoadData(&module, scene.bytes, NULL, NULL, 0, NULL, NULL, 0));
    expect_passed(scene.bytes);
}

/* The first module comes while a stream captures, which no call of ours may disturb. */
static void capturing(void)
{
    CUmodule module;
    CUstream stream;
    void *graph;
    build(true);
    CHECK_SAME(0, cu.stream(&stream, 0));
    CHECK_SAME(0, cu.begin_capture(stream, 0));
    uint64_t before = cu.violations();
    CHECK_SAME(0, load.cuModuleLoadData(&module, scene.bytes));
    expect_image(scene.bytes);
    CHECK_SAME(before, cu.violations());
    CHECK_SAME(0, cu.end_capture(stream, &graph));
}

/* The heap closes with the context, and another opens after it. */
static void reset(void)
{
    CUmodule module;
    build(true);
    for (int i = 0; i < 3; i++) {
        int before = load.images();
        CHECK_SAME(0, load.cuModuleLoadData(&module, scene.bytes));
        expect_image(scene.bytes);
        int first = load.images();
        CHECK(first - before >= (served ? 2 : 1), "%d images", first - before); /* ours, too */
        CHECK_SAME(0, load.cuModuleLoadData(&module, scene.bytes));
        CHECK_SAME(first + 1, load.images());
        CHECK_SAME(0, cu.reset(0));
    }
}

/* After a reset the driver loads libraries again, so our module is there before. */
static void library_after_reset(void)
{
    CUcontext context;
    CUmodule module;
    build(true);
    CHECK_SAME(0, load.cuLibraryLoadData(&module, scene.bytes, NULL, NULL, 0, NULL, NULL, 0));
    expect_image(scene.bytes);
    CHECK_SAME(0, cu.reset(0));
    int before = load.images();
    CHECK_SAME(0, cu.retain(&context, 0));
    CHECK(served ? load.images() > before : load.images() == before, "%d", load.images());
    before = load.images();
    CHECK_SAME(0, cu.retain(&context, 0));
    CHECK_SAME(before, load.images());
}

int main(int argc, char **argv)
{
    static const cu_case cases[] = {
        {"each_way", each_way},     {"without_malloc", without_malloc},
        {"containers", containers}, {"text", text},
        {"damaged", damaged},       {"refused", refused},
        {"unloadable", unloadable}, {"elsewhere", elsewhere},
        {"devices", devices},       {"reset", reset},
        {"capturing", capturing},   {"library_after_reset", library_after_reset},
    };
    served = argc > 2 && strcmp(argv[2], "served") == 0;
    cu_open(0);
    find_all();
    return RUN_CASE(argc, argv, cases);
}
