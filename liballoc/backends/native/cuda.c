/* SPDX-License-Identifier: MIT
 *
 * The `cuda` backend: the driver's own allocator (cudaMalloc, cudaFree). All heaps on one device
 * are the same allocator. free() waits for the work on the device, as cudaFree does.
 *
 * For the place `kernel` it is CUDA's in-kernel malloc, whose memory is separate and of a size that
 * is set before the first launch. Blocks that the host allocates from such a heap are ordinary
 * device memory: the host must free these, and kernels theirs.
 */
#include "native.h"

#include "../../device/kinds.h"
#include "../../platform/cuda_driver.h"
#include "../../platform/cuda_refused.h"
#include "../../platform/libc.h"

enum {
    OPTION_HEAP = 0
};

typedef struct cuda_state {
    int device;
} cuda_state;

static ga_status set_kernel_heap(const ga_cuda_scope *scope, uint64_t size)
{
    ga_status status =
        GA_CUDA_CALL(scope->driver, cuCtxSetLimit, CU_LIMIT_MALLOC_HEAP_SIZE, (size_t)size);
    return status == GA_OK
               ? GA_OK
               : ga_fail(status,
                         "cuda: heap: cannot become %llu bytes, no kernel that uses malloc "
                         "may have run before: %s",
                         (unsigned long long)size, ga_error_text());
}

static ga_status prepare(const ga_open_args *args)
{
    ga_cuda_scope scope;
    uint64_t heap = args->values[OPTION_HEAP].size;
    if (heap && args->place != GA_PLACE_KERNEL) {
        return ga_fail(GA_ERR_SPEC, "cuda: heap: expected for the place kernel only, got it for %s",
                       ga_place_text(args->place));
    }
    ga_status status = ga_cuda_enter(&scope, args->device);
    if (status != GA_OK) {
        return ga_fail(status, "cuda: %s", ga_error_text());
    }
    status = heap ? set_kernel_heap(&scope, heap) : GA_OK;
    ga_cuda_leave(&scope);
    return status;
}

static ga_status cuda_open(const ga_open_args *args, void **state)
{
    ga_status status = prepare(args);
    if (status != GA_OK) {
        return status;
    }
    cuda_state *cuda = ga_libc.calloc(1, sizeof *cuda);
    if (!cuda) {
        return ga_fail(GA_ERR_MEMORY, "cuda: no memory for the heap's record");
    }
    cuda->device = args->device;
    *state = cuda;
    return GA_OK;
}

static void cuda_close(void *state)
{
    ga_libc.free(state);
}

/* ---- blocks ------------------------------------------------------------------------------- */

static ga_status set_result(const cuda_state *cuda, ga_status status, CUdeviceptr block,
                            size_t size, void **out)
{
    *out = status == GA_OK ? (void *)block : NULL;
    return status == GA_OK ? GA_OK
                           : ga_fail(status, "cuda: no block of %zu bytes on device %d: %s", size,
                                     cuda->device, ga_error_text());
}

static ga_status cuda_alloc(void *state, size_t size, void **out)
{
    cuda_state *cuda = state;
    ga_cuda_scope scope;
    CUdeviceptr block = 0;
    ga_status status = ga_cuda_enter(&scope, cuda->device);
    if (status == GA_OK) {
        status = GA_CUDA_CALL(scope.driver, cuMemAlloc, &block, size);
        ga_cuda_leave(&scope);
    }
    return set_result(cuda, status, block, size, out);
}

static ga_status alloc_zeroed(const cuda_state *cuda, const ga_cuda_scope *scope, size_t size,
                              CUdeviceptr *block)
{
    ga_status status = GA_CUDA_CALL(scope->driver, cuMemAlloc, block, size);
    if (status != GA_OK) {
        return status;
    }
    status = ga_cuda_clear(scope, (void *)*block, size);
    if (status != GA_OK) {
        ga_cuda_drop_block(scope->driver, cuda->device, *block);
    }
    return status;
}

static ga_status cuda_alloc_zeroed(void *state, size_t size, void **out)
{
    cuda_state *cuda = state;
    ga_cuda_scope scope;
    CUdeviceptr block = 0;
    ga_status status = ga_cuda_enter(&scope, cuda->device);
    if (status == GA_OK) {
        status = alloc_zeroed(cuda, &scope, size, &block);
        ga_cuda_leave(&scope);
    }
    return set_result(cuda, status, block, size, out);
}

/* Whether the pointer is memory of cuMemAlloc on this device. */
static bool is_own(const cuda_state *cuda, const ga_cuda_pointer *pointer)
{
    return pointer->memory_type == CU_MEMORYTYPE_DEVICE && pointer->device == cuda->device &&
           !pointer->managed && !pointer->pool;
}

