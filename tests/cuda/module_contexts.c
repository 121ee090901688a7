/* SPDX-License-Identifier: MIT
 *
 * Device code that allocates, in contexts that come and go, while other threads load and launch.
 *
 *   module_contexts CASE
 */
#include "modules.h"

#include <time.h>

enum {
    PATIENCE_MS = 2000, /* for a thread that is not to wait */
    GRACE_MS = 200      /* for one that is */
};

static CUcontext beside; /* not the primary one */

/* ---- a thread within a call of the driver ---------------------------------------------------- */

static pthread_t thread;
static void (*work)(void);
static bool is_done; /* relaxed: joins order the rest */

static void *run_work(void *unused)
{
    (void)unused;
    work();
    __atomic_store_n(&is_done, true, __ATOMIC_RELAXED); /* relaxed: see there */
    return NULL;
}

static bool is_done_within(int milliseconds)
{
    const struct timespec step = {0, 1000000};
    bool done = false;
    for (int i = 0; i < milliseconds && !done; i++) {
        done = __atomic_load_n(&is_done, __ATOMIC_RELAXED); /* relaxed: see there */
        nanosleep(&step, NULL);
    }
    return done;
}

static void begin_work(void)
{
    CHECK_SAME(0, pthread_create(&thread, NULL, run_work, NULL));
}

static void expect_waiting(void)
{
    begin_work();
    CHECK(!is_done_within(GRACE_MS), "it did not wait for the driver's call to end");
}

static void expect_working(void)
{
    begin_work();
    CHECK(is_done_within(PATIENCE_MS), "it waits for the driver's call to end");
}

/* ---- the primary context goes ---------------------------------------------------------------- */

static CUmodule loaded;
static CUmodule library;

static void load_beside(void)
{
    CHECK_SAME(0, cu.push(beside));
    loaded = load_module(scene.bytes);
    expect_filled(loaded);
}

static void launch_beside(void)
{
    CHECK_SAME(0, cu.push(beside));
    launch();
}

static void make_beside(void)
{
    CUcontext popped;
    build(true);
    library = load_library(scene.bytes);
    CHECK_SAME(0, cu.create(&beside, NULL, 0, 0, 0));
    launch();
    CHECK_SAME(0, cu.pop(&popped));
}

/* A heap that another thread opens is not the one that goes. */
static void while_it_goes(const char *symbol, void (*done)(void))
{
    CUcontext context;
    make_beside();
    work = done;
    load.meanwhile(symbol, expect_waiting);
    CHECK_SAME(0, symbol[strlen("cuDevicePrimaryCtxRe")] == 's' ? cu.reset(0) : cu.release(0));
    pthread_join(thread, NULL);
    CHECK_SAME(0, cu.push(beside));
    expect_filled(library);
    CHECK_SAME(0, cu.retain(&context, 0));
    CHECK_SAME(0, cu.reset(0));
    expect_none(library);
    CHECK_SAME(0, load.stale());
}

static void reset_and_load(void)
{
    while_it_goes("cuDevicePrimaryCtxReset_v2", load_beside);
}

static void reset_and_launch(void)
{
    while_it_goes("cuDevicePrimaryCtxReset_v2", launch_beside);
}

static void release_and_load(void)
{
    while_it_goes("cuDevicePrimaryCtxRelease_v2", load_beside);
}

/* ---- other devices --------------------------------------------------------------------------- */

static CUcontext first;

static void load_on_first(void)
{
    CHECK_SAME(0, cu.push(first));
    expect_filled(load_module(scene.bytes));
}

/* The driver may wait for a kernel on one device; code is loaded on the other. */
static void each_device_alone(void)
{
    CUcontext second;
    build(true);
    CHECK_SAME(0, cu.get_current(&first));
    expect_filled(load_module(scene.bytes));
    CHECK_SAME(0, cu.retain(&second, 1));
    CHECK_SAME(0, cu.push(second));
    work = load_on_first;
    load.meanwhile("cuModuleLoadData", expect_working);
    expect_filled(load_module(scene.bytes));
    pthread_join(thread, NULL);
}

