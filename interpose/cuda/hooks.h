/* SPDX-License-Identifier: MIT
 *
 * The hook table: each driver function that the preload replaces, and each CUDA runtime call with
 * the driver function that it reaches. The exports, look-ups, counters, `gpualloc list --hooks` and
 * tests are all generated from this table.
 */
#ifndef GPUALLOC_INTERPOSE_CUDA_HOOKS_H
#define GPUALLOC_INTERPOSE_CUDA_HOOKS_H

/* X(kind, name, since, symbol, streams, description)
 *
 *   kind     FINDS    looks up driver functions: returns a hook for each function of the table
 *            SERVES   allocates or frees: served by the heap that GPUALLOC_DEVICE names
 *            ANSWERS  a query: answered here for a heap's blocks, else by the driver
 *            WATCHES  passed to the driver, and recorded
 *            RETRIES  passed to the driver; if it is out of memory, retried after freeing caches
 *            LIMITS   as RETRIES, and counted against limit=
 *            PATCHES  device code: passed to the driver; with stubs if it calls malloc or free and
 *                     GPUALLOC_KERNEL is set
 *            PASSES   passed to the driver
 *   name     the name that cuGetProcAddress() takes
 *   since    the CUDA version from which on that name means this symbol
 *   symbol   the exported symbol
 *   streams  ANY, or the meaning of the NULL stream: LEGACY, THREAD (one per thread)
 *
 * Functions that are passed take at most six arguments, integers and pointers. Launches are not
 * counted. */
