/* SPDX-License-Identifier: MIT
 *
 * References of cuCtxAttach() to a context in which a stream captures: the capture ends with the
 * last reference, not before.
 *
 *   attached CASE heap|driver
 *
 * `heap`: a heap serves device memory, unless a stream captures.
 */
#include "cases.h"

static bool by_heap;

static struct {
    CUresult (*attach)(CUcontext *context, unsigned flags);
    CUresult (*detach)(CUcontext context);
    void (*meanwhile)(const char *symbol, void (*run)(void));
    CUresult (*end)(CUcontext context); /* without a hook */
} of;

static void expect_capturing(void)
{
    CUdeviceptr none = 0;
    CHECK_SAME(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cu.alloc(&none, MIB));
}

static void expect_serving(void)
{
    CUdeviceptr block = 0;
    uint64_t calls = cu.calls("cuMemAlloc_v2");
    CHECK_SAME(0, cu.alloc(&block, MIB));
    CHECK(!by_heap || calls == cu.calls("cuMemAlloc_v2"), "the driver serves");
    CHECK_SAME(0, cu.free(block)); /* a heap keeps it, and could serve the next request without the
                                    * driver */
}

static CUstream stream;

/* A new stream of the current context captures. */
static void begin_capture(void)
{
    CHECK_SAME(0, cu.stream(&stream, 1));
    CHECK_SAME(0, cu.begin_capture(stream, 0));
}

/* The context is no longer current, and its stream still captures. */
static void leave(void)
{
    CUcontext left;
    CHECK_SAME(0, cu.pop(&left));
    expect_capturing();
}

/* The context is current from now on. */
static void end_capture(CUcontext context)
{
    void *graph;
    CHECK_SAME(0, cu.push(context));
    CHECK_SAME(0, cu.end_capture(stream, &graph));
}

static void captures(void)
{
    CUcontext beside;
    CUcontext again;
    expect_serving();
    CHECK_SAME(0, cu.create(&beside, NULL, 0, 0, 0));
    CHECK_SAME(0, of.attach(&again, 0));
    begin_capture();
    leave();
    CHECK_SAME(0, of.detach(beside));
    expect_capturing();
    end_capture(beside);
    CHECK_SAME(0, of.detach(beside));
    CHECK_SAME(CUDA_ERROR_INVALID_CONTEXT, of.detach(beside));
    expect_serving();
}

/* The driver refuses calls: the references are as many as before. */
static void refused(void)
{
    CUcontext beside;
    CUcontext again;
    expect_serving();
    CHECK_SAME(0, cu.create(&beside, NULL, 0, 0, 0));
    cu.fail("cuCtxAttach", 1, CUDA_ERROR_UNKNOWN);
    CHECK_SAME(CUDA_ERROR_UNKNOWN, of.attach(&again, 0));
    CHECK_SAME(0, of.attach(&again, 0));
    begin_capture();
    leave();
    cu.fail("cuCtxDetach", 1, CUDA_ERROR_UNKNOWN);
    CHECK_SAME(CUDA_ERROR_UNKNOWN, of.detach(beside));
    CHECK_SAME(0, of.detach(beside));
    expect_capturing();
    end_capture(beside);
    CHECK_SAME(0, cu.destroy(beside));
    expect_serving();
}

static CUcontext shared;

static void detach_shared(void)
{
    CHECK_SAME(0, of.detach(shared));
}

/* A thread detaches while another one attaches: a reference is left. */
static void meanwhile(void)
{
    CUcontext again;
    expect_serving();
    CHECK_SAME(0, cu.create(&shared, NULL, 0, 0, 0));
    begin_capture();
    of.meanwhile("attached", detach_shared);
    CHECK_SAME(0, of.attach(&again, 0));
    leave();
    end_capture(shared);
    CHECK_SAME(0, of.detach(shared));
    CHECK_SAME(CUDA_ERROR_INVALID_CONTEXT, of.detach(shared));
    expect_serving();
}

/* A context ends without a hook while it has two references, and another one gets its handle. */
static void reused(void)
{
    CUcontext before;
    CUcontext after;
    CUcontext again;
    expect_serving();
    CHECK_SAME(0, cu.create(&before, NULL, 0, 0, 0));
    CHECK_SAME(0, of.attach(&again, 0));
    CHECK_SAME(0, of.end(before));
    CHECK_SAME(0, cu.create(&after, NULL, 0, 0, 0));
    CHECK(before == after, "another handle");
    begin_capture();
    leave();
    CHECK_SAME(0, of.detach(after));
    CHECK_SAME(CUDA_ERROR_INVALID_CONTEXT, of.detach(after));
    expect_serving();
}

int main(int argc, char **argv)
{
    static const cu_case cases[] = {
        {"captures", captures}, {"refused", refused}, {"meanwhile", meanwhile}, {"reused", reused}};
    by_heap = argc > 2 && strcmp(argv[2], "heap") == 0;
    cu_open(0);
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    *(void **)&of.attach = dlsym(driver, "cuCtxAttach");
    *(void **)&of.detach = dlsym(driver, "cuCtxDetach");
    *(void **)&of.meanwhile = dlsym(driver, "stand_in_meanwhile");
    *(void **)&of.end = dlsym(driver, "stand_in_end_context");
    return RUN_CASE(argc, argv, cases);
}
