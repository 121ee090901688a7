/* SPDX-License-Identifier: MIT
 *
 * The CUDA driver as a table of functions. The first use loads and initialises libcuda.so.1, or the
 * library that GPUALLOC_CUDA_DRIVER names, once in a process. On a machine without a driver calls
 * fail with GA_ERR_DEVICE. So they do in a child of fork(), because a driver that the parent
 * initialised cannot be used there.
 *
 * Work on a device happens between ga_cuda_enter() and ga_cuda_leave(). The device's primary
 * context, which the CUDA runtime uses too, is current there; ga_cuda_leave() restores the previous
 * one.
 *
 * Thread safe except ga_cuda_driver_set().
 */
#ifndef GPUALLOC_PLATFORM_CUDA_DRIVER_H
#define GPUALLOC_PLATFORM_CUDA_DRIVER_H

#include "cuda_types.h"

#include <gpualloc/gpualloc.h>

/* Every driver function that we call: name, symbol, parameters. To call another one, add a line.
 * The symbol is that of the version which has these parameters: <cuda.h> maps the plain name to it
 * (cuMemAlloc to cuMemAlloc_v2), dlsym() does not. A driver before CUDA 12.5 does not have
 * cuCtxRecordEvent, one before 11.7 not cuStreamWriteValue32_v2 and cuStreamWaitValue32_v2, and one
 * before 11.4 not cuDeviceGetUuid_v2; the members are then NULL. */
