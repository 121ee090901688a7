/* SPDX-License-Identifier: MIT
 *
 * Memory that a program has freed is returned to the device, by the count of the driver for tests.
 */
#include "cases.h"

enum {
    COUNT = 16
};

static uint64_t held(void)
{
    vmm_driver_counts counts = cu.count();
    return counts.chunk_bytes + counts.block_bytes;
}

static const size_t sizes[COUNT] = {400u * MIB, 1000,     3 * MIB,  700,      20000001, MIB,
                                    64 * MIB,   600000,   2 * MIB,  17 * MIB, 5000,     33 * MIB,
                                    4 * MIB,    90 * MIB, 11 * MIB, 256};

static void take_all(CUdeviceptr *blocks)
{
    for (size_t i = 0; i < COUNT; i++) {
        CHECK_SAME(0, cu.alloc(&blocks[i], sizes[i]));
    }
}

static void give_all(const CUdeviceptr *blocks)
{
    for (size_t i = 0; i < COUNT; i++) {
        CHECK_SAME(0, cu.free(blocks[i]));
    }
}

/* Under a spec that caches nothing. */
static void at_once(void)
{
    CUdeviceptr blocks[COUNT];
    take_all(blocks);
    CHECK_SAME(0, cu.free(blocks[0]));
    uint64_t rest = held();
    CHECK(rest < 400u * MIB, "%llu bytes", (unsigned long long)rest);
    CHECK_SAME(0, cu.alloc(&blocks[0], sizes[0]));
    give_all(blocks);
    CHECK_SAME(0, held());
}

/* A call of the preload, which purges overdue memory. */
static void call(void)
{
    CUdeviceptr block = 0;
    CHECK_SAME(0, cu.alloc(&block, 1000));
    CHECK_SAME(0, cu.free(block));
}

static void wait_ms(unsigned milliseconds)
{
    usleep(milliseconds * 1000);
}

/* Under decay=500: longer than it takes to free them all, so that they are there at first. */
static void decays(void)
{
    CUdeviceptr blocks[COUNT];
    take_all(blocks);
    uint64_t all = held();
    give_all(blocks);
    CHECK(held() >= all / 2, "%llu of %llu bytes", (unsigned long long)held(),
          (unsigned long long)all);
    for (int i = 0; i < 3; i++) {
        wait_ms(600);
        call();
    }
    CHECK(held() <= 4u * MIB, "%llu bytes", (unsigned long long)held());
    take_all(blocks); /* as before */
    give_all(blocks);
}

/* Memory that the program uses again within the time stays mapped, and the rest is released. */
static void keeps_what_is_used(void)
{
    CUdeviceptr kept = 0;
    CUdeviceptr other = 0;
    CHECK_SAME(0, cu.alloc(&kept, 64u * MIB));
    CHECK_SAME(0, cu.alloc(&other, 128u * MIB));
    CHECK_SAME(0, cu.free(other));
    CHECK_SAME(0, cu.free(kept));
    uint64_t created = cu.arrived("cuMemCreate") + cu.arrived("cuMemAlloc");
    for (int i = 0; i < 60; i++) {
        wait_ms(20);
        CHECK_SAME(0, cu.alloc(&kept, 64u * MIB));
        CHECK_SAME(0, cu.free(kept));
    }
    CHECK_SAME(created, cu.arrived("cuMemCreate") + cu.arrived("cuMemAlloc"));
    CHECK_SAME(64u * MIB, held());
}

/* A query of free memory purges overdue memory, too. */
static void decays_when_asked(void)
{
    CUdeviceptr block = 0;
    size_t available = 0;
    size_t total = 0;
    CHECK_SAME(0, cu.alloc(&block, 64u * MIB));
    CHECK_SAME(0, cu.free(block));
    wait_ms(700);
    CHECK_SAME(0, cu.info(&available, &total));
    CHECK_SAME(0, held());
}

static void stays(void)
{
    CUdeviceptr block = 0;
    CHECK_SAME(0, cu.alloc(&block, 64u * MIB));
    CHECK_SAME(0, cu.free(block));
    wait_ms(300);
    call();
    CHECK(held() >= 64u * MIB, "%llu bytes", (unsigned long long)held());
}

enum {
    SMALL = 64000, /* blocks of SMALL_BYTES: more than superblocks are kept for */
    SMALL_BYTES = 1000
};

static void take_and_give_small(void)
{
    static CUdeviceptr small[SMALL];
    for (size_t i = 0; i < SMALL; i++) {
        CHECK_SAME(0, cu.alloc(&small[i], SMALL_BYTES));
        *(char *)small[i] = (char)i;
    }
    CHECK(held() >= (uint64_t)SMALL * SMALL_BYTES, "%llu bytes", (unsigned long long)held());
    for (size_t i = 0; i < SMALL; i++) {
        CHECK(*(char *)small[i] == (char)i, "block %zu", i);
        CHECK_SAME(0, cu.free(small[i]));
    }
}

static void trim_pool(size_t keep)
{
    typedef CUresult trim_fn(CUmemoryPool pool, size_t keep);
    trim_fn *trim = NULL;
    CUmemoryPool usual = NULL;
    *(void **)&trim = dlsym(dlopen("libcuda.so.1", RTLD_LAZY), "cuMemPoolTrimTo");
    CHECK_SAME(0, cu.default_pool(&usual, 0));
    CHECK_SAME(0, trim(usual, keep));
}

/* Under a spec that keeps all of them until a trim. */
static void small_when_asked(void)
{
    for (int round = 0; round < 2; round++) {
        take_and_give_small();
        CHECK(held() >= (uint64_t)SMALL * SMALL_BYTES, "%llu bytes", (unsigned long long)held());
        trim_pool(32u * MIB);
        CHECK(held() >= 32u * MIB && held() < 48u * MIB, "%llu bytes", (unsigned long long)held());
        trim_pool(0);
        CHECK_SAME(0, held());
    }
}

/* Without a trim; the heap below keeps no memory. */
static void small_unasked(void)
{
    for (int round = 0; round < 2; round++) {
        take_and_give_small();
        CHECK(held() <= 24u * MIB, "%llu bytes", (unsigned long long)held());
    }
    uint64_t frees = cu.arrived("cuMemFree") + cu.arrived("cuMemUnmap");
    for (int i = 0; i < 1000; i++) { /* the driver is not called each time */
        call();
    }
    CHECK(cu.arrived("cuMemFree") + cu.arrived("cuMemUnmap") <= frees + 2000, "%llu calls",
          (unsigned long long)(cu.arrived("cuMemFree") - frees));
}

/* Units of small blocks make room for a large one. */
static void small_for_large(void)
{
    CUdeviceptr large = 0;
    size_t available = 0;
    size_t total = 0;
    take_and_give_small();
    CHECK_SAME(0, cu.info(&available, &total));
    CHECK_SAME(0, cu.alloc(&large, total - 4 * MIB));
    CHECK_SAME(0, cu.free(large));
}

static const cu_case cases[] = {{"at_once", at_once},
                                {"small_when_asked", small_when_asked},
                                {"small_unasked", small_unasked},
                                {"small_for_large", small_for_large},
                                {"decays", decays},
                                {"keeps_what_is_used", keeps_what_is_used},
                                {"decays_when_asked", decays_when_asked},
                                {"stays", stays}};

/* A second argument names a library that is there from the start. */
int main(int argc, char **argv)
{
    if (argc > 2) {
        CHECK(dlopen(argv[2], RTLD_NOW | RTLD_LOCAL), "%s", dlerror());
    }
    cu_open(0);
    return RUN_CASE(argc, argv, cases);
}
