/* SPDX-License-Identifier: MIT
 *
 * Device memory in the forms of frameworks, over a device made of host memory.
 */
#include "support/first_call.h"
#include "support/scene.h"
#include "support/vmm_scene.h"

#include "platform/libc.h"

#include <gpualloc/frameworks.h>

#include <criterion/criterion.h>
#include <stdlib.h>

static void start(const char *spec, int devices)
{
    vmm_driver_options options = {.devices = devices, .memory = 256 * MIB};
    setenv("GPUALLOC_DEVICE", spec, 1);
    vmm_driver_start(&options);
}

static CUstream make_stream(void)
{
    CUstream stream;
    ga_cuda_scope scope;
    assert_ok(ga_cuda_enter(&scope, 0));
    cr_assert_eq(scope.driver->cuStreamCreate(&stream, 1), CUDA_SUCCESS);
    ga_cuda_leave(&scope);
    return stream;
}

Test(frameworks, torch_in_stream_order)
{
    start("vmm", 2);
    CUstream one = make_stream();
    CUstream two = make_stream();
    void *first = ga_torch_alloc(10 * MIB, 0, one);
    cr_assert(first);
    vmm_driver_hold(one);
    ga_cuda_scope scope;
    assert_ok(ga_cuda_enter(&scope, 0));
    scope.driver->cuMemsetD8Async((CUdeviceptr)first, 0, 1, one);
    uint64_t waits = vmm_driver_count().waits;
    ga_torch_free(first, 10 * MIB, 0, one);
    cr_assert_eq(ga_torch_alloc(10 * MIB, 0, one), first);
    cr_assert_neq(ga_torch_alloc(10 * MIB, 0, two), first);
    cr_assert_eq(vmm_driver_count().waits, waits);
    ga_cuda_leave(&scope);
    cr_assert_neq(ga_framework_heap(0), ga_framework_heap(1));
    cr_assert_eq(ga_heap_device(ga_framework_heap(1)), 1);
}

/* Work on the stream that uses the block and does not end. */
static void use_on(void *block, CUstream stream)
{
    ga_cuda_scope scope;
    vmm_driver_hold(stream);
    assert_ok(ga_cuda_enter(&scope, 0));
    scope.driver->cuMemsetD8Async((CUdeviceptr)block, 0, 1, stream);
    ga_cuda_leave(&scope);
}

/* A block of stream `one` with unfinished work on `two`. */
static void *shared_block(CUstream one, CUstream two)
{
    void *block = ga_torch_alloc(10 * MIB, 0, one);
    ga_torch_record_stream(block, two);
    use_on(block, two);
    return block;
}

static void *refuse_memory(size_t size)
{
    (void)size;
    return NULL;
}

/* If there is no memory to record a stream, the block must not be reused while that stream uses
 * it. */
Test(frameworks, torch_recorded_streams_without_memory)
{
    start("vmm", 1);
    CUstream one = make_stream();
    CUstream two = make_stream();
    void *block = ga_torch_alloc(10 * MIB, 0, one);
    ga_libc.malloc = refuse_memory;
    scene_capture_begin();
    ga_torch_record_stream(block, two);
    ga_libc.malloc = malloc;
    cr_assert(strstr(scene_capture_end(), "frees wait for the device"));
    use_on(block, two);
    uint64_t waits = vmm_driver_count().waits;
    ga_torch_free(block, 10 * MIB, 0, one);
    cr_assert_gt(vmm_driver_count().waits, waits, "the stream that is not noted is waited for");
    cr_assert_eq(ga_torch_alloc(10 * MIB, 0, one), block);
}

/* A block that another stream uses, too, is free when that stream has done its work. No thread
 * waits for it. */
Test(frameworks, torch_recorded_streams)
{
    start("vmm", 1);
    CUstream one = make_stream();
    CUstream two = make_stream();
    void *block = shared_block(one, two);
    uint64_t waits = vmm_driver_count().waits;
    ga_torch_free(block, 10 * MIB, 0, one);
    void *other = ga_torch_alloc(10 * MIB, 0, one);
    void *another = ga_torch_alloc(10 * MIB, 0, two);
    cr_assert_neq(other, block, "it is in use");
    cr_assert_neq(another, block, "its own stream is not ordered behind the other");
    cr_assert_eq(vmm_driver_count().waits, waits);
    vmm_driver_let_go(two);
    cr_assert_eq(ga_torch_alloc(10 * MIB, 0, one), block);
    ga_torch_free(block, 10 * MIB, 0, one); /* the record ends with the block */
    cr_assert_eq(ga_torch_alloc(10 * MIB, 0, one), block);
}

