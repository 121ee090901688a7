/* SPDX-License-Identifier: MIT
 *
 * The queries that programs for network cards make on device memory, for a machine with a GPU, to
 * be run without the preload and with it (heaps over vmm): both outputs must be equal. It prints
 * whether numbers and addresses are right, not their values; and for a result the number of bytes
 * that the driver wrote.
 */
#include "say.h"

#include <cuda.h>
#include <dlfcn.h>
#include <string.h>
#include <unistd.h>

enum {
    SKIP = 77,
    SIZES = 8,
    NUMBERS = 200,
    UNTOUCHED = 0xa5
};

static const size_t sizes[SIZES] = {1,       1000,          65536,           300000,
                                    2 << 20, (5 << 20) + 1, (100 << 20) + 1, (size_t)1 << 30};

/* Of the driver's own symbols; NULL: an older one. */
static CUresult (*get_attribute)(void *value, CUpointer_attribute attribute, CUdeviceptr at);
static CUresult (*get_attributes)(unsigned count, CUpointer_attribute *attributes, void **values,
                                  CUdeviceptr at);
static CUresult (*set_attribute)(const void *value, CUpointer_attribute attribute, CUdeviceptr at);
static CUresult (*get_range)(CUdeviceptr *base, size_t *size, CUdeviceptr at);
static CUresult (*retain)(CUmemGenericAllocationHandle *handle, void *at);
static CUresult (*get_access)(unsigned long long *flags, const CUmemLocation *location,
                              CUdeviceptr at);
static CUresult (*range_handle)(void *handle, CUdeviceptr start, size_t size,
                                CUmemRangeHandleType type, unsigned long long flags);

static int find_all(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY);
    if (driver) {
        *(void **)&get_attribute = dlsym(driver, "cuPointerGetAttribute");
        *(void **)&get_attributes = dlsym(driver, "cuPointerGetAttributes");
        *(void **)&set_attribute = dlsym(driver, "cuPointerSetAttribute");
        *(void **)&get_range = dlsym(driver, "cuMemGetAddressRange_v2");
        *(void **)&retain = dlsym(driver, "cuMemRetainAllocationHandle");
        *(void **)&get_access = dlsym(driver, "cuMemGetAccess");
        *(void **)&range_handle = dlsym(driver, "cuMemGetHandleForAddressRange");
    }
    return get_attribute && get_attributes && set_attribute && get_range;
}

/* ---- attributes ---------------------------------------------------------------------------- */

/* The number of bytes that the driver wrote of a result of at most 16 bytes. */
static int written(const unsigned char *answer)
{
    int count = 16;
    while (count && answer[count - 1] == UNTOUCHED) {
        count--;
    }
    return count;
}

static void print_attribute(const char *name, CUpointer_attribute attribute, CUdeviceptr at)
{
    unsigned char one[16];
    unsigned char both[16];
    void *value = both;
    unsigned answer = 0;
    memset(one, UNTOUCHED, sizeof one);
    memset(both, UNTOUCHED, sizeof both);
    CUresult result = get_attribute(one, attribute, at);
    CUresult together = get_attributes(1, &attribute, &value, at);
    memcpy(&answer, both, sizeof answer);
    printf("  %-32s %d, %d bytes; with others %d, %d bytes, %u, %s\n", name, result, written(one),
           together, written(both), answer,
           memcmp(one, both, sizeof one) == 0 ? "the same" : "not the same");
}

#define PRINT(name, at) print_attribute(#name, CU_POINTER_ATTRIBUTE_##name, at)

static CUresult set_sync(CUdeviceptr at, unsigned on)
{
    return set_attribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, at);
}

static void print_sync(CUdeviceptr block, CUdeviceptr beside, size_t size)
{
    PRINT(SYNC_MEMOPS, block);
    printf("  set within: %d\n", set_sync(block + size / 2, 1));
    PRINT(SYNC_MEMOPS, block);
    PRINT(SYNC_MEMOPS, block + size - 1);
    PRINT(SYNC_MEMOPS, beside);
    printf("  clear: %d\n", set_sync(block, 0));
    PRINT(SYNC_MEMOPS, block);
    printf("  set again: %d\n", set_sync(block, 1));
}

static uint64_t number_of(CUdeviceptr at)
{
    unsigned long long number = 0;
    CUresult result = get_attribute(&number, CU_POINTER_ATTRIBUTE_BUFFER_ID, at);
    return result == CUDA_SUCCESS ? number : 0;
}

static int in_range(CUdeviceptr block, size_t size)
{
    CUdeviceptr base = 0;
    size_t length = 0;
    return get_range(&base, &length, block + size - 1) == CUDA_SUCCESS && base == block &&
           length == size;
}

/* ---- descriptors --------------------------------------------------------------------------- */

/* The result, and whether the descriptor has `size` bytes. */
static void print_pages(const char *what, CUdeviceptr start, size_t size, unsigned long long flags)
{
    int file = -1;
    if (!range_handle) {
        puts("  no descriptors");
        return;
    }
    CUresult result = range_handle(&file, start, size, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, flags);
    int good = result == CUDA_SUCCESS && lseek(file, 0, SEEK_END) == (off_t)size;
    printf("  pages %-26s %d, %s\n", what, result, good ? "that size" : "nothing of that size");
    if (file >= 0) {
        close(file);
    }
}