static ga_status free_own(const ga_cuda_scope *scope, const cuda_state *cuda, void *block)
{
    ga_cuda_pointer pointer;
    ga_status status = ga_cuda_describe(scope, block, &pointer);
    if (status != GA_OK) {
        return status;
    }
    CUresult result = is_own(cuda, &pointer) ? scope->driver->cuMemFree((CUdeviceptr)block)
                                             : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_ERROR_INVALID_VALUE) {
        return ga_fail(GA_ERR_POINTER, "cuda: %p is no block of cuMemAlloc's on device %d", block,
                       cuda->device);
    }
    return ga_cuda_check(scope->driver, result, "cuMemFree");
}

static ga_status cuda_free(void *state, void *block)
{
    cuda_state *cuda = state;
    ga_cuda_scope scope;
    ga_status status = ga_cuda_enter(&scope, cuda->device);
    if (status == GA_OK) {
        status = free_own(&scope, cuda, block);
        ga_cuda_leave(&scope);
    }
    return ga_cuda_is_gone() ? GA_OK : status;
}

/* Allocate `size` bytes, copy the contents of `block` and free it. */
static ga_status move(const ga_cuda_scope *scope, const cuda_state *cuda, void *block, size_t size,
                      CUdeviceptr *moved)
{
    size_t before = ga_cuda_block_size(scope, block);
    ga_status status = GA_CUDA_CALL(scope->driver, cuMemAlloc, moved, size);
    if (status != GA_OK) {
        return status;
    }
    if (before) { /* else free_own() refuses the block */
        status = ga_cuda_copy(scope, (void *)*moved, block, before < size ? before : size);
    }
    if (status == GA_OK) {
        status = free_own(scope, cuda, block);
    }
    if (status != GA_OK) {
        ga_cuda_drop_block(scope->driver, cuda->device, *moved);
    }
    return status;
}

static ga_status cuda_realloc(void *state, void *block, size_t size, void **out)
{
    cuda_state *cuda = state;
    ga_cuda_scope scope;
    CUdeviceptr moved = 0;
    ga_status status = ga_cuda_enter(&scope, cuda->device);
    if (status == GA_OK) {
        status = move(&scope, cuda, block, size, &moved);
        ga_cuda_leave(&scope);
    }
    return set_result(cuda, status, moved, size, out);
}

/* ---- questions ---------------------------------------------------------------------------- */

static bool cuda_owns(void *state, const void *pointer)
{
    cuda_state *cuda = state;
    ga_cuda_scope scope;
    ga_cuda_pointer known;
    if (ga_cuda_enter(&scope, cuda->device) != GA_OK) {
        return false;
    }
    bool own = ga_cuda_describe(&scope, pointer, &known) == GA_OK && is_own(cuda, &known);
    ga_cuda_leave(&scope);
    return own;
}

static size_t cuda_usable_size(void *state, const void *block)
{
    cuda_state *cuda = state;
    ga_cuda_scope scope;
    if (ga_cuda_enter(&scope, cuda->device) != GA_OK) {
        return 0;
    }
    size_t size = ga_cuda_block_size(&scope, block);
    ga_cuda_leave(&scope);
    return size;
}

static ga_status cuda_kernel_view(void *state, ga_kernel_heap *out)
{
    (void)state;
    *out = (ga_kernel_heap){.abi = GA_KERNEL_HEAP_ABI, .kind = GA_KERNEL_KIND_CUDA};
    return GA_OK;
}

/* Peers have access to blocks of the driver as soon as the program enables it, so there is nothing
 * to do. */
static ga_status cuda_enable_peer(void *state, int peer)
{
    (void)state;
    (void)peer;
    return GA_OK;
}

static const ga_option options[] = {
    [OPTION_HEAP] = {.name = "heap",
                     .type = GA_OPTION_SIZE,
                     .fallback = "0",
                     .help = "kernel place: size of CUDA's malloc heap in kernels; 0: as it is"},
};

const ga_backend ga_cuda_backend = {
    .abi = GA_BACKEND_ABI,
    .size = sizeof(ga_backend),
    .name = "cuda",
    .help = "the CUDA driver's allocator; in kernels, CUDA's own malloc",
    .places = GA_PLACE_BIT(GA_PLACE_DEVICE) | GA_PLACE_BIT(GA_PLACE_KERNEL),
    .parent_rule = GA_PARENT_NONE,
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .capabilities = GA_CAP_DRIVER_BLOCKS | GA_CAP_FREE_WAITS | GA_CAP_CUDA_MALLOC,
    .open = cuda_open,
    .close = cuda_close,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .owns = cuda_owns,
    .usable_size = cuda_usable_size,
    .realloc = cuda_realloc,
    .alloc_zeroed = cuda_alloc_zeroed,
    .kernel_view = cuda_kernel_view,
    .enable_peer = cuda_enable_peer,
};