/* clang-format off */
#define GA_CUDA_HOOKS(X)                                                                           \
    X(FINDS, cuGetProcAddress, 11030, cuGetProcAddress, ANY, "a driver function by name")          \
    X(FINDS, cuGetProcAddress, 12000, cuGetProcAddress_v2, ANY,                                    \
      "a driver function by name, with a status")                                                  \
    X(SERVES, cuMemAlloc, 3020, cuMemAlloc_v2, ANY, "a block")                                     \
    X(SERVES, cuMemAllocPitch, 3020, cuMemAllocPitch_v2, ANY, "a block of padded rows")            \
    X(SERVES, cuMemFree, 3020, cuMemFree_v2, ANY, "waits for the device, frees")                   \
    X(SERVES, cuMemAllocAsync, 11020, cuMemAllocAsync, LEGACY, "a block in stream order")          \
    X(SERVES, cuMemAllocAsync, 11020, cuMemAllocAsync_ptsz, THREAD, "a block in stream order")     \
    X(SERVES, cuMemAllocFromPoolAsync, 11020, cuMemAllocFromPoolAsync, LEGACY,                     \
      "served for the default pool")                                                               \
    X(SERVES, cuMemAllocFromPoolAsync, 11020, cuMemAllocFromPoolAsync_ptsz, THREAD,                \
      "served for the default pool")                                                               \
    X(SERVES, cuMemFreeAsync, 11020, cuMemFreeAsync, LEGACY, "frees in stream order")              \
    X(SERVES, cuMemFreeAsync, 11020, cuMemFreeAsync_ptsz, THREAD, "frees in stream order")         \
    X(SERVES, cuMemAllocHost, 3020, cuMemAllocHost_v2, ANY,                                        \
      "pinned host memory, cached with pinned=")                                                   \
    X(SERVES, cuMemHostAlloc, 2020, cuMemHostAlloc, ANY,                                           \
      "pinned host memory, cached with pinned=")                                                   \
    X(SERVES, cuMemFreeHost, 2000, cuMemFreeHost, ANY, "waits for all devices, frees or caches")   \
    X(ANSWERS, cuMemGetInfo, 3020, cuMemGetInfo_v2, ANY,                                           \
      "counts the heap's caches as free; limit=")                                                  \
    X(ANSWERS, cuMemGetAddressRange, 3020, cuMemGetAddressRange_v2, ANY, "of a heap's block")      \
    X(ANSWERS, cuPointerGetAttribute, 4000, cuPointerGetAttribute, ANY,                            \
      "a heap's block's start, size, context, SYNC_MEMOPS, number, IPC")                           \
    X(ANSWERS, cuPointerGetAttributes, 7000, cuPointerGetAttributes, ANY,                          \
      "a heap's block's start, size, context, SYNC_MEMOPS, number, IPC")                           \
    X(ANSWERS, cuPointerSetAttribute, 6000, cuPointerSetAttribute, ANY,                            \
      "SYNC_MEMOPS of a heap's blocks")                                                            \
    X(ANSWERS, cuMemGetHandleForAddressRange, 11070, cuMemGetHandleForAddressRange, ANY,           \
      "the driver's; logs why a heap's block has none")                                            \
    X(ANSWERS, cuMemAddressFree, 10020, cuMemAddressFree, ANY, "refused for a heap's addresses")   \
    X(ANSWERS, cuMemMap, 10020, cuMemMap, ANY, "refused for a heap's addresses")                   \
    X(ANSWERS, cuMemUnmap, 10020, cuMemUnmap, ANY, "refused for a heap's addresses")               \
    X(ANSWERS, cuMemSetAccess, 10020, cuMemSetAccess, ANY, "refused for a heap's addresses")       \
    X(ANSWERS, cuMemGetAccess, 10020, cuMemGetAccess, ANY, "refused for a heap's addresses")       \
    X(ANSWERS, cuMemRetainAllocationHandle, 11000, cuMemRetainAllocationHandle, ANY,               \
      "refused for a heap's blocks, as for cudaMalloc's")                                          \
    X(WATCHES, cuStreamBeginCapture, 10000, cuStreamBeginCapture, LEGACY,                          \
      "the driver serves during captures")                                                         \
    X(WATCHES, cuStreamBeginCapture, 10000, cuStreamBeginCapture_ptsz, THREAD,                     \
      "the driver serves during captures")                                                         \
    X(WATCHES, cuStreamBeginCapture, 10010, cuStreamBeginCapture_v2, LEGACY,                       \
      "the driver serves during captures")                                                         \
    X(WATCHES, cuStreamBeginCapture, 10010, cuStreamBeginCapture_v2_ptsz, THREAD,                  \
      "the driver serves during captures")                                                         \
    X(WATCHES, cuStreamBeginCaptureToGraph, 12030, cuStreamBeginCaptureToGraph, LEGACY,            \
      "the driver serves during captures")                                                         \
    X(WATCHES, cuStreamBeginCaptureToGraph, 12030, cuStreamBeginCaptureToGraph_ptsz, THREAD,       \
      "the driver serves during captures")                                                         \
    X(WATCHES, cuStreamEndCapture, 10000, cuStreamEndCapture, LEGACY, "runs deferred frees")       \
    X(WATCHES, cuStreamEndCapture, 10000, cuStreamEndCapture_ptsz, THREAD, "runs deferred frees")  \
    X(WATCHES, cuStreamDestroy, 4000, cuStreamDestroy_v2, ANY, "may end a capture")                \
    X(WATCHES, cuDevicePrimaryCtxReset, 7000, cuDevicePrimaryCtxReset, ANY,                        \
      "closes the device's heap first")                                                            \
    X(WATCHES, cuDevicePrimaryCtxReset, 11000, cuDevicePrimaryCtxReset_v2, ANY,                    \
      "closes the device's heap first")                                                            \
    X(WATCHES, cuDevicePrimaryCtxRetain, 7000, cuDevicePrimaryCtxRetain, ANY,                      \
      "counts the program's references")                                                           \
    X(WATCHES, cuDevicePrimaryCtxRelease, 7000, cuDevicePrimaryCtxRelease, ANY,                    \
      "closes the device's heap before the last reference")                                        \
    X(WATCHES, cuDevicePrimaryCtxRelease, 11000, cuDevicePrimaryCtxRelease_v2, ANY,                \
      "closes the device's heap before the last reference")                                        \
    X(WATCHES, cuDevicePrimaryCtxSetFlags, 7000, cuDevicePrimaryCtxSetFlags, ANY,                  \
      "keeps flags that a heap's blocks need")                                                     \
    X(WATCHES, cuDevicePrimaryCtxSetFlags, 11000, cuDevicePrimaryCtxSetFlags_v2, ANY,              \
      "keeps flags that a heap's blocks need")                                                     \
    X(WATCHES, cuCtxSetFlags, 12010, cuCtxSetFlags, ANY, "keeps flags that a heap's blocks need")  \
    X(WATCHES, cuCtxCreate, 2000, cuCtxCreate, ANY, "gets in-kernel malloc")                       \
    X(WATCHES, cuCtxCreate, 3020, cuCtxCreate_v2, ANY, "gets in-kernel malloc")                    \
    X(WATCHES, cuCtxCreate, 11040, cuCtxCreate_v3, ANY, "gets in-kernel malloc")                   \
    X(WATCHES, cuCtxCreate, 12050, cuCtxCreate_v4, ANY, "gets in-kernel malloc")                   \
    X(WATCHES, cuCtxDestroy, 2000, cuCtxDestroy, ANY, "ends captures in the context")              \
    X(WATCHES, cuCtxDestroy, 4000, cuCtxDestroy_v2, ANY, "ends captures in the context")           \
    X(WATCHES, cuGreenCtxDestroy, 12040, cuGreenCtxDestroy, ANY, "ends its context")               \
    X(WATCHES, cuCtxAttach, 2000, cuCtxAttach, ANY, "counts references")                           \
    X(WATCHES, cuCtxDetach, 2000, cuCtxDetach, ANY,                                                \
      "ends captures in the context, with the last reference")                                     \
    X(WATCHES, cuCtxEnablePeerAccess, 4000, cuCtxEnablePeerAccess, ANY,                            \
      "lets the other device reach a heap's blocks")                                               \
    X(ANSWERS, cuIpcGetMemHandle, 4010, cuIpcGetMemHandle, ANY, "of a heap's block, over vmm")     \
    X(ANSWERS, cuIpcOpenMemHandle, 4010, cuIpcOpenMemHandle, ANY, "maps another process's block")  \
    X(ANSWERS, cuIpcOpenMemHandle, 11000, cuIpcOpenMemHandle_v2, ANY,                              \
      "maps another process's block")                                                              \
    X(ANSWERS, cuIpcCloseMemHandle, 4010, cuIpcCloseMemHandle, ANY,                                \
      "unmaps another process's block")                                                            \
    X(PATCHES, cuModuleLoad, 2000, cuModuleLoad, ANY, "device code in a file")                     \
    X(PATCHES, cuModuleLoadData, 2000, cuModuleLoadData, ANY, "device code")                       \
    X(PATCHES, cuModuleLoadDataEx, 2010, cuModuleLoadDataEx, ANY, "device code")                   \
    X(PATCHES, cuModuleLoadFatBinary, 2000, cuModuleLoadFatBinary, ANY, "device code")             \
    X(PATCHES, cuLibraryLoadData, 12000, cuLibraryLoadData, ANY, "device code")                    \
    X(PATCHES, cuLibraryLoadFromFile, 12000, cuLibraryLoadFromFile, ANY, "device code in a file")  \
    X(WATCHES, cuModuleUnload, 2000, cuModuleUnload, ANY, "device code with in-kernel malloc")     \
    X(WATCHES, cuLibraryUnload, 12000, cuLibraryUnload, ANY, "device code with in-kernel malloc")  \
    X(WATCHES, cuLaunchKernel, 4000, cuLaunchKernel, LEGACY,                                       \
      "first gives the context in-kernel malloc")                                                  \
    X(WATCHES, cuLaunchKernel, 7000, cuLaunchKernel_ptsz, THREAD,                                  \
      "first gives the context in-kernel malloc")                                                  \
    X(WATCHES, cuLaunchKernelEx, 11060, cuLaunchKernelEx, LEGACY,                                  \
      "first gives the context in-kernel malloc")                                                  \
    X(WATCHES, cuLaunchKernelEx, 11060, cuLaunchKernelEx_ptsz, THREAD,                             \
      "first gives the context in-kernel malloc")                                                  \
    X(WATCHES, cuLaunchCooperativeKernel, 9000, cuLaunchCooperativeKernel, LEGACY,                 \
      "first gives the context in-kernel malloc")                                                  \
    X(WATCHES, cuLaunchCooperativeKernel, 9000, cuLaunchCooperativeKernel_ptsz, THREAD,            \
      "first gives the context in-kernel malloc")                                                  \
  X(WATCHES, cuLaunchCooperativeKernelMultiDevice, 9000, cuLaunchCooperativeKernelMultiDevice, ANY,\
      "first gives the context in-kernel malloc")                                                  \
    X(WATCHES, cuGraphInstantiate, 10000, cuGraphInstantiate, ANY, "the contexts of its kernels")  \
    X(WATCHES, cuGraphInstantiate, 11000, cuGraphInstantiate_v2, ANY,                              \
      "the contexts of its kernels")                                                               \
    X(WATCHES, cuGraphInstantiateWithFlags, 11040, cuGraphInstantiateWithFlags, ANY,               \
      "the contexts of its kernels")                                                               \
    X(WATCHES, cuGraphInstantiateWithParams, 12000, cuGraphInstantiateWithParams, LEGACY,          \
      "the contexts of its kernels")                                                               \
    X(WATCHES, cuGraphInstantiateWithParams, 12000, cuGraphInstantiateWithParams_ptsz, THREAD,     \
      "the contexts of its kernels")                                                               \
    X(WATCHES, cuGraphExecDestroy, 10000, cuGraphExecDestroy, ANY, "the contexts of its kernels")  \
    X(WATCHES, cuGraphLaunch, 10000, cuGraphLaunch, LEGACY,                                        \
      "first gives the context in-kernel malloc")                                                  \
    X(WATCHES, cuGraphLaunch, 10000, cuGraphLaunch_ptsz, THREAD,                                   \
      "first gives the context in-kernel malloc")                                                  \
    X(WATCHES, cuLaunch, 2000, cuLaunch, ANY, "first gives the context in-kernel malloc")          \
    X(WATCHES, cuLaunchGrid, 2000, cuLaunchGrid, ANY, "first gives the context in-kernel malloc")  \
    X(WATCHES, cuLaunchGridAsync, 2000, cuLaunchGridAsync, ANY,                                    \
      "first gives the context in-kernel malloc")                                                  \
    X(LIMITS, cuMemAllocManaged, 6000, cuMemAllocManaged, ANY, "managed memory")                   \
    X(RETRIES, cuMemHostRegister, 6050, cuMemHostRegister_v2, ANY, "pinned host memory")           \
    X(LIMITS, cuArrayCreate, 3020, cuArrayCreate_v2, ANY, "arrays")                                \
    X(LIMITS, cuArray3DCreate, 3020, cuArray3DCreate_v2, ANY, "arrays")                            \
    X(LIMITS, cuMipmappedArrayCreate, 5000, cuMipmappedArrayCreate, ANY, "arrays")                 \
    X(LIMITS, cuMemCreate, 10020, cuMemCreate, ANY, "the program's own memory to map")             \
    X(PASSES, cuMemAlloc, 2000, cuMemAlloc, ANY, "of CUDA before 3.2")                             \
    X(PASSES, cuMemAllocPitch, 2000, cuMemAllocPitch, ANY, "of CUDA before 3.2")                   \
    X(PASSES, cuMemFree, 2000, cuMemFree, ANY, "of CUDA before 3.2")                               \
    X(PASSES, cuMemGetInfo, 2000, cuMemGetInfo, ANY, "of CUDA before 3.2")                         \
    X(PASSES, cuMemGetAddressRange, 2000, cuMemGetAddressRange, ANY, "of CUDA before 3.2")         \
    X(PASSES, cuMemHostUnregister, 4000, cuMemHostUnregister, ANY, "pinned host memory")           \
    X(WATCHES, cuArrayDestroy, 2000, cuArrayDestroy, ANY, "arrays")                                \
    X(WATCHES, cuMipmappedArrayDestroy, 5000, cuMipmappedArrayDestroy, ANY, "arrays")              \
    X(PASSES, cuMemAddressReserve, 10020, cuMemAddressReserve, ANY, "the program's own addresses") \
    X(WATCHES, cuMemRelease, 10020, cuMemRelease, ANY, "the program's own memory to map")          \
    X(PASSES, cuMemExportToShareableHandle, 10020, cuMemExportToShareableHandle, ANY,              \
      "the program's own memory to map")                                                           \
    X(PASSES, cuMemImportFromShareableHandle, 10020, cuMemImportFromShareableHandle, ANY,          \
      "the program's own memory to map")                                                           \
    X(PASSES, cuMemMapArrayAsync, 11010, cuMemMapArrayAsync, LEGACY, "the program's own mappings") \
    X(PASSES, cuMemMapArrayAsync, 11010, cuMemMapArrayAsync_ptsz, THREAD,                          \
      "the program's own mappings")                                                                \
    X(PASSES, cuMemPoolCreate, 11020, cuMemPoolCreate, ANY, "the program's own pools")             \
    X(WATCHES, cuMemPoolDestroy, 11020, cuMemPoolDestroy, ANY, "may be the current pool")          \
    X(WATCHES, cuMemPoolTrimTo, 11020, cuMemPoolTrimTo, ANY,                                       \
      "of the default pool, trims the heap, too")                                                  \
    X(WATCHES, cuMemPoolSetAttribute, 11020, cuMemPoolSetAttribute, ANY,                           \
      "resets high marks of the default pool")                                                     \
    X(ANSWERS, cuMemPoolGetAttribute, 11020, cuMemPoolGetAttribute, ANY,                           \
      "of the default pool, includes the heap's memory")                                           \
    X(WATCHES, cuMemPoolSetAccess, 11020, cuMemPoolSetAccess, ANY,                                 \
      "of the default pool, lets the other device reach a heap's blocks")                          \
    X(PASSES, cuMemPoolGetAccess, 11020, cuMemPoolGetAccess, ANY, "the program's own pools")       \
    X(PASSES, cuMemPoolExportToShareableHandle, 11020, cuMemPoolExportToShareableHandle, ANY,      \
      "the program's own pools")                                                                   \
    X(PASSES, cuMemPoolImportFromShareableHandle, 11020, cuMemPoolImportFromShareableHandle, ANY,  \
      "the program's own pools")                                                                   \
    X(PASSES, cuMemPoolExportPointer, 11020, cuMemPoolExportPointer, ANY,                          \
      "the program's own pools")                                                                   \
    X(PASSES, cuMemPoolImportPointer, 11020, cuMemPoolImportPointer, ANY,                          \
      "the program's own pools")                                                                   \
    X(WATCHES, cuDeviceSetMemPool, 11020, cuDeviceSetMemPool, ANY,                                 \
      "the driver serves while another pool is current")                                           \
    X(WATCHES, cuMemSetMemPool, 13000, cuMemSetMemPool, ANY,                                       \
      "the driver serves while another pool is current")                                           \
    X(PASSES, cuGraphAddMemAllocNode, 11040, cuGraphAddMemAllocNode, ANY, "memory of graphs")      \
    X(PASSES, cuGraphAddMemFreeNode, 11040, cuGraphAddMemFreeNode, ANY, "memory of graphs")        \
    X(PASSES, cuDeviceGraphMemTrim, 11040, cuDeviceGraphMemTrim, ANY, "memory of graphs")          \
    X(PASSES, cuImportExternalMemory, 10000, cuImportExternalMemory, ANY,                          \
      "memory of other interfaces")                                                                \
    X(PASSES, cuExternalMemoryGetMappedBuffer, 10000, cuExternalMemoryGetMappedBuffer, ANY,        \
      "memory of other interfaces")                                                                \
    X(PASSES, cuDestroyExternalMemory, 10000, cuDestroyExternalMemory, ANY,                        \
      "memory of other interfaces")