/* From the block's first page to its last, as libraries request. */
static void print_descriptors(CUdeviceptr block, size_t size)
{
    CUdeviceptr page = (CUdeviceptr)sysconf(_SC_PAGESIZE);
    CUdeviceptr start = block / page * page;
    CUdeviceptr end = (block + size + page - 1) / page * page;
    print_pages("all", start, end - start, 0);
    print_pages("all, by PCIe", start, end - start, 1);
    print_pages("the first", start, page, 0);
    print_pages("not whole", start, page + 1, 0);
    print_pages("from within one", start + 64, page, 0);
    print_pages("none", start, 0, 0);
}

/* ---- memory behind a block ---------------------------------------------------------------- */

/* On the other stream: properties that the driver's documentation does not state for cudaMalloc's
 * memory, so the results may differ there. */
static void print_mapping(CUdeviceptr block, size_t size)
{
    CUmemGenericAllocationHandle handle = 0;
    CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE};
    unsigned long long flags = 0;
    CUdeviceptr base = 0;
    size_t length = 0;
    PRINT(IS_LEGACY_CUDA_IPC_CAPABLE, block);
    PRINT(ALLOWED_HANDLE_TYPES, block);
    if (retain) {
        printf("  retain a handle: %d\n", retain(&handle, (void *)(uintptr_t)block));
    }
    get_attribute(&base, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, block);
    get_attribute(&length, CU_POINTER_ATTRIBUTE_MAPPING_SIZE, block);
    fprintf(stderr, "%zu bytes: mapping of %zu bytes, %lld before it; access: %d\n", size, length,
            (long long)(block - base), get_access ? (int)get_access(&flags, &here, block) : -1);
}

/* ---- blocks -------------------------------------------------------------------------------- */

static void print_block(size_t size)
{
    void *first = NULL;
    void *second = NULL;
    cudaError_t result = cudaMalloc(&first, size);
    result = result == cudaSuccess ? cudaMalloc(&second, size) : result;
    printf("%zu bytes: %s\n", size, cudaGetErrorName(result));
    CUdeviceptr block = (CUdeviceptr)(uintptr_t)first;
    print_sync(block, (CUdeviceptr)(uintptr_t)second, size);
    PRINT(IS_GPU_DIRECT_RDMA_CAPABLE, block);
    PRINT(MEMORY_TYPE, block);
    PRINT(IS_MANAGED, block);
    PRINT(DEVICE_ORDINAL, block);
    PRINT(MAPPED, block);
    PRINT(MEMPOOL_HANDLE, block);
    need("  the range is the block", in_range(block, size));
    need("  one number all over",
         number_of(block) && number_of(block) == number_of(block + size - 1));
    print_descriptors(block, size);
    print_mapping(block, size);
    cudaFree(first);
    cudaFree(second);
}

/* Each block has a number of its own, and no number is repeated, at any address. */
static void numbers(void)
{
    uint64_t seen[NUMBERS];
    int unlike = 1;
    for (int i = 0; i < NUMBERS; i++) {
        void *block = NULL;
        cudaMalloc(&block, sizes[i % (SIZES - 1)]);
        seen[i] = number_of((CUdeviceptr)(uintptr_t)block);
        for (int before = 0; before < i; before++) {
            unlike &= seen[before] != seen[i];
        }
        cudaFree(block);
    }
    need("numbers are unlike", unlike);
}

static void wrong(void)
{
    int mine = 0;
    unsigned on = 1;
    void *block = NULL;
    cudaMalloc(&block, 1000);
    printf("set of a variable: %d\n", set_sync((CUdeviceptr)(uintptr_t)&mine, 1));
    printf("set of another attribute: %d\n",
           set_attribute(&on, CU_POINTER_ATTRIBUTE_BUFFER_ID, (CUdeviceptr)(uintptr_t)block));
    print_pages("of a variable", (CUdeviceptr)(uintptr_t)&mine / 4096 * 4096, 4096, 0);
    cudaFree(block);
}

/* A copy within the device does not wait for its end by itself. */
static void copies(void)
{
    size_t size = (size_t)1 << 30;
    void *from = NULL;
    void *to = NULL;
    int done = 1;
    cudaMalloc(&from, size);
    cudaMalloc(&to, size);
    printf("set for copies: %d\n",
           set_sync((CUdeviceptr)(uintptr_t)from, 1) + set_sync((CUdeviceptr)(uintptr_t)to, 1));
    for (int i = 0; i < 50; i++) {
        done &= cudaMemcpy(to, from, size, cudaMemcpyDeviceToDevice) == cudaSuccess;
        done &= cudaStreamQuery(cudaStreamLegacy) == cudaSuccess;
        done &= cudaMemset(to, i, size) == cudaSuccess;
        done &= cudaStreamQuery(cudaStreamLegacy) == cudaSuccess;
    }
    need("copies and fills are done when they return", done);
    cudaFree(from);
    cudaFree(to);
}

int main(void)
{
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || !count || cudaFree(NULL) != cudaSuccess) {
        return SKIP;
    }
    if (!find_all()) {
        return 1;
    }
    for (int i = 0; i < SIZES; i++) {
        print_block(sizes[i]);
    }
    numbers();
    wrong();
    copies();
    return 0;
}
