/* SPDX-License-Identifier: MIT
 *
 * All memory counts against limit=100M, of heaps and of the driver: each kind takes 60 MiB, so a
 * request of 50 MiB fails, for any kind, until the memory is freed.
 */
#include "cases.h"

enum {
    TOLD = 100 * MIB,
    MUCH = 60 * MIB,
    MORE = 50 * MIB,
    GRANULE = 2 * MIB,
    NO_MEMORY = CUDA_ERROR_OUT_OF_MEMORY,
    FLOATS = 0x20
};

typedef struct flat {
    size_t width, height;
    int format;
    unsigned channels;
} flat;

typedef struct deep {
    size_t width, height, depth;
    int format;
    unsigned channels, flags;
} deep;

/* clang-format off */
#define FUNCTIONS(X)                                                                               \
    X(cuMemAddressReserve, (CUdeviceptr *base, size_t size, size_t align, CUdeviceptr at,          \
                            unsigned long long flags))                                             \
    X(cuMemAddressFree, (CUdeviceptr base, size_t size))                                           \
    X(cuMemCreate, (CUmemGenericAllocationHandle *handle, size_t size,                             \
                    const CUmemAllocationProp *prop, unsigned long long flags))                    \
    X(cuMemRelease, (CUmemGenericAllocationHandle handle))                                         \
    X(cuMemRetainAllocationHandle, (CUmemGenericAllocationHandle *handle, void *pointer))          \
    X(cuMemMap, (CUdeviceptr at, size_t size, size_t offset, CUmemGenericAllocationHandle handle,  \
                 unsigned long long flags))                                                        \
    X(cuMemUnmap, (CUdeviceptr at, size_t size))                                                   \
    X(cuArrayCreate, (void **array, const flat *descriptor))                                       \
    X(cuArray3DCreate, (void **array, const deep *descriptor))                                     \
    X(cuArrayDestroy, (void *array))                                                               \
    X(cuMipmappedArrayCreate, (void **array, const deep *descriptor, unsigned levels))             \
    X(cuMipmappedArrayDestroy, (void *array))
/* clang-format on */

#define MEMBER(name, parameters) CUresult(*name) parameters;
static struct {
    FUNCTIONS(MEMBER)
} more;

static const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                         .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};

static void find_all(void)
{
    cu_get *get;
    *(void **)&get = dlsym(dlopen("libcuda.so.1", RTLD_LAZY), "cuGetProcAddress_v2");
#define FIND(name, parameters) *(void **)&more.name = cu_find(get, #name, 0);
    FUNCTIONS(FIND)
}

static size_t available(void)
{
    size_t free_bytes = 0;
    size_t total = 0;
    CHECK_SAME(0, cu.info(&free_bytes, &total));
    CHECK_SAME(TOLD, total);
    return free_bytes;
}

/* `bytes` of the limit are in use: no request gets more than the rest. */
static void check_used(size_t bytes)
{
    const deep floats = {MORE / 4, 0, 0, FLOATS, 1, 0};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr block = 0;
    void *array;
    CHECK_SAME(TOLD - bytes, available());
    bool fits = bytes <= TOLD - MORE;
    CHECK_SAME(fits ? 0 : NO_MEMORY, cu.alloc(&block, MORE));
    CHECK_SAME(0, fits ? cu.free(block) : 0);
    CHECK_SAME(fits ? 0 : NO_MEMORY, cu.alloc_on(&block, MORE, NULL));
    CHECK_SAME(0, fits ? cu.free_on(block, NULL) : 0);
    CHECK_SAME(fits ? 0 : NO_MEMORY, cu.managed(&block, MORE, 1));
    CHECK_SAME(0, fits ? cu.free(block) : 0);
    CHECK_SAME(fits ? 0 : NO_MEMORY, more.cuMemCreate(&handle, MORE, &prop, 0));
    CHECK_SAME(0, fits ? more.cuMemRelease(handle) : 0);
    CHECK_SAME(fits ? 0 : NO_MEMORY, more.cuArray3DCreate(&array, &floats));
    CHECK_SAME(0, fits ? more.cuArrayDestroy(array) : 0);
    CHECK_SAME(TOLD - bytes, available());
}

static void blocks(void)
{
    CUdeviceptr block = 0;
    check_used(0);
    CHECK_SAME(0, cu.alloc(&block, MUCH));
    check_used(MUCH);
    CHECK_SAME(0, cu.free(block));
    CHECK_SAME(0, cu.managed(&block, MUCH, 1));
    check_used(MUCH);
    CHECK_SAME(0, cu.free(block));
    check_used(0);
}

static void pools(void)
{
    CUmemPoolProps props = {.allocType = 1, .location = {1, 0}};
    CUmemoryPool pool;
    CUdeviceptr block = 0;
    CHECK_SAME(0, cu.pool_create(&pool, &props));
    CHECK_SAME(0, cu.alloc_from(&block, MUCH, pool, NULL));
    check_used(MUCH);
    CHECK_SAME(NO_MEMORY, cu.alloc_from(&block, MORE, pool, NULL));
    CHECK_SAME(0, cu.free_on(block, NULL));
    check_used(0);
}