/* The stream that the block belongs to counts as well. */
Test(frameworks, torch_recorded_streams_and_its_own)
{
    start("vmm", 1);
    CUstream one = make_stream();
    CUstream two = make_stream();
    void *block = shared_block(two, one);
    vmm_driver_let_go(one);
    vmm_driver_hold(two);
    ga_cuda_scope scope;
    assert_ok(ga_cuda_enter(&scope, 0));
    scope.driver->cuMemsetD8Async((CUdeviceptr)block, 0, 1, two);
    ga_cuda_leave(&scope);
    ga_torch_free(block, 10 * MIB, 0, two);
    cr_assert_neq(ga_torch_alloc(10 * MIB, 0, one), block);
    vmm_driver_let_go(two);
    cr_assert_eq(ga_torch_alloc(10 * MIB, 0, one), block);
}

Test(frameworks, torch_recorded_streams_are_noted_once)
{
    start("vmm", 1);
    CUstream one = make_stream();
    CUstream two = make_stream();
    void *block = ga_torch_alloc(10 * MIB, 0, one);
    for (int i = 0; i < 100; i++) {
        ga_torch_record_stream(block, two);
    }
    uint64_t records = vmm_driver_calls("cuEventRecord");
    ga_torch_free(block, 10 * MIB, 0, one);
    cr_assert_leq(vmm_driver_calls("cuEventRecord"), records + 3, "one each, and the heap's");
}

/* Whichever call the driver refuses, the block is freed, and not before the other stream is done
 * with it. */
Test(frameworks, torch_recorded_streams_of_a_failing_driver)
{
    static const struct {
        const char *call;
        uint64_t number;
    } refused[] = {{"cuStreamCreate", 1},
                   {"cuEventCreate", 1},
                   {"cuEventRecord", 2}, /* the other stream's */
                   {"cuStreamWaitEvent", 1}};
    start("vmm", 1);
    CUstream one = make_stream();
    CUstream two = make_stream();
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        void *block = shared_block(one, two);
        uint64_t waits = vmm_driver_count().waits;
        vmm_driver_fail(refused[i].call, refused[i].number, CUDA_ERROR_INVALID_HANDLE);
        ga_torch_free(block, 10 * MIB, 0, one);
        cr_assert(vmm_driver_has_failed());
        cr_assert_eq(vmm_driver_count().waits, waits + 1, "%s", refused[i].call);
        cr_assert_eq(ga_torch_alloc(10 * MIB, 0, one), block, "%s", refused[i].call);
        ga_torch_free(block, 10 * MIB, 0, one);
        vmm_driver_let_go(two);
    }
}

/* The handle of threads' own streams says nothing about which: all of the device is waited for. */
Test(frameworks, torch_recorded_thread_streams)
{
    start("vmm", 1);
    CUstream one = make_stream();
    void *block = shared_block(one, make_stream());
    ga_torch_record_stream(block, (ga_stream)2);
    uint64_t waits = vmm_driver_count().waits;
    ga_torch_free(block, 10 * MIB, 0, one);
    cr_assert_eq(vmm_driver_count().waits, waits + 1);
    cr_assert_eq(ga_torch_alloc(10 * MIB, 0, one), block);
}

Test(frameworks, torch_fraction)
{
    start("vmm", 1);
    ga_torch_init(1);
    ga_torch_memory_fraction(0.25, 0);
    void *half = ga_torch_alloc(40 * MIB, 0, NULL);
    cr_assert(half);
    cr_assert_not(ga_torch_alloc(40 * MIB, 0, NULL));
    ga_torch_free(half, 40 * MIB, 0, NULL);
    cr_assert(ga_torch_alloc(60 * MIB, 0, NULL));
    ga_torch_memory_fraction(2, 0); /* no part of it: nothing changes */
    cr_assert_not(ga_torch_alloc(10 * MIB, 0, NULL));
}