/* A library that is loaded in one context is left alone in all others, until they launch. */
static void lazily(void)
{
    CUcontext second;
    CUcontext popped;
    build(true);
    CHECK_SAME(0, cu.retain(&second, 1));
    CHECK_SAME(0, cu.create(&beside, NULL, 0, 0, 0));
    CHECK_SAME(0, cu.pop(&popped));
    library = load_library(scene.bytes);
    expect_filled(library);
    CHECK_SAME(0, cu.push(second));
    CHECK_SAME(0, load.functions());
    expect_none(library);
    expect_filled_by_launch(library);
    CHECK_SAME(0, cu.push(beside));
    CHECK_SAME(0, load.functions());
    expect_none(library);
    expect_filled_by_launch(library);
    CUmodule later = load_library(scene.bytes);
    CHECK_SAME(0, cu.push(second));
    expect_none(later);
    expect_filled_by_launch(later);
}

typedef CUresult any_launch(const void *a, uintptr_t b, uintptr_t c, uintptr_t d, uintptr_t e,
                            uintptr_t f, uintptr_t g, uintptr_t h, uintptr_t i, uintptr_t j,
                            uintptr_t k);

/* Each function that launches. A graph that was instantiated without the preload may have kernels
 * of any context. */
static void each_launch(void)
{
    static const char *const names[] = {"cuLaunchKernel",
                                        "cuLaunchKernel_ptsz",
                                        "cuLaunchKernelEx",
                                        "cuLaunchKernelEx_ptsz",
                                        "cuLaunchCooperativeKernel",
                                        "cuLaunchCooperativeKernel_ptsz",
                                        "cuLaunch",
                                        "cuLaunchGrid",
                                        "cuLaunchGridAsync",
                                        "cuLaunchCooperativeKernelMultiDevice",
                                        "cuGraphLaunch",
                                        "cuGraphLaunch_ptsz"};
    static const uint64_t zeros[16]; /* a CUlaunchConfig, or a list of CUDA_LAUNCH_PARAMS, too */
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    build(true);
    library = load_library(scene.bytes);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        any_launch *launch_by;
        CUcontext popped;
        bool is_any = i >= 10;
        *(void **)&launch_by = dlsym(driver, names[i]);
        CHECK_SAME(0, cu.create(&beside, NULL, 0, 0, 0));
        expect_none(library);
        if (is_any) {
            CHECK_SAME(0, cu.pop(&popped));
        }
        CHECK_SAME(0, launch_by(zeros, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0));
        if (is_any) {
            CHECK_SAME(0, cu.push(beside));
        }
        expect_filled(library);
        CHECK_SAME(0, cu.destroy(beside));
    }
}

static CUmodule second_library;

static void load_without_context(void)
{
    second_library = load_library(scene.bytes);
}

/* Another library comes while the first one's variable is looked for. */
static void loaded_while_filling(void)
{
    make_beside();
    CHECK_SAME(0, cu.create(&beside, NULL, 0, 0, 0));
    work = load_without_context;
    load.meanwhile("cuLibraryGetGlobal", expect_working);
    launch();
    pthread_join(thread, NULL);
    expect_filled(library);
    expect_filled_by_launch(second_library);
}

/* The launch that fills a context is captured. */
static void launched_in_capture(void)
{
    CUstream stream;
    void *graph;
    make_beside();
    CHECK_SAME(0, cu.create(&beside, NULL, 0, 0, 0));
    CHECK_SAME(0, cu.stream(&stream, 0));
    CHECK_SAME(0, cu.begin_capture(stream, 0));
    uint64_t before = cu.violations();
    expect_filled_by_launch(library);
    CHECK_SAME(before, cu.violations());
    CHECK_SAME(0, cu.end_capture(stream, &graph));
}

static void unload_library(void)
{
    CHECK_SAME(0, load.cuLibraryUnload(library));
}

