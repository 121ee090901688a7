/* SPDX-License-Identifier: MIT
 *
 * The driver's table, contexts, and the embedded device code.
 */
#include "../../liballoc/device/device.h"
#include "../../liballoc/device/probe.h"
#include "../../liballoc/platform/machine.h"
#include "cases.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static void errors_have_names(int device)
{
    const ga_cuda_driver *driver;
    (void)device;
    REQUIRE(ga_cuda_driver_get(&driver) == GA_OK);
    EXPECT(ga_cuda_check(driver, CUDA_ERROR_OUT_OF_MEMORY, "cuSome") == GA_ERR_MEMORY);
    EXPECT(test_error_has("cuSome: CUDA_ERROR_OUT_OF_MEMORY (out of memory)"));
    EXPECT(ga_cuda_check(driver, CUDA_ERROR_INVALID_VALUE, "cuSome") == GA_ERR_DEVICE);
    EXPECT(test_error_has("cuSome: CUDA_ERROR_INVALID_VALUE (invalid argument)"));
    EXPECT(ga_cuda_check(driver, 54321, "cuSome") == GA_ERR_DEVICE);
    EXPECT(test_error_has("54321"));
}

static void no_such_device(int device)
{
    ga_cuda_scope scope;
    ga_heap *heap;
    char words[64];
    int count = 0;
    (void)device;
    REQUIRE(ga_cuda_device_count(&count) == GA_OK);
    snprintf(words, sizeof words, "no CUDA device %d: the driver has %d", count, count);
    EXPECT(ga_cuda_enter(&scope, count) == GA_ERR_DEVICE);
    EXPECT(test_error_has(words));
    EXPECT(ga_cuda_enter(&scope, 1000000) == GA_ERR_DEVICE);
    EXPECT(ga_heap_open(&heap, GA_PLACE_DEVICE, count, "cuda") == GA_ERR_DEVICE && !heap);
    EXPECT(test_error_has(words));
    EXPECT(ga_heap_open(&heap, GA_PLACE_DEVICE, count, "async") == GA_ERR_DEVICE && !heap);
    EXPECT(test_error_has(words));
}

/* ---- contexts ----------------------------------------------------------------------------- */

/* Everything that enters a context, with successes and failures. */
static void use_heap(int device, const char *spec)
{
    ga_heap *heap;
    void *block = NULL;
    void *moved = NULL;
    ga_stats stats;
    REQUIRE(ga_heap_open(&heap, GA_PLACE_DEVICE, device, spec) == GA_OK);
    EXPECT(ga_alloc_zeroed(heap, 4096, 0, &block) == GA_OK);
    EXPECT(ga_realloc(heap, block, 8192, 0, &moved) == GA_OK);
    EXPECT(ga_usable_size(heap, moved) >= 8192);
    EXPECT(ga_owns(heap, moved) && !ga_owns(heap, &heap));
    EXPECT(ga_alloc(heap, (size_t)1 << 50, 0, &block) == GA_ERR_MEMORY);
    EXPECT(ga_free(heap, &heap) == GA_ERR_POINTER);
    EXPECT(ga_free(heap, moved) == GA_OK);
    ga_trim(heap, 0);
    EXPECT(ga_heap_stats(heap, &stats) == GA_OK);
    EXPECT(ga_heap_close(heap) == GA_OK);
}

static CUcontext current_context(void)
{
    const ga_cuda_driver *driver;
    CUcontext context = NULL;
    if (ga_cuda_driver_get(&driver) == GA_OK) {
        driver->cuCtxGetCurrent(&context);
    }
    return context;
}

static void *use_without_context(void *argument)
{
    int device = *(int *)argument;
    EXPECT(current_context() == NULL);
    use_heap(device, "cuda");
    EXPECT(current_context() == NULL);
    use_heap(device, "async");
    EXPECT(current_context() == NULL);
    EXPECT(ga_device_probe(device) == GA_OK);
    EXPECT(current_context() == NULL);
    return NULL;
}

/* A new thread has no current context, and must have none afterwards. */
static void no_context_stays_none(int device)
{
    pthread_t thread;
    pthread_create(&thread, NULL, use_without_context, &device);
    pthread_join(thread, NULL);
}

static void own_context_stays(int device)
{
    CUresult (*create)(CUcontext * context, unsigned flags, CUdevice device) = NULL;
    CUresult (*destroy)(CUcontext context) = NULL;
    CUcontext ours = NULL;
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (library) {
        *(void **)&create = dlsym(library, "cuCtxCreate_v2");
        *(void **)&destroy = dlsym(library, "cuCtxDestroy_v2");
    }
    if (!create || !destroy) {
        SKIP("no cuCtxCreate_v2 in libcuda.so.1");
    }
    REQUIRE(create(&ours, 0, device) == CUDA_SUCCESS);
    EXPECT(current_context() == ours);
    use_heap(device, "cuda");
    EXPECT(current_context() == ours);
    use_heap(device, "async");
    EXPECT(current_context() == ours);
    EXPECT(ga_device_probe(device) == GA_OK);
    EXPECT(current_context() == ours);
    destroy(ours);
}