/* Blocks of all forms count. */
Test(frameworks, limit)
{
    start("vmm", 2);
    assert_ok(ga_framework_limit(0, 64 * MIB));
    void *block = ga_cupy_malloc(NULL, 40 * MIB, 0);
    cr_assert(block);
    cr_assert_not(ga_cupy_malloc(NULL, 40 * MIB, 0));
    cr_assert_not(ga_framework_alloc(40 * MIB, 0, NULL));
    cr_assert(ga_framework_alloc(40 * MIB, 1, NULL), "each device has its own");
    ga_cupy_free(NULL, block, 0);
    cr_assert(ga_framework_alloc(40 * MIB, 0, NULL));
    assert_ok(ga_framework_limit(0, UINT64_MAX));
    cr_assert(ga_cupy_malloc(NULL, 40 * MIB, 0));
    cr_assert_eq(ga_framework_limit(-1, 0), GA_ERR_DEVICE);
}

/* The spec of GPUALLOC_DEVICE is the one that was chosen first, once a heap is open. */
Test(frameworks, chosen_spec)
{
    start("cuda", 2);
    cr_assert_eq(ga_framework_choose("nonesuch"), GA_ERR_SPEC);
    cr_assert_eq(ga_framework_choose("jemalloc"), GA_ERR_PLACE);
    assert_ok(ga_framework_choose("cuda"));
    assert_ok(ga_framework_choose("vmm"));
    cr_assert(ga_framework_alloc(MIB, 1, NULL));
    cr_assert(strncmp(ga_heap_spec(ga_framework_heap(1)), "vmm:", 4) == 0);
    cr_assert_eq(ga_framework_choose("cuda"), GA_ERR_SPEC);
    cr_assert_str_eq(ga_error_text(),
                     "the heap of device 1 is open with the spec \"vmm\"; expected "
                     "the same, got \"cuda\"");
    assert_ok(ga_framework_choose("vmm"));
    cr_assert(strncmp(ga_heap_spec(ga_framework_heap(0)), "vmm:", 4) == 0);
}

Test(frameworks, no_chosen_spec_any_more)
{
    start("cuda", 3);
    assert_ok(ga_framework_choose("vmm"));
    assert_ok(ga_framework_choose(NULL));
    cr_assert(strncmp(ga_heap_spec(ga_framework_heap(0)), "cuda:", 5) == 0);
    cr_assert_eq(ga_framework_choose("vmm"), GA_ERR_SPEC);
    assert_ok(ga_framework_choose("cuda"));
    cr_assert(ga_framework_heap(1));
    assert_ok(ga_framework_choose(NULL));
    setenv("GPUALLOC_DEVICE", "vmm", 1);
    cr_assert(strncmp(ga_heap_spec(ga_framework_heap(2)), "vmm:", 4) == 0);
    cr_assert_eq(ga_framework_choose("vmm"), GA_ERR_SPEC);
    cr_assert_str_eq(ga_error_text(), "the heap of device 0 is open with the spec \"cuda\"; "
                                      "expected the same, got \"vmm\"");
}

Test(frameworks, chosen_spec_after_the_environment)
{
    start("cuda", 1);
    cr_assert(ga_torch_alloc(MIB, 0, NULL));
    setenv("GPUALLOC_DEVICE", "vmm", 1);
    cr_assert_eq(ga_framework_choose("vmm"), GA_ERR_SPEC);
    cr_assert_str_eq(ga_error_text(), "the heap of device 0 is open with the spec \"cuda\"; "
                                      "expected the same, got \"vmm\"");
    assert_ok(ga_framework_choose("cuda"));
}

Test(frameworks, chosen_spec_after_the_default)
{
    start("", 1);
    cr_assert(ga_torch_alloc(MIB, 0, NULL));
    cr_assert_eq(ga_framework_choose("vmm"), GA_ERR_SPEC);
    assert_ok(ga_framework_choose("cuda"));
}