/* clang-format off */
#define GA_CUDA_FUNCTIONS(X)                                                                       \
    X(cuInit, "cuInit", (unsigned flags))                                                          \
    X(cuDriverGetVersion, "cuDriverGetVersion", (int *version))                                    \
    X(cuGetErrorName, "cuGetErrorName", (CUresult error, const char **name))                       \
    X(cuGetErrorString, "cuGetErrorString", (CUresult error, const char **text))                   \
    X(cuDeviceGetCount, "cuDeviceGetCount", (int *count))                                          \
    X(cuDeviceGet, "cuDeviceGet", (CUdevice *device, int ordinal))                                 \
    X(cuDeviceGetName, "cuDeviceGetName", (char *name, int size, CUdevice device))                 \
    X(cuDeviceGetUuid, "cuDeviceGetUuid_v2", (CUuuid * uuid, CUdevice device))                     \
    X(cuDeviceTotalMem, "cuDeviceTotalMem_v2", (size_t *bytes, CUdevice device))                   \
    X(cuDeviceGetAttribute, "cuDeviceGetAttribute",                                                \
      (int *value, CUdevice_attribute attribute, CUdevice device))                                 \
    X(cuDeviceCanAccessPeer, "cuDeviceCanAccessPeer", (int *can, CUdevice device, CUdevice peer))  \
    X(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain",                                        \
      (CUcontext *context, CUdevice device))                                                       \
    X(cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", (CUdevice device))                \
    X(cuCtxPushCurrent, "cuCtxPushCurrent_v2", (CUcontext context))                                \
    X(cuCtxPopCurrent, "cuCtxPopCurrent_v2", (CUcontext *context))                                 \
    X(cuCtxGetCurrent, "cuCtxGetCurrent", (CUcontext *context))                                    \
    X(cuCtxSynchronize, "cuCtxSynchronize", (void))                                                \
    X(cuCtxRecordEvent, "cuCtxRecordEvent", (CUcontext context, CUevent event))                    \
    X(cuCtxSetLimit, "cuCtxSetLimit", (CUlimit limit, size_t value))                               \
    X(cuCtxGetStreamPriorityRange, "cuCtxGetStreamPriorityRange", (int *least, int *greatest))     \
    X(cuStreamCreate, "cuStreamCreate", (CUstream *stream, unsigned flags))                        \
    X(cuStreamCreateWithPriority, "cuStreamCreateWithPriority",                                    \
      (CUstream *stream, unsigned flags, int priority))                                            \
    X(cuStreamGetPriority, "cuStreamGetPriority", (CUstream stream, int *priority))                \
    X(cuStreamDestroy, "cuStreamDestroy_v2", (CUstream stream))                                    \
    X(cuStreamSynchronize, "cuStreamSynchronize", (CUstream stream))                               \
    X(cuStreamQuery, "cuStreamQuery", (CUstream stream))                                           \
    X(cuStreamWaitEvent, "cuStreamWaitEvent", (CUstream stream, CUevent event, unsigned flags))    \
    X(cuStreamWriteValue32, "cuStreamWriteValue32_v2",                                             \
      (CUstream stream, CUdeviceptr at, uint32_t value, unsigned flags))                           \
    X(cuStreamWaitValue32, "cuStreamWaitValue32_v2",                                               \
      (CUstream stream, CUdeviceptr at, uint32_t value, unsigned flags))                           \
    X(cuEventCreate, "cuEventCreate", (CUevent *event, unsigned flags))                            \
    X(cuEventDestroy, "cuEventDestroy_v2", (CUevent event))                                        \
    X(cuEventRecord, "cuEventRecord", (CUevent event, CUstream stream))                            \
    X(cuEventQuery, "cuEventQuery", (CUevent event))                                               \
    X(cuEventSynchronize, "cuEventSynchronize", (CUevent event))                                   \
    X(cuMemGetInfo, "cuMemGetInfo_v2", (size_t *available, size_t *total))                         \
    X(cuMemAlloc, "cuMemAlloc_v2", (CUdeviceptr *block, size_t size))                              \
    X(cuMemFree, "cuMemFree_v2", (CUdeviceptr block))                                              \
    X(cuMemAllocManaged, "cuMemAllocManaged", (CUdeviceptr *block, size_t size, unsigned flags))   \
    X(cuMemHostAlloc, "cuMemHostAlloc", (void **block, size_t size, unsigned flags))               \
    X(cuMemFreeHost, "cuMemFreeHost", (void *block))                                               \
    X(cuMemGetAddressRange, "cuMemGetAddressRange_v2",                                             \
      (CUdeviceptr *base, size_t *size, CUdeviceptr pointer))                                      \
    X(cuMemHostRegister, "cuMemHostRegister_v2", (void *start, size_t size, unsigned flags))       \
    X(cuMemHostUnregister, "cuMemHostUnregister", (void *start))                                   \
    X(cuMemHostGetDevicePointer, "cuMemHostGetDevicePointer_v2",                                   \
      (CUdeviceptr *pointer, void *block, unsigned flags))                                         \
    X(cuMemGetAllocationGranularity, "cuMemGetAllocationGranularity",                              \
      (size_t *granularity, const CUmemAllocationProp *prop,                                       \
       CUmemAllocationGranularity_flags which))                                                    \
    X(cuMemAddressReserve, "cuMemAddressReserve",                                                  \
      (CUdeviceptr *base, size_t size, size_t align, CUdeviceptr wanted,                           \
       unsigned long long flags))                                                                  \
    X(cuMemAddressFree, "cuMemAddressFree", (CUdeviceptr base, size_t size))                       \
    X(cuMemCreate, "cuMemCreate",                                                                  \
      (CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,         \
       unsigned long long flags))                                                                  \
    X(cuMemRelease, "cuMemRelease", (CUmemGenericAllocationHandle handle))                         \
    X(cuMemMap, "cuMemMap",                                                                        \
      (CUdeviceptr start, size_t size, size_t offset, CUmemGenericAllocationHandle handle,         \
       unsigned long long flags))                                                                  \
    X(cuMemUnmap, "cuMemUnmap", (CUdeviceptr start, size_t size))                                  \
    X(cuMemSetAccess, "cuMemSetAccess",                                                            \
      (CUdeviceptr start, size_t size, const CUmemAccessDesc *access, size_t count))               \
    X(cuMemExportToShareableHandle, "cuMemExportToShareableHandle",                                \
      (void *shared, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,          \
       unsigned long long flags))                                                                  \
    X(cuMemImportFromShareableHandle, "cuMemImportFromShareableHandle",                            \
      (CUmemGenericAllocationHandle *handle, void *shared, CUmemAllocationHandleType type))        \
    X(cuPointerGetAttributes, "cuPointerGetAttributes",                                            \
      (unsigned count, CUpointer_attribute *attributes, void **values, CUdeviceptr pointer))       \
    X(cuMemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2",                                                   \
      (CUdeviceptr to, const void *from, size_t size, CUstream stream))                            \
    X(cuMemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2",                                                   \
      (void *to, CUdeviceptr from, size_t size, CUstream stream))                                  \
    X(cuMemcpyDtoDAsync, "cuMemcpyDtoDAsync_v2",                                                   \
      (CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream))                            \
    X(cuMemsetD8Async, "cuMemsetD8Async",                                                          \
      (CUdeviceptr to, unsigned char value, size_t size, CUstream stream))                         \
    X(cuMemsetD32Async, "cuMemsetD32Async",                                                        \
      (CUdeviceptr to, unsigned value, size_t count, CUstream stream))                             \
    X(cuMemPoolCreate, "cuMemPoolCreate", (CUmemoryPool *pool, const CUmemPoolProps *props))       \
    X(cuMemPoolSetAttribute, "cuMemPoolSetAttribute",                                              \
      (CUmemoryPool pool, CUmemPool_attribute attribute, void *value))                             \
    X(cuMemPoolGetAttribute, "cuMemPoolGetAttribute",                                              \
      (CUmemoryPool pool, CUmemPool_attribute attribute, void *value))                             \
    X(cuMemPoolTrimTo, "cuMemPoolTrimTo", (CUmemoryPool pool, size_t keep))                        \
    X(cuMemPoolSetAccess, "cuMemPoolSetAccess",                                                    \
      (CUmemoryPool pool, const CUmemAccessDesc *access, size_t count))                            \
    X(cuMemAllocFromPoolAsync, "cuMemAllocFromPoolAsync",                                          \
      (CUdeviceptr *block, size_t size, CUmemoryPool pool, CUstream stream))                       \
    X(cuMemFreeAsync, "cuMemFreeAsync", (CUdeviceptr block, CUstream stream))                      \
    X(cuModuleLoadData, "cuModuleLoadData", (CUmodule *module, const void *image))                 \
    X(cuModuleGetFunction, "cuModuleGetFunction",                                                  \
      (CUfunction *function, CUmodule module, const char *name))                                   \
    X(cuFuncSetAttribute, "cuFuncSetAttribute",                                                    \
      (CUfunction function, CUfunction_attribute attribute, int value))                            \
    X(cuLaunchKernel, "cuLaunchKernel",                                                            \
      (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,   \
       unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream,                 \
       void **parameters, void **extra))                                                           \
    X(cuLaunchCooperativeKernel, "cuLaunchCooperativeKernel",                                      \
      (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,   \
       unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream,                 \
       void **parameters))                                                                         \
    X(cuOccupancyMaxActiveBlocksPerMultiprocessor, "cuOccupancyMaxActiveBlocksPerMultiprocessor",  \
      (int *blocks, CUfunction function, int threads, size_t shared_bytes))
