/* SPDX-License-Identifier: MIT
 *
 * The host's half of in-kernel malloc replaced by linking: when heaps open, for which device, and
 * the effect of failures. Over a driver and a runtime made of host memory; launches are calls of
 * the functions that the linker substitutes.
 */
#include "cudart.h"

#include "backends/coalesce/coalesce_heap.h"
#include "backends/coalesce/coalesce_words.h"
#include "device/kinds.h"
#include "linked/linked.h"
#include "runtime/registry.h"
#include "support/expect.h"
#include "support/scene.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static const char spec[] = "slab:unit=1K,capacity=4M,limit=20M/vmm";
static const vmm_driver_options usual = {.devices = RUNTIME_DEVICES, .kernels = VMM_KERNELS_GROW};

static void begin(const char *kernel_spec)
{
    setenv("GPUALLOC_KERNEL", kernel_spec, 1);
    runtime_start(&usual);
}

static cudaError_t launch(void)
{
    dim3 grid = {2, 3, 4};
    dim3 block = {5, 6, 7};
    return __wrap___cudaLaunchKernel((cudaKernel_t)1, grid, block, (void **)8, 9, (cudaStream_t)10);
}

static void must_launch(void)
{
    unsigned before = runtime_launches();
    cr_assert_eq(launch(), cudaSuccess, "the arguments arrive as they were");
    cr_assert_eq(runtime_launches(), before + 1);
}

static uint32_t kind_on(int device)
{
    return runtime_view(device).kind;
}

static void expect_served(int device)
{
    ga_kernel_heap view;
    ga_kernel_heap published = runtime_view(device);
    ga_heap *heap = ga_kernel_serving(device);
    cr_assert_not_null(heap, "device %d", device);
    cr_assert_eq(ga_heap_device(heap), device);
    assert_ok(ga_heap_kernel_view(heap, &view));
    cr_assert_eq(published.abi, GA_KERNEL_HEAP_ABI);
    cr_assert_eq(published.kind, GA_KERNEL_KIND_SLAB);
    cr_assert_eq(memcmp(&view, &published, sizeof view), 0);
}

static void expect_unserved(int device)
{
    cr_assert_eq(kind_on(device), GA_KERNEL_KIND_NONE);
    cr_assert_null(ga_kernel_serving(device));
}

static void expect_said(const char *said, const char *words)
{
    cr_assert_not_null(strstr(said, words), "expected \"%s\" in:\n%s", words, said);
}

/* Nothing may be left on the driver once the heaps are closed. */
static void end(void)
{
    for (int device = 0; device < RUNTIME_DEVICES; device++) {
        assert_ok(ga_kernel_close(device));
    }
    vmm_driver_counts left = vmm_driver_count();
    cr_assert_eq(left.ranges + left.mappings + left.handles + left.chunks + left.events, 0);
    vmm_driver_stop();
}

/* ---- when it opens --------------------------------------------------------------------------- */

Test(kernel, nothing_happens_before_a_launch)
{
    begin(spec);
    cr_assert_eq(vmm_driver_calls(NULL), 0);
    expect_unserved(0);
    vmm_driver_stop();
}

Test(kernel, the_first_launch_opens_it)
{
    begin(spec);
    must_launch();
    expect_served(0);
    expect_unserved(1);
    end();
}

Test(kernel, launches_after_the_first_do_not_ask_the_driver)
{
    begin(spec);
    must_launch();
    uint64_t calls = vmm_driver_calls(NULL);
    for (int i = 0; i < 100; i++) {
        must_launch();
    }
    cr_assert_leq(vmm_driver_calls("cuMemcpyHtoDAsync"), calls);
    uint64_t after = vmm_driver_calls("cuMemcpyHtoDAsync");
    must_launch();
    cr_assert_eq(vmm_driver_calls("cuMemcpyHtoDAsync"), after);
    end();
}

Test(kernel, every_way_to_launch_opens_it)
{
    begin(spec);
    cr_assert_eq(__wrap_cudaLaunchKernelExC((void *)1, (void *)2, (void **)3), cudaSuccess);
    expect_served(0);
    assert_ok(ga_kernel_close(0));
    cr_assert_eq(__wrap_cudaGraphLaunch((cudaGraphExec_t)1, (cudaStream_t)2), cudaSuccess);
    expect_served(0);
    end();
}

Test(kernel, by_hand)
{
    begin(spec);
    assert_ok(ga_kernel_init());
    expect_served(0);
    assert_ok(ga_kernel_init()); /* again: refreshes the kernels' variable */
    expect_served(0);
    end();
}

