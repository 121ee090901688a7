/* SPDX-License-Identifier: MIT
 *
 * The ANSWERS and WATCHES rows of the hook table: memory information, pointer attributes, contexts
 * and peer access.
 */
#include "../../liballoc/platform/libc.h"
#include "../../liballoc/runtime/heap.h"
#include "captures.h"
#include "contexts.h"
#include "entry.h"
#include "ipc.h"
#include "kernel_contexts.h"
#include "lookup.h"
#include "next.h"
#include "pinned.h"
#include "primary.h"
#include "rdma.h"
#include "served.h"

typedef CUresult mem_info_fn(size_t *available, size_t *total);
typedef CUresult range_fn(CUdeviceptr *base, size_t *size, CUdeviceptr pointer);
typedef CUresult attribute_fn(void *value, CUpointer_attribute attribute, CUdeviceptr pointer);
typedef CUresult attributes_fn(unsigned count, CUpointer_attribute *attributes, void **values,
                               CUdeviceptr pointer);
typedef CUresult of_device_fn(CUdevice device);
typedef CUresult of_context_fn(CUcontext context);
typedef CUresult of_handle_fn(void *handle);
typedef CUresult peer_fn(CUcontext owner, unsigned flags);

/* ---- memory information --------------------------------------------------------------------- */

static uint64_t subtract_saturating(uint64_t from, uint64_t amount)
{
    return from > amount ? from - amount : 0;
}

/* Memory that the heap holds and no block uses counts as available. */
static void correct_mem_info(const ga_cuda_device_ref *ref, size_t *available, size_t *total)
{
    uint64_t limit = ga_cuda_limit();
    uint64_t used = ga_cuda_used(ref);
    uint64_t free_bytes = *available + ga_cuda_cached(ref);
    *total = *total < limit ? *total : (size_t)limit;
    free_bytes = free_bytes < *total ? free_bytes : *total;
    *available =
        (size_t)(free_bytes < subtract_saturating(limit, used) ? free_bytes
                                                               : subtract_saturating(limit, used));
}

GA_CUDA_ENTRY(mem_info_fn, cuMemGetInfo_v2);

CUresult cuMemGetInfo_v2(size_t *available, size_t *total)
{
    mem_info_fn *next = GA_CUDA_NEXT(mem_info_fn, cuMemGetInfo_v2);
    ga_cuda_device_ref ref;
    ga_cuda_count(GA_HOOK_cuMemGetInfo_v2);
    size_t scratch[2]; /* the driver accepts NULL for either, and the correction needs both */
    available = available || !total ? available : &scratch[0];
    total = total || !available ? total : &scratch[1];
    CUresult result = next ? next(available, total) : ga_cuda_next_missing();
    if (result == CUDA_SUCCESS && available && ga_cuda_acquire_current(&ref)) {
        correct_mem_info(&ref, available, total);
        ga_cuda_release_current(&ref);
    }
    return result;
}

/* ---- pointer attributes --------------------------------------------------------------------- */

/* The block that holds the address, if the driver's answers about it would be wrong: a heap's
 * block, a block of another process, or pinned memory that is larger than requested. */
static bool find_block(CUdeviceptr pointer, ga_cuda_block *block)
{
    return (ga_cuda_blocks_find(&ga_cuda_live, pointer, block) && block->generation) ||
           ga_cuda_ipc_find(pointer, block) || ga_cuda_pinned_find(pointer, block);
}

GA_CUDA_ENTRY(range_fn, cuMemGetAddressRange_v2);

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr pointer)
{
    range_fn *next = GA_CUDA_NEXT(range_fn, cuMemGetAddressRange_v2);
    ga_cuda_block block;
    ga_cuda_count(GA_HOOK_cuMemGetAddressRange_v2);
    CUresult result = next ? next(base, size, pointer) : ga_cuda_next_missing();
    if (result == CUDA_SUCCESS && find_block(pointer, &block)) {
        if (base) {
            *base = block.start;
        }
        if (size) {
            *size = block.size;
        }
    }
    return result;
}

static bool may_be_ours(CUpointer_attribute attribute)
{
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        return true;
    default:
        return false;
    }
}

/* Replace the driver's answer, which is about the mapping behind the block: that may be larger or
 * smaller than the block, or hold others. For cudaMalloc's memory the driver reports the block, and
 * no handle type. False: the attribute is none of these. */
