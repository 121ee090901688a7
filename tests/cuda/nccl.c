/* SPDX-License-Identifier: MIT
 *
 * Programs that let NCCL allocate and register device memory, with a stand-in for NCCL. Memory of
 * ncclMemAlloc() is the pool's, and a block that is freed while it is registered stays.
 *
 *   nccl CASE
 *
 * NCCL is loaded with a scope of its own and its functions are found by dlsym(), as in Python; in
 * nccl-linked by the linker.
 */
#include "cases.h"

#include "../support/libnccl/libnccl.h"

enum {
    GRANULE = 2 * MIB,
    THREADS = 8,
    ROUNDS = 200
};

static char comm, other_comm; /* only their addresses count */

#define MEMBER(member, symbol, parameters) int(*member) parameters;
static struct {
    NCCL_FUNCTIONS(MEMBER)
    nccl_stand_in_fail_fn *fail;
    nccl_stand_in_calls_fn *calls;
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

static void find_all(void)
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
    *(void **)&retain = dlsym(driver, "cuMemRetainAllocationHandle");
    *(void **)&release = dlsym(driver, "cuMemRelease");
    *(void **)&unmap = dlsym(driver, "cuMemUnmap");
    *(void **)&trim = dlsym(driver, "cuMemPoolTrimTo");
}

static CUdeviceptr at(const void *block)
{
    return (CUdeviceptr)(uintptr_t)block;
}

static char *nccl_alloc(size_t size)
{
    void *block = NULL;
    CHECK_SAME(NCCL_SUCCESS, nccl.alloc(&block, size));
    memset(block, 7, size);
    return block;
}

static char *alloc(size_t size)
{
    CUdeviceptr block = 0;
    CHECK_SAME(0, cu.alloc(&block, size));
    memset((void *)block, 7, size);
    return (char *)block;
}

static void *enroll(void *block, size_t size)
{
    void *handle = NULL;
    CHECK_SAME(NCCL_SUCCESS, nccl.enroll(&comm, block, size, &handle));
    CHECK(handle != NULL, "no handle");
    return handle;
}

static void expel(void *handle)
{
    CHECK_SAME(NCCL_SUCCESS, nccl.expel(&comm, handle));
}

/* ---- memory ------------------------------------------------------------------------------ */

/* To the driver the block is one allocation, which a library may retain. */
static void check_is_one_allocation(char *block, size_t size)
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

static void served(void)
{
    static const size_t sizes[] = {1, 3 * MIB, 40 * MIB};
    for (int i = 0; i < 3; i++) {
        char *block = nccl_alloc(sizes[i]);
        check_is_one_allocation(block, sizes[i]);
        CHECK_SAME(NCCL_SUCCESS, nccl.free(block));
        uint64_t created = cu.arrived("cuMemCreate");
        void *again = NULL;
        CHECK_SAME(NCCL_SUCCESS, nccl.alloc(&again, sizes[i]));
        CHECK(again == block, "%p after %p", again, (void *)block);
        CHECK(block[0] == 0 && block[sizes[i] - 1] == 0, "%d %d", block[0], block[sizes[i] - 1]);
        CHECK_SAME(created, cu.arrived("cuMemCreate"));
        CHECK_SAME(NCCL_SUCCESS, nccl.free(again));
    }
    CHECK_SAME(0, nccl.calls("ncclMemAlloc"));
    CHECK_SAME(0, nccl.calls("ncclMemFree"));
}

/* Work that does not end holds up neither the free nor the next request, which gets another
 * block. */
static void beside_work(void)
{
    CUstream stream;
    char *block = nccl_alloc(8 * MIB);
    CHECK_SAME(0, cu.stream(&stream, 1));
    cu.hold(stream);
    CHECK_SAME(0, cu.fill_on(at(block), 3, MIB, stream));
    uint64_t waits = cu.count().waits;
    CHECK_SAME(NCCL_SUCCESS, nccl.free(block));
    char *other = nccl_alloc(8 * MIB);
    CHECK(other != block, "a block in use");
    CHECK_SAME(waits, cu.count().waits);
    cu.let_go(stream);
    char *again = nccl_alloc(8 * MIB);
    CHECK(again == block, "%p after %p", (void *)again, (void *)block);
    CHECK_SAME(NCCL_SUCCESS, nccl.free(other));
    CHECK_SAME(NCCL_SUCCESS, nccl.free(again));
}

