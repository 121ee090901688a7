/* SPDX-License-Identifier: MIT
 *
 * Pinned host memory: kept for the next request, or the driver's alone.
 *
 *   pinned CASE
 */
#include "cases.h"

enum {
    INVALID = CUDA_ERROR_INVALID_VALUE,
    PORTABLE = 1,
    WRITE_COMBINED = 4
};

static char *pin(size_t size, unsigned flags)
{
    void *block = NULL;
    CHECK_SAME(0, cu.host_alloc(&block, size, flags));
    CHECK(block && (uintptr_t)block % 4096 == 0, "%p", block);
    if (block) {
        memset(block, 0x5a, size);
    }
    return block;
}

static uint64_t asked(void)
{
    return cu.calls("cuMemHostAlloc") + cu.calls("cuMemAllocHost_v2");
}

static uint64_t freed(void)
{
    return cu.calls("cuMemFreeHost");
}

/* The driver is called once for memory that is used repeatedly: of one size or a little less, with
 * equal flags. */
static void kept(void)
{
    void *host = NULL;
    char *first = pin(100000, PORTABLE);
    CHECK_SAME(0, cu.free_host(first));
    CHECK_SAME(0, freed());
    for (int i = 0; i < 100; i++) {
        char *again = pin((size_t)(100000 - i * 8), PORTABLE);
        CHECK(again == first, "%p, before %p", (void *)again, (void *)first);
        CHECK_SAME(0, cu.free_host(again));
    }
    CHECK_SAME(1, asked());
    char *other = pin(100000, WRITE_COMBINED);
    CHECK(other != first, "other flags");
    CHECK_SAME(2, asked());
    CHECK_SAME(0, cu.alloc_host(&host, 100000));
    CHECK_SAME(3, asked());
    CHECK_SAME(0, cu.free_host(host));
    char *plain = pin(100000, 0);
    CHECK(plain == host, "no flags are no flags");
    char *small = pin(1, PORTABLE);
    CHECK(small != first, "a page for a byte, and not 100000 bytes");
    CHECK_SAME(0, cu.free_host(plain));
    CHECK_SAME(0, cu.free_host(small));
    CHECK_SAME(0, cu.free_host(other));
    CHECK_SAME(0, freed());
}

static void wrong(void)
{
    int mine = 0;
    void *none = NULL;
    char *block = pin(1000, 0);
    CHECK_SAME(INVALID, cu.free_host(&mine));
    CHECK_SAME(INVALID, cu.free_host(NULL));
    CHECK_SAME(INVALID, cu.free_host(block + 16));
    CHECK_SAME(INVALID, cu.host_alloc(&none, 0, 0));
    CHECK_SAME(INVALID, cu.host_alloc(NULL, 1000, 0));
    CHECK_SAME(CUDA_ERROR_OUT_OF_MEMORY, cu.host_alloc(&none, SIZE_MAX - 8192, 0));
    CHECK_SAME(0, cu.free_host(block));
    CHECK_SAME(INVALID, cu.free_host(block));
    CHECK(pin(1000, 0) == block, "freed twice, and had twice");
    CHECK(pin(1000, 0) != block, "had twice");
}

/* Queries return the requested properties. */
static void questions(void)
{
    CUdeviceptr base = 0;
    size_t size = 0;
    char *block = pin(100001, 0);
    CHECK_SAME(0, cu.range(&base, &size, (CUdeviceptr)(block + 100000)));
    CHECK(base == (CUdeviceptr)block && size == 100001, "%llx, %zu", base, size);
    CHECK_SAME(0, cu.free_host(block));
}

/* 8 MiB are cached at most, and 16 MiB may be pinned: cached memory is released for requests. */
static void bounded(void)
{
    char *at[4];
    void *none = NULL;
    for (int i = 0; i < 4; i++) {
        at[i] = pin(4 * MIB, 0);
    }
    CHECK_SAME(CUDA_ERROR_OUT_OF_MEMORY, cu.host_alloc(&none, MIB, 0));
    for (int i = 0; i < 4; i++) {
        CHECK_SAME(0, cu.free_host(at[i]));
    }
    CHECK_SAME(2, freed());
    char *large = pin(16 * MIB, 0);
    CHECK_SAME(4, freed());
    CHECK_SAME(0, cu.free_host(large)); /* too large to be kept */
    CHECK_SAME(5, freed());
}

/* A free waits for the device, as the driver's does. */
static void waits(void)
{
    CUstream stream;
    CUdeviceptr block = 0;
    char *host = pin(MIB, 0);
    CHECK_SAME(0, cu.stream(&stream, 1));
    CHECK_SAME(0, cu.alloc(&block, 1000));
    cu.hold(stream);
    CHECK_SAME(0, cu.fill_on(block, 0, 1000, stream));
    uint64_t before = cu.count().waits;
    CHECK_SAME(0, cu.free_host(host));
    CHECK_SAME(before + 1, cu.count().waits);
    cu.let_go(stream);
}

