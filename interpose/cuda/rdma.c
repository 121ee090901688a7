/* SPDX-License-Identifier: MIT
 *
 * STRUCTURE  a mark in the record of each live block: SYNC_MEMOPS is set
 * INVARIANT  while a block is marked for which the driver refused it, the context of its device has
 *            CU_CTX_SYNC_MEMOPS, whichever flags the program sets there
 * ORDER      one lock around each change of a context's flags and of the marks that depend on it
 * PROGRESS   a thread that marks the first such block of a context waits for synchronous work there
 */
#include "rdma.h"

#include "../../liballoc/platform/cuda_driver.h"
#include "../../liballoc/platform/log.h"
#include "captures.h"
#include "contexts.h"
#include "entry.h"
#include "lookup.h"
#include "next.h"

#include <stdint.h>
#include <unistd.h>

typedef CUresult set_attribute_fn(const void *value, CUpointer_attribute attribute,
                                  CUdeviceptr pointer);
typedef CUresult get_attribute_fn(void *value, CUpointer_attribute attribute, CUdeviceptr pointer);
typedef CUresult range_handle_fn(void *handle, CUdeviceptr start, size_t size,
                                 CUmemRangeHandleType type, unsigned long long flags);
typedef CUresult context_flags_fn(unsigned flags);
typedef CUresult primary_flags_fn(CUdevice device, unsigned flags);

static pthread_mutex_t flags_lock = PTHREAD_MUTEX_INITIALIZER;

/* The lock guards flags of the driver's contexts, which do not exist in the child. */
void ga_cuda_rdma_child(void)
{
    pthread_mutex_init(&flags_lock, NULL);
}

/* ---- buffer ids ----------------------------------------------------------------------------- */

/* The driver counts its numbers up from small ones, so these start at 2^62. */
uint64_t ga_cuda_rdma_number(void)
{
    static uint64_t last = UINT64_C(1) << 62;
    return __atomic_add_fetch(&last, 1, __ATOMIC_RELAXED); /* relaxed: only has to be unique */
}

bool ga_cuda_rdma_overrides(const ga_cuda_block *block, CUpointer_attribute attribute)
{
    return (attribute == CU_POINTER_ATTRIBUTE_BUFFER_ID && block->number) ||
           (attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS && (block->number || block->synchronous));
}

void ga_cuda_rdma_correct(const ga_cuda_block *block, CUpointer_attribute attribute, void *value)
{
    if (attribute == CU_POINTER_ATTRIBUTE_BUFFER_ID) {
        *(unsigned long long *)value = block->number;
    } else {
        *(unsigned *)value = block->synchronous;
    }
}

/* ---- synchronous work ----------------------------------------------------------------------- */

/* Wait for synchronous calls made earlier in the current context: copies on the legacy default
 * stream, and on this thread's own. A capture forbids waiting. */
static void wait_for_earlier_work(const ga_cuda_driver *driver)
{
    CUstream per_thread = (CUstream)(void *)2; /* CU_STREAM_PER_THREAD */
    if (ga_cuda_captures_hold_off()) {
        driver->cuStreamSynchronize(NULL);
        driver->cuStreamSynchronize(per_thread);
        ga_cuda_captures_allow();
    }
}

static CUresult add_sync_flag(const ga_cuda_driver *driver, context_flags_fn *set)
{
    const ga_cuda_api *api = ga_cuda_next_api();
    unsigned flags = 0;
    CUresult result = api ? api->cuCtxGetFlags(&flags) : CUDA_ERROR_NOT_SUPPORTED;
    if (result != CUDA_SUCCESS || flags & CU_CTX_SYNC_MEMOPS) {
        return result;
    }
    result = set(flags | CU_CTX_SYNC_MEMOPS);
    if (result == CUDA_SUCCESS) {
        wait_for_earlier_work(driver);
    }
    return result;
}