Test(frameworks, live_blocks)
{
    start("vmm", 1);
    void *expected[] = {ga_framework_alloc(5 * MIB, 0, NULL), ga_cupy_malloc(NULL, 5 * MIB, 0)};
    ga_framework_block blocks[4];
    size_t count = 4;
    assert_ok(ga_framework_blocks(0, blocks, &count));
    cr_assert_eq(count, 2);
    for (int i = 0; i < 2; i++) {
        cr_assert(blocks[i].address == expected[0] || blocks[i].address == expected[1]);
        cr_assert_geq(blocks[i].size, 5 * MIB);
    }
    cr_assert_neq(blocks[0].address, blocks[1].address);
    count = 1;
    assert_ok(ga_framework_blocks(0, blocks, &count));
    cr_assert_eq(count, 2);
    cr_assert_eq(ga_framework_blocks(-1, blocks, &count), GA_ERR_DEVICE);
}

Test(frameworks, a_backend_without_a_list_of_its_blocks)
{
    start("cuda", 1);
    size_t count = 0;
    cr_assert(ga_framework_heap(0));
    cr_assert_eq(ga_framework_blocks(0, NULL, &count), GA_ERR_UNSUPPORTED);
    cr_assert_eq(count, 0);
}

/* Only requests start CUDA and take memory of a device. */
Test(frameworks, no_other_call_opens_a_heap)
{
    ga_stats stats = {.allocs = 1};
    size_t count = 0;
    int mine = 0;
    start("vmm", 2);
    assert_ok(ga_framework_limit(0, 64 * MIB));
    ga_torch_memory_fraction(0.5, 1);
    assert_ok(ga_framework_stats(1, &stats));
    cr_assert_eq(stats.allocs, 0);
    assert_ok(ga_framework_blocks(1, NULL, &count));
    cr_assert_eq(count, 0);
    scene_capture_begin();
    ga_torch_free(&mine, 4, 1, NULL);
    ga_cupy_free(NULL, &mine, 0);
    const char *said = scene_capture_end();
    cr_assert(strstr(said, "ga_torch_free: ") && strstr(said, "no heap is open on device 1"));
    cr_assert(strstr(said, "ga_cupy_free: ") && strstr(said, "no heap is open on device 0"));
    ga_torch_reset();
    cr_assert_eq(vmm_driver_calls("cuDevicePrimaryCtxRetain"), 0);
    cr_assert_not(ga_framework_alloc(65 * MIB, 0, NULL), "the limit holds");
    cr_assert(ga_framework_alloc(MIB, 0, NULL));
    assert_ok(ga_framework_stats(0, &stats));
    cr_assert_eq(stats.live_blocks, 1);
    cr_assert_eq(ga_framework_stats(64, &stats), GA_ERR_DEVICE);
}

/* Each request has the status and the sentence of the opening. */
Test(frameworks, a_heap_that_cannot_be_opened)
{
    start("vmm", 1);
    ga_stats stats;
    size_t count = 0;
    scene_capture_begin();
    vmm_driver_fail("cuDevicePrimaryCtxRetain", 1, CUDA_ERROR_OUT_OF_MEMORY);
    for (int i = 0; i < 2; i++) {
        cr_assert_not(ga_framework_alloc(MIB, 0, NULL));
        cr_assert_eq(ga_error_status(), GA_ERR_MEMORY);
        cr_assert(strstr(ga_error_text(), "CUDA_ERROR_OUT_OF_MEMORY"), "%s", ga_error_text());
        cr_assert_not(ga_cupy_malloc(NULL, MIB, 0));
        cr_assert_eq(ga_error_status(), GA_ERR_MEMORY);
        cr_assert_eq(ga_framework_stats(0, &stats), GA_ERR_MEMORY);
        cr_assert_eq(ga_framework_limit(0, MIB), GA_ERR_MEMORY);
        cr_assert_eq(ga_framework_blocks(0, NULL, &count), GA_ERR_MEMORY);
        cr_assert_not(ga_framework_heap(0));
    }
    scene_capture_end();
}

Test(frameworks, torch_empties_caches)
{
    start("vmm", 1);
    size_t size = 0;
    void *block = ga_torch_alloc(40 * MIB, 0, NULL);
    cr_assert_eq(ga_torch_base_alloc(block, &size), block);
    cr_assert_geq(size, 40 * MIB);
    ga_torch_free(block, 40 * MIB, 0, NULL);
    cr_assert_geq(vmm_driver_count().chunk_bytes, 40 * MIB);
    ga_torch_reset();
    cr_assert_eq(vmm_driver_count().chunk_bytes, 0);
}

