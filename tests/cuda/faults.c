/* SPDX-License-Identifier: MIT
 *
 * A program whose driver fails at each of its calls in turn, once or a few times: it is told so by
 * an error of the driver's, keeps every block that was not freed, and goes on afterwards as if
 * nothing had been. Once its context is reset nothing is left.
 *
 *   faults CASE
 */
#include "cases.h"

enum {
    BLOCKS = 6,
    FAILURE = CUDA_ERROR_UNKNOWN,
    MOST_CALLS = 5000
};

static const size_t sizes[BLOCKS] = {1000, 3 * MIB, 40 * MIB, 700, 2 * MIB, 5 * MIB};

static CUresult injected;
static CUdeviceptr live[BLOCKS];

/* What a call may come to while the driver fails: the stand-in's pools ask for the device first. */
static void check_told(CUresult result)
{
    CHECK(result == CUDA_SUCCESS || result == injected || result == CUDA_ERROR_OUT_OF_MEMORY ||
              result == FAILURE || result == CUDA_ERROR_INVALID_CONTEXT,
          "%d", result);
}

static CUresult take(size_t i, CUstream stream)
{
    CUdeviceptr block = 0;
    CUresult result = i % 2 ? cu.alloc_on(&block, sizes[i], stream) : cu.alloc(&block, sizes[i]);
    CHECK((result == CUDA_SUCCESS) == (block != 0), "%d, and %llx", result, block);
    if (result == CUDA_SUCCESS) {
        *(char *)block = ((char *)block)[sizes[i] - 1] = (char)(i + 1);
        live[i] = block;
    }
    return result;
}

/* A block that is not freed is as it was. */
static CUresult give(size_t i, CUstream stream)
{
    const char *bytes = (const char *)live[i];
    CHECK(bytes[0] == (char)(i + 1) && bytes[sizes[i] - 1] == (char)(i + 1), "block %zu", i);
    CUresult result = i % 2 && i % 3 ? cu.free_on(live[i], stream) : cu.free(live[i]);
    live[i] = result == CUDA_SUCCESS ? 0 : live[i];
    return result;
}

static void ask(CUdeviceptr block)
{
    CUdeviceptr base = 0;
    CUcontext context = NULL;
    size_t size = 0;
    unsigned on = 1;
    check_told(cu.info(&size, &size));
    if (block) {
        cu.range(&base, &size, block); /* both may not know it then */
        cu.attribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, block);
        check_told(cu.set_attribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, block));
    }
}

static CUdeviceptr put_off;

static void capture(CUstream stream)
{
    void *graph;
    CHECK_SAME(0, cu.begin_capture(stream, 2)); /* relaxed: the driver, too, would free it */
    CUdeviceptr block = live[1];
    CUresult result = block ? cu.free(block) : CUDA_SUCCESS;
    check_told(result);
    put_off = result == CUDA_SUCCESS ? block : 0;
    live[1] = result == CUDA_SUCCESS ? 0 : block;
    CHECK_SAME(0, cu.end_capture(stream, &graph));
}

/* Everything that a program does, whatever becomes of it. */
static void work(CUstream stream)
{
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < BLOCKS; i++) {
            if (!live[i]) {
                check_told(take(i, stream));
            }
        }
        ask(live[2]);
        for (size_t i = 0; i < BLOCKS; i++) {
            if (live[i]) {
                check_told(give(i, stream));
            }
        }
    }
    check_told(take(1, stream));
    capture(stream);
}

/* What it does once the driver has recovered. What was freed during a capture stays freed. */
static void work_again(CUstream stream)
{
    if (put_off) {
        CHECK_SAME(CUDA_ERROR_INVALID_VALUE, cu.free(put_off));
    }
    capture(stream);
    for (size_t i = 0; i < BLOCKS; i++) {
        if (live[i]) {
            CHECK_SAME(0, give(i, stream));
        }
    }
    for (size_t i = 0; i < BLOCKS; i++) {
        CHECK_SAME(0, take(i, stream));
    }
    for (size_t i = 0; i < BLOCKS; i++) {
        CHECK_SAME(0, give(i, stream));
    }
}

static void check_nothing_left(void)
{
    CHECK_SAME(0, cu.reset(0));
    vmm_driver_counts left = cu.count();
    CHECK_SAME(0, left.ranges);
    CHECK_SAME(0, left.mappings);
    CHECK_SAME(0, left.handles);
    CHECK_SAME(0, left.chunks);
    CHECK_SAME(0, left.events);
}

/* False: there are less calls than that. */
static bool fail_at(uint64_t n, uint64_t more)
{
    CUstream stream;
    cu_open(0);
    CHECK_SAME(0, cu.stream(&stream, 1));
    cu.fail_any(n, more, injected);
    work(stream);
    bool has_failed = cu.has_failed();
    cu.fail_any(0, 0, CUDA_SUCCESS);
    work_again(stream);
    check_nothing_left();
    return has_failed;
}

enum {
    NO_MORE = 3 /* the status of a child whose driver has not failed */
};

/* Each in a process of its own, which starts a driver of its own. */
static void fail_everywhere(uint64_t more)
{
    uint64_t n = 0;
    int status = 0;
    while (status == 0 && n < MOST_CALLS) {
        n++;
        pid_t child = begin_child();
        if (child == 0) {
            bool has_failed = fail_at(n, more);
            fflush(stdout);
            _exit(not_so ? 1 : has_failed ? 0 : NO_MORE);
        }
        CHECK(child > 0 && waitpid(child, &status, 0) == child, "no child");
    }
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == NO_MORE, "at call %llu, then %llu: %x",
          (unsigned long long)n, (unsigned long long)more, status);
    CHECK(n > 10, "%llu calls in all", (unsigned long long)n);
}

static void once(void)
{
    injected = FAILURE;
    fail_everywhere(0);
}

static void often(void)
{
    injected = FAILURE;
    fail_everywhere(4);
}

static void no_memory(void)
{
    injected = CUDA_ERROR_OUT_OF_MEMORY;
    fail_everywhere(0);
}

static const cu_case cases[] = {{"once", once}, {"often", often}, {"no_memory", no_memory}};

int main(int argc, char **argv)
{
    return RUN_CASE(argc, argv, cases);
}
