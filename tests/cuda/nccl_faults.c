/* SPDX-License-Identifier: MIT
 *
 * Registrations of NCCL with calls that fail, during captures, beside a reset and in many threads,
 * with a stand-in for NCCL.
 *
 *   nccl_faults CASE
 */
#include "nccl_scene.h"

enum {
    THREADS = 8,
    ROUNDS = 200
};

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

/* A call that reports progress gives the window some time. It counts until the communicator ends,
 * which it does not if the call fails. */
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
    check_stays(true, blocks[0], 8 * MIB);
    check_stays(true, blocks[1], 8 * MIB);
    CHECK_SAME(NCCL_SUCCESS, nccl.destroy(&comm));
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

/* ---- the preload's own memory ------------------------------------------------------------ */

static uint64_t until; /* the request of the preload that fails, counted from 1; 0: none does */
static bool has_failed;

static inline bool fails(const void *caller)
{
    Dl_info info;
    bool counts = until && dladdr(caller, &info) && strstr(info.dli_fname, "libgpualloc-cuda");
    bool now = counts && --until == 0;
    has_failed = has_failed || now;
    return now;
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* sanitizers serve malloc */

extern void *__libc_malloc(size_t size);

/* The preload finds it before the C library's. */
__attribute__((visibility("default"))) void *malloc(size_t size)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_malloc(size);
}

#endif

static void fail_request(uint64_t n)
{
    until = n;
    has_failed = false;
}

/* Returns true if a request has failed. */
static bool end_failing(void)
{
    until = 0;
    return has_failed;
}

/* Without memory for a record a call fails before NCCL's does anything, or NCCL serves. */
static void no_records(void)
{
    void *block = NULL;
    void *window = NULL;
    void *handle = NULL;
    free_as(true, nccl_alloc(8 * MIB)); /* opens the heaps */
    fail_request(1);
    CHECK_SAME(NCCL_SUCCESS, nccl.alloc(&block, 8 * MIB));
    CHECK(end_failing(), "no request");
    CHECK_SAME(1, nccl.calls("ncclMemAlloc"));
    CHECK_SAME(NCCL_SUCCESS, nccl.free(block));
    char *kept = nccl_alloc(8 * MIB);
    fail_request(1);
    CHECK_SAME(NCCL_SYSTEM_ERROR, nccl.enroll(&comm, kept, MIB, &handle));
    CHECK(end_failing(), "no request");
    CHECK_SAME(0, nccl.calls("ncclCommRegister"));
    for (uint64_t n = 1; n <= 2; n++) {
        fail_request(n);
        CHECK_SAME(NCCL_SYSTEM_ERROR, nccl.window(&comm, kept, MIB, &window, 1));
        CHECK(end_failing(), "no request");
    }
    CHECK_SAME(0, nccl.calls("ncclCommWindowRegister"));
    free_as(true, kept);
    check_is_reused(true, kept, 8 * MIB);
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

/* Each block is kept for a registration when the context goes. Memory of the next context at their
 * addresses is not. */
static void reset_while_kept(void)
{
    char *blocks[2] = {nccl_alloc(8 * MIB), alloc(8 * MIB)};
    CUcontext context;
    for (int i = 0; i < 2; i++) {
        enroll(blocks[i], 8 * MIB);
        free_as(i == 0, blocks[i]);
        check_stays(i == 0, blocks[i], 8 * MIB);
    }
    CHECK_SAME(0, cu.reset(0));
    CHECK_SAME(0, cu.retain(&context, 0));
    CHECK_SAME(0, cu.push(context));
    for (int i = 0; i < 2; i++) {
        char *next = alloc_as(i == 0, 64 * MIB);
        CHECK(next <= blocks[i] && blocks[i] < next + 64 * MIB, "%p, before %p", (void *)next,
              (void *)blocks[i]);
        free_as(i == 0, next);
        check_is_reused(i == 0, next, 64 * MIB);
    }
    CHECK_SAME(NCCL_SUCCESS, nccl.destroy(&comm));
}

/* One block of a thread: registered, freed, and there until it is deregistered. */
static bool use_block(bool by_nccl, size_t size, char mark)
{
    void *handle = NULL;
    void *block = NULL;
    CUdeviceptr plain = 0;
    if (by_nccl ? nccl.alloc(&block, size) : (int)cu.alloc(&plain, size)) {
        return false;
    }
    char *bytes = by_nccl ? block : (char *)plain;
    bool good = !nccl.enroll(&comm, bytes, size, &handle);
    bytes[0] = bytes[size - 1] = mark;
    good = good && !(by_nccl ? nccl.free(bytes) : (int)cu.free(at(bytes)));
    return good && bytes[0] == mark && bytes[size - 1] == mark && !nccl.expel(&comm, handle);
}

static void *work(void *argument)
{
    int number = (int)(intptr_t)argument;
    bool good = cu.push(everybodys) == CUDA_SUCCESS;
    for (int i = 0; good && i < ROUNDS; i++) {
        good = use_block((i + number) % 2, (size_t)(1 + i % 5) * MIB, (char)number);
    }
    return good ? everybodys : NULL;
}

static void threads(void)
{
    pthread_t all[THREADS];
    if (begin_threads(all, THREADS, 1, NULL, work)) {
        end_threads(all, THREADS);
    }
}

int main(int argc, char **argv)
{
    static const cu_case cases[] = {
        {"refused_registrations", refused_registrations},
        {"refused_ends", refused_ends},
        {"in_progress", in_progress},
        {"failing_driver", failing_driver},
        {"captures", captures},
        {"reset", reset},
        {"reset_while_kept", reset_while_kept},
        {"threads", threads},
        {"no_records", no_records},
    };
    return run_nccl_case(argc, argv, cases, sizeof cases / sizeof *cases);
}