/* Y(call, driver function): the driver function that a CUDA runtime call reaches. The runtime
 * itself cannot be replaced, because programs link it statically. */
#define GA_CUDA_RUNTIME_CALLS(Y)                                                                   \
    Y(cudaMalloc, cuMemAlloc_v2)                                                                   \
    Y(cudaMallocPitch, cuMemAllocPitch_v2)                                                         \
    Y(cudaMalloc3D, cuMemAllocPitch_v2)                                                            \
    Y(cudaFree, cuMemFree_v2)                                                                      \
    Y(cudaMallocAsync, cuMemAllocAsync)                                                            \
    Y(cudaMallocFromPoolAsync, cuMemAllocFromPoolAsync)                                            \
    Y(cudaFreeAsync, cuMemFreeAsync)                                                               \
    Y(cudaMemGetInfo, cuMemGetInfo_v2)                                                             \
    Y(cudaPointerGetAttributes, cuPointerGetAttributes)                                            \
    Y(cudaDeviceReset, cuDevicePrimaryCtxReset)                                                    \
    Y(cudaStreamBeginCapture, cuStreamBeginCapture_v2)                                             \
    Y(cudaStreamEndCapture, cuStreamEndCapture)                                                    \
    Y(cudaIpcGetMemHandle, cuIpcGetMemHandle)                                                      \
    Y(cudaIpcOpenMemHandle, cuIpcOpenMemHandle_v2)                                                 \
    Y(cudaIpcCloseMemHandle, cuIpcCloseMemHandle)                                                  \
    Y(cudaDeviceEnablePeerAccess, cuCtxEnablePeerAccess)                                           \
    Y(cudaMallocManaged, cuMemAllocManaged)                                                        \
    Y(cudaMallocHost, cuMemHostAlloc)                                                              \
    Y(cudaHostAlloc, cuMemHostAlloc)                                                               \
    Y(cudaFreeHost, cuMemFreeHost)                                                                 \
    Y(cudaHostRegister, cuMemHostRegister_v2)                                                      \
    Y(cudaHostUnregister, cuMemHostUnregister)                                                     \
    Y(cudaMallocArray, cuArray3DCreate_v2)                                                         \
    Y(cudaLibraryLoadData, cuLibraryLoadData)                                                      \
    Y(cudaLibraryLoadFromFile, cuLibraryLoadFromFile)                                              \
    Y(cudaGetDriverEntryPoint, cuGetProcAddress_v2)                                                \
    Y(cudaGetDriverEntryPointByVersion, cuGetProcAddress_v2)