static void capture(void)
{
    CUstream stream;
    void *graph;
    char *before = pin(MIB, 0);
    CHECK_SAME(0, cu.stream(&stream, 1));
    CHECK_SAME(0, cu.begin_capture(stream, 0));
    CHECK_SAME(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cu.free_host(before)); /* the driver's */
    CHECK_SAME(1, cu.violations());
    char *meanwhile = pin(MIB, 0);
    CHECK(meanwhile != before, "it was not freed");
    CHECK_SAME(1, cu.violations());
    CHECK_SAME(0, cu.end_capture(stream, &graph));
    CHECK_SAME(0, cu.free_host(before));
    CHECK_SAME(0, cu.free_host(meanwhile));
    CHECK(pin(MIB, 0) == before, "it is kept now");
}

static void reset(void)
{
    CUcontext context;
    char *live = pin(MIB, 0);
    char *gone = pin(MIB, 0);
    CHECK_SAME(0, cu.free_host(gone));
    CHECK_SAME(0, freed());
    CHECK_SAME(0, cu.reset(0));
    CHECK_SAME(1, freed());
    CHECK_SAME(0, cu.retain(&context, 0));
    CHECK_SAME(0, cu.push(context));
    CHECK_SAME(INVALID, cu.free_host(live));
    CHECK_SAME(INVALID, cu.free_host(gone));
    uint64_t before = asked();
    CHECK_SAME(0, cu.free_host(pin(MIB, 0)));
    CHECK_SAME(before + 1, asked());
}

/* A device that was waited for is not in use after its reset: it has no heap yet. */
static void reset_alone(void)
{
    CUcontext context;
    CHECK_SAME(0, cu.free_host(pin(MIB, 0)));
    for (int round = 0; round < 3; round++) {
        CHECK_SAME(0, cu.reset(0));
        CHECK_SAME(0, cu.retain(&context, 0));
        CHECK_SAME(0, cu.push(context));
        uint64_t before = asked();
        for (int i = 0; i < 5; i++) {
            CHECK_SAME(0, cu.free_host(pin(MIB, 0)));
        }
        CHECK_SAME(before + 1, asked());
    }
}

/* Memory that the driver refuses to release is not lost. */
static void refused(void)
{
    char *at[2];
    void *none = NULL;
    for (int i = 0; i < 2; i++) {
        at[i] = pin(4 * MIB, 0);
    }
    char *live = pin(8 * MIB, 0);
    for (int i = 0; i < 2; i++) {
        CHECK_SAME(0, cu.free_host(at[i]));
    }
    CHECK_SAME(0, freed());
    cu.fail("cuMemFreeHost", 1, CUDA_ERROR_NOT_PERMITTED);
    CHECK_SAME(CUDA_ERROR_OUT_OF_MEMORY, cu.host_alloc(&none, 8 * MIB, 0));
    CHECK_SAME(2, freed());
    uint64_t before = asked();
    CHECK_SAME(0, cu.free_host(pin(4 * MIB, 0)));
    CHECK_SAME(before, asked());
    CHECK_SAME(0, cu.free_host(live));
}

static void forked(void)
{
    char *kept_one = pin(MIB, 0);
    char *live = pin(MIB, 0);
    CHECK_SAME(0, cu.free_host(kept_one));
    pid_t child = begin_child();
    if (child == 0) {
        void *none = NULL;
        CHECK_SAME(CUDA_ERROR_NOT_INITIALIZED, cu.host_alloc(&none, MIB, 0));
        CHECK_SAME(CUDA_ERROR_NOT_INITIALIZED, cu.free_host(live));
        _exit(not_so != 0);
    }
    end_child(child);
    CHECK(pin(MIB, 0) == kept_one, "it went with the child");
    CHECK_SAME(0, cu.free_host(live));
}

/* Without pinned= all is the driver's. */
static void passed(void)
{
    for (int i = 0; i < 10; i++) {
        CHECK_SAME(0, cu.free_host(pin(100000, 0)));
    }
    CHECK_SAME(10, asked());
    CHECK_SAME(10, freed());
}

/* ---- threads ------------------------------------------------------------------------------- */

enum {
    THREADS = 8,
    ROUNDS = 1000
};

static void *in_thread(void *argument)
{
    int number = (int)(intptr_t)argument;
    intptr_t good = cu.push(everybodys) == 0;
    for (int i = 0; i < ROUNDS && good; i++) {
        void *block = NULL;
        size_t size = (size_t)((i * 7 + number) % 50 + 1) * KIB;
        good = cu.host_alloc(&block, size, (unsigned)i % 2) == 0;
        if (good) {
            memset(block, number, size);
            good = ((char *)block)[size / 2] == (char)number && cu.free_host(block) == 0;
        }
    }
    return (void *)good;
}

static void threads(void)
{
    pthread_t all[THREADS];
    if (!begin_threads(all, THREADS, 0, NULL, in_thread)) {
        return;
    }
    end_threads(all, THREADS);
    CHECK(asked() < THREADS * ROUNDS / 4, "%llu calls", (unsigned long long)asked());
}

static const cu_case cases[] = {
    {"kept", kept},       {"wrong", wrong},   {"questions", questions},     {"bounded", bounded},
    {"waits", waits},     {"reset", reset},   {"capture", capture},         {"forked", forked},
    {"threads", threads}, {"passed", passed}, {"reset_alone", reset_alone}, {"refused", refused},
};

int main(int argc, char **argv)
{
    cu_open(0);
    return RUN_CASE(argc, argv, cases);
}