/* Wrong calls have NCCL's results, and the pool stays whole. */
static void wrong(void)
{
    char *block = nccl_alloc(4 * MIB);
    char *plain = alloc(4 * MIB);
    CHECK(nccl.alloc(NULL, 1) != NCCL_SUCCESS, "no pointer");
    CHECK(nccl.alloc((void **)&plain, 0) != NCCL_SUCCESS, "no bytes");
    CHECK(nccl.free(NULL) != NCCL_SUCCESS, "no block");
    CHECK(nccl.free(plain) != NCCL_SUCCESS, "the driver's block");
    CHECK(cu.free(at(block)) != CUDA_SUCCESS, "by cudaFree");
    CHECK(unmap(at(block), 4 * MIB) != CUDA_SUCCESS, "by hand");
    CHECK_SAME(NCCL_INVALID_ARGUMENT, nccl.free(block + MIB));
    CHECK_SAME(NCCL_SUCCESS, nccl.free(block));
    CHECK_SAME(NCCL_INVALID_ARGUMENT, nccl.free(block));
    CHECK_SAME(0, cu.free(at(plain)));
}

/* NCCL serves itself, and its blocks are freed by it. */
static void passed(void)
{
    char *block = nccl_alloc(3 * MIB);
    check_is_one_allocation(block, 3 * MIB);
    CHECK_SAME(1, nccl.calls("ncclMemAlloc"));
    CHECK_SAME(NCCL_SUCCESS, nccl.free(block));
    CHECK_SAME(1, nccl.calls("ncclMemFree"));
    CHECK_SAME(0, cu.count().chunk_bytes);
}

/* A device that cannot share memory: NCCL is asked, and refused by the driver. */
static void refused(void)
{
    void *block = NULL;
    for (int i = 1; i <= 2; i++) {
        CHECK_SAME(NCCL_CUDA_ERROR, nccl.alloc(&block, MIB));
        CHECK_SAME(i, nccl.calls("ncclMemAlloc"));
    }
    CHECK_SAME(0, cu.free(at(alloc(MIB))));
}

/* limit=64M: NCCL's own request is not granted either. */
static void limited(void)
{
    void *none = NULL;
    char *block = nccl_alloc(40 * MIB);
    CHECK(nccl.alloc(&none, 40 * MIB) != NCCL_SUCCESS, "above the limit");
    CHECK_SAME(NCCL_SUCCESS, nccl.free(block));
    block = nccl_alloc(60 * MIB);
    CHECK_SAME(NCCL_SUCCESS, nccl.free(block));
    char *plain = alloc(60 * MIB);
    CHECK_SAME(0, cu.free(at(plain)));
}

/* On a device of 64 MiB each heap gets the memory that the other one has freed. */
static void exhausted(void)
{
    for (int i = 0; i < 3; i++) {
        char *plain = alloc(48 * MIB);
        CHECK_SAME(0, cu.free(at(plain)));
        char *block = nccl_alloc(48 * MIB);
        CHECK_SAME(NCCL_SUCCESS, nccl.free(block));
    }
    size_t available = 0;
    size_t total = 0;
    CHECK_SAME(0, cu.info(&available, &total));
    CHECK(available >= 60 * MIB, "%zu of %zu", available, total);
}

/* ---- blocks that are freed while they are registered ------------------------------------- */

static char *alloc_as(bool by_nccl, size_t size)
{
    return by_nccl ? nccl_alloc(size) : alloc(size);
}

static void free_as(bool by_nccl, char *block)
{
    if (by_nccl) {
        CHECK_SAME(NCCL_SUCCESS, nccl.free(block));
    } else {
        CHECK_SAME(0, cu.free(at(block)));
    }
}

/* Its contents stay through a trim and through requests of its size, and it cannot be freed
 * again. */
static void check_stays(bool by_nccl, char *block, size_t size)
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
static void check_is_reused(bool by_nccl, const char *block, size_t size)
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

