/* SPDX-License-Identifier: MIT
 *
 * The facts of platform/cuda_types.h on the driver's interface, as numbers.
 */
#ifndef TESTS_DEVICE_HEADER_FACTS_H
#define TESTS_DEVICE_HEADER_FACTS_H

#include <stddef.h>

#define HEADER_FACTS(X)                                                                            \
    X(CUDA_SUCCESS)                                                                                \
    X(CUDA_ERROR_INVALID_VALUE)                                                                    \
    X(CUDA_ERROR_OUT_OF_MEMORY)                                                                    \
    X(CUDA_ERROR_NOT_INITIALIZED)                                                                  \
    X(CUDA_ERROR_DEINITIALIZED)                                                                    \
    X(CUDA_ERROR_NO_DEVICE)                                                                        \
    X(CUDA_ERROR_INVALID_DEVICE)                                                                   \
    X(CUDA_ERROR_INVALID_CONTEXT)                                                                  \
    X(CUDA_ERROR_INVALID_HANDLE)                                                                   \
    X(CUDA_ERROR_NOT_READY)                                                                        \
    X(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)                                                      \
    X(CUDA_ERROR_CONTEXT_IS_DESTROYED)                                                             \
    X(CUDA_ERROR_NOT_PERMITTED)                                                                    \
    X(CUDA_ERROR_NOT_SUPPORTED)                                                                    \
    X(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)                                                       \
    X(CUDA_ERROR_UNKNOWN)                                                                          \
    X(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT)                                                       \
    X(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING)                                                      \
    X(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)                                                \
    X(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)                                                \
    X(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY)                                                          \
    X(CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS)                                               \
    X(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)                                     \
    X(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)                             \
    X(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED)                                 \
    X(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)                                                  \
    X(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED)                                            \
    X(CU_MEMORYTYPE_HOST)                                                                          \
    X(CU_MEMORYTYPE_DEVICE)                                                                        \
    X(CU_POINTER_ATTRIBUTE_CONTEXT)                                                                \
    X(CU_POINTER_ATTRIBUTE_MEMORY_TYPE)                                                            \
    X(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)                                                            \
    X(CU_POINTER_ATTRIBUTE_BUFFER_ID)                                                              \
    X(CU_POINTER_ATTRIBUTE_IS_MANAGED)                                                             \
    X(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)                                                         \
    X(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR)                                                       \
    X(CU_POINTER_ATTRIBUTE_RANGE_SIZE)                                                             \
    X(CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE)                                             \
    X(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE)                                                         \
    X(CU_STREAM_CAPTURE_STATUS_NONE)                                                               \
    X(CU_GET_PROC_ADDRESS_LEGACY_STREAM)                                                           \
    X(CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)                                               \
    X(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)                                                           \
    X(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)                                                        \
    X(CU_MEMPOOL_ATTR_USED_MEM_CURRENT)                                                            \
    X(CU_STREAM_NON_BLOCKING)                                                                      \
    X(CU_STREAM_WAIT_VALUE_GEQ)                                                                    \
    X(CU_EVENT_DISABLE_TIMING)                                                                     \
    X(CU_MEM_ATTACH_GLOBAL)                                                                        \
    X(CU_MEMHOSTALLOC_PORTABLE)                                                                    \
    X(CU_MEMHOSTALLOC_DEVICEMAP)                                                                   \
    X(CU_MEMHOSTREGISTER_PORTABLE)                                                                 \
    X(CU_MEMHOSTREGISTER_DEVICEMAP)                                                                \
    X(CU_LIMIT_MALLOC_HEAP_SIZE)                                                                   \
    X(CU_MEM_ALLOCATION_TYPE_PINNED)                                                               \
    X(CU_MEM_LOCATION_TYPE_DEVICE)                                                                 \
    X(CU_MEM_ALLOC_GRANULARITY_MINIMUM)                                                            \
    X(CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)                                                        \
    X(CU_MEM_ACCESS_FLAGS_PROT_NONE)                                                               \
    X(CU_MEM_ACCESS_FLAGS_PROT_READ)                                                               \
    X(CU_MEM_ACCESS_FLAGS_PROT_READWRITE)                                                          \
    X(CU_MEM_HANDLE_TYPE_NONE)                                                                     \
    X(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)                                                    \
    X(CU_MEM_HANDLE_TYPE_FABRIC)                                                                   \
    X(sizeof(CUresult))                                                                            \
    X(sizeof(CUdevice))                                                                            \
    X(sizeof(CUdeviceptr))                                                                         \
    X(sizeof(CUdevice_attribute))                                                                  \
    X(sizeof(CUpointer_attribute))                                                                 \
    X(sizeof(CUmemPool_attribute))                                                                 \
    X(sizeof(CUmemAllocationGranularity_flags))                                                    \
    X(sizeof(CUmemAllocationHandleType))                                                           \
    X(sizeof(CUmemGenericAllocationHandle))                                                        \
    X(sizeof(CUevent))                                                                             \
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
    X(offsetof(CUmemAllocationProp, allocFlags.gpuDirectRDMACapable))                              \
    X(offsetof(CUmemAllocationProp, allocFlags.usage))                                             \
    X(sizeof(CUmemAccessDesc))                                                                     \
    X(offsetof(CUmemAccessDesc, location.id))                                                      \
    X(offsetof(CUmemAccessDesc, flags))                                                            \
    X(sizeof(CUmemFabricHandle))

/* The values in a program compiled without <cuda.h>. */
extern const long header_facts_ours[];

#endif
