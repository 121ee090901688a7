/* SPDX-License-Identifier: MIT
 *
 * Memory pools: settings and statistics of the default pool apply to the heap that replaces it, and
 * the program's own pools are the driver's.
 *
 *   pools CASE driver|heap [mapped]
 *
 * `heap`: a heap serves requests with a stream; `mapped`: over vmm.
 */
#include "cases.h"

enum {
    INVALID = CUDA_ERROR_INVALID_VALUE,
    USED = CU_MEMPOOL_ATTR_USED_MEM_CURRENT,
    USED_HIGH = CU_MEMPOOL_ATTR_USED_MEM_HIGH,
    RESERVED = CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
    RESERVED_HIGH = CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH
};

static bool heap, mapped;

/* clang-format off */
#define FUNCTIONS(X)                                                                               \
    X(cuMemPoolGetAttribute, (CUmemoryPool pool, CUmemPool_attribute attribute, void *value))      \
    X(cuMemPoolSetAttribute, (CUmemoryPool pool, CUmemPool_attribute attribute, void *value))      \
    X(cuMemPoolTrimTo, (CUmemoryPool pool, size_t keep))                                           \
    X(cuMemPoolSetAccess, (CUmemoryPool pool, const CUmemAccessDesc *desc, size_t count))          \
    X(cuMemPoolDestroy, (CUmemoryPool pool))                                                       \
    X(cuDeviceSetMemPool, (CUdevice device, CUmemoryPool pool))                                    \
    X(cuMemSetMemPool, (CUmemLocation *location, int type, CUmemoryPool pool))
/* clang-format on */

#define MEMBER(name, parameters) CUresult(*name) parameters;
static struct {
    FUNCTIONS(MEMBER)
    bool (*reaches)(CUdeviceptr block, int device);
} pool;

static void find_all(void)
{
    cu_get *get;
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY);
    *(void **)&get = dlsym(driver, "cuGetProcAddress_v2");
#define FIND(name, parameters) *(void **)&pool.name = cu_find(get, #name, 0);
    FUNCTIONS(FIND)
    *(void **)&pool.reaches = dlsym(driver, "stand_in_pool_reaches");
}

static CUmemoryPool default_of(int device)
{
    CUmemoryPool usual = NULL;
    CHECK_SAME(0, cu.default_pool(&usual, device));
    return usual;
}

static uint64_t ask(CUmemPool_attribute attribute)
{
    uint64_t value = 12345;
    CHECK_SAME(0, pool.cuMemPoolGetAttribute(default_of(0), attribute, &value));
    return value;
}

static CUdeviceptr alloc_on(size_t size)
{
    CUdeviceptr block = 0;
    CHECK_SAME(0, cu.alloc_on(&block, size, NULL));
    return block;
}

static CUmemoryPool make_pool(size_t max)
{
    CUmemPoolProps props = {.allocType = 1, .location = {1, 0}, .maxSize = max};
    CUmemoryPool made = NULL;
    CHECK_SAME(0, cu.pool_create(&made, &props));
    return made;
}

static void statistics(void)
{
    uint64_t zero = 0;
    CUdeviceptr first = alloc_on(10 * MIB);
    CUdeviceptr second = alloc_on(30 * MIB);
    CHECK_SAME(40 * MIB, ask(USED));
    CHECK_SAME(40 * MIB, ask(USED_HIGH));
    CHECK(ask(RESERVED) >= 40 * MIB && ask(RESERVED) <= 48 * MIB, "%llu",
          (unsigned long long)ask(RESERVED));
    CHECK_SAME(0, cu.free_on(second, NULL));
    CHECK_SAME(10 * MIB, ask(USED));
    CHECK_SAME(40 * MIB, ask(USED_HIGH));
    CHECK(ask(RESERVED) >= ask(USED) && ask(RESERVED_HIGH) >= 40 * MIB, "less reserved than used");
    CHECK_SAME(0, pool.cuMemPoolSetAttribute(default_of(0), USED_HIGH, &zero));
    CHECK_SAME(0, pool.cuMemPoolSetAttribute(default_of(0), RESERVED_HIGH, &zero));
    CHECK_SAME(10 * MIB, ask(USED_HIGH));
    CHECK_SAME(ask(RESERVED), ask(RESERVED_HIGH));
    zero = 1;
    CHECK_SAME(INVALID, pool.cuMemPoolSetAttribute(default_of(0), USED_HIGH, &zero));
    CHECK_SAME(0, cu.free(first)); /* without a stream: it counts no more, either */
    CHECK_SAME(0, ask(USED));
    CUdeviceptr plain = 0;
    CHECK_SAME(0, cu.alloc(&plain, 10 * MIB));
    CHECK_SAME(0, ask(USED));
    CHECK_SAME(0, cu.free(plain));
}

static uint64_t held(void)
{
    return cu.count().chunk_bytes + cu.count().block_bytes;
}

static void trimmed(void)
{
    CUdeviceptr kept = alloc_on(10 * MIB);
    CHECK_SAME(0, cu.free_on(alloc_on(400 * MIB), NULL));
    CHECK(held() >= 400 * MIB, "%llu", (unsigned long long)held());
    CHECK_SAME(0, pool.cuMemPoolTrimTo(default_of(0), 1 << 30));
    CHECK(held() >= 400 * MIB, "%llu", (unsigned long long)held());
    CHECK_SAME(0, pool.cuMemPoolTrimTo(default_of(0), 0));
    CHECK(held() < 20 * MIB, "%llu", (unsigned long long)held());
    CHECK_SAME(0, cu.free_on(kept, NULL));
}