/* While its variable is looked for in another context. */
static void unloaded_while_filling(void)
{
    CUcontext popped;
    make_beside();
    CHECK_SAME(0, cu.pop(&popped));
    CHECK_SAME(0, cu.create(&beside, NULL, 0, 0, 0));
    work = unload_library;
    load.meanwhile("cuLibraryGetGlobal", expect_waiting);
    launch();
    pthread_join(thread, NULL);
    CHECK_SAME(0, load.stale());
}

/* ---- no context ------------------------------------------------------------------------------ */

static int is_active(CUdevice device)
{
    CUresult (*get_state)(CUdevice device, unsigned *flags, int *active);
    unsigned flags;
    int active = -1;
    *(void **)&get_state = dlsym(dlopen("libcuda.so.1", RTLD_LAZY), "cuDevicePrimaryCtxGetState");
    CHECK_SAME(0, get_state(device, &flags, &active));
    return active;
}

static void leave_all(void)
{
    CUcontext popped;
    CHECK_SAME(0, cu.pop(&popped));
    CHECK_SAME(0, cu.release(0));
    CHECK_SAME(0, is_active(0));
}

/* No device is opened for a library, but the ones where it is used. */
static void without_context(void)
{
    CUcontext second;
    const void *passed;
    leave_all();
    build(true);
    library = load_library(scene.bytes);
    CHECK_SAME(1, load.images());
    load.image(0, &passed);
    CHECK(passed != scene.bytes, "the driver got the program's image");
    CHECK_SAME(0, is_active(0));
    CHECK_SAME(0, cu.retain(&second, 1));
    CHECK_SAME(0, cu.push(second));
    expect_filled_by_launch(library);
    CHECK_SAME(0, is_active(0));
}

/* ---- PTX ------------------------------------------------------------------------------------- */

static const char *ptx_of_scene(void)
{
    static const char ptx[] = "//\n.version 9.0\n.target sm_75\n.extern .func free\n(\n)\n;\n";
    static char room[CUBIN_SCENE_SIZE];
    build(true);
    memcpy(room, ptx, sizeof ptx);
    setenv("STAND_IN_CUBIN", file_of_scene(), 1);
    return room;
}

/* In the context where it is loaded, which nobody resets meanwhile. */
static void linked_in_place(void)
{
    const char *ptx = ptx_of_scene();
    CHECK_SAME(0, cu.create(&beside, NULL, 0, 0, 0));
    expect_filled(load_module(ptx));
    CHECK(load.link_context() == beside, "linked in another context");
}

static void linked_without_context(void)
{
    const char *ptx = ptx_of_scene();
    CUcontext second;
    leave_all();
    library = load_library(ptx);
    CHECK_SAME(1, load.links());
    CHECK_SAME(0, is_active(0));
    CHECK_SAME(CUDA_ERROR_INVALID_CONTEXT, cu.push(load.link_context()));
    CHECK_SAME(0, cu.retain(&second, 1));
    CHECK_SAME(0, cu.push(second));
    expect_filled_by_launch(library);
    CHECK_SAME(0, is_active(0));
}

static CUmodule other_code;

static void unload_other(void)
{
    CHECK_SAME(0, load.cuModuleUnload(other_code));
}

static void next_link(void)
{
    load.meanwhile("cuLinkComplete", expect_working);
}

/* The driver's compiler takes the lock of the dynamic linker, which the thread has that unloads.
 * The first PTX is the program's, the second ours. */
static void unloaded_while_linking(void)
{
    char pure[CUBIN_SCENE_SIZE] = "//\n.version 9.0\n.target sm_75\n";
    const char *ptx = ptx_of_scene();
    CHECK_SAME(0, cu.create(&beside, NULL, 0, 0, 0));
    other_code = load_module(pure);
    work = unload_other;
    load.meanwhile("cuLinkComplete", next_link);
    expect_filled(load_module(ptx));
    CHECK_SAME(2, load.links());
    pthread_join(thread, NULL);
}

/* ---- contexts that end ----------------------------------------------------------------------- */