static void freed_as(bool by_nccl, size_t size)
{
    char *block = alloc_as(by_nccl, size);
    void *handle = enroll(block, size);
    free_as(by_nccl, block);
    check_stays(by_nccl, block, size);
    expel(handle);
    check_is_reused(by_nccl, block, size);
}

static void freed(void)
{
    freed_as(false, 30 * MIB);
    freed_as(false, 1000);
    freed_as(true, 30 * MIB);
}

/* A block of the driver's (spec `cuda`): the driver sees one free of it, at the end. */
static void driver_owned(void)
{
    char *block = alloc(8 * MIB);
    void *handle = enroll(block, 8 * MIB);
    uint64_t blocks = cu.count().blocks;
    free_as(false, block);
    CHECK(cu.free(at(block)) != CUDA_SUCCESS, "freed twice");
    CHECK_SAME(blocks, cu.count().blocks);
    expel(handle);
    CHECK_SAME(blocks - 1, cu.count().blocks);
    CHECK(cu.free(at(block)) != CUDA_SUCCESS, "freed twice");
}

/* A block that is not registered is not affected, nor is one whose registration has ended. */
static void beside(void)
{
    char *registered = alloc(8 * MIB);
    char *free_one = alloc(16 * MIB);
    void *handle = enroll(registered, 8 * MIB);
    free_as(false, free_one);
    check_is_reused(false, free_one, 16 * MIB);
    expel(handle);
    free_as(false, registered);
    check_is_reused(false, registered, 8 * MIB);
}

/* By several communicators, several times, and in parts. */
static void several(void)
{
    void *theirs = NULL;
    char *block = nccl_alloc(32 * MIB);
    void *handle = enroll(block, 32 * MIB);
    CHECK_SAME(1, enroll(block + MIB, MIB) == handle);
    CHECK_SAME(NCCL_SUCCESS, nccl.enroll(&other_comm, block, MIB, &theirs));
    free_as(true, block);
    expel(handle);
    check_stays(true, block, 32 * MIB);
    expel(handle);
    check_stays(true, block, 32 * MIB);
    CHECK_SAME(NCCL_SUCCESS, nccl.expel(&other_comm, theirs));
    check_is_reused(true, block, 32 * MIB);
}

/* A range of two blocks, and a part of it under the same handle: all of it counts until both have
 * ended. */
static void two_blocks(void)
{
    char *low = alloc(8 * MIB);
    char *high = alloc(8 * MIB);
    char *swapped = low < high ? low : high;
    high = low < high ? high : low;
    CHECK(high == swapped + 8 * MIB, "the blocks are not adjacent");
    void *handle = enroll(swapped, 16 * MIB);
    CHECK_SAME(1, enroll(swapped, MIB) == handle);
    free_as(false, high);
    expel(handle);
    check_stays(false, high, 8 * MIB);
    expel(handle);
    check_is_reused(false, high, 8 * MIB);
    free_as(false, swapped);
}

/* The end of a communicator ends its registrations, and no other's. */
static void communicators(void)
{
    void *theirs = NULL;
    void *window = NULL;
    for (int aborts = 0; aborts < 2; aborts++) {
        char *block = nccl_alloc(32 * MIB);
        enroll(block, MIB);
        CHECK_SAME(NCCL_SUCCESS, nccl.window(&comm, block, 32 * MIB, &window, 1));
        CHECK_SAME(NCCL_SUCCESS, nccl.enroll(&other_comm, block, 8 * MIB, &theirs));
        free_as(true, block);
        CHECK_SAME(NCCL_SUCCESS, nccl.destroy(&comm));
        check_stays(true, block, 32 * MIB);
        CHECK_SAME(NCCL_SUCCESS, aborts ? nccl.abort(&other_comm) : nccl.destroy(&other_comm));
        check_is_reused(true, block, 32 * MIB);
    }
}

/* ---- windows ----------------------------------------------------------------------------- */

static void windows(void)
{
    void *window = NULL;
    char *block = nccl_alloc(8 * MIB);
    CHECK_SAME(NCCL_SUCCESS, nccl.window(&comm, block, 8 * MIB, &window, 1));
    CHECK(window != NULL, "no window");
    free_as(true, block);
    check_stays(true, block, 8 * MIB);
    CHECK_SAME(NCCL_SUCCESS, nccl.end_window(&comm, window));
    check_is_reused(true, block, 8 * MIB);
    CHECK(nccl.window(&comm, alloc(8 * MIB), 8 * MIB, &window, 1) != NCCL_SUCCESS,
          "a window on memory of cudaMalloc");
}