static void warn_old_driver(void)
{
    static bool warned;
    /* relaxed: only limits the warning to once */
    if (!__atomic_exchange_n(&warned, true, __ATOMIC_RELAXED)) {
        ga_log(GA_LOG_WARN, "cuPointerSetAttribute: SYNC_MEMOPS for memory that is mapped needs a "
                            "driver for CUDA 12.1 or later");
    }
}

/* With the lock held. */
static CUresult make_context_synchronous(int device)
{
    context_flags_fn *set = GA_CUDA_NEXT(context_flags_fn, cuCtxSetFlags);
    ga_cuda_scope scope;
    if (!set) {
        warn_old_driver();
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (ga_cuda_enter(&scope, device) != GA_OK) {
        return ga_cuda_next_error();
    }
    CUresult result = add_sync_flag(scope.driver, set);
    ga_cuda_leave(&scope);
    return result;
}

/* The driver sets the attribute for the whole allocation, so blocks that share it have it as well.
 * Therefore the driver is not asked to clear it for one of them. */
static CUresult set_synchronous(const ga_cuda_block *block, const unsigned *value)
{
    set_attribute_fn *next = GA_CUDA_NEXT(set_attribute_fn, cuPointerSetAttribute);
    CUresult result = CUDA_SUCCESS;
    if (*value || !block->number) {
        result = next ? next(value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, block->start)
                      : ga_cuda_next_missing();
    }
    pthread_mutex_lock(&flags_lock);
    bool by_context = result == CUDA_ERROR_NOT_SUPPORTED;
    if (by_context) {
        result = *value ? make_context_synchronous(block->device) : CUDA_SUCCESS;
    }
    if (result == CUDA_SUCCESS && (by_context || block->number)) {
        ga_cuda_blocks_set_synchronous(&ga_cuda_live, block, *value != 0);
    }
    pthread_mutex_unlock(&flags_lock);
    return result;
}

GA_CUDA_ENTRY(set_attribute_fn, cuPointerSetAttribute);

CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute,
                               CUdeviceptr pointer)
{
    set_attribute_fn *next = GA_CUDA_NEXT(set_attribute_fn, cuPointerSetAttribute);
    ga_cuda_block block;
    ga_cuda_count(GA_HOOK_cuPointerSetAttribute);
    bool ours = ga_cuda_blocks_find(&ga_cuda_live, pointer, &block) && block.generation;
    if (ours && value && attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) {
        return set_synchronous(&block, value);
    }
    CUresult result = next ? next(value, attribute, pointer) : ga_cuda_next_missing();
    /* Attributes that the driver supports for no mapped memory are errors for cudaMalloc's
     * memory. */
    return ours && result == CUDA_ERROR_NOT_SUPPORTED ? CUDA_ERROR_INVALID_VALUE : result;
}

/* ---- flags that the program gives a context ------------------------------------------------- */

/* A driver without cuCtxSetFlags() has no marked blocks. With the lock held. */
static unsigned with_sync_flag(unsigned flags, int device)
{
    bool needed = device >= 0 && GA_CUDA_NEXT(context_flags_fn, cuCtxSetFlags) &&
                  ga_cuda_blocks_any_synchronous(&ga_cuda_live, device);
    return needed ? flags | CU_CTX_SYNC_MEMOPS : flags;
}

GA_CUDA_ENTRY(context_flags_fn, cuCtxSetFlags);

CUresult cuCtxSetFlags(unsigned flags)
{
    context_flags_fn *next = GA_CUDA_NEXT(context_flags_fn, cuCtxSetFlags);
    const ga_cuda_api *api = ga_cuda_next_api();
    CUcontext current;
    ga_cuda_count(GA_HOOK_cuCtxSetFlags);
    int device = api ? ga_cuda_context_device(api, &current) : -1;
    pthread_mutex_lock(&flags_lock);
    CUresult result = next ? next(with_sync_flag(flags, device)) : ga_cuda_next_missing();
    pthread_mutex_unlock(&flags_lock);
    return result;
}