static bool correct_mapping(const ga_cuda_block *block, CUpointer_attribute attribute, void *value)
{
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *(unsigned *)value = ga_cuda_can_share(block);
        return true;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *(unsigned *)value =
            0; /* the low half of the driver's 64-bit answer, which names all types */
        return true;
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        *(size_t *)value = block->size;
        return true;
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        *(CUdeviceptr *)value = block->start;
        return true;
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        *(unsigned long long *)value = block->number;
        return true;
    default:
        return false;
    }
}

/* The context is the device's primary context, as for a block of the driver's. */
static void correct_attribute(const ga_cuda_block *block, CUpointer_attribute attribute,
                              void *value)
{
    if ((block->number || block->imported) && correct_mapping(block, attribute, value)) {
        return;
    }
    if (attribute == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR) {
        *(CUdeviceptr *)value = block->start;
    } else if (attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE) {
        *(size_t *)value = block->size;
    } else if (attribute == CU_POINTER_ATTRIBUTE_CONTEXT && !*(CUcontext *)value) {
        *(CUcontext *)value = ga_cuda_primary(block->device);
    } else if (ga_cuda_rdma_overrides(block, attribute)) {
        ga_cuda_rdma_correct(block, attribute, value);
    }
}

/* True if the driver refuses an attribute for mapped memory that is known here. */
static bool can_answer(const ga_cuda_block *block, CUpointer_attribute attribute, CUresult result)
{
    return (attribute == CU_POINTER_ATTRIBUTE_CONTEXT && result == CUDA_ERROR_INVALID_VALUE) ||
           (ga_cuda_rdma_overrides(block, attribute) &&
            (result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_NOT_SUPPORTED));
}

GA_CUDA_ENTRY(attribute_fn, cuPointerGetAttribute);

CUresult cuPointerGetAttribute(void *value, CUpointer_attribute attribute, CUdeviceptr pointer)
{
    attribute_fn *next = GA_CUDA_NEXT(attribute_fn, cuPointerGetAttribute);
    ga_cuda_block block;
    ga_cuda_count(GA_HOOK_cuPointerGetAttribute);
    CUresult result = next ? next(value, attribute, pointer) : ga_cuda_next_missing();
    if (!value || !may_be_ours(attribute) || !find_block(pointer, &block)) {
        return result;
    }
    if (can_answer(&block, attribute, result)) {
        if (attribute == CU_POINTER_ATTRIBUTE_CONTEXT) {
            *(CUcontext *)value = NULL;
        }
        result = CUDA_SUCCESS;
    }
    if (result == CUDA_SUCCESS) {
        correct_attribute(&block, attribute, value);
    }
    return result;
}

GA_CUDA_ENTRY(attributes_fn, cuPointerGetAttributes);

CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute *attributes, void **values,
                                CUdeviceptr pointer)
{
    attributes_fn *next = GA_CUDA_NEXT(attributes_fn, cuPointerGetAttributes);
    ga_cuda_block block;
    ga_cuda_count(GA_HOOK_cuPointerGetAttributes);
    CUresult result = next ? next(count, attributes, values, pointer) : ga_cuda_next_missing();
    if (result == CUDA_SUCCESS && find_block(pointer, &block)) {
        for (unsigned i = 0; i < count; i++) {
            correct_attribute(&block, attributes[i], values[i]);
        }
    }
    return result;
}

/* ---- contexts ------------------------------------------------------------------------------- */

