/* SPDX-License-Identifier: MIT
 *
 * The queries of programs for network cards on device memory: whether synchronous work on it
 * synchronizes, whether a card may access it, the block's number, and a descriptor. Blocks of heaps
 * must behave as the driver's own, so most cases are run without the preload, too.
 *
 *   rdma CASE ["context" ["unreached"]]   the driver refuses SYNC_MEMOPS for these blocks; cards do
 *                                         not access them
 */
#include "cases.h"

#include <sys/stat.h>

enum {
    INVALID = 1,
    NOT_INITIALIZED = 3,
    UNKNOWN = 999,
    BLOCKS = 5,
    SYNC = CU_CTX_SYNC_MEMOPS,
    MAP_HOST = 8,
    THREADS = 8,
    ROUNDS = 300
};

static const size_t sizes[BLOCKS] = {1, 1000, 300000, 5 * MIB + 1, 40 * MIB};

static bool by_context, unreached;

/* A driver may not have some of these. */
static CUresult (*range_handle)(void *handle, CUdeviceptr start, size_t size, int type,
                                unsigned long long flags);
static CUresult (*get_flags)(unsigned *flags);
static CUresult (*set_flags)(unsigned flags);
static CUresult (*set_primary_flags)(CUdevice device, unsigned flags);

static void *find(const char *name)
{
    static cu_get *get;
    void *function = NULL;
    if (!get) {
        *(void **)&get = dlsym(dlopen("libcuda.so.1", RTLD_LAZY), "cuGetProcAddress");
    }
    return get(name, &function, 13000, 0, NULL) == CUDA_SUCCESS ? function : NULL;
}

static void find_all(void)
{
    *(void **)&range_handle = find("cuMemGetHandleForAddressRange");
    *(void **)&get_flags = find("cuCtxGetFlags");
    *(void **)&set_flags = find("cuCtxSetFlags");
    *(void **)&set_primary_flags = find("cuDevicePrimaryCtxSetFlags");
}

static CUdeviceptr alloc(size_t size)
{
    CUdeviceptr block = 0;
    CHECK_SAME(0, cu.alloc(&block, size));
    return block;
}

static CUresult set_sync(CUdeviceptr at, unsigned on)
{
    return cu.set_attribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, at);
}

static unsigned flags_now(void)
{
    unsigned flags = ~0u;
    CHECK_SAME(0, get_flags(&flags));
    return flags;
}

/* An attribute that is an int, queried alone and with another; bytes behind it must stay. */
static int ask(CUpointer_attribute attribute, CUdeviceptr at)
{
    int one[2] = {-7, -8};
    int both[2] = {-7, -8};
    int ordinal = -1;
    CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, attribute};
    void *values[] = {&ordinal, both};
    CHECK_SAME(0, cu.attribute(one, attribute, at));
    CHECK_SAME(0, cu.attributes(2, wanted, values, at));
    CHECK(one[0] == both[0] && one[1] == -8 && both[1] == -8, "%d, %d, %d, %d", one[0], one[1],
          both[0], both[1]);
    return one[0];
}

static int is_sync(CUdeviceptr at)
{
    return ask(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, at);
}

/* Equal results at every address of the block. */
static int is_sync_all_over(CUdeviceptr block, size_t size)
{
    int here = is_sync(block);
    CHECK_SAME(here, is_sync(block + size / 2));
    CHECK_SAME(here, is_sync(block + size - 1));
    return here;
}

static uint64_t number_of(CUdeviceptr at)
{
    uint64_t one = 0;
    uint64_t both = 0;
    CUpointer_attribute wanted = CU_POINTER_ATTRIBUTE_BUFFER_ID;
    void *value = &both;
    CHECK_SAME(0, cu.attribute(&one, wanted, at));
    CHECK_SAME(0, cu.attributes(1, &wanted, &value, at));
    CHECK(one && one == both, "%llx, %llx", (long long)one, (long long)both);
    return one;
}

/* ---- answers ------------------------------------------------------------------------------- */

static void check_block(CUdeviceptr block, CUdeviceptr beside, size_t size)
{
    CHECK_SAME(0, is_sync_all_over(block, size));
    CHECK_SAME(0, set_sync(block + size / 2, 1));
    CHECK_SAME(1, is_sync_all_over(block, size));
    CHECK_SAME(0, is_sync_all_over(beside, size));
    CHECK_SAME(0, set_sync(block, 1));
    CHECK_SAME(1, is_sync(block));
    CHECK_SAME(0, set_sync(block + size - 1, 0));
    CHECK_SAME(0, is_sync_all_over(block, size));
    CHECK_SAME(0, set_sync(block, 1)); /* and so it is freed */
}