#define DEFINE_PRIMARY_FLAGS(symbol)                                                               \
    GA_CUDA_ENTRY(primary_flags_fn, symbol);                                                       \
    CUresult symbol(CUdevice device, unsigned flags)                                               \
    {                                                                                              \
        primary_flags_fn *next = GA_CUDA_NEXT(primary_flags_fn, symbol);                           \
        ga_cuda_count(GA_HOOK_##symbol);                                                           \
        pthread_mutex_lock(&flags_lock);                                                           \
        CUresult result =                                                                          \
            next ? next(device, with_sync_flag(flags, device)) : ga_cuda_next_missing();           \
        pthread_mutex_unlock(&flags_lock);                                                         \
        return result;                                                                             \
    }

DEFINE_PRIMARY_FLAGS(cuDevicePrimaryCtxSetFlags)
DEFINE_PRIMARY_FLAGS(cuDevicePrimaryCtxSetFlags_v2)

/* ---- descriptors ---------------------------------------------------------------------------- */

static bool is_rdma_capable(const ga_cuda_block *block)
{
    get_attribute_fn *next = GA_CUDA_NEXT(get_attribute_fn, cuPointerGetAttribute);
    unsigned capable = 0;
    return next &&
           next(&capable, CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, block->start) ==
               CUDA_SUCCESS &&
           capable;
}

/* Once per process: why the driver has no dma-buf for a heap's block. */
static void warn_no_dma_buf(const ga_cuda_block *block, CUdeviceptr start, size_t size)
{
    static bool warned;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    bool pages = size && start % page == 0 && size % page == 0;
    /* relaxed: only limits the warning to once */
    if ((pages && is_rdma_capable(block)) || __atomic_exchange_n(&warned, true, __ATOMIC_RELAXED)) {
        return;
    }
    if (pages) {
        ga_log(GA_LOG_WARN,
               "cuMemGetHandleForAddressRange: network cards do not reach a block of %zu bytes of "
               "device %d; they do under vmm:rdma=on, where the device can do that",
               block->size, block->device);
    } else {
        ga_log(GA_LOG_WARN,
               "cuMemGetHandleForAddressRange: expected whole pages of %zu bytes, got %zu bytes at "
               "%#llx",
               page, size, start);
    }
}

/* Find the heap's block that a range of whole pages belongs to. The range may begin before the
 * block, with the page in which the block begins. */
static bool find_block_in_pages(CUdeviceptr start, size_t size, ga_cuda_block *out)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    CUdeviceptr last = start + (size < page ? size : page) - 1;
    return (ga_cuda_blocks_find(&ga_cuda_live, last, out) && out->number) ||
           (ga_cuda_blocks_find(&ga_cuda_live, start, out) && out->number);
}

/* True if the range ends beyond the last page of its block. The driver does not know where a heap's
 * blocks end, and would export memory of others. */
static bool exceeds_block(CUdeviceptr start, size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    ga_cuda_block block;
    if (!size || !find_block_in_pages(start, size, &block)) {
        return false;
    }
    CUdeviceptr end = (block.start + block.size + page - 1) / page * page;
    return size > end - start;
}

GA_CUDA_ENTRY(range_handle_fn, cuMemGetHandleForAddressRange);

/* The driver exports mapped memory as it does its own allocations. In both, a block's last page may
 * contain other blocks. */
CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr start, size_t size,
                                       CUmemRangeHandleType type, unsigned long long flags)
{
    range_handle_fn *next = GA_CUDA_NEXT(range_handle_fn, cuMemGetHandleForAddressRange);
    ga_cuda_block block;
    ga_cuda_count(GA_HOOK_cuMemGetHandleForAddressRange);
    if (!next) {
        return ga_cuda_next_missing();
    }
    CUresult result = exceeds_block(start, size) ? CUDA_ERROR_INVALID_VALUE
                                                 : next(handle, start, size, type, flags);
    bool refused = result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_NOT_SUPPORTED;
    if (refused && type == CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD &&
        ga_cuda_blocks_find(&ga_cuda_live, start, &block) && block.number) {
        warn_no_dma_buf(&block, start, size);
    }
    return result;
}