/* In all contexts that the preload knows. */
static void launch_graph(void)
{
    CUresult (*launch_by)(void *graph, CUstream stream);
    *(void **)&launch_by = dlsym(dlopen("libcuda.so.1", RTLD_LAZY), "cuGraphLaunch");
    CHECK_SAME(0, launch_by(NULL, NULL));
}

typedef CUresult of_context(CUcontext context);

static void *function_of(const char *symbol)
{
    return dlsym(dlopen("libcuda.so.1", RTLD_LAZY), symbol);
}

/* By functions of early versions. Code that is loaded later is not written there. */
static void early_functions(void)
{
    static const char *const ends[] = {"cuCtxDestroy", "cuCtxDetach", "cuCtxDestroy_v2"};
    CUresult (*create)(CUcontext * context, unsigned flags, CUdevice device);
    *(void **)&create = function_of("cuCtxCreate");
    build(true);
    library = load_library(scene.bytes);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        of_context *end;
        *(void **)&end = function_of(ends[i]);
        CHECK_SAME(0, create(&beside, 0, 0));
        expect_filled_by_launch(library);
        expect_filled(load_module(scene.bytes));
        CHECK_SAME(0, end(beside));
        library = load_library(scene.bytes);
        launch_graph();
    }
    CHECK_SAME(0, cu.reset(0));
    CHECK_SAME(0, load.stale());
}

/* A context lives until its last reference goes, and is served as long. */
static void attached(void)
{
    CUresult (*attach)(CUcontext * context, unsigned flags);
    of_context *detach;
    of_context *destroy;
    CUcontext again;
    *(void **)&attach = function_of("cuCtxAttach");
    *(void **)&detach = function_of("cuCtxDetach");
    *(void **)&destroy = function_of("cuCtxDestroy");
    build(true);
    CHECK_SAME(0, cu.create(&beside, NULL, 0, 0, 0));
    CUmodule module = load_module(scene.bytes);
    CHECK_SAME(0, attach(&again, 0));
    CHECK_SAME(CUDA_ERROR_INVALID_VALUE, destroy(beside));
    CHECK_SAME(0, detach(beside));
    CHECK_SAME(0, cu.reset(0)); /* the variable has zeros: the preload knows it */
    expect_none(module);
    expect_filled_by_launch(module);
    CHECK_SAME(0, detach(beside));
    CHECK_SAME(0, cu.reset(0));
    launch_graph();
    CHECK_SAME(0, load.stale());
}

static CUresult (*end_without_hook)(CUcontext context);
static CUresult (*destroy_green)(char *green);

static void end_green(char *green)
{
    CHECK_SAME(0, destroy_green(green));
}

static void end_unseen(char *green)
{
    (void)green;
    CHECK_SAME(0, end_without_hook(beside));
}

/* A context ends that has code. Nothing is said of it when more code comes, and the driver is asked
 * for it once at most. */
static void ended_as(void (*end)(char *green), int asked)
{
    int (*bad_pushes)(void);
    CUresult (*make)(char **green, void *resources, CUdevice device, unsigned flags);
    CUresult (*convert)(CUcontext * context, char *green);
    CUcontext popped;
    char *green;
    *(void **)&make = function_of("cuGreenCtxCreate");
    *(void **)&convert = function_of("cuCtxFromGreenCtx");
    *(void **)&destroy_green = function_of("cuGreenCtxDestroy");
    *(void **)&end_without_hook = function_of("stand_in_end_context");
    *(void **)&bad_pushes = function_of("stand_in_bad_pushes");
    CHECK_SAME(0, make(&green, NULL, 0, 1));
    CHECK_SAME(0, convert(&beside, green));
    CHECK_SAME(0, cu.push(beside));
    expect_filled(load_module(scene.bytes));
    CHECK_SAME(0, cu.pop(&popped));
    end(green);
    library = load_library(scene.bytes);
    int before = bad_pushes();
    launch_graph();
    launch_graph();
    CHECK_SAME(before + asked, bad_pushes());
}

static void ended(void)
{
    build(true);
    expect_filled(load_module(scene.bytes));
    ended_as(end_green, 0);
    ended_as(end_unseen, 1);
    CHECK_SAME(0, cu.reset(0));
    CHECK_SAME(0, load.stale());
}

