/* SPDX-License-Identifier: MIT
 *
 * Backends over those allocators of the driver that have no state of ours:
 *
 *   cuda     memory of the device (cudaMalloc, cudaFree)
 *   managed  memory that moves between host and device (cudaMallocManaged)
 *   pinned   page-locked memory of the host, which devices access through its address
 *            (cudaHostAlloc, cudaFreeHost)
 *
 * All heaps of one backend on one device are the same allocator. free() waits for the work on the
 * device, as cudaFree does.
 *
 * For the place `kernel`, `cuda` is CUDA's in-kernel malloc, whose memory is separate and of a size
 * that is set before the first launch. Blocks that the host allocates from such a heap are ordinary
 * device memory: the host must free these, and kernels theirs.
 */
#include "native.h"

#include "../../device/kinds.h"
#include "../../platform/cuda_driver.h"
#include "../../platform/cuda_refused.h"
#include "../../platform/libc.h"
#include "../../platform/machine.h"

#include <inttypes.h>

enum {
    OPTION_HEAP = 0
};

/* Bytes of a block from which memory_kind.available is asked first. */
static const size_t LARGE = (size_t)1 << 30;

/* ---- the kinds of memory ------------------------------------------------------------------ */

typedef struct memory_kind {
    const char *name; /* of the backend */
    const char *alloc_call, *free_call;
    int memory_type; /* the driver's attributes of its pointers */
    int managed;
    bool waits; /* the driver's free waits for the device */
    ga_status (*alloc)(const ga_cuda_driver *driver, size_t size, CUdeviceptr *block);
    CUresult (*free)(const ga_cuda_driver *driver, CUdeviceptr block);
    void (*drop)(const ga_cuda_driver *driver, int device, CUdeviceptr block);
    /* Bytes that are free, to refuse a large block that would harm other programs. NULL: the driver
     * refuses it. */
    uint64_t (*available)(const ga_cuda_driver *driver);
    struct {
        CUdevice_attribute attribute;
        const char *text; /* NULL: no such requirement */
    } requires[2];
} memory_kind;

static ga_status alloc_device(const ga_cuda_driver *driver, size_t size, CUdeviceptr *block)
{
    return GA_CUDA_CALL(driver, cuMemAlloc, block, size);
}

static CUresult free_block(const ga_cuda_driver *driver, CUdeviceptr block)
{
    return driver->cuMemFree(block);
}

static const memory_kind device_memory = {
    .name = "cuda",
    .alloc_call = "cuMemAlloc",
    .free_call = "cuMemFree",
    .memory_type = CU_MEMORYTYPE_DEVICE,
    .waits = true,
    .alloc = alloc_device,
    .free = free_block,
    .drop = ga_cuda_drop_block,
};

static ga_status alloc_managed(const ga_cuda_driver *driver, size_t size, CUdeviceptr *block)
{
    return GA_CUDA_CALL(driver, cuMemAllocManaged, block, size, CU_MEM_ATTACH_GLOBAL);
}

/* The driver allocates more than the device has, and moves pages at each access. Devices have hung
 * from that. */
static uint64_t available_managed(const ga_cuda_driver *driver)
{
    size_t available = 0, total = 0;
    return driver->cuMemGetInfo(&available, &total) == CUDA_SUCCESS ? available : UINT64_MAX;
}

static const memory_kind managed_memory = {
    .name = "managed",
    .alloc_call = "cuMemAllocManaged",
    .free_call = "cuMemFree",
    .managed = 1,
    .alloc = alloc_managed,
    .free = free_block,
    .drop = ga_cuda_drop_block,
    .available = available_managed,
    .requires = {{CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, "managed memory"},
                 {CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS,
                  "concurrent access to managed memory by host and device"}},
};

