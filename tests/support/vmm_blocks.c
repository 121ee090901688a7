/* SPDX-License-Identifier: MIT
 *
 * Blocks of device memory, of managed memory and of pinned host memory, and pointer attributes.
 */
#include "vmm_state.h"

#include <stdlib.h>
#include <string.h>

vmm_block *vmm_block_at(uintptr_t address)
{
    for (vmm_block *b = vmm.blocks; b; b = b->next) {
        if (address >= (uintptr_t)b->start && address - (uintptr_t)b->start < b->size) {
            return b;
        }
    }
    return NULL;
}

bool vmm_block_is_on_host(const vmm_block *block)
{
    return block->kind == VMM_BLOCK_HOST || block->kind == VMM_BLOCK_REGISTERED;
}

static CUresult add_block(char *start, size_t size, vmm_block_kind kind)
{
    vmm_block *block = malloc(sizeof *block);
    VMM_REQUIRE(start && block);
    *block = (vmm_block){start, size, kind, vmm_current_device(), ++vmm.last_id, false, vmm.blocks};
    vmm.blocks = block;
    return CUDA_SUCCESS;
}

static bool pin(size_t size)
{
    bool fits = size <= vmm.options.pinned - vmm.pinned;
    vmm.pinned += fits ? size : 0;
    return fits;
}