/* While another pool is current, the driver serves from it, within its size. */
static void current(void)
{
    CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    CUmemoryPool own = make_pool(64 * MIB);
    CUdeviceptr block = 0;
    uint64_t calls = cu.calls("cuMemAllocAsync");
    CHECK_SAME(0, pool.cuDeviceSetMemPool(0, own));
    CHECK_SAME(CUDA_ERROR_OUT_OF_MEMORY, cu.alloc_on(&block, 65 * MIB, NULL));
    block = alloc_on(40 * MIB);
    CHECK(cu.calls("cuMemAllocAsync") >= calls + 2, "the heap serves");
    uint64_t used = 0;
    CHECK_SAME(0, pool.cuMemPoolGetAttribute(own, USED, &used));
    CHECK_SAME(40 * MIB, used);
    CHECK_SAME(0, ask(USED));
    CUdeviceptr usual = 0;
    CHECK_SAME(0, cu.alloc_from(&usual, MIB, default_of(0), NULL)); /* named, it is the heap's */
    CHECK_SAME(MIB, ask(USED));
    CHECK_SAME(0, cu.free_on(usual, NULL));
    CHECK_SAME(0, cu.free_on(block, NULL));
    CHECK_SAME(0, pool.cuDeviceSetMemPool(0, default_of(0)));
    calls = cu.calls("cuMemAllocAsync");
    CHECK_SAME(0, cu.free_on(alloc_on(80 * MIB), NULL));
    CHECK_SAME(heap ? calls : calls + 1, cu.calls("cuMemAllocAsync"));
    CHECK_SAME(0, pool.cuMemSetMemPool(&here, CU_MEM_ALLOCATION_TYPE_PINNED, own));
    CHECK_SAME(CUDA_ERROR_OUT_OF_MEMORY, cu.alloc_on(&block, 65 * MIB, NULL));
    CHECK_SAME(0, pool.cuMemPoolDestroy(own)); /* and the default pool is current */
    calls = cu.calls("cuMemAllocAsync");
    CHECK_SAME(0, cu.free_on(alloc_on(80 * MIB), NULL));
    CHECK_SAME(heap ? calls : calls + 1, cu.calls("cuMemAllocAsync"));
}

static bool reaches(CUdeviceptr block)
{
    return mapped ? cu.accessible((void *)block, MIB, 3) : pool.reaches(block, 1);
}

/* Another device may access existing blocks and later ones. */
static void access_of_others(void)
{
    CUmemAccessDesc other = {{CU_MEM_LOCATION_TYPE_DEVICE, 1}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr before = alloc_on(MIB);
    CHECK(!reaches(before), "it is reached already");
    CHECK_SAME(0, pool.cuMemPoolSetAccess(default_of(0), &other, 1));
    CUdeviceptr after = alloc_on(MIB);
    CHECK(reaches(before) && reaches(after), "%d, %d", reaches(before), reaches(after));
    CHECK_SAME(0, cu.free_on(before, NULL));
    CHECK_SAME(0, cu.free_on(after, NULL));
}

/* Access that is older than the heap. */
static void access_first(void)
{
    CUmemAccessDesc other = {{CU_MEM_LOCATION_TYPE_DEVICE, 1}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CHECK_SAME(0, pool.cuMemPoolSetAccess(default_of(0), &other, 1));
    CUdeviceptr block = alloc_on(MIB);
    CHECK(reaches(block), "not reached");
    CHECK_SAME(0, cu.free_on(block, NULL));
}

/* A heap on each of two devices: the driver copies between pools only if the other device has
 * access. */
static void two_heaps(void)
{
    CUcontext one, second;
    CUdeviceptr early = 0, other = 0, late = 0;
    CHECK_SAME(0, cu.alloc(&early, MIB));
    CHECK_SAME(0, cu.retain(&second, 1));
    CHECK_SAME(0, cu.push(second));
    CHECK_SAME(0, cu.alloc(&other, MIB));
    CHECK_SAME(0, cu.pop(&one));
    CHECK_SAME(0, cu.alloc(&late, MIB));
    CHECK(reaches(early) && reaches(late), "%d, %d", reaches(early), reaches(late));
    CHECK(mapped ? cu.accessible((void *)other, MIB, 3) : pool.reaches(other, 0), "not reached");
    CHECK_SAME(0, cu.free(early));
    CHECK_SAME(0, cu.free(other));
    CHECK_SAME(0, cu.free(late));
}

static const cu_case cases[] = {{"statistics", statistics},     {"trimmed", trimmed},
                                {"current", current},           {"access", access_of_others},
                                {"access_first", access_first}, {"two_heaps", two_heaps}};

int main(int argc, char **argv)
{
    heap = argc > 2 && strcmp(argv[2], "heap") == 0;
    mapped = argc > 3 && strcmp(argv[3], "mapped") == 0;
    cu_open(0);
    find_all();
    return RUN_CASE(argc, argv, cases);
}
