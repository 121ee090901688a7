/* SPDX-License-Identifier: MIT
 *
 * The memory behind a block: every call that could reveal it gives the results of a block of
 * cudaMalloc, or for the block exactly. A program that maps memory of its own is not affected.
 *
 *   mapped CASE [ipc|some]
 *
 * `ipc`: a block has a legacy IPC handle; `some`: only blocks with the attribute do.
 */
#include "cases.h"

enum {
    INVALID = CUDA_ERROR_INVALID_VALUE,
    GRANULE = 2 * MIB,
    SIZES = 6
};

static const size_t sizes[SIZES] = {1, 1000, 300000, MIB, 5 * MIB + 1, 40 * MIB};

static bool ipc, some;

/* X(member, parameters) */
/* clang-format off */
#define FUNCTIONS(X)                                                                               \
    X(cuMemRetainAllocationHandle, (CUmemGenericAllocationHandle *handle, void *pointer))          \
    X(cuMemGetAccess, (unsigned long long *flags, const CUmemLocation *location, CUdeviceptr at))  \
    X(cuMemAddressReserve, (CUdeviceptr *base, size_t size, size_t align, CUdeviceptr at,          \
                            unsigned long long flags))                                             \
    X(cuMemAddressFree, (CUdeviceptr base, size_t size))                                           \
    X(cuMemCreate, (CUmemGenericAllocationHandle *handle, size_t size,                             \
                    const CUmemAllocationProp *prop, unsigned long long flags))                    \
    X(cuMemRelease, (CUmemGenericAllocationHandle handle))                                         \
    X(cuMemMap, (CUdeviceptr at, size_t size, size_t offset, CUmemGenericAllocationHandle handle,  \
                 unsigned long long flags))                                                        \
    X(cuMemUnmap, (CUdeviceptr at, size_t size))                                                   \
    X(cuMemSetAccess, (CUdeviceptr at, size_t size, const CUmemAccessDesc *desc, size_t count))    \
    X(cuMemGetHandleForAddressRange, (void *handle, CUdeviceptr start, size_t size, int type,      \
                                      unsigned long long flags))
/* clang-format on */

#define MEMBER(name, parameters) CUresult(*name) parameters;
static struct {
    FUNCTIONS(MEMBER)
} map;

static void find_all(void)
{
    cu_get *get;
    *(void **)&get = dlsym(dlopen("libcuda.so.1", RTLD_LAZY), "cuGetProcAddress_v2");
#define FIND(name, parameters) *(void **)&map.name = cu_find(get, #name, 0);
    FUNCTIONS(FIND)
}

static CUdeviceptr alloc(size_t size)
{
    CUdeviceptr block = 0;
    CHECK_SAME(0, cu.alloc(&block, size));
    memset((void *)block, 0x5a, size);
    return block;
}

static uint64_t ask(CUpointer_attribute attribute, CUdeviceptr at)
{
    uint64_t one = 0;
    uint64_t both = 0;
    void *value = &both;
    CHECK_SAME(0, cu.attribute(&one, attribute, at));
    CHECK_SAME(0, cu.attributes(1, &attribute, &value, at));
    CHECK_SAME(one, both);
    return one;
}

static void check_attributes(CUdeviceptr block, CUdeviceptr at, size_t size)
{
    if (some) {
        ipc = ask(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, block);
    }
    CHECK_SAME(ipc, ask(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, at));
    CHECK_SAME(0, ask(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, at));
    CHECK_SAME(block, ask(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, at));
    CHECK_SAME(size, ask(CU_POINTER_ATTRIBUTE_RANGE_SIZE, at));
    CHECK_SAME(block, ask(CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, at));
    CHECK_SAME(size, ask(CU_POINTER_ATTRIBUTE_MAPPING_SIZE, at));
    CHECK_SAME(0, ask(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, at));
}

/* As for a block of cudaMalloc. The block is not changed, either. */
static void check_refused(CUdeviceptr at, size_t size)
{
    CUmemGenericAllocationHandle handle = 0;
    CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    CUmemAccessDesc none = {here, CU_MEM_ACCESS_FLAGS_PROT_NONE};
    unsigned long long flags = 0;
    CUdeviceptr granule = at / GRANULE * GRANULE;
    uint64_t handles = cu.count().handles;
    CHECK_SAME(INVALID, map.cuMemRetainAllocationHandle(&handle, (void *)at));
    CHECK_SAME(INVALID, map.cuMemGetAccess(&flags, &here, at));
    CHECK_SAME(INVALID, map.cuMemSetAccess(granule, GRANULE, &none, 1));
    CHECK_SAME(INVALID, map.cuMemUnmap(granule, GRANULE));
    CHECK_SAME(INVALID, map.cuMemUnmap(granule, (size + GRANULE) / GRANULE * GRANULE));
    CHECK_SAME(handles, cu.count().handles);
}

