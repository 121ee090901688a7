/* SPDX-License-Identifier: MIT
 *
 * Shared by programs that let NCCL allocate and register device memory: NCCL's functions and a
 * stand-in's, blocks of cudaMalloc and of ncclMemAlloc, and checks on them.
 *
 * NCCL is loaded with a scope of its own and its functions are found by dlsym(), as in Python; with
 * NCCL_LINKED by the linker.
 */
#ifndef GPUALLOC_TESTS_CUDA_NCCL_SCENE_H
#define GPUALLOC_TESTS_CUDA_NCCL_SCENE_H

#include "cases.h"

#include "../support/libnccl/libnccl.h"

enum {
    GRANULE = 2 * MIB
};

static char comm, other_comm; /* only their addresses count */

#define MEMBER(member, symbol, parameters) int(*member) parameters;
static struct {
    NCCL_FUNCTIONS(MEMBER)
    nccl_stand_in_fail_fn *fail;
    nccl_stand_in_calls_fn *calls;
    nccl_stand_in_block_fn *block;
    nccl_stand_in_proceed_fn *proceed;
    nccl_stand_in_during_fn *during;
} nccl;

static void *library;
static CUresult (*retain)(CUmemGenericAllocationHandle *handle, void *at);
static CUresult (*release)(CUmemGenericAllocationHandle handle);
static CUresult (*unmap)(CUdeviceptr at, size_t size);
static CUresult (*trim)(CUmemoryPool pool, size_t keep);

#ifdef NCCL_LINKED
#define NCCL_IS_LINKED                      1
#define DECLARE(member, symbol, parameters) int symbol parameters;
NCCL_FUNCTIONS(DECLARE)
#define FIND(member, symbol, parameters) nccl.member = symbol;
#else
#define NCCL_IS_LINKED                   0
#define FIND(member, symbol, parameters) *(void **)&nccl.member = dlsym(library, #symbol);
#endif

static inline void find_all(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    library = dlopen("libnccl.so.2", RTLD_LAZY | RTLD_LOCAL);
    if (!library) {
        puts(dlerror());
        exit(1);
    }
    NCCL_FUNCTIONS(FIND)
    *(void **)&nccl.fail = dlsym(library, "nccl_stand_in_fail");
    *(void **)&nccl.calls = dlsym(library, "nccl_stand_in_calls");
    *(void **)&nccl.block = dlsym(library, "nccl_stand_in_block");
    *(void **)&nccl.proceed = dlsym(library, "nccl_stand_in_proceed");
    *(void **)&nccl.during = dlsym(library, "nccl_stand_in_during");
    *(void **)&retain = dlsym(driver, "cuMemRetainAllocationHandle");
    *(void **)&release = dlsym(driver, "cuMemRelease");
    *(void **)&unmap = dlsym(driver, "cuMemUnmap");
    *(void **)&trim = dlsym(driver, "cuMemPoolTrimTo");
}

static inline CUdeviceptr at(const void *block)
{
    return (CUdeviceptr)(uintptr_t)block;
}

static inline char *nccl_alloc(size_t size)
{
    void *block = NULL;
    CHECK_SAME(NCCL_SUCCESS, nccl.alloc(&block, size));
    memset(block, 7, size);
    return block;
}

static inline char *alloc(size_t size)
{
    CUdeviceptr block = 0;
    CHECK_SAME(0, cu.alloc(&block, size));
    memset((void *)block, 7, size);
    return (char *)block;
}

static inline void *enroll(void *block, size_t size)
{
    void *handle = NULL;
    CHECK_SAME(NCCL_SUCCESS, nccl.enroll(&comm, block, size, &handle));
    CHECK(handle != NULL, "no handle");
    return handle;
}

static inline void expel(void *handle)
{
    CHECK_SAME(NCCL_SUCCESS, nccl.expel(&comm, handle));
}

/* To the driver the block is one allocation, which a library may retain. */
static inline void check_is_one_allocation(char *block, size_t size)
{
    CUdeviceptr base = 0;
    size_t bytes = 0;
    CUmemGenericAllocationHandle handle;
    CHECK_SAME(0, cu.range(&base, &bytes, at(block + size / 2)));
    CHECK_SAME(at(block), base);
    CHECK_SAME((size + GRANULE - 1) / GRANULE * GRANULE, bytes);
    CHECK_SAME(0, retain(&handle, block));
    CHECK_SAME(0, release(handle));
}

static inline char *alloc_as(bool by_nccl, size_t size)
{
    return by_nccl ? nccl_alloc(size) : alloc(size);
}

static inline void free_as(bool by_nccl, char *block)
{
    if (by_nccl) {
        CHECK_SAME(NCCL_SUCCESS, nccl.free(block));
    } else {
        CHECK_SAME(0, cu.free(at(block)));
    }
}

/* Its contents stay through a trim and through requests of its size, and it cannot be freed
 * again. */
static inline void check_stays(bool by_nccl, char *block, size_t size)
{
    CUmemoryPool pool;
    CHECK_SAME(0, cu.default_pool(&pool, 0));
    CHECK_SAME(0, trim(pool, 0));
    char *next = alloc_as(by_nccl, size);
    memset(next, 9, size);
    CHECK(next + size <= block || block + size <= next, "%p", (void *)next);
    CHECK(cu.accessible(block, size, 1), "it is gone");
    CHECK(block[0] == 7 && block[size - 1] == 7, "%d %d", block[0], block[size - 1]);
    CHECK((by_nccl ? nccl.free(block) != NCCL_SUCCESS : cu.free(at(block)) != CUDA_SUCCESS),
          "freed twice");
    free_as(by_nccl, next);
}

/* Requests of its size, until one gets it. */
static inline void check_is_reused(bool by_nccl, const char *block, size_t size)
{
    char *all[4] = {NULL};
    bool found = false;
    for (int i = 0; i < 4; i++) {
        all[i] = alloc_as(by_nccl, size);
        found = found || all[i] == block;
    }
    CHECK(found, "%p is not reused", (const void *)block);
    for (int i = 0; i < 4; i++) {
        free_as(by_nccl, all[i]);
    }
}

/* Run one case, before which NCCL's functions cannot be found. */
static inline int run_nccl_case(int argc, char **argv, const cu_case *cases, size_t count)
{
    if (dlsym(RTLD_DEFAULT, "ncclMemAlloc") != NULL && !NCCL_IS_LINKED) {
        puts("found before NCCL is loaded");
        return 1;
    }
    cu_open(0);
    find_all();
    return run_case(argc, argv, cases, count);
}

#endif