/* clang-format on */

#ifndef GA_CUDA_HOOKS_ONLY /* the rest is not for the assembler */

typedef enum ga_cuda_kind {
    GA_CUDA_FINDS = 0,
    GA_CUDA_SERVES,
    GA_CUDA_ANSWERS,
    GA_CUDA_WATCHES,
    GA_CUDA_RETRIES,
    GA_CUDA_LIMITS,
    GA_CUDA_PATCHES,
    GA_CUDA_PASSES
} ga_cuda_kind;

typedef enum ga_cuda_streams {
    GA_CUDA_ANY = 0,
    GA_CUDA_LEGACY, /* the values are those of cuGetProcAddress()'s flags */
    GA_CUDA_THREAD
} ga_cuda_streams;

typedef struct ga_cuda_hook {
    ga_cuda_kind kind;
    ga_cuda_streams streams;
    int since;
    const char *name, *symbol, *description;
} ga_cuda_hook;

/* Makers of table rows for code that prints them, and of an index per row for code that implements
 * them. */
#define GA_CUDA_HOOK_ROW(kind, name, since, symbol, streams, description)                          \
    {GA_CUDA_##kind, GA_CUDA_##streams, since, #name, #symbol, description},
#define GA_CUDA_HOOK_INDEX(kind, name, since, symbol, streams, description) GA_HOOK_##symbol,

typedef enum ga_cuda_hook_index {
    GA_CUDA_HOOKS(GA_CUDA_HOOK_INDEX) GA_CUDA_HOOK_COUNT
} ga_cuda_hook_index;

#endif

#endif