static void behind_blocks(void)
{
    CUdeviceptr at[SIZES][3];
    for (int i = 0; i < SIZES * 3; i++) {
        at[i / 3][i % 3] = alloc(sizes[i / 3]);
    }
    for (int i = 0; i < SIZES * 3; i++) {
        CUdeviceptr block = at[i / 3][i % 3];
        size_t size = sizes[i / 3];
        cu_handle handle = {{0}};
        check_attributes(block, block, size);
        check_attributes(block, block + size - 1, size);
        check_refused(block, size);
        check_refused(block + size - 1, 0);
        memset((void *)block, 1, size);
        CHECK_SAME(ipc ? 0 : INVALID, cu.ipc(&handle, block));
    }
    for (int i = 0; i < SIZES * 3; i++) {
        CHECK_SAME(0, cu.free(at[i / 3][i % 3]));
        check_refused(at[i / 3][i % 3], 1); /* a program may not unmap a freed block, either */
    }
}

/* A descriptor of a block's pages has no pages of other blocks. */
static void descriptors(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    CUdeviceptr blocks[3];
    int file = -1;
    for (int i = 0; i < 3; i++) {
        blocks[i] = alloc(5 * MIB + 1);
    }
    for (int i = 0; i < 3; i++) {
        size_t size = (5 * MIB + 1 + page - 1) / page * page;
        CHECK_SAME(0, map.cuMemGetHandleForAddressRange(&file, blocks[i], size, 1, 0));
        close(file);
        CHECK_SAME(INVALID, map.cuMemGetHandleForAddressRange(&file, blocks[i], size + page, 1, 0));
        CHECK_SAME(INVALID, map.cuMemGetHandleForAddressRange(&file, blocks[i] + page, size, 1, 0));
    }
}

/* Memory that the program maps itself is its own. */
static void of_the_program(void)
{
    CUmemGenericAllocationHandle handle;
    CUmemGenericAllocationHandle again = 0;
    CUdeviceptr base = 0;
    CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = here};
    CUmemAccessDesc all = {here, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    unsigned long long flags = 0;
    CUdeviceptr ours = alloc(40 * MIB);
    CHECK_SAME(0, map.cuMemAddressReserve(&base, 4 * GRANULE, 0, 0, 0));
    CHECK_SAME(0, map.cuMemCreate(&handle, GRANULE, &prop, 0));
    CHECK_SAME(INVALID, map.cuMemMap(ours, GRANULE, 0, handle, 0));
    CHECK_SAME(0, map.cuMemMap(base, GRANULE, 0, handle, 0));
    CHECK_SAME(0, map.cuMemSetAccess(base, GRANULE, &all, 1));
    CHECK_SAME(0, map.cuMemGetAccess(&flags, &here, base));
    CHECK_SAME(CU_MEM_ACCESS_FLAGS_PROT_READWRITE, flags);
    CHECK_SAME(0, ask(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, base));
    CHECK_SAME(0, map.cuMemRetainAllocationHandle(&again, (void *)base));
    CHECK_SAME(0, map.cuMemRelease(again));
    CHECK_SAME(0, map.cuMemUnmap(base, GRANULE));
    CHECK_SAME(0, map.cuMemRelease(handle));
    CHECK_SAME(0, map.cuMemAddressFree(base, 4 * GRANULE));
    CHECK_SAME(0, cu.free(ours));
}

/* The driver accepts NULL for either result; the other result does not depend on it. */
static void half_a_question(void)
{
    size_t free_bytes = 0;
    size_t total = 0;
    size_t half = 0;
    CUdeviceptr block = alloc(3 * MIB);
    CHECK_SAME(0, cu.info(&free_bytes, &total));
    CHECK_SAME(0, cu.info(&half, NULL));
    CHECK_SAME(free_bytes, half);
    CHECK_SAME(0, cu.info(NULL, &half));
    CHECK_SAME(total, half);
    CHECK_SAME(0, cu.free(block));
}

static const cu_case cases[] = {{"behind_blocks", behind_blocks},
                                {"descriptors", descriptors},
                                {"of_the_program", of_the_program},
                                {"half_a_question", half_a_question}};

int main(int argc, char **argv)
{
    ipc = argc > 2 && strcmp(argv[2], "ipc") == 0;
    some = argc > 2 && strcmp(argv[2], "some") == 0;
    cu_open(0);
    find_all();
    return RUN_CASE(argc, argv, cases);
}