/* clang-format on */

#define GA_CUDA_MEMBER(name, symbol, parameters) CUresult(*name) parameters;

typedef struct ga_cuda_driver {
    GA_CUDA_FUNCTIONS(GA_CUDA_MEMBER)
} ga_cuda_driver;

enum {
    GA_CUDA_DEVICES = 64 /* most devices that we keep a context for */
};

/* The driver's table, loaded and initialised at the first call; *out is NULL on failure. That call
 * takes the lock of the dynamic linker: make it before a lock that constructors of libraries may
 * wait for.
 *
 * GA_ERR_MEMORY  there is none for the table
 * GA_ERR_DEVICE  there is no driver, it does not start (no GPU, for example), or this process is a
 *                child of the one that started it */
ga_status ga_cuda_driver_get(const ga_cuda_driver **out);

/* Replace the real driver by `driver`, so that the real one is not loaded; NULL restores it. For
 * tests, while no other thread uses this file. The contexts in the slots are dropped, not
 * released. */
void ga_cuda_driver_set(const ga_cuda_driver *driver);

/* GA_OK for CUDA_SUCCESS. Otherwise sets the thread's error sentence to "CALL: ERROR_NAME (its
 * text)" and returns GA_ERR_MEMORY for CUDA_ERROR_OUT_OF_MEMORY, GA_ERR_DEVICE for all others. */
ga_status ga_cuda_check(const ga_cuda_driver *driver, CUresult result, const char *call);

/* GA_CUDA_CALL(driver, cuMemAlloc, &block, size): call and check. */
#define GA_CUDA_CALL(driver, name, ...) ga_cuda_check((driver), (driver)->name(__VA_ARGS__), #name)

/* Whether the driver has reported that it shuts down with the process. Its memory is gone then, so
 * frees count as successful. */
bool ga_cuda_is_gone(void);

ga_status ga_cuda_device_count(int *out);

/* A function of the driver that is not in the table, because drivers may not have it. NULL if this
 * driver does not have it, before ga_cuda_driver_get() has succeeded, and with a driver from
 * ga_cuda_driver_set(). */
void *ga_cuda_driver_symbol(const char *symbol);

typedef struct ga_cuda_scope {
    const ga_cuda_driver *driver;
    CUstream stream; /* the library's own stream on the device, for short work; does not wait for
                      * other streams */
    int mode;        /* the thread's previous capture mode: see cuda_captures.h */
} ga_cuda_scope;

/* Make the primary context of `device` current. Call ga_cuda_leave() only after GA_OK. */
ga_status ga_cuda_enter(ga_cuda_scope *scope, int device);
void ga_cuda_leave(const ga_cuda_scope *scope);

/* Whether the context that ga_cuda_enter() used on the device still exists. False: its memory is
 * gone with it, or belongs to another process. */
bool ga_cuda_has_context(int device);

/* Release the device's primary context before the program destroys it; the next ga_cuda_enter()
 * retains the new one. No thread may be between ga_cuda_enter() and ga_cuda_leave() for that
 * device. */
void ga_cuda_forget(int device);

/* The driver's attributes of a pointer; all 0 for an unknown pointer. */
typedef struct ga_cuda_pointer {
    int memory_type; /* CU_MEMORYTYPE_* */
    int device;
    int managed;       /* 1: memory that moves between host and device */
    CUmemoryPool pool; /* the pool that the block came from, or NULL */
} ga_cuda_pointer;

ga_status ga_cuda_describe(const ga_cuda_scope *scope, const void *pointer, ga_cuda_pointer *out);

/* The size of a block of the driver in bytes; 0 if `block` is not the start of one. */
size_t ga_cuda_block_size(const ga_cuda_scope *scope, const void *block);

/* Fill `size` bytes with zeros and wait until that is done. */
ga_status ga_cuda_clear(const ga_cuda_scope *scope, void *block, size_t size);

/* Wait for all work on the device, copy `size` bytes within it, and wait for the copy. */
ga_status ga_cuda_copy(const ga_cuda_scope *scope, void *to, const void *from, size_t size);

#endif
