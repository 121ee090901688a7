/* SPDX-License-Identifier: MIT
 *
 * Programs that let NCCL allocate and register device memory, with a stand-in for NCCL. Memory of
 * ncclMemAlloc() is the pool's, and a block that is freed while it is registered stays.
 *
 *   nccl CASE
 */
#include "nccl_scene.h"

/* ---- memory ------------------------------------------------------------------------------ */

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

/* The heap opens on a full device of 64 MiB, where it cannot try which devices reach it. It lets in
 * those that ask for access, and those that are served. */
static void let_in(void)
{
    CUcontext first, second, one;
    CHECK_SAME(0, cu.get_current(&first));
    char *all = alloc(64 * MIB);
    void *none = NULL;
    CHECK(nccl.alloc(&none, 8 * MIB) != NCCL_SUCCESS, "above the memory");
    CHECK_SAME(0, cu.free(at(all)));
    CHECK_SAME(0, cu.retain(&second, 1));
    CHECK_SAME(0, cu.push(second));
    CHECK_SAME(0, cu.peer(first, 0));
    CHECK_SAME(0, cu.pop(&one));
    char *block = nccl_alloc(8 * MIB);
    CHECK(cu.accessible(block, 8 * MIB, 3), "not by its peer");
    CHECK_SAME(NCCL_SUCCESS, nccl.free(block));
    CHECK_SAME(0, cu.push(second));
    all = alloc(64 * MIB);
    CHECK(nccl.alloc(&none, 8 * MIB) != NCCL_SUCCESS, "above the memory");
    CHECK_SAME(0, cu.free(at(all)));
    block = nccl_alloc(8 * MIB);
    CHECK(cu.accessible(block, 8 * MIB, 3), "not by the device that is served");
    CHECK_SAME(NCCL_SUCCESS, nccl.free(block));
}

/* ---- blocks that are freed while they are registered ------------------------------------- */

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

/* A communicator that a group destroys ends when the group does. */
static void destroyed_in_a_group(void)
{
    for (int i = 0; i < 4; i++) {
        bool aborts = i % 2;
        void *theirs = NULL;
        char *block = nccl_alloc(8 * MIB);
        enroll(block, 8 * MIB);
        CHECK_SAME(NCCL_SUCCESS, nccl.enroll(&other_comm, block, 8 * MIB, &theirs));
        CHECK_SAME(NCCL_SUCCESS, nccl.group_start());
        CHECK_SAME(NCCL_SUCCESS, nccl.group_start());
        CHECK_SAME(NCCL_SUCCESS, aborts ? nccl.abort(&comm) : nccl.destroy(&comm));
        CHECK_SAME(NCCL_SUCCESS, nccl.destroy(&other_comm));
        free_as(true, block);
        check_stays(true, block, 8 * MIB);
        CHECK_SAME(NCCL_SUCCESS, nccl.group_end());
        check_stays(true, block, 8 * MIB);
        CHECK_SAME(NCCL_SUCCESS, i / 2 ? nccl.group_simulate_end(NULL) : nccl.group_end());
        check_is_reused(true, block, 8 * MIB);
    }
}

/* A window of a group that is only simulated has its handle at the end, too. */
static void simulated(void)
{
    void *window = NULL;
    char *block = nccl_alloc(8 * MIB);
    CHECK_SAME(NCCL_SUCCESS, nccl.group_start());
    CHECK_SAME(NCCL_SUCCESS, nccl.window(&comm, block, 8 * MIB, &window, 1));
    CHECK_SAME(NCCL_SUCCESS, nccl.group_simulate_end(NULL));
    CHECK(window != NULL, "no window");
    free_as(true, block);
    check_stays(true, block, 8 * MIB);
    CHECK_SAME(NCCL_SUCCESS, nccl.end_window(&comm, window));
    check_is_reused(true, block, 8 * MIB);
    window = NULL; /* the next group is one of its own */
    CHECK_SAME(NCCL_SUCCESS, nccl.window(&comm, block = nccl_alloc(8 * MIB), MIB, &window, 1));
    CHECK_SAME(NCCL_SUCCESS, nccl.destroy(&comm));
    free_as(true, block);
    check_is_reused(true, block, 8 * MIB);
}

/* ---- communicators that do not block ------------------------------------------------------ */

static void check_state(int state)
{
    int error = -1;
    CHECK_SAME(NCCL_SUCCESS, nccl.get_error(&comm, &error));
    CHECK_SAME(state, error);
}