/* Twice: a new block at the address of one with the attribute does not have it. */
static void answers(void)
{
    for (int i = 0; i < 2 * BLOCKS; i++) {
        size_t size = sizes[i / 2];
        CUdeviceptr block = alloc(size);
        CUdeviceptr beside = alloc(size);
        check_block(block, beside, size);
        CHECK_SAME(!unreached, ask(CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, block));
        CHECK_SAME(!unreached,
                   ask(CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, block + size - 1));
        CHECK_SAME(0, cu.free(block));
        CHECK_SAME(0, cu.free(beside));
    }
}

/* Of blocks that share memory of the driver, one clears the attribute: the driver is not called. */
static void neighbours(void)
{
    CUdeviceptr block = alloc(1000);
    CUdeviceptr beside = alloc(1000);
    CHECK_SAME(0, set_sync(block, 1));
    CHECK_SAME(0, set_sync(beside, 1));
    uint64_t told = cu.calls("cuPointerSetAttribute");
    CHECK_SAME(0, set_sync(block, 0));
    CHECK_SAME(0, is_sync(block));
    CHECK_SAME(1, is_sync(beside));
    CHECK_SAME(told, cu.calls("cuPointerSetAttribute"));
    CHECK_SAME(0, cu.free(block));
    CHECK_SAME(0, cu.free(beside));
}

/* Calls that are wrong are answered by the driver. */
static void wrong(void)
{
    int mine = 0;
    unsigned on = 1;
    CUdeviceptr block = alloc(1000);
    CHECK_SAME(INVALID, set_sync((CUdeviceptr)&mine, 1));
    CHECK_SAME(INVALID, cu.set_attribute(NULL, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, block));
    CHECK_SAME(INVALID, cu.set_attribute(&on, CU_POINTER_ATTRIBUTE_BUFFER_ID, block));
    CHECK_SAME(0, is_sync(block));
    CHECK_SAME(0, cu.free(block));
}

/* No block has the number of another, live or freed, at any address. */
static void numbers(void)
{
    enum {
        COUNT = 300
    };
    uint64_t seen[COUNT];
    CUdeviceptr kept = alloc(1000);
    uint64_t first = number_of(kept);
    for (int i = 0; i < COUNT; i++) {
        size_t size = sizes[i % BLOCKS];
        CUdeviceptr block = alloc(size);
        seen[i] = number_of(block);
        CHECK(number_of(block + size - 1) == seen[i], "%zu", size);
        for (int before = 0; before < i; before++) {
            CHECK(seen[before] != seen[i] && seen[i] != first, "%d and %d", before, i);
        }
        CHECK_SAME(0, cu.free(block));
    }
    CHECK(number_of(kept) == first, "another");
    CHECK_SAME(0, cu.free(kept));
}

/* ---- contexts ------------------------------------------------------------------------------ */

/* Flags that the program has set stay, and flags that it sets while a block needs the preload's
 * flag do not clear that one. */
static void flags(void)
{
    CUdeviceptr block = alloc(MIB);
    unsigned ours = by_context ? SYNC : 0;
    CHECK_SAME(0, set_flags(MAP_HOST));
    CHECK_SAME(MAP_HOST, flags_now());
    CHECK_SAME(0, set_sync(block, 1));
    CHECK_SAME(MAP_HOST | ours, flags_now());
    CHECK_SAME(0, set_flags(1));
    CHECK_SAME(1 | ours, flags_now());
    CHECK_SAME(0, set_primary_flags(0, 2));
    CHECK_SAME(2 | ours, flags_now());
    CHECK_SAME(0, set_sync(block, 0));
    CHECK_SAME(0, set_flags(MAP_HOST));
    CHECK_SAME(MAP_HOST, flags_now());
    CHECK_SAME(0, set_sync(block, 1));
    CHECK_SAME(MAP_HOST | ours, flags_now());
    CHECK_SAME(0, cu.free(block));
    CHECK_SAME(0, set_primary_flags(0, 0));
    CHECK_SAME(0, flags_now());
    CHECK_SAME(INVALID, set_flags(0x1000)); /* the driver's result */
}

/* In another context than the block's, which has flags of its own. */
static void elsewhere(void)
{
    CUcontext other;
    CUcontext now;
    CUdeviceptr block = alloc(MIB);
    CHECK_SAME(0, cu.create(&other, NULL, 0, 0, 0));
    CHECK_SAME(0, set_flags(1));
    CHECK_SAME(0, set_sync(block, 1));
    CHECK_SAME(1, is_sync(block));
    CHECK_SAME(0, cu.get_current(&now));
    CHECK(now == other, "another context is current");
    CHECK_SAME(1, flags_now());
    CHECK_SAME(0, cu.pop(&other));
    CHECK_SAME(by_context ? SYNC : 0, flags_now());
    CHECK_SAME(0, cu.free(block));
}

