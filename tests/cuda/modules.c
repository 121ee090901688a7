/* SPDX-License-Identifier: MIT
 *
 * Device code that allocates, by each function that loads it.
 *
 *   modules CASE served|passed
 *
 * `served`: GPUALLOC_KERNEL is set.
 *
 * Code that is served has the stubs' variable, with the addresses that the preload's module has in
 * the same context.
 */
#include "modules.h"

#include <sys/stat.h>

/* ---- cases ----------------------------------------------------------------------------------- */

static void load_each_way(const void *code, void (*expect)(const void *given, CUmodule code))
{
    CUmodule module;
    expect(code, load_module(code));
    CHECK_SAME(0, load.cuModuleLoadDataEx(&module, code, 0, NULL, NULL));
    expect(code, module);
    CHECK_SAME(0, load.cuModuleLoadFatBinary(&module, code));
    expect(code, module);
    expect(code, load_library(code));
}

static void each_way(void)
{
    CUmodule module;
    build(true);
    load_each_way(scene.bytes, expect_image);
    const char *name = file_of_scene();
    CHECK_SAME(0, load.cuModuleLoad(&module, name));
    expect_image(name, module);
    CHECK_SAME(0, load.cuLibraryLoadFromFile(&module, name, NULL, NULL, 0, NULL, NULL, 0));
    expect_image(name, module);
    CHECK(served ? load.images() > 6 : load.images() == 6, "%d images", load.images()); /* ours */
    CHECK_SAME(0, load.bad_devices());
}

static void without_malloc(void)
{
    CUmodule module;
    build(false);
    load_each_way(scene.bytes, expect_passed);
    const char *name = file_of_scene();
    CHECK_SAME(0, load.cuModuleLoad(&module, name));
    expect_passed(name, module);
    CHECK_SAME(CUDA_ERROR_INVALID_VALUE, load.cuModuleLoadData(&module, NULL));
    CHECK_SAME(5, load.images()); /* nobody allocates: our module is not loaded */
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
    /* As long as the images, of which the stand-in copies so many bytes. */
    ga_wrapper wrapper[CUBIN_SCENE_SIZE / sizeof(ga_wrapper)] = {
        {GA_WRAPPER_MAGIC, 1, (uintptr_t)room, 0}};
    load_each_way(wrapper, expect_image);
}

static void text(void)
{
    static const char ptx[] = "//\n.version 9.0\n.target sm_75\n.extern .func free\n(\n)\n;\n";
    static const char pure[] = "//\n.version 9.0\n.target sm_75\n";
    char room[CUBIN_SCENE_SIZE] = "";
    build(true);
    memcpy(room, ptx, sizeof ptx);
    setenv("STAND_IN_CUBIN", file_of_scene(), 1);
    load_each_way(room, expect_image);
    memcpy(room, pure, sizeof pure);
    load_each_way(room, expect_passed);
}

/* The linker refuses it: the driver gets the program's. */
static void unlinkable(void)
{
    char room[CUBIN_SCENE_SIZE] = "//\n.version 9.0\n.target sm_75\n.extern .func free\n(\n)\n;\n";
    load_each_way(room, expect_passed);
}

static void *read_file(const char *path)
{
    static uint64_t room[1 << 18];
    FILE *file = fopen(path, "rbe");
    CHECK(file && fread(room, 1, sizeof room - 1, file), "%s", path);
    fclose(file);
    return room;
}