/* ---- device code -------------------------------------------------------------------------- */

static void probe_answers(int device)
{
    EXPECT(ga_device_probe(device) == GA_OK);
    EXPECT(ga_device_probe(device) == GA_OK);
}

/* With fewer lanes than a warp, the words past them stay as they were. */
static void kernel_keeps_to_its_part(int device)
{
    enum {
        COUNT = 5,
        SIZE = GA_PROBE_LANES * sizeof(uint32_t)
    };
    ga_heap *heap;
    ga_cuda_scope scope;
    CUfunction kernel;
    void *block = NULL;
    REQUIRE(ga_device_function(&kernel, device, "ga_probe_kernel") == GA_OK);
    REQUIRE(ga_heap_open(&heap, GA_PLACE_DEVICE, device, "cuda") == GA_OK);
    REQUIRE(ga_alloc(heap, 2 * SIZE, 0, &block) == GA_OK);
    EXPECT(device_fill(device, block, 0xa5, 2 * SIZE));
    REQUIRE(ga_cuda_enter(&scope, device) == GA_OK);
    void *output = (char *)block + SIZE;
    uint32_t count = COUNT;
    void *parameters[] = {&block, &output, &count};
    EXPECT(scope.driver->cuLaunchKernel(kernel, 1, 1, 1, GA_PROBE_LANES, 1, 1, 0, scope.stream,
                                        parameters, NULL) == CUDA_SUCCESS);
    EXPECT(scope.driver->cuStreamSynchronize(scope.stream) == CUDA_SUCCESS);
    ga_cuda_leave(&scope);
    EXPECT(!device_holds(device, output, 0xa5, COUNT * sizeof(uint32_t)));
    EXPECT(device_holds(device, (char *)output + COUNT * sizeof(uint32_t), 0xa5,
                        SIZE - COUNT * sizeof(uint32_t)));
    EXPECT(ga_free(heap, block) == GA_OK);
    ga_heap_close(heap);
}

static void unknown_kernel(int device)
{
    CUfunction kernel;
    EXPECT(ga_device_function(&kernel, device, "ga_no_kernel") == GA_ERR_DEVICE && !kernel);
    EXPECT(test_error_has("cuModuleGetFunction: CUDA_ERROR_NOT_FOUND"));
}

static void *find_kernel(void *argument)
{
    CUfunction kernel;
    int device = *(int *)argument;
    EXPECT(ga_device_function(&kernel, device, "ga_probe_kernel") == GA_OK);
    EXPECT(ga_device_probe(device) == GA_OK);
    return kernel;
}

static void one_module_for_all_threads(int device)
{
    enum {
        THREADS = 16
    };
    pthread_t threads[THREADS];
    void *kernels[THREADS];
    for (int i = 0; i < THREADS; i++) {
        pthread_create(&threads[i], NULL, find_kernel, &device);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], &kernels[i]);
        EXPECT(kernels[i] && kernels[i] == kernels[0]);
    }
}

/* ---- the machine's facts ------------------------------------------------------------------ */

static void facts_make_sense(int device)
{
    ga_machine_driver driver;
    ga_machine_device facts;
    REQUIRE(ga_machine_read_driver(&driver) == GA_OK);
    REQUIRE(ga_machine_read_device(device, &facts) == GA_OK);
    EXPECT(driver.cuda_major >= 11 && driver.devices > device);
    EXPECT(strlen(facts.name) > 0);
    EXPECT(facts.major >= 5 && facts.minor >= 0);
    EXPECT(facts.memory >= (uint64_t)1 << 28);
    EXPECT(!facts.vmm || (facts.granularity_minimum >= 4096 &&
                          facts.granularity_recommended % facts.granularity_minimum == 0));
}

case_list driver_cases(void)
{
    static const test_case cases[] = {
        {"errors have names", errors_have_names},
        {"there is no such device", no_such_device},
        {"a thread without a context still has none", no_context_stays_none},
        {"the caller's context stays current", own_context_stays},
        {"the probe kernel answers right", probe_answers},
        {"a kernel keeps to its part", kernel_keeps_to_its_part},
        {"an unknown kernel", unknown_kernel},
        {"one module for all threads", one_module_for_all_threads},
        {"facts make sense", facts_make_sense},
    };
    return (case_list){"driver", cases, sizeof cases / sizeof *cases};
}
