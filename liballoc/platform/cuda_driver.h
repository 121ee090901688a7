/* SPDX-License-Identifier: MIT
 *
 * The CUDA driver as a table of functions. libcuda.so.1, or the library that GPUALLOC_CUDA_DRIVER
 * names, is loaded and initialised on first need, once in a process; nothing happens before. A
 * machine without a driver gets an error sentence, and so does a child of fork(), where a driver
 * that its parent initialised cannot be used.
 *
 * Work on a device happens between ga_cuda_enter() and ga_cuda_leave(), with the device's primary
 * context current, the one that the CUDA runtime uses; what was current before comes back.
 *
 * Thread safe but for ga_cuda_driver_set().
 */
#ifndef GPUALLOC_PLATFORM_CUDA_DRIVER_H
#define GPUALLOC_PLATFORM_CUDA_DRIVER_H

#include "cuda_types.h"

#include <gpualloc/gpualloc.h>

/* Every driver function we call: name, symbol, parameters. To call one more, add its line. The
 * symbol is the one of the version that the parameters belong to: <cuda.h> maps the plain name to
 * it (cuMemAlloc to cuMemAlloc_v2), dlsym() does not. A driver before CUDA 12.5 lacks
 * cuCtxRecordEvent: the table has NULL there, then. */
/* clang-format off */
#define GA_CUDA_FUNCTIONS(X)                                                                       \
    X(cuInit, "cuInit", (unsigned flags))                                                          \
    X(cuDriverGetVersion, "cuDriverGetVersion", (int *version))                                    \
    X(cuGetErrorName, "cuGetErrorName", (CUresult error, const char **name))                       \
    X(cuGetErrorString, "cuGetErrorString", (CUresult error, const char **text))                   \
    X(cuDeviceGetCount, "cuDeviceGetCount", (int *count))                                          \
    X(cuDeviceGet, "cuDeviceGet", (CUdevice *device, int ordinal))                                 \
    X(cuDeviceGetName, "cuDeviceGetName", (char *name, int size, CUdevice device))                 \
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
    X(cuEventCreate, "cuEventCreate", (CUevent *event, unsigned flags))                            \
    X(cuEventDestroy, "cuEventDestroy_v2", (CUevent event))                                        \
    X(cuEventRecord, "cuEventRecord", (CUevent event, CUstream stream))                            \
    X(cuEventQuery, "cuEventQuery", (CUevent event))                                               \
    X(cuEventSynchronize, "cuEventSynchronize", (CUevent event))                                   \
    X(cuMemGetInfo, "cuMemGetInfo_v2", (size_t *available, size_t *total))                         \
    X(cuMemAlloc, "cuMemAlloc_v2", (CUdeviceptr *block, size_t size))                              \
    X(cuMemFree, "cuMemFree_v2", (CUdeviceptr block))                                              \
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
    X(cuLaunchKernel, "cuLaunchKernel",                                                            \
      (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,   \
       unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream,                 \
       void **parameters, void **extra))
/* clang-format on */

#define GA_CUDA_MEMBER(name, symbol, parameters) CUresult(*name) parameters;

typedef struct ga_cuda_driver {
    GA_CUDA_FUNCTIONS(GA_CUDA_MEMBER)
} ga_cuda_driver;

enum {
    GA_CUDA_DEVICES = 64 /* the most devices that we keep a context for */
};

/* The driver, loaded and initialised; *out is NULL on failure.
 *
 * GA_ERR_DEVICE  there is none, it refuses to start (no GPU, say), or this process is a child of
 *                the one that started it
 */
ga_status ga_cuda_driver_get(const ga_cuda_driver **out);

/* Put `driver` in the real one's place, which then is neither loaded nor asked; NULL undoes it.
 * For tests, while no other thread is in here. The contexts we kept are forgotten. */
void ga_cuda_driver_set(const ga_cuda_driver *driver);

/* GA_OK for CUDA_SUCCESS. Else the thread's error sentence becomes "CALL: ERROR_NAME (its text)",
 * with GA_ERR_MEMORY for CUDA_ERROR_OUT_OF_MEMORY and GA_ERR_DEVICE for all others. */
ga_status ga_cuda_check(const ga_cuda_driver *driver, CUresult result, const char *call);

/* GA_CUDA_CALL(driver, cuMemAlloc, &block, size): call and check. */
#define GA_CUDA_CALL(driver, name, ...) ga_cuda_check((driver), (driver)->name(__VA_ARGS__), #name)

/* Whether the driver has said that it is shutting down with the process: its memory is gone, and
 * giving any back has succeeded. */
bool ga_cuda_is_gone(void);

ga_status ga_cuda_device_count(int *out);

/* A function of the driver that the table does not have, since drivers may lack it; NULL where this
 * one does, before ga_cuda_driver_get() has succeeded, and for what ga_cuda_driver_set() has put in
 * the driver's place. */
void *ga_cuda_driver_symbol(const char *symbol);

typedef struct ga_cuda_scope {
    const ga_cuda_driver *driver;
    CUstream stream; /* the device's, for short work of ours; waits for no other stream */
    int mode;        /* the thread's capture mode before: see cuda_captures.h */
} ga_cuda_scope;

/* Make the primary context of `device` current. Leave again only after GA_OK. */
ga_status ga_cuda_enter(ga_cuda_scope *scope, int device);
void ga_cuda_leave(const ga_cuda_scope *scope);

/* Whether the device still has the context that ga_cuda_enter() made current before. False: its
 * memory is gone with it, or it is another process's. */
bool ga_cuda_has_context(int device);

/* Let go of the device's primary context, before somebody destroys it; the next ga_cuda_enter() takes
 * hold of the new one. No thread is between ga_cuda_enter() and ga_cuda_leave() for that device. */
void ga_cuda_forget(int device);

/* What the driver knows of a pointer; all 0 for one that it does not know. */
typedef struct ga_cuda_pointer {
    int memory_type; /* CU_MEMORYTYPE_DEVICE, ... */
    int device;
    int managed;       /* 1: memory that moves between host and device */
    CUmemoryPool pool; /* it came from, or NULL */
} ga_cuda_pointer;

ga_status ga_cuda_describe(const ga_cuda_scope *scope, const void *pointer, ga_cuda_pointer *out);

/* The bytes that the driver knows a block to have; 0 for a pointer that begins none. */
size_t ga_cuda_block_size(const ga_cuda_scope *scope, const void *block);

/* Fill with zeros, and return when that is done. */
ga_status ga_cuda_clear(const ga_cuda_scope *scope, void *block, size_t size);

/* Copy within the device once all work on it is done, and return when that is done. */
ga_status ga_cuda_copy(const ga_cuda_scope *scope, void *to, const void *from, size_t size);

#endif
