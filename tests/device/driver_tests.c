/* SPDX-License-Identifier: MIT
 *
 * The messages if the CUDA driver is missing, old, damaged or refuses, on machines with and without
 * a GPU. A process loads one driver in its life, so each case is a child process.
 *
 *   driver_tests STAND_IN OLD_STAND_IN
 */
#include "../../liballoc/device/device.h"
#include "../../liballoc/platform/machine.h"
#include "runner.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *stand_in;
static const char *old_stand_in;

/* The child's action, and the words that its error must contain. */
typedef struct scenario {
    const char *library; /* GPUALLOC_CUDA_DRIVER */
    const char *result;  /* the result of the stand-in's cuInit */
    const char *words;
} scenario;

static ga_status load(void)
{
    const ga_cuda_driver *driver;
    return ga_cuda_driver_get(&driver);
}

static bool refused(const scenario *s, ga_status status)
{
    bool as_expected = status == GA_ERR_DEVICE && test_error_has(s->words);
    if (!as_expected) {
        printf("    expected GA_ERR_DEVICE and \"%s\", got %d and \"%s\"\n", s->words, (int)status,
               ga_error_text());
    }
    return as_expected;
}

static void arrange(const scenario *s)
{
    setenv("GPUALLOC_CUDA_DRIVER", s->library, 1);
    setenv("STAND_IN_RESULT", s->result ? s->result : "0", 1);
}

static int be_refused(void *context)
{
    const scenario *s = context;
    arrange(s);
    bool good = refused(s, load());
    unsetenv("GPUALLOC_CUDA_DRIVER"); /* the first result stays */
    good = refused(s, load()) && good;
    return good ? 0 : 1;
}

static int be_refused_a_heap(void *context)
{
    const scenario *s = context;
    static const char *const specs[] = {"cuda", "managed", "pinned", "async", "cuda:heap=1M"};
    bool good = true;
    arrange(s);
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        ga_heap *heap;
        ga_place place = i < 4 ? GA_PLACE_DEVICE : GA_PLACE_KERNEL;
        good = refused(s, ga_heap_open(&heap, place, 0, specs[i])) && !heap && good;
    }
    CUfunction kernel;
    ga_machine_driver driver;
    ga_machine_device device;
    good = refused(s, ga_machine_read_driver(&driver)) && good;
    good = refused(s, ga_machine_read_device(0, &device)) && good;
    /* A build without device code says so first. */
    good = ga_device_function(&kernel, 0, "ga_probe_kernel") == GA_ERR_DEVICE && good;
    return good ? 0 : 1;
}

static void *load_in_thread(void *context)
{
    return refused(context, load()) ? context : NULL;
}

static int be_refused_in_threads(void *context)
{
    pthread_t threads[16];
    int good = 0;
    arrange(context);
    for (int i = 0; i < 16; i++) {
        pthread_create(&threads[i], NULL, load_in_thread, context);
    }
    for (int i = 0; i < 16; i++) {
        void *answer;
        pthread_join(threads[i], &answer);
        good += answer == context;
    }
    return good == 16 ? 0 : 1;
}

static int ask_after_fork(void *context)
{
    return refused(context, load()) ? 0 : 1;
}

static int load_and_fork(void *context)
{
    arrange(context);
    if (load() != GA_OK) {
        return 2;
    }
    int in_child = test_in_child(ask_after_fork, context);
    return load() == GA_OK ? in_child : 3;
}

static bool is_loaded(const char *library)
{
    void *handle = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
    return handle != NULL;
}

/* In a process that has GPUALLOC_CUDA_DRIVER name the stand-in from its start: heaps of the host do
 * not load it. */
static int load_late(const char *library)
{
    ga_heap *heap;
    bool early = is_loaded(library);
    if (ga_heap_open(&heap, GA_PLACE_HOST, 0, "system") != GA_OK || early || is_loaded(library)) {
        return 1;
    }
    ga_heap_close(heap);
    return load() == GA_OK && is_loaded(library) ? 0 : 2;
}

static int start_anew(void *context)
{
    const scenario *s = context;
    arrange(s);
    execl("/proc/self/exe", "driver_tests", "--late", s->library, NULL);
    return 3;
}

static void in_child(int (*body)(void *), scenario s)
{
    EXPECT(test_in_child(body, &s) == 0);
}

/* ---- the cases ---------------------------------------------------------------------------- */

static void missing_library(int device)
{
    (void)device;
    in_child(be_refused, (scenario){"/nowhere/libcuda.so.1", NULL,
                                    "no CUDA driver: /nowhere/libcuda.so.1: cannot open shared "
                                    "object file: No such file or directory"});
}

static void machine_without_driver(int device)
{
    (void)device;
    if (dlopen("libcuda.so.1", RTLD_NOW)) {
        SKIP("this machine has a CUDA driver");
    }
    in_child(be_refused,
             (scenario){"", NULL, "no CUDA driver: libcuda.so.1: cannot open shared object file"});
}

static void no_library_at_all(int device)
{
    (void)device;
    in_child(be_refused,
             (scenario){"/proc/self/status", NULL, "no CUDA driver: /proc/self/status: "});
}

static void driver_too_old(int device)
{
    (void)device;
    in_child(be_refused, (scenario){old_stand_in, NULL,
                                    "lacks cuDriverGetVersion; expected a driver for CUDA 11.2"});
}

static void driver_refuses(int device)
{
    (void)device;
    in_child(be_refused, (scenario){stand_in, "100",
                                    "refuses to start: cuInit: CUDA_ERROR_NO_DEVICE (no "
                                    "CUDA-capable device is detected)"});
}

static void heaps_say_why(int device)
{
    (void)device;
    in_child(be_refused_a_heap, (scenario){stand_in, "100", "cuInit: CUDA_ERROR_NO_DEVICE"});
    in_child(be_refused_a_heap,
             (scenario){"/nowhere/libcuda.so.1", NULL, "no CUDA driver: /nowhere"});
}

static void every_thread_is_told(int device)
{
    (void)device;
    in_child(be_refused_in_threads, (scenario){stand_in, "100", "cuInit: CUDA_ERROR_NO_DEVICE"});
}

static void fork_after_start(int device)
{
    (void)device;
    in_child(load_and_fork, (scenario){stand_in, "0", "started the driver before fork()"});
}

static void nothing_before_need(int device)
{
    (void)device;
    in_child(start_anew, (scenario){stand_in, "0", ""});
}

static const test_case cases[] = {
    {"a missing library", missing_library},
    {"a machine without a driver", machine_without_driver},
    {"a file that is no library", no_library_at_all},
    {"a driver that is too old", driver_too_old},
    {"a driver that refuses to start", driver_refuses},
    {"heaps and facts say why", heaps_say_why},
    {"every thread is told", every_thread_is_told},
    {"a child of a process that started the driver", fork_after_start},
    {"nothing is loaded before it is needed", nothing_before_need},
};

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--late") == 0) {
        return load_late(argv[2]);
    }
    if (argc != 3) {
        fprintf(stderr, "usage: driver_tests STAND_IN OLD_STAND_IN\n");
        return 2;
    }
    stand_in = argv[1];
    old_stand_in = argv[2];
    test_run("driver", cases, sizeof cases / sizeof *cases, 0, NULL);
    return test_summary();
}