/* Within groups, nested ones too, a window has its handle when the outer group ends. */
static void grouped(void)
{
    void *handles[2] = {NULL};
    char *blocks[2] = {nccl_alloc(8 * MIB), nccl_alloc(8 * MIB)};
    CHECK_SAME(NCCL_SUCCESS, nccl.group_start());
    for (int i = 0; i < 2; i++) {
        CHECK_SAME(NCCL_SUCCESS, nccl.group_start());
        CHECK_SAME(NCCL_SUCCESS, nccl.window(&comm, blocks[i], 8 * MIB, &handles[i], 1));
        CHECK_SAME(NCCL_SUCCESS, nccl.group_end());
        CHECK(!handles[i], "a window before the group's end");
    }
    CHECK_SAME(NCCL_SUCCESS, nccl.group_end());
    for (int i = 0; i < 2; i++) {
        CHECK(handles[i] != NULL, "no window");
        free_as(true, blocks[i]);
        check_stays(true, blocks[i], 8 * MIB);
        CHECK_SAME(NCCL_SUCCESS, nccl.end_window(&comm, handles[i]));
        check_is_reused(true, blocks[i], 8 * MIB);
    }
}

/* The communicator ends in the group that made its window. */
static void ended_in_its_group(void)
{
    void *window = NULL;
    char *block = nccl_alloc(8 * MIB);
    CHECK_SAME(NCCL_SUCCESS, nccl.group_start());
    CHECK_SAME(NCCL_SUCCESS, nccl.window(&comm, block, 8 * MIB, &window, 1));
    nccl.fail("ncclGroupEnd", NCCL_CUDA_ERROR);
    CHECK_SAME(NCCL_SUCCESS, nccl.destroy(&comm));
    CHECK_SAME(NCCL_CUDA_ERROR, nccl.group_end());
    free_as(true, block);
    check_is_reused(true, block, 8 * MIB);
}

/* ---- failing calls ----------------------------------------------------------------------- */

static void refused_registrations(void)
{
    void *handle = &comm; /* what it holds before the call */
    char *block = nccl_alloc(8 * MIB);
    nccl.fail("ncclCommRegister", NCCL_CUDA_ERROR);
    CHECK_SAME(NCCL_CUDA_ERROR, nccl.enroll(&comm, block, MIB, &handle));
    handle = NULL;
    nccl.fail("ncclCommRegister", NCCL_SUCCESS); /* on this machine NCCL registers nothing */
    CHECK_SAME(NCCL_SUCCESS, nccl.enroll(&comm, block, MIB, &handle));
    nccl.fail("ncclCommWindowRegister", NCCL_CUDA_ERROR);
    CHECK_SAME(NCCL_CUDA_ERROR, nccl.window(&comm, block, MIB, &handle, 1));
    nccl.fail("ncclCommWindowRegister", NCCL_SUCCESS);
    CHECK_SAME(NCCL_SUCCESS, nccl.window(&comm, block, MIB, &handle, 1));
    CHECK_SAME(NCCL_INVALID_ARGUMENT, nccl.window(&comm, block, MIB, NULL, 1));
    CHECK_SAME(NCCL_SUCCESS, nccl.group_start());
    CHECK_SAME(NCCL_SUCCESS, nccl.window(&comm, block, MIB, &handle, 1));
    nccl.fail("ncclGroupEnd", NCCL_CUDA_ERROR);
    CHECK_SAME(NCCL_CUDA_ERROR, nccl.group_end());
    free_as(true, block);
    check_is_reused(true, block, 8 * MIB);
}