static ga_status alloc_pinned(const ga_cuda_driver *driver, size_t size, CUdeviceptr *block)
{
    void *start = NULL;
    ga_status status = GA_CUDA_CALL(driver, cuMemHostAlloc, &start, size,
                                    CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
    *block = (CUdeviceptr)start; /* for the device, too, by unified addressing */
    return status;
}

static CUresult free_pinned(const ga_cuda_driver *driver, CUdeviceptr block)
{
    return driver->cuMemFreeHost((void *)block);
}

/* Locked pages cannot be swapped out, so the OOM killer would end processes. */
static uint64_t available_pinned(const ga_cuda_driver *driver)
{
    (void)driver;
    return ga_machine_memory_available();
}

static const memory_kind pinned_memory = {
    .name = "pinned",
    .alloc_call = "cuMemHostAlloc",
    .free_call = "cuMemFreeHost",
    .memory_type = CU_MEMORYTYPE_HOST,
    .alloc = alloc_pinned,
    .free = free_pinned,
    .drop = ga_cuda_drop_host_block,
    .available = available_pinned,
    .requires = {{CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, "unified addressing"}},
};

/* ---- open and close ----------------------------------------------------------------------- */

typedef struct cuda_state {
    const memory_kind *kind;
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

static ga_status check_device(const ga_cuda_scope *scope, const memory_kind *kind, int device)
{
    CUdevice handle;
    ga_status status = GA_CUDA_CALL(scope->driver, cuDeviceGet, &handle, device);
    for (size_t i = 0; i < 2 && status == GA_OK && kind->requires[i].text; i++) {
        int has = 0;
        status = GA_CUDA_CALL(scope->driver, cuDeviceGetAttribute, &has,
                              kind->requires[i].attribute, handle);
        if (status == GA_OK && !has) {
            status = ga_fail(GA_ERR_DEVICE, "device %d does not have %s", device,
                             kind->requires[i].text);
        }
    }
    return status == GA_OK ? GA_OK : ga_fail(status, "%s: %s", kind->name, ga_error_text());
}

static ga_status prepare(const ga_open_args *args, const memory_kind *kind, uint64_t kernel_heap)
{
    ga_cuda_scope scope;
    ga_status status = ga_cuda_enter(&scope, args->device);
    if (status != GA_OK) {
        return ga_fail(status, "%s: %s", kind->name, ga_error_text());
    }
    status = check_device(&scope, kind, args->device);
    if (status == GA_OK && kernel_heap) {
        status = set_kernel_heap(&scope, kernel_heap);
    }
    ga_cuda_leave(&scope);
    return status;
}

static ga_status open_kind(const ga_open_args *args, const memory_kind *kind, uint64_t kernel_heap,
                           void **state)
{
    ga_status status = prepare(args, kind, kernel_heap);
    if (status != GA_OK) {
        return status;
    }
    cuda_state *cuda = ga_libc.calloc(1, sizeof *cuda);
    if (!cuda) {
        return ga_fail(GA_ERR_MEMORY, "%s: no memory for the heap's record", kind->name);
    }
    *cuda = (cuda_state){kind, args->device};
    *state = cuda;
    return GA_OK;
}

static ga_status cuda_open(const ga_open_args *args, void **state)
{
    uint64_t heap = args->values[OPTION_HEAP].size;
    if (heap && args->place != GA_PLACE_KERNEL) {
        return ga_fail(GA_ERR_SPEC, "cuda: heap: expected for the place kernel only, got it for %s",
                       ga_place_text(args->place));
    }
    return open_kind(args, &device_memory, heap, state);
}

static ga_status managed_open(const ga_open_args *args, void **state)
{
    return open_kind(args, &managed_memory, 0, state);
}

static ga_status pinned_open(const ga_open_args *args, void **state)
{
    return open_kind(args, &pinned_memory, 0, state);
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
                           : ga_fail(status, "%s: no block of %zu bytes on device %d: %s",
                                     cuda->kind->name, size, cuda->device, ga_error_text());
}

static ga_status alloc(const cuda_state *cuda, const ga_cuda_scope *scope, size_t size,
                       CUdeviceptr *block)
{
    const memory_kind *kind = cuda->kind;
    uint64_t most = size >= LARGE && kind->available ? kind->available(scope->driver) : UINT64_MAX;
    return size <= most
               ? kind->alloc(scope->driver, size, block)
               : ga_fail(GA_ERR_MEMORY, "expected at most %" PRIu64 " bytes, which are free", most);
}

static ga_status cuda_alloc(void *state, size_t size, void **out)
{
    cuda_state *cuda = state;
    ga_cuda_scope scope;
    CUdeviceptr block = 0;
    ga_status status = ga_cuda_enter(&scope, cuda->device);
    if (status == GA_OK) {
        status = alloc(cuda, &scope, size, &block);
        ga_cuda_leave(&scope);
    }
    return set_result(cuda, status, block, size, out);
}

static ga_status alloc_zeroed(const cuda_state *cuda, const ga_cuda_scope *scope, size_t size,
                              CUdeviceptr *block)
{
    ga_status status = alloc(cuda, scope, size, block);
    if (status != GA_OK) {
        return status;
    }
    status = ga_cuda_clear(scope, (void *)*block, size);
    if (status != GA_OK) {
        cuda->kind->drop(scope->driver, cuda->device, *block);
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

/* True if the pointer is memory of this kind on this device. */
static bool is_own(const cuda_state *cuda, const ga_cuda_pointer *pointer)
{
    const memory_kind *kind = cuda->kind;
    bool of_kind = kind->managed ? pointer->managed
                                 : pointer->memory_type == kind->memory_type && !pointer->managed;
    return of_kind && pointer->device == cuda->device && !pointer->pool;
}

static ga_status no_block(const cuda_state *cuda, const void *block)
{
    return ga_fail(GA_ERR_POINTER, "%s: %p is no block of %s's on device %d", cuda->kind->name,
                   block, cuda->kind->alloc_call, cuda->device);
}

static ga_status free_own(const ga_cuda_scope *scope, const cuda_state *cuda, void *block)
{
    const memory_kind *kind = cuda->kind;
    ga_cuda_pointer pointer;
    ga_status status = ga_cuda_describe(scope, block, &pointer);
    if (status == GA_OK && !is_own(cuda, &pointer)) {
        return no_block(cuda, block);
    }
    if (status == GA_OK && !kind->waits) {
        status =
            ga_cuda_check(scope->driver, scope->driver->cuCtxSynchronize(), "cuCtxSynchronize");
    }
    if (status != GA_OK) {
        return status;
    }
    CUresult result = kind->free(scope->driver, (CUdeviceptr)block);
    return result == CUDA_ERROR_INVALID_VALUE
               ? no_block(cuda, block)
               : ga_cuda_check(scope->driver, result, kind->free_call);
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
    ga_status status = before ? alloc(cuda, scope, size, moved) : no_block(cuda, block);
    if (status != GA_OK) {
        return status;
    }
    status = ga_cuda_copy(scope, (void *)*moved, block, before < size ? before : size);
    if (status == GA_OK) {
        status = free_own(scope, cuda, block);
    }
    if (status != GA_OK) {
        cuda->kind->drop(scope->driver, cuda->device, *moved);
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

/* The members that all three share. */
#define CUDA_BACKEND                                                                               \
    .abi = GA_BACKEND_ABI, .size = sizeof(ga_backend), .parent_rule = GA_PARENT_NONE,              \
    .close = cuda_close, .alloc = cuda_alloc, .free = cuda_free, .owns = cuda_owns,                \
    .usable_size = cuda_usable_size, .realloc = cuda_realloc, .alloc_zeroed = cuda_alloc_zeroed,   \
    .enable_peer = cuda_enable_peer

const ga_backend ga_cuda_backend = {
    CUDA_BACKEND,
    .name = "cuda",
    .help = "the CUDA driver's allocator; in kernels, CUDA's own malloc",
    .places = GA_PLACE_BIT(GA_PLACE_DEVICE) | GA_PLACE_BIT(GA_PLACE_KERNEL),
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .capabilities = GA_CAP_DRIVER_BLOCKS | GA_CAP_FREE_WAITS | GA_CAP_CUDA_MALLOC,
    .open = cuda_open,
    .kernel_view = cuda_kernel_view,
};

const ga_backend ga_managed_backend = {
    CUDA_BACKEND,
    .name = "managed",
    .help = "the CUDA driver's managed memory: pages move to their users",
    .places = GA_PLACE_BIT(GA_PLACE_DEVICE),
    .capabilities = GA_CAP_DRIVER_BLOCKS | GA_CAP_FREE_WAITS,
    .open = managed_open,
};

const ga_backend ga_pinned_backend = {
    CUDA_BACKEND,
    .name = "pinned",
    .help = "page-locked host memory, which devices access where it is",
    .places = GA_PLACE_BIT(GA_PLACE_DEVICE),
    .capabilities = GA_CAP_DRIVER_BLOCKS | GA_CAP_FREE_WAITS,
    .open = pinned_open,
};