/* Returns success without a window, which NCCL makes later. */
static char *begin_window(bool grouped, void **window)
{
    char *block = nccl_alloc(8 * MIB);
    *window = NULL;
    CHECK_SAME(NCCL_SUCCESS, grouped ? nccl.group_start() : NCCL_SUCCESS);
    CHECK_SAME(NCCL_SUCCESS, nccl.window(&comm, block, 8 * MIB, window, 1));
    CHECK_SAME(grouped ? NCCL_IN_PROGRESS : NCCL_SUCCESS, grouped ? nccl.group_end() : 0);
    CHECK(!*window, "a window at once");
    check_state(NCCL_IN_PROGRESS);
    return block;
}

static void nonblocking(void)
{
    void *window = NULL;
    nccl.block(0);
    for (int grouped = 0; grouped < 2; grouped++) {
        char *block = begin_window(grouped, &window);
        free_as(true, block);
        check_stays(true, block, 8 * MIB);
        nccl.proceed(NCCL_SUCCESS);
        check_state(NCCL_SUCCESS);
        CHECK(window != NULL, "no window");
        check_stays(true, block, 8 * MIB);
        CHECK_SAME(NCCL_SUCCESS, nccl.end_window(&comm, window));
        check_is_reused(true, block, 8 * MIB);
        block = begin_window(grouped, &window); /* and NCCL fails */
        free_as(true, block);
        nccl.proceed(NCCL_CUDA_ERROR);
        check_stays(true, block, 8 * MIB);
        check_state(NCCL_CUDA_ERROR);
        expel(NULL); /* any other call: that for the state does not wait for the device */
        check_is_reused(true, block, 8 * MIB);
        nccl.proceed(NCCL_SUCCESS);
    }
}

/* A communicator with an operation in progress is not destroyed, nor in a group that fails. */
static void not_destroyed(void)
{
    void *window = NULL;
    nccl.block(0);
    char *block = begin_window(false, &window);
    free_as(true, block);
    CHECK_SAME(NCCL_INVALID_ARGUMENT, nccl.destroy(&comm));
    check_stays(true, block, 8 * MIB);
    nccl.proceed(NCCL_SUCCESS);
    check_state(NCCL_SUCCESS);
    CHECK_SAME(NCCL_SUCCESS, nccl.group_start());
    CHECK_SAME(NCCL_SUCCESS, nccl.destroy(&comm));
    nccl.fail("ncclGroupEnd", NCCL_CUDA_ERROR);
    CHECK_SAME(NCCL_CUDA_ERROR, nccl.group_end());
    check_stays(true, block, 8 * MIB);
    CHECK_SAME(NCCL_SUCCESS, nccl.destroy(&comm));
    check_is_reused(true, block, 8 * MIB);
}

/* NCCL may end a registration later, as well. */
static void ended_later(void)
{
    char *block = nccl_alloc(8 * MIB);
    void *handle = enroll(block, 8 * MIB);
    free_as(true, block);
    nccl.block(0);
    nccl.fail("ncclCommDeregister", NCCL_IN_PROGRESS);
    CHECK_SAME(NCCL_IN_PROGRESS, nccl.expel(&comm, handle));
    expel(NULL); /* still in progress */
    check_stays(true, block, 8 * MIB);
    check_state(NCCL_SUCCESS);
    check_stays(true, block, 8 * MIB);
    expel(NULL);
    check_is_reused(true, block, 8 * MIB);
}

static char *meanwhile_block;
static void *meanwhile_handle;

static void begin_meanwhile(void)
{
    meanwhile_block = begin_window(false, &meanwhile_handle);
}

static void end_meanwhile(void)
{
    nccl.fail("ncclCommDeregister", NCCL_IN_PROGRESS);
    CHECK_SAME(NCCL_IN_PROGRESS, nccl.expel(&comm, meanwhile_handle));
}

/* Operations begin after NCCL has answered a poll, and before the poll returns, as by two threads.
 * That poll says nothing of them. */
static void polled_before(void)
{
    nccl.block(0);
    nccl.during("ncclCommGetAsyncError", begin_meanwhile);
    check_state(NCCL_SUCCESS);
    free_as(true, meanwhile_block);
    expel(NULL);
    check_stays(true, meanwhile_block, 8 * MIB);
    nccl.proceed(NCCL_SUCCESS);
    check_state(NCCL_SUCCESS);
    nccl.during("ncclCommGetAsyncError", end_meanwhile);
    check_state(NCCL_SUCCESS);
    expel(NULL);
    check_stays(true, meanwhile_block, 8 * MIB);
    check_state(NCCL_SUCCESS);
    expel(NULL);
    check_is_reused(true, meanwhile_block, 8 * MIB);
}