/* What NCCL refuses to end stays registered. */
static void refused_ends(void)
{
    void *window = NULL;
    char *block = nccl_alloc(8 * MIB);
    void *handle = enroll(block, MIB);
    CHECK_SAME(NCCL_SUCCESS, nccl.window(&comm, block, MIB, &window, 1));
    free_as(true, block);
    nccl.fail("ncclCommWindowDeregister", NCCL_CUDA_ERROR);
    CHECK_SAME(NCCL_CUDA_ERROR, nccl.end_window(&comm, window));
    expel(handle);
    check_stays(true, block, 8 * MIB);
    CHECK_SAME(NCCL_SUCCESS, nccl.end_window(&comm, window));
    check_is_reused(true, block, 8 * MIB);
    block = nccl_alloc(8 * MIB);
    handle = enroll(block, MIB);
    free_as(true, block);
    nccl.fail("ncclCommDeregister", NCCL_CUDA_ERROR);
    CHECK_SAME(NCCL_CUDA_ERROR, nccl.expel(&comm, handle));
    check_stays(true, block, 8 * MIB);
    CHECK_SAME(NCCL_INVALID_USAGE, nccl.expel(&other_comm, handle));
    nccl.fail("ncclCommDeregister", NCCL_SUCCESS);
    CHECK_SAME(NCCL_SUCCESS, nccl.expel(&other_comm, handle));
    CHECK_SAME(NCCL_SUCCESS, nccl.expel(&comm, NULL));
    check_stays(true, block, 8 * MIB);
    expel(handle);
    check_is_reused(true, block, 8 * MIB);
}

/* A communicator that does not block: the window comes some time, and counts until the communicator
 * ends, whatever that call returns. */
static void in_progress(void)
{
    void *window = NULL;
    char *blocks[2] = {nccl_alloc(8 * MIB), nccl_alloc(8 * MIB)};
    nccl.fail("ncclCommWindowRegister", NCCL_IN_PROGRESS);
    CHECK_SAME(NCCL_IN_PROGRESS, nccl.window(&comm, blocks[0], MIB, &window, 1));
    CHECK_SAME(NCCL_SUCCESS, nccl.group_start());
    CHECK_SAME(NCCL_SUCCESS, nccl.window(&comm, blocks[1], MIB, &window, 1));
    nccl.fail("ncclGroupEnd", NCCL_IN_PROGRESS);
    CHECK_SAME(NCCL_IN_PROGRESS, nccl.group_end());
    for (int i = 0; i < 2; i++) {
        free_as(true, blocks[i]);
        check_stays(true, blocks[i], 8 * MIB);
    }
    nccl.fail("ncclCommDestroy", NCCL_CUDA_ERROR);
    CHECK_SAME(NCCL_CUDA_ERROR, nccl.destroy(&comm));
    check_is_reused(true, blocks[0], 8 * MIB);
    check_is_reused(true, blocks[1], 8 * MIB);
}

/* The driver refuses call after call: the request goes to NCCL, which may be refused as well, and
 * nothing is lost. */
static void failing_driver(void)
{
    bool failed = true;
    free_as(true, nccl_alloc(4 * MIB)); /* opens the heaps */
    for (uint64_t n = 1; failed; n++) {
        void *block = NULL;
        size_t size = (4 + 2 * n) * MIB; /* of no block that is cached */
        cu.fail_any(n, 0, CUDA_ERROR_UNKNOWN);
        int result = nccl.alloc(&block, size);
        failed = cu.has_failed();
        cu.fail_any(0, 0, CUDA_SUCCESS);
        if (result == NCCL_SUCCESS) {
            check_is_one_allocation(block, size);
            cu.fail_any(1, 0, CUDA_ERROR_UNKNOWN);
            result = nccl.free(block);
            cu.fail_any(0, 0, CUDA_SUCCESS);
            CHECK(result == NCCL_SUCCESS || nccl.free(block) == NCCL_SUCCESS, "%d", (int)n);
        }
    }
}

/* ---- captures, resets, threads ----------------------------------------------------------- */

/* During a capture NCCL serves, and frees wait for its end. */
static void captures(void)
{
    CUstream stream;
    void *graph;
    char *registered = nccl_alloc(8 * MIB);
    char *block = nccl_alloc(4 * MIB);
    void *handle = enroll(registered, MIB);
    free_as(true, registered);
    CHECK_SAME(0, cu.stream(&stream, 1));
    CHECK_SAME(0, cu.begin_capture(stream, 2));
    void *theirs = NULL;
    CHECK_SAME(NCCL_SUCCESS, nccl.alloc(&theirs, MIB));
    CHECK_SAME(1, nccl.calls("ncclMemAlloc"));
    free_as(true, block);
    expel(handle);
    CHECK_SAME(0, cu.violations());
    CHECK_SAME(0, cu.end_capture(stream, &graph));
    check_is_reused(true, block, 4 * MIB);
    check_is_reused(true, registered, 8 * MIB);
    CHECK_SAME(NCCL_SUCCESS, nccl.free(theirs));
}

