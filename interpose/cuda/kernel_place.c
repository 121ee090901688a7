/* SPDX-License-Identifier: MIT
 *
 * Our module in the primary context of each device, and the heap that its malloc serves from.
 *
 *   CLOSED --first module that allocates--> OPEN or FAILED --primary context goes--> CLOSED
 *   CLOSED --next context, with libraries--> OPEN or FAILED
 *
 *   ga_cuda_kernel_open -> open_locked
 *     read_needs      registers and stack, from the embedded image
 *     open_heap       as GPUALLOC_KERNEL says
 *     write_view      into the instructions of a copy of the image
 *     load_module     the driver loads the copy; a kernel of it says its addresses
 *
 * STRUCTURE  One record for each device.
 * INVARIANT  The module of an OPEN record is loaded, and has the view of the heap in it.
 * ORDER      One lock guards all records.
 * PROGRESS   A thread waits while another one loads the module or opens a heap.
 */
#include "kernel_place.h"

#include "../../liballoc/linked/linked.h"
#include "../../liballoc/platform/cuda_driver.h"
#include "../../liballoc/platform/environment.h"
#include "../../liballoc/platform/forks.h"
#include "../../liballoc/platform/libc.h"
#include "../../liballoc/platform/log.h"
#include "../../liballoc/runtime/heap.h"
#include "../images/fatbin.h"
#include "../kernel/module.h"
#include "contexts.h"
#include "next.h"

#include <gpualloc/backend.h>

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum {
    CLOSED = 0,
    OPEN,
    FAILED
};

enum {
    LIMIT_STACK_SIZE = 0,     /* CU_LIMIT_STACK_SIZE */
    CAPTURE_MODE_RELAXED = 2, /* CU_STREAM_CAPTURE_MODE_RELAXED */
    DEFAULT_STACK = 1024      /* the driver's */
};

typedef struct place {
    int state;
    ga_heap *heap;
    CUmodule module;
    ga_cubin_callee plain;   /* for kernels that call malloc and free */
    ga_cubin_callee aligned; /* and for those that call the aligned malloc, too */
    unsigned sm;
    ga_status status; /* FAILED: the status and the sentence */
    char reason[512];
} place;

/* The addresses that libraries on a device call; 0: there are none. */
typedef struct expected {
    uint64_t addresses[GA_CALLS_COUNT];
    unsigned sm;
} expected;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static place places[GA_CUDA_DEVICES];
static expected libraries[GA_CUDA_DEVICES];
static bool has_libraries; /* relaxed: set before a library is loaded, never cleared */
static char *spec_at_start;

/* The driver does not outlive a fork. */
static void fork_child(void)
{
    pthread_mutex_init(&lock, NULL); /* the thread that held it is not in the child */
    memset(places, 0, sizeof places);
    memset(libraries, 0, sizeof libraries);
}

/* A constructor, because a fork that has begun does not run handlers that are registered during it,
 * and because programs may clear their environment before their first CUDA call. */
__attribute__((constructor)) static void begin(void)
{
    static bool watched;
    ga_forks_watch(&watched, NULL, NULL, fork_child);
    spec_at_start = ga_environment_copy("GPUALLOC_KERNEL");
}

static const char *spec(void)
{
    const char *now = ga_environment("GPUALLOC_KERNEL");
    return now ? now : spec_at_start;
}

bool ga_cuda_kernel_wanted(void)
{
    const char *wanted = spec();
    return wanted && *wanted && strcmp(wanted, "cuda") != 0;
}

/* ---- opening --------------------------------------------------------------------------------- */

static ga_status read_needs(place *it, ga_image *image, void **owned, unsigned sm)
{
    ga_fatbin_entry entry;
    ga_cubin cubin;
    *owned = NULL;
    if (!ga_kernel_module_size) {
        return ga_fail(GA_ERR_UNSUPPORTED,
                       "this build has no device code: nvcc was not found for it");
    }
    ga_image fatbin = {ga_kernel_module, (size_t)ga_kernel_module_size};
    ga_status status = ga_fatbin_choose(&entry, fatbin, sm);
    if (status == GA_OK) {
        status = ga_fatbin_unpack(image, owned, &entry);
    }
    if (status == GA_OK) {
        status = ga_cubin_open(&cubin, *image);
    }
    if (status == GA_OK) {
        status = ga_cubin_needs(&cubin, GA_KERNEL_MODULE_NEEDS, &it->plain);
    }
    return status == GA_OK ? ga_cubin_needs(&cubin, GA_KERNEL_MODULE_ALIGNED, &it->aligned)
                           : status;
}