Test(kernel, each_device_has_its_own)
{
    begin(spec);
    must_launch();
    runtime_use(1);
    must_launch();
    expect_served(0);
    expect_served(1);
    cr_assert_neq(ga_kernel_serving(0), ga_kernel_serving(1));
    uint64_t copies = vmm_driver_calls("cuMemcpyHtoDAsync");
    runtime_use(0);
    must_launch();
    runtime_use(1);
    must_launch();
    cr_assert_eq(vmm_driver_calls("cuMemcpyHtoDAsync"), copies, "back and forth is free");
    end();
}

Test(kernel, without_numbers_of_contexts)
{
    runtime.no_numbers = true;
    begin(spec);
    must_launch();
    runtime_use(1);
    must_launch();
    expect_served(0);
    expect_served(1);
    end();
}

static void *launch_many(void *context)
{
    int device = *(int *)context;
    runtime_use(device);
    for (int i = 0; i < 50; i++) {
        if (launch() != cudaSuccess || kind_on(device) != GA_KERNEL_KIND_SLAB) {
            return context;
        }
    }
    return NULL;
}

Test(kernel, threads_share_it)
{
    enum {
        THREADS = 8
    };
    static int devices[THREADS];
    pthread_t threads[THREADS];
    begin(spec);
    for (int i = 0; i < THREADS; i++) {
        devices[i] = i % RUNTIME_DEVICES;
        cr_assert_eq(pthread_create(&threads[i], NULL, launch_many, &devices[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        cr_assert_null(failed);
    }
    expect_served(0);
    expect_served(1);
    end();
}

Test(kernel, a_capture_is_not_disturbed)
{
    begin(spec);
    must_launch(); /* fails unless the mode was relaxed for the call */
    expect_served(0);
    cr_assert_eq(runtime_capture_mode(), 0, "the thread has its mode back");
    end();
}

/* ---- a context's end ------------------------------------------------------------------------- */

Test(kernel, after_a_reset_it_opens_again)
{
    begin(spec);
    must_launch();
    runtime_use(1);
    must_launch();
    runtime_use(0);
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(__wrap_cudaDeviceReset(), cudaSuccess);
        expect_unserved(0);
        expect_served(1);
        must_launch();
        expect_served(0);
    }
    end();
}

/* As after a kernel that trapped, when every call of the runtime returns that error. */
Test(kernel, a_reset_when_the_runtime_knows_no_device)
{
    begin(spec);
    must_launch();
    runtime_use(1);
    must_launch();
    runtime.no_device = true;
    cr_assert_eq(__wrap_cudaDeviceReset(), cudaSuccess);
    runtime.no_device = false;
    expect_unserved(1);
    expect_served(0);
    must_launch();
    expect_served(1);
    end();
}

Test(kernel, a_reset_before_the_first_launch)
{
    begin(spec);
    cr_assert_eq(__wrap_cudaDeviceReset(), cudaSuccess);
    cr_assert_eq(vmm_driver_calls(NULL), 0);
    must_launch();
    expect_served(0);
    end();
}

Test(kernel, a_context_that_is_not_the_primary_one)
{
    const ga_cuda_driver *driver;
    CUcontext other;
    begin(spec);
    assert_ok(ga_cuda_driver_get(&driver));
    cr_assert_eq(driver->cuDevicePrimaryCtxRetain(&other, 1), CUDA_SUCCESS);
    cr_assert_eq(driver->cuCtxPushCurrent(other), CUDA_SUCCESS);
    scene_capture_begin();
    must_launch();
    expect_said(scene_capture_end(), "primary context of device 0");
    cr_assert_eq(kind_on(0), GA_KERNEL_KIND_NONE);
    cr_assert_eq(driver->cuCtxPopCurrent(&other), CUDA_SUCCESS);
    end();
}

static int launch_in_child(void *context)
{
    bool may_be_served = *(bool *)context;
    if (launch() != cudaSuccess) {
        return 1;
    }
    /* The parent's published view is in the child's copy of the variable; a real one is gone. */
    return may_be_served ? kind_on(0) != GA_KERNEL_KIND_SLAB : ga_kernel_serving(0) != NULL;
}

Test(kernel, a_child_of_a_process_that_has_launched)
{
    bool may_be_served = false;
    begin(spec);
    must_launch();
    cr_assert_eq(scene_in_child(launch_in_child, &may_be_served), 0);
    must_launch();
    expect_served(0);
    end();
}

static int start_in_child(void *context)
{
    runtime_start(&usual);
    return launch_in_child(context);
}

Test(kernel, a_child_of_a_process_that_has_not)
{
    bool may_be_served = true;
    setenv("GPUALLOC_KERNEL", spec, 1);
    cr_assert_eq(scene_in_child(start_in_child, &may_be_served), 0);
}

/* ---- which heap ------------------------------------------------------------------------------ */

Test(kernel, the_program_may_choose)
{
    begin("bogus");
    assert_ok(ga_kernel_use("slab:unit=2K,capacity=4M,limit=20M/vmm"));
    must_launch();
    expect_served(0);
    cr_assert_not_null(strstr(ga_heap_spec(ga_kernel_serving(0)), "unit=2K"));
    assert_ok(ga_kernel_use(NULL));
    end();
}

/* True if this build has the default heap, which is used if none is named. */
static bool has_default(void)
{
    ga_heap *heap = NULL;
    bool has = ga_heap_open(&heap, GA_PLACE_KERNEL, 0, "slab/vmm") == GA_OK;
    ga_heap_close(heap);
    return has;
}

static void expect_refused(const char *bad, const char *words)
{
    begin(bad);
    bool falls_back = has_default();
    scene_capture_begin();
    must_launch();
    must_launch();
    const char *said = scene_capture_end();
    expect_said(said, words);
    expect_said(said, "; going on with slab/vmm\n");
    if (!falls_back) {
        expect_said(said, "malloc in kernels returns NULL on device 0\n");
        expect_unserved(0);
    }
    cr_assert_null(strstr(strstr(said, words) + 1, words), "it is said once:\n%s", said);
    end();
}

Test(kernel, a_bad_spec_is_said_once)
{
    expect_refused("bogus", "GPUALLOC_KERNEL: unknown backend \"bogus\"");
}

Test(kernel, a_backend_of_another_place)
{
    expect_refused("system", "GPUALLOC_KERNEL: system: serves the place host");
}

Test(kernel, cuda_would_call_itself)
{
    expect_refused("cuda",
                   "malloc in kernels is replaced in this program, so that CUDA's own would "
                   "call itself");
}

static ga_kernel_heap coalescing(uint32_t form)
{
    return (ga_kernel_heap){
        .abi = GA_KERNEL_HEAP_ABI,
        .kind = GA_KERNEL_KIND_COALESCE,
        .words = {[GA_COALESCE_WORD_SHAPE] = (uint64_t)form << (32 + GA_COALESCE_AT_FORM)}};
}

Test(kernel, what_is_not_aligned_to_16_cannot_stand_in)
{
    for (uint32_t form = 0; form < GA_COALESCE_FORMS; form++) {
        ga_kernel_heap view = coalescing(form);
        bool aligned = form == GA_COALESCE_SIXTEEN || form == GA_COALESCE_HEADERLESS;
        cr_assert_eq(ga_linked_aligns(&view), aligned, "form %" PRIu32, form);
    }
    cr_assert(ga_linked_aligns(&(ga_kernel_heap){.kind = GA_KERNEL_KIND_SLAB}));
    cr_assert(ga_linked_aligns(&(ga_kernel_heap){.kind = GA_KERNEL_KIND_SIZED}));
}

Test(kernel, short_headers_are_refused)
{
    if (!ga_registry_find("coalesce")) {
        cr_skip_test("this build has no coalesce");
    }
    expect_refused("coalesce:header=auto/slab:unit=classes/vmm", "promises blocks aligned to 16");
}

Test(kernel, cuda_under_another_layer_is_device_memory)
{
    begin("slab:unit=1K,capacity=4M/cuda");
    must_launch();
    expect_served(0);
    assert_ok(ga_kernel_close(0));
    vmm_driver_stop();
}

Test(kernel, a_bad_choice_of_the_program)
{
    begin(spec);
    assert_ok(ga_kernel_use("nonesuch"));
    scene_capture_begin();
    must_launch();
    expect_said(scene_capture_end(), "ga_kernel_use: unknown backend \"nonesuch\"");
    if (!ga_kernel_serving(0)) { /* a better choice is tried at the next launch */
        assert_ok(ga_kernel_use(spec));
        must_launch();
        expect_served(0);
    }
    end();
}

Test(kernel, nothing_named)
{
    begin("");
    bool has = has_default();
    scene_capture_begin();
    ga_status status = ga_kernel_init();
    const char *said = scene_capture_end();
    cr_assert_eq(status == GA_OK, has, "%s", said);
    if (!has) {
        expect_said(said, "GPUALLOC_KERNEL: ");
        expect_said(said, "malloc in kernels returns NULL on device 0\n");
    }
    end();
}

static int strict(void *context)
{
    (void)context;
    setenv("GPUALLOC_STRICT", "1", 1);
    launch();
    return 0;
}

Test(kernel, strict)
{
    begin("bogus");
    vmm_driver_stop();
    runtime_start(&usual);
    cr_assert_eq(scene_in_child(strict, NULL), 2);
    vmm_driver_stop();
}

/* ---- failures ----------------------------------------------------------------------------- */

Test(kernel, a_module_without_the_variable)
{
    runtime.no_variable = true;
    begin(spec);
    scene_capture_begin();
    must_launch();
    must_launch();
    const char *said = scene_capture_end();
    expect_said(said, "gpualloc: device 0: malloc in kernels is CUDA's own here");
    cr_assert_null(strstr(strstr(said, "CUDA's own") + 1, "CUDA's own"), "said once:\n%s", said);
    expect_unserved(0);
    cr_assert_eq(cudaPeekAtLastError(), cudaSuccess, "the program must not see our error");
    cr_assert_eq(ga_kernel_init(), GA_ERR_UNSUPPORTED);
    vmm_driver_stop();
}

Test(kernel, an_error_of_the_programs_stays)
{
    runtime.no_variable = true;
    begin(spec);
    runtime_set_error(99);
    must_launch();
    cr_assert_neq(cudaPeekAtLastError(), cudaSuccess);
    vmm_driver_stop();
}

Test(kernel, a_runtime_without_devices)
{
    runtime.no_device = true;
    runtime.no_numbers = true;
    begin(spec);
    must_launch();
    cr_assert_eq(ga_kernel_init(), GA_ERR_DEVICE);
    cr_assert_eq(__wrap_cudaDeviceReset(), cudaSuccess);
    vmm_driver_stop();
}

Test(kernel, a_machine_without_a_driver)
{
    runtime.no_driver = true;
    begin(spec);
    scene_capture_begin();
    must_launch();
    cr_assert_str_eq(scene_capture_end(), "", "the program will say it");
    cr_assert_eq(cudaPeekAtLastError(), cudaSuccess);
    cr_assert_eq(ga_kernel_init(), GA_ERR_DEVICE);
    expect_unserved(0);
    vmm_driver_stop();
}

/* Whichever call fails, the launch continues, and kernels have a heap or none. */
Test(kernel, each_call_of_the_driver_fails, .timeout = 50)
{
    setenv("GPUALLOC_KERNEL", spec, 1);
    setenv("GPUALLOC_LOG", "error", 1);
    bool fails = true;
    for (uint64_t n = 1; fails; n++) {
        runtime_start(&usual);
        vmm_driver_fail(NULL, n, CUDA_ERROR_OUT_OF_MEMORY);
        scene_capture_begin();
        must_launch();
        fails = vmm_driver_has_failed();
        vmm_driver_fail(NULL, 0, CUDA_SUCCESS);
        const char *said = scene_capture_end();
        bool served = kind_on(0) == GA_KERNEL_KIND_SLAB;
        cr_assert(served || *said, "call %" PRIu64 ": no heap, and nothing said", n);
        ga_kernel_close(0);
        ga_kernel_close(1);
        must_launch();
        expect_served(0);
        end();
    }
}

/* ---- messages ----------------------------------------------------------------------------- */

Test(kernel, the_log)
{
    begin(spec);
    setenv("GPUALLOC_LOG", "info", 1);
    scene_capture_begin();
    must_launch();
    expect_said(scene_capture_end(), "malloc in kernels on device 0 is served by slab:unit=1K");
    end();
}

Test(kernel, statistics)
{
    char text[4096];
    begin(spec);
    must_launch();
    ga_heap_stats_text(ga_kernel_serving(0), text, sizeof text);
    expect_said(text, "\nmalloc in kernels is replaced, published 1 times\n");
    ga_heap_stats_json(ga_kernel_serving(0), text, sizeof text);
    expect_said(text, ",\"replaces_malloc\":true}\n");
    end();
}

static void expect_report(const char *name, const char *words)
{
    char text[4096];
    setenv("GPUALLOC_STATS", scene_path(name), 1);
    runtime.no_variable = true;
    begin(spec);
    must_launch();
    vmm_driver_stop();
    scene_read_file(scene_path(name), text, sizeof text);
    expect_said(text, words);
}

Test(kernel, statistics_where_it_is_not_active)
{
    scene_enter_folder();
    expect_report("text", "device 0: malloc in kernels is not replaced\n");
    scene_leave_folder();
}

Test(kernel, json_where_it_is_not_active)
{
    scene_enter_folder();
    expect_report("stats.json", "\"place\":\"kernel\",\"device\":0,\"replaces_malloc\":false}\n");
    scene_leave_folder();
}

Test(kernel, devices_that_cannot_be)
{
    cr_assert_eq(ga_kernel_publish(-1, NULL), GA_ERR_DEVICE);
    cr_assert_eq(ga_kernel_publish(64, NULL), GA_ERR_DEVICE);
    cr_assert_eq(ga_kernel_close(-1), GA_ERR_DEVICE);
    cr_assert_null(ga_kernel_serving(64));
}