/* The context goes with all its memory; registrations that end later find nothing to free. */
static void reset(void)
{
    char *registered = nccl_alloc(8 * MIB);
    char *plain = alloc(8 * MIB);
    void *handles[2] = {enroll(registered, MIB), enroll(plain, MIB)};
    nccl_alloc(4 * MIB);
    free_as(true, registered);
    free_as(false, plain);
    for (int i = 0; i < 2; i++) {
        expel(handles[i]); /* NCCL's memory is retained otherwise */
        handles[i] = NULL;
    }
    registered = nccl_alloc(8 * MIB);
    void *unretained = enroll(alloc(8 * MIB), MIB);
    CHECK_SAME(0, cu.reset(0));
    CHECK_SAME(0, cu.count().chunk_bytes);
    CUcontext context;
    CHECK_SAME(0, cu.retain(&context, 0));
    CHECK_SAME(0, cu.push(context));
    expel(unretained);
    free_as(true, nccl_alloc(8 * MIB));
    (void)registered;
}

static void *work(void *argument)
{
    int number = (int)(intptr_t)argument;
    int before = not_so;
    CHECK_SAME(0, cu.push(everybodys));
    for (int i = 0; i < ROUNDS; i++) {
        bool by_nccl = (i + number) % 2;
        void *handle = NULL;
        void *block = NULL;
        CUdeviceptr plain = 0;
        size_t size = (size_t)(1 + i % 5) * MIB;
        int result = by_nccl ? nccl.alloc(&block, size) : (int)cu.alloc(&plain, size);
        char *bytes = by_nccl ? block : (char *)plain;
        if (result || nccl.enroll(&comm, bytes, size, &handle)) {
            return NULL;
        }
        memset(bytes, number, 4096);
        if (by_nccl ? nccl.free(bytes) : (int)cu.free(at(bytes))) {
            return NULL;
        }
        if (bytes[0] != number || bytes[4095] != number || nccl.expel(&comm, handle)) {
            return NULL;
        }
    }
    return not_so == before ? everybodys : NULL;
}

static void threads(void)
{
    pthread_t all[THREADS];
    if (begin_threads(all, THREADS, 1, NULL, work)) {
        end_threads(all, THREADS);
    }
}

/* Before NCCL is loaded its functions cannot be found, and the old one has no windows. */
static void old(void)
{
    CHECK(dlsym(library, "ncclCommWindowRegister") == NULL, "the old one has windows");
    CHECK(dlsym(RTLD_DEFAULT, "ncclCommWindowRegister") == NULL, "the old one has windows");
    CHECK(dlsym(dlopen(NULL, RTLD_LAZY), "ncclCommWindowRegister") == NULL, "the old one has");
    freed_as(true, 8 * MIB);
}

int main(int argc, char **argv)
{
    static const cu_case cases[] = {
        {"served", served},
        {"beside_work", beside_work},
        {"wrong", wrong},
        {"passed", passed},
        {"refused", refused},
        {"limited", limited},
        {"exhausted", exhausted},
        {"freed", freed},
        {"driver_owned", driver_owned},
        {"beside", beside},
        {"several", several},
        {"two_blocks", two_blocks},
        {"communicators", communicators},
        {"windows", windows},
        {"grouped", grouped},
        {"ended_in_its_group", ended_in_its_group},
        {"refused_registrations", refused_registrations},
        {"refused_ends", refused_ends},
        {"in_progress", in_progress},
        {"failing_driver", failing_driver},
        {"captures", captures},
        {"reset", reset},
        {"threads", threads},
        {"old", old},
    };
    if (dlsym(RTLD_DEFAULT, "ncclMemAlloc") != NULL && !NCCL_IS_LINKED) {
        puts("found before NCCL is loaded");
        return 1;
    }
    cu_open(0);
    find_all();
    return RUN_CASE(argc, argv, cases);
}