/* What nvcc makes: GA_IMAGES has the files. */
static void of_nvcc(void)
{
    CUmodule module;
    char *files = strdup(getenv("GA_IMAGES"));
    int count = 0;
    build(true);
    for (const char *path = strtok(files, ":"); path; path = strtok(NULL, ":"), count++) {
        load_each_way(read_file(path), expect_image);
        CHECK_SAME(0, load.cuModuleLoad(&module, path));
        expect_image(path, module);
        CHECK_SAME(0, load.cuLibraryLoadFromFile(&module, path, NULL, NULL, 0, NULL, NULL, 0));
        expect_image(path, module);
    }
    CHECK(count >= 5, "%d files", count);
    free(files);
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

/* With GPUALLOC_KERNEL_MIXED=allow, later ones are. */
static void mixed(void)
{
    build(true);
    scene.is_relocatable = true;
    cubin_scene_build(&scene);
    load_each_way(scene.bytes, expect_passed);
    build(true);
    load_each_way(scene.bytes, expect_image);
}

/* The driver refuses the code with stubs, and gets the program's. */
static void unloadable(void)
{
    CUmodule module;
    build(true);
    expect_image(scene.bytes, load_module(scene.bytes)); /* the heap and our module */
    cu.fail("cuModuleLoadData", 1, CUDA_ERROR_UNKNOWN);
    CHECK_SAME(served ? 0 : CUDA_ERROR_UNKNOWN, load.cuModuleLoadData(&module, scene.bytes));
    if (served) {
        expect_passed(scene.bytes, module);
    }
}

/* The driver does not find the variable: the code is unloaded again. */
static void unfillable(void)
{
    build(true);
    CUmodule first = load_module(scene.bytes);
    load.refuse_variables(1, CUDA_ERROR_UNKNOWN);
    CUmodule second = load_module(scene.bytes);
    expect_passed(scene.bytes, second);
    CHECK_SAME(1, cu.calls("cuModuleUnload"));
    load.refuse_variables(1, CUDA_ERROR_UNKNOWN);
    expect_passed(scene.bytes, load_library(scene.bytes));
    CHECK_SAME(1, cu.calls("cuLibraryUnload"));
    expect_filled(first);
}

/* In contexts that are not the device's primary one. */
static void elsewhere(void)
{
    CUcontext other;
    CUcontext late;
    CUcontext now;
    build(true);
    CUmodule before = load_library(scene.bytes);
    CHECK_SAME(0, cu.create(&other, NULL, 0, 0, 0));
    expect_filled_by_launch(before);
    uint64_t there = load.functions();
    expect_image(scene.bytes, load_module(scene.bytes));
    CUmodule library = load_library(scene.bytes);
    expect_image(scene.bytes, library);
    CHECK_SAME(0, cu.pop(&now));
    CHECK(load.functions() != there, "both contexts have one module");
    expect_filled_by_launch(library);
    CHECK_SAME(0, cu.destroy(other));
    CHECK_SAME(0, cu.create(&late, NULL, 0, 0, 0));
    expect_filled_by_launch(library);
    expect_filled(before);
    expect_filled(load_library(scene.bytes));
    CHECK_SAME(0, load.stale());
}

/* A library is used on both devices, whichever came first. */
static void devices(void)
{
    CUcontext second;
    build(true);
    CUmodule library = load_library(scene.bytes);
    expect_image(scene.bytes, library);
    uint64_t first = load.functions();
    CHECK_SAME(0, cu.retain(&second, 1));
    CHECK_SAME(0, cu.push(second));
    expect_filled_by_launch(library);
    CHECK(load.functions() != first, "both devices have one module");
    expect_filled(load_library(scene.bytes));
    expect_filled(load_module(scene.bytes));
    CHECK_SAME(0, cu.pop(&second));
    expect_filled(load_library(scene.bytes));
}

/* The first module comes while a stream captures, which no call of ours may disturb. */
static void capturing(void)
{
    CUstream stream;
    void *graph;
    build(true);
    CHECK_SAME(0, cu.stream(&stream, 0));
    CHECK_SAME(0, cu.begin_capture(stream, 0));
    uint64_t before = cu.violations();
    expect_image(scene.bytes, load_module(scene.bytes));
    expect_image(scene.bytes, load_library(scene.bytes));
    CHECK_SAME(before, cu.violations());
    CHECK_SAME(0, cu.end_capture(stream, &graph));
}

/* The program has the primary context again. */
static void renew(void)
{
    CUcontext context;
    CHECK_SAME(0, cu.reset(0));
    CHECK_SAME(0, cu.retain(&context, 0));
    CHECK_SAME(0, cu.push(context));
}

/* The heap closes with the context, and another opens after it. */
static void reset(void)
{
    build(true);
    for (int i = 0; i < 3; i++) {
        int before = load.images();
        expect_image(scene.bytes, load_module(scene.bytes));
        int first = load.images();
        CHECK(first - before >= (served ? 2 : 1), "%d images", first - before); /* ours, too */
        load_module(scene.bytes);
        CHECK_SAME(first + 1, load.images());
        renew();
    }
    CHECK_SAME(0, load.stale());
}

/* The driver keeps libraries, but not their variables. */
static void library_after_reset(void)
{
    CUcontext context;
    build(true);
    CUmodule library = load_library(scene.bytes);
    expect_image(scene.bytes, library);
    for (int i = 0; i < 2; i++) {
        int before = load.images();
        renew();
        launch();
        CHECK(served ? load.images() > before : load.images() == before, "%d", load.images());
        if (served) {
            expect_filled(library);
        }
        before = load.images();
        CHECK_SAME(0, cu.retain(&context, 0));
        CHECK_SAME(before, load.images());
    }
    CHECK_SAME(0, load.stale());
}

/* The heap goes with the primary context; other contexts of the device get another one by the next
 * launch, or when one of them loads code that allocates. */
static void reset_beside(void)
{
    CUcontext first;
    CUcontext second;
    CUcontext primary;
    build(true);
    CUmodule library = load_library(scene.bytes);
    CHECK_SAME(0, cu.create(&first, NULL, 0, 0, 0));
    CUmodule module = load_module(scene.bytes);
    expect_filled(module);
    CHECK_SAME(0, cu.reset(0));
    expect_none(library);
    expect_none(module);
    CHECK_SAME(0, cu.retain(&primary, 0));
    expect_filled_by_launch(library);
    expect_filled(module);
    CHECK_SAME(0, cu.create(&second, NULL, 0, 0, 0));
    expect_filled_by_launch(library);
    CHECK_SAME(0, cu.reset(0));
    expect_none(library);
    expect_filled(load_module(scene.bytes));
    expect_filled(library);
    CHECK_SAME(0, cu.pop(&second));
    expect_filled_by_launch(library);
    expect_filled(module);
    CHECK_SAME(0, load.stale());
}

/* A reference to the context of device 1 bypassed the preload: the heap stays there when the only
 * known reference is released. */
static void unknown_holder(void)
{
    CUcontext context;
    build(true);
    CHECK_SAME(0, load.retain(&context, 1));
    CHECK_SAME(0, cu.push(context));
    CUmodule module = load_module(scene.bytes);
    expect_filled(module);
    CHECK_SAME(0, cu.retain(&context, 1));
    CHECK_SAME(0, cu.release(1));
    expect_filled(module);
}

/* Code that was unloaded is not looked for in later contexts. */
static void unload(void)
{
    CUcontext other;
    build(true);
    CUmodule library = load_library(scene.bytes);
    CUmodule module = load_module(scene.bytes);
    CUmodule stays = load_library(scene.bytes);
    CHECK_SAME(0, load.cuLibraryUnload(library));
    CHECK_SAME(0, load.cuModuleUnload(module));
    CHECK_SAME(0, cu.create(&other, NULL, 0, 0, 0));
    expect_filled_by_launch(stays);
    CHECK_SAME(0, load.cuLibraryUnload(stays));
    CHECK_SAME(0, cu.reset(0));
    CHECK_SAME(0, load.stale());
}

static CUmodule staying;
static CUcontext doomed;

static void destroy_doomed(void)
{
    CHECK_SAME(0, cu.destroy(doomed));
}

static void launch_in_another(void)
{
    CUcontext other;
    CHECK_SAME(0, cu.create(&other, NULL, 0, 0, 0));
    launch();
}

/* The driver refuses to unload code: it is served as before, also in a context that is filled
 * meanwhile, and after a reset. */
static void refused_unload(void)
{
    CUcontext other;
    build(true);
    staying = load_library(scene.bytes);
    CHECK_SAME(0, cu.create(&other, NULL, 0, 0, 0));
    CUmodule module = load_module(scene.bytes);
    cu.fail("cuModuleUnload", 1, CUDA_ERROR_UNKNOWN);
    CHECK_SAME(CUDA_ERROR_UNKNOWN, load.cuModuleUnload(module));
    load.meanwhile("cuLibraryUnload", launch_in_another);
    cu.fail("cuLibraryUnload", 1, CUDA_ERROR_UNKNOWN);
    CHECK_SAME(CUDA_ERROR_UNKNOWN, load.cuLibraryUnload(staying));
    expect_filled_by_launch(staying);
    CHECK_SAME(0, cu.reset(0));
    expect_none(staying);
    expect_filled_by_launch(staying);
    CHECK_SAME(0, cu.push(other));
    expect_none(module);
    expect_filled_by_launch(module);
    CHECK_SAME(0, load.cuModuleUnload(module));
    CHECK_SAME(0, load.cuLibraryUnload(staying));
    CHECK_SAME(0, cu.reset(0));
    CHECK_SAME(0, load.stale());
}

/* Its context is destroyed meanwhile. */
static void refused_unload_without_context(void)
{
    CUcontext other;
    build(true);
    CHECK_SAME(0, cu.create(&other, NULL, 0, 0, 0));
    staying = load_module(scene.bytes);
    doomed = other;
    load.meanwhile("cuModuleUnload", destroy_doomed);
    CHECK_SAME(CUDA_ERROR_INVALID_HANDLE, load.cuModuleUnload(staying));
    CHECK_SAME(1, load.stale());
    load_library(scene.bytes);
    CHECK_SAME(0, cu.reset(0));
    CHECK_SAME(1, load.stale());
}

/* Each thread loads and unloads, every second one in a context of its own. */
static void *load_and_unload(void *number)
{
    bool good = cu.push(everybodys) == 0;
    for (int i = 0; good && i < 8; i++) {
        CUcontext own;
        CUmodule library;
        CUmodule module;
        bool is_alone = (intptr_t)number % 2;
        good = !is_alone || cu.create(&own, NULL, 0, 0, 0) == 0;
        good = good &&
               load.cuLibraryLoadData(&library, scene.bytes, NULL, NULL, 0, NULL, NULL, 0) == 0;
        good = good && load.cuModuleLoadData(&module, scene.bytes) == 0;
        good = good && load.calls_of(library)[0] == load.functions() &&
               load.calls_of(module)[1] == load.functions() + STAND_IN_STEP;
        good = good && load.cuModuleUnload(module) == 0 && load.cuLibraryUnload(library) == 0;
        good = good && (!is_alone || cu.destroy(own) == 0);
    }
    return (void *)(intptr_t)good;
}

static void crowd(void)
{
    enum {
        COUNT = 4
    };
    pthread_t threads[COUNT];
    build(true);
    if (begin_threads(threads, COUNT, 0, NULL, load_and_unload)) {
        end_threads(threads, COUNT);
    }
    CHECK_SAME(0, load.stale());
    expect_filled(load_library(scene.bytes));
}

/* The driver reads the code at any time before the library is unloaded. */
static void preserved(void)
{
    enum {
        BINARY_IS_PRESERVED = 1
    };
    int option = BINARY_IS_PRESERVED;
    void *value = NULL;
    CUmodule library;
    const void *passed;
    build(true);
    for (unsigned count = 0; count < 2; count++) {
        CHECK_SAME(0, load.cuLibraryLoadData(&library, scene.bytes, NULL, NULL, 0, &option, &value,
                                             count));
        expect_image(scene.bytes, library);
        const uint8_t *copy = load.image(load.images() - 1, &passed);
        CHECK(!count || memcmp(copy, passed, sizeof(Elf64_Ehdr)) == 0, "the copy is gone");
        CHECK_SAME(0, load.cuLibraryUnload(library));
    }
}

/* A FIFO that nobody writes does not block; the driver says what it thinks of it. */
static void fifo(void)
{
    char name[] = "/tmp/modules-XXXXXX";
    CUmodule module;
    CHECK(mkdtemp(name), "no folder");
    char path[sizeof name + 8];
    snprintf(path, sizeof path, "%s/fifo", name);
    CHECK_SAME(0, mkfifo(path, 0600));
    CHECK_SAME(0, load.cuModuleLoad(&module, path));
    expect_passed(path, module);
    unlink(path);
    rmdir(name);
}

/* Sizes that a file claims behind its end. */
static void short_file(void)
{
    CUmodule module;
    build(true);
    scene.size -= 8; /* of the table of sections */
    const char *name = file_of_scene();
    CHECK_SAME(0, load.cuModuleLoad(&module, name));
    expect_passed(name, module);
}

int main(int argc, char **argv)
{
    static const cu_case cases[] = {
        {"each_way", each_way},
        {"without_malloc", without_malloc},
        {"containers", containers},
        {"text", text},
        {"unlinkable", unlinkable},
        {"of_nvcc", of_nvcc},
        {"damaged", damaged},
        {"refused", refused},
        {"unloadable", unloadable},
        {"elsewhere", elsewhere},
        {"devices", devices},
        {"reset", reset},
        {"capturing", capturing},
        {"library_after_reset", library_after_reset},
        {"unfillable", unfillable},
        {"reset_beside", reset_beside},
        {"unknown_holder", unknown_holder},
        {"unload", unload},
        {"refused_unload", refused_unload},
        {"refused_unload_without_context", refused_unload_without_context},
        {"crowd", crowd},
        {"preserved", preserved},
        {"mixed", mixed},
        {"fifo", fifo},
        {"short_file", short_file},
    };
    served = argc > 2 && strcmp(argv[2], "served") == 0;
    cu_open(0);
    find_all();
    return RUN_CASE(argc, argv, cases);
}