static CUresult add_new_block(CUdeviceptr *out, size_t size, vmm_block_kind kind)
{
    if (vmm_current_device() < 0) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (!size) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (kind == VMM_BLOCK_HOST ? !pin(size) : !vmm_use(vmm_current_device(), size)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    char *start = aligned_alloc(4096, (size + 4095) / 4096 * 4096);
    *out = (uintptr_t)start;
    return add_block(start, size, kind);
}

static void free_memory(vmm_block *block)
{
    if (block->kind != VMM_BLOCK_REGISTERED) {
        free(block->start);
    }
    if (block->kind == VMM_BLOCK_HOST) {
        vmm.pinned -= block->size;
    } else if (!vmm_block_is_on_host(block)) {
        vmm.devices[block->device].used -= block->size;
    }
    free(block);
}

/* `kinds`: a bit for each that the caller frees. */
static CUresult remove_block(uintptr_t start, unsigned kinds)
{
    vmm_block **link = &vmm.blocks;
    while (*link && (uintptr_t)(*link)->start != start) {
        link = &(*link)->next;
    }
    vmm_block *block = *link;
    if (!block || !(kinds >> block->kind & 1)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *link = block->next;
    free_memory(block);
    return CUDA_SUCCESS;
}

static CUresult mem_alloc(CUdeviceptr *block, size_t size)
{
    VMM_CALL(cuMemAlloc)
    return add_new_block(block, size, VMM_BLOCK_DEVICE);
}

static CUresult mem_alloc_managed(CUdeviceptr *block, size_t size, unsigned flags)
{
    VMM_CALL(cuMemAllocManaged)
    return flags == CU_MEM_ATTACH_GLOBAL ? add_new_block(block, size, VMM_BLOCK_MANAGED)
                                         : CUDA_ERROR_INVALID_VALUE;
}

static CUresult mem_free(CUdeviceptr block)
{
    VMM_CALL(cuMemFree)
    int device = vmm_current_device();
    if (device < 0) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    vmm_finish(device);
    return block ? remove_block(block, 1u << VMM_BLOCK_DEVICE | 1u << VMM_BLOCK_MANAGED)
                 : CUDA_SUCCESS;
}

static CUresult host_alloc(void **block, size_t size, unsigned flags)
{
    VMM_CALL(cuMemHostAlloc)
    CUdeviceptr start = 0;
    if (!block || flags & ~7u) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = add_new_block(&start, size, VMM_BLOCK_HOST);
    *block = result == CUDA_SUCCESS ? (void *)start : *block;
    return result;
}

static CUresult host_free(void *block)
{
    VMM_CALL(cuMemFreeHost)
    int device = vmm_current_device();
    if (device < 0) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    vmm_finish(device);
    return remove_block((uintptr_t)block, 1u << VMM_BLOCK_HOST);
}

/* The memory stays the caller's, and outlives contexts. */
static CUresult host_register(void *start, size_t size, unsigned flags)
{
    VMM_CALL(cuMemHostRegister)
    if (vmm_current_device() < 0) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    return start && size && !(flags & ~7u) ? add_block(start, size, VMM_BLOCK_REGISTERED)
                                           : CUDA_ERROR_INVALID_VALUE;
}

static CUresult host_unregister(void *start)
{
    VMM_CALL(cuMemHostUnregister)
    return vmm_current_device() < 0 ? CUDA_ERROR_INVALID_CONTEXT
                                    : remove_block((uintptr_t)start, 1u << VMM_BLOCK_REGISTERED);
}

static CUresult host_pointer(CUdeviceptr *pointer, void *block, unsigned flags)
{
    VMM_CALL(cuMemHostGetDevicePointer)
    const vmm_block *found = vmm_block_at((uintptr_t)block);
    *pointer = (uintptr_t)block;
    return !flags && found && vmm_block_is_on_host(found) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult address_range(CUdeviceptr *base, size_t *size, CUdeviceptr pointer)
{
    VMM_CALL(cuMemGetAddressRange)
    const vmm_block *block = vmm_block_at(pointer);
    const vmm_mapping *mapping = vmm_mapping_at(pointer);
    if (!block && !mapping) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *base = block ? (uintptr_t)block->start : mapping->start;
    *size = block ? block->size : mapping->size;
    return CUDA_SUCCESS;
}

/* 0 for pointers of others, as in the real driver. */
static void describe(CUpointer_attribute attribute, void *value, CUdeviceptr pointer)
{
    const vmm_block *block = vmm_block_at(pointer);
    const vmm_mapping *mapping = vmm_mapping_at(pointer);
    int on = block ? block->device : mapping ? mapping->chunk->device : 0;
    bool (*others)(const void *at) = vmm.options.others;
    bool on_device = block     ? !vmm_block_is_on_host(block)
                     : mapping ? true
                               : others && others((const void *)(uintptr_t)pointer);
    int answer = 0;
    if (attribute == CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE) {
        *(CUmemoryPool *)value = NULL;
        return;
    }
    if (attribute == CU_POINTER_ATTRIBUTE_BUFFER_ID ||
        attribute == CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID) {
        *(uint64_t *)value = block ? block->id : mapping ? mapping->chunk->id : 0;
        return;
    }
    if (attribute == CU_POINTER_ATTRIBUTE_MEMORY_TYPE) {
        answer = on_device ? CU_MEMORYTYPE_DEVICE : block ? CU_MEMORYTYPE_HOST : 0;
    } else if (attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) {
        answer = on;
    } else if (attribute == CU_POINTER_ATTRIBUTE_IS_MANAGED) {
        answer = block && block->kind == VMM_BLOCK_MANAGED;
    } else if (attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) {
        answer = block && block->synchronous;
    } else if (attribute == CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE) {
        answer = block && block->kind == VMM_BLOCK_DEVICE;
    } else if (attribute == CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES) {
        answer = mapping ? mapping->chunk->types : 0;
    } else if (attribute == CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE) {
        answer = block ? on_device && vmm.options.rdma : mapping && mapping->chunk->rdma;
    }
    *(int *)value = answer;
}

static CUresult pointer_attributes(unsigned count, CUpointer_attribute *attributes, void **values,
                                   CUdeviceptr pointer)
{
    VMM_CALL(cuPointerGetAttributes)
    for (unsigned i = 0; i < count; i++) {
        describe(attributes[i], values[i], pointer);
    }
    return CUDA_SUCCESS;
}

CUresult vmm_driver_set_attribute(CUdeviceptr pointer, CUpointer_attribute attribute,
                                  unsigned value)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    vmm_lock();
    vmm_block *block = vmm_block_at(pointer);
    if (block && !vmm_block_is_on_host(block) && attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) {
        block->synchronous = value != 0;
        result = CUDA_SUCCESS;
    } else if (!block && vmm_mapping_at(pointer)) {
        result = CUDA_ERROR_NOT_SUPPORTED;
    }
    vmm_unlock(NULL);
    return result;
}

void vmm_blocks_unpin(int device)
{
    vmm_block **link = &vmm.blocks;
    while (*link) {
        vmm_block *block = *link;
        if (block->kind == VMM_BLOCK_HOST && block->device == device) {
            *link = block->next;
            free_memory(block);
        } else {
            link = &block->next;
        }
    }
}

/* ---- begin and end ----------------------------------------------------------------------- */

void vmm_blocks_fill(ga_cuda_driver *table)
{
    table->cuMemAlloc = mem_alloc;
    table->cuMemFree = mem_free;
    table->cuMemAllocManaged = mem_alloc_managed;
    table->cuMemHostAlloc = host_alloc;
    table->cuMemFreeHost = host_free;
    table->cuMemHostRegister = host_register;
    table->cuMemHostUnregister = host_unregister;
    table->cuMemHostGetDevicePointer = host_pointer;
    table->cuMemGetAddressRange = address_range;
    table->cuPointerGetAttributes = pointer_attributes;
}

void vmm_blocks_clear(void)
{
    while (vmm.blocks) {
        vmm_block *block = vmm.blocks;
        vmm.blocks = block->next;
        free_memory(block);
    }
}
