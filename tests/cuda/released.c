/* SPDX-License-Identifier: MIT
 *
 * Programs that release their references to a primary context: the last release destroys the
 * context and its memory, as without the preload.
 */
#include "cases.h"

enum {
    INVALID = 1, /* CUDA_ERROR_INVALID_VALUE */
    ROUNDS = 4,
    THREADS = 4
};

static int is_active(void)
{
    unsigned flags;
    int active = -1;
    void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    CUresult (*state)(CUdevice device, unsigned *flags, int *active);
    *(void **)&state = library ? dlsym(library, "cuDevicePrimaryCtxGetState") : NULL;
    CHECK_SAME(0, state ? state(0, &flags, &active) : -1);
    return active;
}

static uint64_t held(void)
{
    vmm_driver_counts counts = cu.count();
    return counts.chunk_bytes + counts.block_bytes;
}

static void enter(void)
{
    CUcontext context;
    CHECK_SAME(0, cu.retain(&context, 0));
    CHECK_SAME(0, cu.push(context));
}

static void leave(void)
{
    CUcontext context;
    CHECK_SAME(0, cu.pop(&context));
    CHECK_SAME(0, cu.release(0));
}

/* Blocks that are live, and pinned memory in the cache. The program begins with one reference. */
static void last_one(void)
{
    for (int round = 0; round < ROUNDS; round++) {
        CUdeviceptr block = 0;
        void *pinned = NULL;
        CHECK_SAME(0, cu.alloc(&block, 8 * MIB));
        CHECK_SAME(0, cu.host_alloc(&pinned, MIB, 0));
        CHECK_SAME(0, cu.free_host(pinned));
        leave();
        CHECK_SAME(0, is_active());
        CHECK_SAME(0, held());
        enter();
        CHECK_SAME(INVALID, cu.free(block));
    }
    leave();
}

/* The context stays while other references exist. Numba and UCX only retain and release it. */
static void not_the_last(void)
{
    CUdeviceptr block = 0;
    CHECK_SAME(0, cu.alloc(&block, 8 * MIB));
    for (int round = 0; round < ROUNDS; round++) {
        enter();
        leave();
        CHECK_SAME(1, is_active());
    }
    CHECK(held() >= 8 * MIB, "%llu", (unsigned long long)held());
    CHECK_SAME(0, cu.free(block));
}

/* A retain that fails is none, and neither is a release of a device that is not there. */
static void refused(void)
{
    CUcontext context;
    CUdeviceptr block = 0;
    CHECK_SAME(0, cu.alloc(&block, 8 * MIB));
    cu.fail("cuDevicePrimaryCtxRetain", 1, 2);
    CHECK_SAME(2, cu.retain(&context, 0));
    CHECK(cu.release(77) != 0, "no such device");
    CHECK(cu.release(-1) != 0, "no such device");
    CHECK_SAME(0, cu.free(block));
    CHECK_SAME(0, cu.alloc(&block, 8 * MIB));
    leave();
    CHECK_SAME(0, is_active());
    CHECK_SAME(0, held());
}

/* References that another library got past us, from the driver itself. */
static void unknown_holder(void)
{
    CUcontext context;
    CUdeviceptr block = 0;
    void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    CUresult (*retain)(CUcontext * context, CUdevice device);
    *(void **)&retain = library ? dlsym(library, "stand_in_retain") : NULL;
    CHECK(retain != NULL, "no way past us");
    CHECK_SAME(0, retain(&context, 0));
    CHECK_SAME(0, cu.release(0)); /* no known reference is left, and no memory was requested */
    CHECK_SAME(1, is_active());
    CHECK_SAME(0, cu.alloc(&block, 8 * MIB));
    CHECK_SAME(0, cu.retain(&context, 0));
    CHECK_SAME(0, cu.release(0));
    CHECK_SAME(1, is_active());
    CHECK_SAME(0, cu.free(block));
}

static void *look_in(void *argument)
{
    intptr_t good = 1;
    for (int i = 0; i < 200 && good; i++) {
        CUcontext context;
        CUdeviceptr block = 0;
        good = cu.retain(&context, 0) == 0 && cu.push(context) == 0 &&
               cu.alloc(&block, 2 * MIB) == 0 && cu.free(block) == 0 && cu.pop(&context) == 0 &&
               cu.release(0) == 0;
    }
    (void)argument;
    return (void *)good;
}

/* While one reference stays, threads that begin and end find their memory. */
static void threads(void)
{
    pthread_t all[THREADS];
    for (int i = 0; i < THREADS; i++) {
        pthread_create(&all[i], NULL, look_in, NULL);
    }
    for (int i = 0; i < THREADS; i++) {
        void *good = NULL;
        pthread_join(all[i], &good);
        CHECK(good, "thread %d", i);
    }
    CHECK_SAME(1, is_active());
    leave();
    CHECK_SAME(0, is_active());
    CHECK_SAME(0, held());
}

static const cu_case cases[] = {{"last_one", last_one},
                                {"not_the_last", not_the_last},
                                {"refused", refused},
                                {"unknown_holder", unknown_holder},
                                {"threads", threads}};

int main(int argc, char **argv)
{
    cu_open(0);
    return RUN_CASE(argc, argv, cases);
}