/* Memory that is created counts until nothing holds it, by a handle or a mapping. */
static void created(void)
{
    CUmemGenericAllocationHandle handle;
    CUmemGenericAllocationHandle again;
    CUdeviceptr base = 0;
    CUdeviceptr block = 0;
    CHECK_SAME(0, cu.alloc(&block, 1)); /* a heap begins */
    CHECK_SAME(0, cu.free(block));
    CHECK_SAME(0, more.cuMemAddressReserve(&base, MUCH, 0, 0, 0));
    CHECK_SAME(0, more.cuMemCreate(&handle, MUCH, &prop, 0));
    check_used(MUCH);
    CHECK_SAME(0, more.cuMemRelease(handle));
    check_used(0);
    CHECK_SAME(0, more.cuMemCreate(&handle, MUCH, &prop, 0));
    CHECK_SAME(0, more.cuMemMap(base, MUCH, 0, handle, 0));
    CHECK_SAME(0, more.cuMemRelease(handle));
    check_used(MUCH);
    CHECK_SAME(0, more.cuMemRetainAllocationHandle(&again, (void *)base));
    CHECK_SAME(0, more.cuMemUnmap(base, MUCH));
    check_used(MUCH);
    CHECK_SAME(0, more.cuMemRelease(again));
    check_used(0);
    CHECK_SAME(CUDA_ERROR_INVALID_VALUE, more.cuMemRelease(again));
    check_used(0);
    CHECK_SAME(0, more.cuMemAddressFree(base, MUCH));
}

/* As PyTorch's expandable segments grow. */
static void segments(void)
{
    enum {
        PIECES = TOLD / GRANULE
    };
    CUmemGenericAllocationHandle handles[PIECES + 1];
    CUdeviceptr base = 0;
    CHECK_SAME(0, more.cuMemAddressReserve(&base, 2 * (size_t)TOLD, 0, 0, 0));
    for (int i = 0; i < PIECES; i++) {
        CHECK_SAME(0, more.cuMemCreate(&handles[i], GRANULE, &prop, 0));
        CHECK_SAME(0, more.cuMemMap(base + (size_t)i * GRANULE, GRANULE, 0, handles[i], 0));
    }
    CHECK_SAME(NO_MEMORY, more.cuMemCreate(&handles[PIECES], GRANULE, &prop, 0));
    CHECK_SAME(0, more.cuMemUnmap(base, TOLD));
    for (int i = 0; i < PIECES; i++) {
        CHECK_SAME(0, more.cuMemRelease(handles[i]));
    }
    check_used(0);
}

static void arrays(void)
{
    const flat one = {MUCH / 4 / 1024, 1024, FLOATS, 1};
    const deep three = {MUCH / 16 / 1024, 32, 32, FLOATS, 4, 0};
    const deep levels = {2048, 1024, 0, FLOATS, 4, 0};
    const deep none = {MUCH / 4, 0, 0, FLOATS, 1, 0x40};
    void *array = NULL;
    check_used(0);
    CHECK_SAME(0, more.cuArrayCreate(&array, &one));
    check_used(MUCH);
    CHECK_SAME(0, more.cuArrayDestroy(array));
    CHECK_SAME(0, more.cuArray3DCreate(&array, &three));
    check_used(MUCH);
    CHECK_SAME(0, more.cuArrayDestroy(array));
    CHECK_SAME(0, more.cuMipmappedArrayCreate(&array, &levels, 2));
    check_used(40 * MIB);
    CHECK_SAME(0, more.cuMipmappedArrayDestroy(array));
    CHECK_SAME(0, more.cuArray3DCreate(&array, &none)); /* sparse: it has no memory */
    check_used(0);
    CHECK_SAME(0, more.cuArrayDestroy(array));
}

/* The heap's cache is purged, so that no more than the limit is held in all. */
static void beside_caches(void)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr block = 0;
    CHECK_SAME(0, cu.alloc(&block, 90 * MIB));
    CHECK_SAME(0, cu.free(block));
    CHECK_SAME(0, more.cuMemCreate(&handle, MUCH, &prop, 0));
    CHECK(cu.count().chunk_bytes + cu.count().block_bytes <= TOLD, "%llu",
          (unsigned long long)cu.count().chunk_bytes);
    CHECK_SAME(0, more.cuMemRelease(handle));
}

/* Arrays and blocks go with the context, created memory does not. */
static void after_reset(void)
{
    CUcontext context;
    CUmemGenericAllocationHandle handle;
    const flat one = {20 * MIB / 4 / 1024, 1024, FLOATS, 1};
    CUdeviceptr block = 0;
    void *array;
    CHECK_SAME(0, cu.alloc(&block, 10 * MIB));
    CHECK_SAME(0, more.cuArrayCreate(&array, &one));
    CHECK_SAME(0, more.cuMemCreate(&handle, 10 * MIB, &prop, 0));
    CHECK_SAME(60 * MIB, available());
    CHECK_SAME(0, cu.reset(0));
    CHECK_SAME(0, cu.retain(&context, 0));
    CHECK_SAME(0, cu.push(context));
    check_used(10 * MIB);
    CHECK_SAME(0, more.cuMemRelease(handle));
    check_used(0);
}

static const cu_case cases[] = {{"blocks", blocks},          {"pools", pools},
                                {"created", created},        {"segments", segments},
                                {"arrays", arrays},          {"beside_caches", beside_caches},
                                {"after_reset", after_reset}};

int main(int argc, char **argv)
{
    cu_open(0);
    find_all();
    return RUN_CASE(argc, argv, cases);
}