/* Kernels of a green context are of the primary context, which lacks a library's code. */
static void green(void)
{
    CUresult (*make)(char **green, void *resources, CUdevice device, unsigned flags);
    CUresult (*convert)(CUcontext * context, char *green);
    CUresult (*make_stream)(CUstream * stream, char *green, unsigned flags, int priority);
    CUcontext popped;
    CUcontext converted;
    CUstream stream;
    char *handle;
    *(void **)&make = function_of("cuGreenCtxCreate");
    *(void **)&convert = function_of("cuCtxFromGreenCtx");
    *(void **)&make_stream = function_of("cuGreenCtxStreamCreate");
    build(true);
    CHECK_SAME(0, make(&handle, NULL, 0, 1));
    CHECK_SAME(0, convert(&converted, handle));
    CHECK_SAME(0, make_stream(&stream, handle, 1, 0));
    for (int by_stream = 0; by_stream < 2; by_stream++) {
        CHECK_SAME(0, cu.create(&beside, NULL, 0, 0, 0));
        library = load_library(scene.bytes);
        CHECK_SAME(0, cu.pop(&popped));
        expect_none(library);
        CHECK_SAME(0, cu.push(by_stream ? beside : converted));
        CHECK_SAME(0, load.cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, by_stream ? stream : NULL,
                                          NULL, NULL));
        CHECK_SAME(0, cu.pop(&popped));
        expect_filled(library);
    }
}

/* At exit, programs reset a device whose driver has gone. */
static void shuts_down(void)
{
    make_beside();
    cu.shut_down();
    CHECK_SAME(CUDA_ERROR_DEINITIALIZED, cu.reset(0));
    CHECK_SAME(CUDA_ERROR_DEINITIALIZED, cu.release(0));
}

/* ---- fork ------------------------------------------------------------------------------------ */

static pid_t child;

/* The driver does not outlive a fork; nothing hangs. */
static void use_in_child(void)
{
    CUmodule module = library;
    alarm(5);
    CHECK_SAME(CUDA_ERROR_NOT_INITIALIZED, load.cuModuleLoadData(&module, scene.bytes));
    CHECK_SAME(CUDA_ERROR_NOT_INITIALIZED,
               load.cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    CHECK_SAME(CUDA_ERROR_NOT_INITIALIZED, load.cuLibraryUnload(library));
    CHECK_SAME(CUDA_ERROR_NOT_INITIALIZED, cu.destroy(beside));
    CHECK_SAME(CUDA_ERROR_NOT_INITIALIZED, cu.reset(0));
}

static void fork_now(void)
{
    child = begin_child();
    if (!child) {
        use_in_child();
        _exit(not_so != 0);
    }
}

/* While this thread opens a context, and holds locks. */
static void forked(void)
{
    make_beside();
    CHECK_SAME(0, cu.reset(0));
    CHECK_SAME(0, cu.push(beside));
    load.meanwhile("cuModuleLoadData", fork_now);
    launch();
    expect_filled(library);
    end_child(child);
    CHECK_SAME(0, load.stale());
}

int main(int argc, char **argv)
{
    static const cu_case cases[] = {
        {"reset_and_load", reset_and_load},
        {"reset_and_launch", reset_and_launch},
        {"release_and_load", release_and_load},
        {"each_device_alone", each_device_alone},
        {"lazily", lazily},
        {"each_launch", each_launch},
        {"loaded_while_filling", loaded_while_filling},
        {"launched_in_capture", launched_in_capture},
        {"unloaded_while_filling", unloaded_while_filling},
        {"without_context", without_context},
        {"linked_in_place", linked_in_place},
        {"linked_without_context", linked_without_context},
        {"unloaded_while_linking", unloaded_while_linking},
        {"early_functions", early_functions},
        {"attached", attached},
        {"ended", ended},
        {"green", green},
        {"forked", forked},
        {"shuts_down", shuts_down},
    };
    cu_open(0);
    find_all();
    return RUN_CASE(argc, argv, cases);
}