/* On the device of the block, whichever device is current. */
static void two_devices(void)
{
    CUcontext second;
    CHECK_SAME(0, cu.retain(&second, 1));
    CHECK_SAME(0, cu.push(second));
    CUdeviceptr block = alloc(MIB);
    CHECK_SAME(0, cu.pop(&second));
    CHECK_SAME(0, set_sync(block, 1));
    CHECK_SAME(0, flags_now());
    CHECK_SAME(0, set_primary_flags(0, MAP_HOST));
    CHECK_SAME(MAP_HOST, flags_now());
    CHECK_SAME(0, set_primary_flags(1, MAP_HOST));
    CHECK_SAME(0, cu.push(second));
    CHECK_SAME(MAP_HOST | (by_context ? SYNC : 0), flags_now());
    CHECK_SAME(0, cu.free(block));
}

/* Work that began before is waited for once: from then on the context itself synchronizes. */
static void earlier(void)
{
    CUdeviceptr block = alloc(MIB);
    CUdeviceptr next = alloc(MIB);
    cu.hold(NULL);
    CHECK_SAME(0, cu.fill_on(block, 1, MIB, NULL));
    uint64_t before = cu.count().waits;
    CHECK_SAME(0, set_sync(block, 1));
    CHECK(cu.count().waits > before, "nothing is waited for");
    before = cu.count().waits;
    CHECK_SAME(0, cu.fill_on(next, 1, MIB, NULL));
    CHECK_SAME(0, set_sync(next, 1));
    CHECK_SAME(before, cu.count().waits);
    cu.let_go(NULL);
    CHECK_SAME(0, cu.free(block));
    CHECK_SAME(0, cu.free(next));
}

/* A capture forbids to wait, and not to set it. */
static void captured(void)
{
    CUstream stream;
    void *graph;
    CUdeviceptr block = alloc(MIB);
    CHECK_SAME(0, cu.stream(&stream, 0));
    CHECK_SAME(0, cu.begin_capture(stream, 0));
    CHECK_SAME(0, set_sync(block, 1));
    CHECK_SAME(0, cu.end_capture(stream, &graph));
    CHECK_SAME(0, cu.violations());
    CHECK_SAME(1, is_sync(block));
    CHECK_SAME(SYNC, flags_now());
    CHECK_SAME(0, cu.free(block));
}

/* A context that is reset has new blocks, and flags of its own. */
static void resets(void)
{
    CUcontext context;
    CHECK_SAME(0, set_sync(alloc(MIB), 1));
    CHECK_SAME(0, cu.reset(0));
    CHECK_SAME(0, cu.retain(&context, 0));
    CHECK_SAME(0, cu.push(context));
    CHECK_SAME(0, set_flags(MAP_HOST));
    CHECK_SAME(MAP_HOST, flags_now());
    CUdeviceptr block = alloc(MIB);
    CHECK_SAME(0, is_sync(block));
    CHECK_SAME(0, set_sync(block, 1));
    CHECK_SAME(MAP_HOST | (by_context ? SYNC : 0), flags_now());
    CHECK_SAME(0, cu.free(block));
}

/* The program gets the driver's error, and the block does not change. */
static void fails(void)
{
    CUdeviceptr block = alloc(MIB);
    cu.fail("cuCtxSetFlags", 1, UNKNOWN);
    CHECK_SAME(UNKNOWN, set_sync(block, 1));
    CHECK_SAME(0, is_sync(block));
    CHECK_SAME(0, flags_now());
    cu.fail("cuPointerSetAttribute", 1, UNKNOWN);
    CHECK_SAME(UNKNOWN, set_sync(block, 1));
    CHECK_SAME(0, is_sync(block));
    CHECK_SAME(0, set_sync(block, 1));
    CHECK_SAME(1, is_sync(block));
    cu.fail("cuPointerGetAttribute", 2,
            INVALID); /* the result that it may have for mapped memory */
    int on = -1;
    CHECK_SAME(0, cu.attribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, block));
    CHECK_SAME(1, on);
    CHECK_SAME(INVALID, cu.attribute(&on, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, block));
    CHECK_SAME(0, cu.free(block));
}

/* A driver before CUDA 12.1: no flags of contexts, and so none of these blocks has it. */
static void old_driver(void)
{
    CUdeviceptr block = alloc(MIB);
    CHECK(!set_flags && !range_handle, "they are there");
    CHECK_SAME(CUDA_ERROR_NOT_SUPPORTED, set_sync(block, 1));
    CHECK_SAME(CUDA_ERROR_NOT_SUPPORTED, set_sync(block, 1));
    CHECK_SAME(0, is_sync(block));
    CHECK(number_of(block) != number_of(alloc(1000)), "one number");
    CHECK_SAME(0, set_primary_flags(0, MAP_HOST));
    CHECK_SAME(MAP_HOST, flags_now());
    CHECK_SAME(0, cu.free(block));
}