static ga_status check_heap(ga_heap *heap, ga_kernel_heap *view)
{
    ga_status status = ga_heap_kernel_view(heap, view);
    if (status == GA_OK && (ga_linked_calls_cuda(heap) || !ga_linked_aligns(view))) {
        return ga_fail(GA_ERR_PLACE,
                       "GPUALLOC_KERNEL: %s: expected a heap of its own with blocks aligned to 16, "
                       "as %s",
                       ga_heap_spec(heap), ga_heap_default_spec(GA_PLACE_KERNEL));
    }
    return status;
}

static ga_status open_heap(place *it, int device, ga_kernel_heap *view)
{
    ga_status status = ga_heap_open(&it->heap, GA_PLACE_KERNEL, device, spec());
    return status == GA_OK ? check_heap(it->heap, view)
                           : ga_fail(status, "GPUALLOC_KERNEL: %s", ga_error_text());
}

/* Launch the kernel that says where the functions are. */
static ga_status ask_addresses(const ga_cuda_scope *scope, CUmodule module, CUdeviceptr block,
                               uint64_t answers[GA_CALLS_COUNT])
{
    const ga_cuda_driver *driver = scope->driver;
    CUfunction kernel;
    void *parameters[] = {&block};
    ga_status status =
        GA_CUDA_CALL(driver, cuModuleGetFunction, &kernel, module, GA_KERNEL_MODULE_ADDRESSES);
    if (status == GA_OK) {
        status = GA_CUDA_CALL(driver, cuLaunchKernel, kernel, 1, 1, 1, 1, 1, 1, 0, scope->stream,
                              parameters, NULL);
    }
    if (status == GA_OK) {
        status = GA_CUDA_CALL(driver, cuMemcpyDtoHAsync, answers, block,
                              GA_CALLS_COUNT * sizeof *answers, scope->stream);
    }
    return status == GA_OK ? GA_CUDA_CALL(driver, cuStreamSynchronize, scope->stream) : status;
}

static ga_status read_addresses(const ga_cuda_scope *scope, int device, CUmodule module,
                                uint64_t answers[GA_CALLS_COUNT])
{
    CUdeviceptr block;
    ga_status status =
        GA_CUDA_CALL(scope->driver, cuMemAlloc, &block, GA_CALLS_COUNT * sizeof *answers);
    if (status != GA_OK) {
        return status;
    }
    status = ask_addresses(scope, module, block, answers);
    GA_CUDA_CALL(scope->driver, cuMemFree, block);
    for (int i = 0; status == GA_OK && i < GA_CALLS_COUNT; i++) {
        if (!answers[i]) {
            return ga_fail(GA_ERR_DEVICE,
                           "device %d: expected the address of function %d of the module, got 0",
                           device, i);
        }
    }
    return status;
}

/* A copy of the module with the view of the heap in its instructions; to be freed. */
static ga_status write_view(void **out, ga_image image, const ga_kernel_heap *view)
{
    static const char *const names[] = GA_KERNEL_MODULE_WORDS;
    uint64_t values[sizeof *view / sizeof(uint64_t)];
    ga_cubin_words words = {names, values, sizeof names / sizeof *names};
    ga_cubin cubin;
    _Static_assert(sizeof values / sizeof *values == sizeof names / sizeof *names,
                   "a variable for each word of the view");
    memcpy(values, view, sizeof values);
    uint8_t *copy = *out = ga_libc.malloc(image.size);
    if (!copy) {
        return ga_fail(GA_ERR_MEMORY, "no memory for a copy of %zu bytes of code", image.size);
    }
    memcpy(copy, image.bytes, image.size);
    ga_status status = ga_cubin_open(&cubin, (ga_image){copy, image.size});
    return status == GA_OK ? ga_cubin_write_words(&cubin, copy, &words) : status;
}

static ga_status load_module(place *it, int device, const void *image)
{
    ga_cuda_scope scope;
    uint64_t answers[GA_CALLS_COUNT] = {0};
    ga_status status = ga_cuda_enter(&scope, device);
    if (status != GA_OK) {
        return status;
    }
    status = GA_CUDA_CALL(scope.driver, cuModuleLoadData, &it->module, image);
    if (status == GA_OK) {
        status = read_addresses(&scope, device, it->module, answers);
    }
    if (status == GA_OK) {
        memcpy(it->plain.addresses, answers, sizeof it->plain.addresses);
        memcpy(it->aligned.addresses, answers, sizeof it->aligned.addresses);
    }
    ga_cuda_leave(&scope);
    return status;
}

static ga_status open_closed(place *it, int device, unsigned sm)
{
    ga_image image;
    void *owned;
    void *copy = NULL;
    ga_kernel_heap view;
    ga_status status = read_needs(it, &image, &owned, sm);
    if (status == GA_OK) {
        status = open_heap(it, device, &view);
    }
    if (status == GA_OK) {
        status = write_view(&copy, image, &view);
    }
    if (status == GA_OK) {
        status = load_module(it, device, copy);
    }
    ga_libc.free(copy);
    ga_libc.free(owned);
    return status;
}