/* A thread that cached the context during the call must look it up again. */
#define DEFINE_RESET(symbol)                                                                       \
    GA_CUDA_ENTRY(of_device_fn, symbol);                                                           \
    CUresult symbol(CUdevice device)                                                               \
    {                                                                                              \
        of_device_fn *next = GA_CUDA_NEXT(of_device_fn, symbol);                                   \
        ga_cuda_count(GA_HOOK_##symbol);                                                           \
        ga_cuda_primary_close(device);                                                             \
        CUresult result = next ? next(device) : ga_cuda_next_missing();                            \
        ga_cuda_primary_closed(device, result == CUDA_SUCCESS);                                    \
        ga_cuda_contexts_changed();                                                                \
        return result;                                                                             \
    }

DEFINE_RESET(cuDevicePrimaryCtxReset)
DEFINE_RESET(cuDevicePrimaryCtxReset_v2)

/* Captures on the context's streams end with it, without a call that says so. `handle` is the
 * context, or the green context that it is of. */
static CUresult destroy(ga_cuda_hook_index row, void *handle, CUcontext context)
{
    of_handle_fn *next = (of_handle_fn *)(uintptr_t)ga_cuda_next_find(row);
    int device = ga_cuda_kernel_destroying(context);
    CUresult result = next ? next(handle) : ga_cuda_next_missing();
    if (result == CUDA_SUCCESS) { /* no other thread can have a context with this handle yet */
        ga_cuda_references_end(context);
    }
    ga_cuda_kernel_destroyed(device, context, result == CUDA_SUCCESS);
    if (result == CUDA_SUCCESS && context) {
        ga_cuda_captures_end(context);
    }
    ga_cuda_contexts_changed();
    return result;
}

#define DEFINE_DESTROY(symbol)                                                                     \
    GA_CUDA_ENTRY(of_context_fn, symbol);                                                          \
    CUresult symbol(CUcontext context)                                                             \
    {                                                                                              \
        ga_cuda_count(GA_HOOK_##symbol);                                                           \
        return destroy(GA_HOOK_##symbol, context, context);                                        \
    }

DEFINE_DESTROY(cuCtxDestroy)
DEFINE_DESTROY(cuCtxDestroy_v2)

GA_CUDA_ENTRY(of_handle_fn, cuGreenCtxDestroy);

/* Without served code, no record is of its context. */
CUresult cuGreenCtxDestroy(void *green)
{
    typedef CUresult convert_fn(CUcontext * context, void *green);
    CUcontext context = NULL;
    convert_fn *convert = NULL;
    ga_cuda_count(GA_HOOK_cuGreenCtxDestroy);
    if (green && ga_cuda_kernel_has_served()) {
        *(void **)&convert = ga_cuda_next_symbol("cuCtxFromGreenCtx");
    }
    if (convert && convert(&context, green) != CUDA_SUCCESS) {
        context = NULL;
    }
    return destroy(GA_HOOK_cuGreenCtxDestroy, green, context);
}

typedef CUresult attach_fn(CUcontext *context, unsigned flags);

GA_CUDA_ENTRY(attach_fn, cuCtxAttach);

/* The driver attaches to the current context. The reference counts before the call, so that a
 * thread that detaches meanwhile does not take its own for the last one. */
CUresult cuCtxAttach(CUcontext *context, unsigned flags)
{
    attach_fn *next = GA_CUDA_NEXT(attach_fn, cuCtxAttach);
    const ga_cuda_api *api = ga_cuda_next_api();
    CUcontext current = NULL;
    ga_cuda_count(GA_HOOK_cuCtxAttach);
    bool is_counted = api && api->cuCtxGetCurrent(&current) == CUDA_SUCCESS && current;
    ga_cuda_reference *made = is_counted ? ga_cuda_reference_create() : NULL;
    if (is_counted && !made) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (is_counted) {
        ga_cuda_reference_add(made, current);
    }
    CUresult result = next ? next(context, flags) : ga_cuda_next_missing();
    if (is_counted && result != CUDA_SUCCESS) {
        ga_libc.free(ga_cuda_reference_remove(current));
    }
    return result;
}

GA_CUDA_ENTRY(of_context_fn, cuCtxDetach);

CUresult cuCtxDetach(CUcontext context)
{
    of_context_fn *next = GA_CUDA_NEXT(of_context_fn, cuCtxDetach);
    ga_cuda_count(GA_HOOK_cuCtxDetach);
    ga_cuda_reference *dropped = ga_cuda_reference_remove(context);
    if (!dropped) {
        return destroy(GA_HOOK_cuCtxDetach, context, context);
    }
    CUresult result = next ? next(context) : ga_cuda_next_missing();
    if (result == CUDA_SUCCESS) {
        ga_libc.free(dropped);
    } else {
        ga_cuda_reference_add(dropped, context);
    }
    return result;
}

/* ---- peer access ---------------------------------------------------------------------------- */

GA_CUDA_ENTRY(peer_fn, cuCtxEnablePeerAccess);

CUresult cuCtxEnablePeerAccess(CUcontext owner, unsigned flags)
{
    peer_fn *next = GA_CUDA_NEXT(peer_fn, cuCtxEnablePeerAccess);
    ga_cuda_count(GA_HOOK_cuCtxEnablePeerAccess);
    CUresult result = next ? next(owner, flags) : ga_cuda_next_missing();
    if (result == CUDA_SUCCESS || result == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) {
        ga_cuda_served_enable_peer_of(
            owner); /* a heap that opened after the access was enabled learns of it here */
    }
    return result;
}
