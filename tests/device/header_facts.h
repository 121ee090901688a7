/* SPDX-License-Identifier: MIT
 *
 * What platform/cuda_types.h says of the driver's interface, as numbers.
 */
#ifndef TESTS_DEVICE_HEADER_FACTS_H
#define TESTS_DEVICE_HEADER_FACTS_H

#include <stddef.h>

#define HEADER_FACTS(X)                                                                            \
    X(CUDA_SUCCESS)                                                                                \
    X(CUDA_ERROR_INVALID_VALUE)                                                                    \
    X(CUDA_ERROR_OUT_OF_MEMORY)                                                                    \
    X(CUDA_ERROR_DEINITIALIZED)                                                                    \
    X(CUDA_ERROR_NO_DEVICE)                                                                        \
    X(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)                                                \
    X(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)                                                \
    X(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)                                     \
    X(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)                                                  \
    X(CU_MEMORYTYPE_DEVICE)                                                                        \
    X(CU_POINTER_ATTRIBUTE_MEMORY_TYPE)                                                            \
    X(CU_POINTER_ATTRIBUTE_IS_MANAGED)                                                             \
    X(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)                                                         \
    X(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE)                                                         \
    X(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)                                                           \
    X(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)                                                        \
    X(CU_MEMPOOL_ATTR_USED_MEM_CURRENT)                                                            \
    X(CU_STREAM_NON_BLOCKING)                                                                      \
    X(CU_LIMIT_MALLOC_HEAP_SIZE)                                                                   \
    X(CU_MEM_ALLOCATION_TYPE_PINNED)                                                               \
    X(CU_MEM_LOCATION_TYPE_DEVICE)                                                                 \
    X(CU_MEM_ALLOC_GRANULARITY_MINIMUM)                                                            \
    X(CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)                                                        \
    X(sizeof(CUresult))                                                                            \
    X(sizeof(CUdevice))                                                                            \
    X(sizeof(CUdeviceptr))                                                                         \
    X(sizeof(CUdevice_attribute))                                                                  \
    X(sizeof(CUpointer_attribute))                                                                 \
    X(sizeof(CUmemPool_attribute))                                                                 \
    X(sizeof(CUmemAllocationGranularity_flags))                                                    \
    X(sizeof(CUlimit))                                                                             \
    X(sizeof(CUmemPoolProps))                                                                      \
    X(offsetof(CUmemPoolProps, handleTypes))                                                       \
    X(offsetof(CUmemPoolProps, location.type))                                                     \
    X(offsetof(CUmemPoolProps, location.id))                                                       \
    X(offsetof(CUmemPoolProps, win32SecurityAttributes))                                           \
    X(offsetof(CUmemPoolProps, maxSize))                                                           \
    X(offsetof(CUmemPoolProps, usage))                                                             \
    X(sizeof(CUmemAllocationProp))                                                                 \
    X(offsetof(CUmemAllocationProp, requestedHandleTypes))                                         \
    X(offsetof(CUmemAllocationProp, location.id))                                                  \
    X(offsetof(CUmemAllocationProp, win32HandleMetaData))                                          \
    X(offsetof(CUmemAllocationProp, allocFlags.usage))

/* What a program compiled without <cuda.h> takes them to be. */
extern const long header_facts_ours[];

#endif