/* A module may be loaded while a stream captures. The calls made here concern none of the program's
 * streams, so the capture need not end for them. */
static void exchange_capture_mode(int *mode)
{
    typedef CUresult exchange_mode(int *mode);
    exchange_mode *exchange;
    *(void **)&exchange = ga_cuda_next_symbol("cuThreadExchangeStreamCaptureMode");
    if (exchange) {
        exchange(mode);
    }
}

static void open_locked(place *it, int device, unsigned sm)
{
    int mode = CAPTURE_MODE_RELAXED;
    *it = (place){.state = OPEN, .sm = sm};
    exchange_capture_mode(&mode);
    it->status = open_closed(it, device, sm);
    exchange_capture_mode(&mode);
    if (it->status == GA_OK) {
        it->heap->published++;
        ga_log(GA_LOG_INFO, "malloc in kernels on device %d is served by %s", device,
               ga_heap_spec(it->heap));
        return;
    }
    snprintf(it->reason, sizeof it->reason, "%s", ga_error_text());
    it->state = FAILED;
    if (it->heap) {
        ga_heap_close(it->heap);
        it->heap = NULL;
    }
}

/* The context's limit on the stack of kernels whose need is not known, now. */
static uint32_t stack_limit(int device)
{
    typedef CUresult get_limit(size_t * value, int limit);
    size_t value = DEFAULT_STACK;
    ga_cuda_scope scope;
    get_limit *get;
    *(void **)&get = ga_cuda_next_symbol("cuCtxGetLimit");
    if (get && ga_cuda_enter(&scope, device) == GA_OK) {
        value = get(&value, LIMIT_STACK_SIZE) == CUDA_SUCCESS ? value : DEFAULT_STACK;
        ga_cuda_leave(&scope);
    }
    return value < UINT32_MAX / 2 ? (uint32_t)value : UINT32_MAX / 2;
}

ga_status ga_cuda_kernel_open(ga_cubin_callee *out, int device, unsigned sm, unsigned calls)
{
    pthread_mutex_lock(&lock);
    place *it = &places[device];
    if (it->state == CLOSED) {
        open_locked(it, device, sm);
    }
    *out = calls & GA_CALLS_ALIGNED ? it->aligned : it->plain;
    if (it->state == OPEN) {
        out->recursion = stack_limit(device) + out->stack;
    }
    ga_status status = it->state == OPEN ? GA_OK : ga_fail(it->status, "%s", it->reason);
    pthread_mutex_unlock(&lock);
    return status;
}

void ga_cuda_kernel_library(int device)
{
    pthread_mutex_lock(&lock);
    if (places[device].state == OPEN) {
        memcpy(libraries[device].addresses, places[device].plain.addresses,
               sizeof libraries[device].addresses);
        libraries[device].sm = places[device].sm;
        __atomic_store_n(&has_libraries, true, __ATOMIC_RELAXED); /* relaxed: see there */
    }
    pthread_mutex_unlock(&lock);
}

static void reopen_locked(place *it, int device, const expected *before)
{
    open_locked(it, device, before->sm);
    bool is_same = it->state == OPEN &&
                   memcmp(it->plain.addresses, before->addresses, sizeof before->addresses) == 0;
    if (!is_same) {
        ga_log(GA_LOG_ERROR,
               "device %d was reset, and %s: expected malloc in kernels at 0x%llx, where libraries "
               "that were loaded before call it; their kernels must not allocate any more",
               device, it->state == OPEN ? "our module is elsewhere" : it->reason,
               (unsigned long long)before->addresses[0]);
    }
}

void ga_cuda_kernel_reopen(int device)
{
    /* relaxed: see there */
    if (!__atomic_load_n(&has_libraries, __ATOMIC_RELAXED) || device < 0 ||
        device >= GA_CUDA_DEVICES) {
        return;
    }
    pthread_mutex_lock(&lock);
    if (places[device].state == CLOSED && libraries[device].addresses[0]) {
        reopen_locked(&places[device], device, &libraries[device]);
    }
    pthread_mutex_unlock(&lock);
}

void ga_cuda_kernel_close(int device)
{
    if (device < 0 || device >= GA_CUDA_DEVICES) {
        return;
    }
    pthread_mutex_lock(&lock);
    if (places[device].state == OPEN) {
        ga_cuda_wait_if_active(device); /* kernels that run may use the heap */
        ga_heap_close(places[device].heap);
    }
    places[device] = (place){0};
    pthread_mutex_unlock(&lock);
}