/* ---- descriptors --------------------------------------------------------------------------- */

static CUresult describe(CUdeviceptr start, size_t size, int *file)
{
    return range_handle(file, start, size, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
}

/* As libraries request: the block from its first page to its last, whole. */
static void pages(void)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    for (int i = 1; i < BLOCKS; i++) {
        CUdeviceptr block = alloc(sizes[i] < page ? 2 * page : sizes[i]);
        uint64_t start = (block + page - 1) / page * page;
        size_t size = (sizes[i] < page ? page : sizes[i] / page * page) - (start - block);
        size = size / page * page;
        struct stat facts = {0};
        int file = -1;
        CHECK_SAME(0, describe(start, size, &file));
        CHECK(fstat(file, &facts) == 0 && (size_t)facts.st_size == size, "%zu", size);
        close(file);
        CHECK_SAME(0, cu.free(block));
    }
}

static void no_pages(void)
{
    int file = -1;
    CUdeviceptr block = alloc(4 * MIB);
    CHECK_SAME(INVALID, describe(block, 1000, &file));
    CHECK_SAME(INVALID, describe(block + 1, 4096, &file));
    CHECK_SAME(INVALID, describe(block, 0, &file));
    CHECK_SAME(INVALID, range_handle(&file, block, 4096, 7, 0));
    CHECK_SAME(-1, file);
    CHECK_SAME(0, cu.free(block));
}

static void no_cards(void)
{
    int file = -1;
    CUdeviceptr block = alloc(4 * MIB);
    CUresult result = describe(block, 4 * MIB, &file);
    CHECK(result == INVALID || result == CUDA_ERROR_NOT_SUPPORTED, "%d", result);
    CHECK_SAME(-1, file);
    CHECK_SAME(0, ask(CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, block));
    CHECK_SAME(0, set_sync(block, 1));
    CHECK_SAME(1, is_sync(block));
    CHECK_SAME(0, cu.free(block));
}

/* ---- threads and processes ------------------------------------------------------------------ */

/* While its block has the attribute, the context has the flag, whichever flags other threads
 * set. */
static void *sets(void *number)
{
    unsigned mine = (unsigned)(intptr_t)number % 4;
    bool good = cu.push(everybodys) == CUDA_SUCCESS;
    for (int i = 0; good && i < ROUNDS; i++) {
        CUdeviceptr block = alloc(sizes[i % BLOCKS]);
        unsigned now = 0;
        good = set_sync(block, 1) == CUDA_SUCCESS && get_flags(&now) == CUDA_SUCCESS &&
               (now & SYNC) && set_flags(mine) == CUDA_SUCCESS && get_flags(&now) == CUDA_SUCCESS &&
               (now & SYNC) && (i % 3 || set_sync(block, 0) == CUDA_SUCCESS) &&
               cu.free(block) == CUDA_SUCCESS;
    }
    return (void *)(intptr_t)good;
}

static void threads(void)
{
    pthread_t all[THREADS];
    if (begin_threads(all, THREADS, 0, NULL, sets)) {
        end_threads(all, THREADS);
    }
    CHECK_SAME(0, set_flags(MAP_HOST)); /* no block is left that needs the preload's flag */
    CHECK_SAME(MAP_HOST, flags_now());
}

/* A child gets the results that the driver gives it. */
static void forked(void)
{
    CUdeviceptr block = alloc(MIB);
    CHECK_SAME(0, set_sync(block, 1));
    pid_t child = begin_child();
    if (child == 0) {
        CHECK_SAME(NOT_INITIALIZED, set_sync(block, 1));
        CHECK_SAME(NOT_INITIALIZED, set_flags(0));
        _exit(not_so != 0);
    }
    end_child(child);
    CHECK_SAME(1, is_sync(block));
    CHECK_SAME(0, cu.free(block));
}

static const cu_case cases[] = {
    {"answers", answers},
    {"neighbours", neighbours},
    {"wrong", wrong},
    {"numbers", numbers},
    {"flags", flags},
    {"elsewhere", elsewhere},
    {"two_devices", two_devices},
    {"earlier", earlier},
    {"captured", captured},
    {"resets", resets},
    {"fails", fails},
    {"old_driver", old_driver},
    {"pages", pages},
    {"no_pages", no_pages},
    {"no_cards", no_cards},
    {"threads", threads},
    {"forked", forked},
};

int main(int argc, char **argv)
{
    by_context = argc > 2 && strcmp(argv[2], "context") == 0;
    unreached = argc > 3 && strcmp(argv[3], "unreached") == 0;
    cu_open(0);
    find_all();
    return RUN_CASE(argc, argv, cases);
}