/* ---- registrations of memory whose other registrations end --------------------------------- */

static void *ending;

static void end_other(void)
{
    expel(ending);
}

/* A freed block, which is there until its registration `ending` ends. */
static char *kept_block(void)
{
    char *block = nccl_alloc(8 * MIB);
    ending = enroll(block, 8 * MIB);
    free_as(true, block);
    return block;
}

/* It ends while NCCL makes another one, as by two threads: the block is there until that one ends,
 * or has failed. */
static void ended_meanwhile(void)
{
    void *window = NULL;
    char *block = kept_block();
    nccl.during("ncclCommRegister", end_other);
    void *handle = enroll(block, 8 * MIB);
    check_stays(true, block, 8 * MIB);
    expel(handle);
    check_is_reused(true, block, 8 * MIB);
    block = kept_block();
    nccl.during("ncclCommWindowRegister", end_other);
    CHECK_SAME(NCCL_SUCCESS, nccl.window(&comm, block, 8 * MIB, &window, 1));
    check_stays(true, block, 8 * MIB);
    CHECK_SAME(NCCL_SUCCESS, nccl.end_window(&comm, window));
    check_is_reused(true, block, 8 * MIB);
    block = kept_block();
    nccl.during("ncclCommRegister", end_other);
    nccl.fail("ncclCommRegister", NCCL_CUDA_ERROR);
    CHECK_SAME(NCCL_CUDA_ERROR, nccl.enroll(&comm, block, 8 * MIB, &handle));
    check_is_reused(true, block, 8 * MIB);
}

/* NCCL has ended it later than its call, and the next call is another registration. */
static void registered_again(void)
{
    char *block = kept_block();
    nccl.block(0);
    nccl.fail("ncclCommDeregister", NCCL_IN_PROGRESS);
    CHECK_SAME(NCCL_IN_PROGRESS, nccl.expel(&comm, ending));
    check_state(NCCL_SUCCESS);
    void *handle = enroll(block, 8 * MIB);
    check_stays(true, block, 8 * MIB);
    expel(handle);
    check_is_reused(true, block, 8 * MIB);
}

static void check_is_refused(char *start, size_t size)
{
    void *handle = NULL;
    void *window = NULL;
    int before = nccl.calls("ncclCommRegister") + nccl.calls("ncclCommWindowRegister");
    CHECK_SAME(NCCL_INVALID_ARGUMENT, nccl.enroll(&comm, start, size, &handle));
    CHECK_SAME(NCCL_INVALID_ARGUMENT, nccl.window(&comm, start, size, &window, 1));
    CHECK(!handle && !window, "a handle");
    CHECK_SAME(before, nccl.calls("ncclCommRegister") + nccl.calls("ncclCommWindowRegister"));
}

/* Memory that is free is not registered; a range of which a block has a part is. */
static void free_memory(void)
{
    for (int by_nccl = 0; by_nccl < 2; by_nccl++) {
        char *block = alloc_as(by_nccl, 8 * MIB);
        void *handle = enroll(block, 8 * MIB);
        expel(enroll(block + MIB, 8 * MIB)); /* ends in other memory */
        free_as(by_nccl, block);
        expel(handle);
        check_is_refused(block, 8 * MIB);
        check_is_refused(block + MIB, MIB);
        check_is_reused(by_nccl, block, 8 * MIB);
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
        {"let_in", let_in},
        {"freed", freed},
        {"driver_owned", driver_owned},
        {"beside", beside},
        {"several", several},
        {"two_blocks", two_blocks},
        {"communicators", communicators},
        {"windows", windows},
        {"grouped", grouped},
        {"ended_in_its_group", ended_in_its_group},
        {"destroyed_in_a_group", destroyed_in_a_group},
        {"simulated", simulated},
        {"nonblocking", nonblocking},
        {"not_destroyed", not_destroyed},
        {"ended_later", ended_later},
        {"polled_before", polled_before},
        {"ended_meanwhile", ended_meanwhile},
        {"registered_again", registered_again},
        {"free_memory", free_memory},
        {"old", old},
    };
    return run_nccl_case(argc, argv, cases, sizeof cases / sizeof *cases);
}
