/* SPDX-License-Identifier: MIT
 *
 * The driver as a CUDA runtime that is linked into a program finds it: cuGetProcAddress by dlsym(),
 * the rest by name and version from it; and the additional functions of the stand-in.
 */
#ifndef GPUALLOC_TESTS_CUDA_CU_H
#define GPUALLOC_TESTS_CUDA_CU_H

#include "../support/libcuda/libcuda.h"
#include "check.h"

#include <dlfcn.h>
#include <stdlib.h>

/* CUipcMemHandle, by value. */
typedef struct cu_handle {
    char bytes[64];
} cu_handle;

/* X(member, name, flags, parameters): flags 2 for threads' default streams. create() gets zeros,
 * which each version of cuCtxCreate takes for device 0. */
/* clang-format off */
#define CU_FUNCTIONS(X)                                                                            \
    X(init, "cuInit", 0, (unsigned flags))                                                         \
    X(retain, "cuDevicePrimaryCtxRetain", 0, (CUcontext *context, CUdevice device))                \
    X(reset, "cuDevicePrimaryCtxReset", 0, (CUdevice device))                                      \
    X(release, "cuDevicePrimaryCtxRelease", 0, (CUdevice device))                                  \
    X(push, "cuCtxPushCurrent", 0, (CUcontext context))                                            \
    X(pop, "cuCtxPopCurrent", 0, (CUcontext *context))                                             \
    X(create, "cuCtxCreate", 0, (CUcontext *context, void *b, int c, int d, int e))                \
    X(destroy, "cuCtxDestroy", 0, (CUcontext context))                                             \
    X(get_current, "cuCtxGetCurrent", 0, (CUcontext *context))                                     \
    X(stream, "cuStreamCreate", 0, (CUstream *stream, unsigned flags))                             \
    X(stream_destroy, "cuStreamDestroy", 0, (CUstream stream))                                     \
    X(fill_on, "cuMemsetD8Async", 0, (CUdeviceptr at, unsigned char v, size_t n, CUstream stream)) \
    X(alloc, "cuMemAlloc", 0, (CUdeviceptr *out, size_t size))                                     \
    X(alloc_pitch, "cuMemAllocPitch", 0,                                                           \
      (CUdeviceptr *out, size_t *pitch, size_t width, size_t height, unsigned element))            \
    X(free, "cuMemFree", 0, (CUdeviceptr block))                                                   \
    X(alloc_on, "cuMemAllocAsync", 0, (CUdeviceptr *out, size_t size, CUstream stream))            \
    X(free_on, "cuMemFreeAsync", 0, (CUdeviceptr block, CUstream stream))                          \
    X(alloc_thread, "cuMemAllocAsync", 2, (CUdeviceptr *out, size_t size, CUstream stream))        \
    X(free_thread, "cuMemFreeAsync", 2, (CUdeviceptr block, CUstream stream))                      \
    X(alloc_from, "cuMemAllocFromPoolAsync", 0,                                                    \
      (CUdeviceptr *out, size_t size, CUmemoryPool pool, CUstream stream))                         \
    X(default_pool, "cuDeviceGetDefaultMemPool", 0, (CUmemoryPool *pool, CUdevice device))         \
    X(pool_create, "cuMemPoolCreate", 0, (CUmemoryPool *pool, const CUmemPoolProps *props))        \
    X(host_alloc, "cuMemHostAlloc", 0, (void **out, size_t size, unsigned flags))                  \
    X(alloc_host, "cuMemAllocHost", 0, (void **out, size_t size))                                  \
    X(free_host, "cuMemFreeHost", 0, (void *block))                                                \
    X(managed, "cuMemAllocManaged", 0, (CUdeviceptr *out, size_t size, unsigned flags))            \
    X(info, "cuMemGetInfo", 0, (size_t *available, size_t *total))                                 \
    X(range, "cuMemGetAddressRange", 0, (CUdeviceptr *base, size_t *size, CUdeviceptr at))         \
    X(attribute, "cuPointerGetAttribute", 0,                                                       \
      (void *value, CUpointer_attribute attribute, CUdeviceptr at))                                \
    X(attributes, "cuPointerGetAttributes", 0,                                                     \
      (unsigned n, CUpointer_attribute *attributes, void **values, CUdeviceptr at))                \
    X(set_attribute, "cuPointerSetAttribute", 0,                                                   \
      (const void *value, CUpointer_attribute attribute, CUdeviceptr at))                          \
    X(begin_capture, "cuStreamBeginCapture", 0, (CUstream stream, int mode))                       \
    X(end_capture, "cuStreamEndCapture", 0, (CUstream stream, void **graph))                       \
    X(ipc, "cuIpcGetMemHandle", 0, (void *handle, CUdeviceptr block))                              \
    X(ipc_open, "cuIpcOpenMemHandle", 0, (CUdeviceptr *out, cu_handle handle, unsigned flags))     \
    X(ipc_close, "cuIpcCloseMemHandle", 0, (CUdeviceptr block))                                    \
    X(peer, "cuCtxEnablePeerAccess", 0, (CUcontext owner, unsigned flags))
/* clang-format on */

#define CU_MEMBER(member, name, flags, parameters) CUresult(*member) parameters;

static struct {
    CU_FUNCTIONS(CU_MEMBER)
    uint64_t (*calls)(const char *symbol);
    uint64_t (*arrived)(const char *name);
    vmm_driver_counts (*count)(void);
    bool (*accessible)(const void *start, size_t size, unsigned devices);
    void (*hold)(CUstream stream);
    void (*let_go)(CUstream stream);
    void (*shut_down)(void);
    void (*fail)(const char *symbol, int n, CUresult error);
    void (*fail_any)(uint64_t n, uint64_t more, CUresult error);
    bool (*has_failed)(void);
    uint64_t (*violations)(void);
    uint64_t (*nodes)(void);
} cu;

/* The first form takes one argument less, and ignores the last. */
typedef CUresult cu_get(const char *name, void **function, int version, uint64_t flags,
                        int *status);

static void *cu_find(cu_get *get, const char *name, uint64_t flags)
{
    void *function = NULL;
    CUresult result = get(name, &function, 13000, flags, NULL);
    if (result != CUDA_SUCCESS || !function) {
        printf("no %s: %d\n", name, result);
        exit(1);
    }
    return function;
}

#define CU_FIND(member, name, flags, parameters) *(void **)&cu.member = cu_find(get, name, flags);
/* clang-format off */
#define CU_EXTRA(member) *(void **)&cu.member = dlsym(driver, "stand_in_" #member)
/* clang-format on */

/* The driver is started, and the device's own context current. */
static inline void cu_open(int device)
{
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    cu_get *get = NULL;
    CUcontext context;
    if (driver) {
        *(void **)&get = dlsym(driver, "cuGetProcAddress_v2");
    }
    if (driver && !get) {
        *(void **)&get = dlsym(driver, "cuGetProcAddress");
    }
    if (!get) {
        puts("no driver");
        exit(1);
    }
    CU_FUNCTIONS(CU_FIND)
    CU_EXTRA(calls);
    CU_EXTRA(arrived);
    CU_EXTRA(count);
    CU_EXTRA(accessible);
    CU_EXTRA(hold);
    CU_EXTRA(let_go);
    CU_EXTRA(shut_down);
    CU_EXTRA(fail);
    CU_EXTRA(fail_any);
    CU_EXTRA(has_failed);
    CU_EXTRA(violations);
    CU_EXTRA(nodes);
    CHECK_SAME(0, cu.init(0));
    CHECK_SAME(0, cu.retain(&context, device));
    CHECK_SAME(0, cu.push(context));
}

#endif
