/* SPDX-License-Identifier: MIT
 *
 * Tests that need a GPU: each case on each device. Exit status 0, 1 when a case failed, 77 without
 * a GPU.
 *
 *   device_tests [--only WORDS]      the cases whose name contains these words
 *   device_tests --planted-overflow  write past a block, which compute-sanitizer must report
 *
 * The other modes below are for cases that need a process of their own.
 */
#include "../../liballoc/device/device.h"
#include "../../liballoc/device/probe.h"
#include "cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool device_fill(int device, void *to, unsigned char value, size_t size)
{
    ga_cuda_scope scope;
    if (ga_cuda_enter(&scope, device) != GA_OK) {
        return false;
    }
    const ga_cuda_driver *driver = scope.driver;
    bool done =
        driver->cuMemsetD8Async((CUdeviceptr)to, value, size, scope.stream) == CUDA_SUCCESS &&
        driver->cuStreamSynchronize(scope.stream) == CUDA_SUCCESS;
    ga_cuda_leave(&scope);
    return done;
}

static bool fetch(int device, const void *from, unsigned char *to, size_t size)
{
    ga_cuda_scope scope;
    if (ga_cuda_enter(&scope, device) != GA_OK) {
        return false;
    }
    const ga_cuda_driver *driver = scope.driver;
    bool done =
        driver->cuMemcpyDtoHAsync(to, (CUdeviceptr)from, size, scope.stream) == CUDA_SUCCESS &&
        driver->cuStreamSynchronize(scope.stream) == CUDA_SUCCESS;
    ga_cuda_leave(&scope);
    return done;
}

bool device_holds(int device, const void *from, unsigned char value, size_t size)
{
    unsigned char *bytes = malloc(size);
    bool good = bytes && fetch(device, from, bytes, size);
    for (size_t i = 0; good && i < size; i++) {
        good = bytes[i] == value;
    }
    free(bytes);
    return good;
}

/* One warp writes 32 words into a block of one. */
static int planted_overflow(void)
{
    ga_cuda_scope scope;
    CUfunction kernel;
    CUdeviceptr input = 0;
    CUdeviceptr output = 0;
    uint32_t count = GA_PROBE_LANES;
    void *parameters[] = {&input, &output, &count};
    if (ga_device_function(&kernel, 0, "ga_probe_kernel") != GA_OK ||
        ga_cuda_enter(&scope, 0) != GA_OK) {
        return 77;
    }
    const ga_cuda_driver *driver = scope.driver;
    driver->cuMemAlloc(&input, GA_PROBE_LANES * sizeof(uint32_t));
    driver->cuMemAlloc(&output, sizeof(uint32_t));
    driver->cuMemsetD8Async(input, 1, GA_PROBE_LANES * sizeof(uint32_t), scope.stream);
    CUresult result = driver->cuLaunchKernel(kernel, 1, 1, 1, GA_PROBE_LANES, 1, 1, 0, scope.stream,
                                             parameters, NULL);
    printf("the planted overflow: launched %d, ended %d\n", (int)result,
           (int)driver->cuStreamSynchronize(scope.stream));
    ga_cuda_leave(&scope);
    return 0;
}

static void run_all(int device, const char *only)
{
    const case_list lists[] = {driver_cases(),  heap_cases(),  stream_cases(),
                               process_cases(), arena_cases(), arena_process_cases(),
                               vmm_cases()};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        char title[64];
        snprintf(title, sizeof title, "device %d, %s", device, lists[i].title);
        test_run(title, lists[i].cases, lists[i].count, device, only);
    }
}

static const struct {
    const char *name;
    int (*run)(void);
} modes[] = {
    {"--planted-overflow", planted_overflow},   {"--exit-with-blocks", exit_with_blocks},
    {"--first-use-cuda", first_use_cuda},       {"--first-use-async", first_use_async},
    {"--first-use-both", first_use_both},       {"--pools", pools_by_threads},
    {"--import-chunk", arena_import_chunk},     {"--import-far-chunk", arena_import_far_chunk},
    {"--work-beside", arena_work_beside},       {"--grow-for-ever", arena_grow_for_ever},
    {"--exit-with-arena", arena_exit_with_one}, {"--context-destroyed", arena_context_destroyed},
};

int main(int argc, char **argv)
{
    int devices = 0;
    const char *only = argc == 3 && strcmp(argv[1], "--only") == 0 ? argv[2] : NULL;
    for (size_t i = 0; argc == 2 && i < sizeof modes / sizeof *modes; i++) {
        if (strcmp(argv[1], modes[i].name) == 0) {
            return modes[i].run();
        }
    }
    if (argc != 1 && !only) {
        fprintf(stderr, "usage: device_tests [--only WORDS]\n");
        return 2;
    }
    if (ga_cuda_device_count(&devices) != GA_OK || !devices) {
        printf("skipped, this machine has no GPU: %s\n", ga_error_text());
        return 77;
    }
    for (int device = 0; device < devices; device++) {
        run_all(device, only);
    }
    return test_summary();
}
