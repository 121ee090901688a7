/* SPDX-License-Identifier: MIT
 *
 * A program whose driver fails at each of its calls, once or a few times: the program gets an error
 * of the driver, keeps every block that was not freed, and continues normally afterwards. After a
 * reset of its context nothing is left.
 *
 *   faults CASE
 */
#include "cases.h"

enum {
    BLOCKS = 6,
    FAILURE = CUDA_ERROR_UNKNOWN,
    CALLS_MAX = 5000
};

static const size_t sizes[BLOCKS] = {1000, 3 * MIB, 40 * MIB, 700, 2 * MIB, 5 * MIB};

static CUresult injected;
static bool by_memory; /* it is not the driver that fails */
static CUdeviceptr live[BLOCKS];

/* The results that a call may have while the driver fails: the stand-in's pools query the device
 * first. */
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

static char *pinned; /* not freed yet */

static void free_pinned(bool must)
{
    CHECK(pinned[0] == 7 && pinned[3 * MIB - 1] == 7, "pinned memory");
    CUresult result = cu.free_host(pinned);
    check_told(result);
    CHECK(!must || result == CUDA_SUCCESS, "%d", result);
    pinned = result == CUDA_SUCCESS ? NULL : pinned;
}

static void use_pinned(void)
{
    void *block = NULL;
    CUresult result = pinned ? CUDA_SUCCESS : cu.host_alloc(&block, 3 * MIB, 0);
    check_told(result);
    if (block && result == CUDA_SUCCESS) {
        pinned = block;
        pinned[0] = pinned[3 * MIB - 1] = 7;
    }
    if (pinned) {
        free_pinned(false);
    }
}

/* Free memory is returned, as far as the driver accepts it. */
static void trim(void)
{
    typedef CUresult trim_fn(CUmemoryPool pool, size_t keep);
    trim_fn *trim_to = NULL;
    CUmemoryPool usual = NULL;
    *(void **)&trim_to = dlsym(dlopen("libcuda.so.1", RTLD_LAZY), "cuMemPoolTrimTo");
    CUresult found = cu.default_pool(&usual, 0);
    check_told(found);
    if (found == CUDA_SUCCESS) {
        check_told(trim_to(usual, 0));
    }
}

static CUdeviceptr put_off;

static void capture(CUstream stream)
{
    void *graph;
    CUresult begun = cu.begin_capture(stream, 2); /* relaxed: the driver, too, would free it */
    if (begun == CUDA_ERROR_OUT_OF_MEMORY && by_memory) {
        return;
    }
    CHECK_SAME(0, begun);
    CUdeviceptr block = live[1];
    CUresult result = block ? cu.free(block) : CUDA_SUCCESS;
    check_told(result);
    put_off = result == CUDA_SUCCESS ? block : 0;
    live[1] = result == CUDA_SUCCESS ? 0 : block;
    CHECK_SAME(0, cu.end_capture(stream, &graph));
}

/* All calls of a program, with any results. */
static void work(CUstream stream)
{
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < BLOCKS; i++) {
            if (!live[i]) {
                check_told(take(i, stream));
            }
        }
        ask(live[2]);
        use_pinned();
        for (size_t i = 0; i < BLOCKS; i++) {
            if (live[i]) {
                check_told(give(i, stream));
            }
        }
        trim();
    }
    check_told(take(1, stream));
    capture(stream);
}

/* The calls after the driver has recovered. A block that was freed during a capture stays freed. */
static void work_again(CUstream stream)
{
    if (put_off) {
        CHECK_SAME(CUDA_ERROR_INVALID_VALUE, cu.free(put_off));
    }
    capture(stream);
    if (pinned) {
        free_pinned(true);
    }
    use_pinned();
    CHECK(!pinned, "pinned memory is left");
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
    trim();
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
    CHECK(left.blocks <= BLOCKS / 2, "%llu blocks", (unsigned long long)left.blocks); /* of pools */
}

/* ---- the preload's own memory -------------------------------------------------------------- */

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);

static uint64_t until, failing; /* requests of the preload before one fails, and the number that
                                 * then fail */
static uintptr_t preload;       /* the address at which it is mapped; 0: it is not mapped */

static void find_preload(void)
{
    Dl_info info;
    void *function;
    memcpy(&function, &cu.alloc, sizeof function);
    if (dladdr(function, &info) && strstr(info.dli_fname, "libgpualloc-cuda")) {
        preload = (uintptr_t)info.dli_fbase;
    }
}

static inline bool fails(const void *caller)
{
    Dl_info info;
    if (!failing || !dladdr(caller, &info) || (uintptr_t)info.dli_fbase != preload) {
        return false;
    }
    if (until) {
        until--;
        return false;
    }
    failing--;
    return true;
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* sanitizers serve malloc */

/* The preload finds these before the C library's. */
__attribute__((visibility("default"))) void *malloc(size_t size)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_malloc(size);
}

__attribute__((visibility("default"))) void *calloc(size_t count, size_t size)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_calloc(count, size);
}

#endif

static bool memory_has_failed(uint64_t more)
{
    bool has = failing <= more;
    failing = 0;
    return has;
}

static void plan(uint64_t n, uint64_t more)
{
    if (by_memory) {
        find_preload();
        until = n - 1;
        failing = more + 1;
    } else {
        cu.fail_any(n, more, injected);
    }
}

static bool end_plan(uint64_t more)
{
    bool has_failed = by_memory ? memory_has_failed(more) : cu.has_failed();
    cu.fail_any(0, 0, CUDA_SUCCESS);
    return has_failed;
}

/* False: there are less calls than that. */
static bool fail_at(uint64_t n, uint64_t more)
{
    CUstream stream;
    cu_open(0);
    CHECK_SAME(0, cu.stream(&stream, 1));
    plan(n, more);
    work(stream);
    bool has_failed = end_plan(more);
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
    while (status == 0 && n < CALLS_MAX) {
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

/* All calls from the n-th on, until the driver recovers. */
static void onward(void)
{
    injected = FAILURE;
    fail_everywhere(UINT32_MAX);
}

static void no_memory(void)
{
    injected = CUDA_ERROR_OUT_OF_MEMORY;
    fail_everywhere(0);
}

/* Of the preload for its own records: each request fails once, and from each one on a few fail. */
static void no_records(void)
{
    by_memory = true;
    injected = CUDA_ERROR_OUT_OF_MEMORY;
    fail_everywhere(0);
    fail_everywhere(3);
    fail_everywhere(UINT32_MAX);
}

static const cu_case cases[] = {{"once", once},
                                {"often", often},
                                {"onward", onward},
                                {"no_memory", no_memory},
                                {"no_records", no_records}};

int main(int argc, char **argv)
{
    return RUN_CASE(argc, argv, cases);
}