/* A heap without stream order, and the handle that means each thread's own stream. */
Test(frameworks, torch_without_streams)
{
    start("cuda", 1);
    void *block = ga_torch_alloc(MIB, 0, make_stream());
    cr_assert(block);
    ga_torch_free(block, MIB, 0, NULL);
    cr_assert_eq(vmm_driver_count().blocks, 0);
}

/* A block of slabs would be handed out at once. */
Test(frameworks, torch_slabs_wait)
{
    start("slab/vmm", 1);
    CUstream stream = make_stream();
    ga_cuda_scope scope;
    void *block = ga_torch_alloc(1000, 0, stream);
    vmm_driver_hold(stream);
    assert_ok(ga_cuda_enter(&scope, 0));
    scope.driver->cuMemsetD8Async((CUdeviceptr)block, 0, 1, stream);
    ga_cuda_leave(&scope);
    uint64_t waits = vmm_driver_count().waits;
    ga_torch_free(block, 1000, 0, stream);
    cr_assert_eq(vmm_driver_count().waits, waits + 1);
}

Test(frameworks, torch_thread_streams)
{
    start("vmm", 1);
    void *block = ga_torch_alloc(MIB, 0, (ga_stream)2);
    cr_assert(block);
    ga_torch_free(block, MIB, 0, (ga_stream)2);
    cr_assert_eq(ga_torch_alloc(MIB, 0, (ga_stream)1), block);
}

Test(frameworks, cupy)
{
    start("vmm", 1);
    ga_heap *own;
    void *block = ga_cupy_malloc(NULL, 1000, 0);
    cr_assert(block && ga_owns(ga_framework_heap(0), block));
    ga_cupy_free(NULL, block, 0);
    ga_cupy_free(NULL, NULL, 0);
    assert_ok(ga_heap_open(&own, GA_PLACE_DEVICE, 0, "cuda"));
    block = ga_cupy_malloc(own, 1000, 0);
    cr_assert(block && !ga_owns(ga_framework_heap(0), block));
    ga_cupy_free(own, block, 0);
    assert_ok(ga_heap_close(own));
}

/* A request that cannot be served returns NULL with a sentence, and no call crashes. */
Test(frameworks, refused)
{
    start("vmm", 1);
    int mine = 0;
    cr_assert_not(ga_torch_alloc(-1, 0, NULL));
    cr_assert_not(ga_torch_alloc(1, -1, NULL));
    cr_assert_not(ga_torch_alloc(1, 1000, NULL));
    cr_assert_not(ga_torch_alloc(1, 1, NULL), "a device that is not there");
    cr_assert_not(ga_framework_heap(1));
    cr_assert_not(ga_torch_alloc(1024 * MIB, 0, NULL));
    cr_assert_not(ga_cupy_malloc(NULL, 1024 * MIB, 0));
    cr_assert_neq(*ga_error_text(), '\0');
    setenv("GPUALLOC_LOG", "error", 1);
    ga_torch_free(&mine, 4, 0, NULL);
    ga_torch_free(NULL, 4, 0, NULL);
    ga_torch_free(&mine, 4, 7, NULL);
    ga_cupy_free(NULL, &mine, 0);
    ga_torch_memory_fraction(0.5, 7);
    size_t size = 1;
    cr_assert_eq(ga_torch_base_alloc(&mine, &size), &mine);
    cr_assert_eq(size, 0);
}

/* ---- forks --------------------------------------------------------------------------------- */

static void *alloc_first(void *unused)
{
    (void)unused;
    return ga_torch_alloc(MIB, 0, NULL);
}

/* The first call of the child finds no lock taken, and reports that there is no device. */
Test(frameworks, a_child_of_a_fork_in_the_first_call, .timeout = 60)
{
    start("vmm", 1);
    scene_capture_begin(); /* the warning that the pipe is not a library */
    pid_t child = first_call_fork("GPUALLOC_PLUGINS", alloc_first);
    if (child == 0) {
        _exit(ga_torch_alloc(MIB, 0, NULL) ? 1 : 0);
    }
    bool ended = first_call_child_ended(child);
    bool waited = first_call_end();
    scene_capture_end();
    cr_assert(ended, "the child did not end well");
    cr_assert(waited, "the first call did not wait");
    cr_assert(ga_torch_alloc(MIB, 0, NULL));
}
